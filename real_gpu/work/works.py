"""What a rank does in a case: made once, then put back, run and checked again and again."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from real_gpu.device.clock import Stamps
from real_gpu.job import (
    COLLECTIVES,
    TRAINED,
    TRAININGS,
    Case,
    reference_schedule,
    replayed_schedule,
)
from real_gpu.validation.patterns import ADDING, COPYING, PASSES
from real_gpu.vendor.collectives import VendorCollective
from real_gpu.work import data, replay
from real_gpu.work.performing import PerformedStep
from real_gpu.work.training import TrainingStep


class Work(Protocol):
    """One rank's part of a case.

    ``payload`` is ``{"sent": bytes, "received": bytes}``, empty where the library decides; a
    training of the library's has ``{"calls": …}``, the collectives that it was seen to issue.
    ``progress`` says, as text, what is being waited for; nothing where that is not known.
    """

    payload: dict[str, Any]

    @property
    def progress(self) -> object:
        """See above."""

    def reset(self) -> None:
        """Put the input back; not timed."""

    def run(self) -> list[list[float]]:
        """Do it; rows as ``replay.replay`` gives them, none where nothing is seen from outside.

        A run of several tasks adds the task's number to each row. On a device there are rows
        after ``watch()``, which the works made of rows have: to see them costs time.
        """

    def difference(self) -> str | None:
        """What is wrong with the result, if anything is."""


def make_work(case: Case, rank: int, n: int, device: torch.device) -> Work:
    """The work of this kind of case."""
    if case.training is not None:
        kind = TrainingStep if case.name == TRAINED else PerformedStep
        return kind(case, rank, n, device)
    if case.name in TRAININGS:
        from real_gpu.vendor.training import STEPS  # torch's FSDP takes a second to import

        return STEPS[case.name](case, rank, n, device)
    if case.name in COLLECTIVES:
        return VendorCollective(case, rank, n, device)
    if case.name in (ADDING, COPYING):
        return Local(case, rank, device)
    return Replayed(case, rank, n, device)


class Local:
    """What rank 0 does by itself, again and again: adding to its buffer, or copying."""

    def __init__(self, case: Case, rank: int, device: torch.device) -> None:
        values = torch.ones(case.elements if rank == 0 else 0, device=device)
        self.values, self.buffer = values, torch.zeros_like(values)
        self.adds, self.payload = case.name == ADDING, {"sent": 0, "received": 0}
        self.progress = ""

    def reset(self) -> None:
        """Begin at zero."""
        self.buffer.zero_()

    def run(self) -> list[list[float]]:
        """All passes."""
        for _ in range(PASSES):
            self.buffer.add_(self.values) if self.adds else self.buffer.copy_(self.values)
        return []

    def difference(self) -> str | None:
        """Whether a pass is missing."""
        wanted = float(PASSES if self.adds else 1)
        wrong = int((self.buffer != wanted).sum())
        return f"{wrong} elements are not {wanted:g}" if wrong else None


class Replayed:
    """A schedule of ours, row by row, held to the reference bit for bit."""

    def __init__(self, case: Case, rank: int, n: int, device: torch.device) -> None:
        self.device, self.stamps = device, replay.free_stamps(device)
        values = data.inputs(rank, 0, case.elements, case.dtype)
        self.dtype, self.input = case.dtype, replay.to_torch(values, case.dtype, device)
        self.buffer = torch.empty_like(self.input)
        self.steps = replay.plan(replayed_schedule(case, n), rank, self.buffer)
        self.payload, self.progress = replay.traffic(self.steps), replay.progress_on(device)
        self.schedule = reference_schedule(case, n)
        if rank >= self.schedule.workers:
            self.input.zero_()  # a server brings nothing
        self.expected = data.expected(self.schedule, rank, case.elements, case.dtype)

    def reset(self) -> None:
        """Put the input back."""
        self.buffer.copy_(self.input)

    def run(self) -> list[list[float]]:
        """All steps."""
        rows = replay.replay(self.steps, self.progress, stamps=self.stamps)
        if self.stamps is None:
            return []
        self.stamps.settle()
        return replay.seconds(rows, self.stamps)

    def watch(self) -> None:
        """From now on, see the rows of a device too."""
        self.stamps = Stamps(self.device)

    def difference(self) -> str | None:
        """Where the buffer differs from the reference's in any bit."""
        got = replay.to_numpy(self.buffer, data.numpy_dtype(self.dtype))
        return data.first_difference(got, self.expected, self.schedule)
