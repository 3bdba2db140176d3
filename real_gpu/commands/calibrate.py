"""``python -m real_gpu calibrate``: the constants of the links that are here, as a cluster file."""

from __future__ import annotations

import argparse
import json
import sys

from real_gpu.backends import PROCESSES
from real_gpu.commands.common import Parser, check_writable, whole, write
from real_gpu.commands.staged import add_interface, staged
from real_gpu.job import parse_rate_network
from real_gpu.processes.stage import Stage
from simcore.names import unknown

HELP = "fit the links' constants to point-to-point patterns; write a cluster file"


def add(parser: Parser) -> None:
    """Its arguments."""
    parser.add_argument(
        "--network", metavar="RATE[,LATENCY]", help="shape it: 200Mbit/s or 1Gbit/s,50us"
    )
    parser.add_argument("--gpus", metavar="N", help="ranks: 3, or 2 where no more are")
    parser.add_argument("--backend", default="auto", help=", ".join(PROCESSES))
    parser.add_argument(
        "--quick", action="store_true", help="fewer patterns: half a minute instead of two"
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="write the cluster file here")
    parser.add_argument("--report", metavar="FILE", help="constants, intervals and residuals")
    parser.add_argument("--json", action="store_true", help="print the report")
    add_interface(parser)


def command(args: argparse.Namespace) -> int:
    """Measure, fit, write, say what came out."""
    return staged(args, _calibrate)


def _calibrate(args: argparse.Namespace, stage: Stage) -> int:
    from real_gpu.validation.calibrate import MOST_RANKS, table
    from real_gpu.validation.links import calibrate_links

    usual = min(MOST_RANKS, stage.ranks or MOST_RANKS)
    n = usual if args.gpus is None else whole("--gpus", args.gpus, 2)
    if n > MOST_RANKS:
        raise ValueError(f"--gpus {args.gpus!r}: accepted are 2 and {MOST_RANKS}")
    if args.backend not in PROCESSES:
        raise ValueError(unknown("backend", args.backend, PROCESSES))
    if args.network is not None:
        parse_rate_network(args.network)
    stage.check_even()
    if stage.mixed and args.gpus is not None:
        raise ValueError(
            f"--gpus {args.gpus!r}: with several ranks on each machine all take part; leave it away"
        )
    check_writable(args.out, args.report)
    calibration = calibrate_links(args.network, n, args.backend, args.quick, _say, stage)
    write(args.out, json.dumps(calibration.cluster, indent=1) + "\n")
    if args.report:
        write(args.report, calibration.to_json())
    print(calibration.to_json() if args.json else table(calibration), end="" if args.json else "\n")
    return 0


def _say(what: str) -> None:
    print(f"{what} …", file=sys.stderr, flush=True)
