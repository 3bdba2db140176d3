"""Torch modules made from a workload, and what a real DistributedDataParallel does with them."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from simcore.training.model import Parameter, Workload
from tests.support import require


def torch_or_skip(what: str = "torch") -> ModuleType:
    """Torch, or the test is skipped (where SYNCSCOPE_REQUIRE names ``what``: fails)."""
    absent = importlib.util.find_spec("torch") is None
    require(what, "pip install torch" if absent else None)
    import torch

    return torch


def parameters(*shapes: tuple[int, ...], dtype: str = "float32") -> tuple[Parameter, ...]:
    return tuple(Parameter(f"p{i}", shape, dtype) for i, shape in enumerate(shapes))


def resnet18() -> Workload:
    """Written out here, not taken from the catalogue: 11,689,512 parameters."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    width = 64
    for out in (64, 128, 256, 512):
        for block in range(2):
            into = width if block == 0 else out
            shapes += [(out, into, 3, 3), (out,), (out,), (out, out, 3, 3), (out,), (out,)]
            if into != out:
                shapes += [(out, into, 1, 1), (out,), (out,)]
        width = out
    return Workload("ResNet-18", parameters(*shapes, (1000, 512), (1000,)))


def linears(count: int, width: int) -> Workload:
    return Workload(f"{count} x Linear({width})", parameters(*[(width, width), (width,)] * count))


def module_of(workload: Workload) -> Any:
    """A module with these parameters and buffers; its loss is their sum, whose gradients arrive
    in the workload's order without any activations.
    """
    import torch

    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, p in enumerate(workload.parameters):
                data = torch.zeros(p.shape, dtype=getattr(torch, p.dtype))
                self.register_parameter(f"p{i}", torch.nn.Parameter(data, p.trainable))
            for i, b in enumerate(workload.buffers):
                dtype = getattr(torch, b.dtype)
                self.register_buffer(f"b{i}", torch.zeros(b.shape, dtype=dtype))

        def forward(self, used: tuple[int, ...] = workload.gradients) -> Any:
            loss = torch.zeros(())
            for i in reversed(used):  # the last one added is the first to get its gradient
                loss = loss + getattr(self, f"p{i}").sum().float()
            return loss

    return Sum()


@contextlib.contextmanager
def fake_group(n: int) -> Iterator[None]:
    """Rank 0 of ``n``, alone: collectives are counted but move nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=n)
    try:
        yield
    finally:
        dist.destroy_process_group()


def real_buckets(workload: Workload, iterations: int, **arguments: Any) -> list[list[Any]]:
    """The (indices, nbytes) of each bucket that a real reducer launches, per iteration."""
    import torch

    seen: list[list[Any]] = []

    def hook(state, bucket):  # unannotated: torch checks the annotations
        order = tuple(index_of[id(p)] for p in bucket.parameters())
        seen[-1].append((order, bucket.buffer().nbytes))
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    with fake_group(4):
        module = module_of(workload)
        index_of = {id(p): i for i, p in enumerate(module.parameters())}
        ddp = torch.nn.parallel.DistributedDataParallel(module, init_sync=False, **arguments)
        ddp.register_comm_hook(None, hook)
        for _ in range(iterations):
            seen.append([])
            ddp().backward()
    return seen


@contextlib.contextmanager
def ranks_that_train(n: int) -> Iterator[Any]:
    """``n`` processes of ``tests.ddp_ranks``, joined over Gloo; ``train`` asks them all."""
    from real_gpu.processes.ranks import Ranks

    class Training(Ranks):
        def train(self, what: str, within_s: float = 120, **settings: Any) -> list[Any]:
            return [a["answer"] for a in self.all(within_s, do="train", what=what, **settings)]

    with Training(n, "tests.ddp_ranks") as ranks:
        ranks.start()
        ranks.ask([{"do": "load", "rank": r, "n": n, "backend": "gloo"} for r in range(n)], 120)
        here = "127.0.0.1"
        (at,) = ranks.ask([{"do": "listen", "address": here, "port": 0}], 30, ranks=[0])
        interface = {"linux": "lo", "darwin": "lo0"}.get(sys.platform, "")
        meet = {"address": here, "port": at["port"], "interface": interface, "timeout_s": 60}
        ranks.all(60, do="join", **meet)
        yield ranks
