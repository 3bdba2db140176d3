"""All collectives of a plan on one clock, sharing links: what the serial solver cannot time.

Every collective is a ``RankRule`` of its own, which its ranks enter one by one, when they come to
it. Messages carry numbers of steps that are counted through the whole plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simcore.schedule import IntArray, Schedule
from simcore.solvers.events import Clock
from simcore.solvers.live import LiveStep, live_steps
from simcore.solvers.network import Network
from simcore.solvers.rules import RankRule
from simcore.solvers.slots import Rows
from simcore.solvers.timeline import Timeline
from simcore.trace import FloatArray, Pieces, Spans
from simcore.training.plan import Communicate, Compute, Plan, on_ranks, seconds_on


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """Single messages as spans, and the task that each span belongs to, shape ``(spans,)``."""

    spans: Spans
    pieces: Pieces
    task: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """When each rank entered and ended each task, and the timeline underneath."""

    entered_s: FloatArray
    ended_s: FloatArray
    timeline: Timeline
    first_step: list[int]
    steps_of: list[int]  # the tasks that have steps

    @property
    def transfers(self) -> Transfers:
        """The messages, with steps counted within their tasks."""
        spans, pieces = self.timeline.spans()
        first = np.array(self.first_step, np.int64)
        which = np.searchsorted(first, spans.step, side="right") - 1
        spans.step[:] -= first[which]
        return Transfers(spans, pieces, np.array(self.steps_of, np.int64)[which])


def run_together(
    plan: Plan,
    network: Network,
    keep_spans: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Done:
    """Run the plan on the event solver's clock."""
    rule = _PlanRule(plan, network)
    clock = Clock(network, network.cluster.launch_per_message_s, keep_spans)
    timeline = clock.run(rule, progress)
    return Done(rule.entered_s, rule.ended_s, timeline, rule.first_step, rule.steps_of)


class _Entered(RankRule):
    """A collective that each rank enters when it comes to it, and that says who is through."""

    def __init__(
        self,
        schedule: Schedule,
        bounds: IntArray,
        first_step: int,
        clock: Clock,
        through: Callable[[list[int]], None],
    ) -> None:
        super().__init__(schedule, bounds, np.zeros(schedule.n), barrier=False)
        self.clock, self.through = clock, through
        self.to_make = live_steps(schedule.steps(), bounds, clock.network, first=first_step)
        self.told: set[int] = set()
        self.inside: set[int] = set()

    def enter(self, ranks: list[int]) -> None:
        """They have come to it."""
        self.inside.update(ranks)
        self._go_on(ranks)

    def _go_on(self, ranks: Rows) -> None:
        super()._go_on(ranks)
        if self.all_made:
            left = [r for r in self.inside - self.told if self.idle[r]]
            self.told.update(left)
            if left:
                self.through(sorted(left))


class _PlanRule:
    """Each rank goes through its streams in order; a task waits for what it needs."""

    def __init__(self, plan: Plan, network: Network) -> None:
        self.plan, self.network = plan, network
        count, n = len(plan.tasks), plan.n
        self.entered_s, self.ended_s = np.full((count, n), np.nan), np.full((count, n), np.nan)
        self.takes_part = np.zeros((count, n), bool)
        for number, task in enumerate(plan.tasks):
            self.takes_part[number, slice(None) if task.ranks is None else list(task.ranks)] = True
        self.waiting = np.zeros((count, n), np.int64)
        self.after: list[list[int]] = [[] for _ in plan.tasks]
        for number, before in enumerate(plan.waits_for()):
            for earlier in before:
                self.after[earlier].append(number)
                self.waiting[number] += self.takes_part[earlier]
        self._queue()
        self._number_steps()
        self.running: dict[int, _Entered] = {}
        self.ended, self.to_end = 0, int(self.takes_part.sum())

    def _queue(self) -> None:
        """For each rank and stream its tasks in order, and how many more it takes at once."""
        self.queue: dict[tuple[int, str], deque[int]] = {}
        self.open: dict[tuple[int, str], int] = {}
        for number, task in enumerate(self.plan.tasks):
            for rank in np.flatnonzero(self.takes_part[number]).tolist():
                key = rank, task.stream
                self.queue.setdefault(key, deque()).append(number)
                self.open[key] = self.plan.widths.get(task.stream, 1)

    def _number_steps(self) -> None:
        self.first_step, self.steps_of = [], []
        total = 0
        for number, task in enumerate(self.plan.tasks):
            if isinstance(task, Communicate):
                self.first_step.append(total)
                self.steps_of.append(number)
                total += task.schedule.n_steps

    # -- what the clock asks -------------------------------------------------------------------

    def done(self) -> float:
        """The part of the tasks that has ended."""
        return self.ended / max(self.to_end, 1)

    def begin(self, clock: Clock) -> None:
        """Everyone begins with the first task of each stream."""
        self.clock = clock
        for key in list(self.queue):
            clock.at(0.0, self._next, *key)

    def sent(self, live: LiveStep, rows: Rows) -> None:
        """For the collective to which the step belongs."""
        self._rule_of(live).sent(live, rows)

    def arrived(self, live: LiveStep, rows: Rows, was_last: bool) -> None:
        """For the collective to which the step belongs."""
        self._rule_of(live).arrived(live, rows, was_last)

    def _rule_of(self, live: LiveStep) -> _Entered:
        return self.running[self.steps_of[bisect_right(self.first_step, live.number) - 1]]

    # -- tasks ---------------------------------------------------------------------------------

    def _next(self, rank: int, stream: str) -> None:
        """Enter tasks at the head of the queue, as long as they wait for nothing."""
        key = rank, stream
        queue = self.queue[key]
        while queue and self.open[key] and not self.waiting[queue[0], rank]:
            self.open[key] -= 1
            self._enter(queue.popleft(), rank)

    def _enter(self, number: int, rank: int) -> None:
        now, task = self.clock.now, self.plan.tasks[number]
        self.entered_s[number, rank] = now
        if isinstance(task, Compute):
            self.clock.at(now + seconds_on(task, rank), self._end, number, [rank])
            return
        launch_s = self.network.cluster.launch_per_collective_s
        if not task.nbytes or task.schedule.n == 1:
            self.clock.at(now + launch_s, self._end, number, [rank])
        else:
            self.clock.at(now + launch_s, self._join, number, rank)

    def _join(self, number: int, rank: int) -> None:
        if number not in self.running:
            task = self.plan.tasks[number]
            assert isinstance(task, Communicate)
            schedule = on_ranks(task.schedule, task.ranks, self.plan.n)
            first = self.first_step[self.steps_of.index(number)]
            # Ends are told as events of their own: a rule must not change while it is stepping.
            self.running[number] = _Entered(
                *(schedule, task.bounds, first, self.clock),
                lambda ranks: self.clock.at(self.clock.now, self._end, number, ranks),
            )
        self.running[number].enter([rank])

    def _end(self, number: int, ranks: list[int]) -> None:
        stream = self.plan.tasks[number].stream
        self.ended += len(ranks)
        self.ended_s[number, ranks] = self.clock.now
        for later in self.after[number]:
            self.waiting[later, ranks] -= 1
        for rank in ranks:
            self.open[rank, stream] += 1
            streams = {stream, *(self.plan.tasks[later].stream for later in self.after[number])}
            for name in sorted(streams):
                if (rank, name) in self.queue:
                    self._next(rank, name)
