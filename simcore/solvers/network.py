"""A cluster as the solvers see it: numbered links with capacities, and the way between two ranks.

Capacities are payload bytes per second, so that protocol overhead is accounted for once, here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcore.cluster import Cluster, Level
from simcore.names import unknown
from simcore.schedule import IntArray
from simcore.trace import FloatArray
from simcore.units import parse_time

MAX_FACTOR = 100  # by which a link may become faster
_PAIR = re.compile(r"(?:gpu)?(\d+)->(?:gpu)?(\d+)")

LinkChange = tuple[float, int, float]  # from then on, this link has this capacity


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A link has ``factor`` times its capacity from ``from_s`` to ``until_s``; 0 cuts it.

    ``link`` is a link's name (``gpu3.tx``, ``node1.up``), ``gpu3`` for all ports of a rank, or a
    pair of ranks, ``0->1`` or ``gpu0->gpu1``, whose rate is capped at ``factor`` of the slowest
    link between them. A factor above 1, for a link with a name, makes it faster.
    """

    link: str
    factor: float
    from_s: float = 0.0
    until_s: float = math.inf

    def __post_init__(self) -> None:
        most = 1 if _PAIR.fullmatch(self.link) else MAX_FACTOR
        if not 0 <= self.factor <= most:
            raise ValueError(f"slow link factor must be from 0 to {most}, got {self.factor!r}")
        if not (0 <= self.from_s < self.until_s and math.isfinite(self.from_s)):
            raise ValueError(
                f"slow link times must be 0 <= T1 < T2, got {self.from_s!r} and {self.until_s!r}"
            )


def parse_slow_link(text: str) -> Slowdown:
    """A change of a link, with or without its times; without the second one it stays.

    >>> parse_slow_link("gpu2:0@200ms..0.5s")
    Slowdown(link='gpu2', factor=0.0, from_s=0.2, until_s=0.5)
    >>> parse_slow_link("0->1:0.1@200ms..").until_s
    inf
    """
    match = re.fullmatch(r"([^:]+):([^@]+)(?:@(.+?)\.\.(.*))?", text)
    try:
        factor = float(match[2]) if match else float("nan")
    except ValueError:
        match = None
    if not match:
        raise ValueError(
            f"slow link {text!r}; accepted: LINK:FACTOR or LINK:FACTOR@T1..T2, such as "
            "0->1:0.5@1ms..2ms, gpu3:0.1@5ms.. or node1.up:0.1"
        )
    try:
        times = [parse_time(time) for time in match.group(3, 4) if time]
        return Slowdown(match[1], factor, *times)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


class Network:
    """Links by number: ports first, then ``free``, an endless one that fills up short ways."""

    def __init__(self, cluster: Cluster, slowdowns: Sequence[Slowdown] = ()) -> None:
        self.n = cluster.n
        self.cluster = cluster
        self.names: list[str] = []
        self._capacity: list[float] = []
        self._levels = cluster.levels
        self._groups = [np.array(level.groups) for level in cluster.levels]
        self._add_ports()
        self.free = self._add("free", math.inf)
        self._on_level = [self._add_level(level) for level in cluster.levels]
        self._pair_latency = {(s, d): t for s, d, t in cluster.pair_latency_s}
        self._pairs: dict[tuple[int, int], int] = {}
        links = len(self.names)  # those of pairs come on top, and let no bursts pass
        self.changes = self._changes(slowdowns)
        self.capacity: FloatArray = np.array(self._capacity)
        self.burst: FloatArray = np.zeros(len(self.names))
        self.burst[:links] = self._payload(cluster.burst_bytes)
        self.burst[self.free] = 0.0

    def _add(self, name: str, payload_bytes_per_s: float) -> int:
        self.names.append(name)
        self._capacity.append(payload_bytes_per_s)
        return len(self.names) - 1

    def _add_ports(self) -> None:
        """``gpuR.tx`` of all ranks, then ``gpuR.rx``; of each level with ports of its own too."""
        send, receive = self.cluster.payload_bytes_per_s
        self.tx, self.rx = self._port_pair("", send, receive, self.cluster.half_duplex)
        # By the level at which a message stays inside; the last row is for all the others.
        self._port_tx, self._port_rx = [self.tx], [self.rx]
        for level in reversed(self._levels):
            tx, rx = self._port_tx[0], self._port_rx[0]
            if level.port_bytes_per_s is not None:
                rate = np.full(self.n, self._payload(level.port_bytes_per_s))
                tx, rx = self._port_pair(f".{level.name}", rate, rate, False)
            self._port_tx.insert(0, tx)
            self._port_rx.insert(0, rx)

    def _payload(self, bytes_per_s: float) -> float:
        return bytes_per_s / self.cluster.wire_time_per_payload_byte

    def _port_pair(
        self, kind: str, send: FloatArray, receive: FloatArray, half_duplex: bool
    ) -> tuple[IntArray, IntArray]:
        if half_duplex:
            both = [self._add(f"gpu{r}{kind}.port", float(send[r])) for r in range(self.n)]
            return np.array(both), np.array(both)
        tx = [self._add(f"gpu{r}{kind}.tx", float(send[r])) for r in range(self.n)]
        rx = [self._add(f"gpu{r}{kind}.rx", float(receive[r])) for r in range(self.n)]
        return np.array(tx), np.array(rx)

    def _add_level(self, level: Level) -> tuple[IntArray | None, IntArray | None, IntArray | None]:
        """For each rank its group's way up, way down and bus; None where the level has none."""
        groups = np.array(level.groups)
        up = down = bus = None
        if level.uplink_bytes_per_s is not None:
            rate = self._payload(level.uplink_bytes_per_s)
            up, down = np.zeros(self.n, np.int64), np.zeros(self.n, np.int64)
            for group in np.unique(groups).tolist():
                ranks = np.flatnonzero(groups == group)
                nic_of = np.arange(len(ranks)) * level.nics // len(ranks)
                for nic in np.unique(nic_of).tolist():
                    name = f"{level.name}{group}" + (f".nic{nic}" if level.nics > 1 else "")
                    members = ranks[nic_of == nic]
                    up[members] = self._add(f"{name}.up", rate)
                    down[members] = (
                        up[members] if level.half_duplex else self._add(f"{name}.down", rate)
                    )
        if level.bus_bytes_per_s is not None:
            rate = self._payload(level.bus_bytes_per_s)
            numbers = {
                g: self._add(f"{level.name}{g}.bus", rate) for g in sorted(set(level.groups))
            }
            bus = np.array([numbers[g] for g in level.groups])
        return up, down, bus

    # -- ways --------------------------------------------------------------------------------

    def _inside(self, src: IntArray, dst: IntArray) -> IntArray:
        """The innermost level at which both are in one group; the number of levels if none."""
        inside = np.full(len(src), len(self._levels))
        for number in reversed(range(len(self._levels))):
            groups = self._groups[number]
            inside[groups[src] == groups[dst]] = number
        return inside

    def routes(self, src: IntArray, dst: IntArray) -> IntArray:
        """Links on the way from each ``src`` to its ``dst``, shape ``(len(src), links)``."""
        if not self._levels:
            ways = [self.tx[src], self.rx[dst]]
        else:
            inside = self._inside(src, dst)
            ways = [
                np.choose(inside, [tx[src] for tx in self._port_tx]),
                np.choose(inside, [rx[dst] for rx in self._port_rx]),
            ]
            for number, (up, down, bus) in enumerate(self._on_level):
                leaves = inside > number
                if up is not None and down is not None:
                    ways.append(np.where(leaves, up[src], self.free))
                    ways.append(np.where(leaves, down[dst], self.free))
                if bus is not None:
                    ways.append(np.where(inside >= number, bus[src], self.free))
                    ways.append(np.where(leaves, bus[dst], self.free))
        if self._pairs:
            pairs = zip(src.tolist(), dst.tolist(), strict=True)
            ways.append(np.array([self._pairs.get(p, self.free) for p in pairs], np.int64))
        return np.stack(ways, axis=1)

    def latencies_s(self, src: IntArray, dst: IntArray, nbytes: IntArray) -> FloatArray:
        """Seconds from a message's leaving ``src`` to its arrival at ``dst``, one per row."""
        latency = self.cluster.latencies_s(nbytes)
        if self._levels:
            by_level = [math.nan]  # messages that stay inside no level have the cluster's own
            for level in reversed(self._levels):
                by_level.insert(0, by_level[0] if level.latency_s is None else level.latency_s)
            inside = np.array(by_level)[self._inside(src, dst)]
            latency = np.where(np.isnan(inside), latency, inside)
        if self._pair_latency:
            pairs = zip(src.tolist(), dst.tolist(), strict=True)
            latency = np.array(
                [self._pair_latency.get(p, t) for p, t in zip(pairs, latency.tolist(), strict=True)]
            )
        return latency

    # -- slowdowns ---------------------------------------------------------------------------

    def _changes(self, slowdowns: Sequence[Slowdown]) -> list[LinkChange]:
        """Every moment at which a link's capacity becomes another, in order of time."""
        on_link: dict[int, list[Slowdown]] = {}
        for slow in slowdowns:
            for link in self._links_called(slow.link):
                on_link.setdefault(link, []).append(slow)
        changes: list[LinkChange] = []
        for link, slows in on_link.items():
            full = self._capacity[link]
            if link in self._pairs.values():
                self._capacity[link] = math.inf  # no cap until the first moment
            for time_s in sorted({t for slow in slows for t in (slow.from_s, slow.until_s)}):
                now = [slow.factor for slow in slows if slow.from_s <= time_s < slow.until_s]
                capacity = full * math.prod(now) if now else self._capacity[link]
                if math.isfinite(time_s):
                    changes.append((time_s, link, capacity))
        return sorted(changes)

    def _links_called(self, name: str) -> list[int]:
        match = _PAIR.fullmatch(name)
        if match:
            return [self._pair_link(int(match[1]), int(match[2]))]
        links = [i for i, link in enumerate(self.names) if name in (link, link.split(".")[0])]
        if not links or name == "free":
            some = [link for link in self.names if link != "free"][:8]
            raise ValueError(unknown("link", name, [*some, "…", "0->1"]))
        return links

    def _pair_link(self, src: int, dst: int) -> int:
        """A link of its own for the pair, as wide as the slowest on its way."""
        if src == dst or max(src, dst) >= self.n:
            raise ValueError(f"slow link '{src}->{dst}': accepted are two ranks below {self.n}")
        if (src, dst) not in self._pairs:
            way = self.routes(np.array([src]), np.array([dst]))[0].tolist()
            slowest = min(self._capacity[link] for link in way)
            self._pairs[src, dst] = self._add(f"gpu{src}->gpu{dst}", slowest)
        return self._pairs[src, dst]
