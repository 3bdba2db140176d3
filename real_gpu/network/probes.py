"""Traffic that fills the links of a shaped network, to see the rate that each of them has.

Each step is a set of flows that together fill some links from beginning to end, as the simulator
says; so a link's rate is the set one times the simulated over the measured time of its flows. A
link that no traffic can fill is never the one that a run waits for, and is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from simcore.cluster import TIMES, Cluster
from simcore.schedule import Collective, IntArray, Op, Schedule, Step
from simcore.solvers.maxmin import max_min_rates
from simcore.solvers.network import Network
from simcore.trace import Lane, Spans

CALIBRATION = "calibration"
_CHUNKS = 512  # of a buffer: a flow takes as many as its rate allows
_APART = 3  # steps from one set to the next: itself, and two to meet
_FULL = 0.97  # of a link's capacity; the rest is rounding to whole chunks
_MOST_LINKS = 3  # that a reason names one by one


def calibration_schedule(cluster: Cluster) -> Schedule:
    """One step for each set of flows; the fastest flow carries the whole buffer.

    Between two sets everybody tells rank 0 that it is through, and hears that all are, so that one
    set does not run into the next.

    >>> from simcore.cluster import uniform
    >>> print(calibration_schedule(uniform(2, 25e6)))
    0: 0->1 c0 copy
    0: 1->0 c0 copy
    """
    probes = _probes(cluster)
    rates = [rate for _, _, rate in probes]
    widest = max((float(rate.max()) for rate in rates), default=1.0)
    alike = all(np.allclose(rate, widest) for rate in rates)
    chunks = 1 if alike else _CHUNKS
    others = np.arange(1, cluster.n)
    meet = [Step.of(others, 0, 0, Op.COPY), Step.of(0, others, 0, Op.COPY)]
    steps: list[Step] = []
    for src, dst, rate in probes:
        width = np.maximum(1, np.rint(chunks * rate / widest))
        steps += [*(meet if steps else ()), Step.of(src, dst, 0, Op.COPY, width)]
    owner = (0,) * chunks  # unused: this is no collective, only traffic
    return Schedule(
        *(
            CALIBRATION,
            cluster.n,
            chunks,
            len(steps),
            Collective.POINT_TO_POINT,
            lambda: iter(steps),
            owner,
        )
    )


Flows = tuple[IntArray, IntArray]


def wires_alone(cluster: Cluster) -> Cluster:
    """The same links with nothing that delays: no latency, no cost of launching or adding."""
    levels = tuple(replace(level, latency_s=None) for level in cluster.levels)
    none = dict.fromkeys(TIMES, 0.0)
    return replace(cluster, levels=levels, **none)  # type: ignore[arg-type]


def _probes(cluster: Cluster) -> list[tuple[IntArray, IntArray, np.ndarray]]:
    """Sources, destinations and fair rates of each set, until every link that can be is full."""
    network = Network(cluster)
    left = set(np.flatnonzero(np.isfinite(network.capacity)).tolist())
    chosen = []
    for src, dst in _candidates(cluster.n):
        if not left:
            break
        routes = network.routes(src, dst)
        rates = max_min_rates(routes, network.capacity)
        full = {
            link for link in left if _load(routes, rates, link) > _FULL * network.capacity[link]
        }
        if full:
            left -= full
            chosen.append((src, dst, rates))
    return chosen


def _load(routes: IntArray, rates: np.ndarray, link: int) -> float:
    return float(rates[(routes == link).any(axis=1)].sum())


def _candidates(n: int) -> Iterator[Flows]:
    """Everybody to one neighbour, near or far; then one to all, and all to one."""
    ranks = np.arange(n)
    for distance in range(1, n):
        yield ranks, (ranks + distance) % n
    for one in range(n if n > 2 else 0):
        others = np.delete(ranks, one)
        yield np.full(n - 1, one), others
        yield others, np.full(n - 1, one)


def link_times(cluster: Cluster, spans: Spans) -> dict[tuple[str, int], tuple[float, float]]:
    """For each link and step of a calibration that fills it: payload bytes, and their seconds.

    A flow begins when both its ends have, and ends when all has arrived.
    """
    network, schedule = Network(cluster), calibration_schedule(cluster)
    times: dict[tuple[str, int], tuple[float, float]] = {}
    for number, step in list(enumerate(schedule.steps()))[::_APART]:
        routes = network.routes(step.src, step.dst)
        begin, end, nbytes = _flow_times(spans, number, step)
        rates = max_min_rates(routes, network.capacity)
        for link in np.unique(routes).tolist():
            on = (routes == link).any(axis=1)
            if rates[on].sum() > _FULL * network.capacity[link]:
                latency_s = float(network.latencies_s(step.src, step.dst, nbytes)[on].max())
                took_s = float(end[on].max() - begin[on].min()) - latency_s
                times[network.names[link], number] = int(nbytes[on].sum()), took_s
    return times


def _flow_times(spans: Spans, number: int, step: Step) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    begin, end, nbytes = (np.zeros(len(step)) for _ in range(3))
    for row in np.flatnonzero(spans.step == number).tolist():
        sends = spans.lane[row] == Lane.SEND
        ends = (spans.rank[row], spans.peer[row])
        src, dst = ends if sends else ends[::-1]
        flow = int(np.flatnonzero((step.src == src) & (step.dst == dst))[0])
        begin[flow] = max(begin[flow], spans.start_s[row])
        if not sends:
            end[flow], nbytes[flow] = spans.end_s[row], spans.nbytes[row]
    return begin, end, nbytes


def unfilled(cluster: Cluster) -> list[str]:
    """Links that no calibration fills, since others on the way are always narrower."""
    network = Network(cluster)
    filled: set[int] = set()
    for src, dst, rates in _probes(cluster):
        routes = network.routes(src, dst)
        links = np.unique(routes).tolist()
        filled |= {x for x in links if _load(routes, rates, x) > _FULL * network.capacity[x]}
    return [
        name
        for link, name in enumerate(network.names)
        if link not in filled and np.isfinite(network.capacity[link])
    ]


def named(links: list[str]) -> str:
    """A few links by name, many by their number.

    >>> named(["gpu0.tx"]), named(["a", "b", "c", "d", "e"])
    ('gpu0.tx', 'a, b, c and 2 more')
    """
    more = len(links) - _MOST_LINKS
    return ", ".join(links[:_MOST_LINKS]) + (f" and {more} more" if more > 0 else "")


def spans_of(rows: list[list[float]]) -> Spans:
    """Rows as a run reports them, as columns."""
    columns = np.array(rows, float).reshape(-1, 10).T
    of = dict(zip((f.name for f in fields(Spans)), columns, strict=True))
    times: dict[str, Any] = {name: of.pop(name) for name in ("start_s", "end_s")}
    whole: dict[str, Any] = {name: column.astype(np.int64) for name, column in of.items()}
    return Spans(**whole, **times)


def each_run(rows: list[list[float]], runs: int) -> list[Spans]:
    """A calibration's rows, run by run."""
    bounds = [len(rows) * run // runs for run in range(runs + 1)]
    return [spans_of(rows[start:stop]) for start, stop in pairwise(bounds)]
