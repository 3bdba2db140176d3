"""From results to a record: the prediction beside the measurement, and whether to believe it."""

from __future__ import annotations

import os
import platform
from dataclasses import fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from real_gpu.data import tolerance
from real_gpu.info import torch_here
from real_gpu.job import (
    CALIBRATION,
    ITEMSIZE,
    VENDOR,
    Case,
    CaseResult,
    Job,
    Network,
    reference_schedule,
    workers,
)
from simcore.cluster_file import cluster_from_dict
from simcore.engine import simulate
from simcore.records import Record
from simcore.trace import Source, Spans, Trace, no_pieces

# Ethernet, IPv4, TCP with time stamps: 1514 bytes of frame carry 1448 of payload.
FRAME_BYTES_PER_PAYLOAD_BYTE = 1514 / 1448
CALIBRATE_S, CALIBRATE_RUNS = 0.5, 5
MOST_SPREAD, MOST_RATE_ERROR = 0.05, 0.01


def calibration(network: Network) -> Case:
    """Traffic that fills every port both ways for half a second, to see the rate that it has."""
    payload = network.bytes_per_s * CALIBRATE_S / FRAME_BYTES_PER_PAYLOAD_BYTE
    return Case(CALIBRATION, max(1, round(payload / 4)), "float32", CALIBRATE_RUNS)


def record_of(
    job: Job,
    case: Case,
    result: CaseResult,
    *,
    network: str | None,
    calibrated: CaseResult | None,
    command: str,
) -> Record:
    """The record of one case; ``network`` is its text as the user gave it."""
    vendor = case.name in VENDOR
    sent = received = _gloo_ring_bytes(job, case) if vendor else None
    if result.payload is not None:
        sent, received = (tuple(p[way] for p in result.payload) for way in ("sent", "received"))
    simulated, notes = _simulated(job, case, network)
    if vendor:
        notes = [*notes, *_vendor_notes(job, case, sent)]
    if sent is not None and not any(sent):
        notes = [*notes, "no communication: there is nothing to send"]
    counters: dict[str, Any] = {
        f"counter_{name}_bytes": _median_per_rank(result.counters, name)
        for name in ("sent", "received", "ack_sent", "ack_received")
    }
    quiet = result.counters and not any(result.counters[-1]["sent"])
    return Record(
        source=(Source.VENDOR if vendor else Source.REPLAYED).value,
        name=case.name,
        backend=job.backend,
        network=network,
        gpus=workers(case, job.n),
        size_bytes=case.size_bytes,
        dtype=case.dtype,
        runs_s=tuple(result.runs_s),
        median_s=median(result.runs_s),
        sent_bytes=sent,
        received_bytes=received,
        **counters,
        simulated=simulated,
        environment=environment(job, command),
        instrument=None if network is None or quiet else instrument(job, result, calibrated),
        flags=case.flags,
        notes=tuple(notes),
    )


def _median_per_rank(counters: list[dict[str, Any]], name: str) -> tuple[int, ...] | None:
    if not counters:
        return None
    return tuple(int(x) for x in np.median([run[name] for run in counters], axis=0))


def _simulated(
    job: Job, case: Case, network: str | None
) -> tuple[dict[str, Any] | None, list[str]]:
    if case.name in VENDOR:
        return None, ["not simulated: the library chooses its own algorithm and segments"]
    if network is None:
        where = "between GPUs" if job.backend == "nccl" else "of the loopback interface"
        return None, [f"not simulated: the rate {where} is not known"]
    rate, _, latency = network.partition(",")
    cluster = {
        "name": "shaped network",
        "bandwidth": rate,
        "latency": latency or "0s",
        "wire_time_per_payload_byte": FRAME_BYTES_PER_PAYLOAD_BYTE,
        "counter_bytes_per_payload_byte": FRAME_BYTES_PER_PAYLOAD_BYTE,
        "source": "the rate that was set; frames of 1514 bytes carry 1448; no constant is fitted",
    }
    run = simulate(
        reference_schedule(case, job.n),
        cluster_from_dict(cluster, job.n),
        case.elements,
        ITEMSIZE[case.dtype],
        keep="totals",
    )
    sent = run.trace.sent_bytes.tolist()
    return {"time_s": run.trace.time_s, "sent_bytes": sent, "cluster": cluster}, []


def _gloo_ring_bytes(job: Job, case: Case) -> tuple[int, ...] | None:
    """What Gloo's segmented ring sends per rank, where its segments are all equal; else None.

    It cuts the buffer into a multiple of n segments of at most 1 MiB, at least 2n, and passes
    every one of them on n-1 times in each of two phases (gloo/allreduce.cc).
    """
    if job.backend != "gloo" or job.n == 1 or not case.size_bytes:
        return (0,) * job.n if job.n == 1 or not case.size_bytes else None
    segments = max(-(-case.size_bytes // 2**20), 2 * job.n)
    segments = -(-segments // job.n) * job.n
    if case.elements % segments:
        return None
    return (2 * (job.n - 1) * case.size_bytes // job.n,) * job.n


def _vendor_notes(job: Job, case: Case, sent: tuple[int, ...] | None) -> list[str]:
    allowed = tolerance(job.n, case.dtype)
    bytes_from = (
        "payload derived from the library's source, not counted by it"
        if sent
        else "payload not known: the library cuts this buffer into unequal segments"
    )
    return [
        f"each element checked to within {allowed:.3g} × the sum of absolute values",
        bytes_from,
    ]


def instrument(job: Job, result: CaseResult, calibrated: CaseResult | None) -> dict[str, Any]:
    """The checks without which a number of the shaped network is not to be believed."""
    spread = (max(result.runs_s) - min(result.runs_s)) / median(result.runs_s)
    drops = sum(run["drops"] for run in result.counters)
    reasons = []
    if spread > MOST_SPREAD:
        reasons.append(f"runs spread by {spread:.1%} of their median, above {MOST_SPREAD:.0%}")
    if drops:
        reasons.append(f"{drops} packets were dropped")
    if not all(run["settled"] for run in result.counters):
        reasons.append("counters had not settled")
    found: dict[str, Any] = {"drops": drops, "spread": spread}
    if calibrated is not None and job.network is not None:
        # The fastest of a few: noise on the machine can only slow a transfer down.
        wire_bytes = calibration(job.network).size_bytes * FRAME_BYTES_PER_PAYLOAD_BYTE
        rate = wire_bytes / min(calibrated.runs_s)
        error = rate / job.network.bytes_per_s - 1
        found |= {"rate_bytes_per_s": rate, "rate_error": error}
        if abs(error) > MOST_RATE_ERROR:
            reasons.append(f"ports run {error:+.1%} off the rate that was set")
    return {"ok": not reasons, "reasons": reasons} | found


def environment(job: Job, command: str) -> dict[str, Any]:
    """Where a record comes from; no names of machines or people, no paths."""
    packages = ["torch", "numpy", *(["pyroute2"] if job.network else [])]
    versions: dict[str, Any] = {"python": platform.python_version()}
    versions |= {package: _version(package) for package in packages}
    gpus: dict[str, Any] = {}
    if job.backend == "nccl":
        here = torch_here()
        versions["nccl"] = here.nccl
        gpus["gpus"] = list(here.cuda_devices[: job.n])
    return {
        "versions": versions,
        "machine": {
            "system": platform.system(),
            "kernel": platform.release().split("-")[0],
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
        }
        | gpus,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def trace_of(job: Job, case: Case, result: CaseResult) -> Trace:
    """The spans of the last timed run as a trace of source REPLAYED."""
    columns = np.array(result.spans, float).reshape(-1, 10).T
    order = np.lexsort((columns[1], columns[7]))
    of = dict(zip((f.name for f in fields(Spans)), (c[order] for c in columns), strict=True))
    times: dict[str, Any] = {name: of.pop(name) for name in ("start_s", "end_s")}
    whole: dict[str, Any] = {name: column.astype(np.int64) for name, column in of.items()}
    spans = Spans(**whole, **times)
    payload = result.payload or []
    sent, received = (np.array([p[way] for p in payload], np.int64) for way in ("sent", "received"))
    return Trace(
        Source.REPLAYED, case.name, job.n, result.runs_s[-1], sent, received, spans, no_pieces()
    )
