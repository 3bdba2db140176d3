"""One rank, nothing to send, a thousand ranks, a terabyte; and what the engine refuses."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import Collective, build_schedule, simulate, uniform
from simcore.schedule import schedule_of
from tests.strategies import NAMES, rates

SYNCS = ["rank", "dataflow", "barrier"]


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "ps-dedicated"])
def test_one_rank_takes_no_time_and_sends_nothing(name, sync):
    run = simulate(build_schedule(name, 1), uniform(1, 1e9, latency_s=1.0), 10**6, sync=sync)
    assert (run.trace.time_s, run.transfers, run.lower_bound_s) == (0.0, 0, 0.0)
    assert run.trace.sent_bytes.tolist() == run.trace.received_bytes.tolist() == [0]
    assert run.busiest_link == ("gpu0.tx", 0.0)


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("name", NAMES)
def test_an_empty_buffer_is_not_sent(name, sync):
    schedule = build_schedule(name, 5)
    run = simulate(schedule, uniform(schedule.n, 1e9, latency_s=1.0), 0, sync=sync)
    assert (run.trace.time_s, run.transfers, len(run.trace.spans)) == (0.0, 0, 0)
    assert run.trace.sent_bytes.tolist() == [0] * schedule.n


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("n", [2, 3, 7, 13])
@pytest.mark.parametrize("name", NAMES)
def test_fewer_elements_than_ranks(name, n, sync):
    schedule = build_schedule(name, n)
    run = simulate(schedule, uniform(schedule.n, 1e6), n - 1, sync=sync)
    passes = 2 if schedule.collective is Collective.ALL_REDUCE else 1
    if name != "halving-doubling":  # which sends more for some n
        moves = n if schedule.servers else n - 1
        assert run.trace.sent_bytes.sum() == passes * moves * 4 * (n - 1)
    assert (run.trace.spans.nbytes > 0).all()
    assert run.trace.time_s >= run.lower_bound_s * (1 - 1e-9) > 0


def _terabyte():
    """Bytes sent by each rank, port time in bytes, and waits, of 10**12 bytes on 1024 ranks."""
    n, size = 1024, 10**12  # which is a multiple of 4 · 1024
    shard_up, all_up = size // n * (n - 1), size * (n - 1)
    ring = [2 * shard_up] * n
    root, line = [all_up] + [size] * (n - 1), [size] * (n - 1) + [0]
    lowest = [min((r & -r).bit_length() - 1, 10) if r else 10 for r in range(n)]
    tree = [size * (lowest[r] + (r > 0)) for r in range(n)]
    halves = sum(size >> k for k in range(1, 11))
    return {
        "ring": (ring, 2 * shard_up, 2 * (n - 1)),
        "ring-reduce-scatter": ([shard_up] * n, shard_up, n - 1),
        "ring-all-gather": ([shard_up] * n, shard_up, n - 1),
        "ps": (root, 2 * all_up, 2),
        "ps-sharded": (ring, 2 * shard_up, 2),
        "ps-dedicated": ([size] * n + [n * size], 2 * n * size, 2),
        "dp": (root, 2 * all_up, n),
        "tree": (tree, 20 * size, 20),
        "halving-doubling": ([2 * halves] * n, 2 * halves, 20),
        "pairwise": (ring, 2 * shard_up, 2 * (n - 1)),
        "hierarchical": (ring, 2 * shard_up, 2 * (n - 1)),
        "ring-broadcast": (line, (n - 1) * size, n - 1),
        "chain-reduce": (line[::-1], (n - 1) * size, n - 1),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_gpus_and_a_terabyte_are_exact(name):
    schedule, size = build_schedule(name, 1024), 10**12
    cluster = uniform(schedule.n, 25e9, latency_s=5e-6)
    run = simulate(schedule, cluster, size // 4, keep="totals")
    passes = 2 if schedule.collective is Collective.ALL_REDUCE else 1
    moves = passes * (schedule.workers - (not schedule.servers))
    assert int(run.trace.sent_bytes.sum()) == int(run.trace.received_bytes.sum()) == moves * size
    if name == "double-tree":
        # Three neighbours in one tree and one in the other, half the buffer each; one and one.
        assert run.trace.sent_bytes.tolist() == [size] + [2 * size] * 1022 + [size]
        return
    sent, port_bytes, waits = _terabyte()[name]
    assert run.trace.sent_bytes.tolist() == sent
    assert run.trace.time_s == pytest.approx(port_bytes / 25e9 + waits * 5e-6, rel=1e-9)
    assert run.solver == "recurrence"


def test_work_is_counted():
    n = 64
    ring = simulate(build_schedule("ring", n), uniform(n, 1e9), 6400)
    assert (ring.steps, ring.transfers, ring.events) == (126, 126 * n, 2 * 126)
    ps = simulate(build_schedule("ps", n), uniform(n, 1e9), 6400)
    assert (ps.steps, ps.transfers) == (2, 2 * (n - 1))
    assert ps.events <= 10  # simultaneous events are one batch, whatever n
    ps = simulate(build_schedule("ps", n), uniform(n, 1e9), 6400, solver="events")
    assert ps.events <= 10


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
