"""Ring, step by step: how does a ring add everything up in 2(n-1) steps?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, player_pictures, show_exports
from app_pages.stage import player
from simcore.units import parse_rate, parse_time
from views.player import PlayerLane, payload, poster_s
from views.ring import (
    RingRun,
    RingSetting,
    arithmetic_rows,
    bytes_header,
    bytes_rows,
    headline,
    ring_run,
)
from views.snippet import ring_snippet
from views.tables import markdown_table
from views.text import Text, load_text

MAX_GPUS = 16  # 256 cells: more cannot be read
MAX_NUMBERS = 24
RATES = ("10Mbit/s", "100Mbit/s", "1Gbit/s", "10Gbit/s")
LATENCIES = ("0us", "200ns", "1us", "5us")


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows for one setting in one language; plain values, so it is cached."""

    headline: str
    player: dict[str, Any]
    arithmetic: str
    bytes: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    controls = Controls("ring", text)
    gpus = controls.number("n", text("ring.gpus"), 2, MAX_GPUS, 4)
    numbers = controls.number(
        "numbers", text("ring.numbers"), 1, MAX_NUMBERS, 8, text("ring.numbers_help")
    )
    rate = controls.choice("rate", text("ring.rate"), RATES, "100Mbit/s")
    latency = controls.choice("latency", text("ring.latency"), LATENCIES, "0us")
    page = build(gpus, numbers, rate, latency, text.language)
    setting = RingSetting(gpus, numbers, parse_rate(rate), parse_time(latency))
    st.title(text("ring.question"), anchor=False)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    moment_s = player(page.player, "ring_player", text)
    with st.container(key="part_numbers"):
        st.header(text("ring.arithmetic"), anchor=False)
        st.markdown(page.arithmetic)
        st.caption(text("ring.arithmetic_note"))
        st.header(text("ring.bytes"), anchor=False)
        st.markdown(page.bytes)
        st.caption(text("ring.bytes_note"))
    question = text("ring.question")
    pictures = player_pictures(
        lambda: [_lane(ring_run(setting), text)], page.player, moment_s, question, text
    )
    show_exports(page.exports, text, pictures)


@st.cache_data(max_entries=256, show_spinner=False)
def build(gpus: int, numbers: int, rate: str, latency: str, language: str) -> Page:
    """Simulate, and say what there is to say."""
    text = load_text(language)
    run = ring_run(RingSetting(gpus, numbers, parse_rate(rate), parse_time(latency)))
    keys = ("common.quantity", "ring.formula", "ring.with_numbers", "ring.result")
    header = [text(key) for key in keys]
    return Page(
        headline(run, text),
        payload([_lane(run, text)], text, poster_s(run.simulation.trace)),
        markdown_table(header, arithmetic_rows(run, text)),
        markdown_table(bytes_header(text), bytes_rows(run)),
        _exports(run, rate, latency),
    )


def _lane(run: RingRun, text: Text) -> PlayerLane:
    return PlayerLane(
        title=text("strategy.ring"),
        schedule=run.schedule,
        cluster=run.setting.cluster(),
        trace=run.simulation.trace,
        lower_bound_s=run.simulation.lower_bound_s,
        inputs=run.setting.inputs(),
    )


def _exports(run: RingRun, rate: str, latency: str) -> Exports:
    setting, trace = run.setting, run.simulation.trace
    command = (
        f"python -m simcore simulate ring --gpus {setting.gpus} --size {setting.size_bytes}B "
        f"--bandwidth {rate} --latency {latency}"
    )
    files = {"csv": trace.to_csv(), "json": trace.to_json(), "perfetto": trace.to_perfetto()}
    name = f"ring-{setting.gpus}x{setting.size_bytes}B"
    return Exports(name, files, command, ring_snippet(setting))
