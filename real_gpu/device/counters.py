"""What NVIDIA's management library and tools tell of the GPUs; None where there is none of it.

NVLink's counters count KiB of data that crossed a GPU's links, of whatever ran meanwhile.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

_ALL_LINKS = 2**32 - 1  # NVML's scope for the sum over a GPU's links
_MOST_LINKS = 18


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """The library, initialised; None where the package or the driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver, no permission
        yield None
        return
    try:
        yield pynvml
    finally:
        with contextlib.suppress(Exception):
            pynvml.nvmlShutdown()


def nvlink_bytes(uuid: str) -> dict[str, int] | None:
    """Bytes of data that this GPU's links have sent and received so far."""
    with nvml() as library:
        if library is None:
            return None
        try:
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
        except library.NVMLError:
            return None
        for scopes in ([_ALL_LINKS], list(range(_MOST_LINKS))):  # older drivers know no sum
            if found := _kib(library, handle, scopes):
                return {"sent": 1024 * found[0], "received": 1024 * found[1]}
    return None


def _kib(library: Any, handle: Any, scopes: list[int]) -> tuple[int, int] | None:
    """Sums over the links that answer; None where none does."""
    ways = (
        library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    )
    try:
        asked = [(way, scope) for way in ways for scope in scopes]
        values = library.nvmlDeviceGetFieldValues(handle, asked)
    except library.NVMLError:
        return None
    sums, answered = dict.fromkeys(ways, 0), 0
    for value in values:
        if value.nvmlReturn == 0:  # NVML_SUCCESS
            sums[value.fieldId] += int(value.value.ullVal)
            answered += 1
    return (sums[ways[0]], sums[ways[1]]) if answered else None


def driver_version() -> str | None:
    """Of the GPUs' driver."""
    with nvml() as library:
        if library is None:
            return None
        version = library.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)


def topology() -> list[str] | None:
    """The matrix of ``nvidia-smi topo -m``: how each two GPUs are linked; its lines for GPUs."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "topo", "-m"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [" ".join(line.split()) for line in said.splitlines()]
    return [line for line in lines if line.startswith("GPU")] or None
