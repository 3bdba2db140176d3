"""``python -m simcore step`` and ``compare --model``: documents, text, traces, refusals."""

from __future__ import annotations

import csv
import json
import sys

import pytest

from simcore.__main__ import main
from simcore.cluster import uniform
from simcore.training.asynchronous import run_asynchronous
from simcore.training.buckets import DdpOptions
from simcore.training.memory import Optimizer
from simcore.training.perform import perform
from simcore.training.step import step
from simcore.training.strategies import STRATEGIES, Setting, footprint, share_of_model
from simcore.training.strategies.ddp import construction
from simcore.training.workload import load_workload, to_json

NAMES = [row.name for row in STRATEGIES]
TIMES = ["--forward", "20ms", "--backward", "40ms"]
WHERE = ["--gpus", "4", "--bandwidth", "10Gbit/s"]
CASE = ["--model", "resnet18", *WHERE, *TIMES]
WORK = load_workload("resnet18").with_compute(0.02, 0.04)


def own(name):
    return ["--gpus-per-node", "2"] if name == "hsdp" else []


def document_of(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    return json.loads(captured.out)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_s_document_holds_what_the_core_says(capsys, name):
    document = document_of(capsys, "step", name, *CASE, *own(name))
    setting = Setting(WORK, 4, gpus_per_node=2 if name == "hsdp" else None)
    ranks = 4 + {"ps-dedicated": 1, "byteps": 4}.get(name, 0)
    result = step(name, setting, uniform(ranks, 1.25e9))
    assert document == {
        "strategy": name,
        "source": "simulated",
        "model": "resnet18",
        "gpus": 4,
        "batch_per_gpu": 1,
        "compute_source": "given",
        "time_s": result.time_s,
        "compute_s": result.compute_s,
        "exposed_communication_s": result.exposed_communication_s,
        "sent_bytes": [b / result.steps for b in result.run.sent_bytes.tolist()],
        "received_bytes": [b / result.steps for b in result.run.received_bytes.tolist()],
        "peak_memory_bytes": [memory.total for memory in result.memory],
        "buckets": document["buckets"],
        "samples_per_s": result.samples_per_s,
        "efficiency": result.efficiency,
        "solver": result.run.solver,
    }
    for key in ("sent_bytes", "received_bytes", "peak_memory_bytes"):
        assert len(document[key]) == ranks
    for bucket in document["buckets"]:
        assert set(bucket) == {"bytes", "ready_s", "start_s", "end_s"}
        assert bucket["ready_s"] <= bucket["start_s"] <= bucket["end_s"] <= document["time_s"]
    assert document["samples_per_s"] == pytest.approx(4 / document["time_s"])
    assert document["efficiency"] == pytest.approx(0.06 / document["time_s"])


def test_ddp_s_document_by_hand(capsys):
    """Without latency each bucket takes 1.5 times its bytes over 1.25 GB/s, one after another."""
    document = document_of(capsys, "step", "ddp", *CASE)
    sizes = [bucket["bytes"] for bucket in document["buckets"]]
    assert sizes == [2052000, 28852224, 15853824]
    for bucket in document["buckets"]:
        took_s = bucket["end_s"] - bucket["start_s"]
        assert took_s == pytest.approx(1.5 * bucket["bytes"] / 1.25e9, rel=1e-6)
    begins = [bucket["start_s"] for bucket in document["buckets"]]
    assert begins[2] == document["buckets"][1]["end_s"]
    assert document["time_s"] == document["buckets"][-1]["end_s"]
    assert document["compute_s"] == pytest.approx(0.06)


GOLDEN = """\
ddp: resnet18, batch 1 on each of 4 GPUs, gradients 46.76 MB
compute        given
simulated      81.54 ms a step, 49.06 samples/s, efficiency 73.6%
  computing    60 ms
  exposed      21.54 ms, 26.4% of the step
sent           70.18 MB by the GPU that sends most, 70.14 MB by the least
must hold      255.7 MB
bucket         ready         begins        ends
  2.052 MB     20.1 ms       20.1 ms       22.57 ms
  28.85 MB     27.89 ms      27.89 ms      62.52 ms
  15.85 MB     60.09 ms      62.52 ms      81.54 ms
measured       250 ms: not explained by this link: 190 ms are lost, the wire needs 56.2 ms; look \
at: input pipeline, CPU of the servers (summing, threads), one TCP connection that does not fill \
the link, launch and coordination per message, a straggler
"""


def test_text_for_people(capsys):
    assert main(["step", "ddp", *CASE, "--measured", "250ms"]) == 0
    assert capsys.readouterr().out == GOLDEN
    assert main(["step", "local-sgd", *CASE]) == 0
    assert "bucket" not in capsys.readouterr().out  # it has no buckets to list


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ("59ms", "no longer than one GPU computes; look at the compute times"),
        ("100ms", "40 ms more than one GPU computes; the network can take up to 56.2 ms"),
        ("200ms", "140 ms more than one GPU computes; the network can take up to 56.2 ms"),
        ("230ms", "not explained by this link: 170 ms are lost, the wire needs 56.2 ms; look at:"),
    ],
)
def test_what_the_network_can_have_to_do_with_a_measured_step(capsys, measured, said):
    document = document_of(capsys, "step", "ddp", *CASE, "--measured", measured)
    assert document["verdict"].startswith(said)
    assert f"{document['measured_s'] * 1e3:g}ms" == measured


@pytest.mark.parametrize(
    ("name", "flags", "more"),
    [
        ("ddp", "--bucket-cap-mb 1", {"options": DdpOptions(bucket_cap_mb=1)}),
        ("ddp", "--hook fp16", {"options": DdpOptions(hook="fp16")}),
        ("ddp", "--static-graph", {"options": DdpOptions(static_graph=True)}),
        (
            "ddp",
            "--find-unused-parameters",
            {"options": DdpOptions(find_unused_parameters=True)},
        ),
        ("ddp", "--iteration 0", {"iteration": 0}),
        ("ddp", "--accumulate 3", {"accumulate": 3}),
        ("ddp", "--overlap 0.25", {"overlap": 0.25}),
        ("ddp", "--algorithm tree", {"algorithm": "tree"}),
        (
            "ddp",
            "--algorithm hierarchical --gpus-per-node 2",
            {"algorithm": "hierarchical", "gpus_per_node": 2},
        ),
        ("ddp", "--backend gloo", {"backend": "gloo"}),
        ("ddp", "--slower 1:2 --slower 1:1.5", {"slower": (1.0, 3.0, 1.0, 1.0)}),
        ("dp", "--launch-per-replica 1ms", {"launch_per_replica_s": 1e-3}),
        ("dp", "--backend gloo", {"backend": "gloo"}),
        ("ps", "--servers 4", {"servers": 4}),
        ("ps", "--not-pipelined", {"pipelined": False}),
        ("dp", "--total-batch 5", {"total_batch": 5}),
        (
            "ddp",
            "--gradient-as-bucket-view",
            {"options": DdpOptions(gradient_as_bucket_view=True)},
        ),
        ("ddp", "--no-broadcast-buffers", {"options": DdpOptions(broadcast_buffers=False)}),
        ("ddp", "--optimizer-state sgd", {"state": Optimizer("sgd")}),
        ("fsdp", "--optimizer-state momentum", {"state": Optimizer("momentum")}),
        ("local-sgd", "--period 2", {"period": 2}),
        ("hsdp", "--gpus-per-node 4", {"gpus_per_node": 4}),
    ],
)
def test_flags_reach_the_plan(capsys, name, flags, more):
    document = document_of(capsys, "step", name, *CASE, *flags.split())
    result = step(name, Setting(WORK, 4, **more), uniform(4, 1.25e9))
    assert document["time_s"] == result.time_s
    assert document["peak_memory_bytes"] == [memory.total for memory in result.memory]
    assert document["samples_per_s"] == result.samples_per_s


def test_lower_precision_halves_what_is_sent_and_keeps_a_copy_in_float32(capsys):
    plain, half = (
        document_of(capsys, "step", "ddp", *CASE, *flags)
        for flags in ([], ["--precision", "bfloat16", "--optimizer-state", "adam"])
    )
    gradients = 4 * 11_689_512
    assert sum(bucket["bytes"] for bucket in half["buckets"]) == gradients // 2
    # parameters, gradients and buckets half as large; the state three numbers instead of two
    saved = plain["peak_memory_bytes"][0] - half["peak_memory_bytes"][0]
    assert saved == 3 * gradients // 2 - gradients


def test_a_small_batch_leaves_dataparallel_s_gpus_idle(capsys):
    document = document_of(capsys, "step", "dp", *CASE, "--total-batch", "3")
    assert document["samples_per_s"] == pytest.approx(3 / document["time_s"])
    assert document["efficiency"] == pytest.approx(0.75 * 0.06 / document["time_s"])
    assert [held == 0 for held in document["peak_memory_bytes"]] == [False] * 3 + [True]
    assert document["sent_bytes"][3] == document["received_bytes"][3] == 0
    assert main(["step", "dp", *CASE, "--total-batch", "3"]) == 0
    out = capsys.readouterr().out
    assert "dp: resnet18, batch 3 on 4 GPUs" in out
    assert "idle           1 of 4 GPUs: the batch leaves them no samples" in out


def test_construction_is_told_once_and_only_where_a_model_is_wrapped(capsys):
    document = document_of(capsys, "step", "ddp", *CASE, "--construction")
    run = perform(construction(Setting(WORK, 4)), uniform(4, 1.25e9))
    assert document["construction_s"] == run.time_s
    assert document["construction_received_bytes"] == run.received_bytes.max()
    assert main(["step", "ddp", *CASE, "--construction", "--no-broadcast-buffers"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("construction"))
    assert line.endswith("once, 46.76 MB to each GPU")
    wraps = "accepted: with ddp, zero-redundancy-optimizer"
    refused(
        capsys, ["step", "fsdp", *CASE, "--construction"], "fsdp takes no --construction", wraps
    )


def test_a_join_block_s_extra_calls_are_counted(capsys):
    """With buffers three: who is left, whose buffers, who reduces; then the last one's model."""
    document = document_of(capsys, "step", "ddp", *CASE, "--join")
    assert document["join_collectives"] == 3
    model = WORK.parameter_bytes + WORK.buffer_bytes
    assert document["join_end_wire_bytes"] == 3 * model + 2 * 3 * (4 + 8)
    without = document_of(capsys, "step", "ddp", *CASE, "--join", "--no-broadcast-buffers")
    assert without["join_collectives"] == 2
    assert main(["step", "ddp", *CASE, "--join"]) == 0
    assert "join           3 small all-reduces more in each iteration" in capsys.readouterr().out
    refused(capsys, ["step", "zero1", *CASE, "--join"], "zero1 takes no --join")


def test_a_sum_is_said_to_be_a_larger_learning_rate(capsys):
    for name in ("ps", "ps-dedicated", "byteps"):
        assert main(["step", name, *CASE, "--aggregation", "sum"]) == 0
        assert "sum: a mean at 4 times the learning rate" in capsys.readouterr().out
        assert main(["step", name, *CASE, "--aggregation", "mean"]) == 0
        assert "learning rate" not in capsys.readouterr().out


def test_groups_of_a_larger_job(capsys):
    """Eight GPUs, two to split tensors, two stages: groups of two, a quarter of the model."""
    where = ["--model", "resnet18", "--gpus", "8", "--bandwidth", "10Gbit/s", *TIMES]
    parts = ["--tensor-parallel", "2", "--pipeline-parallel", "2"]
    document = document_of(capsys, "step", "ddp", *where, *parts)
    assert document["data_parallel_groups"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert document["gpus"] == 2
    alone = step("ddp", Setting(share_of_model(WORK, 2, 2), 2), uniform(2, 1.25e9))
    assert document["time_s"] == alone.time_s
    assert document["sent_bytes_of_a_group"] == sum(document["sent_bytes"])
    assert sum(document["sent_bytes"]) == pytest.approx(2 * WORK.gradient_bytes / 4, rel=2e-3)
    assert main(["step", "ddp", *where, *parts]) == 0
    assert "groups         4 of 2 GPUs: (0,2) (1,3) (4,6) (5,7); " in capsys.readouterr().out
    refused(capsys, ["step", "dp", *where, *parts], "nn.DataParallel refuses", "device_ids[0]")
    odd = ["--tensor-parallel", "3"]
    refused(capsys, ["step", "ddp", *where, *odd], "multiples of 3")
    clustered = ["--model", "resnet18", "--gpus", "8", "--cluster", "dgx-a100", *TIMES]
    refused(capsys, ["step", "ddp", *clustered, *parts], "share a cluster's links", "--bandwidth")


def test_times_of_the_network_reach_the_cluster(capsys):
    flags = ["--latency", "1ms", "--launch-per-collective", "2ms", "--launch-per-message", "3ms"]
    document = document_of(capsys, "step", "ddp", *CASE, *flags)
    launches = {"launch_per_collective_s": 2e-3, "launch_per_message_s": 3e-3}
    cluster = uniform(4, 1.25e9, 1e-3, **launches)
    assert document["time_s"] == step("ddp", Setting(WORK, 4), cluster).time_s


def test_compare_lists_every_strategy_the_fastest_first(capsys):
    document = document_of(capsys, "compare", *CASE)
    rows, skipped = document["strategies"], document["skipped"]
    assert sorted([row["strategy"] for row in rows] + [row["strategy"] for row in skipped]) == (
        sorted([*NAMES, "ps-async"])
    )
    assert [row["strategy"] for row in skipped] == ["hsdp", "ps-async"]
    assert skipped[1]["reason"] == "has no one step; see step ps-async"
    assert "gpus_per_node must divide 4" in skipped[0]["reason"]
    times_s = [row["time_s"] for row in rows]
    assert times_s == sorted(times_s)
    ddp = document_of(capsys, "step", "ddp", *CASE)
    assert next(row for row in rows if row["strategy"] == "ddp") == ddp


def test_compare_leaves_out_what_cannot_follow_the_overlap(capsys):
    document = document_of(capsys, "compare", *CASE, "--overlap", "0.5", "--gpus-per-node", "2")
    skipped = {row["strategy"]: row["reason"] for row in document["skipped"]}
    assert skipped["fsdp"] == "fsdp takes no --overlap"
    without = {"dp", "fsdp", "hsdp", "local-sgd", "ps-async", "shard-grad-op", "zero3"}
    assert without == set(skipped)


def test_compare_s_table(capsys):
    assert main(["compare", *CASE]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = ["strategy", "step", "exposed", "samples/s", "efficiency"]
    assert lines[0].split()[:5] == header
    assert len(lines) == 1 + len(NAMES) - 1 + 3
    assert lines[-3] == "all times simulated; per step"
    assert lines[-2].startswith("not compared: hsdp (")
    assert lines[-1].startswith("not compared: ps-async (")


# Traces.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", [[], ["--backend", "gloo"]])
def test_a_trace_opens_as_chrome_events(capsys, tmp_path, name, backend):
    row = next(row for row in STRATEGIES if row.name == name)
    flags = [*own(name), *(backend if "backend" in row.takes else [])]
    flags += ["--overlap", "0.5"] if "overlap" in row.takes else []
    path = tmp_path / "step.json"
    document = document_of(capsys, "step", name, *CASE, *flags, "--trace", str(path))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in slices} <= set(range(len(document["sent_bytes"])))
    steps = 8 if name == "local-sgd" else 1
    ended_us = max(event["ts"] + event["dur"] for event in slices)
    assert ended_us == pytest.approx(steps * document["time_s"] * 1e6)
    tracks = {}
    for e in sorted(slices, key=lambda e: (e["ts"], e["ts"] + e["dur"])):
        track = e["pid"], e["tid"]
        assert track in named
        assert tracks.get(track, 0) <= e["ts"] + 1e-6
        tracks[track] = e["ts"] + e["dur"]
    labels = {event["name"] for event in slices}
    setting = Setting(WORK, 4, gpus_per_node=2 if name == "hsdp" else None)
    computing = {t.label for t in row.plan(setting).tasks if getattr(t, "kind", "") == "forward"}
    assert computing <= labels
    sends = [e for e in slices if named[e["pid"], e["tid"]].startswith("send")]
    assert sum(e["args"]["bytes"] for e in sends) == steps * sum(document["sent_bytes"])


def test_a_trace_as_a_table(capsys, tmp_path):
    path = tmp_path / "step.csv"
    assert main(["step", "ddp", *CASE, "--trace", str(path)]) == 0
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    lanes = {row["lane"] for row in rows}
    assert lanes == {"compute", "collective", "send", "receive"}
    buckets = [r for r in rows if r["lane"] == "collective" and r["label"].startswith("bucket")]
    assert [row["label"] for row in buckets if row["rank"] == "0"] == [
        "bucket 0",
        "bucket 1",
        "bucket 2",
    ]
    assert max(float(row["end_s"]) for row in rows) == pytest.approx(0.08154, rel=1e-3)


def test_a_trace_of_many_gpus_holds_tasks_and_no_single_messages(capsys, tmp_path):
    path = tmp_path / "step.csv"
    case = ["--model", "resnet18", "--gpus", "65", "--bandwidth", "10Gbit/s", *TIMES]
    assert main(["step", "ddp", *case, "--trace", str(path)]) == 0
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert {row["lane"] for row in rows} == {"compute", "collective"}


# Progress.


def test_long_work_shows_how_far_it_is_on_a_terminal(capsys, monkeypatch, tmp_path):
    now = iter(range(10**9))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(now)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["step", "ddp", *CASE, "--trace", str(tmp_path / "step.json")]) == 0
    shown = capsys.readouterr().err
    assert "simulating … " in shown
    assert shown.endswith("\r\033[K")
    assert main(["compare", *CASE, "--backend", "gloo"]) == 0  # two collectives at once
    parts = [p.split("%")[0] for p in capsys.readouterr().err.split("simulating … ")[1:]]
    assert [int(part) for part in parts] == sorted(int(part) for part in parts)
    assert int(parts[-1]) > 70


def test_compare_names_what_would_take_long_and_leaves_it_out(capsys):
    case = ["--model", "gpt2-xl", "--gpus", "64", "--bandwidth", "25GB/s", *TIMES]
    document = document_of(capsys, "compare", *case)
    reasons = {row["strategy"]: row["reason"] for row in document["skipped"]}
    assert reasons["byteps"] == "about 12,000,000 messages, some 16 min; step byteps simulates it"
    assert set(reasons) == {"byteps", "hsdp", "ps-async"}


def test_long_work_is_announced_and_too_long_work_refused(capsys, monkeypatch):
    monkeypatch.setattr("simcore.commands.step.TELL_S", 0.0)
    assert main(["step", "ps", *CASE, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "about 96 messages, some 1 min at the most; Ctrl-C ends it\n"
    assert json.loads(captured.out)["strategy"] == "ps"
    case = ["--model", "gpt2-xl", "--gpus", "1024", "--bandwidth", "25GB/s", *TIMES]
    refused(
        capsys,
        ["step", "byteps", *case],
        "about 3,100,000,000 messages, some 69 h; accepted: fewer GPUs",
    )


# Refusals.


def refused(capsys, arguments, *wanted):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    for text in wanted:
        assert text in captured.err, captured.err


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["step"], ["strategy"]),
        (["step", "ddpp", *CASE], ["unknown strategy 'ddpp'", "did you mean 'ddp'?", *NAMES]),
        (["step", "ddp", *WHERE, *TIMES], ["--model"]),
        (["step", "ddp", "--model", "resnet18", "--gpus", "4", *TIMES], ["--bandwidth --cluster"]),
        (["step", "ddp", "--model", "resnet19", *WHERE, *TIMES], ["did you mean 'resnet18'?"]),
        (["step", "ddp", "--model", "no.json", *WHERE, *TIMES], ["no.json", "No such file"]),
        (["step", "ddp", "--model", "resnet18", *WHERE], ["is not known", "--gpu NAME"]),
        (["step", "ddp", "--model", "resnet18", *WHERE, "--gpu", "H1000"], ["unknown GPU 'H1000'"]),
        (["step", "ddp", *CASE, "--gpu", "T4"], ["--gpu", "--forward"]),
        (
            ["step", "ddp", "--model", "resnet18", *WHERE, "--gpu", "T4", "--optimizer", "1ms"],
            ["--gpu", "--optimizer"],
        ),
        (["step", "ddp", "--model", "resnet18", *WHERE, *TIMES[:2]], ["--forward alone"]),
        (["step", "ddp", "--model", "resnet18", *WHERE, *TIMES[2:]], ["--backward alone"]),
        (
            ["step", "ddp", "--model", "resnet18", *WHERE, "--optimizer", "1ms"],
            ["--optimizer alone"],
        ),
        (["step", "ddp", *CASE, "--size", "1MB"], ["--size"]),
        (["step", "ddp", *CASE, "--dtype", "float16"], ["--dtype"]),
        (["compare", *CASE, "--dtype", "float16"], ["--dtype goes with --size"]),
        (
            ["compare", *WHERE, "--size", "1MB", "--accumulate", "2"],
            ["--accumulate goes with --model"],
        ),
        (["compare", *WHERE, "--size", "1MB", "--slower", "1:2"], ["--slower goes with --model"]),
        (["compare", *CASE, "--size", "1MB"], ["not allowed with"]),
        (["compare", *WHERE], ["--size --model"]),
        (["compare", *CASE, "--hook", "fp17"], ["unknown hook 'fp17'"]),
        (["step", "ddp", *CASE, "--cluster", "dgx-1"], ["not allowed with"]),
    ],
)
def test_bad_usage_is_one_line(capsys, arguments, wanted):
    refused(capsys, arguments, *wanted)


@pytest.mark.parametrize(
    ("name", "flags", "wanted"),
    [
        ("ddp", ["--hook", "fp8"], ["unknown hook 'fp8'", "powersgd:RANK"]),
        ("ddp", ["--hook", "powersgd:0"], ["unknown hook 'powersgd:0'"]),
        ("ddp", ["--backend", "mpi"], ["unknown backend 'mpi'", "nccl, gloo"]),
        ("ddp", ["--algorithm", "rign"], ["unknown all-reduce 'rign'", "did you mean 'ring'?"]),
        ("ddp", ["--algorithm", "ring-broadcast"], ["unknown all-reduce 'ring-broadcast'"]),
        ("ddp", ["--algorithm", "ps-dedicated"], ["unknown all-reduce 'ps-dedicated'"]),
        ("ddp", ["--algorithm", "hierarchical"], ["hierarchical needs gpus_per_node"]),
        ("ddp", ["--algorithm", "hierarchical", "--gpus-per-node", "3"], ["3", "4"]),
        ("ddp", ["--gpus-per-node", "2"], ["--gpus-per-node alone", "--algorithm hierarchical"]),
        ("hsdp", [], ["gpus_per_node must divide 4, got None"]),
        ("hsdp", ["--gpus-per-node", "3"], ["gpus_per_node must divide 4, got 3"]),
        ("hsdp", ["--gpus-per-node", "0"], ["gpus_per_node must be at least 1, got 0"]),
        ("ps", ["--servers", "0"], ["servers must be from 1 to 4, got 0"]),
        ("ps", ["--servers", "5"], ["servers must be from 1 to 4, got 5"]),
        ("ps-dedicated", ["--servers", "0"], ["servers must be at least 1, got 0"]),
        ("byteps", ["--servers", "5"], ["servers must be from 0 to", "5"]),
        ("ddp", ["--accumulate", "0"], ["accumulate must be at least 1, got 0"]),
        ("local-sgd", ["--period", "0"], ["period must be at least 1, got 0"]),
        *(("ddp", ["--batch", b], [repr(b), "at least 1"]) for b in ("0", "-1", "1.5", "x")),
        *(("ddp", ["--overlap", x], [repr(x), "from 0"]) for x in ("-0.1", "1.1", "nan", "x")),
        *(("ddp", ["--bucket-cap-mb", x], [repr(x), "MiB"]) for x in ("-1", "inf", "nan", "x")),
        *(("ddp", ["--slower", x], [repr(x), "RANK:FACTOR"]) for x in ("1", "1:0", "1:-1", "a:2")),
        ("ddp", ["--slower", "4:2"], ["--slower 4: accepted are GPUs 0 to 3"]),
        ("ddp", ["--iteration", "-1"], ["'-1'", "whole number"]),
        ("ddp", ["--measured", "1"], ["'1'", "5us, 1.5ms"]),
        ("ddp", ["--trace", "step.png"], ["step.png", ".json or .csv"]),
        ("ddp", ["--trace", "no/such/t.json"], ["is not a directory"]),
        ("ddp", ["--gpus", "65537"], ["'65537'", "1 to 65536"]),
        ("ddp", ["--gpus", "0"], ["'0'", "1 to 65536"]),
        ("ddp", ["--forward", "20"], ["'20'", "5us, 1.5ms"]),
        ("ddp", ["--bandwidth", "10"], ["'10'"]),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(capsys, name, flags, wanted):
    case = dict(zip(CASE[::2], CASE[1::2], strict=True)) | dict(
        zip(flags[::2], flags[1::2], strict=True)
    )
    refused(capsys, ["step", name, *(text for pair in case.items() for text in pair)], *wanted)


FLAGS = {
    "bucket_cap_mb": ["--bucket-cap-mb", "1"],
    "static_graph": ["--static-graph"],
    "find_unused_parameters": ["--find-unused-parameters"],
    "hook": ["--hook", "fp16"],
    "iteration": ["--iteration", "1"],
    "overlap": ["--overlap", "1"],
    "backend": ["--backend", "gloo"],
    "algorithm": ["--algorithm", "tree"],
    "servers": ["--servers", "2"],
    "pipelined": ["--not-pipelined"],
    "period": ["--period", "2"],
    "launch_per_replica_s": ["--launch-per-replica", "1ms"],
    "total_batch": ["--total-batch", "5"],
    "gradient_as_bucket_view": ["--gradient-as-bucket-view"],
    "broadcast_buffers": ["--no-broadcast-buffers"],
    "aggregation": ["--aggregation", "sum"],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_that_a_strategy_does_not_take_is_an_error(capsys, name):
    takes = next(row.takes for row in STRATEGIES if row.name == name)
    assert set(takes) <= {*FLAGS, "gpus_per_node"}
    for field, flags in FLAGS.items():
        arguments = ["step", name, *CASE, *own(name), *flags]
        if field in takes:
            assert main(arguments) == 0, flags
            capsys.readouterr()
        else:
            others = [row.name for row in STRATEGIES if field in row.takes]
            refused(capsys, arguments, f"{name} takes no {flags[0]}", ", ".join(others))


@pytest.mark.parametrize("rows", ["fc.weight,1000x1000,1,2\nfc.bias,1000,0,0", "w,7x3,1,1"])
def test_every_strategy_takes_a_model_without_numbered_layers(capsys, tmp_path, rows):
    path = tmp_path / "flat.csv"
    path.write_text(f"name,shape,forward_ms,backward_ms\n{rows}\n")
    flags = ["--model", str(path), *WHERE]
    found = document_of(capsys, "compare", *flags)
    assert [row["strategy"] for row in found["skipped"]] == ["hsdp", "ps-async"]
    by_name = {row["strategy"]: row for row in found["strategies"]}
    assert set(by_name) == set(NAMES) - {"hsdp"}
    for name in NAMES:
        alone = document_of(capsys, "step", name, *flags, *own(name))
        assert by_name.get(name, alone) == alone
        assert min(alone["peak_memory_bytes"]) > 0


def test_hsdp_s_table_has_a_line_for_each_unit(capsys):
    assert main(["step", "hsdp", *CASE, "--gpus-per-node", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) - lines.index("bucket         ready         begins        ends") == 1 + 9


def test_a_file_s_times_are_for_its_batch(capsys, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(to_json(WORK), encoding="utf-8")
    case = ["step", "ddp", "--model", str(path), *WHERE]
    assert document_of(capsys, *case)["compute_source"] == "given"
    assert document_of(capsys, *case, "--batch", "1")["batch_per_gpu"] == 1
    refused(capsys, [*case, "--batch", "2"], "for a batch of 1, not 2", "--forward T")
    assert document_of(capsys, *case, "--batch", "2", *TIMES)["batch_per_gpu"] == 2


# -- the asynchronous server ---------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--bound", "0"], ["--bound", "2", "--servers", "1"]])
def test_the_asynchronous_server_s_document(capsys, flags):
    document = document_of(capsys, "step", "ps-async", *CASE, *flags)
    bound = int(flags[1]) if flags else None
    servers = 1 if "--servers" in flags else 0
    run = run_asynchronous(
        *(uniform(4 + servers, 1.25e9), 0.06, WORK.gradient_bytes, WORK.parameter_bytes, 80, bound),
        servers=servers,
    )
    assert document["time_s"] == pytest.approx(run.time_s / 20)
    assert document["samples_per_s"] == pytest.approx(80 / run.time_s)
    assert document["staleness_mean"] == pytest.approx(run.mean_staleness)
    assert document["bound"] == bound
    assert document["sent_bytes"] == [b / 20 for b in run.trace.sent_bytes.tolist()]
    assert len(document["peak_memory_bytes"]) == 4 + servers
    wanted = {"strategy", "compute_s", "exposed_communication_s", "received_bytes", "efficiency"}
    assert wanted < set(document)
    if bound == 0:
        assert document["staleness_largest"] == 0
    # A server that is nobody's GPU holds the state; GPU 0 is then like the others.
    held = footprint("ps-dedicated" if servers else "ps", Setting(WORK, 4))
    assert document["peak_memory_bytes"] == [memory.total for memory in held]
    assert document["part_of_gradients"] == run.parts.tolist()
    assert document["dropped_gradients"] == [0] * 4


def test_who_sits_beside_the_server_supplies_most_gradients(capsys):
    beside, apart = (
        document_of(capsys, "step", "ps-async", *CASE, *flags) for flags in ([], ["--servers", "1"])
    )
    assert beside["part_of_gradients"][0] > 0.5
    assert apart["part_of_gradients"] == pytest.approx([0.25] * 4)
    assert len(set(apart["peak_memory_bytes"][:4])) == 1
    assert beside["peak_memory_bytes"][0] - beside["peak_memory_bytes"][1] == (
        2 * WORK.gradient_bytes
    )
    assert main(["step", "ps-async", *CASE]) == 0
    part = beside["part_of_gradients"]
    said = f"gradients      {part[0]:.1%} of GPU 0 (beside the server), {part[1]:.1%} of each other"
    assert said in capsys.readouterr().out


def test_backup_workers_let_a_round_go_on_without_the_straggler(capsys):
    fast = ["--model", "resnet18", "--gpus", "4", "--bandwidth", "1000Gbit/s", *TIMES]
    slow = [*fast, "--slower", "3:9.5", "--bound", "0", "--servers", "1"]
    waits, goes_on = (
        document_of(capsys, "step", "ps-async", *slow, *flags)
        for flags in ([], ["--backup-workers", "1"])
    )
    assert waits["time_s"] > 9.5 * 0.06
    assert goes_on["time_s"] < 1.1 * 0.06
    assert goes_on["compute_s"] == pytest.approx(0.06)
    assert goes_on["samples_per_s"] == pytest.approx(3 / goes_on["time_s"])
    assert goes_on["part_of_gradients"][3] == 0
    assert goes_on["dropped_gradients"][:3] == [0, 0, 0]
    assert goes_on["dropped_gradients"][3] >= 1
    assert main(["step", "ps-async", *slow, "--backup-workers", "1", "--aggregation", "sum"]) == 0
    out = capsys.readouterr().out
    assert "synchronous, not waiting for 1" in out
    assert "came too late and were dropped" in out
    assert "sum: a mean at 3 times the learning rate" in out


def test_a_slow_gpu_holds_up_a_bounded_server_and_not_a_free_one(capsys):
    slow = ["--model", "resnet18", "--gpus", "4", "--bandwidth", "100Gbit/s", *TIMES]
    slow += ["--slower", "3:4"]
    free, bounded = (
        document_of(capsys, "step", "ps-async", *slow, *flags) for flags in ([], ["--bound", "0"])
    )
    assert bounded["time_s"] > 4 * 0.06
    assert free["time_s"] < 0.6 * bounded["time_s"]
    assert free["staleness_mean"] > 1


def test_the_asynchronous_server_for_people_and_as_a_trace(capsys, tmp_path):
    path = tmp_path / "run.json"
    assert main(["step", "ps-async", *CASE, "--bound", "3", "--trace", str(path)]) == 0
    out = capsys.readouterr().out
    assert "at most 3 gradients ahead of the slowest" in out
    assert "updates on average" in out
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--hook", "fp16"], "ps-async takes no --hook"),
        (["--servers", "3"], "accepts 0 or 1"),
        (["--accumulate", "2"], "--accumulate"),
        (["--measured", "1s"], "--measured"),
        (["--bound", "-1"], "'-1'"),
        (["--slower", "4:2"], "GPUs 0 to 3"),
        (["--backup-workers", "1"], "--backup-workers alone; accepted: ps-async --bound 0"),
        (["--bound", "0", "--backup-workers", "4"], "accepted are 0 to 3"),
        (["--aggregation", "sum"], "--aggregation alone; accepted: ps-async --bound 0"),
        (["--bound", "0", "--aggregation", "max"], "unknown aggregation 'max'"),
        (["--construction"], "ps-async takes no --construction"),
        (["--join"], "--join"),
        (["--tensor-parallel", "2"], "--tensor-parallel"),
    ],
)
def test_what_the_asynchronous_server_refuses(capsys, flags, says):
    assert main(["step", "ps-async", *CASE, *flags]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_only_the_asynchronous_server_takes_a_bound(capsys):
    assert main(["step", "ddp", *CASE, "--bound", "2"]) == 2
    assert "ddp takes no --bound; accepted: with ps-async" in capsys.readouterr().err


def test_only_the_asynchronous_server_takes_backup_workers(capsys):
    refused(capsys, ["step", "ps", *CASE, "--backup-workers", "1"], "ps takes no --backup-workers")


def test_a_misspelt_asynchronous_server_is_found(capsys):
    assert main(["step", "ps-asyn", *CASE]) == 2
    assert "did you mean 'ps-async'?" in capsys.readouterr().err
