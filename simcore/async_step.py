"""``step ps-async``: what a step of an asynchronous, or bounded, parameter server comes to.

It has no plan: who comes next is found while it runs. A step here is one gradient of every GPU, and
its time the mean over a run of many.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

from simcore.asynchronous import AsyncRun, run_asynchronous
from simcore.cluster import Cluster
from simcore.strategies import Setting, footprint
from simcore.trace import Source
from simcore.units import format_bytes, format_time

NAME = "ps-async"
STEPS = 20  # of every GPU, on average; the first are in phase, later ones are not


@dataclass(frozen=True, slots=True, eq=False)
class AsyncStep:
    """A run of ``STEPS`` gradients per GPU and what it says of one step."""

    setting: Setting
    run: AsyncRun

    @property
    def time_s(self) -> float:
        """In which as many gradients are applied as there are GPUs."""
        return self.setting.gpus / self.run.updates_per_s

    @property
    def compute_s(self) -> float:
        """Of one gradient on the slowest GPU."""
        work, slowest = self.setting.workload, max(self.setting.slower, default=1.0)
        return (math.fsum(work.forward_s) + math.fsum(work.backward_s)) * slowest

    def document(self) -> dict[str, Any]:
        """For JSON: as of other strategies, and how old gradients were when they were applied."""
        work, trace, gpus = self.setting.workload, self.run.trace, self.setting.gpus
        steps = len(self.run.updates) / gpus
        held = footprint("ps", self.setting) + [footprint("ps", self.setting)[0]] * (trace.n - gpus)
        alone_s = math.fsum(work.forward_s) + math.fsum(work.backward_s)
        return {
            "strategy": NAME,
            "source": Source.SIMULATED.value,
            "model": work.name,
            "gpus": gpus,
            "batch_per_gpu": work.batch,
            "compute_source": work.compute_source,
            "bound": self.run.case.bound,
            "time_s": self.time_s,
            "compute_s": self.compute_s,
            "exposed_communication_s": max(0.0, self.time_s - self.compute_s),
            "sent_bytes": [nbytes / steps for nbytes in trace.sent_bytes.tolist()],
            "received_bytes": [nbytes / steps for nbytes in trace.received_bytes.tolist()],
            "peak_memory_bytes": [memory.total for memory in held],
            "buckets": [],
            "samples_per_s": work.batch * self.run.updates_per_s,
            "efficiency": alone_s / self.time_s,
            "staleness_mean": self.run.mean_staleness,
            "staleness_largest": int(self.run.updates.staleness.max()),
        }


def run_async_step(args: argparse.Namespace, setting: Setting, cluster: Cluster) -> AsyncStep:
    """The run; ``--bound`` makes it stale-synchronous, ``--servers 1`` adds a machine."""
    work = setting.workload
    slower = setting.slower or (1.0,) * setting.gpus
    alone_s = math.fsum(work.forward_s) + math.fsum(work.backward_s)
    run = run_asynchronous(
        cluster,
        [alone_s * factor for factor in slower],
        work.gradient_bytes,
        work.parameter_bytes,
        STEPS * setting.gpus,
        args.bound,
        apply_s=work.optimizer_s,
        servers=args.servers or 0,
        keep_spans=args.trace is not None,
    )
    return AsyncStep(setting, run)


def async_lines(result: AsyncStep) -> list[str]:
    """For people."""
    found, work = result.document(), result.setting.workload
    bound = found["bound"]
    rule = "asynchronous" if bound is None else f"at most {bound} gradients ahead of the slowest"
    speed = f"{found['samples_per_s']:.4g} samples/s, efficiency {found['efficiency']:.1%}"
    largest = found["staleness_largest"]
    return [
        f"{NAME}: {work.name}, batch {work.batch} on each of {result.setting.gpus} GPUs, {rule}",
        f"compute        {work.compute_source or 'as the model file says'}",
        f"simulated      {format_time(result.time_s)} for a gradient of every GPU, {speed}",
        f"  computing    {format_time(result.compute_s)} on the slowest GPU",
        f"sent           {format_bytes(round(max(found['sent_bytes'])))} by the busiest rank",
        f"staleness      {found['staleness_mean']:.3g} updates on average, {largest} at most",
    ]
