"""The page's pictures as one figure for files: the timelines of a step, and memory below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simcore.training.step import StepResult
from simcore.units import format_time
from views.figure_words import lettering
from views.step.chart import KINDS, Lane, gpu_name, lane_of, seen_apart, ticks
from views.step.memory import PARTS, bar_name, parts_of
from views.step.runs import StepChoice
from views.step.words import fullest, gigabytes, name_of, time_words
from views.text import Text, load_text

ENGLISH = load_text("en")
# As on the page (step.css) in its light theme: the colour of a kind, and of its pattern.
STYLES: dict[str, tuple[str, str, str]] = {
    "forward": ("#a9cbe6", "#a9cbe6", ""),
    "backward": ("#5b93c4", "#6ea2cf", "---"),
    "optimizer": ("#58b795", "#2f9872", "|||"),
    "copy": ("#d9a3c3", "#b9709b", "\\\\\\"),
    "exposed": ("#bf5000", "#96400a", "///"),
    "hidden": ("#c9ced3", "#c9ced3", ""),
    "served": ("#5f646a", "#5f646a", ""),
    "held": ("#ffffff", "#8a949d", "..."),
    "wait": ("#ffffff", "#e9b995", "///"),
    "parameters": ("#4a8bc2", "#4a8bc2", ""),
    "gradients": ("#e3aa4e", "#c98a1e", "---"),
    "buckets": ("#c98a1e", "#96640f", "///"),
    "activations": ("#c9ced3", "#8a949d", "..."),
    "data": ("#d9a3c3", "#b9709b", "\\\\\\"),
}
_WIDTH = 900  # as if so many pixels wide: which bars are seen apart


def step_figure(choice: StepChoice, results: Sequence[StepResult], text: Text = ENGLISH) -> Figure:
    """A panel for each strategy, all on one clock, and one for the memory of all.

    >>> from views.step.runs import run_step
    >>> choice = StepChoice("resnet50", "V100 16GB", 64, 4)
    >>> figure = step_figure(choice, [run_step(choice, name) for name in ("ddp", "dp")])
    >>> [axes.get_title(loc="left") for axes in figure.axes]  # doctest: +ELLIPSIS
    ['DDP: 68.6 ms', 'DataParallel: ...', 'Does it fit in memory?']
    """
    lanes = [lane_of(result) for result in results]
    heights = [0.9 + 0.28 * sum(len(gpu.rows) for gpu in lane.gpus) for lane in lanes]
    heights.append(1.1 + 0.32 * len(results))
    figure = Figure(figsize=(11, sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    whole_s = max(lane.shown_s for lane in lanes)
    with lettering(figure, text) as words:
        for lane, axes in zip(lanes, panels, strict=False):
            timeline(lane, whole_s, axes, words)
        memory(choice, results, panels[-1], words)
    return figure


def timeline(lane: Lane, whole_s: float, axes: Axes, text: Text = ENGLISH) -> None:
    """What the GPUs of a step do, a row for each stream; the clock ends at ``whole_s``."""
    result = lane.result
    names: list[str] = []
    kinds: set[str] = set()
    for gpu in lane.gpus:
        for row in gpu.rows:
            for bar in seen_apart(row.bars, _WIDTH / whole_s):
                start_s = bar.start_s - lane.from_s
                _bar(axes, bar.kind, len(names), 1e3 * start_s, 1e3 * bar.duration_s)
                if bar.duration_s * _WIDTH > 3 * whole_s:  # wide enough to be told from the next
                    low, high = len(names) - 0.4, len(names) + 0.4
                    axes.vlines(1e3 * start_s, low, high, "white", linewidth=0.7)
                kinds.add(bar.kind)
            names.append(f"{gpu_name(gpu, result, text)} · {text(f'step.row.{row.stream}')}")
    axes.axvline(1e3 * lane.shown_s, color="black", linewidth=1)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1e3 * whole_s)
    marks_s = ticks(whole_s, 9)
    axes.set_xticks([1e3 * t for t in marks_s], [format_time(t) for t in marks_s])
    time, exposed = map(time_words, (result.time_s, result.exposed_communication_s))
    title = text("step.lane_title", name=name_of(result.strategy, text), time=time)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_title(text("step.lane_detail", exposed=exposed), loc="right", fontsize=9)
    _legend(axes, {k: text(f"step.kind.{k}") for k in KINDS if k in kinds})


def memory(
    choice: StepChoice, results: Sequence[StepResult], axes: Axes, text: Text = ENGLISH
) -> None:
    """The fullest GPU of each strategy, by what its memory is for, and what the card has."""
    held = [parts_of(fullest(result)[1]) for result in results]
    for place, parts in enumerate(held):
        at = 0
        for name, nbytes in parts.items():
            if nbytes:
                _bar(axes, name, place, at, nbytes)
            at += nbytes
    has = choice.card.memory_bytes
    most = 1.02 * max(has, *(sum(parts.values()) for parts in held))
    axes.axvline(has, color="black", linewidth=1.5, linestyle="--")
    card = text("step.memory_card", gpu=choice.gpu, has=gigabytes(has))
    axes.set_title(text("step.memory"), loc="left", fontsize=10)
    axes.set_title(f"┆ {card}", loc="right", fontsize=9)
    axes.set_yticks(range(len(results)), [bar_name(one, text) for one in results], fontsize=8)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.set_xlim(0, most)
    marks = ticks(most, 9)
    axes.set_xticks(marks, [gigabytes(mark) if mark else "0" for mark in marks])
    present = [name for name in PARTS if any(parts[name] for parts in held)]
    _legend(axes, {name: text(f"step.memory.{name}") for name in present})


def _bar(axes: Axes, kind: str, row: int, start: float, length: float) -> None:
    colour, lines, hatch = STYLES[kind]
    style: dict[str, Any] = {"color": colour, "edgecolor": lines, "hatch": hatch, "linewidth": 0.0}
    axes.barh(row, length, height=0.8, left=start, **style)


def _legend(axes: Axes, kinds: dict[str, str]) -> None:
    """Below the axis, where it hides nothing."""
    samples = [
        Patch(facecolor=face, edgecolor=lines, hatch=hatch, label=kinds[kind])
        for kind in kinds
        for face, lines, hatch in (STYLES[kind],)
    ]
    look: dict[str, Any] = {"fontsize": 8, "ncols": len(samples), "frameon": False}
    axes.legend(handles=samples, loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=2.6, **look)
