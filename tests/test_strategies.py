"""Every strategy's plan: what it sends is what torch sends, and when it may."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.cluster import uniform
from simcore.schedule import Collective, Op
from simcore.training import calls, sharded
from simcore.training.buckets import DdpOptions
from simcore.training.catalogue import catalogue_names, catalogue_workload
from simcore.training.model import Parameter, Workload
from simcore.training.perform import perform
from simcore.training.plan import Communicate, Compute
from simcore.training.step import step
from simcore.training.strategies import (
    STRATEGIES,
    Setting,
    data_parallel_groups,
    footprint,
    plan_step,
    share_of_model,
)
from simcore.training.strategies.dp import broadcast_chunks, dp, reduced_chunks
from simcore.training.strategies.servers import byteps_split
from simcore.training.strategies.sharded import units

MIB = 2**20
NAMES = [row.name for row in STRATEGIES]
EXTRA = {"ps-dedicated": 1, "byteps": 2}
LAYERS = tuple(Parameter(f"h.{k}.weight", (256, 240 + 16 * (k % 3))) for k in range(12))
WORK = Workload("twelve", LAYERS).with_compute(0.3, 0.6, 0.1)
MIXED = Workload(
    "mixed",
    (
        Parameter("embedding", (200, 48)),
        Parameter("h.0.weight", (96, 48), "float16"),
        Parameter("h.0.bias", (96,), "float16"),
        Parameter("h.0.frozen", (48, 48), trainable=False),
        Parameter("h.1.weight", (480, 480)),
        Parameter("h.1.bias", (480,)),
        Parameter("head", (48, 96)),
        Parameter("scale", (1,)),  # an odd number of items
    ),
    (Parameter("mean", (96,)), Parameter("count", (), "int64"), Parameter("var", (96,))),
).with_compute(0.1, 0.2, 0.01)


def communication(plan):
    return [task for task in plan.tasks if isinstance(task, Communicate)]


def kind(task):
    schedule = task.schedule
    if schedule.name == "ring-broadcast" or "tree" in schedule.name:
        return "broadcast"
    return {
        Collective.ALL_REDUCE: "all_reduce",
        Collective.ALL_GATHER: "all_gather",
        Collective.REDUCE_SCATTER: "reduce_scatter",
    }[schedule.collective]


def listed(plan):
    return [(kind(task), task.nbytes) for task in communication(plan)]


def cluster_of(plan, rate=1e8, latency_s=0.0):
    return uniform(plan.n, rate, latency_s)


# What torch issues (simcore.training.calls and simcore.training.sharded are held to torch itself).

MODES = {
    "late": ({}, None, 1),
    "first": ({}, 0, 1),
    "second": ({}, 1, 1),
    "cap of 25": ({"bucket_cap_mb": 25}, None, 1),
    "small cap": ({"bucket_cap_mb": 0.02}, None, 1),
    "static, first": ({"static_graph": True}, 0, 1),
    "static, second": ({"static_graph": True}, 1, 1),
    "static, third": ({"static_graph": True}, 2, 1),
    "static": ({"static_graph": True}, None, 1),
    "unused": ({"find_unused_parameters": True}, None, 1),
    "unused, first": ({"find_unused_parameters": True}, 0, 1),
    "no buffers": ({"broadcast_buffers": False}, None, 1),
    "fp16": ({"hook": "fp16"}, None, 1),
    "powersgd": ({"hook": "powersgd:2:5"}, 5, 1),
    "powersgd, before it starts": ({"hook": "powersgd:2:5"}, 4, 1),
    "accumulated": ({}, None, 3),
    "accumulated, first": ({}, 0, 2),
    "accumulated, unused": ({"find_unused_parameters": True}, None, 2),
}


@pytest.mark.parametrize("work", [WORK, MIXED], ids=lambda work: work.name)
@pytest.mark.parametrize("mode", MODES)
def test_ddp_sends_what_torch_sends_in_the_same_order(mode, work):
    options, iteration, accumulate = MODES[mode]
    options = DdpOptions(**options)
    setting = Setting(work, 4, options, iteration=iteration, accumulate=accumulate)
    number, expected = setting.number, []
    rebuilt = options.rebuilt_in is not None and number > options.rebuilt_in
    state = calls.DdpState(reduced=number, rebuilt=rebuilt)
    for micro in range(accumulate):
        which = "train" if micro == accumulate - 1 else "no_sync"
        issued, state = calls.one_pass(work, options, state, which)
        expected += issued
    found = communication(plan_step("ddp", setting))
    assert [(kind(task), task.nbytes, task.label) for task in sorted(found, key=kind)] == [
        (call.kind, call.nbytes, call.label) for call in sorted(expected, key=lambda c: c.kind)
    ]
    assert [t.label for t in found if kind(t) == "all_reduce"] == [
        c.label for c in expected if c.kind == "all_reduce"
    ]


FROZEN = replace(
    WORK, name="frozen", parameters=tuple(replace(p, trainable=k > 3) for k, p in enumerate(LAYERS))
)
UNUSED = replace(WORK, name="unused", arrival=(11, 10, 8, 5, 4, 3, 2))
ROOTED = (Parameter("embedding", (64, 8)), *LAYERS)
WITH_ROOT = Workload("with root", ROOTED).with_compute(0.3, 0.6)
FLAT = Workload("flat", (Parameter("w", (64, 8)), Parameter("b", (64,)))).with_compute(0.3, 0.6)


@pytest.mark.parametrize(
    "work", [WORK, MIXED, FROZEN, UNUSED, WITH_ROOT, FLAT], ids=lambda w: w.name
)
@pytest.mark.parametrize("name", ["fsdp", "shard-grad-op", "zero3", "hsdp"])
def test_sharded_plans_send_what_torch_sends_in_the_same_order(name, work):
    for gpus, accumulate in ((1, 1), (2, 1), (4, 2)):
        setting = setting_for(name, work, gpus, accumulate=accumulate)
        if name == "hsdp" and gpus == 1:
            continue
        replicas = gpus // 2 if name == "hsdp" else 1
        of = dict(units(work))
        root = [work.parameters[i] for i in of.pop("", ())]
        layers = [[work.parameters[i] for i in members] for members in of.values()]
        expected = sharded.fsdp(
            *(layers, gpus),
            root=root,
            reshard=name != "shard-grad-op",
            replicas=replicas,
            unused=[p.name for k, p in enumerate(work.parameters) if k not in work.gradients],
        )
        groups = {"all_gather": replicas, "reduce_scatter": replicas, "all_reduce": 2}
        wanted = [(c.kind, c.nbytes) for c in expected for _ in range(groups[c.kind])]
        assert listed(plan_step(name, setting)) == wanted * accumulate


LLAMA = 32000 * 2  # its embedding and its head
ROOTS = {
    "resnet18": (8, 64 * 3 * 49 + 2 * 64 + 1000 * 513),
    "resnet50": (16, 64 * 3 * 49 + 2 * 64 + 1000 * 2049),
    "resnet101": (33, 64 * 3 * 49 + 2 * 64 + 1000 * 2049),
    "vgg16": (13 + 3, 0),
    "vit-b-16": (12, 768 * (1 + 3 * 16**2 + 1 + 197 + 2) + 1000 * 769),
    "bert-base": (12, 768 * (30522 + 512 + 2 + 2 + 2 * 769 + 2 + 2) + 30522 + 2),
    "gpt2": (12, 768 * (50257 + 1024 + 2)),
    "gpt2-medium": (24, 1024 * (50257 + 1024 + 2)),
    "gpt2-large": (36, 1280 * (50257 + 1024 + 2)),
    "gpt2-xl": (48, 1600 * (50257 + 1024 + 2)),
    "tinyllama-1.1b": (22, 2048 * (LLAMA + 1)),
    "llama-3.2-1b": (16, 2048 * (128256 + 1)),
    "llama-7b": (32, 4096 * (LLAMA + 1)),
}


@pytest.mark.parametrize("model", catalogue_names())
def test_units_are_the_blocks_and_the_root_is_the_rest(model):
    """As many as the model has blocks; the root holds embeddings, the stem, the head."""
    work, (blocks, rest) = catalogue_workload(model), ROOTS[model]
    found = dict(units(work))
    root = found.pop("", ())
    assert len(found) == blocks
    assert sum(work.parameters[i].elements for i in root) == rest
    assert sorted([*root, *sum(found.values(), ())]) == list(range(len(work.parameters)))


@pytest.mark.parametrize("name", ["fsdp", "zero3", "hsdp"])
def test_a_gpu_has_room_for_what_it_gathers_whether_there_are_units_or_not(name):
    one = Workload("one", (Parameter("h.0.w", (64, 8)),))
    root = Workload("root and two of three", (ROOTED[0], *LAYERS[:3]))
    for work, places in ((FLAT, (0, 1)), (one, (0,)), (root, (0, 2, 3))):
        rows = [work.parameters[k] for k in places]
        share = work.parameter_bytes // (2 if name == "hsdp" else N)
        kept = footprint(name, setting_for(name, work))[0].parameters
        assert kept == share + sum(p.nbytes for p in rows)


@pytest.mark.parametrize("rate", [1e6, 1e9])
@pytest.mark.parametrize("name", ["fsdp", "shard-grad-op", "zero3"])
def test_fsdp_computes_with_what_it_gathered_and_gathers_one_unit_ahead(name, rate):
    """At most two units' parameters are there at a time, unless they are kept for later."""
    plan = plan_step(name, Setting(WORK, 2))
    run = perform(plan, cluster_of(plan, rate))
    at = {task.label: k for k, task in enumerate(plan.tasks)}
    for when, order in (("forward", range(12)), ("backward", range(11, -1, -1))):
        done_s = [run.ended_s[at[f"{when} h.{u}"]].max() for u in order]
        for place, u in enumerate(order):
            if f"gather h.{u} for {when}" not in at:
                assert (name, when) == ("shard-grad-op", "backward")
                continue
            gather = at[f"gather h.{u} for {when}"]
            assert run.entered_s[at[f"{when} h.{u}"]].min() >= run.ended_s[gather].max() - 1e-9
            if name != "shard-grad-op" and place >= 2:
                assert run.entered_s[gather].min() >= done_s[place - 2] - 1e-9
            if rate == 1e9 and place:  # a fast network has them before they are asked for
                assert run.ended_s[gather].max() < done_s[place - 1]


def test_hsdp_in_nodes_of_one_gpu_all_reduces_and_in_one_node_is_fsdp():
    alone = plan_step("hsdp", Setting(WORK, 4, gpus_per_node=1))
    assert {kind(task) for task in communication(alone)} == {"all_reduce"}
    assert sum(task.nbytes for task in communication(alone)) == WORK.gradient_bytes
    whole = listed(plan_step("hsdp", Setting(WORK, 4, gpus_per_node=4)))
    assert whole == listed(plan_step("fsdp", Setting(WORK, 4)))


@pytest.mark.parametrize("inside", [1, 2])
def test_hsdp_has_a_row_for_each_unit_not_for_each_node(inside):
    setting = Setting(WORK, 8, gpus_per_node=inside, slower=(1.0,) * 7 + (3.0,))
    rows = step("hsdp", setting, uniform(8, 1e8)).buckets
    assert [row.nbytes for row in rows] == [p.nbytes for p in LAYERS[::-1]]
    plan = plan_step("hsdp", setting)
    run = perform(plan, uniform(8, 1e8))
    made = [k for k, t in enumerate(plan.tasks) if t.label.startswith("backward")]
    assert [row.ready_s for row in rows] == run.ended_s[made, 7].tolist()  # the slow GPU's


def test_accumulating_in_shards_of_gradients_reduces_every_micro_batch():
    """Who keeps less than all gradients sends after each micro-batch; who keeps all need not."""
    for name in ("ddp", "zero1", "zero2", "zero3", "fsdp", "shard-grad-op", "hsdp"):
        result = step(name, setting_for(name, accumulate=3), uniform(N, 1e9))
        kept = result.memory[0].gradients
        sent = sum(row.nbytes for row in result.buckets)
        passes = 1 if kept == WORK.gradient_bytes else 3
        assert sent == passes * WORK.gradient_bytes, name
        assert (passes == 1) == (name in ("ddp", "zero1"))
    plan = plan_step("zero2", Setting(WORK, N, accumulate=2))
    labels = [task.label for task in plan.tasks]
    assert labels.index("bucket 0") < labels.index("forward 2") < labels.index("optimizer")


def test_zero_redundancy_optimizer_broadcasts_after_all_reducing():
    setting = Setting(MIXED, 3)
    plan = plan_step("zero-redundancy-optimizer", setting)
    expected = sharded.zero_redundancy_optimizer(MIXED, 3)
    found = listed(plan)
    assert found[-len(expected) :] == [("broadcast", call.nbytes) for call in expected]
    assert found[: -len(expected)] == listed(plan_step("ddp", setting))
    for call, task in zip(expected, communication(plan)[-len(expected) :], strict=True):
        assert task.label == call.label
        assert task.ranks[0] == int(call.label.rpartition(" ")[2])  # its owner begins


# Bytes, as the table states them. M and every share of it are whole numbers here.

N = 4
SENT = {
    "ddp": lambda m: [2 * (N - 1) * m // N] * N,
    "zero1": lambda m: [2 * (N - 1) * m // N] * N,
    "zero2": lambda m: [2 * (N - 1) * m // N] * N,
    "zero3": lambda m: [3 * (N - 1) * m // N] * N,
    "fsdp": lambda m: [3 * (N - 1) * m // N] * N,
    "shard-grad-op": lambda m: [2 * (N - 1) * m // N] * N,
    "hsdp": lambda m: [3 * m // 2 + m // 2] * N,  # two nodes of two: 3/2 M inside, 1/2 M between
    "local-sgd": lambda m: [2 * (N - 1) * m // N] * N,
    "ps": lambda m: [(N - 1) * m, m, m, m],
    "ps-dedicated": lambda m: [m, m, m, m, N * m],
    "byteps": lambda m: byteps_sent(N, 2, m),
}


def byteps_sent(n, k, m):
    gpu, cpu = byteps_split(n, k)
    return [m * (1 - gpu) + (n - 1) * gpu * m] * n + [n * cpu * m] * k


def setting_for(name, work=WORK, gpus=N, **more):
    more |= {"gpus_per_node": 2} if name == "hsdp" else {}
    more |= {"servers": 2} if name == "byteps" else {}
    return Setting(work, gpus, **more)


@pytest.mark.parametrize("name", SENT)
def test_bytes_are_those_of_the_table(name):
    plan = plan_step(name, setting_for(name))
    run = perform(plan, cluster_of(plan))
    expected = SENT[name](WORK.gradient_bytes)
    # Rounding of shares to whole bytes, in each of the parts that travel by themselves.
    slack = 2 * len(communication(plan)) if name == "byteps" else 0
    assert np.abs(run.sent_bytes - np.array(expected)).max() <= slack
    assert run.received_bytes.sum() == run.sent_bytes.sum()


def test_zero_redundancy_optimizer_moves_three_halves_of_zero1():
    """All ranks together 3(n-1)M, where ZeRO needs 2(n-1)M."""
    totals = {}
    for name in ("zero1", "zero-redundancy-optimizer"):
        plan = plan_step(name, Setting(WORK, N))
        totals[name] = perform(plan, cluster_of(plan)).sent_bytes.sum()
    assert totals["zero-redundancy-optimizer"] == 3 * (N - 1) * WORK.gradient_bytes
    assert totals["zero1"] == 2 * (N - 1) * WORK.gradient_bytes


def test_gloo_reduce_scatters_by_all_reducing():
    for name, parts in (("fsdp", 4), ("zero1", 3)):
        plan = plan_step(name, Setting(WORK, N, backend="gloo"))
        run = perform(plan, cluster_of(plan))
        assert run.sent_bytes.tolist() == [parts * (N - 1) * WORK.gradient_bytes // N] * N


def test_buffers_go_out_once_each_type():
    plan = plan_step("ddp", Setting(MIXED, 3))
    assert listed(plan)[:2] == [("broadcast", 2 * 96 * 4), ("broadcast", 8)]


# DataParallel.


def test_data_parallel_by_copies_sends_the_model_to_each_peer_in_turn():
    run = step("dp", Setting(WORK, N, backend="gloo"), uniform(N, 1e8)).run
    m = WORK.gradient_bytes
    assert run.sent_bytes.tolist() == [(N - 1) * m, m, m, m]
    assert run.received_bytes.tolist() == [(N - 1) * m, m, m, m]
    assert run.time_s == pytest.approx(1.0 + 2 * (N - 1) * m / 1e8)


def test_data_parallel_with_nccl_passes_the_model_on():
    run = step("dp", Setting(WORK, N), uniform(N, 1e8)).run
    m = WORK.gradient_bytes
    assert run.sent_bytes.tolist() == [m, 2 * m, 2 * m, m]
    assert run.received_bytes.tolist() == [m, 2 * m, 2 * m, m]
    pieces = -(-m // 2**19)  # the last peer has the last piece n-2 pieces after the first one
    assert run.time_s == pytest.approx(1.0 + 2 * m / 1e8 * (1 + (N - 2) / pieces), rel=0.01)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_data_parallel_moves_samples_from_and_to_gpu_0(backend):
    """Inputs out, outputs in, their gradients out; and what comes in last is added."""
    bare, fed = (
        step("dp", Setting(work, N, backend=backend), uniform(N, 1e8)).run
        for work in (WORK, replace(WORK, batch=2, input_bytes=1000, output_bytes=10))
    )
    assert (fed.sent_bytes - bare.sent_bytes).tolist() == [(N - 1) * 2020, 20, 20, 20]
    assert (fed.received_bytes - bare.received_bytes).tolist() == [(N - 1) * 20, 2020, 2020, 2020]
    ops = {task.label: {t.op for t in task.schedule} for task in communication(fed.plan)}
    adding = [label for label, found in ops.items() if found == {Op.ADD}]
    assert adding == ["reduce gradients"]


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_data_parallel_overlaps_nothing(backend):
    work = replace(WORK, input_bytes=MIB, output_bytes=MIB)
    plan = dp(Setting(work, N, backend=backend, accumulate=2))
    run = perform(plan, cluster_of(plan))
    for rank in range(N):
        order = np.lexsort((run.ended_s[:, rank], run.entered_s[:, rank]))
        ends, begins = run.ended_s[order, rank], run.entered_s[order, rank]
        here = ~np.isnan(begins)
        assert (begins[here][1:] >= ends[here][:-1] - 1e-9).all()
    # GPU 0 is in one of its tasks, or waits inside it, all the time.
    assert np.nansum((run.ended_s - run.entered_s)[:, 0]) == pytest.approx(run.time_s)
    once = perform(dp(Setting(work, N, backend=backend)), cluster_of(plan))
    assert run.time_s + 0.1 == pytest.approx(2 * once.time_s)  # no no_sync; one optimizer's step


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_data_parallel_leaves_gpus_idle_when_the_batch_is_small(backend):
    plan = dp(
        Setting(replace(WORK, batch=3), 4, backend=backend, launch_per_replica_s=0.01), batch=9
    )
    run = perform(plan, cluster_of(plan))
    assert (run.sent_bytes[3], run.received_bytes[3], run.compute_s[3]) == (0, 0, 0)
    assert run.compute_s[0] > 0.9
    assert run.compute_s[2] == pytest.approx(0.9 + 0.02)


def test_replicas_are_launched_one_after_another():
    """The GIL: the last replica's forward pass begins n-1 launches later."""
    for n in (1, 2, 5):
        plain, late = (
            step("dp", Setting(WORK, n, launch_per_replica_s=s), uniform(n, 1e9)).time_s
            for s in (0.0, 0.02)
        )
        assert late - plain == pytest.approx((n - 1) * 0.02)


def of_sizes(*nbytes, dtype="uint8"):
    return [Parameter(f"p{i}", (size,), dtype) for i, size in enumerate(nbytes)]


def test_data_parallel_s_chunks():
    """The model's close after the tensor that reaches 10 MiB, the gradients' before it would."""
    for sizes, out, home in (
        ([4, 4, 4], [12], [8, 4]),
        ([10, 1], [10, 1], [10, 1]),
        ([4, 6], [10], [10]),
        ([11, 1, 1], [11, 2], [11, 2]),
        ([], [], []),
    ):
        tensors = of_sizes(*(size * MIB for size in sizes))
        assert [n // MIB for n in broadcast_chunks(tensors)] == out
        assert [n // MIB for n in reduced_chunks(tensors)] == home
    work = Workload("three", tuple(Parameter(str(i), (MIB,)) for i in range(3)), (LAYERS[0],))
    of = {t.label: t for t in communication(dp(Setting(work, 3, backend="gloo")))}
    sent, taken = of["send parameters"], of["reduce gradients"]
    assert np.diff(sent.bounds).tolist() == [12 * MIB] * 2 + [LAYERS[0].nbytes] * 2
    assert np.diff(taken.bounds).tolist() == [8 * MIB] * 2 + [4 * MIB] * 2


# Parameter servers.


def idle(work):
    """The same bytes and no time for computing: what is left is the wire's."""
    return replace(work.with_compute(0.0, 0.0), optimizer_s=0.0)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_central_server_takes_everything_in_and_gives_everything_out(n):
    """Not pipelined 2(n-1)M/B; pipelined half of that, and a part more."""
    m, rate = WORK.gradient_bytes, 1e8
    result = step("ps", Setting(idle(WORK), n, pipelined=False), uniform(n, rate))
    assert result.time_s == pytest.approx(2 * (n - 1) * m / rate)
    parts = {"partition_bytes": m // 100}
    result = step("ps", Setting(idle(WORK), n, **parts), uniform(n, rate))
    assert (n - 1) * m / rate < result.time_s < 1.1 * (n - 1) * m / rate


def test_servers_on_all_gpus_take_as_long_as_a_ring():
    work, rate = idle(WORK), 1e8
    ring = step("ddp", Setting(work, N), uniform(N, rate))
    placed = step("ps", Setting(work, N, servers=N, pipelined=False), uniform(N, rate))
    assert placed.time_s == pytest.approx(ring.time_s)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_dedicated_servers_are_as_fast_as_their_ports(servers):
    m, rate = WORK.gradient_bytes, 1e8
    setting = Setting(idle(WORK), N, servers=servers, pipelined=False)
    result = step("ps-dedicated", setting, uniform(N + servers, rate))
    assert result.time_s == pytest.approx(2 * max(m, N * m / servers) / rate, rel=1e-3)


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.floats(0.05, 20),
    st.sampled_from(["ps", "ps-dedicated"]),
)
def test_pipelining_never_slows_a_server_down(n, servers, relative, name):
    servers = min(servers, n)
    rate = WORK.gradient_bytes * relative
    extra = servers if name == "ps-dedicated" else 0
    times_s = [
        step(name, Setting(WORK, n, servers=servers, pipelined=p), uniform(n + extra, rate)).time_s
        for p in (True, False)
    ]
    assert times_s[0] <= times_s[1] * (1 + 1e-9)


def test_servers_update_their_share_between_push_and_pull():
    work, m, rate = replace(idle(WORK), optimizer_s=3.0), WORK.gradient_bytes, 1e8
    for servers in (1, 2, 4):
        setting = Setting(work, N, servers=servers, pipelined=False, partition_bytes=10**5)
        run = step("ps-dedicated", setting, uniform(N + servers, rate)).run
        labels = [task.label for task in run.plan.tasks if task.label.startswith(("pu", "up"))]
        assert labels == ["push 0", "update 0", "pull 0"]
        assert run.time_s == pytest.approx(2 * N * m / servers / rate + 3.0 / servers, rel=1e-3)


SHARES = {"zero1": 4, "zero2": 4, "zero3": 4, "fsdp": 4, "shard-grad-op": 4, "hsdp": 2}
SHARES |= {"ddp": 1, "dp": 1}


@pytest.mark.parametrize("name", SHARES)
def test_the_optimizer_works_on_what_a_gpu_keeps(name):
    (update,) = (t for t in plan_step(name, setting_for(name)).tasks if t.label == "optimizer")
    assert update.seconds == pytest.approx(WORK.optimizer_s / SHARES[name])


def test_an_owner_s_optimizer_works_on_whole_parameters():
    shapes = {"a": (6,), "b": (3,), "c": (2,), "frozen": (40,)}
    layers = tuple(Parameter(k, shape, trainable=k != "frozen") for k, shape in shapes.items())
    work = Workload("w", layers).with_compute(1.0, 2.0, 11.0)
    setting = Setting(work, 3, slower=(1.0, 1.0, 2.0))
    (update,) = (
        task
        for task in plan_step("zero-redundancy-optimizer", setting).tasks
        if task.label == "optimizer"
    )
    assert update.seconds == pytest.approx((0.0, 6.0, 10.0))  # rank 0 has the frozen one


@given(st.integers(2, 40), st.data())
def test_byteps_s_split_keeps_all_ports_equally_busy(n, data):
    k = data.draw(st.integers(0, n))
    gpu, cpu = byteps_split(n, k)
    assert n * gpu + k * cpu == pytest.approx(1)
    assert min(gpu, cpu) >= 0
    if k:
        assert n * cpu == pytest.approx(1 + (n - 2) * gpu)


# Inside a larger job.


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_groups_share_the_ranks_out(data, tensor, pipeline):
    world = data * tensor * pipeline
    groups = data_parallel_groups(world, tensor, pipeline)
    assert sorted(rank for group in groups for rank in group) == list(range(world))
    assert {len(group) for group in groups} == {data}
    assert len(groups) == tensor * pipeline
    for group in groups:  # one place in the tensor, one stage
        assert len({rank % tensor for rank in group}) == 1
        assert len({rank // (world // pipeline) for rank in group}) == 1


def test_a_group_moves_its_share_of_the_gradients():
    """64 GPUs, 8 to a tensor, 2 stages: groups of 4, each rank sends 2(4-1)/4 of M/16."""
    work = Workload("m", (Parameter("w", (1024, 64)), Parameter("b", (1024,)))).with_compute(
        1.6, 3.2
    )
    share = share_of_model(work, tensor=8, pipeline=2)
    (size,) = {len(group) for group in data_parallel_groups(64, 8, 2)}
    run = step("ddp", Setting(share, size), uniform(size, 1e6)).run
    assert run.sent_bytes.tolist() == [2 * 3 * work.gradient_bytes // 16 // 4] * 4
    assert run.compute_s.tolist() == pytest.approx([4.8 / 16] * 4)
    assert share_of_model(work) is work
    with pytest.raises(ValueError, match="accepted: multiples of 16"):
        data_parallel_groups(24, 8, 2)
    with pytest.raises(ValueError, match="must be at least 1, got 0 and 2"):
        share_of_model(work, 0, 2)


# Laws that every strategy keeps.

UNORDERED = [{"find_unused_parameters": True}, {"static_graph": True}]
sizes = st.integers(1, 40).map(lambda k: 60 * k)  # equal shares for up to six ranks


@st.composite
def workloads(draw):
    names = draw(st.integers(1, 5))
    parts = [Parameter(f"h.{k}.w", (draw(sizes), 2)) for k in range(names)]
    order = draw(st.permutations(range(names)))
    arrival = draw(st.sampled_from([None, tuple(order), tuple(order[: names // 2 + 1])]))
    frozen = arrival is not None and draw(st.booleans())
    if frozen:  # what gets no gradient is frozen, or else unused
        parts = [replace(p, trainable=k in arrival) for k, p in enumerate(parts)]
    sent = draw(st.sampled_from([0, 60]))
    work = Workload("drawn", tuple(parts), arrival=arrival, input_bytes=sent)
    forward_s, backward_s = draw(st.floats(0.01, 5)), draw(st.floats(0.01, 5))
    return work.with_compute(forward_s, backward_s, draw(st.sampled_from([0.0, 0.5])))


@st.composite
def cases(draw, names=tuple(NAMES), most=6):
    name, n = draw(st.sampled_from(names)), draw(st.integers(1, most))
    takes = next(row.takes for row in STRATEGIES if row.name == name)
    more = {"accumulate": draw(st.integers(1, 2))}
    if name == "hsdp":
        more["gpus_per_node"] = draw(st.sampled_from([g for g in range(1, n + 1) if n % g == 0]))
    if "overlap" in takes:
        more["overlap"] = draw(st.sampled_from([0.0, 0.5, 1.0]))
    if "servers" in takes:
        more["servers"] = draw(st.integers(0 if name == "byteps" else 1, n))
        more["partition_bytes"] = draw(st.sampled_from([400, 10**6]))
    if "backend" in takes:
        more["backend"] = draw(st.sampled_from(["nccl", "gloo"]))
    if "iteration" in takes:
        more["iteration"] = draw(st.integers(0, 3))
        cap = draw(st.sampled_from([None, 0.0005, 0.002]))
        more["options"] = DdpOptions(bucket_cap_mb=cap)
    work = draw(workloads())
    if "find_unused_parameters" in takes:
        unused = sum(p.trainable for p in work.parameters) > len(work.gradients)
        first = more["iteration"] == 0 and more["accumulate"] > 1  # torch has no such static graph
        mode = draw(st.sampled_from([{}] * (not unused) + UNORDERED[: 1 if first else 2]))
        more["options"] = replace(more["options"], **mode)
    if draw(st.booleans()):
        more["slower"] = tuple(draw(st.sampled_from([1.0, 1.5])) for _ in range(n))
    extra = more["servers"] if name in EXTRA else 0
    return name, Setting(work, n, **more), n + extra


rates = st.sampled_from([300.0, 3e3, 1e6])


@given(cases(), rates, st.sampled_from([0.0, 0.1]))
def test_a_step_is_computing_and_what_is_exposed(case, rate, latency_s):
    name, setting, ranks = case
    result = step(name, setting, uniform(ranks, rate, latency_s))
    slowest = max(setting.slower, default=1.0)
    assert result.time_s >= result.compute_s * (1 - 1e-12)
    assert result.exposed_communication_s == pytest.approx(result.time_s - result.compute_s)
    assert result.compute_s <= slowest * result.alone_s * (1 + 1e-9)
    if setting.gpus == 1 and ranks == 1:
        served = setting.workload.optimizer_s * (name in ("ps", "byteps"))  # a wait for workers
        assert -1e-9 <= result.exposed_communication_s <= served + 1e-9
        assert result.run.sent_bytes.sum() == 0
    for row in result.buckets:
        assert row.ready_s <= row.start_s + 1e-9
        assert row.start_s <= row.end_s
    faster = step(name, setting, uniform(ranks, 2 * rate, latency_s))
    assert faster.time_s <= result.time_s * (1 + 1e-9)


@given(cases(), rates)
def test_gradients_leave_when_they_are_there_and_the_optimizer_waits_for_them(case, rate):
    name, setting, ranks = case
    plan = plan_step(name, setting)
    run = perform(plan, uniform(ranks, rate))
    made = {}
    for k, task in enumerate(plan.tasks):
        for value in task.reads:
            if value.startswith(("gradients", "ready", "reduced", "pushed", "updated")):
                for writer in made.get(value, []):
                    late = run.ended_s[writer] - run.entered_s[k]
                    assert not (late > 1e-9).any()
        for value in task.writes:
            made.setdefault(value, []).append(k)
        if isinstance(task, Communicate) and task.label.startswith(("bucket", "reduce", "push")):
            computed_s = (setting.workload.backward_s[setting.workload.gradients[0]] or 0) / 2
            early = sum(setting.workload.forward_s) + computed_s - run.entered_s[k]
            assert not (early[: setting.gpus] > 1e-9).any()  # not before the first gradient
    steps = [
        k for k, t in enumerate(plan.tasks) if isinstance(t, Compute) and t.kind == "optimizer"
    ]
    gradients = [k for k, t in enumerate(plan.tasks) if t.label.startswith(("bucket", "reduce"))]
    if name not in ("ps", "ps-dedicated", "byteps", "local-sgd"):
        (last,) = steps
        for k in gradients:
            assert not (run.ended_s[k] - run.entered_s[last] > 1e-9).any()


@given(cases(names=("ddp", "zero-redundancy-optimizer", "zero1")), rates)
def test_buckets_leave_in_order_one_or_two_at_a_time(case, rate):
    name, setting, ranks = case
    plan = plan_step(name, setting)
    run = perform(plan, uniform(ranks, rate))
    rows = [k for k, t in enumerate(plan.tasks) if isinstance(t, Communicate)]
    most = {"nccl": 1, "gloo": 2}[setting.backend]
    labels = [plan.tasks[k].label for k in rows if plan.tasks[k].label.startswith("bucket")]
    assert labels == [f"bucket {i}" for i in range(len(labels))]
    for rank in range(ranks):
        begins, ends = run.entered_s[rows, rank], run.ended_s[rows, rank]
        assert (np.diff(begins) >= -1e-9).all()
        for begin in begins:
            assert ((begins <= begin + 1e-9) & (ends > begin + 1e-9)).sum() <= most


@given(cases(names=("ddp", "zero1", "ps", "ps-dedicated")), rates)
def test_without_overlap_nothing_leaves_before_the_backward_pass_ends(case, rate):
    name, setting, ranks = case
    setting = replace(setting, overlap=0.0)
    plan = plan_step(name, setting)
    run = perform(plan, uniform(ranks, rate))
    passes = [
        k for k, t in enumerate(plan.tasks) if isinstance(t, Compute) and t.kind == "backward"
    ]
    for k, task in enumerate(plan.tasks):
        if task.label.startswith(("bucket", "push")):
            early = run.ended_s[passes].max(axis=0) - run.entered_s[k]
            assert not (early[: setting.gpus] > 1e-9).any()


@settings(max_examples=150)
@given(cases(most=4), rates, st.sampled_from([0.0, 0.1]))
def test_both_solvers_agree_on_every_strategy(case, rate, latency_s):
    name, setting, ranks = case
    plan = plan_step(name, setting)
    cluster = uniform(ranks, rate, latency_s)
    alone, together = perform(plan, cluster), perform(plan, cluster, solver="events")
    # A ring's chunks may differ by an item, which its formula counts in every step.
    items = 8 / rate * sum(t.schedule.n_steps for t in communication(plan))
    assert alone.time_s == pytest.approx(together.time_s, rel=1e-9, abs=items)
    assert (alone.sent_bytes == together.sent_bytes).all()
    assert (alone.received_bytes == together.received_bytes).all()


@pytest.mark.parametrize("name", NAMES)
def test_accumulating_repeats_the_passes_and_sends_gradients_once_or_each_time(name):
    once, thrice = (
        step(name, setting_for(name, accumulate=k), uniform(N + EXTRA.get(name, 0), 1e12))
        for k in (1, 3)
    )
    assert thrice.compute_s - once.compute_s == pytest.approx(2 * 0.9)
    sent = thrice.run.sent_bytes / np.maximum(once.run.sent_bytes, 1)
    per_pass = {"dp": 3, "zero3": 3, "fsdp": 3, "shard-grad-op": 3, "hsdp": 3}
    per_pass["zero2"] = 2  # has no room for whole gradients; parameters are gathered once
    if name in per_pass:  # they gather the parameters, or send the model out, in every pass
        assert (sent == per_pass[name]).all()
    else:
        assert (sent == 1).all()


@pytest.mark.parametrize("name", NAMES)
def test_fields_that_a_strategy_takes_change_something(name):
    """And the others nothing: the table's column ``takes`` is true."""
    row = next(r for r in STRATEGIES if r.name == name)
    base = setting_for(name, MIXED if "backend" not in row.takes else WORK)
    small = {"bucket_cap_mb": 1.2}  # buckets of 5, 5 and 2 layers, from one end or the other
    changes = {
        "bucket_cap_mb": {"options": DdpOptions(bucket_cap_mb=0.1)},
        "find_unused_parameters": {"options": DdpOptions(**small, find_unused_parameters=True)},
        "hook": {"options": DdpOptions(hook="fp16")},
        "iteration": {"iteration": 0, "options": DdpOptions(**small)},
        "overlap": {"overlap": 0.0},
        "backend": {"backend": "gloo"},
        "algorithm": {"algorithm": "tree"},
        "servers": {"servers": 3},
        "pipelined": {"pipelined": False, "partition_bytes": 10**5},
        "period": {"period": 3},
        "launch_per_replica_s": {"launch_per_replica_s": 0.1},
    }
    relative = {"iteration": {"options": DdpOptions(**small)}}
    relative["find_unused_parameters"] = relative["iteration"]
    relative["pipelined"] = {"partition_bytes": 10**5}

    def seen(**more):
        plan = plan_step(name, replace(base, **more))
        return [
            (t.label, t.seconds if isinstance(t, Compute) else t.key, t.reads, t.stream)
            for t in plan.tasks
        ], dict(plan.widths)

    for field, change in changes.items():
        changed = seen(**change) != seen(**relative.get(field, {}))
        if field == "hook" and field not in row.takes and changed:
            raise AssertionError(f"{name} reads {field}")
        assert changed == (field in row.takes), field
