"""Above every page: a button that copies its address, and what that address shows.

A teacher hides parts of a page with switches here or by hand, ``?hide=controls&hide=numbers``.
Hidden parts are there all the same: a hidden control has the value that the address gives it.
"""

from __future__ import annotations

import streamlit as st

from app_pages.notices import printable
from views.player import source_text
from views.text import HTML_LANGUAGES, Text

# What can be hidden, and where that is on a page.
PARTS = {
    "answer": ".st-key-headline",
    "controls": ".st-key-part_controls",
    "language": ".st-key-lang",
    "navigation": "[data-testid='stSidebarNav'], [data-testid='stSidebarNavSeparator']",
    "numbers": ".st-key-part_numbers",
    "downloads": ".st-key-part_downloads",
    "share": ".st-key-part_share",
}
SIDEBAR = {"controls", "language", "navigation"}  # without these nothing is in it

_LINK = "M8.5 11.5a3.2 3.2 0 0 0 4.5 0l3-3a3.2 3.2 0 0 0-4.5-4.5l-1 1"
_MOUNT = st.components.v2.component(
    "syncscope_share",
    html=f"""<div class="share" style="visibility: hidden"><output></output>
<input type="text" readonly hidden>
<button type="button" data-testid="copy"><svg viewBox="0 0 20 20" aria-hidden="true">
<path d="{_LINK}"/><path d="{_LINK}" transform="rotate(180 10 10)"/></svg><span></span></button>
</div>""",
    css=source_text("share.css"),
    js=source_text("share.js"),
)


def share_bar(text: Text) -> None:
    """The button, and beside it the switches."""
    words = {key: text(f"share.{key}") for key in ("copy", "copied", "by_hand", "field", "table")}
    hidden = _hidden(text)
    with st.container(key="part_share", horizontal=True, horizontal_alignment="right"):
        _MOUNT(data={"lang": HTML_LANGUAGES[text.language], **words}, key="share_button")
        with st.popover(text("share.shows"), type="tertiary"):
            st.markdown(text("share.for_teachers"))
            for part in PARTS:
                st.session_state[f"show_{part}"] = part not in hidden
                st.toggle(text(f"share.{part}"), key=f"show_{part}", on_change=_switched)
    if hidden:
        selectors = [PARTS[part] for part in hidden]
        if set(hidden) >= SIDEBAR:
            selectors.append("[data-testid='stSidebar'], [data-testid='stExpandSidebarButton']")
        st.html(f"<style>{', '.join(selectors)} {{ display: none !important; }}</style>")


def _hidden(text: Text) -> list[str]:
    """What the first address hides, with a notice of what it cannot; then the switches rule."""
    asked = [name for value in st.query_params.get_all("hide") for name in value.split(",") if name]
    if "hidden" not in st.session_state:
        st.session_state["hidden"] = [part for part in PARTS if part in asked]
        for name in asked:
            if name not in PARTS:
                accepted = ", ".join(PARTS)
                st.info(text("share.notice", value=printable(name), accepted=accepted))
    hidden: list[str] = st.session_state["hidden"]
    if asked != hidden:
        st.query_params["hide"] = hidden
    return hidden


def _switched() -> None:
    st.session_state["hidden"] = [p for p in PARTS if not st.session_state[f"show_{p}"]]
