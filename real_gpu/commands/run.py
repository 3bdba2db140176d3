"""``python -m real_gpu run``: one collective on real processes, and its record."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from real_gpu.backends import BACKENDS, PROCESSES
from real_gpu.commands.common import (
    Parser,
    check_instrument,
    check_ranks,
    check_writable,
    whole,
    write,
)
from real_gpu.commands.run_flags import CONFIDENCE, RUNS, case_of, command_again, job_of
from real_gpu.commands.staged import add_interface, check_no_launcher, words_of
from real_gpu.commands.vendor_flags import add_vendor_flags, force_nccl, vendor_case
from real_gpu.info import choose_backend
from real_gpu.job import ITEMSIZE, VENDOR, CaseResult, Job, ranks
from real_gpu.network.instrument import calibration
from real_gpu.processes.measure import MOST_RANKS, measure
from real_gpu.processes.seats import Seat, find_seat
from real_gpu.processes.stage import Stage
from real_gpu.recording import record_of, trace_of
from simcore.algorithms import ALGORITHM_FLAGS
from simcore.measured.records import Record
from simcore.units import format_bytes, format_rate, format_time

HELP = "run one collective and record it"


def add(parser: Parser) -> None:
    """Its arguments."""
    parser.add_argument("name", metavar="NAME", help=f"an algorithm, or {', '.join(VENDOR)}")
    parser.add_argument("--gpus", required=True, metavar="N", help="ranks")
    parser.add_argument("--size", required=True, metavar="S", help="buffer, such as 8MiB")
    parser.add_argument("--dtype", default="float32", help=", ".join(ITEMSIZE))
    parser.add_argument("--backend", default="auto", help=", ".join(BACKENDS))
    parser.add_argument(
        "--network",
        metavar="RATE[,LATENCY]|FILE",
        help="shape it: 200Mbit/s, 1Gbit/s,50us, or a cluster file",
    )
    parser.add_argument(
        "--slow-link",
        action="append",
        default=[],
        metavar="LINK:F[@T1..[T2]]",
        help="a link of it that changes during each run: gpu1.tx:0.25@0.5s..1s",
    )
    parser.add_argument("--runs", metavar="K", help=f"timed runs ({RUNS}, or as many as it takes)")
    parser.add_argument(
        "--confidence",
        metavar="X",
        help="up to four times --runs, until the median's 95 %% interval is within this fraction "
        f"of it ({CONFIDENCE}, where --runs is not given)",
    )
    add_interface(parser)
    for flag, about in ALGORITHM_FLAGS.items():
        parser.add_argument(f"--{flag.replace('_', '-')}", metavar="K", help=about)
    add_vendor_flags(parser)
    parser.add_argument("--port", default="0", help="of the rendezvous; 0 is any free one")
    parser.add_argument("--trace", metavar="FILE", help="write the last run's spans as a trace")
    parser.add_argument("--out", required=True, metavar="FILE", help="write the record here")
    parser.add_argument("--json", action="store_true", help="print the record too")


def command(args: argparse.Namespace) -> int:
    """Run it, write the record, say what came out."""
    if seat := find_seat(os.environ):
        return _as_one_rank(args, seat)
    case = case_of(args)
    job = job_of(args, ranks(case, whole("--gpus", args.gpus, 1)))
    check_no_launcher(args)
    check_writable(args.out, args.trace, args.profile)
    force_nccl(args)
    choice = choose_backend(args.backend, job.n, job.network is not None, case.name)
    if choice.backend != "device":
        check_ranks(whole("--gpus", args.gpus, 1, MOST_RANKS), job.n, MOST_RANKS)
    vendor_case(case, job.n, choice.backend)
    if choice.backend == "device":
        _check_device(args)
    calibrate = job.network is not None and job.n > 1
    cases = (*((calibration(job.network),) if calibrate and job.network else ()), case)
    job = Job(job.n, cases, choice.backend, job.network, job.port)
    return _report(args, job, measure(job), choice.why)


def _check_device(args: argparse.Namespace) -> None:
    """A ``ValueError`` for what only processes have; auto may have led here too."""
    where = f"accepted: where ranks are processes ({' or '.join(PROCESSES[1:])})"
    if args.profile:
        raise ValueError(f"--profile watches a rank's process, backend device has none; {where}")
    if args.trace:
        raise ValueError(f"--trace: backend device sees no single message; {where}")


def _as_one_rank(args: argparse.Namespace, seat: Seat) -> int:
    """The same, where torchrun or srun has started this process as one rank of it."""
    from real_gpu.processes.machines import Asked, attend

    def job() -> Job:
        case = case_of(args)
        found = job_of(args, ranks(case, whole("--gpus", args.gpus, 1)))
        _check_launched(args, found, seat)
        if seat.rank == 0:
            check_writable(args.out, args.trace, args.profile)
        force_nccl(args)
        return replace(found, cases=(case,))

    def lead(stage: Stage, job: Job) -> int:
        choice = stage.choose(job.backend, job.n)
        job = stage.place(replace(job, backend=choice.backend))
        vendor_case(job.cases[-1], job.n, job.backend)
        return _report(args, job, stage.measure(job), choice.why)

    return attend(seat, Asked(words_of(args), job, lead, args.interface))


def _check_launched(args: argparse.Namespace, job: Job, seat: Seat) -> None:
    """A ``ValueError`` for what does not go with the processes and the network that are there."""
    if args.name == "torch.dp":
        raise ValueError(f"torch.dp is one process; accepted: without {seat.launcher}")
    if job.backend not in PROCESSES:
        raise ValueError(
            f"--backend {job.backend} is one process; accepted under {seat.launcher}: "
            f"{', '.join(PROCESSES)}"
        )
    if job.network:
        raise ValueError(f"--network: under {seat.launcher} the network is real; leave it away")
    if job.port:
        raise ValueError(f"--port: under {seat.launcher} the port is MASTER_PORT; leave it away")
    if job.n != seat.ranks:
        servers = job.n - int(args.gpus)
        plus = f" and {servers} server{'s' * (servers > 1)}" if servers else ""
        world = "WORLD_SIZE" if seat.launcher == "torchrun" else "SLURM_NTASKS"
        raise ValueError(
            f"--gpus {args.gpus}{plus} takes {job.n} ranks, {seat.launcher} started {seat.ranks} "
            f"({world}); accepted: as many as were started"
        )


def _report(args: argparse.Namespace, job: Job, results: list[CaseResult], why: str) -> int:
    """Write the record and the trace, and say what came out, and why on this backend."""
    *calibrated, result = results
    case = job.cases[-1]
    record = record_of(
        job,
        case,
        result,
        calibrated=calibrated[0] if calibrated else None,
        command=command_again(args, job.network),
    )
    if args.trace:
        write(args.trace, trace_of(job, case, result).to_json())
    write(args.out, record.to_json())
    summary = f"{_summary(record)}\nbackend {job.backend}: {why}\n"
    print(record.to_json() if args.json else summary, end="")
    check_instrument(args.out, record.instrument)
    return 0


def _summary(record: Record) -> str:
    rate = record.network_bytes_per_s
    network = f"ports of {format_rate(rate)}" if rate else record.network
    changing = f"changing {', '.join(record.slow_links)}" if record.slow_links else None
    where = ", ".join(filter(None, (record.backend, network, changing)))
    size, runs = format_bytes(record.size_bytes), record.runs_s
    between = f"{format_time(min(runs))} to {format_time(max(runs))}"
    lines = [
        f"{record.name} ({record.source}), {record.gpus} ranks, {size} {record.dtype}, {where}",
        f"measured  {format_time(record.median_s)}, median of {len(runs)} ({between})",
    ]
    if record.median_interval_s:
        low, high = map(format_time, record.median_interval_s)
        lines.append(f"the median lies between {low} and {high}, 95 times in 100")
    if record.skew_s and record.ranks > 1:
        late, early = (format_time(record.skew_s[end][2]) for end in ("start", "end"))
        lines.append(f"ranks began up to {late} after the start, ended up to {early} apart")
    if record.simulated and record.median_s:
        error = record.simulated["time_s"] / record.median_s - 1
        lines.append(f"simulated {format_time(record.simulated['time_s'])}, {error:+.1%}")
    for title, values in (("sent", record.sent_bytes), ("on the wire", record.counter_sent_bytes)):
        if values is not None:
            lines.append(f"{title}: " + ", ".join(format_bytes(v) for v in values))
    return "\n".join([*lines, *record.notes])
