"""Traffic: where do the bytes go?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, show_exports
from app_pages.figure_downloads import figure_file
from app_pages.race import LATENCIES, RATES, SIZES
from simcore.units import parse_bytes, parse_rate, parse_time
from views.snippet import traffic_snippet
from views.tables import csv_text, markdown_table
from views.text import Text, load_text
from views.traffic import (
    IN_PIECES,
    TrafficSetting,
    all_traffic,
    bars_html,
    export_rows,
    headline,
    table_header,
    table_rows,
)

MAX_GPUS = 16


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows for one setting in one language; plain values, so it is cached."""

    headline: str
    bars: str
    table: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    controls = Controls("traffic", text)
    gpus = controls.number("n", text("traffic.gpus"), 2, MAX_GPUS, 4)
    servers = controls.number(
        "servers", text("traffic.servers"), 1, MAX_GPUS, 4, text("traffic.servers_help")
    )
    size = controls.choice("size", text("race.size"), SIZES, "8MiB")
    rate = controls.choice("rate", text("race.rate"), RATES, "200Mbit/s")
    latency = controls.choice("latency", text("race.latency"), LATENCIES, "0us")
    page = build(gpus, servers, size, rate, latency, text.language)
    st.title(text("traffic.question"), anchor=False)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    st.caption(text("traffic.legend"))
    st.html(page.bars)
    with st.container(key="part_numbers"):
        st.header(text("traffic.numbers"), anchor=False)
        st.markdown(page.table)
        names = {"whole": text.strategy("ps-dedicated"), "pieces": text.strategy(IN_PIECES)}
        st.caption(text("traffic.note", **names))
    numbers = (parse_bytes(size), parse_rate(rate), parse_time(latency))
    figure = figure_file(TrafficSetting(gpus, *numbers, servers), text)
    show_exports(page.exports, text, figure)


@st.cache_data(max_entries=256, show_spinner=False)
def build(gpus: int, servers: int, size: str, rate: str, latency: str, language: str) -> Page:
    """Simulate, and say what there is to say."""
    text = load_text(language)
    sizes = (parse_bytes(size), parse_rate(rate), parse_time(latency))
    setting = TrafficSetting(gpus, *sizes, servers)
    found = all_traffic(setting)
    rows = export_rows(found, setting)
    document = {"setting": asdict(setting), "rows": rows}
    files = {"csv": csv_text(rows), "json": json.dumps(document, indent=1)}
    case = f"--gpus {gpus} --size {size} --bandwidth {rate} --latency {latency}"
    commands = [f"python -m simcore compare {case}"]
    commands += [
        f"python -m simcore simulate {traffic.name} {case} {flags}"
        for traffic in found
        if (flags := _as_typed(traffic.schedule.flags)) and traffic.name != IN_PIECES
    ]
    return Page(
        headline(found, setting, text),
        bars_html(found, text),
        markdown_table(table_header(text), table_rows(found, setting, text)),
        Exports(f"traffic-{gpus}x{size}", files, "\n".join(commands), traffic_snippet(setting)),
    )


def _as_typed(flags: Mapping[str, int]) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in flags.items())
