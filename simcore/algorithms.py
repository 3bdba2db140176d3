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


# What each algorithm states about its traffic, as pairs (sent, received) of arrays of shape (n,):
# chunks per port in a step, and bytes per rank in all, for chunks of any sizes. Written from the
# definitions, not from the generators, so that `check.check_traffic` compares two statements.

Pair = tuple[IntArray, IntArray]


def _one_each(n: int, step: int) -> Pair:
    return np.ones(n, np.int64), np.ones(n, np.int64)


def _reduce_scatter_bytes(n: int, sizes: IntArray) -> Pair:
    """A rank sends every chunk but the one it will own, and receives every chunk but its own."""
    total, rank = sizes.sum(), np.arange(n)
    return total - sizes[(rank + 1) % n], total - sizes[rank]


def _all_gather_bytes(n: int, sizes: IntArray) -> Pair:
    """A rank sends all but what its neighbour owns, and receives all but what it owns."""
    total, rank = sizes.sum(), np.arange(n)
    return total - sizes[(rank + 2) % n], total - sizes[(rank + 1) % n]


def _ring_bytes(n: int, sizes: IntArray) -> Pair:
    halves = _reduce_scatter_bytes(n, sizes), _all_gather_bytes(n, sizes)
    return halves[0][0] + halves[1][0], halves[0][1] + halves[1][1]


def _server_loads(n: int, step: int, root: int = 0) -> Pair:
    worker, server = np.ones(n, np.int64), np.zeros(n, np.int64)
    worker[root], server[root] = 0, n - 1
    return (worker, server) if step == 0 else (server, worker)


def _server_bytes(n: int, sizes: IntArray, root: int = 0) -> Pair:
    each = np.full(n, sizes.sum())
    each[root] *= n - 1
    return each, each


def _copy_path_loads(n: int, step: int) -> Pair:
    root, worker = np.zeros(n, np.int64), np.zeros(n, np.int64)
    root[0] = 1
    worker[1 + step % (n - 1)] = 1
    return (worker, root) if step < n - 1 else (root, worker)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row of the table: how people call it, how to build it, and what it states."""

    name: str
    title: str
    steps: str
    sent: str
    build: Callable[..., Schedule]
    stated_steps: Callable[[int], int]
    stated_loads: Callable[..., Pair]
    stated_bytes: Callable[..., Pair]
    flags: tuple[str, ...] = ()


ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="ring",
        title="Ring all-reduce",
        steps="2(n-1)",
        sent="2(n-1)/n S each",
        build=ring,
        stated_steps=lambda n: 2 * (n - 1),
        stated_loads=_one_each,
        stated_bytes=_ring_bytes,
    ),
    Algorithm(
        name="ring-reduce-scatter",
        title="Ring reduce-scatter",
        steps="n-1",
        sent="(n-1)/n S each",
        build=ring_reduce_scatter,
        stated_steps=lambda n: n - 1,
        stated_loads=_one_each,
        stated_bytes=_reduce_scatter_bytes,
    ),
    Algorithm(
        name="ring-all-gather",
        title="Ring all-gather",
        steps="n-1",
        sent="(n-1)/n S each",
        build=ring_all_gather,
        stated_steps=lambda n: n - 1,
        stated_loads=_one_each,
        stated_bytes=_all_gather_bytes,
    ),
    Algorithm(
        name="ps",
        title="Central parameter server",
        steps="2",
        sent="root (n-1)S, others S",
        build=parameter_server,
        stated_steps=lambda n: 2 if n > 1 else 0,
        stated_loads=_server_loads,
        stated_bytes=_server_bytes,
        flags=("root",),
    ),
    Algorithm(
        name="dp",
        title="DataParallel, copy path",
        steps="2(n-1)",
        sent="root (n-1)S, others S",
        build=data_parallel,
        stated_steps=lambda n: 2 * (n - 1),
        stated_loads=_copy_path_loads,
        stated_bytes=_server_bytes,
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
    ValueError: algorithm 'ring' does not take 'root' (ps does)
    """
    algorithm = find_algorithm(name)
    for flag in flags:
        if flag not in algorithm.flags:
            takers = ", ".join(a.name for a in ALGORITHMS if flag in a.flags)
            raise ValueError(f"algorithm {name!r} does not take {flag!r} ({takers or 'none'} does)")
    return algorithm.build(n, **flags)
