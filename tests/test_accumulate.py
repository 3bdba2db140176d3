"""Micro-batches: every strategy computes all of them, and says so in its samples per second."""

import math

import pytest

from simcore.cluster import uniform
from simcore.training.step import step
from simcore.training.strategies import STRATEGIES, Setting, plan_step
from simcore.training.workload import load_workload

NAMES = [row.name for row in STRATEGIES]
WORK = load_workload("resnet18").with_compute(forward_s=0.02, backward_s=0.04, optimizer_s=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_all_micro_batches_are_computed(name):
    setting = Setting(WORK, 4, accumulate=3, gpus_per_node=2)
    done = step(name, setting, uniform(plan_step(name, setting).n, 1e12))
    computing_s = 3 * (math.fsum(WORK.forward_s) + math.fsum(WORK.backward_s))
    assert computing_s <= done.compute_s * (1 + 1e-9) <= (computing_s + WORK.optimizer_s) * 1.0001
    assert 0.9 < done.efficiency < 1.05  # the network is fast


def test_data_parallel_sends_the_model_for_every_micro_batch():
    runs = [
        step("dp", Setting(WORK, 4, accumulate=k, backend="gloo"), uniform(4, 1e9)) for k in (1, 3)
    ]
    sent = [int(run.run.sent_bytes[0]) for run in runs]
    assert sent[1] == 3 * sent[0]
    assert runs[1].time_s == pytest.approx(3 * runs[0].time_s - 2 * WORK.optimizer_s)
