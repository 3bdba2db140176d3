"""Binomial tree and double binary tree. No bytes, no time, no devices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simcore.algorithms.stated import Pair
from simcore.schedule import Collective, IntArray, Op, Schedule, Step, check_n


def tree(n: int) -> Schedule:
    """Binomial tree: reduce to rank 0 in ⌈log₂ n⌉ steps, then broadcast the same way back.

    Few latencies, but the whole buffer at every step, and most ports idle.

    >>> print(tree(4))
    0: 1->0 c0 add
    0: 3->2 c0 add
    1: 2->0 c0 add
    2: 0->2 c0 copy
    3: 0->1 c0 copy
    3: 2->3 c0 copy
    """
    check_n(n)
    levels = (n - 1).bit_length()

    def steps() -> Iterator[Step]:
        for level in range(levels):
            child = np.arange(1 << level, n, 2 << level)
            yield Step.of(child, child - (1 << level), 0, Op.ADD)
        for level in reversed(range(levels)):
            child = np.arange(1 << level, n, 2 << level)
            yield Step.of(child - (1 << level), child, 0, Op.COPY)

    return Schedule("tree", n, 1, 2 * levels, Collective.ALL_REDUCE, steps)


def tree_loads(n: int, step: int) -> Pair:
    """On the way up the ranks whose lowest set bit is the level send to the rank without it."""
    levels = (n - 1).bit_length()
    level = step if step < levels else 2 * levels - 1 - step
    rank = np.arange(n)
    child = (rank & -rank) == 1 << level
    parent = (rank % (2 << level) == 0) & (rank + (1 << level) < n)
    up = child.astype(np.int64), parent.astype(np.int64)
    return up if step < levels else up[::-1]


def tree_bytes(n: int, sizes: IntArray) -> Pair:
    """Up to the parent once, down to every child once."""
    children = sum(
        (tree_loads(n, level)[1] for level in range((n - 1).bit_length())), np.zeros(n, np.int64)
    )
    has_parent = (np.arange(n) > 0).astype(np.int64)
    each = (children + has_parent) * sizes.sum()
    return each, each


def _in_order_parents(n: int) -> IntArray:
    """Parents in the binary tree over 0..n-1 whose odd ranks are leaves; -1 for the root, 0.

    A rank's place is its lowest set bit; its parent has the next higher bit as its own. Where
    that parent would be beyond n, the rank hangs from the one below (Sanders, Speck & Träff 2009,
    doi:10.1016/j.parco.2009.09.001).
    """
    rank = np.arange(n)
    bit = rank & -rank
    parent = (rank ^ bit) | (bit << 1)
    parent = np.where(parent < n, parent, rank ^ bit)
    parent[0] = -1
    return parent


def two_trees(n: int) -> tuple[IntArray, IntArray]:
    """Parents in two trees such that a rank with children in one is a leaf in the other.

    The second is the first seen in a mirror (n even) or moved on by one rank (n odd, where rank 0
    is the first's root, with one child, and works inside the second too).

    >>> [parents.tolist() for parents in two_trees(4)]
    [[-1, 2, 0, 2], [1, 3, 1, -1]]
    """
    first = _in_order_parents(n)
    rank = np.arange(n)
    place = n - 1 - rank if n % 2 == 0 else (rank + 1) % n  # where each rank of the first goes
    second = np.empty(n, np.int64)
    second[place] = np.where(first < 0, -1, place[first])
    return first, second


def _depths(parent: IntArray) -> IntArray:
    depth = np.zeros(len(parent), np.int64)
    above = parent.copy()
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return depth


def double_tree(n: int, pieces: int = 1) -> Schedule:
    """Two complementary binary trees carry half the buffer each, in ``pieces`` that follow closely.

    A rank that works inside one tree is a leaf in the other, so with many pieces every port is
    busy and carries at most twice the buffer, while latency grows with log n only. Piece p is a
    level further every step, up to the root and down again.

    >>> print(double_tree(3))
    0: 1->2 c0 add
    0: 2->0 c1 add
    1: 2->0 c0 add
    1: 0->1 c1 add
    2: 0->2 c0 copy
    2: 1->0 c1 copy
    3: 2->1 c0 copy
    3: 0->2 c1 copy
    """
    check_n(n)
    _check_pieces(pieces)
    trees = [(parent, _depths(parent)) for parent in two_trees(n)]
    height = max(int(depth.max()) for _, depth in trees)

    def steps() -> Iterator[Step]:
        for step in range(2 * height + pieces - 1 if n > 1 else 0):
            rows = [
                r
                for half, t in enumerate(trees)
                for r in _tree_rows(*t, half, height, step, pieces)
            ]
            yield Step.of(*(np.concatenate(column) for column in zip(*rows, strict=True)))

    n_steps = 2 * height + pieces - 1 if n > 1 else 0
    return Schedule("double-tree", n, 2 * pieces, n_steps, Collective.ALL_REDUCE, steps)


def _tree_rows(
    parent: IntArray, depth: IntArray, half: int, height: int, step: int, pieces: int
) -> Iterator[tuple[IntArray, IntArray, IntArray, IntArray]]:
    """One tree's columns in a step: pieces on their way up, then pieces on their way down."""
    child = np.flatnonzero(parent >= 0)
    for op, piece in (
        (Op.ADD, step - (height - depth[child])),
        (Op.COPY, step - (height + depth[child] - 1)),
    ):
        moves = (piece >= 0) & (piece < pieces)
        low, high = child[moves], parent[child[moves]]
        src, dst = (low, high) if op == Op.ADD else (high, low)
        yield src, dst, half * pieces + piece[moves], np.full(len(low), op)


def double_tree_steps(n: int, pieces: int = 1) -> int:
    """Twice the height of the trees for the first piece, one step more for each further one."""
    height = max(int(_depths(parent).max()) for parent in two_trees(n))
    return 2 * height + pieces - 1 if n > 1 else 0


def double_tree_loads(n: int, step: int, pieces: int = 1) -> Pair:
    """Each rank hears from its children and its parent, at its own level's time."""
    parents = two_trees(n)
    height = max(int(_depths(parent).max()) for parent in parents)
    sent, received = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for parent in parents:
        depth = _depths(parent)
        for rank in np.flatnonzero(parent >= 0).tolist():
            up = 0 <= step - height + depth[rank] < pieces
            down = 0 <= step - height - depth[rank] + 1 < pieces
            sent[rank] += up
            received[parent[rank]] += up
            sent[parent[rank]] += down
            received[rank] += down
    return sent, received


def double_tree_bytes(n: int, sizes: IntArray, pieces: int = 1) -> Pair:
    """In each tree a rank moves its half once per child and once for its parent."""
    total = np.zeros(n, np.int64)
    for half, parent in enumerate(two_trees(n)):
        neighbours = (parent >= 0) + np.bincount(parent[parent >= 0], minlength=n)
        total += neighbours * sizes[half * pieces : (half + 1) * pieces].sum()
    return total, total


def _check_pieces(pieces: int) -> None:
    if pieces < 1:
        raise ValueError(f"pieces must be at least 1, got {pieces!r}")


def ring_broadcast(n: int, pieces: int = 1) -> Schedule:
    """Rank 0's buffer along the line 0, 1, …, n-1, in ``pieces`` that follow each other.

    One latency per hop is paid once, not once per piece: ``n - 2 + pieces`` steps.

    >>> print(ring_broadcast(3, pieces=2))
    0: 0->1 c0 copy
    1: 0->1 c1 copy
    1: 1->2 c0 copy
    2: 1->2 c1 copy
    """
    check_n(n)
    _check_pieces(pieces)
    n_steps = pipeline_steps(n, pieces)

    def steps() -> Iterator[Step]:
        for step in range(n_steps):
            src = np.arange(max(0, step - pieces + 1), min(n - 2, step) + 1)
            yield Step.of(src, src + 1, step - src, Op.COPY)

    owner = (0,) * pieces
    return Schedule("ring-broadcast", n, pieces, n_steps, Collective.ALL_GATHER, steps, owner)


def chain_reduce(n: int, pieces: int = 1) -> Schedule:
    """The sum of all buffers on rank 0, along the line n-1, …, 1, 0, in ``pieces``.

    >>> print(chain_reduce(3, pieces=2))
    0: 2->1 c0 add
    1: 2->1 c1 add
    1: 1->0 c0 add
    2: 1->0 c1 add
    """
    check_n(n)
    _check_pieces(pieces)
    n_steps = pipeline_steps(n, pieces)

    def steps() -> Iterator[Step]:
        for step in range(n_steps):
            hop = np.arange(max(0, step - pieces + 1), min(n - 2, step) + 1)
            yield Step.of(n - 1 - hop, n - 2 - hop, step - hop, Op.ADD)

    owner = (0,) * pieces
    return Schedule("chain-reduce", n, pieces, n_steps, Collective.REDUCE_SCATTER, steps, owner)


def pipeline_steps(n: int, pieces: int = 1) -> int:
    """The first piece takes n-1 hops, each further one a step more."""
    return n - 2 + pieces if n > 1 else 0


def broadcast_loads(n: int, step: int, pieces: int = 1) -> Pair:
    """Rank r sends from step r on, one piece a step; its right neighbour receives it."""
    rank = np.arange(n)
    sends = ((step >= rank) & (step < rank + pieces) & (rank < n - 1)).astype(np.int64)
    return sends, np.roll(sends, 1)


def broadcast_bytes(n: int, sizes: IntArray, pieces: int = 1) -> Pair:
    """Everyone but the last sends it all once; everyone but rank 0 receives it all once."""
    sends = np.full(n, sizes.sum())
    sends[-1] = 0
    return sends, np.roll(sends, 1)


def chain_loads(n: int, step: int, pieces: int = 1) -> Pair:
    """The broadcast, seen in a mirror."""
    sends, receives = broadcast_loads(n, step, pieces)
    return sends[::-1], receives[::-1]


def chain_bytes(n: int, sizes: IntArray, pieces: int = 1) -> Pair:
    """Everyone but rank 0 sends it all once; everyone but the last receives it all once."""
    sends, receives = broadcast_bytes(n, sizes)
    return sends[::-1], receives[::-1]
