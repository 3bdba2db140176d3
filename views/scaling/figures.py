"""Static figures of *Scaling*: its curves, its map, its pieces. Matplotlib, no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from simcore.trace import Source
from simcore.units import format_time
from views.figure_words import lettering
from views.line_styles import COLOURS, DASHES, GREY, HATCHES, SHAPES
from views.scaling import winners as winners_map
from views.scaling.curves import AXES, Scaling, place, stretches
from views.scaling.pieces import Pieces, size_of_one
from views.scaling.rows import Point
from views.scaling.winners import Winners
from views.scaling.winners_regions import bands, roomiest
from views.text import Text, load_text
from views.vega import time_ticks

ENGLISH = load_text("en")
MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle-up": "^",
    "triangle-down": "v",
    "triangle-right": ">",
    "triangle-left": "<",
    "diamond": "D",
    "cross": "P",
    "stroke": "_",
}
STAR = (4, 1, 0)  # Matplotlib's star with four points


def scaling_curves(
    scaling: Scaling, axes: Axes, points: Sequence[Point] = (), text: Text = ENGLISH
) -> None:
    """Time along one axis: lines, lower bound, where the fastest changes, what was measured.

    >>> from matplotlib.figure import Figure
    >>> from views.race import Setting
    >>> axes = Figure().subplots()
    >>> scaling_curves(Scaling("size", ("ring", "ps"), Setting(8, 0, 3.125e9, 20e-6)), axes)
    >>> [line.get_label() for line in axes.lines if line.get_label()[0] != "_"]
    ['Ring', 'Central server']
    """
    xs = scaling.xs
    bounds = [scaling.bound_s(x) for x in xs]
    longest = max(scaling.time_s(name, x) for name in scaling.lines for x in xs)
    with lettering(axes, text) as words:
        for name in scaling.lines:
            axes.plot(
                xs,
                [scaling.time_s(name, x) for x in xs],
                color=COLOURS[name],
                marker=MARKERS.get(SHAPES[name], STAR),
                markersize=5,
                label=words(f"strategy.{name}"),
                linestyle=_dashes(DASHES[name]),
            )
        for part in stretches(scaling)[:-1]:
            axes.axvline(part.end, color=GREY, linestyle=":", linewidth=1)
            axes.annotate(
                place(scaling.axis, part.end),
                (part.end, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -3),
                textcoords="offset points",
                va="top",
                fontsize=8,
                color="#505860",
            )
        _measured(points, axes)
        _time_scale(axes, min(bounds), longest, words)
        _fill_bound(axes, xs, bounds, words)
        _place_scale(axes, scaling.axis, xs, words)
        axes.set_xlim(xs[0], xs[-1])
        axes.legend(fontsize=9)


def _dashes(dash: Sequence[int]) -> Any:
    """As on the page: lengths in points, whatever the line's width."""
    return "-" if dash[1] == 0 else (0, [length / 1.5 for length in dash])


def _measured(points: Sequence[Point], axes: Axes) -> None:
    for point in points:
        full = point.record.source == Source.REPLAYED.value
        axes.plot(
            [point.x],
            [point.record.median_s],
            marker="D",
            markersize=8 if full else 12,
            markerfacecolor=COLOURS[point.name] if full else "none",
            markeredgecolor=COLOURS[point.name],
            linestyle="none",
            clip_on=False,
            label=f"_{point.record.source}",
        )


def _time_scale(axes: Axes, least_s: float, most_s: float, words: Text) -> None:
    low, high = 0.6 * least_s, 1.6 * most_s
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    ticks = time_ticks(low, high)
    axes.set_yticks(ticks, [format_time(tick) for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_ylabel(words("scaling.time"))


def _fill_bound(axes: Axes, xs: Sequence[float], bounds: Sequence[float], words: Text) -> None:
    label = words("scaling.bound")
    floor = axes.get_ylim()[0]
    axes.fill_between(xs, bounds, floor, color=GREY, alpha=0.25, linewidth=0, label=label)


def _place_scale(axes: Axes, axis: str, places: Sequence[float], words: Text) -> None:
    axes.set_xscale("log")
    axes.set_xticks(places, [place(axis, x) for x in places], fontsize=8)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(words(f"scaling.axis_{axis}"))


def winner_map(winners: Winners, axes: Axes, text: Text = ENGLISH) -> None:
    """Which algorithm wins where: a colour, a hatch and a name for each region.

    >>> from matplotlib.figure import Figure
    >>> from views.race import Setting
    >>> axes = Figure().subplots()
    >>> winner_map(Winners("latency", "size", ("ring", "ps"), Setting(8, 0, 3.125e9)), axes)
    >>> [label.get_text() for label in axes.texts]
    ['Ring', 'Central server']
    """
    found, cells = winners_map.rows(winners), winners_map.cells(winners)
    for band in bands(winners, found):
        axes.add_patch(
            Rectangle(
                (band.begin, band.low),
                band.end - band.begin,
                band.high - band.low,
                facecolor=_pale(COLOURS[band.name]),
                edgecolor=COLOURS[band.name],
                hatch=HATCHES[band.name],
                linewidth=0,
            )
        )
    with lettering(axes, text) as words:
        for names in dict.fromkeys(cell.names for cell in cells):
            spot = roomiest(winners, cells, names)
            title = winners_map.region_title(names, words)
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2}
            axes.text(spot.x, spot.y, title, ha="center", va="center", fontsize=9, bbox=box)
        _place_scale(axes, winners.across, _labelled(winners.across, winners.xs), words)
        axes.set_yscale("log")
        heights = winners.ys if winners.up == "gpus" else _labelled(winners.up, winners.ys)
        axes.set_yticks(heights, [place(winners.up, y) for y in heights])
        axes.set_yticks([], minor=True)
        axes.set_ylabel(words(f"scaling.axis_{winners.up}"))
        axes.set_xlim(winners.xs[0], winners.xs[-1])
        axes.set_ylim(found[0].low, found[-1].high)
        samples = [
            Patch(
                facecolor=_pale(COLOURS[name]),
                edgecolor=COLOURS[name],
                hatch=HATCHES[name],
                label=words(f"strategy.{name}"),
            )
            for name in winners.lines
        ]
        axes.legend(
            handles=samples, fontsize=9, loc="upper left", bbox_to_anchor=(0, -0.14), ncols=4
        )


def _pale(colour: str) -> tuple[float, float, float]:
    """Half of a colour on white."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return tuple((255 + part) / 510 for part in (red, green, blue))  # type: ignore[return-value]


def _labelled(axis: str, places: Sequence[float]) -> list[float]:
    """Round places of an axis between the ends of ``places``."""
    inside = [x for x in AXES[axis] if places[0] <= x <= places[-1]]
    return inside[::2] if axis == "latency" else inside


def pieces_curve(pieces: Pieces, axes: Axes, text: Text = ENGLISH) -> None:
    """Time against pieces, with its two parts, the bound, and the best number marked."""
    counts = np.array(sorted({*pieces.pieces, pieces.best}), np.float64)
    curves = {
        "total": (pieces.time_s(counts), "#0072B2", "-", "o"),
        "sends": (pieces.sends_s(counts), "#E69F00", "--", "v"),
        "waits": (pieces.waits_s(counts), "#CC79A7", ":", "^"),
    }
    shown = curves if pieces.at.latency_s else {"total": curves["total"]}
    with lettering(axes, text) as words:
        for name, (times, colour, style, marker) in shown.items():
            label = words(f"pieces.{name}")
            axes.plot(
                counts, times, color=colour, linestyle=style, marker=marker, ms=4, label=label
            )
        least = min(pieces.bound_s, *(float(times.min()) for times, *_ in shown.values()))
        _time_scale(axes, least, float(curves["total"][0].max()), words)
        _fill_bound(axes, [1, pieces.most], [pieces.bound_s] * 2, words)
        axes.axvline(pieces.best, color=GREY, linestyle=":", linewidth=1)
        one = size_of_one(pieces, pieces.best)
        axes.set_title(words("pieces.optimum", best=pieces.best, one=one), fontsize=10)
        axes.set_xscale("log")
        ticks = [4**power for power in range(7) if 4**power <= pieces.most]
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_xticks([], minor=True)
        axes.set_xlim(1, pieces.most)
        axes.set_xlabel(words("pieces.axis"))
        axes.legend(fontsize=9)
