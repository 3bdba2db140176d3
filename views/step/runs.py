"""One training step as the reader chose it: the runs, and how much work they are to simulate.

No drawing and no sentences; those are in ``step_chart``, ``step_words`` and the other ``step_*``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.cluster import Cluster, uniform
from simcore.cluster_file import load_cluster
from simcore.training import work
from simcore.training.buckets import DdpOptions
from simcore.training.gpus import Gpu, Utilisation, load_gpu, utilisation
from simcore.training.model import Workload
from simcore.training.plan import Plan
from simcore.training.step import StepResult, step
from simcore.training.strategies import STRATEGIES, Setting, plan_step
from simcore.training.work import Work
from simcore.training.workload import load_workload
from simcore.units import parse_rate, parse_time
from views.text import Text

ONE_SWITCH = "one-switch"  # the network that is told by its rate and latency
NAMES = tuple(row.name for row in STRATEGIES)

LONGEST_CHOSEN_S = 12.0
LONGEST_COMPARED_S = 2.0  # all of them
LONGEST_SWEEP_S = 2.5


@dataclass(frozen=True, slots=True)
class StepChoice:
    """What the reader chose; rate and latency count where ``network`` is ``ONE_SWITCH``."""

    model: str
    gpu: str
    batch: int
    gpus: int
    network: str = ONE_SWITCH
    rate: str = "25Gbit/s"
    latency: str = "20us"
    first: str = "ddp"
    second: str = "dp"
    cap_mb: float | None = None
    accumulate: int = 1
    overlap_percent: int = 100
    backend: str = "nccl"
    slower: float = 1.0
    launch: str = "0s"  # of each replica of DataParallel

    def workload(self) -> Workload:
        """The model with its estimated compute times."""
        return _workload(self.model, self.gpu, self.batch)

    def setting(self) -> Setting:
        """What every strategy reads. The last GPU is the slower one."""
        slower = (1.0,) * (self.gpus - 1) + (self.slower,) if self.slower != 1 else ()
        return Setting(
            self.workload(),
            self.gpus,
            DdpOptions(bucket_cap_mb=self.cap_mb),
            backend="gloo" if self.backend == "gloo" else "nccl",
            accumulate=self.accumulate,
            overlap=self.overlap_percent / 100,
            slower=slower,
            launch_per_replica_s=parse_time(self.launch),
            gpus_per_node=self.gpus_per_node,
        )

    def cluster(self, n: int) -> Cluster:
        """One port for each of ``n`` ranks; extra servers have one too."""
        if self.network != ONE_SWITCH:
            return load_cluster(self.network, n)
        return uniform(n, parse_rate(self.rate), parse_time(self.latency))

    @property
    def gpus_per_node(self) -> int | None:
        """The largest group of the network that divides the GPUs; None where there are none.

        >>> StepChoice("gpt2", "H100 SXM", 8, 16, "dgx-h100").gpus_per_node
        8
        >>> StepChoice("gpt2", "H100 SXM", 8, 12, "dgx-h100").gpus_per_node
        """
        if self.network == ONE_SWITCH:
            return None
        sizes = {level.groups.count(0) for level in load_cluster(self.network, self.gpus).levels}
        fitting = [size for size in sizes if size < self.gpus and not self.gpus % size]
        return max(fitting, default=None)

    @property
    def card(self) -> Gpu:
        """The GPU's data sheet."""
        return load_gpu(self.gpu)

    @property
    def reached(self) -> tuple[str, Utilisation]:
        """The precision of the estimate, and which part of the GPU's peak it counts on."""
        precision = self.card.precision()
        convolution = self.workload().is_convolutional
        return precision, utilisation(self.card, precision, convolution=convolution)


@lru_cache(maxsize=64)
def _workload(model: str, gpu: str, batch: int) -> Workload:
    return load_workload(model).estimated_on(gpu, batch)


@lru_cache(maxsize=48)
def run_step(choice: StepChoice, strategy: str) -> StepResult:
    """One step of a strategy.

    >>> choice = StepChoice("resnet18", "V100 16GB", 64, 2)
    >>> run_step(choice, "ddp").time_s < run_step(choice, "dp").time_s
    True
    """
    return _run(replace(choice, first="", second=""), strategy)


@lru_cache(maxsize=48)
def _run(choice: StepChoice, strategy: str) -> StepResult:
    setting = choice.setting()
    return step(strategy, setting, choice.cluster(plan_step(strategy, setting).n))


def work_of(choice: StepChoice, strategy: str) -> Work:
    """Told without simulating; a ``ValueError`` where the strategy has no plan."""
    return work.work_of(strategy, choice.setting(), choice.network == ONE_SWITCH)


def work_s(plan: Plan, choice: StepChoice) -> float:
    """How long simulating it takes, about."""
    return work.work_s(plan, choice.setting(), choice.network == ONE_SWITCH)


def about(count: int) -> str:
    """Two digits of a large number.

    >>> about(1_234_567)
    '1,200,000'
    """
    return f"{float(f'{count:.2g}'):,.0f}"


def impossible(choice: StepChoice, strategy: str, text: Text) -> str | None:
    """Why a strategy does not exist with these settings, in words; None where it does."""
    if strategy == "hsdp" and choice.gpus_per_node is None:
        return text("step.no_nodes", n=choice.gpus)
    return None


def refusal(choice: StepChoice, strategy: str, text: Text) -> str | None:
    """Why a strategy cannot be drawn, or None where it can."""
    why = impossible(choice, strategy, text)
    if why is None and (needed := work_of(choice, strategy)).seconds > LONGEST_CHOSEN_S:
        why = text("step.too_long", messages=about(needed.messages))
    return why
