"""``python -m simcore step``: where the time of one training step goes."""

from __future__ import annotations

import argparse
import json

from simcore.commands import step_async, values
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
    add_training,
    check_taken,
    ranks_of,
    setting_of,
    workload_of,
)
from simcore.explain import not_the_network
from simcore.names import unknown
from simcore.training.step import StepResult, step
from simcore.training.strategies import STRATEGIES, find_strategy
from simcore.units import format_bytes, format_time

HELP = "time one training step of a model"
MAX_TRACE_GPUS = 64  # with more, single messages make no picture


def add(parser: Parser) -> None:
    """The strategy, the model, the machines."""
    parser.add_argument("strategy", help="ddp, dp, ps, fsdp … (see docs/training-step.md)")
    add_machines(parser)
    add_model(parser, required=True)
    add_training(parser)
    add = parser.add_argument
    add("--trace", type=values.trace_file, metavar="FILE", help=".json or .csv")
    about = "what a real step took: how much of it can be the network"
    add("--measured", type=values.seconds, metavar="T", help=about)
    about = f"{ASYNC}: gradients ahead at most"
    add("--bound", type=values.count, metavar="S", help=about)
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
    if args.json:
        more = {} if told is None else {"measured_s": args.measured, "verdict": told}
        print(json.dumps(result.document() | more, allow_nan=False))
        return
    print("\n".join(step_lines(result)))
    if told is not None:
        print(f"measured       {format_time(args.measured)}: {told}")


def _simulated(args: argparse.Namespace) -> StepResult:
    strategy = find_strategy(args.strategy)
    if args.bound is not None:
        raise ValueError(f"{strategy.name} takes no --bound; accepted: with {ASYNC}")
    check_taken(args, strategy)
    setting = setting_of(args, workload_of(args), strategy.takes)
    cluster = cluster_of(args, ranks_of(args, strategy.name))
    keep = args.trace is not None and args.gpus <= MAX_TRACE_GPUS
    with Progress() as progress:
        return step(strategy.name, setting, cluster, transfers=keep, progress=progress)


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
    if result.buckets:
        lines.append("bucket         ready         begins        ends")
    for bucket in result.buckets:
        times = (bucket.ready_s, bucket.start_s, bucket.end_s)
        cells = "".join(f"{format_time(seconds):<14}" for seconds in times)
        lines.append(f"  {format_bytes(bucket.nbytes):<12} {cells}".rstrip())
    return lines
