"""What the player in the browser is given: traces as columns, and its own text.

The drawing is in ``player*.js``; nothing there is computed that a trace does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

import numpy as np

from simcore.cluster import Cluster
from simcore.reference import Buffers, history
from simcore.schedule import IntArray, Op, Schedule, chunk_bounds
from simcore.solvers.network import Slowdown
from simcore.trace import Lane, Trace
from views.detail import MAX_MARKS, Marks, fair_shares, fitted, marks_of, packed
from views.ghost import Ghost
from views.links import Links
from views.nodes import nodes_of
from views.text import HTML_LANGUAGES, Text


@dataclass(frozen=True, slots=True)
class Mark:
    """A measured time on the lane's axis, from the fastest to the slowest run."""

    source: str
    time_s: float
    low_s: float
    high_s: float
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class PlayerLane:
    """One strategy in the player.

    ``hub`` is the rank drawn in the middle. ``lower_bound_s`` and ``marks`` are drawn on the axis.
    With ``inputs``, every rank's buffer, the lane is shown step by step with its numbers; that is
    for schedules whose messages carry one chunk each and load all ports alike. A ``ghost`` is the
    run that this one takes the place of. ``slowdowns`` are what the run had to cope with.
    """

    title: str
    schedule: Schedule
    cluster: Cluster
    trace: Trace
    lower_bound_s: float
    hub: int | None = None
    marks: tuple[Mark, ...] = ()
    inputs: Buffers | None = None
    ghost: Ghost | None = None
    slowdowns: tuple[Slowdown, ...] = ()


# The player's source files, in the order in which they make one module.
PLAYER_SOURCES = (
    "player_core.js",
    "player_links.js",
    "player_words.js",
    "player_counters.js",
    "player_nodes.js",
    "player_lanes.js",
    "player_timeline.js",
    "player_steps.js",
    "player_moment.js",
    "player_legend.js",
    "player_controls.js",
    "player_keys.js",
    "player_fork.js",
    "player.js",
    "player_host.js",
)


def source_text(name: str) -> str:
    """A source file for the browser: ``player.css``, ``page.css``."""
    return resources.files("views").joinpath(name).read_text(encoding="utf-8")


def player_script() -> str:
    """The player as one ES module without dependencies."""
    return "".join(map(source_text, PLAYER_SOURCES))


def payload(
    lanes: Sequence[PlayerLane],
    text: Text,
    poster_s: float,
    moment_s: float | None = None,
    fork: dict[str, Any] | None = None,
    view: str = "race",
) -> dict[str, Any]:
    """Everything the player shows, ready for JSON.

    It starts paused at ``poster_s``, or at ``moment_s``, which somebody asked for. ``fork``, from
    ``views.fork``, lets the reader change what is to come. ``view`` is ``race`` or ``compare``,
    where the time axis comes first; lanes with numbers are shown step by step anyway.
    """
    shares = fair_shares([_rows(lane.trace) for lane in lanes], MAX_MARKS)
    return {
        "lang": HTML_LANGUAGES[text.language],
        "text": text.under("player"),
        "poster_s": poster_s,
        "moment_s": moment_s,
        "fork": fork,
        "view": view if all(lane.inputs is None for lane in lanes) else "steps",
        "lanes": [_lane(lane, most, text) for lane, most in zip(lanes, shares, strict=True)],
    }


def poster_s(trace: Trace) -> float:
    """A moment worth looking at before anything plays: chunks are half way, a quarter of it on."""
    spans = trace.spans
    sending = spans.lane == Lane.SEND
    if not sending.any():
        return 0.0
    by_s = max(0.25 * trace.time_s, float(spans.start_s[sending].min()))  # all may start late
    step = spans.step[sending & (spans.start_s <= by_s)].max()
    rows = spans.step == step
    return float((spans.start_s[rows & sending].min() + spans.end_s[rows].max()) / 2)


def bottleneck(trace: Trace) -> int | None:
    """The rank whose port carries most, or None where all carry the same but for a remainder.

    >>> from simcore.algorithms import build_schedule
    >>> from simcore.cluster import uniform
    >>> from simcore.engine import simulate
    >>> run = simulate(build_schedule("ps", 4, root=2), uniform(4, 25e6), 1000)
    >>> bottleneck(run.trace)
    2
    """
    carried = trace.sent_bytes + trace.received_bytes
    most = int(carried.argmax())
    return most if carried[most] > 1.02 * np.median(carried) else None


def _rows(trace: Trace) -> int:
    """What it takes to send everything: a row per transfer, and per piece of a changing rate."""
    return len(trace.spans) // 2 + len(trace.pieces)


def _lane(lane: PlayerLane, most: int, text: Text) -> dict[str, Any]:
    trace, step_op = lane.trace, _step_op(lane.schedule)
    transfers, row_of_span = marks_of(trace, lane.schedule)
    exact = _rows(trace) <= most
    marks, bounds = fitted(transfers, step_op, most)
    send_rate, receive_rate = lane.cluster.payload_bytes_per_s
    links = Links(lane.cluster, lane.slowdowns, marks.src, marks.dst)
    nodes = nodes_of(lane.cluster, links.network, text)
    return {
        "name": trace.name,
        "title": lane.title,
        "source": trace.source.value,
        "n": trace.n,
        "chunks": lane.schedule.chunks,
        "steps": lane.schedule.n_steps,
        "blocks": None if exact else bounds.tolist(),
        "time_s": trace.time_s,
        "lower_bound_s": lane.lower_bound_s,
        "hub": lane.hub,
        "bottleneck": bottleneck(trace) if lane.inputs is None else None,
        "send_rate": packed(send_rate),
        "receive_rate": packed(receive_rate),
        "net": links.columns(),
        "nodes": None if nodes is None else nodes.columns(),
        "sent_bytes": trace.sent_bytes.tolist(),
        "received_bytes": trace.received_bytes.tolist(),
        "transfers": {name: packed(column) for name, column in marks.columns().items()},
        "pieces": _pieces(trace, row_of_span) if exact else None,
        "phases": _phases(lane.schedule.name, step_op, bounds, text),
        "marks": [asdict(mark) for mark in lane.marks],
        "ghost": None if lane.ghost is None else lane.ghost.columns(),
        "cells": None if lane.inputs is None else _cells(lane.schedule, lane.inputs, transfers),
    }


def _pieces(trace: Trace, row_of_span: IntArray) -> dict[str, Any]:
    """Only of spans whose rate changed; every other has one rate from start to end."""
    pieces = trace.pieces
    columns = {
        "transfer": row_of_span[pieces.span],
        "sending": (trace.spans.lane[pieces.span] == Lane.SEND).astype(np.int64),
        "start_s": pieces.start_s,
        "end_s": pieces.end_s,
        "nbytes": pieces.nbytes,
    }
    return {name: packed(column) for name, column in columns.items()}


def _cells(schedule: Schedule, inputs: Buffers, marks: Marks) -> dict[str, list[Any]]:
    """The chunk table: what the cells begin with, and for each transfer the numbers that it
    carries, those in the cell when it has arrived, and whose they are, in the order of adding."""
    states = list(history(schedule, inputs))
    bounds = chunk_bounds(inputs.shape[1], schedule.chunks).tolist()

    def numbers(step: int, rank: int, chunk: int) -> list[Any]:
        values: list[Any] = states[step][0][rank, bounds[chunk] : bounds[chunk + 1]].tolist()
        return values

    keys = (marks.step, marks.src, marks.dst, marks.chunk)
    rows = list(zip(*(key.tolist() for key in keys), strict=True))
    ranks, chunks = range(schedule.n), range(schedule.chunks)
    return {
        "start": [[numbers(0, rank, chunk) for chunk in chunks] for rank in ranks],
        "sent": [numbers(step, src, chunk) for step, src, _, chunk in rows],
        "values": [numbers(step + 1, dst, chunk) for step, _, dst, chunk in rows],
        "who": [list(states[step + 1][1][dst][chunk]) for step, _, dst, chunk in rows],
    }


def _step_op(schedule: Schedule) -> IntArray:
    """What a step's messages do on arrival; ours do the same in all of a step."""
    return np.array([step.op[0] for step in schedule.steps()], np.int64)


def _phases(name: str, step_op: IntArray, bounds: IntArray, text: Text) -> list[dict[str, Any]]:
    """Runs of blocks that do the same with what arrives, under the name people give them."""
    block_op = step_op[bounds[:-1]]
    turns = np.flatnonzero(np.diff(block_op)) + 1
    firsts = [0, *turns.tolist()] if len(block_op) else []
    lasts = [*(turns - 1).tolist(), len(block_op) - 1]
    phases = []
    for first, last in zip(firsts, lasts[: len(firsts)], strict=True):
        word = str(Op(int(block_op[first])))
        label = text(f"phase.{name}.{word}")
        phases.append({"op": word, "label": label, "first": first, "last": last})
    return phases
