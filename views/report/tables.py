"""The tables of a validation's report, as rows of text. No layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from simcore.measured.cells import Cell
from simcore.measured.validation import Validation, configurations, percentile_error
from simcore.units import format_bytes, format_time
from views.report.blocks import Table

EDGES = (0.01, 0.02, 0.05, 0.10)
LIBRARY = "torch.all_reduce"


def share(value: float | None, *, sign: bool = False) -> str:
    """A fraction in per cent, ``-`` where there is none.

    >>> share(0.0213), share(-0.0001, sign=True), share(None)
    ('2.1 %', '+0.0 %', '-')
    """
    if value is None:
        return "-"
    rounded = round(100 * value, 1) + 0.0  # no minus before a zero
    return f"{rounded:{'+' if sign else ''}.1f} %"


def in_short(validation: Validation) -> Table:
    """The numbers of the summary."""
    summary = validation.summary()
    wrong = f"{len(summary['wrong_winners'])} of {summary['compared_pairs']}"
    byte_error = validation.bytes_worst_error
    ratio = validation.ring_against_gloo
    rows = [
        ["cells measured", str(summary["measured_cells"])],
        ["of them predicted, held out and believable", str(summary["cells"])],
        ["not counted: the instrument was not quiet", str(summary["not_believable"])],
        ["measurements that calibrated", str(summary["calibrated_on"])],
        ["median error", share(validation.median_error)],
        ["90th percentile of the error", share(validation.p90_error)],
        ["worst error", share(validation.worst_error)],
        ["of the training steps: mean error", share(summary["steps"]["mean_error"])],
        ["of the training steps: worst error", share(summary["steps"]["worst_error"])],
        ["wrong winners, of pairs that differ by more than 10 %", wrong],
        ["worst error in bytes", "-" if byte_error is None else f"{100 * byte_error:.2f} %"],
        [
            "replayed ring / library's all-reduce, largest size, furthest from 1",
            "-" if ratio is None else f"{ratio:.3f}",
        ],
    ]
    return Table(["", "value"], rows)


def distribution(cells: Sequence[Cell]) -> Table:
    """How many cells lie within which error."""
    errors = [abs(cell.error or 0.0) for cell in cells]
    rows = []
    for low, high in zip((-1.0, *EDGES), (*EDGES, float("inf")), strict=True):
        count = sum(low < error <= high for error in errors)
        name = f"up to {100 * high:g} %" if low < 0 else f"{100 * low:g} to {100 * high:g} %"
        name = f"above {100 * low:g} %" if high == float("inf") else name
        rows.append([name, str(count), share(count / len(errors) if errors else None)])
    return Table(["absolute error", "cells", "share"], rows)


def errors_by(title: str, cells: Sequence[Cell], key: Callable[[Cell], str]) -> Table:
    """Errors of the groups that ``key`` makes, in the order in which they come."""
    rows = []
    for name in dict.fromkeys(map(key, cells)):
        mine = [cell for cell in cells if key(cell) == name]
        signed = median(cell.error or 0.0 for cell in mine)
        errors = [share(percentile_error(mine, percent)) for percent in (50, 90, 100)]
        rows.append([name, str(len(mine)), *errors, share(signed, sign=True)])
    return Table([title, "cells", "median", "90th percentile", "worst", "median with sign"], rows)


def winners(validation: Validation) -> Table:
    """The fastest strategy of each configuration, measured and simulated."""
    rows = []
    replayed = (c for c in validation.held_out if c.source == "replayed")
    for (_, gpus, size_bytes, network), cells in configurations(replayed):
        if len(cells) < 2:
            continue
        first = min(cells, key=lambda cell: cell.measured_s)
        simulated = min(cells, key=lambda cell: cell.simulated_s or 0.0)
        behind = simulated.measured_s / first.measured_s - 1
        where = f"{gpus} GPUs, {format_bytes(size_bytes)}{f', {network}' if network else ''}"
        rows.append([where, first.strategy, simulated.strategy, share(behind)])
    header = ["configuration", "fastest measured", "fastest simulated", "what following it costs"]
    return Table(header, rows)


def wrong_winners(validation: Validation) -> Table:
    """The pairs that the simulation orders otherwise."""
    rows = [
        [
            place(faster),
            f"{faster.strategy} before {slower.strategy}",
            *(
                f"{format_time(faster_s)} before {format_time(slower_s)}"
                for faster_s, slower_s in (
                    (faster.measured_s, slower.measured_s),
                    (faster.simulated_s or 0.0, slower.simulated_s or 0.0),
                )
            ),
        ]
        for faster, slower in validation.wrong_winners
    ]
    return Table(["configuration", "measured order", "measured", "simulated"], rows)


def collectives(cells: Iterable[Cell]) -> Table:
    """Every collective: measured, simulated, the error, and the library's own beside it."""
    cells = list(cells)
    library = {
        cell.configuration: cell.measured_s
        for cell in cells
        if cell.name == LIBRARY and cell.believable
    }
    rows = []
    for cell in cells:
        theirs = library.get(cell.configuration)
        rows.append(
            [
                cell.strategy,
                cell.source,
                str(cell.gpus),
                format_bytes(cell.size_bytes),
                cell.network or "-",
                format_time(cell.measured_s),
                "-" if cell.simulated_s is None else format_time(cell.simulated_s),
                share(cell.error, sign=True),
                "-" if theirs is None else format_time(theirs),
                share(cell.spread),
                "-" if cell.bytes_error is None else f"{100 * cell.bytes_error:+.2f} %",
                standing(cell),
            ]
        )
    return Table(
        [
            *("algorithm", "source", "GPUs", "buffer", "network", "measured", "simulated"),
            *("error", f"vendor ({LIBRARY})", "spread of runs", "bytes", "counted"),
        ],
        rows,
    )


def steps(cells: Iterable[Cell]) -> Table:
    """Every training step."""
    rows = [
        [
            cell.strategy,
            cell.source,
            str(cell.gpus),
            format_bytes(cell.size_bytes),
            cell.network or "-",
            format_time(cell.measured_s),
            "-" if cell.simulated_s is None else format_time(cell.simulated_s),
            share(cell.error, sign=True),
            share(cell.spread),
            standing(cell),
        ]
        for cell in cells
    ]
    return Table(
        [
            *("step", "source", "GPUs", "gradients", "network", "measured", "simulated"),
            *("error", "spread of runs", "counted"),
        ],
        rows,
    )


def standing(cell: Cell) -> str:
    """Whether a cell counts, or the first reason why not."""
    if cell.counted:
        return "yes"
    if cell.calibrated_on:
        return "no: calibrated on it"
    return "no: not quiet" if not cell.believable else "no: not simulated"


def place(cell: Cell) -> str:
    """The cell's configuration in words."""
    network = f", {cell.network}" if cell.network else ""
    return f"{cell.gpus} GPUs, {format_bytes(cell.size_bytes)}{network}"
