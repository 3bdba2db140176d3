"""The language switch in the sidebar; the choice is in the URL."""

from __future__ import annotations

import streamlit as st

from app_pages.notices import bad_value
from views.text import LANGUAGES, Text, language_of, load_text


def choose_language() -> Text:
    """The phrases of the chosen language."""
    codes = {name: code for code, name in LANGUAGES.items()}
    if (asked := _respelt()) is not None:
        return load_text(language_of(asked) or "en")
    name = st.sidebar.segmented_control(
        "Language · 语言",
        list(codes),
        default=LANGUAGES["en"],
        required=True,
        label_visibility="collapsed",
        key="lang",
        bind="query-params",
    )
    refused = st.session_state.pop("lang_refused", None)
    if refused is not None:
        bad = bad_value("lang", refused, list(codes), LANGUAGES["en"], load_text("en"))
        st.sidebar.info(bad)
    return load_text(codes.get(name or "", "en"))


def settle_language() -> None:
    """To be called when the page is known: the address gets the switch's spelling of an alias.

    Then the script runs again, now with the switch.
    """
    asked = _respelt()
    if asked is None:
        return
    meant = language_of(asked)
    if meant is not None:
        st.query_params["lang"] = LANGUAGES[meant]
    else:
        st.session_state["lang_refused"] = asked
        del st.query_params["lang"]
    st.rerun()


def _respelt() -> str | None:
    """What the first address says of the language, if the switch would not take that."""
    asked = st.query_params.get_all("lang")
    if "lang" in st.session_state or not asked:
        return None
    return None if len(asked) == 1 and asked[0] in LANGUAGES.values() else asked[-1]
