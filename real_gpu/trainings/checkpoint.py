"""A checkpoint: written by rank 0 from ``model.module``, read by one process, or by all to go on.

    python -m real_gpu.trainings.checkpoint

All ranks hold the same weights, so one of them writes. DDP is a wrapper: its own state has
``module.`` before every name and would fit a DDP model only; the module's state fits any program.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from real_gpu.trainings.launching import CPU, classifier, close, device, main, points, prove, say

STEPS = 5


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    """Steps ``first`` to ``last`` (excluded), each with samples of its own on every rank."""
    ranks = dist.get_world_size()
    parts = [(x.to(device()), y.to(device())) for x, y in samples(2 * STEPS * ranks)]
    for step in range(first, last):
        x, y = parts[step * ranks + dist.get_rank()]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def samples(parts: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parts of eight samples."""
    x, y = points(8 * parts)
    return list(zip(x.chunk(parts), y.chunk(parts), strict=True))


def write(file: Path, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """By rank 0 alone; all ranks leave together, when the file is whole."""
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        unfinished = file.with_suffix(".part")
        torch.save(state, unfinished)
        os.replace(unfinished, file)  # whoever is stopped in between keeps the last checkpoint
    dist.barrier()


def read(file: Path, on: torch.device) -> dict[str, Any]:
    """Tensors only, no code; each onto ``on``, not onto the GPU of the rank that wrote it."""
    state: dict[str, Any] = torch.load(file, map_location=on, weights_only=True)
    return state


def trainer(seed: int) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    """A model and an optimizer with a memory of its own."""
    torch.manual_seed(seed)
    model = DistributedDataParallel(classifier().to(device()))
    return model, torch.optim.Adam(model.module.parameters(), lr=0.05)


def lesson() -> None:
    """Write, load without DDP, and go on as though nothing had been."""
    model, optimizer = trainer(seed=0)
    train(model, optimizer, 0, STEPS)
    with tempfile.TemporaryDirectory() as folder:
        told = [folder]
        dist.broadcast_object_list(told, src=0)
        file = Path(told[0]) / "step5.pt"
        write(file, model, optimizer)
        prove("after the barrier every rank finds the file", file.exists())
        on_cpu, on_mine = read(file, CPU), read(file, device())
        dist.barrier()  # rank 0 removes the folder after all have read

    alone = classifier()  # what any program does: no DDP, no GPU
    alone.load_state_dict(on_cpu["model"])
    x, _ = points(32)
    with torch.no_grad():
        outputs = [alone(x)], [model.module(x.to(device()))]
    prove("a plain module on the CPU loads it and gives the same outputs", close(*outputs))
    wrapped = [f"module.{name}" for name in on_cpu["model"]]
    prove("DDP's own state would not fit it", wrapped == list(model.state_dict()))
    places = {value.device for value in on_mine["model"].values()}
    prove("map_location put it on this rank's device", places == {device()})

    resumed, its_optimizer = trainer(seed=9)
    resumed.module.load_state_dict(on_mine["model"])
    its_optimizer.load_state_dict(on_cpu["optimizer"])  # it moves each state to its parameter
    train(model, optimizer, STEPS, 2 * STEPS)
    train(resumed, its_optimizer, STEPS, 2 * STEPS)
    same = close(list(resumed.module.parameters()), list(model.module.parameters()))
    prove("a training that goes on from it ends where the unbroken one does", same)
    say(f"{STEPS} steps, a checkpoint, {STEPS} steps")


if __name__ == "__main__":
    main(lesson)
