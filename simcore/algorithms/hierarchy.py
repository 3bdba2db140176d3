"""Rings inside the nodes and across them. No bytes, no time, no devices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simcore.algorithms.stated import Pair
from simcore.schedule import Collective, IntArray, Op, Schedule, Step, check_n


def hierarchical(n: int, gpus_per_node: int | None = None) -> Schedule:
    """Reduce-scatter in each node, all-reduce across nodes on every rail, all-gather in each node.

    Ranks of a node follow each other; rail ``l`` joins the l-th ranks of all nodes. Across nodes
    each rank moves only its node's share, ``2(m-1)/m · S/gpus_per_node`` for m nodes.

    >>> print(hierarchical(4, gpus_per_node=2))
    0: 0->1 c0 add
    0: 0->1 c1 add
    0: 1->0 c2 add
    0: 1->0 c3 add
    0: 2->3 c0 add
    0: 2->3 c1 add
    0: 3->2 c2 add
    0: 3->2 c3 add
    1: 0->2 c2 add
    1: 1->3 c0 add
    1: 2->0 c3 add
    1: 3->1 c1 add
    2: 0->2 c3 copy
    2: 1->3 c1 copy
    2: 2->0 c2 copy
    2: 3->1 c0 copy
    3: 0->1 c2 copy
    3: 0->1 c3 copy
    3: 1->0 c0 copy
    3: 1->0 c1 copy
    3: 2->3 c2 copy
    3: 2->3 c3 copy
    3: 3->2 c0 copy
    3: 3->2 c1 copy
    """
    local_n, nodes = _shape(n, gpus_per_node)
    rank = np.arange(n)
    node, local = np.divmod(rank, local_n)
    beside = node * local_n + (local + 1) % local_n
    across = (node + 1) % nodes * local_n + local
    mine = (local + 1) % local_n * nodes  # the first chunk of the share that is this rank's rail

    def steps() -> Iterator[Step]:
        for step in range(local_n - 1):
            yield Step.of(rank, beside, (local - step) % local_n * nodes, Op.ADD, nodes)
        for step in range(nodes - 1):
            yield Step.of(rank, across, mine + (node - step) % nodes, Op.ADD)
        for step in range(nodes - 1):
            yield Step.of(rank, across, mine + (node + 1 - step) % nodes, Op.COPY)
        for step in range(local_n - 1):
            yield Step.of(rank, beside, (local + 1 - step) % local_n * nodes, Op.COPY, nodes)

    n_steps = 2 * (local_n - 1) + 2 * (nodes - 1)
    return Schedule("hierarchical", n, n, n_steps, Collective.ALL_REDUCE, steps)


def _shape(n: int, gpus_per_node: int | None) -> tuple[int, int]:
    check_n(n)
    local_n = n if gpus_per_node is None else gpus_per_node
    if local_n < 1 or n % local_n:
        raise ValueError(f"gpus_per_node must divide {n} GPUs, got {gpus_per_node!r}")
    return local_n, n // local_n


def hierarchical_steps(n: int, gpus_per_node: int | None = None) -> int:
    """Twice round the node, twice round the nodes."""
    local_n, nodes = _shape(n, gpus_per_node)
    return 2 * (local_n - 1) + 2 * (nodes - 1)


def hierarchical_loads(n: int, step: int, gpus_per_node: int | None = None) -> Pair:
    """A node's share at either end of the run, one chunk in between."""
    local_n, nodes = _shape(n, gpus_per_node)
    across = local_n - 1 <= step < local_n - 1 + 2 * (nodes - 1)
    each = np.full(n, 1 if across else nodes)
    return each, each


def hierarchical_bytes(n: int, sizes: IntArray, gpus_per_node: int | None = None) -> Pair:
    """A ring's bytes inside the node, over shares, and a ring's across, over one share's chunks."""
    local_n, nodes = _shape(n, gpus_per_node)
    node, local = np.divmod(np.arange(n), local_n)
    chunk = sizes.reshape(local_n, nodes)
    share, total = chunk.sum(axis=1), sizes.sum()

    def shares(*places: IntArray) -> IntArray:
        return sum((share[p % local_n] for p in places), np.zeros(n, np.int64))

    def chunks(*places: IntArray) -> IntArray:
        zeros = np.zeros(n, np.int64)
        return sum((chunk[(local + 1) % local_n, p % nodes] for p in places), zeros)

    rail = share[(local + 1) % local_n]
    sent = 2 * total - shares(local + 1, local + 2) + 2 * rail - chunks(node + 1, node + 2)
    received = 2 * total - shares(local, local + 1) + 2 * rail - chunks(node, node + 1)
    return sent, received
