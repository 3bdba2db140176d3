"""The nodes of a picture: boxes of GPUs, and how full their uplinks are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from views.links import Loads
from views.nodes import Box
from views.pictures.shapes import BUSY, HOT, IDLE, QUIET, Line, Rect, Shape, Words
from views.text import Text


class NodeBoxes:
    """Boxes in a graph whose corner is at a place."""

    def __init__(self, boxes: Sequence[Box], text: Text, x: float, y: float) -> None:
        def moved(box: Box) -> Box:
            bars = tuple(replace(bar, x=bar.x + x, y=bar.y + y) for bar in box.bars)
            return replace(box, x=box.x + x, y=box.y + y, bars=bars)

        self.boxes, self.text = [moved(box) for box in boxes], text
        self.bars = {bar.link: bar for box in self.boxes for bar in box.bars}

    def still(self) -> Iterator[Shape]:
        """Borders, names, and uplinks that carry nothing."""
        for box in self.boxes:
            right, bottom = box.x + box.width, box.y + box.height
            corners = ((box.x, box.y), (right, box.y), (right, bottom), (box.x, bottom))
            for (x1, y1), (x2, y2) in zip(corners, (*corners[1:], corners[0]), strict=True):
                yield Line(x1, y1, x2, y2, BUSY)
            yield Words(box.x + 8, box.y + 11, box.label, 11, QUIET)
            named = set()
            for bar in box.bars:
                if bar.way != "both" and bar.way not in named:
                    named.add(bar.way)
                    words = self.text(f"player.{bar.way}")
                    yield Words(bar.x - 3, bar.y + bar.height / 2, words, 11, QUIET, "end")
                yield Rect(bar.x, bar.y, bar.width, bar.height, IDLE, edge=BUSY)

    def moving(self, loads: Loads) -> Iterator[Shape]:
        """How full the uplinks are."""
        for link, bar in self.bars.items():
            hot = link in loads.hot
            share = 1.0 if hot else min(1.0, float(loads.load[link]))
            if share > 0:
                colour = HOT if hot else BUSY
                yield Rect(bar.x, bar.y, bar.width * share, bar.height, colour, note=bar.name)

    def above(self, link: int) -> tuple[float, float] | None:
        """Where the words of an uplink stand."""
        bar = self.bars.get(link)
        return None if bar is None else (bar.x + bar.width / 2, bar.y - 8)
