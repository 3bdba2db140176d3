"""The player in a notebook. Needs anywidget, which nothing else here does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anywidget
import traitlets

from simcore.reference import Buffers
from views.lanes import Shown, lanes_of, with_phases
from views.pictures.frame import Picture, frame_svg
from views.player import payload, player_script, poster_s, source_text
from views.text import load_text


class Player(anywidget.AnyWidget):
    """``play`` makes it. ``moment_s`` is where the reader left the clock, or None."""

    _esm = player_script()
    stylesheet = traitlets.Unicode(source_text("player.css")).tag(sync=True)
    data = traitlets.Dict().tag(sync=True)
    moment_s = traitlets.Float(None, allow_none=True).tag(sync=True)

    def __init__(self, data: dict[str, Any], picture: str, words: str) -> None:
        super().__init__(data=data)
        self._picture, self._words = picture, words

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and for viewers without a kernel the frame that it starts with."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        still = {"text/plain": self._words, "image/svg+xml": self._picture}
        return data | still, metadata


def play(
    shown: Shown | Iterable[Shown], language: str = "en", inputs: Buffers | None = None
) -> Player:
    """A player for a simulation, or for several on one clock.

    With ``inputs``, every rank's buffer, it shows the numbers in every chunk, too.

    >>> from simcore import build_schedule, simulate, uniform
    >>> cluster = uniform(4, 25e6)
    >>> runs = [simulate(build_schedule(a, 4), cluster, 2**21) for a in ("ps", "ring")]
    >>> data, _ = play(runs)._repr_mimebundle_()
    >>> print(data["text/plain"])
    Central server, Ring at 125.8 ms
    Central server: 2.013 s in all. Step 1 of 2: push
    Ring: 503.3 ms in all. Step 2 of 6: reduce-scatter
    """
    text = load_text(language)
    lanes = lanes_of(shown, text, inputs)
    text = with_phases(text, lanes)
    fastest = min((lane.trace for lane in lanes), key=lambda trace: trace.time_s)
    start_s = poster_s(fastest)
    words = "\n".join(Picture(lanes, text).sentences(start_s))
    return Player(payload(lanes, text, start_s), frame_svg(lanes, start_s, text), words)
