"""What holds of runs on any backend: looked at on GPUs as on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from real_gpu.__main__ import main
from simcore.algorithms import build_schedule
from simcore.cluster_file import load_cluster
from simcore.measured.records import Record
from simcore.measured.validation import validation_from_json
from simcore.trace import Source, Trace
from tests.support import read_record

FASTEST_BYTES_PER_S = 2e12  # twice what any link of a GPU carries each way


def run(folder: Path, *words: str) -> Record:
    """``run`` in this process's name; the record that it wrote."""
    out = folder / "record.json"
    assert main(["run", *words, "--out", str(out)]) == 0
    return read_record(out)


def check_watched_ring(folder: Path, backend: str, size: str) -> None:
    """``--trace`` and ``--profile`` of two ranks: their messages in order and when they were."""
    trace, profile = folder / "t.json", folder / "p.json"
    files = "--trace", str(trace), "--profile", str(profile)
    how = "--gpus", "2", "--size", size, "--runs", "2", "--backend", backend
    record = run(folder, "ring", *how, *files)
    assert record.backend == backend
    assert record.sent_bytes == record.received_bytes == (record.size_bytes,) * 2
    check_spans(Trace.from_json(trace.read_text(encoding="utf-8")))
    seen = json.loads(profile.read_text(encoding="utf-8"))["traceEvents"]
    assert any(backend in str(event.get("name")).lower() for event in seen)


def check_spans(trace: Trace) -> None:
    """All messages of a ring, a step after the other on each rank, none faster than light."""
    spans = trace.spans
    assert trace.source is Source.REPLAYED
    rows = {str(transfer) for transfer in build_schedule("ring", trace.n)}
    assert {spans.label(row) for row in range(len(spans))} == rows
    assert len(spans) == 2 * len(rows)
    assert np.all(spans.start_s >= 0)
    assert np.all(spans.end_s <= trace.time_s)
    assert np.all(spans.end_s - spans.start_s >= spans.nbytes / FASTEST_BYTES_PER_S)
    for rank in range(trace.n):
        mine = spans.rank == rank
        for step in range(1, int(spans.step.max()) + 1):
            before, now = mine & (spans.step == step - 1), mine & (spans.step == step)
            assert spans.start_s[now].min() >= spans.end_s[before].max()


def check_link_bytes(record: Record) -> None:
    """NVLink's counters saw the payload, and of protocols no more than the flags of LL128."""
    assert record.sent_bytes is not None
    assert record.received_bytes is not None
    for way, payload in (("sent", record.sent_bytes), ("received", record.received_bytes)):
        counted = record.environment["devices"][f"nvlink_{way}_bytes"]
        assert counted is not None
        for rank, nbytes in enumerate(payload):
            assert 0.99 * nbytes <= counted[rank] <= 1.1 * nbytes, (way, rank, counted, payload)


def check_device_times(record: Record) -> None:
    """Each run's time by the GPUs lies within what the host saw of it."""
    by_device = record.environment["devices"]["device_s"]
    assert len(by_device) == len(record.runs_s)
    for device_s, host_s in zip(by_device, record.runs_s, strict=True):
        assert 0 < device_s <= host_s


def check_validation(folder: Path, backend: str, cluster: Path) -> None:
    """A tiny one, predicted with the cluster file: its cells, their traces and what they are."""
    where = "--network", "none", "--gpus", "2", "--backend", backend
    what = "--only", "ring,torch.all_reduce", "--sizes", "64KiB", "--quick"
    words = ["validate", *where, *what, "--cluster", str(cluster), "--out", str(folder)]
    assert main(words) == 0
    validation = validation_from_json((folder / "validation.json").read_text(encoding="utf-8"))
    ring, library = validation.cells
    assert (ring.name, ring.source, ring.simulated_s is not None) == ("ring", "replayed", True)
    assert (library.source, library.simulated_s) == ("vendor", None)
    assert min(ring.measured_s, library.measured_s) > 0
    by_gpus = [any("timed by the GPUs" in note for note in cell.notes) for cell in (ring, library)]
    assert by_gpus == [backend == "nccl"] * 2
    traces = [Trace.from_json(p.read_text(encoding="utf-8")) for p in folder.glob("traces/*.json")]
    assert {trace.source for trace in traces} == {Source.SIMULATED, Source.REPLAYED}
    check_spans(next(trace for trace in traces if trace.source is Source.REPLAYED))


def check_calibration(report: dict[str, Any], cluster: Path) -> None:
    """Constants above zero, and a cluster file that holds for any number of ranks."""
    assert report["constants"]["bandwidth"]["value"] > 0
    assert {row["pattern"] for row in report["residuals"]} >= {"one way", "there and back"}
    assert all(row["measured_s"] > 0 for row in report["residuals"])
    assert load_cluster(str(cluster), 5).n == 5


def check_launched(record: Record, backend: str, launcher: str = "torchrun") -> None:
    """A ring of two ranks that others started: what it sent, and where it ran."""
    machine = record.environment["machine"]
    assert (record.backend, machine["launcher"], machine["machines"]) == (backend, launcher, 1)
    assert record.sent_bytes == record.received_bytes == (record.size_bytes,) * 2
    assert len(machine.get("gpus", ())) == (2 if backend == "nccl" else 0)
