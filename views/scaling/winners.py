"""Which algorithm wins where: a map of two axes, each row cut where the fastest changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from simcore.units import format_time
from views.race import Setting
from views.scaling.curves import (
    AXES,
    GPUS,
    SIZES,
    TIE,
    Scaling,
    Stretch,
    in_nodes,
    names_inline,
    place,
    placed,
    setting_values,
    stretches,
)
from views.scaling.lines import time_s
from views.text import Text

# Across, then up. Sizes go up where they can: at powers of two most lines need no simulation.
PAIRS = (
    *("size-gpus", "latency-size", "bandwidth-size"),
    *("latency-gpus", "bandwidth-gpus", "latency-bandwidth"),
)
# Heights by octaves, and latencies and bandwidths across too: then settings that differ in scale
# alone lie on one diagonal, which is simulated once.
ROWS: dict[str, tuple[float, ...]] = {
    "gpus": GPUS,
    "size": tuple(2**power for power in range(11, 30)),
    "bandwidth": tuple(12.5e6 * 2**power for power in range(13)),  # 0.1 to 410 Gbit/s
}
COLUMNS: dict[str, tuple[float, ...]] = {
    "size": SIZES,
    "bandwidth": ROWS["bandwidth"],
    "latency": tuple(1e-7 * 2**power for power in range(17)),  # 0.1 µs to 6.6 ms
}
NODE_ROWS = (8, 16, 32, 64)
FINEST = 1.02  # a pixel of the map


@dataclass(frozen=True, slots=True)
class Winners:
    """What the reader chose; of ``base``, what stands on the axes does not matter."""

    across: str
    up: str
    lines: tuple[str, ...]
    base: Setting
    network: str = "flat"

    @property
    def xs(self) -> tuple[float, ...]:
        """Columns of cells, in SI units."""
        return COLUMNS[self.across]

    @property
    def ys(self) -> tuple[float, ...]:
        """Rows, from the bottom up."""
        return NODE_ROWS if (self.up, self.network) == ("gpus", "nodes") else ROWS[self.up]

    def along(self, y: float) -> Scaling:
        """The axis across, at a height."""
        base = placed(self.base, self.up, y)
        return Scaling(self.across, self.lines, base, self.network, self.xs)


@dataclass(frozen=True, slots=True)
class Row:
    """A strip of the map: its place, its lower and upper edge, and who wins along it."""

    y: float
    low: float
    high: float
    parts: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A place of the map: who is fastest, and the next one; without any, ``second`` is empty."""

    x: float
    y: float
    names: tuple[str, ...]
    time_s: float
    second: str = ""
    second_s: float = 0.0


def rows(winners: Winners) -> tuple[Row, ...]:
    """The map from the bottom up. Borders are exact along a row, to a pixel.

    >>> base = Setting(8, 0, 3.125e9, frames=False)
    >>> for row in rows(Winners("latency", "size", ("ring", "ps"), base))[8:10]:
    ...     print(place("size", row.y), [(p.names, place("latency", p.end)) for p in row.parts])
    512 KiB [(('ring',), '170 µs'), (('ps',), '6.55 ms')]
    1 MiB [(('ring',), '341 µs'), (('ps',), '6.55 ms')]
    """
    edges = band_edges(winners.ys)
    return tuple(
        Row(y, edges[number], edges[number + 1], tuple(stretches(winners.along(y), FINEST)))
        for number, y in enumerate(winners.ys)
    )


def band_edges(places: Sequence[float]) -> list[float]:
    """Where the bands around places meet, on a logarithmic axis.

    >>> band_edges([1, 4, 16])
    [0.5, 2.0, 8.0, 32.0]
    """
    middle = [math.sqrt(a * b) for a, b in pairwise(places)]
    return [places[0] ** 2 / middle[0], *middle, places[-1] ** 2 / middle[-1]]


def cells(winners: Winners) -> list[Cell]:
    """Every place of the grid, row by row from the bottom."""
    return [_cell(winners, x, y) for y in winners.ys for x in winners.xs]


def _cell(winners: Winners, x: float, y: float) -> Cell:
    at = winners.along(y).at(x)
    times = {name: time_s(name, at, winners.network) for name in winners.lines}
    least = min(times.values())
    names = tuple(name for name in winners.lines if times[name] <= least * (1 + TIE))
    others = {name: time for name, time in times.items() if name not in names}
    if not others:
        return Cell(x, y, names, least)
    second = min(others, key=others.__getitem__)
    return Cell(x, y, names, least, second, others[second])


def shares(winners: Winners, found: Sequence[Row]) -> dict[tuple[str, ...], float]:
    """Which part of the map's area belongs to whom, the largest first.

    >>> base = Setting(8, 0, 3.125e9, frames=False)
    >>> winners = Winners("latency", "size", ("ring", "ps"), base)
    >>> {names: round(part, 2) for names, part in shares(winners, rows(winners)).items()}
    {('ring',): 0.69, ('ps',): 0.31}
    """
    areas: dict[tuple[str, ...], float] = {}
    for row in found:
        begin = winners.xs[0]
        for part in row.parts:
            area = math.log(part.end / begin) * math.log(row.high / row.low)
            areas[part.names] = areas.get(part.names, 0.0) + area
            begin = part.end
    total = sum(areas.values())
    return {names: areas[names] / total for names in sorted(areas, key=lambda k: -areas[k])}


def headline(winners: Winners, found: Sequence[Row], text: Text) -> str:
    """How much of the map belongs to whom.

    >>> from views.text import load_text
    >>> winners = Winners("latency", "size", ("ring", "ps"), Setting(8, 0, 3.125e9, frames=False))
    >>> print(headline(winners, rows(winners), load_text("en")).replace("\\xa0", " "))
    With 8 GPUs and 25Gbit/s, the fastest: the ring on 69 % of this map, the central server on \
31 %.
    """
    values = setting_values(winners.base)
    fixed = [axis for axis in AXES if axis not in (winners.across, winners.up)]
    first, second = (text(f"map.fixed_{axis}", **values) for axis in fixed)
    start = in_nodes(winners.network, text) + text("map.with", first=first, second=second)
    found_shares = list(shares(winners, found).items())
    if len(winners.lines) == 1:
        return start + text("scaling.alone", name=names_inline(winners.lines, text))
    if len(found_shares) == 1:
        return start + text("scaling.everywhere", name=names_inline(found_shares[0][0], text))
    parts = [
        text(
            "map.share_first" if number == 0 else "map.share",
            name=_tied(names, text),
            percent=_percent(part),
        )
        for number, (names, part) in enumerate(found_shares[:4])
    ]
    return start + text("map.lead") + text("scaling.comma").join(parts) + text("scaling.stop")


def _tied(names: Sequence[str], text: Text) -> str:
    inline = names_inline(names, text)
    return text("map.tied", names=inline) if len(names) > 1 else inline


def _percent(part: float) -> str:
    return f"{100 * part:.0f}" if part >= 0.01 else "<1"


def region_title(names: Sequence[str], text: Text) -> str:
    """What stands in a region of the map: the winner's name, or how many are level."""
    if len(names) > 3:
        return text("map.level", count=len(names))
    return text("map.equals").join(text(f"strategy.{name}") for name in names)


def behind(cell: Cell, text: Text) -> str:
    """How much the next one is behind, in words; empty where there is none."""
    if not cell.second:
        return ""
    return text("map.behind", name=text(f"strategy.{cell.second}"), more=_more(cell, text))


def _more(cell: Cell, text: Text) -> str:
    """How much longer the next one takes: a percentage, or from twice on a factor.

    >>> from views.text import load_text
    >>> [_more(Cell(1, 1, ("ring",), 2.0, "ps", s), load_text("zh")) for s in (2.5, 5.0)]
    ['+25%', '×2.5']
    """
    ratio = cell.second_s / cell.time_s if cell.time_s else 1.0
    if ratio >= 1.995:
        return f"×{ratio:.2g}"
    return text("common.percent", value=f"+{100 * (ratio - 1):.2g}")


def table_header(winners: Winners, text: Text) -> list[str]:
    """Of ``table_rows``: the heights' axis, then places across."""
    corner = text(
        "map.corner",
        up=text(f"scaling.axis_{winners.up}"),
        across=text(f"scaling.axis_{winners.across}"),
    )
    return [corner, *(place(winners.across, x) for x in _shown(winners.xs))]


def table_rows(winners: Winners, found: Sequence[Cell], text: Text) -> list[list[str]]:
    """The map's cells, thinned out, the highest row first: who wins, and by how much."""
    xs, ys = _shown(winners.xs), _shown(winners.ys)
    by_place = {(cell.x, cell.y): cell for cell in found}

    def words(cell: Cell) -> str:
        names = " = ".join(text(f"strategy.{name}") for name in cell.names)
        return f"{names} {_more(cell, text)}" if cell.second else names

    return [[place(winners.up, y), *(words(by_place[x, y]) for x in xs)] for y in reversed(ys)]


def _shown(places: Sequence[float]) -> list[float]:
    """At most seven of them, evenly, both ends among them where they can be."""
    every = math.ceil((len(places) - 1) / 6)
    return list(places[::every])


def export_rows(winners: Winners, found: Sequence[Cell]) -> list[dict[str, Any]]:
    """One row per cell, for files."""
    result = []
    for cell in found:
        at = winners.along(cell.y).at(cell.x)
        result.append(
            {
                "gpus": at.gpus,
                "size_bytes": at.size_bytes,
                "bytes_per_s": at.bytes_per_s,
                "latency_s": at.latency_s,
                "frame_headers": at.frames,
                "network": winners.network,
                "fastest": " ".join(cell.names),
                "time_s": cell.time_s,
                "second": cell.second,
                "second_time_s": cell.second_s if cell.second else "",
            }
        )
    return result


def tip(winners: Winners, cell: Cell, text: Text) -> dict[str, str]:
    """What a cell says when it is pointed at."""
    names = text("map.equals").join(text(f"strategy.{name}") for name in cell.names)
    return {
        "fastest": f"{names}, {format_time(cell.time_s)}",
        "behind": behind(cell, text),
        "place": f"{place(winners.across, cell.x)}, {place(winners.up, cell.y)}",
    }
