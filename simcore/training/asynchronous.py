"""The parameter server without a schedule: asynchronous, stale-synchronous and synchronous.

Each worker is a program: compute, push gradients, pull parameters. The order in which the server
applies updates depends on who arrives first, so it is found by running them. No learning here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from simcore.cluster import Cluster
from simcore.solvers.events import Clock
from simcore.solvers.network import Network, Slowdown
from simcore.solvers.programs import ProgramRule
from simcore.trace import Source, Spans, Trace
from simcore.training.asynchronous_programs import Log, first_server, server, worker
from simcore.training.asynchronous_run import AsyncCase, AsyncRun

__all__ = ["AsyncCase", "AsyncRun", "run_asynchronous"]


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
    backups: int = 0,
    keep_spans: bool = True,
) -> AsyncRun:
    """Train until ``updates`` gradients have been applied.

    A worker computes for ``compute_s`` (one number, or one per worker), pushes its gradient and
    gets the parameters back when the server has applied it, which takes ``apply_s``, one after
    another. Rank 0 is worker and server; with ``servers=1`` the last rank only serves.

    ``bound`` None: asynchronous. Else a worker may begin its gradient number c when every other
    has had c - bound of its own applied; it waits for its parameters until then (Ho et al., NIPS
    2013). 0 is the synchronous server: a round's gradients are applied as one, so none is stale.
    With ``backups`` it does not wait for that many of a round's gradients: those that come after
    the others are dropped, and their workers go on with the present parameters (Chen et al. 2016).

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
        backups=backups,
    )
    return _run(case, keep_spans)


def _run(case: AsyncCase, keep_spans: bool) -> AsyncRun:
    network = Network(case.cluster, case.slowdowns)
    clock = Clock(network, case.cluster.launch_per_message_s, keep_spans)
    log = Log(case.updates, [0] * case.workers)
    programs = [worker(case, me, log) for me in range(case.workers)]
    programs.append(first_server(case, log) if case.backups else server(case, log))
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
    return AsyncRun(
        *(case, trace, log.columns(), timeline.events, network, timeline.link_bytes),
        np.array(log.dropped, np.int64),
    )


def _joined(first: Spans, then: Spans) -> Spans:
    return Spans(
        **{f.name: np.append(getattr(first, f.name), getattr(then, f.name)) for f in fields(Spans)}
    )
