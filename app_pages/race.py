"""Race: who finishes first, and who is the bottleneck?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app_pages.controls import Controls
from app_pages.exports import Exports, Files, player_pictures, show_exports
from app_pages.fork import asked_changes, keep_changes
from app_pages.stage import player
from simcore.measured.records import load_records
from simcore.trace import Trace
from simcore.units import (
    format_bytes,
    format_rate,
    format_time,
    parse_bytes,
    parse_rate,
    parse_time,
)
from views.comparison import (
    Measured,
    marks,
    measured,
    measured_rows,
    same_setting,
    simulated_rows,
)
from views.export import traces_csv, traces_json, traces_perfetto
from views.fork import Fork, fork, fork_data
from views.lanes import with_phases
from views.player import Mark, PlayerLane, payload, poster_s
from views.race import (
    FRAME_FACTOR,
    HUBS,
    LINES,
    STRATEGIES,
    Run,
    Setting,
    changed_headline,
    headline,
    race,
)
from views.snippet import race_snippet
from views.tables import markdown_table
from views.text import Text, load_text

SIZES = ("64KiB", "256KiB", "1MiB", "8MiB", "25MiB", "100MiB", "256MiB", "1GiB")
RATES = ("100Mbit/s", "200Mbit/s", "1Gbit/s", "10Gbit/s", "25Gbit/s", "100Gbit/s", "400Gbit/s")
LATENCIES = ("0us", "1us", "5us", "20us", "50us", "200us", "1ms")
MAX_GPUS = 64  # beyond, points in a circle can no longer be told apart


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows for one setting in one language; plain values, so it is cached."""

    headline: str
    player: dict[str, Any]
    notices: tuple[str, ...]
    made: tuple[str, ...]
    arithmetic: str
    arithmetic_note: str
    numbers: str
    numbers_note: str
    command: str
    exports: Exports


def show(text: Text) -> None:
    """The page."""
    controls = Controls("race", text, ("t", "change"))
    setting, lines = choose(controls, text)
    changes = asked_changes(controls)
    page = build(setting, lines, text.language, changes)
    st.title(text("race.question"), anchor=False)
    controls.notices += page.notices
    keep_changes(page.made)
    controls.show_notices()
    with st.container(key="headline"):
        st.markdown(page.headline)
    moment_s = player(page.player, "race_player", text)
    with st.container(key="part_numbers"):
        st.header(text("race.closed_form"), anchor=False)
        st.markdown(page.arithmetic)
        st.caption(page.arithmetic_note)
        st.header(text("race.numbers"), anchor=False)
        st.markdown(page.numbers)
        st.caption(page.numbers_note)
        st.caption(text("race.run_it"))
        st.code(page.command, language="shell", wrap_lines=True)
    question = text("race.question")

    def lanes() -> list[PlayerLane]:
        return _lanes(race(setting, lines), setting, changes, text)[0]

    pictures = player_pictures(lanes, page.player, moment_s, question, text)
    show_exports(page.exports, text, files(setting, lines, changes) | pictures)


def choose(controls: Controls, text: Text) -> tuple[Setting, tuple[str, ...]]:
    """The controls; every choice is in the URL."""
    gpus = controls.number("n", text("race.gpus"), 2, MAX_GPUS, 4)
    size = controls.choice("size", text("race.size"), SIZES, "8MiB")
    rate = controls.choice("rate", text("race.rate"), RATES, "200Mbit/s")
    latency = controls.choice("latency", text("race.latency"), LATENCIES, "0us")
    lines = controls.some_of("lines", text("race.lines"), LINES, STRATEGIES, text.strategy)
    note = text("race.frames_help", factor=FRAME_FACTOR)
    frames = controls.switch("frames", text("race.frames"), False, note)
    sizes = parse_bytes(size), parse_rate(rate), parse_time(latency)
    return Setting(gpus, *sizes, frames), lines


@st.cache_data(max_entries=256, show_spinner=False)
def build(
    setting: Setting, lines: tuple[str, ...], language: str, changes: tuple[str, ...] = ()
) -> Page:
    """Simulate, and say what there is to say."""
    text = load_text(language)
    runs = race(setting, lines)
    found = _found(runs, setting)
    shown, forked = _lanes(runs, setting, changes, text)
    panel = fork_data(forked, repr((setting, lines)), [lane.title for lane in shown], text)
    fastest = min(runs, key=lambda run: run.time_s)
    changed = _changed(runs, forked)
    said = headline(runs, setting, text)
    return Page(
        changed_headline(runs, changed, said, text) if changed else said,
        payload(shown, with_phases(text, shown), poster_s(fastest.trace), fork=panel),
        forked.notices,
        forked.spelt,
        _arithmetic(runs, setting, text),
        _arithmetic_note(setting, bool(changed), text),
        _numbers(runs, changed, found, setting, text),
        _numbers_note(found, setting, text),
        _command(setting),
        _exports(runs, setting, forked.spelt),
    )


def _changed(runs: Sequence[Run], forked: Fork) -> tuple[Run, ...]:
    """With what the reader changed; none where that is nothing."""
    if not forked.changes:
        return ()
    pairs = zip(runs, forked.after, strict=True)
    return tuple(replace(run, simulation=after) for run, after in pairs)


def _found(runs: Sequence[Run], setting: Setting) -> list[Measured]:
    records = load_records()
    return [measured(run.name, setting, records) for run in runs]


def _lanes(
    runs: Sequence[Run], setting: Setting, changes: tuple[str, ...], text: Text
) -> tuple[list[PlayerLane], Fork]:
    """As simulated, beside what was measured; or with changes, beside what was to come."""
    found = [marks(near, setting, text) for near in _found(runs, setting)]
    lanes = [_lane(run, setting, its, text) for run, its in zip(runs, found, strict=True)]
    forked = fork([run.simulation for run in runs], changes, text)
    return forked.lanes(lanes, text), forked


def _lane(run: Run, setting: Setting, found: tuple[Mark, ...], text: Text) -> PlayerLane:
    return PlayerLane(
        title=text(f"strategy.{run.name}"),
        schedule=run.schedule,
        cluster=setting.cluster(),
        trace=run.trace,
        lower_bound_s=run.simulation.lower_bound_s,
        hub=HUBS.get(run.name),
        marks=found,
    )


def _arithmetic(runs: Sequence[Run], setting: Setting, text: Text) -> str:
    rows = [
        [text(f"strategy.{run.name}"), f.symbols, f.numbers, f"**{format_time(f.time_s)}**"]
        for run in runs
        if (f := run.formula)
    ]
    n, rate = setting.gpus, format_rate(setting.data_bytes_per_s)
    size, latency = format_bytes(setting.size_bytes), format_time(setting.latency_s)
    numbers = f"2·{n - 1}/{n} · {size} ÷ {rate} + {latency}"
    bound = format_time(runs[0].simulation.lower_bound_s)
    rows.append([text("race.row_bound"), text("race.bound_symbols"), numbers, bound])
    header = [text(f"race.{key}") for key in ("strategy", "formula", "with_numbers", "result")]
    return markdown_table(header, rows)


def _arithmetic_note(setting: Setting, changed: bool, text: Text) -> str:
    notes = [text("race.closed_form_note")]
    if setting.frames:
        line, data = format_rate(setting.bytes_per_s), format_rate(setting.data_bytes_per_s)
        notes.append(text("race.frames_note", rate=data, line=line, factor=FRAME_FACTOR))
    if changed:
        notes.append(text("race.arithmetic_unchanged"))
    return text.joined(notes)


def _numbers(
    runs: Sequence[Run],
    changed: Sequence[Run],
    found: Sequence[Measured],
    setting: Setting,
    text: Text,
) -> str:
    header = [text("common.quantity"), *(text.strategy(run.name) for run in runs)]
    rows = simulated_rows(runs, setting.size_bytes, text)
    if changed:
        rows.insert(1, [text("race.row_changed"), *(format_time(run.time_s) for run in changed)])
    return markdown_table(header, rows + measured_rows(found, text))


def _numbers_note(found: Sequence[Measured], setting: Setting, text: Text) -> str:
    records = [record for near in found for record in near.records]
    if not records:
        return text("race.no_records")
    if all(same_setting(record, setting) for record in records):
        same = text("race.same_config")
        if setting.frames:
            return same
        frames = text("race.measured_frames", factor=FRAME_FACTOR, label=text("race.frames"))
        return text.joined((same, frames))
    return text("race.other_config", row=text("race.row_measured_at"))


def _command(setting: Setting) -> str:
    """What measures this setting's ring on the reader's machine."""
    size = format_bytes(setting.size_bytes).replace(" ", "")
    bits = setting.bytes_per_s * 8
    network = f"{bits / 1e9:g}Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g}Mbit/s"
    if setting.latency_s:
        latency = setting.latency_s
        network += f",{latency * 1e3:g}ms" if latency >= 1e-3 else f",{latency * 1e6:g}us"
    return (
        f"python -m real_gpu run ring --gpus {setting.gpus} --size {size} "
        f"--network {network} --out ring.json"
    )


def files(setting: Setting, lines: tuple[str, ...], changes: tuple[str, ...] = ()) -> Files:
    """The traces, written when somebody asks: of 64 GPUs they are megabytes."""

    def traces() -> list[Trace]:
        runs = [run.simulation for run in race(setting, lines)]
        return [run.trace for run in fork(runs, changes, load_text("en")).after]

    return {
        "csv": lambda: traces_csv(traces()),
        "json": lambda: traces_json(traces()),
        "perfetto": lambda: traces_perfetto(traces()),
    }


def _exports(runs: Sequence[Run], setting: Setting, changes: tuple[str, ...]) -> Exports:
    """What simulates the traces again, with what was changed; the rate is that of the data."""
    case = (
        f"--gpus {setting.gpus} --size {setting.size_bytes}B "
        f"--bandwidth {setting.data_bytes_per_s:.12g}B/s --latency {setting.latency_s * 1e6:.12g}us"
    )
    case += "".join(f" --slow-link '{change}'" for change in changes)
    commands = "\n".join(
        f"python -m simcore simulate {run.name} {case}{_as_typed(run)}" for run in runs
    )
    name = f"race-{setting.gpus}x{setting.size_bytes}B"
    lines = tuple(run.name for run in runs)
    return Exports(name, {}, commands, race_snippet(setting, lines, changes))


def _as_typed(run: Run) -> str:
    flags = run.schedule.flags.items()
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in flags)
