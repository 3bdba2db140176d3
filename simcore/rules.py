"""When a transfer may start: the three synchronisation rules of the event solver."""

from __future__ import annotations

from typing import Any

import numpy as np

from simcore.events import Clock
from simcore.schedule import IntArray, Schedule, Step
from simcore.timeline import Timed
from simcore.trace import FloatArray


class LiveStep(Timed):
    """One step in flight: its transfers, what each waits for, and the ranks that take part."""

    def __init__(self, number: int, step: Step, chunk_bytes: IntArray) -> None:
        rows = np.flatnonzero(chunk_bytes[step.chunk])  # empty chunks are not sent
        super().__init__(
            *(np.full(len(rows), number), step.src[rows], step.dst[rows]),
            *(step.chunk[rows], step.op[rows], chunk_bytes[step.chunk[rows]]),
            *(np.zeros(len(rows)), np.zeros(len(rows))),
        )
        self.waiting = np.full(len(rows), 2)  # for both ends to have entered the step
        ends = np.concatenate([self.src, self.dst])
        self.ranks, place = np.unique(ends, return_inverse=True)
        self.src_place, self.dst_place = place[: len(rows)], place[len(rows) :]
        self.open_ends = np.bincount(place, minlength=len(self.ranks))
        self.next_step = np.full(len(self.ranks), -1)  # where each rank goes on, -1 if unknown


class RankRule:
    """A transfer starts when both its ends have entered its step; so do replays on hardware.

    A rank's step ends when all its transfers of that step have ended for it: sent to the last
    byte, or arrived. With ``barrier`` a step starts only when the last has ended everywhere.
    Steps are made when a rank needs one and forgotten when their last byte has arrived.
    """

    def __init__(
        self, schedule: Schedule, chunk_bytes: IntArray, starts_s: FloatArray, barrier: bool
    ) -> None:
        self.chunk_bytes, self.barrier = chunk_bytes, barrier
        self.starts_s = starts_s
        self.to_make = enumerate(schedule.steps())
        self.all_made = False
        self.live: dict[int, LiveStep] = {}
        self.idle = np.zeros(schedule.n, bool)  # through with every step made so far
        self.first = np.full(schedule.n, -1)  # the first step made that each rank is in
        self.last = np.full(schedule.n, -1)  # and the last

    def begin(self, clock: Clock) -> None:
        """Each rank starts at its time; with a barrier it waits there for the others."""
        self.clock = clock
        for time_s in np.unique(self.starts_s):
            ranks = np.flatnonzero(self.starts_s == time_s)
            clock.at(float(time_s), self._start, ranks)

    def sent(self, live: LiveStep, rows: IntArray) -> None:
        """The senders' ends are closed."""
        self._close(live, live.src_place[rows])

    def arrived(self, live: LiveStep, rows: IntArray, was_last: bool) -> None:
        """The receivers' ends are closed."""
        if was_last:
            del self.live[int(live.step[0])]
        self._close(live, live.dst_place[rows])

    def _start(self, ranks: IntArray) -> None:
        self._go_on(ranks, self.first[ranks])

    def _close(self, live: LiveStep, places: IntArray) -> None:
        closed = np.bincount(places, minlength=len(live.ranks))
        live.open_ends -= closed
        through = np.flatnonzero((closed > 0) & (live.open_ends == 0))
        if len(through):
            self._go_on(live.ranks[through], live.next_step[through])

    def _go_on(self, ranks: IntArray, to: IntArray) -> None:
        """These ranks enter their next steps, those without one wait for more to be made."""
        self.idle[ranks[to < 0]] = True
        for number in np.unique(to[to >= 0]).tolist():
            live = self.live[number]
            self._enter(live, np.searchsorted(live.ranks, ranks[to == number]))
        while not self.all_made and self.idle.any():
            if self.barrier and not self.idle.all():
                return
            self._make_step()

    def _make_step(self) -> None:
        number, step = next(self.to_make, (-1, None))
        if step is None:
            self.all_made = True
            return
        live = LiveStep(number, step, self.chunk_bytes)
        if not len(live.src):
            return
        self.live[number] = live
        self.clock.made(live)
        idle = self.idle[live.ranks]
        self._queue(live.ranks[~idle], number)
        self.last[live.ranks] = number
        self.idle[live.ranks] = False
        self._enter(live, np.flatnonzero(idle))

    def _queue(self, ranks: IntArray, number: int) -> None:
        """Ranks that are busy, or have not started, come to this step after their last one."""
        last = self.last[ranks]
        self.first[ranks[last < 0]] = number
        for before in np.unique(last[last >= 0]).tolist():
            previous = self.live[before]
            places = np.searchsorted(previous.ranks, ranks[last == before])
            previous.next_step[places] = number

    def _enter(self, live: LiveStep, places: IntArray) -> None:
        entering = np.zeros(len(live.ranks), bool)
        entering[places] = True
        self._entered(live, np.flatnonzero(entering[live.dst_place]))
        senders = np.flatnonzero(entering[live.src_place])
        self.clock.when_issued(live, senders, self._entered)

    def _entered(self, live: LiveStep, rows: IntArray) -> None:
        live.waiting[rows] -= 1
        self.clock.start(live, rows[live.waiting[rows] == 0])


class _WholeSchedule(Timed):
    """Every transfer at once, with the number of earlier writes that each still waits for."""

    def __init__(self, schedule: Schedule, chunk_bytes: IntArray) -> None:
        steps = [LiveStep(number, s, chunk_bytes) for number, s in enumerate(schedule.steps())]
        columns = ("step", "src", "dst", "chunk", "op", "nbytes", "start_s", "left_s")
        empty = LiveStep(0, Step.of([], [], [], []), chunk_bytes)  # gives the columns their types
        joined: dict[str, Any] = {
            c: np.concatenate([getattr(s, c) for s in (empty, *steps)]) for c in columns
        }
        super().__init__(**joined)
        # A cell at a step, as one sortable number.
        self.steps = schedule.n_steps + 1
        self.read = (self.src * schedule.chunks + self.chunk) * self.steps + self.step
        self.write = (self.dst * schedule.chunks + self.chunk) * self.steps + self.step
        cell = self.read - self.step
        writes = np.sort(self.write)
        self.waiting = np.searchsorted(writes, self.read) - np.searchsorted(writes, cell)
        self.readers = np.argsort(self.read, kind="stable")
        self.sorted_reads = self.read[self.readers]

    def readers_of(self, rows: IntArray) -> IntArray:
        """Transfers of later steps that read what these rows have written, with repetition."""
        write = self.write[rows]
        first = np.searchsorted(self.sorted_reads, write + 1)
        end = np.searchsorted(self.sorted_reads, write - self.step[rows] + self.steps)
        count = end - first
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.asarray(self.readers[np.repeat(first, count) + offset], np.int64)


class DataflowRule:
    """A transfer starts as soon as its data is there: all earlier writes to its cell have arrived.

    Needs the whole schedule in memory.
    """

    def __init__(self, schedule: Schedule, chunk_bytes: IntArray, starts_s: FloatArray) -> None:
        self.all = _WholeSchedule(schedule, chunk_bytes)
        self.starts_s = starts_s

    def begin(self, clock: Clock) -> None:
        """Transfers of a rank's own input wait for nothing but their ranks."""
        self.clock = clock
        clock.made(self.all)
        self._ready(np.flatnonzero(self.all.waiting == 0))

    def sent(self, every: _WholeSchedule, rows: IntArray) -> None:
        """A sender waits for nothing."""

    def arrived(self, every: _WholeSchedule, rows: IntArray, was_last: bool) -> None:
        """Later transfers of the cells written to may be complete now."""
        readers, writes = np.unique(every.readers_of(rows), return_counts=True)
        every.waiting[readers] -= writes
        self._ready(readers[every.waiting[readers] == 0])

    def _ready(self, rows: IntArray) -> None:
        """Both ranks must have started; then the sender issues the message."""
        both = np.maximum(self.starts_s[self.all.src[rows]], self.starts_s[self.all.dst[rows]])
        from_s = np.maximum(both, self.clock.now)
        for time_s in np.unique(from_s):
            self.clock.at(float(time_s), self._issue, rows[from_s == time_s])

    def _issue(self, rows: IntArray) -> None:
        self.clock.when_issued(self.all, rows, self.clock.start)
