"""``step ps-async``: what a step of an asynchronous, or bounded, parameter server comes to.

It has no plan: who comes next is found while it runs. A step here is one gradient of every GPU, and
its time the mean over a run of many.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from typing import Any

from simcore.cluster import Cluster
from simcore.commands.common import cluster_of, write_trace
from simcore.commands.training import (
    ASYNC,
    flag_of,
    given_flags,
    ranks_of,
    setting_of,
    workload_of,
)
from simcore.trace import Source
from simcore.training.asynchronous import AsyncRun, run_asynchronous
from simcore.training.strategies import STRATEGIES, Setting, footprint
from simcore.units import format_bytes, format_time

STEPS = 20  # of every GPU, on average; the first are in phase, later ones are not


def command(args: argparse.Namespace) -> None:
    """Simulate it, write the trace, say what came out."""
    if args.measured is not None:
        raise ValueError(f"{ASYNC} takes no --measured")
    setting = _setting(args)
    result = _simulated(args, setting, cluster_of(args, ranks_of(args, ASYNC)))
    if args.trace:
        write_trace(args.trace, result.run.trace)
    if args.json:
        print(json.dumps(result.document(), allow_nan=False))
    else:
        print("\n".join(_lines(result)))


def _setting(args: argparse.Namespace) -> Setting:
    """The setting of ``ps-async``, which takes few of the flags."""
    for name in given_flags(args):
        if name != "servers":
            accepted = [row.name for row in STRATEGIES if name in row.takes]
            raise ValueError(
                f"{ASYNC} takes no {flag_of(name)}; accepted: with {', '.join(accepted)}"
            )
    if args.accumulate not in (None, 1):
        raise ValueError(f"{ASYNC} takes no --accumulate")
    if args.servers not in (None, 0, 1):
        raise ValueError(f"--servers {args.servers}: {ASYNC} accepts 0 or 1")
    return setting_of(args, workload_of(args), ())


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
            "strategy": ASYNC,
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


def _simulated(args: argparse.Namespace, setting: Setting, cluster: Cluster) -> AsyncStep:
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


def _lines(result: AsyncStep) -> list[str]:
    """For people."""
    found, work = result.document(), result.setting.workload
    bound = found["bound"]
    rule = "asynchronous" if bound is None else f"at most {bound} gradients ahead of the slowest"
    speed = f"{found['samples_per_s']:.4g} samples/s, efficiency {found['efficiency']:.1%}"
    largest = found["staleness_largest"]
    return [
        f"{ASYNC}: {work.name}, batch {work.batch} on each of {result.setting.gpus} GPUs, {rule}",
        f"compute        {work.compute_source or 'as the model file says'}",
        f"simulated      {format_time(result.time_s)} for a gradient of every GPU, {speed}",
        f"  computing    {format_time(result.compute_s)} on the slowest GPU",
        f"sent           {format_bytes(round(max(found['sent_bytes'])))} by the busiest rank",
        f"staleness      {found['staleness_mean']:.3g} updates on average, {largest} at most",
    ]
