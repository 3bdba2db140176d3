"""``python -m simcore algorithms``: what can be simulated."""

from __future__ import annotations

import argparse
import json

from simcore.algorithms import ALGORITHMS
from simcore.commands.common import Parser, add_json, print_table

HELP = "list the algorithms"
_COLUMNS = ("name", "title", "steps", "sent")


def add(parser: Parser) -> None:
    """Its one flag."""
    add_json(parser)


def command(args: argparse.Namespace) -> None:
    """A row for each."""
    rows = [{name: getattr(a, name) for name in (*_COLUMNS, "flags")} for a in ALGORITHMS]
    if args.json:
        print(json.dumps(rows))
        return
    flags = [" ".join(f"--{flag.replace('_', '-')}" for flag in row["flags"]) for row in rows]
    cells = [[str(row[name]) for name in _COLUMNS] for row in rows]
    print_table(
        [*_COLUMNS, "flags"], [[*cell, flag] for cell, flag in zip(cells, flags, strict=True)]
    )
