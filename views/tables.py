"""Rows to text that a page or a notebook renders."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from simcore.units import format_rate, format_time


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column names the row, the others hold values, to the right.

    >>> print(markdown_table(["", "ring"], [["time", "1 | 2"]]))
    |  | ring |
    | --- | ---: |
    | time | 1 \\| 2 |
    """
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def quantity(value: float, unit: str) -> str:
    """A number with its unit, as people write it.

    >>> quantity(7.19e-4, "s"), quantity(12.5e6, "B/s"), quantity(1.5, "s/GB")
    ('719 µs', '12.5 MB/s', '1.5 s/GB')
    """
    shown = {"s": format_time, "B/s": format_rate}
    return shown[unit](value) if unit in shown else f"{value:.6g} {unit}"


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as comma-separated values, the keys first.

    >>> print(csv_text([{"name": "ring", "bytes": 3}]), end="")
    name,bytes
    ring,3
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
