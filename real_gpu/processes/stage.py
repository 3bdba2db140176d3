"""Where the ranks of a job come from: what measures needs not know. ``Here`` starts them for each
job; ``machines`` has those that torchrun or srun has started, on one machine or several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from real_gpu.backends import Choice
from real_gpu.info import choose_backend
from real_gpu.job import CaseResult, Job
from real_gpu.processes.measure import OnResult, measure


class Stage(ABC):
    """Ranks for one job after another.

    ``ranks`` is how many there are, for all jobs, and for none any more once one has failed; None
    where each job has its own, as many as it asks for. ``machines`` has the ranks of each machine,
    where there are several.
    """

    ranks: int | None = None
    machines: tuple[tuple[int, ...], ...] = ()

    @property
    def mixed(self) -> bool:
        """Whether there are links within machines and links between them."""
        return len(self.machines) > 1 and max(map(len, self.machines)) > 1

    @abstractmethod
    def choose(self, asked: str, gpus: int, shaped: bool = False) -> Choice:
        """The backend of jobs of so many ranks; a ``ValueError`` or ``RunError`` for none."""

    @abstractmethod
    def place(self, job: Job) -> Job:
        """The job, with what a record says of where its ranks are."""

    @abstractmethod
    def measure(self, job: Job, on_result: OnResult | None = None) -> list[CaseResult]:
        """The results of the job's cases, in order, as ``processes.measure`` has them."""

    def check_even(self) -> None:
        """A ``ValueError`` unless all machines have as many ranks, one after another."""
        size = max(map(len, self.machines), default=0)
        ranks = [rank for machine in self.machines for rank in machine]
        if ranks != sorted(ranks) or any(len(machine) != size for machine in self.machines):
            counts = ", ".join(str(len(machine)) for machine in self.machines)
            raise ValueError(
                f"{len(self.machines)} machines have {counts} ranks; to calibrate, accepted: as "
                "many on each, numbered machine by machine"
            )

    def whereabouts(self, job: Job) -> str:
        """Where the job's ranks are, to be added to what is said of them."""
        return ""


class Here(Stage):
    """This machine: every job has ranks of its own, which end with it."""

    def choose(self, asked: str, gpus: int, shaped: bool = False) -> Choice:
        """By what is here."""
        return choose_backend(asked, gpus, shaped, processes=True)

    def place(self, job: Job) -> Job:
        """Nothing is said of it."""
        return job

    def measure(self, job: Job, on_result: OnResult | None = None) -> list[CaseResult]:
        """On processes started for it."""
        return measure(job, on_result)


HERE = Here()
