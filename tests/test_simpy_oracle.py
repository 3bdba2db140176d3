"""The engine against a second simulation, written in SimPy and as plainly as possible.

One process per rank, one per message, one adder per rank, one network whose rates are worked out
anew, by a loop, whenever a flow starts or ends or a link changes. It shares no code with the engine
beyond the schedule's rows; routes and latencies come from ``tests/naive.py``.
"""

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pytest
import simpy
from hypothesis import assume, given
from hypothesis import strategies as st

from simcore import Op, chunk_sizes, simulate
from simcore.trace import Lane
from tests.naive import latency_s, route, slowed
from tests.strategies import Case, algorithm_cases, contended_cases, quiet_cases


class Flow:
    def __init__(self, links, nbytes, done):
        self.links, self.left_bytes, self.done, self.rate = links, float(nbytes), done, 0.0


class Network:
    """Flows over links of given capacities, at max-min fair rates."""

    def __init__(self, env, capacity):
        self.env, self.capacity = env, capacity
        self.flows, self.since, self.plans = [], 0.0, 0

    def carry(self, links, nbytes):
        """An event for when the last byte has left."""
        self._progress()
        flow = Flow(links, nbytes, self.env.event())
        self.flows.append(flow)
        self._plan()
        return flow.done

    def change(self, capacity):
        """From now on links have these capacities."""
        self._progress()
        self.capacity = capacity
        self._plan()

    def _progress(self):
        for flow in self.flows:
            flow.left_bytes -= flow.rate * (self.env.now - self.since)
        self.since = self.env.now

    def _plan(self):
        self._fill()
        self.plans += 1
        waits = {f: max(f.left_bytes, 0.0) / f.rate for f in self.flows if f.rate}
        if waits:
            first_s = min(waits.values())
            near_s = first_s + 1e-12 * (self.env.now + first_s)
            ending = [flow for flow in waits if waits[flow] <= near_s]
            self.env.process(self._end(self.plans, first_s, ending))

    def _end(self, plan, wait_s, ending):
        yield self.env.timeout(wait_s)
        if plan == self.plans:  # nothing has started meanwhile
            self._progress()
            self.flows = [flow for flow in self.flows if flow not in ending]
            for flow in ending:
                flow.done.succeed()
            self._plan()

    def _fill(self):
        """Progressive filling: all rates grow together until a link is full."""
        left, growing, level = dict(self.capacity), list(self.flows), 0.0
        while growing:
            users = {link: [f for f in growing if link in f.links] for link in left}
            room = {link: left[link] / len(fs) for link, fs in users.items() if fs}
            step = min(room.values())
            level += step
            for link, fs in users.items():
                left[link] -= step * len(fs)
            full = {link for link, grow in room.items() if grow <= step * (1 + 1e-12)}
            for flow in growing:
                flow.rate = level
            growing = [f for f in growing if not full & set(f.links)]


@dataclass(frozen=True)
class Message:
    step: int
    src: int
    dst: int
    chunks: range
    op: int
    nbytes: int


def messages(schedule, elements):
    """Its rows, with the bytes of all the chunks that each carries."""
    nbytes = (4 * chunk_sizes(elements, schedule.chunks)).tolist()
    for number, step in enumerate(schedule.steps()):
        columns = (step.src, step.dst, step.chunk, step.width, step.op)
        for src, dst, chunk, width, op in zip(*(c.tolist() for c in columns), strict=True):
            chunks = range(chunk, chunk + width)
            yield Message(number, src, dst, chunks, op, sum(nbytes[c] for c in chunks))


class Run:
    """One schedule on one cluster; ``start_s[i]`` and ``left_s[i]`` are those of message ``i``."""

    def __init__(self, case: Case, sync: str):
        cluster, schedule = case.cluster, case.schedule
        self.env, self.cluster = simpy.Environment(), cluster
        self.launch_s = cluster.launch_per_message_s
        self.rows = [m for m in messages(schedule, case.elements) if m.nbytes]
        self.starts_s = [s + cluster.launch_per_collective_s for s in case.starts_s]
        self.network = Network(self.env, slowed(cluster, case.slowdowns, 0.0))
        for slow in case.slowdowns:
            for time_s in (slow.from_s, slow.until_s):
                self.env.process(self._change(case, time_s))
        # Whether two additions were due at once: who comes first is nobody's business.
        self.tie, self.last_s = False, [-1.0] * cluster.n
        self.adders = [simpy.Resource(self.env) for _ in range(cluster.n)]
        self.start_s, self.left_s = [0.0] * len(self.rows), [0.0] * len(self.rows)
        names = ("issued", "awaited", "left", "there")
        self.issued, self.awaited, self.left, self.there = (
            [self.env.event() for _ in self.rows] for _ in names
        )
        self.end_s = max(self.starts_s)
        for i in range(len(self.rows)):
            self.env.process(self._transfer(i))
        getattr(self, f"_by_{sync}")(schedule.n)
        self.env.run()
        assert all(event.processed for event in self.there)

    def _change(self, case, time_s):
        if time_s < math.inf:
            yield self.env.timeout(time_s)
            self.network.change(slowed(case.cluster, case.slowdowns, time_s))

    def _transfer(self, i):
        yield self.issued[i] & self.awaited[i]
        m = self.rows[i]
        self.start_s[i] = self.env.now
        links = [*route(self.cluster, m.src, m.dst), f"gpu{m.src}->gpu{m.dst}"]
        yield self.network.carry(links, m.nbytes)
        self.left_s[i] = self.env.now
        self.left[i].succeed()
        yield self.env.timeout(latency_s(self.cluster, m.src, m.dst, m.nbytes))
        if m.op == Op.ADD and self.cluster.reduce_s_per_byte:
            self.tie |= self.env.now <= self.last_s[m.dst] * (1 + 1e-9)
            self.last_s[m.dst] = self.env.now
            with self.adders[m.dst].request() as turn:
                yield turn
                yield self.env.timeout(m.nbytes * self.cluster.reduce_s_per_byte)
        self.end_s = max(self.end_s, self.env.now)
        self.there[i].succeed()

    def _issue(self, rows):
        for i in rows:
            yield self.env.timeout(self.launch_s)
            self.issued[i].succeed()

    def _steps(self, of_rank=None):
        """Rows by step: all, or those in which a rank takes part."""
        mine = [i for i, t in enumerate(self.rows) if of_rank in (None, t.src, t.dst)]
        return [list(step) for _, step in groupby(mine, key=lambda i: self.rows[i].step)]

    def _by_rank(self, n):
        for rank in range(n):
            self.env.process(self._rank(rank))

    def _rank(self, rank):
        yield self.env.timeout(self.starts_s[rank])
        for step in self._steps(rank):
            sends = [i for i in step if self.rows[i].src == rank]
            receives = [i for i in step if self.rows[i].dst == rank]
            for i in receives:
                self.awaited[i].succeed()
            self.env.process(self._issue(sends))
            done = [self.left[i] for i in sends] + [self.there[i] for i in receives]
            yield self.env.all_of(done)

    def _by_barrier(self, n):
        self.env.process(self._barrier(n))

    def _barrier(self, n):
        yield self.env.timeout(max(self.starts_s))
        for step in self._steps():
            for i in step:
                self.awaited[i].succeed()
            for rank in range(n):
                self.env.process(self._issue([i for i in step if self.rows[i].src == rank]))
            yield self.env.all_of([self.there[i] for i in step])

    def _by_dataflow(self, n):
        started = [self.env.timeout(start_s) for start_s in self.starts_s]
        for i in range(len(self.rows)):
            self.env.process(self._when_data_is_there(i, started))

    def _when_data_is_there(self, i, started):
        t = self.rows[i]
        writes = [
            self.there[j]
            for j, w in enumerate(self.rows)
            if w.step < t.step and w.dst == t.src and set(w.chunks) & set(t.chunks)
        ]
        yield self.env.all_of([started[t.src], started[t.dst], *writes])
        self.awaited[i].succeed()
        self.issued[i].succeed()


def _compare(case: Case, sync: str) -> None:
    """Every transfer's start and departure, and the end of the run."""
    run = simulate(
        case.schedule,
        case.cluster,
        case.elements,
        sync=sync,
        starts_s=case.starts_s,
        slowdowns=case.slowdowns,
    )
    oracle, spans = Run(case, sync), run.trace.spans
    assume(not (oracle.tie and sync == "dataflow"))
    sends = np.flatnonzero(spans.lane == Lane.SEND)
    assert len(sends) == len(oracle.rows)
    np.testing.assert_allclose(spans.start_s[sends], oracle.start_s, rtol=1e-9)
    np.testing.assert_allclose(spans.end_s[sends], oracle.left_s, rtol=1e-9)
    assert run.trace.time_s == pytest.approx(oracle.end_s, rel=1e-9)


@given(st.one_of(contended_cases(), quiet_cases(), algorithm_cases(max_n=5)))
def test_rank_rule(case):
    _compare(case, "rank")


@given(st.one_of(contended_cases(), quiet_cases(), algorithm_cases(max_n=5)))
def test_barrier_rule(case):
    _compare(case, "barrier")


# Without launch costs: with them the order of messages that become ready together would matter.
@given(contended_cases(launch=False))
def test_dataflow_rule(case):
    _compare(case, "dataflow")
