"""Max-min fairness, by what characterises it rather than by another way to compute it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.maxmin import max_min_rates


@st.composite
def networks(draw):
    """Flows over one to three links each, with capacities that tie and that do not."""
    links = draw(st.integers(1, 8))
    hops = draw(st.integers(1, min(3, links)))
    way = st.lists(st.integers(0, links - 1), min_size=hops, max_size=hops, unique=True)
    routes = draw(st.lists(way, min_size=1, max_size=12))
    capacity = st.one_of(st.sampled_from([1.0, 2.0, 3.0, 10.0]), st.floats(1e-3, 1e12))
    return np.array(routes), np.array(draw(st.lists(capacity, min_size=links, max_size=links)))


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
