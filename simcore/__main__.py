"""``python -m simcore``: the commands of ``simcore.commands``.

Exit status 0; 1 for a run that failed; 2 for bad usage or input, with one line that says what
was given and what is accepted.
"""

from __future__ import annotations

import io
import os
import sys

from simcore.commands import COMMANDS, parse
from simcore.engine import SimulationError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit status."""
    try:
        args = parse(sys.argv[1:] if arguments is None else arguments)
        COMMANDS[args.command].command(args)
        sys.stdout.flush()
    except ValueError as error:
        print(f"simcore: {error}", file=sys.stderr)
        return 2
    except (SimulationError, MemoryError) as error:
        print(f"simcore: {error or 'out of memory'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("simcore: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without our ⌈ shows ? instead
        sys.stdout.reconfigure(errors="replace")
    sys.exit(main())
