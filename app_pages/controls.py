"""Controls whose choice stands in the address; a bad one there becomes the default, with a notice.

Options are written as on the command line, so the address reads like one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st

from app_pages import moment
from app_pages.notices import bad_value
from views.text import Text

_T = TypeVar("_T")


class Controls:
    """A page's controls, in the sidebar. ``notices`` says what the address asked for in vain.

    Every page has its own choices, whatever was chosen on another one; who comes back finds them.
    """

    def __init__(self, page: str, text: Text) -> None:
        self.text = text
        self.notices: list[str] = []
        self.entering = st.session_state.get("page") != page
        st.session_state["page"] = page
        self.kept: dict[str, Any] = st.session_state.setdefault("kept", {}).setdefault(page, {})
        self.returning = st.session_state.pop("returning", False)
        if self.entering:
            moment.enter()
            self._come_back()
        self.place = st.sidebar.container(key="part_controls")

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

    def menu(
        self,
        key: str,
        label: str,
        options: Sequence[str],
        default: str,
        note: str | None = None,
    ) -> str:
        """One of many ``options`` without an order."""
        index = list(options).index(default)
        return self._one(
            key,
            options,
            default,
            lambda bound: st.selectbox(label, options, index, help=note, **bound),
        )

    def switch(self, key: str, label: str, default: bool, note: str) -> bool:
        """On or off."""
        return self._one(
            key,
            (True, False),
            default,
            lambda bound: st.toggle(label, default, help=note, **bound),
        )

    def said(
        self,
        key: str,
        label: str,
        options: Sequence[str],
        default: str,
        words: Callable[[str], str],
    ) -> str:
        """One of a few ``options``, at this place of the page and in words."""
        self._check(key, options, default)
        asked = st.query_params.get(key, default)
        self._prepare(key, default)
        index = options.index(asked if asked in options else default)
        self.kept[key] = chosen = st.radio(
            *(label, options, index),
            format_func=words,
            key=key,
            horizontal=True,
            label_visibility="collapsed",
        )
        if chosen != default:
            st.query_params[key] = chosen
        else:
            st.query_params.pop(key, None)
        return chosen

    def _one(
        self, key: str, options: Sequence[_T], default: _T, widget: Callable[[dict[str, Any]], Any]
    ) -> _T:
        self._check(key, [spelt(option) for option in options], str(default))
        self._prepare(key, default)
        with self.place:
            chosen: _T | None = widget({"key": key, "bind": "query-params"})
        self.kept[key] = default if chosen is None else chosen  # an empty value chooses nothing
        return default if chosen is None else chosen

    def some_of(
        self, key: str, label: str, options: Sequence[str], default: Sequence[str]
    ) -> tuple[str, ...]:
        """At least one of ``options``, in their order; without any, the default."""
        given = [name for name in st.query_params.get_all(key) if name]  # an empty one is none
        for asked in given:
            self._check_one(key, asked, options, ", ".join(default))
        self._prepare(key, list(default))
        if given and not set(given) & set(options):
            st.session_state[key] = list(default)  # or nothing would be chosen
        with self.place:
            chosen = st.pills(
                label,
                options,
                selection_mode="multi",
                default=default,
                key=key,
                bind="query-params",
            )
        self.kept[key] = chosen
        if not chosen:
            self.notices.append(self.text("common.none_chosen", label=label))
        return tuple(name for name in options if name in (chosen or default))

    def _come_back(self) -> None:
        """Chosen here before, and not in the address: the script runs again with those choices.

        Only then the controls of the page before have let go of the address.
        """
        if self.kept and not any(key in st.query_params for key in self.kept):
            for key, value in self.kept.items():
                st.session_state.pop(key, None)
                st.session_state[key] = value
            st.session_state["returning"] = True
            st.rerun()

    def _prepare(self, key: str, default: Any) -> None:
        """To be called before the widget is made: what it shows it then says in the address."""
        if self.entering:
            st.session_state.pop(key, None)  # of another page, which may have other options
        if self.returning and self.kept.get(key, default) != default:
            st.query_params[key] = spelt(self.kept[key])

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


def spelt(value: object) -> Any:
    """As it stands in the address; of several, each."""
    if isinstance(value, list):
        return [spelt(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
