"""What the commands share: an argument parser whose errors are one line, and checks of values."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from real_gpu.job import RunError


class Parser(argparse.ArgumentParser):
    """argparse whose errors are a ``ValueError``, as those of every other bad input."""

    def error(self, message: str) -> NoReturn:
        """Say it in one line."""
        raise ValueError(message)


def check_writable(*paths: str | None) -> None:
    """Before a run that takes minutes, rather than after it; None is a file not asked for."""
    for path in paths:
        if path is None:
            continue
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


def whole(flag: str, text: str, at_least: int, at_most: int | None = None) -> int:
    """A whole number in this range, or a ``ValueError`` that names the flag."""
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least or (at_most is not None and value > at_most):
        accepted = f"at least {at_least}" if at_most is None else f"{at_least} to {at_most}"
        raise ValueError(f"{flag} {text!r}: accepted is a whole number, {accepted}")
    return value


def check_ranks(gpus: int, n: int, most: int) -> None:
    """A ``ValueError`` where ``gpus`` with servers on top are more than ``most`` ranks."""
    if n > most:
        raise ValueError(f"--gpus {gpus}, with servers {n} ranks; accepted: at most {most} ranks")


@contextlib.contextmanager
def said_as_flags(names: Iterable[str]) -> Iterator[None]:
    """What the core refuses by its own names is refused by those of the command line.

    >>> with said_as_flags(["gpus_per_node"]):
    ...     raise ValueError("gpus_per_node must divide 4 GPUs, got 3")
    Traceback (most recent call last):
    ValueError: --gpus-per-node must divide 4 GPUs, got 3
    """
    named = re.compile(rf"(?<![\w-])({'|'.join(names)})(?= must|$)")
    try:
        yield
    except ValueError as error:
        as_flag = named.sub(lambda found: f"--{found[1].replace('_', '-')}", str(error))
        raise ValueError(as_flag) from None


def check_instrument(path: str, instrument: dict[str, Any] | None) -> None:
    """A ``RunError`` where the record in ``path`` is not to be believed."""
    if instrument is not None and not instrument["ok"]:
        reasons = "; ".join(instrument["reasons"])
        raise RunError(f"{path} is written, but the instrument was not quiet: {reasons}")
