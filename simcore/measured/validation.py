"""Validations: many measured cells beside their simulations, and how wrong those were.

One JSON object in a file; `real_gpu validate` writes it, reports and pages read it. What took part
in a calibration, or was measured while the instrument was not quiet, counts in no error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from importlib import resources
from itertools import combinations, groupby
from typing import Any

import numpy as np

from simcore.cluster_file import cluster_from_dict
from simcore.fields import Fields, parse_json, short
from simcore.measured.cells import Cell
from simcore.measured.validation_fields import CELL_FIELDS, check_calibration, objects

VALIDATION_VERSION = 1
MOST_CHARACTERS, MOST_CELLS = 4_000_000, 5000
DIFFER = 0.10  # strategies nearer to one another than this have no winner
UNSHAPED = "unshaped"  # the key of clusters and calibrations measured without a shaped network
WORST_CELLS = 10


@dataclass(frozen=True, slots=True)
class Validation:
    """Cells, and what they were simulated on.

    ``clusters`` and ``calibrations`` have a key for each network of the cells, its text or
    ``UNSHAPED``: the cluster file's document that was simulated, and how it was found.
    """

    cells: tuple[Cell, ...]
    clusters: dict[str, dict[str, Any]]
    calibrations: dict[str, dict[str, Any]]
    environment: dict[str, Any]
    validation_version: int = VALIDATION_VERSION

    def __post_init__(self) -> None:
        if self.validation_version != VALIDATION_VERSION:
            raise ValueError(
                f"field 'validation_version' is {short(self.validation_version)}; "
                f"accepted: {VALIDATION_VERSION}"
            )
        if len(self.cells) > MOST_CELLS:
            raise ValueError(f"field 'cells' has {len(self.cells)}; accepted: up to {MOST_CELLS}")
        for name, document in objects("clusters", self.clusters).items():
            cluster_from_dict(document, 2, f"field 'clusters': {name!r}")
        for name, document in objects("calibrations", self.calibrations).items():
            check_calibration(document, f"field 'calibrations': {name!r}")
        needed = ("versions", "machine", "command", "date")
        if not isinstance(self.environment, dict) or any(n not in self.environment for n in needed):
            raise ValueError(f"field 'environment': accepted: an object with {', '.join(needed)}")

    def cluster(self, network: str | None) -> dict[str, Any] | None:
        """The cluster file's document on which that network's cells were simulated."""
        return self.clusters.get(network or UNSHAPED)

    def calibration(self, network: str | None) -> dict[str, Any] | None:
        """How that network's cluster was found, None where nothing was fitted."""
        return self.calibrations.get(network or UNSHAPED)

    @property
    def held_out(self) -> tuple[Cell, ...]:
        """The cells that count in the errors."""
        return tuple(cell for cell in self.cells if cell.counted)

    @property
    def median_error(self) -> float | None:
        """Median of the held-out cells' absolute errors; None if there are none."""
        return percentile_error(self.held_out, 50)

    @property
    def p90_error(self) -> float | None:
        """The absolute error that nine in ten of the held-out cells stay below."""
        return percentile_error(self.held_out, 90)

    @property
    def worst_error(self) -> float | None:
        """The largest absolute error of a held-out cell."""
        return percentile_error(self.held_out, 100)

    @property
    def bytes_worst_error(self) -> float | None:
        """The largest absolute error in bytes of any believable cell; None without counters."""
        errors = [
            abs(c.bytes_error) for c in self.cells if c.believable and c.bytes_error is not None
        ]
        return max(errors, default=None)

    @property
    def worst_cells(self) -> tuple[Cell, ...]:
        """The held-out cells with the largest absolute errors, the worst first."""
        ranked = sorted(self.held_out, key=lambda cell: -abs(cell.error or 0.0))
        return tuple(ranked[:WORST_CELLS])

    @property
    def pairs(self) -> tuple[tuple[Cell, Cell], ...]:
        """Pairs (faster, slower) of replayed strategies in one configuration that have a winner."""
        found = []
        for _, cells in configurations(c for c in self.held_out if c.source == "replayed"):
            for pair in combinations(cells, 2):
                faster, slower = sorted(pair, key=lambda cell: cell.measured_s)
                if slower.measured_s > (1 + DIFFER) * faster.measured_s:
                    found.append((faster, slower))
        return tuple(found)

    @property
    def wrong_winners(self) -> tuple[tuple[Cell, Cell], ...]:
        """Of the pairs, those whose winner the simulation does not have in front."""
        return tuple(
            (faster, slower)
            for faster, slower in self.pairs
            if (faster.simulated_s or 0.0) >= (slower.simulated_s or 0.0)
        )

    @property
    def ring_against_gloo(self) -> float | None:
        """Replayed ring / vendor's all-reduce at the largest size; of several, furthest from 1."""
        return max(_ring_ratios(self.cells), key=lambda ratio: abs(ratio - 1), default=None)

    def summary(self) -> dict[str, Any]:
        """The numbers that a reader asks for first, as a JSON object."""
        fitted = sum(len(c.get("residuals", [])) for c in self.calibrations.values())
        return {
            "cells": len(self.held_out),
            "calibrated_on": fitted + sum(cell.calibrated_on for cell in self.cells),
            "median_error": self.median_error,
            "p90_error": self.p90_error,
            "worst_error": self.worst_error,
            "wrong_winners": [[_brief(cell) for cell in pair] for pair in self.wrong_winners],
            "worst_cells": [_brief(cell) for cell in self.worst_cells],
            "compared_pairs": len(self.pairs),
            "bytes_worst_error": self.bytes_worst_error,
            "ring_against_gloo": self.ring_against_gloo,
            "steps": self._steps(),
            "measured_cells": len(self.cells),
            "not_believable": sum(not cell.believable for cell in self.cells),
        }

    def _steps(self) -> dict[str, Any]:
        """The training steps among the held-out cells."""
        steps = [cell for cell in self.held_out if cell.kind == "step"]
        errors = [abs(cell.error or 0.0) for cell in steps]
        mean = math.fsum(errors) / len(errors) if errors else None
        return {"cells": len(steps), "mean_error": mean, "worst_error": max(errors, default=None)}

    def to_json(self) -> str:
        """The validation as text; ``validation_from_json`` is the inverse."""
        ordered = {"validation_version": self.validation_version} | asdict(self)
        return json.dumps(ordered, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def percentile_error(cells: Iterable[Cell], percent: float) -> float | None:
    """That percentile of the cells' absolute errors, interpolated; None if there are none."""
    errors = [abs(cell.error) for cell in cells if cell.error is not None]
    return float(np.percentile(errors, percent)) if errors else None


def configurations(
    cells: Iterable[Cell],
) -> list[tuple[tuple[str, int, int, str], list[Cell]]]:
    """The cells of each configuration, in the order of the configurations."""
    ordered = sorted(cells, key=lambda cell: cell.configuration)
    return [(key, list(same)) for key, same in groupby(ordered, lambda cell: cell.configuration)]


def _ring_ratios(cells: Iterable[Cell]) -> list[float]:
    """Ring / all_reduce in each configuration of the largest size that has both."""
    ratios: dict[int, list[float]] = {}
    for (_, _, size_bytes, _), same in configurations(c for c in cells if c.believable):
        of = {cell.name: cell.measured_s for cell in same}
        if "ring" in of and "torch.all_reduce" in of:
            ratios.setdefault(size_bytes, []).append(of["ring"] / of["torch.all_reduce"])
    return ratios[max(ratios)] if ratios else []


def _brief(cell: Cell) -> dict[str, Any]:
    names = ("kind", "name", "source", "gpus", "size_bytes", "network", "flags")
    times = ("measured_s", "simulated_s", "error")
    return {name: getattr(cell, name) for name in (*names, *times)}


_VALIDATION = {
    "validation_version": str(VALIDATION_VERSION),
    "cells": f"a list of up to {MOST_CELLS} cells",
    "clusters": "an object with a cluster file's content for each network",
    "calibrations": "an object with an object for each network",
    "environment": "an object",
}


def validation_from_json(text: str, where: str = "validation") -> Validation:
    """A validation from its text; an error is one line that names ``where`` and the field.

    >>> validation_from_json('{"cels": []}', "a.json")
    Traceback (most recent call last):
    ValueError: a.json: unknown field 'cels'; did you mean 'cells'? accepted: validation_version, \
cells, clusters, calibrations, environment
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"{where}: {len(text)} characters; accepted: up to {MOST_CHARACTERS} characters"
        )
    of = Fields(parse_json(text, where), _VALIDATION, where)
    for name in _VALIDATION:
        if name not in of:
            raise ValueError(f"{where}: field {name!r} is missing")
    rows = of.get("cells", list)
    if len(rows) > MOST_CELLS:
        raise of.wrong("cells", f"{len(rows)} of them")
    cells = tuple(_cell(row, f"{where}: cell {number}") for number, row in enumerate(rows))
    try:
        return Validation(**of.document | {"cells": cells})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _cell(row: Any, where: str) -> Cell:
    accepted = {f.name: CELL_FIELDS[f.name][1] for f in fields(Cell)}
    of = Fields(row, accepted, where)
    for name in accepted:
        if name not in of:
            raise ValueError(f"{where}: field {name!r} is missing")
    values: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in of.document.items()
    }
    try:
        return Cell(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def load_validations() -> tuple[Validation, ...]:
    """The shipped ones, in order of file names."""
    folder = resources.files("simcore").joinpath("data/validations")
    if not folder.is_dir():
        return ()
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return tuple(
        validation_from_json(f.read_text(encoding="utf-8"), f"shipped validation {f.name!r}")
        for f in found
    )
