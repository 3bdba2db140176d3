"""The command line on good input: documents, tables and files; and as a process."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from simcore import build_schedule, closed_form, presets, simulate, uniform
from simcore.__main__ import main
from simcore.explain import idle_s
from tests.strategies import ALL_REDUCES, NAMES

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
    schedule, elements = build_schedule(name, 4), 2 * 2**20
    cluster = uniform(schedule.n, 25e6, latency_s=5e-6)
    run = simulate(schedule, cluster, elements)
    form = closed_form(name, cluster, elements)
    assert document.keys() >= PROMISED
    assert {key: document[key] for key in PROMISED} == {
        "algorithm": name,
        "gpus": 4,
        "size_bytes": 8 * 2**20,
        "dtype": "float32",
        "sync": "rank",
        "time_s": run.trace.time_s,
        "lower_bound_s": run.lower_bound_s,
        "closed_form_s": form.time_s if form else None,
        "steps": run.steps,
        "transfers": run.transfers,
        "sent_bytes": run.trace.sent_bytes.tolist(),
        "received_bytes": run.trace.received_bytes.tolist(),
        "busiest_link": {"name": run.busiest_link[0], "busy_fraction": run.busiest_link[1]},
    }
    assert document["source"] == "simulated"
    assert (document["closed_form_s"] is None) == (name == "double-tree")


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
        (["ring", "--slow-link", "gpu2:0.5"], 1.00663296),
        (["dp", "--slow-link", "gpu1.tx:0@0s..1s"], 3.01326592),
        (["ring", "--slow-link", "gpu2:0.5", "--slow-link", "gpu2.tx:0.5"], 2.01326592),
        (["ps-sharded"], 0.50331648),
        (["ps-sharded", "--servers", "2"], 1.00663296),
        (["ps-dedicated"], 2.68435456),
        (["ps-dedicated", "--servers", "4"], 0.67108864),
        (["ps-dedicated", "--servers", "8"], 0.67108864),
        (["ring-broadcast"], 1.00663296),
        (["ring-broadcast", "--pieces", "2"], 0.67108864),
        (["chain-reduce", "--pieces", "4"], 0.50331648),
        (["hierarchical", "--gpus-per-node", "2"], 0.50331648),
        (["hierarchical", "--gpus-per-node", "2", "--latency", "1ms"], 0.50331648 + 4e-3),
        (["ring", "--order", "3,1,0,2"], 0.50331648),
        (["tree", "--order", "auto"], 1.34217728),
        (["ring-reduce-scatter", "--order", "natural"], 0.25165824),
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
    form_s = document["closed_form_s"]
    assert form_s == (None if presets()[name].get("levels") else pytest.approx(document["time_s"]))
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


def test_orders_by_hand_and_by_the_cluster(capsys, tmp_path):
    # Nodes {0, 2} and {1, 3} whose uplinks carry a tenth of a port.
    level = {"name": "node", "groups": [[0, 2], [1, 3]], "uplink": "20Mbit/s"}
    path = tmp_path / "scattered.json"
    path.write_text(json.dumps({"bandwidth": "200Mbit/s", "levels": [level]}))
    case = ["ring", "--gpus", "4", "--size", "8MiB", "--cluster", str(path)]
    natural = _json(capsys, "simulate", *case)
    auto = _json(capsys, "simulate", *case, "--order", "auto")
    by_hand = _json(capsys, "simulate", *case, "--order", "0,2,1,3")
    assert natural["busiest_link"]["name"].startswith("node")
    assert natural["time_s"] == pytest.approx(20 * 0.50331648)  # two chunks at once through each
    assert auto == by_hand
    assert _json(capsys, "simulate", *case, "--order", "0,1,2,3") == natural
    assert auto["time_s"] == pytest.approx(10 * 0.50331648)
    slow = _json(capsys, "simulate", *case, "--order", "auto", "--slow-link", "node1.up:0.5")
    assert slow["time_s"] == pytest.approx(20 * 0.50331648)


def test_an_order_leaves_extra_servers_where_they_are(capsys):
    auto = _json(capsys, "simulate", "ps-dedicated", *CASE, "--servers", "2", "--order", "auto")
    plain = _json(capsys, "simulate", "ps-dedicated", *CASE, "--servers", "2")
    turned = _json(capsys, "simulate", "ps-dedicated", *CASE, "--servers", "2", "--order=3,2,1,0")
    assert auto == plain == turned
    assert plain["sent_bytes"] == [8 * 2**20] * 4 + [16 * 2**20] * 2


def test_explain_says_why_in_segments(capsys):
    case = ["dp", *CASE, "--latency", "1ms", "--straggler", "1:5ms"]
    document = _json(capsys, "simulate", *case, "--explain")
    path = document["critical_path"]
    assert path[0] == {
        "kind": "start",
        "rank": 1,
        "peer": -1,
        "label": "0: 1->0 c0 add",
        "start_s": 0.0,
        "end_s": 0.005,
    }
    kinds = [part["kind"] for part in path]
    assert kinds == ["start"] + ["transfer", "latency"] * 3 + ["transfer"] * 3 + ["latency"]
    assert (path[0]["start_s"], path[-1]["end_s"]) == (0.0, document["time_s"])
    for before, after in pairwise(path):
        assert after["start_s"] == pytest.approx(before["end_s"])
    assert len(document["idle_s"]) == 4
    run = simulate(
        build_schedule("dp", 4),
        uniform(4, 25e6, latency_s=1e-3),
        2 * 2**20,
        starts_s=[0.0, 5e-3, 0.0, 0.0],
    )
    assert document["idle_s"] == idle_s(run.trace).tolist()
    without = _json(capsys, "simulate", *case)
    assert {key: document[key] for key in without} == without
    assert set(document) - set(without) == {"critical_path", "idle_s"}


def test_explain_is_told_to_people_in_a_few_lines(capsys):
    assert main(["simulate", "ring", "--gpus", "32", *CASE[2:], "--latency", "1ms"]) == 0
    assert "why so long" not in capsys.readouterr().out
    assert (
        main(["simulate", "ring", "--gpus", "32", *CASE[2:], "--latency", "1ms", "--explain"]) == 0
    )
    out = capsys.readouterr().out
    lines = out[out.index("why so long") :].splitlines()
    assert lines[0] == "why so long: nothing on this path could begin earlier"
    assert len(lines) == 1 + 16 + 1 + 2  # the middle is left out
    assert f"  … {62 * 2 - 16} more" in lines
    assert lines[-2] == "in all: transfer 650.1 ms, latency 62 ms"
    assert lines[-1].startswith("idle: GPU ")


def test_compare_sorts_the_all_reduces_by_time(capsys):
    rows = _json(capsys, "compare", *CASE, "--latency", "1ms")["algorithms"]
    # All but hierarchical, which needs nodes.
    names = [row["algorithm"] for row in rows]
    assert sorted(names) == sorted(set(ALL_REDUCES) - {"hierarchical"})
    times_s = [row["time_s"] for row in rows]
    assert times_s == sorted(times_s)
    assert names[0] == "ps-sharded"  # a ring's bytes, fewest latencies
    for row in rows:
        flags = [text for f, value in row["flags"].items() for text in (f"--{f}", str(value))]
        alone = _json(capsys, "simulate", row["algorithm"], *CASE, "--latency", "1ms", *flags)
        assert row == alone | {"flags": row["flags"]}
    pieces = next(row["flags"]["pieces"] for row in rows if row["algorithm"] == "double-tree")
    others = [
        _json(capsys, "simulate", "double-tree", *CASE, "--latency", "1ms", "--pieces", str(p))
        for p in (pieces // 2, pieces * 2)
    ]
    assert pieces > 1
    assert all(
        row["time_s"] <= other["time_s"] * (1 + 1e-9)
        for row in rows
        if row["algorithm"] == "double-tree"
        for other in others
    )


def test_compare_takes_nodes_from_the_cluster(capsys):
    case = ["--gpus", "16", "--size", "64MiB", "--cluster", "p3-16xlarge"]
    rows = _json(capsys, "compare", *case)["algorithms"]
    assert {row["algorithm"] for row in rows} == set(ALL_REDUCES)
    hierarchy = next(row for row in rows if row["algorithm"] == "hierarchical")
    assert hierarchy["flags"] == {"gpus_per_node": 8}
    alone = _json(capsys, "simulate", "hierarchical", *case, "--gpus-per-node", "8")
    assert hierarchy == alone | {"flags": hierarchy["flags"]}
    dedicated = next(row for row in rows if row["algorithm"] == "ps-dedicated")
    assert len(dedicated["sent_bytes"]) == 17


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
    assert next(line for line in lines if "hierarchical" in line).endswith("--gpus-per-node")
    assert [line.split()[0] for line in lines[1:]] == NAMES
    assert lines[4].endswith("--root")
    assert main(["compare", *CASE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["algorithm", "simulated", "of"]
    shown = [line.split()[0] for line in lines[1:-1]]
    assert sorted(shown) == sorted(set(ALL_REDUCES) - {"hierarchical"})
    assert shown[:2] == ["ring", "ps-sharded"]  # equally fast: in the table's order
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


def test_compare_says_what_it_leaves_out_and_why(capsys, tmp_path):
    """A file for four GPUs has no fifth machine for an extra server; the others still race."""
    path = tmp_path / "four.json"
    path.write_text('{"gpus": 4, "bandwidth": "10Gbit/s"}')
    words = ["compare", "--gpus", "4", "--size", "8MiB", "--cluster", str(path), "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["algorithm"] for row in document["skipped"]] == ["ps-dedicated"]
    assert "5 GPUs" in document["skipped"][0]["reason"]
    assert {row["algorithm"] for row in document["algorithms"]} >= {"ring", "ps", "dp", "tree"}
