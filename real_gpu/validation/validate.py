"""Measures the cells of a suite and simulates each beside it; nothing that calibrates counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from real_gpu.job import (
    FRAMES,
    ITEMSIZE,
    VENDOR,
    Case,
    CaseResult,
    Job,
    RunError,
    parse_rate_network,
    reference_schedule,
)
from real_gpu.network.instrument import calibration
from real_gpu.processes.stage import HERE, Stage
from real_gpu.recording import prediction, record_of, trace_of
from real_gpu.validation.folder import Folder
from real_gpu.validation.links import calibrate_links
from real_gpu.validation.progress import Progress
from real_gpu.validation.steps import step_cells
from real_gpu.validation.suite import Suite, cell_s
from simcore.cluster_file import cluster_from_dict
from simcore.engine import Simulation, simulate
from simcore.measured.cells import cell_of_record
from simcore.measured.records import Record
from simcore.trace import Trace
from simcore.units import format_bytes

ATTEMPTS = 2


def validate(
    suite: Suite,
    folder: Folder,
    progress: Progress,
    given: dict[str, Any] | None,
    command: str,
    stage: Stage = HERE,
) -> None:
    """Measure all cells into the folder; ``given`` is a cluster file's content, to fit nothing."""
    for network in suite.networks:
        where = network or "unshaped"
        if given is not None:
            folder.add_network(network, given if network is None else given | FRAMES, None)
        else:
            progress.begin(f"calibrating {where}")
            gpus = min(3, max(suite.ranks))
            fitted = calibrate_links(network, gpus, suite.backend, suite.quick, progress.now, stage)
            folder.add_network(network, fitted.cluster, fitted.findings)
        progress.did(suite.calibration_s)
        cluster = folder.validation.cluster(network)
        assert cluster is not None
        for n in suite.ranks:
            group = Group(suite, n, network, cluster, command, stage)
            count = len(group.cases) + len(suite.steps(n, network))
            progress.begin(f"{n} ranks, {where}: {count} cells")
            group.measure(folder, progress)
            for cell, record in step_cells(suite, n, network, cluster, command, progress, stage):
                folder.add_cell(cell, record)
                progress.did(suite.step_cell_s)


@dataclass
class Group:
    """The collectives on one set of ``n`` ranks of the stage, over one network."""

    suite: Suite
    n: int
    network: str | None
    cluster: dict[str, Any]
    command: str
    stage: Stage

    def __post_init__(self) -> None:
        self.cases = self.suite.cases(self.n, self.network)
        self.shaped = None if self.network is None else parse_rate_network(self.network)
        self.counted: list[Case] = []  # in the progress: each once, however often it is measured
        self.job = self.stage.place(Job(self.n, (), self.suite.backend, self.shaped))

    def measure(self, folder: Folder, progress: Progress) -> None:
        """Every case; what was not quiet, or not reached, once more."""
        left = list(self.cases)
        for attempt in range(1, ATTEMPTS + 1 if left else 1):
            if attempt > 1:
                progress.now(f"{self.n} ranks: {len(left)} cells that were not quiet, once more")
            quiet: list[Case] = []
            try:
                self._attempt(left, quiet, folder, progress)
            except RunError as error:
                if attempt == ATTEMPTS or self.stage.ranks is not None:
                    raise  # no ranks are left to try it with
                progress.say(f"{error}; the remaining cells are tried once more")
            left = [case for case in left if case not in quiet]
            if not left:
                return

    def _attempt(
        self, cases: list[Case], quiet: list[Case], folder: Folder, progress: Progress
    ) -> None:
        """All the cases on one set of processes; ``quiet`` gains those to be believed."""
        first = () if self.shaped is None else (calibration(self.shaped),)
        todo = iter((*first, *cases))
        calibrated: list[CaseResult] = []

        def on_result(result: CaseResult) -> None:
            case, result = next(todo), result.by_device()
            if case in first:
                calibrated.append(result)
                return
            record = self._record(case, result, calibrated[0] if calibrated else None)
            run = self._simulated(case)
            traces: tuple[Trace, ...] = ()
            if run is not None and case.spans:
                traces = (run.trace, trace_of(self.job, case, result))
            record = self._with_prediction(record, run)
            cell = cell_of_record(record)
            folder.add_cell(cell, record, traces)
            if record.believable:
                quiet.append(case)
            if case not in self.counted:
                self.counted.append(case)
                progress.did(cell_s(case, self.n, self.network))
            progress.now(f"{self.n} ranks: {cell.strategy} {format_bytes(cell.size_bytes)}")

        self.stage.measure(replace(self.job, cases=(*first, *cases)), on_result)

    def _record(self, case: Case, result: CaseResult, calibrated: CaseResult | None) -> Record:
        return record_of(self.job, case, result, calibrated=calibrated, command=self.command)

    def _simulated(self, case: Case) -> Simulation | None:
        """On the calibrated cluster; None where the library chooses its own algorithm."""
        if case.name in VENDOR:
            return None
        return simulate(
            reference_schedule(case, self.n),
            cluster_from_dict(self.cluster, self.n),
            case.elements,
            ITEMSIZE[case.dtype],
        )

    def _with_prediction(self, record: Record, run: Simulation | None) -> Record:
        """The record with the calibrated prediction in place of the uncalibrated one."""
        if run is None:
            return record
        notes = tuple(note for note in record.notes if not note.startswith("not simulated"))
        return replace(record, simulated=prediction(run, self.cluster), notes=notes)
