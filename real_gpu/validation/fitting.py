"""Constants of a cluster from times of simple patterns, found through the simulator itself.

What is fitted is what ``simulate`` is given: a constant means in a prediction what it meant here.
Least squares over residuals in units of how unsure each time is; every constant is at least zero.
No torch, no processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from real_gpu.validation.confidence import OUTSIDE
from real_gpu.validation.patterns import pattern
from simcore.cluster import Cluster, Port
from simcore.engine import simulate

Floats = NDArray[np.float64]

_ROUNDS, _RESAMPLES = 12, 300
_CLOSE = 1e-9  # a loss that is none
_LEAST_UNSURE = 0.01  # of a time: no model is better, however well the runs agree


@dataclass(frozen=True, slots=True)
class Observation:
    """The times of one pattern with messages of one size."""

    pattern: str
    size_bytes: int
    runs_s: tuple[float, ...]

    @property
    def measured_s(self) -> float:
        """The median."""
        return median(self.runs_s)


LAUNCHES = ("launch_per_collective_s", "launch_per_message_s")
S_PER_BYTE = "s_per_byte"


def latency_at(nbytes: int) -> str:
    """The name of the latency at a point of ``latency_by_size``."""
    return f"latency_s at {nbytes} B"


@dataclass(frozen=True, slots=True)
class Model:
    """``cluster``, and the names of those of its constants that are to be found: ``LAUNCHES``,
    ``latency_at`` the points that it has, ``S_PER_BYTE`` of its ports, which are then equal.
    """

    cluster: Cluster
    names: tuple[str, ...]

    def with_constants(self, values: Floats) -> Cluster:
        """The cluster that they make."""
        found = dict(zip(self.names, values.tolist(), strict=True))
        cluster = replace(self.cluster, **{name: found[name] for name in LAUNCHES if name in found})
        points = cluster.latency_by_size
        if S_PER_BYTE in found:
            rate = 1 / max(found[S_PER_BYTE], 1e-15)
            cluster = replace(cluster, ports=(Port(rate, rate),) * cluster.n)
        return replace(
            cluster, latency_by_size=tuple((b, found.get(latency_at(b), s)) for b, s in points)
        )

    @property
    def values(self) -> Floats:
        """The constants as the cluster has them: where the search begins."""
        cluster = self.cluster
        has = {name: getattr(cluster, name) for name in LAUNCHES}
        has |= {latency_at(nbytes): seconds for nbytes, seconds in cluster.latency_by_size}
        has[S_PER_BYTE] = 1 / cluster.ports[0].send_bytes_per_s
        return np.array([has[name] for name in self.names])


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The constants with their 95 % intervals, and what they say of every observation."""

    model: Model
    values: Floats
    low: Floats
    high: Floats
    fitted_s: Floats

    @property
    def cluster(self) -> Cluster:
        """With the constants as they were found."""
        return self.model.with_constants(self.values)


def predict(cluster: Cluster, seen: Sequence[Observation]) -> Floats:
    """What the simulator says that each takes."""
    times = [
        simulate(pattern(one.pattern, cluster.n), cluster, one.size_bytes, 1, keep="totals")
        for one in seen
    ]
    return np.array([run.trace.time_s for run in times])


def fit(model: Model, seen: Sequence[Observation], seed: int = 0) -> Fit:
    """The constants that explain the medians best, and how far the runs' spread moves them.

    The intervals come from resampling each pattern's runs; that the model may be wrong is not in
    them but in the residuals.
    """
    measured = np.array([one.measured_s for one in seen])
    again = np.stack([resampled_medians(one.runs_s, seed + i) for i, one in enumerate(seen)])
    unsure = np.hypot(again.std(axis=1), _LEAST_UNSURE * measured)
    values, slopes, fitted = _search(model, seen, measured, unsure)
    scaled, there = slopes / unsure[:, None], slopes @ values - fitted
    found = [_solved(scaled, (medians + there) / unsure) for medians in again.T]
    low, high = np.quantile(found, OUTSIDE, axis=0)
    low, high = np.minimum(low, values), np.maximum(high, values)
    return Fit(model, values, low, high, fitted)


def resampled_medians(runs_s: Sequence[float], seed: int = 0) -> Floats:
    """Medians of as many runs drawn from these again and again: how unsure the median is."""
    drawn = np.random.default_rng(seed).choice(runs_s, (_RESAMPLES, len(runs_s)))
    medians: Floats = np.median(drawn, axis=1)
    return medians


def _search(
    model: Model, seen: Sequence[Observation], measured: Floats, unsure: Floats
) -> tuple[Floats, Floats, Floats]:
    """Gauss-Newton: values, the slopes of the times there, and the times."""

    def loss(fitted: Floats) -> float:
        return float((((fitted - measured) / unsure) ** 2).sum())

    values = model.values
    fitted = predict(model.with_constants(values), seen)
    for _ in range(_ROUNDS):
        slopes = _slopes(model, seen, values, fitted)
        wanted = (measured - fitted + slopes @ values) / unsure
        step = _solved(slopes / unsure[:, None], wanted) - values
        # Times are straight lines in the constants but for their corners; over one, go half way.
        for _ in range(8):
            tried = predict(model.with_constants(values + step), seen)
            if loss(tried) <= loss(fitted) * (1 + 1e-12):
                break
            step = step / 2
        else:
            break
        before, after = loss(fitted), loss(tried)
        values, fitted = values + step, tried
        if after <= _CLOSE or after > before * (1 - 1e-4):
            break
    slopes = _slopes(model, seen, values, fitted)
    return values, slopes, fitted


def _slopes(model: Model, seen: Sequence[Observation], values: Floats, fitted: Floats) -> Floats:
    """How much each time gains per unit of each constant, shape (observations, constants)."""
    columns = []
    for number, value in enumerate(values.tolist()):
        nudged, nudge = values.copy(), 1e-4 * value or 1e-9
        nudged[number] += nudge
        columns.append((predict(model.with_constants(nudged), seen) - fitted) / nudge)
    return np.stack(columns, axis=1)


def _solved(slopes: Floats, target: Floats) -> Floats:
    """The values, none below zero, for which ``slopes @ values`` is nearest to the target: the
    active-set method of Lawson and Hanson. A ridge too small to matter decides where the data do
    not.

    >>> _solved(np.eye(2), np.array([1.0, -1.0])).round(6).tolist()
    [1.0, 0.0]
    """
    scale = np.sqrt((slopes**2).sum(axis=0))
    scale[scale == 0] = 1.0
    columns = slopes / scale
    square, wanted = columns.T @ columns + 1e-10 * np.eye(len(scale)), columns.T @ target
    free, x = np.zeros(len(scale), bool), np.zeros(len(scale))
    for _ in range(10 * len(scale)):
        pull = np.where(free, -np.inf, wanted - square @ x)
        if pull.max() <= 1e-12:
            break
        free[pull.argmax()] = True
        while True:
            tried = np.zeros(len(scale))
            tried[free] = np.linalg.solve(square[np.ix_(free, free)], wanted[free])
            below = free & (tried <= 0)
            if not below.any():
                break
            reach = x[below] / (x[below] - tried[below])  # so far, until one is at zero
            x = x + reach.min() * (tried - x)
            free &= x > 1e-15
            x[~free] = 0.0
        x = tried
    values: Floats = x / scale
    return values
