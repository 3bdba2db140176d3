"""Calibrates whatever links a stage has: alike all of them, or within machines and between them.

Between machines the first rank of each stands for it, and of only two also the second's next one;
then all ranks of one machine send at once, each to another of the next. Within, it is the first
ranks of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from real_gpu.job import Case, CaseResult, Job
from real_gpu.processes.stage import HERE, Stage
from real_gpu.validation.calibrate import (
    MOST_RANKS,
    Calibration,
    Constant,
    calibrate,
    found,
    rows_of,
)
from real_gpu.validation.confidence import OUTSIDE
from real_gpu.validation.fitting import (
    S_PER_BYTE,
    Model,
    Observation,
    fit,
    latency_at,
    predict,
    resampled_medians,
)
from real_gpu.validation.patterns import PATTERNS
from real_gpu.validation.traffic import cases_for
from simcore.cluster_file import cluster_from_dict

Machines = tuple[tuple[int, ...], ...]

_LEVEL = "machine"
_ONE_WAY = "one way"
_OF_SECOND = [name for name, rows in PATTERNS.items() if any(row[1:] == (1, 2) for row in rows)]
_ANY_SIZE = 1  # of the one point of a latency that all sizes share


def calibrate_links(
    network: str | None,
    gpus: int,
    backend: str,
    quick: bool,
    progress: Callable[[str], None] = lambda _: None,
    stage: Stage = HERE,
) -> Calibration:
    """As ``calibrate``; where there are several ranks on each of several machines, the cluster has
    both kinds of links, and all ranks take part.
    """
    if not stage.mixed:
        return calibrate(network, gpus, backend, quick, progress, stage)
    n = sum(map(len, stage.machines))
    used = stage.choose(backend, n).backend
    plan = _planned(stage.machines, used, quick)
    job = Job(n, plan.cases, used)
    progress(f"measuring {len(job.cases)} patterns between machines, and within one")
    results = [result.by_device() for result in stage.measure(job)]
    progress("fitting")
    return plan.found(results, f"{job.backend}, {n} ranks{stage.whereabouts(job)}")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is measured on ``machines`` of several ranks each, and what follows from it."""

    machines: Machines
    local: tuple[Case, ...]
    outer: tuple[Case, ...]  # between machines
    inner: tuple[Case, ...]  # within one
    together: Case  # everyone on one machine to everyone on the next

    @property
    def cases(self) -> tuple[Case, ...]:
        """In the order of their results."""
        return (*self.local, *self.outer, *self.inner, self.together)

    def found(self, results: Sequence[CaseResult], where: str) -> Calibration:
        """The cluster with both kinds of links."""
        left = iter(results)
        both, outer, inner, (together,) = (
            [Observation(c.name, c.size_bytes, tuple(next(left).runs_s)) for c in cases]
            for cases in (self.local, self.outer, self.inner, [self.together])
        )
        local = {one.pattern: one for one in both}
        first = self.machines[0]
        between = found(outer, local, len(self.outer[0].places), None, where)
        made = _with_level(between, inner, together, len(first))
        notes = (
            f"between machines: measured among ranks {_listed(self.outer[0].places)}",
            f"out of a machine: measured with ranks {_listed(first)} sending at once",
            f"within a machine: measured among ranks {_listed(self.inner[0].places)}",
        )
        return replace(made, notes=(*made.notes, *notes))


def _planned(machines: Machines, backend: str, quick: bool) -> _Plan:
    """Patterns whose every message goes between machines, then those of one machine alone."""
    first, second, *more = machines
    between = first[0], second[0], more[0][0] if more else second[1]
    within = first[:MOST_RANKS]
    outer = [
        replace(case, places=between) for case in cases_for(len(between), backend, None, quick)
    ]
    inner = [replace(case, places=within) for case in cases_for(len(within), backend, None, quick)]
    local = tuple(case for case in outer if case.name not in PATTERNS)
    crossing = tuple(c for c in outer if c not in local and (more or c.name not in _OF_SECOND))
    pairs = tuple(rank for pair in zip(first, second, strict=True) for rank in pair)
    largest = max(crossing, key=lambda case: case.elements)
    return _Plan(
        machines,
        local,
        crossing,
        tuple(case for case in inner if case.name in PATTERNS),
        replace(largest, name=_ONE_WAY, places=pairs),
    )


def _with_level(
    between: Calibration, inner: list[Observation], together: Observation, size: int
) -> Calibration:
    """``between`` with machines of ``size`` ranks: the rate and the one latency within them, and
    what goes out of one in all. What a message costs its sender is the same.
    """
    within, rows = _within(between, inner, min(size, MOST_RANKS))
    out, out_s = _together(between, together, size)
    level: dict[str, Any] = {
        "name": _LEVEL,
        "size": size,
        "port": f"{within['bandwidth']['value']:.6g}B/s",
        "latency": f"{within['latency_s']['value'] * 1e6:.5g}us",
        "uplink": f"{out['value']:.6g}B/s",
    }
    more = {f"{name}, within a {_LEVEL}": constant for name, constant in within.items()}
    more[f"bandwidth, out of a {_LEVEL}"] = out
    whole = {
        "pattern": f"{_ONE_WAY}, {size} at once",
        "gpus": 2 * size,
        "size_bytes": together.size_bytes,
        "measured_s": together.measured_s,
        "fitted_s": out_s,
    }
    return replace(
        between,
        cluster=between.cluster | {"levels": [level]},
        constants=between.constants | more,
        residuals=(*between.residuals, *rows, whole),
    )


def _within(
    between: Calibration, seen: list[Observation], n: int
) -> tuple[dict[str, Constant], list[dict[str, Any]]]:
    """The rate and the one latency, and how well they explain what was seen."""
    launches = {k: text for k, text in between.cluster.items() if k.startswith("launch")}
    fastest = max(one.size_bytes / one.measured_s for one in seen)
    start = {"bandwidth": f"{fastest:.6g}B/s", "latency_by_size": [[f"{_ANY_SIZE}B", "1us"]]}
    model = Model(cluster_from_dict(launches | start, n), (latency_at(_ANY_SIZE), S_PER_BYTE))
    fitted = fit(model, seen)
    (latency_s, s_per_byte), (low_s, fast), (high_s, slow) = (
        of.tolist() for of in (fitted.values, fitted.low, fitted.high)
    )
    rate, least, most = (1 / max(s, 1e-15) for s in (s_per_byte, slow, fast))
    rows = [row | {"pattern": f"{row['pattern']}, within"} for row in rows_of(seen, fitted, n)]
    return {
        "latency_s": {"value": latency_s, "low": low_s, "high": high_s, "unit": "s"},
        "bandwidth": {"value": rate, "low": least, "high": most, "unit": "B/s"},
    }, rows


def _together(between: Calibration, seen: Observation, size: int) -> tuple[Constant, float]:
    """What leaves a machine when all its ranks send, at least as much as one gets and at most as
    if each had a way of its own; and the time that follows.
    """
    alone = cluster_from_dict(between.cluster, 2)
    rate = alone.ports[0].send_bytes_per_s
    wire_s = seen.size_bytes / rate
    beside_s = float(predict(alone, [seen])[0]) - wire_s

    def leaving(time_s: float) -> float:
        return seen.size_bytes * size / float(np.clip(time_s - beside_s, wire_s, size * wire_s))

    low_s, high_s = np.quantile(resampled_medians(seen.runs_s), OUTSIDE).tolist()
    value = leaving(seen.measured_s)
    low, high = min(value, leaving(high_s)), max(value, leaving(low_s))
    found = {"value": value, "low": low, "high": high, "unit": "B/s"}
    return found, beside_s + seen.size_bytes * size / value


def _listed(ranks: Sequence[int]) -> str:
    *most, last = map(str, ranks)
    return f"{', '.join(most)} and {last}"
