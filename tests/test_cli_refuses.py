"""Bad input on the command line: exit status 2, one line that names it, and nothing else."""

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import presets
from simcore.__main__ import main
from tests.strategies import NAMES, often

CASE = ["--gpus", "4", "--size", "8MiB", "--bandwidth", "200Mbit/s"]


def _refused(capsys, arguments, *wanted, status=2):
    assert main(arguments) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("simcore: ")
    assert captured.err.count("\n") == 1
    for text in wanted:
        assert text in captured.err


SIZE = "8MiB (2**20 bytes), 100MB"


@pytest.mark.parametrize(
    ("flag", "value", "accepted"),
    [
        *(
            ("--gpus", value, "1 to 65536")
            for value in ("0", "-1", "1.5", "nan", "four", "65537", "")
        ),
        *(
            ("--size", value, SIZE)
            for value in ("8", "-8MiB", "nanB", "infMB", "8Mbit", "8MB/s", "")
        ),
        ("--size", "1.5B", "whole bytes"),
        ("--size", "3B", "multiples of 4 bytes"),
        ("--size", "9000PB", "up to"),
        ("--bandwidth", "25", "25Gbit/s (which is 3.125 GB/s) or 25GB/s"),
        ("--bandwidth", "0GB/s", "25GB/s"),
        ("--bandwidth", "0", "25GB/s"),
        *(
            ("--bandwidth", value, "200Mbit/s, 25Gbit/s, 25GB/s")
            for value in ("-25GB/s", "nanGB/s", "infGB/s", "25GB", "fast", "1e308GB/s", "1e-300B/s")
        ),
        *(
            ("--latency", value, "5us, 1.5ms")
            for value in ("5", "-5us", "nans", "infs", "5m", "1e308s")
        ),
        ("--launch-per-message", "-1us", "5us, 1.5ms"),
        ("--launch-per-collective", "1", "5us, 1.5ms"),
        ("--stagger", "-7ns", "5us, 1.5ms"),
        ("--stagger", "7", "5us, 1.5ms"),
        ("--straggler", "2ms", "RANK:TIME, such as 3:2ms"),
        ("--straggler", "1:2", "5us, 1.5ms"),
        ("--straggler", "-1:2ms", "RANK:TIME"),
        ("--straggler", "4:2ms", "ranks 0 to 3"),
        *(
            ("--slow-link", value, "LINK:FACTOR or LINK:FACTOR@T1..T2, such as 0->1:0.5@1ms..2ms")
            for value in ("0->1", "0->1:half", "0->1:0.5@1ms", ":0.5", "gpu1:", "")
        ),
        *(
            ("--slow-link", f"{value}:0.5", f"unknown link {value!r}")
            for value in ("0-1", "a->b", "gpu4", "gpu3.xt", "node0.up", "free", "-1->0")
        ),
        *(("--slow-link", f"0->1:{value}", "from 0 to 1") for value in ("-0.5", "2", "nan", "inf")),
        ("--slow-link", "0->1:0.5@2ms..1ms", "0 <= T1 < T2"),
        ("--slow-link", "0->1:0.5@1..2", "5us, 1.5ms"),
        ("--slow-link", "1->1:0.5", "two ranks below 4"),
        ("--slow-link", "0->4:0.5", "two ranks below 4"),
        ("--sync", "rang", "did you mean 'rank'? accepted: rank, dataflow, barrier"),
        ("--dtype", "float", "accepted: float64, float32"),
        ("--root", "4", "0 to 3"),
        *(("--root", value, "whole number; accepted: 0, 1, 2,") for value in ("-1", "1.5", "")),
        ("--order", "0,2", "each of the ranks 0 to 3 once"),
        ("--order", "0,1,2,2", "each of the ranks 0 to 3 once"),
        *(
            ("--order", value, "natural, auto, or all ranks, such as 0,2,1,3")
            for value in ("nearest", "0;1", "0,1,", "-1,0", "", "0.5")
        ),
        ("--trace", "trace.txt", ".json or .csv"),
        ("--trace", "no/such/folder/t.csv", "is not a directory"),
        ("--trace", "x" * 5000 + "/t.csv", "is not a directory"),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(capsys, flag, value, accepted):
    case = dict(zip(CASE[::2], CASE[1::2], strict=True)) | {flag: value}
    shown = {"9000PB": "9000000000000000000 bytes", "4:2ms": "--straggler 4"}
    shown |= {"0->4:0.5": "slow link '0->4'", "1:2": "time '2'", "1->1:0.5": "'1->1'"}
    shown |= {"0,2": "[0, 2]", "0,1,2,2": "[0, 1, 2, 2]"}
    if accepted.startswith("unknown link"):
        shown[value] = value.partition(":")[0]
    arguments = [text for pair in case.items() for text in pair]
    _refused(capsys, ["simulate", "ps", *arguments], accepted, shown.get(value, value))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], ["no command", "algorithms, simulate, compare"]),
        (["simulte"], ["'simulte'", "did you mean 'simulate'?", "algorithms, simulate, compare"]),
        (["simulate", *CASE], ["algorithm"]),
        (["simulate", "rng", *CASE], ["'rng'", "did you mean 'ring'?", *NAMES]),
        (["simulate", "ring"], ["--gpus, --size"]),
        (["simulate", "ring", *CASE[:4]], ["--bandwidth --cluster"]),
        (["simulate", "ring", *CASE, "extra"], ["'extra'", "accepted"]),
        (["simulate", "ring", *CASE, "two\nlines"], [r"'two\nlines'", "accepted"]),
        (["simulate", "ring", *CASE, "--bandwith", "1"], ["did you mean '--bandwidth'?"]),
        (["simulate", "ring", *CASE, "--serves", "2"], ["'--serves'", "did you mean '--servers'?"]),
        (
            ["simulate", "ring", *CASE, "--servers", "2"],
            ["'ring'", "'servers'", "ps-sharded, ps-dedicated does"],
        ),
        (["simulate", "tree", *CASE, "--pieces", "2"], ["'tree'", "'pieces'", "double-tree, "]),
        (
            ["simulate", "ring", *CASE, "--gpus-per-node", "2"],
            ["'ring'", "'gpus_per_node'", "hierarchical does"],
        ),
        (["simulate", "ps-sharded", *CASE, "--servers", "0"], ["servers must be from 1 to 4", "0"]),
        (["simulate", "ps-sharded", *CASE, "--servers", "5"], ["servers must be from 1 to 4", "5"]),
        (["simulate", "ps-dedicated", *CASE, "--servers", "0"], ["servers must be at least 1"]),
        (["simulate", "ps-dedicated", *CASE, "--servers", "65537"], ["'65537'", "0, 1, 2, "]),
        (["simulate", "double-tree", *CASE, "--pieces", "0"], ["pieces must be at least 1, got 0"]),
        (["simulate", "chain-reduce", *CASE, "--pieces", "x"], ["--pieces", "'x'", "whole number"]),
        (
            ["simulate", "hierarchical", *CASE, "--gpus-per-node", "3"],
            ["gpus_per_node must divide 4 GPUs, got 3"],
        ),
        (
            ["simulate", "hierarchical", *CASE, "--gpus-per-node", "0"],
            ["gpus_per_node must divide 4 GPUs, got 0"],
        ),
        (["compare", *CASE, "--explain"], ["'--explain'", "accepted: "]),
        (["compare", *CASE, "--order", "auto"], ["'--order'", "accepted: "]),
        (["compare", *CASE, "--pieces", "2"], ["'--pieces'", "accepted: "]),
        (["simulate", "ring", *CASE, "--root", "1"], ["'ring'", "'root'", "ps does"]),
        (["simulate", "dp", *CASE, "--root", "0"], ["'dp'", "'root'", "ps does"]),
        (["simulate", "ring", *CASE, "--cluster", "pcie-gen4"], ["--cluster", "--bandwidth"]),
        (
            ["simulate", "ring", *CASE[:4], "--cluster", "pcie-gen4", "--latency", "1us"],
            ["--latency"],
        ),
        (["simulate", "ring", *CASE[:4], "--cluster", "pcie4"], ["did you mean 'pcie-gen4'?"]),
        (["simulate", "ring", *CASE[:4], "--cluster", "no.json"], ["'no.json'", "No such file"]),
        (["simulate", "ring", *CASE[:4], "--cluster", "y" * 5000], ["unknown cluster", *presets()]),
        (["compare", *CASE, "--root", "1"], ["'--root'", "accepted: "]),
        (["compare", *CASE, "--sync", "barrier"], ["'--sync'", "accepted: "]),
        (["algorithms", "--gpus", "4"], ["'--gpus'", "accepted: "]),
    ],
)
def test_bad_usage_is_one_line(capsys, arguments, wanted):
    _refused(capsys, arguments, *wanted)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"{", "is not JSON"),
        (b"\xff\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"bandwidth": "25"}', "field 'bandwidth': rate '25' has no unit"),
        (b'{"bandwith": "25GB/s"}', "did you mean 'bandwidth'?"),
        (b'{"bandwidth": "25GB/s", "gpus": 8}', "field 'gpus' is 8, but 4"),
        (b'{"bandwidth": "25GB/s", "latency": NaN}', "NaN is not a number"),
        (b'{"bandwidth": "25GB/s", "levels": [{"name": "node"}]}', "level 0: accepted is either"),
        (
            b'{"bandwidth": "25GB/s", "levels": [{"name": "node", "size": 2, "bus": "1"}]}',
            "level 0: field 'bus': rate '1' has no unit",
        ),
        (
            b'{"bandwidth": "25GB/s", "levels": [{"name": "node", "groups": [["0"]]}]}',
            "level 0: field 'groups': not each of the ranks 0 to 3 once",
        ),
        (
            b'{"bandwidth": "25GB/s", "pair_latency": [{"src": 0, "dst": 4, "latency": "1s"}]}',
            "pair_latency_s 0->4: accepted are two ranks below 4",
        ),
    ],
)
def test_a_malformed_cluster_file_is_named(capsys, tmp_path, content, wanted):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    _refused(capsys, ["simulate", "ring", *CASE[:4], "--cluster", str(path)], str(path), wanted)


def test_a_folder_is_neither_a_cluster_nor_a_trace(capsys, tmp_path):
    folder = tmp_path / "folder.json"
    folder.mkdir()
    case = ["simulate", "ring", *CASE[:4], "--cluster", str(folder)]
    _refused(capsys, case, str(folder), "Is a directory")
    _refused(
        capsys, ["simulate", "ring", *CASE, "--trace", str(folder)], str(folder), "Is a directory"
    )


def test_a_trace_that_cannot_be_written_is_named(capsys):
    path = "x" * 300 + ".csv"
    _refused(capsys, ["simulate", "ring", *CASE, "--trace", path], path, "File name too long")


def test_a_trace_that_no_viewer_opens_is_refused(capsys, tmp_path):
    path = tmp_path / "large.json"
    case = ["--gpus", "600", "--size", "8MiB", "--bandwidth", "25GB/s", "--trace", str(path)]
    _refused(capsys, ["simulate", "ring", *case], "718800 transfers", "up to 500000")
    assert not path.exists()
    _refused(capsys, ["simulate", "ring", *case[:-2], "--explain"], "718800 transfers", "--explain")


# Any text at all.

ODD = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["-1", "0", "4", "nan", "inf", "1e999", "8MiB", "1GB/s", "--", "-", "=", "%s"]),
    st.sampled_from(
        ["2", "auto", "3,2,1,0", "gpu1:0.5", "0->1:0@1ms..2ms", "dgx-h100", "laptop-wifi"]
    ),
)
FLAGS = ["--gpus", "--size", "--bandwidth", "--latency", "--cluster", "--dtype", "--json", "--root"]
FLAGS += [
    "--sync",
    "--stagger",
    "--straggler",
    "--slow-link",
    "--launch-per-message",
    "-h",
    "--jso",
    "--explain",
    "--order",
    "--servers",
    "--pieces",
    "--gpus-per-node",
]
WORDS = st.one_of(ODD, st.sampled_from([*FLAGS, *NAMES, "simulate", "compare", "algorithms"]))


def _ends_well(arguments):
    """Status 0 with output, or 1 or 2 with one line of error and nothing else."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as ended:  # --help
            status = ended.code
    if status == 0:
        assert out.getvalue()
        assert err.getvalue() == ""
    else:
        assert status in (1, 2)
        assert out.getvalue() == ""
        assert len(err.getvalue().splitlines()) == 1


@often(5)
@given(st.lists(WORDS, max_size=6))
def test_any_arguments_end_well(arguments):
    _ends_well(arguments)


@often(5)
@given(st.sampled_from(NAMES), st.lists(st.tuples(st.sampled_from(FLAGS), WORDS), max_size=3))
def test_any_further_flags_end_well(name, flags):
    _ends_well(["simulate", name, *CASE, *(text for pair in flags for text in pair)])


NUMBER = st.one_of(
    st.integers(-1, 10**30).map(str), st.floats().map(repr), st.sampled_from(["1e-30", "1e30", "0"])
)
UNITS = {
    "--size": ["B", "MiB", "PB"],
    "--bandwidth": ["bit/s", "GB/s", "PB/s"],
    "--latency": ["ns", "s", "min"],
    "--stagger": ["ns", "min"],
    "--launch-per-message": ["us", "min"],
}


@often(5)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(["rank", "barrier", "dataflow"]),
    st.fixed_dictionaries(
        {
            flag: st.tuples(NUMBER, st.sampled_from(units)).map("".join)
            for flag, units in UNITS.items()
        }
    ),
)
def test_any_quantities_end_well(name, sync, quantities):
    flags = [text for pair in quantities.items() for text in pair]
    _ends_well(
        ["simulate", name, "--gpus", "3", "--dtype", "uint8", "--sync", sync, "--json", *flags]
    )
