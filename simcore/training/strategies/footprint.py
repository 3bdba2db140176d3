"""What each GPU must hold under each strategy."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Literal

from simcore.training import memory
from simcore.training.memory import Memory, Optimizer
from simcore.training.sharded import owned
from simcore.training.strategies.servers import byteps_split
from simcore.training.strategies.setting import Setting
from simcore.training.strategies.sharded import units


def footprint(strategy: str, setting: Setting) -> list[Memory]:
    """One for every rank of the plan, extra servers last.

    >>> from simcore.training.model import Parameter, Workload
    >>> work = Workload("one", (Parameter("w", (1000,)),))
    >>> [m.total for m in footprint("ps", Setting(work, 3))]
    [16000, 8000, 8000]
    """
    work, n, optimizer = setting.workload, setting.gpus, setting.state
    if strategy == "dp":
        return list(memory.data_parallel(work, n, setting.samples, optimizer))
    if strategy in ("ps", "ps-dedicated", "byteps"):
        return _served(strategy, setting, optimizer)
    if strategy in _ZERO_STAGE:
        shards = (setting.gpus_per_node or n) if strategy == "hsdp" else n
        stage = _ZERO_STAGE[strategy]
        gathered = _gathered_bytes(setting) if stage == 3 else 0
        return [memory.zero(work, shards, stage, optimizer, gathered_bytes=gathered)] * n
    each = memory.one_gpu(work, optimizer)
    if strategy in ("ddp", "zero-redundancy-optimizer"):
        each = memory.ddp(work, setting.options, optimizer)
    if strategy == "zero-redundancy-optimizer":
        shares = owned(work.parameters, n)
        return [replace(each, optimizer=optimizer.nbytes(share)) for share in shares]
    return [each] * n


# The shares that each one keeps are ZeRO's; SHARD_GRAD_OP keeps gathered parameters, as stage 2.
_ZERO_STAGE: dict[str, Literal[1, 2, 3]] = {
    "zero1": 1,
    "zero2": 2,
    "shard-grad-op": 2,
    "zero3": 3,
    "fsdp": 3,
    "hsdp": 3,
}


def _served(strategy: str, setting: Setting, optimizer: Optimizer) -> list[Memory]:
    """Optimizer state is where the servers are; an extra one has its share of the rest too."""
    work, n = setting.workload, setting.gpus
    whole = memory.one_gpu(work, optimizer)
    worker = replace(whole, optimizer=0)
    if strategy == "byteps":
        extra = n if setting.servers is None else setting.servers
        gpu, cpu = byteps_split(n, extra)
        served = [replace(worker, optimizer=round(gpu * whole.optimizer))] * n
        return served + [_server_alone(setting, cpu, whole.optimizer)] * extra
    servers = setting.servers or 1
    share = -(-whole.optimizer // servers)
    if strategy == "ps":
        return [replace(worker, optimizer=share if rank < servers else 0) for rank in range(n)]
    return [worker] * n + [_server_alone(setting, 1 / servers, whole.optimizer)] * servers


def _server_alone(setting: Setting, share: float, optimizer_bytes: int) -> Memory:
    work = setting.workload
    sizes = (work.parameter_bytes, work.gradient_bytes, optimizer_bytes)
    parameters, gradients, optimizer = (round(share * nbytes) for nbytes in sizes)
    return Memory(parameters=parameters, gradients=gradients, optimizer=optimizer)


def _gathered_bytes(setting: Setting) -> int:
    """The root's parameters, which stay, and those of the two largest neighbours."""
    work = setting.workload
    sizes = {name: sum(work.parameters[i].nbytes for i in part) for name, part in units(work)}
    root = sizes.pop("", 0)
    layers = list(sizes.values())
    return root + max((a + b for a, b in pairwise([*layers, 0])), default=0)
