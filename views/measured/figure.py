"""The page's figure as a file: errors on the left, measured against simulated on the right."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simcore.measured.cells import Cell
from simcore.units import format_time
from views.figure_words import lettering
from views.line_styles import DASHES, GREY
from views.measured.chart import BANDS, predicted, state, style, unstyled
from views.measured.overlay import Overlay, curves
from views.measured.sets import Study, is_replay, name_words
from views.scaling.curves import place
from views.scaling.figures import MARKERS, STAR
from views.text import Text, load_text
from views.vega import time_ticks

ENGLISH = load_text("en")


def measured_figure(study: Study, overlay: Overlay | None, text: Text = ENGLISH) -> Figure:
    """Both pictures of the page; only the errors where no collective was measured.

    >>> from views.measured.sets import RECORDS, shipped
    >>> len(measured_figure(shipped(RECORDS), Overlay("gpus", 2**23, "200Mbit/s")).axes)
    2
    """
    points = overlay.points(study) if overlay else []
    names = {name_words(cell, text) for cell in predicted(study)}
    height = max(4.0, 1.2 + 0.3 * len(names))
    figure = Figure(figsize=(12 if points else 7, height), layout="constrained")
    panels = figure.subplots(1, 2 if points else 1, squeeze=False)[0]
    residuals(study, panels[0], text)
    if overlay and points:
        times(study, overlay, panels[1], text)
    return figure


def _look(cell: Cell, others: list[str]) -> dict[str, Any]:
    colour, shape = style(cell.name, others)
    if state(cell) != "counted":
        colour = GREY
    full = is_replay(cell) and state(cell) != "doubtful"
    marker: Any = "x" if state(cell) == "doubtful" else MARKERS.get(shape, STAR)
    face = colour if full or marker in ("x", "_") else "none"
    return {
        "marker": marker,
        "markeredgecolor": colour,
        "markerfacecolor": face,
        "markersize": 7,
        "linestyle": "none",
    }


def residuals(study: Study, axes: Axes, text: Text = ENGLISH) -> None:
    """Each cell's error in its algorithm's row, on bands of ±2 % and ±5 %."""
    cells, others = predicted(study), unstyled(predicted(study))
    with lettering(axes, text) as words:
        rows = list(dict.fromkeys(name_words(cell, words) for cell in cells))
        for half in BANDS:
            axes.axvspan(-100 * half, 100 * half, color=GREY, alpha=0.15, linewidth=0)
        axes.axvline(0, color=GREY, linewidth=1)
        for cell in cells:
            at = rows.index(name_words(cell, words))
            axes.plot([100 * (cell.error or 0.0)], [at], **_look(cell, others))
        reach = 100 * max([1.25 * BANDS[0], *(1.15 * abs(c.error or 0.0) for c in cells)])
        axes.set_xlim(-reach, reach)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(f"{words('measured.axis_error')} (%)")


def times(study: Study, overlay: Overlay, axes: Axes, text: Text = ENGLISH) -> None:
    """Simulated lines, and measured points on top of them."""
    points, others = overlay.points(study), unstyled(study.cells)
    with lettering(axes, text) as words:
        for curve in curves(study, overlay):
            dash = DASHES.get(curve.name, [1, 0])
            line: Any = "-" if dash[1] == 0 else (0, [length / 1.5 for length in dash])
            colour = style(curve.name, others)[0]
            axes.plot(curve.places, curve.times_s, color=colour, linestyle=line)
        labelled: set[str] = set()
        for cell in points:
            name = name_words(cell, words)
            label = f"_{name}" if name in labelled else name
            labelled.add(name)
            axes.plot([overlay.x(cell)], [cell.measured_s], label=label, **_look(cell, others))
        xs = sorted({overlay.x(cell) for cell in points})
        axes.set_xscale("log")
        axes.set_xticks(xs, [place(overlay.axis, x) for x in xs])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(words(f"measured.axis_{overlay.axis}"))
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        ticks = time_ticks(low, high)
        axes.set_yticks(ticks, [format_time(tick) for tick in ticks])
        axes.set_yticks([], minor=True)
        axes.set_ylabel(words("scaling.time"))
        axes.legend(fontsize=8)
