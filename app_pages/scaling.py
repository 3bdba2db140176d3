"""Scaling: who wins where?"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, show_exports
from app_pages.race import LATENCIES, RATES, SIZES
from simcore.records import Record, load_records
from simcore.units import format_bytes, parse_bytes, parse_rate, parse_time
from views.race import FRAME_FACTOR, Setting
from views.scaling import (
    AXES,
    LINES,
    Scaling,
    export_rows,
    flags_for,
    headline,
    measured_points,
    stretches,
    table_header,
    table_rows,
)
from views.scaling_chart import chart, legend_html
from views.tables import csv_text, markdown_table
from views.text import Text, load_text

MAX_GPUS = 32
DEFAULT_LINES = ("ring", "ps", "tree")


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows for one setting in one language; plain values, so it is cached."""

    headline: str
    legend: str
    chart: dict[str, Any]
    measured: str
    table: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    controls = Controls("scaling", text)
    axis = controls.one_of("axis", text("scaling.axis"), tuple(AXES), "size")
    lines = controls.some_of("lines", text("scaling.lines"), LINES, DEFAULT_LINES)
    base = choose(controls, axis, text)
    page = build(Scaling(axis, lines, base), text.language)
    st.title(text("scaling.question"), anchor=False)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    st.html(page.legend)
    with st.container(key="chart"):
        st.vega_lite_chart(spec=page.chart, width="stretch")
    st.caption(page.measured)
    st.header(text("scaling.numbers"), anchor=False)
    st.markdown(page.table)
    st.caption(text("scaling.note"))
    show_exports(page.exports, text)


def choose(controls: Controls, axis: str, text: Text) -> Setting:
    """What does not stand on the axis; that has no control."""
    gpus, size, rate, latency = 8, "8MiB", "25Gbit/s", "20us"
    if axis != "gpus":
        gpus = controls.number("n", text("race.gpus"), 2, MAX_GPUS, gpus)
    if axis != "size":
        size = controls.choice("size", text("race.size"), SIZES, size)
    if axis != "bandwidth":
        rate = controls.choice("rate", text("race.rate"), RATES, rate)
    if axis != "latency":
        latency = controls.choice("latency", text("race.latency"), LATENCIES, latency)
    note = text("race.frames_help", factor=FRAME_FACTOR)
    frames = controls.switch("frames", text("race.frames"), True, note)
    return Setting(gpus, parse_bytes(size), parse_rate(rate), parse_time(latency), frames)


@st.cache_data(max_entries=256, show_spinner=False)
def build(scaling: Scaling, language: str) -> Page:
    """Simulate, and say what there is to say."""
    text = load_text(language)
    records = load_records()
    found, points = stretches(scaling), measured_points(scaling, records)
    rows = export_rows(scaling, points)
    files = {"csv": csv_text(rows), "json": json.dumps({"rows": rows}, indent=1)}
    return Page(
        headline(scaling, found, text),
        legend_html(scaling, text),
        chart(scaling, found, points, text),
        text("scaling.measured") if points else _where_measured(records, text),
        markdown_table(table_header(scaling, text), table_rows(scaling, points, text)),
        Exports(f"scaling-{scaling.axis}", files, _commands(scaling)),
    )


def _where_measured(records: tuple[Record, ...], text: Text) -> str:
    """No measured run lies on these lines: where the shipped ones do."""
    if not records:
        return text("race.no_records")
    gpus = sorted({record.gpus for record in records})
    sizes = sorted({record.size_bytes for record in records})
    networks = sorted({record.network for record in records if record.network})
    return text(
        "scaling.none_measured",
        gpus=", ".join(map(str, gpus)),
        sizes=", ".join(map(format_bytes, sizes)),
        networks=", ".join(networks),
    )


def _commands(scaling: Scaling) -> str:
    """Loops along the axis; the rate is that of the data, without frame headers."""
    factor = FRAME_FACTOR if scaling.base.frames else 1.0
    words: dict[str, Callable[[float], str]] = {
        "gpus": "{:.0f}".format,
        "size": "{:.0f}B".format,
        "bandwidth": lambda bytes_per_s: f"{bytes_per_s / factor:.12g}B/s",
        "latency": lambda latency_s: f"{latency_s * 1e6:.12g}us",
    }
    base = scaling.base
    values = (base.gpus, base.size_bytes, base.bytes_per_s, base.latency_s)
    case = {name: words[name](value) for name, value in zip(words, values, strict=True)}
    case[scaling.axis] = "$x"
    flags = " ".join(f"--{name} {value}" for name, value in case.items())
    places = " ".join(map(words[scaling.axis], scaling.xs))

    def loop(names: Sequence[str], more: str) -> str:
        command = f"python -m simcore simulate $name {flags}{more}"
        names_here = " ".join(names)
        return f"for name in {names_here}; do for x in {places}; do {command}; done; done"

    plain = [name for name in scaling.lines if not flags_for(name, base.gpus)]
    loops = [loop(plain, "")] if plain else []
    for name in scaling.lines:
        for flag, value in flags_for(name, base.gpus).items():
            along = flag == "servers" and scaling.axis == "gpus"
            loops.append(loop([name], f" --{flag} {'$x' if along else value}"))
    return "\n".join(loops)
