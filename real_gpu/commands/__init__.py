"""The command line, a module for each command; the table ``COMMANDS`` is the only registry.

A module has ``HELP``, ``add(parser)``, which adds its arguments, and ``command(args)``, which
returns the exit status. What it raises is said in one line: a ``ValueError`` exits with 2, a
``RunError`` with 1.
"""

from __future__ import annotations

from types import ModuleType

from real_gpu.commands import clean, info, run, train
from real_gpu.commands.common import Parser

COMMANDS: dict[str, ModuleType] = {"info": info, "run": run, "train": train, "clean": clean}


def parser() -> Parser:
    """Of all commands."""
    whole = Parser(prog="python -m real_gpu", description="Schedules on real processes.")
    commands = whole.add_subparsers(dest="command", required=True, parser_class=Parser)
    for name, module in COMMANDS.items():
        module.add(commands.add_parser(name, help=module.HELP, allow_abbrev=False))
    return whole
