"""From results to a record: the prediction beside the measurement, and whether to believe it."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from real_gpu.device.counters import driver_version, topology
from real_gpu.info import nccl_variables, torch_here, version_of
from real_gpu.job import (
    COLLECTIVES,
    ITEMSIZE,
    TRAININGS,
    VENDOR,
    Case,
    CaseResult,
    Job,
    reference_schedule,
    workers,
)
from real_gpu.network.instrument import instrument
from real_gpu.network.interfaces import NCCL_VARIABLE, interface_for_nccl
from real_gpu.network.probes import spans_of
from real_gpu.validation.confidence import median_interval
from real_gpu.vendor import collectives as vendor
from real_gpu.vendor import plan as vendor_plan
from simcore.engine import Simulation, simulate
from simcore.measured.records import Record
from simcore.trace import Source, Trace, no_pieces
from simcore.units import format_time

MOST_CLOCK_ERROR = 0.02
_WHERE = {
    "nccl": "between GPUs",
    "gloo": "of the loopback interface",
    "device": "of copies within one memory",
}


def record_of(
    job: Job,
    case: Case,
    result: CaseResult,
    *,
    calibrated: CaseResult | None,
    command: str,
) -> Record:
    """The record of one case."""
    network = job.network
    payload = _payload(job, case, result)
    sent, received = payload or (None, None)
    quiet = sent is not None and not any(sent)  # by what was to be sent, not by the counters
    simulated, notes = _simulated(job, case)
    notes += _notes(job, case, result, payload is not None)
    notes += _clock_notes(result)
    if quiet:
        notes = [*notes, "no communication: there is nothing to send"]
    counters: dict[str, Any] = {
        f"counter_{name}_bytes": _median_per_rank(result.counters, name)
        for name in ("sent", "received", "ack_sent", "ack_received")
    }
    return Record(
        source=(Source.VENDOR if case.name in VENDOR else Source.REPLAYED).value,
        name=case.name,
        backend=job.backend,
        network=network.text if network else None,
        gpus=workers(case, job.n),
        size_bytes=case.size_bytes,
        dtype=case.dtype,
        runs_s=tuple(result.runs_s),
        median_s=median(result.runs_s),
        sent_bytes=sent,
        received_bytes=received,
        **counters,
        simulated=simulated,
        environment=_about(job, case, result, command),
        median_interval_s=median_interval(result.runs_s),
        skew_s=_skew(result),
        instrument=None if network is None or quiet else instrument(job, result, calibrated),
        flags=case.flags,
        notes=tuple(notes),
        cluster=network.document if network and network.from_file else None,
        slow_links=network.slow_links if network else (),
    )


def _about(job: Job, case: Case, result: CaseResult, command: str) -> dict[str, Any]:
    found = environment(job, command) | _devices(result) | _clocks(job, result)
    return found | ({"training": case.options} if case.name in TRAININGS else {})


def _clocks(job: Job, result: CaseResult) -> dict[str, Any]:
    """How sure the times of ranks on several machines are, which have clocks of their own."""
    uncertainty_s = max(result.clocks_s, default=0.0)
    return {"clock_uncertainty_s": uncertainty_s} if job.launched else {}


def _clock_notes(result: CaseResult) -> list[str]:
    uncertainty_s = max(result.clocks_s, default=0.0)
    if uncertainty_s <= MOST_CLOCK_ERROR * median(result.runs_s):
        return []
    known = f"the machines' clocks are known to ±{format_time(uncertainty_s)} of each other"
    return [f"{known}, more than {MOST_CLOCK_ERROR:.0%} of the median time"]


def _skew(result: CaseResult) -> dict[str, list[float]] | None:
    """Over all runs and ranks, least, median and most: from the agreed start to a rank's, and
    from a rank's end to the last one's.
    """
    if not result.begins_s:
        return None
    # None starts too early; a clock that is known to so much only may say so.
    begins, ends = np.maximum(0, result.begins_s), np.array(result.ends_s)
    waits = ends.max(axis=1, keepdims=True) - ends
    return {
        name: [float(f(values)) for f in (np.min, np.median, np.max)]
        for name, values in (("start", begins), ("end", waits))
    }


def _payload(job: Job, case: Case, result: CaseResult) -> vendor.Traffic | None:
    """Bytes sent and received per rank: counted by a replay, known of the library, or None."""
    if case.name in COLLECTIVES:
        return vendor.payload(case, job.backend, job.n)
    if case.name in TRAININGS:
        return vendor_plan.payload(case, _seen(result), job.backend, job.n)
    return counted_payload(result)


def counted_payload(result: CaseResult) -> vendor.Traffic | None:
    """Bytes sent and received per rank, as a replay counted them."""
    if result.payload is None:
        return None
    sent, received = (tuple(p[way] for p in result.payload) for way in ("sent", "received"))
    return sent, received


def _seen(result: CaseResult) -> list[Any] | None:
    """The collectives that a training was seen to issue on rank 0."""
    return None if result.payload is None else result.payload[0]["calls"]


def _notes(job: Job, case: Case, result: CaseResult, known: bool) -> list[str]:
    by = ["timed by the GPUs: between CUDA events, of the slowest rank"] if result.host_s else []
    return by + _notes_of_kind(job, case, result, known)


def _notes_of_kind(job: Job, case: Case, result: CaseResult, known: bool) -> list[str]:
    if case.name in COLLECTIVES:
        return vendor.notes(case, job.n, known)
    if case.name in TRAININGS:
        return vendor_plan.notes(case, _seen(result), job.n)
    return []


def _devices(result: CaseResult) -> dict[str, Any]:
    """What the GPUs saw of the runs: the last rank's time, and NVLink's bytes per rank."""
    if not result.devices:
        return {}
    seen: dict[str, Any] = {"device_s": result.devices_s}
    if result.host_s:
        seen["host_s"] = result.host_s
    for way in ("nvlink_sent_bytes", "nvlink_received_bytes"):
        runs = [[d[way] for d in run] for run in result.devices]
        known = all(value is not None for run in runs for value in run)
        seen[way] = [int(x) for x in np.median(runs, axis=0)] if known else None
    return {"devices": seen}


def _median_per_rank(counters: list[dict[str, Any]], name: str) -> tuple[int, ...] | None:
    if not counters:
        return None
    return tuple(int(x) for x in np.median([run[name] for run in counters], axis=0))


def _simulated(job: Job, case: Case) -> tuple[dict[str, Any] | None, list[str]]:
    if case.name in VENDOR:
        return None, []
    if job.network is None:
        where = _WHERE[job.backend]
        if job.launched.get("interfaces"):  # NCCL finds its own
            where = f"of {' and '.join(job.launched['interfaces'])}"
        return None, [f"not simulated: the rate {where} is not known"]
    run = simulate(
        reference_schedule(case, job.n),
        job.network.cluster(job.n),
        case.elements,
        ITEMSIZE[case.dtype],
        slowdowns=job.network.slowdowns,
        keep="totals",
    )
    return prediction(run, job.network.document), []


def prediction(run: Simulation, cluster: dict[str, Any]) -> dict[str, Any]:
    """What a record keeps of the simulation on a cluster file's content."""
    return {
        "time_s": run.trace.time_s,
        "sent_bytes": run.trace.sent_bytes.tolist(),
        "received_bytes": run.trace.received_bytes.tolist(),
        "cluster": cluster,
    }


def environment(job: Job, command: str) -> dict[str, Any]:
    """Where a record comes from; no names of machines or people, no paths."""
    packages = ["torch", "numpy", *(["pyroute2"] if job.network else [])]
    versions: dict[str, Any] = {"python": platform.python_version()}
    versions |= {package: version_of(package) for package in packages}
    gpus: dict[str, Any] = {}
    if job.backend in ("nccl", "device"):
        here = torch_here()
        versions |= {"nccl": here.nccl, "driver": driver_version()}
        gpus = {"gpus": list(here.cuda_devices[: job.n]), "links": topology()}
        told = nccl_variables()
        if job.backend == "nccl" and not job.launched:
            told[NCCL_VARIABLE] = interface_for_nccl()
        gpus |= {"nccl_variables": told}
    return {
        "versions": versions,
        "machine": {
            "system": platform.system(),
            "kernel": platform.release().split("-")[0],
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
        }
        | gpus
        | job.launched,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def trace_of(job: Job, case: Case, result: CaseResult) -> Trace:
    """The spans that were kept, as a trace of source REPLAYED."""
    order = np.lexsort(np.array([(row[1], row[7]) for row in result.spans], float).reshape(-1, 2).T)
    spans = spans_of([result.spans[row] for row in order.tolist()])
    payload = result.payload or []
    sent, received = (np.array([p[way] for p in payload], np.int64) for way in ("sent", "received"))
    return Trace(
        Source.REPLAYED, case.name, job.n, result.traced_s, sent, received, spans, no_pieces()
    )
