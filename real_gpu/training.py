"""A training step whose computing is sleep: real buckets, the real reducer, real packets.

Each parameter is an operation of its own. Its backward pass sleeps and then hands over the
gradient, as a GPU would: the CPU is free meanwhile to move bytes.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
from torch import nn

from simcore.workload import from_json


class _Slept(torch.autograd.Function):
    """Passes its input on after ``forward_s``; gives the parameter its gradient after
    ``backward_s``: ``scale`` everywhere, so that the sum over ranks can be checked.
    """

    @staticmethod
    def forward(
        context: Any, x: torch.Tensor, weight: torch.Tensor, seconds: tuple[float, float, float]
    ) -> torch.Tensor:
        forward_s, context.backward_s, context.scale = seconds
        context.shape = weight.shape
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(context: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        time.sleep(context.backward_s)
        return grads[0], torch.full(context.shape, context.scale), None


class SleepingModel(nn.Module):
    """The parameters of a workload in registration order, and its times."""

    def __init__(self, document: str, scale: float) -> None:
        super().__init__()
        work = from_json(document)
        self.weights = nn.ParameterList(torch.zeros(p.shape) for p in work.parameters)
        self.times = [
            (forward_s, backward_s, scale)
            for forward_s, backward_s in zip(work.forward_s, work.backward_s, strict=True)
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` itself, as late as the workload says."""
        for weight, times in zip(self.weights, self.times, strict=True):
            x = _Slept.apply(x, weight, times)  # type: ignore[no-untyped-call]
        return x


class TrainingStep:
    """One rank's model under DistributedDataParallel, and what a step must leave behind."""

    def __init__(self, training: dict[str, Any], rank: int, n: int) -> None:
        self.accumulate, self.synced = training["accumulate"], training["synced"]
        module = SleepingModel(training["workload"], float(rank + 1))
        self.model = nn.parallel.DistributedDataParallel(module, **training["options"])
        # Once per micro-batch: the mean of 1 … n, or the rank's own.
        self.wanted = self.accumulate * ((n + 1) / 2 if self.synced else rank + 1)
        self.optimizer_s = from_json(training["workload"]).optimizer_s
        self.x = torch.ones(1, requires_grad=True)
        self.payload: dict[str, int] = {}

    def reset(self) -> None:
        """Forget the gradients; their memory stays."""
        self.model.zero_grad(set_to_none=False)

    def run(self) -> list[list[float]]:
        """All micro-batches, of which only the last is synchronised, and the optimizer."""
        for number in range(self.accumulate):
            syncs = self.synced and number == self.accumulate - 1
            with contextlib.nullcontext() if syncs else self.model.no_sync():
                self.model(self.x).sum().backward()
        time.sleep(self.optimizer_s)
        return []

    def difference(self) -> str | None:
        """What is wrong with the gradients, if anything is."""
        for number, weight in enumerate(self.model.parameters()):
            got = weight.grad
            if got is None or not bool((got == self.wanted).all()):
                first = None if got is None else float(got.flatten()[0])
                return f"gradient {number}: got {first}, wanted {self.wanted}"
        return None
