"""``python -m real_gpu info | run | train | clean``.

Exit status: 0; 2 for bad usage or input; 1 for a failed run.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from real_gpu.clean import clean
from real_gpu.info import as_text, choose_backend, info
from real_gpu.job import ITEMSIZE, VENDOR, Case, Job, RunError, check_name, parse_network, ranks
from real_gpu.measure import measure
from real_gpu.recording import calibration, record_of, trace_of
from simcore.algorithms import ALGORITHM_FLAGS, build_schedule
from simcore.names import unknown
from simcore.records import Record
from simcore.step_records import StepRecord
from simcore.units import format_bytes, format_rate, format_time, parse_bytes, parse_time
from simcore.workload import load_workload


class Stopped(Exception):
    """A signal asked this process to end."""


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say it and leave with 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    args = _parser().parse_args(_joined(sys.argv[1:] if arguments is None else arguments))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        match args.command:
            case "info":
                found = info()
                print(json.dumps(found, indent=1) if args.json else as_text(found))
                return 0
            case command:
                return {"clean": _clean, "train": _train, "run": _run}[command](args)
    except ValueError as error:
        return _fail(2, str(error))
    except RunError as error:
        return _fail(1, str(error))
    except Stopped as signal_name:
        return _fail(1, f"stopped by {signal_name}; every process of the run has been ended")


def _joined(words: list[str]) -> list[str]:
    """``--size -8MiB`` as ``--size=-8MiB``: argparse would take the value for a flag."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and re.match(r"-[\d.]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _parser() -> Parser:
    parser = Parser(prog="python -m real_gpu", description="Schedules on real processes.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for name, text in (
        ("info", "what is here, which backend a run would use, and why; what is missing"),
        ("clean", "end what a killed run left behind"),
    ):
        sub = commands.add_parser(name, help=text, allow_abbrev=False)
        sub.add_argument("--json", action="store_true")
    run = commands.add_parser("run", help="run one collective and record it", allow_abbrev=False)
    run.add_argument("name", metavar="NAME", help=f"an algorithm, or {', '.join(VENDOR)}")
    run.add_argument("--gpus", required=True, metavar="N", help="ranks")
    run.add_argument("--size", required=True, metavar="S", help="buffer, such as 8MiB")
    run.add_argument("--dtype", default="float32", help=", ".join(ITEMSIZE))
    run.add_argument("--backend", default="auto", help="auto, nccl or gloo")
    run.add_argument(
        "--network", metavar="RATE[,LATENCY]", help="shape it: 200Mbit/s or 1Gbit/s,50us"
    )
    run.add_argument("--runs", default="5", metavar="K", help="timed runs (5)")
    for flag, about in ALGORITHM_FLAGS.items():
        run.add_argument(f"--{flag.replace('_', '-')}", metavar="K", help=about)
    run.add_argument("--port", default="0", help="of the rendezvous; 0 is any free one")
    run.add_argument("--trace", metavar="FILE", help="write the last run's spans as a trace")
    train = commands.add_parser(
        "train", help="run DDP's training step, computing by sleeping", allow_abbrev=False
    )
    train.add_argument("--model", required=True, metavar="NAME|FILE", help="with compute times")
    train.add_argument("--gpus", required=True, metavar="N", help="ranks")
    train.add_argument("--network", required=True, metavar="RATE", help="such as 200Mbit/s")
    train.add_argument("--forward", metavar="T", help="seconds of the forward pass")
    train.add_argument("--backward", metavar="T", help="seconds of the backward pass")
    train.add_argument("--bucket-cap-mb", metavar="X", help="DDP's, in MiB")
    train.add_argument("--accumulate", default="1", metavar="K", help="micro-batches (1)")
    train.add_argument("--runs", default="5", metavar="K", help="timed runs (5)")
    for sub in (run, train):
        sub.add_argument("--out", required=True, metavar="FILE", help="write the record here")
        sub.add_argument("--json", action="store_true", help="print the record too")
    return parser


def _run(args: argparse.Namespace) -> int:
    case = _case(args)
    job = _job(args, ranks(case, _whole("--gpus", args.gpus, 1)))
    _check_writable(*filter(None, (args.out, args.trace)))
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
        command=_command(args),
    )
    if args.trace:
        _write(args.trace, trace_of(job, case, result).to_json())
    _write(args.out, record.to_json())
    print(record.to_json() if args.json else _summary(record), end="" if args.json else "\n")
    if not record.believable and record.instrument is not None:
        reasons = "; ".join(record.instrument["reasons"])
        raise RunError(f"{args.out} is written, but the instrument was not quiet: {reasons}")
    return 0


def _check_writable(*paths: str) -> None:
    for path in paths:
        if Path(path).is_dir() or not Path(path).absolute().parent.is_dir():
            raise ValueError(
                f"file {path!r} cannot be written; accepted: a file in a folder that exists"
            )


def _train(args: argparse.Namespace) -> int:
    from real_gpu.stepping import train

    _check_writable(args.out)
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
        _whole("--gpus", args.gpus, 2),
        args.network,
        bucket_cap_mb=cap,
        accumulate=_whole("--accumulate", args.accumulate, 1),
        runs=_whole("--runs", args.runs, 1),
        command=shlex.join(words),
    )
    _write(args.out, record.to_json())
    print(record.to_json() if args.json else _step_summary(record), end="" if args.json else "\n")
    if not record.instrument["ok"]:
        reasons = "; ".join(record.instrument["reasons"])
        raise RunError(f"{args.out} is written, but the instrument was not quiet: {reasons}")
    return 0


def _megabytes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise ValueError(f"--bucket-cap-mb {text!r}: accepted are MiB from 0 to 1000000")
    return value


def _step_summary(record: StepRecord) -> str:
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


def _case(args: argparse.Namespace) -> Case:
    """The collective asked for, or a ``ValueError`` that says what is accepted."""
    check_name(args.name)
    n = _whole("--gpus", args.gpus, 1)
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
        flag: _whole(f"--{flag.replace('_', '-')}", getattr(args, flag), 0)
        for flag in ALGORITHM_FLAGS
        if getattr(args, flag) is not None
    }
    if args.name not in VENDOR:
        build_schedule(args.name, n, **flags)
    elif flags or args.trace:
        taken = f"--{next(iter(flags)).replace('_', '-')}" if flags else "--trace"
        raise ValueError(f"{args.name} does not take {taken}")
    runs = _whole("--runs", args.runs, 1)
    return Case(args.name, nbytes // itemsize, args.dtype, runs, flags, spans=bool(args.trace))


def _job(args: argparse.Namespace, n: int) -> Job:
    """``n`` processes and network, as asked for; cases come later."""
    backends = ("auto", "nccl", "gloo")
    if args.backend not in backends:
        raise ValueError(unknown("backend", args.backend, backends))
    network = None if args.network is None else parse_network(args.network)
    if network and args.backend == "nccl":
        raise ValueError("--network shapes links between CPU processes; accepted: --backend gloo")
    port = _whole("--port", args.port, 0)
    if port > 65535:
        raise ValueError(f"--port {args.port!r} is not a port; accepted: 0 to 65535")
    return Job(n, (), args.backend, network, port)


def _whole(flag: str, text: str, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise ValueError(f"{flag} {text!r}: accepted is a whole number, at least {at_least}")
    return value


def _command(args: argparse.Namespace) -> str:
    """The command again, without anybody's folders."""
    words = ["python", "-m", "real_gpu", "run", args.name]
    for flag in ("gpus", "size", "dtype", "backend", "network", "runs", *ALGORITHM_FLAGS):
        if getattr(args, flag) is not None:
            words += [f"--{flag.replace('_', '-')}", getattr(args, flag)]
    return shlex.join([*words, "--out", Path(args.out).name])


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"file {path!r} cannot be written: {error.strerror}") from None


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


def _clean(args: argparse.Namespace) -> int:
    ended = clean()
    if args.json:
        print(json.dumps({"ended_processes": ended}))
    elif ended:
        print(f"ended {len(ended)} processes of a killed run: {', '.join(map(str, ended))}")
    else:
        print("nothing was left behind")
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)  # one is enough; ending must not be interrupted
    raise Stopped(signal.Signals(number).name)


def _fail(status: int, message: str) -> int:
    print(f"python -m real_gpu: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
