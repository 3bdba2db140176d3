"""One rank's part in a schedule, on torch.distributed. No processes, no agreed clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from real_gpu.device.clock import Stamps
from real_gpu.job import ITEMSIZE, TransferFailed
from simcore.schedule import Op, Schedule, chunk_bounds
from simcore.trace import Lane


@dataclass(frozen=True, slots=True)
class Message:
    """A row of the schedule as this rank sees it."""

    lane: Lane
    step: int
    peer: int
    chunk: int  # the first of `width`
    width: int
    op: Op
    data: torch.Tensor  # what is sent, or the scratch that is received into
    target: torch.Tensor | None  # where an arrival is applied

    @property
    def nbytes(self) -> int:
        """Payload."""
        return self.data.numel() * self.data.element_size()

    @property
    def between(self) -> str:
        """What goes where."""
        way = "sending {} to" if self.lane is Lane.SEND else "receiving {} from"
        last = self.chunk + self.width - 1
        chunks = f"chunk {self.chunk}" if self.width == 1 else f"chunks {self.chunk} to {last}"
        return f"{way.format(chunks)} rank {self.peer}"

    def __str__(self) -> str:
        """The same, and in which step."""
        return f"step {self.step}, {self.between}"


def plan(
    schedule: Schedule, rank: int, buffer: torch.Tensor, bounds: Sequence[int] | None = None
) -> list[list[Message]]:
    """For each step that concerns this rank: all receives, then all sends, in row order.

    Receives go first because Gloo's notice that a receive is posted queues behind the rank's own
    data in the same stream: sends first would make a two-way exchange half duplex.
    Empty chunks are not sent. ``bounds`` are the chunks' ends in the buffer, if not the usual.
    """
    if bounds is None:
        bounds = chunk_bounds(len(buffer), schedule.chunks).tolist()
    steps: list[list[Message]] = []
    most, uses = 0, []
    for number, step in enumerate(schedule.steps()):
        receives, sends, at = [], [], 0
        columns = (step.src, step.dst, step.chunk, step.width, step.op)
        for src, dst, chunk, width, op in zip(*(c.tolist() for c in columns), strict=True):
            part = buffer[bounds[chunk] : bounds[chunk + width]]
            if not len(part) or rank not in (src, dst):
                continue
            if src == rank:
                sends.append(Message(Lane.SEND, number, dst, chunk, width, Op(op), part, None))
            else:
                row = (number, src, chunk, width, Op(op))
                receives.append((row, slice(at, at + len(part)), part))
                at += len(part)
        uses.append((receives, sends))
        most = max(most, at)
    scratch = torch.empty(most, dtype=buffer.dtype, device=buffer.device)  # one for all steps
    for receives, sends in uses:
        arriving = [
            Message(Lane.RECEIVE, *row, scratch[place], part) for row, place, part in receives
        ]
        if arriving or sends:
            steps.append(arriving + sends)
    return steps


def traffic(steps: list[list[Message]]) -> dict[str, int]:
    """Payload bytes that the plan sends and receives."""
    lanes = {"sent": Lane.SEND, "received": Lane.RECEIVE}
    messages = [m for step in steps for m in step]
    return {name: sum(m.nbytes for m in messages if m.lane is lane) for name, lane in lanes.items()}


@dataclass
class Progress:
    """Where a replay is: the messages of its step, and how many of them have been waited for.

    Of a device, ``queued`` holds what it was given, each step with its handle. The host is ahead
    of it, so where it is, is asked of the handles: only when someone wants to know, at no cost.
    """

    on_device: bool = False
    messages: list[Message] = field(default_factory=list)
    done: int = 0
    queued: list[tuple[list[Message], Any]] = field(default_factory=list)

    def __str__(self) -> str:
        """The message that is being waited for, or all of a handle's; nothing where none is."""
        for messages, handle in list(self.queued):
            if not _has_ended(handle):
                return " and ".join([str(messages[0]), *(m.between for m in messages[1:])])
        return str(self.messages[self.done]) if self.done < len(self.messages) else ""


def _has_ended(handle: Any) -> bool:
    try:
        return bool(handle.is_completed())
    except RuntimeError:  # it failed: there it stopped
        return False


def replay(
    steps: list[list[Message]],
    progress: Progress | None = None,
    group: dist.ProcessGroup | None = None,
    tag: int = 0,
    stamps: Stamps | None = None,
) -> list[list[Any]]:
    """Run the plan; one row per message: lane, step, peer, chunk, op, width, start, end, bytes.

    ``group`` and ``tag`` keep its messages apart from those of another at the same time.
    An end is when the wait for it returned; waits go in order, so a message that ended while
    an earlier one was waited for is shown to end with it. ``progress`` is kept up to date.
    Starts and ends are ``stamps``; without those, no rows.
    """
    progress = progress or Progress()
    progress.queued = []
    spans: list[list[Any]] = []
    for messages in steps:
        start = stamps.stamp() if stamps else None
        ends = _exchange(messages, progress, group, tag, stamps)
        for m, end in zip(messages, ends, strict=True) if stamps else ():
            row = [m.lane, m.step, m.peer, m.chunk, m.op, m.width]
            spans.append([*row, start, end, m.nbytes])
        for m in messages:
            if m.target is None:
                continue
            if m.op is Op.ADD:
                m.target.add_(m.data)
            else:
                m.target.copy_(m.data)
    return spans


def progress_on(device: torch.device) -> Progress:
    """For replays there."""
    return Progress(on_device=device.type == "cuda")


def free_stamps(device: torch.device) -> Stamps | None:
    """Those that a timed run may take: the CPU's."""
    return Stamps(device) if device.type == "cpu" else None


def seconds(rows: list[list[Any]], stamps: Stamps) -> list[list[float]]:
    """Rows with the moments that their stamps stand for, once the device has been waited for."""
    if not stamps.on_device:
        return rows
    return [[*row[:6], *map(stamps.seconds, row[6:8]), *row[8:]] for row in rows]


def _exchange(
    messages: list[Message],
    progress: Progress,
    group: dist.ProcessGroup | None,
    tag: int,
    stamps: Stamps | None,
) -> list[Any]:
    """Post a step's messages at once; when each one's wait returned.

    NCCL returns one handle for the whole batch, and so one time for all of them; its wait is the
    device's, and returns at once.
    """
    progress.messages, progress.done = messages, 0
    ends: list[Any] = []
    try:
        for work in dist.batch_isend_irecv(
            [
                dist.P2POp(
                    dist.isend if m.lane is Lane.SEND else dist.irecv, m.data, m.peer, group, tag
                )
                for m in messages
            ]
        ):
            if progress.on_device:
                progress.queued.append((messages, work))
            work.wait()
            ends.append(stamps.stamp() if stamps else None)
            progress.done = len(ends)
    except RuntimeError as error:
        raise TransferFailed(f"{progress}: {_reason(error)}") from error
    progress.done = len(messages)
    return ends if len(ends) == len(messages) else [ends[-1]] * len(messages)


def _reason(error: RuntimeError) -> str:
    """The library's first sentence, without the line of its source."""
    text = (str(error).strip() or repr(error)).splitlines()[0]
    return re.split(r"\.\s", re.sub(r"^\[.*?\]\s*", "", text))[0]


def to_torch(values: Any, dtype: str, device: torch.device) -> torch.Tensor:
    """A NumPy buffer as a tensor of the same bits; ml_dtypes' bfloat16 goes through int16."""
    bits = torch.from_numpy(values.view(f"i{ITEMSIZE[dtype]}"))
    return bits.view(getattr(torch, dtype)).to(device)


def to_numpy(tensor: torch.Tensor, dtype: Any) -> Any:
    """The inverse of ``to_torch``."""
    size = tensor.element_size()
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return tensor.cpu().view(bits).numpy().view(dtype)
