"""The machines: ports, nodes, uplinks, shared buses, latencies, launch costs. No events.

Every rank has a sending and a receiving port. Without levels all ports meet in one switch that is
never the bottleneck; levels (islands, PCIe switches, nodes, racks) add the links in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simcore.schedule import IntArray, check_n
from simcore.trace import FloatArray


@dataclass(frozen=True, slots=True)
class Port:
    """One rank's full-duplex connection to the switch; each direction has its own rate."""

    send_bytes_per_s: float
    receive_bytes_per_s: float

    def __post_init__(self) -> None:
        for f in fields(self):
            _check_rate(f.name, getattr(self, f.name))


@dataclass(frozen=True, slots=True)
class Level:
    """Ranks in groups, such as the eight of a node, and what that changes for their messages.

    ``groups[r]`` is the group of rank ``r``. A message *stays inside* the innermost level at which
    both its ends are in one group. Each setting is optional; the first two are else as on the next
    level around that has them:

    - ``port_bytes_per_s``: messages that stay inside use ports of their own (NVLink beside PCIe);
    - ``latency_s``: the latency of messages that stay inside;
    - ``bus_bytes_per_s``: one budget per group, shared in both directions by every message that
      stays inside, leaves or enters (a host bridge, a radio channel);
    - ``uplink_bytes_per_s``: each of the group's ``nics`` carries this much out and this much in,
      or, ``half_duplex``, this much in all. The ranks of a group share its NICs evenly, in order.
    """

    name: str
    groups: tuple[int, ...]
    port_bytes_per_s: float | None = None
    latency_s: float | None = None
    bus_bytes_per_s: float | None = None
    uplink_bytes_per_s: float | None = None
    nics: int = 1
    half_duplex: bool = False

    def __post_init__(self) -> None:
        check_n(len(self.groups))
        for name in ("port_bytes_per_s", "bus_bytes_per_s", "uplink_bytes_per_s"):
            if getattr(self, name) is not None:
                _check_rate(f"level {self.name!r}: {name}", getattr(self, name))
        if self.latency_s is not None:
            _check_at_least(f"level {self.name!r}: latency_s", self.latency_s, 0.0)
        if self.nics < 1 or (self.nics > 1 and self.uplink_bytes_per_s is None):
            raise ValueError(
                f"level {self.name!r}: nics is {self.nics!r}; accepted: 1 or more, with an uplink"
            )


def even_groups(n: int, size: int) -> tuple[int, ...]:
    """Ranks in their order, ``size`` to a group; the last group may be smaller.

    >>> even_groups(5, 2)
    (0, 0, 1, 1, 2)
    """
    check_n(n)
    if size < 1:
        raise ValueError(f"size of a group must be at least 1, got {size!r}")
    return tuple(rank // size for rank in range(n))


@dataclass(frozen=True, slots=True)
class Cluster:
    """``n`` ranks and what joins them.

    A message of ``nbytes`` occupies the links on its way for ``nbytes * wire_time_per_payload_byte
    / rate`` of the slowest and arrives ``latency_s`` after it has left. Adding it to what is there
    costs its receiver ``reduce_s_per_byte``. The three factors describe a protocol: time on a
    port's clock, bytes on an interface counter, and acknowledgements that flow back. ``levels``
    go from the inside out. ``pair_latency_s`` holds (src, dst, seconds) for single pairs.

    A latency delays the receiver: a sender is free as soon as the last byte has left. What issuing
    a message costs its sender is ``launch_per_message_s``; on real machines both are there. Small
    and large messages have regimes of their own in ``latency_by_size``, which stands in place of
    ``latency_s``: points (bytes of a message, seconds) with straight lines between them, and the
    first and last point's latency beyond them.

    After idling, every link lets ``burst_bytes`` on the wire pass at once, as shapers do: short
    messages, and those after a pause, are faster than the rate says.

    >>> uniform(4, 25e6, latency_s=50e-6).payload_bytes_per_s[0].tolist()
    [25000000.0, 25000000.0, 25000000.0, 25000000.0]
    >>> sized = uniform(2, 25e6, latency_by_size=((1000, 0.5), (3000, 1.0)))
    >>> sized.latencies_s([1, 1000, 2000, 10**9]).tolist()
    [0.5, 0.5, 0.75, 1.0]
    """

    name: str
    ports: tuple[Port, ...]
    latency_s: float = 0.0
    launch_per_collective_s: float = 0.0
    launch_per_message_s: float = 0.0
    reduce_s_per_byte: float = 0.0
    wire_time_per_payload_byte: float = 1.0
    counter_bytes_per_payload_byte: float = 1.0
    ack_bytes_per_received_byte: float = 0.0
    half_duplex: bool = False
    levels: tuple[Level, ...] = ()
    pair_latency_s: tuple[tuple[int, int, float], ...] = ()
    latency_by_size: tuple[tuple[int, float], ...] = ()
    burst_bytes: float = 0.0
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_n(len(self.ports))
        for name in (*TIMES, *FACTORS, "burst_bytes"):
            at_least = 1.0 if name.endswith("per_payload_byte") else 0.0
            _check_at_least(name, getattr(self, name), at_least)
        if self.half_duplex and any(
            p.send_bytes_per_s != p.receive_bytes_per_s for p in self.ports
        ):
            raise ValueError("half_duplex ports have one rate; accepted: send and receive alike")
        _check_nesting(self.levels, self.n)
        for src, dst, seconds in self.pair_latency_s:
            if src == dst or not (0 <= src < self.n and 0 <= dst < self.n):
                raise ValueError(
                    f"pair_latency_s {src}->{dst}: accepted are two ranks below {self.n}"
                )
            _check_at_least(f"pair_latency_s {src}->{dst}", seconds, 0.0)
        _check_by_size(self.latency_by_size, self.latency_s)

    @property
    def n(self) -> int:
        """Number of ranks."""
        return len(self.ports)

    @property
    def payload_bytes_per_s(self) -> tuple[FloatArray, FloatArray]:
        """Payload rate of each rank's sending and receiving port, shape ``(n,)`` each."""
        rates = np.array([(p.send_bytes_per_s, p.receive_bytes_per_s) for p in self.ports])
        send, receive = (rates / self.wire_time_per_payload_byte).T
        return send, receive

    @property
    def is_plain(self) -> bool:
        """Equal full-duplex ports on one switch, one latency: where closed forms hold."""
        rates = {r for p in self.ports for r in (p.send_bytes_per_s, p.receive_bytes_per_s)}
        more = (self.levels, self.half_duplex, self.pair_latency_s, self.latency_by_size)
        return len(rates) == 1 and not any(more) and not self.burst_bytes

    @property
    def least_latency_s(self) -> float:
        """Of any message, whatever its size and its ends."""
        levels = [level.latency_s for level in self.levels if level.latency_s is not None]
        own = [seconds for _, seconds in self.latency_by_size] or [self.latency_s]
        return min([*own, *levels, *(seconds for *_, seconds in self.pair_latency_s)])

    def latencies_s(self, nbytes: ArrayLike) -> FloatArray:
        """The cluster's own latency of messages of so many bytes, not its levels' and pairs'."""
        sizes = np.asarray(nbytes)
        if not self.latency_by_size:
            return np.full(sizes.shape, self.latency_s)
        at_bytes, seconds = zip(*self.latency_by_size, strict=True)
        latency: FloatArray = np.interp(sizes, at_bytes, seconds)
        return latency

    def without_protocol(self) -> Cluster:
        """The same ports with nothing but payload on them (factors 1, 1 and 0)."""
        return replace(
            self,
            wire_time_per_payload_byte=1.0,
            counter_bytes_per_payload_byte=1.0,
            ack_bytes_per_received_byte=0.0,
        )


TIMES = ("latency_s", "launch_per_collective_s", "launch_per_message_s", "reduce_s_per_byte")
FACTORS = (
    "wire_time_per_payload_byte",
    "counter_bytes_per_payload_byte",
    "ack_bytes_per_received_byte",
)


def _check_rate(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and above zero, got {value!r}")


def _check_at_least(name: str, value: float, at_least: float) -> None:
    if not (math.isfinite(value) and value >= at_least):
        raise ValueError(f"{name} must be finite and >= {at_least:g}, got {value!r}")


def _check_by_size(points: Sequence[tuple[int, float]], latency_s: float) -> None:
    if points and latency_s:
        raise ValueError("latency_s and latency_by_size are both given; accepted: one of them")
    last = -1
    for nbytes, seconds in points:
        if nbytes <= last or nbytes >= 2**53:  # beyond, floats do not tell all sizes apart
            raise ValueError(
                f"latency_by_size has {nbytes!r} B after {max(last, 0)} B; accepted: rising sizes"
            )
        _check_at_least(f"latency_by_size at {nbytes} B", seconds, 0.0)
        last = nbytes


def _check_nesting(levels: Sequence[Level], n: int) -> None:
    inner: Level | None = None
    taken = ["gpu"]  # links are called after their level
    for level in levels:
        if level.name in taken:
            raise ValueError(f"level name {level.name!r} is taken; accepted: one of its own")
        taken.append(level.name)
        if len(level.groups) != n:
            raise ValueError(f"level {level.name!r} groups {len(level.groups)} ranks, not {n}")
        if inner is not None:
            pairs = set(zip(inner.groups, level.groups, strict=True))
            if len(pairs) > len(set(inner.groups)):
                raise ValueError(f"level {level.name!r} splits a group of level {inner.name!r}")
        inner = level


def uniform(n: int, bytes_per_s: float, latency_s: float = 0.0, **settings: Any) -> Cluster:
    """``n`` equal full-duplex ports; ``settings`` are further fields of ``Cluster``."""
    check_n(n)
    name = settings.pop("name", "uniform")
    port = Port(bytes_per_s, bytes_per_s)
    return Cluster(name, (port,) * n, latency_s=latency_s, **settings)


def ring_order(cluster: Cluster) -> IntArray:
    """The ranks in an order that enters and leaves every group once: neighbours stay close.

    >>> pairs = Level("pair", (0, 1, 0, 1), port_bytes_per_s=1e9)
    >>> ring_order(uniform(4, 1e8, levels=(pairs,))).tolist()
    [0, 2, 1, 3]
    """
    keys = [np.arange(cluster.n), *(np.array(level.groups) for level in cluster.levels)]
    return np.lexsort(keys).astype(np.int64)
