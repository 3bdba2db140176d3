"""The worst cells of a validation, explained: where their time goes, and what could be missing.

Causes are named as possible where their condition holds; which one acted is not known from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcore.algorithms import build_schedule
from simcore.cluster_file import cluster_from_dict
from simcore.engine import simulate
from simcore.explain import critical_path
from simcore.measured.cells import Cell
from simcore.trace import Lane, Trace
from simcore.units import format_bytes, format_time, parse_bytes

_WIRE = "transfer"
_COSTS = (
    "a fifth or more of the time is not the wire; what each message costs is fitted on fewer "
    "ranks, and it changes with the load of the machine"
)
_NOTICE = (
    "a receiver's notice travels behind its own data to the same peer, so that a transfer may "
    "start late where a pair exchanges both ways; here it starts at once"
)
_EARLY = (
    "a send is over for its sender when the kernel holds the rest, so that the next one begins "
    "earlier than here"
)
_BURST = "after a pause a shaped port lets a burst through at once; here it has no credit"
_LOOPBACK = (
    "the loopback interface is the memory and the cores of one machine, which all ranks share; "
    "the model gives each rank a port of its own"
)
_BETWEEN = (
    "the network between the machines may carry other traffic too, and its switches are not in "
    "the model"
)
_UNEVEN = "messages enter one port at once; TCP shares a port less evenly than the model"
_SMALL_SHARE = 0.2  # above this, the cost of each message is not a detail
_KINDS = {
    "transfer": "on the wire",
    "latency": "latency of messages",
    "add": "adding",
    "launch": "launch costs",
    "start": "waiting to start",
}


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What the simulation of a cell consists of."""

    seconds: dict[str, float]  # along the critical path, by kind of segment
    on_path: int  # messages of the critical path
    message_bytes: tuple[int, int]  # smallest and largest
    two_way: bool  # a pair of ranks sends both ways in one step, or in two that follow
    flows_at_once: int  # most messages that enter one port in a step
    sends_in_turn: bool  # some rank sends to one peer after another


def anatomy(cell: Cell, document: Mapping[str, Any]) -> Anatomy:
    """Of a replayed collective, on its cluster."""
    schedule = build_schedule(cell.name, cell.gpus, **cell.flags)
    cluster = cluster_from_dict(dict(document), schedule.n)
    trace = simulate(schedule, cluster, cell.size_bytes // 4).trace
    path = critical_path(trace)
    seconds: dict[str, float] = {}
    for part in path:
        seconds[part.kind] = seconds.get(part.kind, 0.0) + part.duration_s
    return Anatomy(seconds, sum(part.kind == _WIRE for part in path), *_messages(trace))


def _messages(trace: Trace) -> tuple[tuple[int, int], bool, int, bool]:
    """Sizes, both ways between a pair, most at one port, one peer after another."""
    spans = trace.spans
    sends = np.flatnonzero((spans.lane == Lane.SEND) & (spans.nbytes > 0))
    if not len(sends):
        return (0, 0), False, 0, False
    rows = {
        (int(spans.step[i]), int(spans.rank[i]), int(spans.peer[i]), int(spans.nbytes[i]))
        for i in sends
    }
    places = {(step, src, dst) for step, src, dst, _ in rows}
    two_way = any(
        (step + later, dst, src) in places for step, src, dst in places for later in (0, 1)
    )
    entering: dict[tuple[int, int], int] = {}
    for step, _, dst in places:
        entering[step, dst] = entering.get((step, dst), 0) + 1
    in_turn = any(
        (step + 1, src, other) in places
        for step, src, dst in places
        for other in range(trace.n)
        if other != dst
    )
    sizes = [nbytes for *_, nbytes in rows]
    return (min(sizes), max(sizes)), two_way, max(entering.values()), in_turn


def explained(
    cell: Cell, document: Mapping[str, Any] | None, record: Mapping[str, Any], cores: int | None
) -> list[str]:
    """What there is to say of a cell: its time, its messages, its instrument, what is missing."""
    if cell.kind == "step":
        return [*_step(cell, record), *_instrument(cell, record)]
    if document is None:
        return _instrument(cell, record)
    found = anatomy(cell, document)
    return [
        _time(cell, found),
        _regime(found, document),
        *_instrument(cell, record),
        *_missing(cell, found, cores, bursts="burst" in document, record=record),
    ]


def _time(cell: Cell, found: Anatomy) -> str:
    total = sum(found.seconds.values()) or 1.0
    parts = sorted(found.seconds.items(), key=lambda part: -part[1])
    shares = ", ".join(f"{_KINDS[kind]} {seconds / total:.1%}" for kind, seconds in parts)
    difference_s = cell.measured_s - (cell.simulated_s or 0.0)
    more = "more" if difference_s > 0 else "less"
    each = abs(difference_s) / max(found.on_path, 1)
    return (
        f"Where the simulated time goes: {shares}. Measured is {format_time(abs(difference_s))} "
        f"{more}, {format_time(each)} for each of the {found.on_path} messages one after another."
    )


def _regime(found: Anatomy, document: Mapping[str, Any]) -> str:
    low, high = found.message_bytes
    sizes = format_bytes(low) if low == high else f"{format_bytes(low)} to {format_bytes(high)}"
    points = [parse_bytes(size) for size, _ in document.get("latency_by_size", ())]
    if not points:
        return f"Messages of {sizes}; one latency stands for every size."
    between = f"{format_bytes(points[0])} to {format_bytes(points[-1])}"
    inside = points[0] <= low and high <= points[-1]
    where = "inside" if inside else "partly or wholly outside"
    return f"Messages of {sizes}, {where} the sizes whose latency was calibrated ({between})."


def _instrument(cell: Cell, record: Mapping[str, Any]) -> list[str]:
    runs = f"{len(cell.runs_s)} runs" + (
        f" spread by {cell.spread:.1%} of their median" if cell.spread is not None else ""
    )
    words = [runs]
    found = record.get("instrument") or {}
    if "drops" in found:
        words.append(f"{found['drops']} packets dropped")
    if "rate_error" in found:
        words.append(f"ports {found['rate_error']:+.2%} off the rate that was set")
    if cell.bytes_error is not None:
        words.append(f"bytes {cell.bytes_error:+.2%} off at the worst rank")
    return [f"The instrument: {', '.join(words)}."]


def _missing(
    cell: Cell,
    found: Anatomy,
    cores: int | None,
    *,
    bursts: bool,
    record: Mapping[str, Any],
) -> list[str]:
    """What the model lacks that could act here; ``bursts`` says that the cluster has them."""
    several = _machines(record) > 1
    slower = (cell.error or 0.0) < 0  # the machine was slower than the simulation
    shaped = cell.network is not None
    total = sum(found.seconds.values()) or 1.0
    reasons: Sequence[tuple[bool, str]] = (
        (
            cell.spread is not None and cell.spread > abs(cell.error or 0.0),
            "the runs differ among themselves by more than the error",
        ),
        (1 - found.seconds.get(_WIRE, 0.0) / total > _SMALL_SHARE, _COSTS),
        (slower and found.two_way, _NOTICE),
        (slower and found.flows_at_once > 1, f"up to {found.flows_at_once} {_UNEVEN}"),
        (
            slower and cores is not None and cell.gpus > cores and not several,
            f"{cell.gpus} processes share {cores} cores; the model has no CPU",
        ),
        (several, _BETWEEN),
        (not shaped and not several and record.get("backend") == "gloo", _LOOPBACK),
        (not slower and shaped and found.sends_in_turn, _EARLY),
        (not slower and shaped and not bursts, _BURST),
    )
    texts = [text for holds, text in reasons if holds]
    return [f"Missing in the model, and possible here: {'; '.join(texts)}."] if texts else []


def _machines(record: Mapping[str, Any]) -> int:
    """How many its ranks were on; nobody has checked the record."""
    found: Any = record
    for name in ("environment", "machine", "machines"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int) else 1


def _step(cell: Cell, record: Mapping[str, Any]) -> list[str]:
    computing_s = record.get("computing_s")
    if not isinstance(computing_s, int | float):
        return []
    exposed = format_time(max(cell.measured_s - computing_s, 0.0))
    return [
        f"Computing takes {format_time(computing_s)}, measured without communication.",
        f"{exposed} of communication are not hidden, and the whole error lies in those.",
    ]
