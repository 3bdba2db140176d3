"""The race: one buffer, several all-reduces, one cluster; what the numbers say, in words."""

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

# All-reduces of the GPUs alone whose steps do one thing, as the player shows them.
LINES = (
    *("ps", "dp", "ps-sharded", "ring"),
    *("tree", "halving-doubling", "pairwise", "hierarchical"),
)
STRATEGIES = LINES[:4]  # before anybody chooses
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
    frames: bool = False

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


def race(setting: Setting, lines: Sequence[str] = STRATEGIES) -> tuple[Run, ...]:
    """The strategies on the same buffer and cluster, in the order in which they are shown.

    >>> for run in race(Setting(4, 8 * 2**20, 25e6)):
    ...     print(run.name, format_time(run.time_s))
    ps 2.013 s
    dp 2.013 s
    ps-sharded 503.3 ms
    ring 503.3 ms
    """
    return tuple(_run(name, setting) for name in lines)


def gpus_per_node(gpus: int, most: int = 8) -> int:
    """Of the hierarchical ring on one switch: the largest part of the GPUs up to ``most``.

    >>> [gpus_per_node(gpus) for gpus in (4, 7, 12, 64)]
    [2, 1, 6, 8]
    """
    most = min(most, gpus // 2)
    return next(k for k in range(most, 0, -1) if gpus % k == 0)


def flags_of(name: str, gpus: int) -> dict[str, int]:
    """How an algorithm is built here."""
    return {"gpus_per_node": gpus_per_node(gpus)} if name == "hierarchical" else {}


def _run(name: str, setting: Setting) -> Run:
    flags = flags_of(name, setting.gpus)
    schedule, cluster = build_schedule(name, setting.gpus, **flags), setting.cluster()
    elements = setting.size_bytes // ITEM_BYTES
    at_once = simulate(schedule, replace(cluster, latency_s=0.0), elements, keep="totals")
    return Run(
        schedule,
        simulate(schedule, cluster, elements),
        closed_form(name, cluster, elements, ITEM_BYTES, "rank", **flags),
        at_once.trace.time_s,
    )


def headline(runs: Sequence[Run], setting: Setting, text: Text) -> str:
    """Who wins, by how much, and why: one sentence that holds for every setting.

    >>> from views.text import load_text
    >>> setting = Setting(4, 8 * 2**20, 25e6)
    >>> print(headline(race(setting), setting, load_text("en")))
    Shards on the GPUs and the ring finished in 503.3 ms; the central server and DataParallel \
took 2.013 s, 4 times as long, because GPU 0's one port carries the buffer 3 times each way.
    """
    order = sorted(runs, key=lambda run: run.time_s)
    winner, slowest = order[0], _last(runs)[0]
    if len(runs) == 1 or _tie(order):
        return result(runs, text) + text("race.namely") + _why_alike(runs, text)
    return result(runs, text) + text("race.because") + _reason(winner, slowest, setting, text)


def changed_headline(runs: Sequence[Run], changed: Sequence[Run], said: str, text: Text) -> str:
    """Who wins with what the reader changed; then what was ``said`` of the ``runs`` without it."""
    if [run.time_s for run in changed] == [run.time_s for run in runs]:
        return f"{text('fork.nothing')}\n\n{said}"
    now = result(changed, text) + text("race.stop")
    return f"**{text('fork.with')}** {now}\n\n**{text('fork.without_it')}** {said}"


def result(runs: Sequence[Run], text: Text) -> str:
    """Who is first and who is last, without a reason."""
    order = sorted(runs, key=lambda run: run.time_s)
    best, worst = order[0], order[-1]
    if len(runs) == 1:
        return text(
            "race.alone", name=_names(runs, text, start=True), time=format_time(best.time_s)
        )
    if _tie(order):
        key = "race.tie" if len(runs) > 2 else "race.tie_two"
        return text(key, count=len(runs), time=format_time(best.time_s))
    first = [run for run in runs if run.time_s < 1.005 * best.time_s]
    last = _last(runs)
    factor = worst.time_s / best.time_s
    return text(
        "race.won" if len(first) + len(last) == len(runs) else "race.won_of",
        winners=_names(first, text, start=True),
        time=format_time(best.time_s),
        count=len(runs),
        losers=_names(last, text),
        last_time=format_time(worst.time_s),
        factor=f"{factor:.2g}" if factor < 99.5 else f"{factor:.0f}",
    )


def _tie(order: Sequence[Run]) -> bool:
    return order[-1].time_s < 1.01 * order[0].time_s


def _last(runs: Sequence[Run]) -> list[Run]:
    """The slowest and who is as slow, as on the page: their order says nothing."""
    worst_s = max(run.time_s for run in runs)
    return [run for run in runs if worst_s < 1.005 * run.time_s]


def _names(runs: Sequence[Run], text: Text, *, start: bool = False) -> str:
    """At most three; of more the first two."""
    named = [text(f"strategy.{run.name}.inline") for run in runs]
    if len(named) > 3:
        named[2:] = [text("race.others", count=len(named) - 2)]
    names = text.several(named)
    return names[0].upper() + names[1:] if start else names


def _why_alike(runs: Sequence[Run], text: Text) -> str:
    """Of one alone how near the bound it is; of several what makes them equal."""
    if len(runs) == 1:
        return text("race.why_bound", bound=format_time(runs[0].simulation.lower_bound_s))
    if all(run.wire_s < 0.5 * run.time_s for run in runs):
        return text("race.why_latency")
    ports = [_busiest(run) for run in runs]
    return text("race.why_same_port" if max(ports) < 1.01 * min(ports) else "race.why_chance")


def _reason(winner: Run, slowest: Run, setting: Setting, text: Text) -> str:
    """What the slowest loses most of its time to: its ports, or waiting for arrivals."""
    lost_s = slowest.time_s - winner.time_s
    if slowest.wire_s - winner.wire_s >= 0.5 * lost_s:
        return _why_port(winner, slowest, setting, text)
    latency = format_time(setting.latency_s)
    if slowest.name == "dp":
        return text("race.why_copies", waits=setting.gpus, latency=latency)
    waits = round((slowest.time_s - slowest.wire_s) / setting.latency_s)
    loser = text(f"strategy.{slowest.name}.inline")
    return text("race.why_hops", loser=loser, steps=waits, latency=latency)


def _why_port(winner: Run, slowest: Run, setting: Setting, text: Text) -> str:
    """What its busiest port carries; or that it carries no more, but never both ways at once."""
    if slowest.name in HUBS and bottleneck(slowest.trace) is not None:
        return text("race.why_port", peers=setting.gpus - 1)
    most, least = (_busiest(run) / setting.size_bytes for run in (slowest, winner))
    if most > 1.01 * least:
        return text("race.why_busy", most=f"{most:.3g}", least=f"{least:.3g}")
    name = text(f"strategy.{winner.name}.inline")
    return text("race.why_one_way" if setting.gpus == 2 else "race.why_idle", winner=name)


def _busiest(run: Run) -> int:
    """What the port that carries most carries, in one direction."""
    return int(max(run.trace.sent_bytes.max(), run.trace.received_bytes.max()))
