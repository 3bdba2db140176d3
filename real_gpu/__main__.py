"""``python -m real_gpu``: the commands of ``real_gpu.commands``.

Exit status: 0; 2 for bad usage or input; 1 for a failed run.
"""

from __future__ import annotations

import re
import signal
import sys
from types import FrameType

from real_gpu.commands import COMMANDS, parser
from real_gpu.job import RunError


class Stopped(Exception):
    """A signal asked this process to end."""


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    args = parser().parse_args(_joined(sys.argv[1:] if arguments is None else arguments))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        status: int = COMMANDS[args.command].command(args)
        return status
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


def _stop(number: int, frame: FrameType | None) -> None:
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)  # one is enough; ending must not be interrupted
    raise Stopped(signal.Signals(number).name)


def _fail(status: int, message: str) -> int:
    print(f"python -m real_gpu: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
