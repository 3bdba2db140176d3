"""A run as its GPU sees it: time between CUDA events, bytes on NVLink. Nothing on the CPU."""

from __future__ import annotations

from typing import Any

import torch

from real_gpu.device.counters import nvlink_bytes


class DeviceClock:
    """Made before a run; ``begin`` and ``end`` stand around what is timed, and cost little.

    >>> clock = DeviceClock(torch.device("cpu"))
    >>> clock.begin(), clock.end(), clock.seen()
    (None, None, None)
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.events: list[Any] = []
        self.before: dict[str, int] | None = None
        if device.type == "cuda":
            event: Any = torch.cuda.Event
            self.events = [event(enable_timing=True) for _ in range(2)]
            self.before = nvlink_bytes(self._uuid())

    def _uuid(self) -> str:
        uuid = getattr(torch.cuda.get_device_properties(self.device), "uuid", "")
        return f"GPU-{uuid}"

    def begin(self) -> None:
        """From here on."""
        if self.events:
            self.events[0].record()

    def end(self) -> None:
        """Up to here, when the GPU comes to it."""
        if self.events:
            self.events[1].record()

    def seen(self) -> dict[str, Any] | None:
        """Seconds, and bytes on this GPU's links; call it when the device has been waited for."""
        if not self.events:
            return None
        after = nvlink_bytes(self._uuid()) if self.before is not None else None
        links = {
            f"nvlink_{way}_bytes": None
            if after is None or self.before is None
            else after[way] - self.before[way]
            for way in ("sent", "received")
        }
        return {"device_s": self.events[0].elapsed_time(self.events[1]) / 1e3, **links}
