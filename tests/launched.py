"""Ranks as a launcher starts them, cheaply: forked from one process that has imported torch."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import socket
import sys
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

_LAUNCHER = multiprocessing.get_context("forkserver")
_LAUNCHER.set_forkserver_preload(
    ["torch.distributed", "real_gpu.processes.machines", "real_gpu.work.works"]
)


def rank_main(
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    name: str,
    shift_s: float,
    patches: dict[str, Any],
) -> None:
    """The command line in a child, its output in files; on a machine whose clock is shifted, with
    other values of some names.
    """
    os.chdir(folder)
    for number in (1, 2):
        os.dup2(os.open(f"{name}.{number}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    os.environ.update(environment)
    if shift_s:
        from real_gpu.processes import machines

        real = time.monotonic
        time.monotonic = lambda: real() + shift_s
        machines.clock_name = lambda: f"shifted by {shift_s}"
    for path, value in patches.items():
        module, _, attribute = path.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)
        setattr(sys.modules[module], attribute, value)
    from real_gpu.__main__ import main

    sys.exit(main(arguments))


@dataclass(frozen=True)
class Ended:
    """How the ranks ended: exit statuses, and what each said on its output and its error."""

    status: list[int | None]
    out: list[str]
    err: list[str]

    @property
    def said(self) -> str:
        return "".join(self.err)


def _connections(process: BaseProcess) -> int:
    try:
        ends = psutil.Process(process.pid).net_connections("tcp")
        return sum(end.status == psutil.CONN_ESTABLISHED for end in ends)
    except psutil.Error:
        return 0


class Processes:
    """A rank for each of the commands, as torchrun or srun start them."""

    def __init__(
        self,
        folder: Path,
        commands: list[str],
        srun: bool = False,
        shifts_s: tuple[float, ...] = (),
        patches: dict[str, Any] | None = None,
        **changes: str,
    ) -> None:
        self.folder, self.processes = folder, list[BaseProcess]()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        names = (
            ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
            if srun
            else ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        )
        for rank, command in enumerate(commands):
            seat = dict(zip(names, map(str, (rank, len(commands), rank)), strict=True))
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            shift_s = shifts_s[rank] if shifts_s else 0.0
            job: tuple[Any, ...] = (
                command.split(),
                seat | where | changes,
                str(folder),
                f"rank{rank}",
                shift_s,
                patches or {},
            )
            process = _LAUNCHER.Process(target=rank_main, args=job)
            process.start()
            self.processes.append(process)

    def wait_for_traffic(self) -> None:
        """Until every rank has met the others: the store, rank 0's line, and Gloo's own pairs."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if all(_connections(process) >= 3 for process in self.processes):
                return
            assert all(process.is_alive() for process in self.processes), self.end()
            time.sleep(0.05)
        raise AssertionError("the ranks have not met within 60 s")

    def kill(self) -> None:
        """Whatever is left."""
        for process in self.processes:
            process.kill()
            process.join()

    def end(self, within_s: float = 120) -> Ended:
        """Wait for all; what is left after so long is killed, and has no status."""
        deadline = time.monotonic() + within_s
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        status = [process.exitcode for process in self.processes]
        self.kill()
        said = [
            [(self.folder / f"rank{rank}.{n}").read_text() for rank in range(len(status))]
            for n in (1, 2)
        ]
        for rank in range(len(status)):
            for n in (1, 2):
                (self.folder / f"rank{rank}.{n}").unlink()
        return Ended(status, *said)
