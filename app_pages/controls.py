"""Controls whose choice stands in the address; a bad one there becomes the default, with a notice.

The address reads like the command line: values stand there as they are typed, whatever words a
control shows for them. What is in the address and no choice of the page is told of and taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app_pages import moment
from app_pages.notices import bad_value, given_twice, unknown
from views.text import Text

_T = TypeVar("_T")

Words = Callable[[str], str]  # what a control shows for an option
# A widget, given what it begins with and how it is tied to its key.
Widget = Callable[[Any, dict[str, Any]], Any]

EVERYWHERE = ("lang", "hide")


class Controls:
    """A page's controls, in the sidebar. ``notices`` says what the address asked for in vain.

    ``also`` names what else the page reads from the address: ``t``, ``change``. Every page has its
    own choices, whatever was chosen on another one; who comes back finds them.
    """

    def __init__(self, page: str, text: Text, also: Sequence[str] = ()) -> None:
        self.text, self.also = text, also
        self.notices: list[str] = []
        self.keys: dict[str, bool] = {}  # of the controls so far: whether Streamlit binds them
        self.entering = st.session_state.get("page") != page
        st.session_state["page"] = page
        self.kept: dict[str, Any] = st.session_state.setdefault("kept", {}).setdefault(page, {})
        defaults = st.session_state.setdefault("defaults", {})
        self.defaults: dict[str, int] = defaults.setdefault(page, {})
        self.returning = st.session_state.pop("returning", False)
        if self.entering:
            moment.enter()
            self._come_back()
        self.place = st.sidebar.container(key="part_controls")

    def number(
        self, key: str, label: str, low: int, high: int, default: int, note: str | None = None
    ) -> int:
        """A whole number from ``low`` to ``high``; one that was left at its default follows it."""
        before = self.defaults.get(key, default)
        self.defaults[key] = default
        if before != default and st.session_state.get(key) == before:
            st.session_state[key] = default
        return self._one(
            key,
            range(low, high + 1),
            default,
            lambda first, tied: st.slider(label, low, high, first, help=note, **tied),
        )

    def choice(
        self, key: str, label: str, options: Sequence[str], default: str, words: Words | None = None
    ) -> str:
        """One of ``options``, which have an order."""
        return self._one(
            key,
            options,
            default,
            lambda first, tied: st.select_slider(label, options, first, **tied),
            words,
        )

    def one_of(
        self, key: str, label: str, options: Sequence[str], default: str, words: Words | None = None
    ) -> str:
        """One of a few ``options`` without an order."""
        return self._one(
            key,
            options,
            default,
            lambda first, tied: st.segmented_control(
                label, options, default=first, required=True, **tied
            ),
            words,
        )

    def menu(
        self,
        key: str,
        label: str,
        options: Sequence[str],
        default: str,
        words: Words | None = None,
        note: str | None = None,
    ) -> str:
        """One of many ``options`` without an order."""
        return self._one(
            key,
            options,
            default,
            lambda first, tied: st.selectbox(
                label, options, list(options).index(first), help=note, **tied
            ),
            words,
        )

    def switch(self, key: str, label: str, default: bool, note: str) -> bool:
        """On or off."""
        return self._one(
            key,
            (True, False),
            default,
            lambda first, tied: st.toggle(label, first, help=note, **tied),
        )

    def said(self, key: str, label: str, options: Sequence[str], default: str, words: Words) -> str:
        """One of a few ``options``, at this place of the page."""
        return self._one(
            key,
            options,
            default,
            lambda first, tied: st.radio(
                label,
                options,
                list(options).index(first),
                horizontal=True,
                label_visibility="collapsed",
                **tied,
            ),
            words,
            at_the_side=False,
        )

    def some_of(
        self, key: str, label: str, options: Sequence[str], default: Sequence[str], words: Words
    ) -> tuple[str, ...]:
        """At least one of ``options``, in their order; without any, the default."""
        given = [name for name in st.query_params.get_all(key) if name]  # an empty one is none
        first = [name for name in options if name in given] or list(default)
        for asked in given:
            if asked not in options:
                bad = bad_value(key, asked, options, ", ".join(first), self.text)
                self.notices.append(bad)
        self._prepare(key, list(default), bound=False)
        nothing = key in st.query_params and not any(st.query_params.get_all(key))
        begin = [name for name in options if name in st.query_params.get_all(key)]
        tied = self._in_words(key, begin or list(default), words)
        with self.place:
            chosen = st.pills(
                label, options, selection_mode="multi", default=begin or list(default), **tied
            )
        if nothing or not chosen:
            self.notices.append(self.text("common.none_chosen", label=label))
        self._follow(key, [name for name in options if name in chosen], list(default))
        return tuple(name for name in options if name in (chosen or default))

    def _one(
        self,
        key: str,
        options: Sequence[_T],
        default: _T,
        widget: Widget,
        words: Words | None = None,
        *,
        at_the_side: bool = True,
    ) -> _T:
        accepted = {spelt(option): option for option in options}
        given = st.query_params.get_all(key)  # before the widget is made, which tidies the address
        self._prepare(key, default, bound=words is None)
        first, tied = default, {"key": key, "bind": "query-params"}
        if words is not None:
            asked = st.query_params.get_all(key)
            first = accepted.get(asked[0], default) if len(asked) == 1 else default
            if not asked and not self.entering:  # away with another choice, and back
                first = accepted.get(spelt(self.kept.get(key, default)), default)
            tied = self._in_words(key, first, words)
        if at_the_side:
            with self.place:
                shown: _T | None = widget(first, tied)
        else:
            shown = widget(first, tied)
        chosen = default if shown is None else shown  # an empty value chooses nothing
        self.kept[key] = chosen
        self._tell(key, given, list(accepted), spelt(chosen))
        if words is not None:
            self._follow(key, chosen, default)
        return chosen

    def _in_words(self, key: str, asked: Any, words: Words) -> dict[str, Any]:
        """For a widget that shows words: Streamlit would write those into the address."""
        context = get_script_run_ctx()
        if context is not None and context.is_history_navigation:  # the address has been changed
            st.session_state[key] = asked
        return {"key": key, "format_func": words}

    def _follow(self, key: str, chosen: Any, default: Any) -> None:
        """The address says what a widget in words shows; the default is left out."""
        self.kept[key] = chosen
        written, several = st.query_params.get_all(key), isinstance(chosen, list)
        if not chosen or chosen == default or (several and set(chosen) == set(default)):
            if written:
                del st.query_params[key]
        elif written != (spelt(chosen) if several else [spelt(chosen)]):
            st.query_params[key] = spelt(chosen)

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

    def _prepare(self, key: str, default: Any, *, bound: bool) -> None:
        """To be called before the widget is made: what it shows it then says in the address."""
        self.keys[key] = bound
        if self.entering:
            st.session_state.pop(key, None)  # of another page, which may have other options
        if self.returning and self.kept.get(key, default) != default:
            st.query_params[key] = spelt(self.kept[key])

    def _tell(self, key: str, given: Sequence[str], accepted: Sequence[str], shown: str) -> None:
        """What the address asked for in vain."""
        if len(given) > 1:
            self.notices.append(given_twice(key, shown, self.text))
        elif given and given[0] not in accepted:
            self.notices.append(bad_value(key, given[0], accepted, shown, self.text))

    def show_notices(self) -> None:
        """What was not accepted, at this place of the page: when all controls are there."""
        self._tidy()
        for notice in self.notices:
            st.info(notice)

    def _tidy(self) -> None:
        """Takes out of the address what is no parameter here.

        What another page or another choice had left there goes without a notice.
        """
        seen: dict[str, bool] = st.session_state.setdefault("parameters", {})
        here = (*self.keys, *self.also, *EVERYWHERE)
        for key in [key for key in st.query_params if key not in here]:
            if key not in seen:
                self.notices.append(unknown(key, here, self.text))
            if not seen.get(key, False):  # one that Streamlit binds it takes out itself
                del st.query_params[key]
        seen |= self.keys | dict.fromkeys(self.also, False)


def spelt(value: object) -> Any:
    """As it stands in the address; of several, each."""
    if isinstance(value, list):
        return [spelt(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
