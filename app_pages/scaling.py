"""Scaling: who wins where? Curves along one axis, a map of two, and how many pieces are best."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app_pages import scaling_commands
from app_pages.controls import Controls
from app_pages.exports import Exports, show_exports
from app_pages.figure_downloads import figure_file
from app_pages.race import LATENCIES, RATES, SIZES
from simcore.measured.records import Record, load_records
from simcore.units import format_bytes, parse_bytes, parse_rate, parse_time
from views.line_styles import legend_html
from views.race import FRAME_FACTOR, Setting
from views.scaling import curves, pieces_chart, winners_chart
from views.scaling import pieces as broadcast
from views.scaling import rows as scaling_rows
from views.scaling import winners as winners_map
from views.scaling.chart import chart
from views.scaling.curves import AXES, Scaling
from views.scaling.lines import LINES, NODE_GPUS
from views.scaling.pieces import Pieces
from views.scaling.winners import PAIRS, Winners
from views.snippet import map_snippet, pieces_snippet, scaling_snippet
from views.tables import csv_text, markdown_table
from views.text import Text, load_text
from views.vega import on_any_ground

MAX_GPUS, MAX_NODES = 32, 8
VIEWS = ("curves", "map", "pieces")
DEFAULT_LINES = {"flat": ("ring", "ps", "tree"), "nodes": ("ring", "hierarchical", "ps", "tree")}


Chosen = Scaling | Winners | Pieces


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows for one setting in one language; plain values, so it is cached."""

    headline: str
    legend: str
    chart: dict[str, Any]
    caption: str
    table: str
    note: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    controls = Controls("scaling", text)
    view = controls.one_of(
        "view", text("scaling.view"), VIEWS, "curves", lambda name: text(f"scaling.view_{name}")
    )
    chosen = choose(view, controls, text)
    page = build(chosen, text.language)
    st.title(text("pieces.question" if view == "pieces" else "scaling.question"), anchor=False)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    st.html(page.legend)
    with st.container(key="chart"):
        st.vega_lite_chart(spec=on_any_ground(page.chart), width="stretch")
    st.caption(page.caption)
    with st.container(key="part_numbers"):
        st.header(text("scaling.numbers"), anchor=False)
        st.markdown(page.table)
        st.caption(page.note)
    show_exports(page.exports, text, figure_file(chosen, text))


def choose(view: str, controls: Controls, text: Text) -> Chosen:
    """What the view asks for; what stands on an axis has no control."""
    if view == "pieces":
        return Pieces(_setting(controls, (), "flat", text))
    if view == "map":
        pair = controls.one_of("axes", text("map.pair"), PAIRS, PAIRS[0], lambda p: _pair(p, text))
        axes = pair.split("-")
    else:
        label, options = text("scaling.axis"), tuple(AXES)
        axes = [controls.one_of("axis", label, options, "size", lambda a: _axis(a, text))]
    network, lines = _network_and_lines(controls, text)
    base = _setting(controls, axes, network, text)
    if view == "map":
        across, up = axes
        return Winners(across, up, lines, base, network)
    return Scaling(axes[0], lines, base, network)


def _axis(name: str, text: Text) -> str:
    return text(f"scaling.axis_{name}")


def _pair(pair: str, text: Text) -> str:
    """Across × up."""
    return " × ".join(_axis(name, text) for name in pair.split("-"))


def _network_and_lines(controls: Controls, text: Text) -> tuple[str, tuple[str, ...]]:
    """Each network has lines of its own, so their choices do not meet in one control."""
    network = controls.one_of(
        *("network", text("scaling.network"), tuple(LINES), "flat"),
        lambda name: text(f"scaling.network_{name}"),
    )
    key = "lines" if network == "flat" else "node_lines"
    options, default = LINES[network], DEFAULT_LINES[network]
    return network, controls.some_of(key, text("scaling.lines"), options, default, text.strategy)


def _setting(controls: Controls, axes: Sequence[str], network: str, text: Text) -> Setting:
    gpus, size, rate, latency = 8, "8MiB", "25Gbit/s", "20us"
    if "gpus" not in axes:
        if network == "nodes":
            gpus = NODE_GPUS * controls.number("nodes", text("scaling.nodes"), 1, MAX_NODES, 4)
        else:
            gpus = controls.number("n", text("race.gpus"), 2, MAX_GPUS, gpus)
    if "size" not in axes:
        size = controls.choice("size", text("race.size"), SIZES, size)
    if "bandwidth" not in axes:
        label = text("race.rate" if network == "flat" else "scaling.uplink")
        rate = controls.choice("rate", label, RATES, rate)
    if "latency" not in axes:
        latency = controls.choice("latency", text("race.latency"), LATENCIES, latency)
    note = text("race.frames_help", factor=FRAME_FACTOR)
    frames = controls.switch("frames", text("race.frames"), False, note)
    return Setting(gpus, parse_bytes(size), parse_rate(rate), parse_time(latency), frames)


@st.cache_data(max_entries=256, show_spinner=False)
def build(chosen: Chosen, language: str) -> Page:
    """Simulate, and say what there is to say."""
    text = load_text(language)
    match chosen:
        case Scaling():
            return _curves(chosen, text)
        case Winners():
            return _map(chosen, text)
        case Pieces():
            return _pieces(chosen, text)


def _curves(scaling: Scaling, text: Text) -> Page:
    records = load_records()
    found, points = curves.stretches(scaling), scaling_rows.measured_points(scaling, records)
    header = scaling_rows.table_header(scaling, text)
    nodes = f"{text('scaling.bold')} {text('scaling.note_nodes')}"
    return Page(
        curves.headline(scaling, found, text),
        legend_html(scaling.lines, text),
        chart(scaling, found, points, text),
        text("scaling.measured") if points else _where_measured(records, text),
        markdown_table(header, scaling_rows.table_rows(scaling, points, text)),
        nodes if scaling.network == "nodes" else text("scaling.note"),
        Exports(
            f"scaling-{scaling.axis}",
            _files(scaling_rows.export_rows(scaling, points)),
            scaling_commands.along(scaling),
            scaling_snippet(scaling),
        ),
    )


def _map(winners: Winners, text: Text) -> Page:
    found, places = winners_map.rows(winners), winners_map.cells(winners)
    header = winners_map.table_header(winners, text)
    nodes = text("scaling.note_nodes") if winners.network == "nodes" else ""
    return Page(
        winners_map.headline(winners, found, text),
        legend_html(winners.lines, text),
        winners_chart.chart(winners, found, places, text),
        text("map.caption_gpus" if winners.up == "gpus" else "map.caption_ratio"),
        markdown_table(header, winners_map.table_rows(winners, places, text)),
        f"{text('map.note')} {nodes}".strip(),
        Exports(
            f"map-{winners.across}-{winners.up}",
            _files(winners_map.export_rows(winners, places)),
            scaling_commands.over(winners),
            map_snippet(winners),
        ),
    )


def _pieces(pieces: Pieces, text: Text) -> Page:
    table = markdown_table(broadcast.table_header(text), broadcast.table_rows(pieces))
    return Page(
        broadcast.headline(pieces, text),
        pieces_chart.legend_html(pieces, text),
        pieces_chart.chart(pieces, text),
        f"{text('pieces.caption')}\n\n{broadcast.formula(pieces, text)}",
        table,
        text("pieces.note"),
        Exports(
            "pieces",
            _files(broadcast.export_rows(pieces)),
            scaling_commands.of_pieces(pieces),
            pieces_snippet(pieces),
        ),
    )


def _files(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {"csv": csv_text(rows), "json": json.dumps({"rows": rows}, indent=1)}


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
        label=text("race.frames"),
    )
