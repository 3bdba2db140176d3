"""A validation's cells: each one configuration, measured and simulated; and those of records."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from simcore.cluster import Cluster
from simcore.fields import short
from simcore.measured.records import Record
from simcore.measured.step_records import StepRecord
from simcore.measured.validation_fields import CELL_FIELDS
from simcore.units import FRAME_FACTOR, format_bytes, parse_bytes


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration, run ``len(runs_s)`` times on real processes, and its simulation.

    ``simulated_s`` is None where there is nothing to simulate; ``notes`` say why. ``bytes_error``
    is that of the worst rank: its interface's counter / (simulated × frame factor) - 1.

    >>> cell = Cell("collective", "ring", "replayed", 4, 8, None, measured_s=0.2, simulated_s=0.19)
    >>> round(cell.error, 3), cell.counted
    (-0.05, True)
    """

    kind: str
    name: str
    source: str
    gpus: int
    size_bytes: int
    network: str | None
    flags: dict[str, int] = field(default_factory=dict)
    runs_s: tuple[float, ...] = ()
    measured_s: float = 0.0
    simulated_s: float | None = None
    bytes_error: float | None = None
    calibrated_on: bool = False
    believable: bool = True
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, (accepts, accepted) in CELL_FIELDS.items():
            if not accepts(getattr(self, name)):
                value = short(getattr(self, name))
                raise ValueError(f"field {name!r} is {value}; accepted: {accepted}")
        if self.runs_s and not math.isclose(self.measured_s, median(self.runs_s), rel_tol=1e-9):
            raise ValueError(
                f"field 'measured_s' is {self.measured_s!r}, not the median of 'runs_s'"
            )

    @property
    def error(self) -> float | None:
        """(simulated - measured) / measured; None where nothing is simulated."""
        if self.simulated_s is None:
            return None
        return (self.simulated_s - self.measured_s) / self.measured_s

    @property
    def counted(self) -> bool:
        """Whether the cell counts in the errors: predicted, held out, and quietly measured."""
        return self.error is not None and self.believable and not self.calibrated_on

    @property
    def spread(self) -> float | None:
        """(slowest - fastest) / median of the runs, None where they are not kept."""
        return (max(self.runs_s) - min(self.runs_s)) / self.measured_s if self.runs_s else None

    @property
    def configuration(self) -> tuple[str, int, int, str]:
        """What cells must share for their strategies to be compared."""
        return (self.kind, self.gpus, self.size_bytes, self.network or "")

    @property
    def strategy(self) -> str:
        """The name with its flags, such as ``hierarchical --gpus-per-node 2``."""
        flags = (f" --{name.replace('_', '-')} {value}" for name, value in self.flags.items())
        return self.name + "".join(flags)

    @property
    def stem(self) -> str:
        """The name of the cell's files, ``records/STEM.json`` and ``traces/STEM-SOURCE.json``.

        >>> Cell("collective", "ring", "replayed", 4, 2**23, "200Mbit/s", measured_s=0.2).stem
        'ring-4x8MiB-200Mbit'
        >>> Cell("step", "dp", "replayed", 4, 10_000_004, None, measured_s=0.2).stem
        'step-dp-4x10000004B'
        """
        network = "" if self.network is None else f"-{self.network.replace('/s', '')}"
        text = "step-" if self.kind == "step" else ""
        text += self.strategy.replace(" --", "-").replace(" ", "")
        return re.sub(
            r"[^A-Za-z0-9._-]", "-", f"{text}-{self.gpus}x{_exact(self.size_bytes)}{network}"
        )


def _exact(nbytes: int) -> str:
    """The size, short where that says it to the byte."""
    size = format_bytes(nbytes).replace(" ", "")
    with contextlib.suppress(ValueError):  # a rounded one may come to no whole bytes
        if parse_bytes(size) == nbytes:
            return size
    return f"{nbytes}B"


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
