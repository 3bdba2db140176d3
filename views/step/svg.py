"""Small SVG pictures in two widths, one for a desk and one for a phone. Colours come from CSS.

Every kind has a colour and a pattern; the patterns' names carry the picture's, since two pictures
stand in one page.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Sheet:
    """A picture's width, the gutter for its rows' names, and its font size, in its own units."""

    name: str
    width: int
    gutter: int
    font: float = 12.0

    @property
    def room(self) -> float:
        """What is left for bars."""
        return self.width - self.gutter - 10.0

    def x(self, part: float) -> float:
        """Where that part of the axis is."""
        return self.gutter + part * self.room

    def fits(self, label: str, room: float) -> bool:
        """Whether a label can be read there."""
        return self.text_width(label) + 8 <= room

    def text_width(self, label: str) -> float:
        """About how wide a text is.

        >>> WIDE.text_width("optimizer") > WIDE.text_width("优化器") > 30
        True
        """
        return self.font * sum(1.0 if ord(c) > 0x2E80 else 0.56 for c in label)


WIDE, NARROW = Sheet("wide", 920, 62), Sheet("narrow", 350, 48, 11.0)
SHEETS = (WIDE, NARROW)

# Lines of a pattern: (width of its tile, turned by degrees, path), drawn over the kind's colour.
_PATTERNS = {
    "exposed": (7, 45, "M0 0V7"),
    "wait": (6, 45, "M0 0V6"),
    "backward": (5, 0, "M0 0H5"),
    "optimizer": (4, 0, "M0 0V4"),
    "copy": (6, -45, "M0 0V6"),
    "held": (6, 0, "M2.9 3H3.1"),
    "gradients": (5, 0, "M0 0H5"),
    "buckets": (7, 45, "M0 0V7"),
    "activations": (6, 0, "M2.9 3H3.1"),
    "data": (6, -45, "M0 0V6"),
    "over": (7, 45, "M0 0V7"),
}


def definitions(sheet: Sheet) -> str:
    """The patterns of a picture."""
    tiles = "".join(
        f'<pattern id="{sheet.name}-{kind}" width="{size}" height="{size}" '
        f'patternUnits="userSpaceOnUse" patternTransform="rotate({turn})">'
        f'<rect width="{size}" height="{size}" class="{kind}"/>'
        f'<path d="{path}" class="{kind} lines"/></pattern>'
        for kind, (size, turn, path) in _PATTERNS.items()
    )
    return f"<defs>{tiles}</defs>"


def box(sheet: Sheet, kind: str, x: float, y: float, width: float, height: float) -> str:
    """A rectangle of a kind: its pattern, or its plain colour."""
    fill = f' fill="url(#{sheet.name}-{kind})"' if kind in _PATTERNS else f' class="{kind}"'
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.4):.2f}" height="{height:g}"{fill}/>'
    )


def words(x: float, y: float, label: str, style: str = "", anchor: str = "start") -> str:
    """A text whose base line is at ``y``."""
    end = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}"{end}>{escape(label)}</text>'


def marked(content: str, tip: str, style: str = "bar") -> str:
    """Something that tells ``tip`` when it is pointed at."""
    return f'<g class="{style}"><title>{escape(tip)}</title>{content}</g>'


def picture(sheet: Sheet, height: float, description: str, content: str) -> str:
    """The whole picture."""
    label = escape(description, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{sheet.name}" '
        f'viewBox="0 0 {sheet.width} {height:.0f}" font-size="{sheet.font:g}" role="img" '
        f'aria-label="{label}">{definitions(sheet)}{content}</svg>'
    )


def legend(kinds: dict[str, str]) -> str:
    """A swatch and a name for each kind."""
    swatch = Sheet("legend", 30, 0)
    samples = "".join(
        f'<span><svg class="swatch" width="26" height="13" aria-hidden="true">'
        f"{box(swatch, kind, 0, 0, 26, 13)}</svg>{escape(name)}</span>"
        for kind, name in kinds.items()
    )
    tiles = f'<svg class="tiles" aria-hidden="true">{definitions(swatch)}</svg>'
    return f'<p class="legend">{tiles}{samples}</p>'
