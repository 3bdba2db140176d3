"""The command line on good input: documents, tables and files; and as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simcore import build_schedule, closed_form, presets, simulate, uniform
from simcore.__main__ import main
from tests.strategies import NAMES

ROOT = Path(__file__).parent.parent
CASE = ["--gpus", "4", "--size", "8MiB", "--bandwidth", "200Mbit/s"]


def _json(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    return json.loads(captured.out)


# Documents.


def test_algorithms_are_the_table(capsys):
    rows = _json(capsys, "algorithms")
    assert [row["name"] for row in rows] == NAMES
    assert all(set(row) == {"name", "title", "steps", "sent", "flags"} for row in rows)
    assert next(row["flags"] for row in rows if row["name"] == "ps") == ["root"]


PROMISED = {
    *("algorithm", "gpus", "size_bytes", "dtype", "sync", "time_s", "lower_bound_s"),
    *("closed_form_s", "steps", "transfers", "sent_bytes", "received_bytes", "busiest_link"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_s_document_holds_what_the_core_says(capsys, name):
    document = _json(capsys, "simulate", name, *CASE, "--latency", "5us")
    cluster, elements = uniform(4, 25e6, latency_s=5e-6), 2 * 2**20
    run = simulate(build_schedule(name, 4), cluster, elements)
    assert document.keys() >= PROMISED
    assert {key: document[key] for key in PROMISED} == {
        "algorithm": name,
        "gpus": 4,
        "size_bytes": 8 * 2**20,
        "dtype": "float32",
        "sync": "rank",
        "time_s": run.trace.time_s,
        "lower_bound_s": run.lower_bound_s,
        "closed_form_s": closed_form(name, cluster, elements).time_s,
        "steps": run.steps,
        "transfers": run.transfers,
        "sent_bytes": run.trace.sent_bytes.tolist(),
        "received_bytes": run.trace.received_bytes.tolist(),
        "busiest_link": {"name": run.busiest_link[0], "busy_fraction": run.busiest_link[1]},
    }
    assert document["source"] == "simulated"


@pytest.mark.parametrize(
    ("arguments", "time_s"),
    [
        (["ring"], 0.50331648),
        (["ps"], 2.01326592),
        (["dp"], 2.01326592),
        (["ps", "--root", "3"], 2.01326592),
        (["dp", "--latency", "1ms"], 2.01326592 + 4e-3),
        (["dp", "--latency", "1ms", "--sync", "barrier"], 2.01326592 + 6e-3),
        (["dp", "--latency", "1ms", "--sync", "dataflow"], 2.01326592 + 2e-3),
        (["ring", "--launch-per-collective", "1ms"], 0.50331648 + 1e-3),
        (["ring", "--launch-per-message", "1ms"], 0.50331648 + 6e-3),
        (["ring", "--dtype", "bfloat16"], 0.50331648),
        (["ring", "--stagger", "7ms"], 0.50331648 + 21e-3),
        (["ring", "--straggler", "3:2ms"], 0.50331648 + 2e-3),
        (["ring", "--straggler", "3:2ms", "--stagger", "1ms"], 0.50331648 + 5e-3),
        (["ring", "--straggler", "3:2ms", "--straggler", "3:1ms"], 0.50331648 + 3e-3),
        (["ring", "--slow-link", "0->1:0.5"], 1.00663296),
        (["dp", "--slow-link", "1->0:0@0s..1s"], 3.01326592),
    ],
)
def test_flags_do_what_they_say(capsys, arguments, time_s):
    document = _json(capsys, "simulate", *arguments, *CASE)
    assert document["time_s"] == pytest.approx(time_s, rel=1e-9)
    delayed = {"--stagger", "--straggler", "--slow-link"} & set(arguments)
    form_s = document["closed_form_s"]
    assert form_s == (None if delayed else pytest.approx(time_s, rel=1e-9))


@pytest.mark.parametrize("name", presets())
def test_presets_count_payload_only(capsys, name):
    arguments = ["--gpus", "4", "--size", "8MiB", "--cluster", name]
    document = _json(capsys, "simulate", "ring", *arguments)
    assert document["time_s"] >= document["lower_bound_s"] * (1 - 1e-9)
    assert document["time_s"] == pytest.approx(document["closed_form_s"], rel=1e-9)
    if name == "shaped-200mbit":
        assert document["time_s"] == pytest.approx(0.50331648)


def test_a_cluster_file_and_its_launches(capsys, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"bandwidth": "200Mbit/s", "launch_per_collective": "1ms", "gpus": 4}')
    case = ["ring", "--gpus", "4", "--size", "8MiB", "--cluster", str(path)]
    own = _json(capsys, "simulate", *case)
    assert own["time_s"] == pytest.approx(0.50331648 + 1e-3)
    overridden = _json(capsys, "simulate", *case, "--launch-per-collective", "3ms")
    assert overridden["time_s"] == pytest.approx(0.50331648 + 3e-3)


def test_compare_sorts_the_all_reduces_by_time(capsys):
    rows = _json(capsys, "compare", *CASE, "--latency", "1ms")["algorithms"]
    assert [row["algorithm"] for row in rows] == ["ring", "ps", "dp"]
    for row in rows:
        alone = _json(capsys, "simulate", row["algorithm"], *CASE, "--latency", "1ms")
        assert row == alone


def test_extremes(capsys):
    case = ["--bandwidth", "25GB/s", "--latency", "5us"]
    alone = _json(capsys, "simulate", "ring", "--gpus", "1", "--size", "1GB", *case)
    assert (alone["time_s"], alone["sent_bytes"]) == (0.0, [0])
    empty = _json(capsys, "simulate", "ps", "--gpus", "5", "--size", "0", *case)
    assert (empty["time_s"], empty["transfers"], empty["closed_form_s"]) == (0.0, 0, 0.0)
    short = _json(capsys, "simulate", "ring", "--gpus", "7", "--size", "12B", *case)
    assert sum(short["sent_bytes"]) == 2 * 6 * 12
    large = _json(capsys, "simulate", "ps", "--gpus", "1024", "--size", "1TB", *case)
    assert large["sent_bytes"] == [1023 * 10**12] + [10**12] * 1023


# Text for people.


def test_a_run_is_told_in_a_few_lines(capsys):
    assert main(["simulate", "ps", *CASE]) == 0
    out = capsys.readouterr().out
    for text in (
        "ps on 4 GPUs: 8 MiB of float32, 25 MB/s per port, latency 0 s, rule 'rank'",
        "simulated     2.013 s",
        "lower bound   503.3 ms",
        "closed form   2 · (α + (n-1)·S/B) = 2 · (0 s + 3 · 8 MiB ÷ 25 MB/s)",
        "sent          24 MiB GPU 0, others 8 MiB",
        "busiest link  gpu0.tx, 50.0% busy",
        "2 steps, 6 transfers",
    ):
        assert text in out


def test_a_case_without_a_formula_says_so(capsys):
    assert main(["simulate", "ring", *CASE, "--stagger", "1ms"]) == 0
    assert "closed form   none for this case" in capsys.readouterr().out


def test_tables_for_people(capsys):
    assert main(["algorithms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "title", "steps", "sent", "flags"]
    assert [line.split()[0] for line in lines[1:]] == NAMES
    assert lines[4].endswith("--root")
    assert main(["compare", *CASE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["ring", "ps", "dp"]
    assert "1.00 x" in lines[1]
    assert lines[-1] == "lower bound 503.3 ms; all times simulated"


@pytest.mark.parametrize("arguments", [["--help"], ["simulate", "--help"], ["compare", "-h"]])
def test_help_is_no_error(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: simcore")


# Trace files.


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_trace_files(capsys, tmp_path, flags):
    run = simulate(build_schedule("ps", 4), uniform(4, 25e6), 2 * 2**20).trace
    for suffix, text in ((".json", run.to_perfetto()), (".csv", run.to_csv())):
        path = tmp_path / f"trace{suffix}"
        assert main(["simulate", "ps", *CASE, *flags, "--trace", str(path)]) == 0
        assert path.read_text(encoding="utf-8") == text
    assert capsys.readouterr().err == ""


# As a process.


def _process(*arguments, **how):
    command = [sys.executable, "-m", "simcore", *arguments]
    how = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 60} | how
    return subprocess.run(command, check=False, **how)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["simulate", "ring", *CASE, "--json"], 0),
        (["simulate", "ring", "--gpus", "4", "--size", "8MiB", "--bandwidth", "25"], 2),
        (["simulate", "ring", *CASE, "--slow-link", "0->1:0"], 1),
    ],
)
def test_exit_status(arguments, status):
    done = _process(*arguments)
    assert done.returncode == status
    assert len(done.stdout.splitlines()) == (status == 0)
    assert len(done.stderr.splitlines()) == (status != 0)
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_causes_no_complaint():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = _process("algorithms", stdout=closed, stderr=subprocess.PIPE, capture_output=False)
    assert done.stderr == ""
    assert done.returncode == 1


def test_a_terminal_that_lacks_a_sign_shows_the_rest():
    done = _process("simulate", "ps", *CASE, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "simulated     2.013 s" in done.stdout
