"""One rank's part of a training step's plan: computing sleeps, messages are real.

Each stream of the plan is a thread, or as many as it is wide: they take its tasks in the order of
the program, and each waits for what the plan says that it waits for on this rank.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from real_gpu.device.clock import Stamps
from real_gpu.job import Case, RunError, TransferFailed
from real_gpu.work import data, replay
from simcore.measured.step_records import setting_from
from simcore.schedule import Schedule, parse_schedule
from simcore.trace import Lane
from simcore.training.plan import (
    Communicate,
    Compute,
    Plan,
    Task,
    computing_of,
    on_ranks,
    seconds_on,
)
from simcore.training.strategies import find_strategy
from simcore.training.workload import from_json

Row = list[float]

_channels: list[_Channel] = []  # of this process, whatever the cases that use them


def plan_of(training: dict[str, Any]) -> Plan:
    """The plan that every rank builds for itself from a case's ``training``."""
    work, name = from_json(training["workload"]), training["strategy"]
    how = training["gpus"], training["backend"], training["options"]
    plan = find_strategy(name).plan(setting_from(name, work, *how))
    return plan if training["synced"] else computing_of(plan)


class PerformedStep:
    """All tasks of one rank, run by one thread for each that may be in progress."""

    def __init__(self, case: Case, rank: int, n: int, device: torch.device) -> None:
        assert case.training is not None
        self.plan, self.rank, self.device = plan_of(case.training), rank, device
        self.stamps = replay.free_stamps(device)
        if self.plan.n != n:
            raise ValueError(f"the plan of {case.name} has {self.plan.n} ranks, not {n}")
        self.mine = [k for k, task in enumerate(self.plan.tasks) if _takes_part(task, rank)]
        waits_for = self.plan.waits_for()
        self.before = {k: set(waits_for[k]) & set(self.mine) for k in self.mine}
        self.channel_of, self.channels = _channel_of(self.plan)
        self.exchanges = self._exchanges(case.program)
        self.payload = {
            way: sum(e.payload[way] for e in self.exchanges.values())
            for way in ("sent", "received")
        }

    def _exchanges(self, program: str | None) -> dict[int, _Exchange]:
        """The communication, whose buffers lie one after the other in what ``data`` deals out."""
        found, first = {}, 0
        for k, task in enumerate(self.plan.tasks):
            if not isinstance(task, Communicate) or not task.nbytes or task.schedule.n == 1:
                continue
            if k in self.mine:
                schedule = on_ranks(task.schedule, task.ranks, self.plan.n)
                other = None if first else program
                found[k] = _Exchange(task, schedule, other, self.rank, first, self.device)
            first += task.nbytes
        return found

    @property
    def progress(self) -> str:
        """What each communication in progress waits for."""
        label = {k: self.plan.tasks[k].label for k in self.exchanges}
        return "; ".join(
            f"{label[k]}: {e.progress}" for k, e in self.exchanges.items() if str(e.progress)
        )

    def reset(self) -> None:
        """Put all inputs back."""
        for exchange in self.exchanges.values():
            exchange.reset()

    def run(self) -> list[Row]:
        """All tasks; rows as ``replay.replay`` gives them, and the task's number last."""
        return _Run(self, _open_channels(self.channels, self.device)).rows()

    def watch(self) -> None:
        """From now on, see a device's messages too."""
        self.stamps = Stamps(self.device)

    def do(self, number: int, channels: list[_Channel]) -> list[Row]:
        """One task, and what is seen of it from outside."""
        task = self.plan.tasks[number]
        start_s = time.monotonic()
        rows: list[Row] = []
        if isinstance(task, Compute):
            time.sleep(seconds_on(task, self.rank))
        elif number in self.exchanges:
            channel = channels[self.channel_of[number]]
            exchange, stamps = self.exchanges[number], self.stamps
            where = channel.group, number, stamps
            with channel.finished():
                rows = replay.replay(exchange.steps, exchange.progress, *where)
            rows = replay.seconds(rows, stamps) if stamps else rows
        lane = Lane.COMPUTE if isinstance(task, Compute) else Lane.COLLECTIVE
        nbytes = 0 if isinstance(task, Compute) else task.nbytes
        whole = [lane, -1, -1, -1, 0, 1, start_s, time.monotonic(), nbytes]
        return [[*row, number] for row in (whole, *rows)]

    def difference(self) -> str | None:
        """Where the buffer of a task differs from what the reference makes of it."""
        for number, exchange in self.exchanges.items():
            if wrong := exchange.difference():
                return f"{self.plan.tasks[number].label}, {wrong}"
        return None


class _Exchange:
    """A task's communication: its bytes on this rank, and what must come out.

    Bytes are added modulo 256, whatever type they stand for: that is exact in any order, and
    cuts may lie anywhere.
    """

    def __init__(
        self,
        task: Communicate,
        schedule: Schedule,
        program: str | None,
        rank: int,
        first: int,
        device: torch.device,
    ) -> None:
        self.schedule, self.bounds = schedule, task.bounds
        self.input = torch.from_numpy(data.inputs(rank, first, first + task.nbytes, "uint8"))
        self.input = self.input.to(device)
        self.buffer = torch.empty_like(self.input)
        done = schedule if program is None else _other_rows(schedule, program)
        self.steps = replay.plan(done, rank, self.buffer, task.bounds.tolist())
        self.payload, self.progress = replay.traffic(self.steps), replay.progress_on(device)
        self.expected = data.expected(schedule, rank, task.nbytes, "uint8", task.bounds, first)

    def reset(self) -> None:
        self.buffer.copy_(self.input)

    def difference(self) -> str | None:
        got = self.buffer.cpu().numpy()
        return data.first_difference(got, self.expected, self.schedule, self.bounds)


class _Run:
    """One run of a step: which tasks have ended, and whose turn it is on each stream."""

    def __init__(self, step: PerformedStep, channels: list[_Channel]) -> None:
        self.step, self.channels = step, channels
        self.queues: dict[str, deque[int]] = {}
        for number in step.mine:
            self.queues.setdefault(step.plan.tasks[number].stream, deque()).append(number)
        self.turns = {stream: threading.Lock() for stream in self.queues}
        self.changed = threading.Condition()
        self.ended: set[int] = set()
        self.done: list[Row] = []
        self.failure: Exception | None = None

    def rows(self) -> list[Row]:
        """Run it to its end, or to the first failure; the launcher ends what then still waits."""
        for stream in self.queues:  # in the order of their first tasks: the first begins at once
            width = min(self.step.plan.widths.get(stream, 1), len(self.queues[stream]))
            for _ in range(width):
                threading.Thread(target=self._work, args=(stream,), daemon=True).start()
        count = len(self.step.mine)
        with self.changed:
            self.changed.wait_for(lambda: self.failure or len(self.ended) == count)
        if self.failure:
            raise self.failure
        return self.done

    def _work(self, stream: str) -> None:
        while (number := self._next(stream)) is not None:
            rows: list[Row] = []
            failure: Exception | None = None
            try:
                rows = self.step.do(number, self.channels)
            except Exception as error:  # whatever torch raises ends the run, under its task's name
                known = isinstance(error, RunError | TransferFailed)
                kind = type(error) if known else RuntimeError
                failure = kind(f"{self.step.plan.tasks[number].label}: {error}")
            with self.changed:
                self.done += rows
                self.ended.add(number)
                self.failure = self.failure or failure
                self.changed.notify_all()

    def _next(self, stream: str) -> int | None:
        """The stream's next task, once it may begin; nobody overtakes who waits for his."""
        with self.turns[stream]:
            queue = self.queues[stream]
            if not queue or self.failure:
                return None
            number = queue.popleft()
            with self.changed:
                self.changed.wait_for(
                    lambda: self.failure or self.step.before[number] <= self.ended
                )
            return None if self.failure else number


def _takes_part(task: Task, rank: int) -> bool:
    return task.ranks is None or rank in task.ranks


def _channel_of(plan: Plan) -> tuple[dict[int, int], int]:
    """For each communication its channel, the same on all ranks; and how many there are.

    A stream has as many as it is wide, and its tasks use them in turn.
    """
    width, first, counts = plan.widths, {}, {}
    channel_of: dict[int, int] = {}
    total = 0
    for number, task in enumerate(plan.tasks):
        if isinstance(task, Communicate):
            if task.stream not in first:
                first[task.stream], counts[task.stream] = total, 0
                total += width.get(task.stream, 1)
            place = counts[task.stream] % width.get(task.stream, 1)
            channel_of[number] = first[task.stream] + place
            counts[task.stream] += 1
    return channel_of, total


class _Channel:
    """A process group, with connections of its own; on a GPU also a stream of its own."""

    def __init__(self, group: Any, device: torch.device) -> None:
        self.group, self.device, self.stream = group, device, None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            # NCCL wants everyone in the first call of a group.
            dist.all_reduce(torch.zeros(1, device=device), group=group)

    @contextlib.contextmanager
    def finished(self) -> Iterator[None]:
        """On a GPU: on the channel's stream, left when the device has done it all."""
        if self.stream is None:
            yield
            return
        torch.cuda.set_device(self.device)  # each thread has its own
        with torch.cuda.stream(self.stream):
            yield
            self.stream.synchronize()


def _open_channels(count: int, device: torch.device) -> list[_Channel]:
    """Those that a plan needs; all ranks open them together, and keep them for other plans.

    They are opened in a run, not timed, since their threads inherit the rank's priority in it.
    """
    if _channels and _channels[0].group is not dist.group.WORLD:
        _channels.clear()  # of a job before this one, whose ranks have parted
    while len(_channels) < count:
        group = dist.new_group() if _channels else dist.group.WORLD
        _channels.append(_Channel(group, device))
    return _channels[:count]


def _other_rows(schedule: Schedule, program: str) -> Schedule:
    return parse_schedule(program, name=schedule.name, n=schedule.n, chunks=schedule.chunks)
