"""What NVIDIA's management library and tools tell of the GPUs; None where there is none of it.

NVLink's counters count KiB of data that crossed a GPU's links, of whatever ran meanwhile.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any

_ALL_LINKS = 2**32 - 1  # NVML's scope for the sum over a GPU's links
_MOST_LINKS = 18
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # nvidia-smi underlines a header even in a pipe


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
    """Bytes of data that this GPU's links have sent and received so far; zero may mean that
    nothing counts them.
    """
    with nvml() as library:
        if library is None:
            return None
        try:
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
        except library.NVMLError:
            return None
        kib = _kib(library, handle, [_ALL_LINKS])
        if kib is None or 0 in kib:  # some drivers know no sum, others answer with a zero
            kib = _kib(library, handle, list(range(_MOST_LINKS))) or kib
    return None if kib is None else {"sent": 1024 * kib[0], "received": 1024 * kib[1]}


def _kib(library: Any, handle: Any, scopes: list[int]) -> tuple[int, int] | None:
    """Sums over the links that answer, each way; None where none does."""
    ways = (
        library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    )
    try:
        asked = [(way, scope) for way in ways for scope in scopes]
        values = library.nvmlDeviceGetFieldValues(handle, asked)
    except library.NVMLError:
        return None
    counted: dict[int, list[int]] = {way: [] for way in ways}
    for value in values:
        if value.nvmlReturn == 0:  # NVML_SUCCESS
            counted[value.fieldId].append(int(value.value.ullVal))
    sent, received = counted.values()
    return (sum(sent), sum(received)) if sent and received else None


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
    lines = [" ".join(line.split()) for line in _COLOUR.sub("", said).splitlines()]
    return [line for line in lines if line.startswith("GPU")] or None
