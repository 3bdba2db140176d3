"""The figures of a validation's report: predicted against measured, and the errors. Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simcore.measured.cells import Cell
from simcore.measured.validation import Validation
from simcore.units import format_time
from views.figure_words import svg
from views.line_styles import COLOURS, GREY
from views.vega import time_ticks

BANDS = (0.02, 0.05, 0.10)
_MARKERS = {
    "ring": "o",
    "ps": "s",
    "ps-sharded": "^",
    "ps-dedicated": "D",
    "dp": "P",
    "tree": "v",
    "halving-doubling": "<",
    "pairwise": "_",
    "hierarchical": "*",
}
_INK = "#123456"  # stands for the page's own colour of text


def errors_figure(validation: Validation) -> Figure:
    """Both panels."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    predicted_against_measured(validation.held_out, left)
    errors_by_name(validation.held_out, right)
    return figure


def predicted_against_measured(cells: Sequence[Cell], axes: Axes) -> None:
    """A mark for each cell on log axes, with bands of ±2, 5 and 10 % around what is exact."""
    axes.set_title("Predicted against measured, held-out cells", fontsize=11)
    axes.set_xlabel("measured")
    axes.set_ylabel("simulated")
    if not cells:
        return
    times = [t for cell in cells for t in (cell.measured_s, cell.simulated_s or cell.measured_s)]
    low, high = 0.8 * min(times), 1.25 * max(times)
    for band in BANDS:
        below, above = ([x * (1 + sign * band) for x in (low, high)] for sign in (-1, 1))
        axes.fill_between([low, high], below, above, color=GREY, alpha=0.16, linewidth=0)
    axes.plot([low, high], [low, high], color=GREY, linewidth=1)
    for name in _names(cells):
        mine = [cell for cell in cells if cell.name == name]
        axes.plot(
            [cell.measured_s for cell in mine],
            [cell.simulated_s or 0.0 for cell in mine],
            linestyle="none",
            marker=_MARKERS.get(name, "X"),
            markersize=6,
            markerfacecolor="none",
            markeredgecolor=COLOURS.get(name, GREY),
            label=name,
        )
    for axis, set_scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        set_scale("log")
        ticks = time_ticks(low, high)
        axis.set_ticks(ticks, [format_time(tick) for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.legend(fontsize=8, title="grey: ±2, 5 and 10 %", title_fontsize=8)


def errors_by_name(cells: Sequence[Cell], axes: Axes) -> None:
    """Every cell's error beside its algorithm's name; a bar at the median."""
    axes.set_title("Error of the simulated time, by algorithm", fontsize=11)
    axes.set_xlabel("(simulated − measured) / measured, %")
    names = _names(cells)
    for band in BANDS:
        axes.axvspan(-100 * band, 100 * band, color=GREY, alpha=0.16, linewidth=0)
    axes.axvline(0, color=GREY, linewidth=1)
    for row, name in enumerate(names):
        errors = sorted(100 * (cell.error or 0.0) for cell in cells if cell.name == name)
        spread = [row + 0.5 * (place + 0.5) / len(errors) - 0.25 for place in range(len(errors))]
        colour = COLOURS.get(name, GREY)
        axes.plot(
            errors,
            spread,
            linestyle="none",
            marker=_MARKERS.get(name, "X"),
            markersize=5,
            markerfacecolor="none",
            markeredgecolor=colour,
        )
        middle = median(errors)
        axes.plot([middle, middle], [row - 0.35, row + 0.35], color=colour, linewidth=2)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()


def _names(cells: Sequence[Cell]) -> list[str]:
    found = {cell.name for cell in cells}
    return [name for name in COLOURS if name in found] + sorted(found - COLOURS.keys())


def svg_for_page(validation: Validation) -> str:
    """The figure for inside an HTML document, with the document's colour of text.

    >>> from simcore.measured.validation import Validation
    >>> about = {"versions": {}, "machine": {}, "command": "", "date": ""}
    >>> text = svg_for_page(Validation((), {}, {}, about))
    >>> text[:4], "currentColor" in text, "123456" in text
    ('<svg', True, False)
    """
    figure = errors_figure(validation)
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
        axes.tick_params(which="both", colors=_INK)
        for label in (axes.xaxis.label, axes.yaxis.label, axes.title):
            label.set_color(_INK)
        for edge in axes.spines.values():
            edge.set_color(_INK)
        if legend := axes.get_legend():
            legend.get_frame().set_alpha(0)
            for words in (*legend.get_texts(), legend.get_title()):
                words.set_color(_INK)
    text = svg(figure).replace(_INK, "currentColor")
    return text[text.index("<svg") :]
