"""The report of a validation: what stands in it, that it stands alone, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from simcore.measured.cells import Cell
from simcore.measured.validation import Validation
from tests.test_validation import cell, validation
from views.report.__main__ import main
from views.report.blocks import markdown
from views.report.contents import report
from views.report.worst import anatomy, explained

REPOSITORY = Path(__file__).resolve().parent.parent
CLUSTER = {"bandwidth": "200Mbit/s", "latency": "1ms"}


def example() -> Validation:
    """Two rings, a tree that wins against its prediction, a doubtful one, the library, a step."""
    ring = cell("ring", 0.100, simulated_s=0.103, runs_s=(0.099, 0.100, 0.104))
    two = cell("hierarchical", 0.110, simulated_s=0.110, flags={"gpus_per_node": 2})
    tree = cell("tree", 0.080, simulated_s=0.120)
    doubtful = cell("ps", 0.3, simulated_s=0.9, believable=False, notes=("7 packets dropped",))
    library = cell("torch.all_reduce", 0.098, source="vendor", simulated_s=None, bytes_error=None)
    step = cell("torch.ddp", 0.310, kind="step", source="vendor", simulated_s=0.313)
    return validation(
        *(ring, two, tree, doubtful, library, step),
        replace(cell("ring", 0.010, simulated_s=0.010), size_bytes=2**16),
        clusters={"200Mbit/s": CLUSTER},
        environment={
            "versions": {"torch": "2.13.0"},
            "machine": {"system": "Linux", "cpu": "<CPU> & Co", "cores": 2},
            "command": "python -m real_gpu validate --out DIR",
            "date": "2026-11-30",
        },
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("validation")
    found = example()
    (folder / "validation.json").write_text(found.to_json(), encoding="utf-8")
    (folder / "records").mkdir()
    instrument = {"ok": True, "reasons": [], "drops": 3, "rate_error": 0.0021}
    tree = json.dumps({"instrument": instrument})
    (folder / "records" / f"{found.cells[2].stem}.json").write_text(tree, encoding="utf-8")
    (folder / "records" / f"{found.cells[0].stem}.json").write_text("[", encoding="utf-8")
    assert main([str(folder)]) == 0
    return folder


def section(text: str, title: str) -> str:
    """The part of a Markdown report under a heading."""
    return re.split(r"^## ", text, flags=re.M)[
        [t.splitlines()[0] for t in re.split(r"^## ", text, flags=re.M)].index(title)
    ]


def row(text: str, *begin: str) -> list[str]:
    """The one table row that begins with these cells."""
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()]
    (found,) = [cells for cells in rows if cells[: len(begin)] == list(begin)]
    return found


def test_every_cell_stands_in_it_with_its_three_sources(folder):
    text = section((folder / "report.md").read_text(encoding="utf-8"), "Collectives")
    assert row(text, "tree")[1:9] == [
        *("replayed", "4", "1 MiB", "200Mbit/s", "80 ms", "120 ms", "+50.0 %", "98 ms")
    ]
    assert row(text, "ring", "replayed", "4", "1 MiB")[8:] == ["98 ms", "5.0 %", "+0.00 %", "yes"]
    assert row(text, "ring", "replayed", "4", "64 KiB")[8] == "-"
    assert row(text, "torch.all_reduce")[6:8] == ["-", "-"]
    assert row(text, "torch.all_reduce")[-1] == "no: not simulated"
    assert row(text, "ps")[-1] == "no: not quiet"
    assert row(text, "hierarchical --gpus-per-node 2")[5] == "110 ms"
    steps = section((folder / "report.md").read_text(encoding="utf-8"), "Training steps")
    assert row(steps, "torch.ddp")[1] == "vendor"


def test_errors_and_winners(folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    short = section(text, "In short")
    assert row(short, "of them predicted, held out and believable")[1] == "5"
    assert row(short, "worst error")[1] == "50.0 %"
    assert row(short, "wrong winners, of pairs that differ by more than 10 %")[1] == "2 of 2"
    errors = section(text, "Errors")
    assert [
        row(errors, name)[1] for name in ("up to 1 %", "1 to 2 %", "2 to 5 %", "above 10 %")
    ] == [*("3", "0", "1", "1")]
    assert row(errors, "ring")[1:] == ["2", "1.5 %", "2.7 %", "3.0 %", "+1.5 %"]
    winners = section(text, "Winners")
    assert row(winners, "4 GPUs, 1 MiB, 200Mbit/s", "tree")[2:] == ["ring", "25.0 %"]
    assert row(winners, "4 GPUs, 1 MiB, 200Mbit/s", "tree before ring")[2:] == [
        "80 ms before 100 ms",
        "120 ms before 103 ms",
    ]
    assert "7 packets dropped" in section(text, "Not counted")


def test_the_worst_cell_is_explained(folder):
    text = section((folder / "report.md").read_text(encoding="utf-8"), "The worst cells")
    worst = text.split("### ")[1]
    assert worst.startswith("tree, 4 GPUs, 1 MiB, 200Mbit/s: +50.0 %")
    # Four messages of 2**20 bytes at 25 MB/s and a millisecond each: 167.8 ms and 4 ms.
    assert "on the wire 97.7%, latency of messages 2.3%" in worst
    assert "40 ms less, 10 ms for each of the 4 messages" in worst
    assert "3 packets dropped, ports +0.21% off" in worst
    assert "burst" in worst


def test_causes_are_named_only_where_their_condition_holds():
    found = {name: anatomy(cell(name), CLUSTER) for name in ("ps", "ring", "tree", "dp")}
    assert [f.flows_at_once for f in found.values()] == [3, 1, 1, 1]
    assert [f.sends_in_turn for f in found.values()] == [False, False, True, True]
    assert anatomy(cell("ring", gpus=2), CLUSTER).two_way
    assert not found["ring"].two_way
    assert found["ring"].message_bytes == (2**18, 2**18)
    assert found["ps"].seconds["latency"] == pytest.approx(2e-3)


def test_what_several_machines_share_is_not_one_machine():
    slow = replace(cell("ring", network=None), simulated_s=0.5)
    for machines, says, not_says in ((1, "loopback", "switches"), (2, "switches", "loopback")):
        record = {"backend": "gloo", "environment": {"machine": {"machines": machines}}}
        text = " ".join(explained(slow, CLUSTER, record, cores=2))
        assert says in text
        assert not_says not in text
        assert ("processes share 2 cores" in text) == (machines == 1)


def test_the_page_stands_alone_and_escapes(folder):
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "&lt;CPU&gt; &amp; Co" in page
    assert "<script" not in page
    assert "currentColor" in page
    outside = re.findall(r'(?:src|href)="(?!#|data:)[^"]*"|url\((?!#)', page)
    assert outside == []
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    tables = len(re.findall(r"^\| --- ", markdown, flags=re.M))
    assert page.count("<table>") == tables > 8


def test_the_csv_has_a_line_for_each_cell(folder):
    with (folder / "cells.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7
    assert rows[0]["error"] == str(example().cells[0].error)
    assert rows[1]["flags"] == "gpus_per_node=2"
    assert [r["counted"] for r in rows] == ["true"] * 3 + ["false"] * 2 + ["true"] * 2


def test_figures_show_every_held_out_cell():
    pytest.importorskip("matplotlib", reason="pip install matplotlib")
    from views.report.figures import errors_figure

    left, right = errors_figure(example()).axes
    shown = [
        (x, y)
        for line in left.lines[1:]
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    held_out = example().held_out
    assert sorted(shown) == sorted((c.measured_s, c.simulated_s) for c in held_out)
    assert [t.get_text() for t in right.get_yticklabels()] == [
        *("ring", "tree", "hierarchical", "torch.ddp")
    ]


def test_figures_are_files(folder):
    assert (folder / "errors.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "errors.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_without_matplotlib_the_rest_is_written(tmp_path):
    (tmp_path / "validation.json").write_text(example().to_json(), encoding="utf-8")
    code = (
        "import sys, importlib.util as u; find = u.find_spec; sys.modules['matplotlib'] = None\n"
        "u.find_spec = lambda name, *a: None if name == 'matplotlib' else find(name, *a)\n"
        "from views.report.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "the figures are left out: matplotlib is not installed: pip install matplotlib"
    ]
    assert {f.name for f in tmp_path.iterdir()} == {
        *("validation.json", "report.md", "report.html", "cells.csv")
    }


def test_nothing_held_out_is_said():
    text = markdown(report(validation(), {}, None))
    assert "No cell counts" in text


def test_help_is_no_folder(capsys):
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: python -m views.report FOLDER\n")


@pytest.mark.parametrize("text", [None, "", "{", '{"cells": []}', "\udcff"])
def test_a_folder_without_a_whole_validation_is_one_line_and_status_2(tmp_path, capsys, text):
    if text is not None:
        raw = text.encode("utf-8", "surrogateescape")
        (tmp_path / "validation.json").write_bytes(raw)
    before = set(tmp_path.iterdir())
    assert main([str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert "validation.json" in said.err
    assert set(tmp_path.iterdir()) == before


def test_a_cell_without_a_cluster_or_record_is_still_reported():
    lone = validation(Cell("collective", "ring", "replayed", 4, 8, None, {}, (), 1.0, 2.0))
    assert "spread" not in markdown(report(lone, {}, None)).split("worst cells")[1][:300]
