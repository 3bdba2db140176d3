"""The scaling chart as a Vega-Lite specification. Colours never stand alone: dashes and shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from simcore.trace import Source
from simcore.units import format_time
from views.scaling import Point, Scaling, Stretch, place, sign
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
}
GREY = "#808890"
_TIME_LABEL = (
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : "
    "datum.value >= 1e-3 ? format(datum.value * 1e3, '~r') + ' ms' : "
    "datum.value >= 1e-6 ? format(datum.value * 1e6, '~r') + ' µs' : "
    "format(datum.value * 1e9, '~r') + ' ns'"
)


def chart(
    scaling: Scaling, found: Sequence[Stretch], points: Sequence[Point], text: Text
) -> dict[str, Any]:
    """Lines with the lower bound, where the fastest changes, and what was measured."""
    layers = [_bound(scaling, text), _lines(scaling, text), *_crossings(scaling, found)]
    if points:
        layers += _measured(scaling, points, text)
    return {
        "description": text("scaling.description", axis=text(f"scaling.axis_{scaling.axis}")),
        "height": 420,
        "encoding": {"x": _x(scaling, text), "y": _y(scaling, text)},
        "layer": layers,
    }


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
}


def legend_html(scaling: Scaling, text: Text) -> str:
    """A sample of every line with its name; unlike the chart's own it wraps on a phone."""
    return f'<p class="legend">{"".join(_sample(name, text) for name in scaling.lines)}</p>'


def _sample(name: str, text: Text) -> str:
    colour, dash = COLOURS[name], " ".join(map(str, DASHES[name]))
    dash = "" if DASHES[name][1] == 0 else f' stroke-dasharray="{dash}"'
    picture = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="34" height="14" viewBox="0 0 34 14">'
        f'<path d="M 0 7 H 34" stroke="{colour}" stroke-width="2"{dash}/>'
        f'<path d="{_PATHS[SHAPES[name]]}" fill="{colour}"/></svg>'
    )
    source = f"data:image/svg+xml,{quote(picture)}"  # a page's own SVG would not be let through
    return f'<span><img alt="" src="{source}"> {escape(text(f"strategy.{name}"))}</span>'


def _unit(axis: str) -> float:
    """Latencies are plotted in µs: labels are looked up by the number's text."""
    return 1e6 if axis == "latency" else 1.0


def _number(scaling: Scaling, x: float) -> float:
    return float(f"{x * _unit(scaling.axis):.12g}")


def _x(scaling: Scaling, text: Text) -> dict[str, Any]:
    values = [_number(scaling, x) for x in scaling.xs]
    names = [place(scaling.axis, x) for x in scaling.xs]
    labels = ", ".join(
        f"'{value:.12g}': '{name}'" for value, name in zip(values, names, strict=True)
    )
    return {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False, "domain": [values[0], values[-1]]},
        "title": text(f"scaling.axis_{scaling.axis}"),
        "axis": {
            "values": values,
            "labelExpr": f"{{{labels}}}[datum.value]",
            "labelOverlap": "greedy",
            "grid": False,
        },
    }


def _y(scaling: Scaling, text: Text) -> dict[str, Any]:
    times = [scaling.time_s(name, x) for name in scaling.lines for x in scaling.xs]
    least = min(map(scaling.bound_s, scaling.xs))
    return {
        "field": "time_s",
        "type": "quantitative",
        "stack": None,
        "scale": {"type": "log", "nice": False, "domain": [0.6 * least, 1.6 * max(times)]},
        "title": text("scaling.time"),
        "axis": {"labelExpr": _TIME_LABEL, "values": _time_ticks(0.6 * least, 1.6 * max(times))},
    }


def _time_ticks(low_s: float, high_s: float) -> list[float]:
    """Powers of ten, and where those are few also twice and five times them.

    >>> _time_ticks(2e-5, 3e-2), _time_ticks(0.3, 0.9)
    ([0.0001, 0.001, 0.01], [0.5])
    """
    exponents = range(math.floor(math.log10(low_s)), math.ceil(math.log10(high_s)))
    tens = [float(f"1e{power}") for power in exponents]
    ticks = [ten for ten in tens if low_s <= ten <= high_s]
    if len(ticks) < 3:
        ticks = [float(f"{m * ten:.1g}") for ten in tens for m in (1, 2, 5)]
    return [tick for tick in ticks if low_s <= tick <= high_s]


def _tooltip(text: Text) -> list[dict[str, Any]]:
    return [
        {"field": field, "type": "nominal", "title": text(f"scaling.tip_{field}")}
        for field in ("line", "place", "time")
    ]


def _row(scaling: Scaling, x: float, time_s: float, line: str) -> dict[str, Any]:
    return {
        "x": _number(scaling, x),
        "time_s": time_s,
        "line": line,
        "place": place(scaling.axis, x),
        "time": format_time(time_s),
    }


def _lines(scaling: Scaling, text: Text) -> dict[str, Any]:
    titles = [text(f"strategy.{name}") for name in scaling.lines]
    rows = [
        _row(scaling, x, scaling.time_s(name, x), title)
        for name, title in zip(scaling.lines, titles, strict=True)
        for x in scaling.xs
    ]

    return {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 45, "filled": True}},
        "encoding": {
            "color": _by_line(scaling, COLOURS, text),
            "shape": _by_line(scaling, SHAPES, text),
            "strokeDash": _by_line(scaling, DASHES, text),
            "tooltip": _tooltip(text),
        },
    }


def _by_line(scaling: Scaling, styles: Mapping[str, Any], text: Text) -> dict[str, Any]:
    titles = [text(f"strategy.{name}") for name in scaling.lines]
    styles_shown = [styles[name] for name in scaling.lines]
    scale = {"domain": titles, "range": styles_shown}
    return {"field": "line", "type": "nominal", "scale": scale, "legend": None}


def _bound(scaling: Scaling, text: Text) -> dict[str, Any]:
    title = text("scaling.bound")
    rows = [_row(scaling, x, scaling.bound_s(x), title) for x in scaling.xs]
    below = {"type": "area", "color": GREY, "opacity": 0.16, "line": {"color": GREY, "opacity": 1}}
    return {
        "data": {"values": rows},
        "mark": below,
        "encoding": {"y2": {"value": "height"}, "tooltip": _tooltip(text)},
    }


def _crossings(scaling: Scaling, found: Sequence[Stretch]) -> list[dict[str, Any]]:
    if len(found) < 2:
        return []
    middle = math.sqrt(scaling.xs[0] * scaling.xs[-1])
    rows = [
        _row(scaling, part.end, part.time_s, "")
        | {"side": "right" if part.end > middle else "left", "number": number}
        for number, part in enumerate(found[:-1])
    ]
    rule = {"type": "rule", "color": GREY, "strokeDash": [2, 3]}
    ring = {"type": "point", "shape": "circle", "size": 190, "color": GREY, "strokeWidth": 2}
    label = {
        "type": "text",
        "color": GREY,
        "baseline": "top",
        "fontSize": 12,
        "align": {"expr": "datum.side"},
        "dx": {"expr": "datum.side == 'left' ? 4 : -4"},
        "dy": {"expr": "14 * (datum.number % 3)"},  # neighbours do not write over each other
    }
    whole = {"y": {"value": 0}, "y2": {"value": "height"}}
    at_the_top = {"y": {"value": 2}, "text": {"field": "place"}}
    return [
        {"data": {"values": rows}, "mark": rule, "encoding": whole},
        {"data": {"values": rows}, "mark": ring},
        {"data": {"values": rows}, "mark": label, "encoding": at_the_top},
    ]


def _measured(scaling: Scaling, points: Sequence[Point], text: Text) -> list[dict[str, Any]]:
    """Full diamonds for replays, larger hollow ones for the vendor's own runs."""
    colour = _by_line(scaling, COLOURS, text)
    tooltip = [{"field": "what", "type": "nominal", "title": text("scaling.tip_line")}]
    tooltip += _tooltip(text)[1:]
    layers: list[dict[str, Any]] = []
    for filled, size in ((True, 150), (False, 420)):
        rows = [
            _measured_row(scaling, point, text)
            for point in points
            if (point.record.source == Source.REPLAYED.value) == filled
        ]
        mark = {"type": "point", "shape": "diamond", "filled": filled, "size": size, "opacity": 1}
        ends = {"y": {"field": "low_s", "type": "quantitative"}, "y2": {"field": "high_s"}}
        if rows:
            layers += [
                {
                    "data": {"values": rows},
                    "mark": {"type": "rule", "strokeWidth": 2},
                    "encoding": {**ends, "color": colour},
                },
                {
                    "data": {"values": rows},
                    "mark": mark,
                    "encoding": {"color": colour, "tooltip": tooltip},
                },
            ]
    return layers


def _measured_row(scaling: Scaling, point: Point, text: Text) -> dict[str, Any]:
    record = point.record
    what = text(f"scaling.point_{record.source}", sign=sign(record), name=record.name)
    row = _row(scaling, point.x, record.median_s, text(f"strategy.{point.name}"))
    return row | {"what": what, "low_s": min(record.runs_s), "high_s": max(record.runs_s)}
