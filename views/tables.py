"""Rows to text that a page or a notebook renders."""

from __future__ import annotations

from collections.abc import Sequence


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
