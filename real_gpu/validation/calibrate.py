"""Finds the constants of the links that are here, from point-to-point patterns alone.

Nothing that is predicted later takes part: at most three ranks, no collective. No torch here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from real_gpu.job import FRAMES, CaseResult, Job, Network, parse_rate_network
from real_gpu.network.shaper import burst_bytes
from real_gpu.processes.stage import HERE, Stage
from real_gpu.validation.confidence import OUTSIDE
from real_gpu.validation.fitting import (
    LAUNCHES,
    S_PER_BYTE,
    Fit,
    Model,
    Observation,
    fit,
    latency_at,
    resampled_medians,
)
from real_gpu.validation.patterns import ADDING, COPYING, PASSES
from real_gpu.validation.traffic import BEYOND, cases_for
from simcore.cluster_file import cluster_from_dict
from simcore.units import FRAME_FACTOR, format_bytes, format_rate, format_time

MOST_RANKS = 3
# A set rate is kept within this: every run checks its ports to 1 %, which is more than a fit of
# many constants to short messages can.
MOST_FITTED_RATE_ERROR = 0.03
# Counters do not waver as times do; a cell's bytes, too, are held to this.
MOST_FACTOR_ERROR = 0.01

Constant = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Calibration:
    """``cluster`` is a cluster file's content for any number of ranks; ``constants`` has a value,
    its 95 % interval and its unit by name; ``residuals`` has measured and fitted time of every
    pattern and size; ``notes`` says what was decided.
    """

    cluster: dict[str, Any]
    constants: dict[str, Constant]
    residuals: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def worst(self) -> dict[str, Any]:
        """The row that the constants explain worst."""
        return max(self.residuals, key=lambda row: abs(row["fitted_s"] / row["measured_s"] - 1))

    @property
    def findings(self) -> dict[str, Any]:
        """All but the cluster, as a JSON object."""
        rows = [dict(row) for row in self.residuals]
        return {"constants": self.constants, "residuals": rows, "notes": list(self.notes)}

    def to_json(self) -> str:
        """Everything, as one document."""
        return json.dumps({"cluster": self.cluster} | self.findings, indent=1) + "\n"


def calibrate(
    network: str | None,
    gpus: int,
    backend: str,
    quick: bool,
    progress: Callable[[str], None] = lambda _: None,
    stage: Stage = HERE,
) -> Calibration:
    """Measure on ``gpus`` ranks, at most three, over the shaped network or what is there; fit.

    ``progress`` hears what is being done.
    """
    shaped = None if network is None else parse_rate_network(network)
    n = min(gpus, MOST_RANKS)
    if n < 2:
        raise ValueError(f"--gpus {gpus}: accepted are 2 and {MOST_RANKS}; one has no links")
    used = stage.choose(backend, n, shaped is not None).backend
    cases = cases_for(n, used, shaped, quick)
    progress(f"measuring {len(cases)} patterns on {n} ranks")
    job = Job(n, cases, used, shaped)
    results = [result.by_device() for result in stage.measure(job)]
    runs = [
        Observation(case.name, case.size_bytes, tuple(result.runs_s))
        for case, result in zip(cases, results, strict=True)
    ]
    local = {one.pattern: one for one in runs if one.pattern in (ADDING, COPYING)}
    seen = [one for one in runs if one.pattern not in local]
    progress("fitting")
    between = f"{n} ranks{stage.whereabouts(job)}"
    where = f"{used}, {between}" + (f", shaped to {network}" if network else "")
    factors = [factor for result in results for factor in frame_factors(result)]
    calibration = found(seen, local, n, set_network(shaped), where, factors)
    if stage.ranks is None:
        return calibration
    note = f"measured between the first {between}"
    return replace(calibration, notes=(*calibration.notes, note))


def frame_factors(result: CaseResult) -> list[float]:
    """Of each counted run: bytes of frames that left all ranks, per byte of payload."""
    payload = sum(rank["sent"] for rank in result.payload or [])
    return [sum(run["sent"]) / payload for run in result.counters] if payload else []


def set_network(shaped: Network | None) -> dict[str, Any] | None:
    """What is known of a shaped network before anything is measured: a cluster file's content."""
    if shaped is None:
        return None
    return {
        "bandwidth": f"{shaped.bytes_per_s * 8 / 1e6:.12g}Mbit/s",
        "burst": f"{burst_bytes(shaped.bytes_per_s)}B",
        "wire_time_per_payload_byte": FRAME_FACTOR,
        "counter_bytes_per_payload_byte": FRAME_FACTOR,
    }


def found(
    seen: Sequence[Observation],
    local: dict[str, Observation],
    n: int,
    known: dict[str, Any] | None,
    where: str,
    factors: Sequence[float] = (),
) -> Calibration:
    """The constants from what was seen; ``known`` is what was set, as ``set_network`` has it, and
    ``factors`` are those of the counted runs.
    """
    known, counted, note = _protocol_factor(factors, known)
    notes = [note]
    fitted = fit(_model(seen, n, known), seen)
    constants = _constants(fitted) | counted
    constants["reduce_per_GB"] = reduction(local)
    if known is None:
        rate = constants["bandwidth"]["value"]
        known = {"bandwidth": f"{rate:.6g}B/s"}
    else:
        fitted, known, note = _rate_that_was_set(fitted, seen, known, constants)
        notes.insert(0, note)
    document = _document(fitted, known, constants, where)
    return Calibration(document, constants, rows_of(seen, fitted, n), tuple(notes))


def rows_of(seen: Sequence[Observation], fitted: Fit, n: int) -> tuple[dict[str, Any], ...]:
    """Measured beside fitted, of each pattern and size."""
    return tuple(
        {
            "pattern": one.pattern,
            "gpus": n,
            "size_bytes": one.size_bytes,
            "measured_s": one.measured_s,
            "fitted_s": float(fitted_s),
        }
        for one, fitted_s in zip(seen, fitted.fitted_s, strict=True)
    )


def _model(seen: Sequence[Observation], n: int, known: dict[str, Any] | None) -> Model:
    """Latencies at all sizes but the largest, beyond which they stay: what is left is the rate's.

    Where nothing was set, the rate is what the ``BEYOND`` largest sizes have in common, and the
    search begins at the one that the largest message went at.
    """
    sizes = sorted({one.size_bytes for one in seen})
    largest = sizes[-1]
    sizes = sizes[: max(1, len(sizes) - (BEYOND if known is None else 1))]
    least_s = min(one.measured_s for one in seen)
    rate = (S_PER_BYTE,) if known is None else ()
    if known is None:
        slowest_s = min(one.measured_s for one in seen if one.size_bytes == largest)
        known = {"bandwidth": f"{largest / slowest_s:.6g}B/s"}
    third = f"{float(least_s) / 3!r}s"
    start = {
        "launch_per_collective": third,
        "launch_per_message": third,
        "latency_by_size": [[f"{size}B", third] for size in sizes],
    }
    cluster = cluster_from_dict(known | start, n)
    return Model(cluster, (*LAUNCHES, *(latency_at(size) for size in sizes), *rate))


def _constants(fitted: Fit) -> dict[str, Constant]:
    rows: dict[str, Constant] = {}
    values = (fitted.values.tolist(), fitted.low.tolist(), fitted.high.tolist())
    for name, value, low, high in zip(fitted.model.names, *values, strict=True):
        if name == S_PER_BYTE:
            rate, least, most = (1 / max(s, 1e-15) for s in (value, high, low))
            rows["bandwidth"] = _constant(rate, least, most, "B/s")
        else:
            rows[name] = _constant(value, low, high, "s")
    return rows


def _constant(value: float, low: float, high: float, unit: str) -> Constant:
    return {"value": value, "low": low, "high": high, "unit": unit}


def reduction(local: dict[str, Observation]) -> Constant:
    """What adding costs beyond copying, which an arrival pays in any case, per 10**9 bytes."""
    per_GB = 1e9 / (PASSES * local[ADDING].size_bytes)
    adding, copying = (resampled_medians(local[name].runs_s) for name in (ADDING, COPYING))
    more_s = max(0.0, local[ADDING].measured_s - local[COPYING].measured_s) * per_GB
    low, high = np.quantile(np.maximum(adding - copying, 0.0) * per_GB, OUTSIDE).tolist()
    return _constant(more_s, min(low, more_s), max(high, more_s), "s")


def _protocol_factor(
    factors: Sequence[float], known: dict[str, Any] | None
) -> tuple[dict[str, Any] | None, dict[str, Constant], str]:
    """What is known with the factor that counts, the counted one as a constant, and a note."""
    if known is None or not factors:
        said = "without counters of frames the protocol factor is not measured"
        more = "" if known else ": the fitted bandwidth is that of payload"
        return known, {}, said + more
    value = median(factors)
    low, high = np.quantile(resampled_medians(factors), OUTSIDE).tolist()
    was = known["wire_time_per_payload_byte"]
    keep = _is_kept(value, low, high, was, MOST_FACTOR_ERROR)
    note = (
        f"the protocol factor that was set, {was:.5g}, is {'' if keep else 'not '}kept: "
        f"counted, it is {value:.5g}, {value / was - 1:+.2%}"
    )
    if not keep:
        known = known | dict.fromkeys(FRAMES, float(f"{value:.6g}"))
    return known, {"protocol_factor": _constant(value, low, high, "B/B")}, note


def _is_kept(value: float, low: float, high: float, was: float, most_error: float) -> bool:
    """Whether what was set goes into the cluster file: always, unless what was measured says, and
    is sure, that it is far off.
    """
    return abs(value / was - 1) <= most_error or low <= was <= high


def _rate_that_was_set(
    fitted: Fit,
    seen: Sequence[Observation],
    known: dict[str, Any],
    constants: dict[str, Constant],
) -> tuple[Fit, dict[str, Any], str]:
    """The fit, and what is known, with the rate that counts; and a note."""
    free = fit(Model(fitted.cluster, (*fitted.model.names, S_PER_BYTE)), seen)
    rate = _constants(free)["bandwidth"]
    set_rate = fitted.cluster.ports[0].send_bytes_per_s
    error = rate["value"] / set_rate - 1
    said = f"fitted too, it is {format_rate(rate['value'])}, {error:+.2%}"
    if _is_kept(rate["value"], rate["low"], rate["high"], set_rate, MOST_FITTED_RATE_ERROR):
        low, high = min(rate["low"], set_rate), max(rate["high"], set_rate)
        constants["bandwidth"] = _constant(set_rate, low, high, "B/s")
        return fitted, known, f"the rate that was set is kept: {said}"
    constants |= _constants(free)
    known = known | {"bandwidth": f"{rate['value']:.6g}B/s"}
    return free, known, f"the rate that was set is not kept: {said}"


def _document(
    fitted: Fit, known: dict[str, Any], constants: dict[str, Constant], where: str
) -> dict[str, Any]:
    """The cluster file: what is known, and the constants, in units that read well."""
    reduce_s = constants["reduce_per_GB"]["value"]
    points = fitted.cluster.latency_by_size
    return {
        "name": "calibrated",
        "source": f"fitted to point-to-point patterns ({where})",
        **known,
        "latency_by_size": [[f"{nbytes}B", _us(seconds)] for nbytes, seconds in points],
        "launch_per_collective": _us(fitted.cluster.launch_per_collective_s),
        "launch_per_message": _us(fitted.cluster.launch_per_message_s),
        "reduce_per_GB": f"{reduce_s:.4g}s",
    }


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.5g}us"


def _shown(value: float, unit: str) -> str:
    shown = {"s": format_time, "B/s": format_rate}
    return shown[unit](value) if unit in shown else f"{value:.6g} {unit}"


def table(calibration: Calibration) -> str:
    """The constants with their intervals, for people; then how well they explain what was seen."""
    lines = [f"{'constant':28}{'value':>12}   95 % interval"]
    for name, of in calibration.constants.items():
        value, low, high = (_shown(of[key], of["unit"]) for key in ("value", "low", "high"))
        lines.append(f"{name:28}{value:>12}   {low} to {high}")
    off = [abs(row["fitted_s"] / row["measured_s"] - 1) for row in calibration.residuals]
    worst = calibration.worst
    at = f"{worst['pattern']}, {format_bytes(worst['size_bytes'])}"
    error = worst["fitted_s"] / worst["measured_s"] - 1
    lines.append(f"{len(off)} patterns: median {median(off):.1%} off, worst {error:+.1%} ({at})")
    return "\n".join([*lines, *calibration.notes])
