"""How far a validation is: a bar with the time left, or a line for each group of cells."""

from __future__ import annotations

import importlib.util
import sys
from types import TracebackType
from typing import Any


def time_left(seconds: float) -> str:
    """As people say it.

    >>> time_left(58.4), time_left(330)
    ('58 s', '6 min')
    """
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{-(-seconds // 60):.0f} min"


class Progress:
    """Writes to standard error, so that standard output holds the answer alone."""

    def __init__(self, total_s: float) -> None:
        self.left_s = self.total_s = total_s
        self.bar: Any = None
        if sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None:
            from tqdm import tqdm

            form = "{desc} {percentage:3.0f}% |{bar}| {elapsed} gone, {remaining} left"
            self.bar = tqdm(total=total_s, file=sys.stderr, bar_format=form, leave=False)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def begin(self, what: str) -> None:
        """What is being done now, said once for each group."""
        if self.bar is None:
            self.say(f"{what}; about {time_left(self.left_s)} left")
        else:
            self.bar.set_description_str(what)

    def now(self, what: str) -> None:
        """What is being done now, said on the bar only."""
        if self.bar is not None:
            self.bar.set_description_str(what)

    def did(self, seconds: float) -> None:
        """So much of the expected time is behind us."""
        self.left_s -= seconds
        if self.bar is not None:
            self.bar.update(min(seconds, self.total_s - self.bar.n))

    def say(self, line: str) -> None:
        """A line that stays."""
        if self.bar is None:
            print(line, file=sys.stderr, flush=True)  # noqa: T201
        else:
            self.bar.write(line, file=sys.stderr)
