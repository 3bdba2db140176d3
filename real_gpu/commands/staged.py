"""What lets torchrun and srun start a command as well: each process is a rank of its stage."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from real_gpu.commands.common import Parser
from real_gpu.job import Job
from real_gpu.processes.seats import find_seat
from real_gpu.processes.stage import HERE, Stage

# Files that rank 0 reads and writes, and what may differ between machines.
_OF_RANK_0 = ("out", "trace", "json", "report", "cluster", "interface")
_NAMES = ("command", "name", "strategy")  # come without a flag


def add_interface(parser: Parser) -> None:
    """The flag that only a launcher's ranks take."""
    parser.add_argument("--interface", metavar="IF", help="under torchrun or srun: such as eth0")


def check_no_launcher(args: argparse.Namespace) -> None:
    """A ``ValueError`` for what needs one."""
    if args.interface is not None:
        raise ValueError(f"--interface {args.interface!r}; accepted: under torchrun or srun")


def staged(args: argparse.Namespace, perform: Callable[[argparse.Namespace, Stage], int]) -> int:
    """Perform a command with ranks that it starts; where a launcher has started this process as
    a rank, with those that are there: rank 0 performs it, the others answer what it asks.
    """
    seat = find_seat(os.environ)
    if seat is None:
        check_no_launcher(args)
        return perform(args, HERE)
    from real_gpu.processes.machines import Asked, attend

    job = Job(seat.ranks, (), args.backend or "auto")
    asked = Asked(
        words_of(args), lambda: job, lambda stage, _: perform(args, stage), args.interface
    )
    return attend(seat, asked)


def words_of(args: argparse.Namespace) -> dict[str, Any]:
    """What every rank must be given alike: True or a text for each flag.

    >>> words_of(argparse.Namespace(name="ring", json=True, gpus="4", quick=False, slower=[(0, 2)]))
    {'NAME': 'ring', '--gpus': '4', '--slower': '[(0, 2)]'}
    """
    given = {
        flag: value
        for flag, value in vars(args).items()
        if flag not in _OF_RANK_0 and value is not None and value is not False and value != []
    }
    return {
        flag.upper() if flag in _NAMES else f"--{flag.replace('_', '-')}": value
        if value is True
        else f"{value}"
        for flag, value in given.items()
    }
