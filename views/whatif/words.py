"""What a trouble does to every algorithm, and why: read off the simulations, never written down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from simcore.engine import Simulation
from simcore.explain import critical_path
from simcore.schedule import IntArray
from simcore.trace import Lane, Trace
from simcore.units import format_rate, format_time
from views.comparison import binary_bytes
from views.fork import Fork, difference
from views.text import Text
from views.whatif.troubles import (
    Base,
    FanIn,
    HalfDuplex,
    Pair,
    Scenario,
    SlowLink,
    Straggler,
    Uplink,
)

NOTICED = 1.01  # a time longer than this many times another one is not the same


def headline(base: Base, scenario: Scenario, pairs: Sequence[Pair], text: Text) -> str:
    """What goes wrong, whom that hits most and least, and why.

    >>> from views.text import load_text
    >>> from views.whatif.troubles import what_if
    >>> base, half = Base(4, 8 * 2**20, 25e6), HalfDuplex()
    >>> print(headline(base, half, what_if(base, half, ("ps", "ring")), load_text("en")))
    Every port now either sends or receives, never both at once.
    <BLANKLINE>
    **Hit hardest:** the ring, 1.007 s instead of 503.3 ms, 2 times as long. Its busiest port \
sends and receives at once 100 % of the time; now one has to wait for the other.
    <BLANKLINE>
    **Not hit:** the central server, 2.013 s as before. Its busiest port never sends and receives \
at once, so nothing is lost: first all comes in, then all goes out.
    """
    return "\n\n".join([_what(base, scenario, text), *_who(base, scenario, pairs, text)])


def _what(base: Base, scenario: Scenario, text: Text) -> str:
    match scenario:
        case Straggler(gpu, late_s):
            return text("whatif.is_straggler", gpu=gpu, late=format_time(late_s))
        case SlowLink(src, None, factor):
            return text("whatif.is_slow-port", gpu=src, percent=f"{100 * factor:g}")
        case SlowLink(src, dst, factor):
            return text("whatif.is_slow-link", src=src, dst=dst, percent=f"{100 * factor:g}")
        case Uplink(per_node, over):
            uplink = format_rate(scenario.bytes_per_s(base))
            return text("whatif.is_uplink", per_node=per_node, over=f"{over:g}", uplink=uplink)
        case FanIn(after, factor):
            key = ("fan-in_port", "fan-in") if base.gpus != after else ("server", "same")
            values = {"before": base.gpus, "after": after, "factor": f"{factor:g}"}
            return text(f"whatif.is_{key[factor == 1]}", **values)
    return text("whatif.is_half-duplex")


def _who(base: Base, scenario: Scenario, pairs: Sequence[Pair], text: Text) -> list[str]:
    """The extremes; those whose times change alike are named together."""

    def say(key: str, group: Sequence[Pair], factor: float) -> str:
        name, reason = _names(group, text), _reasons(base, scenario, group, text)
        name = name[0].upper() + name[1:] if key == "only" else name
        return text(f"whatif.{key}", name=name, change=_change(group, factor, text), reason=reason)

    most, least = (f(pair.factor for pair in pairs) for f in (max, min))
    if len(pairs) == 1:
        return [say("only", pairs, most)]
    if most < NOTICED and least > 1 / NOTICED:
        return [say("none", pairs, most)]
    if most < NOTICED * least:
        return [say("alike", pairs, most)]
    slowest = [pair for pair in pairs if pair.factor > most / NOTICED]
    fastest = [pair for pair in pairs if pair.factor < least * NOTICED]
    if most < NOTICED:
        rest = "gains_least" if most < 1 / NOTICED else "not_hit"
        return [say("gains", fastest, least), say(rest, slowest, most)]
    rest = "gains" if least < 1 / NOTICED else "not_hit" if least < NOTICED else "least"
    return [say("worst", slowest, most), say(rest, fastest, least)]


def _names(group: Sequence[Pair], text: Text) -> str:
    return text.several(text(f"strategy.{pair.name}.inline") for pair in group)


def _change(group: Sequence[Pair], factor: float, text: Text) -> str:
    key = "longer" if factor >= NOTICED else "shorter" if factor <= 1 / NOTICED else "same"
    shown = {tuple(format_time(time_s) for time_s in pair.times_s) for pair in group}
    before, after = shown.pop()
    each = "_each" if shown else ""
    value = f"{max(factor, 1 / factor):.3g}"
    return text(f"whatif.{key}{each}", before=before, after=after, factor=value)


def _reasons(base: Base, scenario: Scenario, group: Sequence[Pair], text: Text) -> str:
    """The reason that all have; else the first one's, by name: the table has the others'."""
    reasons = [why(base, scenario, pair, text) for pair in group]
    if len(set(reasons)) == 1:
        return reasons[0]
    name = text(f"strategy.{group[0].name}")
    return text("whatif.reason_of", name=name, reason=reasons[0])


def why(base: Base, scenario: Scenario, pair: Pair, text: Text) -> str:
    """Why the trouble hits this algorithm as it does, or does not."""
    match scenario:
        case Straggler():
            return _why_late(scenario, pair, text)
        case SlowLink():
            return _why_slow(base, scenario, pair, text)
        case Uplink():
            return _why_uplink(base, pair, text)
        case HalfDuplex():
            return _why_half(pair, text)
    return _why_port(base, pair, text)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share > 0.995 or share < 0.005 else f"{100 * share:.2g}"


def _why_late(scenario: Straggler, pair: Pair, text: Text) -> str:
    """How much of the lateness reaches the end, and what was done meanwhile."""
    before_s, after_s = pair.times_s
    trace = pair.after.trace
    passed_on = (after_s - before_s) / scenario.late_s
    share = trace.bytes_at(scenario.late_s)[0].sum() / trace.sent_bytes.sum()
    values = {"gpu": scenario.gpu, "share": _percent(share)}
    if passed_on >= 1 / NOTICED:
        count = sum(part.kind == "transfer" for part in critical_path(trace))
        return text("whatif.why_whole", count=count, **values)
    return text("whatif.why_in_time" if passed_on < 0.01 else "whatif.why_partly", **values)


def passing(scenario: SlowLink, trace: Trace) -> IntArray:
    """The sends that have to pass what is slow: rows of the trace's spans."""
    spans = trace.spans
    if scenario.dst is None:
        passes = (spans.rank == scenario.src) | (spans.peer == scenario.src)
    else:
        passes = (spans.rank == scenario.src) & (spans.peer == scenario.dst)
    return np.flatnonzero(passes & (spans.lane == Lane.SEND))


def _why_slow(base: Base, scenario: SlowLink, pair: Pair, text: Text) -> str:
    """Whether anything passes what is slow, in how many steps, and who waits for it."""
    trace = pair.after.trace
    rows = passing(scenario, trace)
    if not len(rows):
        return text("whatif.why_unused")
    used, steps = len(np.unique(trace.spans.step[rows])), pair.after.steps
    values = {"size": binary_bytes(trace.spans.nbytes[rows].sum()), "used": used, "steps": steps}
    if pair.factor < NOTICED:
        share = fastest(pair.before.trace, passing(scenario, pair.before.trace)) / base.bytes_per_s
        key = "why_slack_share" if share <= NOTICED * scenario.factor else "why_slack"
        return text(f"whatif.{key}", share=_percent(share), **values)
    ends = zip(trace.spans.rank[rows].tolist(), trace.spans.peer[rows].tolist(), strict=True)
    share = path_share(trace, set(ends))
    return text("whatif.why_waited", share=_percent(share), **values)


def path_share(trace: Trace, links: set[tuple[int, int]]) -> float:
    """The part of the critical path that is spent on messages between these ranks."""
    path = critical_path(trace)
    on_links = (s.duration_s for s in path if s.kind == "transfer" and (s.rank, s.peer) in links)
    return sum(on_links) / trace.time_s


def fastest(trace: Trace, rows: IntArray) -> float:
    """Bytes per second of the fastest of these spans, each over its whole length."""
    spans = trace.spans
    return float((spans.nbytes[rows] / (spans.end_s[rows] - spans.start_s[rows])).max())


def _why_uplink(base: Base, pair: Pair, text: Text) -> str:
    """What the busiest uplink carries, and whether that is what holds everyone up."""
    run = pair.after
    uplinks = [i for i, name in enumerate(run.network.names) if name.startswith("node")]
    most = max(uplinks, key=lambda link: int(run.link_bytes[link]))
    nbytes = int(run.link_bytes[most])
    values = {"size": binary_bytes(nbytes), "times": f"{nbytes / base.size_bytes:.3g}"}
    if pair.factor < NOTICED:
        time_s = nbytes / float(run.network.capacity[most])
        return text("whatif.why_uplink_free", time=format_time(time_s), **values)
    (level,) = run.case.cluster.levels
    ranks = range(run.case.schedule.n)
    across = {(a, b) for a in ranks for b in ranks if level.groups[a] != level.groups[b]}
    share = path_share(run.trace, across)
    return text("whatif.why_uplink_full", share=_percent(share), **values)


def _why_half(pair: Pair, text: Text) -> str:
    """For which part of the time the busiest port used both its ways before."""
    trace = pair.before.trace
    both = both_ways_s(trace, int((trace.sent_bytes + trace.received_bytes).argmax()))
    if both < 1e-6 * trace.time_s:
        return text("whatif.why_one_way")
    return text("whatif.why_both_ways", share=_percent(both / trace.time_s))


def both_ways_s(trace: Trace, rank: int) -> float:
    """Seconds in which a rank sends and receives at once."""
    spans = trace.spans
    at = np.unique(np.concatenate([spans.start_s, spans.end_s]))
    middle = (at[1:] + at[:-1]) / 2

    def busy(lane: Lane) -> Any:
        rows = np.flatnonzero((spans.lane == lane) & (spans.rank == rank))
        inside = (spans.start_s[rows] <= middle[:, None]) & (middle[:, None] < spans.end_s[rows])
        return inside.any(axis=1)

    return float(np.diff(at)[busy(Lane.SEND) & busy(Lane.RECEIVE)].sum())


def _why_port(base: Base, pair: Pair, text: Text) -> str:
    """What the busiest port moves, before and after; or that no port is what holds it up."""
    gpu, share = most_used(pair.after)
    if share < 1 / NOTICED:
        return text("whatif.why_one_by_one", gpu=gpu, share=_percent(share))
    values = {}
    for when, run in ("before_", pair.before), ("", pair.after):
        link = int(run.link_busy.argmax())
        nbytes = int(run.link_bytes[link])
        values[f"{when}port"] = _port(run, link, text)
        values[f"{when}times"] = f"{nbytes / base.size_bytes:.3g}"
        values[f"{when}time"] = format_time(nbytes / float(run.network.capacity[link]))
    values["port"] = values["port"][0].upper() + values["port"][1:]
    return text("whatif.why_port", **values)


def most_used(run: Simulation) -> tuple[int, float]:
    """The GPU whose port is used most: for what part of the run, both ways added up."""
    network, time_s = run.network, run.trace.time_s
    seconds = run.link_bytes / network.capacity
    used = (seconds[network.tx] + seconds[network.rx]) / time_s
    return int(used.argmax()), float(used.max())


def _port(run: Simulation, link: int, text: Text) -> str:
    """Whose port this busiest link is: one GPU's, or as busy as it every other one."""
    busy = np.maximum(run.link_busy[run.network.tx], run.link_busy[run.network.rx])
    as_busy = busy * NOTICED > run.link_busy[link]
    if as_busy.all():
        return text("whatif.part_all")
    if as_busy[1:].all() and len(busy) > 2:
        return text("whatif.part_others")
    return text("whatif.part_one", gpu=re.findall(r"\d+", run.network.names[link])[0])


def table_header(text: Text, forked: Fork) -> list[str]:
    """Of ``table_rows``."""
    keys = ["whatif.strategy", "whatif.before", "whatif.after", "whatif.difference"]
    return [text(key) for key in (*keys, *(["fork.column"] if forked.changes else []))]


def table_rows(pairs: Sequence[Pair], forked: Fork, text: Text) -> list[list[str]]:
    """A row per algorithm: times and the difference; last what the reader's changes make of it."""
    rows = [
        [
            text(f"strategy.{pair.name}"),
            *map(format_time, pair.times_s),
            difference(*pair.times_s, text),
        ]
        for pair in pairs
    ]
    if forked.changes:
        for row, run in zip(rows, forked.after, strict=True):
            row.append(format_time(run.trace.time_s))
    return rows


def reasons(base: Base, scenario: Scenario, pairs: Sequence[Pair], text: Text) -> str:
    """Why, of every algorithm, as a list in Markdown."""
    return "\n".join(
        text(
            "whatif.reason_of",
            name=f"- **{text(f'strategy.{pair.name}')}**",
            reason=why(base, scenario, pair, text),
        )
        for pair in pairs
    )
