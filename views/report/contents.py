"""What a validation's report says, as blocks; and every cell as a row of CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from simcore.measured.cells import Cell
from simcore.measured.validation import UNSHAPED, Validation
from simcore.units import format_bytes, format_time
from views.report import tables
from views.report.blocks import Block, Heading, Items, Paragraph, Picture, Table
from views.report.worst import explained
from views.tables import csv_text, quantity

TITLE = "Measured against simulated"
ABOUT_FIGURE = (
    "Left: simulated against measured time of every held-out cell, with bands of 2, 5 and 10 per "
    "cent. Right: the error of every cell by algorithm, with the median marked."
)
_READING = {
    "Three sources, never mixed:": "simulated (the engine), replayed (the same schedule on real "
    "processes), vendor (the library's own collective or training).",
    "The error is": "(simulated − measured) / measured; medians and percentiles are over absolute "
    "values.",
    "A cell counts if": "it was predicted, took no part in the calibration, and its instrument was "
    "quiet. The others are listed and count in nothing.",
    "A winner is wrong if": "two replayed strategies of one configuration differ by more than 10 % "
    "measured and the simulation does not have the faster one in front.",
}
Records = Mapping[str, Mapping[str, Any]]


def report(validation: Validation, records: Records, picture: Picture | None) -> list[Block]:
    """All blocks; ``records`` holds the records' JSON objects by the stems of their cells."""
    return [
        Heading(TITLE, 1),
        Paragraph(_provenance(validation)),
        Heading("In short"),
        tables.in_short(validation),
        Items([f"{begin} {rest}" for begin, rest in _READING.items()]),
        *([picture] if picture else []),
        *_errors(validation),
        *_winners(validation),
        *_worst(validation, records),
        *_cells(validation, records),
        *_calibrations(validation),
    ]


def _provenance(validation: Validation) -> str:
    about, machine = validation.environment, validation.environment["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in about["versions"].items() if v)
    words = [str(machine.get(name)) for name in ("system", "kernel", "cpu") if machine.get(name)]
    cores = f", {machine['cores']} cores" if machine.get("cores") else ""
    backend = f" Backend: {about['backend']}." if about.get("backend") else ""
    machine_words = f"{about['date']}; {' '.join(words)}{cores}; {versions}."
    left_out = f" Left out: {about['left_out']}." if about.get("left_out") else ""
    return f"{machine_words}{backend}{left_out} Command: {about['command']}"


def _errors(validation: Validation) -> list[Block]:
    cells = validation.held_out
    if not cells:
        return [Heading("Errors"), Paragraph("No cell counts, so there is no error to tell.")]
    blocks: list[Block] = [Heading("Errors"), tables.distribution(cells)]
    for title, key in (
        ("algorithm", lambda cell: cell.strategy),
        ("GPUs", lambda cell: str(cell.gpus)),
        ("buffer", lambda cell: format_bytes(cell.size_bytes)),
        ("network", lambda cell: cell.network or UNSHAPED),
    ):
        ordered = sorted(cells, key=lambda cell: (cell.gpus, cell.size_bytes))
        blocks += [Heading(f"By {title}", 3), tables.errors_by(title, ordered, key)]
    return blocks


def _winners(validation: Validation) -> list[Block]:
    found = tables.winners(validation)
    if not found.rows:
        return []
    wrong = tables.wrong_winners(validation)
    said = f"{len(wrong.rows)} of {len(validation.pairs)} pairs are ordered wrongly."
    return [Heading("Winners"), found, Paragraph(said), *([wrong] if wrong.rows else [])]


def _worst(validation: Validation, records: Records) -> list[Block]:
    if not validation.worst_cells:
        return []
    cores = validation.environment["machine"].get("cores")
    blocks: list[Block] = [
        Heading("The worst cells"),
        Paragraph(
            "Causes are named as possible where their condition holds; which one acted is not "
            "known from here."
        ),
    ]
    for cell in validation.worst_cells:
        measured, simulated = format_time(cell.measured_s), format_time(cell.simulated_s or 0.0)
        title = f"{cell.strategy}, {tables.place(cell)}: {tables.share(cell.error, sign=True)}"
        record = records.get(cell.stem, {})
        lines = explained(cell, validation.cluster(cell.network), record, cores)
        blocks += [
            Heading(title, 3),
            Items([f"Measured {measured}, simulated {simulated}.", *lines]),
        ]
    return blocks


def _cells(validation: Validation, records: Records) -> list[Block]:
    collectives = [cell for cell in validation.cells if cell.kind == "collective"]
    steps = [cell for cell in validation.cells if cell.kind == "step"]
    doubtful = [cell for cell in validation.cells if not cell.believable]
    blocks: list[Block] = []
    if collectives:
        blocks += [Heading("Collectives"), tables.collectives(collectives)]
    if steps:
        blocks += [Heading("Training steps"), tables.steps(steps)]
    if doubtful:
        lines = [
            f"{cell.strategy}, {tables.place(cell)}: {_reasons(cell, records.get(cell.stem, {}))}"
            for cell in doubtful
        ]
        blocks += [Heading("Not counted"), Items(lines)]
    return blocks


def _reasons(cell: Cell, record: Mapping[str, Any]) -> str:
    """Why a cell is not believed."""
    instrument = record.get("instrument")
    reasons = instrument.get("reasons") if isinstance(instrument, dict) else None
    return "; ".join(map(str, reasons or cell.notes))


def _calibrations(validation: Validation) -> list[Block]:
    blocks: list[Block] = [Heading("The clusters that were simulated")]
    for network, document in validation.clusters.items():
        found = validation.calibrations.get(network)
        blocks.append(Heading(network, 3))
        if found is None:
            blocks.append(Paragraph("Given, not calibrated: nothing was fitted to this machine."))
        else:
            blocks += _constants(found)
            blocks += [Items(list(map(str, found["notes"])))] if found.get("notes") else []
        rows = [[name, _value(value)] for name, value in document.items()]
        blocks.append(Table(["cluster file", "value"], rows))
    return blocks


def _constants(found: Mapping[str, Any]) -> list[Block]:
    constants = [
        [name, *(quantity(c[key], c["unit"]) for key in ("value", "low", "high"))]
        for name, c in found.get("constants", {}).items()
    ]
    residuals = [
        [
            row["pattern"],
            str(row["gpus"]),
            format_bytes(row["size_bytes"]),
            format_time(row["measured_s"]),
            format_time(row["fitted_s"]),
            tables.share(row["fitted_s"] / row["measured_s"] - 1, sign=True)
            if row["measured_s"]
            else "-",
        ]
        for row in found.get("residuals", [])
    ]
    found_at = ["fitted on", "GPUs", "size", "measured", "fitted", "residual"]
    both = (
        Table(["constant", "value", "95 % from", "95 % to"], constants),
        Table(found_at, residuals),
    )
    return [table for table in both if table.rows]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cells_csv(validation: Validation) -> str:
    """A line for each cell."""
    return csv_text([_csv_row(cell) for cell in validation.cells]) if validation.cells else ""


def _csv_row(cell: Cell) -> dict[str, object]:
    names = ("kind", "name", "source", "gpus", "size_bytes", "network")
    row: dict[str, object] = {name: getattr(cell, name) for name in names}
    row["flags"] = " ".join(f"{name}={value}" for name, value in cell.flags.items())
    row["runs"] = len(cell.runs_s)
    for name in ("measured_s", "simulated_s", "error", "spread", "bytes_error"):
        row[name] = getattr(cell, name)
    for name in ("counted", "calibrated_on", "believable"):
        row[name] = str(getattr(cell, name)).lower()
    return row | {"notes": "; ".join(cell.notes)}
