"""Controls whose choice stands in the address; a bad one there becomes the default, with a notice.

Options are written as on the command line, so the address reads like one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st

from views.text import Text

_T = TypeVar("_T")


class Controls:
    """A page's controls, in the sidebar. ``notices`` says what the address asked for in vain.

    Every page begins with its own defaults, whatever was chosen on another one.
    """

    def __init__(self, page: str, text: Text) -> None:
        self.text = text
        self.notices: list[str] = []
        self.entering = st.session_state.get("page") != page
        st.session_state["page"] = page

    def number(
        self, key: str, label: str, low: int, high: int, default: int, note: str | None = None
    ) -> int:
        """A whole number from ``low`` to ``high``."""
        return self._one(
            key,
            range(low, high + 1),
            default,
            lambda bound: st.slider(label, low, high, default, help=note, **bound),
        )

    def choice(self, key: str, label: str, options: Sequence[str], default: str) -> str:
        """One of ``options``, which have an order."""
        return self._one(
            key, options, default, lambda bound: st.select_slider(label, options, default, **bound)
        )

    def one_of(self, key: str, label: str, options: Sequence[str], default: str) -> str:
        """One of a few ``options`` without an order."""
        return self._one(
            key,
            options,
            default,
            lambda bound: st.segmented_control(
                label, options, default=default, required=True, **bound
            ),
        )

    def switch(self, key: str, label: str, default: bool, note: str) -> bool:
        """On or off."""
        return self._one(
            key,
            (True, False),
            default,
            lambda bound: st.toggle(label, default, help=note, **bound),
        )

    def _one(
        self, key: str, options: Sequence[_T], default: _T, widget: Callable[[dict[str, Any]], Any]
    ) -> _T:
        spelt = [
            str(option).lower() if isinstance(option, bool) else str(option) for option in options
        ]
        self._check(key, spelt, str(default))
        if self.entering and key in st.session_state:
            del st.session_state[key]  # of another page, which may have other options
        with st.sidebar:
            chosen: _T = widget({"key": key, "bind": "query-params"})
        return chosen

    def some_of(
        self, key: str, label: str, options: Sequence[str], default: Sequence[str]
    ) -> tuple[str, ...]:
        """At least one of ``options``, in their order; without any, the default."""
        for asked in st.query_params.get_all(key):
            self._check_one(key, asked, options, ", ".join(default))
        with st.sidebar:
            chosen = st.pills(
                label,
                options,
                selection_mode="multi",
                default=default,
                key=key,
                bind="query-params",
            )
        if not chosen:
            self.notices.append(self.text("common.none_chosen", label=label))
        return tuple(name for name in options if name in (chosen or default))

    def _check(self, key: str, accepted: Sequence[str], default: str) -> None:
        """To be called before the widget is made: making it tidies the address."""
        if key in st.query_params:
            self._check_one(key, st.query_params[key], accepted, default)

    def _check_one(self, key: str, asked: str, accepted: Sequence[str], default: str) -> None:
        if asked not in accepted:
            self.notices.append(bad_value(key, asked, default, self.text))

    def show_notices(self) -> None:
        """What was not accepted, at this place of the page."""
        for notice in self.notices:
            st.info(notice)


def bad_value(key: str, asked: str, default: str, text: Text) -> str:
    """What to say of a value in the address that is not accepted."""
    asked = asked if len(asked) <= 40 else asked[:37] + "..."
    value = "".join(c if c.isprintable() and c != "`" else "?" for c in asked)
    return text("common.notice", name=key, value=value, shown=default)
