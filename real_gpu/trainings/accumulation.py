"""A large batch in small parts: gradient accumulation with one all-reduce, not one a part.

    python -m real_gpu.trainings.accumulation

Gradients of several backward passes add up in ``.grad``. DDP would all-reduce in each of them,
though only the sum is needed. ``no_sync`` leaves that out. The forward pass belongs inside too:
it is there that DDP decides whether the backward pass will be synchronised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from real_gpu.trainings.launching import Values, classifier, close, device, main, points, prove, say

PARTS = 4
SAMPLES = 8  # in a part

Way = Callable[[DistributedDataParallel, int], contextlib.AbstractContextManager[None]]


def every_part(ddp: DistributedDataParallel, part: int) -> contextlib.AbstractContextManager[None]:
    """Synchronise always: right, and PARTS times the traffic."""
    return contextlib.nullcontext()


def no_sync(ddp: DistributedDataParallel, part: int) -> contextlib.AbstractContextManager[None]:
    """All but the last inside ``no_sync``: how it is meant to be written."""
    return ddp.no_sync() if part < PARTS - 1 else contextlib.nullcontext()


@contextlib.contextmanager
def switch(ddp: DistributedDataParallel, part: int) -> Iterator[None]:
    """What ``no_sync`` sets. Set by hand in some trainings, where nothing restores it."""
    ddp.require_backward_grad_sync = part == PARTS - 1
    yield


def accumulated(way: Way, x: torch.Tensor, y: torch.Tensor) -> tuple[Values, int]:
    """The gradients of this rank's parts, and how many all-reduces they took."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(classifier().to(device()))
    buckets = []

    def counted(state, bucket):  # type: ignore[no-untyped-def]  # torch checks annotations
        buckets.append(bucket.index())
        return allreduce_hook(state, bucket)  # what DDP does without a hook

    ddp.register_comm_hook(dist.group.WORLD, counted)
    for part, (xs, ys) in enumerate(zip(x.chunk(PARTS), y.chunk(PARTS), strict=True)):
        with way(ddp, part):
            loss = nn.functional.cross_entropy(ddp(xs), ys) / PARTS  # a mean of means
            loss.backward()
    return [p.grad for p in ddp.parameters()], len(buckets)


def lesson() -> None:
    """Three ways to accumulate against one process that has the memory for the large batch."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = (t.to(device()) for t in points(SAMPLES * PARTS * ranks))
    torch.manual_seed(0)
    alone = classifier().to(device())
    nn.functional.cross_entropy(alone(x), y).backward()
    wanted = [p.grad for p in alone.parameters()]

    for way, all_reduces in ((every_part, PARTS), (no_sync, 1), (switch, 1)):
        gradients, counted = accumulated(way, x.chunk(ranks)[rank], y.chunk(ranks)[rank])
        say(f"{way.__name__}: {counted} all-reduces for {PARTS} parts")
        prove(f"{way.__name__}: gradients of the large batch", close(gradients, wanted))
        prove(f"{way.__name__}: {all_reduces} all-reduces", counted == all_reduces)


if __name__ == "__main__":
    main(lesson)
