"""``python -m real_gpu run``: one collective on real processes, and its record."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from real_gpu.commands.common import Parser, check_instrument, check_writable, whole, write
from real_gpu.info import choose_backend
from real_gpu.job import ITEMSIZE, VENDOR, Case, Job, check_name, parse_network, ranks
from real_gpu.measure import measure
from real_gpu.recording import calibration, record_of, trace_of
from simcore.algorithms import ALGORITHM_FLAGS, build_schedule
from simcore.names import unknown
from simcore.records import Record
from simcore.units import format_bytes, format_rate, format_time, parse_bytes

HELP = "run one collective and record it"


def add(parser: Parser) -> None:
    """Its arguments."""
    parser.add_argument("name", metavar="NAME", help=f"an algorithm, or {', '.join(VENDOR)}")
    parser.add_argument("--gpus", required=True, metavar="N", help="ranks")
    parser.add_argument("--size", required=True, metavar="S", help="buffer, such as 8MiB")
    parser.add_argument("--dtype", default="float32", help=", ".join(ITEMSIZE))
    parser.add_argument("--backend", default="auto", help="auto, nccl or gloo")
    parser.add_argument(
        "--network", metavar="RATE[,LATENCY]", help="shape it: 200Mbit/s or 1Gbit/s,50us"
    )
    parser.add_argument("--runs", default="5", metavar="K", help="timed runs (5)")
    for flag, about in ALGORITHM_FLAGS.items():
        parser.add_argument(f"--{flag.replace('_', '-')}", metavar="K", help=about)
    parser.add_argument("--port", default="0", help="of the rendezvous; 0 is any free one")
    parser.add_argument("--trace", metavar="FILE", help="write the last run's spans as a trace")
    parser.add_argument("--out", required=True, metavar="FILE", help="write the record here")
    parser.add_argument("--json", action="store_true", help="print the record too")


def command(args: argparse.Namespace) -> int:
    """Run it, write the record, say what came out."""
    case = _case(args)
    job = _job(args, ranks(case, whole("--gpus", args.gpus, 1)))
    check_writable(*filter(None, (args.out, args.trace)))
    backend = choose_backend(args.backend, job.n, job.network is not None)
    calibrate = job.network is not None and job.n > 1
    cases = (*((calibration(job.network),) if calibrate and job.network else ()), case)
    job = Job(job.n, cases, backend, job.network, job.port)
    *calibrated, result = measure(job)
    record = record_of(
        job,
        case,
        result,
        network=args.network,
        calibrated=calibrated[0] if calibrated else None,
        command=_again(args),
    )
    if args.trace:
        write(args.trace, trace_of(job, case, result).to_json())
    write(args.out, record.to_json())
    print(record.to_json() if args.json else _summary(record), end="" if args.json else "\n")
    check_instrument(args.out, record.instrument)
    return 0


def _case(args: argparse.Namespace) -> Case:
    """The collective asked for, or a ``ValueError`` that says what is accepted."""
    check_name(args.name)
    n = whole("--gpus", args.gpus, 1)
    nbytes = parse_bytes(args.size)
    if args.dtype not in ITEMSIZE:
        raise ValueError(unknown("dtype", args.dtype, ITEMSIZE))
    itemsize = ITEMSIZE[args.dtype]
    if nbytes % itemsize:
        raise ValueError(
            f"size {args.size!r} is {nbytes} bytes; accepted: a multiple of the {itemsize} bytes "
            f"of a {args.dtype}"
        )
    flags = {
        flag: whole(f"--{flag.replace('_', '-')}", getattr(args, flag), 0)
        for flag in ALGORITHM_FLAGS
        if getattr(args, flag) is not None
    }
    if args.name not in VENDOR:
        build_schedule(args.name, n, **flags)
    elif flags or args.trace:
        taken = f"--{next(iter(flags)).replace('_', '-')}" if flags else "--trace"
        raise ValueError(f"{args.name} does not take {taken}")
    runs = whole("--runs", args.runs, 1)
    return Case(args.name, nbytes // itemsize, args.dtype, runs, flags, spans=bool(args.trace))


def _job(args: argparse.Namespace, n: int) -> Job:
    """``n`` processes and network, as asked for; cases come later."""
    backends = ("auto", "nccl", "gloo")
    if args.backend not in backends:
        raise ValueError(unknown("backend", args.backend, backends))
    network = None if args.network is None else parse_network(args.network)
    if network and args.backend == "nccl":
        raise ValueError("--network shapes links between CPU processes; accepted: --backend gloo")
    port = whole("--port", args.port, 0)
    if port > 65535:
        raise ValueError(f"--port {args.port!r} is not a port; accepted: 0 to 65535")
    return Job(n, (), args.backend, network, port)


def _again(args: argparse.Namespace) -> str:
    """The command again, without anybody's folders."""
    words = ["python", "-m", "real_gpu", "run", args.name]
    for flag in ("gpus", "size", "dtype", "backend", "network", "runs", *ALGORITHM_FLAGS):
        if getattr(args, flag) is not None:
            words += [f"--{flag.replace('_', '-')}", getattr(args, flag)]
    return shlex.join([*words, "--out", Path(args.out).name])


def _summary(record: Record) -> str:
    rate = record.network_bytes_per_s
    where = f"{record.backend}, ports of {format_rate(rate)}" if rate else record.backend
    size, runs = format_bytes(record.size_bytes), record.runs_s
    between = f"{format_time(min(runs))} to {format_time(max(runs))}"
    lines = [
        f"{record.name} ({record.source}), {record.gpus} ranks, {size} {record.dtype}, {where}",
        f"measured  {format_time(record.median_s)}, median of {len(runs)} ({between})",
    ]
    if record.simulated and record.median_s:
        error = record.simulated["time_s"] / record.median_s - 1
        lines.append(f"simulated {format_time(record.simulated['time_s'])}, {error:+.1%}")
    for title, values in (("sent", record.sent_bytes), ("on the wire", record.counter_sent_bytes)):
        if values is not None:
            lines.append(f"{title}: " + ", ".join(format_bytes(v) for v in values))
    return "\n".join([*lines, *record.notes])
