"""What a page gives away: its numbers as files, and the command that makes them again."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from views.text import Text

MIME = {"csv": "text/csv", "json": "application/json", "perfetto": "application/json"}
SUFFIX = {"csv": ".csv", "json": ".json", "perfetto": ".perfetto.json"}


@dataclass(frozen=True, slots=True)
class Exports:
    """Texts of the files by kind (``csv``, ``json``, ``perfetto``), their name, the commands."""

    name: str
    files: dict[str, str]
    commands: str


def show_exports(exports: Exports, text: Text) -> None:
    """Buttons side by side, and the commands below."""
    st.header(text("common.downloads"), anchor=False)
    with st.container(horizontal=True):
        for kind, content in exports.files.items():
            st.download_button(
                text(f"common.{kind}"),
                content,
                exports.name + SUFFIX[kind],
                MIME[kind],
                key=f"download_{kind}",
                on_click="ignore",
            )
    st.caption(text("common.reproduce"))
    st.code(exports.commands, language="shell", wrap_lines=True)
