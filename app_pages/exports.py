"""What a page gives away: its numbers and pictures as files, and what makes them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from views.player import PlayerLane
from views.text import Text

# Suffix and media type of each kind of file; a page may offer all of them under one name.
KINDS = {
    "csv": (".csv", "text/csv"),
    "json": (".json", "application/json"),
    "perfetto": (".perfetto.json", "application/json"),
    "svg": ("-moment.svg", "image/svg+xml"),
    "figure": (".svg", "image/svg+xml"),
    "png": (".png", "image/png"),
    "gif": (".gif", "image/gif"),
    "html": (".html", "text/html"),
}

Files = dict[str, Callable[[], str | bytes]]  # made by the click, by kind


@dataclass(frozen=True, slots=True)
class Exports:
    """Texts of the files by kind (``csv``, ``json``, …), their name; the commands, the program."""

    name: str
    files: dict[str, str]
    commands: str
    snippet: str


def player_pictures(
    lanes: Callable[[], Sequence[PlayerLane]],
    data: dict[str, Any],
    moment_s: float,
    title: str,
    text: Text,
) -> Files:
    """What a player shows, to be made when somebody asks: the moment, the film, the player."""

    def svg() -> str:
        from views.pictures.frame import frame_svg

        return frame_svg(lanes(), moment_s, text)

    def gif() -> bytes:
        from views.pictures.gif import race_gif

        return race_gif(lanes(), text)

    def html() -> str:
        from views.standalone import html_page

        return html_page(data | {"moment_s": moment_s}, title, picture=svg())

    return {"svg": svg, "gif": gif, "html": html}


def show_exports(exports: Exports, text: Text, more: Files | None = None) -> None:
    """Buttons side by side, and below what to type."""
    with st.container(key="part_downloads"):
        st.header(text("common.downloads"), anchor=False)
        with st.container(horizontal=True):
            # All by the click: the browser fetches a file that is ready at once, only to see that
            # it is there, and complains when the reader has gone on to another page meanwhile.
            ready: Files = {kind: partial(str, content) for kind, content in exports.files.items()}
            for kind, make in (ready | (more or {})).items():
                suffix, media_type = KINDS[kind]
                st.download_button(
                    text(f"common.{kind}"),
                    make,
                    exports.name + suffix,
                    media_type,
                    key=f"download_{kind}",
                    on_click="ignore",
                )
        if exports.commands:
            st.caption(text("common.reproduce"))
            st.code(exports.commands, language="shell", wrap_lines=True)
        st.caption(text("common.snippet"))
        st.code(exports.snippet, language="python", wrap_lines=True)
