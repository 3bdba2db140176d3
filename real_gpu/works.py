"""What a rank does in a case: made once, then put back, run and checked again and again."""

from __future__ import annotations

from typing import Protocol

import torch

from real_gpu import data, replay
from real_gpu.job import VENDOR, Case, reference_schedule, replayed_schedule
from real_gpu.training import TrainingStep
from real_gpu.vendor import VendorCollective


class Work(Protocol):
    """One rank's part of a case.

    ``payload`` is ``{"sent": bytes, "received": bytes}``, empty where the library decides.
    """

    payload: dict[str, int]

    def reset(self) -> None:
        """Put the input back; not timed."""

    def run(self) -> list[list[float]]:
        """Do it; rows as ``replay.replay`` gives them, none where nothing is seen from outside."""

    def difference(self) -> str | None:
        """What is wrong with the result, if anything is."""


def make_work(case: Case, rank: int, n: int, device: torch.device) -> Work:
    """The work of this kind of case."""
    if case.training is not None:
        return TrainingStep(case.training, rank, n)
    if case.name in VENDOR:
        return VendorCollective(case, rank, n, device)
    return Replayed(case, rank, n, device)


class Replayed:
    """A schedule of ours, row by row, held to the reference bit for bit."""

    def __init__(self, case: Case, rank: int, n: int, device: torch.device) -> None:
        values = data.inputs(rank, 0, case.elements, case.dtype)
        self.dtype, self.input = case.dtype, replay.to_torch(values, case.dtype, device)
        self.buffer = torch.empty_like(self.input)
        self.steps = replay.plan(replayed_schedule(case, n), rank, self.buffer)
        self.payload = replay.traffic(self.steps)
        self.schedule = reference_schedule(case, n)
        if rank >= self.schedule.workers:
            self.input.zero_()  # a server brings nothing
        self.expected = data.expected(self.schedule, rank, case.elements, case.dtype)

    def reset(self) -> None:
        """Put the input back."""
        self.buffer.copy_(self.input)

    def run(self) -> list[list[float]]:
        """All steps."""
        return replay.replay(self.steps)

    def difference(self) -> str | None:
        """Where the buffer differs from the reference's in any bit."""
        got = replay.to_numpy(self.buffer, data.numpy_dtype(self.dtype))
        return data.first_difference(got, self.expected, self.schedule)
