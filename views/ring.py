"""The ring with real numbers: a small buffer, its trace, and its arithmetic in words and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcore.algorithms import build_schedule
from simcore.cluster import Cluster, uniform
from simcore.cost import ClosedForm, closed_form
from simcore.engine import Simulation, simulate
from simcore.schedule import IntArray, Schedule, chunk_sizes
from simcore.units import format_time
from views.text import Text

ITEM_BYTES = 4  # the numbers travel as 32 bits each


@dataclass(frozen=True, slots=True)
class RingSetting:
    """What the reader chose; ``numbers`` is the length of every GPU's buffer."""

    gpus: int
    numbers: int
    bytes_per_s: float
    latency_s: float = 0.0

    @property
    def size_bytes(self) -> int:
        """Of one GPU's buffer."""
        return self.numbers * ITEM_BYTES

    def cluster(self) -> Cluster:
        """Equal ports on one switch, payload only."""
        return uniform(self.gpus, self.bytes_per_s, self.latency_s)

    def inputs(self) -> IntArray:
        """One digit from 1 to 9 for every GPU and place, so that sums can be checked by head.

        >>> RingSetting(3, 4, 1e9).inputs().tolist()
        [[1, 4, 7, 1], [8, 3, 7, 2], [6, 2, 7, 3]]
        """
        rank, place = np.arange(self.gpus)[:, None], np.arange(self.numbers)
        digits: IntArray = (7 * rank + 3 * place + rank * place) % 9 + 1
        return digits


@dataclass(frozen=True, slots=True, eq=False)
class RingRun:
    """The ring's schedule, simulation and formula for a setting."""

    setting: RingSetting
    schedule: Schedule
    simulation: Simulation
    formula: ClosedForm | None

    @property
    def time_s(self) -> float:
        """From the start to the end of the last GPU."""
        return self.simulation.trace.time_s

    @property
    def chunk_bytes(self) -> IntArray:
        """Of every chunk."""
        return chunk_sizes(self.setting.numbers, self.schedule.chunks) * ITEM_BYTES


def ring_run(setting: RingSetting) -> RingRun:
    """Simulate the ring.

    >>> run = ring_run(RingSetting(4, 10, 12.5e6))
    >>> run.chunk_bytes.tolist(), run.simulation.trace.sent_bytes.tolist()
    ([12, 12, 8, 8], [60, 64, 60, 56])
    """
    schedule, cluster = build_schedule("ring", setting.gpus), setting.cluster()
    return RingRun(
        setting,
        schedule,
        simulate(schedule, cluster, setting.numbers, ITEM_BYTES),
        closed_form("ring", cluster, setting.numbers, ITEM_BYTES),
    )


def headline(run: RingRun, text: Text) -> str:
    """Steps, bytes and time, and where the time goes: one sentence for every setting.

    >>> from views.text import load_text
    >>> print(headline(ring_run(RingSetting(4, 8, 12.5e6)), load_text("en")))
    4 GPUs take 6 steps: after 3 every chunk has all its contributions on one GPU, after 3 more on \
every GPU. Each GPU sends 48 B, 1.5 times its buffer of 32 B, in 3.84 µs: no algorithm is faster \
without extra servers.
    """
    setting, trace = run.setting, run.simulation.trace
    sent = [int(nbytes) for nbytes in trace.sent_bytes]
    values = {
        "n": setting.gpus,
        "steps": run.schedule.n_steps,
        "half": setting.gpus - 1,
        "size": f"{setting.size_bytes} B",
        "numbers": setting.numbers,
        "time": format_time(run.time_s),
        "bound": format_time(run.simulation.lower_bound_s),
        "wait": format_time(run.schedule.n_steps * setting.latency_s),
    }
    if min(sent) == max(sent):
        share = f"{sent[0] / setting.size_bytes:.4g}"
        how = "once" if share == "1" else "same"
        sends = text(f"ring.sends_{how}", sent=f"{sent[0]} B", share=share, **values)
    else:
        sends = text("ring.sends_range", least=min(sent), most=max(sent), **values)
    if run.time_s <= run.simulation.lower_bound_s * (1 + 1e-9):
        why = "at_bound"
    elif setting.latency_s:
        why = "latency"
    else:
        why = "uneven"
    return text("ring.steps", **values) + sends + text(f"ring.why_{why}", **values)


def arithmetic_rows(run: RingRun, text: Text) -> list[list[str]]:
    """Symbols, today's numbers and the result of each quantity."""
    n, size = run.setting.gpus, run.setting.size_bytes
    rows = [
        [text("ring.row_steps"), "2(n-1)", f"2·{n - 1}", str(run.schedule.n_steps)],
        [
            text("ring.row_bytes"),
            "2(n-1)/n · S",
            f"2·{n - 1}/{n} · {size} B",
            f"{2 * (n - 1) * size / n:.4g} B",
        ],
        [text("ring.row_all"), "2(n-1) · S", f"2·{n - 1} · {size} B", f"{2 * (n - 1) * size} B"],
    ]
    if run.formula:
        time = format_time(run.formula.time_s)
        rows.append([text("ring.row_time"), run.formula.symbols, run.formula.numbers, time])
    return rows


def bytes_header(text: Text) -> list[str]:
    """Of ``bytes_rows``."""
    return [text(f"ring.{key}") for key in ("gpu", "kept_first", "kept_then", "exactly", "sent")]


def bytes_rows(run: RingRun) -> list[list[str]]:
    """For every GPU: the two chunks that it never passes on, and what that leaves to send.

    In the first half GPU ``r`` passes on every chunk but ``r+1``, which ends there; in the second
    every chunk but ``r+2``, which its neighbour began with.
    """
    n, size, chunks = run.setting.gpus, run.setting.size_bytes, run.chunk_bytes.tolist()
    sent: Sequence[int] = run.simulation.trace.sent_bytes.tolist()
    rows = []
    for rank in range(n):
        first, then = (rank + 1) % n, (rank + 2) % n
        sum_of = f"2·{size} − {chunks[first]} − {chunks[then]}"
        rows.append([str(rank), f"c{first}", f"c{then}", f"{sum_of} B", f"{sent[rank]} B"])
    return rows
