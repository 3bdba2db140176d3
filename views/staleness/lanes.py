"""Who computes, pushes, pulls and waits in the middle of each mode's run, as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from simcore.schedule import Op
from simcore.trace import Lane
from simcore.units import format_time
from views.staleness.modes import Mode
from views.staleness.numbers import percent
from views.text import Text

KINDS = ("compute", "push", "pull", "wait")
ROUNDS = 3  # of the slowest mode
GRADIENTS_EACH = 8  # of the fastest: more bars cannot be told apart


def window_s(found: Sequence[Mode]) -> float:
    """How long the picture is: three rounds, or fewer where some get through many gradients."""
    workers = found[0].setting.workers

    def applied_s(mode: Mode, rounds: int) -> float:
        times = mode.run.updates.applied_s
        return float(times[min(rounds * workers, len(times)) - 1])

    rounds_s = max(applied_s(mode, ROUNDS) for mode in found)
    return min(rounds_s, *(applied_s(mode, GRADIENTS_EACH) for mode in found))


def lanes_html(found: Sequence[Mode], text: Text) -> str:
    """A legend, and a panel per mode, all on the same stretch of time."""
    legend = "".join(
        f'<span><i class="{kind}"></i>{escape(text(f"staleness.does_{kind}"))}</span>'
        for kind in KINDS
    )
    end_s = window_s(found)
    panels = "".join(_panel(mode, end_s, text) for mode in found)
    return f'<div class="lanes"><p>{legend}</p>{panels}</div>'


def _panel(mode: Mode, end_s: float, text: Text) -> str:
    shares = {
        name: percent(share, text)
        for name, share in zip(("compute", "move", "wait"), mode.shares, strict=True)
    }
    label = text("staleness.lane_label", mode=mode.title(text), time=format_time(end_s), **shares)
    rows = "".join(
        f'<div class="lane"><b>{escape(_name(mode, rank, text))}</b>'
        f"<div>{''.join(_bars(mode, rank, end_s))}</div></div>"
        for rank in range(mode.setting.workers)
    )
    applied_s = mode.run.updates.applied_s - _begin_s(mode, end_s)
    strokes = "".join(
        f'<u style="left:{100 * t / end_s:.2f}%"></u>' for t in applied_s if 0 <= t <= end_s
    )
    server = escape(text("staleness.server"))
    return (
        f'<section data-mode="{mode.name}"><h3>{escape(mode.title(text))}</h3>'
        f'<div role="img" aria-label="{escape(label)}">{rows}'
        f'<div class="lane server"><b>{server}</b><div>{strokes}</div></div></div></section>'
    )


def _name(mode: Mode, rank: int, text: Text) -> str:
    slow = mode.setting.straggler > 1 and rank == mode.setting.workers - 1
    return text("staleness.slow_worker" if slow else "staleness.worker", number=rank)


def _begin_s(mode: Mode, length_s: float) -> float:
    """Where that much of the middle of the run begins."""
    return max(0.0, (mode.run.time_s - length_s) / 2)


def _bars(mode: Mode, rank: int, end_s: float) -> list[str]:
    """What a worker does, and the waits in between."""
    bars, free_s = [], 0.0
    for start_s, stop_s, kind in _doings(mode, rank, _begin_s(mode, end_s)):
        if stop_s <= 0:
            continue
        if start_s > free_s + 1e-3 * end_s:
            bars.append(_bar(free_s, min(start_s, end_s), end_s, "wait"))
        if start_s >= end_s:
            return bars
        bars.append(_bar(max(start_s, 0.0), min(stop_s, end_s), end_s, kind))
        free_s = stop_s
    if free_s < end_s:  # held back by the bound until the run ended
        bars.append(_bar(free_s, end_s, end_s, "wait"))
    return bars


def _doings(mode: Mode, rank: int, begin_s: float) -> list[tuple[float, float, str]]:
    """Start, end and kind of all that a worker does, counted from ``begin_s``."""
    spans = mode.run.trace.spans
    pushes = (spans.lane == Lane.SEND) & (spans.op == Op.ADD)
    pulls = (spans.lane == Lane.RECEIVE) & (spans.op == Op.COPY)
    kinds = {"compute": spans.lane == Lane.COMPUTE, "push": pushes, "pull": pulls}
    found = []
    for kind, which in kinds.items():
        rows = np.flatnonzero(which & (spans.rank == rank))
        times = zip(spans.start_s[rows].tolist(), spans.end_s[rows].tolist(), strict=True)
        found += [(start_s - begin_s, stop_s - begin_s, kind) for start_s, stop_s in times]
    return sorted(found)


def _bar(start_s: float, stop_s: float, end_s: float, kind: str) -> str:
    left, width = 100 * start_s / end_s, 100 * (stop_s - start_s) / end_s
    return f'<i class="{kind}" style="left:{left:.2f}%;width:{width:.2f}%"></i>'
