"""Strategy × workload × cluster -> StepResult: where the time of one training step goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simcore.cluster import Cluster
from simcore.solvers.network import Slowdown
from simcore.trace import Source
from simcore.training.memory import Memory
from simcore.training.perform import PlanRun, perform
from simcore.training.plan import Compute, Plan
from simcore.training.strategies import Setting, find_strategy, footprint


@dataclass(frozen=True, slots=True)
class BucketTimes:
    """When its last gradient was there, and its collective began and ended, on the last GPU."""

    nbytes: int
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """One training step; of local SGD the mean of a period's steps."""

    strategy: str
    setting: Setting
    run: PlanRun
    steps: int

    @property
    def time_s(self) -> float:
        """Of one step."""
        return self.run.time_s / self.steps

    @property
    def compute_s(self) -> float:
        """How long the GPU that computes most does so."""
        return float(self.run.compute_s.max()) / self.steps

    @property
    def exposed_communication_s(self) -> float:
        """What is left: communication, and waiting for others, that computing does not hide."""
        return self.run.exposed_s / self.steps

    @property
    def samples_per_s(self) -> float:
        """Of all GPUs together."""
        samples = self.setting.samples * self.setting.accumulate
        return samples / self.time_s if self.time_s else float("inf")

    @property
    def efficiency(self) -> float:
        """Samples per second and GPU against one GPU alone, which sends nothing."""
        setting = self.setting
        full = setting.samples / (setting.workload.batch * setting.gpus)
        return full * self.alone_s / self.time_s if self.time_s else 1.0

    @property
    def alone_s(self) -> float:
        """What one GPU takes for its share of a step when there are no others."""
        work = self.setting.workload
        passes_s = math.fsum(work.forward_s) + math.fsum(work.backward_s)
        return self.setting.accumulate * passes_s + work.optimizer_s

    @property
    def communication_s(self) -> float:
        """What a step takes if computing takes no time: the network's part, none of it hidden."""
        plan = self.run.plan
        tasks = tuple(replace(t, seconds=0.0) if isinstance(t, Compute) else t for t in plan.tasks)
        idle = Plan(plan.name, plan.n, tasks, plan.widths, plan.servers)
        return perform(idle, self.run.cluster).time_s / self.steps

    @property
    def buckets(self) -> list[BucketTimes]:
        """Of every collective that carries gradients, in the order of their launch.

        Where groups of GPUs have one each, of the group that ends last.
        """
        run = self.run
        found: dict[tuple[str, int], BucketTimes] = {}
        maker: dict[str, int] = {}  # the last task before that wrote these gradients
        for number, task in enumerate(run.plan.tasks):
            if isinstance(task, Compute):
                maker |= dict.fromkeys(filter(_is_gradients, task.writes), number)
                continue
            made = next((maker[name] for name in task.reads if name in maker), None)
            if made is None:
                continue
            part = slice(None) if task.ranks is None else list(task.ranks)
            ready_s, start_s, end_s = (
                float(np.nanmax(times_s[part]))
                for times_s in (run.ended_s[made], run.entered_s[number], run.ended_s[number])
            )
            row, key = BucketTimes(task.nbytes, ready_s, start_s, end_s), (task.label, made)
            if key not in found or found[key].end_s < end_s:
                found[key] = row
        return list(found.values())

    @property
    def memory(self) -> list[Memory]:
        """What each rank must hold."""
        return footprint(self.strategy, self.setting)

    def document(self) -> dict[str, Any]:
        """For JSON: times in seconds, bytes per rank, everything per step."""
        work = self.setting.workload
        return {
            "strategy": self.strategy,
            "source": Source.SIMULATED.value,
            "model": work.name,
            "gpus": self.setting.gpus,
            "batch_per_gpu": work.batch,
            "compute_source": work.compute_source,
            "time_s": self.time_s,
            "compute_s": self.compute_s,
            "exposed_communication_s": self.exposed_communication_s,
            "sent_bytes": [nbytes / self.steps for nbytes in self.run.sent_bytes.tolist()],
            "received_bytes": [nbytes / self.steps for nbytes in self.run.received_bytes.tolist()],
            "peak_memory_bytes": [held.total for held in self.memory],
            "buckets": [
                {"bytes": b.nbytes, "ready_s": b.ready_s, "start_s": b.start_s, "end_s": b.end_s}
                for b in self.buckets
            ],
            "samples_per_s": self.samples_per_s,
            "efficiency": self.efficiency,
            "solver": self.run.solver,
        }


def _is_gradients(name: str) -> bool:
    return name.startswith(("gradients", "ready"))


def step(
    strategy: str,
    setting: Setting,
    cluster: Cluster,
    *,
    slowdowns: Sequence[Slowdown] = (),
    transfers: bool = False,
    progress: Callable[[float], None] | None = None,
) -> StepResult:
    """Simulate one training step.

    ``cluster`` has a port for every rank of the plan: extra servers count.

    >>> from simcore.cluster import uniform
    >>> from simcore.training.workload import load_workload
    >>> work = load_workload("resnet18").with_compute(forward_s=0.02, backward_s=0.04)
    >>> result = step("ddp", Setting(work, gpus=4), uniform(4, 1.25e9))
    >>> round(result.time_s, 6), round(result.exposed_communication_s, 6)
    (0.08154, 0.02154)
    """
    row = find_strategy(strategy)
    if not setting.workload.forward_s:
        raise ValueError(f"workload {setting.workload.name!r} has no compute times")
    plan = row.plan(setting)
    run = perform(plan, cluster, slowdowns=slowdowns, transfers=transfers, progress=progress)
    return StepResult(strategy, setting, run, setting.period if strategy == "local-sgd" else 1)
