"""Schedule × Cluster -> Trace: how long it takes, and what every link carries.

Picks the solver: the recurrence where transfers cannot meet on a link, else discrete events.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from simcore.cluster import Cluster
from simcore.cost import lower_bound_s
from simcore.names import unknown
from simcore.schedule import IntArray, Schedule, chunk_bounds
from simcore.solvers import recurrence
from simcore.solvers.events import Clock, SimulationError
from simcore.solvers.network import Network, Slowdown
from simcore.solvers.rules import DataflowRule, RankRule
from simcore.solvers.timeline import Timeline
from simcore.trace import FloatArray, Source, Trace

Sync = Literal["rank", "dataflow", "barrier"]
Solver = Literal["auto", "events"]
Keep = Literal["spans", "totals"]
Progress = Callable[[float], None]

MAX_BYTES = 2**63 - 1

__all__ = ["Simulation", "SimulationError", "Slowdown", "Sync", "simulate"]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What was asked: the arguments of ``simulate``."""

    schedule: Schedule
    cluster: Cluster
    elements: int
    itemsize: int
    sync: Sync
    starts_s: FloatArray
    slowdowns: tuple[Slowdown, ...]

    def __post_init__(self) -> None:
        n = self.schedule.n
        if self.cluster.n != n:
            raise ValueError(
                f"schedule {self.schedule.name!r} has {n} ranks, the cluster {self.cluster.n}"
            )
        if self.itemsize < 1:
            raise ValueError(f"itemsize must be >= 1, got {self.itemsize!r}")
        if self.sync not in get_args(Sync):
            raise ValueError(unknown("sync", self.sync, get_args(Sync)))
        starts = self.starts_s
        if starts.shape != (n,) or not np.isfinite(starts).all() or (starts < 0).any():
            raise ValueError(f"starts_s must be {n} finite times >= 0, got {starts!r}")


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """A simulated run: its trace, the bound it cannot beat, and the work it took.

    ``events`` counts batches of simultaneous events. ``link_bytes`` is payload per link of
    ``network.names``.
    """

    case: Case
    trace: Trace
    lower_bound_s: float
    steps: int
    transfers: int
    events: int
    solver: str
    network: Network
    link_bytes: IntArray

    @property
    def link_busy(self) -> FloatArray:
        """For each link ``bytes carried / (capacity × time)``; 0 where that has no meaning."""
        with np.errstate(divide="ignore", invalid="ignore"):
            busy = self.link_bytes / (self.network.capacity * self.trace.time_s)
        return np.where(np.isfinite(busy), np.minimum(busy, 1.0), 0.0)  # above only by rounding

    @property
    def busiest_link(self) -> tuple[str, float]:
        """The link that was busy for the largest part of the run, and that part."""
        busy = self.link_busy
        return self.network.names[int(busy.argmax())], float(busy.max())

    def fork(self, at_s: float, slowdowns: Sequence[Slowdown]) -> Simulation:
        """The same run with something changed at ``at_s``: until then nothing is different.

        To the last bit that holds against a run of the solver ``events``, which follows changes.

        A stalled rank is ``Slowdown("gpu2", 0.0, at_s, at_s + 0.1)``.

        >>> from simcore.algorithms import ring
        >>> from simcore.cluster import uniform
        >>> run = simulate(ring(2), uniform(2, 1000.0), elements=500)
        >>> run.trace.time_s, run.fork(0.5, [Slowdown("gpu1", 0.5, from_s=0.5)]).trace.time_s
        (2.0, 3.5)
        """
        for slow in slowdowns:
            if slow.from_s < at_s:
                raise ValueError(f"a change at {slow.from_s:g} s is before the fork at {at_s:g} s")
        changed = replace(self.case, slowdowns=(*self.case.slowdowns, *slowdowns))
        return _run(changed, "spans", "auto", None)


def simulate(
    schedule: Schedule,
    cluster: Cluster,
    elements: int,
    itemsize: int = 4,
    *,
    sync: Sync = "rank",
    starts_s: ArrayLike | None = None,
    slowdowns: Sequence[Slowdown] = (),
    keep: Keep = "spans",
    solver: Solver = "auto",
    progress: Progress | None = None,
) -> Simulation:
    """Run ``schedule`` over a buffer of ``elements`` items of ``itemsize`` bytes.

    ``starts_s``, shape ``(n,)``, is when each rank may start; time runs from 0. ``sync`` is the
    rule by which transfers start: ``rank`` (both ends have entered the step, as on hardware),
    ``dataflow`` (the data is there) or ``barrier`` (the last step has ended everywhere).
    ``progress`` hears of the part that is done now and then; what it raises ends the run.

    >>> from simcore.algorithms import ring
    >>> from simcore.cluster import uniform
    >>> run = simulate(ring(4), uniform(4, 25e6), elements=2 * 2**20)
    >>> run.trace.time_s, run.trace.sent_bytes.tolist(), run.busiest_link
    (0.50331648, [12582912, 12582912, 12582912, 12582912], ('gpu0.tx', 1.0))
    """
    starts = np.zeros(schedule.n) if starts_s is None else np.asarray(starts_s, np.float64)
    case = Case(schedule, cluster, elements, itemsize, sync, starts, tuple(slowdowns))
    return _run(case, keep, solver, progress)


def _run(case: Case, keep: Keep, solver: Solver, progress: Progress | None) -> Simulation:
    schedule, cluster = case.schedule, case.cluster
    size_bytes = case.elements * case.itemsize
    _check_countable(size_bytes, schedule.n)
    network = Network(cluster, case.slowdowns)
    byte_bounds = chunk_bounds(case.elements, schedule.chunks) * case.itemsize
    timeline, used = _solve(case, network, byte_bounds, keep == "spans", solver, seldom(progress))
    spans, pieces = timeline.spans()
    starts_s = case.starts_s + cluster.launch_per_collective_s
    trace = Trace(
        Source.SIMULATED,
        schedule.name,
        schedule.n,
        max(timeline.time_s, float(starts_s.max())),
        timeline.sent_bytes,
        timeline.received_bytes,
        spans,
        pieces,
    )
    owned = _owned(schedule, byte_bounds)
    bound_s = lower_bound_s(schedule.collective, cluster, size_bytes, owned, schedule.servers)
    bound_s /= math.prod(max(slow.factor, 1.0) for slow in case.slowdowns)  # no link gains more
    if trace.time_s < bound_s * (1 - 1e-9) and timeline.transfers:
        raise AssertionError(f"{schedule.name}: {trace.time_s} s beats the bound of {bound_s} s")
    work = (schedule.n_steps, timeline.transfers, timeline.events)
    return Simulation(case, trace, bound_s, *work, used, network, timeline.link_bytes)


def _check_countable(size_bytes: int, n: int) -> None:
    most = MAX_BYTES // (2 * n)  # a port may carry that many buffers
    if size_bytes > most:
        raise ValueError(
            f"a buffer of {size_bytes} bytes on {n} ranks cannot be counted in 64 bits; "
            f"accepted: up to {most} bytes"
        )


def _solve(
    case: Case,
    network: Network,
    byte_bounds: IntArray,
    keep_spans: bool,
    solver: Solver,
    progress: Progress | None,
) -> tuple[Timeline, str]:
    schedule, sync = case.schedule, case.sync
    launch_s = case.cluster.launch_per_message_s
    starts_s = case.starts_s + case.cluster.launch_per_collective_s
    if solver == "auto" and sync != "dataflow":
        try:
            timeline = recurrence.solve(
                *(schedule, network, byte_bounds, starts_s),
                barrier=sync == "barrier",
                launch_per_message_s=launch_s,
                keep_spans=keep_spans,
                progress=progress,
            )
        except recurrence.SharedLink:
            pass
        else:
            return timeline, "recurrence"
    rule: DataflowRule | RankRule
    if sync == "dataflow":
        rule = DataflowRule(schedule, byte_bounds, starts_s, network)
    else:
        rule = RankRule(schedule, byte_bounds, starts_s, barrier=sync == "barrier")
    return Clock(network, launch_s, keep_spans).run(rule, progress), "events"


def seldom(progress: Progress | None) -> Progress | None:
    """The same, called at most ten times a second."""
    if progress is None:
        return None
    last_s = time.perf_counter()

    def report(done: float) -> None:
        nonlocal last_s
        if time.perf_counter() - last_s > 0.1:
            last_s = time.perf_counter()
            progress(done)

    return report


def _owned(schedule: Schedule, byte_bounds: IntArray) -> IntArray | None:
    """Bytes that each rank owns, shape ``(n,)``; None for an all-reduce."""
    if schedule.owner is None:
        return None
    owned = np.bincount(schedule.owner, np.diff(byte_bounds), minlength=schedule.n)
    return owned.astype(np.int64)
