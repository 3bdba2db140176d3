"""What staleness does to learning: real problems, updated in the order that a run came out in.

NumPy only. Every gradient is computed on the parameters that its worker had pulled, of a
mini-batch that depends on worker and clock alone, and is applied when the run applied it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

from simcore.names import unknown
from simcore.schedule import IntArray
from simcore.trace import FloatArray
from simcore.training.asynchronous import AsyncRun

Scaling = Literal["same", "workers", "staleness"]
Aggregation = Literal["mean", "sum"]
# Beyond this many times the loss at the start a run is given up: it does not come back.
_GIVE_UP = 1e9


class Problem(Protocol):
    """Something to minimise, with gradients of mini-batches."""

    start: FloatArray

    def loss(self, x: FloatArray) -> float:
        """Over all samples."""

    def gradient(self, x: FloatArray, batch: int) -> FloatArray:
        """Of the mini-batch of that number."""


class _Batches:
    """Mini-batches by number: rows drawn with replacement, the same for every run of a seed."""

    def __init__(self, samples: int, size: int, seed: int) -> None:
        many = 4096  # numbers beyond use these again
        self.rows: IntArray = np.random.default_rng([seed, 1]).integers(samples, size=(many, size))

    def __getitem__(self, number: int) -> IntArray:
        rows: IntArray = self.rows[number % len(self.rows)]
        return rows


class LeastSquares:
    """Linear regression whose curvatures and optimum are known.

    The Hessian's eigenvalues are ``curvatures``; ``loss`` is what is above the optimum's. With
    ``batch`` 0 every gradient is that of all samples.

    >>> problem = LeastSquares(seed=1, batch=0)
    >>> round(problem.loss(problem.start), 6), problem.loss(problem.optimum)
    (1.0, 0.0)
    >>> bool(abs(problem.gradient(problem.optimum, 0)).max() < 1e-12)
    True
    """

    def __init__(
        self,
        seed: int = 0,
        batch: int = 32,
        samples: int = 512,
        curvatures: FloatArray | None = None,
        noise: float = 0.1,
    ) -> None:
        draw = np.random.default_rng([seed, 0])
        curves = np.geomspace(1.0, 0.1, 8) if curvatures is None else np.asarray(curvatures)
        size = len(curves)
        basis, _ = np.linalg.qr(draw.normal(size=(samples, size + 1)))
        turn, _ = np.linalg.qr(draw.normal(size=(size, size)))
        self.features = math.sqrt(samples) * (basis[:, :size] * np.sqrt(curves)) @ turn.T
        self.hessian = (turn * curves) @ turn.T
        direction = turn @ (draw.normal(size=size) / np.sqrt(curves))
        self.optimum = direction * math.sqrt(2 / (direction @ self.hessian @ direction))
        # Noise across the features: it stays in every mini-batch, and does not move the optimum.
        self.targets = self.features @ self.optimum + noise * math.sqrt(samples) * basis[:, size]
        self.start: FloatArray = np.zeros(size)
        self.batches = _Batches(samples, batch, seed) if batch else None

    def loss(self, x: FloatArray) -> float:
        """Above that of the optimum; 1 at the start."""
        away = x - self.optimum
        return float(0.5 * away @ self.hessian @ away)

    def gradient(self, x: FloatArray, batch: int) -> FloatArray:
        """Of half the mean squared error."""
        if self.batches is None:
            exact: FloatArray = self.hessian @ (x - self.optimum)
            return exact
        rows = self.batches[batch]
        features = self.features[rows]
        of_batch: FloatArray = features.T @ (features @ x - self.targets[rows]) / len(rows)
        return of_batch


class Softmax:
    """A classifier: multinomial logistic regression on clouds of points that overlap a little.

    Features are scaled so that the largest curvature at the start is 1, as in ``LeastSquares``.

    >>> problem = Softmax(seed=1)
    >>> round(problem.loss(problem.start), 4), round(problem.accuracy(problem.start), 2)
    (1.3863, 0.25)
    """

    CLASSES = 4

    def __init__(self, seed: int = 0, batch: int = 32, samples: int = 400, size: int = 6) -> None:
        draw = np.random.default_rng([seed, 2])
        self.labels: IntArray = np.arange(samples) % self.CLASSES
        turn, _ = np.linalg.qr(draw.normal(size=(size, size)))
        centres = 2.5 * turn[: self.CLASSES]
        points = centres[self.labels] + draw.normal(size=(samples, size))
        features = np.column_stack([points, np.ones(samples)])
        largest = float(np.linalg.eigvalsh(features.T @ features / samples)[-1])
        self.features = features * math.sqrt(self.CLASSES / largest)
        self.one_hot = np.eye(self.CLASSES)[self.labels]
        self.start: FloatArray = np.zeros((size + 1, self.CLASSES))
        self.batches = _Batches(samples, batch, seed)

    def loss(self, x: FloatArray) -> float:
        """Mean cross-entropy."""
        scores = self.features @ x
        top = scores.max(axis=1)
        log_sum = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return float((log_sum - scores[np.arange(len(scores)), self.labels]).mean())

    def gradient(self, x: FloatArray, batch: int) -> FloatArray:
        """Of the mean cross-entropy of a mini-batch."""
        rows = self.batches[batch]
        features = self.features[rows]
        scores = features @ x
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        of_batch: FloatArray = features.T @ (chances - self.one_hot[rows]) / len(rows)
        return of_batch

    def accuracy(self, x: FloatArray) -> float:
        """The part of all samples that is classified rightly."""
        return float(((self.features @ x).argmax(axis=1) == self.labels).mean())


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The loss after each update: when, and after how many gradients; first of all at the start.

    A run that is given up ends early, with a loss far above that of the start, or infinite.
    """

    time_s: FloatArray
    gradients: IntArray
    loss: FloatArray
    x: FloatArray  # the parameters at the end

    @property
    def diverged(self) -> bool:
        """Whether it ended worse than it began."""
        return not self.loss[-1] <= self.loss[0]

    def reached_s(self, loss: float) -> float | None:
        """When it was first as good as that; None if never."""
        good = np.flatnonzero(self.loss <= loss)
        return float(self.time_s[good[0]]) if len(good) else None


def train(
    problem: Problem,
    run: AsyncRun,
    learning_rate: float,
    scaling: Scaling = "same",
    aggregation: Aggregation = "mean",
) -> Curve:
    """Gradient descent in the run's order, each gradient as stale as it was there.

    The synchronous server takes the mean of a round's gradients times ``learning_rate``, or their
    sum: that is the mean at as many times the learning rate as a round has gradients. The others
    take each gradient alone times the same (``scaling`` "same"), times that divided by the number
    of workers ("workers": the same way per gradient as the synchronous server), or divided by one
    more than the gradient's staleness ("staleness").

    >>> from simcore.training.asynchronous import run_asynchronous
    >>> from simcore.cluster import uniform
    >>> run = run_asynchronous(uniform(5, 1e9), 1.0, 4, 4, updates=400, servers=1)
    >>> for rate in (0.3, 0.6):  # the limit for gradients 3 updates old is 0.445
    ...     train(LeastSquares(batch=0), run, rate).diverged
    False
    True
    """
    if scaling not in get_args(Scaling):
        raise ValueError(unknown("scaling", scaling, get_args(Scaling)))
    if aggregation not in get_args(Aggregation):
        raise ValueError(unknown("aggregation", aggregation, get_args(Aggregation)))
    updates, workers = run.updates, run.case.workers
    together = run.case.in_a_round if run.case.bound == 0 else 1
    parts = together if aggregation == "mean" else 1
    steps = _steps(run, learning_rate, scaling)
    numbers = (updates.clock * workers + updates.worker).tolist()
    pulled, applied_s = updates.pulled.tolist(), updates.applied_s.tolist()
    versions = [problem.start]
    times, losses = [0.0], [problem.loss(problem.start)]
    for first in range(0, len(updates) - together + 1, together):
        rows = range(first, first + together)
        gradients = [problem.gradient(versions[pulled[row]], numbers[row]) for row in rows]
        versions.append(versions[-1] - steps[first] * sum(gradients) / parts)
        times.append(applied_s[rows[-1]])
        losses.append(problem.loss(versions[-1]))
        if not losses[-1] <= _GIVE_UP * losses[0]:
            break
    counted = np.arange(len(losses)) * together
    return Curve(np.array(times), counted, np.array(losses), versions[-1])


def _steps(run: AsyncRun, learning_rate: float, scaling: Scaling) -> list[float]:
    """What each gradient is multiplied by."""
    divisor = np.ones(len(run.updates))
    if run.case.bound != 0 and scaling == "workers":
        divisor *= run.case.workers
    elif run.case.bound != 0 and scaling == "staleness":
        divisor += run.updates.staleness
    steps: list[float] = (learning_rate / divisor).tolist()
    return steps


def stability_limit(delay: int) -> float:
    """The largest learning rate times curvature for which gradients so many updates old converge.

    ``x[k+1] = x[k] - a x[k-d]`` has the solutions ``z**k`` with ``z**d (z - 1) = -a``. The first
    pair to leave the unit circle is ``z = exp(±iπ/(2d+1))``, at a = 2 sin(π / (2 (2d + 1))).

    >>> [round(stability_limit(delay), 3) for delay in (0, 1, 3, 7)]
    [2.0, 1.0, 0.445, 0.209]
    """
    return 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
