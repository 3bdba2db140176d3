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
from simcore.trace import Lane, Trace
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
    for schedules whose messages carry one chunk each and load all ports alike.
    """

    title: str
    schedule: Schedule
    cluster: Cluster
    trace: Trace
    lower_bound_s: float
    hub: int | None = None
    marks: tuple[Mark, ...] = ()
    inputs: Buffers | None = None


# The player's source files, in the order in which they make one module.
PLAYER_SOURCES = (
    "player_core.js",
    "player_lanes.js",
    "player_timeline.js",
    "player_steps.js",
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
    lanes: Sequence[PlayerLane], text: Text, poster_s: float, moment_s: float | None = None
) -> dict[str, Any]:
    """Everything the player shows, ready for JSON.

    It starts paused at ``poster_s``, or at ``moment_s``, which somebody asked for.
    """
    return {
        "lang": HTML_LANGUAGES[text.language],
        "text": text.under("player"),
        "poster_s": poster_s,
        "moment_s": moment_s,
        "view": "race" if all(lane.inputs is None for lane in lanes) else "steps",
        "lanes": [_lane(lane, text) for lane in lanes],
    }


def poster_s(trace: Trace) -> float:
    """A moment worth looking at before anything plays: bytes flow, a quarter of the way on."""
    spans = trace.spans
    sending = spans.lane == Lane.SEND
    if not sending.any():
        return 0.0
    step = spans.step[sending & (spans.start_s <= 0.25 * trace.time_s)].max()
    rows = sending & (spans.step == step)
    return float((spans.start_s[rows].min() + spans.end_s[rows].max()) / 2)


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


def _lane(lane: PlayerLane, text: Text) -> dict[str, Any]:
    trace = lane.trace
    transfers, spans_of = _transfers(trace)
    send_rate, receive_rate = lane.cluster.payload_bytes_per_s
    contributions = _contributions(lane.schedule)
    rows = zip(*(transfers[c] for c in ("step", "src", "dst", "chunk")), strict=True)
    transfers["contributions"] = [contributions[row] for row in rows]
    return {
        "name": trace.name,
        "title": lane.title,
        "source": trace.source.value,
        "n": trace.n,
        "chunks": lane.schedule.chunks,
        "steps": lane.schedule.n_steps,
        "time_s": trace.time_s,
        "lower_bound_s": lane.lower_bound_s,
        "hub": lane.hub,
        "bottleneck": bottleneck(trace) if lane.inputs is None else None,
        "send_rate": send_rate.tolist(),
        "receive_rate": receive_rate.tolist(),
        "sent_bytes": trace.sent_bytes.tolist(),
        "received_bytes": trace.received_bytes.tolist(),
        "transfers": transfers,
        "pieces": _pieces(trace, spans_of),
        "phases": _phases(lane.schedule, text),
        "marks": [asdict(mark) for mark in lane.marks],
        "cells": None if lane.inputs is None else _cells(lane.schedule, lane.inputs, transfers),
    }


def _transfers(trace: Trace) -> tuple[dict[str, list[Any]], IntArray]:
    """A row per transfer, its sending and receiving span side by side; and each span's row."""
    spans = trace.spans
    sending = spans.lane == Lane.SEND
    src = np.where(sending, spans.rank, spans.peer)
    dst = np.where(sending, spans.peer, spans.rank)
    order = np.lexsort((spans.op, spans.chunk, dst, src, spans.step))
    sends, receives = order[sending[order]], order[spans.lane[order] == Lane.RECEIVE]
    spans_of = np.full(len(spans), -1, np.int64)
    spans_of[sends] = spans_of[receives] = np.arange(len(sends))
    columns = {
        "step": spans.step[sends],
        "src": src[sends],
        "dst": dst[sends],
        "chunk": spans.chunk[sends],
        "op": spans.op[sends],
        "nbytes": spans.nbytes[sends],
        "send_start_s": spans.start_s[sends],
        "send_end_s": spans.end_s[sends],
        "receive_start_s": spans.start_s[receives],
        "receive_end_s": spans.end_s[receives],
    }
    return {name: column.tolist() for name, column in columns.items()}, spans_of


def _pieces(trace: Trace, spans_of: IntArray) -> dict[str, list[Any]]:
    """Only of spans whose rate changed; every other has one rate from start to end."""
    pieces = trace.pieces
    return {
        "transfer": spans_of[pieces.span].tolist(),
        "sending": (trace.spans.lane[pieces.span] == Lane.SEND).tolist(),
        "start_s": pieces.start_s.tolist(),
        "end_s": pieces.end_s.tolist(),
        "nbytes": pieces.nbytes.tolist(),
    }


def _contributions(schedule: Schedule) -> dict[tuple[int, int, int, int], int]:
    """How many ranks' inputs the receiver's chunk holds when a transfer has been applied."""
    counts = np.ones((schedule.n, schedule.chunks), np.int64)
    after: dict[tuple[int, int, int, int], int] = {}
    for number, step in enumerate(schedule.steps()):
        arriving = counts[step.src, step.chunk]
        columns = (step.src.tolist(), step.dst.tolist(), step.chunk.tolist(), step.op.tolist())
        for src, dst, chunk, op, count in zip(*columns, arriving.tolist(), strict=True):
            counts[dst, chunk] = count + (counts[dst, chunk] if op == Op.ADD else 0)
            after[number, src, dst, chunk] = int(counts[dst, chunk])
    return after


def _cells(
    schedule: Schedule, inputs: Buffers, transfers: dict[str, list[Any]]
) -> dict[str, list[Any]]:
    """The chunk table: what the cells begin with, and for each transfer the numbers that it
    carries, those in the cell when it has arrived, and whose they are, in the order of adding."""
    states = list(history(schedule, inputs))
    bounds = chunk_bounds(inputs.shape[1], schedule.chunks).tolist()

    def numbers(step: int, rank: int, chunk: int) -> list[Any]:
        values: list[Any] = states[step][0][rank, bounds[chunk] : bounds[chunk + 1]].tolist()
        return values

    rows = list(zip(*(transfers[c] for c in ("step", "src", "dst", "chunk")), strict=True))
    ranks, chunks = range(schedule.n), range(schedule.chunks)
    return {
        "start": [[numbers(0, rank, chunk) for chunk in chunks] for rank in ranks],
        "sent": [numbers(step, src, chunk) for step, src, _, chunk in rows],
        "values": [numbers(step + 1, dst, chunk) for step, _, dst, chunk in rows],
        "who": [list(states[step + 1][1][dst][chunk]) for step, _, dst, chunk in rows],
    }


def _phases(schedule: Schedule, text: Text) -> list[dict[str, Any]]:
    """Runs of steps that do the same with what arrives, under the name people give them."""
    phases: list[dict[str, Any]] = []
    for number, step in enumerate(schedule.steps()):
        word = str(Op(int(step.op[0])))
        if not phases or phases[-1]["op"] != word:
            label = text(f"phase.{schedule.name}.{word}")
            phases.append({"op": word, "label": label, "first": number})
        phases[-1]["last"] = number
    return phases
