"""Schedule × Cluster -> Trace: how long it takes, and what every link carries.

Picks the solver: the recurrence where transfers cannot meet on a link, else discrete events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from simcore import recurrence
from simcore.algorithms import unknown
from simcore.cluster import Cluster
from simcore.cost import lower_bound_s
from simcore.events import Clock, SimulationError
from simcore.network import Network, SlowLink, network_of
from simcore.rules import DataflowRule, RankRule
from simcore.schedule import IntArray, Schedule, chunk_sizes
from simcore.timeline import Timeline
from simcore.trace import FloatArray, Source, Trace

Sync = Literal["rank", "dataflow", "barrier"]
Solver = Literal["auto", "events"]

MAX_BYTES = 2**63 - 1

__all__ = ["Simulation", "SimulationError", "SlowLink", "Sync", "simulate"]


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """A simulated run: its trace, the bound it cannot beat, and the work it took.

    ``events`` counts batches of simultaneous events. ``link_bytes`` is payload per link of
    ``network.names``.
    """

    trace: Trace
    lower_bound_s: float
    steps: int
    transfers: int
    events: int
    solver: str
    network: Network
    link_bytes: IntArray

    @property
    def busiest_link(self) -> tuple[str, float]:
        """The port with the largest ``bytes carried / (capacity × time)``, and that fraction."""
        ports = slice(0, 2 * self.network.n)
        if not self.trace.time_s:
            return self.network.names[0], 0.0
        busy = self.link_bytes[ports] / (self.network.capacity[ports] * self.trace.time_s)
        return self.network.names[int(busy.argmax())], min(
            float(busy.max()), 1.0
        )  # above only by rounding


def simulate(
    schedule: Schedule,
    cluster: Cluster,
    elements: int,
    itemsize: int = 4,
    *,
    sync: Sync = "rank",
    starts_s: ArrayLike | None = None,
    slow_links: Sequence[SlowLink] = (),
    keep: Literal["spans", "totals"] = "spans",
    solver: Solver = "auto",
) -> Simulation:
    """Run ``schedule`` over a buffer of ``elements`` items of ``itemsize`` bytes.

    ``starts_s``, shape ``(n,)``, is when each rank may start; time runs from 0. ``sync`` is the
    rule by which transfers start: ``rank`` (both ends have entered the step, as on hardware),
    ``dataflow`` (the data is there) or ``barrier`` (the last step has ended everywhere).

    >>> from simcore.algorithms import ring
    >>> from simcore.cluster import uniform
    >>> run = simulate(ring(4), uniform(4, 25e6), elements=2 * 2**20)
    >>> run.trace.time_s, run.trace.sent_bytes.tolist(), run.busiest_link
    (0.50331648, [12582912, 12582912, 12582912, 12582912], ('gpu0.tx', 1.0))
    """
    n = schedule.n
    if cluster.n != n:
        raise ValueError(f"schedule {schedule.name!r} has {n} ranks, the cluster {cluster.n}")
    if itemsize < 1:
        raise ValueError(f"itemsize must be >= 1, got {itemsize!r}")
    most, size_bytes = MAX_BYTES // (2 * n), elements * itemsize
    if size_bytes > most:  # a port may carry that many buffers
        raise ValueError(
            f"a buffer of {size_bytes} bytes on {n} ranks cannot be counted in 64 bits; "
            f"accepted: up to {most} bytes"
        )
    if sync not in get_args(Sync):
        raise ValueError(unknown("sync", sync, get_args(Sync)))
    starts = _starts(starts_s, n) + cluster.launch_per_collective_s
    network = network_of(cluster, slow_links)
    chunk_bytes = chunk_sizes(elements, schedule.chunks) * itemsize
    timeline, used = _solve(
        schedule, network, chunk_bytes, starts, sync, cluster, keep == "spans", solver
    )
    spans, pieces = timeline.spans(cluster.latency_s)
    trace = Trace(
        Source.SIMULATED,
        schedule.name,
        n,
        max(timeline.time_s, float(starts.max())),
        timeline.link_bytes[:n].copy(),
        timeline.link_bytes[n : 2 * n].copy(),
        spans,
        pieces,
    )
    bound_s = lower_bound_s(schedule.collective, cluster, size_bytes, _owned(schedule, chunk_bytes))
    if trace.time_s < bound_s * (1 - 1e-9) and timeline.transfers:
        raise AssertionError(f"{schedule.name}: {trace.time_s} s beats the bound of {bound_s} s")
    return Simulation(
        *(trace, bound_s, schedule.n_steps, timeline.transfers, timeline.events, used),
        *(network, timeline.link_bytes),
    )


def _solve(
    schedule: Schedule,
    network: Network,
    chunk_bytes: IntArray,
    starts_s: FloatArray,
    sync: Sync,
    cluster: Cluster,
    keep_spans: bool,
    solver: Solver,
) -> tuple[Timeline, str]:
    launch_s = cluster.launch_per_message_s
    if solver == "auto" and sync != "dataflow":
        try:
            timeline = recurrence.solve(
                *(schedule, network, chunk_bytes, starts_s),
                barrier=sync == "barrier",
                launch_per_message_s=launch_s,
                keep_spans=keep_spans,
            )
        except recurrence.SharedLink:
            pass
        else:
            return timeline, "recurrence"
    rule: DataflowRule | RankRule
    if sync == "dataflow":
        rule = DataflowRule(schedule, chunk_bytes, starts_s)
    else:
        rule = RankRule(schedule, chunk_bytes, starts_s, barrier=sync == "barrier")
    return Clock(network, launch_s, keep_spans).run(rule), "events"


def _starts(starts_s: ArrayLike | None, n: int) -> FloatArray:
    starts = np.zeros(n) if starts_s is None else np.asarray(starts_s, np.float64)
    if starts.shape != (n,) or not np.isfinite(starts).all() or (starts < 0).any():
        raise ValueError(f"starts_s must be {n} finite times >= 0, got {starts_s!r}")
    return starts


def _owned(schedule: Schedule, chunk_bytes: IntArray) -> IntArray | None:
    """Bytes that each rank owns, shape ``(n,)``; None for an all-reduce."""
    if schedule.owner is None:
        return None
    owned = np.bincount(schedule.owner, chunk_bytes, minlength=schedule.n)
    return owned.astype(np.int64)
