"""Links and ways between ranks: against a plain reading of the cluster, and by hand."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import Level, Slowdown, build_schedule, simulate, uniform
from simcore.solvers.network import Network
from tests.naive import capacities, latency_s, route, slowed
from tests.strategies import networks, slowdowns

clusters = st.integers(2, 9).flatmap(networks)


@given(clusters)
def test_ways_are_those_of_a_plain_reading(cluster):
    network = Network(cluster)
    src, dst = np.array(list(permutations(range(cluster.n), 2))).T
    routes = network.routes(src, dst)
    for s, d, way in zip(src.tolist(), dst.tolist(), routes.tolist(), strict=True):
        links = [network.names[link] for link in way if link != network.free]
        assert sorted(links) == sorted(route(cluster, s, d))  # and none twice
    nbytes = np.arange(len(src)) * 7
    rows = zip(src.tolist(), dst.tolist(), nbytes.tolist(), strict=True)
    wanted = [latency_s(cluster, *row) for row in rows]
    np.testing.assert_allclose(network.latencies_s(src, dst, nbytes), wanted, rtol=1e-12)


@given(clusters)
def test_links_have_a_name_and_a_payload_rate_each(cluster):
    network = Network(cluster)
    assert len(set(network.names)) == len(network.names) == len(network.capacity)
    rates = dict(zip(network.names, network.capacity.tolist(), strict=True))
    crossed = capacities(cluster)
    assert {link: rates[link] for link in crossed} == crossed
    assert rates["free"] == math.inf


@given(st.data(), clusters)
def test_slowdowns_are_those_of_a_plain_reading_at_every_moment(data, cluster):
    slow = data.draw(slowdowns(cluster, max_size=4))
    network = Network(cluster, slow)
    now = network.capacity.copy()
    full = capacities(cluster)
    times = [time_s for time_s, _, _ in network.changes]
    assert times == sorted(times)
    for moment_s in sorted({0.0, *times}):
        for time_s, link, bytes_per_s in network.changes:
            if time_s == moment_s:
                now[link] = bytes_per_s
        wanted = slowed(cluster, slow, moment_s)
        rates = dict(zip(network.names, now.tolist(), strict=True))
        for link in full:
            assert rates[link] == pytest.approx(wanted[link], rel=1e-12), (link, moment_s)
        for link in set(rates) - set(full):
            if "->" in link:
                assert rates[link] == pytest.approx(wanted.get(link, math.inf), rel=1e-12)


def test_names_by_hand():
    node = Level("node", (0, 0, 1, 1), bus_bytes_per_s=1e9, uplink_bytes_per_s=1e9, nics=2)
    rack = Level("rack", (0,) * 4, port_bytes_per_s=1e9, uplink_bytes_per_s=1e9, half_duplex=True)
    network = Network(uniform(4, 1e9, levels=(node, rack)), [Slowdown("0->3", 0.5)])
    ports = [f"gpu{r}.{way}" for way in ("tx", "rx") for r in range(4)]
    inside = [f"gpu{r}.rack.{way}" for way in ("tx", "rx") for r in range(4)]
    nics = [f"node{g}.nic{k}.{way}" for g in (0, 1) for k in (0, 1) for way in ("up", "down")]
    buses = ["node0.bus", "node1.bus"]
    assert network.names == [*ports, *inside, "free", *nics, *buses, "rack0.up", "gpu0->gpu3"]
    way = network.routes(np.array([0]), np.array([3]))[0]
    assert {network.names[link] for link in way if link != network.free} == {
        *("gpu0.rack.tx", "gpu3.rack.rx", "node0.nic0.up", "node1.nic1.down"),
        *("node0.bus", "node1.bus", "gpu0->gpu3"),
    }


def test_a_setting_that_a_level_leaves_open_is_as_around_it():
    pair = Level("pair", (0, 0, 1, 1), bus_bytes_per_s=1e12)
    node = Level("node", (0, 0, 0, 0), port_bytes_per_s=1e10, latency_s=1e-6)
    network = Network(uniform(4, 1e9, latency_s=1e-3, levels=(pair, node)))
    src, dst = np.array([0, 0]), np.array([1, 2])
    assert network.latencies_s(src, dst, np.array([1, 1])).tolist() == [1e-6, 1e-6]
    assert network.capacity[network.routes(src, dst)].min(axis=1).tolist() == [1e10, 1e10]


# Times by hand: buffers of 100 bytes, ports of 100 bytes/s.


def _time_s(name, levels=(), n=4, **settings):
    cluster = uniform(n, 100.0, levels=levels, **settings)
    return simulate(build_schedule(name, n), cluster, 100, 1).trace.time_s


NODES = (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("settings", "time_s"),
    [
        ({}, 1.5),
        ({"uplink_bytes_per_s": 100.0}, 1.5),  # one chunk at a time leaves a node
        ({"uplink_bytes_per_s": 50.0}, 3.0),
        ({"uplink_bytes_per_s": 50.0, "nics": 2}, 3.0),  # GPU 1 has one of its own, half as wide
        ({"uplink_bytes_per_s": 100.0, "half_duplex": True}, 3.0),  # one in and one out
        ({"bus_bytes_per_s": 300.0}, 1.5),  # one inside, one that leaves, one that enters
        ({"bus_bytes_per_s": 150.0}, 3.0),
        ({"port_bytes_per_s": 400.0}, 1.5),  # those that leave take as long as ever
        ({"port_bytes_per_s": 25.0}, 6.0),
        ({"latency_s": 0.5}, 1.5 + 6 * 0.5),  # every step has to wait for those inside
    ],
)
def test_a_ring_of_four_in_two_nodes(settings, time_s):
    levels = (Level("node", NODES, **settings),)
    assert _time_s("ring", levels) == pytest.approx(time_s, rel=1e-12)


def test_half_duplex_ports_carry_both_ways():
    assert _time_s("ring", half_duplex=True) == pytest.approx(3.0)
    assert _time_s("dp", n=2, half_duplex=True) == pytest.approx(2.0)  # never both at once


def test_one_slow_pair_holds_up_a_ring():
    assert _time_s("ring", pair_latency_s=((0, 1, 0.5),)) == pytest.approx(1.5 + 6 * 0.5)
    assert _time_s("ring", pair_latency_s=((0, 2, 0.5),)) == 1.5  # nobody's way
    assert _time_s("dp", n=2, pair_latency_s=((1, 0, 0.5),)) == 2.5


def test_adding_takes_the_receiver_s_time():
    # Every step of the first half adds a chunk of 25 bytes at 50 bytes/s.
    assert _time_s("ring", reduce_s_per_byte=0.02) == pytest.approx(1.5 + 3 * 0.5)
    # A server adds three buffers one after another, after all have arrived at once.
    assert _time_s("ps", reduce_s_per_byte=0.02) == pytest.approx(3.0 + 3 * 2.0 + 3.0)
