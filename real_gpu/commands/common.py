"""What the commands share: an argument parser whose errors are one line, and checks of values."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NoReturn

from real_gpu.job import RunError


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say it and leave with 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def check_writable(*paths: str) -> None:
    """Before a run that takes minutes, rather than after it."""
    for path in paths:
        if Path(path).is_dir() or not Path(path).absolute().parent.is_dir():
            raise ValueError(
                f"file {path!r} cannot be written; accepted: a file in a folder that exists"
            )


def write(path: str, text: str) -> None:
    """Text to a file; what prevents it is a ``RunError``."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"file {path!r} cannot be written: {error.strerror}") from None


def whole(flag: str, text: str, at_least: int) -> int:
    """A whole number of at least so much, or a ``ValueError`` that names the flag."""
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise ValueError(f"{flag} {text!r}: accepted is a whole number, at least {at_least}")
    return value


def check_instrument(path: str, instrument: dict[str, Any] | None) -> None:
    """A ``RunError`` where the record in ``path`` is not to be believed."""
    if instrument is not None and not instrument["ok"]:
        reasons = "; ".join(instrument["reasons"])
        raise RunError(f"{path} is written, but the instrument was not quiet: {reasons}")
