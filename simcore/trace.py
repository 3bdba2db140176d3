"""What happened when: one columnar value for simulated, replayed and vendor runs.

No drawing. A trace says where its numbers come from (``Source``), and that never changes.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from simcore.schedule import IntArray, Op

FloatArray = NDArray[np.float64]

FORMAT = "syncscope-trace"
VERSION = 1
CSV_HEADER = (
    *("source", "rank", "lane", "label", "step", "peer", "chunk", "op"),
    *("start_s", "end_s", "bytes"),
)


class Source(Enum):
    """Where a number comes from; never mixed in one table, chart or file without saying so."""

    SIMULATED = "simulated"  # our engine
    REPLAYED = "replayed"  # our schedule on real links
    VENDOR = "vendor"  # the library's own: torch, NCCL, Gloo


class Lane(IntEnum):
    """The rows of a rank in a timeline. A collective lasts from its entering to its leaving."""

    COMPUTE = 0
    SEND = 1
    RECEIVE = 2
    COLLECTIVE = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """One row per span. A transfer is two: ``SEND`` on its source, ``RECEIVE`` on its target.

    A send lasts while its bytes leave the port; the receive is the same, ``latency`` later.
    It carries the chunks ``chunk`` to ``chunk + width - 1``. ``peer``, ``chunk`` and ``step`` are
    -1 where they do not apply.
    """

    rank: IntArray
    lane: IntArray
    step: IntArray
    peer: IntArray
    chunk: IntArray
    op: IntArray
    width: IntArray
    start_s: FloatArray
    end_s: FloatArray
    nbytes: IntArray

    def __len__(self) -> int:
        return len(self.rank)

    def label(self, row: int) -> str:
        """The transfer's text, the key that joins a simulated span to a measured one."""
        if self.peer[row] < 0:
            return str(Lane(self.lane[row]))
        ends = (int(self.rank[row]), int(self.peer[row]))
        src, dst = ends if self.lane[row] == Lane.SEND else ends[::-1]
        op = Op(self.op[row])
        return f"{self.step[row]}: {src}->{dst} c{self.chunks_of(row)} {op}"

    def chunks_of(self, row: int) -> str:
        """``3``, or ``3-5`` where the message carries several."""
        first, last = self.chunk[row], self.chunk[row] + self.width[row] - 1
        return f"{first}" if first == last else f"{first}-{last}"


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Where a span's rate changed: its parts of constant rate. Other spans have one rate."""

    span: IntArray
    start_s: FloatArray
    end_s: FloatArray
    nbytes: FloatArray

    def __len__(self) -> int:
        return len(self.span)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A run of ``n`` ranks that took ``time_s``; bytes are payload per rank.

    With ``spans`` empty the trace holds totals only. A run of several ``tasks`` says in
    ``task_of``, shape ``(spans,)``, to which of them each span belongs.
    """

    source: Source
    name: str
    n: int
    time_s: float
    sent_bytes: IntArray
    received_bytes: IntArray
    spans: Spans
    pieces: Pieces
    tasks: tuple[str, ...] = ()
    task_of: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def label(self, row: int) -> str:
        """What the span is: its transfer's text, its task, or both."""
        if not self.tasks:
            return self.spans.label(row)
        task = self.tasks[self.task_of[row]]
        return task if self.spans.peer[row] < 0 else f"{task} · {self.spans.label(row)}"

    def bytes_at(self, t_s: float) -> tuple[FloatArray, FloatArray]:
        """Bytes that each rank has sent and received by ``t_s``: two arrays of shape ``(n,)``."""
        rows = self.constant_rate_rows()
        length = rows.end_s - rows.start_s
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(length > 0, (t_s - rows.start_s) / length, t_s >= rows.start_s)
        moved = rows.nbytes * np.clip(share, 0.0, 1.0)
        rank, lane = self.spans.rank[rows.span], self.spans.lane[rows.span]

        def of(which: Lane) -> FloatArray:
            rows_of = lane == which
            total = np.bincount(rank[rows_of], moved[rows_of], minlength=self.n)
            return total.astype(np.float64)

        return of(Lane.SEND), of(Lane.RECEIVE)

    def constant_rate_rows(self) -> Pieces:
        """Every span as pieces of constant rate: itself, or the parts that it is made of."""
        whole = np.setdiff1d(np.arange(len(self.spans)), self.pieces.span)
        return Pieces(
            np.concatenate([whole, self.pieces.span]),
            np.concatenate([self.spans.start_s[whole], self.pieces.start_s]),
            np.concatenate([self.spans.end_s[whole], self.pieces.end_s]),
            np.concatenate([self.spans.nbytes[whole].astype(np.float64), self.pieces.nbytes]),
        )

    def to_json(self) -> str:
        """One JSON document, columns as lists; ``from_json`` is its inverse."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "source": self.source.value,
            "name": self.name,
            "n": self.n,
            "time_s": self.time_s,
            "sent_bytes": self.sent_bytes.tolist(),
            "received_bytes": self.received_bytes.tolist(),
            "spans": _lists(self.spans),
            "pieces": _lists(self.pieces),
        }
        if self.tasks:
            document |= {"tasks": list(self.tasks), "task_of": self.task_of.tolist()}
        return json.dumps(document, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """A trace from ``to_json``'s text; anything else is a ``ValueError`` that says what."""
        try:
            document = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"not a trace: not JSON ({error})") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"not a trace: accepted are documents with format {FORMAT!r}")
        if document.get("version") != VERSION:
            raise ValueError(
                f"trace version {document.get('version')!r} is not accepted; accepted: {VERSION}"
            )
        try:
            trace = cls(
                Source(document["source"]),
                str(document["name"]),
                int(document["n"]),
                float(document["time_s"]),
                np.asarray(document["sent_bytes"], np.int64),
                np.asarray(document["received_bytes"], np.int64),
                _columns(Spans, document["spans"]),
                _columns(Pieces, document["pieces"]),
                tuple(map(str, document.get("tasks", ()))),
                np.asarray(document.get("task_of", ()), np.int64),
            )
            trace._check()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a trace: {type(error).__name__}: {error}") from None
        return trace

    def _check(self) -> None:
        """What the other methods rely on; only text from elsewhere can get it wrong."""
        spans, pieces = self.spans, self.pieces
        if not self.sent_bytes.shape == self.received_bytes.shape == (self.n,):
            raise ValueError(f"bytes must be lists of {self.n} numbers")
        if self.task_of.shape != ((len(spans),) if self.tasks else (0,)):
            raise ValueError("task_of must name a task for every span")
        for name, values, end in (
            ("rank", spans.rank, self.n),
            ("lane", spans.lane, len(Lane)),
            ("op", spans.op, len(Op)),
            ("span", pieces.span, len(spans)),
            ("task_of", self.task_of, len(self.tasks)),
        ):
            if ((values < 0) | (values >= end)).any():
                raise ValueError(f"{name} must be from 0 to {end - 1}")
        times = (spans.start_s, spans.end_s, pieces.start_s, pieces.end_s, pieces.nbytes)
        if not np.isfinite(np.concatenate([[self.time_s], *times])).all():
            raise ValueError("numbers must be finite")

    def to_csv(self) -> str:
        """One line per span, with a header."""
        out = io.StringIO()
        write = csv.writer(out, lineterminator="\n").writerow
        write(CSV_HEADER)
        columns = (getattr(self.spans, f.name).tolist() for f in fields(Spans))
        for row, (rank, lane, step, peer, _, op, _, start_s, end_s, nbytes) in enumerate(
            zip(*columns, strict=True)
        ):
            chunk = self.spans.chunks_of(row)
            name, label = str(Lane(lane)), self.label(row)
            write(
                [
                    self.source.value,
                    rank,
                    name,
                    label,
                    step,
                    peer,
                    chunk,
                    Op(op),
                    start_s,
                    end_s,
                    nbytes,
                ]
            )
        return out.getvalue()

    def to_perfetto(self) -> str:
        """Chrome trace events, which Perfetto opens: pid = rank, tid = lane, times in µs.

        Slices of one track must not overlap, so simultaneous transfers get tracks of their own
        (``receive``, ``receive 2`` …).
        """
        events: list[dict[str, Any]] = []
        for rank in range(self.n):
            name = {"name": f"rank {rank} ({self.source.value})"}
            events.append({"ph": "M", "pid": rank, "name": "process_name", "args": name})
        tracks = _tracks(self.spans)
        for rank, lane, track in sorted(
            set(zip(self.spans.rank.tolist(), self.spans.lane.tolist(), tracks, strict=True))
        ):
            title = str(Lane(lane)) + (f" {track + 1}" if track else "")
            ids = {"pid": rank, "tid": lane + len(Lane) * track}
            events.append({"ph": "M", **ids, "name": "thread_name", "args": {"name": title}})
        for row, track in enumerate(tracks):
            start_us, end_us = self.spans.start_s[row] * 1e6, self.spans.end_s[row] * 1e6
            events.append(
                {
                    "ph": "X",
                    "name": self.label(row),
                    "cat": self.source.value,
                    "pid": int(self.spans.rank[row]),
                    "tid": int(self.spans.lane[row]) + len(Lane) * track,
                    "ts": float(start_us),
                    "dur": float(end_us - start_us),
                    "args": {"bytes": int(self.spans.nbytes[row])},
                }
            )
        other = {"algorithm": self.name, "source": self.source.value, "time_s": self.time_s}
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other})


def _tracks(spans: Spans) -> list[int]:
    """For each span the first track of its rank and lane that is free when it starts."""
    free_at: dict[tuple[int, int], list[float]] = {}
    tracks = [0] * len(spans)
    for row in np.lexsort((spans.end_s, spans.start_s)).tolist():
        ends = free_at.setdefault((int(spans.rank[row]), int(spans.lane[row])), [])
        start_s, end_s = float(spans.start_s[row]), float(spans.end_s[row])
        track = next((i for i, end in enumerate(ends) if end <= start_s), len(ends))
        ends[track : track + 1] = [end_s]
        tracks[row] = track
    return tracks


def _lists(columns: Spans | Pieces) -> dict[str, list[float]]:
    return {f.name: getattr(columns, f.name).tolist() for f in fields(columns)}


_FLOATS = {Spans: ("start_s", "end_s"), Pieces: ("start_s", "end_s", "nbytes")}
_T = TypeVar("_T", Spans, Pieces)


def _columns(cls: type[_T], lists: dict[str, Any]) -> _T:
    arrays: dict[str, Any] = {
        f.name: np.asarray(lists[f.name], np.float64 if f.name in _FLOATS[cls] else np.int64)
        for f in fields(cls)
    }
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1 or arrays["start_s"].ndim != 1:
        raise ValueError(f"columns must be lists of equal length, got shapes {shapes}")
    return cls(**arrays)


def no_spans() -> Spans:
    """Zero rows, for a trace of totals only."""
    return _columns(Spans, {f.name: [] for f in fields(Spans)})


def no_pieces() -> Pieces:
    """Zero rows: every span has one rate."""
    return _columns(Pieces, {f.name: [] for f in fields(Pieces)})


def joined(first: Spans, second: Spans) -> Spans:
    """All rows of the first, then all of the second."""
    both = {f.name: (getattr(first, f.name), getattr(second, f.name)) for f in fields(Spans)}
    return Spans(**{name: np.concatenate(columns) for name, columns in both.items()})
