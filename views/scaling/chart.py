"""The scaling chart as a Vega-Lite specification. Colours never stand alone: dashes and shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from simcore.trace import Source
from simcore.units import format_time
from views.line_styles import COLOURS, DASHES, GREY, SHAPES
from views.scaling.curves import Scaling, Stretch, place
from views.scaling.rows import Point, sign
from views.text import Text
from views.vega import number, place_axis, time_axis


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


def _x(scaling: Scaling, text: Text) -> dict[str, Any]:
    xs = scaling.xs
    title = text(f"scaling.axis_{scaling.axis}")
    return {"field": "x", **place_axis(scaling.axis, (xs[0], xs[-1]), xs, title)}


def _y(scaling: Scaling, text: Text) -> dict[str, Any]:
    times = [scaling.time_s(name, x) for name in scaling.lines for x in scaling.xs]
    return time_axis(min(map(scaling.bound_s, scaling.xs)), max(times), text("scaling.time"))


def _tooltip(text: Text) -> list[dict[str, Any]]:
    return [
        {"field": field, "type": "nominal", "title": text(f"scaling.tip_{field}")}
        for field in ("line", "place", "time")
    ]


def _row(scaling: Scaling, x: float, time_s: float, line: str) -> dict[str, Any]:
    return {
        "x": number(scaling.axis, x),
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
