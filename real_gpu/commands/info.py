"""``python -m real_gpu info``."""

from __future__ import annotations

import argparse
import json

from real_gpu.commands.common import Parser
from real_gpu.info import as_text, info

HELP = "what is here, which backend a run would use, and why; what is missing"


def add(parser: Parser) -> None:
    """Its arguments."""
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def command(args: argparse.Namespace) -> int:
    """Look, and say it."""
    found = info()
    print(json.dumps(found, indent=1) if args.json else as_text(found))
    return 0
