"""The page's charts as one figure for files: losses above, ages of gradients below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simcore.units import format_time
from views.figure_words import lettering
from views.line_styles import GREY
from views.scaling.figures import MARKERS
from views.staleness.chart import COLOURS, DASHES, SHAPES, ages, loss_range, loss_ticks
from views.staleness.modes import Mode, superscript
from views.staleness.numbers import percent
from views.text import Text, load_text

ENGLISH = load_text("en")


def staleness_figure(found: Sequence[Mode], text: Text = ENGLISH) -> Figure:
    """Loss against time and against gradients; below, a histogram of ages for each mode."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(3, 2), squeeze=False)[:, 0]
    with lettering(figure, text) as words:
        for axes, axis in zip(above.subplots(1, 2), ("time", "gradients"), strict=True):
            losses(found, axis, axes, words)
        panels = below.subplots(1, len(found), sharey=True, squeeze=False)[0]
        below.suptitle(words("staleness.ages"), fontsize=10)
        for number, axes in enumerate(panels):
            histogram(found, number, axes, words)
    return figure


def losses(found: Sequence[Mode], axis: str, axes: Axes, text: Text = ENGLISH) -> None:
    """The loss of each mode against "time" or "gradients", marked where it meets the target."""
    low, high = loss_range(found)
    for mode in found:
        curve, name = mode.curve, mode.name
        dash = DASHES[name]
        line: Any = "-" if dash[1] == 0 else (0, [length / 1.5 for length in dash])
        # What diverges leaves the picture at the top, also where it is no number any more.
        values = np.where(np.isfinite(curve.loss), curve.loss, 1e300)
        look: dict[str, Any] = {
            "color": COLOURS[name],
            "linestyle": line,
            "label": mode.title(text),
        }
        axes.plot(_places(mode, axis), values, **look)
        if mode.reached_s is not None:
            at = int(np.flatnonzero(curve.loss <= mode.target)[0])
            place = _places(mode, axis)[at]
            shape = MARKERS[SHAPES[name]]
            axes.plot([place], [mode.target], shape, color=COLOURS[name], label=f"_{name}")
            label = format_time(place) if axis == "time" else f"{place:.0f}"
            near: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
            axes.annotate(label, (place, mode.target), (4, 5 + 10 * found.index(mode)), **near)
    axes.axhline(found[0].target, color=GREY, linestyle=":", linewidth=1)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    marks = loss_ticks(low, high)
    axes.set_yticks(marks, [loss_mark(mark) for mark in marks])
    axes.set_yticks([], minor=True)
    axes.set_xlim(left=0)
    axes.set_xlabel(text(f"staleness.axis_{axis}"))
    axes.set_ylabel(text(f"staleness.axis_loss_{found[0].setting.problem}"))
    axes.set_title(text(f"staleness.by_{axis}"), fontsize=10)
    axes.legend(fontsize=8)


def loss_mark(loss: float) -> str:
    """As on the page's axis: a power of ten is that alone.

    >>> loss_mark(0.01), loss_mark(1e-05)
    ('0.01', '10⁻⁵')
    """
    return f"{loss:g}" if 1e-3 <= loss < 1e4 else f"10{superscript(round(math.log10(loss)))}"


def _places(mode: Mode, axis: str) -> Any:
    return mode.curve.time_s if axis == "time" else mode.curve.gradients


def histogram(found: Sequence[Mode], number: int, axes: Axes, text: Text = ENGLISH) -> None:
    """Which part of one mode's gradients was how many updates old."""
    mode = found[number]
    width, most, shares = ages(found)
    middles = (np.arange(len(shares[number])) + 0.5) * width - 0.5
    axes.bar(middles, shares[number], 0.9 * width, color=COLOURS[mode.name])
    axes.set_xlim(-0.5, max(most, 1) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: percent(value, text))
    axes.set_xlabel(text("staleness.axis_age"))
    axes.set_title(mode.title(text), fontsize=9)
    if number == 0:
        axes.set_ylabel(text("staleness.axis_share"))
