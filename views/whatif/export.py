"""What makes a *What if* page's numbers again: on the command line, and in Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from views.fork import Fork
from views.snippet import spelt
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

FILE = "cluster.json"


def commands(base: Base, scenario: Scenario, pairs: Sequence[Pair], forked: Fork) -> str:
    """A line per algorithm, with all that goes wrong; before them the cluster, if it has a file.

    >>> from views.whatif.troubles import what_if
    >>> base, half = Base(4, 8 * 2**20, 25e6), HalfDuplex()
    >>> print(commands(base, half, what_if(base, half, ("ring",)), Fork((), (), (), ())))
    echo '{"bandwidth": "25000000B/s", "half_duplex": true}' > cluster.json
    python -m simcore simulate ring --gpus 4 --size 8388608B --cluster cluster.json
    """
    rate = f"{base.bytes_per_s:.12g}B/s"
    file = _cluster_file(base, scenario, rate)
    where = f"--cluster {FILE}" if file else f"--bandwidth {rate}"
    wrong = [*_flags(scenario), *(f"--slow-link '{change}'" for change in forked.spelt)]
    lines = [f"echo '{json.dumps(file)}' > {FILE}"] if file else []
    for pair in pairs:
        schedule = pair.after.case.schedule
        line = ["python -m simcore simulate", _algorithm(pair), f"--gpus {schedule.n}"]
        lines.append(" ".join([*line, f"--size {base.size_bytes}B", where, *wrong]))
    return "\n".join(lines)


def _cluster_file(base: Base, scenario: Scenario, rate: str) -> dict[str, Any] | None:
    match scenario:
        case HalfDuplex():
            return {"bandwidth": rate, "half_duplex": True}
        case Uplink(per_node, _):
            uplink = f"{scenario.bytes_per_s(base):.12g}B/s"
            level = {"name": "node", "size": per_node, "uplink": uplink}
            return {"bandwidth": rate, "levels": [level]}
    return None


def _flags(scenario: Scenario) -> list[str]:
    match scenario:
        case Straggler(gpu, late_s):
            return [f"--straggler {gpu}:{late_s:.12g}s"]
        case SlowLink():
            return [f"--slow-link '{scenario.link}:{scenario.factor:g}'"]
        case FanIn(_, factor) if factor != 1:
            return [f"--slow-link gpu0:{factor:g}"]
    return []


def _algorithm(pair: Pair) -> str:
    """Its name on the command line, with what it needs besides."""
    schedule = pair.after.case.schedule
    if pair.name == "hierarchical":
        return f"{pair.name} --gpus-per-node {schedule.flags['gpus_per_node']}"
    if pair.name == "ring-scattered":
        first = next(iter(schedule.steps()))
        return f"ring --order {','.join(map(str, first.src.tolist()))}"
    return pair.name


def whatif_snippet(base: Base, scenario: Scenario, pairs: Sequence[Pair], forked: Fork) -> str:
    """Before, after, and where something was changed, then."""
    lines = tuple(pair.name for pair in pairs)
    head, tail = ["from simcore.units import format_time"], ""
    if forked.changes:
        head.insert(0, "from simcore import parse_slow_link")
        tail = (
            f"\nchanges = [parse_slow_link(text) for text in {list(forked.spelt)!r}]\n"
            "at_s = min(change.from_s for change in changes)\n"
            "for pair in pairs:\n"
            "    changed = pair.after.fork(at_s, changes)\n"
            '    print(pair.name, format_time(changed.trace.time_s), sep="; ")\n'
        )
    return (
        "\n".join(head)
        + f"""
from views.whatif.troubles import Base, {type(scenario).__name__}, what_if

base = {spelt(base)}
scenario = {spelt(scenario)}
pairs = what_if(base, scenario, {lines!r})
for pair in pairs:
    print(pair.name, *map(format_time, pair.times_s), sep="; ")  # before, after
{tail}"""
    )
