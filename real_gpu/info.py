"""What this machine has for real runs, which backend a run would use, and why."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from real_gpu.job import RunError
from real_gpu.shaped import why_not

_HOW_TORCH = "pip install torch (the package's extra 'real' has all that runs need)"
_GPU_SIGNS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


@dataclass(frozen=True, slots=True)
class Torch:
    """What the installed torch can do; ``problem`` says why it can do nothing."""

    version: str | None = None
    cuda_devices: tuple[str, ...] = ()
    nccl: str | None = None
    gloo: bool = False
    problem: str | None = None


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
    )


def choose_backend(asked: str, gpus: int, shaped: bool) -> str:
    """The backend of a run of ``gpus`` ranks; a ``RunError`` where there is none."""
    if importlib.util.find_spec("torch") is None:
        raise RunError(f"torch is not installed: {_HOW_TORCH}")
    if shaped or asked == "gloo":
        return "gloo"
    if asked == "auto" and not _may_have_gpu():
        return "gloo"  # without the seconds that importing torch takes
    torch = torch_here()
    if torch.problem:
        raise RunError(torch.problem)
    have = len(torch.cuda_devices)
    if torch.nccl and gpus <= have and have >= 2:
        return "nccl"
    if asked == "auto":
        return "gloo"
    lack = "this torch has no NCCL" if not torch.nccl else f"{have} CUDA devices are here"
    raise RunError(f"{gpus} ranks over NCCL need as many CUDA devices; {lack}; use --backend gloo")


def _may_have_gpu() -> bool:
    return any(Path(p).exists() for p in _GPU_SIGNS) or shutil.which("nvidia-smi") is not None


def info() -> dict[str, Any]:
    """All of it, as one JSON object."""
    torch, no_network = torch_here(), why_not()
    backend, why = _choice(torch)
    missing = [text for text in (torch.problem, no_network) if text]
    missing += [
        f"{package} is not installed, {use}: pip install {package}"
        for package, use in (("ml_dtypes", "which bfloat16 needs"), ("psutil", "which runs need"))
        if importlib.util.find_spec(package) is None
    ]
    if not torch.problem and len(torch.cuda_devices) < 2:
        missing.append("NCCL runs need two or more CUDA GPUs and a CUDA build of torch")
    return {
        "backend": backend,
        "why": why,
        "torch": torch.version,
        "cuda_devices": list(torch.cuda_devices),
        "nccl": torch.nccl,
        "gloo": torch.gloo,
        "shaped_network": _shaped_how() if no_network is None else None,
        "pyroute2": _version("pyroute2"),
        "platform": sys.platform,
        "cores": os.cpu_count(),
        "missing": missing,
    }


def _choice(torch: Torch) -> tuple[str | None, str]:
    if torch.problem:
        return None, torch.problem
    if torch.nccl and len(torch.cuda_devices) >= 2:
        return "nccl", f"{len(torch.cuda_devices)} CUDA devices and NCCL {torch.nccl}"
    if torch.gloo:
        have = f"{len(torch.cuda_devices)} CUDA devices" if torch.cuda_devices else "no CUDA device"
        return "gloo", f"{have}, so ranks are processes on the CPU"
    return None, "this torch has neither NCCL with two GPUs nor Gloo"


def _shaped_how() -> str:
    return "as root" if os.geteuid() == 0 else "in an unprivileged user namespace"


def _version(package: str) -> str | None:
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
        f"shaped network: {found['shaped_network'] or 'not here'}",
        *(f"missing: {text}" for text in found["missing"]),
    ]
    return "\n".join(lines)
