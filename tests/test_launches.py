"""When torch lets a bucket go, and in which chunks DataParallel and model averaging send."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcore.cluster import uniform
from simcore.training.buckets import DdpOptions
from simcore.training.catalogue import catalogue_workload
from simcore.training.model import Parameter, Workload
from simcore.training.perform import perform
from simcore.training.plan import Communicate
from simcore.training.strategies import Setting, plan_step
from simcore.training.strategies.dp import COALESCED_BYTES, broadcast_chunks, reduced_chunks
from tests.ddp_support import fake_group, module_of, torch_or_skip

SMALL = 0.0005  # MiB: buckets of about 500 bytes
MODES = {
    "plain": {"bucket_cap_mb": SMALL},
    "unused": {"bucket_cap_mb": SMALL, "find_unused_parameters": True},
    "static": {"bucket_cap_mb": SMALL, "static_graph": True},
    "static and unused": {
        "bucket_cap_mb": SMALL,
        "static_graph": True,
        "find_unused_parameters": True,
    },
}


@pytest.fixture(autouse=True, scope="module")
def torch():
    return torch_or_skip()


def real_launches(workload, iterations, **arguments):
    """Of each iteration's buckets, as they go: bytes, and how many gradients there were by then."""
    import torch

    seen, arrived = [], []

    def hook(state, bucket):
        seen[-1].append((bucket.buffer().nbytes, len(arrived)))
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    with fake_group(4), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of searches that find nothing
        module = module_of(workload)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(arrived.append)
        wrapped = torch.nn.parallel.DistributedDataParallel(module, init_sync=False, **arguments)
        wrapped.register_comm_hook(None, hook)
        for _ in range(iterations):
            seen.append([])
            arrived.clear()
            wrapped().backward()
    return seen


def launches(workload, iteration, **arguments):
    """The same of the plan, in which every gradient takes a second and the wire no time."""
    count = len(workload.parameters)
    timed = replace(workload, forward_s=(0.0,) * count, backward_s=(1.0,) * count)
    setting = Setting(timed, 4, DdpOptions(**arguments), iteration=iteration)
    plan = plan_step("ddp", setting)
    run = perform(plan, uniform(4, 1e15))
    return [
        (task.nbytes, round(run.entered_s[k, 0]))
        for k, task in enumerate(plan.tasks)
        if isinstance(task, Communicate) and task.label.startswith("bucket")
    ]


@st.composite
def partly_used(draw):
    """Parameters of which some are frozen, some get no gradient, and the rest in any order."""
    count = draw(st.integers(1, 7))
    dtypes = st.sampled_from(["float32", "float32", "float16"])
    drawn = [
        Parameter(f"p{k}", (draw(st.integers(1, 200)),), draw(dtypes), draw(st.integers(0, 4)) > 0)
        for k in range(count)
    ]
    trained = [k for k, p in enumerate(drawn) if p.trainable]
    if not trained:
        drawn[0], trained = replace(drawn[0], trainable=True), [0]
    order = draw(st.permutations(trained))
    used = len(order) if draw(st.booleans()) else draw(st.integers(1, len(order)))
    return Workload("partly", tuple(drawn), arrival=tuple(order[:used]))


FOUR = tuple(Parameter(name, (150,)) for name in "abcd")  # a bucket each


@settings(max_examples=20)
@example(Workload("one of four", FOUR, arrival=(3, 2, 0)), "unused")
@example(Workload("the last", FOUR, arrival=(2, 1, 0)), "unused")  # bucket 0 has no other
@example(Workload("the first", FOUR, arrival=(3, 1)), "static")
@given(partly_used(), st.sampled_from(list(MODES)))
def test_a_bucket_leaves_with_the_gradient_that_lets_torch_s_go(work, mode):
    """One of unused parameters with the first gradient of all, not before the pass has begun."""
    arguments = MODES[mode]
    silent = sum(p.trainable for p in work.parameters) > len(work.gradients)
    count = 1 if silent and mode == "plain" else 4  # torch stops in the second
    for iteration, real in enumerate(real_launches(work, count, **arguments)):
        assert launches(work, iteration, **arguments) == real


def test_unused_parameters_do_not_leave_before_the_forward_pass():
    """Of every strategy with buckets; so it was that they went at the start of the step."""
    work = Workload("four", FOUR, arrival=(2, 1, 0)).with_compute(1.0, 3.0)
    for name in ("ddp", "zero1", "zero2", "zero-redundancy-optimizer"):
        for overlap in (1.0, 0.5, 0.0):
            for mode in ("unused", "static"):
                options = DdpOptions(**MODES[mode])
                plan = plan_step(name, Setting(work, 4, options, overlap=overlap))
                run = perform(plan, uniform(4, 1e15))
                begins = [
                    run.entered_s[k, 0]
                    for k, task in enumerate(plan.tasks)
                    if task.label.startswith("bucket")
                ]
                assert len(begins) == 4
                held = (1 - overlap) * 2  # seconds of the pass that follow the first gradient
                assert min(begins) == pytest.approx(2.0 + held)


# DataParallel.


def cut(tensors, limit):
    from tests.torch_calls import broadcast_chunks_of

    chunks = broadcast_chunks_of(tensors, limit)
    if chunks is None:
        pytest.skip("only a torch 2.13 for Linux shows how it cuts a broadcast")
    return sorted(sum(tensors[i].nbytes for i in chunk) for chunk in chunks)


def on_meta(parameters):
    import torch

    return [torch.empty(p.shape, dtype=getattr(torch, p.dtype), device="meta") for p in parameters]


tensors = st.lists(
    st.builds(
        Parameter,
        st.just("p"),
        st.integers(0, 3 * 2**20).map(lambda n: (n,)),
        st.sampled_from(["float32", "float16", "int64"]),
    ),
    max_size=12,
)


@given(tensors)
def test_chunks_of_dataparallel_are_torch_s(drawn):
    from torch._utils import _take_tensors

    real = on_meta(drawn)
    home = [sum(t.nbytes for t in chunk) for chunk in _take_tensors(real, COALESCED_BYTES)]
    assert reduced_chunks(drawn) == home
    assert sorted(broadcast_chunks(drawn)) == cut(real, COALESCED_BYTES)


@pytest.mark.parametrize(("name", "out", "home"), [("resnet50", 11, 13), ("resnet18", 6, 6)])
def test_dataparallel_sends_parameters_and_buffers_apart_and_sums_frozen_ones_too(name, out, home):
    """What ``replicate`` sends, and what its backward pass brings home."""
    from torch._utils import _take_tensors

    from tests.torch_calls import replicated

    work = catalogue_workload(name)
    rows = tuple(replace(p, trainable=k > 9) for k, p in enumerate(work.parameters))
    used = tuple(range(len(rows) - 1, 20, -1))
    work = replace(work, parameters=rows, arrival=used, input_bytes=0)
    seen = replicated(module_of(work))
    assert [len(listed) for listed in seen["out"]] == [len(rows), len(work.buffers)]
    sent = [nbytes for listed in seen["out"] for nbytes in cut(listed, COALESCED_BYTES)]
    (summed,) = seen["home"]
    taken = [sum(t.nbytes for t in chunk) for chunk in _take_tensors(summed, COALESCED_BYTES)]
    assert sorted(broadcast_chunks(work.parameters, work.buffers)) == sorted(sent)
    assert reduced_chunks(work.parameters) == taken
    assert (len(sent), len(taken)) == (out, home)
    setting = Setting(work.with_compute(0.1, 0.2), 2, backend="gloo")
    of = {task.label: task for task in plan_step("dp", setting).tasks}
    assert of["send parameters"].nbytes == work.parameter_bytes + work.buffer_bytes
    assert of["reduce gradients"].nbytes == work.parameter_bytes


# Local SGD.


def averaged(workload):
    """The collectives of torch's own averaging after one backward pass."""
    from torch.distributed.algorithms.model_averaging import utils

    from tests.torch_calls import Calls

    module, calls = module_of(workload), Calls()
    module().backward()
    with fake_group(4), calls:
        utils.average_parameters(iter(utils.get_params_to_average(module.parameters())), None)
    return calls.take()


@settings(max_examples=20)
@given(partly_used())
@example(Workload("halves", (Parameter("a", (3,), "float16"), Parameter("b", (5,), "bfloat16"))))
@example(Workload("half", (Parameter("a", (3,), "float16"), Parameter("b", (5,), "float16"))))
@example(Workload("double", (Parameter("a", (3,)), Parameter("b", (5,), "float64"))))
def test_local_sgd_averages_what_torch_averages_at_once(work):
    work = work.with_compute(0.1, 0.2)
    plan = plan_step("local-sgd", Setting(work, 4, period=2))
    sent = [("all_reduce", t.nbytes) for t in plan.tasks if isinstance(t, Communicate)]
    assert sent == averaged(work)
