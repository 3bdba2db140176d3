"""Ring, step by step: how does a ring add everything up in 2(n-1) steps?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, player_pictures, show_exports
from app_pages.fork import asked_changes, keep_changes
from app_pages.stage import player
from simcore.units import parse_rate, parse_time
from views.fork import Fork, fork, fork_data
from views.fork import headline as forked_headline
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
    notices: tuple[str, ...]
    made: tuple[str, ...]
    arithmetic: str
    bytes: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    controls = Controls("ring", text, ("t", "change"))
    gpus = controls.number("n", text("ring.gpus"), 2, MAX_GPUS, 4)
    note, usual = text("ring.numbers_help"), usual_numbers(gpus)
    numbers = controls.number("numbers", text("ring.numbers"), 1, MAX_NUMBERS, usual, note)
    rate = controls.choice("rate", text("ring.rate"), RATES, "100Mbit/s")
    latency = controls.choice("latency", text("ring.latency"), LATENCIES, "0us")
    changes = asked_changes(controls)
    page = build(gpus, numbers, rate, latency, text.language, changes)
    setting = RingSetting(gpus, numbers, parse_rate(rate), parse_time(latency))
    controls.notices += page.notices
    keep_changes(page.made)
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
        lambda: _lanes(ring_run(setting), changes, text)[0], page.player, moment_s, question, text
    )
    show_exports(page.exports, text, pictures)


def usual_numbers(gpus: int) -> int:
    """The fewest from 8 on of which every chunk gets as many.

    >>> [usual_numbers(gpus) for gpus in (2, 3, 4, 16)]
    [8, 9, 8, 16]
    """
    return -(-8 // gpus) * gpus


@st.cache_data(max_entries=256, show_spinner=False)
def build(
    gpus: int, numbers: int, rate: str, latency: str, language: str, changes: tuple[str, ...] = ()
) -> Page:
    """Simulate, with what the reader changed, and say what there is to say."""
    text = load_text(language)
    setting = RingSetting(gpus, numbers, parse_rate(rate), parse_time(latency))
    run = ring_run(setting)
    lanes, forked = _lanes(run, changes, text)
    panel = fork_data(forked, repr(setting), [lane.title for lane in lanes], text)
    keys = ("common.quantity", "ring.formula", "ring.with_numbers", "ring.result")
    header = [text(key) for key in keys]
    start_s = poster_s(run.simulation.trace)  # the same whatever the reader changes
    return Page(
        forked_headline(forked, [text("strategy.ring.inline")], headline(run, text), text),
        payload(lanes, text, start_s, fork=panel),
        forked.notices,
        forked.spelt,
        markdown_table(header, arithmetic_rows(run, text)),
        markdown_table(bytes_header(text), bytes_rows(run)),
        _exports(run, rate, latency, forked),
    )


def _lanes(run: RingRun, changes: tuple[str, ...], text: Text) -> tuple[list[PlayerLane], Fork]:
    """The ring; with changes, beside what was to come."""
    lane = PlayerLane(
        title=text("strategy.ring"),
        schedule=run.schedule,
        cluster=run.setting.cluster(),
        trace=run.simulation.trace,
        lower_bound_s=run.simulation.lower_bound_s,
        inputs=run.setting.inputs(),
    )
    forked = fork([run.simulation], changes, text)
    return forked.lanes([lane], text), forked


def _exports(run: RingRun, rate: str, latency: str, forked: Fork) -> Exports:
    setting, (after,) = run.setting, forked.after
    command = (
        f"python -m simcore simulate ring --gpus {setting.gpus} --size {setting.size_bytes}B "
        f"--bandwidth {rate} --latency {latency}"
    )
    command += "".join(f" --slow-link '{change}'" for change in forked.spelt)
    trace = after.trace
    files = {"csv": trace.to_csv(), "json": trace.to_json(), "perfetto": trace.to_perfetto()}
    name = f"ring-{setting.gpus}x{setting.size_bytes}B"
    return Exports(name, files, command, ring_snippet(setting, forked.spelt))
