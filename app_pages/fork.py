"""The changes of ``views.fork`` in the address: ``change=gpu2:0@0.2s..0.5s``, once for each."""

from __future__ import annotations

import streamlit as st

from app_pages.controls import Controls
from views.fork import MAX_CHANGES, MAX_SPELT


def asked_changes(controls: Controls) -> tuple[str, ...]:
    """What the address asks for when the page is entered; then what the reader has changed.

    The address follows: what a browser says of it in the next moment may be the last one's.
    """
    if controls.entering:  # one too many is kept, so that it is told of
        st.session_state["change"] = st.query_params.get_all("change")[: MAX_CHANGES + 1]
    changes: list[str] = st.session_state.get("change", [])
    controls.kept["change"] = changes
    if st.query_params.get_all("change") != changes:
        st.query_params["change"] = changes
    return tuple(changes)


def keep_changes(made: tuple[str, ...]) -> None:
    """What cannot be made leaves the address; its notice has been given."""
    if tuple(st.session_state.get("change", ())) != made:
        st.session_state["change"] = list(made)
        st.query_params["change"] = list(made)


def take_changes(key: str) -> None:
    """The reader has changed something in the player ``key``."""
    told = st.session_state[key].get("change")
    asked = told.get("list") if isinstance(told, dict) else None
    if not isinstance(asked, list) or len(asked) > MAX_CHANGES:
        return
    if all(isinstance(spelt, str) and len(spelt) <= MAX_SPELT for spelt in asked):
        st.session_state["change"] = asked
