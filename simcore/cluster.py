"""The machines: ports, one switch, latency, launch costs. No schedules and no events.

Every rank has a sending and a receiving port into one switch that is never the bottleneck.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from simcore.algorithms import unknown
from simcore.schedule import check_n
from simcore.trace import FloatArray
from simcore.units import parse_rate, parse_time


@dataclass(frozen=True, slots=True)
class Port:
    """One rank's full-duplex connection to the switch; each direction has its own rate."""

    send_bytes_per_s: float
    receive_bytes_per_s: float

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True, slots=True)
class Cluster:
    """``n`` ranks on one switch.

    A message of ``nbytes`` occupies both its ports for ``nbytes * wire_time_per_payload_byte /
    rate`` and arrives ``latency_s`` after it has left. The three factors describe a protocol:
    time on the port's clock, bytes on an interface counter, and acknowledgements that flow back.

    >>> uniform(4, 25e6, latency_s=50e-6).payload_bytes_per_s[0].tolist()
    [25000000.0, 25000000.0, 25000000.0, 25000000.0]
    """

    name: str
    ports: tuple[Port, ...]
    latency_s: float = 0.0
    launch_per_collective_s: float = 0.0
    launch_per_message_s: float = 0.0
    wire_time_per_payload_byte: float = 1.0
    counter_bytes_per_payload_byte: float = 1.0
    ack_bytes_per_received_byte: float = 0.0
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_n(len(self.ports))
        for name in _TIMES + _FACTORS:
            value = getattr(self, name)
            at_least = 1.0 if name.endswith("per_payload_byte") else 0.0
            if not (math.isfinite(value) and value >= at_least):
                raise ValueError(f"{name} must be finite and >= {at_least:g}, got {value!r}")

    @property
    def n(self) -> int:
        """Number of ranks."""
        return len(self.ports)

    @property
    def payload_bytes_per_s(self) -> tuple[FloatArray, FloatArray]:
        """Payload rate of each rank's sending and receiving port, shape ``(n,)`` each."""
        rates = np.array([(p.send_bytes_per_s, p.receive_bytes_per_s) for p in self.ports])
        send, receive = (rates / self.wire_time_per_payload_byte).T
        return send, receive

    def without_protocol(self) -> Cluster:
        """The same ports with nothing but payload on them (factors 1, 1 and 0)."""
        return replace(
            self,
            wire_time_per_payload_byte=1.0,
            counter_bytes_per_payload_byte=1.0,
            ack_bytes_per_received_byte=0.0,
        )


_TIMES = ("latency_s", "launch_per_collective_s", "launch_per_message_s")
_FACTORS = (
    "wire_time_per_payload_byte",
    "counter_bytes_per_payload_byte",
    "ack_bytes_per_received_byte",
)


def _check_positive(values: Any) -> None:
    for f in fields(values):
        value = getattr(values, f.name)
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{f.name} must be finite and above zero, got {value!r}")


def uniform(n: int, bytes_per_s: float, latency_s: float = 0.0, **settings: Any) -> Cluster:
    """``n`` equal full-duplex ports; ``settings`` are further fields of ``Cluster``."""
    check_n(n)
    name = settings.pop("name", "uniform")
    port = Port(bytes_per_s, bytes_per_s)
    return Cluster(name, (port,) * n, latency_s=latency_s, **settings)


# A cluster file is a JSON object. "bandwidth" makes every port; "ports" lists them one by one.
_FIELDS = {
    "name": "a text",
    "source": "a text: where the figures come from",
    "title": "a text",
    "gpus": "a whole number, when the file describes a fixed number of them",
    "bandwidth": "a rate such as '25Gbit/s', for every port",
    "ports": "a list of {'send': RATE, 'receive': RATE}, one per GPU",
    "latency": "a time such as '5us'",
    "launch_per_collective": "a time",
    "launch_per_message": "a time",
    **dict.fromkeys(_FACTORS, "a number"),
}


def cluster_from_dict(document: Any, n: int, where: str = "cluster") -> Cluster:
    """A cluster of ``n`` ranks from a cluster file's content; errors name the field.

    >>> cluster_from_dict({"bandwidth": "10Gbit/s", "latency": "20us"}, n=2).ports[0]
    Port(send_bytes_per_s=1250000000.0, receive_bytes_per_s=1250000000.0)
    >>> cluster_from_dict({"bandwith": "10Gbit/s"}, n=2)
    Traceback (most recent call last):
    ValueError: cluster: unknown field 'bandwith'; did you mean 'bandwidth'? accepted: name, \
source, title, gpus, bandwidth, ports, latency, launch_per_collective, launch_per_message, \
wire_time_per_payload_byte, counter_bytes_per_payload_byte, ack_bytes_per_received_byte
    """
    if not isinstance(document, dict):
        raise ValueError(f"{where}: accepted is a JSON object, got {type(document).__name__}")
    for name in document:
        if name not in _FIELDS:
            raise ValueError(f"{where}: {unknown('field', name, _FIELDS)}")
    try:
        ports = _ports(document, n)
        times = {
            f"{t}_s": _quantity(document, t, parse_time, "0")
            for t in ("latency", *map(_launch, ("collective", "message")))
        }
        factors = {name: _number(document, name) for name in _FACTORS if name in document}
        return Cluster(
            _text(document, "name", where),
            ports,
            source=_text(document, "source", ""),
            **times,
            **factors,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _launch(what: str) -> str:
    return f"launch_per_{what}"


def _ports(document: dict[str, Any], n: int) -> tuple[Port, ...]:
    if ("bandwidth" in document) == ("ports" in document):
        raise ValueError("accepted is either 'bandwidth' or 'ports', and one of them")
    fixed = document.get("gpus")
    if fixed is not None and (isinstance(fixed, bool) or not isinstance(fixed, int) or fixed < 1):
        raise ValueError(f"field 'gpus' is {fixed!r}; accepted is {_FIELDS['gpus']}")
    if fixed is not None and fixed != n:
        raise ValueError(f"field 'gpus' is {fixed}, but {n} GPUs were asked for")
    if "bandwidth" in document:
        rate = _quantity(document, "bandwidth", parse_rate)
        return (Port(rate, rate),) * n
    rows = document["ports"]
    if not isinstance(rows, list) or len(rows) != n:
        got = f"{len(rows)} ports" if isinstance(rows, list) else repr(rows)
        raise ValueError(f"field 'ports' is {got}; accepted is {_FIELDS['ports']} ({n} here)")
    ports = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or set(row) != {"send", "receive"}:
            raise ValueError(
                f"field 'ports', entry {number} is {row!r}; accepted is {_FIELDS['ports']}"
            )
        try:
            ports.append(Port(*(_quantity(row, key, parse_rate) for key in ("send", "receive"))))
        except ValueError as error:
            raise ValueError(f"field 'ports', entry {number}: {error}") from None
    return tuple(ports)


def _text(document: dict[str, Any], name: str, default: str) -> str:
    value = document.get(name, default)
    if not isinstance(value, str):
        kind = _FIELDS.get(name, "a rate such as '25Gbit/s'")
        raise ValueError(f"field {name!r} is {value!r}; accepted is {kind}")
    return value


def _quantity(
    document: dict[str, Any], name: str, parse: Callable[[str], float], default: str = ""
) -> float:
    text = _text(document, name, default)
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"field {name!r}: {error}") from None


def _number(document: dict[str, Any], name: str) -> float:
    value = document[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"field {name!r} is {value!r}; accepted is {_FIELDS[name]}")
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def presets() -> dict[str, dict[str, Any]]:
    """The shipped clusters by name, each a cluster file's content with its source."""
    text = resources.files("simcore").joinpath("data/clusters.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return {row["name"]: row for row in rows}


def load_cluster(name_or_path: str, n: int) -> Cluster:
    """A preset by name, or a cluster file by its path."""
    check_n(n)
    known = presets()
    if name_or_path in known:
        return cluster_from_dict(known[name_or_path], n, f"preset {name_or_path!r}")
    path = Path(name_or_path)
    # os.path's, unlike Path's, takes a name of any length.
    if path.suffix != ".json" and not os.path.exists(name_or_path):
        names = [*known, "or a .json file"]
        raise ValueError(unknown("cluster", name_or_path, names))
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except OSError as error:
        raise ValueError(f"cluster file {name_or_path!r}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"cluster file {name_or_path!r} is not JSON: {error}") from None
    return cluster_from_dict(document, n, f"cluster file {name_or_path!r}")


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")
