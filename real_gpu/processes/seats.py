"""Which rank of which run this process is, where torchrun or Slurm's srun has started it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_HOW_ADDRESS = (
    'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) before srun'
)
_FIRST_PORT, _PORTS = 20_000, 10_000


@dataclass(frozen=True, slots=True)
class Seat:
    """One of ``ranks`` processes, which meet at ``address:port``.

    ``agent`` says that torchrun's agent keeps the store there, else rank 0 opens it.
    """

    launcher: str
    rank: int
    ranks: int
    local_rank: int
    address: str
    port: int
    agent: bool = False
    restarts: int = 0
    one_machine: bool = False

    @property
    def first_here(self) -> bool:
        """The first rank on its machine but for rank 0: it speaks when rank 0 no longer can."""
        return self.local_rank == (1 if self.rank == self.local_rank else 0)


def find_seat(environment: Mapping[str, str]) -> Seat | None:
    """The seat that the environment describes; None for a process that nobody launched.

    >>> env = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    >>> seat = find_seat(env)
    >>> seat.launcher, seat.rank, seat.ranks, seat.address
    ('torchrun', 1, 2, 'node0')
    >>> find_seat({}) is None
    True
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _of_torchrun(environment)
    if "SLURM_PROCID" not in environment or "SLURM_NTASKS" not in environment:
        return None
    # The script given to sbatch has these too, though it is no task of a step: srun starts those.
    script = "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment
    if script or _whole(environment, _tasks(environment), 1) == 1:
        return None
    return _of_srun(environment)


def _of_torchrun(environment: Mapping[str, str]) -> Seat:
    if missing := [n for n in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(n)]:
        raise ValueError(
            f"RANK and WORLD_SIZE are set, {' and '.join(missing)} not; accepted: all four, as "
            "torchrun sets them, or none"
        )
    ranks = _whole(environment, "WORLD_SIZE", 1)
    return Seat(
        "torchrun",
        _rank(environment, "RANK", ranks),
        ranks,
        _whole(environment, "LOCAL_RANK", 0),
        environment["MASTER_ADDR"],
        _port(environment),
        agent=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        restarts=_whole(environment, "TORCHELASTIC_RESTART_COUNT", 0),
        one_machine=_whole(environment, "LOCAL_WORLD_SIZE", 0) == ranks,
    )


def _of_srun(environment: Mapping[str, str]) -> Seat:
    ranks = _whole(environment, _tasks(environment), 1)
    nodes = environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES")
    address = environment.get("MASTER_ADDR") or ("127.0.0.1" if nodes == "1" else None)
    if address is None:
        raise ValueError(f"srun started {ranks} tasks, MASTER_ADDR is not set; {_HOW_ADDRESS}")
    if environment.get("MASTER_PORT"):
        port = _port(environment)
    else:
        port = _FIRST_PORT + _whole(environment, "SLURM_JOB_ID", 0) % _PORTS
    return Seat(
        "srun",
        _rank(environment, "SLURM_PROCID", ranks),
        ranks,
        _whole(environment, "SLURM_LOCALID", 0),
        address,
        port,
        one_machine=nodes == "1",
    )


def _tasks(environment: Mapping[str, str]) -> str:
    """A step may have fewer tasks than its job."""
    return "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"


def _whole(environment: Mapping[str, str], name: str, at_least: int) -> int:
    text = environment.get(name, "0")
    if not text.isascii() or not text.isdecimal() or int(text) < at_least:
        raise ValueError(f"{name} is {text!r}; accepted: a whole number, at least {at_least}")
    return int(text)


def _rank(environment: Mapping[str, str], name: str, ranks: int) -> int:
    rank = _whole(environment, name, 0)
    if rank >= ranks:
        raise ValueError(f"{name} is '{rank}'; accepted: 0 to {ranks - 1}, with {ranks} ranks")
    return rank


def _port(environment: Mapping[str, str]) -> int:
    port = _whole(environment, "MASTER_PORT", 1)
    if port > 65535:
        raise ValueError(f"MASTER_PORT is '{port}'; accepted: 1 to 65535")
    return port
