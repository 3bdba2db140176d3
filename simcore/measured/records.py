"""Records: what a real run measured, with what was predicted for it. No processes, no torch.

A record is one JSON object in a file; `real_gpu` writes them, views read them. Some are shipped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib import resources
from statistics import median
from typing import Any

from simcore.names import unknown
from simcore.trace import Source
from simcore.units import parse_rate, parse_time

RECORD_VERSION = 1

# How far a measured configuration may be from the one asked for, in doublings.
CLOSE_DOUBLINGS = {"gpus": 1.0, "rate": 4.0, "size": 4.0}


@dataclass(frozen=True, slots=True)
class Record:
    """One collective, run ``len(runs_s)`` times on real processes.

    ``sent_bytes`` and ``received_bytes`` are payload per rank; the counters are the bytes of whole
    frames at each rank's port in one run (median over runs), pure acknowledgements apart. All are
    None where they are not known. ``simulated`` is the engine's answer for the same case, None for
    a reason given in ``notes``. ``network`` is RATE[,LATENCY], or the name of a cluster file whose
    content is ``cluster``; ``slow_links`` changed during each run. ``instrument`` holds the shaped
    network's own checks; where its ``ok`` is false, the times are not to be believed.
    ``median_interval_s`` holds the true median at least 95 times in 100; None for under six runs.
    ``skew_s`` is apart from transfers: least, median and most, over ranks and runs, from the
    agreed ``start`` to a rank's own, and from a rank's ``end`` to the last one's.
    """

    source: str
    name: str
    backend: str
    network: str | None
    gpus: int
    size_bytes: int
    dtype: str
    runs_s: tuple[float, ...]
    median_s: float
    sent_bytes: tuple[int, ...] | None
    received_bytes: tuple[int, ...] | None
    counter_sent_bytes: tuple[int, ...] | None
    counter_received_bytes: tuple[int, ...] | None
    simulated: dict[str, Any] | None
    environment: dict[str, Any]
    counter_ack_sent_bytes: tuple[int, ...] | None = None
    counter_ack_received_bytes: tuple[int, ...] | None = None
    instrument: dict[str, Any] | None = None
    median_interval_s: tuple[float, ...] | None = None
    skew_s: dict[str, Any] | None = None
    flags: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cluster: dict[str, Any] | None = None
    slow_links: tuple[str, ...] = ()
    record_version: int = RECORD_VERSION

    def __post_init__(self) -> None:
        for name, (accepts, accepted) in _FIELDS.items():
            if not accepts(getattr(self, name)):
                raise ValueError(f"field {name!r} is {_short(getattr(self, name))}; {accepted}")
        if self.cluster is None and not _is_network(self.network):
            accepted = "accepted: null, or RATE[,LATENCY] such as '200Mbit/s,50us'"
            raise ValueError(f"field 'network' is {_short(self.network)}; {accepted}")
        for name in _PER_RANK:
            values = getattr(self, name)
            if values is not None and len(values) != self.ranks:
                raise ValueError(
                    f"field {name!r} has {len(values)} entries; accepted: {self.ranks}"
                )
        if not math.isclose(self.median_s, median(self.runs_s), rel_tol=1e-9, abs_tol=1e-12):
            raise ValueError(f"field 'median_s' is {self.median_s!r}, not the median of 'runs_s'")

    @property
    def ranks(self) -> int:
        """Processes: one per GPU, and one per extra server."""
        return self.gpus + (self.flags.get("servers", 1) if self.name == "ps-dedicated" else 0)

    @property
    def network_bytes_per_s(self) -> float | None:
        """The rate of every port of a plain switch; None where the network is more, or unknown."""
        if self.network is None or self.cluster is not None or self.slow_links:
            return None
        return parse_rate(self.network.partition(",")[0])

    @property
    def believable(self) -> bool:
        """Whether the instrument's own checks passed, or there were none to pass."""
        return self.instrument is None or bool(self.instrument["ok"])

    def to_json(self) -> str:
        """The record as text; ``record_from_json`` is the inverse."""
        ordered = {"record_version": self.record_version} | asdict(self)
        return json.dumps(ordered, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _whole(value: Any, at_least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def _time_s(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0


def _times_s(count: int) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list | tuple) and len(value) == count and all(map(_time_s, value))
    )


def _skew(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"start", "end"}
        and all(map(_times_s(3), value.values()))
    )


def _whole_list(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and all(map(_whole, value)))


def _is_network(value: Any) -> bool:
    if value is None:
        return True
    try:
        rate, _, latency = value.partition(",")
        parse_rate(rate)
        parse_time(latency or "0")
    except (ValueError, AttributeError):
        return False
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _object(*names: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(name in value for name in names)


def _or_none(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or accepts(value)


_PER_RANK = (
    "sent_bytes",
    "received_bytes",
    "counter_sent_bytes",
    "counter_received_bytes",
    "counter_ack_sent_bytes",
    "counter_ack_received_bytes",
)
_MEASURED = (Source.REPLAYED.value, Source.VENDOR.value)
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "record_version": (lambda v: v == RECORD_VERSION, f"accepted: {RECORD_VERSION}"),
    "source": (lambda v: v in _MEASURED, f"accepted: {', '.join(_MEASURED)}"),
    "name": (_text, "accepted: a text"),
    "backend": (_text, "accepted: a text"),
    "network": (lambda v: v is None or _text(v), "accepted: null, or a text"),
    "cluster": (
        lambda v: v is None or isinstance(v, dict),
        "accepted: null, or a cluster file's content",
    ),
    "gpus": (lambda v: _whole(v, 1), "accepted: a whole number, at least 1"),
    "size_bytes": (_whole, "accepted: whole bytes"),
    "dtype": (_text, "accepted: a text"),
    "runs_s": (
        lambda v: isinstance(v, tuple) and len(v) > 0 and all(map(_time_s, v)),
        "accepted: a list of times in seconds, at least one",
    ),
    "median_s": (_time_s, "accepted: a time in seconds"),
    **dict.fromkeys(_PER_RANK, (_whole_list, "accepted: null, or whole bytes per rank")),
    "simulated": (
        _or_none(_object("time_s", "sent_bytes", "cluster")),
        "accepted: null, or an object with time_s, sent_bytes, cluster",
    ),
    "instrument": (
        _or_none(_object("ok", "reasons")),
        "accepted: null, or an object with ok, reasons",
    ),
    "median_interval_s": (
        lambda v: v is None or (_times_s(2)(v) and v[0] <= v[1]),
        "accepted: null, or two times in seconds, the lower first",
    ),
    "skew_s": (
        _or_none(_skew),
        "accepted: null, or an object with start and end, each three times in seconds",
    ),
    "environment": (
        _object("versions", "machine", "command", "date"),
        "accepted: an object with versions, machine, command, date",
    ),
    "flags": (
        lambda v: isinstance(v, dict) and all(map(_whole, v.values())),
        "accepted: an object of whole numbers",
    ),
    **dict.fromkeys(
        ("notes", "slow_links"),
        (lambda v: isinstance(v, tuple) and all(map(_text, v)), "accepted: a list of texts"),
    ),
}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def record_from_json(text: str, where: str = "record") -> Record:
    """A record from its text; errors are one line that names ``where`` and the field.

    >>> record_from_json('{"record_version": 1, "souce": "vendor"}', "a.json")
    Traceback (most recent call last):
    ValueError: a.json: unknown field 'souce'; did you mean 'source'? accepted: source, name, \
backend, network, gpus, size_bytes, dtype, runs_s, median_s, sent_bytes, received_bytes, \
counter_sent_bytes, counter_received_bytes, simulated, environment, counter_ack_sent_bytes, \
counter_ack_received_bytes, instrument, median_interval_s, skew_s, flags, notes, cluster, \
slow_links, record_version
    """
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{where}: accepted is a JSON object, got {type(document).__name__}")
    known = {f.name: f for f in fields(Record)}
    for name in document:
        if name not in known:
            raise ValueError(f"{where}: {unknown('field', name, known)}")
    for name, f in known.items():
        optional = f.default is not MISSING or f.default_factory is not MISSING
        if name not in document and (name == "record_version" or not optional):
            raise ValueError(f"{where}: field {name!r} is missing")
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in document.items()
    }
    try:
        return Record(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def load_records() -> tuple[Record, ...]:
    """The shipped records, in order of file names."""
    folder = resources.files("simcore").joinpath("data/records")
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return tuple(
        record_from_json(f.read_text(encoding="utf-8"), f"shipped record {f.name!r}") for f in found
    )


def nearest(
    records: Iterable[Record], name: str, gpus: int, size_bytes: int, bytes_per_s: float
) -> Record | None:
    """The believable record of that algorithm at the nearest configuration, None if none is close.

    Distance counts doublings: of the GPUs first, then of the rate, then of the size, each
    decisive over the next. Close means at most ``CLOSE_DOUBLINGS`` of each. Runs without a known
    rate, and of empty buffers, are never near anything else.
    """
    best: tuple[tuple[float, ...], Record] | None = None
    for record in records:
        rate = record.network_bytes_per_s
        if record.name != name or rate is None or not record.believable:
            continue
        away = (
            _doublings(gpus, record.gpus),
            _doublings(bytes_per_s, rate),
            _doublings(size_bytes, record.size_bytes),
        )
        close = all(a <= most for a, most in zip(away, CLOSE_DOUBLINGS.values(), strict=True))
        if close and (best is None or away < best[0]):
            best = away, record
    return best[1] if best else None


def _doublings(a: float, b: float) -> float:
    if a == b:
        return 0.0
    return abs(math.log2(a / b)) if a > 0 and b > 0 else math.inf
