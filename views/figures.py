"""Static figures of traces, for notebooks, reports and downloads. Matplotlib, no Streamlit."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from simcore.trace import Lane, Trace

# Okabe & Ito, as in the player: adding, keeping, and what a rank receives.
ADDED, KEPT = "#0072B2", "#009E73"
ROW = 0.38  # height of a bar; sends above the rank's line, receives below


def gantt(trace: Trace, axes: Axes) -> None:
    """Who sends (above) and receives (below) when; hatched is what the receiver keeps as it is.

    >>> from matplotlib.figure import Figure
    >>> from simcore import build_schedule, simulate, uniform
    >>> axes = Figure().subplots()
    >>> gantt(simulate(build_schedule("ring", 3), uniform(3, 1e6), elements=3000).trace, axes)
    >>> len(axes.patches), axes.get_xlabel()
    (24, 'time in ms')
    """
    spans = trace.spans
    for row in range(len(spans)):
        if spans.lane[row] == Lane.COMPUTE:
            continue
        sends = spans.lane[row] == Lane.SEND
        keeps = spans.op[row] == 0
        style: dict[str, Any] = {"hatch": "////"} if keeps else {}
        axes.barh(
            spans.rank[row] + (-ROW / 2 if sends else ROW / 2),
            (spans.end_s[row] - spans.start_s[row]) * 1e3,
            height=ROW,
            left=spans.start_s[row] * 1e3,
            color=KEPT if keeps else ADDED,
            alpha=1.0 if sends else 0.45,
            edgecolor="white",
            **style,
        )
    axes.set_yticks(range(trace.n), [f"GPU {rank}" for rank in range(trace.n)])
    axes.invert_yaxis()
    axes.set_xlabel("time in ms")
    axes.set_title(f"{trace.name}, {trace.source.value}: {trace.time_s * 1e3:.4g} ms")


def volumes(traces: list[Trace], axes: Axes) -> None:
    """Bytes sent per GPU, one group of bars per trace.

    >>> from matplotlib.figure import Figure
    >>> from simcore import build_schedule, simulate, uniform
    >>> axes = Figure().subplots()
    >>> runs = [simulate(build_schedule(a, 3), uniform(3, 1e6), 3000) for a in ("ps", "ring")]
    >>> volumes([run.trace for run in runs], axes)
    >>> [round(float(bar.get_height()), 3) for bar in axes.patches]
    [0.024, 0.012, 0.012, 0.016, 0.016, 0.016]
    """
    colours, hatches = ("#D55E00", "#E69F00", "#0072B2", "#009E73"), ("", "////", "....", "xx")
    width = 0.8 / len(traces)
    for number, trace in enumerate(traces):
        place = np.arange(trace.n) + (number - (len(traces) - 1) / 2) * width
        axes.bar(
            place,
            trace.sent_bytes / 1e6,
            width,
            color=colours[number % len(colours)],
            hatch=hatches[number % len(hatches)],
            edgecolor="white",
            label=f"{trace.name} ({trace.source.value})",
        )
    axes.set_xticks(range(traces[0].n), [f"GPU {rank}" for rank in range(traces[0].n)])
    axes.set_ylabel("sent, MB")
    axes.legend()
