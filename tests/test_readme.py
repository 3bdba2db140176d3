"""The README's figures are the shipped records' figures, and its commands are accepted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from real_gpu.commands import parser
from simcore.commands import parse
from simcore.measured.records import load_records
from simcore.measured.validation import load_validations
from simcore.units import format_bytes, format_time

README = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python -m (simcore|real_gpu) (.*?)(?:\s{2,}.*)?$", README, re.MULTILINE)


def test_the_table_is_the_records():
    """One row for each record, with today's numbers, and none besides."""
    wanted = set()
    for r in load_records():
        simulated = r.simulated and r.simulated["time_s"]
        error = f"{simulated / r.median_s - 1:+.1%}" if simulated else "–"
        what = f"{r.name}, {r.gpus} × {format_bytes(r.size_bytes)}"
        times = format_time(r.median_s), format_time(simulated) if simulated else "–"
        wanted.add(f"| {r.source} | {what} | {times[0]} | {times[1]} | {error} |")
    rows = {line for line in README.splitlines() if line.startswith(("| replayed", "| vendor"))}
    assert rows == wanted


@pytest.mark.parametrize(("package", "arguments"), COMMANDS)
def test_commands_parse(package: str, arguments: str):
    """What the README tells people to type is accepted."""
    words = shlex.split(arguments)
    parsed = parse(words) if package == "simcore" else parser().parse_args(words)
    assert parsed.command == words[0]


def test_the_held_out_errors_are_the_shipped_validations():
    (shipped,) = load_validations()
    summary, steps = shipped.summary(), shipped.summary()["steps"]
    rows = {
        "cells predicted": f"{summary['cells']}",
        "median error": f"{summary['median_error']:.1%}",
        "90th percentile": f"{summary['p90_error']:.1%}",
        "worst error": f"{summary['worst_error']:.1%}",
        "training steps (DDP, DataParallel, PS): mean, worst": (
            f"{steps['mean_error']:.1%}, {steps['worst_error']:.1%}"
        ),
        "wrong winners among strategies that differ by more than 10 %": (
            f"{len(summary['wrong_winners'])} of {summary['compared_pairs']}"
        ),
        "bytes per rank, worst": f"{summary['bytes_worst_error']:.2%}",
        "ring, replayed / Gloo's own all-reduce, 4 MiB": f"{summary['ring_against_gloo']:.3f}",
    }
    for name, value in rows.items():
        assert f"| {name} | {value.replace('%', ' %')} |" in README
    assert summary["worst_cells"][0]["name"] == "ps-sharded"


def test_there_are_commands():
    assert len(COMMANDS) >= 7
