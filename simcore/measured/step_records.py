"""Records of training steps on real links: a strategy's plan replayed, or the vendor's own step.

A record is one JSON object in a file. ``computing_s`` is the same step measured without
communication on the same ranks; what a simulation adds to it is prediction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from statistics import median
from typing import Any

from simcore.cluster import Cluster, uniform
from simcore.names import unknown
from simcore.trace import Source
from simcore.training.buckets import DdpOptions
from simcore.training.model import Workload, is_amount, is_whole
from simcore.training.perform import perform
from simcore.training.plan import Plan, computing_of
from simcore.training.step import StepResult, step
from simcore.training.strategies import STRATEGIES, Setting, find_strategy
from simcore.training.workload import from_json
from simcore.units import FRAME_FACTOR, parse_rate

STEP_RECORD_VERSION = 2
# What a vendor's step is simulated as.
VENDOR_STEPS = {"torch.ddp": "ddp"}
MOST_RANKS = 512
_MOST_TIMES = 1000  # micro-batches, or steps of a period


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One training step on real ranks, run several times.

    ``name`` is a strategy (replayed) or one of ``VENDOR_STEPS``. ``workload`` is the text of
    ``simcore.training.workload.to_json``; its times are those that were asked for. ``options``
    holds what of the setting differs from the defaults, by the names that ``Setting`` and
    ``DdpOptions`` have. ``servers`` counts ranks beyond the GPUs. Times and bytes are of one whole
    run: of local SGD ``period`` steps. Payload is None where the library decides. ``network`` None
    is a link whose rate is not known; without it there are no counters and no ``instrument``, the
    network's own checks. Where its ``ok`` is false, do not believe the record.
    """

    name: str
    source: str
    backend: str
    network: str | None
    gpus: int
    servers: int
    workload: str
    options: dict[str, Any]
    runs_s: tuple[float, ...]
    median_s: float
    computing_s: float
    sent_bytes: tuple[int, ...] | None
    received_bytes: tuple[int, ...] | None
    counter_sent_bytes: tuple[int, ...] | None
    environment: dict[str, Any]
    instrument: dict[str, Any] | None
    record_version: int = STEP_RECORD_VERSION

    def __post_init__(self) -> None:
        for name, (accepts, accepted) in _FIELDS.items():
            value = getattr(self, name)
            if not accepts(value):
                raise ValueError(f"field {name!r} is {value!r:.60}; accepted: {accepted}")
        if not math.isclose(self.median_s, median(self.runs_s), rel_tol=1e-9):
            raise ValueError(f"field 'median_s' is {self.median_s!r}, not the median of 'runs_s'")
        if (self.name in VENDOR_STEPS) != (self.source == Source.VENDOR.value):
            raise ValueError(f"field 'source' is {self.source!r}, but 'name' is {self.name!r}")
        self._check_setting()

    def _check_setting(self) -> None:
        """The options make a setting, and what is given per rank is as long as there are ranks."""
        try:
            servers = self._plan_asked().servers
        except ValueError as error:
            raise ValueError(f"field 'options': {error}") from None
        if servers != self.servers:
            raise ValueError(f"field 'servers' is {self.servers}; these options make it {servers}")
        for name in ("sent_bytes", "received_bytes", "counter_sent_bytes"):
            values = getattr(self, name)
            if values is not None and len(values) != self.ranks:
                raise ValueError(f"field {name!r} has {len(values)} values for {self.ranks} ranks")

    @property
    def ranks(self) -> int:
        """GPUs and extra servers."""
        return self.gpus + self.servers

    @property
    def strategy(self) -> str:
        """What is simulated."""
        return VENDOR_STEPS.get(self.name, self.name)

    @property
    def cluster(self) -> Cluster:
        """The shaped network: the rate that was set, frames, and nothing that was fitted."""
        if self.network is None:
            raise ValueError("not simulated: the rate between these ranks is not known")
        rate = parse_rate(self.network)
        return uniform(self.ranks, rate, wire_time_per_payload_byte=FRAME_FACTOR)

    @property
    def setting(self) -> Setting:
        """What is simulated: the workload with its times stretched to those of the record."""
        asked = self._setting_asked()
        stretch = self.computing_s / computing_s(find_strategy(self.strategy).plan(asked))
        return replace(asked, workload=_stretched(asked.workload, stretch))

    def _setting_asked(self) -> Setting:
        work = from_json(self.workload)
        return setting_from(self.strategy, work, self.gpus, self.backend, self.options)

    def _plan_asked(self) -> Plan:
        return find_strategy(self.strategy).plan(self._setting_asked())

    def simulate(self, cluster: Cluster | None = None) -> StepResult:
        """What the simulator says of this configuration, on another cluster if one is given."""
        return step(self.strategy, self.setting, self.cluster if cluster is None else cluster)

    def error(self, cluster: Cluster | None = None) -> float:
        """(simulated - measured) / measured."""
        return self.simulate(cluster).run.time_s / self.median_s - 1

    def to_json(self) -> str:
        """The record as text; ``step_record_from_json`` is the inverse."""
        return json.dumps(asdict(self), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def computing_s(plan: Plan) -> float:
    """What the plan takes without communication."""
    return perform(computing_of(plan), uniform(plan.n, 1.0)).time_s


def options_of(setting: Setting) -> dict[str, Any]:
    """What of it is not the default, beyond workload, GPUs and backend; for JSON.

    >>> from simcore.training.workload import load_workload
    >>> work = load_workload("resnet18")
    >>> options_of(Setting(work, 2, DdpOptions(bucket_cap_mb=1.0), accumulate=2))
    {'bucket_cap_mb': 1.0, 'accumulate': 2}
    """
    plain = Setting(setting.workload, setting.gpus, backend=setting.backend)
    found = {}
    for value, default in ((setting.options, plain.options), (setting, plain)):
        for name in (field.name for field in fields(value) if field.name != "options"):
            given = getattr(value, name)
            if given != getattr(default, name):
                found[name] = list(given) if isinstance(given, tuple) else given
    return found


def setting_from(
    strategy: str, work: Workload, gpus: int, backend: str, options: Mapping[str, Any]
) -> Setting:
    """The inverse of ``options_of``, strict: what the strategy does not read is refused."""
    taken = ("accumulate", "slower", *find_strategy(strategy).takes)
    for name, value in options.items():
        if name == "backend" or name not in taken:
            raise ValueError(unknown("option", name, [n for n in taken if n != "backend"]))
        accepts, accepted = _OPTIONS[name]
        if not accepts(value):
            raise ValueError(f"{name} is {value!r:.60}; accepted: {accepted}")
    chosen: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in options.items()}
    names = [field.name for field in fields(DdpOptions) if field.name in chosen]
    of_ddp = DdpOptions(**{name: chosen.pop(name) for name in names})
    return Setting(work, gpus, of_ddp, backend, **chosen)  # type: ignore[arg-type]


def _stretched(work: Workload, factor: float) -> Workload:
    return replace(
        work,
        forward_s=tuple(seconds * factor for seconds in work.forward_s),
        backward_s=tuple(seconds * factor for seconds in work.backward_s),
        optimizer_s=work.optimizer_s * factor,
        compute_source="measured",
    )


Check = tuple[Callable[[Any], bool], str]


def _is_workload(value: Any) -> bool:
    try:
        work = from_json(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return work is not None and math.fsum(work.forward_s) + math.fsum(work.backward_s) > 0


def _is_rate(value: Any) -> bool:
    try:
        return isinstance(value, str) and parse_rate(value) > 0
    except ValueError:
        return False


def _is_times(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(is_amount(v) and v > 0 for v in value)


def _is_list_of_bytes(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(is_whole, value))


def _is_factors(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(is_amount(v) and v > 0 for v in value)


def _or_none(check: Check) -> Check:
    accepts, accepted = check
    return (lambda v: v is None or accepts(v)), f"{accepted}, or null"


def _whole(at_least: int, at_most: int) -> Check:
    def accepts(value: Any) -> bool:
        return is_whole(value, at_least) and value <= at_most

    return accepts, f"a whole number from {at_least} to {at_most}"


_YES: Check = (lambda v: isinstance(v, bool), "true or false")
_TEXT: Check = (lambda v: isinstance(v, str), "a text")
_BYTES: Check = (_is_list_of_bytes, "a list of bytes, one per rank")
_AMOUNT: Check = (is_amount, "a number, not negative")

_OPTIONS: dict[str, Check] = {
    "bucket_cap_mb": _AMOUNT,
    "overlap": _AMOUNT,
    "launch_per_replica_s": _AMOUNT,
    **dict.fromkeys(("static_graph", "find_unused_parameters", "pipelined"), _YES),
    **dict.fromkeys(("hook", "algorithm"), _TEXT),
    "servers": _whole(0, MOST_RANKS),
    "gpus_per_node": _whole(1, MOST_RANKS),
    "accumulate": _whole(1, _MOST_TIMES),
    "period": _whole(1, _MOST_TIMES),
    "iteration": _whole(0, 10**9),
    "slower": (_is_factors, "a list of factors, one per GPU"),
}

_SOURCES = (Source.REPLAYED.value, Source.VENDOR.value)
_FIELDS: dict[str, Check] = {
    "record_version": (lambda v: v == STEP_RECORD_VERSION, str(STEP_RECORD_VERSION)),
    "name": (
        lambda v: v in [*(row.name for row in STRATEGIES), *VENDOR_STEPS],
        f"a strategy, or {', '.join(VENDOR_STEPS)}",
    ),
    "source": (lambda v: v in _SOURCES, " or ".join(_SOURCES)),
    "backend": (lambda v: v in ("gloo", "nccl"), "gloo or nccl"),
    "network": _or_none((_is_rate, "a rate such as 200Mbit/s")),
    "gpus": _whole(1, MOST_RANKS),
    "servers": _whole(0, MOST_RANKS),
    "workload": (_is_workload, "a workload's text, with compute times"),
    "options": (lambda v: isinstance(v, dict), "an object"),
    "runs_s": (_is_times, "a list of seconds"),
    "median_s": (is_amount, "seconds"),
    "computing_s": (lambda v: is_amount(v) and v > 0, "seconds"),
    **dict.fromkeys(("sent_bytes", "received_bytes", "counter_sent_bytes"), _or_none(_BYTES)),
    "environment": (lambda v: isinstance(v, dict), "an object"),
    "instrument": _or_none((lambda v: isinstance(v, dict) and "ok" in v, "an object with 'ok'")),
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
    for name in ("runs_s", "sent_bytes", "received_bytes", "counter_sent_bytes"):
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
