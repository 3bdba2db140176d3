"""Fonts for pictures made of pixels: found on this machine, and what to write without one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
File = tuple[str, int]  # as Pillow finds it in the fonts' usual folders, and the face in it

LATIN_FONTS: tuple[File, ...] = (
    ("LiberationSans-Regular.ttf", 0),
    ("Arial.ttf", 0),
    ("arial.ttf", 0),
    ("Helvetica.ttc", 0),
    ("NotoSans-Regular.ttf", 0),
    ("segoeui.ttf", 0),
    ("DejaVuSans.ttf", 0),
)
CHINESE_FONTS: tuple[File, ...] = (
    ("NotoSansCJK-Regular.ttc", 2),
    ("NotoSansCJKsc-Regular.otf", 0),
    ("SourceHanSansSC-Regular.otf", 0),
    ("PingFang.ttc", 0),
    ("STHeiti Light.ttc", 1),
    ("Hiragino Sans GB.ttc", 0),
    ("msyh.ttc", 0),
    ("simhei.ttf", 0),
    ("simsun.ttc", 0),
    ("wqy-microhei.ttc", 0),
    ("wqy-zenhei.ttc", 0),
)
# What people type where a letter is missing.
INSTEAD = {
    "µ": "u",
    "–": "-",
    "−": "-",
    "×": "x",
    "÷": "/",
    "→": "->",
    "\xa0": " ",
    "α": "alpha",
    "π": "pi",
    "₂": "2",
    "√": "sqrt ",
}
NO_LETTER = "\U0010ffff"  # drawn as every letter is that a font does not have


def first_of(files: Sequence[File]) -> File | None:
    """The first of these that is on this machine."""
    for name, index in files:
        try:
            ImageFont.truetype(name, 12, index)
        except OSError:
            continue
        return name, index
    return None


@cache
def chinese_font() -> File | None:
    """A file with simplified Chinese on this machine, and its face."""
    return first_of(CHINESE_FONTS)


@cache
def latin_font() -> File | None:
    """A file with more than ASCII; Pillow brings one that has little else."""
    return first_of(LATIN_FONTS)


@cache
def font_of(size: float, chinese: bool) -> Font:
    """In pixels."""
    found = chinese_font() if chinese else latin_font()
    if found is None:
        return ImageFont.load_default(size)
    return ImageFont.truetype(found[0], size, found[1])


@cache
def has(letter: str, chinese: bool) -> bool:
    """Whether the font has this letter: else it draws the same box for it as for any other."""
    font = font_of(24, chinese)
    return letter == " " or bytes(font.getmask(letter)) != bytes(font.getmask(NO_LETTER))


def legible(words: str, chinese: bool) -> str:
    """The words in letters that the font has.

    >>> legible("GPU 1", chinese=False)
    'GPU 1'
    """
    return "".join(letter if has(letter, chinese) else INSTEAD.get(letter, "?") for letter in words)
