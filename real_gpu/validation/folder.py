"""A validation's folder: its files are whole after every cell, whatever ends the run then."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from real_gpu.job import RunError
from real_gpu.network.shaped import package_path
from simcore.measured.cells import Cell
from simcore.measured.records import Record
from simcore.measured.step_records import StepRecord
from simcore.measured.validation import UNSHAPED, Validation
from simcore.trace import Trace

_REPORT_S = 120


class Folder:
    """A new or empty folder, and the validation that grows in it."""

    def __init__(self, path: str, environment: dict[str, Any]) -> None:
        self.path, self.environment = Path(path), environment
        self.cells: dict[str, Cell] = {}
        self.clusters: dict[str, dict[str, Any]] = {}
        self.calibrations: dict[str, dict[str, Any]] = {}
        self.made = False
        try:
            self.made = not self.path.exists()
            self.path.mkdir(exist_ok=True)
            if any(self.path.iterdir()):
                raise ValueError(f"--out {path!r} is not empty; accepted: a new or empty folder")
            (self.path / "records").mkdir()
            (self.path / "traces").mkdir()
        except OSError as error:
            raise ValueError(f"--out {path!r}: {error.strerror}; accepted: a new folder") from None

    @property
    def validation(self) -> Validation:
        """What has been measured so far."""
        cells = tuple(self.cells.values())
        return Validation(cells, self.clusters, self.calibrations, self.environment)

    def add_network(
        self, network: str | None, cluster: dict[str, Any], calibration: dict[str, Any] | None
    ) -> None:
        """The cluster on which a network's cells are simulated."""
        self.clusters[network or UNSHAPED] = cluster
        if calibration is not None:
            self.calibrations[network or UNSHAPED] = calibration

    def add_cell(
        self, cell: Cell, record: Record | StepRecord, traces: tuple[Trace, ...] = ()
    ) -> None:
        """One more cell, or the same one measured again, on disk at once."""
        self._write(f"records/{cell.stem}.json", record.to_json())
        for trace in traces:
            self._write(f"traces/{cell.stem}-{trace.source.value}.json", trace.to_json())
        self.cells[cell.stem] = cell
        self.save()

    def save(self) -> None:
        """The validation and what follows from it, on disk."""
        validation = self.validation
        self._write("validation.json", validation.to_json())
        self._write("summary.json", json.dumps(validation.summary(), indent=1) + "\n")
        for network, cluster in self.clusters.items():
            name = "cluster" if len(self.clusters) == 1 else f"cluster-{_plain(network)}"
            self._write(f"{name}.json", json.dumps(cluster, indent=1) + "\n")
        if len(self.clusters) > 1:
            (self.path / "cluster.json").unlink(missing_ok=True)

    def remove_if_empty(self) -> None:
        """Leave nothing where nothing was measured."""
        if not self.cells:
            with contextlib.suppress(OSError):
                (self.path / "records").rmdir()
                (self.path / "traces").rmdir()
                if self.made:
                    self.path.rmdir()

    def report(self) -> str | None:
        """Have the report written, by a process of its own; what it has to say, if anything."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "views.report", str(self.path)],
                env=os.environ | {"PYTHONPATH": package_path()},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_REPORT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            status, lines = 1, [f"writing it took over {_REPORT_S} s"]
        else:
            status, lines = done.returncode, done.stderr.strip().splitlines()
        last = lines[-1] if lines else None
        if status:
            why = last or f"exit status {status}"
            raise RunError(f"{self.path} holds the validation, but not its report: {why}")
        return last

    def _write(self, name: str, text: str) -> None:
        """All of the file or, should the process end now, what it was."""
        new = self.path / f".{Path(name).name}.new"
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(self.path / name)
        except OSError as error:
            path = str(self.path / name)
            raise RunError(f"file {path!r} cannot be written: {error.strerror}") from None
        finally:
            new.unlink(missing_ok=True)


def _plain(network: str) -> str:
    return "".join(c if c.isalnum() or c == "." else "-" for c in network.replace("/s", ""))
