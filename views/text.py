"""Words in the reader's language: one catalogue per language, sentences with placeholders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

LANGUAGES = {"en": "English", "zh": "中文"}
HTML_LANGUAGES = {"en": "en", "zh": "zh-CN"}

# Between a Chinese character and a Latin letter or digit, where a value meets the phrase around it.
_SEAM = re.compile(r"(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])")


@dataclass(frozen=True, slots=True)
class Text:
    """The phrases of one language.

    >>> load_text("en")("race.question")
    'Who finishes first, and who is the bottleneck?'
    """

    language: str
    phrases: Mapping[str, str]

    def __call__(self, key: str, **values: object) -> str:
        """The phrase with its placeholders filled in; an unknown key is a ``KeyError``."""
        return _SEAM.sub(" ", self.phrases[key].format(**values))

    def under(self, prefix: str) -> dict[str, str]:
        """Phrases whose key starts with ``prefix.``, without it, placeholders left open."""
        start = prefix + "."
        return {key[len(start) :]: p for key, p in self.phrases.items() if key.startswith(start)}


@cache
def load_text(language: str) -> Text:
    """The catalogue of ``en`` or ``zh``."""
    if language not in LANGUAGES:
        raise ValueError(f"language {language!r}; accepted: {', '.join(LANGUAGES)}")
    file = resources.files("views").joinpath(f"locale/{language}.json")
    return Text(language, json.loads(file.read_text(encoding="utf-8")))
