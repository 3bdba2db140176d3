"""Measured points on simulated curves, along ranks or sizes, with the rest held fixed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from simcore.algorithms import build_schedule
from simcore.cluster import Cluster
from simcore.cluster_file import cluster_from_dict
from simcore.engine import simulate
from simcore.measured.cells import Cell
from simcore.schedule import Schedule
from simcore.units import format_time
from views.line_styles import COLOURS, DASHES
from views.measured.chart import drawn, state, style, unstyled
from views.measured.effort import Budget, effort_of
from views.measured.sets import Study, cell_words, is_replay, percent
from views.race import ITEM_BYTES
from views.scaling.curves import place
from views.text import Text
from views.vega import number, place_axis, time_axis

AXES = ("gpus", "size")
MOST_COST = 2048  # ranks × pieces of a schedule that is built for a curve


@dataclass(frozen=True, slots=True)
class Overlay:
    """What the reader picked: the axis, where the other one stands, the network, the lines."""

    axis: str
    fixed: int
    network: str | None
    lines: tuple[str, ...] = ()

    def x(self, cell: Cell) -> int:
        """The cell's place on the axis."""
        return cell.gpus if self.axis == "gpus" else cell.size_bytes

    def points(self, study: Study) -> list[Cell]:
        """The believable collectives there."""
        return [
            cell
            for cell in study.cells
            if cell.kind == "collective"
            and cell.believable
            and (cell.network, other(self.axis, cell)) == (self.network, self.fixed)
            and (not self.lines or cell.name in self.lines)
        ]


def other(axis: str, cell: Cell) -> int:
    """The cell's place on the axis that is held fixed."""
    return cell.size_bytes if axis == "gpus" else cell.gpus


def names(study: Study) -> tuple[str, ...]:
    """Algorithms with believable collectives, in the order in which other pages show them."""
    found = {c.name: is_replay(c) for c in study.cells if c.kind == "collective" and c.believable}
    order = {name: at for at, name in enumerate(COLOURS)}
    return tuple(sorted(found, key=lambda name: (not found[name], order.get(name, 99), name)))


def networks(study: Study) -> tuple[str | None, ...]:
    """Those that collectives were measured on, the one with most of them first."""
    found = [c.network for c in study.cells if c.kind == "collective" and c.believable]
    return tuple(sorted(dict.fromkeys(found), key=lambda n: (-found.count(n), n or "")))


def places(study: Study, axis: str, network: str | None) -> tuple[tuple[int, ...], int]:
    """Where the other axis can stand, and where there is most to see."""
    spread: dict[int, set[tuple[str, int]]] = {}
    for cell in study.cells:
        if cell.kind == "collective" and cell.believable and cell.network == network:
            at = cell.gpus if axis == "gpus" else cell.size_bytes
            spread.setdefault(other(axis, cell), set()).add((cell.name, at))
    if not spread:
        return (), 0
    return tuple(sorted(spread)), max(spread, key=lambda place: (len(spread[place]), place))


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of simulated times: algorithm, places, seconds."""

    name: str
    places: tuple[int, ...]
    times_s: tuple[float, ...]


def curves(study: Study, overlay: Overlay) -> list[Curve]:
    """A curve through each algorithm's places; none where nothing is known of the links."""
    cluster = study.validation.cluster(overlay.network)
    if cluster is None:
        return []
    document = json.dumps(cluster, sort_keys=True)
    points = overlay.points(study)
    found, budget = [], Budget()
    for name in dict.fromkeys(cell.name for cell in points):
        cells = [cell for cell in points if cell.name == name]
        for flags, marks in _grid(cells, overlay):
            times = _times(name, flags, marks, overlay, document, budget)
            if len(times) > 1:
                found.append(Curve(name, tuple(times), tuple(times.values())))
    return found


def _grid(cells: Sequence[Cell], overlay: Overlay) -> Iterable[tuple[Any, list[int]]]:
    """Where a curve is computed: beside the measured places also those between and around."""
    by_flags: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for cell in cells:
        by_flags.setdefault(tuple(cell.flags.items()), []).append(overlay.x(cell))
    for flags, measured in by_flags.items():
        low, high = min(measured), max(measured)
        if overlay.axis == "gpus":  # flags often belong to a number of ranks: servers, nodes
            marks = measured if flags else range(min(2, low), min(high, 64) + 1)
        else:
            marks = [low // 2, *_doublings(low, high), high, 2 * high]
        yield flags, sorted({x for x in (*marks, *measured) if x > 0})


def _doublings(low: int, high: int) -> list[int]:
    """
    >>> _doublings(1024, 5000)
    [1024, 2048, 4096]
    """
    found = [max(1, low)]
    while 2 * found[-1] < high:
        found.append(2 * found[-1])
    return found


def _times(
    name: str, flags: Any, marks: Sequence[int], overlay: Overlay, document: str, budget: Budget
) -> dict[int, float]:
    times = {}
    for x in marks:
        gpus, size = (x, overlay.fixed) if overlay.axis == "gpus" else (overlay.fixed, x)
        if not budget.spend(_effort(name, flags, gpus, document)):
            continue
        time = simulated_s(name, flags, gpus, size, document)
        if time is not None:
            times[x] = time
    return times


@lru_cache(maxsize=20_000)
def _effort(name: str, flags: tuple[tuple[str, int], ...], gpus: int, cluster: str) -> int:
    """What one simulation takes, as ``effort_of`` has it; 0 where there is none."""
    if case := case_of(name, flags, gpus, cluster):
        return effort_of(*case)
    return 0


def case_of(
    name: str, flags: tuple[tuple[str, int], ...], gpus: int, cluster: str
) -> tuple[Schedule, Cluster] | None:
    """What a cell would be simulated with; None where there is no such thing, or far too much."""
    if gpus * max([1, *(value for _, value in flags)]) > MOST_COST or gpus > 64:
        return None
    try:
        schedule = build_schedule(name, gpus, **dict(flags))
        return schedule, cluster_from_dict(json.loads(cluster), schedule.n)
    except ValueError:  # no algorithm of ours, or none for so many ranks
        return None


@lru_cache(maxsize=20_000)
def simulated_s(
    name: str, flags: tuple[tuple[str, int], ...], gpus: int, size_bytes: int, cluster: str
) -> float | None:
    """The simulator's time on a cluster file's content; None where there is no such thing.

    >>> simulated_s("ring", (), 4, 8 * 2**20, '{"bandwidth": "25MB/s"}')
    0.50331648
    """
    if (case := case_of(name, flags, gpus, cluster)) is None:
        return None
    try:
        run = simulate(*case, size_bytes // ITEM_BYTES, ITEM_BYTES, keep="totals")
    except ValueError:
        return None
    return run.trace.time_s


def overlay_chart(study: Study, overlay: Overlay, text: Text) -> dict[str, Any] | None:
    """Lines of simulated times, and on top what was measured, from fastest to slowest run."""
    points = overlay.points(study)
    if not points:
        return None
    lines = curves(study, overlay)
    times = [
        *(cell.measured_s for cell in points),
        *(time for line in lines for time in line.times_s),
    ]
    xs: list[float] = sorted(
        {*(overlay.x(c) for c in points), *(x for line in lines for x in line.places)}
    )
    if len(xs) == 1:
        xs = [xs[0] / 2, xs[0], xs[0] * 2]
    title = text(f"measured.axis_{overlay.axis}")
    x = {"field": "x", **place_axis(overlay.axis, (xs[0] * 0.94, xs[-1] * 1.06), xs, title)}
    y = time_axis(min(times), max(times), text("scaling.time"))
    others = unstyled(study.cells)
    return {
        "description": text("measured.overlay_description", axis=title),
        "height": 380,
        "encoding": {"x": x, "y": y},
        "layer": [
            *(_line(line, overlay, others, text) for line in lines),
            *_points(points, overlay, others, text),
        ],
    }


def _line(curve: Curve, overlay: Overlay, others: Sequence[str], text: Text) -> dict[str, Any]:
    rows = [
        {
            "x": number(overlay.axis, x),
            "time_s": time,
            "what": text(
                "measured.curve", name=text.phrases.get(f"strategy.{curve.name}", curve.name)
            ),
            "place": place(overlay.axis, x),
            "time": format_time(time),
        }
        for x, time in zip(curve.places, curve.times_s, strict=True)
    ]
    colour = style(curve.name, others)[0]
    dash = DASHES.get(curve.name, [1, 0])
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 2, "color": colour, "strokeDash": dash},
        "encoding": {"tooltip": _tooltip(("what", "place", "time"), text)},
    }


def _points(
    points: Sequence[Cell], overlay: Overlay, others: Sequence[str], text: Text
) -> list[dict[str, Any]]:
    """Full shapes for replays, hollow ones for the vendor's own runs."""
    rows = [_point(cell, overlay, others, text) for cell in points]
    layers: list[dict[str, Any]] = []
    ends = {"y": {"field": "low_s", "type": "quantitative"}, "y2": {"field": "high_s"}}
    look = {
        "color": {"field": "colour", "type": "nominal", "scale": None},
        "shape": {"field": "shape", "type": "nominal", "scale": None},
    }
    tips = ("what", "measured", "simulated", "shown_error")
    for full in (True, False):
        shown = {"values": [row for row in rows if row["full"] == full]}
        if not shown["values"]:
            continue
        mark = {"type": "point", "filled": full, "size": 130, "opacity": 1, "strokeWidth": 2}
        layers += [
            {
                "data": shown,
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {**ends, "color": look["color"]},
            },
            {
                "data": shown,
                "mark": mark,
                "encoding": {**look, "tooltip": _tooltip(tips, text)},
            },
        ]
    return layers


def _point(cell: Cell, overlay: Overlay, others: Sequence[str], text: Text) -> dict[str, Any]:
    colour, shape = style(cell.name, others)
    runs = cell.runs_s or (cell.measured_s,)
    return {
        "x": number(overlay.axis, overlay.x(cell)),
        "time_s": cell.measured_s,
        "low_s": min(runs),
        "high_s": max(runs),
        "colour": colour,
        "shape": drawn(shape),
        "full": is_replay(cell),
        "what": f"{cell_words(cell, text)} ({text(f'measured.source_{cell.source}')})",
        "measured": format_time(cell.measured_s),
        "simulated": format_time(cell.simulated_s) if cell.simulated_s else text("race.none"),
        "shown_error": percent(cell.error, text, signed=True),
        "counts": text(f"measured.state_{state(cell)}"),
    }


def _tooltip(tips: Sequence[str], text: Text) -> list[dict[str, Any]]:
    return [{"field": tip, "type": "nominal", "title": text(f"measured.tip_{tip}")} for tip in tips]
