"""One rank, nothing to send, a thousand ranks, a terabyte; and what the engine refuses."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import Collective, build_schedule, chunk_sizes, simulate, uniform
from simcore.schedule import schedule_of
from tests.strategies import NAMES, rates

SYNCS = ["rank", "dataflow", "barrier"]


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("name", NAMES)
def test_one_rank_takes_no_time_and_sends_nothing(name, sync):
    run = simulate(build_schedule(name, 1), uniform(1, 1e9, latency_s=1.0), 10**6, sync=sync)
    assert (run.trace.time_s, run.transfers, run.lower_bound_s) == (0.0, 0, 0.0)
    assert run.trace.sent_bytes.tolist() == run.trace.received_bytes.tolist() == [0]
    assert run.busiest_link == ("gpu0.tx", 0.0)


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("name", NAMES)
def test_an_empty_buffer_is_not_sent(name, sync):
    run = simulate(build_schedule(name, 5), uniform(5, 1e9, latency_s=1.0), 0, sync=sync)
    assert (run.trace.time_s, run.transfers, len(run.trace.spans)) == (0.0, 0, 0)
    assert run.trace.sent_bytes.tolist() == [0] * 5


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("n", [2, 3, 7, 13])
@pytest.mark.parametrize("name", NAMES)
def test_fewer_elements_than_ranks(name, n, sync):
    run = simulate(build_schedule(name, n), uniform(n, 1e6), n - 1, sync=sync)
    passes = 2 if build_schedule(name, n).collective is Collective.ALL_REDUCE else 1
    assert run.trace.sent_bytes.sum() == passes * (n - 1) * 4 * (n - 1)
    assert (run.trace.spans.nbytes > 0).all()
    assert run.trace.time_s >= run.lower_bound_s * (1 - 1e-9) > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_gpus_and_a_terabyte_are_exact(name):
    n, size = 1024, 10**12
    cluster = uniform(n, 25e9, latency_s=5e-6)
    run = simulate(build_schedule(name, n), cluster, size // 4, keep="totals")
    c = (4 * chunk_sizes(size // 4, n)).tolist()
    wanted = {
        "ring": [2 * size - c[(r + 1) % n] - c[(r + 2) % n] for r in range(n)],
        "ring-reduce-scatter": [size - c[(r + 1) % n] for r in range(n)],
        "ring-all-gather": [size - c[(r + 2) % n] for r in range(n)],
        "ps": [(n - 1) * size] + [size] * (n - 1),
        "dp": [(n - 1) * size] + [size] * (n - 1),
    }[name]
    assert run.trace.sent_bytes.tolist() == wanted
    assert int(run.trace.received_bytes.sum()) == sum(wanted)
    port_s = {"ring": 2 * c[0], "ps": 2 * size, "dp": 2 * size}.get(name, c[0]) * (n - 1) / 25e9
    waits = {"ring": 2 * (n - 1), "ps": 2, "dp": n}.get(name, n - 1)
    assert run.trace.time_s == pytest.approx(port_s + waits * 5e-6, rel=1e-9)


def test_work_is_counted():
    n = 64
    ring = simulate(build_schedule("ring", n), uniform(n, 1e9), 6400)
    assert (ring.steps, ring.transfers, ring.events) == (126, 126 * n, 2 * 126)
    ps = simulate(build_schedule("ps", n), uniform(n, 1e9), 6400)
    assert (ps.steps, ps.transfers) == (2, 2 * (n - 1))
    assert ps.events <= 10  # simultaneous events are one batch, whatever n


# What is refused.


def _tiny(**how):
    return simulate(build_schedule("ring", 2), uniform(2, 1e9), 8, **how)


@pytest.mark.parametrize("starts", [[0.0], [0.0, -1.0], [0.0, np.nan], [0.0, np.inf], [[0.0, 0.0]]])
def test_starts_are_one_finite_time_per_rank(starts):
    with pytest.raises(ValueError, match="starts_s must be 2 finite times >= 0, got"):
        _tiny(starts_s=starts)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"sync": "ranks"}, "unknown sync 'ranks'; did you mean 'rank'? accepted: rank, dataflow"),
        ({"itemsize": 0}, "itemsize must be >= 1, got 0"),
    ],
)
def test_settings_are_known(arguments, complaint):
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        _tiny(**arguments)


def test_schedule_and_cluster_have_the_same_ranks():
    with pytest.raises(ValueError, match="schedule 'ring' has 3 ranks, the cluster 2"):
        simulate(build_schedule("ring", 3), uniform(2, 1e9), 8)


def test_a_buffer_has_a_countable_size():
    with pytest.raises(ValueError, match="elements must be >= 0, got -1"):
        simulate(build_schedule("ring", 2), uniform(2, 1e9), -1)
    most = (2**63 - 1) // 4 // 4  # two ranks, float32
    run = simulate(build_schedule("ps", 2), uniform(2, 1e9), most)
    assert run.trace.sent_bytes.tolist() == [4 * most] * 2
    with pytest.raises(ValueError, match="cannot be counted in 64 bits; accepted: up to"):
        simulate(build_schedule("ps", 2), uniform(2, 1e9), most + 1)


@settings(max_examples=20)
@given(rates, st.integers(1, 8))
def test_the_item_size_only_scales_the_buffer(rate, itemsize):
    schedule, cluster = build_schedule("ring", 3), uniform(3, rate)
    run = simulate(schedule, cluster, 30, itemsize)
    single = simulate(schedule, cluster, 30 * itemsize, 1)
    assert run.trace.time_s == single.trace.time_s
    assert run.trace.sent_bytes.tolist() == single.trace.sent_bytes.tolist()


def test_a_schedule_may_have_steps_without_transfers():
    rows = [row for row in build_schedule("dp", 2) if row.step == 0]
    schedule = schedule_of(
        rows,
        name="half",
        n=2,
        chunks=1,
        n_steps=3,
        collective=Collective.REDUCE_SCATTER,
        owner=(0,),
    )
    assert simulate(schedule, uniform(2, 100.0), 25).trace.time_s == 1.0
