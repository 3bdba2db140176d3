"""A collective algorithm as data: columns ``(step, src, dst, chunk, op)``, produced step by step.

No bytes, no time, no devices: a schedule of ``n`` ranks serves every buffer size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]


class ScheduleError(ValueError):
    """A schedule that does not do what it says: schedule, step, rank, chunk, got and wanted."""


class Op(IntEnum):
    """What the receiver does with an arriving chunk."""

    COPY = 0
    ADD = 1

    def __str__(self) -> str:
        return self.name.lower()


class Collective(Enum):
    """What a schedule promises about every rank's buffer when it has run.

    ``ALL_REDUCE``: each chunk on each rank is the sum over all ranks. ``REDUCE_SCATTER``: only
    the chunk's owner holds that sum. ``ALL_GATHER``: each rank holds the owner's chunk.
    ``POINT_TO_POINT``: nothing as a whole; its messages are a part of something else.
    """

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    POINT_TO_POINT = "point-to-point"


@dataclass(frozen=True, slots=True)
class Transfer:
    """One row of a schedule, for reading and printing.

    >>> print(Transfer(0, 0, 1, 2, Op.ADD))
    0: 0->1 c2 add
    """

    step: int
    src: int
    dst: int
    chunk: int
    op: Op

    def __str__(self) -> str:
        return f"{self.step}: {self.src}->{self.dst} c{self.chunk} {self.op}"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The messages of one step, one row each: five integer arrays of equal length.

    A message carries the chunks ``chunk`` to ``chunk + width - 1``. All sends read what their
    rank held before the step; arrivals are applied in row order.
    """

    src: IntArray
    dst: IntArray
    chunk: IntArray
    op: IntArray
    width: IntArray

    @classmethod
    def of(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        chunk: ArrayLike,
        op: ArrayLike,
        width: ArrayLike = 1,
    ) -> Step:
        """Rows from anything that broadcasts.

        >>> len(Step.of(src=[1, 2, 3], dst=0, chunk=0, op=Op.ADD))
        3
        """
        columns = (src, dst, chunk, op, width)
        rows = np.broadcast_arrays(*(np.asarray(c, np.int64) for c in columns))
        return cls(*(np.atleast_1d(row) for row in rows))

    def __len__(self) -> int:
        return len(self.src)

    def take(self, rows: IntArray) -> Step:
        """Only these rows."""
        return Step(*(c[rows] for c in (self.src, self.dst, self.chunk, self.op, self.width)))

    def one_by_one(self) -> Step:
        """The same with a row for every chunk.

        >>> Step.of(0, 1, chunk=2, op=Op.ADD, width=3).one_by_one().chunk.tolist()
        [2, 3, 4]
        """
        if (self.width == 1).all():
            return self
        row = np.repeat(np.arange(len(self)), self.width)
        chunk = runs(self.chunk, self.width)
        return Step.of(self.src[row], self.dst[row], chunk, self.op[row])

    def together(self) -> Step:
        """The same with consecutive chunks between the same two ranks as one message.

        >>> Step.of(0, 1, chunk=[2, 3, 5], op=Op.ADD).together().width.tolist()
        [2, 1]
        """
        if len(self) < 2:
            return self
        keys = (self.src, self.dst, self.op, self.chunk + self.width)
        ends = self.src, self.dst, self.op, self.chunk
        goes_on = np.all([k[:-1] == e[1:] for k, e in zip(keys, ends, strict=True)], axis=0)
        first = np.flatnonzero(np.concatenate([[True], ~goes_on]))
        if len(first) == len(self):
            return self
        joined = self.take(first)
        width = np.add.reduceat(self.width, first)
        return Step(joined.src, joined.dst, joined.chunk, joined.op, width)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A collective of ``n`` ranks over ``chunks`` chunks, as a lazy sequence of ``Step``.

    ``make_steps`` is called anew for every pass, so a schedule is a value that can be walked
    any number of times and never needs all of its transfers in memory. ``owner[c]`` is the rank
    that owns chunk ``c`` (reduce-scatter and all-gather only; a broadcast is an all-gather, and a
    reduce a reduce-scatter, in which one rank owns all chunks). The last ``servers`` ranks bring
    no input and need no result; their buffers start at zero. ``flags`` is what it was built with.
    """

    name: str
    n: int
    chunks: int
    n_steps: int
    collective: Collective
    make_steps: Callable[[], Iterator[Step]] = field(repr=False)
    owner: tuple[int, ...] | None = field(default=None, repr=False)
    servers: int = 0
    flags: Mapping[str, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_n(self.n)
        if not 0 <= self.servers < self.n:
            raise ValueError(f"servers must be from 0 to {self.n - 1}, got {self.servers!r}")
        if self.chunks < 1:
            raise ValueError(f"chunks must be >= 1, got {self.chunks!r}")
        if (self.owner is None) != (self.collective is Collective.ALL_REDUCE):
            raise ValueError(f"{self.collective.value} {self.name!r}: owner is {self.owner!r}")
        if self.owner is not None and (
            len(self.owner) != self.chunks or not all(0 <= r < self.n for r in self.owner)
        ):
            raise ValueError(
                f"owner must name a rank below {self.n} for each of {self.chunks} chunks"
            )

    @property
    def workers(self) -> int:
        """How many ranks, the first ones, bring an input."""
        return self.n - self.servers

    def steps(self) -> Iterator[Step]:
        """The steps in order, each made when it is asked for."""
        return self.make_steps()

    def __iter__(self) -> Iterator[Transfer]:
        for number, messages in enumerate(self.steps()):
            step = messages.one_by_one()
            for src, dst, chunk, op in zip(
                step.src.tolist(),
                step.dst.tolist(),
                step.chunk.tolist(),
                step.op.tolist(),
                strict=True,
            ):
                yield Transfer(number, src, dst, chunk, Op(op))

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def schedule_of(
    transfers: Iterable[Transfer],
    *,
    name: str,
    n: int,
    chunks: int,
    collective: Collective = Collective.ALL_REDUCE,
    owner: tuple[int, ...] | None = None,
    servers: int = 0,
    n_steps: int | None = None,
) -> Schedule:
    """A schedule from its rows, which must name existing ranks and chunks, in order of steps.

    >>> two = [Transfer(0, 0, 1, 0, Op.ADD), Transfer(1, 1, 0, 0, Op.COPY)]
    >>> schedule_of(two, name="two", n=2, chunks=1).n_steps
    2
    """
    rows = list(transfers)
    last = -1
    for t in rows:
        if not (0 <= t.src < n and 0 <= t.dst < n and t.src != t.dst):
            raise ScheduleError(f"{name}: '{t}': src and dst must be two different ranks below {n}")
        if not 0 <= t.chunk < chunks:
            raise ScheduleError(f"{name}: '{t}': chunk must be below {chunks}")
        if t.step < max(last, 0):
            raise ScheduleError(f"{name}: '{t}' comes after step {last}; rows go in order of steps")
        last = t.step
    total = last + 1 if n_steps is None else n_steps
    if total < last + 1:
        raise ScheduleError(f"{name}: n_steps is {n_steps}, but step {last} has transfers")
    by_step: list[list[Transfer]] = [[] for _ in range(total)]
    for t in rows:
        by_step[t.step].append(t)
    columns = ("src", "dst", "chunk", "op")
    steps = [
        Step.of(*(np.array([getattr(t, c) for t in row], np.int64) for c in columns)).together()
        for row in by_step
    ]
    return Schedule(name, n, chunks, total, collective, lambda: iter(steps), owner, servers)


def reorder(schedule: Schedule, order: Sequence[int]) -> Schedule:
    """The same algorithm with rank ``order[p]`` in the place of rank ``p``.

    A ring whose neighbours should be close goes through ``cluster.ring_order``.

    >>> from simcore.algorithms import ring
    >>> print(reorder(ring(3), [0, 2, 1]))
    0: 0->2 c0 add
    0: 2->1 c1 add
    0: 1->0 c2 add
    1: 0->2 c2 add
    1: 2->1 c0 add
    1: 1->0 c1 add
    2: 0->2 c1 copy
    2: 2->1 c2 copy
    2: 1->0 c0 copy
    3: 0->2 c0 copy
    3: 2->1 c1 copy
    3: 1->0 c2 copy
    """
    rank_at = np.asarray(order, np.int64)
    workers = schedule.workers
    if rank_at.shape != (workers,) or sorted(rank_at.tolist()) != list(range(workers)):
        raise ValueError(
            f"order must name each of the ranks 0 to {workers - 1} once, got {order!r}"
        )
    rank_at = np.concatenate([rank_at, np.arange(workers, schedule.n)])

    def steps() -> Iterator[Step]:
        for step in schedule.steps():
            yield replace(step, src=rank_at[step.src], dst=rank_at[step.dst])

    owner = None if schedule.owner is None else tuple(rank_at[list(schedule.owner)].tolist())
    return replace(schedule, make_steps=steps, owner=owner)


_LINE = re.compile(r"(\d+): (\d+)->(\d+) c(\d+) (add|copy)")


def parse_schedule(
    text: str,
    *,
    name: str,
    n: int,
    chunks: int,
    collective: Collective = Collective.ALL_REDUCE,
    owner: tuple[int, ...] | None = None,
    servers: int = 0,
) -> Schedule:
    """The inverse of ``str(schedule)``.

    >>> print(parse_schedule("0: 0->1 c0 add\\n1: 1->0 c0 copy", name="two", n=2, chunks=1))
    0: 0->1 c0 add
    1: 1->0 c0 copy
    >>> parse_schedule("0: 0->1 c0 max", name="two", n=2, chunks=1)
    Traceback (most recent call last):
    simcore.schedule.ScheduleError: two: line 1 is '0: 0->1 c0 max'; \
accepted: 'STEP: SRC->DST cCHUNK add|copy'
    """
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line.strip())
        if not match:
            raise ScheduleError(
                f"{name}: line {number} is {line.strip()!r}; "
                "accepted: 'STEP: SRC->DST cCHUNK add|copy'"
            )
        step, src, dst, chunk = (int(group) for group in match.groups()[:4])
        rows.append(Transfer(step, src, dst, chunk, Op[match[5].upper()]))
    return schedule_of(
        rows, name=name, n=n, chunks=chunks, collective=collective, owner=owner, servers=servers
    )


def chunk_sizes(elements: int, chunks: int) -> IntArray:
    """Elements of each chunk; the remainder goes to the first chunks.

    Every executor splits with this function, so the parts always add up to the buffer.

    >>> chunk_sizes(10, 4).tolist(), chunk_sizes(2, 3).tolist()
    ([3, 3, 2, 2], [1, 1, 0])
    """
    if elements < 0:
        raise ValueError(f"elements must be >= 0, got {elements!r}")
    sizes = np.full(chunks, elements // chunks, np.int64)
    sizes[: elements % chunks] += 1
    return sizes


def chunk_bounds(elements: int, chunks: int) -> IntArray:
    """Where each chunk begins, and the end: ``buffer[bounds[c]:bounds[c + 1]]`` is chunk ``c``.

    >>> chunk_bounds(10, 4).tolist()
    [0, 3, 6, 8, 10]
    """
    return np.concatenate([[0], np.cumsum(chunk_sizes(elements, chunks))]).astype(np.int64)


def message_sizes(step: Step, bounds: IntArray) -> IntArray:
    """What each message of the step carries, in the unit of ``bounds`` (see ``chunk_bounds``).

    >>> message_sizes(Step.of(0, 1, [0, 2], Op.ADD, width=2), chunk_bounds(10, 4)).tolist()
    [6, 4]
    """
    return np.asarray(bounds[step.chunk + step.width] - bounds[step.chunk], np.int64)


def runs(first: IntArray, length: IntArray) -> IntArray:
    """The numbers ``first[i], first[i] + 1, …``, ``length[i]`` of them, one run after another.

    >>> runs(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(length) - length
    return np.repeat(first - before, length) + np.arange(length.sum())


def check_n(n: int) -> None:
    """Ranks are counted from one."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be a whole number of ranks, at least 1, got {n!r}")
