"""Loss curves and histograms of ages as Vega-Lite specifications. Dashes and shapes, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from simcore.trace import FloatArray
from simcore.units import format_time
from views.line_styles import GREY, legend_of
from views.staleness.modes import Mode, loss_text, superscript
from views.staleness.numbers import percent
from views.text import Text

COLOURS = {"sync": "#0072B2", "ssp": "#009E73", "async": "#D55E00"}
DASHES = {"sync": [1, 0], "ssp": [8, 3], "async": [3, 2]}
SHAPES = {"sync": "circle", "ssp": "triangle-up", "async": "square"}
MOST_POINTS = 150  # of a line; more cannot be told apart
MOST_BARS = 40
_POWERS = {str(power): f"10{superscript(power)}" for power in range(-12, 13)}
_LOSS_LABEL = "datum.value >= 1e-3 && datum.value < 1e4 ? format(datum.value, '~r') : "
_LOSS_LABEL += f"{_POWERS}[toString(round(log(datum.value) / LN10))]"


def loss_chart(found: Sequence[Mode], axis: str, text: Text) -> dict[str, Any]:
    """The loss of each mode against "time" or "gradients"; a line that diverges leaves the top."""
    target = {"target": found[0].target}
    low, high = loss_range(found)
    y = {
        "field": "loss",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False, "domain": [low, high]},
        "title": text(f"staleness.axis_loss_{found[0].setting.problem}"),
        "axis": {"labelExpr": _LOSS_LABEL, "values": loss_ticks(low, high), "grid": False},
    }
    x = {
        "field": axis,
        "type": "quantitative",
        "scale": {"nice": False, "domainMin": 0},
        "title": text(f"staleness.axis_{axis}"),
        "axis": {"grid": False, "tickCount": 6},
    }
    return {
        "description": text("staleness.loss_description", axis=text(f"staleness.axis_{axis}")),
        "height": 320,
        "encoding": {"x": x, "y": y},
        "layer": [_target_line(target), _loss_lines(found, text), *_marks(found, axis, text)],
    }


def loss_range(found: Sequence[Mode]) -> tuple[float, float]:
    """From the least loss to somewhat above that at the start."""
    finite = [mode.curve.loss[np.isfinite(mode.curve.loss)] for mode in found]
    start = float(found[0].curve.loss[0])
    high = max(min(float(losses.max()), 30 * start) for losses in finite)
    return 0.7 * min(found[0].target, *(float(losses.min()) for losses in finite)), 1.3 * high


def loss_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, or finer where those are few."""
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    tens = [float(f"1e{power}") for power in powers]
    if len(tens) > 2:
        return tens
    steps = [m * 10.0**power for power in range(-9, 4) for m in (1, 2, 5)]
    return [float(f"{step:.1g}") for step in steps if low <= step <= high]


def _by_mode(found: Sequence[Mode], styles: dict[str, Any], text: Text) -> dict[str, Any]:
    scale = {
        "domain": [mode.title(text) for mode in found],
        "range": [styles[mode.name] for mode in found],
    }
    return {"field": "mode", "type": "nominal", "scale": scale, "legend": None}


def _tooltip(text: Text) -> list[dict[str, Any]]:
    return [
        {"field": field, "type": "nominal", "title": text(f"staleness.tip_{tip}")}
        for field, tip in (
            *(("mode", "mode"), ("time_text", "time")),
            *(("gradients", "gradients"), ("loss_text", "loss")),
        )
    ]


def _row(mode: Mode, number: int, text: Text) -> dict[str, Any]:
    curve = mode.curve
    loss, time_s = float(curve.loss[number]), float(curve.time_s[number])
    return {
        "mode": mode.title(text),
        "time": float(f"{time_s:.5g}"),
        "gradients": int(curve.gradients[number]),
        "loss": float(f"{loss:.4g}") if math.isfinite(loss) else 1e300,
        "time_text": format_time(time_s),
        "loss_text": loss_text(loss),
    }


def _loss_lines(found: Sequence[Mode], text: Text) -> dict[str, Any]:
    rows = []
    for mode in found:
        last = len(mode.curve.loss) - 1
        numbers = np.unique(np.linspace(0, last, MOST_POINTS).round().astype(int))
        rows += [_row(mode, number, text) for number in numbers.tolist()]
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 2, "clip": True},
        "encoding": {
            "color": _by_mode(found, COLOURS, text),
            "strokeDash": _by_mode(found, DASHES, text),
            "tooltip": _tooltip(text),
        },
    }


def _target_line(target: dict[str, float]) -> dict[str, Any]:
    return {
        "data": {"values": [target]},
        "mark": {"type": "rule", "color": GREY, "strokeDash": [2, 3]},
        "encoding": {"x": {"value": 0}, "x2": {"value": "width"}, "y": {"field": "target"}},
    }


def _marks(found: Sequence[Mode], axis: str, text: Text) -> list[dict[str, Any]]:
    """Where each mode first gets down to the target, with the time or the gradients."""
    rows = []
    for place, mode in enumerate(found):
        if mode.reached_s is None:
            continue
        number = int(np.flatnonzero(mode.curve.loss <= mode.target)[0])
        row = _row(mode, number, text) | {"place": place}
        label = row["time_text"] if axis == "time" else str(row["gradients"])
        rows.append(row | {"label": label, "loss": mode.target})
    if not rows:
        return []
    colour, shape = (_by_mode(found, styles, text) for styles in (COLOURS, SHAPES))
    point = {"type": "point", "filled": True, "size": 110, "opacity": 1}
    label = {
        "type": "text",
        "align": "left",
        "dx": 8,
        "dy": {"expr": "-8 - 14 * datum.place"},  # neighbours do not write over each other
        "fontSize": 12,
        "color": GREY,
    }
    return [
        {
            "data": {"values": rows},
            "mark": point,
            "encoding": {"color": colour, "shape": shape, "tooltip": _tooltip(text)},
        },
        {
            "data": {"values": rows},
            "mark": label,
            "encoding": {"text": {"field": "label"}},
        },
    ]


def legend_html(found: Sequence[Mode], text: Text) -> str:
    """A sample of every line with its name."""
    return legend_of(
        (COLOURS[mode.name], DASHES[mode.name], SHAPES[mode.name], mode.title(text))
        for mode in found
    )


def age_chart(mode: Mode, found: Sequence[Mode], text: Text) -> dict[str, Any]:
    """A histogram of one mode's ages; the modes stand side by side on the same axes."""
    width, most, shares = ages(found)
    rows = [
        {
            "from": number * width - 0.5,
            "to": (number + 1) * width - 0.5,
            "share": share,
            "age": f"{number * width}"
            if width == 1
            else f"{number * width}–{number * width + width - 1}",
            "share_text": percent(share, text),
        }
        for number, share in enumerate(shares[found.index(mode)].tolist())
        if share
    ]
    title = text("staleness.tip_age"), text("staleness.tip_share")
    percents = f"format(100 * datum.value, '.0f') + '{text('common.percent', value='')}'"
    return {
        "description": text("staleness.age_description", mode=mode.title(text)),
        "height": 170,
        "data": {"values": rows},
        "mark": {"type": "bar", "color": COLOURS[mode.name], "binSpacing": 1},
        "encoding": {
            "x": {
                "field": "from",
                "type": "quantitative",
                "bin": {"binned": True},
                "scale": {"domain": [-0.5, max(most, 1) + 0.5], "nice": False},
                "title": text("staleness.axis_age"),
                "axis": {"grid": False, "tickMinStep": 1, "format": "d"},
            },
            "x2": {"field": "to"},
            "y": {
                "field": "share",
                "type": "quantitative",
                "scale": {"domain": [0, float(max(each.max() for each in shares))]},
                "title": text("staleness.axis_share"),
                "axis": {"labelExpr": percents, "grid": False, "tickCount": 4},
            },
            "tooltip": [
                {"field": "age", "type": "nominal", "title": title[0]},
                {"field": "share_text", "type": "nominal", "title": title[1]},
            ],
        },
    }


def ages(found: Sequence[Mode]) -> tuple[int, int, list[FloatArray]]:
    """How many ages are one bar, the largest age, and of each mode the bars' shares."""
    ages_of = [mode.run.updates.staleness for mode in found]
    most = max(int(each.max()) for each in ages_of)
    width = math.ceil((most + 1) / MOST_BARS)
    counts = [np.bincount(each // width, minlength=most // width + 1) for each in ages_of]
    return width, most, [count / count.sum() for count in counts]
