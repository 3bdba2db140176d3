"""``python -m real_gpu train``: DDP's training step on the shaped network, and its record."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from real_gpu.commands.common import Parser, check_instrument, check_writable, whole, write
from simcore.step_records import StepRecord
from simcore.units import format_time, parse_time
from simcore.workload import load_workload

HELP = "run DDP's training step, computing by sleeping"


def add(parser: Parser) -> None:
    """Its arguments."""
    parser.add_argument("--model", required=True, metavar="NAME|FILE", help="with compute times")
    parser.add_argument("--gpus", required=True, metavar="N", help="ranks")
    parser.add_argument("--network", required=True, metavar="RATE", help="such as 200Mbit/s")
    parser.add_argument("--forward", metavar="T", help="seconds of the forward pass")
    parser.add_argument("--backward", metavar="T", help="seconds of the backward pass")
    parser.add_argument("--bucket-cap-mb", metavar="X", help="DDP's, in MiB")
    parser.add_argument("--accumulate", default="1", metavar="K", help="micro-batches (1)")
    parser.add_argument("--runs", default="5", metavar="K", help="timed runs (5)")
    parser.add_argument("--out", required=True, metavar="FILE", help="write the record here")
    parser.add_argument("--json", action="store_true", help="print the record too")


def command(args: argparse.Namespace) -> int:
    """Run it, write the record, say what came out."""
    from real_gpu.stepping import train

    check_writable(args.out)
    work = load_workload(args.model)
    if (args.forward is None) != (args.backward is None):
        raise ValueError("--forward and --backward go together; accepted: both, or none")
    if args.forward is not None:
        work = work.with_compute(parse_time(args.forward), parse_time(args.backward))
    cap = None if args.bucket_cap_mb is None else _megabytes(args.bucket_cap_mb)
    words = ["python", "-m", "real_gpu", "train"]
    for flag in ("gpus", "network", "forward", "backward", "bucket-cap-mb", "accumulate", "runs"):
        value = getattr(args, flag.replace("-", "_"))
        words += [] if value is None else [f"--{flag}", value]
    words += ["--model", Path(args.model).name, "--out", Path(args.out).name]
    record = train(
        work,
        whole("--gpus", args.gpus, 2),
        args.network,
        bucket_cap_mb=cap,
        accumulate=whole("--accumulate", args.accumulate, 1),
        runs=whole("--runs", args.runs, 1),
        command=shlex.join(words),
    )
    write(args.out, record.to_json())
    print(record.to_json() if args.json else _summary(record), end="" if args.json else "\n")
    check_instrument(args.out, record.instrument)
    return 0


def _megabytes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise ValueError(f"--bucket-cap-mb {text!r}: accepted are MiB from 0 to 1000000")
    return value


def _summary(record: StepRecord) -> str:
    simulated = record.simulate()
    between = f"{format_time(min(record.runs_s))} to {format_time(max(record.runs_s))}"
    ranks = f"{record.gpus} ranks, ports of {record.network}, {len(simulated.buckets)} buckets"
    error = simulated.time_s / record.median_s - 1
    lines = [
        f"{record.name} ({record.source}), {ranks}",
        f"measured  {format_time(record.median_s)}, median of {len(record.runs_s)} ({between})",
        f"computing {format_time(record.computing_s)}, measured without communication",
        f"simulated {format_time(simulated.time_s)}, {error:+.1%}",
    ]
    return "\n".join(lines)
