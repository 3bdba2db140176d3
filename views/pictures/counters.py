"""The bytes of every GPU in a picture: rows with numbers, or columns where there are too many."""

from __future__ import annotations

import math

from simcore.trace import Trace
from views.pictures.shapes import (
    ADD,
    HOT,
    HOT_INK,
    IDLE,
    INK,
    QUIET,
    RULE,
    Line,
    Rect,
    Shape,
    Words,
)
from views.pictures.state import State
from views.text import Text

WIDTH = 320
MANY = 16  # GPUs; above, the counters are columns without numbers
COLUMN = 46  # height of the tallest column
SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
WAYS = {"sent": (34.0, 170.0), "received": (184.0, 320.0)}  # where bars start and numbers end
NUMBER = 50  # room for one


class Scale:
    """One unit and number of digits for all counters up to ``largest``.

    >>> Scale(12_582_912)(3_000_000), Scale(48)(3)
    ('2.86 MiB', '3 B')
    """

    def __init__(self, largest: float) -> None:
        self.largest = max(1.0, largest)
        self.unit, self.factor = next(
            (unit, f) for unit, f in SIZES if self.largest >= f * 0.99995 or f == 1
        )
        whole = math.floor(math.log10(self.largest / self.factor)) + 1
        self.digits = 0 if self.unit == "B" else max(2, 4 - whole)

    def number(self, nbytes: float) -> str:
        """Without the unit."""
        return f"{nbytes / self.factor:.{self.digits}f}"

    def __call__(self, nbytes: float) -> str:
        """With the unit."""
        return f"{self.number(nbytes)} {self.unit}"


class Counters:
    """What every GPU has sent and received, over what it will have at the end, at a place.

    The bottleneck's are in the accent colour.
    """

    def __init__(
        self, trace: Trace, hot: int | None, text: Text, scale: Scale, x: float, y: float
    ) -> None:
        self.n, self.hot, self.text, self.scale, self.x, self.y = trace.n, hot, text, scale, x, y
        self.totals = {"sent": trace.sent_bytes, "received": trace.received_bytes}
        self.pitch = 20.0 if self.n <= 8 else 17.0
        self.bottom = y + (24 + self.n * self.pitch if self.n <= MANY else 2 * (COLUMN + 24))

    def still(self) -> list[Shape]:
        """The headings, the GPUs' numbers, and the totals."""
        heads = self._rows_head() if self.n <= MANY else self._columns_head()
        totals = [
            Rect(*self._bar(way, rank, nbytes), IDLE)
            for way, column in self.totals.items()
            for rank, nbytes in enumerate(column.tolist())
        ]
        return [*heads, *totals]

    def moving(self, state: State) -> list[Shape]:
        """The bars, and their numbers where there is room."""
        shapes: list[Shape] = []
        for way, column in (("sent", state.sent_bytes), ("received", state.received_bytes)):
            for rank, nbytes in enumerate(column.tolist()):
                fill, note = HOT if rank == self.hot else ADD, self._note(way, rank, nbytes)
                shapes.append(Rect(*self._bar(way, rank, nbytes), fill, note=note))
                if self.n <= MANY:
                    x, y = self.x + WAYS[way][1], self.y + 28 + rank * self.pitch
                    shapes.append(Words(x, y, self.scale.number(nbytes), 12, INK, "end"))
        return shapes

    def _bar(self, way: str, rank: int, nbytes: float) -> tuple[float, float, float, float]:
        """Left, top, width and height: a bar in the rank's row, or a column at its place."""
        share = nbytes / self.scale.largest
        if self.n <= MANY:
            left, right = WAYS[way]
            y = self.y + 24 + rank * self.pitch
            return self.x + left, y, (right - left - NUMBER) * share, 8
        pitch, tall = WIDTH / self.n, COLUMN * share
        return self.x + rank * pitch, self._base(way) - tall, pitch * 0.8, tall

    def _base(self, way: str) -> float:
        return self.y + 18 + COLUMN + (COLUMN + 24) * (way == "received")

    def _head(self, way: str) -> str:
        return self.text(f"player.{way}", unit=self.scale.unit)

    def _note(self, way: str, rank: int, nbytes: float) -> str:
        """``GPU 3: sent 2.00 MiB``, from the heading ``sent, MiB``."""
        words = self.text(f"player.{way}", unit=self.scale(nbytes)).replace(", ", " ")
        return self.text("player.gpu_number", rank=rank) + self.text("player.colon") + words

    def _rows_head(self) -> list[Shape]:
        shapes: list[Shape] = [Words(self.x, self.y + 8, self.text("player.gpu"), 12, QUIET)]
        for way, (left, _) in WAYS.items():
            shapes.append(Words(self.x + left, self.y + 8, self._head(way), 12, QUIET))
        for rank in range(self.n):
            y, hot = self.y + 28 + rank * self.pitch, rank == self.hot
            shapes.append(Words(self.x, y, str(rank), 12, HOT_INK if hot else QUIET, bold=hot))
        return shapes

    def _columns_head(self) -> list[Shape]:
        shapes: list[Shape] = []
        most = self.scale.number(self.scale.largest)
        for way in WAYS:
            top, right = self._base(way) - COLUMN, self.x + WIDTH
            shapes += [
                Words(self.x, top - 10, self._head(way), 12, QUIET),
                Words(right, top - 10, most, 11, QUIET, "end"),
                Line(self.x, top, right, top, RULE, dashed=True),
            ]
        return shapes
