"""Time against pieces as a Vega-Lite specification: the two parts, their sum, where it is least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simcore.units import format_time
from views.line_styles import GREY, legend_of
from views.scaling.pieces import Pieces, size_of_one
from views.text import Text
from views.vega import time_axis

TOTAL, SENDS, WAITS = "#0072B2", "#E69F00", "#CC79A7"
_STYLES: dict[str, tuple[str, list[int], str, float]] = {  # colour, dash, shape, width
    "total": (TOTAL, [1, 0], "circle", 2.5),
    "sends": (SENDS, [6, 3], "triangle-down", 1.5),
    "waits": (WAITS, [2, 2], "triangle-up", 1.5),
}


def chart(pieces: Pieces, text: Text) -> dict[str, Any]:
    """The curve, its parts, the bound below it and the best number of pieces."""
    parts: dict[str, Callable[[int], float]] = {
        "total": pieces.time_s,
        "sends": pieces.sends_s,
        "waits": pieces.waits_s,
    }
    drawn = _drawn(pieces)
    least = min(pieces.bound_s, *(float(parts[name](1)) for name in drawn))
    most = max(float(pieces.time_s(1)), float(pieces.time_s(pieces.most)))
    return {
        "description": text("pieces.description"),
        "height": 420,
        "encoding": {
            "x": {
                "field": "pieces",
                "type": "quantitative",
                "scale": {"type": "log", "base": 2, "nice": False, "domain": [1, pieces.most]},
                "title": text("pieces.axis"),
                "axis": {"values": [4**k for k in range(7)], "format": "d", "grid": False},
            },
            "y": time_axis(least, most, text("scaling.time")),
        },
        "layer": [
            _bound(pieces, text),
            *(_curve(pieces, name, parts[name], text) for name in reversed(drawn)),
            *_best(pieces, text),
        ],
    }


def _drawn(pieces: Pieces) -> list[str]:
    """Without latency the sum is what is sent, and there is nothing else to show."""
    return list(_STYLES) if pieces.at.latency_s else ["total"]


def legend_html(pieces: Pieces, text: Text) -> str:
    """A sample of every curve with its name."""
    return legend_of((*_STYLES[name][:3], text(f"pieces.{name}")) for name in _drawn(pieces))


def _rows(pieces: Pieces, time: Callable[[int], float], title: str) -> list[dict[str, Any]]:
    return [
        {
            "pieces": count,
            "time_s": float(time(count)),
            "line": title,
            "time": format_time(float(time(count))),
            "size": size_of_one(pieces, count),
        }
        for count in sorted({*pieces.pieces, pieces.best})
    ]


def _tooltip(text: Text) -> list[dict[str, Any]]:
    titles = {
        "line": text("scaling.tip_line"),
        "pieces": text("pieces.axis"),
        "size": text("pieces.tip_size"),
        "time": text("scaling.tip_time"),
    }
    return [{"field": field, "type": "nominal", "title": titles[field]} for field in titles]


def _curve(pieces: Pieces, name: str, time: Callable[[int], float], text: Text) -> dict[str, Any]:
    colour, dash, shape, width = _STYLES[name]
    point = {"shape": shape, "size": 40, "filled": True, "color": colour}
    return {
        "data": {"values": _rows(pieces, time, text(f"pieces.{name}"))},
        "mark": {
            "type": "line",
            "color": colour,
            "strokeDash": dash,
            "strokeWidth": width,
            "point": point,
            "clip": True,
        },
        "encoding": {"tooltip": _tooltip(text)},
    }


def _bound(pieces: Pieces, text: Text) -> dict[str, Any]:
    rows = _rows(pieces, lambda _: pieces.bound_s, text("pieces.bound"))
    below = {"type": "area", "color": GREY, "opacity": 0.16, "line": {"color": GREY, "opacity": 1}}
    return {
        "data": {"values": rows},
        "mark": below,
        "encoding": {"y2": {"value": "height"}, "tooltip": _tooltip(text)},
    }


def _best(pieces: Pieces, text: Text) -> Sequence[dict[str, Any]]:
    """A ring around the least time, with what it is beside it."""
    best = pieces.best
    label = text("pieces.optimum", best=best, one=size_of_one(pieces, best))
    rows = [{"pieces": best, "time_s": float(pieces.time_s(best)), "label": label}]
    align = "left" if best < 4 else "right" if best * 4 > pieces.most else "center"
    return [
        {
            "data": {"values": rows},
            "mark": {"type": "rule", "color": GREY, "strokeDash": [2, 3]},
            "encoding": {"y": {"value": 18}, "y2": {"value": "height"}},
        },
        {
            "data": {"values": rows},
            "mark": {"type": "point", "size": 190, "color": GREY, "strokeWidth": 2},
        },
        {
            "data": {"values": rows},
            "mark": {
                "type": "text",
                "color": GREY,
                "baseline": "top",
                "fontSize": 12,
                "align": align,
            },
            "encoding": {"y": {"value": 2}, "text": {"field": "label", "type": "nominal"}},
        },
    ]
