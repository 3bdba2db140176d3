"""A step's result: its parts add up, and it says what it was asked."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.cluster import uniform
from simcore.solvers.network import Slowdown
from simcore.training.model import Parameter, Workload
from simcore.training.step import step
from simcore.training.strategies import STRATEGIES, Setting
from simcore.training.strategies.setting import all_reduces

# Four equal layers; each all-reduce on two GPUs takes 4000 B over 1 kB/s: 4 s.
WORK = Workload("four", tuple(Parameter(f"{k}.w", (1000,)) for k in range(4))).with_compute(
    1.0, 8.0
)
CLUSTER = uniform(2, 1000.0)


def ddp(**more):
    return step("ddp", Setting(WORK, 2, **more), CLUSTER)


def test_by_hand():
    """One bucket of 16 kB, ready at 9 s, 16 s on the wire."""
    result = ddp()
    assert (result.time_s, result.compute_s, result.exposed_communication_s) == (25.0, 9.0, 16.0)
    assert result.alone_s == 9.0
    assert result.communication_s == 16.0
    assert result.efficiency == 9 / 25
    assert result.samples_per_s == 2 / 25
    (bucket,) = result.buckets
    assert (bucket.nbytes, bucket.ready_s, bucket.start_s, bucket.end_s) == (16000, 9.0, 9.0, 25.0)


def test_stragglers_count_as_exposed_for_the_others():
    result = ddp(slower=(1.0, 2.0))
    assert (result.time_s, result.compute_s) == (34.0, 18.0)
    assert result.exposed_communication_s == 16.0
    assert result.efficiency == 9 / 34  # against a GPU that is not slow


def test_local_sgd_is_told_per_step():
    result = step("local-sgd", Setting(WORK, 2, period=4), CLUSTER)
    assert result.time_s == 9 + 16 / 4
    assert result.document()["sent_bytes"] == [4000.0, 4000.0]
    assert result.communication_s == 4.0
    assert result.buckets == []


def test_a_slow_link_and_messages():
    result = step("ddp", Setting(WORK, 2), CLUSTER, slowdowns=[Slowdown("gpu0.tx", 0.5)])
    assert result.time_s == 9 + 32
    assert result.run.solver == "events"
    kept = step("ddp", Setting(WORK, 2), CLUSTER, transfers=True)
    assert kept.run.transfers is not None
    assert kept.time_s == 25.0


def test_progress_is_heard_and_may_end_the_run(monkeypatch):
    now = iter(range(10**9))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(now)))
    heard = []
    step("ddp", Setting(WORK, 2), CLUSTER, transfers=True, progress=heard.append)
    assert heard == sorted(heard)
    assert 0 <= heard[0] < heard[-1] <= 1

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        step("ddp", Setting(WORK, 2), CLUSTER, transfers=True, progress=stop)


def test_what_is_refused():
    with pytest.raises(ValueError, match="has no compute times"):
        step("ddp", Setting(Workload("w", WORK.parameters), 2), CLUSTER)
    with pytest.raises(ValueError, match="has 2 ranks, the cluster 3"):
        step("ddp", Setting(WORK, 2), uniform(3, 1.0))
    for field in ("gpus", "accumulate", "period", "partition_bytes"):
        with pytest.raises(ValueError, match=f"{field} must be at least 1, got 0"):
            Setting(WORK, **({"gpus": 2} | {field: 0}))
    for silent in ({"arrival": ()}, {"parameters": (Parameter("w", (1,), trainable=False),)}):
        work = Workload(**({"name": "w", "parameters": WORK.parameters} | silent))
        with pytest.raises(ValueError, match="no gradient arrives in 'w', so there is no training"):
            Setting(work, 2)
    with pytest.raises(ValueError, match="unknown all-reduce 'ps-dedicated'"):
        Setting(WORK, 2, algorithm="ps-dedicated")


@pytest.mark.parametrize("algorithm", all_reduces())
def test_every_all_reduce_can_be_ddp_s(algorithm):
    more = {"gpus_per_node": 2} if algorithm == "hierarchical" else {}
    result = step("ddp", Setting(WORK, 4, algorithm=algorithm, **more), uniform(4, 1000.0))
    ring = step("ddp", Setting(WORK, 4), uniform(4, 1000.0))
    assert result.time_s >= ring.time_s * (1 - 1e-9)  # of equal ports none is faster
    assert result.run.sent_bytes.sum() >= ring.run.sent_bytes.sum()


@pytest.mark.parametrize("row", STRATEGIES, ids=lambda row: row.name)
def test_memory_has_an_entry_for_each_rank(row):
    more = {"gpus_per_node": 2} if row.name == "hsdp" else {}
    setting = Setting(WORK, 4, **more)
    plan = row.plan(setting)
    result = step(row.name, setting, uniform(plan.n, 1000.0))
    held = np.array([memory.total for memory in result.memory])
    assert len(held) == plan.n == len(result.run.sent_bytes)
    assert (held > 0).all()
