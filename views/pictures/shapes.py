"""The vocabulary of a picture: six plain shapes. What draws them is elsewhere.

Lengths are pixels, y points down, angles are degrees clockwise from three o'clock. ``still`` is
what stays while time runs; ``moving`` lies over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# As in the player: Okabe & Ito, and greys.
GROUND, INK, QUIET, RULE, IDLE, BUSY = (
    *("#ffffff", "#1b1b1f", "#606064", "#dfdfe0", "#ededee", "#8b8b90"),
)
ADD, COPY, COPY_LIGHT, HOT, HOT_INK = "#0072b2", "#009e73", "#52bd9f", "#d55e00", "#b34e00"
FULL_PORT, MEASURED = "#4d4d50", "#b0568c"
MARGIN = 14  # around a frame

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Line:
    """From point to point."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Circle:
    """Filled, with an edge."""

    x: float
    y: float
    r: float
    fill: str
    edge: str = ""
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Arc:
    """Part of a circle, clockwise."""

    x: float
    y: float
    r: float
    start: float
    end: float
    colour: str
    width: float


@dataclass(frozen=True, slots=True)
class Rect:
    """Filled, or hatched, which says without colour that what arrives is kept as it is.

    ``note`` is for pointers and screen readers.
    """

    x: float
    y: float
    width: float
    height: float
    fill: str
    hatched: bool = False
    edge: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Polygon:
    """Filled, with a thin edge."""

    points: tuple[tuple[float, float], ...]
    fill: str
    edge: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text, centred on ``y``; a halo keeps it legible over lines."""

    x: float
    y: float
    text: str
    size: float = 12.0
    colour: str = INK
    anchor: Anchor = "start"
    bold: bool = False
    halo: bool = False


Shape = Line | Circle | Arc | Rect | Polygon | Words


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture, and what it says in words."""

    width: float
    height: float
    still: Sequence[Shape]
    moving: Sequence[Shape]
    title: str
    description: str


def width_of(text: str, size: float = 12.0) -> float:
    """About how wide the text is: a Chinese character is a square, others are half of one.

    >>> width_of("ring"), width_of("环形")
    (25.92, 24.0)
    """
    return size * sum(1.0 if letter > "\u2e80" else 0.54 for letter in text)


def shorten(text: str, room: float, size: float = 12.0) -> str:
    """The text, cut where it does not fit.

    >>> shorten("every GPU", 100), shorten("every GPU", 40)
    ('every GPU', 'every…')
    """
    if width_of(text, size) <= room:
        return text
    while text and width_of(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def shorten_apart(texts: Sequence[str], room: float, size: float = 12.0) -> list[str]:
    """Each as ``shorten``, but those that begin alike keep the ends in which they differ.

    >>> shorten_apart(["Rings across nodes, simulated", "Rings across nodes, measured"], 140)
    ['Rings acr…, simulated', 'Rings acro…, measured']
    """
    return [_keeping_end(text, texts, room, size) for text in texts]


def _keeping_end(text: str, texts: Sequence[str], room: float, size: float) -> str:
    shared = max((_shared(text, other) for other in texts if other != text), default=0)
    while shared and text[shared - 1].isalnum():
        shared -= 1  # to the beginning of the word
    while shared and not text[shared - 1].isalnum():
        shared -= 1  # with the sign before it
    left = room - width_of(text[shared:], size)
    if width_of(text, size) <= room or not shared or left < 3 * size:
        return shorten(text, room, size)
    return shorten(text[:shared], left, size) + text[shared:]


def _shared(one: str, other: str) -> int:
    """How many letters they begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def arc_ends(arc: Arc) -> tuple[tuple[float, float], tuple[float, float], int]:
    """Where an arc starts and ends, and 1 if it is the larger part of its circle.

    >>> arc_ends(Arc(0, 0, 10, 0, 180, INK, 1))
    ((10.0, 0.0), (-10.0, 0.0), 0)
    """

    def point(degrees: float) -> tuple[float, float]:
        angle = math.radians(degrees)
        return arc.x + arc.r * round(math.cos(angle), 9), arc.y + arc.r * round(math.sin(angle), 9)

    return point(arc.start), point(arc.end), int(arc.end - arc.start > 180)
