"""A real run and its simulation on one clock: which cells have a trace, and the lanes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.engine import Simulation, simulate
from simcore.measured.cells import Cell
from simcore.trace import Lane, Source, Trace
from simcore.units import format_bytes
from views.lanes import hub_of, title_of, with_phases
from views.measured.effort import Budget, effort_of
from views.measured.overlay import case_of
from views.measured.sets import Study
from views.player import PlayerLane
from views.race import ITEM_BYTES
from views.text import Text

MOST_RANKS, MOST_SPANS = 64, 20_000
NEAR = 0.25  # a run whose time is further from the cell's is one of another network


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A cell, one of its runs, and the simulation of the same."""

    cell: Cell
    measured: Trace
    simulated: Simulation

    @property
    def key(self) -> str:
        """As in the address, such as ``ring-4x8MiB-200Mbit/s``."""
        size = format_bytes(self.cell.size_bytes).replace(" ", "")
        return f"{self.cell.name}-{self.cell.gpus}x{size}-{self.cell.network or 'unshaped'}"


def pairs(study: Study) -> dict[str, Pair]:
    """By their keys: every replayed trace with the cell that it is a run of.

    A trace does not say what it was asked to do. It belongs to the cell of its algorithm whose
    simulation moves the very same messages, and takes about as long.

    >>> from views.measured.sets import RECORDS, shipped
    >>> sorted(pairs(shipped(RECORDS)))
    ['ps-4x8MiB-200Mbit/s', 'ring-4x8MiB-200Mbit/s']
    """
    found: dict[str, Pair] = {}
    budget = Budget()
    for trace in study.traces:
        if trace.source == Source.REPLAYED and 0 < len(trace.spans) <= MOST_SPANS:
            for cell in sorted(_candidates(study, trace), key=lambda c: _away(c, trace)):
                pair = _pair(study, cell, trace, budget)
                if pair is not None:
                    found.setdefault(pair.key, pair)
                    break
    return found


def _candidates(study: Study, trace: Trace) -> list[Cell]:
    return [
        cell
        for cell in study.cells
        if cell.kind == "collective"
        and (cell.name, cell.source) == (trace.name, trace.source.value)
        and cell.gpus <= trace.n <= MOST_RANKS
        and _away(cell, trace) <= NEAR
    ]


def _away(cell: Cell, trace: Trace) -> float:
    return abs(trace.time_s / cell.measured_s - 1)


def _pair(study: Study, cell: Cell, trace: Trace, budget: Budget) -> Pair | None:
    cluster = study.validation.cluster(cell.network)
    if cluster is None:
        return None
    flags = tuple(cell.flags.items())
    asked, document = (cell.name, flags, cell.gpus), json.dumps(cluster)
    case = case_of(*asked, document)
    if case is None or not budget.spend(effort_of(*case)):
        return None
    run = _simulated(*asked, cell.size_bytes, document)
    if run is None or run.trace.n != trace.n or _messages(run.trace) != _messages(trace):
        return None
    return Pair(cell, trace, run)


@lru_cache(maxsize=64)
def _simulated(
    name: str, flags: tuple[tuple[str, int], ...], gpus: int, size_bytes: int, cluster: str
) -> Simulation | None:
    if (case := case_of(name, flags, gpus, cluster)) is None:
        return None
    try:
        return simulate(*case, size_bytes // ITEM_BYTES, ITEM_BYTES)
    except ValueError:
        return None


def _messages(trace: Trace) -> Counter[tuple[int, int, str, int]]:
    spans = trace.spans
    return Counter(
        (int(spans.rank[row]), int(spans.lane[row]), spans.label(row), int(spans.nbytes[row]))
        for row in range(len(spans))
        if spans.lane[row] in (Lane.SEND, Lane.RECEIVE)  # a simulation may show the adding too
    )


def words(pair: Pair, text: Text) -> Text:
    """The catalogue for these lanes, of which only one is simulated."""
    own = {f"player.legend_{what}": text(f"measured.legend_{what}") for what in ("add", "copy")}
    return with_phases(replace(text, phrases={**text.phrases, **own}), lanes(pair, text))


def lanes(pair: Pair, text: Text) -> list[PlayerLane]:
    """The simulation above, the real run below; their names differ, as their numbers do."""
    return [
        _lane(pair, pair.simulated.trace, text),
        _lane(pair, pair.measured, text),
    ]


def _lane(pair: Pair, trace: Trace, text: Text) -> PlayerLane:
    of = pair.simulated
    name = title_of(trace.name, text)
    return PlayerLane(
        title=text(f"measured.lane_{trace.source.value}", name=name),
        schedule=of.case.schedule,
        cluster=of.case.cluster,
        trace=replace(trace, name=f"{trace.name}-{trace.source.value}"),
        lower_bound_s=of.lower_bound_s,
        hub=hub_of(trace),
    )


def traces(shown: Sequence[PlayerLane]) -> list[Trace]:
    """What the lanes show."""
    return [lane.trace for lane in shown]
