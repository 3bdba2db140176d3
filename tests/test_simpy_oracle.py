"""The engine against a second simulation, written in SimPy and as plainly as possible.

One process per rank, one per transfer, one network whose rates are worked out anew, by a loop,
whenever a flow starts or ends. It shares no code with the engine beyond the schedule's rows.
"""

from itertools import groupby

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import chunk_sizes, simulate
from tests.strategies import Case, contended_cases, quiet_cases


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

    def _progress(self):
        for flow in self.flows:
            flow.left_bytes -= flow.rate * (self.env.now - self.since)
        self.since = self.env.now

    def _plan(self):
        self._fill()
        self.plans += 1
        if self.flows:
            waits = {flow: max(flow.left_bytes, 0.0) / flow.rate for flow in self.flows}
            first_s = min(waits.values())
            near_s = first_s + 1e-12 * (self.env.now + first_s)
            ending = [flow for flow in self.flows if waits[flow] <= near_s]
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


class Run:
    """One schedule on one cluster; ``start_s[i]`` and ``left_s[i]`` are those of row ``i``."""

    def __init__(self, case: Case, sync: str):
        cluster = case.cluster
        self.env, self.latency_s = simpy.Environment(), cluster.latency_s
        self.launch_s = cluster.launch_per_message_s
        self.nbytes = (4 * chunk_sizes(case.elements, case.schedule.chunks)).tolist()
        self.rows = [t for t in case.schedule if self.nbytes[t.chunk]]
        self.starts_s = [s + cluster.launch_per_collective_s for s in case.starts_s]
        self.network = Network(self.env, self._capacity(case))
        self.start_s, self.left_s = [0.0] * len(self.rows), [0.0] * len(self.rows)
        names = ("issued", "awaited", "left", "arrived")
        self.issued, self.awaited, self.left, self.arrived = (
            [self.env.event() for _ in self.rows] for _ in names
        )
        for i in range(len(self.rows)):
            self.env.process(self._transfer(i))
        getattr(self, f"_by_{sync}")(case.schedule.n)
        self.env.run()
        assert all(event.processed for event in self.arrived)

    def _capacity(self, case):
        wire = case.cluster.wire_time_per_payload_byte
        capacity = {}
        for rank, port in enumerate(case.cluster.ports):
            capacity["tx", rank] = port.send_bytes_per_s / wire
            capacity["rx", rank] = port.receive_bytes_per_s / wire
        for slow in case.slow_links:
            ends = capacity["tx", slow.src], capacity["rx", slow.dst]
            capacity["pair", slow.src, slow.dst] = slow.factor * min(ends)
        return capacity

    def _transfer(self, i):
        yield self.issued[i] & self.awaited[i]
        t = self.rows[i]
        links = [("tx", t.src), ("rx", t.dst), ("pair", t.src, t.dst)]
        self.start_s[i] = self.env.now
        on_way = [link for link in links if link in self.network.capacity]
        yield self.network.carry(on_way, self.nbytes[t.chunk])
        self.left_s[i] = self.env.now
        self.left[i].succeed()
        yield self.env.timeout(self.latency_s)
        self.arrived[i].succeed()

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
            done = [self.left[i] for i in sends] + [self.arrived[i] for i in receives]
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
            yield self.env.all_of([self.arrived[i] for i in step])

    def _by_dataflow(self, n):
        started = [self.env.timeout(start_s) for start_s in self.starts_s]
        for i in range(len(self.rows)):
            self.env.process(self._when_data_is_there(i, started))

    def _when_data_is_there(self, i, started):
        t = self.rows[i]
        writes = [
            self.arrived[j]
            for j, w in enumerate(self.rows)
            if w.step < t.step and (w.dst, w.chunk) == (t.src, t.chunk)
        ]
        yield self.env.all_of([started[t.src], started[t.dst], *writes])
        self.awaited[i].succeed()
        self.issued[i].succeed()


def _compare(case: Case, sync: str) -> None:
    """Every transfer's start and departure, and the end of the run."""
    trace = simulate(
        case.schedule,
        case.cluster,
        case.elements,
        sync=sync,
        starts_s=case.starts_s,
        slow_links=case.slow_links,
    ).trace
    oracle = Run(case, sync)
    assert len(trace.spans) == 2 * len(oracle.rows)
    np.testing.assert_allclose(trace.spans.start_s[::2], oracle.start_s, rtol=1e-9)
    np.testing.assert_allclose(trace.spans.end_s[::2], oracle.left_s, rtol=1e-9)
    last_s = max(*oracle.starts_s, max(oracle.left_s) + case.cluster.latency_s)
    assert trace.time_s == pytest.approx(last_s, rel=1e-9)


@settings(max_examples=150)
@given(st.one_of(contended_cases(), quiet_cases()))
def test_rank_rule(case):
    _compare(case, "rank")


@given(st.one_of(contended_cases(), quiet_cases()))
def test_barrier_rule(case):
    _compare(case, "barrier")


# Without launch costs: with them the order of messages that become ready together would matter.
@given(contended_cases(launch=False))
def test_dataflow_rule(case):
    _compare(case, "dataflow")
