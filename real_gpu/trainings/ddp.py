"""A process per GPU: DistributedDataParallel trains as one process on the whole batch would.

    torchrun --nproc-per-node 2 -m real_gpu.trainings.ddp
    python -m real_gpu.trainings.ddp --spawn 2

Every rank has the whole model and its own part of each batch. During the backward pass DDP adds
up the gradients of all ranks and divides by their number; then every rank makes the same step, and
the models stay equal without ever being sent again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from real_gpu.trainings.launching import (
    checksums,
    classifier,
    close,
    device,
    main,
    points,
    prove,
    say,
)

Sampler = DistributedSampler[Any]

EPOCHS = 3
BATCH_PER_RANK = 16


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, sampler: Sampler, batch: int
) -> tuple[list[list[int]], torch.Tensor]:
    """Each epoch's samples in order, and the loss of each of the last epoch's steps.

    The same loop for one process and for many: nothing in it asks how many there are.
    """
    loader = DataLoader(sampler.dataset, batch, sampler=sampler)  # to shuffle is the sampler's work
    orders: list[list[int]] = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # without it every epoch has the order of the first
        orders.append(list(sampler))
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(device())), y.to(device()))
            loss.backward()  # DDP's all-reduces run in here
            optimizer.step()
            losses.append(loss.detach())
    return orders, torch.stack(losses)


def averaged(losses: torch.Tensor) -> torch.Tensor:
    """What to report: a rank's own loss is that of its own samples only."""
    mean = losses.clone()
    dist.all_reduce(mean)  # adds up
    return mean / dist.get_world_size()


def lesson() -> None:
    """DDP against one process that trains on the whole batch."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dataset = TensorDataset(*points(8 * BATCH_PER_RANK * ranks))

    torch.manual_seed(0)
    module = classifier().to(device())
    ddp = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.8)
    same = all(a is b for a, b in zip(module.parameters(), ddp.parameters(), strict=True))
    prove("the raw module's parameters are DDP's, so the optimizer may take either", same)
    sampler: Sampler = DistributedSampler(dataset, ranks, rank, seed=3)
    orders, losses = train(ddp, optimizer, sampler, BATCH_PER_RANK)

    torch.manual_seed(0)
    alone = classifier().to(device())
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.2, momentum=0.8)
    sampler = DistributedSampler(dataset, 1, 0, seed=3)
    whole_orders, wanted = train(alone, optimizer, sampler, BATCH_PER_RANK * ranks)

    parts = [order[rank::ranks] for order in whole_orders]
    prove("a rank's samples are every n-th of the whole order, in every epoch", orders == parts)
    prove("every epoch has an order of its own", all(orders.count(o) == 1 for o in orders))
    gradients = [[p.grad for p in m.parameters()] for m in (module, alone)]
    prove("the gradients are those of one process on the whole batch", close(*gradients))
    weights = [list(m.parameters()) for m in (module, alone)]
    prove(f"so are the weights after {EPOCHS} epochs", close(*weights))
    prove("the ranks' weights are equal to the last bit", len(set(checksums(module))) == 1)
    mean = averaged(losses)
    say(f"last step's loss: rank 0 {losses[-1]:.4f}, mean over ranks {mean[-1]:.4f}")
    prove("the averaged loss is that of the whole batch", close([mean], [wanted]))


if __name__ == "__main__":
    main(lesson)
