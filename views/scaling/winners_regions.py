"""The map's geometry: rectangles of one winner each, and where a region has room for its name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from views.scaling.winners import Cell, Row, Winners


@dataclass(frozen=True, slots=True)
class Band:
    """A rectangle of the map that belongs to one algorithm."""

    name: str
    begin: float
    end: float
    low: float
    high: float


def bands(winners: Winners, found: Sequence[Row]) -> Iterator[Band]:
    """One per row and winner; those that are level share a row's height in stripes."""
    for row in found:
        begin = winners.xs[0]
        for part in row.parts:
            step = (row.high / row.low) ** (1 / len(part.names))
            for stripe, name in enumerate(part.names):
                low = row.low * step**stripe
                yield Band(name, begin, part.end, low, low * step)
            begin = part.end


def roomiest(winners: Winners, places: Sequence[Cell], names: tuple[str, ...]) -> Cell:
    """The cell of a region that is farthest from any other region and from the map's edge."""
    wide = math.log(winners.xs[-1] / winners.xs[0])
    tall = math.log(winners.ys[-1] / winners.ys[0])

    def spot(cell: Cell) -> tuple[float, float]:
        return math.log(cell.x / winners.xs[0]) / wide, math.log(cell.y / winners.ys[0]) / tall

    others = [(*spot(cell), cell.y) for cell in places if cell.names != names]

    def room(cell: Cell) -> tuple[float, float]:
        """Around it; and if that is the same, to its left and right."""
        x, y = spot(cell)
        around = (math.hypot(0.7 * (x - a), y - b) for a, b, _ in others)
        beside = [x, 1 - x, *(abs(x - a) for a, _, height in others if height == cell.y)]
        return min([x, 1 - x, 2 * y, 2 * (1 - y), *around]), min(beside)

    return max((cell for cell in places if cell.names == names), key=room)
