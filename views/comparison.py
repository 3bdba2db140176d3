"""Simulated beside measured: one column per strategy, each number under its source.

A measured run holds for its own configuration only, so it is compared with the simulation of that
configuration, never with the one on the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from simcore.measured.records import Record, nearest
from simcore.trace import Source
from simcore.units import format_bytes, format_time, parse_time
from views.player import Mark
from views.race import Run, Setting
from views.text import Text

# What a library does itself where a strategy of ours does the like.
VENDOR_NAMES = {"ring": "torch.all_reduce"}


@dataclass(frozen=True, slots=True)
class Measured:
    """The records nearest to a run, one per source; None where nothing near was measured."""

    replayed: Record | None
    vendor: Record | None

    @property
    def records(self) -> tuple[Record, ...]:
        """Those that there are."""
        return tuple(r for r in (self.replayed, self.vendor) if r)


def measured(name: str, setting: Setting, records: Iterable[Record]) -> Measured:
    """The nearest shipped records for a strategy."""
    rows = tuple(records)
    at = (setting.gpus, setting.size_bytes, setting.bytes_per_s)
    replays = [r for r in rows if r.source == Source.REPLAYED.value]
    vendors = [r for r in rows if r.source == Source.VENDOR.value]
    vendor = VENDOR_NAMES.get(name)
    return Measured(nearest(replays, name, *at), nearest(vendors, vendor, *at) if vendor else None)


def same_setting(record: Record, setting: Setting) -> bool:
    """Whether the record was measured with exactly what is on the screen."""
    latency = (record.network or "").partition(",")[2] or "0"
    at = (record.gpus, record.size_bytes, record.network_bytes_per_s, parse_time(latency))
    return at == (setting.gpus, setting.size_bytes, setting.bytes_per_s, setting.latency_s)


def marks(found: Measured, setting: Setting, text: Text) -> tuple[Mark, ...]:
    """Measured times for the time axis: only runs of the very setting that the axis shows."""
    return tuple(
        Mark(
            record.source,
            record.median_s,
            min(record.runs_s),
            max(record.runs_s),
            text(
                f"race.mark_{record.source}",
                name=record.name,
                time=format_time(record.median_s),
                runs=len(record.runs_s),
            ),
        )
        for record in found.records
        if same_setting(record, setting)
    )


def simulated_rows(runs: Sequence[Run], size_bytes: int, text: Text) -> list[list[str]]:
    """Times and bytes of the setting on the screen."""
    rows = [
        [text("race.row_simulated"), *(format_time(run.time_s) for run in runs)],
        [text("race.row_bound"), *(format_time(run.simulation.lower_bound_s) for run in runs)],
    ]
    for way in ("sent", "received"):
        columns = [getattr(run.trace, f"{way}_bytes").tolist() for run in runs]
        busiest = [_share(max(column), size_bytes) for column in columns]
        rows.append([text(f"race.row_{way}_busiest"), *busiest])
        rows.append([text(f"race.row_{way}_others"), *(_others(c, size_bytes) for c in columns)])
    return rows


def _others(column: list[int], size_bytes: int) -> str:
    """What every rank but the busiest carries, once or as a range."""
    rest = sorted(column)[:-1]
    shares = list(dict.fromkeys(_share(nbytes, size_bytes) for nbytes in (rest[0], rest[-1])))
    return " – ".join(shares)


def _share(nbytes: int, size_bytes: int) -> str:
    return f"{binary_bytes(nbytes)} ({nbytes / size_bytes:.3g}\u00a0S)"


def binary_bytes(nbytes: float) -> str:
    """Bytes with binary prefixes throughout, as on the player's counters.

    >>> binary_bytes(12_582_912), binary_bytes(11_184_812)
    ('12 MiB', '10.67 MiB')
    """
    unit, factor = binary_unit(nbytes)
    return f"{nbytes / factor:.4g} {unit}" if factor > 1 else f"{nbytes:.0f} B"


def binary_unit(nbytes: float) -> tuple[str, int]:
    """The largest unit that is not larger, and its bytes.

    >>> binary_unit(25_165_824), binary_unit(1000)
    (('MiB', 1048576), ('B', 1))
    """
    units = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    return next(((unit, factor) for unit, factor in units if nbytes >= factor), ("B", 1))


def measured_rows(found: Sequence[Measured], text: Text) -> list[list[str]]:
    """What was measured, and the simulation of the same; no rows where nothing near was."""
    if not any(m.records for m in found):
        return []
    replays, vendors = [m.replayed for m in found], [m.vendor for m in found]
    either = [m.replayed or m.vendor for m in found]
    none = text("race.none")

    def row(key: str, records: Sequence[Record | None], cell: Callable[[Record], str]) -> list[str]:
        return [text(key), *(none if r is None else cell(r) for r in records)]

    rows = [
        row("race.row_measured_at", either, lambda r: configuration(r, text)),
        row("race.row_simulated_there", either, lambda r: _simulated(r, text)),
        row("race.row_replayed", replays, lambda r: _time(r, text)),
        row("race.row_error", replays, lambda r: _error(r, r, text)),
        row("race.row_counted", replays, lambda r: _counted(r, text)),
    ]
    for name in dict.fromkeys(r.name for r in vendors if r):
        rows.append([text("race.row_vendor", name=name), *(_vendor(m, text) for m in found)])
    errors = [_vendor_error(m, text) for m in found]
    if any(error != none for error in errors):
        rows.append([text("race.row_vendor_error"), *errors])
    return rows


def configuration(record: Record, text: Text) -> str:
    """Where a record holds: GPUs, size, network."""
    size = format_bytes(record.size_bytes)
    return text("race.config", gpus=record.gpus, size=size, network=record.network)


def _time(record: Record, text: Text) -> str:
    return text("race.runs", time=format_time(record.median_s), runs=len(record.runs_s))


def _vendor(found: Measured, text: Text) -> str:
    """The vendor's time; with its configuration, where that is not the replay's above it."""
    if found.vendor is None:
        return text("race.none")
    time, where = _time(found.vendor, text), configuration(found.vendor, text)
    same = found.replayed is None or configuration(found.replayed, text) == where
    return time if same else f"{time} ({where})"


def _simulated(record: Record, text: Text) -> str:
    return format_time(record.simulated["time_s"]) if record.simulated else text("race.none")


def _vendor_error(found: Measured, text: Text) -> str:
    """Where its record holds no simulation: that of our own schedule, for the same configuration.

    What the vendor's library does inside, nobody simulates.
    """
    vendor, replayed = found.vendor, found.replayed
    if vendor is None:
        return text("race.none")
    if vendor.simulated or replayed is None:
        return _error(vendor, vendor, text)
    same = configuration(vendor, text) == configuration(replayed, text)
    return _error(replayed, vendor, text) if same else text("race.none")


def _error(simulated: Record, measured_in: Record, text: Text) -> str:
    """The one's simulated time against the other's measured one."""
    if not simulated.simulated:
        return text("race.none")
    measured_s = measured_in.median_s
    error = (simulated.simulated["time_s"] - measured_s) / measured_s
    shown = round(100 * error, 1)
    value = f"{shown:+.1f}".replace("-", "−") if shown else "0.0"
    return text("common.percent", value=value)


def _counted(record: Record, text: Text) -> str:
    """Whole frames at each rank's own port: the busiest rank, and the least busy."""
    counted = record.counter_sent_bytes
    if counted is None:
        return text("race.none")
    most, least = max(counted), min(counted)
    if most < 1.02 * least:
        return text("race.each", size=binary_bytes(most))
    return text("race.most_least", most=binary_bytes(most), least=binary_bytes(least))
