"""Plan × Cluster -> PlanRun: when every rank does every task of a step.

Two solvers. The serial one goes through the tasks once and times every collective by itself; that
is right as long as no two collectives are on the same link at the same time. Where they are, or
where single transfers are asked for, all of them run together on the event solver's clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from simcore.algorithms import find_algorithm
from simcore.cluster import Cluster
from simcore.engine import seldom
from simcore.schedule import Collective, IntArray, Step, message_sizes
from simcore.solvers import recurrence
from simcore.solvers.network import Network, Slowdown
from simcore.trace import FloatArray, Lane, Source, Spans, Trace, joined, no_pieces
from simcore.training import pipelined, together
from simcore.training.plan import COMPUTE, Communicate, Compute, Plan, on_ranks

Solver = Literal["auto", "serial", "events"]
_EQUAL = 1e-12  # times closer than this part are equal: rounding, not physics


class TwoAtOnce(Exception):
    """Two collectives are on one link at the same time: only the event solver knows how long."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanRun:
    """When each rank entered and ended each task: arrays of shape (tasks, n), NaN without part.

    ``sent_bytes`` and ``received_bytes`` are payload per rank, ``transfers`` the trace of single
    messages where it was asked for.
    """

    plan: Plan
    cluster: Cluster
    entered_s: FloatArray
    ended_s: FloatArray
    sent_bytes: IntArray
    received_bytes: IntArray
    solver: str
    transfers: together.Transfers | None = None

    @property
    def time_s(self) -> float:
        """From the start to the end of the last rank's last task."""
        return float(np.nanmax(self.ended_s, initial=0.0))

    @property
    def compute_s(self) -> FloatArray:
        """How long each rank computes in all, shape ``(n,)``."""
        rows = [
            number
            for number, task in enumerate(self.plan.tasks)
            if isinstance(task, Compute) and task.stream == COMPUTE
        ]
        seconds: FloatArray = np.nansum(self.ended_s[rows] - self.entered_s[rows], axis=0)
        return seconds

    @property
    def exposed_s(self) -> float:
        """What the step takes longer than the rank that computes most: communication not hidden."""
        return max(0.0, self.time_s - float(self.compute_s.max(initial=0.0)))

    def trace(self) -> Trace:
        """Who does what when: work, collectives, and single messages if they were kept."""
        numbers, ranks = np.nonzero(~np.isnan(self.entered_s))
        tasks = self.plan.tasks
        works = np.array([isinstance(task, Compute) for task in tasks])
        nbytes = np.array([0 if isinstance(t, Compute) else t.nbytes for t in tasks], np.int64)
        none = np.full(len(numbers), -1)
        spans = Spans(
            rank=ranks,
            lane=np.where(works[numbers], Lane.COMPUTE, Lane.COLLECTIVE),
            step=none,
            peer=none,
            chunk=none,
            op=np.zeros(len(numbers), np.int64),
            width=np.ones(len(numbers), np.int64),
            start_s=self.entered_s[numbers, ranks],
            end_s=self.ended_s[numbers, ranks],
            nbytes=nbytes[numbers],
        )
        pieces, task_of = no_pieces(), numbers
        if self.transfers is not None:
            spans = joined(spans, self.transfers.spans)
            pieces = replace(self.transfers.pieces, span=self.transfers.pieces.span + len(numbers))
            task_of = np.append(numbers, self.transfers.task)
        names = tuple(task.label for task in tasks)
        totals = (self.time_s, self.sent_bytes, self.received_bytes)
        source, n = Source.SIMULATED, self.plan.n
        return Trace(source, self.plan.name, n, *totals, spans, pieces, names, task_of)


def perform(
    plan: Plan,
    cluster: Cluster,
    *,
    solver: Solver = "auto",
    slowdowns: Sequence[Slowdown] = (),
    transfers: bool = False,
    progress: Callable[[float], None] | None = None,
) -> PlanRun:
    """Run a plan's tasks on a cluster with one port per rank.

    ``progress`` hears now and then how far the event solver, which may take long, has come; what
    it raises ends the run.

    >>> from simcore.cluster import uniform
    >>> from simcore.training.plan import collective
    >>> work = Compute("backward", 1.0, "backward", writes=("gradients",))
    >>> sync = collective("bucket", "ring", 4, 1000, reads=["gradients"])
    >>> run = perform(Plan("step", 4, (work, sync)), uniform(4, 1000.0))
    >>> run.time_s, run.exposed_s
    (7.0, 6.0)
    """
    if plan.n != cluster.n:
        raise ValueError(f"plan {plan.name!r} has {plan.n} ranks, the cluster {cluster.n}")
    if cluster.burst_bytes and solver == "serial":
        raise ValueError("solver 'serial' knows no bursts; accepted: 'auto' or 'events'")
    if solver != "events" and not (transfers or slowdowns or cluster.burst_bytes):
        try:
            return _Serial(plan, cluster).run()
        except (TwoAtOnce, recurrence.SharedLink):
            if solver == "serial":
                raise
    network = Network(cluster, slowdowns)
    done = together.run_together(plan, network, transfers, seldom(progress))
    return PlanRun(
        plan,
        cluster,
        done.entered_s,
        done.ended_s,
        done.timeline.sent_bytes,
        done.timeline.received_bytes,
        "events",
        done.transfers if transfers else None,
    )


class _Serial:
    """One pass over the tasks. A column is a rank, or stands for all where all are alike."""

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        self.plan, self.cluster = plan, cluster
        self.plain = cluster.is_plain and not cluster.reduce_s_per_byte
        self.columns = 1 if self.plain and _all_alike(plan) else plan.n
        self.every = np.arange(self.columns)
        self.free: dict[str, FloatArray] = {}
        self.last: dict[str, FloatArray] = {}
        self.known: dict[Hashable, FloatArray] = {}
        shape = (len(plan.tasks), self.columns)
        self.entered_s, self.ended_s = np.full(shape, np.nan), np.full(shape, np.nan)
        self.network: Network | None = None
        self.users: dict[Hashable, dict[int, tuple[set[int], set[int]]]] = {}
        self.met: dict[Hashable, bool] = {}

    def run(self) -> PlanRun:
        """All tasks in order."""
        for number, before in enumerate(self.plan.waits_for()):
            self._do(number, before)
        self._check_apart()
        sent, received = self._bytes()
        shape = (len(self.plan.tasks), self.plan.n)
        entered_s = np.broadcast_to(self.entered_s, shape)
        ended_s = np.broadcast_to(self.ended_s, shape)
        return PlanRun(self.plan, self.cluster, entered_s, ended_s, sent, received, "serial")

    def _do(self, number: int, before: list[int]) -> None:
        task = self.plan.tasks[number]
        part = self.every if task.ranks is None or self.columns == 1 else np.array(task.ranks)
        earlier = np.array(before, np.int64)[:, None]  # many, where there are many groups of ranks
        ready = np.fmax.reduce(self.ended_s[earlier, part], axis=0, initial=0.0)
        stream = task.stream
        if stream not in self.free:
            width = self.plan.widths.get(stream, 1)
            self.free[stream] = np.zeros((width, self.columns))
            self.last[stream] = np.zeros(self.columns)
        free = self.free[stream]
        slot = free[:, part].argmin(axis=0)
        enter = np.maximum(ready, np.maximum(free[slot, part], self.last[stream][part]))
        self.last[stream][part] = enter
        self.entered_s[number, part] = enter
        if isinstance(task, Compute):
            end = enter + (np.array(task.seconds) if len(part) > 1 else np.max(task.seconds))
        else:
            end = self._communicate(task, enter + self.cluster.launch_per_collective_s)
        self.ended_s[number, part] = end
        free[slot, part] = end

    def _communicate(self, task: Communicate, starts_s: FloatArray) -> FloatArray:
        """When each of its ranks is through."""
        if not task.nbytes or task.schedule.n == 1:
            return starts_s
        first_s = float(starts_s.min())
        ends_s = pipelined.ends_s(task, self.cluster, starts_s) if self.plain else None
        if ends_s is not None:
            return ends_s
        # Equal collectives whose ranks enter them as far apart, rounding aside, take as long.
        quantum_s = 2.0 ** math.ceil(math.log2(_EQUAL * max(float(starts_s.max()), 1e-9)))
        late = np.rint((starts_s - first_s) / quantum_s).astype(np.int64)
        key = (task.key, quantum_s if late.any() else 0.0, late.tobytes())
        if key not in self.known:
            self.known[key] = self._solve(task, late.astype(np.float64) * quantum_s)
        return first_s + self.known[key]

    def _solve(self, task: Communicate, starts_s: FloatArray) -> FloatArray:
        network = self._networked()
        schedule = on_ranks(task.schedule, task.ranks, self.plan.n)
        part = np.arange(self.plan.n) if task.ranks is None else np.array(task.ranks)
        starts = np.zeros(self.plan.n)
        starts[part] = starts_s
        launch_s, bounds = self.cluster.launch_per_message_s, pipelined.even_bounds(task)
        timeline = recurrence.solve(
            schedule, network, bounds, starts, launch_per_message_s=launch_s
        )
        return timeline.rank_end_s[part]

    def _networked(self) -> Network:
        if self.network is None:
            self.network = Network(self.cluster)
        return self.network

    def _check_apart(self) -> None:
        """No two collectives may share a link at the same time, whoever's messages they are."""
        streams = {task.stream for task in self.plan.tasks if isinstance(task, Communicate)}
        one_by_one = len(streams) <= 1 and self.plan.widths.get(min(streams, default=""), 1) == 1
        if one_by_one and not self.cluster.levels:
            return  # a rank is in one collective at a time, and uses nothing but its port
        spans = []
        for number, task in enumerate(self.plan.tasks):
            if isinstance(task, Communicate) and task.nbytes:
                first_s = float(np.nanmin(self.entered_s[number]))
                spans.append((first_s, float(np.nanmax(self.ended_s[number])), task))
        spans.sort(key=lambda span: span[:2])
        running: list[tuple[float, Communicate]] = []
        for first_s, end_s, task in spans:
            running = [(e, t) for e, t in running if e > first_s * (1 + 1e-12)]
            if any(self._meet(task, other) for _, other in running):
                raise TwoAtOnce
            running.append((end_s, task))

    def _meet(self, one: Communicate, other: Communicate) -> bool:
        """Whether a link is on the way of both, at once for all that is known.

        A rank is in one collective of a stream at a time, and so keeps its own messages apart.
        """
        one_by_one = one.stream == other.stream and self.plan.widths.get(one.stream, 1) == 1
        key = (one.key, other.key, one_by_one)
        if key not in self.met:
            self.met[key] = self._share(one, other, one_by_one)
        return self.met[key]

    def _share(self, one: Communicate, other: Communicate, one_by_one: bool) -> bool:
        ours, theirs = self._users_of(one), self._users_of(other)
        for link in ours.keys() & theirs.keys():
            sources, targets = (a | b for a, b in zip(ours[link], theirs[link], strict=True))
            if not one_by_one or (len(sources) > 1 and len(targets) > 1):
                return True
        return False

    def _users_of(self, task: Communicate) -> dict[int, tuple[set[int], set[int]]]:
        """For every link on the way of the task's messages, who sends and who receives over it."""
        if task.key not in self.users:
            network, found = self._networked(), self.users.setdefault(task.key, {})
            last: Step | None = None
            for step in on_ranks(task.schedule, task.ranks, self.plan.n).steps():
                if last is not None and last.src is step.src and last.dst is step.dst:
                    continue
                last = step
                ends = zip(step.src.tolist(), step.dst.tolist(), strict=True)
                for (src, dst), way in zip(
                    ends, network.routes(step.src, step.dst).tolist(), strict=True
                ):
                    for link in way:
                        sources, targets = found.setdefault(link, (set(), set()))
                        sources.add(src)
                        targets.add(dst)
            found.pop(network.free, None)
        return self.users[task.key]

    def _bytes(self) -> tuple[IntArray, IntArray]:
        sent, received = np.zeros(self.plan.n, np.int64), np.zeros(self.plan.n, np.int64)
        known: dict[Hashable, tuple[IntArray, IntArray]] = {}
        for task in self.plan.tasks:
            if isinstance(task, Communicate):
                if task.key not in known:
                    known[task.key] = bytes_of(task)
                part = slice(None) if task.ranks is None else np.array(task.ranks)
                sent[part] += known[task.key][0]
                received[part] += known[task.key][1]
        return sent, received


def _all_alike(plan: Plan) -> bool:
    """Whether every rank does the same at the same time: then one column of times is enough."""
    return not plan.servers and all(
        task.ranks is None
        and (
            task.schedule.name in pipelined.RINGS and task.schedule.n == plan.n
            if isinstance(task, Communicate)
            else not isinstance(task.seconds, tuple)
        )
        for task in plan.tasks
    )


def bytes_of(task: Communicate) -> tuple[IntArray, IntArray]:
    """Payload that each of the task's ranks sends and receives, shape ``(n,)`` each."""
    schedule = task.schedule
    if schedule.collective is not Collective.POINT_TO_POINT:
        stated = find_algorithm(schedule.name).stated_bytes
        return stated(schedule.n, np.diff(task.bounds), **schedule.flags)
    sent, received = np.zeros(schedule.n, np.int64), np.zeros(schedule.n, np.int64)
    for step in schedule.steps():
        nbytes = message_sizes(step, task.bounds)
        np.add.at(sent, step.src, nbytes)
        np.add.at(received, step.dst, nbytes)
    return sent, received
