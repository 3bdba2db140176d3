"""One training step of the library's own strategies, with real layers, on torch.distributed.

Every step starts from the same parameters and must end where one process that sees the whole
batch ends. The table of names and options stands in ``plan``, the model in ``model``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from real_gpu.job import Case
from real_gpu.vendor.model import ROWS, Seen, Stack, compare, gradients, local, rows, shard
from real_gpu.vendor.plan import WARM_STEPS

RATE = 1.0  # the learning rate: an update is the gradient itself
# Relative to the largest entry of the gradient; half precision rounds each rank's share.
ALLOWED = {None: 1e-4, "fp16": 1e-2, "bf16": 5e-2, "powersgd": 1e-2}
_WRAPPED_WITH = (
    "bucket_cap_mb",
    "static_graph",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "broadcast_buffers",
)


class Training(ABC):
    """What all trainings share. A subclass wraps the model and says how one step goes."""

    def __init__(self, case: Case, rank: int, n: int, device: torch.device) -> None:
        self.options, self.rank, self.n, self.device = case.options, rank, n, device
        self.elements, self.accumulate = case.elements, case.options.get("accumulate", 1)
        self.model = Stack(case.elements, self.seed()).to(device)
        self.batches = [rows(case.elements, rank, k).to(device) for k in range(self.accumulate)]
        for batch in self.batches:
            batch.requires_grad_()  # as if layers came before
        self.wanted = self.whole_batch()
        self.wrap()
        with torch.no_grad():
            self.kept = [local(p).clone() for p in self.model.parameters()]
        self.progress = ""
        self.payload: dict[str, Any] = {"calls": self._warmed_up()}

    def seed(self) -> int:
        """Of the initial parameters: the library must make them rank 0's, if they differ."""
        return 0

    def whole_batch(self) -> list[torch.Tensor]:
        """The gradients of one process on every rank's rows."""
        batches = [rows(self.elements, r, k) for r in range(self.n) for k in range(self.accumulate)]
        return gradients(self.elements, batches)

    @abstractmethod
    def wrap(self) -> None:
        """Hand the model to the library."""

    @abstractmethod
    def step(self) -> None:
        """One training step."""

    def _warmed_up(self) -> list[tuple[str, int]]:
        """The collectives of a step, once buckets have found their order."""
        for _ in range(WARM_STEPS):
            self.reset()
            self.step()
        self.reset()
        seen = Seen()
        with seen:
            self.step()
        return seen.calls

    def reset(self) -> None:
        """The first parameters again, no gradients, and a mean that tells the ranks apart."""
        with torch.no_grad():
            for parameter, kept in zip(self.model.parameters(), self.kept, strict=True):
                local(parameter).copy_(kept)
                parameter.grad = None
            self.model.seen.fill_(self.rank + 1.0)

    def run(self) -> list[list[float]]:
        """The step."""
        self.step()
        return []

    def update(self) -> list[torch.Tensor]:
        """By how much the step has changed each parameter, as far as it lies here."""
        changed = zip(self.kept, self.model.parameters(), strict=True)
        return [((kept - local(p)) / RATE).cpu() for kept, p in changed]

    def difference(self) -> str | None:
        """Which parameter moved otherwise than in one process on the whole batch."""
        hook = str(self.options.get("hook")).partition(":")[0]
        return compare(self.update(), self.wanted, ALLOWED.get(hook, ALLOWED[None]))


class Ddp(Training):
    """DistributedDataParallel; ranks start with parameters of their own, and rank 0's must win."""

    def seed(self) -> int:
        """Its own."""
        return self.rank

    def wrap(self) -> None:
        """With the options given, and one step that makes a static graph known."""
        given = {k: v for k, v in self.options.items() if k in _WRAPPED_WITH}
        self.ddp = DistributedDataParallel(self.model, **given)
        self._register(self.options.get("hook"))
        self.optimizer: Any = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self._pass(self.batches[0])

    def _register(self, hook: str | None) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        if hook in ("fp16", "bf16"):
            self.ddp.register_comm_hook(None, getattr(default_hooks, f"{hook}_compress_hook"))
        elif hook:
            _, rank, *start = hook.split(":")
            state = powerSGD_hook.PowerSGDState(
                None,
                matrix_approximation_rank=int(rank),
                start_powerSGD_iter=int(start[0]) if start else 1000,
            )
            self.ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    def _pass(self, batch: torch.Tensor) -> None:
        (self.ddp(batch) / self.accumulate).backward()

    def step(self) -> None:
        """All micro-batches, of which the last is reduced."""
        with self.ddp.no_sync():
            for batch in self.batches[:-1]:
                self._pass(batch)
        self._pass(self.batches[-1])
        self.optimizer.step()

    def difference(self) -> str | None:
        """The parameters, and whose mean the buffer started from."""
        hook = self.options.get("hook") or ""
        if (
            hook.startswith("powersgd")
            and int(hook.split(":")[1]) < self.n * len(self.batches) * ROWS
        ):
            return self._unequal()  # a low rank cannot hold the gradient; ranks must still agree
        first = 1.0 if self.options.get("broadcast_buffers", True) else self.rank + 1.0
        mean = torch.full_like(self.model.seen, first)
        for batch in self.batches:
            mean.mul_(0.5).add_(0.5 * batch.detach().mean(0))
        if not torch.allclose(mean, self.model.seen):
            return f"buffer: got {float(self.model.seen[0]):.6g}, wanted {float(mean[0]):.6g}"
        return super().difference()

    def _unequal(self) -> str | None:
        mine = torch.stack([p.detach().double().sum() for p in self.model.parameters()])
        largest, smallest = mine.clone(), mine.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        dist.all_reduce(smallest, dist.ReduceOp.MIN)
        return None if torch.equal(largest, smallest) else "the ranks' parameters differ"


class Zero(Ddp):
    """DDP's gradients, and an optimizer whose state is shared out."""

    def wrap(self) -> None:
        """Its optimizer replaces the plain one."""
        from torch.distributed.optim import ZeroRedundancyOptimizer

        super().wrap()
        self.optimizer = ZeroRedundancyOptimizer(
            self.model.parameters(),
            torch.optim.SGD,
            lr=RATE,
            parameters_as_bucket_view=self.options.get("parameters_as_bucket_view", False),
        )


class Fsdp(Training):
    """fully_shard on each layer, and on the whole."""

    def wrap(self) -> None:
        """A mesh of all ranks."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.n,))
        again = self.options.get("reshard_after_forward", True)
        for layer in self.model.layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=again)
        self.sharded: Any = fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.wanted = [shard(gradient, self.rank, self.n) for gradient in self.wanted]

    def step(self) -> None:
        """All micro-batches, of which the last is reduced."""
        for batch in self.batches:
            self.sharded.set_requires_gradient_sync(batch is self.batches[-1])
            (self.sharded(batch) / self.accumulate).backward()
        self.optimizer.step()


class Server(Training):
    """Rank 0 works and serves: takes every rank's gradient, updates, hands out parameters.

    Messages are point to point and go over Gloo, from the CPU's memory, whatever the backend.
    """

    def wrap(self) -> None:
        """Room for one message, on rank 0 for everyone's."""
        gloo = dist.get_backend() == "gloo"
        self.group: Any = dist.group.WORLD if gloo else dist.new_group(backend="gloo")
        count = self.n if self.rank == 0 else 1
        self.messages = [torch.zeros(self.elements) for _ in range(count)]
        self.order: list[int] = []

    def step(self) -> None:
        """A gradient of one's own, and what becomes of it."""
        self.model(self.batches[0]).backward()
        mine = [p.grad for p in self.model.parameters() if p.grad is not None]
        self.messages[0].copy_(torch.cat([g.flatten() for g in mine]))
        with torch.no_grad():
            self.serve() if self.rank == 0 else self.ask()

    def serve(self) -> None:
        """Everyone's gradients at once, their mean, one update, and the parameters to all."""
        others = range(1, self.n)
        for work in [dist.irecv(self.messages[r], r, self.group) for r in others]:
            wait(work)
        self.apply(torch.stack(self.messages).sum(0) / self.n)
        parameters = self.parameters()
        for work in [dist.isend(parameters, r, self.group) for r in others]:
            wait(work)

    def ask(self) -> None:
        """Push, and pull."""
        dist.send(self.messages[0], 0, self.group)
        dist.recv(self.messages[0], 0, self.group)
        at = 0
        for parameter in self.model.parameters():
            part = self.messages[0][at : at + parameter.numel()]
            parameter.copy_(part.view_as(parameter))
            at += parameter.numel()

    def apply(self, gradient: torch.Tensor) -> None:
        """One step of the optimizer at the server."""
        at = 0
        for parameter in self.model.parameters():
            part = gradient[at : at + parameter.numel()].to(self.device)
            parameter.sub_(RATE * part.view_as(parameter))
            at += parameter.numel()

    def parameters(self) -> torch.Tensor:
        """As one message."""
        return torch.cat([p.detach().flatten() for p in self.model.parameters()]).cpu()


class AsyncServer(Server):
    """Each gradient is applied as it comes, and answered at once: nobody waits for the others."""

    def serve(self) -> None:
        """First come, first served."""
        self.order = [0]
        self.apply(self.messages[0] / self.n)
        for place in range(1, self.n):
            rank = dist.recv(self.messages[place], None, self.group)
            self.order.append(rank)
            self.apply(self.messages[place] / self.n)
            dist.send(self.parameters(), rank, self.group)

    def difference(self) -> str | None:
        """A rank has its own gradient's update and that of all that came before it."""
        order = torch.tensor(self.order or [0] * self.n)
        dist.broadcast(order, 0, self.group)
        last = self.n - 1 if self.rank == 0 else order.tolist().index(self.rank)
        before = [rows(self.elements, r, 0) for r in order.tolist()[: last + 1]]
        share = len(before) / self.n  # the mean over these ranks, as a share of all
        wanted = [share * gradient for gradient in gradients(self.elements, before)]
        return compare(self.update(), wanted, ALLOWED[None])


class DataParallel(Training):
    """nn.DataParallel: one process, a thread and a copy of the model for each GPU."""

    def wrap(self) -> None:
        """Over the first n GPUs; the whole batch comes in at once."""
        gpus = list(range(self.n)) if self.device.type == "cuda" else None
        self.parallel = nn.DataParallel(self.model, gpus)
        self.batches = [torch.cat([rows(self.elements, r, 0) for r in range(self.n)])]
        self.batches[0] = self.batches[0].to(self.device)

    def step(self) -> None:
        """Scatter, replicate, compute, gather; gradients come back to GPU 0."""
        self.parallel(self.batches[0]).mean().backward()
        with torch.no_grad():
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                parameter.sub_(RATE * parameter.grad)


STEPS: dict[str, type[Training]] = {
    "torch.ddp": Ddp,
    "torch.fsdp": Fsdp,
    "torch.zero": Zero,
    "torch.dp": DataParallel,
    "torch.ps": Server,
    "torch.ps-async": AsyncServer,
}


def wait(work: Any) -> None:
    """Of a message that was surely posted."""
    assert work is not None
    work.wait()
