"""A reader's own files and runs, shown in place of what is shipped: for this session alone."""

from __future__ import annotations

from typing import Any

import streamlit as st

from views.measured.files import MOST_BYTES, MOST_FILES, Read, read_files
from views.measured.rows import plain
from views.measured.sets import Study
from views.player import source_text
from views.text import HTML_LANGUAGES, Text

KEY = "measured_files"
_MOUNT = st.components.v2.component(
    "syncscope_measured_files",
    html="""<div class="zone" style="visibility: hidden">
<label><span class="choose"></span><input type="file" multiple accept=".json" data-testid="own">
</label><p class="note"></p></div>""",
    css=source_text("measured/files.css"),
    js=source_text("measured/files.js"),
)


def choose_files(text: Text) -> None:
    """The button; what it brings is read when the script runs next."""
    words = {key: text(f"measured.own_{key}") for key in ("choose", "note")}
    limits = {"most_files": MOST_FILES, "most_bytes": MOST_BYTES}
    lang = HTML_LANGUAGES[text.language]
    _MOUNT(data={"lang": lang, **words, **limits}, key=KEY, on_files_change=_taken)


def _taken() -> None:
    put(read_files(sent(st.session_state[KEY].get("files"))))


def sent(files: Any) -> list[tuple[str, bytes | None]]:
    """What a browser sent as names and contents; anything else is no file.

    >>> sent([["a.json", "{}"], ["b.json", None], 3])
    [('a.json', b'{}'), ('b.json', None)]
    """
    rows = files if isinstance(files, list) else []
    return [
        (row[0], None if row[1] is None else row[1].encode("utf-8", "replace"))
        for row in rows[: MOST_FILES + 1]
        if isinstance(row, list) and len(row) == 2
        if isinstance(row[0], str) and isinstance(row[1], str | None)
    ]


def put(read: Read, *said: tuple[str, str]) -> None:
    """Show that from now on; files of which none is good leave what was there.

    ``said`` are phrases' keys, each with the line that goes into it.
    """
    if read.study is not None:
        st.session_state["measured_own"] = read.study
        st.session_state["measured_own_shown"] = True
    refused = [("measured.refused", line) for line in read.refused]
    st.session_state["measured_said"] = [*said, *refused]


def own() -> Study | None:
    """The reader's own set."""
    study: Study | None = st.session_state.get("measured_own")
    return study


def own_or_shipped(text: Text) -> Study | None:
    """The reader's own set where there is one and it is to be shown; with what was refused."""
    for key, line in st.session_state.get("measured_said", ()):
        st.warning(text(key, line=plain(line)))
    study = own()
    if study is None:
        return None
    with st.container(horizontal=True, vertical_alignment="center"):
        shown = st.session_state.get("measured_own_shown", True)
        st.session_state["measured_own_switch"] = shown
        st.toggle(
            text("measured.own_shown", cells=len(study.cells)),
            key="measured_own_switch",
            on_change=_switched,
        )
        st.button(text("measured.own_forget"), on_click=_forget, type="tertiary")
    return study if shown else None


def _switched() -> None:
    st.session_state["measured_own_shown"] = st.session_state["measured_own_switch"]


def _forget() -> None:
    for key in ("measured_own", "measured_own_shown", "measured_said"):
        st.session_state.pop(key, None)
