"""Public reports where the question is what to blame: stragglers, data, the network, the framework.

See tests/test_cases.py for how such a test is read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simcore.cluster import Level, uniform
from simcore.explain import not_the_network
from simcore.training.buckets import DdpOptions
from simcore.training.memory import chunks
from simcore.training.model import Parameter, Workload
from simcore.training.plan import Communicate, Compute
from simcore.training.step import step
from simcore.training.strategies import Setting, plan_step
from simcore.training.strategies.dp import dp
from simcore.training.workload import load_workload
from simcore.units import parse_rate
from tests.ddp_support import torch_or_skip

QUIET = DdpOptions(broadcast_buffers=False)


def plain(nbytes, layers=10, alone_s=0.3, batch=1):
    """A model of so many bytes in equal layers; a backward pass twice as long as the forward."""
    parts = tuple(Parameter(f"{k}.w", (nbytes // layers // 4,)) for k in range(layers))
    return Workload("plain", parts, batch=batch).with_compute(alone_s / 3, alone_s * 2 / 3)


def waits(run):
    """For each rank the seconds that it spends inside collectives."""
    rows = [k for k, task in enumerate(run.plan.tasks) if isinstance(task, Communicate)]
    return (run.ended_s[rows] - run.entered_s[rows]).sum(axis=0)


def ends_of(run, kind):
    rows = [k for k, t in enumerate(run.plan.tasks) if isinstance(t, Compute) and t.kind == kind]
    return run.ended_s[rows].max(axis=0), run.entered_s[rows].min(axis=0)


def test_a_straggler_is_the_one_that_waits_least():
    """ResNet-18 on four T4, 200 ms more in rank 1's backward pass (traceopt-ai/traceml#252).

    Measured: a backward pass of 293.0, 292.2, 293.0, 293.1 ms, a step of 362.1 ms. Assumed: PCIe at
    12 GB/s; what is not backward pass takes the remaining 69 ms.
    """
    other_s, backward_s, late_s = 0.3621 - 0.293, 0.093, 0.2
    work = replace(load_workload("resnet18"), buffers=())
    work = work.with_compute(0.0, backward_s, optimizer_s=0.0)
    slower = (1.0, 1 + late_s / backward_s, 1.0, 1.0)
    run = step("ddp", Setting(work, 4, slower=slower), uniform(4, 12e9)).run
    # The pass as a program measures it: until the last bucket has been reduced.
    _, began_s = ends_of(run, "backward")
    rows = [k for k, task in enumerate(run.plan.tasks) if isinstance(task, Communicate)]
    lasts_s = run.ended_s[rows].max(axis=0) - began_s
    assert lasts_s == pytest.approx([0.293] * 4, rel=0.03)  # all alike: nobody can be blamed by it
    assert run.time_s + other_s == pytest.approx(0.3621, rel=0.03)
    # What tells them apart: own computing, and the time inside the collectives.
    assert run.compute_s.argmax() == 1
    assert waits(run).argmin() == 1
    assert run.entered_s[rows[0]].argmax() == 1
    assert np.sort(waits(run))[1] - waits(run)[1] > 0.9 * late_s


FASTER_RCNN = {8: 25, 16: 41, 32: 80}  # images/s; one GPU makes 5 (horovod/horovod#1194)


def uneven_efficiency(n, sigma, rate, seed=0):
    """Images of log-normally different work, drawn anew for each of 200 steps, one per GPU."""
    rng = np.random.default_rng(seed)
    draws = rng.lognormal(-(sigma**2) / 2, sigma, (200, n))
    slowest = np.median(draws.max(axis=1)), draws.max(axis=1).mean()
    work = plain(166_000_000, alone_s=0.2)  # 41.5 million parameters
    slower = (*[1.0] * (n - 1), float(slowest[1]))
    return step("ddp", Setting(work, n, QUIET, slower=slower), uniform(n, rate)).efficiency


def test_uneven_images_look_like_a_slow_network_and_are_not():
    """62, 51, 50 % of 8, 16, 32 GPUs: the expected slowest of many, which grows ever more slowly.

    The spread is fitted to 8 GPUs alone. Assumed: 41.5 million parameters, 100 Gbit/s.
    """
    measured = {n: images / 5 / n for n, images in FASTER_RCNN.items()}
    rate = parse_rate("100Gbit/s")
    sigma = min(
        np.arange(0.05, 1.0, 0.05),
        key=lambda s: abs(uneven_efficiency(8, s, rate) - measured[8]),
    )
    predicted = {n: uneven_efficiency(n, sigma, rate) for n in measured}
    for n in (16, 32):
        assert predicted[n] == pytest.approx(measured[n], rel=0.25)
    assert predicted[8] > predicted[16] > predicted[32]
    # Without the spread the same network costs next to nothing, and a ring stays flat.
    even = [uneven_efficiency(n, 0.0, rate) for n in measured]
    assert min(even) > 0.95
    work = plain(166_000_000, alone_s=0.2)
    for n, share in measured.items():
        wire_s = step("ddp", Setting(work, n, QUIET), uniform(n, rate)).communication_s
        assert not_the_network(0.2 / share - 0.2, wire_s) is not None


# CoCa ViT-L/14 on nodes of eight V100 (mlfoundations/open_clip#466): samples/s and GPU, batch 24.
COCA = {1: 30, 2: 10, 3: 5}


def coca(nodes):
    """Assumed: 638 million parameters, float32, 25 Gbit/s per node, no overlap."""
    alone_s = 24 / COCA[1]
    work = plain(638_000_000 * 4, alone_s=alone_s, batch=24)
    node = Level("node", tuple(r // 8 for r in range(8 * nodes)), uplink_bytes_per_s=3.125e9)
    cluster = uniform(8 * nodes, 120e9, levels=(node,) if nodes > 1 else ())
    result = step("ddp", Setting(work, 8 * nodes, QUIET, overlap=0.0), cluster)
    return result.samples_per_s / (8 * nodes)


def test_the_second_node_is_explained_and_the_third_is_not():
    assert coca(2) == pytest.approx(COCA[2], rel=0.1)
    # A ring moves hardly more over each uplink with three nodes than with two.
    assert coca(3) == pytest.approx(coca(2), rel=0.04)
    # Missed by a factor of two: an uplink that nodes share, or something else; not in the report.
    assert 1.8 < coca(3) / COCA[3] < 2.2


def test_seconds_per_iteration_hide_a_gain():
    """kohya-ss/sd-scripts#1434: 1.27 s on one H100, 2.07 s on two. Slower? 1.23 times as fast."""
    work = plain(4 * 10**9, alone_s=1.27)
    cluster = uniform(2, 4 * 10**9 / (2.07 - 1.27))
    result = step("ddp", Setting(work, 2, QUIET, overlap=0.0), cluster)
    assert result.time_s == pytest.approx(2.07, rel=0.01)
    assert result.samples_per_s * 1.27 == pytest.approx(1.23, rel=0.01)


def test_data_parallel_of_alexnet_is_slower_on_two_gpus():
    """hclhkbu/dlbench#32: 512 images on each, 0.0215 s on one GPU, 0.0523 s on two.

    Assumed: the AlexNet of 61.1 million parameters, PCIe 3 at 12 GB/s. 1024 images per step make
    up for part of it only: 23.8 to 19.6 thousand images/s.
    """
    work = plain(61_100_840 * 4, alone_s=0.0215, batch=512)
    result = step("dp", Setting(work, 2), uniform(2, 12e9))
    assert result.time_s == pytest.approx(0.0523, rel=0.25)
    assert result.samples_per_s < 512 / 0.0215


def test_data_parallel_of_a_deep_small_model_is_bound_by_its_launches():
    """CondenseNet (pytorch/pytorch#3917): 80 ms for 32 images, 300 ms for 128 on four GPUs.

    Assumed: 4.8 million parameters, PCIe at 11 GB/s. The wire needs some milliseconds of the 220.
    Launching replicas one after another explains them, if each takes about as long as a whole step
    of one GPU, which then was bound by its launches.
    """
    work = plain(4_800_000 * 4, alone_s=0.08, batch=32)
    moved = step("dp", Setting(work, 4), uniform(4, 11e9))
    assert not_the_network(0.3 - 0.08, moved.communication_s) is not None
    launched = step("dp", Setting(work, 4, launch_per_replica_s=0.22 / 3), uniform(4, 11e9))
    assert launched.time_s == pytest.approx(0.3, rel=0.05)
    assert launched.samples_per_s / (32 / 0.08) == pytest.approx(1.07, rel=0.05)


def test_cifar_inference_lost_fourteen_seconds_to_no_wire():
    """ResNet-18, 20 batches of 500 images: 10 s on one GPU, 24 s on four (discuss.pytorch.org
    120283). Assumed: copies over PCIe 3.
    """
    work = replace(
        load_workload("resnet18"), batch=125, input_bytes=3 * 32 * 32 * 4, output_bytes=40
    ).with_compute(0.5, 0.0)
    plan = plan_step("dp", Setting(work, 4, backend="gloo"))
    outward = [t for t in plan.tasks if t.label in ("scatter inputs", "send parameters")]
    assert len(outward) == 2
    wire_s = 20 * sum(t.nbytes for t in outward) / 12e9  # all of it leaves one port
    assert 0.2 < wire_s < 0.4
    assert "input pipeline" in str(not_the_network(24 - 10, wire_s))


def sweep(work, n, rate, latency_s=0.0, caps=(25, 50, 100, 150)):
    return [
        step(
            "ddp",
            Setting(work, n, replace(QUIET, bucket_cap_mb=cap)),
            uniform(n, rate, latency_s),
        )
        for cap in caps
    ]


def test_a_bucket_sweep_is_flat_where_the_rate_is_the_limit():
    """facebookresearch/fairseq#789: from one node to two, 38 to 10 thousand words/s, whatever the
    cap up to 150 MB. Assumed: 210 million parameters, 1 Gbit/s, a step of one second before.
    """
    work = plain(840_000_000, layers=60, alone_s=1.0)
    results = sweep(work, 2, parse_rate("1Gbit/s"))
    times_s = [result.time_s for result in results]
    assert times_s[0] == pytest.approx(2 * 38 / 10, rel=0.25)  # twice the words in each step
    assert max(times_s) / min(times_s) < 1.06  # the last bucket's wait is all that changes
    for result in results:
        assert result.time_s > 0.9 * result.communication_s  # why: the wire is never idle


def test_a_bucket_sweep_is_flat_where_the_wire_is_fast():
    """Horovod inside a node, fusion of 0, 2, 4, 8 MiB (horovod/horovod PR 663): within 2 %.

    Assumed: ResNet-50, 8 GPUs, 120 GB/s, 10 µs per message.
    """
    measured = (4449.5, 4460.2, 4372.0, 4438.3)
    assert max(measured) / min(measured) < 1.021
    alone_s = 32 * 8 / 4500
    work = load_workload("resnet50").with_compute(alone_s / 3, alone_s * 2 / 3)
    times_s = [result.time_s for result in sweep(work, 8, 120e9, 10e-6, (0, 2, 4, 8))]
    assert max(times_s) / min(times_s) < 1.021


def test_many_small_tensors_are_bound_by_latency():
    """An LSTM on 10 GbE (horovod/horovod#221): near-zero use of link and GPU, 20 MB/s.

    Assumed: 161 tensors of 5 kB one by one, 8 ranks, a collective of 175 µs at the least.
    """
    latency_s, rate = 175e-6 / 14, parse_rate("10Gbit/s")
    work = plain(161 * 5000, layers=161, alone_s=0.003)

    def run(rate, latency_s, cap=0):
        setting = Setting(work, 8, replace(QUIET, bucket_cap_mb=cap))
        return step("ddp", setting, uniform(8, rate, latency_s))

    slow = run(rate, latency_s)
    assert 0.024 < slow.communication_s < 0.032 + 0.002
    used = float(slow.run.sent_bytes.max()) / slow.time_s / rate
    assert used < 0.05
    assert run(10 * rate, latency_s).time_s > 0.95 * slow.time_s  # a faster link does not help
    assert run(rate, latency_s / 10).time_s < 0.25 * slow.time_s  # a quicker one does
    assert run(rate, latency_s, 25).time_s < 0.25 * slow.time_s  # and so do larger buckets


def test_one_huge_tensor_waits_for_nobody():
    """VGG-16's first dense layer, 411 MB, is a bucket with what little was open before it."""
    work = load_workload("vgg16").with_compute(0.1, 0.2)
    largest = max(step("ddp", Setting(work, 4), uniform(4, 1e9)).buckets, key=lambda b: b.nbytes)
    assert largest.nbytes == pytest.approx(411e6, rel=0.01)
    assert largest.ready_s < 0.105  # while the backward pass goes on until 0.3


# DataParallel's chunks (pytorch/pytorch#6983, #9811; davisking/dlib PR 2152).
CHUNKS = [
    (32, 4, [8, 8, 8, 8]),
    (10, 4, [3, 3, 3, 1]),
    (9, 4, [3, 3, 3, 0]),
    (4, 4, [1, 1, 1, 1]),
    (50, 8, [7, 7, 7, 7, 7, 7, 7, 1]),
    (256, 6, [43, 43, 43, 43, 43, 41]),
    (2, 4, [1, 1, 0, 0]),
]


@pytest.mark.parametrize(("batch", "n", "expected"), CHUNKS)
def test_data_parallel_cuts_a_batch_as_torch_does(batch, n, expected):
    assert list(chunks(batch, n)) == expected
    torch = torch_or_skip()
    torch_s = [len(part) for part in torch.arange(batch).chunk(n)]
    assert torch_s + [0] * (n - len(torch_s)) == expected
    work = plain(4000, layers=1, alone_s=0.3)
    work = replace(work, input_bytes=1000)
    plan = dp(Setting(work, n), batch=batch)
    (forward,) = (t for t in plan.tasks if t.label == "forward")
    assert forward.seconds == pytest.approx([0.1 * samples for samples in expected])
    (scattered,) = (t for t in plan.tasks if t.label == "scatter inputs")
    assert scattered.nbytes == 1000 * (batch - expected[0])


def test_a_lone_sample_weighs_two_and_a_half_times_its_share():
    """Ten samples on four GPUs, each replica's mean loss, then the mean of those: 1/4, not 1/10."""
    torch = torch_or_skip()
    x = torch.ones(10, requires_grad=True)
    means = torch.stack([part.mean() for part in x.chunk(4)])  # what gather makes of four losses
    means.mean().backward()
    assert x.grad.tolist() == pytest.approx([1 / 12] * 9 + [1 / 4])
    assert x.grad[-1] / (1 / 10) == pytest.approx(2.5)
    samples = chunks(10, 4)
    assert [1 / 4 / count * 10 for count in samples] == pytest.approx([10 / 12] * 3 + [2.5])
