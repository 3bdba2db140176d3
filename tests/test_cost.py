"""Closed forms equal the simulation wherever they claim to hold; bounds by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simcore import (
    Cluster,
    Collective,
    Level,
    Port,
    build_schedule,
    closed_form,
    lower_bound_s,
    simulate,
    uniform,
)
from tests.strategies import NAMES, algorithms, clusters, elements, often

SYNCS = ["rank", "dataflow", "barrier"]


@st.composite
def plain_cases(draw, max_n=24):
    """An algorithm with its flags on equal ports; latency, launches and chunks of any kind."""
    schedule = draw(algorithms(max_n))
    cluster = draw(clusters(schedule.n, equal=True))
    for name in ("latency_s", "launch_per_message_s"):
        if draw(st.booleans()):
            cluster = replace(cluster, **{name: 0.0})
    even = st.integers(1, 10**5).map(lambda k: k * schedule.chunks)
    return schedule, cluster, draw(st.one_of(even, elements(schedule.n)))


syncs = st.sampled_from(SYNCS)


@often(6)
@given(plain_cases(), syncs)
def test_the_closed_form_is_the_time_of_both_solvers(case, sync):
    schedule, cluster, elements_ = case
    form = closed_form(schedule.name, cluster, elements_, sync=sync, **schedule.flags)
    assume(form is not None)
    for solver in ("auto", "events"):
        run = simulate(schedule, cluster, elements_, sync=sync, keep="totals", solver=solver)
        assert run.trace.time_s == pytest.approx(form.time_s, rel=1e-9)
    assert form.time_s >= run.lower_bound_s * (1 - 1e-9)


def _known(schedule, cluster, elements_, sync):
    """Where the docstrings of the formulas say that they hold."""
    n, flags = schedule.workers, schedule.flags
    launch, even = cluster.launch_per_message_s > 0, elements_ % schedule.chunks == 0
    if cluster.n == 1 or not elements_:
        return True
    if sync == "barrier" and even and not launch:
        return True  # the general one
    core = 2 ** (n.bit_length() - 1)
    ring = sync != "dataflow" or (even and not launch)
    return {
        "ring": ring,
        "ring-reduce-scatter": ring,
        "ring-all-gather": ring,
        "ps": True,
        "dp": sync != "dataflow" or not launch,
        "ps-sharded": even and not launch,
        "ps-dedicated": elements_ % flags.get("servers", 1) == 0 and not launch,
        "tree": sync == "barrier"
        or (sync == "rank" and (n == core or not launch + cluster.latency_s)),
        "double-tree": False,
        "halving-doubling": sync != "dataflow"
        and even
        and not (n > core and launch and sync == "rank"),
        "pairwise": sync != "dataflow" and even,
        "hierarchical": sync != "dataflow" and even,
        "ring-broadcast": sync != "dataflow" and even and not (launch and sync == "rank"),
        "chain-reduce": sync != "dataflow" and even and not (launch and sync == "rank"),
    }[schedule.name]


@often(6)
@given(plain_cases(), syncs)
def test_a_formula_is_known_just_where_its_docstring_says(case, sync):
    schedule, cluster, elements_ = case
    form = closed_form(schedule.name, cluster, elements_, sync=sync, **schedule.flags)
    assert (form is not None) == _known(schedule, cluster, elements_, sync)


@pytest.mark.parametrize("name", NAMES)
def test_adding_takes_time_that_no_formula_knows(name):
    schedule = build_schedule(name, 4)
    cluster = uniform(schedule.n, 1e9, reduce_s_per_byte=1e-9)
    assert closed_form(name, cluster, 4 * schedule.chunks) is None


def test_a_formula_for_an_unknown_algorithm_is_an_error():
    with pytest.raises(ValueError, match="unknown algorithm 'rng'; did you mean 'ring'"):
        closed_form("rng", uniform(4, 1e9), 8)


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
    "settings",
    [
        {"half_duplex": True},
        {"levels": (Level("node", (0, 0)),)},
        {"pair_latency_s": ((0, 1, 1e-6),)},
    ],
)
def test_what_is_no_plain_switch_has_no_formula(settings):
    assert closed_form("ring", uniform(2, 1e9, **settings), 8) is None


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
            "2(α + λ) + n·S/B + (n-2)·λ",
            "2 · (0 s + 2 s) + 4 · 100 B ÷ 100 B/s + 2 · 2 s",
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
        (
            "ps-sharded",
            4,
            {"latency_s": 0.5},
            2 * (0.5 + 3 * 0.25),
            "2 · (α + (n-1)·S/k/B)",
            "2 · (500 ms + 3 · 25 B ÷ 100 B/s)",
        ),
        (
            "ps-dedicated",
            5,  # four workers and their server
            {"latency_s": 0.5},
            2 * (0.5 + 4 * 1.0),
            "2 · (α + max(n/k, 1)·S/B)",
            "2 · (500 ms + 400 B ÷ 100 B/s)",
        ),
        (
            "tree",
            8,
            {"latency_s": 0.5},
            2 * 3 * (0.5 + 1.0),
            "2⌈log₂ n⌉ · (α + S/B)",
            "2·3 · (500 ms + 100 B ÷ 100 B/s)",
        ),
        (
            "halving-doubling",
            5,
            {"latency_s": 0.5},
            2 * (0.5 + 0.5) + 2 * (0.5 + 0.25) + 2 * (0.5 + 1.0),
            "2⌊log₂ n⌋(α) + 2(m-1)/m·S/B + 2(α + S/B)",
            "2·2 · (500 ms) + 150 B ÷ 100 B/s + 2 · (500 ms + 100 B ÷ 100 B/s)",
        ),
        (
            "pairwise",
            4,
            {"latency_s": 0.5},
            2 * 3 * (0.5 + 0.25),
            "2(n-1) · (α + S/n/B)",
            "2·3 · (500 ms + 25 B ÷ 100 B/s)",
        ),
        (
            "hierarchical",
            4,
            {"latency_s": 0.5},
            2 * 3 * (0.5 + 0.25),
            "2(G-1) · (α + S/G/B) + 2(n/G-1) · (α + S/n/B)",
            "2·3 · (500 ms + 25 B ÷ 100 B/s) + 2·0 · (500 ms + 25 B ÷ 100 B/s)",
        ),
        (
            "ring-broadcast",
            4,
            {"latency_s": 0.5},
            3 * (0.5 + 1.0),
            "(n-2+P) · (α + S/P/B)",
            "3 · (500 ms + 100 B ÷ 100 B/s)",
        ),
        ("ring", 1, {}, 0.0, "0", "0"),
        ("ring", 1, {"launch_per_collective_s": 0.125}, 0.125, "λ₀", "125 ms"),
    ],
)
def test_formulas_by_hand(name, n, settings, time_s, symbols, numbers):
    form = closed_form(name, uniform(n, 100.0, **settings), elements=100, itemsize=1)
    assert form.time_s == pytest.approx(time_s, rel=1e-12)
    assert (form.symbols, form.numbers) == (symbols, numbers)


def test_formulas_with_flags_by_hand():
    cluster = uniform(4, 100.0, latency_s=0.5)
    times_s = {
        ("ps-sharded", "servers"): 2 * (0.5 + 3 * 0.5),
        ("hierarchical", "gpus_per_node"): 2 * (0.5 + 0.5) + 2 * (0.5 + 0.25),
        ("chain-reduce", "pieces"): (4 - 2 + 2) * (0.5 + 0.5),
        ("ps-dedicated", "servers"): 2 * (0.5 + 1.0),  # two workers, two servers
    }
    for (name, flag), time_s in times_s.items():
        form = closed_form(name, cluster, 100, 1, **{flag: 2})
        assert form.time_s == pytest.approx(time_s, rel=1e-12), name


def test_any_algorithm_behind_barriers_by_hand():
    # Two trees over four ranks: 1->2, 3->2, then 2->0, and 0->1, 2->1, then 1->3; and back.
    form = closed_form("double-tree", uniform(4, 100.0, latency_s=0.5), 100, 1, "barrier")
    assert form.time_s == pytest.approx(4 * 0.5 + (2 + 1 + 1 + 2) * 0.5)
    assert form.symbols == "Σ over steps (α + busiest port/B)"
    assert form.numbers == "4 · 500 ms + 300 B ÷ 100 B/s"


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


# Bounds of other networks.


def test_extra_servers_may_sum_elsewhere():
    # Each of two workers sends and receives the buffer once, at the same time.
    assert lower_bound_s(Collective.ALL_REDUCE, uniform(4, 100.0), 100, servers=2) == 1.0
    assert lower_bound_s(Collective.ALL_REDUCE, uniform(4, 100.0), 100) == 1.5


def test_half_duplex_carries_both_ways_through_one_port():
    half = uniform(4, 100.0, half_duplex=True)
    assert lower_bound_s(Collective.ALL_REDUCE, half, 100) == 3.0
    assert lower_bound_s(Collective.ALL_REDUCE, half, 100, servers=2) == 2.0
    node = Level("node", (0, 0, 0, 0), port_bytes_per_s=200.0)
    fast = uniform(4, 100.0, half_duplex=True, levels=(node,))
    assert lower_bound_s(Collective.ALL_REDUCE, fast, 100) == 2 * 3 * 2 * 100 / (4 * 500)


def test_ports_of_levels_add_to_a_rank_s_own_and_the_least_latency_counts():
    node = Level("node", (0, 0, 1, 1), port_bytes_per_s=200.0, latency_s=0.25)
    cluster = uniform(4, 100.0, latency_s=0.5, levels=(node,), wire_time_per_payload_byte=2.0)
    assert lower_bound_s(Collective.ALL_REDUCE, cluster, 100) == 0.25 + 1.5 * 2 / 3
    near = replace(cluster, pair_latency_s=((0, 3, 0.125),))
    assert lower_bound_s(Collective.ALL_REDUCE, near, 100) == 0.125 + 1.5 * 2 / 3
