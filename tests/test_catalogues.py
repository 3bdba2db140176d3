"""The gettext catalogues: complete, not stale, and the program that translators use agrees."""

from __future__ import annotations

import string
from importlib import resources

import pytest
from babel.messages.pofile import read_po, write_po

from views.text import LANGUAGES, load_text, read_catalogue

TEMPLATE = read_catalogue("en")
OTHERS = [language for language in LANGUAGES if language != "en"]


def of(catalogue):
    return {message.context: message for message in catalogue if message.id}


@pytest.mark.parametrize("language", OTHERS)
def test_every_phrase_is_translated_and_none_is_stale(language):
    """A phrase whose English text has changed has another id: then its translation is stale."""
    template, translated = of(TEMPLATE), of(read_catalogue(language))
    assert list(translated) == list(template)
    for key, message in template.items():
        other = translated[key]
        assert other.id == message.id, f"{key}: translated from another text"
        assert not other.fuzzy, f"{key}: marked as fuzzy"
        assert str(other.string).strip(), f"{key}: not translated"


@pytest.mark.parametrize("language", OTHERS)
def test_an_update_as_a_translator_makes_it_changes_nothing(language, tmp_path):
    """``pybabel update`` finds nothing new, nothing obsolete and nothing to guess."""
    catalogue = read_catalogue(language)
    before = {key: (m.id, m.string) for key, m in of(catalogue).items()}
    catalogue.update(TEMPLATE)
    assert not catalogue.obsolete
    assert {key: (m.id, m.string) for key, m in of(catalogue).items()} == before
    assert not any(message.fuzzy for message in catalogue if message.id)


def test_a_changed_text_is_noticed():
    key = next(iter(of(TEMPLATE)))
    changed = read_catalogue("en")
    message = of(changed)[key]
    changed.delete(message.id, context=key)
    changed.add(message.id + " now", context=key)
    chinese = read_catalogue("zh")
    chinese.update(changed)
    stale = of(chinese)[key]
    assert stale.fuzzy or not stale.string


def placeholders(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("language", OTHERS)
def test_placeholders_are_those_of_the_english_text(language):
    for message in read_catalogue(language):
        if message.id:
            assert placeholders(message.string) == placeholders(message.id), message.context


@pytest.mark.parametrize("language", LANGUAGES)
def test_files_are_as_babel_writes_them(language, tmp_path):
    name = "syncscope.pot" if language == "en" else f"{language}.po"
    file = resources.files("views").joinpath(f"locale/{name}")
    written = tmp_path / name
    with written.open("wb") as out:
        write_po(out, read_catalogue(language), width=0)
    with written.open("rb") as again:
        assert of(read_po(again)).keys() == of(read_catalogue(language)).keys()
    assert written.read_text(encoding="utf-8") == file.read_text(encoding="utf-8")


def test_english_is_the_template():
    assert load_text("en")("race.question") == "Who finishes first, and who is the bottleneck?"
    assert load_text("zh")("race.question").startswith("谁最先完成")
