"""What this machine has for real runs, which backend a run would use, and why.

What follows from these facts is the business of ``backends``.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from real_gpu.backends import Choice, Machine, Torch, advice, choose
from real_gpu.job import RunError
from real_gpu.network.shaped import why_no_latency, why_not

_HOW_TORCH = "pip install torch (the package's extra 'real' has all that runs need)"
_GPU_SIGNS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
_NOTEBOOKS = {"KAGGLE_KERNEL_RUN_TYPE": "Kaggle", "COLAB_RELEASE_TAG": "Colab"}


def torch_here() -> Torch:
    """Import torch and ask it."""
    if importlib.util.find_spec("torch") is None:
        return Torch(problem=f"torch is not installed: {_HOW_TORCH}")
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:  # a broken installation raises anything
        return Torch(problem=f"torch does not import ({type(error).__name__}: {error})")
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else range(0)
    nccl = None
    if dist.is_available() and dist.is_nccl_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return Torch(
        version=torch.__version__,
        cuda_devices=tuple(torch.cuda.get_device_name(d) for d in devices),
        nccl=nccl,
        gloo=dist.is_available() and dist.is_gloo_available(),
        cuda_ids=tuple(
            str(getattr(torch.cuda.get_device_properties(d), "uuid", "")) for d in devices
        ),
    )


def machine_here(torch: Torch | None = None) -> Machine:
    """This machine; whether its links can be shaped is left open, since trying takes a second."""
    notebook = next((name for sign, name in _NOTEBOOKS.items() if sign in os.environ), None)
    return Machine(
        torch=torch_here() if torch is None else torch,
        platform=sys.platform,
        gpu_signs=_may_have_gpu(),
        wsl="microsoft" in platform.release().lower(),
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        notebook=notebook or ("Jupyter" if "JPY_PARENT_PID" in os.environ else None),
        no_network=None,
        environment=nccl_variables(),
    )


def nccl_variables() -> dict[str, str]:
    """What NCCL was told in the environment; no files and no names of machines."""
    told = {k: v for k, v in os.environ.items() if k.startswith("NCCL_")}
    private = ("FILE", "HOST", "COMM_ID")
    return {k: v for k, v in told.items() if "/" not in v and not any(p in k for p in private)}


def choose_backend(
    asked: str, gpus: int, shaped: bool, name: str = "ring", *, processes: bool = False
) -> Choice:
    """The backend of a run here. Torch is only imported where it may make a difference."""
    absent = importlib.util.find_spec("torch") is None
    # NCCL's refusal says what torch has.
    looks = not shaped and (asked == "nccl" or (asked != "gloo" and _may_have_gpu()))
    torch = torch_here() if absent or looks else Torch(version=version_of("torch"), gloo=True)
    return choose(machine_here(torch), asked, gpus, shaped=shaped, name=name, processes=processes)


def _may_have_gpu() -> bool:
    return any(Path(p).exists() for p in _GPU_SIGNS) or shutil.which("nvidia-smi") is not None


def info() -> dict[str, Any]:
    """All of it, as one JSON object."""
    machine = replace(machine_here(), no_network=why_not())
    torch = machine.torch
    backend, why = _choice(machine)
    no_latency = why_no_latency() if machine.no_network is None else None
    missing = [text for text in (torch.problem, machine.no_network, no_latency) if text]
    uses = {
        "ml_dtypes": "which bfloat16 needs",
        "psutil": "which runs need",
    } | ({"pynvml": "which counts bytes on NVLink"} if torch.cuda_devices else {})
    missing += [
        f"{package} is not installed, {use}: pip install {_PACKAGES.get(package, package)}"
        for package, use in uses.items()
        if importlib.util.find_spec(package) is None
    ]
    if not torch.problem and machine.devices < 2:
        missing.append("NCCL runs need two or more CUDA GPUs and a CUDA build of torch")
    return {
        "backend": backend,
        "why": why,
        "torch": torch.version,
        "cuda_devices": list(torch.cuda_devices),
        "nccl": torch.nccl,
        "gloo": torch.gloo,
        "shaped_network": _shaped_how(machine) if machine.no_network is None else None,
        "shaped_latency": machine.no_network is None and no_latency is None,
        "pyroute2": version_of("pyroute2"),
        "platform": sys.platform,
        "wsl": machine.wsl,
        "notebook": machine.notebook,
        "cores": os.cpu_count(),
        "missing": missing,
        "advice": advice(machine),
    }


_PACKAGES = {"pynvml": "nvidia-ml-py"}


def _choice(machine: Machine) -> tuple[str | None, str]:
    """Of a run of as many ranks as there are GPUs, at least two."""
    try:
        choice = choose(machine, "auto", max(2, machine.devices))
    except RunError as error:
        return None, str(error)
    return choice.backend, choice.why


def _shaped_words(found: dict[str, Any]) -> str:
    if not found["shaped_network"]:
        return "not here"
    added = "can be added (netem)" if found["shaped_latency"] else "cannot be added"
    return f"{found['shaped_network']}; latency {added}"


def _shaped_how(machine: Machine) -> str:
    return "as root" if machine.root else "in an unprivileged user namespace"


def version_of(package: str) -> str | None:
    """Of an installed package; None where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def as_text(found: dict[str, Any]) -> str:
    """For people; the first line is the answer."""
    cuda = ", ".join(found["cuda_devices"]) or "none"
    lines = [
        f"backend: {found['backend'] or 'none'}, because: {found['why']}",
        f"torch: {found['torch'] or 'absent'}",
        f"Gloo: {'here' if found['gloo'] else 'absent'}",
        f"NCCL: {found['nccl'] or 'absent'}; CUDA devices: {cuda}",
        f"shaped network: {_shaped_words(found)}",
        *(f"missing: {text}" for text in found["missing"]),
        *(f"note: {text}" for text in found["advice"]),
    ]
    return "\n".join(lines)
