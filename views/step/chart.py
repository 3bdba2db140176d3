"""The timeline of a step: strategies above each other on one time axis, as SVG.

Rows come from ``step_rows``. Bars too narrow to be seen apart become one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from simcore.training.step import StepResult
from simcore.units import format_bytes, format_time
from views.step.rows import Bar, GpuRows, Row, all_rows, shown_from_s
from views.step.svg import SHEETS, Sheet, box, legend, marked, picture, words
from views.step.tasks import task_words
from views.step.words import name_of, time_words
from views.text import Text

KINDS = ("forward", "backward", "optimizer", "copy", "exposed", "hidden", "served", "held", "wait")
_HEIGHTS = {"compute": 22, "server": 14}
_NARROWEST = 2.5  # of a bar that is seen by itself


@dataclass(frozen=True, slots=True)
class Lane:
    """A run as it is drawn: its time begins at ``from_s`` of the plan."""

    result: StepResult
    gpus: tuple[GpuRows, ...]
    from_s: float

    @property
    def shown_s(self) -> float:
        """How much time is drawn."""
        return self.result.run.time_s - self.from_s


def lane_of(result: StepResult) -> Lane:
    """Rows and where they begin."""
    return Lane(result, tuple(all_rows(result)), shown_from_s(result))


def timeline_html(lanes: Sequence[Lane], text: Text) -> str:
    """Legend and both widths of the picture; a style sheet shows one."""
    present = {
        bar.kind for lane in lanes for gpu in lane.gpus for row in gpu.rows for bar in row.bars
    }
    kinds = {kind: text(f"step.kind.{kind}") for kind in KINDS if kind in present}
    return legend(kinds) + "".join(timeline_svg(sheet, lanes, text) for sheet in SHEETS)


def describe(lanes: Sequence[Lane], text: Text) -> str:
    """The picture in words."""
    said = [
        text(
            "step.chart_lane",
            name=name_of(lane.result.strategy, text),
            time=time_words(lane.result.time_s),
            compute=time_words(lane.result.compute_s),
            exposed=time_words(lane.result.exposed_communication_s),
        )
        for lane in lanes
    ]
    return text("step.chart_description", lanes=text.joined(said))


def timeline_svg(sheet: Sheet, lanes: Sequence[Lane], text: Text) -> str:
    """The picture in one width."""
    whole_s = max(lane.shown_s for lane in lanes)
    parts, y = [], 6.0
    for lane in lanes:
        drawn, y = _lane(sheet, lane, whole_s, y, text)
        parts.append(drawn)
    axis = _axis(sheet, whole_s, y)
    return picture(sheet, y + 24, describe(lanes, text), axis + "".join(parts))


def _lane(sheet: Sheet, lane: Lane, whole_s: float, y: float, text: Text) -> tuple[str, float]:
    result = lane.result
    title = text(
        "step.lane_title", name=name_of(result.strategy, text), time=time_words(result.time_s)
    )
    detail = text("step.lane_detail", exposed=time_words(result.exposed_communication_s))
    y += 14
    parts = [words(0, y, title, "title"), words(sheet.width, y, detail, "detail", "end")]
    if result.steps > 1:
        y += 15
        mean = time_words(result.time_s)
        parts.append(words(0, y, text("step.last_of", steps=result.steps, time=mean), "quiet"))
    y += 4
    first_y = y
    for gpu in lane.gpus:
        y += 15
        parts.append(words(0, y, gpu_name(gpu, result, text), "quiet"))
        y += 6
        for row in gpu.rows:
            height = _HEIGHTS.get(row.stream, 17)
            parts.append(_row(sheet, lane, row, whole_s, y, text))
            y += height + 3
        y += 2
    end = sheet.x(lane.shown_s / whole_s)
    parts.append(f'<path class="end" d="M{end:.2f} {first_y + 20:.1f}V{y + 1:.1f}"/>')
    return "".join(parts), y + 20


def gpu_name(gpu: GpuRows, result: StepResult, text: Text) -> str:
    """Who the rows stand for."""
    gpus = result.setting.gpus
    if gpu.rank >= gpus:
        count = len(gpu.ranks)
        return text("step.servers_alike", count=count) if count > 1 else text("step.server_one")
    if len(gpu.ranks) == gpus:
        return text("step.every_gpu")
    if len(gpu.ranks) == 1:
        return text("step.gpu_one", rank=gpu.rank)
    return text("step.gpu_alike", ranks=ranges(gpu.ranks))


def ranges(ranks: Sequence[int]) -> str:
    """Numbers in order, neighbours as ranges.

    >>> ranges((0, 2, 3, 4, 7))
    '0, 2–4, 7'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _row(sheet: Sheet, lane: Lane, row: Row, whole_s: float, y: float, text: Text) -> str:
    height = _HEIGHTS.get(row.stream, 17)
    scale = sheet.room / whole_s
    name = words(0, y + height / 2 + 4, text(f"step.row.{row.stream}"), "row")
    bars = seen_apart(row.bars, scale)
    drawn = []
    for bar, tip in ((bar, bar_tip(bar, lane.from_s, text)) for bar in bars):
        x = sheet.gutter + (bar.start_s - lane.from_s) * scale
        width = bar.duration_s * scale
        style = "bar" if width > 2 else "bar thin"
        drawn.append(marked(box(sheet, bar.kind, x, y, width, height), tip, style))
    labels = _labels(sheet, lane, row, scale, y + height / 2 + 4, text)
    return name + "".join(drawn) + labels


def seen_apart(bars: Sequence[Bar], scale: float) -> list[Bar]:
    """Bars side by side of one kind, each narrower than can be seen, become one.

    >>> two = [Bar("hidden", 0.0, 1.0, "push 0", 10), Bar("hidden", 1.0, 2.0, "push 1", 10)]
    >>> [(bar.label, bar.nbytes) for bar in seen_apart(two, scale=1.0)]
    [('push 0|push 1', 20)]
    >>> len(seen_apart(two, scale=100.0))
    2
    """
    found: list[Bar] = []
    for bar in sorted(bars, key=lambda bar: bar.start_s):
        last = found[-1] if found else None
        if (
            last is not None
            and last.kind == bar.kind
            and (bar.start_s - last.end_s) * scale < 0.6
            and bar.duration_s * scale < _NARROWEST
            and (last.duration_s * scale < _NARROWEST or "|" in last.label)
        ):
            both = f"{last.label}|{bar.label}"
            nbytes = last.nbytes + bar.nbytes
            whole = (last.part_of_s[0], bar.part_of_s[1])
            found[-1] = replace(last, end_s=bar.end_s, label=both, nbytes=nbytes, part_of_s=whole)
        else:
            found.append(bar)
    return found


def bar_tip(bar: Bar, from_s: float, text: Text) -> str:
    """The bar exactly."""
    if bar.kind == "wait":
        what = text("step.task.wait")
    else:
        first, *others = bar.label.split("|")
        what = task_words(first, text)
        if others:
            what = f"{what} … {task_words(others[-1], text)}"
    times = (bar.start_s - from_s, bar.end_s - from_s, bar.duration_s)
    start, end, length = map(format_time, times)
    tip = text("step.tip", what=what, start=start, end=end, length=length)
    if bar.nbytes:
        tip += text("step.tip_bytes", size=format_bytes(bar.nbytes))
    return tip + (text(f"step.tip_{bar.kind}") if bar.kind in ("exposed", "hidden") else "")


def _labels(sheet: Sheet, lane: Lane, row: Row, scale: float, y: float, text: Text) -> str:
    """On the widest stretch of each thing, where it fits."""
    stretches: dict[str, tuple[float, float, str]] = {}
    for label, start_s, end_s, kind in _stretches(row, text):
        x = sheet.gutter + (start_s - lane.from_s) * scale
        width = (end_s - start_s) * scale
        if sheet.fits(label, width) and width > stretches.get(label, (0.0, 0.0, ""))[1]:
            stretches[label] = (x, width, kind)
    return "".join(
        words(x + width / 2, y, label, f"on {kind}", "middle")
        for label, (x, width, kind) in stretches.items()
    )


def _stretches(row: Row, text: Text) -> list[tuple[str, float, float, str]]:
    """Compute: neighbours of one kind are one stretch, and so are idle ones. Network: each bar."""
    bars = sorted(row.bars, key=lambda bar: bar.start_s)
    if row.stream not in ("compute", "server"):
        return [
            (task_words(bar.label, text), bar.start_s, bar.end_s, bar.kind)
            for bar in bars
            if bar.kind in ("exposed", "hidden", "served")
        ]
    found: list[tuple[str, float, float, str]] = []
    for bar in bars:
        label = text(f"step.kind.{bar.kind}")
        joins = bool(found) and found[-1][3] == bar.kind and bar.start_s <= found[-1][2] + 1e-12
        start_s = found.pop()[1] if joins else bar.start_s
        found.append((label, start_s, bar.end_s, bar.kind))
    return found


def ticks(whole: float, most: int) -> list[float]:
    """Round places from 0, at most so many and as many as there can be.

    >>> ticks(0.162, 6)
    [0.0, 0.05, 0.1, 0.15]
    """
    power = 10.0 ** math.floor(math.log10(whole / most))
    step = next(f * power for f in (1, 2, 5, 10) if whole / (f * power) < most)
    return [round(i * step, 12) for i in range(int(whole / step * (1 + 1e-9)) + 1)]


def _axis(sheet: Sheet, whole_s: float, y: float) -> str:
    parts = []
    for t in ticks(whole_s, 7 if sheet.width > 500 else 4):
        x = sheet.x(t / whole_s)
        parts.append(f'<path class="grid" d="M{x:.2f} 26V{y:.1f}"/>')
        anchor = "middle" if x < sheet.width - 24 else "end"
        parts.append(words(x, y + 15, format_time(t), "tick", anchor))
    return "".join(parts)
