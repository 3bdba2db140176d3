"""The numbers of the staleness page as rows: of its table, and of the files that it gives away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simcore.trace import Source
from simcore.training.learning import stability_limit
from simcore.units import format_time
from views.staleness.modes import SCALINGS, Mode, loss_text
from views.text import Text


def table_rows(found: Sequence[Mode], text: Text) -> list[list[str]]:
    """One row per quantity, one column per mode; the header is the modes' titles."""
    rows: dict[str, Callable[[Mode], str]] = {
        "time": lambda m: format_time(m.run.time_s),
        "speed": lambda m: f"{m.run.updates_per_s:.3g}",
        "age_mean": lambda m: f"{m.run.mean_staleness:.2g}",
        "age_most": lambda m: str(int(m.run.updates.staleness.max())),
        "computing": lambda m: percent(m.shares[0], text),
        "moving": lambda m: percent(m.shares[1], text),
        "waiting": lambda m: percent(m.shares[2], text),
        "step": lambda m: f"{step_of(m):.3g}",
        "limit": lambda m: f"{stability_limit(round(m.run.mean_staleness)):.3g}",
        "loss": lambda m: loss_text(float(m.curve.loss[-1])),
        "reached": lambda m: (
            text("staleness.never") if m.reached_s is None else format_time(m.reached_s)
        ),
    }
    target = loss_text(found[0].target)
    return [
        [text(f"staleness.row_{name}", target=target), *map(cell, found)]
        for name, cell in rows.items()
    ]


def percent(part: float, text: Text) -> str:
    """Of a part of one.

    >>> from views.text import load_text
    >>> percent(0.237, load_text("en")), percent(0.237, load_text("zh"))
    ('24\xa0%', '24%')
    """
    return text("common.percent", value=f"{100 * part:.0f}")


def step_of(mode: Mode) -> float:
    """What a gradient of mean age is multiplied by, times the largest curvature, which is 1."""
    rate, workers = mode.setting.learning_rate, mode.setting.workers
    if mode.run.case.bound == 0:
        return rate
    divisor = {"same": 1.0, "workers": workers, "staleness": 1 + mode.run.mean_staleness}
    return rate / divisor[SCALINGS[mode.setting.scaling]]


def export_rows(found: Sequence[Mode]) -> list[dict[str, Any]]:
    """One row per gradient: who, on which version, applied to which, when, and the loss then."""
    rows = []
    for mode in found:
        updates, curve = mode.run.updates, mode.curve
        together = int(curve.gradients[1]) if len(curve.gradients) > 1 else 1
        names = [*("worker", "clock", "pulled", "version", "staleness")]
        names += ("begin_s", "computed_s", "applied_s", "held_s")
        columns = [getattr(updates, name).tolist() for name in names]
        losses = curve.loss.tolist()
        for number, values in enumerate(zip(*columns, strict=True)):
            after = (number + 1) // together  # a round's loss stands with its last gradient
            shown = (number + 1) % together == 0 and after < len(losses)
            row = {"source": Source.SIMULATED.value, "mode": mode.run.case.name, "update": number}
            row |= dict(zip(names, values, strict=True))
            rows.append(row | {"loss": losses[after] if shown else ""})
    return rows
