"""Async and staleness: is asynchronous training faster?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, show_exports
from app_pages.figure_downloads import drawn
from app_pages.race import RATES
from simcore.trace import Trace
from simcore.units import format_time, parse_bytes, parse_rate, parse_time
from views.export import traces_perfetto
from views.snippet import staleness_snippet
from views.staleness.chart import age_chart, legend_html, loss_chart
from views.staleness.lanes import lanes_html, window_s
from views.staleness.modes import (
    MODES,
    PROBLEMS,
    SCALINGS,
    Mode,
    StalenessSetting,
    all_modes,
    headline,
    loss_text,
)
from views.staleness.numbers import export_rows, table_rows
from views.tables import csv_text, markdown_table
from views.text import Text, load_text
from views.vega import on_any_ground

MAX_WORKERS = 16
MAX_BOUND = 16
LEARNING_RATES = ("0.05", "0.1", "0.2", "0.5", "1", "1.2", "1.5", "1.7", "2.2")
STRAGGLERS = ("1", "1.5", "2", "4", "10")
JITTERS = ("0", "10", "30", "50")
COMPUTES = ("10ms", "30ms", "100ms", "300ms", "1s")
SIZES = ("64KiB", "1MiB", "8MiB", "25MiB", "100MiB", "256MiB", "1GiB")


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows for one setting in one language; plain values, so it is cached."""

    headline: str
    legend: str
    by_time: dict[str, Any]
    by_gradients: dict[str, Any]
    loss_note: str
    ages: tuple[tuple[str, dict[str, Any]], ...]
    lanes: str
    lanes_note: str
    table: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    setting = choose(controls := Controls("staleness", text), text)
    page = build(setting, text.language)
    st.title(text("staleness.question"), anchor=False)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    st.html(page.legend)
    with st.container(key="chart"):
        for column, axis in zip(st.columns(2), ("by_time", "by_gradients"), strict=True):
            column.caption(text(f"staleness.{axis}"))
            column.vega_lite_chart(spec=on_any_ground(getattr(page, axis)), width="stretch")
    st.caption(page.loss_note)
    st.header(text("staleness.ages"), anchor=False)
    with st.container(key="chart_ages"):
        for column, (title, chart) in zip(st.columns(len(page.ages)), page.ages, strict=True):
            column.caption(title)
            column.vega_lite_chart(spec=on_any_ground(chart), width="stretch")
    st.caption(text("staleness.ages_note"))
    st.header(text("staleness.lanes"), anchor=False)
    st.html(page.lanes)
    st.caption(page.lanes_note)
    with st.container(key="part_numbers"):
        st.header(text("staleness.numbers"), anchor=False)
        st.markdown(page.table)
        st.caption(text("staleness.note"))
    show_exports(page.exports, text, drawn(lambda: _drawn(setting, text)))


def _drawn(setting: StalenessSetting, text: Text) -> Any:
    from views.staleness.figure import staleness_figure

    return staleness_figure(all_modes(setting), text)


def choose(controls: Controls, text: Text) -> StalenessSetting:
    """The controls; every choice is in the URL."""
    modes = controls.some_of(
        "mode", text("staleness.modes"), MODES, MODES, lambda name: _mode(name, text)
    )
    workers = controls.number("n", text("staleness.workers"), 2, MAX_WORKERS, 8)
    note = text("staleness.bound_help")
    bound = controls.number("s", text("staleness.bound"), 0, MAX_BOUND, 2, note)
    rate = controls.choice("lr", text("staleness.lr"), LEARNING_RATES, "1")
    scaling = controls.one_of("scale", text("staleness.scale"), tuple(SCALINGS), "lr/n")
    slow = controls.choice("slow", text("staleness.straggler"), STRAGGLERS, "2")
    jitter = controls.choice("jitter", text("staleness.jitter"), JITTERS, "10")
    compute = controls.choice("compute", text("staleness.compute"), COMPUTES, "100ms")
    size = controls.choice("size", text("staleness.size"), SIZES, "25MiB")
    bandwidth = controls.choice("rate", text("staleness.rate"), RATES, "25Gbit/s")
    problem = controls.one_of(
        *("problem", text("staleness.problem"), PROBLEMS, "least-squares"),
        lambda name: text(f"staleness.problem_name_{name}"),
    )
    return StalenessSetting(
        *(modes, workers, bound, float(slow), int(jitter) / 100, parse_time(compute)),
        *(parse_bytes(size), parse_rate(bandwidth), problem, float(rate), scaling),
    )


def _mode(name: str, text: Text) -> str:
    return text("staleness.mode_bounded" if name == "ssp" else f"staleness.mode_{name}")


@st.cache_data(max_entries=128, show_spinner=False)
def build(setting: StalenessSetting, language: str) -> Page:
    """Simulate, learn, and say what there is to say."""
    text = load_text(language)
    found = all_modes(setting)
    titles = [mode.title(text) for mode in found]
    return Page(
        headline(found, text),
        legend_html(found, text),
        loss_chart(found, "time", text),
        loss_chart(found, "gradients", text),
        _loss_note(found, text),
        tuple((_age_title(mode, text), age_chart(mode, found, text)) for mode in found),
        lanes_html(found, text),
        text("staleness.lanes_note", time=format_time(window_s(found))),
        markdown_table([text("common.quantity"), *titles], table_rows(found, text)),
        _exports(setting, found),
    )


def _loss_note(found: Sequence[Mode], text: Text) -> str:
    setting = found[0].setting
    notes = [
        text(f"staleness.problem_{setting.problem}"),
        text(
            "staleness.loss_note",
            gradients=setting.gradients,
            n=setting.workers,
            scale=setting.scaling,
            target=loss_text(found[0].target),
        ),
    ]
    if any(mode.curve.diverged for mode in found):
        notes.append(text("staleness.given_up"))
    return text.joined(notes)


def _age_title(mode: Mode, text: Text) -> str:
    ages = {
        "age": f"{mode.run.mean_staleness:.2g}",
        "most": int(mode.run.updates.staleness.max()),
    }
    return text("staleness.age_title", mode=mode.title(text), **ages)


def _exports(setting: StalenessSetting, found: Sequence[Mode]) -> Exports:
    rows = export_rows(found)
    files = {
        "csv": csv_text(rows),
        "json": json.dumps({"setting": asdict(setting), "rows": rows}),
        "perfetto": _perfetto(tuple(mode.run.trace for mode in found)),
    }
    name = f"staleness-{setting.workers}x{setting.size_bytes}B"
    return Exports(name, files, "", staleness_snippet(setting))


@lru_cache(maxsize=8)
def _perfetto(traces: tuple[Trace, ...]) -> str:
    """Kept: the same runs are shown with many learning rates, and this takes longest."""
    return traces_perfetto(traces)
