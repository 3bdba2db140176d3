"""Static figures of traces, for notebooks, reports and downloads. Matplotlib, no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simcore.schedule import IntArray
from simcore.trace import Lane, Trace
from simcore.units import format_time
from views.comparison import binary_bytes, binary_unit
from views.figure_words import lettering
from views.text import Text, load_text
from views.traffic import Traffic, title

# Okabe & Ito, as in the player: adding, keeping, and what a rank receives.
ADDED, KEPT = "#0072B2", "#009E73"
BUSIEST = "#D55E00"
ROW = 0.38  # height of a bar; sends above the rank's line, receives below
ENGLISH = load_text("en")


def _name(trace: Trace, text: Text) -> str:
    return text.phrases.get(f"strategy.{trace.name}", trace.name)


def _source(trace: Trace, text: Text) -> str:
    return text(f"figure.{trace.source.value}")


def _gpus(count: int, text: Text) -> list[str]:
    return [text("figure.gpu", rank=rank) for rank in range(count)]


def gantt(trace: Trace, axes: Axes, text: Text = ENGLISH) -> None:
    """Who sends (above) and receives (below) when; hatched is what the receiver keeps as it is.

    >>> from simcore import build_schedule, simulate, uniform
    >>> axes = Figure().subplots()
    >>> gantt(simulate(build_schedule("ring", 3), uniform(3, 1e6), elements=3000).trace, axes)
    >>> len(axes.patches), axes.get_xlabel()
    (24, 'Time in ms')
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
    with lettering(axes, text) as words:
        axes.set_yticks(range(trace.n), _gpus(trace.n, words))
        axes.invert_yaxis()
        axes.set_xlabel(words("figure.time_ms"))
        run = {"name": _name(trace, words), "source": _source(trace, words)}
        axes.set_title(words("figure.trace", **run, time=format_time(trace.time_s)))


def volumes(traces: Sequence[Trace], axes: Axes, text: Text = ENGLISH) -> None:
    """Bytes sent per GPU, one group of bars per trace.

    >>> from simcore import build_schedule, simulate, uniform
    >>> axes = Figure().subplots()
    >>> runs = [simulate(build_schedule(a, 3), uniform(3, 1e6), 3000) for a in ("ps", "ring")]
    >>> volumes([run.trace for run in runs], axes)
    >>> [round(float(bar.get_height()), 3) for bar in axes.patches]
    [23.438, 11.719, 11.719, 15.625, 15.625, 15.625]
    """
    colours, hatches = (BUSIEST, "#E69F00", ADDED, KEPT), ("", "////", "....", "xx")
    width = 0.8 / len(traces)
    unit, factor = binary_unit(max(int(trace.sent_bytes.max()) for trace in traces))
    with lettering(axes, text) as words:
        for number, trace in enumerate(traces):
            place = np.arange(trace.n) + (number - (len(traces) - 1) / 2) * width
            axes.bar(
                place,
                trace.sent_bytes / factor,
                width,
                color=colours[number % len(colours)],
                hatch=hatches[number % len(hatches)],
                edgecolor="white",
                label=f"{_name(trace, words)} ({_source(trace, words)})",
            )
        axes.set_xticks(range(traces[0].n), _gpus(traces[0].n, words))
        axes.set_ylabel(words("figure.sent", unit=unit))
        axes.legend()


def pair_bytes(trace: Trace) -> IntArray:
    """Payload from each rank (row) to each other one (column), shape ``(n, n)``.

    >>> from simcore import build_schedule, simulate, uniform
    >>> pair_bytes(simulate(build_schedule("ps", 3), uniform(3, 1e6), 3000).trace).tolist()
    [[0, 12000, 12000], [12000, 0, 0], [12000, 0, 0]]
    """
    found = np.zeros((trace.n, trace.n), np.int64)
    sends = trace.spans.lane == Lane.SEND
    where = trace.spans.rank[sends], trace.spans.peer[sends]
    np.add.at(found, where, trace.spans.nbytes[sends])
    return found


def heat_map(trace: Trace, axes: Axes, text: Text = ENGLISH) -> None:
    """Bytes from each GPU (down) to each other one (across), with numbers where they fit."""
    found = pair_bytes(trace)
    unit, factor = binary_unit(int(found.max()))
    shown = found / factor
    image = axes.imshow(shown, cmap="Blues", vmin=0)
    assert isinstance(axes.figure, Figure)
    axes.figure.colorbar(image, ax=axes, label=unit)
    if trace.n <= 12:
        for src, dst in np.argwhere(found > 0):
            value = shown[src, dst]
            ink = "white" if value > 0.55 * shown.max() else "black"
            axes.text(dst, src, f"{value:.3g}", ha="center", va="center", color=ink, fontsize=9)
    with lettering(axes, text) as words:
        ticks = range(0, trace.n, -(-trace.n // 16))
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_yticks(ticks, map(str, ticks))
        axes.set_xlabel(words("figure.receiver"))
        axes.set_ylabel(words("figure.sender"))
        total = binary_bytes(int(trace.sent_bytes.sum()))
        axes.set_title(words("figure.heat", name=_name(trace, words), total=total))


def ports(traffic: Traffic, most: int, axes: Axes, text: Text = ENGLISH) -> None:
    """What each port receives (to the left, hatched) and sends (to the right); orange: busiest.

    Panels that share ``most``, the largest number of bytes, share a unit and a scale.
    """
    trace, workers = traffic.trace, traffic.schedule.workers
    both = np.sort(np.concatenate([trace.received_bytes, trace.sent_bytes]))
    usual = both[len(both) // 2]
    unit, factor = binary_unit(most)
    for way, sign in ((trace.received_bytes, -1), (trace.sent_bytes, 1)):
        busiest = (way > 0.999 * traffic.busiest_bytes) & (way > 1.02 * usual)
        axes.barh(
            np.arange(trace.n),
            sign * way / factor,
            color=[BUSIEST if hot else ADDED for hot in busiest],
            alpha=0.6 if sign < 0 else 1.0,
            hatch="////" if sign < 0 else "",
            edgecolor="white",
        )
    with lettering(axes, text) as words:
        names = [
            words("figure.gpu", rank=rank)
            if rank < workers
            else words("figure.server", rank=rank - workers)
            for rank in range(trace.n)
        ]
        axes.set_yticks(range(trace.n), names, fontsize=7 if trace.n > 8 else 9)
        axes.invert_yaxis()
        axes.axvline(0, color="black", linewidth=0.8)
        axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
        axes.set_xlabel(f"← {words('traffic.in')}, {unit} · {words('traffic.out')}, {unit} →")
        axes.set_title(title(traffic, words), fontsize=10)
        axes.set_xlim(-1.05 * most / factor, 1.05 * most / factor)


def all_ports(found: Sequence[Traffic], text: Text = ENGLISH) -> Figure:
    """A panel for every algorithm of *Traffic*, on one scale."""
    columns = 3
    rows = -(-len(found) // columns)
    ranks = max(traffic.trace.n for traffic in found)
    figure = Figure(figsize=(12, rows * (1.4 + 0.16 * ranks)), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    most = max(traffic.busiest_bytes for traffic in found)
    for traffic, axes in zip(found, panels, strict=False):
        ports(traffic, most, axes, text)
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    return figure
