"""A picture as SVG text: the same input gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from views.pictures.shapes import (
    COPY,
    COPY_LIGHT,
    GROUND,
    MARGIN,
    Arc,
    Circle,
    Frame,
    Line,
    Polygon,
    Rect,
    Shape,
    Words,
    arc_ends,
)

FONTS = "system-ui, 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"


def svg_text(frame: Frame, lang: str) -> str:
    """One element, with a title and a description for those who do not see it."""
    left, top = _number(-MARGIN), _number(-MARGIN)
    width, height = _number(frame.width + 2 * MARGIN), _number(frame.height + 2 * MARGIN)
    shapes = "\n".join(_element(shape) for shape in (*frame.still, *frame.moving))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="{left} {top} {width} {height}" lang="{lang}" role="img" \
font-family="{FONTS}" style="font-variant-numeric: tabular-nums">
<title>{escape(frame.title, quote=False)}</title>
<desc>{escape(frame.description, quote=False)}</desc>
<defs><pattern id="syncscope-kept" width="6" height="6" patternUnits="userSpaceOnUse" \
patternTransform="rotate(45)"><rect width="6" height="6" fill="{COPY}"/>\
<rect width="2" height="6" fill="{COPY_LIGHT}"/></pattern></defs>
<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="{GROUND}"/>
{shapes}
</svg>
"""


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _tag(name: str, attributes: Mapping[str, float | str], content: str = "") -> str:
    """An element; empty attributes are left out."""
    words = "".join(
        f' {key}="{escape(value) if isinstance(value, str) else _number(value)}"'
        for key, value in attributes.items()
        if value != ""
    )
    return f"<{name}{words}>{content}</{name}>" if content else f"<{name}{words}/>"


def _element(shape: Shape) -> str:
    match shape:
        case Line(x1, y1, x2, y2):
            return _tag("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2} | _stroke(shape))
        case Circle(x, y, r, fill):
            return _tag("circle", _stroke(shape) | {"cx": x, "cy": y, "r": r, "fill": fill})
        case Rect(x, y, width, height, fill):
            place: dict[str, float | str] = {"x": x, "y": y, "width": width, "height": height}
            filled = {"fill": "url(#syncscope-kept)" if shape.hatched else fill}
            title = _tag("title", {}, escape(shape.note, quote=False)) if shape.note else ""
            return _tag("rect", place | filled | _stroke(shape), title)
        case Polygon(points, fill):
            path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
            return _tag("polygon", {"points": path, "fill": fill} | _stroke(shape))
        case Arc(r=r):
            (x1, y1), (x2, y2), large = arc_ends(shape)
            numbers = map(_number, (x1, y1, r, r, 0, large, 1, x2, y2))
            path = "M {} {} A {} {} {} {} {} {} {}".format(*numbers)
            return _tag("path", {"d": path, "fill": "none"} | _stroke(shape))
        case Words():
            return _words(shape)


def _stroke(shape: Line | Circle | Rect | Polygon | Arc) -> dict[str, float | str]:
    match shape:
        case Line(colour=colour, width=width, dashed=dashed):
            dash = "3 3" if dashed else ""
            return {"stroke": colour, "stroke-width": width, "stroke-dasharray": dash}
        case Arc(colour=colour, width=width):
            return {"stroke": colour, "stroke-width": width}
        case Circle(edge=edge, width=width) if edge:
            return {"stroke": edge, "stroke-width": width}
    return {"stroke": shape.edge}


def _words(words: Words) -> str:
    style: dict[str, float | str] = {
        "x": words.x,
        "y": words.y + 0.35 * words.size,  # central baselines are not drawn alike everywhere
        "font-size": words.size,
        "fill": words.colour,
        "text-anchor": "" if words.anchor == "start" else words.anchor,
        "font-weight": "bold" if words.bold else "",
    }
    if words.halo:
        style |= {"paint-order": "stroke", "stroke": GROUND, "stroke-width": 5}
    return _tag("text", style, escape(words.text, quote=False))
