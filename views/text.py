"""Words in the reader's language: one catalogue per language, sentences with placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po

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

    def joined(self, sentences: Iterable[str]) -> str:
        """One after another: with a space between them, which Chinese does not have."""
        return (" " if self.language == "en" else "").join(sentences)

    def several(self, names: Iterable[str]) -> str:
        """Names one after another, the last behind an "and".

        >>> load_text("en").several(["a", "b", "c"]), load_text("zh").several(["a", "b"])
        ('a, b and c', 'a 和 b')
        """
        *most, last = names
        joined = self("whatif.comma").join(most)
        return _SEAM.sub(" ", joined + self("whatif.and") + last if most else last)

    def strategy(self, name: str) -> str:
        """What people call an algorithm.

        >>> load_text("en").strategy("ps")
        'Central server'
        """
        return self(f"strategy.{name}")

    def under(self, prefix: str) -> dict[str, str]:
        """Phrases whose key starts with ``prefix.``, without it, placeholders left open."""
        start = prefix + "."
        return {key[len(start) :]: p for key, p in self.phrases.items() if key.startswith(start)}


def language_of(name: str) -> str | None:
    """The language that somebody means, by its name or by a code with any region.

    >>> language_of("中文"), language_of("zh-CN"), language_of("EN_us"), language_of("fr")
    ('zh', 'zh', 'en', None)
    """
    names = {own.lower(): code for code, own in LANGUAGES.items()}
    code = name.strip().lower()
    return names.get(code) or next((c for c in LANGUAGES if c == re.split("[-_]", code)[0]), None)


@cache
def load_text(language: str) -> Text:
    """The catalogue of ``en`` or ``zh``."""
    if language not in LANGUAGES:
        raise ValueError(f"language {language!r}; accepted: {', '.join(LANGUAGES)}")
    return Text(language, {m.context: phrase_of(m) for m in read_catalogue(language) if m.context})


def read_catalogue(language: str) -> Catalog:
    """The gettext file: a phrase's context is its key, its id the English text.

    English itself is the template, ``syncscope.pot``.
    """
    name = "syncscope.pot" if language == "en" else f"{language}.po"
    with resources.files("views").joinpath(f"locale/{name}").open("rb") as file:
        return read_po(file)


def phrase_of(message: Message) -> str:
    """The translation, which the template leaves empty; then the English text."""
    return str(message.string or message.id)
