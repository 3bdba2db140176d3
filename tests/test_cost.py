"""Closed forms equal the simulation wherever they claim to hold; bounds by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import (
    Cluster,
    Collective,
    Port,
    build_schedule,
    closed_form,
    lower_bound_s,
    simulate,
    uniform,
)
from tests.strategies import NAMES, clusters, elements, names

SYNCS = ["rank", "dataflow", "barrier"]


@settings(max_examples=300)
@given(st.data(), names, st.integers(1, 40), st.sampled_from(SYNCS))
def test_the_closed_form_is_the_simulated_time(data, name, n, sync):
    cluster = data.draw(clusters(n, equal=True))
    elements_ = data.draw(elements(n))
    form = closed_form(name, cluster, elements_, sync=sync)
    schedule = build_schedule(name, n)
    if form is None:
        assert sync == "dataflow"
        return
    run = simulate(schedule, cluster, elements_, sync=sync, keep="totals")
    assert run.trace.time_s == pytest.approx(form.time_s, rel=1e-9)
    assert form.time_s >= run.lower_bound_s * (1 - 1e-9)


@given(st.data(), names, st.integers(1, 20), st.sampled_from(SYNCS))
def test_and_the_time_of_the_event_solver(data, name, n, sync):
    cluster = data.draw(clusters(n, equal=True))
    elements_ = data.draw(elements(n))
    form = closed_form(name, cluster, elements_, sync=sync)
    run = simulate(
        build_schedule(name, n), cluster, elements_, sync=sync, keep="totals", solver="events"
    )
    assert form is None or run.trace.time_s == pytest.approx(form.time_s, rel=1e-9)


@given(st.data(), st.integers(2, 12))
def test_a_server_anywhere_takes_as_long(data, n):
    cluster, root = data.draw(clusters(n, equal=True)), data.draw(st.integers(0, n - 1))
    form = closed_form("ps", cluster, 1000, root=root)
    run = simulate(build_schedule("ps", n, root=root), cluster, 1000)
    assert run.trace.time_s == pytest.approx(form.time_s, rel=1e-9)


LAUNCH = {"launch_per_message_s": 1e-6}


@pytest.mark.parametrize(
    ("name", "sync", "elements", "settings", "known"),
    [
        *((name, sync, 8, {}, True) for name in NAMES for sync in SYNCS),
        *((name, sync, 8, LAUNCH, True) for name in NAMES for sync in ("rank", "barrier")),
        ("ps", "dataflow", 8, LAUNCH, True),
        ("dp", "dataflow", 8, LAUNCH, False),  # nothing keeps the peers in turn
        ("ring", "dataflow", 8, LAUNCH, False),  # launches overlap with transfers
        ("ring", "dataflow", 9, {}, False),  # unequal chunks meet on a port
        ("ring", "rank", 9, {}, True),
        ("tree", "rank", 8, {}, False),  # not an algorithm of the table
    ],
)
def test_where_a_formula_is_known(name, sync, elements, settings, known):
    form = closed_form(name, uniform(4, 1e9, **settings), elements, sync=sync)
    assert (form is not None) == known


@pytest.mark.parametrize(
    "ports",
    [
        (Port(1e9, 1e9), Port(1e9, 2e9)),
        (Port(1e9, 2e9), Port(1e9, 2e9)),
    ],
)
def test_unequal_ports_have_no_formula(ports):
    assert closed_form("ring", Cluster("odd", ports), 8) is None


@pytest.mark.parametrize(
    ("name", "n", "settings", "time_s", "symbols", "numbers"),
    [
        (
            "ring",
            4,
            {"latency_s": 0.5},
            2 * 3 * (0.5 + 0.25),
            "2(n-1) · (α + ⌈S/n⌉/B)",
            "2·3 · (500 ms + 25 B ÷ 100 B/s)",
        ),
        (
            "ring-all-gather",
            4,
            {"launch_per_message_s": 0.5},
            3 * (0.5 + 0.25),
            "(n-1) · (α + λ + ⌈S/n⌉/B)",
            "3 · (0 s + 500 ms + 25 B ÷ 100 B/s)",
        ),
        (
            "ps",
            4,
            {"latency_s": 0.5},
            2 * (0.5 + 3 * 1.0),
            "2 · (α + (n-1)·S/B)",
            "2 · (500 ms + 3 · 100 B ÷ 100 B/s)",
        ),
        (
            "ps",
            4,
            {"launch_per_message_s": 2.0},  # the pulls wait for their launches
            (2 + 3 * 1) + (2 + 2 * 2 + 1),
            "2(α + λ) + (n-1)·S/B + (n-2)·λ + S/B",
            "2 · (0 s + 2 s) + 3 · 100 B ÷ 100 B/s + (4 - 2) · 2 s + 100 B ÷ 100 B/s",
        ),
        (
            "dp",
            4,
            {"latency_s": 0.5},
            2 * 3 * 1.0 + 4 * 0.5,
            "2(n-1)·S/B + n·α",
            "2·3 · 100 B ÷ 100 B/s + 4 · 500 ms",
        ),
        (
            "dp",
            2,
            {"launch_per_collective_s": 0.125},
            0.125 + 2.0,
            "λ₀ + 2(n-1)·S/B + n·α",
            "125 ms + 2·1 · 100 B ÷ 100 B/s + 2 · 0 s",
        ),
        ("ring", 1, {}, 0.0, "0", "0"),
        ("ring", 1, {"launch_per_collective_s": 0.125}, 0.125, "λ₀", "125 ms"),
    ],
)
def test_formulas_by_hand(name, n, settings, time_s, symbols, numbers):
    form = closed_form(name, uniform(n, 100.0, **settings), elements=100, itemsize=1)
    assert form.time_s == pytest.approx(time_s, rel=1e-12)
    assert (form.symbols, form.numbers) == (symbols, numbers)


# Lower bounds: 100 bytes.


@pytest.mark.parametrize(
    ("rates", "bound_s"),
    [
        ([100.0] * 4, 1.5),  # 2·3·100 bytes through 400 bytes/s
        ([100.0] * 2, 1.0),
        ([10.0, 1000.0, 1000.0, 1000.0], 10.0),  # the slow rank must send its own 100 bytes
        ([100.0], 0.0),
    ],
)
def test_an_all_reduce_s_bound(rates, bound_s):
    both = Cluster("c", tuple(Port(rate, rate) for rate in rates))
    sends = Cluster("c", tuple(Port(rate, 1e9) for rate in rates))
    receives = Cluster("c", tuple(Port(1e9, rate) for rate in rates))
    for cluster in (both, sends, receives):
        bound = lower_bound_s(Collective.ALL_REDUCE, cluster, 100)
        assert bound == pytest.approx(bound_s, rel=1e-12)


def test_a_bound_waits_for_one_message_and_its_launches():
    settings = {"launch_per_collective_s": 0.25, "launch_per_message_s": 0.125}
    cluster = uniform(4, 100.0, latency_s=0.5, **settings)
    assert lower_bound_s(Collective.ALL_REDUCE, cluster, 100) == 1.5 + 0.5 + 0.25 + 0.125
    assert lower_bound_s(Collective.ALL_REDUCE, cluster, 0) == 0.25


@pytest.mark.parametrize(
    ("collective", "owned", "bound_s"),
    [
        (Collective.REDUCE_SCATTER, [25, 25, 25, 25], 0.75),
        (Collective.ALL_GATHER, [25, 25, 25, 25], 0.75),
        (Collective.REDUCE_SCATTER, [100, 0, 0, 0], 1.0),  # the others send all that they have
        (Collective.ALL_GATHER, [0, 100, 0, 0], 1.0),  # and receive it
    ],
)
def test_half_a_ring_s_bound_depends_on_who_owns_what(collective, owned, bound_s):
    bound = lower_bound_s(collective, uniform(4, 100.0), 100, np.array(owned))
    assert bound == pytest.approx(bound_s)


@pytest.mark.parametrize("name", ["ring", "ring-reduce-scatter", "ring-all-gather"])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_ring_meets_its_bound_where_nothing_waits(name, n):
    run = simulate(build_schedule(name, n), uniform(n, 1e6), 100 * n)
    assert run.trace.time_s == pytest.approx(run.lower_bound_s, rel=1e-12)
