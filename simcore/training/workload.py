"""Workloads by name and from files, JSON or CSV. What a workload is stands in `model.py`.

A JSON file is one object with the fields of ``Workload``, where ``parameters`` and ``buffers`` are
lists of objects with the fields of ``Parameter``. A CSV file has a line per parameter in
registration order, under a heading of at least ``name,shape``, at most
``name,shape,dtype,forward_ms,backward_ms``; a shape reads ``64x3x7x7``, or ``scalar``.
"""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import asdict
from pathlib import Path

from simcore.fields import Fields, parse_json
from simcore.names import unknown
from simcore.training.catalogue import catalogue_names, catalogue_workload
from simcore.training.model import Parameter, Workload

__all__ = ["Parameter", "Workload", "from_csv", "from_json", "load_workload", "to_json"]

WORKLOAD_VERSION = 1
MOST_FILE_BYTES = 64 * 2**20
MOST_PARAMETERS = 200_000

_WHOLE_BYTES = "whole bytes per sample"
_TIMES = "a list of seconds, one per parameter, or empty"
_FIELDS = {
    "workload_version": str(WORKLOAD_VERSION),
    "name": "a text",
    "parameters": "a list of objects with name, shape, dtype, trainable, forward_flops",
    "buffers": "a list of objects like parameters",
    "arrival": "null, or a list of indices into parameters in the order their gradients arrive",
    "batch": "a whole number of samples per GPU",
    **dict.fromkeys(("input_bytes", "output_bytes", "activation_bytes"), _WHOLE_BYTES),
    **dict.fromkeys(("forward_s", "backward_s"), _TIMES),
    "optimizer_s": "seconds",
    "compute_source": "a text: measured, given, or how it was estimated",
}
_PARAMETER_FIELDS = {
    "name": "a text",
    "shape": "a list of whole numbers",
    "dtype": "a text such as 'float32'",
    "trainable": "true or false",
    "forward_flops": "a number, per sample",
}
_COLUMNS = ("name", "shape", "dtype", "forward_ms", "backward_ms")


def load_workload(name_or_file: str) -> Workload:
    """A model of the catalogue by name, or a workload file by its path.

    >>> load_workload("resnet18").elements
    11689512
    >>> load_workload("resnet81")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: unknown model 'resnet81'; did you mean 'resnet18'? accepted: resnet18, ...
    """
    known = catalogue_names()
    if name_or_file in known:
        return catalogue_workload(name_or_file)
    path = Path(name_or_file)
    # os.path's, unlike Path's, takes a name of any length.
    if path.suffix not in (".json", ".csv") and not os.path.exists(name_or_file):
        raise ValueError(unknown("model", name_or_file, [*known, "or a .json or .csv file"]))
    where = f"workload file {name_or_file!r}"
    text = _read(path, where)
    return from_csv(text, path.stem, where) if path.suffix == ".csv" else from_json(text, where)


def _read(path: Path, where: str) -> str:
    try:
        size = path.stat().st_size
        if size > MOST_FILE_BYTES:
            raise ValueError(f"{where} has {size} bytes; accepted: at most {MOST_FILE_BYTES}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{where}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not text in UTF-8: {error.reason}") from None


def to_json(workload: Workload) -> str:
    """The workload as text; ``from_json`` is the inverse."""
    document = {"workload_version": WORKLOAD_VERSION} | asdict(workload)
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def from_json(text: str, where: str = "workload") -> Workload:
    """A workload from its text; an error is one line that names ``where`` and the field.

    >>> from_json('{"name": "tiny", "parameters": [{"name": "w", "shape": [8, 8]}]}').elements
    64
    >>> from_json('{"name": "tiny", "parameters": [{"name": "w", "shape": "8x8"}]}')
    Traceback (most recent call last):
    ValueError: workload: parameter 0: field 'shape' is '8x8'; accepted: a list of whole numbers
    """
    of = Fields(parse_json(text, where), _FIELDS, where)
    if of.get("workload_version", int, WORKLOAD_VERSION) != WORKLOAD_VERSION:
        raise of.wrong("workload_version")
    settings = {
        name: of.get(name, kind)
        for name, kind in (
            *((whole, int) for whole in ("batch", "input_bytes", "output_bytes")),
            ("activation_bytes", int),
            ("optimizer_s", float),
            ("compute_source", str),
        )
        if name in of
    }
    for name in ("forward_s", "backward_s"):
        settings[name] = tuple(of.get(name, list, []))
    if of.document.get("arrival") is not None:
        settings["arrival"] = tuple(of.get("arrival", list))
    rows = _parameters(of, "parameters", "parameter")
    buffers = _parameters(of, "buffers", "buffer")
    try:
        return Workload(of.get("name", str), rows, buffers, **settings)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _parameters(of: Fields, field: str, what: str) -> tuple[Parameter, ...]:
    rows = of.get(field, list, [])
    if len(rows) > MOST_PARAMETERS:
        raise of.wrong(field, f"{len(rows)} of them; at most {MOST_PARAMETERS} are read")
    return tuple(
        _parameter(Fields(row, _PARAMETER_FIELDS, f"{of.where}: {what} {number}"))
        for number, row in enumerate(rows)
    )


def _parameter(row: Fields) -> Parameter:
    shape = row.get("shape", list)
    if shape is None:
        raise row.wrong("shape", "is not there")
    try:
        return Parameter(
            row.get("name", str),
            tuple(shape),
            row.get("dtype", str, "float32"),
            row.get("trainable", bool, True),
            row.get("forward_flops", float, 0.0),
        )
    except ValueError as error:
        raise ValueError(f"{row.where}: {error}") from None


def from_csv(text: str, name: str, where: str = "workload") -> Workload:
    """A workload from lines of ``name,shape,dtype,forward_ms,backward_ms``.

    >>> work = from_csv(
    ...     "name,shape,forward_ms,backward_ms\\nfc.weight,10x8,1,2\\nfc.bias,10,0,0", "fc"
    ... )
    >>> work.parameters[0].shape, work.backward_s
    ((10, 8), (0.002, 0.0))
    >>> from_csv("name,shape\\nfc.weight,10*8", "fc")
    Traceback (most recent call last):
    ValueError: workload: line 2: shape '10*8'; accepted: whole numbers such as 64x3x7x7, or scalar
    """
    lines = csv.reader(io.StringIO(text), strict=True)
    rows: list[Parameter] = []
    times: dict[str, list[float]] = {"forward_ms": [], "backward_ms": []}
    try:
        columns = _columns(next(lines, []), where)
        for line in lines:
            if not line:
                continue
            at = f"{where}: line {lines.line_num}"
            cells = _cells(columns, line, at)
            rows.append(_csv_parameter(cells, at))
            for column, values in times.items():
                if column in cells:
                    values.append(_milliseconds(column, cells[column], at) / 1e3)
            if len(rows) > MOST_PARAMETERS:
                raise ValueError(f"{at}: at most {MOST_PARAMETERS} parameters are read")
    except csv.Error as error:
        raise ValueError(f"{where}: line {lines.line_num}: not CSV: {error}") from None
    forward_s, backward_s = (tuple(values) for values in times.values())
    source = "given" if forward_s else ""
    try:
        return Workload(
            name,
            tuple(rows),
            forward_s=forward_s,
            backward_s=backward_s,
            compute_source=source,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _columns(heading: list[str], where: str) -> list[str]:
    columns = [cell.strip() for cell in heading]
    for column in columns:
        if column not in _COLUMNS:
            raise ValueError(f"{where}: line 1: {unknown('column', column, _COLUMNS)}")
    if len(set(columns)) != len(columns) or not {"name", "shape"} <= set(columns):
        raise ValueError(
            f"{where}: line 1: columns {', '.join(columns) or 'none'}; accepted: name and shape, "
            "with dtype, or with forward_ms and backward_ms, each once"
        )
    return columns


def _cells(columns: list[str], line: list[str], at: str) -> dict[str, str]:
    if len(line) != len(columns):
        raise ValueError(f"{at}: {len(line)} cells; accepted: {len(columns)}, as in the heading")
    return dict(zip(columns, (cell.strip() for cell in line), strict=True))


def _csv_parameter(cells: dict[str, str], at: str) -> Parameter:
    text = cells["shape"]
    parts = [] if text == "scalar" else text.split("x")
    # isdecimal alone takes other scripts' digits, and int() takes thousands of them
    if not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        raise ValueError(
            f"{at}: shape {text[:60]!r}; accepted: whole numbers such as 64x3x7x7, or scalar"
        )
    try:
        shape = tuple(int(part) for part in parts)
        return Parameter(cells["name"], shape, cells.get("dtype") or "float32")
    except ValueError as error:
        raise ValueError(f"{at}: {error}") from None


def _milliseconds(column: str, text: str, at: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:  # nan is neither
        raise ValueError(f"{at}: {column} {text[:60]!r}; accepted: milliseconds, not negative")
    return value
