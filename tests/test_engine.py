"""Laws of simulated runs, whatever the schedule: times, bytes, capacities, causes."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simcore import Cluster, Port, build_schedule, chunk_sizes, simulate, uniform
from simcore.schedule import parse_schedule
from simcore.trace import Lane
from tests.strategies import (
    NAMES,
    Case,
    algorithm_cases,
    clusters,
    contended_cases,
    names,
    quiet_cases,
)

SYNCS = ["rank", "dataflow", "barrier"]
syncs = st.sampled_from(SYNCS)
any_case = st.one_of(contended_cases(), algorithm_cases())


def _run(case: Case, **how):
    how = {"starts_s": case.starts_s, "slow_links": case.slow_links} | how
    return simulate(case.schedule, case.cluster, case.elements, **how)


def _transfers(trace):
    """Rows of the spans that send; the next row receives."""
    return np.arange(0, len(trace.spans), 2)


@settings(max_examples=150)
@given(st.one_of(algorithm_cases(), quiet_cases()), st.sampled_from(["rank", "barrier"]))
def test_both_solvers_agree(case, sync):
    fast = _run(case, sync=sync)
    assert fast.solver == "recurrence" or case.schedule.name == "ps"
    general = _run(case, sync=sync, solver="events")
    assert general.solver == "events"
    assert fast.trace.time_s == pytest.approx(general.trace.time_s, rel=1e-9)
    assert (fast.transfers, fast.steps) == (general.transfers, general.steps)
    assert fast.link_bytes.tolist() == general.link_bytes.tolist()
    for column in ("rank", "lane", "step", "peer", "chunk", "op", "nbytes"):
        values = (getattr(run.trace.spans, column).tolist() for run in (fast, general))
        assert len(set(map(tuple, values))) == 1, column
    for column in ("start_s", "end_s"):
        values = (getattr(run.trace.spans, column) for run in (fast, general))
        np.testing.assert_allclose(*values, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_recurrence_serves_what_cannot_meet_on_a_port(name):
    run = simulate(build_schedule(name, 5), uniform(5, 1e9), 1000, starts_s=[0, 3, 1, 4, 2])
    assert run.solver == ("events" if name == "ps" else "recurrence")


@given(any_case, syncs)
def test_bytes_are_those_of_the_schedule(case, sync):
    trace = _run(case, sync=sync).trace
    nbytes = (4 * chunk_sizes(case.elements, case.schedule.chunks)).tolist()
    sent, received = [0] * trace.n, [0] * trace.n
    for t in case.schedule:
        sent[t.src] += nbytes[t.chunk]
        received[t.dst] += nbytes[t.chunk]
    assert trace.sent_bytes.tolist() == sent
    assert trace.received_bytes.tolist() == received
    assert len(trace.spans) == 2 * sum(nbytes[t.chunk] > 0 for t in case.schedule)


@given(any_case, syncs)
def test_a_receive_is_its_send_a_latency_later_and_all_lies_within_the_run(case, sync):
    trace = _run(case, sync=sync).trace
    spans, send = trace.spans, _transfers(trace)
    assert (spans.lane[send] == Lane.SEND).all()
    assert (spans.lane[send + 1] == Lane.RECEIVE).all()
    assert (spans.rank[send] == spans.peer[send + 1]).all()
    assert (spans.peer[send] == spans.rank[send + 1]).all()
    np.testing.assert_array_equal(
        spans.start_s[send + 1], spans.start_s[send] + case.cluster.latency_s
    )
    np.testing.assert_array_equal(spans.end_s[send + 1], spans.end_s[send] + case.cluster.latency_s)
    started_s = np.array(case.starts_s) + case.cluster.launch_per_collective_s
    assert (spans.start_s >= started_s[spans.rank]).all()
    assert (spans.end_s >= spans.start_s).all()
    assert trace.time_s == max(spans.end_s.max(initial=0.0), started_s.max())


@given(any_case, syncs)
def test_no_link_is_ever_above_its_capacity(case, sync):
    run = _run(case, sync=sync)
    trace, network = run.trace, run.network
    rows = trace.constant_rate_rows()
    rank, peer, lane = (
        c[rows.span] for c in (trace.spans.rank, trace.spans.peer, trace.spans.lane)
    )
    ports = [np.where(lane == Lane.SEND, rank, trace.n + rank)]
    for slow in case.slow_links:
        on_pair = (lane == Lane.SEND) & (rank == slow.src) & (peer == slow.dst)
        ports.append(np.where(on_pair, network.pair_link[slow.src, slow.dst], -1))
    for carried in ports:
        for link in np.unique(carried[carried >= 0]).tolist():
            _check_capacity(rows, carried == link, _capacity(run, case, link), trace.time_s)


def _capacity(run, case, link):
    return run.network.changes[0][2] if link >= 2 * case.cluster.n else run.network.capacity[link]


def _check_capacity(rows, on_link, bytes_per_s, time_s):
    """In no interval between two changes more bytes than fit; to the last bit of the clock."""
    start, end, nbytes = rows.start_s[on_link], rows.end_s[on_link], rows.nbytes[on_link]
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
    for i in range(len(send)):
        before = step < step[i]
        # What leaves has been complete: all that was written into the cell earlier has arrived.
        data = before & (dst == src[i]) & (chunk == chunk[i])
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
    if run.trace.time_s:
        ports = dict(zip(run.network.names, run.link_bytes / run.network.capacity, strict=True))
        ports = {link: s for link, s in ports.items() if link.endswith((".tx", ".rx"))}
        assert ports[name] == pytest.approx(max(ports.values()), rel=1e-12)
        assert busy == pytest.approx(ports[name] / run.trace.time_s, rel=1e-9)


@given(st.data(), names, st.integers(1, 12), st.sampled_from(["rank", "barrier"]))
def test_more_bandwidth_is_never_slower(data, name, n, sync):
    cluster = data.draw(clusters(n))
    faster = [data.draw(st.sampled_from([1.0, 1.5, 10.0])) for _ in range(2 * n)]
    ports = tuple(
        Port(port.send_bytes_per_s * up, port.receive_bytes_per_s * down)
        for port, up, down in zip(cluster.ports, faster[:n], faster[n:], strict=True)
    )
    schedule, elements = build_schedule(name, n), data.draw(st.integers(0, 10**6))
    slow_s = simulate(schedule, cluster, elements, sync=sync).trace.time_s
    better = Cluster("better", ports, cluster.latency_s)
    plain = Cluster("plain", cluster.ports, cluster.latency_s)
    plain_s, better_s = (
        simulate(schedule, c, elements, sync=sync).trace.time_s for c in (plain, better)
    )
    assert better_s <= plain_s * (1 + 1e-9)
    assert plain_s <= slow_s * (1 + 1e-9)  # launches and frames only ever cost


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


@given(algorithm_cases(), st.data(), st.sampled_from(["rank", "barrier"]))
def test_starting_later_is_never_faster_nor_costs_more_than_the_delay(case, data, sync):
    # Where messages share a port it can be: staggered workers leave a slow one more of it.
    assume(case.schedule.name != "ps")
    late_s = data.draw(st.floats(0, 1.0))
    rank = data.draw(st.integers(0, case.schedule.n - 1))
    starts = list(case.starts_s)
    starts[rank] += late_s
    before_s = _run(case, sync=sync).trace.time_s
    after_s = _run(case, sync=sync, starts_s=starts).trace.time_s
    assert before_s * (1 - 1e-9) <= after_s <= (before_s + late_s) * (1 + 1e-9)
