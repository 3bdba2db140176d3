"""The command line, a module for each command; the table ``COMMANDS`` is the only registry.

A module has ``HELP``, ``add(parser)``, which adds its arguments, and ``command(args)``, which
returns the exit status. What it raises is said in one line: a ``ValueError`` exits with 2, a
``RunError`` with 1.
"""

from __future__ import annotations

from types import ModuleType

from real_gpu.commands import calibrate, clean, info, run, step, validate
from real_gpu.commands.common import Parser

COMMANDS: dict[str, ModuleType] = {
    "info": info,
    "run": run,
    "step": step,
    "calibrate": calibrate,
    "validate": validate,
    "clean": clean,
}


def parser() -> Parser:
    """Of all commands."""
    whole = Parser(
        prog="python -m real_gpu",
        description="Schedules on real processes.",
        epilog="Small trainings, each of which proves a claim: python -m real_gpu.trainings. "
        "Exit status: 0; 1 for a run that failed; 2 for input that is not accepted.",
    )
    commands = whole.add_subparsers(dest="command", required=True, parser_class=Parser)
    for name, module in COMMANDS.items():
        module.add(commands.add_parser(name, help=module.HELP, allow_abbrev=False))
    return whole
