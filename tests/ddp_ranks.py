"""A rank that trains: real DistributedDataParallel over Gloo, asked by the tests next to it.

``python -m tests.ddp_ranks`` is started by ``real_gpu.processes.ranks``; each request ``train``
names one of the functions below and answers what it returns.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from real_gpu.processes.worker import Rank, main
from simcore.training.workload import from_json
from tests.ddp_support import module_of
from tests.torch_calls import Calls


class TrainingRank(Rank):
    """A rank that can also train."""

    def train(self, what: str, **settings: Any) -> dict[str, Any]:
        return {"answer": globals()[what](self.rank, self.n, **settings)}


def _ddp(model: str, hook: str | None = None, **arguments: Any) -> DistributedDataParallel:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    ddp = DistributedDataParallel(module_of(from_json(model)), **arguments)
    if hook == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook:
        _, rank, start = hook.split(":")
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=int(rank), start_powerSGD_iter=int(start)
        )
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return ddp


def calls_of(rank: int, n: int, model: str, passes: list[str], **arguments: Any) -> Any:
    """The collectives of construction, and of each pass."""
    calls = Calls()
    with calls:
        ddp = _ddp(model, **arguments)
        listed = [calls.take()]
        for kind in passes:
            quiet = {"no_sync": ddp.no_sync, "eval": torch.no_grad}.get(kind)
            with quiet() if quiet else contextlib.nullcontext():
                loss = ddp()
                if kind != "eval":
                    loss.backward()
            listed.append(calls.take())
    return listed


def calls_of_join(rank: int, n: int, model: str, inputs: list[int], **arguments: Any) -> Any:
    """The collectives of training in a join block, where each rank has its number of inputs."""
    calls = Calls()
    with calls:
        ddp = _ddp(model, **arguments)
        calls.take()
        with ddp.join():
            for _ in range(inputs[rank]):
                ddp().backward()
    return calls.take()


def calls_of_powersgd(rank: int, n: int, model: str, hook: str, iterations: int) -> Any:
    """PowerSGD's all-reduces start on Gloo's own threads, where no dispatch mode sees them."""
    seen: list[int] = []
    all_reduce = dist.all_reduce

    def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(tensor.nbytes)
        return all_reduce(tensor, *args, **kwargs)

    ddp = _ddp(model, hook)
    listed = []
    dist.all_reduce = counted
    try:
        for _ in range(iterations):
            ddp().backward()
            listed.append(list(seen))
            seen.clear()
    finally:
        dist.all_reduce = all_reduce
    return listed


def calls_of_zero(rank: int, n: int, model: str, bucket_view: bool) -> Any:
    """The collectives of one backward pass and one step of ZeroRedundancyOptimizer."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    calls = Calls()
    with calls:
        ddp = _ddp(model)
        optimizer = ZeroRedundancyOptimizer(
            ddp.parameters(), torch.optim.SGD, lr=0.1, parameters_as_bucket_view=bucket_view
        )
        calls.take()
        ddp().backward()
        backward = calls.take()
        optimizer.step()
        return [backward, calls.take()]


def _scalar(**arguments: Any) -> DistributedDataParallel:
    """One weight w = 0, whose gradient under the loss w x is x."""
    linear = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(linear.weight)
    return DistributedDataParallel(linear, **arguments)


def _loss(ddp: torch.nn.Module, x: float) -> torch.Tensor:
    return ddp(torch.full((1, 1), float(x))).sum()


def _gradient(ddp: torch.nn.Module) -> float:
    (parameter,) = ddp.parameters()
    return float(parameter.grad)


def accumulated(rank: int, n: int, x: list[list[float]], placement: str) -> Any:
    """The gradient after these micro-batches of this rank, and the all-reduces that it took."""
    calls = Calls()
    with calls:
        ddp = _scalar()
        calls.take()
        for i, value in enumerate(x[rank]):
            last = i == len(x[rank]) - 1
            if placement == "all" or (placement == "last" and last):
                _loss(ddp, value).backward()
            elif placement == "forward outside":
                loss = _loss(ddp, value)
                with ddp.no_sync() if not last else contextlib.nullcontext():
                    loss.backward()
            else:  # "none" forgets to synchronise the last one
                with ddp.no_sync():
                    _loss(ddp, value).backward()
        return [_gradient(ddp), sum(kind == "all_reduce" for kind, _ in calls.take())]


def regression_gradient(
    rank: int, n: int, x: list[list[float]], y: list[float], sizes: list[int], loss: str
) -> list[float]:
    """DDP's gradient at w = 0 of squared errors, rows handed out by ``sizes``."""
    linear = torch.nn.Linear(len(x[0]), 1, bias=False).double()
    torch.nn.init.zeros_(linear.weight)
    ddp = DistributedDataParallel(linear)
    start = sum(sizes[:rank])
    mine = slice(start, start + sizes[rank])
    wanted = torch.tensor(y[mine], dtype=torch.float64)
    errors = ddp(torch.tensor(x[mine], dtype=torch.float64))[:, 0] - wanted
    value = (errors**2).sum() if loss == "sum" else (errors**2).mean()
    if loss == "weighted":
        value = value * n * sizes[rank] / sum(sizes)
    value.backward()
    return linear.weight.grad[0].tolist()


def unused_parameter(rank: int, n: int, find: bool) -> Any:
    """What happens in two iterations when one parameter gets no gradient."""
    from simcore.training.model import Parameter, Workload

    model = Workload("m", (Parameter("a", (2,)), Parameter("b", (2,))), arrival=(0,))
    ddp = DistributedDataParallel(module_of(model), find_unused_parameters=find)
    try:
        for _ in range(2):
            ddp().backward()
    except RuntimeError as error:
        return str(error)
    return [p.grad is None for p in ddp.parameters()]


def joined(rank: int, n: int, x: list[list[float]], by_initial: bool) -> list[float]:
    """The gradient after each of a rank's inputs, in a join block."""
    ddp = _scalar()
    gradients = []
    with ddp.join(divide_by_initial_world_size=by_initial):
        for value in x[rank]:
            ddp.zero_grad()
            _loss(ddp, value).backward()
            gradients.append(_gradient(ddp))
    return gradients


def batch_norm(rank: int, n: int, values: list[list[float]], sync: bool) -> list[list[float]]:
    """A BatchNorm's running mean before each forward pass has updated it, and after."""
    norm = torch.nn.BatchNorm1d(1)
    ddp = DistributedDataParallel(norm, broadcast_buffers=sync)
    means = []
    for value in values[rank]:
        seen: list[float] = []
        handle = norm.register_forward_pre_hook(
            lambda module, args, seen=seen: seen.append(float(module.running_mean))
        )
        ddp(torch.tensor([[value - 1.0], [value + 1.0]])).sum().backward()
        handle.remove()
        means.append([*seen, float(norm.running_mean)])
    return means


def seeds(rank: int, n: int) -> list[list[float]]:
    """A weight before wrapping, after it, and after rank 1 alone has changed it and trained on."""
    torch.manual_seed(rank)
    linear = torch.nn.Linear(1, 1, bias=False)
    before = float(linear.weight)
    ddp = DistributedDataParallel(linear)
    after = float(linear.weight)
    if rank == 1:
        linear.weight.data += 1.0
    _loss(ddp, 1.0).backward()
    return [before, after, float(linear.weight)]


def other_model(rank: int, n: int) -> str:
    """What DDP says when the ranks' models differ."""
    model = torch.nn.Linear(2, 2, bias=rank == 0)
    try:
        DistributedDataParallel(model)
    except RuntimeError as error:
        return str(error)
    return "accepted"


if __name__ == "__main__":
    main(TrainingRank(), ("train",))
