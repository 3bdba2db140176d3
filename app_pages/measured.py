"""Measured against simulated: how wrong is the simulator?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, Files, player_pictures, show_exports
from app_pages.figure_downloads import drawn
from app_pages.measured_here import run_here, take_result
from app_pages.measured_own import choose_files, own_or_shipped
from app_pages.stage import player
from simcore.measured.validation import UNSHAPED
from simcore.units import format_bytes
from views.export import traces_perfetto
from views.lanes import title_of
from views.line_styles import DASHES, legend_of
from views.measured.chart import residuals, steps_chart, style, unstyled
from views.measured.overlay import AXES, Overlay, names, networks, overlay_chart, places
from views.measured.rows import (
    cells_header,
    cells_rows,
    commands,
    constants,
    doubtful_lines,
    export_json,
    export_rows,
    figures_header,
    figures_rows,
    origin,
    snippet,
)
from views.measured.sets import (
    OWN,
    RECORDS,
    Study,
    cell_words,
    groups,
    headline,
    set_names,
    set_title,
    shipped,
)
from views.measured.traces import Pair, lanes, pairs, traces, words
from views.player import payload
from views.tables import csv_text, markdown_table
from views.text import Text, load_text
from views.vega import on_any_ground

FIRST_LINES = ("ring", "ps", "dp", "tree")  # of the overlay, before anybody chooses


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows of one set in one language; plain values, so it is cached."""

    headline: str
    origin: str
    residuals: dict[str, Any] | None
    overlay: dict[str, Any] | None
    overlay_legend: str
    player: dict[str, Any] | None
    steps: dict[str, Any] | None
    figures: str
    constants: str
    doubtful: tuple[str, ...]
    cells: str
    exports: Exports


@dataclass(frozen=True, slots=True)
class Choice:
    """What the reader picked of a set."""

    overlay: Overlay | None
    cell: str | None


def show(text: Text) -> None:
    """The page."""
    controls = Controls("measured", text, ("t",))
    take_result(text)
    st.title(text("measured.question"), anchor=False)
    mine = own_or_shipped(text)
    study = mine or shipped(_which(controls, text))
    choice = choose(study, controls, text)
    if mine is None:
        page = build(study.name, choice, text.language)
    else:
        page = build_page(study, choice, text)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    st.caption(page.origin)
    _show_charts(page, text)
    moment_s = _show_trace(page, text)
    if page.steps:
        st.header(text("measured.steps"), anchor=False)
        _chart(page.steps, "chart_steps")
        st.caption(text("measured.steps_caption"))
    _show_numbers(page, text)
    st.header(text("measured.own"), anchor=False)
    choose_files(text)
    here = st.expander(text("measured.here"), key="measured_here", on_change="rerun")
    if here.open:
        with here:
            run_here(text)
    show_exports(page.exports, text, _files(study, choice, page, moment_s, text))


def _which(controls: Controls, text: Text) -> str:
    sets = set_names()
    if len(sets) == 1:
        return sets[0]
    return controls.one_of(
        *("set", text("measured.set"), sets, sets[0]), lambda name: set_title(name, text)
    )


def choose(study: Study, controls: Controls, text: Text) -> Choice:
    """What there is to choose in this set; every set has choices of its own in the address."""
    prefix = {RECORDS: "", OWN: "own_"}.get(study.name, f"{study.name}_")
    found = list(pairs(study))
    on = networks(study)
    overlay = _overlay(study, on, prefix, controls, text) if on else None
    cell = found[0] if found else None
    if len(found) > 1:
        first = next((key for key in found if key.startswith("ring-")), found[0])
        label = text("measured.pick_cell")
        cell = controls.menu(
            f"{prefix}cell",
            label,
            [*found],
            first,
            lambda key: cell_words(pairs(study)[key].cell, text),
        )
    return Choice(overlay, cell)


def _overlay(
    study: Study, on: tuple[str | None, ...], prefix: str, controls: Controls, text: Text
) -> Overlay:
    axis = controls.one_of(
        *(f"{prefix}axis", text("measured.axis"), AXES, "gpus"),
        lambda name: text(f"measured.axis_{name}"),
    )
    network = on[0]
    if len(on) > 1:
        spelt = {name or UNSHAPED: name for name in on}
        first, label = next(iter(spelt)), text("measured.network")
        network = spelt[
            controls.menu(
                *(f"{prefix}network", label, [*spelt], first),
                lambda name: spelt[name] or text("measured.unshaped"),
            )
        ]
    options, fixed = places(study, axis, network)
    if len(options) > 1:
        fixed = _fixed(axis, options, fixed, prefix, controls, text)
    there = names(study)
    lines = there
    if len(there) > 1:
        default = [name for name in there if name in FIRST_LINES] or there[:4]
        lines = controls.some_of(
            f"{prefix}lines",
            text("measured.lines"),
            there,
            default,
            lambda name: title_of(name, text),
        )
    return Overlay(axis, fixed, network, lines)


def _fixed(
    axis: str, options: tuple[int, ...], best: int, prefix: str, controls: Controls, text: Text
) -> int:
    """Where the other axis stands: a size in bytes, or a number of ranks."""
    if axis == "size":
        shown = [str(option) for option in options]
        return int(controls.choice(f"{prefix}n", text("measured.ranks"), shown, str(best)))
    shown = [format_bytes(option).replace(" ", "") for option in options]
    of = dict(zip(shown, options, strict=True))
    default = shown[options.index(best)]
    return of[controls.choice(f"{prefix}size", text("race.size"), shown, default)]


@st.cache_data(max_entries=128, show_spinner=False)
def build(name: str, choice: Choice, language: str) -> Page:
    """A shipped set."""
    return build_page(shipped(name), choice, load_text(language))


def build_page(study: Study, choice: Choice, text: Text) -> Page:
    """Say and draw what there is."""
    overlay, found = choice.overlay, groups(study.cells)
    predicted = any(cell.error is not None for cell in study.cells)
    pair = pairs(study).get(choice.cell or "")
    name = f"measured-{study.name}"
    return Page(
        headline(study, text),
        origin(study, text),
        residuals(study, text) if predicted else None,
        overlay_chart(study, overlay, text) if overlay else None,
        _legend(study, overlay, text) if overlay else "",
        _player(pair, text) if pair else None,
        steps_chart(study, text),
        markdown_table(figures_header(found, text), figures_rows(found, study, text)),
        constants(study, text),
        tuple(doubtful_lines(study, text)),
        markdown_table(cells_header(text), cells_rows(study.cells, text)),
        Exports(name, {}, commands(study), snippet(study.name)),
    )


def _player(pair: Pair, text: Text) -> dict[str, Any]:
    shown = lanes(pair, text)
    start_s = pair.measured.time_s * 0.4
    return payload(shown, words(pair, text), start_s, view="compare")


def _legend(study: Study, overlay: Overlay, text: Text) -> str:
    others = unstyled(study.cells)
    samples = []
    for name in dict.fromkeys(cell.name for cell in overlay.points(study)):
        colour, shape = style(name, others)
        dash = DASHES.get(name, [1, 0])
        samples.append((colour, dash, shape, text.phrases.get(f"strategy.{name}", name)))
    return legend_of(samples)


def _chart(spec: dict[str, Any], key: str) -> None:
    with st.container(key=key):
        st.vega_lite_chart(spec=on_any_ground(spec), width="stretch")


def _show_charts(page: Page, text: Text) -> None:
    if page.residuals:
        st.header(text("measured.errors"), anchor=False)
        _chart(page.residuals, "chart_errors")
        st.caption(text("measured.errors_caption"))
    st.header(text("measured.overlay"), anchor=False)
    if page.overlay is None:
        st.caption(text("measured.overlay_none"))
        return
    st.html(page.overlay_legend)
    _chart(page.overlay, "chart_times")
    st.caption(text("measured.overlay_caption"))


def _show_trace(page: Page, text: Text) -> float:
    if page.player is None:
        return 0.0
    st.header(text("measured.trace"), anchor=False)
    moment_s = player(page.player, "measured_player", text)
    st.caption(text("measured.trace_caption"))
    return moment_s


def _show_numbers(page: Page, text: Text) -> None:
    with st.container(key="part_numbers"):
        st.header(text("measured.numbers"), anchor=False)
        st.markdown(page.figures)
        st.caption(text("measured.numbers_note"))
        if page.constants:
            st.markdown(f"{text('measured.constants')}  \n{page.constants}")
        for line in page.doubtful:
            st.markdown(line)
        with st.expander(text("measured.every_cell")):
            st.markdown(page.cells)


def _files(study: Study, choice: Choice, page: Page, moment_s: float, text: Text) -> Files:
    """The figure; and of a trace what a player gives away."""
    files: Files = {
        "csv": lambda: csv_text(export_rows(study, choice.overlay)),
        "json": lambda: export_json(study, choice.overlay),
        **drawn(lambda: _figure(study, choice, text)),
    }
    pair = pairs(study).get(choice.cell or "")
    if pair is None or page.player is None:
        return files
    question = text("measured.question")
    pictures = player_pictures(
        lambda: lanes(pair, text),
        page.player,
        moment_s,
        question,
        words(pair, text),
    )
    return files | {"perfetto": lambda: traces_perfetto(traces(lanes(pair, text)))} | pictures


def _figure(study: Study, choice: Choice, text: Text) -> Any:
    from views.measured.figure import measured_figure

    return measured_figure(study, choice.overlay, text)
