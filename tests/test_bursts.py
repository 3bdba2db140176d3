"""Links that let a burst pass after idling: by hand, by two solvers, and what no burst exceeds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import (
    Op,
    Slowdown,
    Transfer,
    build_schedule,
    closed_form,
    lower_bound_s,
    simulate,
    uniform,
)
from simcore.cluster_file import cluster_from_dict
from simcore.schedule import Collective, schedule_of
from simcore.solvers.bursts import PEAK
from simcore.trace import Lane
from simcore.training.perform import perform
from simcore.training.plan import Plan, collective
from tests.naive import capacities, route
from tests.strategies import algorithm_cases, contended_cases, quiet_cases

bursts = st.one_of(st.floats(1.0, 1e3), st.floats(1e3, 1e9))


def _messages(*rows, n=3):
    """Copies of the whole buffer as (step, src, dst)."""
    return schedule_of(
        [Transfer(*row, 0, Op.COPY) for row in rows],
        name="messages",
        n=n,
        chunks=1,
        collective=Collective.POINT_TO_POINT,
        owner=(0,),
    )


def _time_s(rows, nbytes, *, solver="auto", starts_s=None, slow=(), **settings):
    cluster = uniform(3, 100.0, **settings)
    how = {"solver": solver, "starts_s": starts_s, "slowdowns": slow}
    return simulate(_messages(*rows), cluster, nbytes, 1, **how).trace.time_s


solvers = pytest.mark.parametrize("solver", ["auto", "events"])


@solvers
@pytest.mark.parametrize(
    ("rows", "nbytes", "time_s"),
    [
        ([(0, 0, 1)], 100, 0.5),  # 50 bytes at once, 50 at 100 bytes/s
        ([(0, 0, 1)], 30, 30 / 100 / PEAK),
        ([(0, 0, 1), (1, 0, 1)], 100, 1.5),  # once for both
        ([(0, 0, 1), (1, 1, 2)], 100, 1.0),  # every port has a bucket of its own
        ([(0, 0, 1), (1, 1, 0)], 100, 1.0),  # and for each direction
        ([(0, 0, 1), (1, 0, 2)], 100, 1.5),  # the sender's is empty
        ([(0, 0, 1), (0, 0, 2)], 100, 1.5),  # whichever of them gets it
    ],
)
def test_by_hand(rows, nbytes, time_s, solver):
    assert _time_s(rows, nbytes, burst_bytes=50, solver=solver) == pytest.approx(time_s, rel=1e-9)


@solvers
def test_a_pause_fills_the_bucket_and_so_hides_itself(solver):
    """Three messages in a row with pauses of 0.2 s, which the burst makes up for, and of 0.8 s."""
    rows = [(0, 0, 1), (1, 0, 1), (2, 0, 1)]
    for latency_s, time_s in ((0.2, 0.5 + 1 + 1 + 0.2), (0.8, 3 * (0.5 + 0.8))):
        got = _time_s(rows, 100, burst_bytes=50, latency_s=latency_s, solver=solver)
        assert got == pytest.approx(time_s, rel=1e-9)


@solvers
def test_frames_are_counted_in_a_burst(solver):
    got = _time_s([(0, 0, 1)], 100, burst_bytes=50, wire_time_per_payload_byte=1.25, solver=solver)
    assert got == pytest.approx((125 - 50) / 100, rel=1e-9)


def test_a_link_that_slows_down_fills_its_bucket_more_slowly():
    """Empty at 0.5 s; half the rate from then on; 0.25 s of idling are 12.5 bytes."""
    slow = (Slowdown("gpu0.tx", 0.5, 0.5),)
    got = _time_s([(0, 0, 1), (1, 0, 1)], 100, burst_bytes=50, latency_s=0.25, slow=slow)
    assert got == pytest.approx(0.75 + (100 - 12.5) / 50 + 0.25, rel=1e-9)


@given(
    st.one_of(algorithm_cases(max_n=5), algorithm_cases(max_n=5, plain=True), quiet_cases()), bursts
)
def test_both_solvers_agree(case, burst_bytes):
    cluster = replace(case.cluster, burst_bytes=burst_bytes)
    runs = [
        simulate(case.schedule, cluster, case.elements, starts_s=case.starts_s, solver=solver)
        for solver in ("auto", "events")
    ]
    assert runs[0].trace.time_s == pytest.approx(runs[1].trace.time_s, rel=1e-9)
    for column in ("start_s", "end_s"):
        values = (getattr(run.trace.spans, column) for run in runs)
        np.testing.assert_allclose(*values, rtol=1e-9, atol=1e-12 * runs[0].trace.time_s)


@given(contended_cases(slow=False), bursts, st.sampled_from(["rank", "dataflow"]))
def test_no_link_passes_more_than_its_bucket_and_its_rate(case, burst_bytes, sync):
    """In any window between two moments at which a rate changes."""
    cluster = replace(case.cluster, burst_bytes=burst_bytes)
    how = {"starts_s": case.starts_s, "sync": sync, "solver": "events"}
    trace = simulate(case.schedule, cluster, case.elements, **how).trace
    rows = trace.constant_rate_rows()
    sends = np.flatnonzero(trace.spans.lane[rows.span] == Lane.SEND)
    span, start, end, nbytes = (
        c[sends] for c in (rows.span, rows.start_s, rows.end_s, rows.nbytes)
    )
    pairs = zip(trace.spans.rank[span].tolist(), trace.spans.peer[span].tolist(), strict=True)
    ways = [route(cluster, *pair) for pair in pairs]
    bucket = burst_bytes / cluster.wire_time_per_payload_byte
    for link, bytes_per_s in capacities(cluster).items():
        on = np.array([link in way for way in ways], bool)
        moments = np.unique([start[on], end[on]])
        share = np.clip(
            (moments[:, None] - start[on]) / np.maximum(end[on] - start[on], 1e-300), 0, 1
        )
        carried = (share * nbytes[on]).sum(axis=1) - bytes_per_s * moments
        # The most above the rate since any earlier moment.
        above = carried - np.minimum.accumulate(carried)
        slack = 1e-9 * (bucket + nbytes.sum() + bytes_per_s * trace.time_s)
        assert above.max(initial=0.0) <= bucket + slack


def test_a_burst_is_no_plain_cluster_and_lowers_the_bound():
    cluster = uniform(4, 100.0, burst_bytes=50)
    assert not cluster.is_plain
    assert closed_form("ring", cluster, 100) is None
    assert lower_bound_s(Collective.ALL_REDUCE, cluster, 400) == 6.0 - 0.5
    assert lower_bound_s(Collective.ALL_REDUCE, cluster, 4) == 0.0


def test_thousands_of_ranks_who_are_level():
    n = 2100
    run = simulate(build_schedule("ring-all-gather", n), uniform(n, 100.0, burst_bytes=2), n)
    assert run.trace.time_s == pytest.approx((n - 1) * 0.04 - 0.02, rel=1e-9)


def test_a_plan_goes_to_the_solver_that_knows_bursts():
    plan = Plan("step", 2, (collective("sync", "ring", 2, 50),))
    cluster = uniform(2, 100.0, burst_bytes=50)
    run = perform(plan, cluster)
    assert (run.solver, run.time_s) == ("events", pytest.approx(2 * 1.0 - 0.5))
    with pytest.raises(ValueError, match="solver 'serial' knows no bursts; accepted: 'auto'"):
        perform(plan, cluster, solver="serial")


def test_a_file_has_it_in_bytes():
    cluster = cluster_from_dict({"bandwidth": "1MB/s", "burst": "32KiB"}, 2)
    assert cluster.burst_bytes == 32768
    with pytest.raises(ValueError, match="field 'burst': size '32' has no unit") as caught:
        cluster_from_dict({"bandwidth": "1MB/s", "burst": "32"}, 2)
    assert str(caught.value).endswith(
        "accepted: a size: what every link lets pass at once after idling"
    )


def test_a_burst_is_at_least_nothing():
    with pytest.raises(ValueError, match="burst_bytes must be finite and >= 0, got -1"):
        uniform(2, 1.0, burst_bytes=-1)
