"""A latency that depends on the message's size: by hand, by two solvers, by file."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import (
    Level,
    Op,
    Transfer,
    build_schedule,
    closed_form,
    lower_bound_s,
    simulate,
    uniform,
)
from simcore.__main__ import main
from simcore.cluster_file import cluster_from_dict
from simcore.explain import critical_path
from simcore.schedule import Collective, schedule_of
from simcore.solvers.network import Network
from simcore.training.perform import perform
from simcore.training.plan import Plan, collective
from tests.strategies import algorithm_cases

POINTS = ((100, 0.5), (300, 1.5))


def _messages(*rows):
    """Copies as (step, src, dst, chunk)."""
    return schedule_of(
        [Transfer(*row, Op.COPY) for row in rows],
        name="messages",
        n=1 + max(rank for row in rows for rank in row[1:3]),
        chunks=1 + max(row[3] for row in rows),
        collective=Collective.POINT_TO_POINT,
        owner=(0,) * (1 + max(row[3] for row in rows)),
    )


@pytest.mark.parametrize(
    ("nbytes", "latency_s"),
    [(4, 0.5), (100, 0.5), (200, 1.0), (300, 1.5), (4000, 1.5)],
)
@pytest.mark.parametrize("solver", ["auto", "events"])
def test_a_message_is_as_late_as_its_size_says(nbytes, latency_s, solver):
    one_way = _messages((0, 0, 1, 0))
    cluster = uniform(2, 100.0, latency_by_size=POINTS)
    run = simulate(one_way, cluster, nbytes, 1, solver=solver)
    assert run.trace.time_s == nbytes / 100 + latency_s
    assert run.trace.spans.end_s.tolist() == [nbytes / 100, nbytes / 100 + latency_s]


@pytest.mark.parametrize("solver", ["auto", "events"])
def test_messages_of_two_sizes_in_one_step(solver):
    """0 hands a chunk of 101 bytes to 1 while 2 hands one of 100 to 3, who then answers."""
    rows = ((0, 0, 1, 0), (0, 2, 3, 1), (1, 3, 2, 1))
    cluster = uniform(4, 100.0, latency_by_size=((100, 0.5), (101, 1.5)))
    spans = simulate(_messages(*rows), cluster, 201, 1, solver=solver).trace.spans
    assert spans.nbytes[1::2].tolist() == [101, 100, 100]
    assert spans.end_s[1::2].tolist() == [1.01 + 1.5, 1 + 0.5, (1 + 0.5) * 2]


def test_the_sender_is_free_when_the_last_byte_has_left_and_launching_holds_it_up():
    """0 sends 100 bytes to 1, then to 2: the latency is not in the second one's way, λ is."""
    fan_out = _messages((0, 0, 1, 0), (1, 0, 2, 0))
    cluster = uniform(3, 100.0, latency_by_size=POINTS)
    assert simulate(fan_out, cluster, 100, 1).trace.time_s == 1 + 1 + 0.5
    launching = replace(cluster, launch_per_message_s=0.25)
    assert simulate(fan_out, launching, 100, 1).trace.time_s == 0.25 + 1 + 0.25 + 1 + 0.5


def test_levels_and_pairs_keep_their_own():
    node = Level("node", (0, 0, 1, 1), latency_s=0.125)
    cluster = uniform(
        4, 100.0, latency_by_size=POINTS, levels=(node,), pair_latency_s=((0, 3, 2.0),)
    )
    ends = np.array([[0, 1], [0, 2], [0, 3], [1, 2]]).T
    late_s = Network(cluster).latencies_s(*ends, np.array([300, 200, 100, 1]))
    assert late_s.tolist() == [0.125, 1.0, 2.0, 0.5]
    assert cluster.least_latency_s == 0.125


@given(algorithm_cases(), st.floats(1e-7, 1e-1), st.sampled_from(["rank", "barrier", "dataflow"]))
def test_points_of_one_height_are_one_latency_to_the_last_bit(case, seconds, sync):
    plain = replace(case.cluster, latency_s=seconds, latency_by_size=())
    sized = replace(plain, latency_s=0.0, latency_by_size=((10, seconds), (10**6, seconds)))
    runs = [
        simulate(case.schedule, cluster, case.elements, sync=sync, starts_s=case.starts_s)
        for cluster in (plain, sized)
    ]
    assert runs[0].trace.to_json() == runs[1].trace.to_json()
    assert runs[0].lower_bound_s == runs[1].lower_bound_s
    assert runs[0].solver == runs[1].solver


def test_thousands_of_ranks_who_are_level():
    """The fast solver keeps one number for all, while all chunks are of one size."""
    n, points = 2100, ((4, 1e-3), (8, 2e-3))
    schedule = build_schedule("ring-all-gather", n)
    cluster = uniform(n, 1e6, latency_by_size=points)
    even = simulate(schedule, cluster, n, keep="totals").trace.time_s
    assert even == pytest.approx((n - 1) * (1e-3 + 4e-6), rel=1e-9)
    # One chunk of 8 bytes among those of 4 is somewhere in every step, and holds everyone up.
    uneven = simulate(schedule, cluster, n + 1, keep="totals").trace.time_s
    assert uneven == pytest.approx((n - 1) * (2e-3 + 8e-6), rel=1e-9)


def test_no_closed_form_and_the_least_latency_in_the_bound():
    cluster = uniform(4, 100.0, latency_by_size=POINTS)
    assert not cluster.is_plain
    assert closed_form("ring", cluster, 100) is None
    flat = uniform(4, 100.0, latency_s=0.5)
    bounds = [lower_bound_s(Collective.ALL_REDUCE, c, 400) for c in (cluster, flat)]
    assert bounds[0] == bounds[1]


def test_a_plan_takes_it_from_each_message():
    """Two rings in turn: chunks of 100 bytes, then of 300."""
    tasks = (collective("small", "ring", 2, 50), collective("large", "ring", 2, 150))
    plan, cluster = Plan("step", 2, tasks), uniform(2, 100.0, latency_by_size=POINTS)
    for solver in ("auto", "events"):
        assert perform(plan, cluster, solver=solver).time_s == 2 * (1 + 0.5) + 2 * (3 + 1.5)


def test_the_critical_path_shows_it():
    cluster = uniform(2, 100.0, latency_by_size=POINTS)
    path = critical_path(simulate(build_schedule("dp", 2), cluster, 50).trace)
    assert [(s.kind, s.duration_s) for s in path] == [("transfer", 2.0), ("latency", 1.0)] * 2


# Files.


@pytest.mark.parametrize("n", [1, 3, 8])
def test_a_file_has_it_for_any_number_of_ranks(n):
    points = [["100B", "0.5s"], ["300B", "1.5s"]]
    cluster = cluster_from_dict({"bandwidth": "25MB/s", "latency_by_size": points}, n)
    assert cluster.latency_by_size == POINTS


ACCEPTED = "accepted: a list of [SIZE, TIME], sizes rising, in place of 'latency'"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"latency_by_size": "5us"}, f"field 'latency_by_size' is '5us'; {ACCEPTED}"),
        (
            {"latency_by_size": [["1KiB", 5]]},
            f"field 'latency_by_size': entry 0 is ['1KiB', 5]; {ACCEPTED}",
        ),
        (
            {"latency_by_size": [["1KiB", "5us"], ["2KiB", "5"]]},
            "field 'latency_by_size': entry 1: time '5' has no unit; accepted: 5us, 1.5ms, 2s; "
            + ACCEPTED,
        ),
        (
            {"latency_by_size": [["1KiB", "5us"], ["1KiB", "6us"]]},
            "latency_by_size has 1024 B after 1024 B; accepted: rising sizes",
        ),
        (
            {"latency_by_size": [["1KiB", "5us"]], "latency": "1us"},
            "latency_s and latency_by_size are both given; accepted: one of them",
        ),
    ],
)
def test_what_a_file_may_not_say(fields, message):
    with pytest.raises(ValueError, match="latency_by_size") as caught:
        cluster_from_dict({"bandwidth": "1GB/s"} | fields, 2, "file 'a.json'")
    assert str(caught.value) == f"file 'a.json': {message}"


def test_the_command_line_takes_a_file_with_it_and_its_frames(tmp_path, capsys):
    path = tmp_path / "c.json"
    document = {
        "bandwidth": "100B/s",
        "latency_by_size": [["100B", "500ms"], ["300B", "1500ms"]],
        "wire_time_per_payload_byte": 1.25,
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    words = ["simulate", "dp", "--gpus", "2", "--size", "200B", "--cluster", str(path)]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["time_s"] == pytest.approx(2 * (2 * 1.25 + 1.0))
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "100 B/s per port, latency 500 ms to 1.5 s, rule 'rank'" in out
    assert "closed form   none for this case" in out
