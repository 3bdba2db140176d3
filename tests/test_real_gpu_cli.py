"""The command line of real_gpu: what it refuses, and what it says is here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from real_gpu import info
from real_gpu.commands import COMMANDS, parser
from real_gpu.job import RunError, parse_network
from real_gpu.network import shaped
from real_gpu.recording import environment
from tests.support import read_record, require

REPOSITORY = Path(__file__).resolve().parent.parent


def cli(*arguments: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "real_gpu", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


GOOD = {"--gpus": "2", "--size": "8MiB", "--out": "r.json"}


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("rnig", {}, "did you mean 'ring'"),
        ("torch.allreduce", {}, "did you mean 'torch.all_reduce'"),
        ("ring", {"--gpus": "0"}, "--gpus '0'"),
        ("ring", {"--gpus": "-2"}, "--gpus '-2'"),
        ("ring", {"--gpus": "nan"}, "--gpus 'nan'"),
        ("ring", {"--gpus": "2.5"}, "--gpus '2.5'"),
        ("ring", {"--size": "-8MiB"}, "'-8MiB'"),
        ("ring", {"--size": "8"}, "'8' has no unit"),
        ("ring", {"--size": "inf"}, "'inf'"),
        ("ring", {"--size": "6B"}, "a multiple of the 4 bytes"),
        ("ring", {"--dtype": "float23"}, "did you mean 'float32'"),
        ("ring", {"--backend": "mpi"}, "unknown backend 'mpi'"),
        ("ring", {"--network": "200"}, "'200' has no unit"),
        ("ring", {"--network": "0Gbit/s"}, "above zero"),
        ("ring", {"--network": "1Tbit/s"}, "1Mbit/s to 10Gbit/s"),
        ("ring", {"--network": "1Gbit/s,50"}, "'50' has no unit"),
        ("ring", {"--network": "1Gbit/s", "--backend": "nccl"}, "--backend gloo"),
        ("ring", {"--runs": "0"}, "--runs '0'"),
        ("ring", {"--root": "1"}, "ring does not take --root; accepted: with ps"),
        ("ring", {"--size": "0"}, "'0' has no unit"),
        ("ring", {"--accumulate": "2"}, "--accumulate; accepted: with torch.ddp, torch.fsdp"),
        ("ring", {"--interface": "eth9"}, "--interface 'eth9'; accepted: under torchrun"),
        ("ring", {"--network": "1Gbit/s", "--slow-link": "gpu9.tx:1"}, "gpu0.rx, gpu1.rx\n"),
        ("hierarchical", {"--gpus-per-node": "3"}, "--gpus-per-node must divide 2 GPUs, got 3"),
        ("ps", {"--root": "2"}, "from 0 to 1"),
        ("torch.all_reduce", {"--root": "1"}, "does not take --root"),
        (
            "torch.all_reduce",
            {"--trace": "t.json"},
            "take --trace; accepted: with an algorithm",
        ),
        ("ring", {"--port": "66660"}, "--port '66660'"),
        ("ring", {"--out": "no/such/folder/r.json"}, "no/such/folder/r.json"),
        ("ring", {"--out": "."}, "'.'"),
        ("ring", {"--out": ""}, "file '' cannot be written"),
        ("ring", {"--trace": ""}, "file '' cannot be written"),
        ("ring", {"--speed": "9"}, "--speed"),
    ],
)
def test_bad_input_is_one_line_and_status_2(name, changes, says, tmp_path):
    flags = [word for pair in (GOOD | changes).items() for word in pair]
    done = cli("run", name, *flags, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [(), ("rnu",), ("run",), ("run", "ring"), ("info", "--jsn")])
def test_bad_usage_is_one_line_and_status_2(words):
    done = cli(*words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "gpus", "says"),
    [
        ("ring", "65", "--gpus '65': accepted is a whole number, 1 to 64"),
        ("ps-dedicated", "64", "--gpus 64, with servers 65 ranks; accepted: at most 64 ranks"),
    ],
)
def test_too_many_ranks_are_refused(name, gpus, says, tmp_path):
    if importlib.util.find_spec("torch") is None:
        require("gloo", "pip install torch")
    backend = ("--backend", "gloo", "--out", "r.json")
    done = cli("run", name, "--gpus", gpus, "--size", "8B", *backend, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"python -m real_gpu: {says}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ddp", "--gpus", "65"), "--gpus '65': accepted is a whole number, 2 to 64"),
        (("ps-dedicated", "--gpus", "64"), "with servers 65 ranks"),
        (("ddp", "--gpus", "2", "--accumulate", "0"), "--accumulate must be at least 1"),
        (("hsdp", "--gpus", "4", "--gpus-per-node", "3"), "--gpus-per-node must divide 4"),
        (
            ("torch.ddp", "--gpus", "2", "--hook", "fp16"),
            "torch.ddp takes no --hook; accepted: --bucket-cap-mb, --accumulate",
        ),
        (("ddp", "--gpus", "2", "--trace", ""), "file '' cannot be written"),
    ],
)
def test_a_step_that_cannot_be_is_refused(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    how = ("--model", "resnet18", "--forward", "1ms", "--backward", "1ms", "--out", "r.json")
    with pytest.raises(ValueError, match=re.escape(says)):
        COMMANDS["step"].command(parser().parse_args(["step", *words, *how]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["--out", "--report"])
def test_calibrate_refuses_a_file_without_a_name(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["calibrate", "--out", "c.json", file, ""]
    with pytest.raises(ValueError, match="file '' cannot be written"):
        COMMANDS["calibrate"].command(parser().parse_args(words))


@pytest.mark.parametrize("script", ["records", "traces", "steps_real"])
def test_a_benchmark_starts_from_a_checkout(script, tmp_path):
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "benchmarks" / f"{script}.py"), "--help"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {script}.py")


def test_the_command_line_does_not_pay_for_torch():
    code = "import sys, real_gpu.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0


def test_info_says_which_backend_and_why():
    done = cli("info", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["why"]
    assert found["backend"] in ("gloo", "nccl", None)
    said = info.as_text(found)
    assert said.splitlines()[0].startswith("backend: ")
    assert found["shaped_latency"] in (True, False)
    assert found["shaped_network"] or not found["shaped_latency"]
    if found["shaped_network"]:
        assert ("latency can be added (netem)" in said) == found["shaped_latency"]
        assert any("lacks netem" in text for text in found["missing"]) != found["shaped_latency"]


@pytest.mark.parametrize(
    ("no_network", "no_latency", "says"),
    [
        (None, None, "; latency can be added (netem)"),
        (None, "the latency cannot be made", "; latency cannot be added"),
        ("this is no Linux", None, "not here"),
    ],
)
def test_info_says_whether_wires_can_have_a_latency(monkeypatch, no_network, no_latency, says):
    monkeypatch.setattr(info, "why_not", lambda: no_network)
    monkeypatch.setattr(info, "why_no_latency", lambda: no_latency)
    found = info.info()
    assert found["shaped_latency"] == (not no_network and not no_latency)
    (line,) = (x for x in info.as_text(found).splitlines() if x.startswith("shaped network: "))
    assert line.endswith(says)
    assert (no_latency in found["missing"]) == bool(no_latency)


def test_info_and_run_without_torch(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "torch" else real(name, *a)
    )
    found = info.info()
    assert found["backend"] is None
    assert "pip install torch" in found["missing"][0]
    assert "pip install torch" in info.as_text(found).splitlines()[0]
    with pytest.raises(RunError, match="pip install torch"):
        info.choose_backend("auto", 2, shaped=False)


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_a_shaped_network_is_for_linux(monkeypatch, platform):
    monkeypatch.setattr(shaped.sys, "platform", platform)
    assert shaped.why_not() == f"a shaped network needs Linux, this is {platform}"


@pytest.mark.skipif(sys.platform != "linux", reason="asks for what Linux refuses")
def test_a_machine_that_refuses_namespaces_is_told_so_with_its_own_words(monkeypatch):
    pytest.importorskip("pyroute2", reason="pip install pyroute2")
    refuse = ["sh", "-c", "echo 'unshare failed: Operation not permitted' >&2; exit 1"]
    monkeypatch.setattr(shaped, "namespace_command", lambda: refuse)
    assert "does not allow a shaped network (unshare failed" in str(shaped.why_not())
    monkeypatch.setattr(shaped, "namespace_command", lambda: ["no-such-command"])
    assert "util-linux" in str(shaped.why_not())


def test_the_backend_is_chosen_from_what_is_here(monkeypatch):
    pytest.importorskip("torch", reason="pip install torch")
    four = info.Torch("2.13", ("GPU",) * 4, "2.30.7", True)
    monkeypatch.setattr(info, "torch_here", lambda: four)
    monkeypatch.setattr(info, "_may_have_gpu", lambda: True)
    assert info.choose_backend("auto", 4, shaped=False).backend == "nccl"
    assert info.choose_backend("auto", 4, shaped=True).backend == "gloo"
    assert info.choose_backend("auto", 5, shaped=False).backend == "gloo"
    assert info.choose_backend("gloo", 4, shaped=False).backend == "gloo"
    with pytest.raises(RunError, match="4 CUDA devices here; use --backend gloo"):
        info.choose_backend("nccl", 5, shaped=False)


@pytest.mark.gloo
def test_one_rank_alone_runs_and_says_that_it_talks_to_nobody(tmp_path):
    pytest.importorskip("torch", reason="pip install torch")
    out = ("--out", "r.json", "--json")
    done = cli("run", "ring", "--gpus", "1", "--size", "1KiB", *out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = read_record(tmp_path / "r.json")
    assert json.loads(done.stdout) == json.loads(record.to_json())
    assert record.sent_bytes == (0,)
    assert "no communication" in record.notes[-1]
    assert "/" not in record.environment["command"]


def test_an_environment_holds_no_names():
    from real_gpu.job import Job

    assert set(environment(Job(1, ()), "c")["machine"]) == {"system", "kernel", "cpu", "cores"}


def test_networks_are_read_with_their_units():
    assert parse_network("1Gbit/s,1.5ms").latency_s == 0.0015
