"""Validations: errors, percentiles and winners of hand-made cells; what a file may hold."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from simcore.measured.cells import Cell
from simcore.measured.validation import (
    MOST_CHARACTERS,
    Validation,
    load_validations,
    validation_from_json,
)

CLUSTER = {"bandwidth": "200Mbit/s", "latency": "40us"}
CALIBRATION = {
    "constants": {"latency": {"value": 4e-5, "low": 3e-5, "high": 5e-5, "unit": "s"}},
    "residuals": [
        {"pattern": "ping", "gpus": 2, "size_bytes": 8, "measured_s": 0.1, "fitted_s": 0.1}
    ],
}


def cell(name: str = "ring", measured_s: float = 1.0, **changes: Any) -> Cell:
    base = Cell(
        kind="collective",
        name=name,
        source="replayed",
        gpus=4,
        size_bytes=2**20,
        network="200Mbit/s",
        runs_s=(measured_s,),
        measured_s=measured_s,
        simulated_s=measured_s,
        bytes_error=0.0,
    )
    return replace(base, **changes)


def validation(*cells: Cell, **changes: Any) -> Validation:
    base = Validation(
        cells=cells,
        clusters={"200Mbit/s": CLUSTER},
        calibrations={"200Mbit/s": CALIBRATION},
        environment={"versions": {}, "machine": {}, "command": "", "date": "2026-11-30"},
    )
    return replace(base, **changes)


def test_an_error_is_relative_to_the_measured_time():
    assert cell(measured_s=2.0, simulated_s=1.9).error == pytest.approx(-0.05)
    assert cell(measured_s=2.0, simulated_s=2.1).error == pytest.approx(0.05)
    assert cell(simulated_s=None).error is None


def test_percentiles_are_over_absolute_errors_of_what_was_held_out():
    errors = [-0.5, -0.1, 0.0, 0.02, -0.04, 0.06, 0.08, 0.01, -0.03, 0.05, -0.07]
    cells = [cell(simulated_s=1 + error) for error in errors]
    found = validation(*cells)
    # In order: 0 .01 .02 .03 .04 .05 .06 .07 .08 .1 .5
    assert found.median_error == pytest.approx(0.05)
    assert found.p90_error == pytest.approx(0.10)
    assert found.worst_error == pytest.approx(0.5)
    assert [c.error for c in found.worst_cells[:2]] == pytest.approx([-0.5, -0.1])


@pytest.mark.parametrize("change", [{"calibrated_on": True}, {"believable": False}])
def test_what_calibrated_or_is_not_believed_counts_in_nothing(change):
    other = cell("tree", 3.0, simulated_s=0.5, bytes_error=0.0, **change)
    found = validation(cell(simulated_s=1.01), other)
    assert found.held_out == (found.cells[0],)
    assert found.worst_error == pytest.approx(0.01)
    assert found.pairs == ()
    assert found.summary()["cells"] == 1
    assert found.summary()["measured_cells"] == 2


def test_nothing_held_out_has_no_errors():
    empty = validation()
    assert empty.median_error is empty.p90_error is empty.worst_error is None
    assert empty.bytes_worst_error is empty.ring_against_gloo is None


def test_a_winner_is_wrong_when_the_simulation_does_not_have_it_in_front():
    ring, tree = cell("ring", 1.0), cell("tree", 1.2)
    assert validation(ring, tree).wrong_winners == ()
    assert validation(ring, tree).pairs == ((ring, tree),)
    slower = replace(ring, simulated_s=1.3)
    assert validation(slower, tree).wrong_winners == ((slower, tree),)
    assert validation(tree, slower).wrong_winners == ((slower, tree),)
    level = replace(ring, simulated_s=1.2)
    assert validation(level, tree).wrong_winners == ((level, tree),)


def test_strategies_within_ten_per_cent_have_no_winner():
    found = validation(cell("ring", 1.0, simulated_s=1.2), cell("tree", 1.1))
    assert found.pairs == ()


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": 3},
        {"size_bytes": 8},
        {"network": "400Mbit/s"},
        {"kind": "step"},
        {"source": "vendor"},
        {"simulated_s": None},
    ],
)
def test_only_replayed_strategies_of_one_configuration_are_compared(change):
    ring = cell("ring", 1.0, simulated_s=3.0)
    other = replace(cell("tree", 2.0), **change)
    assert validation(ring, other).pairs == ()


def test_flags_make_another_strategy():
    two = cell("hierarchical", 1.0, flags={"gpus_per_node": 2})
    assert two.strategy == "hierarchical --gpus-per-node 2"
    three = replace(cell("hierarchical", 1.5), flags={"gpus_per_node": 3})
    assert validation(two, three).pairs == ((two, three),)


def test_ring_is_held_to_the_library_at_the_largest_size():
    def vendor(measured_s: float, **changes: Any) -> Cell:
        return cell("torch.all_reduce", measured_s, source="vendor", simulated_s=None, **changes)

    small = (cell("ring", 5.0), vendor(1.0))
    large = {"size_bytes": 2**23}
    four = (cell("ring", 1.03, **large), vendor(1.0, **large))
    two = (cell("ring", 0.95, gpus=2, **large), vendor(1.0, gpus=2, **large))
    assert validation(*small, *four).ring_against_gloo == pytest.approx(1.03)
    assert validation(*small, *four, *two).ring_against_gloo == pytest.approx(0.95)
    doubtful = (replace(two[0], believable=False), two[1])
    assert validation(*small, *four, *doubtful).ring_against_gloo == pytest.approx(1.03)


def test_the_worst_bytes():
    found = validation(cell(bytes_error=-0.02), cell(bytes_error=0.01), cell(bytes_error=None))
    assert found.bytes_worst_error == pytest.approx(0.02)


def test_a_summary_is_what_the_design_says_and_json():
    found = validation(cell(simulated_s=1.3), cell("tree", 1.2, simulated_s=1.2)).summary()
    json.dumps(found, allow_nan=False)
    assert found["cells"] == 2
    assert found["calibrated_on"] == 1
    assert [[c["name"] for c in pair] for pair in found["wrong_winners"]] == [["ring", "tree"]]
    assert found["worst_cells"][0]["error"] == pytest.approx(0.3)
    assert found["steps"] == {"cells": 0, "mean_error": None, "worst_error": None}


def test_training_steps_are_told_apart():
    steps = [cell("ddp", kind="step", simulated_s=1 + error) for error in (-0.02, 0.04)]
    found = validation(cell(simulated_s=1.3), *steps).summary()["steps"]
    assert found["cells"] == 2
    assert (found["mean_error"], found["worst_error"]) == pytest.approx((0.03, 0.04))


def test_text_and_back():
    whole = validation(cell(flags={"root": 1}, notes=("a note",)), cell(simulated_s=None))
    assert validation_from_json(whole.to_json()) == whole


def test_the_shipped_ones_are_read():
    assert all(found.cells for found in load_validations())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "training"),
        ("kind", ["step"]),
        ("name", ""),
        ("name", "a\nb"),
        ("source", "simulated"),
        ("gpus", 0),
        ("gpus", True),
        ("gpus", 10**6),
        ("size_bytes", -1),
        ("size_bytes", 1.5),
        ("size_bytes", 10**30),
        ("network", ""),
        ("network", 200),
        ("flags", {"root": "1"}),
        ("flags", []),
        ("runs_s", [0.0]),
        ("runs_s", "1"),
        ("runs_s", [1.0] * 2000),
        ("measured_s", 1.5),
        ("measured_s", None),
        ("measured_s", 10**400),
        ("simulated_s", -1),
        ("simulated_s", 0),
        ("bytes_error", "0"),
        ("calibrated_on", 1),
        ("believable", None),
        ("notes", "text"),
        ("notes", [1]),
        ("surplus", 1),
    ],
)
def test_a_wrong_field_of_a_cell_is_named_in_one_line(name, value):
    document = json.loads(validation(cell(), cell()).to_json())
    document["cells"][1][name] = value
    with pytest.raises(ValueError, match=rf"^a\.json: cell 1: .*{name}") as caught:
        validation_from_json(json.dumps(document), "a.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("validation_version", 2),
        ("cells", {}),
        ("cells", [1]),
        ("cells", [{}]),
        ("clusters", []),
        ("clusters", {"200Mbit/s": {"bandwidth": "200"}}),
        ("clusters", {"200Mbit/s": "x"}),
        ("calibrations", {"200Mbit/s": []}),
        ("calibrations", {"200Mbit/s": {"constants": {"latency": {"value": "fast"}}}}),
        ("calibrations", {"200Mbit/s": {"residuals": [{"pattern": "ping"}]}}),
        ("calibrations", {"200Mbit/s": {"residuals": 1}}),
        ("environment", None),
        ("environment", {}),
    ],
)
def test_a_wrong_field_is_named_in_one_line(name, value):
    document = json.loads(validation(cell()).to_json()) | {name: value}
    with pytest.raises(ValueError, match=r"^a\.json: ") as caught:
        validation_from_json(json.dumps(document), "a.json")
    assert name.rstrip("s") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "1", '{"cells": NaN}', "{}", "[" * 100_000])
def test_what_is_not_a_validation(text):
    with pytest.raises(ValueError, match=r"^a\.json") as caught:
        validation_from_json(text, "a.json")
    assert "\n" not in str(caught.value)


def test_what_is_too_large_is_not_read():
    with pytest.raises(ValueError, match="characters; accepted"):
        validation_from_json(" " * (MOST_CHARACTERS + 1))


def test_a_field_that_is_missing_is_named():
    for name in ("cells", "clusters", "calibrations", "environment", "validation_version"):
        document = json.loads(validation(cell()).to_json())
        del document[name]
        with pytest.raises(ValueError, match=f"field '{name}' is missing"):
            validation_from_json(json.dumps(document))


def test_cells_that_differ_have_files_that_differ():
    cells = [
        cell("dp", size_bytes=10_000_000),
        cell("dp", size_bytes=10_000_004),
        cell("dp", size_bytes=10_000_000, kind="step"),
        cell("dp", size_bytes=2**23),
    ]
    assert len({c.stem for c in cells}) == len(cells)
