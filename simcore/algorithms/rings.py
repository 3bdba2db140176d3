"""The ring and its halves. No bytes, no time, no devices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from simcore.algorithms.stated import Pair
from simcore.schedule import Collective, IntArray, Op, Schedule, Step, check_n


def _ring_steps(n: int, first_chunk: int, op: Op) -> Iterator[Step]:
    """In step ``s`` rank ``r`` passes chunk ``first_chunk + r - s`` to its right neighbour."""
    rank = np.arange(n)
    right, ops, width = (rank + 1) % n, np.full(n, op), np.ones(n, np.int64)
    around = np.concatenate([rank, rank, rank])  # a slice of it is a rotation, without arithmetic
    for step in range(n - 1):
        first = n + first_chunk - step
        yield Step(rank, right, around[first : first + n], ops, width)


def _ring_reduce_scatter_steps(n: int) -> Iterator[Step]:
    return _ring_steps(n, 0, Op.ADD)


def _ring_all_gather_steps(n: int) -> Iterator[Step]:
    return _ring_steps(n, 1, Op.COPY)


def _ring_owner(n: int) -> tuple[int, ...]:
    return tuple((chunk - 1) % n for chunk in range(n))


def ring_reduce_scatter(n: int) -> Schedule:
    """First half of the ring: after ``n-1`` steps rank ``r`` holds the sum of chunk ``r+1``.

    In each step every rank passes one chunk to its right neighbour, which adds it.

    >>> print(ring_reduce_scatter(3))
    0: 0->1 c0 add
    0: 1->2 c1 add
    0: 2->0 c2 add
    1: 0->1 c2 add
    1: 1->2 c0 add
    1: 2->0 c1 add
    """
    check_n(n)
    return Schedule(
        "ring-reduce-scatter",
        n,
        n,
        n - 1,
        Collective.REDUCE_SCATTER,
        lambda: _ring_reduce_scatter_steps(n),
        _ring_owner(n),
    )


def ring_all_gather(n: int) -> Schedule:
    """Second half of the ring: rank ``r`` starts with chunk ``r+1`` done, and all end with all.

    >>> print(ring_all_gather(3))
    0: 0->1 c1 copy
    0: 1->2 c2 copy
    0: 2->0 c0 copy
    1: 0->1 c0 copy
    1: 1->2 c1 copy
    1: 2->0 c2 copy
    """
    check_n(n)
    return Schedule(
        "ring-all-gather",
        n,
        n,
        n - 1,
        Collective.ALL_GATHER,
        lambda: _ring_all_gather_steps(n),
        _ring_owner(n),
    )


def ring(n: int) -> Schedule:
    """Ring all-reduce: ``2(n-1)`` steps, each rank sends ``2(n-1)/n`` of the buffer.

    That is the least possible, and every port carries the same: Patarasuk & Yuan (2009),
    doi:10.1016/j.jpdc.2008.09.002.

    >>> print(ring(2))
    0: 0->1 c0 add
    0: 1->0 c1 add
    1: 0->1 c1 copy
    1: 1->0 c0 copy
    """
    check_n(n)
    return Schedule(
        "ring",
        n,
        n,
        2 * (n - 1),
        Collective.ALL_REDUCE,
        lambda: chain(_ring_reduce_scatter_steps(n), _ring_all_gather_steps(n)),
    )


# What the ring states about its bytes, for chunks of any sizes.


def reduce_scatter_bytes(n: int, sizes: IntArray) -> Pair:
    """A rank sends every chunk but the one it will own, and receives every chunk but its own."""
    total, rank = sizes.sum(), np.arange(n)
    return total - sizes[(rank + 1) % n], total - sizes[rank]


def all_gather_bytes(n: int, sizes: IntArray) -> Pair:
    """A rank sends all but what its neighbour owns, and receives all but what it owns."""
    total, rank = sizes.sum(), np.arange(n)
    return total - sizes[(rank + 2) % n], total - sizes[(rank + 1) % n]


def ring_bytes(n: int, sizes: IntArray) -> Pair:
    """Both halves: ``2S - c[r+1] - c[r+2]`` out, ``2S - c[r] - c[r+1]`` in."""
    halves = reduce_scatter_bytes(n, sizes), all_gather_bytes(n, sizes)
    return halves[0][0] + halves[1][0], halves[0][1] + halves[1][1]
