"""Runs on real GPUs, and the same on the CPU: traces, counters, launchers, calibration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from real_gpu.__main__ import main
from real_gpu.backends import MULTI_RANK, Torch, _at_least
from real_gpu.info import torch_here
from real_gpu.job import Case, CaseResult, Job
from real_gpu.processes.measure import measure
from real_gpu.recording import record_of
from simcore.measured.records import Record
from tests import hardware
from tests.support import read_record, require

pytest.importorskip("psutil", reason="pip install psutil")
pytest.importorskip("torch", reason="pip install torch")

from real_gpu.device import counters

ROOT = Path(__file__).parent.parent
gloo = pytest.mark.gloo
CLUSTER = {"bandwidth": "1GB/s", "latency": "40us"}


def gpus(least: int) -> Torch:
    """What torch has here, where it has as many GPUs and NCCL; else the test is skipped."""
    here = torch_here()
    if len(here.cuda_devices) < least or not here.nccl:
        many = "a CUDA GPU" if least == 1 else f"{least} CUDA GPUs"
        found = len(here.cuda_devices)
        require("gpu", f"needs {many} and NCCL, found {found} and {here.nccl}; see docs/gpu.md")
    return here


# On the CPU, so that what is asserted of GPUs is known to hold of something.


@gloo
def test_a_ring_is_watched_over_gloo(tmp_path):
    hardware.check_watched_ring(tmp_path, "gloo", "64KiB")


@gloo
def test_a_tiny_validation_over_gloo(tmp_path):
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps(CLUSTER), encoding="utf-8")
    hardware.check_validation(tmp_path / "out", "gloo", cluster)


def counted(sent: list[int | None], device_s: float = 1.0, **launched: Any) -> Record:
    """A ring of two ranks with 8 bytes each, as GPUs would have seen it."""
    case, payload = Case("ring", 2, runs=1), [{"sent": 8, "received": 8}] * 2
    seen = [
        {"device_s": device_s, "nvlink_sent_bytes": s, "nvlink_received_bytes": 8} for s in sent
    ]
    result = CaseResult([1.0], [], [], payload, devices=[seen])
    job = Job(2, (case,), "nccl", launched=launched)
    return record_of(job, case, result, calibrated=None, command="none")


def test_what_the_links_counted_is_held_to_the_payload():
    hardware.check_link_bytes(counted([8, 8]))
    for wrong in ([8, 4], [9, 8], [0, 0], [None, 8]):
        with pytest.raises(AssertionError):
            hardware.check_link_bytes(counted(wrong))
    hardware.check_device_times(counted([8, 8]))
    for device_s in (0.0, 1.1):
        with pytest.raises(AssertionError):
            hardware.check_device_times(counted([8, 8], device_s))


def test_what_a_launcher_started_is_held_to_where_it_ran():
    where = {"launcher": "torchrun", "machines": 1, "interfaces": []}
    record = counted([8, 8], **where, gpus=["NVIDIA L4"] * 2)
    hardware.check_launched(record, "nccl")
    assert record.notes == ("not simulated: the rate between GPUs is not known",)
    for wrong in (where, where | {"gpus": ["NVIDIA L4"]}, where | {"machines": 2}):
        with pytest.raises(AssertionError):
            hardware.check_launched(counted([8, 8], **wrong), "nccl")


# On GPUs.


@pytest.mark.gpu
def test_a_ring_is_watched_over_nccl(tmp_path):
    """Large enough that an enqueued message is not taken for one that was carried."""
    gpus(2)
    hardware.check_watched_ring(tmp_path, "nccl", "512MiB")


@pytest.mark.gpu
def test_nvlinks_counters_see_the_payload(tmp_path):
    gpus(2)
    links = " ".join(counters.topology() or [])
    if "NV" not in links:
        require("gpu", f"needs two GPUs that NVLink joins, found {links or 'no nvidia-smi'}")
    ring = "ring", "--gpus", "2", "--size", "256MiB", "--runs", "3", "--backend", "nccl"
    record = hardware.run(tmp_path, *ring)
    hardware.check_device_times(record)
    if record.environment["devices"]["nvlink_sent_bytes"] is None:
        require("gpu", "needs nvidia-ml-py and a driver that counts NVLink's bytes; found none")
    hardware.check_link_bytes(record)


@pytest.mark.gpu
def test_calibration_and_a_tiny_validation_over_nccl(tmp_path, capsys):
    """The one's cluster file serves the other, as a user would."""
    gpus(2)
    cluster = tmp_path / "cluster.json"
    words = ["calibrate", "--gpus", "2", "--backend", "nccl", "--quick", "--json"]
    assert main([*words, "--out", str(cluster)]) == 0
    hardware.check_calibration(json.loads(capsys.readouterr().out), cluster)
    hardware.check_validation(tmp_path / "out", "nccl", cluster)


def torchrun(folder: Path, backend: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Two ranks of a ring under torchrun's own agent."""
    ring = f"run ring --gpus 2 --size 1MiB --runs 2 --backend {backend} --out {folder}/record.json"
    words = f"-m torch.distributed.run --standalone --nproc-per-node 2 -m real_gpu {ring}"
    return subprocess.run(
        [sys.executable, *words.split()],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def first_gpu() -> dict[str, str]:
    """An environment that shows one GPU alone."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"
    return {"CUDA_VISIBLE_DEVICES": shown.split(",")[0]}


@pytest.mark.gpu
def test_torchrun_with_a_gpu_for_each_rank_takes_nccl(tmp_path):
    gpus(2)
    done = torchrun(tmp_path, "auto")
    assert done.returncode == 0, done.stderr
    hardware.check_launched(read_record(tmp_path / "record.json"), "nccl")


@pytest.mark.gpu
def test_torchrun_with_one_gpu_for_two_ranks_takes_gloo_or_refuses(tmp_path):
    """And nobody hears of NCCL's duplicate GPU."""
    gpus(1)
    alone = first_gpu() | {MULTI_RANK: "0"}
    done = torchrun(tmp_path, "auto", **alone)
    assert done.returncode == 0, done.stderr
    hardware.check_launched(read_record(tmp_path / "record.json"), "gloo")
    done = torchrun(tmp_path, "nccl", **alone)
    assert done.returncode == 1
    refusals = [line for line in done.stderr.splitlines() if "python -m real_gpu:" in line]
    assert len(refusals) == 1
    assert "NCCL" in refusals[0]


@pytest.mark.gpu
def test_several_ranks_on_one_gpu_by_consent(tmp_path, monkeypatch):
    """Bits and volumes, not times: the ranks compare every run with the reference."""
    here = gpus(1)
    if not _at_least(here.nccl or "0", (2, 30)) or "MIG" in here.cuda_devices[0].split():
        require("gpu", f"needs NCCL 2.30 and a GPU that is no slice, found {here.nccl}")
    consent = first_gpu() | {MULTI_RANK: "1"}
    for name, value in consent.items():
        monkeypatch.setenv(name, value)  # which the ranks inherit
    names = ("ring", "tree", "ps", "torch.all_reduce")
    cases = tuple(Case(name, 250_000, runs=1) for name in names)
    job = Job(2, (*cases, replace(cases[0], spans=True)), backend="nccl")
    results = measure(job)
    assert len(results) == 5
    for case, result in zip(job.cases, results, strict=True):
        record = record_of(job, case, result, calibrated=None, command="none")
        hardware.check_device_times(record)
    assert results[0].payload == [{"sent": 10**6, "received": 10**6}] * 2
    assert results[4].spans
    done = torchrun(tmp_path, "nccl", **consent)
    assert done.returncode == 0, done.stderr
    hardware.check_launched(read_record(tmp_path / "record.json"), "nccl")
