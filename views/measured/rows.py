"""*Measured against simulated* in rows: the figures, every cell, files, commands, a program."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from simcore.measured.cells import Cell
from simcore.units import format_bytes, format_time
from views.measured.chart import state
from views.measured.overlay import Overlay, curves
from views.measured.sets import (
    Group,
    Study,
    cell_words,
    groups,
    name_words,
    percent,
    where_words,
)
from views.tables import quantity
from views.text import Text

_MARKDOWN = frozenset("\\`*_{}[]()<>#+!|$~:@&")


def plain(words: str) -> str:
    r"""Somebody's words as Markdown that says just them: no link, no picture, no formula.

    >>> plain("![x](http://a) :red[b] <i>")
    '\\!\\[x\\]\\(http\\://a\\) \\:red\\[b\\] \\<i\\>'
    """
    return "".join(f"\\{c}" if c in _MARKDOWN else c for c in words if c.isprintable())


def figures_header(found: Sequence[Group], text: Text) -> list[str]:
    """A column for each kind and source."""
    return [text("common.quantity"), *(group.title(text) for group in found)]


def figures_rows(found: Sequence[Group], study: Study, text: Text) -> list[list[str]]:
    """How many cells, how wrong, on what it was calibrated, and what does not count."""

    def row(key: str, cells: Sequence[str]) -> list[str]:
        return [text(f"measured.row_{key}"), *cells]

    fitted = _fitted(study, text)
    return [
        row("counted", [str(len(group.counted)) for group in found]),
        *(
            row(key, [percent(group.error(at), text) for group in found])
            for key, at in (("median", 50), ("p90", 90), ("worst", 100))
        ),
        row("worst_cell", [_worst(group, text) for group in found]),
        row("bytes", [_bytes(group, text) for group in found]),
        row("calibrated", [_calibrated(group, fitted, text) for group in found]),
        row("doubtful", [str(sum(not c.believable for c in group.cells)) for group in found]),
        row("unsimulated", [str(sum(c.error is None for c in group.cells)) for group in found]),
    ]


def _worst(group: Group, text: Text) -> str:
    return plain(cell_words(group.worst, text)) if group.worst else text("race.none")


def _bytes(group: Group, text: Text) -> str:
    errors = [c.bytes_error for c in group.cells if c.believable and c.bytes_error is not None]
    return percent(max(errors, key=abs), text, signed=True) if errors else text("race.none")


def _fitted(study: Study, text: Text) -> str:
    """What the link parameters were fitted to, apart from cells."""
    rows = [row for c in study.validation.calibrations.values() for row in c.get("residuals", ())]
    patterns = dict.fromkeys(str(row["pattern"]) for row in rows)
    names = text("whatif.comma").join(_pattern_words(name, text) for name in patterns)
    return text("measured.fitted", count=len(rows), patterns=names) if rows else ""


def _pattern_words(name: str, text: Text) -> str:
    spelt = name.replace(" ", "-")
    return text.phrases.get(f"measured.pattern_{spelt}") or plain(name)


def _calibrated(group: Group, fitted: str, text: Text) -> str:
    cells = sum(cell.calibrated_on for cell in group.cells)
    if cells:
        return text("measured.fitted_cells", count=cells)
    return fitted or text("measured.nothing")


def constants(study: Study, text: Text) -> str:
    """The fitted link parameters with their intervals, a line for each network; '' without any."""
    lines = []
    for network, calibration in study.validation.calibrations.items():
        values = [
            text(
                "measured.constant",
                name=plain(re.sub(r"_s\b", "", name).replace("_", " ")),
                **{key: plain(quantity(c[key], c["unit"])) for key in ("value", "low", "high")},
            )
            for name, c in calibration.get("constants", {}).items()
        ]
        if values:
            lines.append(f"{plain(network)}: {text('scaling.comma').join(values)}")
    return "  \n".join(lines)


def cells_header(text: Text) -> list[str]:
    """Of ``cells_rows``: simulated, replayed and the vendor's own in columns of their own."""
    keys = ("what", "where", "simulated", "replayed", "vendor", "error", "counts")
    return [text(f"measured.col_{key}") for key in keys]


def cells_rows(cells: Sequence[Cell], text: Text) -> list[list[str]]:
    """A row per cell, the worst of those that count first."""

    def rank(cell: Cell) -> tuple[bool, float]:
        return not cell.counted, -abs(cell.error or 0.0)

    return [_cell_row(cell, text) for cell in sorted(cells, key=rank)]


def _cell_row(cell: Cell, text: Text) -> list[str]:
    none = text("race.none")
    measured = format_time(cell.measured_s)
    if cell.runs_s:
        measured = text("race.runs", time=measured, runs=len(cell.runs_s))
    return [
        plain(name_words(cell, text)),
        plain(where_words(cell, text)),
        none if cell.simulated_s is None else format_time(cell.simulated_s),
        measured if cell.source == "replayed" else none,
        measured if cell.source == "vendor" else none,
        percent(cell.error, text, signed=True),
        text(f"measured.state_{state(cell)}") if cell.error is not None else none,
    ]


def doubtful_lines(study: Study, text: Text) -> list[str]:
    """What is not believable, and why: shown, never counted."""
    return [
        text(
            "measured.doubtful_line",
            cell=plain(cell_words(cell, text)),
            reason=plain("; ".join(cell.notes)) or text("race.none"),
        )
        for cell in study.cells
        if not cell.believable
    ]


def origin(study: Study, text: Text) -> str:
    """Where and when it was measured."""
    environment = study.validation.environment
    machine = environment.get("machine")
    machine = machine if isinstance(machine, Mapping) else {}
    versions = environment.get("versions")
    torch = versions.get("torch") if isinstance(versions, Mapping) else None
    known = {
        "date": environment.get("date"),
        "cpu": machine.get("cpu"),
        "cores": machine.get("cores"),
        "system": machine.get("system"),
        "torch": torch,
    }
    return text(
        "measured.origin",
        **{key: plain(str(value or text("race.none"))[:60]) for key, value in known.items()},
    )


def export_rows(study: Study, overlay: Overlay | None) -> list[dict[str, Any]]:
    """Every cell, then the curves: where a number comes from is in the first column."""
    rows = []
    for cell in study.cells:
        values = {name: getattr(cell, name) for name in _COLUMNS}
        values["flags"] = " ".join(f"{name}={value}" for name, value in cell.flags.items())
        rows.append({**values, "runs": len(cell.runs_s), "counts": state(cell)})
    for curve in curves(study, overlay) if overlay else ():
        for x, time_s in zip(curve.places, curve.times_s, strict=True):
            assert overlay is not None
            gpus, size = (x, overlay.fixed) if overlay.axis == "gpus" else (overlay.fixed, x)
            where = {"gpus": gpus, "size_bytes": size, "network": overlay.network}
            what = {"source": "simulated", "kind": "collective", "name": curve.name}
            blank = dict.fromkeys((*_COLUMNS, "runs", "counts"))
            rows.append({**blank, **what, **where, "simulated_s": time_s, "counts": "curve"})
    return rows


_COLUMNS = (
    *("source", "kind", "name", "flags", "gpus", "size_bytes", "network"),
    *("measured_s", "simulated_s", "error", "bytes_error"),
)


def export_json(study: Study, overlay: Overlay | None) -> str:
    """The validation as it is, with the headline figures and the curves beside it."""
    found = [
        {
            "kind": group.kind,
            "source": group.source,
            "cells": len(group.counted),
            "median_error": group.error(50),
            "p90_error": group.error(90),
            "worst_error": group.error(100),
        }
        for group in groups(study.cells)
    ]
    lines = [
        {"name": c.name, "places": c.places, "simulated_s": c.times_s}
        for c in (curves(study, overlay) if overlay else ())
    ]
    document = json.loads(study.validation.to_json())
    return json.dumps({"figures": found, "curves": lines, "validation": document}, indent=1)


QUICK = "python -m real_gpu validate --quick --out validation"


def commands(study: Study) -> str:
    """What measures the same again, made from the cells and never from what a file says."""
    if study.validation.calibrations:
        return QUICK
    cells = [cell for cell in study.cells if cell.kind == "collective"]
    found = run_commands(cells)
    if len(cells) < len(study.cells):
        found.append("python benchmarks/steps_real.py steps")
    return "\n".join(found)


def run_commands(cells: Sequence[Cell]) -> list[str]:
    """A command for each configuration; a loop where several algorithms share it.

    >>> cell = Cell("collective", "ring", "replayed", 4, 2**23, "200Mbit/s", {}, (), 0.5)
    >>> run_commands([cell])
    ['python -m real_gpu run ring --gpus 4 --size 8MiB --network 200Mbit/s --out ring-4x8MiB.json']
    """
    names: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        size = format_bytes(cell.size_bytes).replace(" ", "")
        words = ["--gpus", str(cell.gpus), "--size", size]
        for name, value in cell.flags.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        words += ["--network", cell.network] if cell.network else []
        names.setdefault((shlex.join(words), f"-{cell.gpus}x{size}.json"), []).append(cell.name)
    found = []
    for (case, end), several in names.items():
        one = len(several) == 1
        name = several[0] if one else "$name"
        command = f"python -m real_gpu run {name} {case} --out {name}{end}"
        loop = f"for name in {' '.join(dict.fromkeys(several))}; do {command}; done"
        found.append(command if one else loop)
    return found


def snippet(name: str) -> str:
    """A program that prints the headline's figures; of a reader's own files it takes the names."""
    if name == "own":
        start = """\
import sys
from pathlib import Path

from views.measured.sets import groups, percent
from views.measured.files import read_files
from views.text import load_text

study = read_files((path, Path(path).read_bytes()) for path in sys.argv[1:]).study
"""
    else:
        start = f"""\
from views.measured.sets import groups, percent, shipped
from views.text import load_text

study = shipped({name!r})
"""
    return f"""\
{start}text = load_text("en")
for group in groups(study.cells):
    if group.counted:
        errors = [percent(group.error(at), text) for at in (50, 90, 100)]  # median, 90 %, worst
        print(group.kind, group.source, len(group.counted), sep=" ", end="; ")
        print(*errors, sep="; ")
"""
