"""What workers and the server of an asynchronous run do, as programs that run side by side.

A server's program finds who comes next while it runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, repeat

import numpy as np

from simcore.schedule import Op
from simcore.solvers.programs import Compute, Mail, Program, Receive, Send, Wait
from simcore.training.asynchronous_run import AsyncCase, Updates


@dataclass(slots=True)
class Log:
    """What the server writes down: a row per update."""

    wanted: int
    dropped: list[int]
    rows: list[tuple[float, ...]] = field(default_factory=list)

    def full(self) -> bool:
        """Whether no more gradients are wanted."""
        return len(self.rows) >= self.wanted

    def add(self, push: _Push, version: int, now_s: float) -> None:
        """It has just been applied to that version."""
        times = (push.begin_s, push.computed_s, now_s, push.held_s)
        self.rows.append((push.worker, push.clock, push.pulled, version, *times))

    def columns(self) -> Updates:
        """All rows."""
        columns = zip(*self.rows, strict=True)
        return Updates(*(np.array(column) for column in columns))


@dataclass(frozen=True, slots=True)
class _Push:
    """A gradient, and the parameters that it was computed on."""

    worker: int
    clock: int
    pulled: int
    begin_s: float
    computed_s: float
    held_s: float


@dataclass(frozen=True, slots=True)
class _Ask:
    """For parameters to compute gradient number ``clock`` with."""

    worker: int
    clock: int


@dataclass(frozen=True, slots=True)
class _Parameters:
    version: int
    held_s: dict[int, float]  # of each worker that gets them


def _seconds(case: AsyncCase, worker: int) -> Iterator[float]:
    """How long each of a worker's computations takes."""
    mean_s = case.compute_s[worker]
    if not (case.jitter and mean_s):
        return repeat(mean_s)
    draw, shape = np.random.default_rng([case.seed, worker]), case.jitter**-2
    return (mean_s * draw.gamma(shape) / shape for _ in count())


def worker(case: AsyncCase, me: int, log: Log) -> Program:
    """Compute, push, pull, until the server has what it wants."""
    server = (case.workers,)  # the number of the server's program
    version, held_s = 0, 0.0
    now_s = 0.0
    for clock, seconds in enumerate(_seconds(case, me)):
        if case.prefetch:
            yield Send(server, 0, Op.COPY, clock, _Ask(me, clock + 1))
        begin_s, now_s = now_s, (yield Compute(seconds, clock))
        if log.full():
            return
        push = _Push(me, clock, version, begin_s, now_s, held_s)
        if case.cluster.launch_per_collective_s:
            yield Wait(case.cluster.launch_per_collective_s)
        yield Send(server, case.gradient_bytes, Op.ADD, clock, push)
        mail: Mail = yield Receive()
        parameters, now_s = mail.note, mail.now_s
        version, held_s = parameters.version, parameters.held_s[me]
        if log.full():
            return


def server(case: AsyncCase, log: Log) -> Program:
    """Apply what comes, one at a time; give parameters to those whom the bound lets go on."""
    bound = math.inf if case.bound is None else case.bound
    done = [0] * case.workers  # gradients of each worker that have been applied
    asked: list[tuple[_Ask, float]] = []  # and since when
    while True:
        mail: Mail = yield Receive()
        if log.full():
            continue
        note, now_s = mail.note, mail.now_s
        if isinstance(note, _Push):
            now_s = yield Compute(case.apply_s, note.clock)
            log.add(note, note.clock if case.bound == 0 else len(log.rows), now_s)
            done[note.worker] += 1
            note = None if case.prefetch else _Ask(note.worker, note.clock + 1)
        if note:
            asked.append((note, now_s))
        least = min(done)
        free = [ask for ask in asked if ask[0].clock <= min(least + bound, done[ask[0].worker] + 1)]
        asked = [ask for ask in asked if ask not in free]
        held_s = {ask.worker: now_s - since_s for ask, since_s in free}
        if held_s:
            version = least if case.bound == 0 else len(log.rows)
            parameters = _Parameters(version, held_s)
            yield Send(tuple(sorted(held_s)), case.parameter_bytes, Op.COPY, least, parameters)


def first_server(case: AsyncCase, log: Log) -> Program:
    """Close a round with the first ``in_a_round`` gradients; who is later gets the next one's."""
    version, waiting = 0, list[tuple[int, float]]()  # workers of this round, and since when
    while True:
        mail: Mail = yield Receive()
        note, now_s = mail.note, mail.now_s
        assert isinstance(note, _Push)
        if log.full():
            continue
        if note.pulled < version:
            log.dropped[note.worker] += 1
            parameters = _Parameters(version, {note.worker: 0.0})
            yield Send((note.worker,), case.parameter_bytes, Op.COPY, version, parameters)
            continue
        now_s = yield Compute(case.apply_s, note.clock)
        log.add(note, version, now_s)
        waiting.append((note.worker, now_s))
        if len(waiting) == case.in_a_round:
            version += 1
            parameters = _Parameters(version, {w: now_s - since_s for w, since_s in waiting})
            to = tuple(sorted(parameters.held_s))
            yield Send(to, case.parameter_bytes, Op.COPY, version, parameters)
            waiting = []
