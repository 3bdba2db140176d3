"""What if…: a straggler, a slow link, a shared uplink, half-duplex ports, fan-in to one port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, Files, player_pictures, show_exports
from app_pages.fork import asked_changes, keep_changes
from app_pages.stage import player
from simcore.trace import Trace
from simcore.units import parse_bytes, parse_rate, parse_time
from views.export import traces_csv, traces_json, traces_perfetto
from views.fork import Fork, fork, fork_data
from views.fork import headline as forked_headline
from views.ghost import Ghost
from views.player import PlayerLane, payload, poster_s
from views.tables import markdown_table
from views.text import Text, load_text
from views.whatif.export import commands, whatif_snippet
from views.whatif.troubles import (
    HUBS,
    LINES,
    NODE_LINES,
    Base,
    FanIn,
    HalfDuplex,
    Pair,
    Scenario,
    SlowLink,
    Straggler,
    Uplink,
    what_if,
)
from views.whatif.words import headline, reasons, table_header, table_rows

SCENARIOS = ("straggler", "slow-link", "uplink", "half-duplex", "fan-in")
SIZES = ("64KiB", "1MiB", "8MiB", "25MiB", "100MiB", "1GiB")
RATES = ("100Mbit/s", "200Mbit/s", "1Gbit/s", "10Gbit/s", "100Gbit/s", "400Gbit/s")
LATE = ("1ms", "10ms", "50ms", "200ms", "500ms", "1s", "2s", "5s", "20s")
FACTORS = ("0.01", "0.05", "0.1", "0.25", "0.5", "0.9")
OVER = ("1", "2", "4", "8", "16")
SERVER = ("0.1", "0.25", "0.5", "1", "2", "4", "10")
MAX_GPUS = 16


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows for one setting in one language; plain values, so it is cached."""

    headline: str
    player: dict[str, Any]
    notices: tuple[str, ...]
    made: tuple[str, ...]
    table: str
    reasons: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    controls = Controls("whatif", text, ("t", "change"))
    st.title(text("whatif.question"), anchor=False)
    what = controls.said(
        "what",
        text("whatif.what"),
        SCENARIOS,
        SCENARIOS[0],
        lambda name: text(f"whatif.what_{name}"),
    )
    base, scenario, lines = choose(what, controls, text)
    changes = asked_changes(controls)
    page = build(base, scenario, lines, changes, text.language)
    controls.notices += page.notices
    keep_changes(page.made)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    moment_s = player(page.player, "whatif_player", text)
    with st.container(key="part_numbers"):
        st.header(text("whatif.table"), anchor=False)
        st.markdown(page.table)
        st.markdown(page.reasons)
        st.caption(text("whatif.note"))

    def lanes() -> list[PlayerLane]:
        pairs = what_if(base, scenario, lines)
        return _lanes(pairs, fork([pair.after for pair in pairs], changes, text), text)

    def traces() -> list[Trace]:
        return [lane.trace for lane in lanes()]

    files: Files = {
        "csv": lambda: traces_csv(traces()),
        "json": lambda: traces_json(traces()),
        "perfetto": lambda: traces_perfetto(traces()),
    }
    question = text("whatif.question")
    files |= player_pictures(lanes, page.player, moment_s, question, text)
    show_exports(page.exports, text, files)


def choose(what: str, controls: Controls, text: Text) -> tuple[Base, Scenario, tuple[str, ...]]:
    """The controls that this trouble has."""
    if what == "uplink":
        nodes = controls.number("nodes", text("whatif.nodes"), 2, 4, 2)
        per_node = int(controls.one_of("per_node", text("whatif.per_node"), ("2", "4"), "4"))
        over = controls.choice("over", text("whatif.over"), OVER, "4")
        base = _base(nodes * per_node, controls, text)
        some = ("ring", "ring-scattered", "ps")
        lines = controls.some_of(
            "node_lines", text("whatif.lines"), NODE_LINES, some, text.strategy
        )
        return base, Uplink(per_node, float(over)), lines
    gpus = controls.number("n", text("whatif.gpus"), 2, MAX_GPUS, 4)
    scenario = _scenario(what, gpus, controls, text)
    base = _base(gpus, controls, text)
    some = ("ps", "ring", "ps-sharded")
    lines = controls.some_of("lines", text("whatif.lines"), LINES, some, text.strategy)
    return base, scenario, lines


def _base(gpus: int, controls: Controls, text: Text) -> Base:
    size = controls.choice("size", text("whatif.size"), SIZES, "8MiB")
    rate = controls.choice("rate", text("whatif.rate"), RATES, "200Mbit/s")
    return Base(gpus, parse_bytes(size), parse_rate(rate))


def _scenario(what: str, gpus: int, controls: Controls, text: Text) -> Scenario:
    if what == "half-duplex":
        return HalfDuplex()
    if what == "fan-in":
        after = controls.number("to", text("whatif.after_gpus"), 2, MAX_GPUS, 12)
        return FanIn(after, float(controls.choice("server", text("whatif.server"), SERVER, "1")))
    if what == "straggler":
        gpu = controls.number("gpu", text("whatif.gpu"), 0, gpus - 1, 1)
        late = controls.choice("late", text("whatif.late"), LATE, "200ms")
        return Straggler(gpu, parse_time(late))
    two = int(gpus == 2)  # else a link that is the ring's, but not the server's
    src = controls.number("src", text("whatif.src"), 0, gpus - 1, 1 - two)
    dst = controls.number("dst", text("whatif.dst"), 0, gpus - 1, 2 - two, text("whatif.dst_help"))
    factor = float(controls.choice("factor", text("whatif.factor"), FACTORS, "0.1"))
    return SlowLink(src, None if dst == src else dst, factor)


@st.cache_data(max_entries=256, show_spinner=False)
def build(
    base: Base, scenario: Scenario, lines: tuple[str, ...], changes: tuple[str, ...], language: str
) -> Page:
    """Simulate before, after and what the reader changed, and say what there is to say."""
    text = load_text(language)
    pairs = what_if(base, scenario, lines)
    forked = fork([pair.after for pair in pairs], changes, text)
    lanes = _lanes(pairs, forked, text)
    setting = repr((base, scenario, lines))
    names = [text(f"strategy.{pair.name}.inline") for pair in pairs]
    data = fork_data(forked, setting, [lane.title for lane in lanes], text)
    fastest = min(forked.before, key=lambda run: run.trace.time_s)
    start_s = poster_s(fastest.trace)  # the same whatever the reader changes
    return Page(
        forked_headline(forked, names, headline(base, scenario, pairs, text), text),
        payload(lanes, text, start_s, fork=data, view="compare"),
        forked.notices,
        forked.spelt,
        markdown_table(table_header(text, forked), table_rows(pairs, forked, text)),
        reasons(base, scenario, pairs, text),
        _exports(base, scenario, pairs, forked),
    )


def _lanes(pairs: Sequence[Pair], forked: Fork, text: Text) -> list[PlayerLane]:
    """What happens now, beside what happened before, or without the reader's changes."""
    lanes = [
        PlayerLane(
            title=text(f"strategy.{pair.name}"),
            schedule=pair.after.case.schedule,
            cluster=pair.after.case.cluster,
            trace=pair.after.trace,
            slowdowns=pair.after.case.slowdowns,
            lower_bound_s=pair.after.lower_bound_s,
            hub=HUBS.get(pair.name),
            ghost=Ghost(pair.before.trace, text("whatif.before")),
        )
        for pair in pairs
    ]
    return forked.lanes(lanes, text)


def _exports(base: Base, scenario: Scenario, pairs: Sequence[Pair], forked: Fork) -> Exports:
    return Exports(
        f"whatif-{base.gpus}x{base.size_bytes}B",
        {},
        commands(base, scenario, pairs, forked),
        whatif_snippet(base, scenario, pairs, forked),
    )
