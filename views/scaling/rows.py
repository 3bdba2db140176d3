"""*Scaling* in rows: measured points on the lines, the table, the files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from simcore.measured.records import Record
from simcore.trace import Source
from simcore.units import format_time
from views.comparison import VENDOR_NAMES, same_setting
from views.race import Setting
from views.scaling.curves import Scaling, fastest, place
from views.scaling.lines import flags_for
from views.text import Text


@dataclass(frozen=True, slots=True)
class Point:
    """A measured run that lies on the lines' configuration: at ``x``, of the line ``name``."""

    name: str
    x: float
    record: Record


def measured_points(scaling: Scaling, records: Iterable[Record]) -> list[Point]:
    """The believable records on these lines."""
    own_name = {VENDOR_NAMES.get(name, name): name for name in scaling.lines}
    own_name |= {name: name for name in scaling.lines}
    found = []
    for record in records:
        name = own_name.get(record.name)
        if name is None or not record.believable or record.network_bytes_per_s is None:
            continue
        if record.flags != flags_for(name, record.gpus, scaling.network):
            continue
        x = {
            "gpus": float(record.gpus),
            "size": float(record.size_bytes),
            "bandwidth": record.network_bytes_per_s,
            "latency": 0.0,  # no place on a logarithmic axis
        }[scaling.axis]
        as_measured = scaling.base.frames and scaling.network == "flat"
        if x and as_measured and same_setting(record, scaling.at(x)):
            found.append(Point(name, x, record))
    return found


def table_header(scaling: Scaling, text: Text) -> list[str]:
    """Of ``table_rows``."""
    lines = [text(f"strategy.{name}") for name in scaling.lines]
    return [text(f"scaling.axis_{scaling.axis}"), *lines, text("scaling.bound")]


def table_rows(scaling: Scaling, points: Sequence[Point], text: Text) -> list[list[str]]:
    """One row per place: times, the fastest in bold, measured ones behind their sign."""
    rows = []
    for x in scaling.xs:
        best = fastest(scaling, x)
        cells = []
        for name in scaling.lines:
            cell = format_time(scaling.time_s(name, x))
            cell = f"**{cell}**" if name in best and len(scaling.lines) > 1 else cell
            for point in points:
                if point.name == name and point.x == x:
                    cell += f" {sign(point.record)}\u00a0{format_time(point.record.median_s)}"
            cells.append(cell)
        rows.append([place(scaling.axis, x), *cells, format_time(scaling.bound_s(x))])
    return rows


def sign(record: Record) -> str:
    """As on the race's time axis: full for a replay, hollow for the vendor's own run."""
    return "◆" if record.source == Source.REPLAYED.value else "◇"


def export_rows(scaling: Scaling, points: Sequence[Point]) -> list[dict[str, Any]]:
    """Simulated and measured times with their configuration, for files."""

    def row(source: str, name: str, at: Setting, time: float) -> dict[str, Any]:
        flags = " ".join(f"{k}={v}" for k, v in flags_for(name, at.gpus, scaling.network).items())
        return {
            "source": source,
            "algorithm": name,
            "flags": flags,
            "gpus": at.gpus,
            "size_bytes": at.size_bytes,
            "bytes_per_s": at.bytes_per_s,
            "latency_s": at.latency_s,
            "frame_headers": at.frames,
            "network": scaling.network,
            "time_s": time,
        }

    simulated = Source.SIMULATED.value
    rows = [
        row(simulated, name, scaling.at(x), scaling.time_s(name, x))
        for name in scaling.lines
        for x in scaling.xs
    ]
    rows += [row("lower bound", "", scaling.at(x), scaling.bound_s(x)) for x in scaling.xs]
    rows += [
        row(p.record.source, p.record.name, scaling.at(p.x), p.record.median_s) for p in points
    ]
    return rows
