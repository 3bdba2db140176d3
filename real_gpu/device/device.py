"""A schedule between buffers of one device, as if each were a rank's: one process, no network.

On a GPU each rank has a CUDA stream, and events keep the order of a step; times are the GPU's own,
from CUDA events. On the CPU the same code copies one buffer after another: right for seeing what
a schedule does, not for its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from real_gpu.job import (
    TRAININGS,
    Case,
    CaseResult,
    Job,
    RunError,
    reference_schedule,
    replayed_schedule,
)
from real_gpu.validation.confidence import enough
from real_gpu.work import replay
from real_gpu.work.data import expected, first_difference, inputs, numpy_dtype
from simcore.schedule import Op
from simcore.trace import Lane


@dataclass(frozen=True, slots=True)
class Move:
    """One row: from a part of a rank's buffer into the scratch of another, then applied there."""

    src: int
    dst: int
    data: torch.Tensor
    scratch: torch.Tensor
    target: torch.Tensor
    op: Op


class Streams:
    """A stream per rank on a GPU, and nothing on the CPU, where calls come one after another."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.device = device
        self.streams: list[Any] = []
        if device.type == "cuda":
            stream: Any = torch.cuda.Stream
            self.streams = [stream(device) for _ in range(n)]

    def do(self, rank: int, call: Callable[..., object], *args: Any) -> None:
        """Call it in this rank's order."""
        if not self.streams:
            call(*args)
            return
        with torch.cuda.stream(self.streams[rank]):
            call(*args)

    def mark(self, rank: int) -> Any:
        """The point that this rank has reached."""
        return self.streams[rank].record_event() if self.streams else None

    def wait(self, rank: int, event: Any) -> None:
        """This rank goes on when that point is reached."""
        if event is not None:
            self.streams[rank].wait_event(event)

    def timed(self, run: Callable[[], object]) -> float:
        """Seconds of all that ``run`` starts, by the device's own clock where it has one."""
        if not self.streams:
            start_s = time.perf_counter()
            run()
            return time.perf_counter() - start_s
        main = torch.cuda.current_stream(self.device)
        event: Any = torch.cuda.Event
        begin, end = (event(enable_timing=True) for _ in range(2))
        begin.record(main)
        for stream in self.streams:
            stream.wait_event(begin)
        run()
        for stream in self.streams:
            main.wait_event(stream.record_event())
        end.record(main)
        torch.cuda.synchronize(self.device)
        return float(begin.elapsed_time(end)) / 1e3


class DeviceReplay:
    """All ranks of a schedule on one device."""

    def __init__(self, case: Case, n: int, device: torch.device) -> None:
        self.case, self.n, self.device = case, n, device
        self.schedule = reference_schedule(case, n)
        self.inputs = [self._input(rank) for rank in range(n)]
        self.buffers = [torch.empty_like(x) for x in self.inputs]
        self.streams = Streams(n, device)
        schedule = replayed_schedule(case, n)
        plans = [replay.plan(schedule, rank, buffer) for rank, buffer in enumerate(self.buffers)]
        self.payload = [replay.traffic(plan) for plan in plans]
        self.steps = _moves(plans)

    def _input(self, rank: int) -> torch.Tensor:
        values = inputs(rank, 0, self.case.elements, self.case.dtype)
        tensor = replay.to_torch(values, self.case.dtype, self.device)
        return tensor if rank < self.schedule.workers else torch.zeros_like(tensor)

    def reset(self) -> None:
        """Put the inputs back."""
        for buffer, values in zip(self.buffers, self.inputs, strict=True):
            buffer.copy_(values)

    def run(self) -> None:
        """All steps. A rank enters a step when it has left the one before; a transfer starts when
        both its ends are in the step, and nobody applies an arrival to what is still being read.
        """
        for moves in self.steps:
            ranks = sorted({r for move in moves for r in (move.src, move.dst)})
            entered = {rank: self.streams.mark(rank) for rank in ranks}
            for move in moves:
                self.streams.wait(move.dst, entered[move.src])
                self.streams.do(move.dst, move.scratch.copy_, move.data)
            copied = {rank: self.streams.mark(rank) for rank in ranks}
            for move in moves:
                self.streams.wait(move.src, copied[move.dst])
            for move in moves:
                apply = move.target.add_ if move.op is Op.ADD else move.target.copy_
                self.streams.do(move.dst, apply, move.scratch)

    def difference(self) -> str | None:
        """Where a rank's buffer differs from the reference's in any bit."""
        dtype = numpy_dtype(self.case.dtype)
        for rank, buffer in enumerate(self.buffers):
            wanted = expected(self.schedule, rank, self.case.elements, self.case.dtype)
            got = replay.to_numpy(buffer, dtype)
            if wrong := first_difference(got, wanted, self.schedule):
                return f"rank {rank}, {wrong}"
        return None


def _moves(plans: Sequence[list[list[replay.Message]]]) -> list[list[Move]]:
    """The steps of all ranks' plans, each arrival joined to what is sent."""
    sent: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for rank, plan in enumerate(plans):
        for m in (m for step in plan for m in step if m.lane is Lane.SEND):
            sent.setdefault((m.step, rank, m.peer, m.chunk, m.width), []).append(m.data)
    steps: dict[int, list[Move]] = {}
    for rank, plan in enumerate(plans):
        for m in (m for step in plan for m in step if m.target is not None):
            data = sent[m.step, m.peer, rank, m.chunk, m.width].pop(0)
            assert m.target is not None
            move = Move(m.peer, rank, data, m.data, m.target, m.op)
            steps.setdefault(m.step, []).append(move)
    return [steps[number] for number in sorted(steps)]


def device_here() -> torch.device:
    """The GPU, or the CPU's memory where there is none."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def launch(job: Job, on_result: Callable[[CaseResult], None] | None = None) -> list[CaseResult]:
    """Run all cases of the job in this process; ``on_result`` hears of each result as it comes."""
    device, results = device_here(), []
    for case in job.cases:
        try:
            results.append(_run(case, job.n, device))
        except RuntimeError as error:  # out of memory, or whatever CUDA finds
            text = (str(error).strip() or repr(error)).splitlines()[0]
            raise RunError(f"the device failed: {text}") from None
        if on_result:
            on_result(results[-1])
    return results


def _run(case: Case, n: int, device: torch.device) -> CaseResult:
    """A schedule, or torch.dp, the one training that is a single process."""
    work: Any
    if case.name in TRAININGS:
        from real_gpu.vendor.training import STEPS

        work, streams, payload = STEPS[case.name](case, 0, n, device), Streams(1, device), None
    else:
        work = DeviceReplay(case, n, device)
        streams, payload = work.streams, work.payload
    result = CaseResult([], [], [], payload)
    for _ in range(case.warm_runs):
        _timed(case, work, streams)
    while not enough(result.runs_s, case.runs, case.confidence):
        result.runs_s.append(_timed(case, work, streams))
    return result


def _timed(case: Case, work: Any, streams: Streams) -> float:
    """Seconds of one run, whose result is right."""
    work.reset()
    if streams.device.type == "cuda":
        torch.cuda.synchronize(streams.device)
    seconds = streams.timed(work.run)
    if wrong := work.difference():
        raise RunError(f"{case.name} gave a wrong result: {wrong}")
    return seconds
