"""The collective algorithms, each a short generator of steps. No bytes, no time, no devices.

The table ``ALGORITHMS`` at the end is the only registry: name, text for people, what the
algorithm states about its own traffic, and the flags it takes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from simcore.schedule import Collective, IntArray, Op, Schedule, Step, check_n


def _ring_steps(n: int, first_chunk: int, op: Op) -> Iterator[Step]:
    """In step ``s`` rank ``r`` passes chunk ``first_chunk + r - s`` to its right neighbour."""
    rank = np.arange(n)
    right, ops = (rank + 1) % n, np.full(n, op)
    around = np.concatenate([rank, rank, rank])  # a slice of it is a rotation, without arithmetic
    for step in range(n - 1):
        first = n + first_chunk - step
        yield Step(rank, right, around[first : first + n], ops)


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


def parameter_server(n: int, root: int = 0) -> Schedule:
    """Central server on rank ``root``, itself a worker: all push, it adds, all pull.

    The server's port carries ``n-1`` buffers each way; every other port one.

    >>> print(parameter_server(3))
    0: 1->0 c0 add
    0: 2->0 c0 add
    1: 0->1 c0 copy
    1: 0->2 c0 copy
    """
    workers = _others(n, root)

    def steps() -> Iterator[Step]:
        if n > 1:
            yield Step.of(workers, root, 0, Op.ADD)
            yield Step.of(root, workers, 0, Op.COPY)

    return Schedule("ps", n, 1, 2 if n > 1 else 0, Collective.ALL_REDUCE, steps)


def data_parallel(n: int) -> Schedule:
    """The copy path of ``torch.nn.DataParallel``: one peer after another, to rank 0 and back.

    Gradients are added on rank 0 in turn; then the parameters go out in turn. The bytes of the
    central server, but never two transfers at once, so each one's latency counts on the way in.

    >>> print(data_parallel(3))
    0: 1->0 c0 add
    1: 2->0 c0 add
    2: 0->1 c0 copy
    3: 0->2 c0 copy
    """
    workers = _others(n, 0).tolist()

    def steps() -> Iterator[Step]:
        for worker in workers:
            yield Step.of(worker, 0, 0, Op.ADD)
        for worker in workers:
            yield Step.of(0, worker, 0, Op.COPY)

    return Schedule("dp", n, 1, 2 * (n - 1), Collective.ALL_REDUCE, steps)


def _others(n: int, root: int) -> IntArray:
    check_n(n)
    if not 0 <= root < n:
        raise ValueError(f"root must be a rank from 0 to {n - 1}, got {root!r}")
    return np.delete(np.arange(n), root)


# What each algorithm states about its traffic: chunks that leave and enter each rank's port in a
# step, as two integer arrays of shape (n,). Written from the definition, not from the generator,
# so that `check.check_traffic` compares two independent statements.


def _one_each(n: int, step: int) -> tuple[IntArray, IntArray]:
    return np.ones(n, np.int64), np.ones(n, np.int64)


def _server_loads(n: int, step: int, root: int = 0) -> tuple[IntArray, IntArray]:
    worker_side = np.ones(n, np.int64)
    worker_side[root] = 0
    server_side = np.zeros(n, np.int64)
    server_side[root] = n - 1
    return (worker_side, server_side) if step == 0 else (server_side, worker_side)


def _copy_path_loads(n: int, step: int) -> tuple[IntArray, IntArray]:
    root, worker = np.zeros(n, np.int64), np.zeros(n, np.int64)
    root[0] = 1
    worker[1 + step % (n - 1)] = 1
    return (worker, root) if step < n - 1 else (root, worker)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row of the table: how to build it, what it states, and how people call it."""

    name: str
    title: str
    steps: str
    sent: str
    build: Callable[..., Schedule]
    stated_steps: Callable[[int], int]
    stated_loads: Callable[..., tuple[IntArray, IntArray]]
    flags: tuple[str, ...] = ()


ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        "ring",
        "Ring all-reduce",
        "2(n-1)",
        "2(n-1)/n S each",
        ring,
        lambda n: 2 * (n - 1),
        _one_each,
    ),
    Algorithm(
        "ring-reduce-scatter",
        "Ring reduce-scatter",
        "n-1",
        "(n-1)/n S each",
        ring_reduce_scatter,
        lambda n: n - 1,
        _one_each,
    ),
    Algorithm(
        "ring-all-gather",
        "Ring all-gather",
        "n-1",
        "(n-1)/n S each",
        ring_all_gather,
        lambda n: n - 1,
        _one_each,
    ),
    Algorithm(
        "ps",
        "Central parameter server",
        "2",
        "root (n-1)S, others S",
        parameter_server,
        lambda n: 2 if n > 1 else 0,
        _server_loads,
        ("root",),
    ),
    Algorithm(
        "dp",
        "DataParallel, copy path",
        "2(n-1)",
        "root (n-1)S, others S",
        data_parallel,
        lambda n: 2 * (n - 1),
        _copy_path_loads,
    ),
)


def find_algorithm(name: str) -> Algorithm:
    """The table's row of that name.

    >>> find_algorithm("rnig")
    Traceback (most recent call last):
    ValueError: unknown algorithm 'rnig'; did you mean 'ring'? accepted: ring, \
ring-reduce-scatter, ring-all-gather, ps, dp
    """
    by_name = {algorithm.name: algorithm for algorithm in ALGORITHMS}
    if name not in by_name:
        raise ValueError(unknown("algorithm", name, by_name))
    return by_name[name]


def unknown(what: str, name: str, accepted: Iterable[str]) -> str:
    """One line for a name that is not in the table, with the nearest one that is."""
    names = list(accepted)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {name!r};{hint} accepted: {', '.join(names)}"


def build_schedule(name: str, n: int, **flags: int) -> Schedule:
    """The schedule of that name for ``n`` ranks; a flag that it does not take is an error.

    >>> build_schedule("ps", 4, root=2).name
    'ps'
    >>> build_schedule("ring", 4, root=2)
    Traceback (most recent call last):
    ValueError: algorithm 'ring' does not take root; ps does
    """
    algorithm = find_algorithm(name)
    for flag in flags:
        if flag not in algorithm.flags:
            takers = ", ".join(a.name for a in ALGORITHMS if flag in a.flags)
            raise ValueError(f"algorithm {name!r} does not take {flag}; {takers or 'none'} does")
    return algorithm.build(n, **flags)
