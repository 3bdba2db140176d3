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

from real_gpu.job import Case
from simcore.training.workload import from_json


class _Slept(torch.autograd.Function):
    """Passes its input on after ``forward_s``; gives the parameter its gradient after
    ``backward_s``: ``scale`` everywhere, so that the sum over ranks can be checked.
    """

    @staticmethod
    def forward(
        context: Any, x: torch.Tensor, weight: torch.Tensor, seconds: tuple[float, float, float]
    ) -> torch.Tensor:
        forward_s, context.backward_s, context.scale = seconds
        context.like = {"size": weight.shape, "device": weight.device}
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(context: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        time.sleep(context.backward_s)
        return grads[0], torch.full(fill_value=context.scale, **context.like), None


class SleepingModel(nn.Module):
    """The parameters of a workload in registration order, its buffers, and its times."""

    def __init__(self, document: str, scale: float) -> None:
        super().__init__()
        work = from_json(document)
        self.weights = nn.ParameterList(torch.zeros(p.shape) for p in work.parameters)
        for number, tensor in enumerate(work.buffers):
            zeros = torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype))
            self.register_buffer(f"buffer{number}", zeros)
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

    def __init__(self, case: Case, rank: int, n: int, device: torch.device) -> None:
        assert case.training is not None
        training, options = case.training, dict(case.training["options"])
        self.accumulate, self.synced = options.pop("accumulate", 1), training["synced"]
        module = SleepingModel(training["workload"], float(rank + 1)).to(device)
        self.model = nn.parallel.DistributedDataParallel(module, **options)
        # Once per micro-batch: the mean of 1 … n, or the rank's own.
        self.wanted = self.accumulate * ((n + 1) / 2 if self.synced else rank + 1)
        self.optimizer_s = from_json(training["workload"]).optimizer_s
        self.x = torch.ones(1, device=device, requires_grad=True)
        self.payload: dict[str, int] = {}
        self.progress = ""

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
