"""How an unknown name is refused: in one line, with the nearest one that is known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(what: str, name: str, accepted: Iterable[str]) -> str:
    """The message.

    >>> unknown("dtype", "flaot32", ["float32", "int64"])
    "unknown dtype 'flaot32'; did you mean 'float32'? accepted: float32, int64"
    """
    names = list(accepted)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {name!r};{hint} accepted: {', '.join(names)}"
