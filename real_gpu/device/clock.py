"""A run as its GPU sees it: time between CUDA events, bytes on NVLink. Nothing on the CPU."""

from __future__ import annotations

import time
from typing import Any

import torch

from real_gpu.device.counters import nvlink_bytes
from real_gpu.processes.clocks import compare


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
        before, after = self.before, self.before and nvlink_bytes(self._uuid())
        links = {  # a counter that stands at zero even now counts nothing
            f"nvlink_{way}_bytes": after[way] - before[way]
            if before and after and after[way]
            else None
            for way in ("sent", "received")
        }
        return {"device_s": self.events[0].elapsed_time(self.events[1]) / 1e3, **links}


class Stamps:
    """Moments that the device's stream reaches, on this process's clock; of the CPU, its own.

    The device's clock is compared with ours as that of another machine is. A stamp on a device is
    an event in its stream, which is not free: timed runs do without.

    >>> stamps = Stamps(torch.device("cpu"))
    >>> before, after = stamps.stamp(), stamps.stamp()
    >>> stamps.seconds(before) <= stamps.seconds(after)
    True
    """

    def __init__(self, device: torch.device) -> None:
        self.on_device = device.type == "cuda"
        if self.on_device:
            _, self.zero = self.stamp()
            self.offset = compare(self._shown_s, time.monotonic)

    def stamp(self) -> Any:
        """Now, or on a device when its current stream comes to it."""
        if not self.on_device:
            return time.monotonic()
        event: Any = torch.cuda.Event
        event = event(enable_timing=True)
        asked_s = time.monotonic()
        event.record()
        return asked_s, event

    def settle(self) -> None:
        """Wait until the device has come to every stamp."""
        if self.on_device:
            torch.cuda.synchronize()

    def seconds(self, stamp: Any) -> float:
        """When that was: not before it was asked for, and, since the device must have been waited
        for, not later than now.
        """
        if not self.on_device:
            return float(stamp)
        asked_s, event = stamp
        reached_s = self.offset.here(self._since_zero_s(event))
        return float(min(max(asked_s, reached_s), time.monotonic()))

    def _shown_s(self) -> float:
        _, event = self.stamp()
        event.synchronize()
        return self._since_zero_s(event)

    def _since_zero_s(self, event: Any) -> float:
        return float(self.zero.elapsed_time(event)) / 1e3
