"""What ``run`` is asked for: its flags to a case and a job, and back to the command."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from pathlib import Path

from real_gpu.backends import BACKENDS
from real_gpu.commands.common import said_as_flags, whole
from real_gpu.commands.vendor_flags import again, training_options
from real_gpu.job import ITEMSIZE, VENDOR, Case, Job, Network, check_name, parse_network
from simcore.algorithms import ALGORITHM_FLAGS, ALGORITHMS, build_schedule, find_algorithm
from simcore.names import unknown
from simcore.units import SIZE_EXAMPLES, parse_bytes

RUNS, CONFIDENCE = 5, 0.02


def case_of(args: argparse.Namespace) -> Case:
    """The collective asked for, or a ``ValueError`` that says what is accepted."""
    check_name(args.name)
    n = whole("--gpus", args.gpus, 1)
    nbytes = parse_bytes(args.size)
    if not nbytes and args.size.strip().isdigit():
        raise ValueError(f"size {args.size!r} has no unit; accepted: {SIZE_EXAMPLES}")
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
    _check_flags(args.name, flags)
    if args.name not in VENDOR:
        with said_as_flags(ALGORITHM_FLAGS):
            build_schedule(args.name, n, **flags)
    elif args.trace is not None:
        raise ValueError(f"{args.name} does not take --trace; accepted: with an algorithm")
    return Case(
        args.name,
        nbytes // itemsize,
        args.dtype,
        RUNS if args.runs is None else whole("--runs", args.runs, 1),
        flags,
        spans=args.trace is not None,
        confidence=_confidence(args),
        options=training_options(args),
        profile=args.profile,
    )


def _check_flags(name: str, flags: Iterable[str]) -> None:
    taken = () if name in VENDOR else find_algorithm(name).flags
    for flag in flags:
        if flag not in taken:
            takers = ", ".join(a.name for a in ALGORITHMS if flag in a.flags)
            raise ValueError(
                f"{name} does not take --{flag.replace('_', '-')}; accepted: with {takers}"
            )


def _confidence(args: argparse.Namespace) -> float | None:
    """As asked for; by default only where the number of runs was left open."""
    if args.confidence is None:
        return CONFIDENCE if args.runs is None else None
    try:
        value = float(args.confidence)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise ValueError(
            f"--confidence {args.confidence!r}: accepted is a fraction, such as 0.02, below 1"
        )
    return value


def job_of(args: argparse.Namespace, n: int) -> Job:
    """``n`` processes and network, as asked for; cases come later."""
    if args.backend not in BACKENDS:
        raise ValueError(unknown("backend", args.backend, BACKENDS))
    network = None if args.network is None else parse_network(args.network, args.slow_link)
    if network:
        network.wiring(n)  # refused here rather than after a minute
    elif args.slow_link:
        raise ValueError("--slow-link changes a shaped network; accepted: with --network")
    port = whole("--port", args.port, 0)
    if port > 65535:
        raise ValueError(f"--port {args.port!r} is not a port; accepted: 0 to 65535")
    return Job(n, (), args.backend, network, port)


def command_again(args: argparse.Namespace, network: Network | None) -> str:
    """The command again, without anybody's folders."""
    words = ["python", "-m", "real_gpu", "run", args.name]
    for flag in (
        "gpus",
        "size",
        "dtype",
        "backend",
        "network",
        "runs",
        "confidence",
        *ALGORITHM_FLAGS,
    ):
        if getattr(args, flag) is not None:
            value = network.text if flag == "network" and network else getattr(args, flag)
            words += [f"--{flag.replace('_', '-')}", value]
    for change in args.slow_link:
        words += ["--slow-link", change]
    return shlex.join([*words, *again(args), "--out", Path(args.out).name])
