"""What if something goes wrong: the same algorithms before and after, for five kinds of trouble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simcore.algorithms import build_schedule
from simcore.cluster import Cluster, Level, Port, even_groups, uniform
from simcore.engine import Simulation, Slowdown, simulate
from simcore.schedule import Schedule, reorder

ITEM_BYTES = 4  # float32
LINES = ("ps", "ring", "ps-sharded", "dp", "halving-doubling", "pairwise")
NODE_LINES = ("ring", "ring-scattered", "ps", "ps-sharded", "hierarchical")
HUBS = {"ps": 0, "dp": 0}


@dataclass(frozen=True, slots=True)
class Base:
    """What is the same before and after: GPUs, buffer, bandwidth of a port. No latency."""

    gpus: int
    size_bytes: int
    bytes_per_s: float

    def cluster(self) -> Cluster:
        """Equal ports on one switch, payload only."""
        return uniform(self.gpus, self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class Situation:
    """A cluster, when each GPU starts, and what is slow."""

    cluster: Cluster
    starts_s: tuple[float, ...] | None = None
    slowdowns: tuple[Slowdown, ...] = ()


@dataclass(frozen=True, slots=True)
class Straggler:
    """One GPU starts late: its input, its backward pass, or somebody else on its machine."""

    gpu: int
    late_s: float

    def after(self, base: Base) -> Situation:
        """Everyone else starts at 0."""
        starts = [0.0] * base.gpus
        starts[self.gpu] = self.late_s
        return Situation(base.cluster(), tuple(starts))


@dataclass(frozen=True, slots=True)
class SlowLink:
    """One link, or one GPU's whole port where ``dst`` is None, has ``factor`` of its bandwidth."""

    src: int
    dst: int | None
    factor: float

    @property
    def link(self) -> str:
        """Its name in the network."""
        return f"gpu{self.src}" if self.dst is None else f"{self.src}->{self.dst}"

    def after(self, base: Base) -> Situation:
        """Slow all the time."""
        return Situation(base.cluster(), slowdowns=(Slowdown(self.link, self.factor),))


@dataclass(frozen=True, slots=True)
class Uplink:
    """Nodes of GPUs that share an uplink with one ``over``-th of their ports' bandwidth."""

    gpus_per_node: int
    over: float

    def bytes_per_s(self, base: Base) -> float:
        """Of an uplink, each way."""
        return self.gpus_per_node * base.bytes_per_s / self.over

    def after(self, base: Base) -> Situation:
        """GPUs of a node follow each other."""
        groups = even_groups(base.gpus, self.gpus_per_node)
        level = Level("node", groups, uplink_bytes_per_s=self.bytes_per_s(base))
        return Situation(replace(base.cluster(), levels=(level,)))


@dataclass(frozen=True, slots=True)
class HalfDuplex:
    """A port sends or receives, never both at once."""

    def after(self, base: Base) -> Situation:
        """The same ports, one way at a time."""
        return Situation(replace(base.cluster(), half_duplex=True))


@dataclass(frozen=True, slots=True)
class FanIn:
    """More GPUs, and GPU 0, where a central server lives, with ``factor`` times the bandwidth."""

    gpus: int
    factor: float

    def after(self, base: Base) -> Situation:
        """The others' ports stay as they are."""
        more = replace(base, gpus=self.gpus).cluster()
        server = Port(*(self.factor * base.bytes_per_s,) * 2)
        return Situation(replace(more, ports=(server, *more.ports[1:])))


Scenario = Straggler | SlowLink | Uplink | HalfDuplex | FanIn


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One algorithm before and after."""

    name: str
    before: Simulation
    after: Simulation

    @property
    def times_s(self) -> tuple[float, float]:
        """Before, after."""
        return self.before.trace.time_s, self.after.trace.time_s

    @property
    def factor(self) -> float:
        """How many times as long it takes."""
        before_s, after_s = self.times_s
        return after_s / before_s


def what_if(base: Base, scenario: Scenario, lines: Sequence[str]) -> tuple[Pair, ...]:
    """Every line before and after.

    >>> from simcore.units import format_time
    >>> base = Base(4, 8 * 2**20, 25e6)
    >>> for pair in what_if(base, HalfDuplex(), ("ps", "ring")):
    ...     print(pair.name, *map(format_time, pair.times_s))
    ps 2.013 s 2.013 s
    ring 503.3 ms 1.007 s
    """
    before, after = Situation(base.cluster()), scenario.after(base)
    per_node = scenario.gpus_per_node if isinstance(scenario, Uplink) else None
    return tuple(
        Pair(name, *(_run(name, base, situation, per_node) for situation in (before, after)))
        for name in lines
    )


def _run(name: str, base: Base, situation: Situation, per_node: int | None) -> Simulation:
    """By the solver that follows changes: see ``views.fork``."""
    return simulate(
        line_schedule(name, situation.cluster.n, per_node),
        situation.cluster,
        base.size_bytes // ITEM_BYTES,
        ITEM_BYTES,
        starts_s=situation.starts_s,
        slowdowns=situation.slowdowns,
        solver="events",
    )


def line_schedule(name: str, gpus: int, per_node: int | None) -> Schedule:
    """A line's schedule; ``ring-scattered`` is a ring whose neighbours are in other nodes.

    >>> print(str(line_schedule("ring-scattered", 4, 2)).splitlines()[0])
    0: 0->2 c0 add
    """
    if name == "hierarchical":
        return build_schedule(name, gpus, gpus_per_node=per_node or gpus)
    if name != "ring-scattered":
        return build_schedule(name, gpus)
    rank = np.arange(gpus)
    order = np.lexsort((rank, rank % (per_node or gpus)))
    return replace(reorder(build_schedule("ring", gpus), order.tolist()), name=name)
