"""DDP's step against the bucket cap: how much it matters here, and why if it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from simcore.training.step import StepResult
from simcore.training.strategies import plan_step
from simcore.units import format_bytes, format_time
from views.line_styles import GREY
from views.step.rows import union
from views.step.runs import LONGEST_SWEEP_S, StepChoice, run_step, work_s
from views.step.words import time_words
from views.text import Text

CAPS_MB = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
FLAT = 0.03  # of the time, over all caps
BUSY = 0.95
DEFAULT_MB = 25.0
_LINE, _NOW = "#0072B2", "#D55E00"


@dataclass(frozen=True, slots=True)
class Point:
    """A cap and its step; ``cap_mb`` None is torch's default."""

    cap_mb: float | None
    time_s: float
    exposed_s: float
    buckets: int


def sweep(choice: StepChoice) -> list[Point]:
    """Each cap, the default, and the one chosen; empty where that would take too long.

    >>> points = sweep(StepChoice("resnet18", "V100 16GB", 64, 2))
    >>> [point.cap_mb for point in points][:3], points[-1].buckets
    ([None, 1.0, 2.0], 1)
    """
    caps = [None, *sorted({*CAPS_MB, choice.cap_mb or DEFAULT_MB})]
    choices = [replace(choice, cap_mb=cap) for cap in caps]
    works_s = (work_s(plan_step("ddp", one.setting()), one) for one in choices)
    if sum(works_s) > LONGEST_SWEEP_S:
        return []
    return [_point(run_step(one, "ddp"), one.cap_mb) for one in choices]


def _point(result: StepResult, cap_mb: float | None) -> Point:
    exposed_s = result.exposed_communication_s
    return Point(cap_mb, result.time_s, exposed_s, len(result.buckets))


def now_of(points: Sequence[Point], choice: StepChoice) -> Point:
    """The cap that is chosen."""
    return next(point for point in points if point.cap_mb == choice.cap_mb)


def sentence(points: Sequence[Point], choice: StepChoice, text: Text) -> str:
    """Whether another size is faster; where all are alike, what keeps them so."""
    times = [point.time_s for point in points]
    spread = (max(times) - min(times)) / min(times)
    if spread < FLAT:
        return _why_flat(points, spread, choice, text)
    return _who_is_best(points, choice, text)


def _why_flat(points: Sequence[Point], spread: float, choice: StepChoice, text: Text) -> str:
    given = [point.cap_mb for point in points if point.cap_mb is not None]
    values = {
        "low": f"{min(given):g}",
        "high": f"{max(given):g}",
        "spread": f"{max(spread * 100, 0.1):.1f}",
    }
    if max(point.exposed_s / point.time_s for point in points) < FLAT:
        return text("step.sweep_flat_hidden", **values)
    result = run_step(choice, "ddp")
    busy = busy_part(result)
    if busy >= BUSY:
        return text("step.sweep_flat_busy", busy=f"{busy * 100:.3g}", **values)
    size = format_bytes(result.buckets[-1].nbytes)
    return text("step.sweep_flat_last", size=size, **values)


def busy_part(result: StepResult) -> float:
    """Of the time from the first bucket's start to the last one's end: some bucket travels."""
    carried = union((bucket.start_s, bucket.end_s) for bucket in result.buckets)
    if not carried:
        return 0.0
    return sum(b - a for a, b in carried) / (carried[-1][1] - carried[0][0])


def _who_is_best(points: Sequence[Point], choice: StepChoice, text: Text) -> str:
    given = [point for point in points if point.cap_mb is not None]
    best, now = min(given, key=lambda point: point.time_s), now_of(points, choice)
    times = {"best_time": time_words(best.time_s), "now_time": time_words(now.time_s)}
    if now.time_s <= best.time_s * 1.005:
        said = text("step.sweep_is_best", **times)
    else:
        said = text("step.sweep_best", best=f"{best.cap_mb:g}", **times)
    low, high = given[0], given[-1]
    if high.time_s > best.time_s * (1 + FLAT) and high.exposed_s > best.exposed_s:
        high_time = time_words(high.time_s)
        said += text("step.sweep_large", high=f"{high.cap_mb:g}", high_time=high_time)
    if low.time_s > best.time_s * (1 + FLAT) and low.buckets > best.buckets:
        low_time = time_words(low.time_s)
        said += text(
            "step.sweep_small", low=f"{low.cap_mb:g}", low_time=low_time, count=low.buckets
        )
    return said


def cap_words(cap_mb: float | None, text: Text) -> str:
    """``default``, or MiB."""
    return text("step.sweep_default") if cap_mb is None else f"{cap_mb:g} MiB"


def sweep_chart(points: Sequence[Point], choice: StepChoice, text: Text) -> dict[str, Any]:
    """A Vega-Lite line over the caps, the chosen one marked. The axis begins at 0."""
    rows = [
        {
            "cap": DEFAULT_MB if point.cap_mb is None else point.cap_mb,
            "name": cap_words(point.cap_mb, text),
            "ms": point.time_s * 1e3,
            "time": format_time(point.time_s),
            "exposed": format_time(point.exposed_s),
            "buckets": point.buckets,
        }
        for point in points
    ]
    place = [point.cap_mb for point in points].index(choice.cap_mb)
    now = rows[place] | {"label": text("step.sweep_now", cap=rows[place]["name"])}
    tips = [
        {"field": field, "title": title}
        for field, title in (
            ("name", text("step.sweep_axis")),
            ("time", text("step.sweep_time")),
            ("exposed", text("step.sweep_exposed")),
            ("buckets", text("step.sweep_count")),
        )
    ]
    line = {"values": [row for row, point in zip(rows, points, strict=True) if point.cap_mb]}
    return {
        "description": text("step.sweep_description", sentence=sentence(points, choice, text)),
        "height": 230,
        "encoding": {"x": _x(text), "y": _y(text, 1e3 * max(point.time_s for point in points))},
        "layer": [
            {
                "data": line,
                "mark": {"type": "line", "color": _LINE, "point": {"color": _LINE, "size": 40}},
                "encoding": {"tooltip": tips},
            },
            {
                "data": {"values": [now]},
                "mark": {"type": "point", "shape": "diamond", "size": 150, "filled": True}
                | {"color": _NOW, "opacity": 1},
                "encoding": {"tooltip": tips},
            },
            {
                "data": {"values": [now]},
                "mark": {"type": "text", "dy": 20, "fontSize": 12, "fontWeight": "bold"}
                | {"color": GREY, "align": "center"},
                "encoding": {"text": {"field": "label"}},
            },
        ],
    }


def _x(text: Text) -> dict[str, Any]:
    values = [1, 2, 5, 10, 25, 50, 100, 200, 500, 1000]
    return {
        "field": "cap",
        "type": "quantitative",
        "title": text("step.sweep_axis"),
        "scale": {"type": "log", "domain": [0.8, 1250]},
        "axis": {"values": values, "format": "~r", "grid": False, "labelOverlap": True},
    }


def _y(text: Text, most_ms: float) -> dict[str, Any]:
    return {
        "field": "ms",
        "type": "quantitative",
        "title": f"{text('step.sweep_time')} (ms)",
        "scale": {"domain": [0, most_ms * 1.1]},
        "axis": {"tickCount": 5},
    }
