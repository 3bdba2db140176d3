"""A report as a list of blocks, and the blocks as Markdown and as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from views.tables import markdown_table


@dataclass(frozen=True, slots=True)
class Heading:
    """A section's or a part's title."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain words."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list of plain words."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A header, and rows of as many cells; the first column names the row."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure in a file beside the report; ``svg`` is the same for inside the HTML."""

    file: str
    svg: str
    about: str


Block = Heading | Paragraph | Items | Table | Picture

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; --line: #8886; }
body { margin: 0 auto; padding: 16px; max-width: 1080px; font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: clamp(20px, 5vw, 27px); line-height: 1.25; }
h2 { margin-top: 2em; border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 10px; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child { text-align: left; font-weight: inherit; }
th { vertical-align: bottom; }
tbody th, td { white-space: nowrap; }
figure { margin: 16px 0; }
figure svg { display: block; width: 100%; min-width: 680px; height: auto; color: CanvasText; }
"""


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks as Markdown.

    >>> print(markdown([Heading("Cells", 1), Items(["one", "two"])]), end="")
    # Cells
    <BLANKLINE>
    - one
    - two
    """
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Items(texts):
            return "\n".join(f"- {text}" for text in texts)
        case Table(header, rows):
            return markdown_table(header, rows)
        case Picture(file, _, about):
            return f"![{about}]({file})"


def html(blocks: Sequence[Block], title: str) -> str:
    """The blocks as an HTML document that needs no other file, in light and in dark.

    >>> page = html([Table(["", "a < b"], [["row", "1"]])], "A report")
    >>> page.count("<table>"), "a &lt; b" in page
    (1, True)
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
{chr(10).join(map(_html, blocks))}
</main>
</body>
</html>
"""


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Items(texts):
            return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
        case Table(header, rows):
            return _html_table(header, rows)
        case Picture(_, svg, about):
            picture = f'<figure role="img" aria-label="{escape(about)}">{svg}</figure>'
            return (
                f'<div class="wide" tabindex="0" role="group" aria-label="figure">{picture}</div>'
            )


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    # A table that scrolls sideways must be reachable by keyboard.
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="group" aria-label="table">{table}</div>'
