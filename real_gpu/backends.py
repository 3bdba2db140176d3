"""Which backend a run takes, and why: functions of what is known of the machine, and of nothing
else. ``info`` finds the facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from real_gpu.job import COLLECTIVES, TRAININGS, RunError

BACKENDS = ("auto", "nccl", "device", "gloo")
PROCESSES = ("auto", "nccl", "gloo")  # those with a process for each rank
MULTI_RANK = "NCCL_MULTI_RANK_GPU_ENABLE"
MULTI_RANK_FROM = (2, 30)


@dataclass(frozen=True, slots=True)
class Torch:
    """What the installed torch can do; ``problem`` says why it can do nothing."""

    version: str | None = None
    cuda_devices: tuple[str, ...] = ()
    nccl: str | None = None
    gloo: bool = False
    problem: str | None = None
    cuda_ids: tuple[str, ...] = ()  # of the devices, anywhere in the world; "" where unknown


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that decide what can run here. ``gpu_signs``: a GPU's driver is here, whatever
    torch sees. ``environment`` holds NCCL's own variables. ``no_network`` says why links cannot
    be shaped; None where they can.
    """

    torch: Torch = field(default_factory=Torch)
    platform: str = "linux"
    gpu_signs: bool = False
    wsl: bool = False
    root: bool = False
    notebook: str | None = None
    no_network: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """CUDA devices that torch sees."""
        return len(self.torch.cuda_devices)

    @property
    def mig(self) -> bool:
        """Whether a device is a slice of a GPU, of which a process sees one at a time."""
        return any("MIG" in name.split() for name in self.torch.cuda_devices)


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, and the reason in one line."""

    backend: str
    why: str


def choose(
    machine: Machine,
    asked: str,
    gpus: int,
    *,
    shaped: bool = False,
    name: str = "ring",
    processes: bool = False,
) -> Choice:
    """The backend of a run of ``gpus`` ranks; a ``RunError`` where there is none, a ``ValueError``
    for what does not go together. ``processes``: each rank must be one.

    >>> two = Machine(Torch("2.13", ("T4", "T4"), "2.30.7", True))
    >>> choose(two, "auto", 2)
    Choice(backend='nccl', why='2 CUDA devices and NCCL 2.30.7')
    >>> choose(Machine(Torch("2.13", gloo=True)), "auto", 4).why
    'no CUDA device, so ranks are processes on the CPU'
    """
    if shaped and name == "torch.dp":
        raise ValueError("torch.dp is one process without a network; accepted: no --network")
    if shaped and asked not in ("auto", "gloo"):
        raise ValueError("--network shapes links between CPU processes; accepted: --backend gloo")
    if machine.torch.problem:
        raise RunError(machine.torch.problem)
    if shaped:
        return Choice("gloo", "a shaped network links processes on the CPU")
    if name == "torch.dp":
        return _one_process(machine, asked, gpus)
    replayed = name not in COLLECTIVES + TRAININGS
    buffers_do = replayed and not processes
    best = _best(machine, gpus, buffers_do) if asked == "auto" else asked
    if best == "nccl":
        return _nccl(machine, gpus, buffers_do)
    if best == "device":
        return _device(machine, name)
    if not machine.torch.gloo:
        raise RunError("this torch has neither NCCL with enough GPUs nor Gloo; pip install torch")
    return Choice("gloo", _why_gloo(machine, asked, gpus))


def _best(machine: Machine, gpus: int, buffers_do: bool) -> str:
    """``buffers_do``: they may stand for ranks."""
    if machine.torch.nccl and _each_its_own(machine, gpus):
        return "nccl"
    return "device" if machine.devices == 1 and buffers_do else "gloo"


def _each_its_own(machine: Machine, gpus: int) -> bool:
    """Whether every rank has a device, of those that NCCL joins."""
    return gpus <= machine.devices and (gpus == 1 or not machine.mig)


def _why_gloo(machine: Machine, asked: str, gpus: int) -> str:
    if asked == "gloo":
        return "asked for: ranks are processes on the CPU"
    if not machine.devices:
        return "no CUDA device, so ranks are processes on the CPU"
    if not machine.torch.nccl:
        return f"{_count(machine.devices)}, but this torch has no NCCL: ranks are on the CPU"
    if machine.mig:
        return "NCCL joins no MIG slices, so ranks are processes on the CPU"
    return (
        f"{gpus} ranks are more than {_count(machine.devices)}, so ranks are processes on the "
        f"CPU; on GPUs with --gpus {machine.devices}"
    )


def _nccl(machine: Machine, gpus: int, buffers_do: bool) -> Choice:
    version, have = machine.torch.nccl, machine.devices
    if not version or not have:
        lack = "no CUDA device is here" if version else "this torch has no NCCL"
        raise RunError(f"NCCL needs a CUDA device for each rank; {lack}; use --backend gloo")
    if _each_its_own(machine, gpus):
        return Choice("nccl", f"{_count(have)} and NCCL {version}")
    instead = "--backend gloo or --backend device" if buffers_do else "--backend gloo"
    if machine.mig:
        raise RunError(f"NCCL joins no MIG slices; use {instead}")
    if machine.environment.get(MULTI_RANK) != "1":
        raise RunError(
            f"{gpus} ranks over NCCL need as many CUDA devices; {_count(have)} here; use "
            f"{instead}, or fewer ranks{_several(machine)}"
        )
    if not _at_least(version, MULTI_RANK_FROM):
        raise RunError(f"{MULTI_RANK}=1 needs NCCL 2.30, this is {version}; use {instead}")
    return Choice(
        "nccl",
        f"{gpus} ranks on {_count(have)}: NCCL {version} with {MULTI_RANK}=1, experimental",
    )


def _several(machine: Machine) -> str:
    """That NCCL may take several ranks on a GPU, where it may."""
    if not _at_least(machine.torch.nccl or "0", MULTI_RANK_FROM):
        return ""
    return f"; {MULTI_RANK}=1 in the environment allows several ranks on a GPU (experimental)"


def _at_least(version: str, wanted: tuple[int, int]) -> bool:
    numbers = [int(digits) for digits in re.findall(r"\d+", version)[:2]]
    return tuple(numbers) >= wanted


def _device(machine: Machine, name: str) -> Choice:
    if name in COLLECTIVES + TRAININGS:
        raise RunError(
            f"{name} needs a process for each rank; accepted with --backend device: the "
            "algorithms, and torch.dp"
        )
    if not machine.devices:
        return Choice(
            "device",
            "asked for: buffers in the CPU's memory stand for ranks, copied one after another; "
            "for teaching and tests, its times mean nothing",
        )
    slice_of = "a MIG slice, which NCCL cannot join with others" if machine.mig else "one GPU"
    why = slice_of if machine.devices == 1 else "asked for"
    return Choice("device", f"{why}: buffers on {machine.torch.cuda_devices[0]} stand for ranks")


def choose_together(
    asked: str, devices: Sequence[Mapping[str, Any]], variables: Mapping[str, str]
) -> Choice:
    """The backend of ranks that others started, each on one of these ``devices``: as ``choose``
    has it on a machine with those that differ. ``variables`` are those that all ranks have.

    >>> two = [
    ...     {"id": "a", "name": "T4", "nccl": "2.30.7"},
    ...     {"id": "b", "name": "T4", "nccl": "2.29"},
    ... ]
    >>> choose_together("auto", two, {}).backend, choose_together("auto", [two[0]] * 2, {}).backend
    ('nccl', 'gloo')
    """
    apart = {device["id"]: device["name"] for device in devices}
    oldest = min((d["nccl"] for d in devices), key=lambda v: [*map(int, re.findall(r"\d+", v))])
    torch = Torch(cuda_devices=tuple(apart.values()), nccl=oldest, gloo=True)
    machine = Machine(torch, environment=variables)
    return choose(machine, asked, len(devices), processes=True)


def _one_process(machine: Machine, asked: str, gpus: int) -> Choice:
    """nn.DataParallel."""
    if asked not in ("auto", "device"):
        raise RunError("torch.dp is one process without a backend; accepted: --backend auto")
    if gpus > machine.devices or machine.devices == 0:
        raise RunError(
            f"torch.dp copies between the GPUs of one process: {gpus} CUDA devices are needed, "
            f"{machine.devices} are here; 'dp' replays its schedule on the CPU"
        )
    return Choice("device", f"one process on {_count(machine.devices)}")


def _count(devices: int) -> str:
    return f"{devices} CUDA device{'' if devices == 1 else 's'}"


# What to say, where it applies. The order is that of the answers.
_ADVICE: tuple[tuple[Callable[[Machine], bool], str], ...] = (
    (
        lambda m: m.gpu_signs and not m.devices and not m.torch.problem and m.platform == "linux",
        (
            "a GPU's driver is here, but torch sees no device: this torch may be a build for CPUs "
            "only, or CUDA_VISIBLE_DEVICES is empty"
        ),
    ),
    (
        lambda m: m.devices >= 2 and bool(m.torch.nccl),
        (
            "if an NCCL run hangs with GPUs at 100 %, peer-to-peer is broken (IOMMU, ACS, driver): "
            "set NCCL_P2P_DISABLE=1, which is slower and is noted in the record"
        ),
    ),
    (
        lambda m: m.devices >= 2 and bool(m.torch.nccl),
        (
            "which transport NCCL took is said with NCCL_DEBUG=INFO; without InfiniBand it takes "
            "sockets by itself"
        ),
    ),
    (
        lambda m: m.mig,
        "MIG: a process sees one slice, and NCCL joins none; --backend device runs schedules in it",
    ),
    (
        lambda m: m.devices == 1,
        (
            "one GPU: schedules run between buffers on it (--backend device); the library's "
            "collectives run over Gloo on the CPU"
        ),
    ),
    (
        lambda m: m.platform == "win32",
        (
            "Windows: Gloo on the CPU over 127.0.0.1; there is no NCCL and no shaped network, WSL "
            "has both"
        ),
    ),
    (
        lambda m: m.platform == "darwin",
        (
            "macOS: Gloo on the CPU; there is no NCCL, Gloo takes no MPS tensors, and a shaped "
            "network needs Linux"
        ),
    ),
    (
        lambda m: m.wsl,
        (
            "WSL: as on Linux, with the driver of Windows; a shaped network needs a kernel with "
            "sch_htb and veth"
        ),
    ),
    (
        lambda m: m.notebook is not None,
        (
            "a notebook: run '!python -m real_gpu …', which starts its own processes; never fork "
            "or spawn from a cell once CUDA has been used"
        ),
    ),
    (
        lambda m: not m.torch.problem and not m.devices and not m.gpu_signs,
        (
            "no GPU: over Gloo between processes of one machine, its cost per call and byte is "
            "what a run measures; for links of a known rate use --network"
        ),
    ),
    (
        lambda m: m.platform == "linux" and not m.root and m.no_network is None,
        "not root: the shaped network runs in a user namespace of its own",
    ),
)


def advice(machine: Machine) -> list[str]:
    """What holds on a machine like this."""
    return [text for applies, text in _ADVICE if applies(machine)]


def with_hint(text: str, backend: str, environment: Mapping[str, str]) -> str:
    """What a failed run said, and for NCCL ranks that never answered what is usually to blame.

    >>> with_hint("1 of 2 ranks answered 'run' within 20 s", "nccl", {})[-42:]
    'with NCCL_P2P_DISABLE=1 it may run, slower'
    """
    silent = "ranks answered" in text or "SIGABRT" in text  # ours gave up, or NCCL's watchdog
    if backend != "nccl" or not silent or "NCCL_P2P_DISABLE" in environment:
        return text
    blame = "peer-to-peer between the GPUs may be broken"
    return f"{text}; {blame}: with NCCL_P2P_DISABLE=1 it may run, slower"
