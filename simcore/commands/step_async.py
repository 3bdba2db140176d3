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
    rounds = args.bound == 0
    for name in given_flags(args):
        if name == "aggregation" and not rounds:
            raise ValueError(f"--aggregation alone; accepted: {ASYNC} --bound 0, where rounds are")
        if name not in ("servers", "aggregation"):
            accepted = [row.name for row in STRATEGIES if name in row.takes]
            raise ValueError(
                f"{ASYNC} takes no {flag_of(name)}; accepted: with {', '.join(accepted)}"
            )
    if args.accumulate not in (None, 1):
        raise ValueError(f"{ASYNC} takes no --accumulate")
    wrapped = args.construction or args.join
    if wrapped or args.tensor_parallel * args.pipeline_parallel > 1:
        raise ValueError(
            f"{ASYNC} takes no --construction, --join, --tensor-parallel or --pipeline-parallel"
        )
    if args.backup_workers and not rounds:
        raise ValueError(f"--backup-workers alone; accepted: {ASYNC} --bound 0, where rounds are")
    if args.backup_workers and args.backup_workers >= args.gpus:
        last = args.gpus - 1
        raise ValueError(f"--backup-workers {args.backup_workers}: accepted are 0 to {last}")
    if args.servers not in (None, 0, 1):
        raise ValueError(f"--servers {args.servers}: {ASYNC} accepts 0 or 1")
    return setting_of(args, workload_of(args), ("aggregation",))


@dataclass(frozen=True, slots=True, eq=False)
class AsyncStep:
    """A run of ``STEPS`` gradients per GPU and what it says of one step."""

    setting: Setting
    run: AsyncRun

    @property
    def time_s(self) -> float:
        """Of a round; where there are none, in which as many gradients are applied as GPUs are."""
        return self.run.case.in_a_round / self.run.updates_per_s

    @property
    def compute_s(self) -> float:
        """Of one gradient on the slowest GPU that is waited for."""
        work, case = self.setting.workload, self.run.case
        slowest = sorted(self.setting.slower or (1.0,) * case.workers)[case.in_a_round - 1]
        return (math.fsum(work.forward_s) + math.fsum(work.backward_s)) * slowest

    def document(self) -> dict[str, Any]:
        """For JSON: as of other strategies, and how old gradients were when they were applied."""
        work, trace, gpus = self.setting.workload, self.run.trace, self.setting.gpus
        steps = len(self.run.updates) / self.run.case.in_a_round
        held = footprint("ps-dedicated" if self.run.case.servers else "ps", self.setting)
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
            "efficiency": self.run.updates_per_s * alone_s / gpus,
            "aggregation": self.setting.aggregation if self.run.case.bound == 0 else None,
            "part_of_gradients": self.run.parts.tolist(),
            "dropped_gradients": self.run.dropped.tolist(),
            "staleness_mean": self.run.mean_staleness,
            "staleness_largest": int(self.run.updates.staleness.max()),
        }


def _simulated(args: argparse.Namespace, setting: Setting, cluster: Cluster) -> AsyncStep:
    """The run; ``--bound`` makes it stale-synchronous, ``--servers 1`` adds a machine."""
    work, backups = setting.workload, args.backup_workers or 0
    slower = setting.slower or (1.0,) * setting.gpus
    alone_s = math.fsum(work.forward_s) + math.fsum(work.backward_s)
    run = run_asynchronous(
        cluster,
        [alone_s * factor for factor in slower],
        work.gradient_bytes,
        work.parameter_bytes,
        STEPS * (setting.gpus - backups),
        args.bound,
        apply_s=work.optimizer_s,
        servers=args.servers or 0,
        backups=backups,
        keep_spans=args.trace is not None,
    )
    return AsyncStep(setting, run)


def _lines(result: AsyncStep) -> list[str]:
    """For people."""
    found, work, case = result.document(), result.setting.workload, result.run.case
    speed = f"{found['samples_per_s']:.4g} samples/s, efficiency {found['efficiency']:.1%}"
    largest = found["staleness_largest"]
    waited = " that is waited for" * bool(case.backups)
    lines = [
        f"{ASYNC}: {work.name}, batch {work.batch} on each of {case.workers} GPUs, {_rule(result)}",
        f"compute        {work.compute_source or 'as the model file says'}",
        f"simulated      {format_time(result.time_s)} for {_step_is(result)}, {speed}",
        f"  computing    {format_time(result.compute_s)} on the slowest GPU{waited}",
        f"sent           {format_bytes(round(max(found['sent_bytes'])))} by the busiest rank",
        f"gradients      {_who(result.run)}",
        f"staleness      {found['staleness_mean']:.3g} updates on average, {largest} at most",
    ]
    if found["aggregation"] == "sum":
        lines.append(f"aggregation    sum: a mean at {case.in_a_round} times the learning rate")
    return lines


def _rule(result: AsyncStep) -> str:
    bound, backups = result.run.case.bound, result.run.case.backups
    if bound is None:
        return "asynchronous"
    if backups:
        return f"synchronous, not waiting for {backups}"
    return f"at most {bound} gradients ahead of the slowest"


def _step_is(result: AsyncStep) -> str:
    case = result.run.case
    return f"the first {case.in_a_round} gradients" if case.backups else "a gradient of every GPU"


def _who(run: AsyncRun) -> str:
    """Whose gradients were applied: GPU 0, which may be where the server is, and the others."""
    parts = run.parts
    if len(parts) == 1:
        return "all of GPU 0"
    where = " (beside the server)" * (not run.case.servers)
    least, most = parts[1:].min(), parts[1:].max()
    others = f"{least:.1%}" if f"{least:.1%}" == f"{most:.1%}" else f"{least:.1%} to {most:.1%}"
    said = f"{parts[0]:.1%} of GPU 0{where}, {others} of each other one"
    dropped = int(run.dropped.sum())
    return said + f"; {dropped} came too late and were dropped" * bool(dropped)
