"""A collective algorithm as data: columns ``(step, src, dst, chunk, op)``, produced step by step.

No bytes, no time, no devices: a schedule of ``n`` ranks serves every buffer size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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
    """

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"


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
    """The transfers of one step, one row each: four integer arrays of equal length.

    All sends read what their rank held before the step; arrivals are applied in row order.
    """

    src: IntArray
    dst: IntArray
    chunk: IntArray
    op: IntArray

    @classmethod
    def of(cls, src: ArrayLike, dst: ArrayLike, chunk: ArrayLike, op: ArrayLike) -> Step:
        """Rows from anything that broadcasts.

        >>> len(Step.of(src=[1, 2, 3], dst=0, chunk=0, op=Op.ADD))
        3
        """
        columns = np.broadcast_arrays(*(np.asarray(c, np.int64) for c in (src, dst, chunk, op)))
        return cls(*(np.atleast_1d(column) for column in columns))

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A collective of ``n`` ranks over ``chunks`` chunks, as a lazy sequence of ``Step``.

    ``make_steps`` is called anew for every pass, so a schedule is a value that can be walked
    any number of times and never needs all of its transfers in memory. ``owner[c]`` is the rank
    that owns chunk ``c`` (reduce-scatter and all-gather only).
    """

    name: str
    n: int
    chunks: int
    n_steps: int
    collective: Collective
    make_steps: Callable[[], Iterator[Step]] = field(repr=False)
    owner: tuple[int, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_n(self.n)
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

    def steps(self) -> Iterator[Step]:
        """The steps in order, each made when it is asked for."""
        return self.make_steps()

    def __iter__(self) -> Iterator[Transfer]:
        for number, step in enumerate(self.steps()):
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
    steps = [
        Step.of(
            *(
                np.array([getattr(t, c) for t in row], np.int64)
                for c in ("src", "dst", "chunk", "op")
            )
        )
        for row in by_step
    ]
    return Schedule(name, n, chunks, total, collective, lambda: iter(steps), owner)


_LINE = re.compile(r"(\d+): (\d+)->(\d+) c(\d+) (add|copy)")


def parse_schedule(
    text: str,
    *,
    name: str,
    n: int,
    chunks: int,
    collective: Collective = Collective.ALL_REDUCE,
    owner: tuple[int, ...] | None = None,
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
    return schedule_of(rows, name=name, n=n, chunks=chunks, collective=collective, owner=owner)


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


def check_n(n: int) -> None:
    """Ranks are counted from one."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be a whole number of ranks, at least 1, got {n!r}")
