"""One training step as the reader chose it: the runs, and how much work they are to simulate.

No drawing and no sentences; those are in ``step_chart``, ``step_words`` and the other ``step_*``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.cluster import Cluster, uniform
from simcore.cluster_file import load_cluster
from simcore.training.buckets import DdpOptions
from simcore.training.gpus import Gpu, Utilisation, load_gpu, utilisation
from simcore.training.model import Workload
from simcore.training.plan import Communicate, Plan
from simcore.training.step import StepResult, step
from simcore.training.strategies import STRATEGIES, Setting, plan_step
from simcore.training.workload import load_workload
from simcore.units import parse_rate, parse_time
from views.text import Text

ONE_SWITCH = "one-switch"  # the network that is told by its rate and latency
NAMES = tuple(row.name for row in STRATEGIES)

# What a simulation costs on one core, measured; coarse, for a page that must stay quick.
_S_PER_TASK, _S_PER_STEP, _S_PER_MESSAGE, _S_PER_SHARED_MESSAGE = 1e-3, 0.3e-3, 2e-6, 80e-6
_CLOSED_FORMS = ("ring", "ring-reduce-scatter", "ring-all-gather")  # on equal ports
_SERVED = ("ps", "ps-dedicated", "byteps")
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


@dataclass(frozen=True, slots=True)
class Work:
    """How many messages a simulation has at most, and how long it takes, about."""

    messages: int
    seconds: float


def work_of(choice: StepChoice, strategy: str) -> Work:
    """Told without simulating; a ``ValueError`` where the strategy has no plan."""
    if strategy in _SERVED:  # whose plans are long themselves
        setting = choice.setting()
        parts = -(-setting.workload.gradient_bytes // setting.partition_bytes)
        servers = choice.gpus if strategy == "byteps" else 1
        sent = 2 * parts * choice.gpus * servers
        return Work(sent, 2 * _S_PER_TASK * parts + _S_PER_SHARED_MESSAGE * sent)
    plan = plan_step(strategy, choice.setting())
    return Work(messages(plan), work_s(plan, choice))


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
    if why is None and (work := work_of(choice, strategy)).seconds > LONGEST_CHOSEN_S:
        why = text("step.too_long", messages=about(work.messages))
    return why


def messages(plan: Plan) -> int:
    """At most so many messages go between GPUs in the plan.

    >>> messages(plan_step("ddp", StepChoice("resnet18", "T4", 32, 2).setting()))
    16
    """
    return sum(_messages(task) for task in plan.tasks if isinstance(task, Communicate))


def _messages(task: Communicate) -> int:
    schedule = task.schedule
    of_a_step = {"copies": 1, "exchange": schedule.chunks * schedule.n}
    steps = schedule.chunks if schedule.name == "copies" else schedule.n_steps
    return steps * of_a_step.get(schedule.name, schedule.n)


def work_s(plan: Plan, choice: StepChoice) -> float:
    """How long simulating it takes, about. Where collectives share links every message counts."""
    sent = [task for task in plan.tasks if isinstance(task, Communicate)]
    several = len({task.stream for task in sent}) > 1 or plan.widths.get("network", 1) > 1
    if several or plan.name == "dp":
        steps = sum(task.schedule.n_steps for task in sent)
        each_s = _S_PER_TASK * (len(sent) + steps)
        return each_s + _S_PER_SHARED_MESSAGE * messages(plan)
    if choice.network == ONE_SWITCH and choice.slower == 1:
        sent = [task for task in sent if task.schedule.name not in _CLOSED_FORMS]
    # Equal collectives are simulated once, if their ranks enter them alike.
    if plan.name != "zero-redundancy-optimizer" and choice.slower == 1:
        sent = list({task.key: task for task in sent}.values())
    steps = sum(task.schedule.n_steps for task in sent)
    each_s = _S_PER_TASK * len(sent) + _S_PER_STEP * steps
    return each_s + _S_PER_MESSAGE * sum(map(_messages, sent))
