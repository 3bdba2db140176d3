"""The server without a schedule: against the schedule where there is one, against SimPy, by law."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
import simpy
from hypothesis import assume, given
from hypothesis import strategies as st

from simcore import Cluster, Op, Slowdown, build_schedule, load_cluster, simulate, uniform
from simcore.engine import SimulationError
from simcore.trace import Lane, Trace
from simcore.training.asynchronous import run_asynchronous
from tests.naive import latency_s, route
from tests.strategies import clusters, levels
from tests.test_simpy_oracle import Network

MB = 10**6
bounds = st.one_of(st.none(), st.integers(0, 4))


def computes(n: int) -> st.SearchStrategy[list[float]]:
    """Seconds of each worker; no two alike, since who comes first of two is nobody's business."""
    seconds = st.lists(st.floats(0.01, 3.0), min_size=n, max_size=n)
    return seconds.map(lambda them: [t + 0.0137 * (i + 1) ** 1.5 for i, t in enumerate(them)])


@st.composite
def runs(draw, jitter: bool = False):
    """Keyword arguments of a run, its server on a rank of its own or on a worker's."""
    workers, servers = draw(st.integers(1, 6)), draw(st.integers(0, 1))
    return {
        "cluster": draw(clusters(workers + servers)),
        "compute_s": draw(computes(workers)),
        "gradient_bytes": draw(st.sampled_from([0, 1, 10**5, 3 * 10**6])),
        "parameter_bytes": draw(st.sampled_from([0, 1, 10**5, 3 * 10**6])),
        "updates": draw(st.integers(1, 40)),
        "bound": draw(bounds),
        "apply_s": draw(st.sampled_from([0.0, 1e-3, 0.1])),
        "servers": servers,
        "jitter": draw(st.sampled_from([0.0, 0.1, 0.5])) if jitter else 0.0,
        "seed": draw(st.integers(0, 3)),
        "prefetch": draw(st.booleans()),
    }


# -- a server that does not wait for the last -----------------------------------------------------


def test_with_backups_a_round_does_not_wait_for_the_straggler():
    """Nothing takes time but computing: rounds of 1 s beside a worker that needs 9.5 s."""
    common = (uniform(4, 1e18), [1, 1, 9.5], 1, 1)
    waits = run_asynchronous(*common, 30, 0, servers=1)
    goes_on = run_asynchronous(*common, 30, 0, servers=1, backups=1)
    assert waits.time_s == pytest.approx(10 * 9.5)
    assert goes_on.time_s == pytest.approx(15)
    assert goes_on.dropped.tolist() == [0, 0, 1]  # of round 0, which came in round 9
    assert goes_on.parts.tolist() == [0.5, 0.5, 0]
    assert waits.dropped.tolist() == [0, 0, 0]
    assert waits.parts.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("backups", [1, 2, 3])
def test_a_round_has_the_first_gradients_of_different_workers_and_none_is_stale(backups, servers):
    run = run_asynchronous(
        *(uniform(4 + servers, 1e6, 1e-3), 1.0, 10**5, 10**5, 40 * (4 - backups), 0),
        servers=servers,
        jitter=0.5,
        backups=backups,
        apply_s=1e-3,
    )
    assert (run.updates.staleness == 0).all()
    assert run.updates.version.tolist() == [r for r in range(40) for _ in range(4 - backups)]
    for number in range(40):
        of_round = run.updates.worker[run.updates.version == number]
        assert len(set(of_round.tolist())) == 4 - backups
    assert (np.diff(run.updates.applied_s) >= 0).all()
    assert run.dropped.sum() > 0
    for worker in range(4):  # what was not applied was dropped, perhaps after the last of these
        clocks = run.updates.clock[run.updates.worker == worker]
        assert (np.diff(clocks) >= 1).all()
        assert clocks[-1] + 1 - len(clocks) <= run.dropped[worker]


@pytest.mark.parametrize(
    "wrong", [{"backups": 3}, {"backups": -1}, {"bound": None}, {"bound": 2}, {"prefetch": True}]
)
def test_backups_are_for_the_synchronous_server_and_leave_somebody(wrong):
    asked = {"bound": 0, "backups": 1, "servers": 1} | wrong
    with pytest.raises(ValueError, match="backups"):
        run_asynchronous(uniform(4, 1e6), 1.0, 1, 1, 10, **asked)


# -- the synchronous one is the schedule ---------------------------------------------------------


@given(data=st.data(), workers=st.integers(1, 6), rounds=st.integers(1, 3))
def test_synchronous_rounds_are_the_servers_schedule(data, workers, rounds):
    """Each round again as a schedule, whose ranks start when they have computed."""
    cluster = data.draw(clusters(workers + 1))
    compute_s = data.draw(st.lists(st.floats(0.0, 2.0), min_size=workers, max_size=workers))
    elements = data.draw(st.integers(1, 10**6))
    nbytes = 4 * elements
    run = run_asynchronous(cluster, compute_s, nbytes, nbytes, workers * rounds, bound=0, servers=1)
    schedule = build_schedule("ps-dedicated", workers)
    ready_s = np.zeros(workers)
    for number in range(rounds):
        of_round = run.updates.clock == number
        order = np.argsort(run.updates.worker[of_round])
        np.testing.assert_allclose(run.updates.begin_s[of_round][order], ready_s, rtol=1e-9)
        starts_s = [*(ready_s + compute_s), 0.0]
        wanted = simulate(schedule, cluster, elements, starts_s=starts_s)
        spans = wanted.trace.spans
        pulls = (spans.lane == Lane.RECEIVE) & (spans.op == Op.COPY)
        ready_s = spans.end_s[pulls][np.argsort(spans.rank[pulls])]
    assert run.trace.time_s == pytest.approx(wanted.trace.time_s, rel=1e-9)
    assert (run.updates.staleness == 0).all()
    assert run.link_bytes.tolist() == (rounds * wanted.link_bytes).tolist()


@pytest.mark.parametrize("n", [2, 3, 8])
def test_with_the_server_on_rank_0_a_round_is_ps_plus_compute(n):
    cluster = uniform(n, 25e6, 1e-3, launch_per_collective_s=1e-3)
    run = run_asynchronous(cluster, 0.25, 8 * MB, 8 * MB, 5 * n, bound=0)
    exchange = simulate(build_schedule("ps", n), cluster, 2 * MB)
    assert run.trace.time_s == pytest.approx(5 * (0.25 + exchange.trace.time_s), rel=1e-12)
    assert run.trace.sent_bytes.tolist() == (5 * exchange.trace.sent_bytes).tolist()


# -- against a second simulation -----------------------------------------------------------------


class Oracle:
    """The same server as SimPy processes over the plain network of ``test_simpy_oracle``."""

    def __init__(self, cluster: Cluster, compute_s, gradient_bytes, parameter_bytes, updates,
                 bound, apply_s, servers, prefetch, **_):  # fmt: skip
        self.env, self.cluster, self.prefetch = simpy.Environment(), cluster, prefetch
        capacity = {}
        for src in range(cluster.n):
            for dst in range(cluster.n):
                capacity |= route(cluster, src, dst) if src != dst else {}
        self.network = Network(self.env, capacity)
        self.workers, self.bound = cluster.n - servers, math.inf if bound is None else bound
        self.server = cluster.n - 1 if servers else 0
        self.bytes, self.wanted, self.apply_s = (gradient_bytes, parameter_bytes), updates, apply_s
        self.adder, self.desk = (simpy.Resource(self.env) for _ in range(2))
        self.issuers = [simpy.Resource(self.env) for _ in range(cluster.n)]
        self.rows, self.done, self.rounds = [], [0] * self.workers, bound == 0
        self.moved, self.arrivals, self.tie = simpy.Event(self.env), [], False
        for worker in range(self.workers):
            self.env.process(self._work(worker, compute_s[worker]))
        self.env.run()

    def _carry(self, src, dst, nbytes, adds):
        if src == dst or not nbytes:
            return
        with self.issuers[src].request() as turn:
            yield turn
            yield self.env.timeout(self.cluster.launch_per_message_s)
        yield self.network.carry(list(route(self.cluster, src, dst)), nbytes)
        yield self.env.timeout(latency_s(self.cluster, src, dst, nbytes))
        if adds and self.cluster.reduce_s_per_byte:
            with self.adder.request() as turn:
                yield turn
                yield self.env.timeout(nbytes * self.cluster.reduce_s_per_byte)

    def _pull(self, worker, clock, got):
        """Parameters for that gradient of the worker, when the bound allows."""
        if self.prefetch:  # it has to be asked for: the server does one thing after another
            with self.desk.request() as turn:
                yield turn
        while clock - min(self.done) > self.bound or clock - self.done[worker] > 1:
            if len(self.rows) >= self.wanted:
                break
            yield self.moved
        version = min(self.done) if self.rounds else len(self.rows)
        yield from self._carry(self.server, worker, self.bytes[1], adds=False)
        got.succeed(version)

    def _work(self, worker, compute_s):
        version, clock = 0, 0
        while len(self.rows) < self.wanted:
            begin_s, got = self.env.now, self.env.event()
            if self.prefetch:
                self.env.process(self._pull(worker, clock + 1, got))
            yield self.env.timeout(compute_s)
            yield self.env.timeout(self.cluster.launch_per_collective_s)
            push = self.env.process(self._push(worker, clock, version, begin_s))
            if not self.prefetch:
                yield push
                self.env.process(self._pull(worker, clock + 1, got))
            version, clock = (yield got), clock + 1

    def _push(self, worker, clock, version, begin_s):
        yield from self._carry(worker, self.server, self.bytes[0], adds=True)
        self.tie |= any(abs(self.env.now - t) <= 1e-9 * t for t in self.arrivals)
        self.arrivals.append(self.env.now)
        with self.desk.request() as turn:
            yield turn
            if len(self.rows) < self.wanted:
                yield self.env.timeout(self.apply_s)
                base = clock if self.rounds else len(self.rows)
                self.rows.append((worker, clock, version, base, begin_s, self.env.now))
                self.done[worker] += 1
                moved, self.moved = self.moved, simpy.Event(self.env)
                moved.succeed()


@given(runs())
def test_every_update_is_that_of_a_second_simulation(case):
    if case["bound"] is not None:  # else the order of those released together would matter
        case["cluster"] = replace(case["cluster"], launch_per_message_s=0.0)
    oracle = Oracle(**case)
    assume(not oracle.tie)
    updates = run_asynchronous(**case).updates
    ours = zip(
        *(c.tolist() for c in (updates.worker, updates.clock, updates.pulled, updates.version)),
        strict=True,
    )
    assert list(ours) == [row[:4] for row in oracle.rows]
    np.testing.assert_allclose(updates.begin_s, [row[4] for row in oracle.rows], rtol=1e-9)
    np.testing.assert_allclose(updates.applied_s, [row[5] for row in oracle.rows], rtol=1e-9)


# -- laws ----------------------------------------------------------------------------------------


@given(
    n=st.integers(1, 12),
    nbytes=st.integers(0, 10**7),
    compute_s=st.floats(0.0, 2.0),
    apply_s=st.sampled_from([0.0, 0.01]),
)
def test_equal_workers_gradients_are_n_minus_1_updates_old(n, nbytes, compute_s, apply_s):
    run = run_asynchronous(
        *(uniform(n + 1, 1e7, 1e-4), compute_s, nbytes, nbytes, 6 * n),
        apply_s=apply_s,
        servers=1,
    )
    later = run.updates.clock > 0
    assert (run.updates.staleness[later] == n - 1).all()
    assert run.updates.staleness[~later].tolist() == list(range(n))
    assert run.mean_staleness == n - 1
    assert run.staleness_counts.sum() == 6 * n


@given(runs(jitter=True))
def test_no_worker_is_further_ahead_than_the_bound(case):
    run = run_asynchronous(**case)
    updates, bound, n = run.updates, case["bound"], run.case.workers
    for row in range(len(updates)):
        before = updates.applied_s <= updates.begin_s[row]
        done = np.bincount(updates.worker[before], minlength=n)
        if bound is not None:
            assert updates.clock[row] - done.min() <= bound
        if not case["prefetch"]:
            assert updates.clock[row] == done[updates.worker[row]], "one gradient at a time"
    if bound is None:
        assert case["prefetch"] or (updates.held_s == 0).all()
    elif bound == 0:
        assert (updates.staleness == 0).all()
    else:
        own = int(case["prefetch"])
        assert updates.staleness.max() <= (2 * bound + 1) * (n - 1) + own
    assert (updates.staleness >= 0).all()
    assert (np.diff(updates.applied_s) >= 0).all()


@given(runs(jitter=True))
def test_a_bound_that_nobody_reaches_is_none(case):
    without, with_it = (run_asynchronous(**(case | {"bound": b})) for b in (None, case["updates"]))
    for name in ("worker", "clock", "pulled", "version", "applied_s", "held_s"):
        ours, theirs = getattr(without.updates, name), getattr(with_it.updates, name)
        assert ours.tolist() == theirs.tolist()


@given(runs(jitter=True), st.data())
def test_bytes_are_conserved_on_every_link(case, data):
    """On networks with levels too: what the spans carry over a link is what the link counted."""
    cluster = case["cluster"]
    case["cluster"] = cluster = Cluster("drawn", cluster.ports, levels=data.draw(levels(cluster.n)))
    run = run_asynchronous(**case)
    spans, sends = run.trace.spans, run.trace.spans.lane == Lane.SEND
    carried: Counter[str] = Counter()
    for src, dst, nbytes in zip(
        *(c[sends].tolist() for c in (spans.rank, spans.peer, spans.nbytes)), strict=True
    ):
        for link in route(cluster, src, dst):
            carried[link] += nbytes
    counted = dict(zip(run.network.names, run.link_bytes.tolist(), strict=True))
    assert {name: b for name, b in counted.items() if b and name != "free"} == dict(carried)
    receives = spans.lane == Lane.RECEIVE
    received = np.bincount(spans.rank[receives], spans.nbytes[receives], minlength=cluster.n)
    assert run.trace.received_bytes.tolist() == received.tolist()
    pushes = Counter(spans.rank[sends & (spans.op == Op.ADD)].tolist())
    server = run.case.server_rank
    for worker in range(run.case.workers):
        pushed = pushes[worker] * case["gradient_bytes"]
        if worker != server:
            assert run.trace.sent_bytes[worker] == pushed
            applied = int((run.updates.worker == worker).sum())
            assert (
                not case["gradient_bytes"]
                or applied <= pushes[worker] <= applied + 1 + case["prefetch"]
            )


@given(runs(jitter=True))
def test_a_worker_does_one_thing_at_a_time_and_the_trace_is_whole(case):
    run = run_asynchronous(**case)
    spans = run.trace.spans
    assert Trace.from_json(run.trace.to_json()).to_csv() == run.trace.to_csv()
    assert run.trace.time_s >= run.time_s
    assert spans.end_s.max(initial=0.0) <= run.trace.time_s * (1 + 1e-12)
    if case["prefetch"] or case["servers"] == 0:
        return
    for worker in range(run.case.workers):
        mine = (spans.rank == worker) & (spans.lane != Lane.RECEIVE)
        order = np.argsort(spans.start_s[mine], kind="stable")
        start_s, end_s = spans.start_s[mine][order], spans.end_s[mine][order]
        assert (start_s[1:] >= end_s[:-1] * (1 - 1e-12)).all()


# -- what it is for ------------------------------------------------------------------------------


def test_a_straggler_holds_up_all_the_fast_ones_or_a_few_or_none():
    """Four workers, one five times as slow, and a network that does not matter."""
    cluster, compute_s = uniform(5, 1e12), [1.0, 1.0, 1.0, 5.0]
    speeds = {}
    for bound in (0, 2, None):
        run = run_asynchronous(cluster, compute_s, 4, 4, 160, bound, servers=1)
        speeds[bound] = run.updates_per_s
        held_s = np.bincount(run.updates.worker, run.updates.held_s, minlength=4)
        assert held_s[3] == 0, "nobody waits less than the slowest"
        assert (held_s[:3] > 0).all() == (bound is not None)
    assert speeds[0] == pytest.approx(4 / 5, rel=0.02)
    assert speeds[2] == pytest.approx(4 / 5, rel=0.1), "the slowest sets the pace in the end"
    assert speeds[None] == pytest.approx(3 + 1 / 5, rel=0.02)


def test_a_bound_absorbs_what_is_slow_by_chance():
    """With equal means and jitter, a little slack keeps most of the asynchronous speed."""
    cluster = uniform(9, 1e12)
    speed = {
        bound: run_asynchronous(cluster, 1.0, 4, 4, 800, bound, servers=1, jitter=0.5).updates_per_s
        for bound in (0, 1, 3, None)
    }
    assert speed[0] < 0.65 * speed[None]
    assert speed[0] < speed[1] < speed[3] <= speed[None]
    assert speed[3] > 0.8 * speed[None]


def test_one_port_limits_what_many_workers_push():
    """n pushes of p seconds through one port: n p is the least time between a worker's pushes."""
    for n in (2, 4, 8, 16):
        run = run_asynchronous(uniform(n + 1, 1e8), 1.0, 50 * MB, 0, 20 * n, servers=1)
        begin_s = run.updates.begin_s[run.updates.worker == 0]
        cycle_s = np.diff(begin_s)[-5:].mean()
        assert cycle_s == pytest.approx(1.0 + 0.5 * n, rel=1e-9), "they stay in phase"


def test_prefetching_hides_the_pull_behind_the_computation():
    for compute_s, wanted_s in ((2.0, 2.0), (0.1, 0.5)):
        run = run_asynchronous(uniform(2, 1e8), compute_s, 0, 50 * MB, 10, servers=1, prefetch=True)
        assert np.diff(run.updates.begin_s) == pytest.approx(wanted_s)
        assert run.updates.staleness.tolist()[1:] == [1] * 9, "its own last update is not in"


def test_a_trace_ends_with_the_last_message_even_if_nobody_waits_for_it():
    """The only update is applied while parameters for a second one are still on their way."""
    run = run_asynchronous(uniform(2, 1e8), 0.1, 0, 50 * MB, 1, servers=1, prefetch=True)
    assert (run.time_s, run.trace.time_s) == (0.1, 0.5)


def test_the_server_applies_one_at_a_time():
    run = run_asynchronous(uniform(5, 1e9), 1.0, 4, 4, 8, apply_s=0.25, servers=1)
    assert np.diff(run.updates.applied_s[:4]) == pytest.approx(0.25)
    busy = run.trace.spans.lane == Lane.COMPUTE
    on_server = busy & (run.trace.spans.rank == 4)
    assert int(on_server.sum()) == 8
    assert (run.trace.spans.end_s - run.trace.spans.start_s)[on_server] == pytest.approx(0.25)


def test_jitter_is_the_same_for_every_bound_and_has_its_mean_and_spread():
    def seconds(bound, seed=7):
        run = run_asynchronous(
            *(uniform(4, 1e12), [1.0, 2.0, 3.0], 4, 4, 3000, bound),
            servers=1,
            jitter=0.3,
            seed=seed,
        )
        u = run.updates
        keys = zip(u.worker.tolist(), u.clock.tolist(), strict=True)
        return dict(zip(keys, (u.computed_s - u.begin_s).tolist(), strict=True))

    free, bounded, other = seconds(None), seconds(1), seconds(None, seed=8)
    both = sorted(free.keys() & bounded.keys())
    assert len(both) > 1000
    assert [free[k] for k in both] == pytest.approx([bounded[k] for k in both])
    assert free[0, 0] != other[0, 0]
    for worker, mean_s in enumerate((1.0, 2.0, 3.0)):
        own = np.array([s for (w, _), s in free.items() if w == worker])
        assert own.mean() == pytest.approx(mean_s, rel=0.05)
        assert own.std() == pytest.approx(0.3 * mean_s, rel=0.1)


def test_on_a_preset_with_nodes_the_far_workers_are_slower():
    """Two nodes; the server's node has fast links inside, so its workers apply more updates."""
    cluster = load_cluster("a100-4-per-node", 8)
    run = run_asynchronous(cluster, 1e-3, 100 * MB, 100 * MB, 400, apply_s=1e-5)
    counts = np.bincount(run.updates.worker, minlength=8)
    assert counts[1:4].min() > 2 * counts[4:].max()


def test_a_link_that_is_slow_makes_its_worker_a_straggler():
    slow = [Slowdown("gpu1", 0.1)]
    run = run_asynchronous(uniform(4, 1e8), 0.1, 10 * MB, 10 * MB, 90, servers=1, slowdowns=slow)
    counts = np.bincount(run.updates.worker, minlength=3)
    assert counts[1] * 2 < counts[0]
    assert run.updates.staleness[run.updates.worker == 1].mean() > 2 * counts.mean() / counts[1]
    with pytest.raises(SimulationError, match="the run never ends"):
        run_asynchronous(
            uniform(3, 1e8), 0.1, MB, MB, 9, 0, servers=1, slowdowns=[Slowdown("gpu1", 0.0)]
        )


def test_totals_alone_are_the_same_run():
    case = (uniform(5, 1e8), [1.0, 1.1, 1.2, 1.3], MB, MB, 50, 2)
    whole, totals = (run_asynchronous(*case, servers=1, keep_spans=k) for k in (True, False))
    assert len(totals.trace.spans) == 0 < len(whole.trace.spans)
    assert totals.updates.applied_s.tolist() == whole.updates.applied_s.tolist()
    assert totals.trace.sent_bytes.tolist() == whole.trace.sent_bytes.tolist()


def test_labels_tell_every_message_apart():
    run = run_asynchronous(uniform(5, 1e8), 1.0, MB, MB, 40, servers=1)
    spans = run.trace.spans
    sends = np.flatnonzero(spans.lane == Lane.SEND).tolist()
    labels = [spans.label(row) for row in sends]
    assert "0: 2->4 c0 add" in labels
    pushes = sorted(label for label in labels if label.endswith("add"))
    assert [len(list(same)) for _, same in groupby(pushes)] == [1] * len(pushes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"servers": 2}, "servers must be 0 (rank 0 also serves) or 1 (the last rank only"),
        ({"compute_s": [1.0, 2.0]}, "compute_s has 2 values; accepted: one, or one for each of"),
        ({"compute_s": -1.0}, "compute_s must be finite and >= 0, got -1.0"),
        ({"compute_s": math.nan}, "compute_s must be finite and >= 0, got nan"),
        ({"apply_s": math.inf}, "apply_s must be finite and >= 0, got inf"),
        ({"jitter": -0.1}, "jitter must be finite and >= 0, got -0.1"),
        ({"gradient_bytes": -1}, "gradient_bytes must be >= 0, got -1"),
        ({"updates": 0}, "updates must be >= 1, got 0"),
        ({"bound": -1}, "bound must be >= 0, got -1"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_nonsense_is_refused_in_one_line(change, message):
    case = {
        "cluster": uniform(4, 1e6),
        "compute_s": 1.0,
        "gradient_bytes": 4,
        "parameter_bytes": 4,
        "updates": 8,
    }
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        run_asynchronous(**(case | change))
    assert "\n" not in str(error.value)
