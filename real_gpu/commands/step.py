"""``python -m real_gpu step``: a training step on real ranks, computing by sleeping; its record."""

from __future__ import annotations

import argparse
import os
import shlex

from real_gpu.backends import PROCESSES
from real_gpu.commands.common import (
    Parser,
    check_instrument,
    check_ranks,
    check_writable,
    said_as_flags,
    whole,
    write,
)
from real_gpu.commands.staged import add_interface, staged
from real_gpu.processes.measure import MOST_RANKS
from real_gpu.processes.stage import Stage
from simcore.commands.training import add_training, check_taken, setting_of, workload_of
from simcore.measured.step_records import VENDOR_STEPS, StepRecord
from simcore.names import unknown
from simcore.training.strategies import STRATEGIES, find_strategy
from simcore.units import format_bytes, format_time

_TIMES = ("forward", "backward", "optimizer", "launch_per_replica")
HELP = "run one training step, computing by sleeping, and record it"


def add(parser: Parser) -> None:
    """Its arguments: those of ``python -m simcore step``, and what a real run needs."""
    names = ", ".join([row.name for row in STRATEGIES] + list(VENDOR_STEPS))
    parser.add_argument("strategy", metavar="STRATEGY", help=names)
    parser.add_argument(
        "--model",
        required=True,
        metavar="NAME|FILE",
        help="resnet18 and others, or a JSON or CSV file",
    )
    parser.add_argument("--gpus", required=True, metavar="N", help="ranks that train")
    parser.add_argument(
        "--network",
        metavar="RATE",
        help="shape it: 200Mbit/s; default: as it is",
    )
    add_training(parser, backend="auto (default), nccl or gloo")
    parser.add_argument("--runs", default="5", metavar="K", help="timed runs (5)")
    parser.add_argument("--trace", metavar="FILE", help="write the last run's spans as a trace")
    parser.add_argument("--out", required=True, metavar="FILE", help="write the record here")
    parser.add_argument("--json", action="store_true", help="print the record too")
    add_interface(parser)


def command(args: argparse.Namespace) -> int:
    """Run it, write the record, say what came out."""
    return staged(args, _take)


def _take(args: argparse.Namespace, stage: Stage) -> int:
    from real_gpu.stepping import Step, check_step, take_steps

    again = _again(args)
    _check_names(args)
    check_writable(args.out, args.trace)
    runs = whole("--runs", args.runs, 1)
    args.gpus, asked, args.backend = whole("--gpus", args.gpus, 2, MOST_RANKS), args.backend, None
    row = find_strategy(VENDOR_STEPS.get(args.strategy, args.strategy))
    check_taken(args, row)
    with said_as_flags(("accumulate", *row.takes)):
        setting = setting_of(args, workload_of(args), row.takes)
        step = Step(args.strategy, setting, args.trace is not None)
        check_step(step)
    check_ranks(args.gpus, step.plan.n, MOST_RANKS)
    shaped = args.network is not None
    backend = stage.choose(asked or "auto", step.plan.n, shaped).backend
    ((record, trace),) = take_steps(
        [step], args.network, backend=backend, runs=runs, command=again, stage=stage
    )
    if trace is not None:
        write(args.trace, trace.to_json())
    write(args.out, record.to_json())
    print(record.to_json() if args.json else _summary(record), end="" if args.json else "\n")
    check_instrument(args.out, record.instrument)
    return 0


def _check_names(args: argparse.Namespace) -> None:
    names = [*(row.name for row in STRATEGIES), *VENDOR_STEPS]
    if args.strategy not in names:
        raise ValueError(unknown("strategy", args.strategy, names))
    if args.backend not in (None, *PROCESSES):
        raise ValueError(unknown("backend", args.backend, PROCESSES))
    if args.trace and args.strategy in VENDOR_STEPS:
        raise ValueError(f"{args.strategy} takes no --trace; accepted: with a strategy")


def _again(args: argparse.Namespace) -> str:
    """The command again, without anybody's folders."""
    words = ["python", "-m", "real_gpu", "step", args.strategy]
    for name, value in vars(args).items():
        flag = f"--{name.replace('_', '-')}"
        if name in ("command", "strategy", "json", "interface") or value is None or value == []:
            continue
        if value is True:
            words.append(flag)
        elif name == "slower":
            words += [text for rank, factor in value for text in (flag, f"{rank}:{factor:g}")]
        else:
            file = name in ("model", "out", "trace")
            text = os.path.basename(value) if file else f"{value}"
            words += [flag, f"{value:g}s" if name in _TIMES else text]
    return shlex.join(words)


def _summary(record: StepRecord) -> str:
    runs = record.runs_s
    between = f"{format_time(min(runs))} to {format_time(max(runs))}"
    where = f"ports of {record.network}" if record.network else record.backend
    servers = f" and {record.servers} servers" if record.servers else ""
    lines = [
        f"{record.name} ({record.source}), {record.gpus} ranks{servers}, {where}",
        f"measured  {format_time(record.median_s)}, median of {len(runs)} ({between})",
        f"computing {format_time(record.computing_s)}, measured without communication",
    ]
    if record.network is None:
        lines.append("simulated not at all: the rate between these ranks is not known")
    else:
        simulated_s = record.simulate().run.time_s
        lines.append(f"simulated {format_time(simulated_s)}, {record.error():+.1%}")
    for title, values in (
        ("sent", record.sent_bytes),
        ("on the wire", record.counter_sent_bytes),
    ):
        if values is not None:
            lines.append(f"{title}: " + ", ".join(format_bytes(v) for v in values))
    return "\n".join(lines)
