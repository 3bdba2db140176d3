"""``python -m real_gpu``: the commands of ``real_gpu.commands``.

Exit status: 0; 2 for bad usage or input; 1 for a failed run.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from types import FrameType

from real_gpu.commands import COMMANDS, parser
from real_gpu.job import RunError, Stopped
from real_gpu.processes.seats import Seat, find_seat


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    words = _joined(sys.argv[1:] if arguments is None else arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        return _command(words, find_seat(os.environ))
    except ValueError as error:
        return _fail(2, str(error))
    except RunError as error:
        return _fail(1, str(error))
    except Stopped as signal_name:
        return _fail(1, f"stopped by {signal_name}; every process of the run has been ended")


def _command(words: list[str], seat: Seat | None) -> int:
    try:
        args = parser().parse_args(words)
    except ValueError as error:
        if seat is None:
            raise
        from real_gpu.processes.machines import refuse

        return refuse(seat, error)
    status: int = COMMANDS[args.command].command(args)
    return status


def _joined(words: list[str]) -> list[str]:
    """``--size -8MiB`` as ``--size=-8MiB``: argparse would take the value for a flag."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and re.match(r"-[\d.]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _stop(number: int, frame: FrameType | None) -> None:
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)  # one is enough; ending must not be interrupted
    raise Stopped(signal.Signals(number).name)


def _fail(status: int, message: str) -> int:
    print(f"python -m real_gpu: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
