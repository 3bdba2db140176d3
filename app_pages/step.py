"""One training step: where does its time go?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, show_exports
from app_pages.figure_downloads import drawn
from app_pages.race import LATENCIES
from simcore.cluster_file import presets
from simcore.training.catalogue import catalogue_names
from simcore.training.gpus import gpu_names
from simcore.training.step import StepResult
from views.export import traces_perfetto
from views.player import source_text
from views.snippet import step_snippet
from views.step.chart import describe, lane_of, timeline_html
from views.step.memory import describe as describe_memory
from views.step.memory import fits_words, memory_header, memory_html, memory_rows
from views.step.runs import NAMES, ONE_SWITCH, StepChoice, refusal, run_step
from views.step.sweep import sentence, sweep, sweep_chart
from views.step.tables import (
    assumptions,
    bucket_header,
    bucket_note,
    bucket_rows,
    commands,
    compare,
    comparison_header,
    comparison_rows,
    export_json,
    export_rows,
    number_table,
    skipped_words,
    timeline_header,
    timeline_rows,
)
from views.step.words import compute_words, headline, name_of, network_words
from views.tables import csv_text
from views.text import HTML_LANGUAGES, Text, load_text
from views.vega import on_any_ground

MAX_GPUS = 64
BATCHES = tuple(str(2**power) for power in range(10))  # 1 to 512
RATES = (
    *("100Mbit/s", "1Gbit/s", "10Gbit/s", "25Gbit/s", "50Gbit/s"),
    *("100Gbit/s", "200Gbit/s", "400Gbit/s", "1600Gbit/s", "3600Gbit/s"),
)
DEFAULT_CAP = "default"
CAPS = (DEFAULT_CAP, "1", "2", "5", "10", "25", "35", "50", "100", "200", "500", "1000")
SLOWER = ("1", "1.1", "1.25", "1.5", "2", "3")
NO_LAUNCH = "0s"
LAUNCHES = (NO_LAUNCH, "100us", "1ms", "2ms", "5ms", "10ms", "20ms", "50ms", "100ms")
LOCAL_PERIOD = 8

_MOUNT = st.components.v2.component(
    "syncscope_step_picture",
    html='<div class="figure" tabindex="0" role="group" data-testid="figure">'
    '<div class="body"></div><p class="readout" aria-live="polite"></p></div>',
    css=source_text("step/step.css"),
    js=source_text("step/step.js"),
)


@dataclass(frozen=True, slots=True)
class Page:
    """What is drawn of two strategies; plain values, so it is cached."""

    headline: str
    timeline: dict[str, str]
    note: str
    table: tuple[tuple[str, str], ...]
    buckets: str
    buckets_note: str
    fits: str
    memory: dict[str, str]
    memory_table: str
    assumptions: str


@dataclass(frozen=True, slots=True)
class Wider:
    """What takes more runs than the two that are drawn."""

    sweep: str
    chart: dict[str, Any] | None
    comparison: str
    skipped: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    controls = Controls("step", text)
    choice = possible(choose(controls, text), controls, text)
    page = build(choice, text.language)
    st.title(text("step.question"), anchor=False)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    _MOUNT(data=page.timeline, key="step_timeline")
    st.caption(page.note)
    with st.expander(text("step.table")):
        for title, rows in page.table:
            st.markdown(f"**{title}**")
            st.markdown(rows)
    wider = build_wider(choice, text.language)
    with st.container(key="part_numbers"):
        _show_numbers(page, text)
        _show_wider(wider, text)
        st.header(text("step.assumptions"), anchor=False)
        st.markdown(page.assumptions)
    show_exports(wider.exports, text, drawn(lambda: _drawn(choice, text)))


def _show_numbers(page: Page, text: Text) -> None:
    st.header(text("step.buckets"), anchor=False)
    st.markdown(page.buckets)
    st.caption(page.buckets_note)
    st.header(text("step.memory"), anchor=False)
    st.markdown(page.fits)
    _MOUNT(data=page.memory, key="step_memory")
    with st.expander(text("step.table")):
        st.markdown(page.memory_table)
    st.caption(text("step.memory_note"))


def _show_wider(wider: Wider, text: Text) -> None:
    st.header(text("step.sweep"), anchor=False)
    st.markdown(wider.sweep)
    if wider.chart:
        with st.container(key="chart"):
            st.vega_lite_chart(spec=on_any_ground(wider.chart), width="stretch")
    st.header(text("step.comparison"), anchor=False)
    st.markdown(wider.comparison)
    if wider.skipped:
        st.caption(wider.skipped)
    st.caption(text("step.comparison_note", period=LOCAL_PERIOD))


def choose(controls: Controls, text: Text) -> StepChoice:
    """The controls; every choice is in the address."""

    def strategy(name: str) -> str:
        return name_of(name, text)

    first = controls.menu("a", text("step.first"), NAMES, "ddp", strategy)
    second = controls.menu("b", text("step.second"), NAMES, "dp", strategy)
    model = controls.menu("model", text("step.model"), catalogue_names(), "resnet50")
    gpu = controls.menu("gpu", text("step.gpu"), gpu_names(), "V100 16GB")
    batch = controls.choice("batch", text("step.batch"), BATCHES, "64")
    gpus = controls.number("n", text("step.gpus"), 2, MAX_GPUS, 4)
    networks = (ONE_SWITCH, *presets())
    label, note = text("step.network"), text("step.network_help")
    network = controls.menu(
        *("network", label, networks, ONE_SWITCH),
        lambda name: text("step.network_one") if name == ONE_SWITCH else name,
        note,
    )
    rate, latency = "25Gbit/s", "20us"
    if network == ONE_SWITCH:
        rate = controls.choice("rate", text("step.rate"), RATES, rate)
        latency = controls.choice("latency", text("step.latency"), LATENCIES, latency)

    def cap_words(cap: str) -> str:
        return text("step.cap_default") if cap == DEFAULT_CAP else cap

    cap = controls.choice("cap", text("step.cap"), CAPS, DEFAULT_CAP, cap_words)
    choice = StepChoice(model, gpu, int(batch), gpus, network, rate, latency, first, second)
    return replace(
        _choose_more(controls, choice, text), cap_mb=None if cap == DEFAULT_CAP else float(cap)
    )


def _choose_more(controls: Controls, choice: StepChoice, text: Text) -> StepChoice:
    """What is rarely changed, folded away."""
    controls.place = controls.place.expander(text("step.more"))
    accumulate = controls.number(
        "accumulate", text("step.accumulate"), 1, 16, 1, text("step.accumulate_help")
    )
    overlap = controls.number(
        "overlap", text("step.overlap"), 0, 100, 100, text("step.overlap_help")
    )
    backend = controls.one_of("backend", text("step.backend"), ("nccl", "gloo"), "nccl")
    slower = controls.choice("slower", text("step.slower"), SLOWER, "1")
    launch = NO_LAUNCH
    if "dp" in (choice.first, choice.second):
        label, note = text("step.launch"), text("step.launch_help")
        launch = controls.menu("launch", label, LAUNCHES, NO_LAUNCH, note=note)
    return replace(
        choice,
        accumulate=accumulate,
        overlap_percent=overlap,
        backend=backend,
        slower=float(slower),
        launch=launch,
    )


def possible(choice: StepChoice, controls: Controls, text: Text) -> StepChoice:
    """The choice, with a strategy in place of one that cannot be shown, and a notice."""

    instead = "ddp" if refusal(choice, "ddp", text) is None else "local-sgd"

    def possible_one(name: str) -> str:
        reason = refusal(choice, name, text)
        if reason is None:
            return name
        values = {"name": name_of(name, text), "shown": name_of(instead, text)}
        controls.notices.append(text("step.refused", reason=reason, **values))
        return instead

    return replace(choice, first=possible_one(choice.first), second=possible_one(choice.second))


@st.cache_data(max_entries=64, show_spinner=False)
def build(choice: StepChoice, language: str) -> Page:
    """Simulate the two strategies, and say what there is to say."""
    text = load_text(language)
    results = runs_of(choice)
    lanes = [lane_of(result) for result in results]
    header = timeline_header(text)
    table = (part for result in results for part in timeline_rows(result, text))
    memory = memory_html(choice, results, text)
    about = assumptions(choice, text, network_words(choice, text), compute_words(choice, text))
    return Page(
        headline(choice, results, text),
        _figure(timeline_html(lanes, text), describe(lanes, text), text),
        text("step.chart_note"),
        tuple((title, number_table(header, rows)) for title, rows in table),
        number_table(bucket_header(text), bucket_rows(choice, text)),
        bucket_note(choice, text),
        fits_words(choice, results, text),
        _figure(memory, describe_memory(choice, results, text), text),
        number_table(memory_header(text), memory_rows(results, text)),
        about,
    )


def _drawn(choice: StepChoice, text: Text) -> Any:
    from views.step.figure import step_figure

    return step_figure(choice, runs_of(choice), text)


def runs_of(choice: StepChoice) -> list[StepResult]:
    """Those that are drawn: one where both strategies are the same."""
    return [run_step(choice, name) for name in dict.fromkeys((choice.first, choice.second))]


def _figure(html: str, label: str, text: Text) -> dict[str, str]:
    lang = HTML_LANGUAGES[text.language]
    return {"html": html, "label": label, "hint": text("step.hint"), "lang": lang}


@st.cache_data(max_entries=64, show_spinner=False)
def build_wider(choice: StepChoice, language: str) -> Wider:
    """The sweep over bucket caps, all strategies, and the files."""
    text = load_text(language)
    points = sweep(choice)
    compared = compare(choice, text)
    shown = runs_of(choice)
    files = {
        "csv": csv_text(export_rows(choice, compared)),
        "json": export_json(choice, shown, compared, points),
        "perfetto": traces_perfetto([result.run.trace() for result in shown]),
    }
    name = f"step-{choice.model}-{choice.gpus}gpus"
    return Wider(
        sentence(points, choice, text) if points else text("step.sweep_none"),
        sweep_chart(points, choice, text) if points else None,
        number_table(comparison_header(text), comparison_rows(choice, compared, text)),
        skipped_words(compared, text),
        Exports(name, files, commands(choice), step_snippet(choice)),
    )
