"""The collective algorithms, each a short generator of steps. No bytes, no time, no devices.

The table ``ALGORITHMS`` is the only registry: name, text for people, what the algorithm states
about its own traffic, and the flags it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from simcore.algorithms import exchange, hierarchy, rings, servers, trees
from simcore.algorithms.rings import ring, ring_all_gather, ring_reduce_scatter
from simcore.algorithms.stated import Pair, one_each
from simcore.names import unknown
from simcore.schedule import Schedule

__all__ = [
    "ALGORITHMS",
    "ALGORITHM_FLAGS",
    "Algorithm",
    "build_schedule",
    "find_algorithm",
    "ring",
    "ring_all_gather",
    "ring_reduce_scatter",
]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row of the table: how people call it, how to build it, and what it states."""

    name: str
    title: str
    steps: str
    sent: str
    build: Callable[..., Schedule]
    stated_steps: Callable[..., int]
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
        stated_loads=one_each,
        stated_bytes=rings.ring_bytes,
    ),
    Algorithm(
        name="ring-reduce-scatter",
        title="Ring reduce-scatter",
        steps="n-1",
        sent="(n-1)/n S each",
        build=ring_reduce_scatter,
        stated_steps=lambda n: n - 1,
        stated_loads=one_each,
        stated_bytes=rings.reduce_scatter_bytes,
    ),
    Algorithm(
        name="ring-all-gather",
        title="Ring all-gather",
        steps="n-1",
        sent="(n-1)/n S each",
        build=ring_all_gather,
        stated_steps=lambda n: n - 1,
        stated_loads=one_each,
        stated_bytes=rings.all_gather_bytes,
    ),
    Algorithm(
        name="ps",
        title="Central parameter server",
        steps="2",
        sent="root (n-1)S, others S",
        build=servers.parameter_server,
        stated_steps=lambda n, **flags: 2 * (n > 1),
        stated_loads=servers.server_loads,
        stated_bytes=servers.server_bytes,
        flags=("root",),
    ),
    Algorithm(
        name="ps-sharded",
        title="Parameter server, co-located shards",
        steps="2",
        sent="2(n-1)/n S each with n servers",
        build=servers.sharded_server,
        stated_steps=lambda n, **flags: 2 * (n > 1),
        stated_loads=servers.sharded_loads,
        stated_bytes=servers.sharded_bytes,
        flags=("servers",),
    ),
    Algorithm(
        name="ps-dedicated",
        title="Parameter server, extra machines",
        steps="2",
        sent="worker S, server nS/k",
        build=servers.dedicated_server,
        stated_steps=lambda n, **flags: 2,
        stated_loads=servers.dedicated_loads,
        stated_bytes=servers.dedicated_bytes,
        flags=("servers",),
    ),
    Algorithm(
        name="dp",
        title="DataParallel, copy path",
        steps="2(n-1)",
        sent="root (n-1)S, others S",
        build=servers.data_parallel,
        stated_steps=lambda n: 2 * (n - 1),
        stated_loads=servers.copy_path_loads,
        stated_bytes=servers.server_bytes,
    ),
    Algorithm(
        name="tree",
        title="Binomial tree",
        steps="2⌈log₂ n⌉",
        sent="≤ ⌈log₂ n⌉ S",
        build=trees.tree,
        stated_steps=lambda n: 2 * (n - 1).bit_length(),
        stated_loads=trees.tree_loads,
        stated_bytes=trees.tree_bytes,
    ),
    Algorithm(
        name="double-tree",
        title="Double binary tree, pipelined",
        steps="2h-1+P",
        sent="≤ 2S",
        build=trees.double_tree,
        stated_steps=trees.double_tree_steps,
        stated_loads=trees.double_tree_loads,
        stated_bytes=trees.double_tree_bytes,
        flags=("pieces",),
    ),
    Algorithm(
        name="halving-doubling",
        title="Recursive halving and doubling",
        steps="2⌊log₂ n⌋ (+2)",
        sent="2(n-1)/n S (+S)",
        build=exchange.halving_doubling,
        stated_steps=exchange.halving_doubling_steps,
        stated_loads=exchange.halving_doubling_loads,
        stated_bytes=exchange.halving_doubling_bytes,
    ),
    Algorithm(
        name="pairwise",
        title="Rotated exchange",
        steps="2(n-1)",
        sent="2(n-1)/n S each",
        build=exchange.pairwise,
        stated_steps=lambda n: 2 * (n - 1),
        stated_loads=one_each,
        stated_bytes=exchange.pairwise_bytes,
    ),
    Algorithm(
        name="hierarchical",
        title="Rings in and across nodes",
        steps="2(G-1)+2(n/G-1)",
        sent="2(G-1)/G S + 2(n-G)/n S/G",
        build=hierarchy.hierarchical,
        stated_steps=hierarchy.hierarchical_steps,
        stated_loads=hierarchy.hierarchical_loads,
        stated_bytes=hierarchy.hierarchical_bytes,
        flags=("gpus_per_node",),
    ),
    Algorithm(
        name="ring-broadcast",
        title="Pipelined broadcast from rank 0",
        steps="n-2+P",
        sent="S, last 0",
        build=trees.ring_broadcast,
        stated_steps=trees.pipeline_steps,
        stated_loads=trees.broadcast_loads,
        stated_bytes=trees.broadcast_bytes,
        flags=("pieces",),
    ),
    Algorithm(
        name="chain-reduce",
        title="Pipelined reduce to rank 0",
        steps="n-2+P",
        sent="S, rank 0 0",
        build=trees.chain_reduce,
        stated_steps=trees.pipeline_steps,
        stated_loads=trees.chain_loads,
        stated_bytes=trees.chain_bytes,
        flags=("pieces",),
    ),
)


# What the flags of the table mean, on every command line.
ALGORITHM_FLAGS = {
    "root": "the server's rank (ps)",
    "servers": "how many servers (ps-sharded, ps-dedicated)",
    "pieces": "how many pieces follow each other (double-tree, ring-broadcast, chain-reduce)",
    "gpus_per_node": "ranks in a node (hierarchical)",
}


def find_algorithm(name: str) -> Algorithm:
    """The table's row of that name.

    >>> find_algorithm("rnig")
    Traceback (most recent call last):
    ValueError: unknown algorithm 'rnig'; did you mean 'ring'? accepted: ring, \
ring-reduce-scatter, ring-all-gather, ps, ps-sharded, ps-dedicated, dp, tree, double-tree, \
halving-doubling, pairwise, hierarchical, ring-broadcast, chain-reduce
    """
    by_name = {algorithm.name: algorithm for algorithm in ALGORITHMS}
    if name not in by_name:
        raise ValueError(unknown("algorithm", name, by_name))
    return by_name[name]


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
    return replace(algorithm.build(n, **flags), flags=flags)
