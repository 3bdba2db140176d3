"""How each algorithm is drawn: a colour, a dash and a shape of its own, and the legend of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

from views.text import Text

COLOURS = {
    "ring": "#0072B2",
    "ps": "#D55E00",
    "ps-sharded": "#009E73",
    "ps-dedicated": "#CC79A7",
    "dp": "#E69F00",
    "tree": "#56B4E9",
    "double-tree": "#8F6BD1",
    "halving-doubling": "#8A8F00",
    "pairwise": "#A0622D",
    "hierarchical": "#B04CC9",
}
# What takes a colour's place on a dark ground: the ring's is that of the player there.
ON_DARK = {
    "#0072B2": "#56B4E9",
    "#D55E00": "#FF7A1A",
    "#009E73": "#2FC295",
    "#CC79A7": "#E39CC6",
    "#E69F00": "#F2C230",
    "#56B4E9": "#CDEBFF",
    "#8F6BD1": "#A98BEF",
    "#8A8F00": "#A3A800",
    "#A0622D": "#B9834F",
    "#B04CC9": "#D560EC",
}
DASHES = {
    "ring": [1, 0],
    "ps": [6, 3],
    "ps-sharded": [2, 2],
    "ps-dedicated": [8, 2, 2, 2],
    "dp": [4, 4],
    "tree": [10, 3],
    "double-tree": [3, 3, 8, 3],
    "halving-doubling": [1, 3],
    "pairwise": [12, 4],
    "hierarchical": [14, 3, 2, 3],
}
SHAPES = {
    "ring": "circle",
    "ps": "square",
    "ps-sharded": "triangle-up",
    "ps-dedicated": "diamond",
    "dp": "cross",
    "tree": "triangle-down",
    "double-tree": "triangle-right",
    "halving-doubling": "triangle-left",
    "pairwise": "stroke",
    "hierarchical": "M0-1.2L.3-.3 1.2 0 .3.3 0 1.2-.3.3-1.2 0-.3-.3Z",
}
# For pictures without colour; Matplotlib's.
HATCHES = {
    "ring": "",
    "ps": "///",
    "ps-sharded": "...",
    "ps-dedicated": "xx",
    "dp": "++",
    "tree": "\\\\\\",
    "double-tree": "oo",
    "halving-doubling": "---",
    "pairwise": "|||",
    "hierarchical": "**",
}
GREY = "#808890"

# The same shapes as in Vega, around the middle of a sample 34 × 14 pixels large.
_PATHS = {
    "circle": "M 20.5 7 a 3.5 3.5 0 1 1 -7 0 a 3.5 3.5 0 1 1 7 0 z",
    "square": "M 13.5 3.5 h 7 v 7 h -7 z",
    "triangle-up": "M 13 10.5 h 8 l -4 -7 z",
    "triangle-down": "M 13 3.5 h 8 l -4 7 z",
    "triangle-right": "M 13.5 3 v 8 l 7 -4 z",
    "triangle-left": "M 20.5 3 v 8 l -7 -4 z",
    "diamond": "M 13 7 l 4 -5 l 4 5 l -4 5 z",
    "cross": "M 15.5 3 h 3 v 2.5 h 2.5 v 3 h -2.5 v 2.5 h -3 v -2.5 h -2.5 v -3 h 2.5 z",
    "stroke": "M 13 6 h 8 v 2 h -8 z",
    SHAPES["hierarchical"]: "M 17 1.5 l 1.5 4 4 1.5 -4 1.5 -1.5 4 -1.5 -4 -4 -1.5 4 -1.5 z",
}


def legend_html(lines: Sequence[str], text: Text) -> str:
    """A sample of every line with its name; unlike the chart's own it wraps on a phone."""
    return legend_of(
        (COLOURS[name], DASHES[name], SHAPES[name], text(f"strategy.{name}")) for name in lines
    )


def legend_of(samples: Iterable[tuple[str, Sequence[int], str, str]]) -> str:
    """The same for any lines, given as colour, dash, shape and name."""
    return f'<p class="legend">{"".join(_sample(*sample) for sample in samples)}</p>'


def _sample(colour: str, dash: Sequence[int], shape: str, name: str) -> str:
    dashes = "" if dash[1] == 0 else f' stroke-dasharray="{" ".join(map(str, dash))}"'
    picture = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="34" height="14" viewBox="0 0 34 14">'
        f'<path d="M 0 7 H 34" stroke="black" stroke-width="2"{dashes}/>'
        f'<path d="{_PATHS[shape]}"/></svg>'
    )
    source = f"data:image/svg+xml,{quote(picture)}"  # a page's own SVG would not be let through
    ink = f"light-dark({colour},{ON_DARK.get(colour, colour)})"
    style = f"background:{ink};mask:url({source})"
    return f'<span><i style="{style}"></i> {escape(name)}</span>'
