"""What the page's Vega-Lite charts share: logarithmic axes labelled with units; dark ground."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from views.line_styles import GREY, ON_DARK
from views.scaling.curves import place

_TIME_LABEL = (
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : "
    "datum.value >= 1e-3 ? format(datum.value * 1e3, '~r') + ' ms' : "
    "datum.value >= 1e-6 ? format(datum.value * 1e6, '~r') + ' µs' : "
    "format(datum.value * 1e9, '~r') + ' ns'"
)


def on_any_ground(spec: Any) -> Any:
    """The chart with colours that the ground decides: the browser knows which theme is chosen.

    >>> on_any_ground({"mark": {"color": "#0072B2"}, "data": {"values": ["#0072B2"]}})
    {'mark': {'color': {'expr': "luminance(background) < 0.2 ? '#56B4E9' : '#0072B2'"}}, \
'data': {'values': ['#0072B2']}}
    """
    if isinstance(spec, dict):
        if spec.get("field") == "colour" and spec["scale"] is None:  # colours stand in the data
            scale = {"domain": [*ON_DARK, GREY], "range": [*ON_DARK, GREY]}
            return on_any_ground({**spec, "scale": scale, "legend": None})
        kept = ("values", "domain")
        return {key: one if key in kept else on_any_ground(one) for key, one in spec.items()}
    if isinstance(spec, list):
        return [on_any_ground(one) for one in spec]
    if spec in ON_DARK:
        return {"expr": f"luminance(background) < 0.2 ? '{ON_DARK[spec]}' : '{spec}'"}
    return spec


def number(axis: str, x: float) -> float:
    """What is plotted: latencies in µs, because labels are looked up by the number's text."""
    return float(f"{x * (1e6 if axis == 'latency' else 1.0):.12g}")


def place_axis(
    axis: str, ends: tuple[float, float], ticks: Sequence[float], title: str
) -> dict[str, Any]:
    """An axis of GPUs, sizes, bandwidths or latencies, as an encoding without its field."""
    values = [number(axis, x) for x in ticks]
    labels = ", ".join(
        f"'{value:.12g}': '{place(axis, x)}'" for value, x in zip(values, ticks, strict=True)
    )
    domain = [number(axis, x) for x in ends]
    return {
        "type": "quantitative",
        "scale": {"type": "log", "nice": False, "domain": domain},
        "title": title,
        "axis": {
            "values": values,
            "labelExpr": f"{{{labels}}}[datum.value]",
            "labelOverlap": "greedy",
            "grid": False,
        },
    }


def time_axis(low_s: float, high_s: float, title: str) -> dict[str, Any]:
    """An axis of times, with a little air at both ends, as an encoding of ``time_s``."""
    domain = [0.6 * low_s, 1.6 * high_s]
    return {
        "field": "time_s",
        "type": "quantitative",
        "stack": None,
        "scale": {"type": "log", "nice": False, "domain": domain},
        "title": title,
        "axis": {"labelExpr": _TIME_LABEL, "values": time_ticks(*domain)},
    }


def time_ticks(low_s: float, high_s: float) -> list[float]:
    """Powers of ten, and where those are few also twice and five times them.

    >>> time_ticks(2e-5, 3e-2), time_ticks(0.3, 0.9)
    ([0.0001, 0.001, 0.01], [0.5])
    """
    exponents = range(math.floor(math.log10(low_s)), math.ceil(math.log10(high_s)))
    tens = [float(f"1e{power}") for power in exponents]
    ticks = [ten for ten in tens if low_s <= ten <= high_s]
    if len(ticks) < 3:
        ticks = [float(f"{m * ten:.1g}") for ten in tens for m in (1, 2, 5)]
    return [tick for tick in ticks if low_s <= tick <= high_s]
