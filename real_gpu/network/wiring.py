"""What a shaped network must be made of for a cluster: which wires, how fast, when they change.

All of it is read off the simulator's own links, so that what is built is what is simulated. No
namespaces, no tc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simcore.cluster import Cluster, Level
from simcore.engine import Slowdown
from simcore.names import unknown
from simcore.solvers.network import Network
from simcore.units import format_rate

SLOWEST_BYTES_PER_S, FASTEST_BYTES_PER_S = 1e6 / 8, 10e9 / 8
MOST_LATENCY_S = 1.0


@dataclass(frozen=True, slots=True)
class Wire:
    """One direction of a wire, called as the simulator calls its link.

    ``changes`` are moments after the agreed start, each with the rate from then on. ``flows`` are
    the pairs of ranks that share it, each of which has a queue of its own.
    """

    link: str
    bytes_per_s: float
    latency_s: float = 0.0
    changes: tuple[tuple[float, float], ...] = ()
    flows: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Wiring:
    """Two wires for each rank, and two for each node that has an uplink.

    ``node_of[r]`` is the node of rank ``r``; without uplinks all ranks are on one switch.
    """

    sends: tuple[Wire, ...]
    receives: tuple[Wire, ...]
    node_of: tuple[int, ...]
    ups: tuple[Wire, ...] = ()
    downs: tuple[Wire, ...] = ()

    @property
    def wires(self) -> tuple[Wire, ...]:
        """All of them."""
        return (*self.sends, *self.receives, *self.ups, *self.downs)

    @property
    def slowest_bytes_per_s(self) -> float:
        """Of any wire at any time."""
        return min(rate for wire in self.wires for rate in (wire.bytes_per_s, *_rates(wire)))

    @property
    def slowest_usual_bytes_per_s(self) -> float:
        """Of any wire while nothing is slowed down."""
        return min(wire.bytes_per_s for wire in self.wires)

    @property
    def longest_latency_s(self) -> float:
        """One way between any two ranks."""
        wires = (self.sends, self.ups)
        return sum(max((wire.latency_s for wire in group), default=0.0) for group in wires)


def _rates(wire: Wire) -> tuple[float, ...]:
    return tuple(rate for _, rate in wire.changes)


def _check_links(cluster: Cluster, slowdowns: Sequence[Slowdown]) -> None:
    """A ``ValueError`` for what is no wire of it; the simulator slows pairs of ranks too."""
    names = [name for name in Network(cluster).names if name != "free"]
    for slow in slowdowns:
        if "->" in slow.link:
            raise ValueError(
                f"slow link {slow.link!r} is a pair of ranks, and a shaper slows wires; accepted: "
                "a port or an uplink, such as gpu1.tx or node0.up"
            )
        if not any(slow.link in (wire, wire.split(".")[0]) for wire in names):
            raise ValueError(unknown("link", slow.link, [*names[:8], *["…"] * (len(names) > 8)]))


def wiring(cluster: Cluster, slowdowns: Sequence[Slowdown] = (), where: str = "network") -> Wiring:
    """The wires, or a ``ValueError`` that names what no shaper can make.

    >>> from simcore.cluster import even_groups, uniform
    >>> node = Level("node", even_groups(4, 2), uplink_bytes_per_s=5e6)
    >>> wires = wiring(uniform(4, 25e6, levels=(node,)), [Slowdown("node1.up", 0.5, 0.2, 0.4)])
    >>> wires.sends[3].link, wires.sends[3].bytes_per_s, wires.node_of
    ('gpu3.tx', 25000000.0, (0, 0, 1, 1))
    >>> wires.ups[1].changes
    ((0.2, 2500000.0), (0.4, 5000000.0))
    """
    level = _buildable(cluster, where)
    _check_links(cluster, slowdowns)
    network = Network(cluster, slowdowns)
    frames = cluster.wire_time_per_payload_byte  # capacities are payload, wires carry frames
    rates = dict(zip(network.names, (network.capacity * frames).tolist(), strict=True))
    changes: dict[str, list[tuple[float, float]]] = {}
    for at_s, link, capacity in network.changes:
        changes.setdefault(network.names[link], []).append((at_s, capacity * frames))
    inside_s, beyond_s = _latencies(cluster, level)

    def wire(link: str, latency_s: float = 0.0, flows: Flows = ()) -> Wire:
        made = Wire(link, rates[link], latency_s, tuple(changes.get(link, ())), flows)
        for rate in (made.bytes_per_s, *_rates(made)):
            if not SLOWEST_BYTES_PER_S * 0.999 <= rate <= FASTEST_BYTES_PER_S * 1.001:
                raise ValueError(
                    f"{where}: {link} at {format_rate(rate)}: accepted are 1Mbit/s to 10Gbit/s"
                )
        return made

    nodes = sorted(set(level.groups)) if level else []
    groups = level.groups if level else (0,) * cluster.n
    out = {g: tuple((a, b) for a, b in _pairs(groups) if groups[a] == g) for g in nodes}
    into = {g: tuple((a, b) for a, b in _pairs(groups) if groups[b] == g) for g in nodes}
    ranks = range(cluster.n)
    return Wiring(
        tuple(wire(f"gpu{r}.tx", inside_s, tuple((r, b) for b in ranks if b != r)) for r in ranks),
        tuple(wire(f"gpu{r}.rx", 0.0, tuple((a, r) for a in ranks if a != r)) for r in ranks),
        groups,
        tuple(wire(f"{level.name}{g}.up", beyond_s, out[g]) for g in nodes) if level else (),
        tuple(wire(f"{level.name}{g}.down", 0.0, into[g]) for g in nodes) if level else (),
    )


Flows = tuple[tuple[int, int], ...]


def _pairs(groups: tuple[int, ...]) -> Flows:
    """All ordered pairs of ranks in different groups."""
    ranks = range(len(groups))
    return tuple((a, b) for a in ranks for b in ranks if groups[a] != groups[b])


def _latencies(cluster: Cluster, level: Level | None) -> tuple[float, float]:
    """What every message waits at its port, and what those that leave a node wait besides."""
    inside_s = cluster.latency_s if level is None or level.latency_s is None else level.latency_s
    return inside_s, cluster.latency_s - inside_s


def _buildable(cluster: Cluster, where: str) -> Level | None:
    """The level whose uplinks are to be built, if any; a ``ValueError`` for what cannot be."""
    by_message = "a wire delays all that it carries alike; accepted: latency"
    for field, there, why in (
        ("'half_duplex'", cluster.half_duplex, "a shaped wire is full duplex; accepted: false"),
        ("'pair_latency'", cluster.pair_latency_s, by_message),
        ("'latency_by_size'", cluster.latency_by_size, by_message),
        ("'latency'", cluster.latency_s > MOST_LATENCY_S, "accepted are 0 to 1s"),
        ("'levels'", len(cluster.levels) > 1, f"{len(cluster.levels)} levels; accepted: one"),
        *(_unbuildable(cluster.levels[0], cluster.latency_s) if cluster.levels else ()),
    ):
        if there:
            raise ValueError(f"{where}: field {field}: {why}")
    level = cluster.levels[0] if cluster.levels else None
    return level if level and level.uplink_bytes_per_s is not None else None


def _unbuildable(level: Level, latency_s: float) -> list[tuple[str, bool, str]]:
    """What a level may not have: its field, whether it has it, why not."""
    of, inside_s = f"of level {level.name!r}", level.latency_s
    no_uplink = level.uplink_bytes_per_s is None
    return [
        (f"'port' {of}", level.port_bytes_per_s is not None, "a rank has one port; accepted: none"),
        (f"'bus' {of}", level.bus_bytes_per_s is not None, "no shaper joins both directions"),
        (f"'nics' {of}", level.nics > 1, f"{level.nics} uplinks for a node; accepted: 1"),
        (f"'half_duplex' {of}", level.half_duplex, "a shaped wire is full duplex; accepted: false"),
        (
            f"'latency' {of}",
            inside_s is not None and (inside_s > latency_s or (no_uplink and inside_s < latency_s)),
            "accepted: at most the cluster's, or, without an uplink, just that",
        ),
    ]
