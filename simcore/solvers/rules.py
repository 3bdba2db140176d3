"""When a transfer may start: the three synchronisation rules of the event solver."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from simcore.schedule import IntArray, Schedule, Step, runs
from simcore.solvers.events import Clock
from simcore.solvers.live import LiveStep, live_steps
from simcore.solvers.network import Network
from simcore.solvers.slots import Messages, Rows, cells, few_or_many
from simcore.solvers.timeline import Timed
from simcore.trace import FloatArray


class RankRule:
    """A transfer starts when both its ends have entered its step; so do replays on hardware.

    A rank's step ends when all its transfers of that step have ended for it: sent to the last
    byte, or arrived. With ``barrier`` a step starts only when the last has ended everywhere.
    Steps are made when a rank needs one and forgotten when their last byte has arrived.
    """

    def __init__(
        self, schedule: Schedule, byte_bounds: IntArray, starts_s: FloatArray, barrier: bool
    ) -> None:
        self.schedule, self.byte_bounds = schedule, byte_bounds
        self.starts_s, self.barrier = starts_s, barrier
        self.made, self.all_made = 0, False
        self.live: dict[int, LiveStep] = {}
        # Of each rank: the steps made that it comes to after its present one, and how many; whether
        # it waits for one to be made; how many of its transfers in its present step have not ended.
        self.ahead: list[list[int]] = [[] for _ in range(schedule.n)]
        self.n_ahead = np.zeros(schedule.n, np.int64)
        self.idle, self.n_idle = np.zeros(schedule.n, bool), 0
        self.open_ends = np.zeros(schedule.n, np.int64)
        # The same memory, faster to read and write one by one.
        self.n_ahead_at, self.open_ends_at = cells(self.n_ahead), cells(self.open_ends)

    def done(self) -> float:
        """The part of the steps that has been begun."""
        return self.made / max(self.schedule.n_steps, 1)

    def begin(self, clock: Clock) -> None:
        """Each rank starts at its time; with a barrier it waits there for the others."""
        self.clock = clock
        self.to_make = live_steps(self.schedule.steps(), self.byte_bounds, clock.network)
        for time_s in np.unique(self.starts_s):
            ranks = few_or_many(np.flatnonzero(self.starts_s == time_s))
            clock.at(float(time_s), self._go_on, ranks)

    def sent(self, live: LiveStep, rows: Rows) -> None:
        """The senders' ends are closed."""
        self._close(live.src, rows)

    def arrived(self, live: LiveStep, rows: Rows, was_last: bool) -> None:
        """The receivers' ends are closed."""
        if was_last:
            del self.live[live.number]
        self._close(live.dst, rows)

    def _close(self, rank_of: IntArray, rows: Rows) -> None:
        through: Rows
        if isinstance(rows, list):
            through = []
            for row in rows:
                rank = rank_of.item(row)
                self.open_ends_at[rank] -= 1
                if not self.open_ends_at[rank]:
                    through.append(rank)
        else:
            closed = np.bincount(rank_of[rows], minlength=len(self.open_ends))
            self.open_ends -= closed
            through = few_or_many(np.flatnonzero((closed > 0) & (self.open_ends == 0)))
        if len(through):
            self._go_on(through)

    def _go_on(self, ranks: Rows) -> None:
        """These ranks enter their next steps, those without one wait for more to be made."""
        if not isinstance(ranks, list):
            none = self.n_ahead[ranks] == 0
            self.idle[ranks[none]] = True
            self.n_idle += int(np.count_nonzero(none))
            ranks = ranks[~none].tolist()
        coming: dict[int, list[int]] = {}
        for rank in ranks:
            if self.ahead[rank]:
                coming.setdefault(self.ahead[rank].pop(0), []).append(rank)
                self.n_ahead_at[rank] -= 1
            else:
                self.idle[rank] = True
                self.n_idle += 1
        for number in sorted(coming):
            self._enter(self.live[number], few_or_many(coming[number]))
        while self.n_idle and not self.all_made:
            if self.barrier and self.n_idle < len(self.idle):
                return
            self._make_step()

    def _make_step(self) -> None:
        live = next(self.to_make, None)
        if live is None:
            self.all_made = True
            return
        self.made = live.number
        if not len(live.src):
            return
        self.live[live.number] = live
        self.clock.made(live)
        ranks = live.ends.ranks
        idle = self.idle[ranks]
        for rank in ranks[~idle].tolist():
            self.ahead[rank].append(live.number)
        self.n_ahead[ranks[~idle]] += 1
        self.idle[ranks] = False
        self.n_idle -= int(np.count_nonzero(idle))
        self._enter(live, few_or_many(ranks[idle]))

    def _enter(self, live: LiveStep, ranks: Rows) -> None:
        received, sent = live.ends.rows_with(ranks, self.schedule.n)
        for rank_of, rows in (live.dst, received), (live.src, sent):
            if isinstance(rows, list):
                for row in rows:
                    self.open_ends_at[rank_of.item(row)] += 1
            else:
                np.add.at(self.open_ends, rank_of[rows], 1)
        self._entered(live, received)
        self.clock.when_issued(live, sent, self._entered)

    def _entered(self, live: LiveStep, rows: Rows) -> None:
        if isinstance(rows, list):
            ready = []
            for row in rows:
                live.waiting_at[row] -= 1
                if not live.waiting_at[row]:
                    ready.append(row)
            self.clock.start(live, ready)
        else:
            live.waiting[rows] -= 1
            self.clock.start(live, few_or_many(rows[live.waiting[rows] == 0]))


class _WholeSchedule(Messages):
    """Every transfer at once, with the number of earlier writes that each still waits for."""

    def __init__(self, schedule: Schedule, byte_bounds: IntArray, network: Network) -> None:
        made = [Step.of([], [], [], []), *schedule.steps()]  # the empty one types the columns
        steps = list(live_steps(made, byte_bounds, network, first=-1))
        columns = [f.name for f in fields(Timed) if f.name != "pieces"]
        joined: dict[str, Any] = {
            c: np.concatenate([getattr(s, c) for s in steps]) for c in columns
        }
        super().__init__(**joined)
        self.number, self.routes = 0, np.concatenate([s.routes for s in steps])
        # Every cell that a message reads and writes, with its step, as one sortable number.
        self.steps = schedule.n_steps + 1
        self.first_cell = np.cumsum(self.width) - self.width
        row = np.repeat(np.arange(len(self.src)), self.width)
        chunk = runs(self.chunk, self.width)
        read_cell = (self.src[row] * schedule.chunks + chunk) * self.steps
        read = read_cell + self.step[row]
        self.write_cell = (self.dst[row] * schedule.chunks + chunk) * self.steps
        self.write = self.write_cell + self.step[row]
        writes = np.sort(self.write)
        earlier = np.searchsorted(writes, read) - np.searchsorted(writes, read_cell)
        self.waiting = np.bincount(row, earlier, minlength=len(self.src)).astype(np.int64)
        order = np.argsort(read, kind="stable")
        self.reads, self.reader = read[order], row[order]

    def readers_of(self, rows: Rows) -> IntArray:
        """Messages of later steps that read what these have written, once for each cell."""
        cells = runs(self.first_cell[rows], self.width[rows])
        first = np.searchsorted(self.reads, self.write[cells] + 1)
        end = np.searchsorted(self.reads, self.write_cell[cells] + self.steps)
        return np.asarray(self.reader[runs(first, end - first)], np.int64)


class DataflowRule:
    """A transfer starts as soon as its data is there: all earlier writes to its cell have arrived.

    Needs the whole schedule in memory.
    """

    def __init__(
        self, schedule: Schedule, byte_bounds: IntArray, starts_s: FloatArray, network: Network
    ) -> None:
        self.all = _WholeSchedule(schedule, byte_bounds, network)
        self.starts_s, self.arrived_rows = starts_s, 0

    def done(self) -> float:
        """The part of all messages that has arrived."""
        return self.arrived_rows / max(len(self.all.src), 1)

    def begin(self, clock: Clock) -> None:
        """Transfers of a rank's own input wait for nothing but their ranks."""
        self.clock = clock
        clock.made(self.all)
        self._ready(np.flatnonzero(self.all.waiting == 0))

    def sent(self, every: _WholeSchedule, rows: Rows) -> None:
        """A sender waits for nothing."""

    def arrived(self, every: _WholeSchedule, rows: Rows, was_last: bool) -> None:
        """Later transfers of the cells written to may be complete now."""
        self.arrived_rows += len(rows)
        readers, writes = np.unique(every.readers_of(rows), return_counts=True)
        every.waiting[readers] -= writes
        self._ready(readers[every.waiting[readers] == 0])

    def _ready(self, rows: IntArray) -> None:
        """Both ranks must have started; then the sender issues the message."""
        both = np.maximum(self.starts_s[self.all.src[rows]], self.starts_s[self.all.dst[rows]])
        from_s = np.maximum(both, self.clock.now)
        for time_s in np.unique(from_s):
            self.clock.at(float(time_s), self._issue, few_or_many(rows[from_s == time_s]))

    def _issue(self, rows: Rows) -> None:
        self.clock.when_issued(self.all, rows, self.clock.start)
