"""Fork the past: the same runs with something changed at a moment, and by how much that delays.

A change is written as on the command line, ``LINK:FACTOR@T1..T2``, so the address can hold it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from simcore import parse_slow_link
from simcore.engine import Simulation, SimulationError, Slowdown, simulate
from simcore.solvers.network import Network
from simcore.units import format_time
from views.ghost import Ghost
from views.player import PlayerLane
from views.text import Text

MAX_CHANGES = 8  # more cannot be told apart on a time axis
MAX_SPELT = 80  # characters of one change
SAME = 0.0005  # a difference below this part of a run reads as none


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """Runs without the ``changes`` and with them, and what was asked for in vain."""

    spelt: tuple[str, ...]
    changes: tuple[Slowdown, ...]
    before: tuple[Simulation, ...]
    after: tuple[Simulation, ...]
    notices: tuple[str, ...] = ()

    @property
    def at_s(self) -> float:
        """Until then nothing is different."""
        return min((change.from_s for change in self.changes), default=0.0)

    def lanes(self, lanes: Sequence[PlayerLane], text: Text) -> list[PlayerLane]:
        """Those of the unchanged runs with what now happens, beside what was to come.

        Without changes they stay as they are. What was measured holds without any.
        """
        if not self.changes:
            return list(lanes)
        label = text("fork.without")
        return [
            replace(
                lane,
                trace=new.trace,
                slowdowns=new.case.slowdowns,
                lower_bound_s=new.lower_bound_s,
                marks=(),
                ghost=Ghost(old.trace, label, self.at_s),
            )
            for lane, old, new in zip(lanes, self.before, self.after, strict=True)
        ]


def fork(runs: Sequence[Simulation], asked: Sequence[str], text: Text) -> Fork:
    """The runs with the changes that are ``asked`` for, as far as they can be made.

    >>> from simcore import build_schedule, uniform
    >>> from views.text import load_text
    >>> run = simulate(build_schedule("ring", 4), uniform(4, 25e6), 2 * 2**20)
    >>> forked = fork([run], ["gpu2:0@0.1s..0.3s", "gpu9:0@1s..2s"], load_text("en"))
    >>> print(forked.spelt, [format_time(run.trace.time_s) for run in forked.after])
    ('gpu2:0@0.1s..0.3s',) ['703.3 ms']
    """
    read, notices = [], []
    for spelt in asked[:MAX_CHANGES]:
        change = _read(spelt, runs)
        if change is None:
            notices.append(_refused(spelt, runs, text))
        else:
            read.append((spelt, change))
    if len(asked) > MAX_CHANGES:
        notices.append(text("fork.too_many", most=MAX_CHANGES))
    if not read:
        return Fork((), (), tuple(runs), tuple(runs), tuple(notices))
    before = tuple(_with_events(run) for run in runs)
    made, after, endless = _made(before, read)
    notices += [text("fork.endless", value=quoted(spelt)) for spelt in endless]
    return Fork(*_columns(made), before, after, tuple(notices))


def _columns(
    made: Sequence[tuple[str, Slowdown]],
) -> tuple[tuple[str, ...], tuple[Slowdown, ...]]:
    return tuple(spelt for spelt, _ in made), tuple(change for _, change in made)


def _read(spelt: str, runs: Sequence[Simulation]) -> Slowdown | None:
    """The change, or None for what is no change of the links that there are."""
    if len(spelt) > MAX_SPELT:
        return None
    try:
        change = parse_slow_link(spelt)
        for run in runs:
            Network(run.case.cluster, [change])
    except ValueError:
        return None
    return change


def _refused(spelt: str, runs: Sequence[Simulation], text: Text) -> str:
    last = min(run.case.schedule.n for run in runs) - 1
    return text("fork.notice", value=quoted(spelt), last=last)


def quoted(spelt: str) -> str:
    """What somebody typed, harmless in a line of Markdown."""
    short = spelt if len(spelt) <= 40 else spelt[:37] + "..."
    return "".join(c if c.isprintable() and c != "`" else "?" for c in short)


def _with_events(run: Simulation) -> Simulation:
    """The run by the solver that follows changes: so both pasts are the same to the last bit."""
    if run.solver == "events":
        return run
    case = run.case
    return simulate(
        *(case.schedule, case.cluster, case.elements, case.itemsize),
        sync=case.sync,
        starts_s=case.starts_s,
        slowdowns=case.slowdowns,
        solver="events",
    )


def _made(
    before: Sequence[Simulation], read: Sequence[tuple[str, Slowdown]]
) -> tuple[list[tuple[str, Slowdown]], tuple[Simulation, ...], list[str]]:
    """The changes with which every run ends, those runs, and the changes left out for that."""
    try:
        return list(read), _forked(before, [change for _, change in read]), []
    except SimulationError:
        pass
    made: list[tuple[str, Slowdown]] = []
    after, endless = tuple(before), []
    for spelt, change in read:
        try:
            after = _forked(before, [*(kept for _, kept in made), change])
        except SimulationError:
            endless.append(spelt)
        else:
            made.append((spelt, change))
    return made, after, endless


def _forked(before: Sequence[Simulation], changes: Sequence[Slowdown]) -> tuple[Simulation, ...]:
    at_s = min(change.from_s for change in changes)
    return tuple(run.fork(at_s, changes) for run in before)


def fork_data(forked: Fork, setting: str, titles: Sequence[str], text: Text) -> dict[str, Any]:
    """The payload's ``fork``: what has been changed, what that did, and what can be changed.

    While ``setting`` stays the same, the player's clock does.
    """
    changes = [
        {
            "spelt": spelt,
            "label": describe(change, text),
            "from_s": change.from_s,
            "until_s": change.until_s if math.isfinite(change.until_s) else None,
        }
        for spelt, change in zip(forked.spelt, forked.changes, strict=True)
    ]
    return {
        "setting": setting,
        "changes": changes,
        "summary": summary(forked, titles, text) if changes else "",
        "most": MAX_CHANGES,
        "gpus": min(run.case.schedule.n for run in forked.after),
        "one_way": any(run.case.cluster.half_duplex for run in forked.after),
    }


def describe(change: Slowdown, text: Text) -> str:
    """A change in words.

    >>> from views.text import load_text
    >>> print(describe(parse_slow_link("gpu1->gpu2:0.1@200ms.."), load_text("en")))
    link GPU 1 → GPU 2 at 10 %, from 200 ms on
    """
    return _what(change, text) + _when(change, text)


def _what(change: Slowdown, text: Text) -> str:
    percent = f"{100 * change.factor:.4g}"
    if pair := re.fullmatch(r"(?:gpu)?(\d+)->(?:gpu)?(\d+)", change.link):
        key = "slow_link" if change.factor else "cut_link"
        return text(f"fork.{key}", src=pair[1], dst=pair[2], percent=percent)
    port = re.fullmatch(r"gpu(\d+)(?:\.(tx|rx|port))?", change.link)
    if not port:
        return text("fork.slow_part", link=change.link, percent=percent)
    if not change.factor and port[2] in (None, "port"):
        return text("fork.stall", gpu=port[1])
    way = {"tx": "send", "rx": "receive"}.get(port[2], "port")
    return text(f"fork.slow_{way}", gpu=port[1], percent=percent)


def _when(change: Slowdown, text: Text) -> str:
    start = format_time(change.from_s)
    if math.isinf(change.until_s):
        return text("fork.from", start=start)
    return text("fork.between", start=start, end=format_time(change.until_s))


def summary(forked: Fork, titles: Sequence[str], text: Text) -> str:
    """By how much every strategy is delayed.

    >>> from simcore import build_schedule, uniform
    >>> from views.text import load_text
    >>> run = simulate(build_schedule("ring", 4), uniform(4, 25e6), 2 * 2**20)
    >>> forked = fork([run], ["gpu2:0@0.1s..0.3s"], load_text("en"))
    >>> print(summary(forked, ["Ring"], load_text("en")))
    Ring: +200 ms, 39.7 % later
    """
    runs = zip(titles, forked.before, forked.after, strict=True)
    parts = [
        text("fork.lane", title=title, change=difference(old.trace.time_s, new.trace.time_s, text))
        for title, old, new in runs
    ]
    return text("fork.separator").join(parts)


def headline(forked: Fork, names: Sequence[str], said: str, text: Text) -> str:
    """What the reader's changes do to every run, before what was ``said`` without them.

    >>> from simcore import build_schedule, uniform
    >>> from views.text import load_text
    >>> run = simulate(build_schedule("ring", 4), uniform(4, 25e6), 2 * 2**20)
    >>> forked = fork([run], ["gpu2:0@0.1s..0.3s"], load_text("en"))
    >>> print(headline(forked, ["the ring"], "Nothing else is wrong.", load_text("en")))
    **With what you changed:** the ring took 703.3 ms instead of 503.3 ms.
    <BLANKLINE>
    **Without it:** Nothing else is wrong.
    """
    if not forked.changes:
        return said
    runs = zip(names, forked.before, forked.after, strict=True)
    parts = [_took(name, old.trace.time_s, new.trace.time_s, text) for name, old, new in runs]
    now = f"**{text('fork.with')}** {text('fork.comma').join(parts)}{text('race.stop')}"
    return f"{now}\n\n**{text('fork.without_it')}** {said}"


def _took(name: str, before_s: float, after_s: float, text: Text) -> str:
    times = {"before": format_time(before_s), "after": format_time(after_s)}
    same = abs(after_s - before_s) <= SAME * before_s
    return text("fork.took_same" if same else "fork.took", name=name, **times)


def difference(before_s: float, after_s: float, text: Text) -> str:
    """``+200 ms, 39.7 % later``; or that there is none."""
    change_s = after_s - before_s
    if abs(change_s) <= SAME * before_s:
        return text("fork.unchanged")
    percent = 100 * abs(change_s) / before_s
    key = "later" if change_s > 0 else "earlier"
    shown = f"{percent:.3g}" if percent < 100 else f"{percent:.0f}"
    return text(f"fork.{key}", change=format_time(abs(change_s)), percent=shown)
