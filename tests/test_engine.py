"""Laws of simulated runs, whatever the schedule: times, bytes, capacities, causes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simcore import Cluster, Op, Port, build_schedule, chunk_sizes, simulate, uniform
from simcore.schedule import parse_schedule
from simcore.trace import Lane
from tests.naive import capacities, latency_s, route, slowed
from tests.strategies import (
    NAMES,
    Case,
    algorithm_cases,
    algorithms,
    clusters,
    contended_cases,
    often,
    quiet_cases,
)

SYNCS = ["rank", "dataflow", "barrier"]
syncs = st.sampled_from(SYNCS)
any_case = st.one_of(contended_cases(), algorithm_cases())


def _run(case: Case, **how):
    how = {"starts_s": case.starts_s, "slowdowns": case.slowdowns} | how
    return simulate(case.schedule, case.cluster, case.elements, **how)


def _transfers(trace):
    """Rows of the spans that send; the next row receives. Additions come after them all."""
    sends = np.flatnonzero(trace.spans.lane == Lane.SEND)
    np.testing.assert_array_equal(sends, np.arange(0, 2 * len(sends), 2))
    return sends


def _messages(case):
    """Each message as (step, src, dst, first chunk, width, op, bytes), those with bytes."""
    nbytes = (4 * chunk_sizes(case.elements, case.schedule.chunks)).tolist()
    for number, step in enumerate(case.schedule.steps()):
        columns = (step.src, step.dst, step.chunk, step.width, step.op)
        for src, dst, chunk, width, op in zip(*(c.tolist() for c in columns), strict=True):
            if sum(nbytes[chunk : chunk + width]):
                yield number, src, dst, chunk, width, op, sum(nbytes[chunk : chunk + width])


@often(3)
@given(
    st.one_of(algorithm_cases(), algorithm_cases(plain=True), quiet_cases()),
    st.sampled_from(["rank", "barrier"]),
    st.booleans(),
)
def test_both_solvers_agree(case, sync, together):
    how = {"starts_s": [0.0] * case.schedule.n} if together else {}
    fast = _run(case, sync=sync, **how)
    assert fast.solver == "recurrence" or case.schedule.name != "quiet"
    general = _run(case, sync=sync, solver="events", **how)
    assert general.solver == "events"
    assert fast.trace.time_s == pytest.approx(general.trace.time_s, rel=1e-9)
    assert (fast.transfers, fast.steps) == (general.transfers, general.steps)
    assert fast.link_bytes.tolist() == general.link_bytes.tolist()
    for column in ("rank", "lane", "step", "peer", "chunk", "width", "op", "nbytes"):
        values = (getattr(run.trace.spans, column).tolist() for run in (fast, general))
        assert len(set(map(tuple, values))) == 1, column
    for column in ("start_s", "end_s"):
        values = (getattr(run.trace.spans, column) for run in (fast, general))
        np.testing.assert_allclose(*values, rtol=1e-9)


MEET = {"ps", "ps-sharded", "ps-dedicated", "double-tree"}  # on a port, in some step


@pytest.mark.parametrize("name", NAMES)
def test_the_recurrence_serves_what_cannot_meet_on_a_port(name):
    schedule = build_schedule(name, 5, **({"pieces": 2} if name == "double-tree" else {}))
    starts_s = [float(3 * r % 7) for r in range(schedule.n)]
    run = simulate(schedule, uniform(schedule.n, 1e9), 1000, starts_s=starts_s)
    assert run.solver == ("events" if name in MEET else "recurrence")


@pytest.mark.parametrize("name", ["ps", "ps-sharded", "ps-dedicated"])
def test_and_what_meets_on_a_port_while_all_are_level(name):
    schedule = build_schedule(name, 8)
    run = simulate(schedule, uniform(schedule.n, 1e9, latency_s=1e-6), 1000 * 8)
    assert run.solver == "recurrence"


@given(any_case, syncs)
def test_bytes_are_those_of_the_schedule(case, sync):
    run = _run(case, sync=sync)
    trace, rows = run.trace, list(_messages(case))
    sent, received = [0] * trace.n, [0] * trace.n
    on_link = dict.fromkeys(capacities(case.cluster), 0)
    for _, src, dst, _, _, _, nbytes in rows:
        sent[src] += nbytes
        received[dst] += nbytes
        for link in route(case.cluster, src, dst):
            on_link[link] += nbytes
    assert trace.sent_bytes.tolist() == sent
    assert trace.received_bytes.tolist() == received
    carried = dict(zip(run.network.names, run.link_bytes.tolist(), strict=True))
    assert {link: carried[link] for link in on_link} == on_link
    spans, send = trace.spans, _transfers(trace)
    columns = (spans.step, spans.rank, spans.peer, spans.chunk, spans.width, spans.op, spans.nbytes)
    assert list(zip(*(c[send].tolist() for c in columns), strict=True)) == rows


@given(any_case, syncs)
def test_a_receive_is_its_send_a_latency_later_and_all_lies_within_the_run(case, sync):
    trace = _run(case, sync=sync).trace
    spans, send = trace.spans, _transfers(trace)
    assert (spans.lane[send] == Lane.SEND).all()
    assert (spans.lane[send + 1] == Lane.RECEIVE).all()
    assert (spans.rank[send] == spans.peer[send + 1]).all()
    assert (spans.peer[send] == spans.rank[send + 1]).all()
    rows = (column[send].tolist() for column in (spans.rank, spans.peer, spans.nbytes))
    late_s = np.array([latency_s(case.cluster, *row) for row in zip(*rows, strict=True)])
    np.testing.assert_allclose(spans.start_s[send + 1], spans.start_s[send] + late_s, rtol=1e-12)
    np.testing.assert_allclose(spans.end_s[send + 1], spans.end_s[send] + late_s, rtol=1e-12)
    started_s = np.array(case.starts_s) + case.cluster.launch_per_collective_s
    # Starts that differ by rounding are one instant.
    assert (spans.start_s >= started_s[spans.rank] * (1 - 1e-12)).all()
    assert (spans.end_s >= spans.start_s).all()
    assert trace.time_s == pytest.approx(max(spans.end_s.max(initial=0.0), started_s.max()))


@given(any_case, syncs)
def test_what_has_to_be_added_is_added_one_after_another_once_it_has_arrived(case, sync):
    trace = _run(case, sync=sync).trace
    spans, slack_s = trace.spans, 1e-12 * trace.time_s
    adds = np.arange(2 * len(_transfers(trace)), len(spans))
    assert (spans.lane[adds] == Lane.COMPUTE).all()
    arrived_s = {}
    for row in _transfers(trace) + 1:
        if spans.op[row] == Op.ADD and case.cluster.reduce_s_per_byte:
            key = tuple(int(c[row]) for c in (spans.step, spans.rank, spans.peer, spans.chunk))
            arrived_s.setdefault(key, []).append((float(spans.end_s[row]), int(spans.nbytes[row])))
    assert len(adds) == sum(map(len, arrived_s.values()))
    for row in adds:
        key = tuple(int(c[row]) for c in (spans.step, spans.rank, spans.peer, spans.chunk))
        lasts_s = spans.end_s[row] - spans.start_s[row]
        wanted_s = spans.nbytes[row] * case.cluster.reduce_s_per_byte
        assert lasts_s == pytest.approx(wanted_s, rel=1e-9, abs=2 * slack_s)
        assert spans.start_s[row] >= min(arrived_s[key])[0] - slack_s
    for rank in range(trace.n):  # no two at once; and none idles while something waits
        mine = adds[spans.rank[adds] == rank]
        mine = mine[np.argsort(spans.start_s[mine])]
        assert (spans.start_s[mine][1:] >= spans.end_s[mine][:-1] - slack_s).all()
        free_s = np.concatenate([[0.0], spans.end_s[mine][:-1]])
        arrivals = sorted(t for k, ts in arrived_s.items() if k[1] == rank for t, _ in ts)
        np.testing.assert_allclose(
            spans.start_s[mine], np.maximum(free_s, arrivals), rtol=1e-9, atol=slack_s
        )


@given(any_case, syncs)
def test_no_link_is_ever_above_its_capacity(case, sync):
    trace = _run(case, sync=sync).trace
    rows = trace.constant_rate_rows()
    sends = trace.spans.lane[rows.span] == Lane.SEND
    span, start, end, nbytes = (
        c[sends] for c in (rows.span, rows.start_s, rows.end_s, rows.nbytes)
    )
    pairs = list(zip(trace.spans.rank[span].tolist(), trace.spans.peer[span].tolist(), strict=True))
    ways = [{*route(case.cluster, *pair), "gpu{}->gpu{}".format(*pair)} for pair in pairs]
    changes_s = {t for slow in case.slowdowns for t in (slow.from_s, slow.until_s)}
    moments = sorted({0.0, *changes_s})
    for begin_s, until_s in zip(moments, [*moments[1:], np.inf], strict=True):
        for link, bytes_per_s in slowed(case.cluster, case.slowdowns, begin_s).items():
            on = np.array([link in way for way in ways], bool)
            within = on & (end > begin_s) & (start < until_s)
            parts = np.clip(start[within], begin_s, until_s), np.clip(end[within], begin_s, until_s)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = (parts[1] - parts[0]) / (end[within] - start[within])
            moved = np.where(end[within] > start[within], nbytes[within] * share, 0.0)
            _check_capacity(*parts, moved, bytes_per_s, trace.time_s)


def _check_capacity(start, end, nbytes, bytes_per_s, time_s):
    """In no interval between two changes more bytes than fit; to the last bit of the clock."""
    changes = np.unique([start, end])
    begin, until = changes[:-1, None], changes[1:, None]
    overlap = np.clip(np.minimum(end, until) - np.maximum(start, begin), 0, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        carried = np.where(overlap > 0, nbytes / (end - start) * overlap, 0.0).sum(axis=1)
    fits = bytes_per_s * ((until - begin)[:, 0] * (1 + 1e-9) + 1e-12 * time_s)
    assert (carried <= fits).all()


@given(any_case, syncs)
def test_pieces_tile_their_spans(case, sync):
    trace = _run(case, sync=sync).trace
    spans, pieces = trace.spans, trace.pieces
    for span in np.unique(pieces.span).tolist():
        start, end, nbytes = (
            column[pieces.span == span] for column in (pieces.start_s, pieces.end_s, pieces.nbytes)
        )
        assert len(start) > 1
        assert (start[0], end[-1]) == (spans.start_s[span], spans.end_s[span])
        np.testing.assert_array_equal(start[1:], end[:-1])
        assert (nbytes >= 0).all()
        assert nbytes.sum() == pytest.approx(spans.nbytes[span], rel=1e-9)


@given(any_case, syncs)
def test_nothing_starts_before_its_causes(case, sync):
    trace = _run(case, sync=sync).trace
    spans, send = trace.spans, _transfers(trace)
    src, dst, step, chunk = (c[send] for c in (spans.rank, spans.peer, spans.step, spans.chunk))
    start, left = spans.start_s[send], spans.end_s[send]
    arrived = spans.end_s[send + 1]
    slack_s = 1e-12 * trace.time_s
    width = spans.width[send]
    for add in np.flatnonzero(spans.lane == Lane.COMPUTE):  # what arrives is there once added
        columns = (spans.step, spans.rank, spans.peer, spans.chunk)
        same = np.all([c[send + 1] == c[add] for c in columns], axis=0) & (
            spans.nbytes[send] == spans.nbytes[add]
        )
        if same.sum() == 1:  # a schedule may repeat a row
            arrived[same] = spans.end_s[add]
    for i in range(len(send)):
        before = step < step[i]
        # What leaves has been complete: all that was written into its cells earlier has arrived.
        overlap = (chunk < chunk[i] + width[i]) & (chunk[i] < chunk + width)
        data = before & (dst == src[i]) & overlap
        assert (arrived[data] <= start[i] + slack_s).all()
        if sync == "rank":  # both ends are through with their earlier steps
            for rank in (src[i], dst[i]):
                assert (left[before & (src == rank)] <= start[i] + slack_s).all()
                assert (arrived[before & (dst == rank)] <= start[i] + slack_s).all()
        if sync == "barrier":
            assert (arrived[before] <= start[i] + slack_s).all()


@given(any_case, syncs)
def test_the_lower_bound_holds(case, sync):
    run = _run(case, sync=sync)
    assert run.trace.time_s >= run.lower_bound_s * (1 - 1e-9)


def test_a_run_that_beats_the_bound_is_a_defect():
    # One message is no all-reduce, though it says so.
    schedule = parse_schedule("0: 0->1 c0 add", name="short", n=2, chunks=1)
    simulate(schedule, uniform(2, 1e9), 250)
    long = parse_schedule("0: 0->1 c0 add\n0: 2->1 c1 add", name="long", n=3, chunks=2)
    with pytest.raises(AssertionError, match="beats the bound"):
        simulate(long, uniform(3, 1e9), 250)


@given(any_case, syncs)
def test_totals_are_those_of_the_whole_trace(case, sync):
    whole, totals = _run(case, sync=sync), _run(case, sync=sync, keep="totals")
    assert len(totals.trace.spans) == len(totals.trace.pieces) == 0
    assert totals.trace.time_s == whole.trace.time_s
    assert totals.trace.sent_bytes.tolist() == whole.trace.sent_bytes.tolist()
    assert totals.busiest_link == whole.busiest_link
    assert (totals.transfers, totals.events) == (whole.transfers, whole.events)


@given(any_case, syncs)
def test_the_busiest_link_is_the_one_that_carries_most_for_its_capacity(case, sync):
    run = _run(case, sync=sync)
    name, busy = run.busiest_link
    assert 0 <= busy <= 1
    if run.transfers:
        full = capacities(case.cluster)
        carried = dict(zip(run.network.names, run.link_bytes.tolist(), strict=True))
        busy_s = {link: carried[link] / rate for link, rate in full.items()}
        assert busy_s[name] == pytest.approx(max(busy_s.values()), rel=1e-9)
        assert busy == pytest.approx(busy_s[name] / run.trace.time_s, rel=1e-9)
        of_all = dict(zip(run.network.names, run.link_busy.tolist(), strict=True))
        wanted = {link: s / run.trace.time_s for link, s in busy_s.items()}
        assert {link: of_all[link] for link in full} == pytest.approx(wanted, rel=1e-9)
        assert of_all["free"] == 0.0


# Algorithms in which no two messages meet on a link of one switch: there nothing can get worse.
APART = [name for name in NAMES if name not in MEET]
apart = algorithms(among=APART)


@given(st.data(), apart, st.sampled_from(["rank", "barrier"]))
def test_more_bandwidth_is_never_slower(data, schedule, sync):
    n = schedule.n
    cluster = data.draw(clusters(n))
    faster = [data.draw(st.sampled_from([1.0, 1.5, 10.0])) for _ in range(2 * n)]
    ports = tuple(
        Port(port.send_bytes_per_s * up, port.receive_bytes_per_s * down)
        for port, up, down in zip(cluster.ports, faster[:n], faster[n:], strict=True)
    )
    elements = data.draw(st.integers(0, 10**6))
    slow_s = simulate(schedule, cluster, elements, sync=sync).trace.time_s
    better = Cluster("better", ports, cluster.latency_s)
    plain = Cluster("plain", cluster.ports, cluster.latency_s)
    plain_s, better_s = (
        simulate(schedule, c, elements, sync=sync).trace.time_s for c in (plain, better)
    )
    assert better_s <= plain_s * (1 + 1e-9)
    assert plain_s <= slow_s * (1 + 1e-9)  # launches and frames only ever cost


@given(st.data(), algorithms(), st.floats(1.0, 100.0), syncs)
def test_a_cluster_that_is_faster_everywhere_is_as_much_faster(data, schedule, factor, sync):
    cluster = data.draw(clusters(schedule.n, launch=False))
    cluster = replace(cluster, latency_s=0.0, latency_by_size=())
    ports = tuple(
        Port(p.send_bytes_per_s * factor, p.receive_bytes_per_s * factor) for p in cluster.ports
    )
    elements = data.draw(st.integers(0, 10**6))
    slow_s, fast_s = (
        simulate(schedule, c, elements, sync=sync).trace.time_s
        for c in (cluster, replace(cluster, ports=ports))
    )
    assert fast_s * factor == pytest.approx(slow_s, rel=1e-9)


def test_starting_later_can_be_faster_where_a_port_is_shared():
    """No fault: with GPU 1 later, no slow sender is left alone with the server at the end.

    Rank 0 takes in 1 MB/s, ranks 1 and 3 give 0.5 MB/s, rank 2 gives 2 MB/s.
    """
    slow, fast = Port(0.5e6, 1e6), Port(2e6, 4e6)
    cluster = Cluster("mixed", (slow, slow, fast, slow))
    schedule = build_schedule("ps", 4)
    earlier_s, later_s = (
        simulate(schedule, cluster, 250_000, starts_s=starts).trace.time_s
        for starts in ([0.5, 1.0, 1.0, 2.0], [0.5, 2.0, 1.0, 2.0])
    )
    assert (earlier_s, later_s) == pytest.approx((10.5, 10.0))


@given(algorithm_cases(plain=True), st.data(), st.sampled_from(["rank", "barrier"]))
def test_starting_later_is_never_faster_nor_costs_more_than_the_delay(case, data, sync):
    # Where messages share a port it can be: staggered workers leave a slow one more of it.
    assume(case.schedule.name in APART)
    late_s = data.draw(st.floats(0, 1.0))
    rank = data.draw(st.integers(0, case.schedule.n - 1))
    starts = list(case.starts_s)
    starts[rank] += late_s
    before_s = _run(case, sync=sync).trace.time_s
    after_s = _run(case, sync=sync, starts_s=starts).trace.time_s
    assert before_s * (1 - 1e-9) <= after_s <= (before_s + late_s) * (1 + 1e-9)


# Progress.


class Stop(Exception):
    """Somebody pressed cancel."""


def _always(monkeypatch):
    """As if every report came a second after the last."""
    clock = iter(range(10**9))
    monkeypatch.setattr("simcore.engine.time.perf_counter", lambda: float(next(clock)))


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("solver", ["auto", "events"])
@pytest.mark.parametrize("name", ["ring", "ps", "double-tree", "hierarchical"])
def test_progress_goes_from_none_to_all(monkeypatch, name, solver, sync):
    _always(monkeypatch)
    heard: list[float] = []
    schedule = build_schedule(name, 8)
    how = {"sync": sync, "solver": solver, "starts_s": [1e-3 * r for r in range(8)]}
    run = simulate(schedule, uniform(8, 1e6), 1000, progress=heard.append, **how)
    assert run.trace.to_json() == simulate(schedule, uniform(8, 1e6), 1000, **how).trace.to_json()
    assert len(heard) >= schedule.n_steps
    assert heard == sorted(heard)
    assert 0 <= heard[0] <= 1 / schedule.n_steps
    assert (schedule.n_steps - 1) / schedule.n_steps <= heard[-1] <= 1


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("solver", ["auto", "events"])
def test_what_progress_raises_ends_the_run(monkeypatch, solver, sync):
    _always(monkeypatch)
    heard: list[float] = []

    def cancel(done: float) -> None:
        heard.append(done)
        if len(heard) == 3:
            raise Stop

    with pytest.raises(Stop):
        simulate(
            build_schedule("ring", 8),
            uniform(8, 1e6),
            1001,
            sync=sync,
            solver=solver,
            progress=cancel,
        )
    assert len(heard) == 3


def test_progress_is_seldom_heard_of():
    heard: list[float] = []
    simulate(build_schedule("ring", 64), uniform(64, 1e6), 64, progress=heard.append)
    assert len(heard) <= 2  # a tenth of a second apart, whatever the number of steps
