"""The collectives of a training step are those that a real DistributedDataParallel issues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simcore.training.buckets import MIB, DdpOptions
from simcore.training.calls import Call, construction, iteration, join, passes, wire_bytes
from simcore.training.model import Parameter, Workload
from simcore.training.sharded import zero_redundancy_optimizer
from simcore.training.workload import to_json
from tests.ddp_support import ranks_that_train, torch_or_skip


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request):
    torch_or_skip("gloo")
    with ranks_that_train(request.param) as started:
        yield started


def model(buffers: bool = True) -> Workload:
    """Three buckets in the default mode, a frozen parameter, buffers of two types."""
    return Workload(
        "m",
        (
            Parameter("a", (700, 400)),
            Parameter("frozen", (30, 20), trainable=False),
            Parameter("b", (400,)),
            Parameter("half", (64, 3), "float16"),
            Parameter("c", (350, 1000)),
        ),
        (Parameter("mean", (64,)), Parameter("seen", (), "int64"), Parameter("var", (64,)))
        if buffers
        else (),
    )


def plain(calls: tuple[Call, ...]) -> list[list[Any]]:
    return [[call.kind, call.nbytes] for call in calls]


CASES = {
    "training": ({}, ["train"] * 4),
    "small buckets": ({"bucket_cap_mb": 1}, ["train"] * 3),
    "no buffers": ({"broadcast_buffers": False}, ["train"] * 3),
    "accumulation": ({}, ["train", "no_sync", "no_sync", "train", "train", "no_sync", "train"]),
    "accumulation from the start": ({}, ["no_sync", "train", "no_sync", "train", "train"]),
    "eval in between": ({}, ["train", "eval", "eval", "train", "train", "eval", "train"]),
    "eval first": ({}, ["eval", "train", "eval", "train"]),
    "static graph": ({"static_graph": True}, ["train"] * 4),
    "static graph, accumulating": (
        {"static_graph": True},
        ["train", "no_sync", "train", "no_sync", "train", "train"],
    ),
    "unused parameters": (
        {"find_unused_parameters": True, "bucket_cap_mb": 1},
        ["train", "no_sync", "train", "eval", "train"],
    ),
    "both": ({"find_unused_parameters": True, "static_graph": True}, ["train"] * 4),
}


@pytest.mark.gloo
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_ddp_issues_these(name, ranks):
    arguments, kinds = CASES[name]
    for work in (model(), model(buffers=False)):
        options = DdpOptions(**arguments)
        got = ranks.train("calls_of", model=to_json(work), passes=kinds, **arguments)
        ours = [construction(work, ranks.n, options), *passes(work, options, kinds)]
        for listed in got:
            assert listed == [plain(calls) for calls in ours]


@pytest.mark.gloo
def test_the_fp16_hook_halves_and_the_buckets_stay(ranks):
    work = replace(model(), parameters=tuple(p for p in model().parameters if p.name != "half"))
    got = ranks.train("calls_of", model=to_json(work), passes=["train"] * 3, hook="fp16")
    ours = passes(work, DdpOptions(hook="fp16"), ["train"] * 3)
    assert got[0][1:] == [plain(calls) for calls in ours]
    reduced = sum(c.nbytes for c in ours[2] if c.kind == "all_reduce")
    assert reduced * 2 == work.gradient_bytes
    assert passes(work, DdpOptions(hook="bf16"), ["train"] * 3) == ours


@pytest.mark.gloo
def test_powersgd_sends_its_factors(ranks):
    """One bucket: with several, Gloo's threads may start its chained calls in any order."""
    edge = Parameter("edge", (8, 8))  # 2 x 2 x 16 numbers are not fewer than 64: left alone
    tensors = (Parameter("a", (40, 30)), Parameter("b", (30,)), Parameter("k", (9, 4, 5)), edge)
    work = Workload("m", tensors)
    hook = "powersgd:2:2"
    got = ranks.train("calls_of_powersgd", model=to_json(work), hook=hook, iterations=4)
    ours = passes(work, DdpOptions(hook=hook), ["train"] * 4)
    for listed in got:
        assert listed == [[c.nbytes for c in calls if c.kind == "all_reduce"] for calls in ours]
    assert [c.label for c in ours[3]] == ["bucket 0 uncompressed", "bucket 0 P", "bucket 0 Q"]
    assert [c.nbytes for c in ours[3]] == [4 * (30 + 64), 4 * 2 * (40 + 9), 4 * 2 * (30 + 20)]


@pytest.mark.gloo
@pytest.mark.parametrize(
    "arguments", [{}, {"find_unused_parameters": True}, {"static_graph": True}], ids=str
)
def test_join_shadows_with_all_the_bytes(arguments, ranks):
    work = model()
    inputs = [4, 1, 2][: ranks.n]
    got = ranks.train("calls_of_join", model=to_json(work), inputs=inputs, **arguments)
    ours = [call for calls in join(work, DdpOptions(**arguments), max(inputs)) for call in calls]
    for listed in got:
        assert listed == plain(tuple(ours))


@pytest.mark.gloo
@pytest.mark.parametrize("bucket_view", [False, True])
def test_torchs_zero_optimizer_sends_half_as_much_again(bucket_view, ranks):
    tensors = (Parameter("a", (50, 40)), Parameter("b", (40,)), Parameter("c", (30, 10)))
    work = Workload("m", (*tensors, Parameter("d", (40,)), Parameter("f", (9,), trainable=False)))
    got = ranks.train("calls_of_zero", model=to_json(work), bucket_view=bucket_view)
    step = zero_redundancy_optimizer(work, ranks.n, bucket_view=bucket_view)
    backward = passes(work, None, ["train"])[0]
    for listed in got:
        assert listed == [plain(backward), plain(step)]
    frozen = 36 * (not bucket_view)
    everything = wire_bytes((*backward, *step), ranks.n)
    assert everything == (ranks.n - 1) * (3 * work.gradient_bytes + frozen)


@pytest.mark.gloo
def test_zero_optimizer_with_more_ranks_than_parameters(ranks):
    work = Workload("m", (Parameter("a", (5,)),))
    for bucket_view in (False, True):
        got = ranks.train("calls_of_zero", model=to_json(work), bucket_view=bucket_view)
        step = zero_redundancy_optimizer(work, ranks.n, bucket_view=bucket_view)
        assert got[0][1] == plain(step)


def test_one_iteration_agrees_with_the_passes_before_it():
    work, options = model(), DdpOptions()
    kinds = ["train", "train", "no_sync", "no_sync", "train", "train"]
    all_of = passes(work, options, kinds)
    assert iteration(work, 2, options, 0) == all_of[0]
    assert iteration(work, 2, options, 1) == all_of[1]
    assert iteration(work, 2, options, 2, syncing=False) == all_of[2]
    assert iteration(work, 2, options, 2, syncing=False, previous="no_sync") == all_of[3] == ()
    assert iteration(work, 2, options, 2, previous="no_sync") == all_of[4]
    assert iteration(work, 2, options, 3) == all_of[5]
    kinds = ["train", "no_sync", "train"]
    assert iteration(work, 2, options, 1, previous="no_sync") == passes(work, options, kinds)[2]


def test_the_model_is_broadcast_in_parts_of_250_mib():
    tensors = tuple(Parameter(f"p{i}", (30 * MIB,)) for i in range(5))  # 120 MiB each
    model_calls = construction(Workload("m", tensors), 4)[2:]
    assert [call.nbytes // MIB for call in model_calls] == [360, 240]


def test_a_bucket_with_an_unused_parameter_is_never_sent():
    work = replace(model(buffers=False), arrival=(4, 3, 2))
    (calls,) = passes(work, None, ["train"])
    assert [call.label for call in calls] == ["bucket 0"]  # the half precision one
    with pytest.raises(ValueError, match="'a' never gets a gradient: torch stops at iteration 1"):
        passes(work, None, ["train", "train"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: passes(w, DdpOptions(static_graph=True), ["no_sync"]), "static graph"),
        (lambda w: passes(w, None, ["trian"]), "did you mean 'train'"),
        (lambda w: iteration(w, 0, None, 1), "n at least 1, got 1 and 0"),
        (
            lambda w: construction(replace(w, parameters=w.parameters[1:2]), 2),
            "'m' has nothing to train",
        ),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(model())


def test_ten_batches_against_nine_hang_at_this_call():
    """The rank with more data waits for a collective that the other never enters."""
    work = model()
    ten, nine = ([c for p in passes(work, None, ["train"] * k) for c in p] for k in (10, 9))
    assert ten[: len(nine)] == nine
    assert ten[len(nine)] == Call("broadcast", 512, "buffers float32")
    assert len(nine) == 4 + 7 + 7 * 5  # one bucket per type, a rebuild, then five calls each
