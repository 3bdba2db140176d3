"""One training step as data: work and communication, and what each reads and writes. No time.

Dependencies are derived, per rank: a task waits for the last task before it that wrote what it
reads, for those that read or wrote what it writes, and for its turn on its stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from simcore.algorithms import build_schedule
from simcore.schedule import Collective, IntArray, Op, Schedule, Step, chunk_bounds

COMPUTE = "compute"
NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Compute:
    """Work that a rank does by itself. ``seconds`` is one number, or one for each of ``ranks``.

    ``kind`` is what a chart colours by: ``forward``, ``backward``, ``optimizer``, ``copy`` or
    ``hold`` (a pause that belongs to the model, such as communication held back on purpose).
    """

    label: str
    seconds: float | tuple[float, ...]
    kind: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    stream: str = COMPUTE


@dataclass(frozen=True, slots=True, eq=False)
class Communicate:
    """A schedule over a buffer cut at ``bounds`` (bytes), between ``ranks`` (all, if None).

    ``key`` says what the schedule and the bounds are: tasks with equal keys move the same bytes
    between the same ranks, so that one of them need be timed only once. A rank of the plan that
    the schedule does not know takes no part and does not wait.
    """

    label: str
    schedule: Schedule
    bounds: IntArray
    key: Hashable
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    stream: str = NETWORK

    @property
    def nbytes(self) -> int:
        """Of the buffer."""
        return int(self.bounds[-1])


Task = Compute | Communicate


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The tasks of ``n`` ranks in the order in which the program issues them.

    A stream does its tasks in that order, ``widths[stream]`` at a time (one, if not given). The
    last ``servers`` ranks are extra machines.
    """

    name: str
    n: int
    tasks: tuple[Task, ...]
    widths: Mapping[str, int] = field(default_factory=dict)
    servers: int = 0

    def __post_init__(self) -> None:
        written = {name for task in self.tasks for name in task.writes}
        for task in self.tasks:
            if isinstance(task, Communicate) and not written.issuperset(task.reads):
                # It would wait for nothing, and leave before what it sends is there.
                never = next(name for name in task.reads if name not in written)
                raise ValueError(f"{task.label}: it reads {never!r}, which no task writes")
            ranks = task.ranks if task.ranks is not None else range(self.n)
            if not ranks or min(ranks) < 0 or max(ranks) >= self.n:
                raise ValueError(f"{task.label}: accepted are ranks 0 to {self.n - 1}")
            if isinstance(task, Communicate) and task.schedule.n != len(ranks):
                raise ValueError(
                    f"{task.label}: a schedule of {task.schedule.n} for {len(ranks)} ranks"
                )
            if isinstance(task, Compute) and np.min(task.seconds) < 0:
                raise ValueError(f"{task.label}: seconds must be >= 0, got {task.seconds!r}")

    def waits_for(self) -> list[list[int]]:
        """For each task the earlier ones that it waits for, where a rank takes part in both.

        >>> grads = Compute("backward", 1.0, "backward", writes=("gradients",))
        >>> step = Compute("optimizer", 1.0, "optimizer", ("gradients",), ("parameters",))
        >>> Plan("two", 1, (grads, step)).waits_for()
        [[], [0]]
        """
        writers: dict[str, list[int]] = {}
        readers: dict[str, list[int]] = {}
        found = []
        for number, task in enumerate(self.tasks):
            before = {w for name in (*task.reads, *task.writes) for w in writers.get(name, ())}
            before |= {r for name in task.writes for r in readers.get(name, ())}
            found.append(sorted(before))
            for name in task.reads:
                readers.setdefault(name, []).append(number)
            for name in task.writes:
                if task.ranks is None:  # on every rank this write comes after all before it
                    writers[name], readers[name] = [], []
                writers.setdefault(name, []).append(number)
        return found


def computing_of(plan: Plan) -> Plan:
    """The same without communication: what its ranks compute when nobody waits for anybody.

    >>> sync = collective("sync", "ring", 2, 10, writes=["gradients"])
    >>> [task.label for task in computing_of(Plan("p", 2, (sync, Compute("x", 1.0, "copy")))).tasks]
    ['x']
    """
    tasks = tuple(task for task in plan.tasks if isinstance(task, Compute))
    return replace(plan, tasks=tasks)


def collective(
    label: str,
    algorithm: str,
    n: int,
    elements: int,
    itemsize: int = 4,
    *,
    ranks: tuple[int, ...] | None = None,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    stream: str = NETWORK,
    part: tuple[int, int] | None = None,
    flags: Mapping[str, int] | None = None,
) -> Communicate:
    """An algorithm of the table over so many elements; ``n`` counts the ranks that bring input.

    With ``part`` only the steps from ``part[0]`` to before ``part[1]``: a server's push is
    ``(0, 1)``, its pull ``(1, 2)``.

    >>> push = collective("push", "ps", 3, 1000, part=(0, 1))
    >>> print(push.schedule)
    0: 1->0 c0 add
    0: 2->0 c0 add
    """
    flags = flags or {}
    schedule = build_schedule(algorithm, n, **flags)
    if part is not None:
        schedule = part_of(schedule, *part)
    bounds = chunk_bounds(elements, schedule.chunks) * itemsize
    key = (algorithm, n, tuple(sorted(flags.items())), part, ranks, elements, itemsize)
    return Communicate(label, schedule, bounds, key, tuple(reads), tuple(writes), ranks, stream)


def part_of(schedule: Schedule, first: int, end: int) -> Schedule:
    """The steps from ``first`` to before ``end``; what they promise is nobody's but the whole's."""

    def steps() -> Iterator[Step]:
        for number, step in enumerate(schedule.steps()):
            if first <= number < end:
                yield step

    return replace(
        schedule,
        n_steps=max(0, min(end, schedule.n_steps) - first),
        collective=Collective.POINT_TO_POINT,
        owner=(0,) * schedule.chunks,
        make_steps=steps,
    )


def copies(
    label: str,
    n: int,
    rows: Sequence[tuple[int, int, int, int]],
    *,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    stream: str = NETWORK,
    add: bool = False,
) -> Communicate:
    """Messages ``(step, src, dst, bytes)`` between ``n`` ranks, in order of steps.

    >>> scatter = copies("scatter", 3, [(0, 0, 1, 100), (1, 0, 2, 50)])
    >>> print(scatter.schedule, scatter.nbytes)
    0: 0->1 c0 copy
    1: 0->2 c1 copy 150
    """
    op = Op.ADD if add else Op.COPY
    by_step: dict[int, list[tuple[int, int, int]]] = {}
    for chunk, (number, src, dst, _) in enumerate(rows):
        by_step.setdefault(number, []).append((chunk, src, dst))

    def steps() -> Iterator[Step]:
        for number in sorted(by_step):
            chunk, src, dst = np.array(by_step[number], np.int64).T
            yield Step.of(src, dst, chunk, op)

    schedule = Schedule(
        "copies",
        n,
        max(len(rows), 1),
        len(by_step),
        Collective.POINT_TO_POINT,
        steps,
        owner=tuple(src for _, src, _, _ in rows) or (0,),
    )
    bounds = np.cumsum([0, *(nbytes for *_, nbytes in rows)] if rows else [0, 0])
    key = ("copies", n, tuple(rows), add)
    return Communicate(
        label, schedule, bounds.astype(np.int64), key, tuple(reads), tuple(writes), None, stream
    )


def seconds_on(task: Compute, rank: int) -> float:
    """How long one of the task's ranks works.

    >>> seconds_on(Compute("loss", (1.0, 2.0), "forward", ranks=(0, 3)), 3)
    2.0
    """
    if not isinstance(task.seconds, tuple):
        return task.seconds
    ranks = range(len(task.seconds)) if task.ranks is None else task.ranks
    return task.seconds[ranks.index(rank)]


def on_ranks(schedule: Schedule, ranks: tuple[int, ...] | None, n: int) -> Schedule:
    """The same between these of ``n`` ranks: its rank ``r`` is ``ranks[r]``.

    >>> from simcore.algorithms import ring_all_gather
    >>> print(on_ranks(ring_all_gather(2), (1, 3), 4))
    0: 1->3 c1 copy
    0: 3->1 c0 copy
    """
    if ranks is None:
        return schedule
    rank_at = np.array(ranks, np.int64)

    def steps() -> Iterator[Step]:
        for step in schedule.steps():
            yield replace(step, src=rank_at[step.src], dst=rank_at[step.dst])

    owner = None if schedule.owner is None else tuple(rank_at[list(schedule.owner)].tolist())
    return replace(schedule, n=n, servers=0, owner=owner, make_steps=steps)
