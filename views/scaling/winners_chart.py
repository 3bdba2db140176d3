"""The map of winners as a Vega-Lite specification: a colour, a shape and a name for each region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from views.line_styles import COLOURS, SHAPES
from views.scaling.curves import AXES
from views.scaling.winners import Cell, Row, Winners, band_edges, region_title, tip
from views.scaling.winners_regions import bands, roomiest
from views.text import Text
from views.vega import number, place_axis

_LABEL = {"type": "text", "fontSize": 13, "fontWeight": 600}
_HALO = {**_LABEL, "stroke": "white", "strokeWidth": 5, "strokeJoin": "round", "opacity": 0.9}


def chart(
    winners: Winners, found: Sequence[Row], places: Sequence[Cell], text: Text
) -> dict[str, Any]:
    """Regions with exact borders, shapes in them, their names, and what a place says."""
    names = [text(f"scaling.axis_{axis}") for axis in (winners.across, winners.up)]
    xs, edges = winners.xs, band_edges(winners.ys)
    ticks = {axis: [x for x in AXES[axis] if not _crowded(axis, x)] for axis in AXES}
    across = place_axis(winners.across, (xs[0], xs[-1]), ticks[winners.across], names[0])
    up_ticks = winners.ys if winners.up == "gpus" else ticks[winners.up]
    up = place_axis(winners.up, (edges[0], edges[-1]), up_ticks, names[1])
    shown = [cell for row, cell in enumerate(places) if (row // len(xs) + row) % 2]
    return {
        "description": text("map.description", across=names[0], up=names[1]),
        "height": 440,
        "encoding": {"x": {"field": "x", **across}, "y": {"field": "y", **up}},
        "layer": [
            _regions(winners, found, text),
            _shapes(winners, shown, text),
            *_names(winners, places, text),
            _tips(winners, places, text),
        ],
    }


def _crowded(axis: str, x: float) -> bool:
    """Latencies of 3, 30 … µs: a decade's own mark is enough on a map."""
    return axis == "latency" and f"{x:e}".startswith("3")


def _by_line(winners: Winners, styles: Mapping[str, Any], text: Text) -> dict[str, Any]:
    titles = [text(f"strategy.{name}") for name in winners.lines]
    scale = {"domain": titles, "range": [styles[name] for name in winners.lines]}
    return {"field": "line", "type": "nominal", "scale": scale, "legend": None}


def _regions(winners: Winners, found: Sequence[Row], text: Text) -> dict[str, Any]:
    """A rectangle per row and winner; those that are level share its height in stripes."""
    values = [
        {
            "line": text(f"strategy.{band.name}"),
            "x": number(winners.across, band.begin),
            "x2": number(winners.across, band.end),
            "y": number(winners.up, band.low),
            "y2": number(winners.up, band.high),
        }
        for band in bands(winners, found)
    ]
    return {
        "data": {"values": values},
        "mark": {"type": "rect", "opacity": 0.5, "clip": True, "strokeWidth": 0},
        "encoding": {
            "x2": {"field": "x2"},
            "y2": {"field": "y2"},
            "color": _by_line(winners, COLOURS, text),
        },
    }


def _shapes(winners: Winners, shown: Sequence[Cell], text: Text) -> dict[str, Any]:
    """The shape of the line on every second cell; where several are level they take turns."""
    values = [
        {
            "line": text(f"strategy.{cell.names[count % len(cell.names)]}"),
            "x": number(winners.across, cell.x),
            "y": number(winners.up, cell.y),
        }
        for count, cell in enumerate(shown)
    ]
    return {
        "data": {"values": values},
        "mark": {"type": "point", "filled": True, "size": 42, "opacity": 0.85, "clip": True},
        "encoding": {
            "color": _by_line(winners, COLOURS, text),
            "shape": _by_line(winners, SHAPES, text),
        },
    }


def _names(winners: Winners, places: Sequence[Cell], text: Text) -> list[dict[str, Any]]:
    """Each region's name where it has most room around it."""
    values = []
    for names in dict.fromkeys(cell.names for cell in places):
        spot = roomiest(winners, places, names)
        side = spot.x / winners.xs[0], winners.xs[-1] / spot.x
        align = "left" if side[0] < 5 else "right" if side[1] < 5 else "center"
        values.append(
            {
                "title": region_title(names, text),
                "x": number(winners.across, spot.x),
                "y": number(winners.up, spot.y),
                "align": align,
            }
        )
    encoding = {"text": {"field": "title", "type": "nominal"}}
    aligned = {"align": {"expr": "datum.align"}}
    return [
        {"data": {"values": values}, "mark": {**mark, **aligned}, "encoding": encoding}
        for mark in (_HALO, {**_LABEL, "color": "#10151c"})
    ]


def _tips(winners: Winners, places: Sequence[Cell], text: Text) -> dict[str, Any]:
    """Unseen rectangles around the cells, which answer to the pointer."""
    xs, ys = winners.xs, winners.ys
    sides = dict(zip(xs, pairwise(band_edges(xs)), strict=True))
    rims = dict(zip(ys, pairwise(band_edges(ys)), strict=True))
    values = [
        {
            "x": number(winners.across, max(sides[cell.x][0], xs[0])),
            "x2": number(winners.across, min(sides[cell.x][1], xs[-1])),
            "y": number(winners.up, rims[cell.y][0]),
            "y2": number(winners.up, rims[cell.y][1]),
            **tip(winners, cell, text),
        }
        for cell in places
    ]
    fields = {
        "place": "scaling.tip_place",
        "fastest": "map.tip_fastest",
        "behind": "map.tip_behind",
    }
    return {
        "data": {"values": values},
        "mark": {"type": "rect", "opacity": 0, "clip": True},
        "encoding": {
            "x2": {"field": "x2"},
            "y2": {"field": "y2"},
            "tooltip": [
                {"field": field, "type": "nominal", "title": text(key)}
                for field, key in fields.items()
            ],
        },
    }
