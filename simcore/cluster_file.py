"""Cluster files and presets: JSON to ``Cluster``, with errors that name the field.

A cluster file is a JSON object whose sizes, rates and times carry units. ``bandwidth`` makes every
port; ``ports`` lists them one by one. ``levels`` go from the inside out.
"""

from __future__ import annotations

import json
import os
from importlib import resources
from pathlib import Path
from typing import Any

from simcore.cluster import FACTORS, Cluster, Level, Port, even_groups
from simcore.fields import Fields, parse_json, short
from simcore.names import unknown
from simcore.schedule import check_n
from simcore.units import parse_bytes, parse_time

_FIELDS = {
    "name": "a text",
    "title": "a text",
    "source": "a text: where the figures come from",
    "gpus": "a whole number, when the file describes a fixed number of them",
    "bandwidth": "a rate such as '25Gbit/s', for every port",
    "ports": "a list of {'send': RATE, 'receive': RATE}, one per GPU",
    "half_duplex": "true or false",
    "latency": "a time such as '5us'",
    "latency_by_size": "a list of [SIZE, TIME], sizes rising, in place of 'latency'",
    "burst": "a size: what every link lets pass at once after idling",
    "pair_latency": "a list of {'src': RANK, 'dst': RANK, 'latency': TIME}",
    "levels": "a list of levels, from the inside out",
    "launch_per_collective": "a time",
    "launch_per_message": "a time",
    "reduce_per_GB": "a time: adding 10**9 bytes to what is there",
    **dict.fromkeys(FACTORS, "a number"),
}
_LEVEL_FIELDS = {
    "name": "a text",
    "size": "a whole number of GPUs in each group",
    "groups": "a list of lists of ranks, each rank in one",
    "port": "a rate",
    "latency": "a time",
    "bus": "a rate",
    "uplink": "a rate",
    "nics": "a whole number",
    "half_duplex": "true or false",
}


def cluster_from_dict(document: Any, n: int, where: str = "cluster") -> Cluster:
    """A cluster of ``n`` ranks from a cluster file's content; errors name the field.

    >>> cluster_from_dict({"bandwidth": "10Gbit/s", "latency": "20us"}, n=2).ports[0]
    Port(send_bytes_per_s=1250000000.0, receive_bytes_per_s=1250000000.0)
    >>> cluster_from_dict({"bandwidth": "10"}, n=2)
    Traceback (most recent call last):
    ValueError: cluster: field 'bandwidth': rate '10' has no unit; accepted: 10Gbit/s (which is \
1.25 GB/s) or 10GB/s
    """
    check_n(n)
    of = Fields(document, _FIELDS, where)
    fixed = of.get("gpus", int)
    if fixed is not None and fixed < 1:
        raise of.wrong("gpus")
    if fixed is not None and fixed != n:
        raise ValueError(f"{where}: field 'gpus' is {fixed}, but {n} GPUs were asked for")
    settings = {name: of.number(name) for name in FACTORS if name in of}
    reduce_s = of.time("reduce_per_GB")
    try:
        return Cluster(
            of.get("name", str, where),
            _ports(of, n),
            latency_s=of.time("latency") or 0.0,
            launch_per_collective_s=of.time("launch_per_collective") or 0.0,
            launch_per_message_s=of.time("launch_per_message") or 0.0,
            reduce_s_per_byte=(reduce_s or 0.0) / 1e9,
            half_duplex=of.get("half_duplex", bool, False),
            levels=tuple(_levels(of, n)),
            pair_latency_s=tuple(_pair_latencies(of)),
            latency_by_size=tuple(_latency_by_size(of)),
            burst_bytes=_burst_bytes(of),
            source=of.get("source", str, ""),
            **settings,
        )
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(where) else f"{where}: {text}") from None


def _ports(of: Fields, n: int) -> tuple[Port, ...]:
    if ("bandwidth" in of) == ("ports" in of):
        raise ValueError(f"{of.where}: accepted is either 'bandwidth' or 'ports', and one of them")
    rate = of.rate("bandwidth")
    if rate is not None:
        return (Port(rate, rate),) * n
    rows = of.get("ports", list)
    if len(rows) != n:
        raise of.wrong("ports", f"{len(rows)} ports for {n} GPUs")
    ports = []
    for number, row in enumerate(rows):
        port = Fields(
            row, dict.fromkeys(("send", "receive"), "a rate"), f"{of.where}: port {number}"
        )
        send, receive = port.rate("send"), port.rate("receive")
        if send is None or receive is None:
            raise of.wrong("ports", f"port {number} is {row!r}")
        ports.append(Port(send, receive))
    return tuple(ports)


def _levels(of: Fields, n: int) -> list[Level]:
    levels = []
    for number, row in enumerate(of.get("levels", list, [])):
        level = Fields(row, _LEVEL_FIELDS, f"{of.where}: level {number}")
        name = level.get("name", str)
        if name is None or not name.isidentifier():
            raise level.wrong("name")
        levels.append(
            Level(
                name,
                _groups(level, n),
                port_bytes_per_s=level.rate("port"),
                latency_s=level.time("latency"),
                bus_bytes_per_s=level.rate("bus"),
                uplink_bytes_per_s=level.rate("uplink"),
                nics=level.get("nics", int, 1),
                half_duplex=level.get("half_duplex", bool, False),
            )
        )
    return levels


def _groups(level: Fields, n: int) -> tuple[int, ...]:
    if ("size" in level) == ("groups" in level):
        raise ValueError(f"{level.where}: accepted is either 'size' or 'groups', and one of them")
    size = level.get("size", int)
    if size is not None:
        if size < 1:
            raise level.wrong("size")
        return even_groups(n, size)
    groups = level.get("groups", list)
    lists = all(isinstance(group, list) for group in groups)
    flat = [rank for group in groups for rank in group] if lists else []
    if not all(type(rank) is int for rank in flat) or sorted(flat) != list(range(n)):
        raise level.wrong("groups", f"not each of the ranks 0 to {n - 1} once")
    of_rank = {rank: number for number, group in enumerate(groups) for rank in group}
    return tuple(of_rank[rank] for rank in range(n))


def _pair_latencies(of: Fields) -> list[tuple[int, int, float]]:
    rows = []
    for number, row in enumerate(of.get("pair_latency", list, [])):
        kinds = {"src": "a rank", "dst": "a rank", "latency": "a time"}
        pair = Fields(row, kinds, f"{of.where}: pair latency {number}")
        src, dst, seconds = pair.get("src", int), pair.get("dst", int), pair.time("latency")
        if src is None or dst is None or seconds is None:
            raise of.wrong("pair_latency", f"entry {number} is {row!r}")
        rows.append((src, dst, seconds))
    return rows


def _latency_by_size(of: Fields) -> list[tuple[int, float]]:
    points = []
    for number, row in enumerate(of.get("latency_by_size", list, [])):
        if not (isinstance(row, list) and [type(part) for part in row] == [str, str]):
            raise of.wrong("latency_by_size", f"entry {number} is {short(row)}")
        try:
            points.append((parse_bytes(row[0]), parse_time(row[1])))
        except ValueError as error:
            raise of.wrong("latency_by_size", f"entry {number}: {error}") from None
    return points


def _burst_bytes(of: Fields) -> int:
    text = of.get("burst", str, "0")
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise of.wrong("burst", str(error)) from None


def presets() -> dict[str, dict[str, Any]]:
    """The shipped clusters by name, each a cluster file's content with its source."""
    text = resources.files("simcore").joinpath("data/clusters.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return {row["name"]: row for row in rows}


def load_cluster(name_or_path: str, n: int) -> Cluster:
    """A preset by name, or a cluster file by its path."""
    check_n(n)
    kind = "preset" if name_or_path in presets() else "cluster file"
    return cluster_from_dict(read_cluster_document(name_or_path), n, f"{kind} {name_or_path!r}")


def read_cluster_document(name_or_path: str) -> Any:
    """What a preset or a cluster file says, not yet checked; any JSON value."""
    known = presets()
    if name_or_path in known:
        return known[name_or_path]
    path = Path(name_or_path)
    # os.path's, unlike Path's, takes a name of any length.
    if path.suffix != ".json" and not os.path.exists(name_or_path):
        raise ValueError(unknown("cluster", name_or_path, [*known, "or a .json file"]))
    where = f"cluster file {name_or_path!r}"
    try:
        return parse_json(path.read_text(encoding="utf-8"), where)
    except OSError as error:
        raise ValueError(f"{where}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
