"""What the colours and patterns of a picture mean."""

from __future__ import annotations

from collections.abc import Sequence

from views.pictures.shapes import (
    ADD,
    BUSY,
    COPY,
    GROUND,
    HOT,
    MEASURED,
    QUIET,
    RULE,
    Arc,
    Circle,
    Polygon,
    Rect,
    Shape,
    Words,
    width_of,
)
from views.text import Text

ROW = 20


def legend(keys: Sequence[str], text: Text, width: float, y: float) -> tuple[list[Shape], float]:
    """Samples with their words, in as many rows as they need; and where the last one ends.

    >>> from views.text import load_text
    >>> shapes, bottom = legend(["add", "copy"], load_text("en"), width=320, y=0)
    >>> len(shapes), bottom
    (4, 40.0)
    """
    shapes: list[Shape] = []
    x, middle = 0.0, y + ROW / 2
    for key in keys:
        words = text(f"player.legend_{key}")
        wide = 28 + width_of(words, 11) + 18
        if x > 0 and x + wide > width:
            x, middle = 0.0, middle + ROW
        shapes += [*_sample(key, x, middle), Words(x + 28, middle, words, 11, QUIET)]
        x += wide
    return shapes, middle + ROW / 2


def _sample(key: str, x: float, y: float) -> list[Shape]:
    diamond = ((x + 5, y), (x + 11, y - 6), (x + 17, y), (x + 11, y + 6))
    samples: dict[str, list[Shape]] = {
        "add": [Rect(x, y - 6, 22, 12, ADD)],
        "copy": [Rect(x, y - 6, 22, 12, COPY, hatched=True)],
        "hot": [Arc(x + 13, y, 6, 90, 270, HOT, 5)],
        "ports": [Circle(x + 11, y, 6, GROUND, RULE, 4), Arc(x + 11, y, 6, 90, 270, BUSY, 4)],
        "send": [Rect(x, y - 5, 22, 5, ADD)],
        "receive": [Rect(x, y, 22, 5, ADD)],
        "replayed": [Polygon(diamond, MEASURED)],
        "vendor": [Polygon(diamond, GROUND, MEASURED)],
    }
    return samples[key]
