"""``python -m simcore step``: where the time of one training step goes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from simcore.commands import jobs, step_async, values
from simcore.commands.common import (
    Parser,
    Progress,
    add_json,
    add_machines,
    add_model,
    cluster_of,
    write_trace,
)
from simcore.commands.training import (
    ASYNC,
    add_simulated,
    add_training,
    check_taken,
    flag_of,
    ranks_of,
    setting_of,
    workload_of,
)
from simcore.explain import not_the_network
from simcore.names import unknown
from simcore.training import calls
from simcore.training.perform import perform
from simcore.training.step import StepResult, step
from simcore.training.strategies import STRATEGIES, find_strategy
from simcore.training.strategies.ddp import construction
from simcore.training.work import work_of
from simcore.units import format_bytes, format_time

HELP = "time one training step of a model"
_WRAPS = ("ddp", "zero-redundancy-optimizer")  # the model in a DistributedDataParallel
TELL_S, LONGEST_S = 60.0, 4 * 3600.0  # of a simulation, told in advance
MAX_TRACE_GPUS = 64  # with more, single messages make no picture


def add(parser: Parser) -> None:
    """The strategy, the model, the machines."""
    parser.add_argument("strategy", help="ddp, dp, ps, fsdp … (see docs/training-step.md)")
    add_machines(parser)
    add_model(parser, required=True)
    add_training(parser)
    add_simulated(parser)
    add = parser.add_argument
    add("--trace", type=values.trace_file, metavar="FILE", help=".json or .csv")
    about = "what a real step took: how much of it can be the network"
    add("--measured", type=values.seconds, metavar="T", help=about)
    about = f"{ASYNC}: gradients ahead at most"
    add("--bound", type=values.count, metavar="S", help=about)
    about = f"{ASYNC} --bound 0: the slowest of a round, which is not waited for"
    add("--backup-workers", type=values.count, metavar="K", help=about)
    about = "what wrapping the model costs once (ddp, zero-redundancy-optimizer)"
    add("--construction", action="store_true", help=about)
    about = "what a join block for uneven inputs adds (those two)"
    add("--join", action="store_true", help=about)
    for name in ("tensor", "pipeline"):
        about = "GPUs that hold one copy of the model together; the others average with theirs"
        add(f"--{name}-parallel", type=values.gpus, metavar="K", default=1, help=about)
    add_json(parser)


def command(args: argparse.Namespace) -> None:
    """Simulate it, write the trace, say what came out."""
    names = [*(row.name for row in STRATEGIES), ASYNC]
    if args.strategy not in names:
        raise ValueError(unknown("strategy", args.strategy, names))
    if args.strategy == ASYNC:
        step_async.command(args)
        return
    result = _simulated(args)
    told = verdict(result, args.measured) if args.measured is not None else None
    if args.trace:
        write_trace(args.trace, result.run.trace())
    more, lines = _once(args, result)
    groups, said = jobs.told(args, result)
    if args.json:
        more |= groups | ({} if told is None else {"measured_s": args.measured, "verdict": told})
        print(json.dumps(result.document() | more, allow_nan=False))
        return
    print("\n".join([*step_lines(result), *lines, *said]))
    if told is not None:
        print(f"measured       {format_time(args.measured)}: {told}")


def _simulated(args: argparse.Namespace) -> StepResult:
    strategy = find_strategy(args.strategy)
    for name in ("bound", "backup_workers"):
        if getattr(args, name) is not None:
            raise ValueError(f"{strategy.name} takes no {flag_of(name)}; accepted: with {ASYNC}")
    check_taken(args, strategy)
    _check_wrapped(args)
    work = jobs.share_of(args, workload_of(args))
    setting = setting_of(args, work, strategy.takes)
    cluster = cluster_of(args, ranks_of(args, strategy.name))
    needed = work_of(strategy.name, setting, cluster.is_plain)
    if needed.seconds > LONGEST_S:
        raise ValueError(f"{needed}; accepted: fewer GPUs or servers, or a smaller model")
    if needed.seconds > TELL_S:
        sys.stderr.write(f"{needed} at the most; Ctrl-C ends it\n")
    keep = args.trace is not None and args.gpus <= MAX_TRACE_GPUS
    with Progress() as progress:
        return step(strategy.name, setting, cluster, transfers=keep, progress=progress)


def _once(args: argparse.Namespace, result: StepResult) -> tuple[dict[str, Any], list[str]]:
    """What is sent beside the steps, for JSON and for people; nothing where not asked."""
    found, lines = dict[str, Any](), list[str]()
    if args.construction:
        run = perform(construction(result.setting), result.run.cluster)
        received = int(run.received_bytes.max())
        found = {"construction_s": run.time_s, "construction_received_bytes": received}
        each = format_bytes(received)
        lines.append(f"construction   {format_time(run.time_s)} once, {each} to each GPU")
    if args.join:
        n, setting = result.setting.gpus, result.setting
        *iterations, end = calls.join(setting.workload, setting.options, 4)
        more = [call for call in iterations[-1] if call.label.startswith("join")]
        found |= {"join_collectives": len(more), "join_end_wire_bytes": calls.wire_bytes(end, n)}
        lines.append(
            f"join           {len(more)} small all-reduces more in each iteration, all buckets of "
            f"who has no data; {format_bytes(found['join_end_wire_bytes'])} on the wire at the end"
        )
    return found, lines


def _check_wrapped(args: argparse.Namespace) -> None:
    for name in ("construction", "join"):
        if getattr(args, name) and args.strategy not in _WRAPS:
            accepted = ", ".join(_WRAPS)
            raise ValueError(f"{args.strategy} takes no --{name}; accepted: with {accepted}")


def verdict(result: StepResult, measured_s: float) -> str:
    """What the network can have to do with a step that was measured to take this long."""
    lost_s, wire_s = measured_s - result.alone_s, result.communication_s
    if lost_s <= 0:
        return "no longer than one GPU computes; look at the compute times"
    return not_the_network(lost_s, wire_s) or (
        f"{format_time(lost_s)} more than one GPU computes; "
        f"the network can take up to {format_time(wire_s)}"
    )


def step_lines(result: StepResult) -> list[str]:
    """For people."""
    work, setting, sent = result.setting.workload, result.setting, result.run.sent_bytes
    exposed_s, time_s = result.exposed_communication_s, max(result.time_s, 1e-300)
    most, least = (format_bytes(round(float(f(sent)) / result.steps)) for f in (max, min))
    held = [memory.total for memory in result.memory]
    most_held, least_held = format_bytes(max(held)), format_bytes(min(held))
    case = f"batch {work.batch} on each of {setting.gpus} GPUs"
    if setting.total_batch is not None:
        case = f"batch {setting.total_batch} on {setting.gpus} GPUs"
    speed = f"{result.samples_per_s:.4g} samples/s, efficiency {result.efficiency:.1%}"
    lines = [
        f"{result.strategy}: {work.name}, {case}, gradients {format_bytes(work.gradient_bytes)}",
        f"compute        {work.compute_source or 'as the model file says'}",
        f"simulated      {format_time(result.time_s)} a step, {speed}",
        f"  computing    {format_time(result.compute_s)}",
        f"  exposed      {format_time(exposed_s)}, {exposed_s / time_s:.1%} of the step",
        f"sent           {most} by the GPU that sends most"
        + f", {least} by the least" * (most != least),
        f"must hold      {most_held}"
        + f" on the GPU that holds most, {least_held} on the least" * (most_held != least_held),
    ]
    if setting.aggregation == "sum":
        lines.append(f"aggregation    sum: a mean at {setting.gpus} times the learning rate")
    if idle := sum(memory.total == 0 for memory in result.memory):
        lines.append(
            f"idle           {idle} of {setting.gpus} GPUs: the batch leaves them no samples"
        )
    if result.buckets:
        lines.append("bucket         ready         begins        ends")
    for bucket in result.buckets:
        times = (bucket.ready_s, bucket.start_s, bucket.end_s)
        cells = "".join(f"{format_time(seconds):<14}" for seconds in times)
        lines.append(f"  {format_bytes(bucket.nbytes):<12} {cells}".rstrip())
    return lines
