"""The parameter server without a schedule: asynchronous, stale-synchronous and synchronous.

Each worker is a program: compute, push gradients, pull parameters. The order in which the server
applies updates depends on who arrives first, so it is found by running them. No learning here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import count, repeat

import numpy as np

from simcore.cluster import Cluster
from simcore.schedule import IntArray, Op
from simcore.solvers.events import Clock
from simcore.solvers.network import Network, Slowdown
from simcore.solvers.programs import Compute, Mail, Program, ProgramRule, Receive, Send, Wait
from simcore.trace import FloatArray, Source, Spans, Trace


@dataclass(frozen=True, slots=True)
class AsyncCase:
    """What was asked: the arguments of ``run_asynchronous``."""

    cluster: Cluster
    compute_s: tuple[float, ...]
    gradient_bytes: int
    parameter_bytes: int
    updates: int
    bound: int | None
    apply_s: float
    servers: int
    jitter: float
    seed: int
    prefetch: bool
    slowdowns: tuple[Slowdown, ...]

    def __post_init__(self) -> None:
        if self.servers not in (0, 1):
            raise ValueError(
                f"servers must be 0 (rank 0 also serves) or 1 (the last rank only serves), "
                f"got {self.servers!r}"
            )
        if not 1 <= self.workers == len(self.compute_s):
            raise ValueError(
                f"compute_s has {len(self.compute_s)} values; accepted: one, or one for each of "
                f"the {self.workers} workers of a cluster of {self.cluster.n}"
            )
        for name in ("compute_s", "apply_s", "jitter"):
            for seconds in np.atleast_1d(getattr(self, name)).tolist():
                if not (math.isfinite(seconds) and seconds >= 0):
                    raise ValueError(f"{name} must be finite and >= 0, got {seconds!r}")
        least = {"gradient_bytes": 0, "parameter_bytes": 0, "updates": 1, "seed": 0, "bound": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ValueError(f"{name} must be >= {low}, got {value!r}")

    @property
    def workers(self) -> int:
        """How many compute gradients."""
        return self.cluster.n - self.servers

    @property
    def server_rank(self) -> int:
        """Where the parameters are."""
        return self.cluster.n - 1 if self.servers else 0

    @property
    def name(self) -> str:
        """``ps-sync``, ``ps-ssp`` or ``ps-async``."""
        if self.bound is None:
            return "ps-async"
        return "ps-ssp" if self.bound else "ps-sync"


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """One row per gradient in the order in which the server applied them.

    ``clock`` counts the worker's own gradients. ``pulled`` is the version of the parameters that
    the gradient was computed on, ``version`` the one that it was applied to. A version is an
    update, or, where all wait for each other, a round: the mean of one gradient of each worker.
    ``held_s`` is how long the server kept the parameters back because of the bound.
    """

    worker: IntArray
    clock: IntArray
    pulled: IntArray
    version: IntArray
    begin_s: FloatArray  # of its computation
    computed_s: FloatArray
    applied_s: FloatArray
    held_s: FloatArray

    def __len__(self) -> int:
        return len(self.worker)

    @property
    def staleness(self) -> IntArray:
        """How many updates were applied between the pull and the gradient's own."""
        return self.version - self.pulled


@dataclass(frozen=True, slots=True, eq=False)
class AsyncRun:
    """A simulated run. ``time_s`` is when the last update was applied; the trace may end later,
    since work that was under way then is let finish, and is not applied.
    """

    case: AsyncCase
    trace: Trace
    updates: Updates
    events: int
    network: Network
    link_bytes: IntArray

    @property
    def time_s(self) -> float:
        """When the last update was applied."""
        return float(self.updates.applied_s[-1])

    @property
    def updates_per_s(self) -> float:
        """Gradients applied per second; infinite for a run that takes no time."""
        return len(self.updates) / self.time_s if self.time_s else math.inf

    @property
    def staleness_counts(self) -> IntArray:
        """How many gradients were 0, 1, 2 … updates old."""
        return np.bincount(self.updates.staleness).astype(np.int64)

    @property
    def mean_staleness(self) -> float:
        """Of all but each worker's first gradient, which it had a head start for."""
        later = self.updates.staleness[self.updates.clock > 0]
        return float(later.mean() if len(later) else self.updates.staleness.mean())


def run_asynchronous(
    cluster: Cluster,
    compute_s: float | Sequence[float],
    gradient_bytes: int,
    parameter_bytes: int,
    updates: int,
    bound: int | None = None,
    *,
    apply_s: float = 0.0,
    servers: int = 0,
    jitter: float = 0.0,
    seed: int = 0,
    prefetch: bool = False,
    slowdowns: Sequence[Slowdown] = (),
    keep_spans: bool = True,
) -> AsyncRun:
    """Train until ``updates`` gradients have been applied.

    A worker computes for ``compute_s`` (one number, or one per worker), pushes its gradient and
    gets the parameters back when the server has applied it, which takes ``apply_s``, one after
    another. Rank 0 is worker and server; with ``servers=1`` the last rank only serves.

    ``bound`` None: asynchronous. Else a worker may begin its gradient number c when every other
    has had c - bound of its own applied; it waits for its parameters until then (Ho et al., NIPS
    2013). 0 is the synchronous server: a round's gradients are applied as one, so none is stale.

    ``jitter`` is the standard deviation of a computation's time as a part of its mean (gamma
    distribution); each worker's times depend on ``seed`` alone, so they are the same for every
    bound. With ``prefetch`` a worker asks for the next parameters when it begins to compute, so
    that pulling hides behind computing, and its own last gradient, but no other of its own, may
    not be in them yet.

    >>> from simcore.cluster import uniform
    >>> cluster = uniform(4, 1e6)
    >>> for bound in (0, None):
    ...     run = run_asynchronous(cluster, [1, 1, 9], 10**5, 10**5, 30, bound, servers=1)
    ...     print(f"{run.time_s:.4g} s, {run.mean_staleness:.1f} updates old")
    93.7 s, 0.0 updates old
    19.4 s, 1.6 updates old
    """
    workers = cluster.n - servers
    each = (compute_s,) * workers if isinstance(compute_s, int | float) else tuple(compute_s)
    case = AsyncCase(
        *(cluster, each, gradient_bytes, parameter_bytes, updates, bound),
        *(apply_s, servers, jitter, seed, prefetch, tuple(slowdowns)),
    )
    return _run(case, keep_spans)


def _run(case: AsyncCase, keep_spans: bool) -> AsyncRun:
    network = Network(case.cluster, case.slowdowns)
    clock = Clock(network, case.cluster.launch_per_message_s, keep_spans)
    log = _Log(case.updates)
    programs = [_worker(case, me, log) for me in range(case.workers)]
    programs.append(_server(case, log))
    rule = ProgramRule([*range(case.workers), case.server_rank], programs)
    timeline = clock.run(rule)
    spans, pieces = timeline.spans()
    trace = Trace(
        Source.SIMULATED,
        case.name,
        case.cluster.n,
        max(rule.end_s, timeline.time_s),
        timeline.sent_bytes,
        timeline.received_bytes,
        _joined(spans, rule.compute_spans()) if keep_spans else spans,
        pieces,
    )
    return AsyncRun(case, trace, log.columns(), timeline.events, network, timeline.link_bytes)


def _joined(first: Spans, then: Spans) -> Spans:
    return Spans(
        **{f.name: np.append(getattr(first, f.name), getattr(then, f.name)) for f in fields(Spans)}
    )


@dataclass(slots=True)
class _Log:
    """What the server writes down: a row per update."""

    wanted: int
    rows: list[tuple[float, ...]] = field(default_factory=list)

    def full(self) -> bool:
        return len(self.rows) >= self.wanted

    def add(self, push: _Push, version: int, now_s: float) -> None:
        times = (push.begin_s, push.computed_s, now_s, push.held_s)
        self.rows.append((push.worker, push.clock, push.pulled, version, *times))

    def columns(self) -> Updates:
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


def _worker(case: AsyncCase, me: int, log: _Log) -> Program:
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


def _server(case: AsyncCase, log: _Log) -> Program:
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
