"""A validation's cells from single records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simcore.cluster import Cluster
from simcore.measured.records import Record
from simcore.measured.step_records import StepRecord
from simcore.measured.validation import Cell
from simcore.units import FRAME_FACTOR


def cell_of_record(record: Record) -> Cell:
    """A collective's record as a cell, with the simulation that the record holds."""
    simulated = record.simulated or {}
    factor = simulated.get("cluster", {}).get("counter_bytes_per_payload_byte", 1.0)
    ways = (
        (record.counter_sent_bytes, simulated.get("sent_bytes")),
        (record.counter_received_bytes, simulated.get("received_bytes")),
    )
    return Cell(
        kind="collective",
        name=record.name,
        source=record.source,
        gpus=record.gpus,
        size_bytes=record.size_bytes,
        network=record.network,
        flags=dict(record.flags),
        runs_s=record.runs_s,
        measured_s=record.median_s,
        simulated_s=simulated.get("time_s"),
        bytes_error=_worst(e for c, p in ways for e in _bytes_errors(c, p, factor)),
        believable=record.believable,
        notes=(*_reasons(record.instrument), *record.notes),
    )


def cell_of_step(record: StepRecord, cluster: Cluster | None = None) -> Cell:
    """A training step's record as a cell, simulated on the cluster: by default, as it was set."""
    simulated_s, errors = None, []
    factor = FRAME_FACTOR if cluster is None else cluster.counter_bytes_per_payload_byte
    if cluster is not None or record.network is not None:
        run = record.simulate(cluster).run
        simulated_s = run.time_s
        errors = _bytes_errors(record.counter_sent_bytes, run.sent_bytes.tolist(), factor)
    return Cell(
        kind="step",
        name=record.name,
        source=record.source,
        gpus=record.gpus,
        size_bytes=record.setting.workload.gradient_bytes,
        network=record.network,
        flags=_flags(record),
        runs_s=record.runs_s,
        measured_s=record.median_s,
        simulated_s=simulated_s,
        bytes_error=_worst(errors),
        believable=record.instrument is None or bool(record.instrument["ok"]),
        notes=_reasons(record.instrument),
    )


def _flags(record: StepRecord) -> dict[str, int]:
    """The step's options as whole numbers; a cap is in KiB."""
    options = {k: v for k, v in record.options.items() if isinstance(v, int | float)}
    cap = options.pop("bucket_cap_mb", None)
    flags = {} if cap is None else {"bucket_cap_kib": round(cap * 1024)}
    return flags | {name: int(value) for name, value in options.items()}


def _bytes_errors(
    counted: Sequence[int] | None, payload: Sequence[int] | None, factor: float
) -> list[float]:
    """Of each rank that has any: counter / (payload × frame factor) - 1."""
    if not counted or not payload or len(counted) != len(payload):
        return []
    return [c / (p * factor) - 1 for c, p in zip(counted, payload, strict=True) if p]


def _worst(errors: Iterable[float]) -> float | None:
    return max(errors, key=abs, default=None)


def _reasons(instrument: Mapping[str, Any] | None) -> tuple[str, ...]:
    return tuple(map(str, (instrument or {}).get("reasons", ())))
