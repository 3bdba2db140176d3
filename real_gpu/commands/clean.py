"""``python -m real_gpu clean``."""

from __future__ import annotations

import argparse
import json

from real_gpu.commands.common import Parser
from real_gpu.processes.clean import clean

HELP = "end what a killed run left behind"


def add(parser: Parser) -> None:
    """Its arguments."""
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def command(args: argparse.Namespace) -> int:
    """End it, and say what."""
    ended = clean()
    if args.json:
        print(json.dumps({"ended_processes": ended}))
    elif ended:
        print(f"ended {len(ended)} processes of a killed run: {', '.join(map(str, ended))}")
    else:
        print("nothing was left behind")
    return 0
