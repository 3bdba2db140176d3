"""What a run is asked to do, as values that travel to the workers as JSON. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from real_gpu.network.probes import calibration_schedule
from real_gpu.network.wiring import (
    FASTEST_BYTES_PER_S,
    MOST_LATENCY_S,
    SLOWEST_BYTES_PER_S,
    Wiring,
    wiring,
)
from real_gpu.validation.patterns import PATTERNS, pattern
from simcore import parse_slow_link
from simcore.algorithms import ALGORITHMS, build_schedule
from simcore.cluster import Cluster
from simcore.cluster_file import cluster_from_dict, presets, read_cluster_document
from simcore.engine import Slowdown
from simcore.fields import short
from simcore.names import unknown
from simcore.schedule import Schedule, parse_schedule
from simcore.units import FRAME_FACTOR, ITEM_BYTES, parse_rate, parse_time

COLLECTIVES = (
    "torch.all_reduce",
    "torch.reduce_scatter",
    "torch.all_gather",
    "torch.broadcast",
    "torch.reduce",
)
TRAININGS = ("torch.ddp", "torch.fsdp", "torch.zero", "torch.dp", "torch.ps", "torch.ps-async")
VENDOR = COLLECTIVES + TRAININGS
OVER_GLOO = ("torch.ps", "torch.ps-async")  # from the CPU's memory, whatever the backend
TRAINED = "torch.ddp"
PLAIN = "shaped network"
# What a shaped network's wires carry and its counters count, whatever a cluster file says.
FRAMES = dict.fromkeys(
    ("wire_time_per_payload_byte", "counter_bytes_per_payload_byte"), FRAME_FACTOR
)
ITEMSIZE = {name: ITEM_BYTES[name] for name in ("float32", "float64", "int64", "bfloat16")}


class RunError(Exception):
    """A run that failed, in one line for a person; the command line exits with 1."""


class Stopped(Exception):
    """A signal, by its name, asked this process to end."""


class TransferFailed(Exception):
    """A message that did not get through, in words that name operation, peer and step."""


@dataclass(frozen=True, slots=True)
class Network:
    """A shaped network for any number of ranks that ``document``, a cluster file's content, takes.

    ``text`` is what a record calls it: RATE[,LATENCY], or the file's name. ``slow_links`` are
    changes during each run, as ``simcore.parse_slow_link`` reads them.
    """

    text: str
    document: dict[str, Any]
    slow_links: tuple[str, ...] = ()
    from_file: bool = False

    @property
    def bytes_per_s(self) -> float:
        """Of the slowest port, each way."""
        ports = self.document.get("ports")
        rates = [p[way] for p in ports for way in p] if ports else [self.document["bandwidth"]]
        return min(map(parse_rate, rates))

    @property
    def latency_s(self) -> float:
        """One way, between ranks that no node holds together."""
        latency = self.document.get("latency")
        return parse_time(latency) if isinstance(latency, str) else 0.0

    @property
    def slowdowns(self) -> tuple[Slowdown, ...]:
        """The changes, as the simulator takes them."""
        return tuple(map(parse_slow_link, self.slow_links))

    def cluster(self, n: int) -> Cluster:
        """What ``n`` ranks on it are to the simulator, frames included; nothing is fitted."""
        return cluster_from_dict(self.document, n, self._where)

    def wiring(self, n: int) -> Wiring:
        """What must be built; a ``ValueError`` for what cannot be."""
        return wiring(self.cluster(n), self.slowdowns, self._where)

    @property
    def _where(self) -> str:
        return f"network {self.text!r}"


@dataclass(frozen=True, slots=True)
class Case:
    """One collective, or one training step, to run and time.

    ``program`` replaces the rows that are replayed (of a step: of the first communication), not
    the reference that they are held to: with it a test shows that a wrong result is noticed.
    ``training`` says which step: strategy, workload, options (see ``stepping``). With a
    ``confidence``, runs are added, up to four times as many, until the median is as sure as that
    (``confidence.enough``). What is not ``counted`` leaves the counters of a shaped network
    alone, which saves time between runs.
    ``fills`` is the network whose links a calibration fills: a cluster file's content.
    ``places`` are the ranks that a calibration's pattern takes for its own (``patterns.pattern``).
    """

    name: str
    elements: int
    dtype: str = "float32"
    runs: int = 5
    flags: dict[str, int] = field(default_factory=dict)
    program: str | None = None
    spans: bool = False
    confidence: float | None = None
    counted: bool = True
    training: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of a training of the library's
    profile: str | None = None  # file for torch's own trace of one more run, on rank 0
    fills: dict[str, Any] | None = None
    places: tuple[int, ...] = (0, 1, 2)

    @property
    def warm_runs(self) -> int:
        """Runs that are not timed: the first touches buffers and opens windows; DDP gathers its
        buckets anew in the second.
        """
        return 3 if self.training is not None and self.name == TRAINED else 1

    @property
    def size_bytes(self) -> int:
        """Bytes of one rank's buffer."""
        return self.elements * ITEMSIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class Job:
    """Cases for one set of ``n`` processes. ``port`` 0 means any free one.

    ``launched`` says by what and over which interfaces, where the processes are not our own.
    """

    n: int
    cases: tuple[Case, ...]
    backend: str = "gloo"
    network: Network | None = None
    port: int = 0
    launched: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``job_from_json`` is the inverse."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Times of the timed runs; counters of each, on the shaped network; the last run's spans, or,
    of a calibration, every run's.

    Counters: ``{"sent": [...], "received": [...], "ack_sent": [...], "ack_received": [...],
    "waited_s": [...], "dropped": {link: packets}, "uplinks": {link: bytes}, "changes": [...],
    "settled": bool}``, each list per rank. A span is a row of ``trace.Spans``.
    Payload is what each rank sends and receives, ``{"sent": int, "received": int}``; None where
    the library decides. A training of the library's answers ``{"calls": …}`` there, the
    collectives it was seen to issue. Begins and ends are of each run and rank, counted from the
    agreed start; ``clocks_s`` is how sure that is in each run, where the ranks have clocks of
    their own. ``devices`` holds, for each timed run, what each rank's GPU saw (``device.clock``).
    ``watched_s`` is the time of a run of its own for the spans, where timed runs keep none.
    ``host_s`` holds the runs' times by the host's clock where ``runs_s`` are the devices'.
    """

    runs_s: list[float]
    counters: list[dict[str, Any]]
    spans: list[list[float]]
    payload: list[dict[str, Any]] | None
    begins_s: list[list[float]] = field(default_factory=list)
    ends_s: list[list[float]] = field(default_factory=list)
    clocks_s: list[float] = field(default_factory=list)
    devices: list[list[dict[str, Any]]] = field(default_factory=list)
    watched_s: float | None = None
    host_s: list[float] = field(default_factory=list)

    @property
    def traced_s(self) -> float:
        """How long the run took whose spans are kept."""
        return self.runs_s[-1] if self.watched_s is None else self.watched_s

    @property
    def devices_s(self) -> list[float]:
        """Each run's time by the devices' own clocks: the slowest rank's; empty without any."""
        return [max(seen["device_s"] for seen in run) for run in self.devices]

    def by_device(self) -> CaseResult:
        """The same, its runs timed by the devices where they have been: without what the host
        takes to wake up before, and to notice the end.
        """
        if self.host_s or len(self.devices) < len(self.runs_s):
            return self
        return replace(self, runs_s=self.devices_s, host_s=self.runs_s)


def job_from_json(document: dict[str, Any]) -> Job:
    """The inverse of ``Job.to_json``."""
    cases = tuple(Case(**case | {"places": tuple(case["places"])}) for case in document["cases"])
    network = None
    if document["network"]:
        slow_links = tuple(document["network"].pop("slow_links"))
        network = Network(**document["network"], slow_links=slow_links)
    return Job(**document | {"cases": cases, "network": network})


def joining_s(n: int, backend: str) -> float:
    """How long the ranks may take to meet: NCCL builds its channels between all of them, and each
    driver call of it waits for those of the other ranks on its machine.
    """
    return 30.0 if backend == "gloo" else 60.0 + 5 * n


def reference_schedule(case: Case, n: int) -> Schedule:
    """The schedule whose reference result the case must reach."""
    if case.fills is not None:
        return calibration_schedule(cluster_from_dict(case.fills, n))
    if case.name in PATTERNS:
        return pattern(case.name, n, tuple(case.places))  # a list, when it has travelled
    return build_schedule(case.name, workers(case, n), **case.flags)


def ranks(case: Case, gpus: int) -> int:
    """How many processes a run on ``gpus`` GPUs takes: servers may come on top."""
    return gpus + _servers(case)


def workers(case: Case, n: int) -> int:
    """How many of ``n`` ranks bring an input; the others are servers."""
    return n - _servers(case)


def _servers(case: Case) -> int:
    return case.flags.get("servers", 1) if case.name == "ps-dedicated" else 0


def replayed_schedule(case: Case, n: int) -> Schedule:
    """The rows to replay: the schedule's own, unless the case brings others."""
    schedule = reference_schedule(case, n)
    if case.program is None:
        return schedule
    return parse_schedule(
        case.program,
        name=case.name,
        n=n,
        chunks=schedule.chunks,
        servers=schedule.servers,
    )


def check_name(name: str) -> None:
    """A name that ``run`` accepts: an algorithm, or a vendor's collective."""
    names = [a.name for a in ALGORITHMS] + list(VENDOR)
    if name not in names:
        raise ValueError(unknown("algorithm", name, names))


def parse_network(text: str, slow_links: Sequence[str] = ()) -> Network:
    """A network from ``RATE[,LATENCY]``, a preset's name, or a cluster file's.

    >>> parse_network("200Mbit/s").cluster(2).ports[0].send_bytes_per_s
    25000000.0
    >>> parse_network("1Gbit/s,50us").latency_s
    5e-05
    """
    changes = tuple(slow_links)
    for change in changes:
        parse_slow_link(change)
    if text in presets() or Path(text).suffix == ".json":
        document = read_cluster_document(text)
        if not isinstance(document, dict):
            raise ValueError(f"network {text!r}: accepted is a JSON object, got {short(document)}")
        name = Path(text).name
        return Network(name, {"name": name} | document | FRAMES, changes, from_file=True)
    if text[:1].isalpha():
        raise ValueError(unknown("network", text, [*presets(), "a .json file", "RATE[,LATENCY]"]))
    return replace(parse_rate_network(text), slow_links=changes)


def parse_rate_network(text: str) -> Network:
    """A network of equal ports from ``RATE[,LATENCY]``, where no file will do.

    >>> parse_rate_network("200Mbit/s").bytes_per_s
    25000000.0
    >>> parse_rate_network("two-nodes.json")
    Traceback (most recent call last):
    ValueError: network 'two-nodes.json': accepted is RATE[,LATENCY], such as 200Mbit/s or \
1Gbit/s,50us
    """
    if text[:1].isalpha() or text in presets() or Path(text).suffix == ".json":
        raise ValueError(
            f"network {text!r}: accepted is RATE[,LATENCY], such as 200Mbit/s or 1Gbit/s,50us"
        )
    rate, _, latency = text.partition(",")
    if not SLOWEST_BYTES_PER_S <= parse_rate(rate) <= FASTEST_BYTES_PER_S:
        raise ValueError(f"network rate {rate!r}: accepted are 1Mbit/s to 10Gbit/s")
    if latency and parse_time(latency) > MOST_LATENCY_S:
        raise ValueError(f"network latency {latency!r}: accepted are 0 to 1s")
    document = {"name": PLAIN, "bandwidth": rate, "latency": latency or "0s"} | FRAMES
    document["source"] = (
        "the rate that was set; frames of 1514 bytes carry 1448; no constant is fitted"
    )
    return Network(text, document)
