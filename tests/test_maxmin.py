"""Max-min fairness: by what characterises it, and against exact filling one link at a time."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.solvers.maxmin import few_max_min_rates, max_min_rates


@st.composite
def networks(draw):
    """Flows over one to six links each, with capacities that tie, that do not, and without end.

    Routes are as ``Network`` makes them: no link twice but ``free``, the last, which fills up
    short ways.
    """
    links = draw(st.integers(1, 8))
    hops = draw(st.integers(1, 6))
    way = st.lists(st.integers(0, links - 1), min_size=1, max_size=min(hops, links), unique=True)
    ways = draw(st.lists(way, min_size=1, max_size=12))
    routes = [way + [links] * (hops - len(way)) for way in ways]
    capacity = st.one_of(st.sampled_from([1.0, 2.0, 3.0, 10.0]), st.floats(1e-3, 1e12))
    capacities = draw(st.lists(capacity, min_size=links, max_size=links))
    return np.array(routes), np.array([*capacities, np.inf])


def exact_rates(routes, capacity):
    """Bertsekas & Gallager's filling in fractions: the tightest link, then the next."""
    left = {link: Fraction(c) for link, c in enumerate(capacity.tolist()) if math.isfinite(c)}
    rates, growing = {}, set(range(len(routes)))
    while growing:
        users = {link: [f for f in growing if link in routes[f]] for link in left}
        tightest = min(
            (link for link in left if users[link]), key=lambda k: left[k] / len(users[k])
        )
        share = left[tightest] / len(users[tightest])
        for flow in users[tightest]:
            rates[flow] = share
            for link in set(routes[flow].tolist()) & left.keys():
                left[link] -= share
        growing -= set(users[tightest])
    return [float(rates[flow]) for flow in range(len(routes))]


@given(networks())
def test_rates_are_those_of_exact_filling(network):
    routes, capacity = network
    np.testing.assert_allclose(
        max_min_rates(routes, capacity), exact_rates(routes, capacity), rtol=1e-9
    )


@given(networks())
def test_a_handful_of_flows_has_the_same_rates(network):
    """The event solver's scalar twin takes ways without the endless link."""
    routes, capacity = network
    ways = [[link for link in way if link < len(capacity) - 1] for way in routes.tolist()]
    np.testing.assert_allclose(
        few_max_min_rates(ways, capacity.tolist()), exact_rates(routes, capacity), rtol=1e-9
    )


@given(networks(), st.data())
def test_links_that_are_cut_stop_their_flows_and_no_others(network, data):
    routes, capacity = network
    cut = data.draw(st.sets(st.integers(0, len(capacity) - 2), min_size=1))
    capacity[list(cut)] = 0.0
    rates = max_min_rates(routes, capacity)
    stopped = np.isin(routes, list(cut)).any(axis=1)
    assert (rates[stopped] == 0).all()
    assert (rates[~stopped] > 0).all()
    np.testing.assert_allclose(rates, exact_rates(routes, capacity), rtol=1e-9)


@given(networks())
def test_no_link_carries_more_than_its_capacity(network):
    routes, capacity = network
    rates = max_min_rates(routes, capacity)
    assert (rates > 0).all()
    for link, most in enumerate(capacity):
        assert rates[(routes == link).any(axis=1)].sum() <= most * (1 + 1e-9)


@given(networks())
def test_every_flow_has_a_full_link_on_which_none_is_faster(network):
    # With feasibility this characterises max-min (Bertsekas & Gallager, Data Networks, 6.5.2).
    routes, capacity = network
    rates = max_min_rates(routes, capacity)
    for rate, way in zip(rates, routes, strict=True):
        on_way = [rates[(routes == link).any(axis=1)] for link in way]
        assert any(
            sharing.sum() >= capacity[link] * (1 - 1e-9) and rate >= sharing.max() * (1 - 1e-9)
            for link, sharing in zip(way, on_way, strict=True)
        )


@given(networks(), st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(network, random):
    routes, capacity = network
    order = list(range(len(routes)))
    random.shuffle(order)
    shuffled = max_min_rates(routes[order], capacity)
    np.testing.assert_allclose(shuffled, max_min_rates(routes, capacity)[order], rtol=1e-9)


@pytest.mark.parametrize(
    ("routes", "capacity", "rates"),
    [
        ([], [5.0, 7.0], []),
        ([[0, 1]], [5.0, 7.0], [5.0]),
        ([[0, 1], [0, 1], [0, 1]], [6.0, 100.0], [2.0, 2.0, 2.0]),
        ([[0, 2], [0, 3], [1, 3]], [10.0, 10.0, 2.0, 9.0], [2.0, 4.5, 4.5]),  # what is left over
        ([[0, 1], [0, 2], [0, 3]], [9.0, 1.0, 2.0, 100.0], [1.0, 2.0, 6.0]),  # three rounds
        ([[0, 1], [0, 2]], [4.0, 0.0, 9.0], [0.0, 4.0]),  # a link that is cut
        ([[0, 1], [0, 2]], [4.0, np.inf, np.inf], [2.0, 2.0]),  # fillers without an end
    ],
)
def test_by_hand(routes, capacity, rates):
    routes = np.array(routes, np.int64).reshape(-1, 2)
    assert max_min_rates(routes, np.array(capacity)).tolist() == rates


def test_capacities_stay_as_they_are():
    capacity = np.array([6.0, 2.0])
    max_min_rates(np.array([[0, 1], [0, 1]]), capacity)
    assert capacity.tolist() == [6.0, 2.0]
