"""Why it took so long: the path adds up to the run, and who waited is who did nothing."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import Level, Slowdown, build_schedule, simulate, uniform
from simcore.explain import critical_path, idle_s
from simcore.trace import Lane
from tests.strategies import algorithm_cases, contended_cases, often, quiet_cases

any_case = st.one_of(algorithm_cases(max_n=8), contended_cases(), quiet_cases())
KINDS = {"start", "launch", "transfer", "latency", "add"}


def _trace(case, sync):
    how = {"starts_s": case.starts_s, "slowdowns": case.slowdowns, "sync": sync}
    return simulate(case.schedule, case.cluster, case.elements, **how).trace


@often(3)
@given(any_case, st.sampled_from(["rank", "dataflow"]))
def test_the_path_s_segments_follow_each_other_from_0_to_the_end(case, sync):
    trace = _trace(case, sync)
    path = critical_path(trace)
    if not trace.time_s:
        assert path == []
        return
    slack_s = 1e-8 * trace.time_s  # segments of no length are left out
    assert path[0].start_s == pytest.approx(0.0, abs=slack_s)
    assert path[-1].end_s == pytest.approx(trace.time_s, abs=slack_s)
    for before, after in pairwise(path):
        assert after.start_s == pytest.approx(before.end_s, abs=slack_s)
    assert sum(part.duration_s for part in path) == pytest.approx(trace.time_s, rel=1e-7)
    assert {part.kind for part in path} <= KINDS
    assert all(part.duration_s > 0 for part in path)


@given(any_case, st.sampled_from(["rank", "dataflow"]))
def test_a_segment_is_what_it_says(case, sync):
    trace = _trace(case, sync)
    spans, slack_s = trace.spans, 1e-8 * trace.time_s
    labels = [spans.label(row) for row in range(len(spans))]
    lanes = {"transfer": Lane.SEND, "latency": Lane.RECEIVE, "add": Lane.COMPUTE}
    for part in critical_path(trace):
        if part.kind in ("start", "launch"):
            assert part.peer == -1
            continue
        # The span that ends when the segment does.
        rows = [
            row
            for row in range(len(spans))
            if labels[row] == part.label
            and spans.lane[row] == lanes[part.kind]
            and abs(spans.end_s[row] - part.end_s) <= slack_s
        ]
        assert rows, part
        ends = spans.rank[rows[0]], spans.peer[rows[0]]
        if part.kind == "add":
            assert (part.rank, part.peer) == (ends[0], -1)
        else:
            assert (part.rank, part.peer) == tuple(ends if part.kind == "transfer" else ends[::-1])
        if part.kind != "latency":
            assert any(abs(spans.start_s[row] - part.start_s) <= slack_s for row in rows)


@given(any_case, st.sampled_from(["rank", "dataflow", "barrier"]))
def test_a_rank_idles_when_it_does_nothing(case, sync):
    trace = _trace(case, sync)
    for rank, idle in enumerate(idle_s(trace).tolist()):
        mine = np.flatnonzero(trace.spans.rank == rank)
        spans = sorted(zip(trace.spans.start_s[mine], trace.spans.end_s[mine], strict=True))
        waited_s, busy_until_s = 0.0, 0.0
        for start_s, end_s in spans:
            waited_s += max(0.0, start_s - busy_until_s)
            busy_until_s = max(busy_until_s, end_s)
        waited_s += trace.time_s - busy_until_s
        assert idle == pytest.approx(waited_s, abs=1e-9 * trace.time_s)


def _parts(run):
    return [
        (part.kind, part.rank, part.peer, part.label, part.start_s, part.end_s)
        for part in critical_path(run.trace)
    ]


def test_a_launch_a_transfer_its_latency_and_its_addition_by_hand():
    cluster = uniform(
        2, 100.0, latency_s=0.5, launch_per_message_s=0.25, reduce_s_per_byte=1 / 200.0
    )
    run = simulate(build_schedule("dp", 2), cluster, 25, starts_s=[0.0, 2.0])
    assert _parts(run) == [
        ("start", 1, -1, "0: 1->0 c0 add", 0.0, 2.25),  # a late rank, and what it launches first
        ("transfer", 1, 0, "0: 1->0 c0 add", 2.25, 3.25),
        ("latency", 1, 0, "0: 1->0 c0 add", 3.25, 3.75),
        ("add", 0, -1, "0: 1->0 c0 add", 3.75, 4.25),
        ("launch", 0, -1, "1: 0->1 c0 copy", 4.25, 4.5),
        ("transfer", 0, 1, "1: 0->1 c0 copy", 4.5, 5.5),
        ("latency", 0, 1, "1: 0->1 c0 copy", 5.5, 6.0),
    ]
    assert idle_s(run.trace).tolist() == pytest.approx(
        [
            2.75 + 0.25 + 0.5,
            2.25 + (5.0 - 3.25),
        ]  # rank 1 receives from 5 s on, as the first bytes come
    )


def test_additions_that_queue_are_on_the_path_one_after_another():
    # Both pushes arrive at 2 s and take 1 s each to be added; then two pulls of 2 s.
    cluster = uniform(3, 100.0, reduce_s_per_byte=0.01)
    run = simulate(build_schedule("ps", 3), cluster, 25)
    kinds = [(part.kind, part.start_s, part.end_s) for part in critical_path(run.trace)]
    assert kinds == [
        ("transfer", 0.0, 2.0),
        ("add", 2.0, 3.0),
        ("add", 3.0, 4.0),
        ("transfer", 4.0, 6.0),
    ]


def test_a_slow_uplink_is_on_the_path():
    node = Level("node", (0, 0, 1, 1), uplink_bytes_per_s=100.0, latency_s=0.0)
    cluster = uniform(4, 100.0, latency_s=0.125, levels=(node,))
    slow = [Slowdown("node0.up", 0.5)]
    run = simulate(build_schedule("ring", 4), cluster, 100, slowdowns=slow)
    by_pair = {}
    for part in critical_path(run.trace):
        by_pair.setdefault((part.rank, part.peer), []).append(part)
    assert max(by_pair, key=lambda pair: sum(p.duration_s for p in by_pair[pair])) == (1, 2)


def test_a_run_of_nothing_has_no_path_and_a_late_one_only_its_start():
    empty = simulate(build_schedule("ring", 3), uniform(3, 100.0), 0)
    assert critical_path(empty.trace) == []
    assert idle_s(empty.trace).tolist() == [0.0] * 3
    late = simulate(build_schedule("ring", 3), uniform(3, 100.0), 0, starts_s=[0.0, 7.0, 0.0])
    assert _parts(late) == [("start", 0, -1, "", 0.0, 7.0)]
    assert idle_s(late.trace).tolist() == [7.0] * 3
