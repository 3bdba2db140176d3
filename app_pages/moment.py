"""The moment in time in the address, ``t=213ms``: read when a page is entered, then kept up."""

from __future__ import annotations

import streamlit as st

from app_pages.notices import printable
from simcore.units import format_time
from views.moment import moment_words, parse_moment
from views.text import Text


def enter() -> None:
    """A page is entered: its own address counts, which has no moment of another page."""
    st.session_state["moment_s"] = None
    st.session_state["moment_unread"] = True


def asked_s(end_s: float, text: Text) -> float | None:
    """Where the clock is to start. It stays what it was at entry, or the player would start anew.

    What the clock never shows leaves the address, at entry with a notice.
    """
    state, words = st.session_state, st.query_params.get("t")
    if state.pop("moment_unread", False) and words is not None:
        try:
            state["moment_s"] = parse_moment(words, end_s)
        except ValueError:
            st.info(text("moment.notice", value=printable(words), end=format_time(end_s)))
            del st.query_params["t"]
    moment_s: float | None = state.get("moment_s")
    if moment_s is not None and moment_s > end_s:  # with other settings all is over before it
        state["moment_s"] = moment_s = None
        st.query_params.pop("t", None)
    return moment_s


def put(moment_s: float, end_s: float) -> None:
    """The address follows the clock."""
    words = moment_words(moment_s, end_s)
    if st.query_params.get("t") != words:
        st.query_params["t"] = words
