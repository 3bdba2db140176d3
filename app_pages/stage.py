"""The player as a Streamlit component: registered once, mounted under a key that stays."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app_pages import moment
from app_pages.fork import take_changes
from views.moment import clock_end_s
from views.player import player_script, source_text
from views.text import Text

_MOUNT = st.components.v2.component(
    "syncscope_player",
    html='<div class="player" tabindex="0" data-testid="player"></div>',
    css=source_text("player.css"),
    js=player_script(),
)


def player(data: dict[str, Any], key: str, text: Text) -> float:
    """Show ``views.player.payload``'s data; a rerun with the same key keeps the place in time.

    Returns the moment that it shows while it stands still. The clock starts where the address
    says, and the address follows it.
    """
    end_s = clock_end_s(data)
    start_s = moment.asked_s(end_s, text)
    state = _MOUNT(
        data=data | {"moment_s": start_s},
        key=key,
        on_moment_s_change=lambda: None,
        on_change_change=lambda: take_changes(key),
    )
    left_s: float | None = state.get("moment_s")
    if left_s is None:
        return float(data["poster_s"] if start_s is None else start_s)
    moment.put(min(left_s, end_s), end_s)
    return min(left_s, end_s)
