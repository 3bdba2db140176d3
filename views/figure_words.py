"""What static figures share: letters that exist, in the reader's language, and files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Text as Label

from views.text import Text, load_text

LATIN = "DejaVu Sans"  # comes with Matplotlib
CHINESE = (
    *("Noto Sans CJK SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC"),
    *("Hiragino Sans GB", "Microsoft YaHei", "SimHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("Noto Sans CJK JP", "Noto Sans CJK TC", "Droid Sans Fallback", "Arial Unicode MS"),
)
FILES = ("notosanscjk", "sourcehansans", "msyh", "simhei", "wqy", "pingfang", "droidsansfallback")
PROBE = "环图发"  # simplified forms, which not every font with Chinese characters has


@cache
def chinese_family() -> str | None:
    """A font with simplified Chinese letters, by its family's name; None if there is none.

    Matplotlib's list of fonts is made once and kept, so a font that came later is looked for among
    the files.
    """
    listed = {font.name: font.fname for font in reversed(font_manager.fontManager.ttflist)}
    for name in CHINESE:
        if name in listed and _can_write(listed[name]):
            return name
    for path in sorted(font_manager.findSystemFonts()):
        plain = Path(path).name.lower().replace("-", "").replace("_", "")
        if plain.startswith(FILES) and _can_write(path):
            font_manager.fontManager.addfont(path)
            return font_manager.FontProperties(fname=path).get_name()
    return None


def _can_write(path: str) -> bool:
    """Whether the file is there, is a font, and has the letters."""
    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):
        return False
    return all(font.get_char_index(ord(letter)) for letter in PROBE)


def writable(text: Text) -> Text:
    """``text``, or English where no font here can write it.

    >>> writable(load_text("en")).language
    'en'
    """
    return text if text.language == "en" or chinese_family() else load_text("en")


@contextmanager
def lettering(artist: Artist, text: Text) -> Iterator[Text]:
    """Words to draw with; afterwards all labels of ``artist`` use a font that has the letters."""
    words = writable(text)
    yield words
    family = chinese_family() if words.language != "en" else None
    for label in artist.findobj(Label):
        label.set_fontfamily([LATIN, family] if family else [LATIN])


def svg(figure: Figure) -> str:
    """The figure as SVG: letters as outlines, and the same text for the same figure.

    >>> svg(Figure(figsize=(1, 1))).count("<svg")
    1
    """
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "syncscope"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "SyncScope"})
    return out.getvalue()


def png(figure: Figure, dots_per_inch: float = 150) -> bytes:
    """The figure as PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dots_per_inch, metadata={"Software": "SyncScope"})
    return out.getvalue()
