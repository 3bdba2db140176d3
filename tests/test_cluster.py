"""Clusters: presets with their sources, files, and what they refuse."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import Cluster, Port, load_cluster, presets, uniform
from simcore.cluster import cluster_from_dict


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("n", [1, 8])
def test_every_preset_loads_and_says_where_its_figures_come_from(name, n):
    cluster = load_cluster(name, n)
    assert (cluster.name, cluster.n) == (name, n)
    assert len(cluster.source) > 20
    assert presets()[name]["title"]
    assert len(set(cluster.ports)) == 1


def test_a_preset_s_figures():
    cluster = load_cluster("ethernet-10g", 2)
    assert cluster.ports == (Port(1.25e9, 1.25e9),) * 2
    assert cluster.latency_s == 30e-6
    assert cluster.payload_bytes_per_s[0][0] == 1.25e9 / 1.0622
    assert cluster.without_protocol().payload_bytes_per_s[0][0] == 1.25e9


@pytest.mark.parametrize("bad", [0, -1, 0.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["send_bytes_per_s", "receive_bytes_per_s"])
def test_a_port_has_a_rate(name, bad):
    rates = {"send_bytes_per_s": 1.0, "receive_bytes_per_s": 1.0, name: bad}
    with pytest.raises(ValueError, match=f"{name} must be finite and above zero, got {bad!r}"):
        Port(**rates)


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf])
@pytest.mark.parametrize(
    "name",
    ["latency_s", "launch_per_collective_s", "launch_per_message_s", "ack_bytes_per_received_byte"],
)
def test_times_are_finite_and_not_negative(name, bad):
    with pytest.raises(ValueError, match=f"{name} must be finite and >= 0, got {bad!r}"):
        uniform(2, 1e9, **{name: bad})


@pytest.mark.parametrize("bad", [0.5, 0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["wire_time_per_payload_byte", "counter_bytes_per_payload_byte"])
def test_a_frame_is_no_smaller_than_its_payload(name, bad):
    with pytest.raises(ValueError, match=f"{name} must be finite and >= 1, got {bad!r}"):
        uniform(2, 1e9, **{name: bad})


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_a_cluster_has_ranks(n):
    with pytest.raises(ValueError, match=f"at least 1, got {n!r}"):
        uniform(n, 1e9)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Cluster("none", ())


def test_a_file_may_say_everything(tmp_path):
    document = {
        "name": "odd pair",
        "source": "measured on a Tuesday",
        "title": "One fast, one slow",
        "gpus": 2,
        "ports": [
            {"send": "25Gbit/s", "receive": "10Gbit/s"},
            {"send": "1GB/s", "receive": "2GB/s"},
        ],
        "latency": "20us",
        "launch_per_collective": "3us",
        "launch_per_message": "1us",
        "wire_time_per_payload_byte": 1.05,
        "counter_bytes_per_payload_byte": 1.04,
        "ack_bytes_per_received_byte": 0.02,
    }
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(document))
    assert load_cluster(str(path), 2) == Cluster(
        "odd pair",
        (Port(3.125e9, 1.25e9), Port(1e9, 2e9)),
        latency_s=20e-6,
        launch_per_collective_s=3e-6,
        launch_per_message_s=1e-6,
        wire_time_per_payload_byte=1.05,
        counter_bytes_per_payload_byte=1.04,
        ack_bytes_per_received_byte=0.02,
    )
    assert load_cluster(str(path), 2).source == "measured on a Tuesday"


PORT = {"send": "1GB/s", "receive": "1GB/s"}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "accepted is a JSON object, got list"),
        (None, "accepted is a JSON object, got NoneType"),
        ({"bandwith": "1GB/s"}, "unknown field 'bandwith'; did you mean 'bandwidth'? accepted: "),
        ({}, "accepted is either 'bandwidth' or 'ports'"),
        ({"bandwidth": "1GB/s", "ports": [PORT] * 2}, "accepted is either 'bandwidth' or 'ports'"),
        ({"bandwidth": 1e9}, "field 'bandwidth' is 1000000000.0; accepted is a rate such as"),
        ({"bandwidth": None}, "field 'bandwidth' is None; accepted is a rate such as"),
        ({"bandwidth": "1"}, "field 'bandwidth': rate '1' has no unit; accepted: 1Gbit/s"),
        ({"bandwidth": "0GB/s"}, "field 'bandwidth': rate '0GB/s' must be above zero; accepted"),
        ({"bandwidth": "-1GB/s"}, "field 'bandwidth': rate '-1GB/s' must not be negative"),
        ({"bandwidth": "nanGB/s"}, "field 'bandwidth': rate 'nanGB/s' is not a number with"),
        ({"bandwidth": "infGB/s"}, "field 'bandwidth': rate 'infGB/s' is not a number with"),
        ({"bandwidth": "1GB/s", "latency": 5}, "field 'latency' is 5; accepted is a time such as"),
        ({"bandwidth": "1GB/s", "latency": "5"}, "field 'latency': time '5' has no unit; accepted"),
        ({"bandwidth": "1GB/s", "latency": "-5us"}, "field 'latency': time '-5us' must not be"),
        ({"bandwidth": "1GB/s", "launch_per_message": "x"}, "field 'launch_per_message': time 'x'"),
        (
            {"bandwidth": "1GB/s", "launch_per_collective": []},
            "field 'launch_per_collective' is []",
        ),
        ({"bandwidth": "1GB/s", "gpus": 3}, "field 'gpus' is 3, but 2 GPUs were asked for"),
        ({"bandwidth": "1GB/s", "gpus": 0}, "field 'gpus' is 0; accepted is a whole number"),
        ({"bandwidth": "1GB/s", "gpus": "2"}, "field 'gpus' is '2'; accepted is a whole number"),
        ({"bandwidth": "1GB/s", "gpus": True}, "field 'gpus' is True; accepted is a whole number"),
        ({"bandwidth": "1GB/s", "name": 7}, "field 'name' is 7; accepted is a text"),
        ({"bandwidth": "1GB/s", "source": {}}, "field 'source' is {}; accepted is a text"),
        (
            {"bandwidth": "1GB/s", "wire_time_per_payload_byte": "1"},
            "field 'wire_time_per_payload_byte' is '1'; accepted is a number",
        ),
        (
            {"bandwidth": "1GB/s", "wire_time_per_payload_byte": 10**400},
            "wire_time_per_payload_byte must be finite and >= 1, got inf",
        ),
        ({"ports": "1GB/s"}, "field 'ports' is '1GB/s'; accepted is a list"),
        ({"ports": [PORT]}, "field 'ports' is 1 ports; accepted is a list"),
        ({"ports": [PORT, {"send": "1GB/s"}]}, "field 'ports', entry 1 is {'send': '1GB/s'}"),
        ({"ports": [PORT, "1GB/s"]}, "field 'ports', entry 1 is '1GB/s'; accepted is a list"),
        (
            {"ports": [PORT | {"send": 1}, PORT]},
            "field 'ports', entry 0: field 'send' is 1; accepted",
        ),
        (
            {"ports": [PORT, PORT | {"receive": "0B/s"}]},
            "field 'ports', entry 1: field 'receive': rate",
        ),
    ],
)
def test_a_file_s_mistakes_are_named_with_what_is_accepted(document, complaint):
    with pytest.raises(ValueError, match="^" + re.escape(f"file 'x': {complaint}")) as error:
        cluster_from_dict(document, 2, "file 'x'")
    assert "\n" not in str(error.value)


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["bandwidth", "ports", "send", "receive", "gpus", "latency", "x"]),
                inner,
            ),
        ),
        max_leaves=8,
    )
)
def test_any_document_is_a_cluster_or_one_line(document):
    try:
        says = f"cluster: {cluster_from_dict(document, 2).n} ranks"
    except ValueError as error:
        says = str(error)
    assert says.startswith("cluster: ")
    assert len(says.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b'{"wire_time_per_payload_byte": NaN}', "is not JSON: NaN is not a number"),
        (b'{"latency": Infinity}', "is not JSON: Infinity is not a number"),
        (b"[" * 100_000, "is not JSON"),
        (b"3", "accepted is a JSON object, got int"),
    ],
)
def test_a_file_that_is_no_cluster_is_named(tmp_path, content, complaint):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cluster file") as error:
        load_cluster(str(path), 2)
    assert repr(str(path)) in str(error.value)
    assert complaint in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    missing, folder = tmp_path / "missing.json", tmp_path / "folder.json"
    folder.mkdir()
    for path, reason in ((missing, "No such file or directory"), (folder, "Is a directory")):
        with pytest.raises(ValueError, match=reason) as error:
            load_cluster(str(path), 2)
        assert str(error.value) == f"cluster file {str(path)!r}: {reason}"


@pytest.mark.parametrize("name", ["ethernet10g", "nvlink4_h100", "", "x" * 5000])
def test_an_unknown_name_gets_the_nearest_and_all_that_are_accepted(name):
    with pytest.raises(ValueError, match="unknown cluster") as error:
        load_cluster(name, 2)
    assert ("did you mean" in str(error.value)) == (5 < len(name) < 100)
    assert all(preset in str(error.value) for preset in presets())
    assert "or a .json file" in str(error.value)
