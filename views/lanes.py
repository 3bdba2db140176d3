"""From simulations to the lanes that the player and the pictures show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from simcore.engine import Simulation
from simcore.reference import Buffers
from simcore.trace import Trace
from views.player import PlayerLane
from views.race import Run
from views.text import Text

Shown = Simulation | Run | PlayerLane


def lane_of(
    run: Simulation, text: Text, title: str = "", inputs: Buffers | None = None
) -> PlayerLane:
    """A lane of a simulation; with ``inputs``, every rank's buffer, it is shown with its numbers.

    >>> from simcore import build_schedule, simulate, uniform
    >>> from views.text import load_text
    >>> run = simulate(build_schedule("ps", 4, root=2), uniform(4, 25e6), elements=1000)
    >>> lane = lane_of(run, load_text("en"))
    >>> lane.title, lane.hub
    ('Central server', 2)
    """
    _check(run, inputs)
    schedule = run.case.schedule
    return PlayerLane(
        title=title or title_of(schedule.name, text),
        schedule=schedule,
        cluster=run.case.cluster,
        trace=run.trace,
        lower_bound_s=run.lower_bound_s,
        hub=hub_of(run.trace),
        inputs=inputs,
        slowdowns=run.case.slowdowns,
    )


def lanes_of(
    shown: Shown | Iterable[Shown], text: Text, inputs: Buffers | None = None
) -> tuple[PlayerLane, ...]:
    """One lane for a simulation, and one each for several; ``inputs`` as for ``lane_of``.

    >>> from views.race import Setting, race
    >>> from views.text import load_text
    >>> [lane.title for lane in lanes_of(race(Setting(4, 8192, 25e6)), load_text("en"))]
    ['Central server', 'DataParallel', 'Shards on the GPUs', 'Ring']
    """
    several = shown if isinstance(shown, Iterable) else (shown,)
    lanes = tuple(_lane(one, text, inputs) for one in several)
    if not lanes:
        raise ValueError("nothing to show; accepted: one simulation or several")
    return lanes


def _lane(shown: object, text: Text, inputs: Buffers | None) -> PlayerLane:
    match shown:
        case PlayerLane():
            return shown if inputs is None else replace(shown, inputs=inputs)
        case Run():
            return lane_of(shown.simulation, text, inputs=inputs)
        case Simulation():
            return lane_of(shown, text, inputs=inputs)
    kind = type(shown).__name__
    raise TypeError(f"{kind} cannot be shown; accepted: what simulate() and race() return")


def _check(run: Simulation, inputs: Buffers | None) -> None:
    """Can it be shown at all, and with these numbers?"""
    if run.transfers and not len(run.trace.spans):
        raise ValueError('a run with keep="totals" has nothing to play; simulate it with "spans"')
    if inputs is None:
        return
    wanted = (run.case.schedule.n, run.case.elements)
    if inputs.shape != wanted:
        raise ValueError(f"inputs have shape {inputs.shape}; this run has {wanted}")
    if (run.trace.spans.width > 1).any():
        name = run.case.schedule.name
        raise ValueError(f"{name!r} sends several chunks at once; its numbers cannot be shown")


def title_of(name: str, text: Text) -> str:
    """What readers call the algorithm; its own name where the catalogue has none."""
    return text.phrases.get(f"strategy.{name}", name)


def hub_of(trace: Trace) -> int | None:
    """The rank at one end of every transfer, to be drawn in the middle; with two ranks nobody.

    >>> from simcore import build_schedule, simulate, uniform
    >>> [hub_of(simulate(build_schedule(a, 3), uniform(3, 1.0), 9).trace) for a in ("dp", "ring")]
    [0, None]
    """
    spans = trace.spans
    if trace.n < 3 or not len(spans):
        return None
    ends = np.bincount(spans.rank, minlength=trace.n) + np.bincount(spans.peer, minlength=trace.n)
    return int(ends.argmax()) if ends.max() == len(spans) else None


def with_phases(text: Text, lanes: Iterable[PlayerLane]) -> Text:
    """The catalogue with a name for the phases of every algorithm, also of the reader's own."""
    phrases = dict(text.phrases)
    for lane in lanes:
        for word in ("add", "copy"):
            phrases.setdefault(f"phase.{lane.schedule.name}.{word}", phrases[f"phase.any.{word}"])
    return replace(text, phrases=phrases)
