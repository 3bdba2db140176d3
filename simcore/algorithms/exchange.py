"""Exchanges in pairs: halving-doubling, and the rotated exchange. No bytes, no time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simcore.algorithms.stated import Pair
from simcore.schedule import Collective, IntArray, Op, Schedule, Step, check_n


def halving_doubling(n: int) -> Schedule:
    """Recursive halving, then doubling: ring's bytes in 2 log₂ n steps, for n a power of two.

    In each step a rank gives half of what it still keeps to a partner at half the distance, and
    later gets it back in reverse order. Ranks beyond the largest power of two first give their
    whole buffer to a partner and get the result last, two steps more.

    >>> print(halving_doubling(3))
    0: 2->0 c0 add
    0: 2->0 c1 add
    1: 0->1 c1 add
    1: 1->0 c0 add
    2: 0->1 c0 copy
    2: 1->0 c1 copy
    3: 0->2 c0 copy
    3: 0->2 c1 copy
    """
    check_n(n)
    core = 1 << (n.bit_length() - 1)
    extra, inside = np.arange(core, n), np.arange(core)
    halves = [core >> level for level in range(1, core.bit_length())]

    def steps() -> Iterator[Step]:
        if len(extra):
            yield Step.of(extra, extra - core, 0, Op.ADD, core)
        for half in halves:
            yield Step.of(inside, inside ^ half, _first_chunk(inside ^ half, half), Op.ADD, half)
        for half in reversed(halves):
            yield Step.of(inside, inside ^ half, _first_chunk(inside, half), Op.COPY, half)
        if len(extra):
            yield Step.of(extra - core, extra, 0, Op.COPY, core)

    return Schedule(
        "halving-doubling", n, core, halving_doubling_steps(n), Collective.ALL_REDUCE, steps
    )


def _first_chunk(rank: IntArray, width: int) -> IntArray:
    """Where the run of ``width`` chunks begins that holds the rank's own chunk."""
    return rank - rank % width


def halving_doubling_steps(n: int) -> int:
    """Two per doubling, two more if some ranks are left over."""
    levels = n.bit_length() - 1
    return 2 * levels + 2 * (n > 1 << levels)


def halving_doubling_loads(n: int, step: int) -> Pair:
    """Half of the chunks, then a quarter …; the last steps mirror the first."""
    levels = n.bit_length() - 1
    core = 1 << levels
    rank = np.arange(n)
    folds = n > core
    last = halving_doubling_steps(n) - 1
    place = min(step, last - step) - folds  # -1 for the fold, then 0, 1 … as chunks halve
    if place >= 0:
        moved = np.where(rank < core, core >> (place + 1), 0)
        return moved, moved
    gives, takes = np.where(rank >= core, core, 0), np.where(rank < n - core, core, 0)
    return (gives, takes) if step == 0 else (takes, gives)


def halving_doubling_bytes(n: int, sizes: IntArray) -> Pair:
    """Inside, all chunks but the own go out once and the own goes along with each doubling."""
    levels = n.bit_length() - 1
    core = 1 << levels
    sent, received = np.zeros(n, np.int64), np.zeros(n, np.int64)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    for level in range(levels):
        half = core >> (level + 1)
        for rank in range(core):
            own, other = rank // half * half, (rank ^ half) // half * half
            kept = bounds[own + half] - bounds[own]
            given = bounds[other + half] - bounds[other]
            sent[rank] += given + kept
            received[rank] += given + kept
    sent[core:] += sizes.sum()
    received[core:] += sizes.sum()
    sent[: n - core] += sizes.sum()
    received[: n - core] += sizes.sum()
    return sent, received


def shifts(n: int) -> list[int]:
    """Each distance from 1 to n-1 once; where n allows, none stands next to n minus itself.

    Shift s after n-s would use the same pairs of ranks the other way round at once, which on a
    stream socket delays the receiver's notice behind the data of the step before.

    >>> shifts(5), shifts(6)
    ([1, 2, 4, 3], [1, 2, 3, 5, 4])
    """
    return [*range(1, n // 2 + (n % 2)), *([n // 2] * (n % 2 == 0)), *range(n - 1, n // 2, -1)]


def pairwise(n: int) -> Schedule:
    """Rotated exchange: in each step everyone sends to the rank a certain shift further on.

    First each rank sends every other its share of the sum, then everyone its result: the bytes
    of a ring, between all pairs of ranks instead of neighbours.

    >>> print(pairwise(3))
    0: 0->1 c1 add
    0: 1->2 c2 add
    0: 2->0 c0 add
    1: 0->2 c2 add
    1: 1->0 c0 add
    1: 2->1 c1 add
    2: 0->2 c0 copy
    2: 1->0 c1 copy
    2: 2->1 c2 copy
    3: 0->1 c0 copy
    3: 1->2 c1 copy
    3: 2->0 c2 copy
    """
    check_n(n)
    rank = np.arange(n)
    order = shifts(n) if n > 1 else []

    def steps() -> Iterator[Step]:
        for shift in order:
            to = (rank + shift) % n
            yield Step.of(rank, to, to, Op.ADD)
        for shift in reversed(order):
            yield Step.of(rank, (rank + shift) % n, rank, Op.COPY)

    return Schedule("pairwise", n, n, 2 * (n - 1), Collective.ALL_REDUCE, steps)


def pairwise_bytes(n: int, sizes: IntArray) -> Pair:
    """All chunks but the own once, and the own to everyone else."""
    each = sizes.sum() - sizes + (n - 1) * sizes
    return each, each
