"""The library's own collectives and trainings: results, and the bytes claimed for them."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from real_gpu.backends import Torch
from real_gpu.commands import parser
from real_gpu.commands.run import command
from real_gpu.info import torch_here
from real_gpu.job import (
    COLLECTIVES,
    TRAININGS,
    Case,
    Job,
    RunError,
    check_name,
    parse_network,
)
from real_gpu.network.shaped import why_not
from real_gpu.processes.measure import measure
from real_gpu.recording import record_of
from real_gpu.vendor import collectives as vendor
from real_gpu.vendor import plan as vendor_plan
from simcore.measured.records import record_from_json
from simcore.units import FRAME_FACTOR
from tests.support import require

RANKS = 3


def training(name: str, elements: int = 5_000, **options) -> Case:
    takes = vendor_plan.TABLE[name].takes
    return Case(name, elements, runs=1, options={"accumulate": 1} | options if takes else {})


STEPS = {
    "ddp": training("torch.ddp"),
    "ddp, accumulating": training("torch.ddp", accumulate=3),
    "ddp, static graph": training("torch.ddp", static_graph=True, accumulate=2),
    "ddp, small buckets, unused": training(
        "torch.ddp", find_unused_parameters=True, bucket_cap_mb=0.005
    ),
    "ddp, small buckets": training("torch.ddp", bucket_cap_mb=0.005),
    "ddp, views and own buffers": training(
        "torch.ddp", gradient_as_bucket_view=True, broadcast_buffers=False
    ),
    "ddp, fp16": training("torch.ddp", hook="fp16"),
    # As many ranks of the matrix as rows in the whole batch: nothing is lost.
    "ddp, PowerSGD": training("torch.ddp", hook=f"powersgd:{2 * RANKS}:2"),
    "ddp, lossy PowerSGD": training("torch.ddp", hook="powersgd:1:2"),
    "zero": training("torch.zero"),
    "zero, views": training("torch.zero", parameters_as_bucket_view=True, accumulate=2),
    "fsdp": training("torch.fsdp"),
    "fsdp, kept": training("torch.fsdp", reshard_after_forward=False, accumulate=2),
    "server": training("torch.ps"),
    "server, asynchronous": training("torch.ps-async"),
}


@pytest.fixture(scope="module")
def gloo():
    absent = [p for p in ("torch", "psutil") if importlib.util.find_spec(p) is None]
    require("gloo", f"pip install {' '.join(absent)}" if absent else None)


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    return tmp_path_factory.mktemp("profile") / "trace.json"


@pytest.fixture(scope="module")
def records(gloo, profile):
    """One step of each on one set of processes; a rank that ends elsewhere than one process on
    the whole batch would have raised.
    """
    first, *others = STEPS.values()
    job = Job(RANKS, (replace(first, profile=str(profile)), *others))
    results = measure(job)
    return {
        name: (
            record_of(job, case, result, calibrated=None, command="none"),
            result.payload[0]["calls"],
        )
        for (name, case), result in zip(STEPS.items(), results, strict=True)
    }


@pytest.mark.gloo
@pytest.mark.parametrize("name", STEPS)
def test_a_step_ends_where_one_process_on_the_whole_batch_ends(records, name):
    record, seen = records[name]
    assert record_from_json(record.to_json()) == record
    assert (record.source, record.gpus, record.size_bytes) == ("vendor", RANKS, 20_000)
    assert record.environment["training"] == STEPS[name].options
    wanted = vendor_plan.expected(STEPS[name], RANKS)
    if "PowerSGD" in name:
        assert wanted is record.sent_bytes is None
        return
    got = [list(call) for call in seen]
    assert sorted(got) == sorted(wanted) if "asynchronous" in name else got == wanted
    assert "as simcore lists them" in record.notes[-1]
    assert sum(record.sent_bytes) == sum(record.received_bytes)


@pytest.mark.gloo
def test_what_a_step_sends_in_all(records):
    """Of M bytes of parameters; buffers come on top, 24 numbers from rank 0."""
    model, buffers, others = 20_000, 4 * vendor_plan.shape(5_000)[0], RANKS - 1
    sent = {name: sum(r.sent_bytes or ()) for name, (r, _) in records.items()}
    assert sent["ddp"] == sent["ddp, accumulating"] == others * (2 * model + buffers)
    assert sent["ddp, views and own buffers"] == others * 2 * model
    assert sent["ddp, fp16"] == others * (model + buffers)
    assert sent["zero"] == others * (3 * model + buffers)
    assert sent["server"] == sent["server, asynchronous"] == others * 2 * model
    # Gathered twice, and reduced by an all-reduce, since Gloo has no reduce-scatter of its own.
    padded = sum(b for kind, b in records["fsdp"][1] if kind == "reduce_scatter")
    gathered = sum(b for kind, b in records["fsdp"][1] if kind == "all_gather")
    assert sent["fsdp"] == others * (2 * padded + gathered)


@pytest.mark.gloo
def test_torchs_profiler_writes_down_one_run(records, profile):
    names = {event.get("name") for event in json.loads(profile.read_text())["traceEvents"]}
    assert "gloo:all_reduce" in names
    assert len(records["ddp"][0].runs_s) == 1


@pytest.mark.shaped
def test_the_wire_carries_the_payload_that_is_claimed(gloo):
    """Interface counters within 1 % of payload × frame, for each collective and some trainings."""
    require("shaped", why_not())
    cases = [Case(name, 3 * 2**17, runs=1) for name in COLLECTIVES]
    cases += [training(name, 3 * 2**17) for name in ("torch.ddp", "torch.fsdp", "torch.ps")]
    job = Job(RANKS, tuple(cases), network=parse_network("1Gbit/s"))
    for case, result in zip(cases, measure(job), strict=True):
        record = record_of(job, case, result, calibrated=None, command="none")
        for way in ("sent", "received"):
            counted = getattr(record, f"counter_{way}_bytes")
            wire = [b * FRAME_FACTOR for b in getattr(record, f"{way}_bytes")]
            # A rank without payload still sends notices of some tens of bytes.
            assert counted == pytest.approx(wire, rel=0.01, abs=4000), (case.name, way)


@given(st.integers(1, 5 * 2**20), st.sampled_from([2, 4, 8]), st.integers(2, 9))
def test_what_one_rank_sends_another_receives(elements, item, n):
    nbytes = elements * item
    totals = {}
    for name, row in vendor.TABLE.items():
        size = nbytes * n if row.equal_parts else nbytes
        sent, received = row.gloo(size, item, n)
        totals[name] = sum(sent) / size
        assert sum(sent) == sum(received)
        assert min(*sent, *received) >= 0
    assert totals["torch.all_reduce"] == totals["torch.reduce_scatter"] == 2 * (n - 1)
    assert totals["torch.broadcast"] == totals["torch.all_gather"] == n - 1
    assert totals["torch.reduce"] >= n - 1


def test_only_gloo_is_known_and_one_rank_sends_nothing():
    case = Case("torch.all_reduce", 8)
    assert vendor.payload(case, "nccl", 2) is None
    assert vendor.payload(case, "nccl", 1) == ((0,), (0,))
    assert vendor.payload(Case("torch.reduce", 0), "gloo", 2) == ((0, 0), (0, 0))
    assert vendor_plan.payload(training("torch.ddp"), [("all_reduce", 8)], "nccl", 2) is None


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_did_nothing_is_noticed(name, dtype):
    torch = pytest.importorskip("torch", reason="pip install torch")
    pytest.importorskip("ml_dtypes", reason="pip install ml_dtypes")
    rank = 1 if name == "torch.broadcast" else 0  # where something must change
    work = vendor.VendorCollective(Case(name, 12, dtype), rank, 3, torch.device("cpu"))
    work.reset()
    work.result = work.part if name == "torch.reduce_scatter" else work.buffer
    assert "wanted" in work.difference()
    total, _ = work.wanted
    work.result.copy_(torch.from_numpy(np.array(total)))
    assert work.difference() is None
    work.result[-1] += 1
    assert f"element {len(total) - 1}: got" in work.difference()


def test_only_rank_0_has_a_reduced_result():
    torch = pytest.importorskip("torch", reason="pip install torch")
    work = vendor.VendorCollective(Case("torch.reduce", 12), 1, 3, torch.device("cpu"))
    assert work.difference() is None


@pytest.fixture
def alone():
    """A group of this process alone."""
    pytest.importorskip("torch", reason="pip install torch")
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch imports its own
@pytest.mark.parametrize("name", ["torch.ddp", "torch.zero", "torch.dp"])
def test_a_training_that_misses_a_rank_is_noticed(name, alone):
    """Asked to be one of two ranks, in a group of one: half the batch is missing."""
    import torch

    from real_gpu.vendor.training import STEPS as STEPS_OF

    case = training(name, 100)
    for n, right in ((1, True), (2, name == "torch.dp")):
        step = STEPS_OF[name](case, 0, n, torch.device("cpu"))
        step.reset()
        step.run()
        wrong = step.difference()
        assert wrong is None if right else "update of parameter 0: off by" in wrong
    step.reset()
    assert step.difference()


def test_a_buffer_that_was_not_broadcast_is_noticed(alone):
    import torch

    from real_gpu.vendor.training import Ddp

    step = Ddp(training("torch.ddp", 100), 0, 1, torch.device("cpu"))
    step.reset()
    step.model.seen.fill_(2.0)  # as another rank has it
    step.run()
    assert step.difference().startswith("buffer: got ")


@pytest.mark.parametrize("elements", [1, 2, 7, 8, 9, 31, 32, 100, 999, 5_000, 2**21, 10**7 + 1])
def test_the_model_has_just_so_many_parameters(elements):
    assert vendor_plan.workload(elements).elements == elements


def asked(*words: str) -> int:
    return command(parser().parse_args(["run", *words, "--out", "unwritten.json"]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("ring --accumulate 2", "ring does not take --accumulate"),
        ("torch.all_reduce --static-graph", "torch.all_reduce does not take --static-graph"),
        (
            "torch.ps --accumulate 2",
            "--accumulate; accepted: with torch.ddp, torch.fsdp, torch.zero",
        ),
        ("torch.fsdp --hook fp16", "torch.fsdp does not take --hook; accepted: with torch.ddp"),
        ("torch.ddp --accumulate 0", "--accumulate '0'"),
        ("torch.ddp --bucket-cap-mb nan", "--bucket-cap-mb 'nan'"),
        ("torch.ddp --hook fp17", "unknown hook 'fp17'; did you mean 'fp16'"),
        ("torch.ddp --hook bf16", "bf16 hook needs NCCL"),
        ("torch.ddp --hook powersgd:2", "--bucket-cap-mb 8 or more"),
        ("torch.ddp --dtype float64", "trains in float32"),
        ("torch.ddp --root 1", "torch.ddp does not take --root"),
        ("torch.ddp --size 0B", "a model of 0 bytes"),
        ("torch.fsdp --gpus 1", "accepted: --gpus 2 or more"),
        ("torch.all_gather --gpus 3", "accepted: a size of a multiple of 3 elements"),
        ("torch.reduce_scatter --gpus 3", "3 equal parts; 2097152 elements"),
        ("ring --nccl-algo Ring", "accepted: with --backend nccl"),
        ("ring --nccl-algo Rnig --backend nccl", "did you mean 'Ring'"),
        ("ring --nccl-proto LL64 --backend nccl", "accepted: Simple, LL, LL128"),
        ("ring --network 1Gbit/s --backend device", "accepted: --backend gloo"),
        ("torch.dp --network 1Gbit/s", "accepted: no --network"),
        ("ring --backend device --trace t.json", "sees no single message"),
        ("ring --backend device --profile p.json", "--profile watches a rank's process"),
    ],
)
def test_what_cannot_be_is_refused_before_it_starts(words, says, monkeypatch):
    pytest.importorskip("torch", reason="pip install torch")
    monkeypatch.setattr("real_gpu.info._may_have_gpu", lambda: False)
    name, *rest = words.split()
    size = [] if "--size" in rest else ["--size", "8MiB"]
    gpus = [] if "--gpus" in rest else ["--gpus", "2"]
    with pytest.raises(ValueError, match=re.escape(says)):
        asked(name, *gpus, *size, *rest)


@pytest.mark.parametrize(
    ("words", "says"),
    [("--trace t.json", "sees no single message"), ("--profile p.json", "has none; accepted")],
)
def test_on_one_gpu_auto_is_told_the_same(words, says, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("real_gpu.info._may_have_gpu", lambda: True)
    one = Torch("2.13", ("NVIDIA L4",), "2.30.7", True)
    monkeypatch.setattr("real_gpu.info.torch_here", lambda: one)
    with pytest.raises(ValueError, match=says):
        asked("ring", "--gpus", "2", "--size", "8MiB", *words.split())
    assert list(tmp_path.iterdir()) == []


def test_dataparallel_needs_gpus_and_names_what_runs_instead(monkeypatch):
    pytest.importorskip("torch", reason="pip install torch")
    monkeypatch.setattr("real_gpu.info._may_have_gpu", lambda: False)
    with pytest.raises(RunError, match="2 CUDA devices are needed, 0 are here; 'dp' replays"):
        asked("torch.dp", "--gpus", "2", "--size", "8MiB")


def test_names_and_tables_are_the_same():
    assert tuple(vendor.TABLE) == COLLECTIVES
    assert tuple(vendor_plan.TABLE) == TRAININGS
    for name in (*COLLECTIVES, *TRAININGS):
        check_name(name)


@pytest.mark.gpu
def test_trainings_over_nccl_end_where_one_process_ends():
    devices = torch_here().cuda_devices
    if len(devices) < 2:
        require("gpu", f"needs two or more CUDA GPUs, found {len(devices)}; see docs/gpu.md")
    steps = [*STEPS.values(), training("torch.ddp", hook="bf16")]
    job = Job(2, tuple(steps), backend="nccl")
    for case, result in zip(steps, measure(job), strict=True):
        record = record_of(job, case, result, calibrated=None, command="none")
        assert record.environment["devices"]["device_s"][0] > 0
        assert not any("where simcore lists" in note for note in record.notes), record.notes


@pytest.mark.gpu
def test_dataparallel_on_its_gpus():
    devices = torch_here().cuda_devices
    if len(devices) < 2:
        require("gpu", f"needs two or more CUDA GPUs, found {len(devices)}; see docs/gpu.md")
    (result,) = measure(Job(2, (training("torch.dp"),), backend="device"))
    assert result.runs_s[0] > 0
