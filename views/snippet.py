"""Short Python programs that compute what a page shows; a reader runs and changes them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from views.race import Setting
from views.ring import RingSetting
from views.scaling.curves import Scaling
from views.scaling.pieces import Pieces
from views.scaling.winners import Winners
from views.staleness.modes import StalenessSetting
from views.step.runs import StepChoice
from views.traffic import TrafficSetting


def race_snippet(setting: Setting, lines: tuple[str, ...], changes: tuple[str, ...] = ()) -> str:
    """The algorithms: proved, timed with the changes, and what each GPU sends."""
    reading = (
        "from simcore import parse_slow_link, prove" if changes else "from simcore import prove"
    )
    changed = "".join(f"\n    parse_slow_link({change!r})," for change in changes)
    slow = f"slow = [{changed}\n]\n" if changes else ""
    forked = ".fork(min(change.from_s for change in slow), slow)" if changes else ""
    return f"""\
{reading}
from simcore.units import format_time
from views.race import Setting, race

setting = {spelt(setting)}
{slow}for one in race(setting, {lines!r}):
    prove(one.schedule)  # every GPU ends with every input, each counted once
    run = one.simulation{forked}
    print(one.name, format_time(run.trace.time_s), run.trace.sent_bytes.tolist(), sep="; ")
"""


def ring_snippet(setting: RingSetting, changes: tuple[str, ...] = ()) -> str:
    """The transfers, the numbers that they leave on every GPU, the time, and what each sends;
    and where something was changed, the time then."""
    reading = "from simcore import parse_slow_link, prove, reference" if changes else ""
    tail = f"""\
changes = [parse_slow_link(text) for text in {list(changes)!r}]
changed = run.simulation.fork(min(change.from_s for change in changes), changes)
print("changed", format_time(changed.trace.time_s), sep="; ")
"""
    return f"""\
{reading or "from simcore import prove, reference"}
from simcore.units import format_time
from views.ring import RingSetting, ring_run

setting = {spelt(setting)}
run = ring_run(setting)
prove(run.schedule)  # every GPU ends with every input, each counted once
print(run.schedule)  # the transfers, step by step
print(reference.run(run.schedule, setting.inputs()))  # a row per GPU: all hold the sums
print("ring", format_time(run.time_s), run.simulation.trace.sent_bytes.tolist(), sep="; ")
{tail if changes else ""}"""


def traffic_snippet(setting: TrafficSetting) -> str:
    """Every algorithm's bytes in all and at the busiest port, and its time."""
    return f"""\
from simcore.units import format_time
from views.comparison import binary_bytes
from views.traffic import TrafficSetting, all_traffic

setting = {spelt(setting)}
for traffic in all_traffic(setting):
    print(
        traffic.name,
        dict(traffic.schedule.flags),
        binary_bytes(traffic.total_bytes),
        binary_bytes(traffic.busiest_bytes),
        format_time(traffic.trace.time_s),
        sep="; ",
    )
"""


def scaling_snippet(scaling: Scaling) -> str:
    """A line of times per place of the axis, and where the fastest changes."""
    return f"""\
from simcore.units import format_time
from views.race import Setting
from views.scaling.curves import Scaling, place, stretches

scaling = {spelt(scaling)}
for x in scaling.xs:
    times = [format_time(scaling.time_s(name, x)) for name in scaling.lines]
    print(place(scaling.axis, x), *times, sep="; ")
for part in stretches(scaling):
    print(*part.names, "up to", place(scaling.axis, part.end))
"""


def staleness_snippet(setting: StalenessSetting) -> str:
    """Each mode's time, the mean age of its gradients, and the loss at the end."""
    return f"""\
from simcore.units import format_time
from views.staleness.modes import StalenessSetting, all_modes, loss_text

setting = {spelt(setting)}
for mode in all_modes(setting):
    run, loss = mode.run, mode.curve.loss  # when and how old each gradient was; what that led to
    age = f"{{run.mean_staleness:.2g}}"
    print(run.case.name, format_time(run.time_s), age, loss_text(float(loss[-1])), sep="; ")
"""


def step_snippet(choice: StepChoice) -> str:
    """The step's time and how much of it is not computing, for both strategies."""
    return f"""\
from simcore.units import format_time
from views.step.runs import StepChoice, run_step

choice = {spelt(choice)}
for name in (choice.first, choice.second):
    result = run_step(choice, name)
    print(name, format_time(result.time_s), sep="; ")
"""


def map_snippet(winners: Winners) -> str:
    """The fastest at places of the map, and where it changes along each row."""
    return f"""\
from views.race import Setting
from views.scaling.curves import place
from views.text import load_text
from views.scaling.winners import Winners, cells, rows, table_rows

winners = {spelt(winners)}
for row in table_rows(winners, cells(winners), load_text("en")):
    print(*row, sep="; ")
for row in rows(winners):
    ends = [f"{{' '.join(p.names)}} up to {{place(winners.across, p.end)}}" for p in row.parts]
    print(place(winners.up, row.y), *ends)
"""


def pieces_snippet(pieces: Pieces) -> str:
    """The simulated time of one piece, of the best number of them, and of the most."""
    return f"""\
from simcore.units import format_time
from views.scaling.pieces import Pieces, simulated_s
from views.race import Setting

pieces = {spelt(pieces)}
for count in sorted({{1, pieces.best, pieces.most}}):
    print(count, format_time(simulated_s(pieces, count)), sep="; ")
"""


def spelt(value: object, indent: str = "") -> str:
    """A dataclass as the call that makes it, a line for each field.

    >>> print(spelt(RingSetting(4, 8, 12.5e6)))
    RingSetting(
        gpus=4,
        numbers=8,
        bytes_per_s=12500000.0,
        latency_s=0.0,
    )
    """
    if not is_dataclass(value):
        return repr(value)
    deeper = indent + "    "
    given = [f"{deeper}{f.name}={spelt(getattr(value, f.name), deeper)},\n" for f in fields(value)]
    return f"{type(value).__name__}(\n{''.join(given)}{indent})"
