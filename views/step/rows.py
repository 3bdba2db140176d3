"""A step as rows of bars: what a GPU computes, what its network does, what of it is exposed.

Exposed is what the GPU that computes most spends without computing: its red bars add up to
``StepResult.exposed_communication_s``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simcore.training.plan import COMPUTE, Communicate, Task
from simcore.training.step import StepResult

Interval = tuple[float, float]
ALIKE = 0.02  # of the step: GPUs whose times differ by less are drawn once


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of a row. ``kind``: a compute kind, or exposed, hidden, held, served or wait.

    ``part_of_s`` is the whole task, of which the bar may be a part.
    """

    kind: str
    start_s: float
    end_s: float
    label: str
    nbytes: int = 0
    part_of_s: Interval = (0.0, 0.0)

    @property
    def duration_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Row:
    """A stream of a GPU: ``compute``, ``server``, or one that communicates."""

    stream: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class GpuRows:
    """The rows of ``rank``, which stands for ``ranks``."""

    rank: int
    ranks: tuple[int, ...]
    rows: tuple[Row, ...]


def shown_from_s(result: StepResult) -> float:
    """Of several steps in a plan (local SGD) only the last is shown: when that begins."""
    if result.steps == 1:
        return 0.0
    run = result.run
    starts = [
        float(np.nanmin(run.entered_s[number]))
        for number, task in enumerate(run.plan.tasks)
        if task.label in ("forward", "forward 1")
    ]
    return starts[-1]


def busiest_rank(result: StepResult) -> int:
    """The GPU that computes most, whose gaps are what is exposed."""
    return int(result.run.compute_s.argmax())


def shown_ranks(result: StepResult) -> list[tuple[int, tuple[int, ...]]]:
    """The GPU that computes most, then GPU 0, the last one and a server, where they differ.

    Each with all those that do the same at the same time.
    """
    run, gpus = result.run, result.setting.gpus
    slack_s = ALIKE * run.time_s
    wanted = [busiest_rank(result), 0, gpus - 1, *([gpus] if run.plan.servers else [])]
    found: list[tuple[int, tuple[int, ...]]] = []
    for rank in wanted:
        if any(rank in ranks for _, ranks in found):
            continue
        alike = [
            other
            for other in range(run.plan.n)
            if (other < gpus) == (rank < gpus)
            and not any(other in ranks for _, ranks in found)
            and _alike(run.entered_s, rank, other, slack_s)
            and _alike(run.ended_s, rank, other, slack_s)
        ]
        found.append((rank, tuple(alike)))
    return found


def _alike(times_s: np.typing.NDArray[np.float64], one: int, other: int, slack_s: float) -> bool:
    a, b = times_s[:, one], times_s[:, other]
    same_part = np.isnan(a) == np.isnan(b)
    with np.errstate(invalid="ignore"):
        return bool(np.all(same_part & (np.isnan(a) | (np.abs(a - b) <= slack_s))))


def all_rows(result: StepResult) -> list[GpuRows]:
    """What is drawn of a run."""
    return [
        GpuRows(rank, ranks, tuple(rank_rows(result, rank))) for rank, ranks in shown_ranks(result)
    ]


def rank_rows(result: StepResult, rank: int) -> list[Row]:
    """A rank's rows: compute first, then what communicates, in the order of first use."""
    run, from_s = result.run, shown_from_s(result)
    by_stream: dict[str, list[tuple[Task, float, float]]] = {COMPUTE: []}
    holds: list[tuple[Task, float, float]] = []
    for number, task in enumerate(run.plan.tasks):
        start_s = max(begins_s(result, number, rank), from_s)
        end_s = float(run.ended_s[number, rank])
        if not end_s > start_s:  # over before, or without part in it
            continue
        if task.stream.startswith("hold"):
            holds.append((task, start_s, end_s))
        else:
            by_stream.setdefault(task.stream, []).append((task, start_s, end_s))
    computing = by_stream.pop(COMPUTE)
    gaps = complement([(s, e) for _, s, e in computing], from_s, run.time_s)
    networks = {name for name in by_stream if name != "server"}
    rows = [Row(COMPUTE, (*_plain(computing), *_waits(gaps)))]
    if rank >= result.setting.gpus:  # an extra server: nothing to hide behind
        return [
            Row(stream, tuple(_plain(lane, "served" if stream in networks else "")))
            for stream, tasks in by_stream.items()
            for lane in _apart(tasks)
        ]
    for stream, tasks in by_stream.items():
        if stream in networks:
            lanes = _apart(tasks)
            rows += [Row(stream, tuple(_split(lane, gaps))) for lane in lanes]
        else:
            rows.append(Row(stream, tuple(_plain(tasks))))
    return _with_holds(rows, holds, networks)


def begins_s(result: StepResult, number: int, rank: int) -> float:
    """When a rank enters a task; of a server's push or pull, when something can arrive.

    Ranks ask for what servers send long before it is there.
    """
    task, entered_s = result.run.plan.tasks[number], result.run.entered_s[number]
    mine_s = float(entered_s[rank])
    if not isinstance(task, Communicate) or task.schedule.name != "exchange":
        return mine_s
    servers, workers = set(task.schedule.owner or ()), range(result.setting.gpus)
    sources = sorted(servers if task.label.startswith("pull") else set(workers))
    if rank in sources:
        return mine_s
    return max(mine_s, float(entered_s[sources].min()))


def _plain(tasks: Iterable[tuple[Task, float, float]], kind: str = "") -> list[Bar]:
    return [
        Bar(
            *(kind or getattr(task, "kind", ""), start_s, end_s, task.label),
            task.nbytes if isinstance(task, Communicate) else 0,
            (start_s, end_s),
        )
        for task, start_s, end_s in tasks
    ]


def _waits(gaps: Iterable[Interval]) -> list[Bar]:
    return [Bar("wait", start_s, end_s, "", 0, (start_s, end_s)) for start_s, end_s in gaps]


def _split(tasks: Iterable[tuple[Task, float, float]], gaps: Sequence[Interval]) -> list[Bar]:
    """Each collective cut where computing begins or ends beside it."""
    found = []
    for task, start_s, end_s in tasks:
        exposed = overlap(gaps, [(start_s, end_s)])
        hidden = complement(exposed, start_s, end_s)
        nbytes = task.nbytes if isinstance(task, Communicate) else 0
        for kind, parts in (("exposed", exposed), ("hidden", hidden)):
            found += [Bar(kind, a, b, task.label, nbytes, (start_s, end_s)) for a, b in parts]
    return sorted(found, key=lambda bar: bar.start_s)


def _apart(tasks: list[tuple[Task, float, float]]) -> list[list[tuple[Task, float, float]]]:
    """As few lanes as needed, so that no two tasks of one overlap."""
    lanes: list[list[tuple[Task, float, float]]] = []
    for task in sorted(tasks, key=lambda task: task[1]):
        free = next((lane for lane in lanes if lane[-1][2] <= task[1] + 1e-12), None)
        if free is None:
            lanes.append([task])
        else:
            free.append(task)
    return lanes


def _with_holds(
    rows: list[Row], holds: list[tuple[Task, float, float]], networks: set[str]
) -> list[Row]:
    """On the first network row, where it is idle while something ready is held back."""
    place = next((i for i, row in enumerate(rows) if row.stream in networks), None)
    if place is None or not holds:
        return rows
    busy = [(bar.start_s, bar.end_s) for bar in rows[place].bars]
    bars = list(rows[place].bars)
    for task, start_s, end_s in holds:
        free = complement(busy, start_s, end_s)
        bars += [Bar("held", a, b, task.label, 0, (start_s, end_s)) for a, b in free]
        busy += free
    ordered = tuple(sorted(bars, key=lambda bar: bar.start_s))
    return [*rows[:place], Row(rows[place].stream, ordered), *rows[place + 1 :]]


def complement(parts: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """What ``parts`` leave free between ``start`` and ``end``.

    >>> complement([(1, 2), (4, 9), (1.5, 3)], 0, 6)
    [(0, 1), (3, 4)]
    """
    free, at = [], start
    for a, b in sorted(parts):
        if a > at:
            free.append((at, min(a, end)))
        at = max(at, b)
        if at >= end:
            break
    if at < end:
        free.append((at, end))
    return [(a, b) for a, b in free if b > a]


def overlap(some: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Where both are.

    >>> overlap([(0, 2), (3, 5)], [(1, 4)])
    [(1, 2), (3, 4)]
    """
    found = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return sorted((a, b) for a, b in found if b > a)


def union(parts: Iterable[Interval]) -> list[Interval]:
    """The same without overlaps.

    >>> union([(0, 2), (5, 6), (1, 3)])
    [(0, 3), (5, 6)]
    """
    found: list[Interval] = []
    for a, b in sorted(parts):
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], max(b, found[-1][1]))
        else:
            found.append((a, b))
    return found
