"""``python -m views.report DIR``: the report of a validation's folder, as files beside it.

Reads validation.json and records/*.json; writes report.md, report.html, cells.csv and, where
Matplotlib is installed, errors.png and errors.svg. Exit status 2 for a folder that holds none.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from simcore.measured.validation import Validation, validation_from_json
from views.report.blocks import Picture, html, markdown
from views.report.contents import ABOUT_FIGURE, TITLE, cells_csv, report

MOST_RECORD_BYTES = 4_000_000


def read_folder(folder: Path) -> tuple[Validation, dict[str, dict[str, Any]]]:
    """The validation, and the records that can be read; a ``ValueError`` where there is none."""
    path = folder / "validation.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ValueError(f"{path}: {reason}; accepted: the folder of a validation") from None
    validation = validation_from_json(text, str(path))
    records = {}
    for cell in validation.cells:
        file = folder / "records" / f"{cell.stem}.json"
        try:
            if file.stat().st_size <= MOST_RECORD_BYTES:
                records[cell.stem] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue  # the report does without
    return validation, {stem: r for stem, r in records.items() if isinstance(r, dict)}


def write(folder: Path) -> str | None:
    """All files of the report; what is left out, if anything."""
    validation, records = read_folder(folder)
    picture, said = None, None
    if importlib.util.find_spec("matplotlib") is None:
        said = "the figures are left out: matplotlib is not installed: pip install matplotlib"
    else:
        picture = _draw(validation, folder)
    blocks = report(validation, records, picture)
    (folder / "report.md").write_text(markdown(blocks), encoding="utf-8")
    (folder / "report.html").write_text(html(blocks, TITLE), encoding="utf-8")
    (folder / "cells.csv").write_text(cells_csv(validation), encoding="utf-8")
    return said


def _draw(validation: Validation, folder: Path) -> Picture:
    from views.figure_words import png, svg
    from views.report.figures import errors_figure, svg_for_page

    figure = errors_figure(validation)
    (folder / "errors.svg").write_text(svg(figure), encoding="utf-8")
    (folder / "errors.png").write_bytes(png(figure))
    return Picture("errors.png", svg_for_page(validation), ABOUT_FIGURE)


def main(arguments: list[str]) -> int:
    """The command line."""
    if {"-h", "--help"} & set(arguments):
        print(f"usage: python -m views.report FOLDER\n\n{__doc__}", end="")
        return 0
    if len(arguments) != 1:
        print("python -m views.report: accepted is one folder", file=sys.stderr)
        return 2
    try:
        said = write(Path(arguments[0]))
    except (ValueError, OSError) as error:
        print(f"python -m views.report: {error}", file=sys.stderr)
        return 2
    if said:
        print(said, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
