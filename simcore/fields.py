"""JSON objects from files: values asked for by name and kind, errors that name the field."""

from __future__ import annotations

import json
import math
from typing import Any

from simcore.names import unknown
from simcore.units import parse_rate, parse_time


class Fields:
    """One JSON object whose values are asked for by name and kind."""

    def __init__(self, document: Any, accepted: dict[str, str], where: str) -> None:
        self.accepted, self.where = accepted, where
        if not isinstance(document, dict):
            raise ValueError(f"{where}: accepted is a JSON object, got {short(document)}")
        for name in document:
            if name not in accepted:
                raise ValueError(f"{where}: {unknown('field', name, accepted)}")
        self.document = document

    def __contains__(self, name: str) -> bool:
        return name in self.document

    def wrong(self, name: str, why: str = "") -> ValueError:
        """The error for a field's value."""
        got = f": {why}" if why else f" is {short(self.document.get(name))}"
        return ValueError(f"{self.where}: field {name!r}{got}; accepted: {self.accepted[name]}")

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        """The value, of that JSON type; ``float`` takes whole numbers too."""
        if name not in self.document:
            return default
        value = self.document[name]
        kinds = (int, float) if kind is float else kind
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(name)
        return value

    def number(self, name: str) -> float:
        """The value as a float; infinite for an integer of hundreds of digits."""
        try:
            return float(self.get(name, float))
        except OverflowError:
            return math.inf

    def rate(self, name: str) -> float | None:
        """Bytes per second, None if the field is not there."""
        return self._parsed(name, parse_rate)

    def time(self, name: str) -> float | None:
        """Seconds, None if the field is not there."""
        return self._parsed(name, parse_time)

    def _parsed(self, name: str, parse: Any) -> float | None:
        text = self.get(name, str)
        try:
            return None if text is None else float(parse(text))
        except ValueError as error:
            raise ValueError(f"{self.where}: field {name!r}: {error}") from None


def short(value: Any) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_json(text: str, where: str) -> Any:
    """The document, without NaN or infinities; an error is one line.

    >>> parse_json("[1, NaN]", "cluster file 'a.json'")
    Traceback (most recent call last):
    ValueError: cluster file 'a.json' is not JSON: NaN is not a number
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")
