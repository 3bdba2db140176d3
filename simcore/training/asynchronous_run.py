"""A server without a schedule: what is asked of it, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simcore.cluster import Cluster
from simcore.schedule import IntArray
from simcore.solvers.network import Network, Slowdown
from simcore.trace import FloatArray, Trace


@dataclass(frozen=True, slots=True)
class AsyncCase:
    """What was asked: the arguments of ``run_asynchronous``."""

    cluster: Cluster
    compute_s: tuple[float, ...]
    gradient_bytes: int
    parameter_bytes: int
    updates: int
    bound: int | None
    apply_s: float
    servers: int
    jitter: float
    seed: int
    prefetch: bool
    slowdowns: tuple[Slowdown, ...]
    backups: int = 0

    def __post_init__(self) -> None:
        if self.servers not in (0, 1):
            raise ValueError(
                f"servers must be 0 (rank 0 also serves) or 1 (the last rank only serves), "
                f"got {self.servers!r}"
            )
        if not 1 <= self.workers == len(self.compute_s):
            raise ValueError(
                f"compute_s has {len(self.compute_s)} values; accepted: one, or one for each of "
                f"the {self.workers} workers of a cluster of {self.cluster.n}"
            )
        for name in ("compute_s", "apply_s", "jitter"):
            for seconds in np.atleast_1d(getattr(self, name)).tolist():
                if not (math.isfinite(seconds) and seconds >= 0):
                    raise ValueError(f"{name} must be finite and >= 0, got {seconds!r}")
        least = {"gradient_bytes": 0, "parameter_bytes": 0, "updates": 1, "seed": 0, "bound": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ValueError(f"{name} must be >= {low}, got {value!r}")
        if not 0 <= self.backups < self.workers:
            last = self.workers - 1
            raise ValueError(f"backups must be from 0 to {last}, got {self.backups!r}")
        if self.backups and (self.bound != 0 or self.prefetch):
            raise ValueError("backups are for the synchronous server: bound 0, without prefetch")

    @property
    def in_a_round(self) -> int:
        """How many gradients the synchronous server takes the mean, or the sum, of."""
        return self.workers - self.backups

    @property
    def workers(self) -> int:
        """How many compute gradients."""
        return self.cluster.n - self.servers

    @property
    def server_rank(self) -> int:
        """Where the parameters are."""
        return self.cluster.n - 1 if self.servers else 0

    @property
    def name(self) -> str:
        """``ps-sync``, ``ps-ssp`` or ``ps-async``."""
        if self.bound is None:
            return "ps-async"
        return "ps-ssp" if self.bound else "ps-sync"


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """One row per gradient in the order in which the server applied them.

    ``clock`` counts the worker's own gradients. ``pulled`` is the version of the parameters that
    the gradient was computed on, ``version`` the one that it was applied to. A version is an
    update, or, where all wait for each other, a round: one gradient of each worker, or of the first
    of them, together.
    ``held_s`` is how long the server kept the parameters back because of the bound.
    """

    worker: IntArray
    clock: IntArray
    pulled: IntArray
    version: IntArray
    begin_s: FloatArray  # of its computation
    computed_s: FloatArray
    applied_s: FloatArray
    held_s: FloatArray

    def __len__(self) -> int:
        return len(self.worker)

    @property
    def staleness(self) -> IntArray:
        """How many updates were applied between the pull and the gradient's own."""
        return self.version - self.pulled


@dataclass(frozen=True, slots=True, eq=False)
class AsyncRun:
    """A simulated run. ``time_s`` is when the last update was applied; the trace may end later,
    since work that was under way then is let finish, and is not applied. ``dropped`` counts the
    gradients of each worker that came after their round had closed, shape ``(workers,)``.
    """

    case: AsyncCase
    trace: Trace
    updates: Updates
    events: int
    network: Network
    link_bytes: IntArray
    dropped: IntArray

    @property
    def time_s(self) -> float:
        """When the last update was applied."""
        return float(self.updates.applied_s[-1])

    @property
    def updates_per_s(self) -> float:
        """Gradients applied per second; infinite for a run that takes no time."""
        return len(self.updates) / self.time_s if self.time_s else math.inf

    @property
    def parts(self) -> FloatArray:
        """Of all applied gradients, by the worker that computed them, shape ``(workers,)``."""
        counted = np.bincount(self.updates.worker, minlength=self.case.workers)
        parts: FloatArray = counted / len(self.updates)
        return parts

    @property
    def staleness_counts(self) -> IntArray:
        """How many gradients were 0, 1, 2 … updates old."""
        return np.bincount(self.updates.staleness).astype(np.int64)

    @property
    def mean_staleness(self) -> float:
        """Of all but each worker's first gradient, which it had a head start for."""
        later = self.updates.staleness[self.updates.clock > 0]
        return float(later.mean() if len(later) else self.updates.staleness.mean())
