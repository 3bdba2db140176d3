"""What a run is asked to do, as values that travel to the workers as JSON. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from simcore.algorithms import ALGORITHMS, build_schedule
from simcore.names import unknown
from simcore.schedule import Collective, Op, Schedule, Step, parse_schedule
from simcore.units import ITEM_BYTES, parse_rate, parse_time

VENDOR = ("torch.all_reduce",)
TRAINED = "torch.ddp"
CALIBRATION = "shift"
ITEMSIZE = {name: ITEM_BYTES[name] for name in ("float32", "float64", "int64", "bfloat16")}
SLOWEST_BYTES_PER_S, FASTEST_BYTES_PER_S = 1e6 / 8, 10e9 / 8


class RunError(Exception):
    """A run that failed, in one line for a person; the command line exits with 1."""


@dataclass(frozen=True, slots=True)
class Network:
    """A shaped network: every rank's port in both directions, and the one-way latency."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One collective, or one training step, to run and time.

    ``program`` replaces the rows that are replayed, not the reference that they are held to: with
    it a test shows that a wrong result is noticed.
    """

    name: str
    elements: int
    dtype: str = "float32"
    runs: int = 5
    flags: dict[str, int] = field(default_factory=dict)
    program: str | None = None
    spans: bool = False
    training: dict[str, Any] | None = None

    @property
    def warm_runs(self) -> int:
        """Runs that are not timed: the first touches buffers and opens windows; DDP gathers its
        buckets anew in the second.
        """
        return 1 if self.training is None else 3

    @property
    def size_bytes(self) -> int:
        """Bytes of one rank's buffer."""
        return self.elements * ITEMSIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class Job:
    """Cases for one set of ``n`` processes. ``port`` 0 means any free one."""

    n: int
    cases: tuple[Case, ...]
    backend: str = "gloo"
    network: Network | None = None
    port: int = 0

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``job_from_json`` is the inverse."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Times of the timed runs; counters of each, on the shaped network; the last run's spans.

    Counters: ``{"sent": [...], "received": [...], "ack_sent": [...], "ack_received": [...],
    "drops": int, "settled": bool}``, each list per rank. A span is a row of ``trace.Spans``.
    Payload is what each rank sends and receives, ``{"sent": int, "received": int}``; None where
    the library decides.
    """

    runs_s: list[float]
    counters: list[dict[str, Any]]
    spans: list[list[float]]
    payload: list[dict[str, int]] | None


def job_from_json(document: dict[str, Any]) -> Job:
    """The inverse of ``Job.to_json``."""
    cases = tuple(Case(**case) for case in document["cases"])
    network = Network(**document["network"]) if document["network"] else None
    return Job(document["n"], cases, document["backend"], network, document["port"])


def reference_schedule(case: Case, n: int) -> Schedule:
    """The schedule whose reference result the case must reach."""
    if case.name == CALIBRATION:
        return shift(n)
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


def shift(n: int) -> Schedule:
    """Every rank hands its buffer to the next at once: fills every port both ways, to calibrate.

    >>> print(shift(2))
    0: 0->1 c0 copy
    0: 1->0 c0 copy
    """
    owner = (0,)  # unused: this is no collective, only traffic
    rank = list(range(n))
    right = [(r + 1) % n for r in rank]
    steps = [Step.of(rank, right, 0, Op.COPY)] if n > 1 else []
    return Schedule(
        CALIBRATION, n, 1, len(steps), Collective.ALL_GATHER, lambda: iter(steps), owner
    )


def check_name(name: str) -> None:
    """A name that ``run`` accepts: an algorithm, or a vendor's collective."""
    names = [a.name for a in ALGORITHMS] + list(VENDOR)
    if name not in names:
        raise ValueError(unknown("algorithm", name, names))


def parse_network(text: str) -> Network:
    """A network from ``RATE[,LATENCY]``.

    >>> parse_network("200Mbit/s"), parse_network("1Gbit/s,50us")
    (Network(bytes_per_s=25000000.0, latency_s=0.0), \
Network(bytes_per_s=125000000.0, latency_s=5e-05))
    """
    rate, _, latency = text.partition(",")
    bytes_per_s = parse_rate(rate)
    if not SLOWEST_BYTES_PER_S <= bytes_per_s <= FASTEST_BYTES_PER_S:
        raise ValueError(f"network rate {rate!r}: accepted are 1Mbit/s to 10Gbit/s")
    latency_s = parse_time(latency) if latency else 0.0
    if latency_s > 1:
        raise ValueError(f"network latency {latency!r}: accepted are 0 to 1s")
    return Network(bytes_per_s, latency_s)
