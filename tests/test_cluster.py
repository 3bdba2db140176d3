"""Clusters: presets with their sources, files, and what they refuse."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import (
    Cluster,
    Level,
    Port,
    build_schedule,
    load_cluster,
    presets,
    prove,
    simulate,
    uniform,
)
from simcore.cluster import even_groups
from simcore.cluster_file import cluster_from_dict


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("n", [1, 8])
def test_every_preset_loads_and_says_where_its_figures_come_from(name, n):
    cluster = load_cluster(name, n)
    assert (cluster.name, cluster.n) == (name, n)
    assert len(cluster.source) > 20
    assert presets()[name]["title"]
    assert len(set(cluster.ports)) == 1


@pytest.mark.parametrize("name", presets())
def test_every_preset_times_a_ring_and_a_hierarchy(name):
    cluster = load_cluster(name, 16)
    sizes = {level.groups.count(0) for level in cluster.levels if level.groups.count(0) < 16}
    for schedule in (
        build_schedule("ring", 16),
        build_schedule("hierarchical", 16, gpus_per_node=min(sizes, default=16)),
    ):
        prove(schedule)
        run = simulate(schedule, cluster, 2**20)
        assert run.trace.time_s >= run.lower_bound_s * (1 - 1e-9) > 0
        assert 0 < run.busiest_link[1] <= 1
        general = simulate(schedule, cluster, 2**20, solver="events")
        assert run.trace.time_s == pytest.approx(general.trace.time_s, rel=1e-9)


def test_a_preset_s_levels():
    cluster = load_cluster("dgx-h100-oversubscribed", 64)
    node, rack = cluster.levels
    assert (node.name, node.groups, node.nics) == ("node", even_groups(64, 8), 8)
    assert (node.latency_s, node.uplink_bytes_per_s) == (3.4e-6, 48e9)
    assert (rack.groups, rack.uplink_bytes_per_s) == (even_groups(64, 32), 384e9)
    assert not cluster.is_plain
    assert load_cluster("pcie-gen4", 4).is_plain


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
    [
        *("latency_s", "launch_per_collective_s", "launch_per_message_s", "reduce_s_per_byte"),
        "ack_bytes_per_received_byte",
    ],
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


# Levels.


@pytest.mark.parametrize(("n", "size"), [(1, 1), (5, 2), (8, 8), (3, 8)])
def test_even_groups_are_in_order_and_the_last_may_be_smaller(n, size):
    groups = even_groups(n, size)
    assert list(groups) == sorted(groups)
    counts = [groups.count(group) for group in range(max(groups) + 1)]
    assert counts[:-1] == [size] * (len(counts) - 1)
    assert 1 <= counts[-1] <= size
    assert sum(counts) == n


def test_a_group_has_a_size():
    with pytest.raises(ValueError, match="size of a group must be at least 1, got 0"):
        even_groups(4, 0)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["port_bytes_per_s", "bus_bytes_per_s", "uplink_bytes_per_s"])
def test_a_level_s_links_have_rates(name, bad):
    complaint = f"level 'node': {name} must be finite and above zero, got {bad!r}"
    with pytest.raises(ValueError, match=re.escape(complaint)):
        Level("node", (0, 0), **{name: bad})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"latency_s": -1.0}, "level 'node': latency_s must be finite and >= 0, got -1.0"),
        ({"latency_s": math.nan}, "level 'node': latency_s must be finite and >= 0, got nan"),
        ({"nics": 0, "uplink_bytes_per_s": 1e9}, "level 'node': nics is 0; accepted: 1 or more"),
        ({"nics": 2}, "level 'node': nics is 2; accepted: 1 or more, with an uplink"),
    ],
)
def test_a_level_s_settings(settings, complaint):
    with pytest.raises(ValueError, match="^" + re.escape(complaint)):
        Level("node", (0, 0), **settings)


@pytest.mark.parametrize(
    ("levels", "complaint"),
    [
        ([Level("node", (0, 0, 1))], "level 'node' groups 3 ranks, not 4"),
        (
            [Level("node", (0, 0, 1, 1)), Level("rack", (0, 1, 1, 1))],
            "level 'rack' splits a group of level 'node'",
        ),
        (
            [Level("node", (0, 0, 1, 1)), Level("node", (0, 0, 0, 0))],
            "level name 'node' is taken; accepted: one of its own",
        ),
        ([Level("gpu", (0, 0, 1, 1))], "level name 'gpu' is taken; accepted: one of its own"),
    ],
)
def test_levels_fit_into_each_other(levels, complaint):
    with pytest.raises(ValueError, match="^" + re.escape(complaint) + "$"):
        uniform(4, 1e9, levels=tuple(levels))


@pytest.mark.parametrize(
    ("pair", "complaint"),
    [
        ((0, 0, 1.0), "pair_latency_s 0->0: accepted are two ranks below 2"),
        ((0, 2, 1.0), "pair_latency_s 0->2: accepted are two ranks below 2"),
        ((-1, 0, 1.0), "pair_latency_s -1->0: accepted are two ranks below 2"),
        ((0, 1, -1.0), "pair_latency_s 0->1 must be finite and >= 0, got -1.0"),
        ((0, 1, math.inf), "pair_latency_s 0->1 must be finite and >= 0, got inf"),
    ],
)
def test_a_pair_s_latency_names_two_ranks(pair, complaint):
    with pytest.raises(ValueError, match="^" + re.escape(complaint)):
        uniform(2, 1e9, pair_latency_s=(pair,))


def test_half_duplex_ports_have_one_rate():
    with pytest.raises(ValueError, match="half_duplex ports have one rate"):
        Cluster("odd", (Port(1e9, 2e9),) * 2, half_duplex=True)


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ({}, True),
        ({"latency_s": 1.0, "reduce_s_per_byte": 1.0, "launch_per_message_s": 1.0}, True),
        ({"half_duplex": True}, False),
        ({"levels": (Level("node", (0, 0)),)}, False),
        ({"pair_latency_s": ((0, 1, 1.0),)}, False),
    ],
)
def test_a_plain_cluster_is_equal_ports_on_one_switch(settings, plain):
    assert uniform(2, 1e9, **settings).is_plain == plain
    assert not Cluster("odd", (Port(1e9, 2e9),) * 2).is_plain


# Files.


def test_a_file_may_say_everything(tmp_path):
    document = {
        "name": "odd four",
        "source": "measured on a Tuesday",
        "title": "One fast, three slow",
        "gpus": 4,
        "ports": [
            {"send": "25Gbit/s", "receive": "10Gbit/s"},
            *([{"send": "1GB/s", "receive": "2GB/s"}] * 3),
        ],
        "latency": "20us",
        "pair_latency": [{"src": 0, "dst": 3, "latency": "1ms"}],
        "levels": [
            {"name": "pair", "groups": [[0, 2], [3, 1]], "port": "5GB/s", "latency": "2us"},
            {
                "name": "node",
                "size": 4,
                "bus": "9GB/s",
                "uplink": "3GB/s",
                "nics": 2,
                "half_duplex": True,
            },
        ],
        "launch_per_collective": "3us",
        "launch_per_message": "1us",
        "reduce_per_GB": "4ms",
        "wire_time_per_payload_byte": 1.05,
        "counter_bytes_per_payload_byte": 1.04,
        "ack_bytes_per_received_byte": 0.02,
    }
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(document))
    assert load_cluster(str(path), 4) == Cluster(
        "odd four",
        (Port(3.125e9, 1.25e9), *(Port(1e9, 2e9),) * 3),
        latency_s=20e-6,
        launch_per_collective_s=3e-6,
        launch_per_message_s=1e-6,
        reduce_s_per_byte=4e-3 / 1e9,
        wire_time_per_payload_byte=1.05,
        counter_bytes_per_payload_byte=1.04,
        ack_bytes_per_received_byte=0.02,
        levels=(
            Level("pair", (0, 1, 0, 1), port_bytes_per_s=5e9, latency_s=2e-6),
            Level(
                *("node", (0, 0, 0, 0)),
                bus_bytes_per_s=9e9,
                uplink_bytes_per_s=3e9,
                nics=2,
                half_duplex=True,
            ),
        ),
        pair_latency_s=((0, 3, 1e-3),),
    )
    assert load_cluster(str(path), 4).source == "measured on a Tuesday"


def test_a_file_may_say_that_ports_are_half_duplex():
    assert cluster_from_dict({"bandwidth": "1GB/s", "half_duplex": True}, 2).half_duplex


PORT = {"send": "1GB/s", "receive": "1GB/s"}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "accepted is a JSON object, got []"),
        (None, "accepted is a JSON object, got None"),
        ({"bandwith": "1GB/s"}, "unknown field 'bandwith'; did you mean 'bandwidth'? accepted: "),
        ({}, "accepted is either 'bandwidth' or 'ports'"),
        ({"bandwidth": "1GB/s", "ports": [PORT] * 2}, "accepted is either 'bandwidth' or 'ports'"),
        ({"bandwidth": 1e9}, "field 'bandwidth' is 1000000000.0; accepted: a rate such as"),
        ({"bandwidth": None}, "field 'bandwidth' is None; accepted: a rate such as"),
        ({"bandwidth": "1"}, "field 'bandwidth': rate '1' has no unit; accepted: 1Gbit/s"),
        ({"bandwidth": "0GB/s"}, "field 'bandwidth': rate '0GB/s' must be above zero; accepted"),
        ({"bandwidth": "-1GB/s"}, "field 'bandwidth': rate '-1GB/s' must not be negative"),
        ({"bandwidth": "nanGB/s"}, "field 'bandwidth': rate 'nanGB/s' is not a number with"),
        ({"bandwidth": "infGB/s"}, "field 'bandwidth': rate 'infGB/s' is not a number with"),
        ({"bandwidth": "1GB/s", "latency": 5}, "field 'latency' is 5; accepted: a time such as"),
        ({"bandwidth": "1GB/s", "latency": "5"}, "field 'latency': time '5' has no unit; accepted"),
        ({"bandwidth": "1GB/s", "latency": "-5us"}, "field 'latency': time '-5us' must not be"),
        ({"bandwidth": "1GB/s", "launch_per_message": "x"}, "field 'launch_per_message': time 'x'"),
        (
            {"bandwidth": "1GB/s", "launch_per_collective": []},
            "field 'launch_per_collective' is []",
        ),
        ({"bandwidth": "1GB/s", "gpus": 3}, "field 'gpus' is 3, but 2 GPUs were asked for"),
        ({"bandwidth": "1GB/s", "gpus": 0}, "field 'gpus' is 0; accepted: a whole number"),
        ({"bandwidth": "1GB/s", "gpus": "2"}, "field 'gpus' is '2'; accepted: a whole number"),
        ({"bandwidth": "1GB/s", "gpus": True}, "field 'gpus' is True; accepted: a whole number"),
        ({"bandwidth": "1GB/s", "name": 7}, "field 'name' is 7; accepted: a text"),
        ({"bandwidth": "1GB/s", "source": {}}, "field 'source' is {}; accepted: a text"),
        (
            {"bandwidth": "1GB/s", "wire_time_per_payload_byte": "1"},
            "field 'wire_time_per_payload_byte' is '1'; accepted: a number",
        ),
        (
            {"bandwidth": "1GB/s", "wire_time_per_payload_byte": 10**400},
            "wire_time_per_payload_byte must be finite and >= 1, got inf",
        ),
        ({"ports": "1GB/s"}, "field 'ports' is '1GB/s'; accepted: a list"),
        ({"ports": [PORT]}, "field 'ports': 1 ports for 2 GPUs; accepted: a list"),
        (
            {"ports": [PORT, {"send": "1GB/s"}]},
            "field 'ports': port 1 is {'send': '1GB/s'}; accepted: a list of",
        ),
        ({"bandwidth": "1GB/s", "half_duplex": 1}, "field 'half_duplex' is 1; accepted: true or"),
        (
            {"ports": [{"send": "1GB/s", "receive": "2GB/s"}] * 2, "half_duplex": True},
            "half_duplex ports have one rate",
        ),
        ({"bandwidth": "1GB/s", "reduce_per_GB": 5}, "field 'reduce_per_GB' is 5; accepted: a"),
        ({"bandwidth": "1GB/s", "reduce_per_GB": "-1s"}, "field 'reduce_per_GB': time '-1s' must"),
        ({"bandwidth": "1GB/s", "levels": {}}, "field 'levels' is {}; accepted: a list of levels"),
        ({"bandwidth": "1GB/s", "pair_latency": 1}, "field 'pair_latency' is 1; accepted: a list"),
    ],
)
def test_a_file_s_mistakes_are_named_with_what_is_accepted(document, complaint):
    with pytest.raises(ValueError, match="^" + re.escape(f"file 'x': {complaint}")) as error:
        cluster_from_dict(document, 2, "file 'x'")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("port", "complaint"),
    [
        ("1GB/s", "accepted is a JSON object, got '1GB/s'"),
        (PORT | {"send": 1}, "field 'send' is 1; accepted: a rate"),
        (PORT | {"receive": "0B/s"}, "field 'receive': rate '0B/s' must be above zero"),
        (PORT | {"recieve": "1B/s"}, "unknown field 'recieve'; did you mean 'receive'?"),
    ],
)
def test_a_port_s_mistakes(port, complaint):
    with pytest.raises(ValueError, match="^" + re.escape(f"file 'x': port 1: {complaint}")):
        cluster_from_dict({"ports": [PORT, port]}, 2, "file 'x'")


NODE = {"name": "node", "size": 2}


@pytest.mark.parametrize(
    ("level", "complaint"),
    [
        ("node", "accepted is a JSON object, got 'node'"),
        ({"size": 2}, "field 'name' is None; accepted: a text"),
        (NODE | {"name": 7}, "field 'name' is 7; accepted: a text"),
        (NODE | {"name": "my node"}, "field 'name' is 'my node'; accepted: a text"),
        (NODE | {"name": "n.0"}, "field 'name' is 'n.0'; accepted: a text"),
        ({"name": "node"}, "accepted is either 'size' or 'groups', and one of them"),
        (NODE | {"groups": [[0, 1]]}, "accepted is either 'size' or 'groups', and one of them"),
        (NODE | {"size": 0}, "field 'size' is 0; accepted: a whole number"),
        (NODE | {"size": 1.5}, "field 'size' is 1.5; accepted: a whole number"),
        (NODE | {"port": 5}, "field 'port' is 5; accepted: a rate"),
        (NODE | {"port": "5"}, "field 'port': rate '5' has no unit"),
        (NODE | {"bus": "0B/s"}, "field 'bus': rate '0B/s' must be above zero"),
        (NODE | {"latency": "1"}, "field 'latency': time '1' has no unit"),
        (NODE | {"latency": 1}, "field 'latency' is 1; accepted: a time"),
        (NODE | {"uplink": "fast"}, "field 'uplink': rate 'fast' is not a number"),
        (NODE | {"uplink": "1GB/s", "nics": "2"}, "field 'nics' is '2'; accepted: a whole number"),
        (NODE | {"uplink": "1GB/s", "nics": True}, "field 'nics' is True; accepted: a whole"),
        (NODE | {"half_duplex": "no"}, "field 'half_duplex' is 'no'; accepted: true or false"),
        (NODE | {"uplnk": "1GB/s"}, "unknown field 'uplnk'; did you mean 'uplink'?"),
        *(
            (
                {"name": "node", "groups": groups},
                "field 'groups': not each of the ranks 0 to 1 once; accepted: a list of lists",
            )
            for groups in (
                *([], [[0]], [[0, 1, 2]], [[0, 1], [1]], [0, 1], [["0", "1"]], [[0, True]]),
                *([[0, 1], 5], [[0.0, 1]], [[0, [1]]], [[0, 1.0]]),
            )
        ),
        ({"name": "node", "groups": 5}, "field 'groups' is 5; accepted: a list of lists"),
    ],
)
def test_a_level_s_mistakes(level, complaint):
    document = {"bandwidth": "1GB/s", "levels": [{"name": "inner", "size": 1}, level]}
    with pytest.raises(ValueError, match="^" + re.escape(f"file 'x': level 1: {complaint}")):
        cluster_from_dict(document, 2, "file 'x'")


@pytest.mark.parametrize(
    ("levels", "complaint"),
    [
        ([NODE | {"nics": 0}], "level 'node': nics is 0; accepted: 1 or more, with an uplink"),
        ([NODE | {"nics": 2}], "level 'node': nics is 2; accepted: 1 or more, with an uplink"),
        ([NODE, NODE], "level name 'node' is taken"),
        ([NODE, {"name": "out", "size": 1}], "level 'out' splits a group of level 'node'"),
    ],
)
def test_levels_that_do_not_fit(levels, complaint):
    with pytest.raises(ValueError, match="^" + re.escape(f"file 'x': {complaint}")):
        cluster_from_dict({"bandwidth": "1GB/s", "levels": levels}, 2, "file 'x'")


@pytest.mark.parametrize(
    ("pair", "complaint"),
    [
        (7, "pair latency 1: accepted is a JSON object, got 7"),
        ({"src": 0, "dst": 1}, "field 'pair_latency': entry 1 is {'src': 0, 'dst': 1}; accepted"),
        ({"src": "0", "dst": 1, "latency": "1s"}, "pair latency 1: field 'src' is '0'; accepted"),
        ({"src": 0, "dst": 1, "latency": 1}, "pair latency 1: field 'latency' is 1; accepted"),
        ({"src": 0, "dst": 1, "latency": "1"}, "pair latency 1: field 'latency': time '1' has no"),
        ({"src": 0, "to": 1}, "pair latency 1: unknown field 'to'"),
        ({"src": 0, "dst": 2, "latency": "1s"}, "pair_latency_s 0->2: accepted are two ranks"),
        ({"src": 1, "dst": 1, "latency": "1s"}, "pair_latency_s 1->1: accepted are two ranks"),
    ],
)
def test_a_pair_s_mistakes(pair, complaint):
    good = {"src": 1, "dst": 0, "latency": "0"}
    document = {"bandwidth": "1GB/s", "pair_latency": [good, pair]}
    with pytest.raises(ValueError, match="^" + re.escape(f"file 'x': {complaint}")):
        cluster_from_dict(document, 2, "file 'x'")


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["ports", "send", "gpus", "latency", "levels", "groups", "x"]),
                inner,
            ),
        ),
        max_leaves=8,
    )
)
def test_any_document_is_a_cluster_or_one_line(document):
    try:
        if isinstance(document, dict):
            document = {"bandwidth": "1GB/s"} | document
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
        (b"3", "accepted is a JSON object, got 3"),
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
