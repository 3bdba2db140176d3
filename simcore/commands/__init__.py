"""The command line, a module for each command; the table ``COMMANDS`` is the only registry.

A module has ``HELP``, ``add(parser)``, which adds its arguments, and ``command(args)``. What is not
accepted is a ``ValueError`` of one line.
"""

from __future__ import annotations

import argparse
import re
from types import ModuleType

from simcore.commands import algorithms, compare, simulate, step
from simcore.commands.common import Parser
from simcore.names import unknown

COMMANDS: dict[str, ModuleType] = {
    "algorithms": algorithms,
    "simulate": simulate,
    "compare": compare,
    "step": step,
}


def parse(words: list[str]) -> argparse.Namespace:
    """The namespace of a command line; a ValueError of one line if it is not accepted."""
    about = "Simulate how data-parallel training synchronises gradients."
    parser = Parser(prog="simcore", allow_abbrev=False, description=about)
    added = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    parsers: dict[str, Parser] = {}
    for name, module in COMMANDS.items():
        sub = added.add_parser(name, allow_abbrev=False, help=module.HELP, description=module.HELP)
        module.add(sub)
        parsers[name] = sub
    args, left = parser.parse_known_args(_normal(words, parsers))
    if left:
        raise ValueError(f"unexpected argument {left[0]!r}; accepted: see '{args.command} --help'")
    return args


def _normal(words: list[str], parsers: dict[str, Parser]) -> list[str]:
    """Misspelt names get their nearest; a negative value is a value, not a flag of argparse's."""
    command = next((word for word in words if not word.startswith("-")), None)
    if command is None:
        if not {"-h", "--help"} & set(words):
            raise ValueError(f"no command; accepted: {', '.join(parsers)}")
        return words
    if command not in parsers:
        raise ValueError(unknown("command", command, parsers))
    flags = sorted(parsers[command]._option_string_actions)
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in flags and re.match(r"-(\.?\d|inf|nan)", word):
            joined[-1] += f"={word}"
            continue
        if word.startswith("--") and word.partition("=")[0] not in flags:
            raise ValueError(unknown("argument", word, [f for f in flags if f.startswith("--")]))
        joined.append(word)
    return joined
