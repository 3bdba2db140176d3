"""What a validation measures: networks, groups of ranks, cells and their runs. Runs nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from real_gpu.info import choose_backend, torch_here
from real_gpu.job import (
    Case,
    RunError,
    parse_rate_network,
    reference_schedule,
)
from real_gpu.network.shaped import why_not
from real_gpu.processes.measure import MOST_RANKS
from real_gpu.processes.stage import HERE, Stage
from real_gpu.validation.traffic import cases_for
from simcore.cluster import uniform
from simcore.engine import simulate
from simcore.names import unknown
from simcore.units import FRAME_FACTOR

STRATEGIES = ("ring", "ps", "ps-sharded", "dp", "tree", "halving-doubling", "hierarchical")
LIBRARY, STEPS = "torch.all_reduce", "steps"
NAMES = (*STRATEGIES, LIBRARY, STEPS)
# Training steps: what runs, and the size of DDP's buckets in MiB.
_STEPS = (("torch.ddp", 1.0), ("torch.ddp", 25.0), ("ddp", 1.0), ("dp", None), ("ps", None))
_MOST_STEP_RANKS = 4  # each has several threads and process groups
# What these two cannot do without; the others run anywhere.
_NEEDS = {
    STEPS: "accepted for steps: --network none, or with a rate alone, such as 200Mbit/s",
    "hierarchical": "accepted for hierarchical: --gpus 4 or more; with --quick 4, 6, 8, 9 …",
}
MiB = 2**20
_SIZES = {"gloo": (MiB, 2 * MiB, 4 * MiB), "nccl": (MiB, 16 * MiB, 128 * MiB)}

# A run costs this much more than its time: the agreed start, settled counters, the check.
_BESIDE_S, _START_S = 0.25, 6.0
_CELL_S, _LEAST_RUNS, _MOST_RUNS = 1.8, 3, 5
_STEP_CELL_S, _PATTERN_S, _QUICK_PATTERN_S = 15.0, 1.8, 1.5
_UNSHAPED_BYTES_PER_S = 1e9  # a guess, for the time left only


@dataclass(frozen=True, slots=True)
class Suite:
    """The cells of ``ranks`` × ``sizes`` × ``networks`` × ``names``; a network None is not shaped.

    ``why`` says how the backend and the networks were chosen.
    """

    backend: str
    networks: tuple[str | None, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    quick: bool
    why: str

    def cases(self, n: int, network: str | None) -> tuple[Case, ...]:
        """The collectives of one set of ``n`` processes, longer ones with fewer runs."""
        found = []
        for name in self.names:
            for flags in _variants(name, n):
                for nbytes in self.sizes:
                    case = Case(name, nbytes // 4, flags=flags)
                    runs = int(_CELL_S / (expected_s(case, n, network) + _BESIDE_S))
                    runs = min(max(runs, _LEAST_RUNS), _LEAST_RUNS if self.quick else _MOST_RUNS)
                    spans = self._traced(case, n, network)
                    found.append(Case(name, nbytes // 4, flags=flags, runs=runs, spans=spans))
        return tuple(found)

    def _traced(self, case: Case, n: int, network: str | None) -> bool:
        """One size, one network, up to four ranks: time lines of every algorithm."""
        wanted = max((r for r in self.ranks if r <= 4), default=min(self.ranks))
        size = sorted(self.sizes)[len(self.sizes) // 2]
        here = n == wanted and network == self.networks[0] and case.size_bytes == size
        return here and case.name != LIBRARY

    def steps(self, n: int, network: str | None) -> tuple[tuple[str, float | None], ...]:
        """The training steps on ``n`` ranks: names, and the size of DDP's buckets in MiB."""
        if STEPS not in self.names or n > _MOST_STEP_RANKS or _has_latency(network):
            return ()
        return _STEPS

    @property
    def without_steps(self) -> str | None:
        """Why some of it, or all, has no training steps; None where there are some everywhere."""
        late = [network for network in self.networks if _has_latency(network)]
        if STEPS not in self.names:
            return "no training steps, which were not asked for: --only steps measures them alone"
        if late:
            return (
                f"no training steps on {' and '.join(map(str, late))}: their networks have a "
                "rate alone"
            )
        if not any(self.steps(n, network) for n in self.ranks for network in self.networks):
            return f"no training steps: they take 2 to {_MOST_STEP_RANKS} ranks"
        return None

    @property
    def empty(self) -> bool:
        """Whether there is not one cell."""
        groups = itertools.product(self.ranks, self.networks)
        return not any(
            any(_variants(name, n) for name in self.names) or self.steps(n, network)
            for n, network in groups
        )

    def seconds(self) -> float:
        """About how long all of it takes."""
        groups = [(n, network) for network in self.networks for n in self.ranks]
        return len(self.networks) * self.calibration_s + sum(
            _START_S
            + sum(cell_s(case, n, network) for case in self.cases(n, network))
            + _STEP_CELL_S * len(self.steps(n, network))
            for n, network in groups
        )

    @property
    def calibration_s(self) -> float:
        """About how long one network's calibration takes."""
        shaped = None if self.networks[0] is None else parse_rate_network(self.networks[0])
        cases = cases_for(min(3, max(self.ranks)), self.backend, shaped, self.quick)
        return len(cases) * (_QUICK_PATTERN_S if self.quick else _PATTERN_S)

    @property
    def step_cell_s(self) -> float:
        """About how long one training step's cell takes."""
        return _STEP_CELL_S


def _has_latency(network: str | None) -> bool:
    return network is not None and "," in network


def _variants(name: str, n: int) -> tuple[dict[str, int], ...]:
    """The flags with which a name is run on ``n`` ranks; none where it is not."""
    if name == STEPS:
        return ()
    if name != "hierarchical":
        return ({},)
    return tuple({"gpus_per_node": g} for g in (2, 3) if n % g == 0 and n > g)


def expected_s(case: Case, n: int, network: str | None) -> float:
    """What one run would take if the ports carried frames and nothing else cost time."""
    rate = _UNSHAPED_BYTES_PER_S if network is None else parse_rate_network(network).bytes_per_s
    named = Case("ring", case.elements) if case.name == LIBRARY else case
    cluster = uniform(n, rate, wire_time_per_payload_byte=FRAME_FACTOR)
    run = simulate(reference_schedule(named, n), cluster, case.elements, keep="totals")
    return run.trace.time_s


def cell_s(case: Case, n: int, network: str | None) -> float:
    """About how long a cell takes, its warm run and everything around the runs included."""
    return (case.runs + case.warm_runs) * (expected_s(case, n, network) + _BESIDE_S)


def make_suite(
    *,
    backend: str,
    network: str | None,
    gpus: int | None,
    quick: bool,
    names: Sequence[str] = (),
    sizes: Sequence[int] = (),
    stage: Stage = HERE,
) -> Suite:
    """What to measure, from what was asked and from what this machine, or the stage, has."""
    if stage.ranks is None:
        chosen, networks, why = _where(backend, network, quick, gpus or 2)
        devices = len(torch_here().cuda_devices) if chosen == "nccl" else 0
        most = gpus or (max(2, devices) if chosen == "nccl" else 4 if quick else 6)
    else:
        most = gpus or stage.ranks
        chosen, networks, why = _there(stage, backend, network, most)
    if most > MOST_RANKS:
        raise ValueError(f"--gpus '{most}': accepted is a whole number, 2 to {MOST_RANKS}")
    ranks = tuple(sorted({2, most})) if quick else tuple(n for n in range(2, most + 1))
    if not quick and most > 6:
        ranks = tuple(n for n in ranks if n <= 4 or n % 2 == 0 or n == most)
    for name in names:
        if name not in NAMES:
            raise ValueError(unknown("name", name, NAMES))
    usual = tuple(name for name in NAMES if not (quick and name == STEPS))
    usual_sizes = _SIZES[chosen][: 2 if quick else None]
    suite = Suite(
        chosen, networks, ranks, tuple(sizes) or usual_sizes, tuple(names) or usual, quick, why
    )
    if suite.empty:
        raise ValueError("nothing to measure; " + "; ".join(_NEEDS[name] for name in suite.names))
    return suite


def _where(
    backend: str, network: str | None, quick: bool, most: int
) -> tuple[str, tuple[str | None, ...], str]:
    """Backend, networks, and the reason in one line; for up to ``most`` ranks."""
    given = None if network == "none" else network
    networks = () if given is None else split_networks(given)
    choice = choose_backend(backend, most, shaped=bool(networks), processes=True)
    chosen = choice.backend
    if network == "none":
        return chosen, (None,), f"{_over(chosen)}, as --network none asks for"
    if networks:
        if reason := why_not():
            raise RunError(reason)
        return chosen, networks, f"gloo over networks shaped to {' and '.join(networks)}"
    if chosen == "nccl":
        return chosen, (None,), f"nccl: {choice.why}"
    if reason := why_not():
        return chosen, (None,), f"{_over(chosen)}, because {reason}"
    usual = ("200Mbit/s",) if quick else ("100Mbit/s", "200Mbit/s")
    return chosen, usual, f"gloo over networks shaped to {' and '.join(usual)}: {choice.why}"


def _there(
    stage: Stage, backend: str, network: str | None, most: int
) -> tuple[str, tuple[str | None, ...], str]:
    """The same of ranks that are there already, whose network is the real one."""
    choice = stage.choose(backend, most, shaped=network not in (None, "none"))
    if most < 2:
        raise ValueError(f"{most} rank has no links; accepted: 2 or more")
    return choice.backend, (None,), f"{choice.backend}, {choice.why}"


def _over(backend: str) -> str:
    return "nccl" if backend == "nccl" else "gloo over the loopback interface"


def split_networks(text: str) -> tuple[str, ...]:
    """Networks from ``RATE[,RATE…]``; a time after a rate is that network's latency.

    >>> split_networks("200Mbit/s,50us,400Mbit/s")
    ('200Mbit/s,50us', '400Mbit/s')
    >>> split_networks("200Mbit/s,0.2Gbit/s")
    Traceback (most recent call last):
    ValueError: network '0.2Gbit/s' is there already; accepted: each network once
    """
    if "none" in text.split(","):
        raise ValueError(f"network {text!r}: accepted is none alone, or rates")
    networks: list[str] = []
    for part in text.split(","):
        if networks and "/" not in part and "," not in networks[-1]:
            networks[-1] += f",{part}"
        else:
            networks.append(part)
    seen = set()
    for name in networks:
        network = parse_rate_network(name)
        key = network.bytes_per_s, network.latency_s
        if key in seen:
            raise ValueError(f"network {name!r} is there already; accepted: each network once")
        seen.add(key)
    return tuple(networks)
