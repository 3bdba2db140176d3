"""The player as a Streamlit component: registered once, mounted under a key that stays."""

from __future__ import annotations

from typing import Any

import streamlit as st

from views.player import player_script, source_text

_MOUNT = st.components.v2.component(
    "syncscope_player",
    html='<div class="player" tabindex="0" data-testid="player"></div>',
    css=source_text("player.css"),
    js=player_script(),
)


def player(data: dict[str, Any], key: str) -> float | None:
    """Show ``views.player.payload``'s data; a rerun with the same key keeps the place in time.

    Returns the moment at which the user left the clock, or None before they touch it.
    """
    state = _MOUNT(data=data, key=key, on_moment_s_change=lambda: None)
    moment_s: float | None = state.get("moment_s")
    return moment_s
