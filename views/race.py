"""The race: one buffer, three strategies, one cluster; what the numbers say, in words and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simcore.algorithms import build_schedule
from simcore.cluster import Cluster, uniform
from simcore.cluster_file import presets
from simcore.cost import ClosedForm, closed_form
from simcore.engine import Simulation, simulate
from simcore.schedule import Schedule
from simcore.trace import Trace
from simcore.units import format_time
from views.player import bottleneck
from views.text import Text

STRATEGIES = ("ps", "dp", "ring")
HUBS = {"ps": 0, "dp": 0}
ITEM_BYTES = 4  # float32
FRAME_FACTOR = float(presets()["shaped-200mbit"]["wire_time_per_payload_byte"])


@dataclass(frozen=True, slots=True)
class Setting:
    """What the reader chose. ``frames`` counts the headers around the data on the wire."""

    gpus: int
    size_bytes: int
    bytes_per_s: float
    latency_s: float = 0.0
    frames: bool = True

    @property
    def data_bytes_per_s(self) -> float:
        """What a port carries of the buffer itself."""
        return float(self.cluster().payload_bytes_per_s[0][0])

    def cluster(self) -> Cluster:
        """Equal ports on one switch."""
        factor = FRAME_FACTOR if self.frames else 1.0
        return uniform(
            self.gpus, self.bytes_per_s, self.latency_s, wire_time_per_payload_byte=factor
        )


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One strategy's simulation; ``wire_s`` is its time if messages arrived at once."""

    schedule: Schedule
    simulation: Simulation
    formula: ClosedForm | None
    wire_s: float

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.schedule.name

    @property
    def trace(self) -> Trace:
        """What happened when."""
        return self.simulation.trace

    @property
    def time_s(self) -> float:
        """From the start to the end of the last rank."""
        return self.trace.time_s


def race(setting: Setting) -> tuple[Run, ...]:
    """The strategies on the same buffer and cluster, in the order in which they are shown.

    >>> for run in race(Setting(4, 8 * 2**20, 25e6, frames=False)):
    ...     print(run.name, format_time(run.time_s))
    ps 2.013 s
    dp 2.013 s
    ring 503.3 ms
    """
    return tuple(_run(name, setting) for name in STRATEGIES)


def _run(name: str, setting: Setting) -> Run:
    schedule, cluster = build_schedule(name, setting.gpus), setting.cluster()
    elements = setting.size_bytes // ITEM_BYTES
    at_once = simulate(schedule, replace(cluster, latency_s=0.0), elements, keep="totals")
    return Run(
        schedule,
        simulate(schedule, cluster, elements),
        closed_form(name, cluster, elements),
        at_once.trace.time_s,
    )


def headline(runs: Sequence[Run], setting: Setting, text: Text) -> str:
    """Who wins, by how much, and why: one sentence that holds for every setting.

    >>> from views.text import load_text
    >>> setting = Setting(4, 8 * 2**20, 25e6)
    >>> print(headline(race(setting), setting, load_text("en")))
    The ring is done in 526.3 ms; the central server and DataParallel need 2.105 s, \
4 times as long, because GPU 0's one port carries the buffer 3 times each way.
    """
    winner, middle, slowest = sorted(runs, key=lambda run: run.time_s)
    if slowest.time_s < 1.01 * winner.time_s:
        return text("race.tie", time=format_time(winner.time_s))
    together = slowest.time_s < 1.005 * middle.time_s
    if together:  # then their order says nothing: as on the page
        middle, slowest = sorted((middle, slowest), key=lambda run: STRATEGIES.index(run.name))
    factor = f"{slowest.time_s / winner.time_s:.2g}"
    first, second = (text(f"strategy.{run.name}.inline") for run in (middle, slowest))
    names = {"first": first, "second": second, "factor": factor}
    times = {"time": format_time(slowest.time_s), "first_time": format_time(middle.time_s)}
    others = text("race.lose_both" if together else "race.lose_each", **names, **times)
    name = text(f"strategy.{winner.name}.inline")
    won = text(
        "race.win",
        winner=name[0].upper() + name[1:],
        time=format_time(winner.time_s),
        others=others,
    )
    return won + _reason(winner, slowest, setting, text)


def _reason(winner: Run, slowest: Run, setting: Setting, text: Text) -> str:
    """What the slowest loses most of its time to: its ports, or waiting for arrivals."""
    lost_s = slowest.time_s - winner.time_s
    if slowest.wire_s - winner.wire_s >= 0.5 * lost_s:
        if bottleneck(slowest.trace) is None:  # two GPUs: nobody carries more than the other
            return text("race.why_one_way")
        return text("race.why_port", peers=setting.gpus - 1)
    latency = format_time(setting.latency_s)
    if slowest.name == "ring":
        loser = text("strategy.ring.inline")
        return text("race.why_hops", loser=loser, steps=slowest.schedule.n_steps, latency=latency)
    return text("race.why_copies", waits=setting.gpus, latency=latency)
