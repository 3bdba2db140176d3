"""A reader's own files as a set: read strictly, one line for each that is refused. No disk, no app.

A file is text in one of four forms; it is parsed as JSON and nothing else, so nothing in it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcore.fields import parse_json, short
from simcore.measured.cells import Cell
from simcore.measured.records import record_from_json
from simcore.measured.step_records import step_record_from_json
from simcore.measured.validation import Validation, validation_from_json
from simcore.trace import FORMAT, Trace
from views.measured.effort import Budget, effort_of_step, too_much
from views.measured.sets import OWN, Study, from_records, joined

MOST_FILES, MOST_BYTES = 50, 2_000_000
MOST_COUNT = 64  # of whatever a training step repeats: more would take long to simulate
# What a page can draw and simulate again without keeping anybody waiting.
MOST_GPUS, MOST_FLAG, MOST_CELLS = 1024, 1024, 2000
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .,/+_-]{0,59}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
ACCEPTED = "a collective, a step, a validation or a trace, as real_gpu writes them"


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What came of some files: the good ones as a set, and a line for each refused one."""

    study: Study | None
    refused: tuple[str, ...]


def read_files(files: Iterable[tuple[str, bytes | None]]) -> Read:
    """Names and contents to a set; a content of None was too large to be sent at all.

    >>> read_files([("a.json", b"[1]"), ("b.json", None)]).refused
    ('a.json: [1]; accepted: a collective, a step, a validation or a trace, as real_gpu writes \
them', 'b.json: larger than 2000000 bytes')
    """
    studies, refused, budget, cells = [], [], Budget(), 0
    for number, (name, content) in enumerate(files):
        shown = "".join(c if c.isprintable() else "?" for c in name[-80:])
        try:
            if number >= MOST_FILES:
                raise ValueError(f"{shown}: only {MOST_FILES} files are read at once")
            study = _read(shown, content, budget)
            cells += len(study.cells)
            if cells > MOST_CELLS:
                cells -= len(study.cells)
                raise ValueError(f"{shown}: accepted: up to {MOST_CELLS} cells in all files")
            studies.append(study)
        except ValueError as error:
            refused.append(" ".join(str(error).split())[:300])
    if not any(study.cells for study in studies):
        return Read(None, tuple(refused))
    return Read(joined(OWN, studies), tuple(refused))


def read_folder(folder: Path) -> Read:
    """What ``python -m real_gpu validate --out FOLDER`` has written so far."""
    paths = [folder / "validation.json", *sorted(folder.glob("traces/*-replayed.json"))]
    found = [path for path in paths if path.is_file()][:MOST_FILES]
    return read_files((path.name, path.read_bytes()) for path in found)


def _read(name: str, content: bytes | None, budget: Budget) -> Study:
    if content is None or len(content) > MOST_BYTES:
        raise ValueError(f"{name}: larger than {MOST_BYTES} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{name}: not UTF-8 text") from None
    document = parse_json(text, name)
    try:
        study = _study(text, document, name, budget)
    except (TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from None
    except ValueError as error:
        said = str(error)
        raise ValueError(said if said.startswith(name) else f"{name}: {said}") from None
    _check(study, name)
    return study


def _study(text: str, document: Any, name: str, budget: Budget) -> Study:
    if not isinstance(document, dict):
        raise ValueError(f"{name}: {short(document)}; accepted: {ACCEPTED}")
    readers: Mapping[str, Callable[[], Study]] = {
        "validation_version": lambda: Study(name, validation_from_json(text, name)),
        "workload": lambda: _of_step(text, document, budget),
        "record_version": lambda: Study(name, from_records([record_from_json(text, name)])),
        "format": lambda: _of_trace(text, document),
    }
    for field, read in readers.items():
        if field in document:
            return read()
    raise ValueError(f"{name}: {short(sorted(document))}; accepted: {ACCEPTED}")


def _of_step(text: str, document: Mapping[str, Any], budget: Budget) -> Study:
    """Before a step is simulated: would that end?"""
    options = document.get("options")
    counts = {"gpus": document.get("gpus")} | (options if isinstance(options, dict) else {})
    for field in ("gpus", "servers", "accumulate", "period"):
        value = counts.get(field)
        if isinstance(value, int) and value > MOST_COUNT:
            raise ValueError(f"field {field!r} is {short(value)}; accepted: up to {MOST_COUNT}")
    effort = effort_of_step(document)
    if not budget.spend(effort):
        raise too_much(effort)
    return Study("", from_records((), [step_record_from_json(text)]))


def _of_trace(text: str, document: Mapping[str, Any]) -> Study:
    if document["format"] != FORMAT:
        raise ValueError(f"field 'format' is {short(document['format'])}; accepted: {FORMAT}")
    return Study("", nothing(), (Trace.from_json(text),))


def nothing() -> Validation:
    """A set without cells."""
    return from_records(())


def _check(study: Study, name: str) -> None:
    """What strict readers take and a page could still choke on."""
    if len(study.cells) > MOST_CELLS:
        raise ValueError(f"{name}: {len(study.cells)} cells; accepted: up to {MOST_CELLS}")
    for cell in study.cells:
        for field, accepted, good in _conditions(cell):
            if not good:
                value = short(getattr(cell, field))
                raise ValueError(f"{name}: field {field!r} is {value}; accepted: {accepted}")
    for trace in study.traces:
        if not _NAME.fullmatch(trace.name) or trace.n > MOST_GPUS:
            raise ValueError(f"{name}: trace {short(trace.name)} of {trace.n} ranks")


def _conditions(cell: Cell) -> Sequence[tuple[str, str, bool]]:
    flags = all(_NAME.fullmatch(key) and value <= MOST_FLAG for key, value in cell.flags.items())
    if cell.kind == "step":  # nothing is built of them
        flags = all(map(_NAME.fullmatch, cell.flags))
    return (
        ("name", "letters, digits and . _ + -, up to 60", bool(_NAME.fullmatch(cell.name))),
        ("gpus", f"1 to {MOST_GPUS}", cell.gpus <= MOST_GPUS),
        ("flags", f"names with numbers up to {MOST_FLAG}", flags),
        ("network", "null, or a text such as 200Mbit/s", _is_network(cell.network)),
    )


def _is_network(network: str | None) -> bool:
    return network is None or bool(_NETWORK.fullmatch(network))
