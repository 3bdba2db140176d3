"""Frames as an animated GIF, drawn by Pillow alone.

Everything is drawn twice as large and then made smaller, which smooths its edges.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from PIL import Image, ImageDraw

from views.lanes import title_of
from views.pictures.fonts import chinese_font, font_of, legible
from views.pictures.frame import Picture
from views.pictures.shapes import (
    COPY_LIGHT,
    GROUND,
    MARGIN,
    Arc,
    Circle,
    Line,
    Polygon,
    Rect,
    Shape,
    Words,
)
from views.player import PlayerLane
from views.text import Text, load_text

LARGER = 2
FRAME_MS, LAST_MS = 100, 2000
COLOURS = 128


def race_gif(lanes: Sequence[PlayerLane], text: Text, frames: int = 60) -> bytes:
    """The whole run in ``frames`` frames, again and again.

    Without a Chinese font on this machine the words are English.
    """
    if text.language == "zh" and chinese_font() is None:
        text = load_text("en")
        lanes = [replace(lane, title=title_of(lane.schedule.name, text)) for lane in lanes]
    picture = Picture(lanes, text)
    end_s = max(lane.trace.time_s for lane in lanes)
    times = [end_s * number / (frames - 1) for number in range(frames)]
    first = picture.at(0.0)
    canvas = Canvas(first.width, first.height, chinese=text.language == "zh")
    ground = canvas.draw(first.still)
    palette = _palette(canvas.smaller(canvas.draw(picture.moving(end_s / 3), ground)))
    drawn = (
        canvas.smaller(canvas.draw(picture.moving(t_s), ground)).quantize(
            palette=palette, dither=Image.Dither.NONE
        )
        for t_s in times
    )
    out = io.BytesIO()
    durations = [FRAME_MS] * (frames - 1) + [LAST_MS]
    next(drawn).save(
        out, "GIF", save_all=True, append_images=drawn, duration=durations, loop=0, optimize=False
    )
    return out.getvalue()


def _palette(frame: Image.Image) -> Image.Image:
    """A frame in few colours, which serve all others; what is nearly white is white."""
    indexed = frame.quantize(COLOURS, dither=Image.Dither.NONE)
    colours = bytearray(indexed.getpalette() or [])
    for at in range(0, len(colours), 3):
        if min(colours[at : at + 3]) >= 248:
            colours[at : at + 3] = b"\xff\xff\xff"
    indexed.putpalette(colours)
    return indexed


@dataclass(frozen=True, slots=True)
class Stamp:
    """A line of text as a mask, and where its corner is from the point that it is written at."""

    mask: Image.Image
    left: int
    top: int


@lru_cache(maxsize=4096)
def _stamp(words: str, size: float, chinese: bool, anchor: str, stroke: float) -> Stamp:
    """Most words are in most frames: each is drawn once."""
    font, words = font_of(size, chinese), legible(words, chinese)
    box = font.getbbox(words, "L", anchor=anchor, stroke_width=stroke)
    left, top, right, bottom = (math.floor(box[0]), math.floor(box[1]), *map(math.ceil, box[2:]))
    mask = Image.new("L", (max(1, right - left), max(1, bottom - top)))
    pen = ImageDraw.Draw(mask)
    pen.text((-left, -top), words, 255, font, anchor, stroke_width=stroke)
    return Stamp(mask, left, top)


class Canvas:
    """Draws shapes on a ground of that size."""

    def __init__(self, width: float, height: float, chinese: bool) -> None:
        self.size = round(width + 2 * MARGIN) * LARGER, round(height + 2 * MARGIN) * LARGER
        self.chinese = chinese

    def draw(self, shapes: Iterable[Shape], under: Image.Image | None = None) -> Image.Image:
        """The shapes over another drawing."""
        image = under.copy() if under else Image.new("RGB", self.size, GROUND)
        pen = ImageDraw.Draw(image)
        for shape in shapes:
            if isinstance(shape, Words):
                self._words(image, shape)
            else:
                self._shape(pen, shape)
        return image

    def _words(self, image: Image.Image, words: Words) -> None:
        x, y = map(round, _at(words.x, words.y))
        anchor = {"start": "lm", "middle": "mm", "end": "rm"}[words.anchor]
        layers = [(words.colour, 0.3 * words.bold * LARGER)]
        if words.halo:
            layers.insert(0, (GROUND, 2.0 * LARGER))
        for colour, stroke in layers:
            stamp = _stamp(words.text, words.size * LARGER, self.chinese, anchor, stroke)
            image.paste(colour, (x + stamp.left, y + stamp.top), stamp.mask)

    def _shape(self, pen: ImageDraw.ImageDraw, shape: Shape) -> None:
        match shape:
            case Line():
                self._line(pen, shape)
            case Circle(x, y, r, fill, edge, width):
                rim = width / 2 if edge else 0
                thick = _whole(width)
                pen.ellipse(_box(x, y, r + rim), fill, edge or None, thick if edge else 0)
            case Arc(x, y, r, start, end, colour, width):
                pen.arc(_box(x, y, r + width / 2), start, end, colour, _whole(width))
            case Rect():
                self._rect(pen, shape)
            case Polygon(points, fill, edge):
                pen.polygon([_at(*point) for point in points], fill, edge or None, LARGER)

    def _line(self, pen: ImageDraw.ImageDraw, line: Line) -> None:
        ends = [_at(line.x1, line.y1), _at(line.x2, line.y2)]
        if not line.dashed:
            pen.line(ends, line.colour, _whole(line.width))
            return
        (x1, y1), (x2, y2) = ends
        dashes = max(1, round((abs(x2 - x1) + abs(y2 - y1)) / (6 * LARGER)))
        for number in range(dashes):
            a, b = number / dashes, (number + 0.5) / dashes
            dash = [(x1 + (x2 - x1) * share, y1 + (y2 - y1) * share) for share in (a, b)]
            pen.line(dash, line.colour, _whole(line.width))

    def _rect(self, pen: ImageDraw.ImageDraw, rect: Rect) -> None:
        (x1, y1), (x2, y2) = _at(rect.x, rect.y), _at(rect.x + rect.width, rect.y + rect.height)
        if min(x2 - x1, y2 - y1) < 0.5:
            return
        x2, y2 = max(x1, x2 - 1), max(y1, y2 - 1)  # Pillow's rectangles include their last pixel
        pen.rectangle((x1, y1, x2, y2), rect.fill, rect.edge or None, LARGER if rect.edge else 0)
        if rect.hatched:
            for diagonal in range(int(x1 + y1), int(x2 + y2), 8 * LARGER):
                left, right = max(x1, diagonal - y2), min(x2, diagonal - y1)
                pen.line([(left, diagonal - left), (right, diagonal - right)], COPY_LIGHT, 3)

    def smaller(self, image: Image.Image) -> Image.Image:
        """At its final size."""
        return image.reduce(LARGER)


def _at(x: float, y: float) -> tuple[float, float]:
    return (x + MARGIN) * LARGER, (y + MARGIN) * LARGER


def _box(x: float, y: float, r: float) -> tuple[float, float, float, float]:
    return (*_at(x - r, y - r), *_at(x + r, y + r))


def _whole(width: float) -> int:
    return max(1, round(width * LARGER))
