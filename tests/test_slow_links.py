"""Slow and cut pairs, late ranks and launch costs, each worked out by hand.

A buffer of 100 bytes over ports of 100 bytes/s: a second for each transfer that has its ports
to itself.
"""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import (
    Collective,
    Level,
    SimulationError,
    Slowdown,
    build_schedule,
    parse_schedule,
    simulate,
    uniform,
)
from simcore.__main__ import main
from simcore.trace import Lane
from tests.strategies import algorithm_cases, contended_cases

ELEMENTS = 25


def _time_s(name, n, *slowdowns, latency_s=0.0, **how):
    cluster = uniform(n, 100.0, latency_s=latency_s)
    schedule = build_schedule(name, n)
    return simulate(schedule, cluster, ELEMENTS, slowdowns=slowdowns, **how).trace.time_s


@pytest.mark.parametrize(
    ("slow", "time_s"),
    [
        (Slowdown("1->0", 1.0), 2.0),
        (Slowdown("1->0", 0.5), 3.0),
        (Slowdown("0->1", 0.5), 3.0),
        (Slowdown("1->0", 0.1), 11.0),
        (Slowdown("1->0", 0.5, 0.25, 0.75), 2.25),  # 25 bytes, 25 at half the rate, 50
        (Slowdown("1->0", 0.5, 0.5), 2.5),  # 50 bytes, then 50 at half the rate
        (Slowdown("1->0", 0.5, 0.0, 0.5), 2.25),
        (Slowdown("1->0", 0.5, 1.5, 9.0), 2.0),  # over before it begins
        (Slowdown("0->1", 0.0, 0.0, 0.5), 2.0),  # back before it is needed
        (Slowdown("1->0", 0.0, 0.25, 0.75), 2.5),  # cut for half a second
        (Slowdown("1->0", 0.0, 0.0, 3.0), 5.0),  # cut from the start
        (Slowdown("0->1", 0.0, 1.0, 1.5), 2.5),  # cut in the instant in which it is needed
        (Slowdown("1->0", 0.0, 1.0), 2.0),  # cut in the instant in which it is done
    ],
)
def test_there_and_back(slow, time_s):
    assert _time_s("dp", 2, slow) == pytest.approx(time_s, rel=1e-12)


def test_two_windows_on_two_pairs():
    slow = Slowdown("1->0", 0.5, 0.0, 1.0), Slowdown("0->1", 0.25, 2.0, 4.0)
    # There: 50 + 50 bytes, 1.5 s. Back: 50 by 2 s, 50 by 4 s at a quarter of the rate.
    assert _time_s("dp", 2, *slow) == pytest.approx(4.0, rel=1e-12)


def test_what_a_slow_pair_leaves_goes_to_the_others():
    # Push: 25 and 75 bytes/s until 4/3 s, then the slow one goes on alone at 25. Pull: 2 s.
    slow = Slowdown("1->0", 0.25)
    assert _time_s("ps", 3, slow) == pytest.approx(6.0, rel=1e-12)
    run = simulate(build_schedule("ps", 3), uniform(3, 100.0), ELEMENTS, slowdowns=[slow])
    left_s = dict(zip(run.trace.spans.rank.tolist(), run.trace.spans.end_s, strict=True))
    assert run.trace.spans.end_s[2] == pytest.approx(4 / 3)  # rank 2's push
    assert left_s[1] == pytest.approx(6.0)


def test_a_slow_pair_holds_up_a_whole_ring():
    # Chunks of 40 bytes; one of them crosses the slow pair in every step, and all wait for it.
    even = uniform(3, 100.0)
    ring = build_schedule("ring", 3)
    fast_s = simulate(ring, even, 30).trace.time_s
    slow_s = simulate(ring, even, 30, slowdowns=[Slowdown("0->1", 0.5)]).trace.time_s
    assert fast_s == pytest.approx(4 * 0.4)
    assert slow_s == pytest.approx(4 * 0.8)


@pytest.mark.parametrize("sync", ["rank", "dataflow", "barrier"])
def test_a_link_that_nobody_uses_may_be_cut(sync):
    cut = Slowdown("1->2", 0.0)
    assert _time_s("ps", 3, cut, sync=sync) == _time_s("ps", 3, sync=sync) == 4.0


@pytest.mark.parametrize("sync", ["rank", "dataflow", "barrier"])
def test_a_link_cut_for_good_ends_the_run(sync):
    with pytest.raises(SimulationError) as error:
        _time_s("dp", 2, Slowdown("1->0", 0.0, 0.25), sync=sync)
    assert str(error.value) == (
        "the run never ends: at 0.25 s step 0 waits for 1->0, "
        "a link that is cut and does not come back"
    )


def test_a_cut_is_a_piece_without_bytes():
    slow = Slowdown("1->0", 0.0, 0.25, 0.75)
    trace = simulate(build_schedule("dp", 2), uniform(2, 100.0), ELEMENTS, slowdowns=[slow]).trace
    pieces = [
        (start, end, nbytes)
        for span, start, end, nbytes in zip(
            *(trace.pieces.span, trace.pieces.start_s, trace.pieces.end_s, trace.pieces.nbytes),
            strict=True,
        )
        if span == 0
    ]
    assert pieces == [(0.0, 0.25, 25.0), (0.25, 0.75, 0.0), (0.75, 1.5, 75.0)]
    assert trace.bytes_at(0.5)[0].tolist() == [0.0, 25.0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("0->1", -0.5), "slow link factor must be from 0 to 1, got -0.5"),
        (("0->1", 1.5), "slow link factor must be from 0 to 1, got 1.5"),
        (("gpu0", 101.0), "slow link factor must be from 0 to 100, got 101.0"),
        (("gpu0->gpu1", 1.5), "slow link factor must be from 0 to 1, got 1.5"),
        (("0->1", math.nan), "slow link factor must be from 0 to 1, got nan"),
        (("0->1", 0.5, 2.0, 1.0), "slow link times must be 0 <= T1 < T2, got 2.0 and 1.0"),
        (("0->1", 0.5, -1.0, 1.0), "slow link times must be 0 <= T1 < T2, got -1.0 and 1.0"),
        (("0->1", 0.5, math.nan, 1.0), "slow link times must be 0 <= T1 < T2, got nan and 1.0"),
        (("0->1", 0.5, math.inf), "slow link times must be 0 <= T1 < T2, got inf and inf"),
    ],
)
def test_nonsense_is_refused(arguments, complaint):
    with pytest.raises(ValueError, match="slow link") as error:
        Slowdown(*arguments)
    assert str(error.value) == complaint


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("0->2", "slow link '0->2': accepted are two ranks below 2"),
        ("0->0", "slow link '0->0': accepted are two ranks below 2"),
        ("-1->0", "unknown link '-1->0'; accepted: gpu0.tx, "),
        ("gpu2", "unknown link 'gpu2'; accepted: gpu0.tx, gpu1.tx, gpu0.rx, gpu1.rx, …, 0->1"),
        ("gpu0.xt", "unknown link 'gpu0.xt'; did you mean 'gpu0.tx'? accepted: "),
        ("free", "unknown link 'free'; "),
        ("node0.up", "unknown link 'node0.up'; "),
        ("", "unknown link ''; "),
    ],
)
def test_links_are_those_of_the_cluster(link, complaint):
    with pytest.raises(ValueError, match="accepted") as error:
        _time_s("dp", 2, Slowdown(link, 0.5))
    assert str(error.value).startswith(complaint)


# Links by name.


@pytest.mark.parametrize(
    ("slows", "time_s"),
    [
        ([("gpu1.tx", 0.5)], 3.0),
        ([("gpu1.rx", 0.5)], 3.0),
        ([("gpu0", 0.5)], 4.0),  # there by its receiving port, back by its sending one
        ([("gpu1", 0.5, 0.0, 1.0)], 2.5),
        ([("gpu1", 0.5), ("gpu1", 0.5)], 8.0),  # the same twice: a quarter
        ([("gpu1.tx", 0.5), ("gpu1", 0.5)], 6.0),  # a quarter there, half back
        ([("gpu1.tx", 0.5), ("gpu0.rx", 0.5)], 3.0),  # two links on one way: the slower counts
        ([("gpu1.tx", 0.5), ("1->0", 0.5)], 3.0),
        ([("1->0", 0.5), ("1->0", 0.5)], 5.0),
        # 1 s at a half, 0.5 s at a quarter, then a half again: 50 + 12.5 + 37.5 bytes, and back.
        ([("gpu1.tx", 0.5), ("gpu1.tx", 0.5, 1.0, 1.5)], 1.0 + 0.5 + 0.75 + 1.0),
        # Windows that overlap: 25 at a half, 12.5 at a quarter, 25 at a half, 37.5 at all.
        ([("1->0", 0.5, 0.0, 1.0), ("1->0", 0.5, 0.5, 1.5)], 1.5 + 0.375 + 1.0),
        ([("gpu1.tx", 0.0, 0.0, 1.0), ("gpu1.tx", 0.5, 0.5, 2.0)], 2.0 + 0.5 + 1.0),
        ([("gpu1", 0.0, 0.5, 1.0), ("gpu1", 0.0, 1.0, 1.5)], 3.0),  # one cut after another
        ([("gpu0.tx", 0.5, 0.0, 1.0)], 2.0),  # over when it is needed
    ],
)
def test_links_by_name_and_factors_multiply(slows, time_s):
    slowdowns = [Slowdown(*slow) for slow in slows]
    assert _time_s("dp", 2, *slowdowns) == pytest.approx(time_s, rel=1e-12)


def _nodes(**settings):
    """Two nodes of two; an uplink carries what a port does."""
    settings = {"uplink_bytes_per_s": 100.0} | settings
    return uniform(4, 100.0, levels=(Level("node", (0, 0, 1, 1), **settings),))


@pytest.mark.parametrize(
    ("link", "factor", "slow_s"),
    [
        ("node0.up", 1.0, 4.0),
        ("node0.up", 0.5, 8.0),  # every step has a message from node 0 to node 1
        ("node1.down", 0.5, 8.0),
        ("node1.up", 0.25, 16.0),
        ("node1", 0.5, 8.0),
        ("0->1", 0.25, 16.0),  # inside, where there is no uplink
        ("1->2", 0.25, 16.0),
        ("0->2", 0.25, 4.0),  # nobody goes this way
    ],
)
def test_uplinks_slow_down(link, factor, slow_s):
    # A ring of 6 steps, each a chunk of 25 bytes through every port, and one through each uplink.
    run = simulate(build_schedule("ring", 4), _nodes(), 100, 1, slowdowns=[Slowdown(link, factor)])
    assert run.trace.time_s == pytest.approx(slow_s / 4 * 6 * 0.25, rel=1e-12)
    assert run.solver == "events"


def test_a_slow_uplink_s_ports_are_free_for_others():
    # Pairwise 0->2 and 1->3 share node 0's uplink at 10 bytes/s; inside the node nothing changes.
    rows = "0: 0->2 c0 copy\n0: 1->3 c0 copy\n1: 2->3 c0 copy"
    names = {"collective": Collective.ALL_GATHER, "owner": (0,)}
    schedule = parse_schedule(rows, name="two", n=4, chunks=1, **names)
    slow = Slowdown("node0.up", 0.1, 1.0, 3.0)
    run = simulate(schedule, _nodes(), 100, 1, slowdowns=[slow])
    # 50 each by 1 s, 10 each by 3 s, then the rest of 40 each in 0.8 s.
    np.testing.assert_allclose(run.trace.spans.end_s[:4], [3.8] * 4)
    assert run.trace.time_s == pytest.approx(4.8)


# Forks: the past is kept, the future is that of a run with the change.

CHANGES = st.sampled_from(["gpu0", "gpu1.tx", "1->0", "0->1"])


@given(
    st.one_of(contended_cases(), algorithm_cases(max_n=6)),
    st.sampled_from(["rank", "dataflow", "barrier"]),
    *(CHANGES, st.floats(0.0, 1.1), st.floats(0.05, 1.0), st.one_of(st.none(), st.floats(0.01, 1))),
)
def test_a_fork_changes_nothing_before_it(case, sync, link, at, factor, lasts):
    if case.schedule.n < 2 or (case.cluster.half_duplex and ".tx" in link):
        return
    arguments = (case.schedule, case.cluster, case.elements)
    how = {"sync": sync, "starts_s": case.starts_s}
    run = simulate(*arguments, **how, slowdowns=case.slowdowns)
    at_s = at * run.trace.time_s
    until_s = math.inf if lasts is None else at_s + lasts
    change = Slowdown(link, factor, at_s, until_s)
    forked = run.fork(at_s, [change])
    again = simulate(*arguments, **how, slowdowns=[*case.slowdowns, change])
    assert forked.trace.to_json() == again.trace.to_json()
    assert forked.case.slowdowns == (*case.slowdowns, change)
    slack_s = 1e-9 * max(run.trace.time_s, at_s)
    for moment_s in np.linspace(0.0, min(at_s, run.trace.time_s), 5):
        for before, after in zip(
            run.trace.bytes_at(moment_s), forked.trace.bytes_at(moment_s), strict=True
        ):
            total = run.trace.sent_bytes.max()
            # What moves at once in a moment of rounding is bytes per second times that moment.
            np.testing.assert_allclose(before, after, rtol=1e-9, atol=1e-6 * total)
    spans, future = _spans(run.trace), _spans(forked.trace)
    assert spans.keys() == future.keys()
    for key, (start_s, end_s) in spans.items():
        for then_s, now_s in zip((start_s, end_s), future[key], strict=True):
            if min(then_s, now_s) < at_s - slack_s:
                assert now_s == pytest.approx(then_s, rel=1e-9, abs=slack_s)


def _spans(trace):
    """Start and end of every send, which knows nothing yet of where latency leads."""
    spans = trace.spans
    rows = np.flatnonzero(spans.lane == Lane.SEND).tolist()
    seen = {}
    for row in rows:
        key = spans.label(row)
        while key in seen:  # a schedule may repeat a row
            key += " again"
        seen[key] = (float(spans.start_s[row]), float(spans.end_s[row]))
    return seen


def test_a_stalled_gpu_holds_the_run_up_and_lets_it_go():
    run = simulate(build_schedule("ring", 4), uniform(4, 100.0), 4 * ELEMENTS)
    assert run.trace.time_s == pytest.approx(6 * 1.0)
    stalled = run.fork(0.5, [Slowdown("gpu2", 0.0, 0.5, 0.75)])
    assert stalled.trace.time_s == pytest.approx(run.trace.time_s + 0.25)
    with pytest.raises(SimulationError, match="the run never ends: at 1 s step 0 waits for"):
        run.fork(0.5, [Slowdown("gpu2", 0.0, 0.5)])
    assert run.fork(99.0, [Slowdown("gpu2", 0.0, 99.0)]).trace.time_s == pytest.approx(6.0)


def test_a_fork_of_a_fork():
    run = simulate(build_schedule("dp", 2), uniform(2, 100.0), ELEMENTS)
    first = run.fork(0.5, [Slowdown("gpu1", 0.5, 0.5)])
    assert first.trace.time_s == pytest.approx(0.5 + 1.0 + 2.0)
    second = first.fork(1.5, [Slowdown("gpu1", 0.5, 1.5)])
    assert second.trace.time_s == pytest.approx(1.5 + 4.0)


def test_the_past_cannot_be_changed():
    run = simulate(build_schedule("dp", 2), uniform(2, 100.0), ELEMENTS)
    with pytest.raises(ValueError, match=r"a change at 0\.25 s is before the fork at 0\.5 s"):
        run.fork(0.5, [Slowdown("gpu1", 0.5, 0.25)])


# On the command line.

CASE = ["--gpus", "2", "--size", "100B", "--bandwidth", "100B/s", "--json"]


def test_the_command_line_says_the_same(capsys):
    assert main(["simulate", "dp", *CASE, "--slow-link", "1->0:0.5@250ms..750ms"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["time_s"] == pytest.approx(2.25)
    assert document["closed_form_s"] is None


def test_the_command_line_fails_when_a_run_does(capsys):
    assert main(["simulate", "dp", *CASE, "--slow-link", "1->0:0"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("simcore: the run never ends: at 0 s step 0 waits for 1->0")
    assert captured.err.count("\n") == 1


# Late ranks.


@pytest.mark.parametrize(
    ("name", "starts_s", "rank_s", "barrier_s"),
    [
        ("dp", [0.0, 0.0], 2.0, 2.0),
        ("dp", [3.0, 0.0], 5.0, 5.0),
        ("dp", [0.0, 3.0], 5.0, 5.0),
        ("ps", [0.0, 0.0, 0.5], 4.0, 4.5),  # rank 1 pushes alone for half a second: no time lost
        ("ps", [0.0, 0.0, 9.0], 12.0, 13.0),  # one push is over by then
        ("dp", [0.0, 9.0, 0.0], 13.0, 13.0),  # peers go in turn, so rank 2 waits too
        ("dp", [0.0, 0.0, 9.0], 12.0, 13.0),
    ],
)
def test_late_ranks(name, starts_s, rank_s, barrier_s):
    n = len(starts_s)
    assert _time_s(name, n, starts_s=starts_s) == pytest.approx(rank_s, rel=1e-12)
    assert _time_s(name, n, starts_s=starts_s, sync="barrier") == pytest.approx(barrier_s)


def test_dataflow_lets_peers_overtake():
    # dp by data alone: rank 2 need not wait for the late rank 1; pulls wait for both pushes.
    assert _time_s("dp", 3, starts_s=[0.0, 9.0, 0.0], sync="dataflow") == pytest.approx(12.0)


def test_time_runs_to_the_end_of_the_last_rank_even_one_with_nothing_to_do():
    run = simulate(build_schedule("ring", 3), uniform(3, 100.0), 0, starts_s=[0.0, 7.0, 0.0])
    assert run.trace.time_s == 7.0


# Latency and launch costs.


@pytest.mark.parametrize(
    ("name", "sync", "time_s"),
    [
        ("dp", "rank", 4 + 3 * 0.5),  # out, the next leaves when the last byte has left
        ("dp", "barrier", 4 + 4 * 0.5),
        ("ps", "rank", 4 + 2 * 0.5),
        ("ps", "dataflow", 4 + 2 * 0.5),
    ],
)
def test_latency_counts_once_for_each_wait(name, sync, time_s):
    assert _time_s(name, 3, latency_s=0.5, sync=sync) == pytest.approx(time_s, rel=1e-12)


def test_messages_are_issued_one_after_another():
    cluster = uniform(3, 100.0, launch_per_message_s=0.25)
    trace = simulate(build_schedule("ps", 3), cluster, ELEMENTS).trace
    pulls = trace.spans.step == 1
    # Both workers issue at once and share the port until 2.25 s; the server issues in turn.
    np.testing.assert_allclose(trace.spans.start_s[pulls][::2], [2.5, 2.75])
    np.testing.assert_allclose(trace.spans.end_s[pulls][::2], [4.25, 4.5])


def test_a_sender_issues_what_is_ready_later_after_what_it_is_still_issuing():
    # By data alone the message to rank 1 is ready at 0 s and the one to rank 2 at 0.1 s.
    rows = "0: 0->1 c0 copy\n0: 0->2 c0 copy"
    names = {"collective": Collective.ALL_GATHER, "owner": (0,)}
    broadcast = parse_schedule(rows, name="broadcast", n=3, chunks=1, **names)
    cluster = uniform(3, 100.0, launch_per_message_s=0.25)
    how = {"sync": "dataflow", "starts_s": [0.0, 0.0, 0.1]}
    spans = simulate(broadcast, cluster, ELEMENTS, **how).trace.spans
    np.testing.assert_allclose(spans.start_s[::2], [0.25, 0.5])
    np.testing.assert_allclose(spans.end_s[::2], [2.0, 2.25])  # they share the port from 0.5 s


def test_a_collective_is_launched_once():
    cluster = uniform(3, 100.0, launch_per_collective_s=0.25)
    assert simulate(build_schedule("ps", 3), cluster, ELEMENTS).trace.time_s == 4.25


def test_frames_take_longer_than_their_payload():
    cluster = uniform(2, 100.0, wire_time_per_payload_byte=1.25)
    run = simulate(build_schedule("dp", 2), cluster, ELEMENTS)
    assert run.trace.time_s == pytest.approx(2.5)
    assert run.trace.sent_bytes.tolist() == [100, 100]  # payload, unscaled
