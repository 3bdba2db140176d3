"""One training step of each strategy as a plan: what is computed, what is sent, in which order.

The table ``STRATEGIES`` is the only registry. No bytes per second, no seconds on a wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simcore.names import unknown
from simcore.training.plan import Plan
from simcore.training.strategies.ddp import ddp
from simcore.training.strategies.dp import dp
from simcore.training.strategies.footprint import footprint
from simcore.training.strategies.groups import data_parallel_groups, share_of_model
from simcore.training.strategies.local import local_sgd
from simcore.training.strategies.servers import byteps, ps, ps_dedicated
from simcore.training.strategies.setting import Setting
from simcore.training.strategies.sharded import (
    fsdp,
    hsdp,
    shard_grad_op,
    zero1,
    zero2,
    zero3,
    zero_redundancy_optimizer,
)

__all__ = [
    "STRATEGIES",
    "Setting",
    "Strategy",
    "data_parallel_groups",
    "find_strategy",
    "footprint",
    "plan_step",
    "share_of_model",
]


_BUCKETS = ("bucket_cap_mb", "static_graph", "find_unused_parameters", "iteration", "overlap")
_WRAPPED = ("hook", "gradient_as_bucket_view", "broadcast_buffers")
_REDUCER = (*_BUCKETS, *_WRAPPED, "backend", "algorithm", "gpus_per_node")
_SERVED = ("servers", "pipelined", "overlap", "aggregation")
_LOCAL = ("period", "algorithm", "gpus_per_node")


@dataclass(frozen=True, slots=True)
class Strategy:
    """One row of the table. ``sent`` is per GPU and step, M the parameters' bytes.

    ``takes`` names what of a setting and its options this strategy reads beyond the workload,
    ``gpus``, ``accumulate`` and ``slower``, which all of them read.
    """

    name: str
    title: str
    sent: str
    plan: Callable[[Setting], Plan]
    takes: tuple[str, ...]


STRATEGIES: tuple[Strategy, ...] = (
    Strategy("ddp", "DistributedDataParallel", "2(n-1)/n M", ddp, _REDUCER),
    Strategy(
        *("dp", "nn.DataParallel", "M; by copies GPU 0 (n-1) M and gets as much", dp),
        ("backend", "launch_per_replica_s", "total_batch"),
    ),
    Strategy("ps", "Parameter server among the GPUs", "server (n-1) M, others M", ps, _SERVED),
    Strategy(
        *("ps-dedicated", "Parameter servers on extra machines", "M, server nM/k", ps_dedicated),
        _SERVED,
    ),
    Strategy(
        *("byteps", "Servers on GPUs and extra machines, best split", "below 2(n-1)/n M", byteps),
        _SERVED,
    ),
    Strategy("zero1", "ZeRO stage 1", "2(n-1)/n M", zero1, (*_BUCKETS, "backend")),
    Strategy("zero2", "ZeRO stage 2", "2(n-1)/n M", zero2, (*_BUCKETS, "backend")),
    Strategy("zero3", "ZeRO stage 3", "3(n-1)/n M", zero3, ("backend",)),
    Strategy("fsdp", "FSDP, FULL_SHARD", "3(n-1)/n M", fsdp, ("backend",)),
    Strategy("shard-grad-op", "FSDP, SHARD_GRAD_OP", "2(n-1)/n M", shard_grad_op, ("backend",)),
    Strategy(
        *("hsdp", "FSDP in nodes, all-reduce between", "3(g-1)/g M + 2(r-1)/r M/g", hsdp),
        ("backend", "algorithm", "gpus_per_node"),
    ),
    Strategy(
        "zero-redundancy-optimizer",
        "DDP with torch's ZeroRedundancyOptimizer",
        "3(n-1)/n M",
        zero_redundancy_optimizer,
        _REDUCER,
    ),
    Strategy("local-sgd", "Local SGD", "2(n-1)/n M every H steps", local_sgd, _LOCAL),
)


def find_strategy(name: str) -> Strategy:
    """The table's row of that name.

    >>> find_strategy("dpp")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: unknown strategy 'dpp'; did you mean 'dp'? accepted: ddp, dp, ps, ...
    """
    by_name = {strategy.name: strategy for strategy in STRATEGIES}
    if name not in by_name:
        raise ValueError(unknown("strategy", name, by_name))
    return by_name[name]


def plan_step(name: str, setting: Setting) -> Plan:
    """The plan of one step (of ``period`` steps for local SGD)."""
    return find_strategy(name).plan(setting)
