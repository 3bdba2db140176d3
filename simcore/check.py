"""Three oracles for a schedule: what it means, what could race, what it moves. No time.

Each alone lets wrong algorithms pass (see ``tests/test_check.py``), so ``prove`` asks all three.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.algorithms import find_algorithm
from simcore.schedule import Collective, IntArray, Op, Schedule, ScheduleError, Step

# Up to here contributions are counted one by one; above, by a random 64-bit weight per rank,
# since an n × n × n table would not fit. Two different multisets then agree with chance 2**-64.
COUNT_EXACTLY_UP_TO = 64


def prove(schedule: Schedule, **flags: int) -> None:
    """Raise ``ScheduleError`` unless the schedule is what the algorithm of its name promises.

    >>> from simcore.algorithms import ring
    >>> prove(ring(5))
    """
    check_meaning(schedule)
    check_hazards(schedule)
    check_traffic(schedule, **flags)


def check_meaning(schedule: Schedule) -> None:
    """Every input is counted exactly as often as the collective says, in every cell.

    >>> from simcore.schedule import parse_schedule
    >>> twice = "0: 0->1 c0 add\\n1: 0->1 c0 add\\n2: 1->0 c0 copy"
    >>> check_meaning(parse_schedule(twice, name="twice", n=2, chunks=1))
    Traceback (most recent call last):
    simcore.schedule.ScheduleError: twice: rank 0, chunk 0: got 2*x0 + x1, wanted x0 + x1
    """
    if schedule.collective is Collective.POINT_TO_POINT:
        raise ScheduleError(f"{schedule.name}: promises nothing that could be checked")
    one_each = _weights(schedule.n)
    one_each[schedule.workers :] = 0  # servers bring nothing
    cells = np.repeat(one_each[:, None, :], schedule.chunks, axis=1)  # (rank, chunk, weight)
    for step in schedule.steps():
        _apply(step.one_by_one(), cells)
    everyone = one_each.sum(axis=0)
    wanted = np.broadcast_to(everyone, cells.shape)
    matters = np.ones(cells.shape[:2], bool)
    if schedule.owner is not None:
        owner = np.array(schedule.owner)
        if schedule.collective is Collective.ALL_GATHER:
            wanted = np.broadcast_to(one_each[owner], cells.shape)
        else:
            matters = np.arange(schedule.n)[:, None] == owner
    matters[schedule.workers :] = False
    wrong = (cells != wanted).any(axis=2) & matters
    if wrong.any():
        rank, chunk = np.argwhere(wrong)[0].tolist()
        got, want = (_sum_text(schedule.n, c[rank, chunk]) for c in (cells, wanted))
        raise ScheduleError(
            f"{schedule.name}: rank {rank}, chunk {chunk}: got {got}, wanted {want}"
        )


def _weights(n: int) -> NDArray[np.uint64]:
    """One row per rank: its unit vector, or one random number."""
    if n <= COUNT_EXACTLY_UP_TO:
        return np.eye(n, dtype=np.uint64)
    return np.random.default_rng().integers(1, 2**64, (n, 1), np.uint64)


def _apply(step: Step, cells: NDArray[np.uint64]) -> None:
    arriving = cells[step.src, step.chunk]
    adds = step.op == Op.ADD
    targets = step.dst * cells.shape[1] + step.chunk
    if (
        len(np.unique(targets[~adds])) < (~adds).sum()
        or np.isin(targets[adds], targets[~adds]).any()
    ):
        for i in range(len(step)):  # a race; check_hazards tells, here the order of rows decides
            before = cells[step.dst[i], step.chunk[i]] if adds[i] else np.uint64(0)
            cells[step.dst[i], step.chunk[i]] = before + arriving[i]
        return
    np.add.at(cells, (step.dst[adds], step.chunk[adds]), arriving[adds])
    cells[step.dst[~adds], step.chunk[~adds]] = arriving[~adds]


def _sum_text(n: int, weights: NDArray[np.uint64]) -> str:
    if n > COUNT_EXACTLY_UP_TO:
        return f"a sum of weight {int(weights[0])}"
    terms = [f"{count}*x{r}" if count > 1 else f"x{r}" for r, count in enumerate(weights) if count]
    return " + ".join(terms) or "nothing"


def check_hazards(schedule: Schedule) -> None:
    """In no step is a cell both read and written, or overwritten by more than one arrival.

    >>> from simcore.schedule import parse_schedule
    >>> swap = "0: 0->1 c0 copy\\n0: 1->0 c0 copy"
    >>> check_hazards(parse_schedule(swap, name="swap", n=2, chunks=1))
    Traceback (most recent call last):
    simcore.schedule.ScheduleError: swap: step 0, rank 0, chunk 0: got a cell that is both read \
and written, wanted one of them
    """
    for number, messages in enumerate(schedule.steps()):
        step = messages.one_by_one()
        reads = step.src * schedule.chunks + step.chunk
        writes = step.dst * schedule.chunks + step.chunk
        copies = writes[step.op == Op.COPY]
        cells, arrivals = np.unique(writes, return_counts=True)
        overwritten = np.intersect1d(cells[arrivals > 1], copies)
        for found, what in (
            (np.intersect1d(reads, writes), "that is both read and written, wanted one of them"),
            (overwritten, "overwritten while others arrive, wanted one arrival"),
        ):
            if len(found):
                rank, chunk = divmod(int(found[0]), schedule.chunks)
                raise ScheduleError(
                    f"{schedule.name}: step {number}, rank {rank}, chunk {chunk}: got a cell {what}"
                )


def check_traffic(schedule: Schedule, **flags: int) -> None:
    """Steps, bytes per rank, and every port's load in every step are what the algorithm states.

    >>> from simcore.algorithms import ring
    >>> from simcore.schedule import schedule_of
    >>> rows = [t for t in ring(2) if t.step == 0]
    >>> check_traffic(schedule_of(rows, name="ring", n=2, chunks=2))
    Traceback (most recent call last):
    simcore.schedule.ScheduleError: ring: got 1 steps, wanted 2
    """
    algorithm = find_algorithm(schedule.name)
    flags = {**schedule.flags, **flags}
    n, chunks = schedule.n, schedule.chunks
    # Chunk sizes of which no two sums agree by accident, so that bytes tell chunks apart.
    sizes = np.random.default_rng(0).integers(1, 2**40, chunks)
    sent, received = np.zeros(n, np.int64), np.zeros(n, np.int64)
    steps = 0
    for number, messages in enumerate(schedule.steps()):
        step = messages.one_by_one()
        steps += 1
        loads = _count(step.src, n), _count(step.dst, n)
        stated = algorithm.stated_loads(n, number, **flags)
        for side, load, state in zip(("sends", "receives"), loads, stated, strict=True):
            _compare(schedule, f"step {number}", f"{side} {{}} chunks", load, state)
        np.add.at(sent, step.src, sizes[step.chunk])
        np.add.at(received, step.dst, sizes[step.chunk])
    wanted = algorithm.stated_steps(n, **flags)
    if steps != wanted or schedule.n_steps != steps:
        raise ScheduleError(f"{schedule.name}: got {steps} steps, wanted {wanted}")
    for side, total, state in zip(
        ("sends", "receives"),
        (sent, received),
        algorithm.stated_bytes(n, sizes, **flags),
        strict=True,
    ):
        _compare(schedule, "in all", f"{side} {{}} bytes", total, state)


def _count(ranks: IntArray, n: int) -> IntArray:
    return np.bincount(ranks, minlength=n)


def _compare(schedule: Schedule, when: str, what: str, got: IntArray, wanted: IntArray) -> None:
    for rank in np.flatnonzero(got != wanted).tolist():
        raise ScheduleError(
            f"{schedule.name}: {when}, rank {rank}: got {what.format(got[rank])}, "
            f"wanted {what.format(wanted[rank])}"
        )
