"""The language switch in the sidebar; the choice is in the URL."""

from __future__ import annotations

import streamlit as st

from app_pages.notices import bad_value
from views.text import LANGUAGES, Text, load_text


def choose_language() -> Text:
    """The phrases of the chosen language."""
    codes = {name: code for code, name in LANGUAGES.items()}
    asked = st.query_params.get("lang")
    name = st.sidebar.segmented_control(
        "Language · 语言",
        list(codes),
        default=LANGUAGES["en"],
        required=True,
        label_visibility="collapsed",
        key="lang",
        bind="query-params",
    )
    if asked is not None and asked not in codes:
        st.sidebar.info(bad_value("lang", asked, LANGUAGES["en"], load_text("en")))
    return load_text(codes.get(name or "", "en"))
