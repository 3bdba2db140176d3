"""Messages on the wire as a table whose rows, the slots, are used again. Decides nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.schedule import IntArray
from simcore.solvers.timeline import Timed
from simcore.trace import FloatArray

Rows = list[int] | IntArray  # a list: few, for loops in Python; an array: many, for vectors

# Up to so many rows, a loop in Python takes less time than NumPy's calls.
FEW = 24


def few_or_many(rows: Rows) -> Rows:
    """The same as a list of a few, or as an array of many."""
    if len(rows) > FEW:
        return np.asarray(rows)
    return rows if isinstance(rows, list) else rows.tolist()


def cells(column: NDArray[Any]) -> Any:
    """The same memory, faster than an array to read and write one by one."""
    return memoryview(column)  # type: ignore[arg-type]  # a Buffer, as typing knows from 3.12 on


class Messages(Timed):
    """Messages that start and arrive by their rows; ``number`` tells apart those under way."""

    number: int
    routes: IntArray  # the links on each one's way, as from ``Network.routes``
    not_arrived: int


class Slots:
    """A row of columns for each message on the wire: row ``row`` of the messages number ``of``.

    It has sent all but ``left_bytes`` at ``since_s``, when it got its present ``rate``; so it ends
    at ``finish_s``, unless its rate changes. An empty slot's is NaN. ``born`` counts up.
    """

    _COLUMNS = ("of", "row", "born", "left_bytes", "rate", "since_s", "finish_s")

    def __init__(self) -> None:
        self.active, self._born = 0, 0
        self._empty, self._n_empty = np.zeros(0, np.int64), 0
        self.of: IntArray = np.zeros(0, np.int64)
        self.row, self.born = self.of, self.of
        self.left_bytes: FloatArray = np.zeros(0)
        self.rate, self.since_s, self.finish_s = (np.zeros(0) for _ in range(3))
        self.of_at: Any
        self.row_at: Any
        self.born_at: Any
        self.left_bytes_at: Any
        self.rate_at: Any
        self.since_s_at: Any
        self.finish_s_at: Any
        self._grow(16)

    def fill(self, messages: Messages, rows: Rows, now_s: float) -> IntArray:
        """Slots for messages that start now, with a rate of zero."""
        m = len(rows)
        if self._n_empty < m:
            self._grow(max(m - self._n_empty, len(self.of) // 2))
        self._n_empty -= m
        self.active += m
        slots = self._empty[self._n_empty : self._n_empty + m].copy()
        if isinstance(rows, list):
            for slot, row in zip(slots.tolist(), rows, strict=True):
                self.of_at[slot], self.row_at[slot] = messages.number, row
                self.born_at[slot] = self._born
                self.left_bytes_at[slot], self.rate_at[slot] = messages.nbytes.item(row), 0.0
                self.since_s_at[slot], self.finish_s_at[slot] = now_s, math.inf
                self._born += 1
        else:
            self.of[slots], self.row[slots] = messages.number, rows
            self.born[slots] = self._born + np.arange(m)
            self.left_bytes[slots], self.rate[slots] = messages.nbytes[rows], 0.0
            self.since_s[slots], self.finish_s[slots] = now_s, math.inf
            self._born += m
        return slots

    def _grow(self, by: int) -> None:
        size = len(self.of)
        for name in self._COLUMNS:
            column = getattr(self, name)
            longer = np.concatenate([column, np.zeros(by, column.dtype)])
            setattr(self, name, longer)
            setattr(self, f"{name}_at", cells(longer))
        self.finish_s[size:] = math.nan
        empty = np.append(self._empty[: self._n_empty], np.arange(size, size + by))
        self._empty, self._n_empty = np.zeros(size + by, np.int64), len(empty)
        self._empty[: len(empty)] = empty

    def give_back(self, slots: Rows) -> None:
        """Empty them."""
        m = len(slots)
        self._empty[self._n_empty : self._n_empty + m] = slots
        self._n_empty += m
        self.active -= m

    def active_slots(self) -> IntArray:
        """Those that are not empty."""
        return np.flatnonzero(~np.isnan(self.finish_s))
