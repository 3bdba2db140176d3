"""Measured beside simulated: what counts, what is drawn, and which files are taken."""

from __future__ import annotations

import json
import pickle
import re
import shlex
from dataclasses import replace
from statistics import median

import pytest

from real_gpu.commands import parser
from simcore.measured.cells import Cell
from simcore.measured.records import load_records
from simcore.measured.step_records import StepRecord, load_step_records
from simcore.measured.validation import Validation
from simcore.trace import Source
from simcore.training.model import Parameter, Workload
from simcore.training.workload import to_json
from simcore.units import format_time
from views.measured import overlay as overlays
from views.measured import traces as pairing
from views.measured.chart import BANDS, residuals, steps_chart
from views.measured.effort import MOST_EFFORT, MOST_TOGETHER, effort_of
from views.measured.files import MOST_BYTES, MOST_CELLS, MOST_FILES, read_files
from views.measured.overlay import AXES, Overlay, case_of, curves, networks, overlay_chart, places
from views.measured.rows import (
    cells_rows,
    commands,
    doubtful_lines,
    export_json,
    export_rows,
    figures_rows,
    plain,
)
from views.measured.sets import (
    RECORDS,
    Study,
    cell_of_record,
    groups,
    headline,
    joined,
    load_traces,
    percent,
    shipped,
)
from views.measured.traces import lanes, pairs, words
from views.player import payload
from views.text import LANGUAGES, load_text

EN = load_text("en")
ENVIRONMENT = {"versions": {}, "machine": {}, "command": "rm -rf /", "date": "2026-11-30"}
STUDY = shipped(RECORDS)


def cell(name: str = "ring", error: float | None = 0.0, **changes) -> Cell:
    base = Cell("collective", name, "replayed", 4, 2**20, "200Mbit/s", {}, (1.0,), 1.0)
    return replace(base, simulated_s=None if error is None else 1 + error, **changes)


def study(*cells: Cell, **more) -> Study:
    clusters = {"200Mbit/s": {"bandwidth": "200Mbit/s"}}
    return Study("x", Validation(cells, clusters, {}, ENVIRONMENT), **more)


def test_only_what_is_held_out_believable_and_predicted_counts_and_sources_stay_apart():
    mixed = study(
        cell(error=0.01),
        cell(error=-0.02),
        cell(error=0.04),
        cell(error=0.9, calibrated_on=True),
        cell(error=0.8, believable=False, notes=("3 packets were dropped",)),
        cell("torch.all_reduce", error=None, source="vendor"),
        cell("torch.ddp", error=0.07, source="vendor", kind="step"),
    )
    replayed, vendor, step = groups(mixed.cells)
    assert [len(group.counted) for group in (replayed, vendor, step)] == [3, 0, 1]
    assert [replayed.error(at) for at in (50, 100)] == pytest.approx([0.02, 0.04])
    assert replayed.error(90) == pytest.approx(0.036)
    assert step.error(100) == pytest.approx(0.07)
    assert vendor.error(50) is None
    for language in LANGUAGES:
        said = headline(mixed, load_text(language))
        for number in ("2.0", "4.0", "7.0"):
            assert number in said
        assert "90" not in said
        assert "80" not in said
    rows = {row[0]: row[1:] for row in figures_rows(groups(mixed.cells), mixed, EN)}
    assert rows["Link parameters fitted to"][0] == "1 of the configurations"
    assert rows["Not believable"] == ["1", "0", "0"]
    assert rows["Without a simulation"] == ["0", "1", "0"]
    (line,) = doubtful_lines(mixed, EN)
    assert "3 packets were dropped" in line
    columns = {row[0]: row[2:5] for row in cells_rows(mixed.cells, EN)}
    assert columns["torch.ddp"] == ["1.07 s", "–", "1 s, median of 1 runs"]
    assert columns["Ring"][2] == "–"


def test_without_an_answer_it_says_so():
    assert headline(study(cell(error=None)), EN) == EN("measured.no_answer")


def test_shipped_records_are_cells_with_their_own_errors():
    records, steps = load_records(), load_step_records()
    assert len(STUDY.cells) == len(records) + len(steps)
    for record in records:
        made = cell_of_record(record)
        assert made.measured_s == median(record.runs_s)
        if record.simulated:
            wanted = record.simulated["time_s"] / record.median_s - 1
            assert made.error == pytest.approx(wanted)
            assert made.bytes_error is not None
            assert abs(made.bytes_error) < 0.01
    for record, made in zip(steps, STUDY.cells[len(records) :], strict=True):
        assert (made.kind, made.source) == ("step", "vendor")
        assert made.simulated_s == record.simulate().time_s


@pytest.mark.parametrize("axis", AXES)
def test_curves_run_through_the_cells_own_simulations(axis):
    (network,) = networks(STUDY)
    _, fixed = places(STUDY, axis, network)
    overlay = Overlay(axis, fixed, network)
    points, found = overlay.points(STUDY), curves(STUDY, overlay)
    assert {curve.name for curve in found} >= {"ring", "ps", "dp"}
    seen = 0
    for point in points:
        for curve in found:
            if curve.name == point.name and overlay.x(point) in curve.places:
                at = curve.times_s[curve.places.index(overlay.x(point))]
                assert at == pytest.approx(point.simulated_s, rel=1e-9)
                seen += 1
    assert seen >= 6
    drawn = overlay_chart(STUDY, overlay, EN)
    assert drawn is not None
    marks = [
        (row, layer["mark"]["filled"])
        for layer in drawn["layer"]
        if layer["mark"].get("type") == "point"
        for row in layer["data"]["values"]
    ]
    assert len(marks) == len(points)
    assert all(filled != row["what"].endswith("(vendor's own)") for row, filled in marks)


def test_every_predicted_cell_is_a_point_on_the_bands():
    doubtful = replace(STUDY.cells[0], believable=False)
    shown = Study("x", replace(STUDY.validation, cells=(*STUDY.cells, doubtful)))
    chart = residuals(shown, EN)
    bands = [layer["data"]["values"][0]["high"] for layer in chart["layer"][: len(BANDS)]]
    assert bands == [5.0, 2.0]
    rows = [row for layer in chart["layer"][len(BANDS) + 1 :] for row in layer["data"]["values"]]
    predicted = [c for c in shown.cells if c.error is not None]
    assert sorted(row["error"] for row in rows) == sorted(100 * c.error for c in predicted)
    looks = {(row["colour"], row["shape"]) for row in rows if row["counts"] == "counts"}
    assert len(looks) == len({c.name for c in predicted}), "a colour and shape for each"
    assert all(row["shape"] != "stroke" for row in rows), "nothing of it would be seen"
    (cross,) = (row for row in rows if row["counts"] == "not believable")
    assert not cross["full"]
    steps = steps_chart(shown, EN)
    assert steps is not None
    labels = [row["where"] for row in steps["data"]["values"]]
    assert len(set(labels)) == len(labels) == 18


def test_a_trace_belongs_to_the_cell_with_the_same_messages():
    found = pairs(STUDY)
    assert sorted(found) == ["ps-4x8MiB-200Mbit/s", "ring-4x8MiB-200Mbit/s"]
    pair = found["ring-4x8MiB-200Mbit/s"]
    shown = lanes(pair, EN)
    assert [lane.trace.source for lane in shown] == [Source.SIMULATED, Source.REPLAYED]
    assert len({lane.trace.name for lane in shown}) == 2, "one name would mix their counters"
    data = payload(shown, words(pair, EN), 0.1)
    assert [lane["source"] for lane in data["lanes"]] == ["simulated", "replayed"]
    assert data["lanes"][1]["time_s"] == pair.measured.time_s
    assert "simulated" not in data["text"]["legend_add"]
    others = [c for c in STUDY.cells if (c.name, c.gpus, c.size_bytes) != ("ring", 4, 2**23)]
    alone = Study("x", replace(STUDY.validation, cells=tuple(others)), load_traces())
    assert sorted(pairs(alone)) == ["ps-4x8MiB-200Mbit/s"]
    near = replace(pair.cell, size_bytes=2**23 - 16)  # as long, but other messages
    assert pairs(Study("x", replace(STUDY.validation, cells=(near,)), load_traces())) == {}


def test_files_are_taken_apart_and_the_good_ones_shown():
    record, step, trace = load_records()[0], load_step_records()[0], load_traces()[0]
    validation = study(cell(error=0.01)).validation
    read = read_files(
        (name, text.encode())
        for name, text in (
            ("a.json", record.to_json()),
            ("again.json", record.to_json()),
            ("b.json", step.to_json()),
            ("c.json", validation.to_json()),
            ("d.json", trace.to_json()),
            ("e.json", '{"souce": 1}'),
        )
    )
    assert read.study is not None
    assert [c.name for c in read.study.cells] == [record.name, step.name, "ring"]
    assert [t.name for t in read.study.traces] == [trace.name]
    (line,) = read.refused
    assert line.startswith("e.json: ")
    assert "accepted" in line


COUNTED = {"time_s": 1, "cluster": {"counter_bytes_per_payload_byte": 1.0}}


def changed(**changes) -> bytes:
    return json.dumps(json.loads(load_records()[0].to_json()) | changes).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "larger than"),
        (b" " * (MOST_BYTES + 1), "larger than"),
        (pickle.dumps({"record_version": 1}), "not UTF-8"),
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"record_version": NaN}', "not a number"),
        (b'{"record_version": 1}', "missing"),
        (b"7", "accepted"),
        (changed(name="<script>alert(1)</script>"), "'name'"),
        (changed(name="![](http://a.example/b.png)"), "'name'"),
        (changed(gpus=10**6, **dict.fromkeys(("sent_bytes", "received_bytes"))), ""),
        (changed(flags={"pieces": 10**9}), "'flags'"),
        (changed(runs_s=[0.0], median_s=0.0), "'runs_s'"),
        (changed(simulated={"time_s": "soon", "sent_bytes": [], "cluster": {}}), "'simulated_s'"),
        (changed(simulated={"time_s": 1, "sent_bytes": [], "cluster": 7}), ""),
        (changed(simulated=COUNTED | {"sent_bytes": 5}), ""),
        (changed(instrument={"ok": True, "reasons": 5}), ""),
        (changed(souce="x"), "did you mean 'source'"),
        (b'{"format": "syncscope-trace", "version": 1}', "not a trace"),
        (b'{"format": "other"}', "'format'"),
        (b'{"workload": "x", "gpus": 1000000}', "'gpus'"),
        (b'{"validation_version": 2}', "a.json"),
    ],
)
def test_a_bad_file_is_one_line_with_its_name_and_reason(content, says):
    good = load_records()[1].to_json().encode()
    read = read_files([("a.json", content), ("good.json", good)])
    (line,) = read.refused
    assert line.startswith("a.json")
    assert says in line
    assert "\n" not in line
    assert len(line) <= 300
    assert read.study is not None
    assert len(read.study.cells) == 1


def _step_of(parameters: int, gpus: int, **options) -> str:
    """A strict record of a step that nobody has run."""
    step = load_step_records()[0]
    work = Workload("w", tuple(Parameter(f"p{i}", (64, 64 + i)) for i in range(parameters)))
    return replace(
        step,
        gpus=gpus,
        workload=to_json(work.with_compute(0.1, 0.2, 0.01)),
        options=options,
        **dict.fromkeys(("sent_bytes", "received_bytes", "counter_sent_bytes")),
    ).to_json()


def test_a_step_that_would_take_long_to_simulate_is_refused_before_it_is(monkeypatch):
    """Also one that is fine by itself, after many others; and a model too large to look at."""
    asked = []
    monkeypatch.setattr(StepRecord, "simulate", lambda self, *_: asked.append(self) or 1 / 0)
    large = {
        "buckets.json": _step_of(500, 64, bucket_cap_mb=1e-4),
        "micro-batches.json": _step_of(100, 64, bucket_cap_mb=1e-4, accumulate=64),
    }
    many = json.loads(large["buckets.json"])
    row = {"name": "w", "shape": [2]}
    many["workload"] = json.dumps({"name": "w", "parameters": [row] * 5000})
    read = read_files(
        [(name, text.encode()) for name, text in large.items()]
        + [("model.json", json.dumps(many).encode())]
    )
    assert asked == []
    assert read.study is None
    for line, name in zip(read.refused, [*large, "model.json"], strict=True):
        assert line.startswith(name)
        assert "accepted: up to" in line
    monkeypatch.undo()
    fair = _step_of(40, 32, bucket_cap_mb=1e-4).encode()
    read = read_files([(f"{number}.json", fair) for number in range(30)])
    assert read.study is not None
    assert 1 < len(read.refused) < 30
    assert "in all files together" in read.refused[0]


def test_all_files_together_hold_no_more_cells_than_one_may():
    many = study(*(cell(size_bytes=size) for size in range(1200))).validation.to_json().encode()
    few = study(cell()).validation.to_json().encode()
    read = read_files([("a.json", many), ("b.json", many), ("c.json", few)])
    assert read.study is not None
    (line,) = read.refused
    assert line == f"b.json: accepted: up to {MOST_CELLS} cells in all files"


SLOW = {
    "bandwidth": "25MB/s",
    "burst": "32KiB",
    "levels": [{"name": "node", "size": 4, "uplink": "7MB/s"}],
}


def test_curves_and_traces_that_would_take_long_are_left_out(monkeypatch):
    """A file may ask for any cluster; what its cells would take is known before."""
    cells = [cell(name="ps-sharded", gpus=gpus) for gpus in (2, 64)]
    slow = study(*cells)
    slow = replace(slow, validation=replace(slow.validation, clusters={cells[0].network: SLOW}))
    spent = []
    monkeypatch.setattr(overlays, "simulated_s", lambda name, flags, n, *_: spent.append(n) or 1.0)
    (curve,) = curves(slow, Overlay("gpus", cells[0].size_bytes, cells[0].network))
    assert max(spent) == max(curve.places) < 64
    document = json.dumps(SLOW)
    whole = sum(effort_of(*case_of("ps-sharded", (), n, document)) for n in curve.places)
    assert whole <= MOST_TOGETHER
    assert effort_of(*case_of("ps-sharded", (), 64, document)) > MOST_EFFORT
    trace = replace(load_traces()[0], name="ps-sharded")
    monkeypatch.setattr(pairing, "_simulated", lambda *_: 1 / 0)
    many = replace(
        slow,
        validation=replace(
            slow.validation, cells=(replace(cells[1], runs_s=(), measured_s=trace.time_s),)
        ),
        traces=(replace(trace, n=64),),
    )
    assert pairs(many) == {}


def test_no_more_files_than_promised():
    good = load_records()[0].to_json().encode()
    read = read_files([(f"{n}.json", good) for n in range(MOST_FILES + 1)])
    (line,) = read.refused
    assert str(MOST_FILES) in line


def test_words_from_elsewhere_stay_words():
    evil = "![x](http://a) [l](b) <b> $x$ :red[y] `c` | d"
    shown = plain(evil)
    assert all(f"\\{mark}" in shown for mark in "![]()<>$:`|")
    (line,) = doubtful_lines(study(cell(believable=False, notes=(evil,))), EN)
    assert "](http" not in line


def test_commands_are_made_from_cells_and_are_accepted():
    runs = []
    for line in commands(STUDY).splitlines():
        loop = re.fullmatch(r"for name in (.*); do (.*); done", line)
        names, command = (loop[1].split(), loop[2]) if loop else ([""], line)
        runs += [shlex.split(command.replace("$name", name))[3:] for name in names]
    asked = [parser().parse_args(words) for words in runs if words[:1] == ["run"]]
    assert len(asked) == len(load_records())
    assert {(args.name, args.gpus) for args in asked} == {
        (record.name, str(record.gpus)) for record in load_records()
    }
    assert "rm -rf" not in commands(study(cell()))


def test_what_is_shown_more_than_once_is_counted_once():
    twice = joined("own", [study(cell(error=0.1)), study(cell(error=0.1), cell(error=0.2, gpus=2))])
    assert len(twice.cells) == 2


def test_files_hold_the_cells_and_the_curves():
    overlay = Overlay("size", 4, "200Mbit/s", ("ring",))
    rows = export_rows(STUDY, overlay)
    simulated = [row for row in rows if row["source"] == "simulated"]
    assert len(rows) - len(simulated) == len(STUDY.cells)
    assert len(simulated) == sum(len(curve.places) for curve in curves(STUDY, overlay))
    assert all(row["measured_s"] is None for row in simulated)
    document = json.loads(export_json(STUDY, overlay))
    worst = document["figures"][0]["worst_error"]
    assert percent(worst, EN) in headline(STUDY, EN)
    assert len(document["validation"]["cells"]) == len(STUDY.cells)
    assert format_time(simulated[0]["simulated_s"])
