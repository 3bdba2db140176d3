"""Errors and training steps as Vega-Lite specifications. Colours never stand alone: shapes, rows.

Full marks are our schedules replayed, hollow ones the vendor's own programs; a cross is a cell that
is not believable, a stroke one that took part in the calibration: neither counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

from simcore.measured.cells import Cell
from simcore.units import format_bytes, format_time
from views.line_styles import COLOURS, GREY, SHAPES
from views.measured.sets import Study, cell_words, flag_words, is_replay, name_words, percent
from views.text import Text

BANDS = (0.05, 0.02)  # the outer one first
# For what the other pages have no line of: Okabe–Ito again, with shapes in another order.
_MORE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MORE_SHAPES = ("diamond", "triangle-up", "square", "cross", "triangle-down", "circle")
ROW_PIXELS, AXIS_PIXELS = 22, 64
# Vega's stroke has no area to fill; a cross of lines is only drawn hollow.
DRAWN = {"stroke": "M-1-.3H1V.3H-1Z", "x": "M-1-1L1 1M-1 1L1-1"}


def style(name: str, others: Sequence[str] = ()) -> tuple[str, str]:
    """Colour and shape of an algorithm; ``others`` are all without a style of their own.

    >>> style("ring"), style("torch.all_reduce", ["torch.ddp", "torch.all_reduce"])
    (('#0072B2', 'circle'), ('#D55E00', 'triangle-up'))
    """
    if name in COLOURS:
        return COLOURS[name], SHAPES[name]
    at = list(others).index(name) if name in others else 0
    return _MORE_COLOURS[at % len(_MORE_COLOURS)], _MORE_SHAPES[at % len(_MORE_SHAPES)]


def drawn(shape: str) -> str:
    """As Vega can fill it."""
    return DRAWN.get(shape, shape)


def unstyled(cells: Sequence[Cell]) -> list[str]:
    """Names that have no style of their own, in order."""
    return [name for name in dict.fromkeys(cell.name for cell in cells) if name not in COLOURS]


def state(cell: Cell) -> str:
    """Whether and why not a cell counts: ``counted``, ``calibrated``, ``doubtful``."""
    if not cell.believable:
        return "doubtful"
    return "calibrated" if cell.calibrated_on else "counted"


def predicted(study: Study) -> list[Cell]:
    """Cells with a simulation, collectives first, an algorithm's together."""
    cells = [cell for cell in study.cells if cell.error is not None]
    order = {name: at for at, name in enumerate(COLOURS)}
    return sorted(cells, key=lambda c: (c.kind, not is_replay(c), order.get(c.name, 99), c.name))


def residuals(study: Study, text: Text) -> dict[str, Any]:
    """Each cell's error as a point in its algorithm's row, on bands of ±2 % and ±5 %."""
    cells = predicted(study)
    rows = [_point(cell, cells, text) for cell in cells]
    reach = 100 * max([1.25 * BANDS[0], *(1.15 * abs(cell.error or 0.0) for cell in cells)])
    names = list(dict.fromkeys(row["row"] for row in rows))
    unit = text("common.percent", value="")
    percents = f"(datum.value ? format(datum.value, '+') : '0') + '{unit}'"
    x = {
        "field": "error",
        "type": "quantitative",
        "scale": {"domain": [-reach, reach], "nice": False},
        "title": text("measured.axis_error"),
        "axis": {"grid": False, "tickCount": 7, "labelFlush": True, "labelExpr": percents},
    }
    y = {
        "field": "row",
        "type": "nominal",
        "sort": names,
        "title": None,
        "axis": {"labelLimit": 150, "grid": True, "gridOpacity": 0.4, "ticks": False},
    }
    return {
        "description": text("measured.residuals_description", count=len(rows)),
        "height": ROW_PIXELS * len(names) + AXIS_PIXELS,
        "layer": [*map(_band, BANDS), _zero(), *_marks(rows, x, y, text)],
    }


def _point(cell: Cell, cells: Sequence[Cell], text: Text) -> dict[str, Any]:
    colour, shape = style(cell.name, unstyled(cells))
    doubtful, fitted = state(cell) == "doubtful", state(cell) == "calibrated"
    return {
        "row": name_words(cell, text),
        "error": 100 * (cell.error or 0.0),
        "colour": GREY if doubtful or fitted else colour,
        "shape": drawn("x" if doubtful else "stroke" if fitted else shape),
        "full": is_replay(cell) and not doubtful,
        "cell": cell_words(cell, text),
        "shown_error": percent(cell.error, text, signed=True),
        "simulated": format_time(cell.simulated_s or 0.0),
        "measured": format_time(cell.measured_s),
        "counts": text(f"measured.state_{state(cell)}"),
    }


def _band(half: float) -> dict[str, Any]:
    return {
        "data": {"values": [{"low": -100 * half, "high": 100 * half}]},
        "mark": {"type": "rect", "color": GREY, "opacity": 0.13},
        "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
    }


def _zero() -> dict[str, Any]:
    return {
        "data": {"values": [{"at": 0}]},
        "mark": {"type": "rule", "color": GREY, "strokeWidth": 1.5},
        "encoding": {"x": {"field": "at", "type": "quantitative"}},
    }


def _marks(
    rows: Sequence[dict[str, Any]], x: dict[str, Any], y: dict[str, Any], text: Text
) -> list[dict[str, Any]]:
    tips = ("cell", "shown_error", "simulated", "measured", "counts")
    encoding = {
        "x": x,
        "y": y,
        "color": {"field": "colour", "type": "nominal", "scale": None},
        "shape": {"field": "shape", "type": "nominal", "scale": None},
        "tooltip": [
            {"field": tip, "type": "nominal", "title": text(f"measured.tip_{tip}")} for tip in tips
        ],
    }
    layers = []
    for full in (True, False):
        mark = {"type": "point", "filled": full, "size": 85, "opacity": 0.85, "strokeWidth": 2}
        shown = [row for row in rows if row["full"] == full]
        if shown:
            layers.append({"data": {"values": shown}, "mark": mark, "encoding": encoding})
    return layers


def steps_chart(study: Study, text: Text) -> dict[str, Any] | None:
    """Each training step's measured time, from fastest to slowest run, and the simulated one."""
    cells = [cell for cell in study.cells if cell.kind == "step" and cell.simulated_s is not None]
    if not cells:
        return None
    rows = [_step_row(*row, text) for row in zip(cells, _labels(cells, text), strict=True)]
    longest = max(max(row["high"], row["simulated_ms"]) for row in rows)
    return {
        "description": text("measured.steps_description", count=len(rows)),
        "height": 34 * len(rows) + AXIS_PIXELS,
        "data": {"values": rows},
        "encoding": {"y": _step_names(rows)},
        "layer": _step_layers(rows, 1.05 * longest, text),
    }


def _step_names(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "field": "where",
        "type": "nominal",
        "sort": [row["where"] for row in rows],
        "title": None,
        "axis": {
            "labelExpr": "split(datum.label, '|')",
            "labelLimit": 220,
            "labelLineHeight": 12,
            "labelFontSize": 11,
            "ticks": False,
            "grid": False,
        },
    }


def _step_layers(
    rows: Sequence[dict[str, Any]], most_ms: float, text: Text
) -> list[dict[str, Any]]:
    tips = ("cell", "measured", "simulated", "shown_error")
    tooltip = [{"field": f, "type": "nominal", "title": text(f"measured.tip_{f}")} for f in tips]

    def along(field: str) -> dict[str, Any]:
        return {
            "field": field,
            "type": "quantitative",
            "scale": {"domain": [0, most_ms], "nice": False},
            "title": text("measured.axis_ms"),
            "axis": {"grid": False, "tickCount": 6},
        }

    bar = {"type": "bar", "color": "#0072B2", "opacity": 0.45, "height": 11}
    rule = {"type": "rule", "color": "#D55E00", "strokeWidth": 2}
    diamond = {"type": "point", "shape": "diamond", "size": 110, "color": "#D55E00", "opacity": 1}
    layers: list[dict[str, Any]] = [
        {"mark": bar, "encoding": {"x": along("simulated_ms"), "tooltip": tooltip}},
        {"mark": rule, "encoding": {"x": along("low"), "x2": {"field": "high"}}},
    ]
    for full in sorted({row["full"] for row in rows}):
        only = [{"filter": f"datum.full == {str(full).lower()}"}]
        mark = {**diamond, "filled": full, "strokeWidth": 2}
        encoding = {"x": along("measured_ms"), "tooltip": tooltip}
        layers.append({"transform": only, "mark": mark, "encoding": encoding})
    return layers


def _labels(cells: Sequence[Cell], text: Text) -> list[str]:
    """What tells the steps apart, in two lines with a bar between; what all share is left out."""
    parts = [
        (
            name_words(cell, text),
            text("measured.gpus", gpus=cell.gpus),
            format_bytes(cell.size_bytes),
            cell.network or text("measured.unshaped"),
        )
        for cell in cells
    ]
    told = [at for at in range(4) if len({part[at] for part in parts}) > 1]
    comma, labels = text("measured.comma"), []
    for cell, part in zip(cells, parts, strict=True):
        flags = comma.join(starmap(flag_words, cell.flags.items()))
        doubt = "" if cell.believable else text("measured.state_doubtful")
        lines = (comma.join(part[at] for at in told), comma.join(filter(None, (flags, doubt))))
        labels.append("|".join(filter(None, lines)))
    # Rows of equal names would fall together.
    return [
        f"{label}|{n + 1}" if labels.count(label) > 1 else label for n, label in enumerate(labels)
    ]


def _step_row(cell: Cell, label: str, text: Text) -> dict[str, Any]:
    runs = cell.runs_s or (cell.measured_s,)
    return {
        "where": label,
        "cell": cell_words(cell, text),
        "full": is_replay(cell),
        "measured_ms": 1e3 * cell.measured_s,
        "simulated_ms": 1e3 * (cell.simulated_s or 0.0),
        "low": 1e3 * min(runs),
        "high": 1e3 * max(runs),
        "measured": format_time(cell.measured_s),
        "simulated": format_time(cell.simulated_s or 0.0),
        "shown_error": percent(cell.error, text, signed=True),
    }
