"""Records of training steps: what real DistributedDataParallel took, and the workload it ran.

A record is one JSON object in a file. ``computing_s`` is the same step measured without
communication on the same ranks; what a simulation adds to it is prediction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from statistics import median
from typing import Any

from simcore.buckets import DdpOptions
from simcore.cluster import Cluster, uniform
from simcore.model import Workload, is_amount, is_whole
from simcore.step import StepResult, step
from simcore.strategies import Setting
from simcore.trace import Source
from simcore.units import parse_rate
from simcore.workload import from_json

STEP_RECORD_VERSION = 1
# Ethernet, IPv4, TCP with time stamps: 1514 bytes of frame carry 1448 of payload.
FRAME_FACTOR = 1514 / 1448


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One configuration of real DDP on the shaped network, its step run several times.

    ``workload`` is the text of ``simcore.workload.to_json``; its times are those that were asked
    for. ``instrument`` holds the network's own checks; where ``ok`` is false, do not believe it.
    """

    name: str
    network: str
    gpus: int
    workload: str
    bucket_cap_mb: float | None
    accumulate: int
    runs_s: tuple[float, ...]
    median_s: float
    computing_s: float
    counter_sent_bytes: tuple[int, ...]
    environment: dict[str, Any]
    instrument: dict[str, Any]
    source: str = Source.VENDOR.value
    record_version: int = STEP_RECORD_VERSION

    def __post_init__(self) -> None:
        for name, (accepts, accepted) in _FIELDS.items():
            value = getattr(self, name)
            if not accepts(value):
                raise ValueError(f"field {name!r} is {value!r:.60}; accepted: {accepted}")
        if not math.isclose(self.median_s, median(self.runs_s), rel_tol=1e-9):
            raise ValueError(f"field 'median_s' is {self.median_s!r}, not the median of 'runs_s'")

    @property
    def cluster(self) -> Cluster:
        """The shaped network: the rate that was set, frames, and nothing that was fitted."""
        rate = parse_rate(self.network)
        return uniform(self.gpus, rate, wire_time_per_payload_byte=FRAME_FACTOR)

    @property
    def setting(self) -> Setting:
        """What is simulated: the workload with its times stretched to those of the record."""
        work = from_json(self.workload)
        asked_s = self.accumulate * (math.fsum(work.forward_s) + math.fsum(work.backward_s))
        stretch = self.computing_s / (asked_s + work.optimizer_s)
        options = DdpOptions(bucket_cap_mb=self.bucket_cap_mb)
        stretched = _stretched(work, stretch)
        how = {"backend": "gloo", "accumulate": self.accumulate}
        return Setting(stretched, self.gpus, options, **how)  # type: ignore[arg-type]

    def simulate(self) -> StepResult:
        """What the simulator says of this record's configuration."""
        return step("ddp", self.setting, self.cluster)

    def to_json(self) -> str:
        """The record as text; ``step_record_from_json`` is the inverse."""
        return json.dumps(asdict(self), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _stretched(work: Workload, factor: float) -> Workload:
    return replace(
        work,
        forward_s=tuple(seconds * factor for seconds in work.forward_s),
        backward_s=tuple(seconds * factor for seconds in work.backward_s),
        optimizer_s=work.optimizer_s * factor,
        compute_source="measured",
    )


def _is_workload(value: Any) -> bool:
    try:
        return bool(isinstance(value, str) and from_json(value).backward_s)
    except ValueError:
        return False


def _is_rate(value: Any) -> bool:
    try:
        return isinstance(value, str) and parse_rate(value) > 0
    except ValueError:
        return False


def _is_times(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(is_amount(v) and v > 0 for v in value)


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda v: v == "torch.ddp", "'torch.ddp'"),
    "source": (lambda v: v == Source.VENDOR.value, "'vendor'"),
    "record_version": (lambda v: v == STEP_RECORD_VERSION, str(STEP_RECORD_VERSION)),
    "network": (_is_rate, "a rate such as 200Mbit/s"),
    "gpus": (lambda v: is_whole(v, 1), "a whole number, at least 1"),
    "workload": (_is_workload, "a workload's text, with compute times"),
    "bucket_cap_mb": (lambda v: v is None or is_amount(v), "MiB, or null"),
    "accumulate": (lambda v: is_whole(v, 1), "a whole number, at least 1"),
    "runs_s": (_is_times, "a list of seconds"),
    "computing_s": (lambda v: is_amount(v) and v > 0, "seconds"),
    "counter_sent_bytes": (
        lambda v: isinstance(v, tuple) and all(map(is_whole, v)),
        "a list of bytes, one per rank",
    ),
    "environment": (lambda v: isinstance(v, dict), "an object"),
    "instrument": (lambda v: isinstance(v, dict) and "ok" in v, "an object with 'ok'"),
}


def step_record_from_json(text: str) -> StepRecord:
    """A record from its text; an error is one line that names the field."""
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not a record: not JSON ({error})") from None
    names = {f.name for f in fields(StepRecord)}
    if not isinstance(document, dict) or set(document) != names:
        raise ValueError(f"not a record of a step; accepted: an object with {', '.join(names)}")
    for name in ("runs_s", "counter_sent_bytes"):
        if isinstance(document[name], list):
            document[name] = tuple(document[name])
    return StepRecord(**document)


def load_step_records() -> tuple[StepRecord, ...]:
    """The shipped ones."""
    folder = resources.files("simcore").joinpath("data/steps")
    if not folder.is_dir():
        return ()
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".json"))
    return tuple(
        step_record_from_json(folder.joinpath(name).read_text(encoding="utf-8")) for name in files
    )
