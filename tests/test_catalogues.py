"""The gettext catalogues: complete, not stale, and the program that translators use agrees."""

from __future__ import annotations

import re
import string
from importlib import resources
from pathlib import Path

import pytest
from babel.messages.pofile import read_po, write_po

from views.text import LANGUAGES, load_text, read_catalogue

ROOT = Path(__file__).parent.parent
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


# What docs/glossary.md did not choose, and the term that it did.
FORBIDDEN = {
    "梯度缓冲区|数据大小|(?<!套接字)缓冲区": "梯度大小",
    "方式": "策略 / 算法 / 模式",
    "模拟": "仿真",
    "个 ?GPU(?! 数量)": "块 GPU",
    "每端口": "每个端口",
    "官方|厂商库": "厂商实现",
    "回放": "重放",
    "跟踪文件": "轨迹",
    "一步训练": "单步训练",
    "耗时": "用时",
    "界限": "陈旧度上限",
    "前者": "the thing's name",
}


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_one_chinese_term_for_one_thing(pattern):
    said = {m.context: str(m.string) for m in read_catalogue("zh") if m.id}
    said["README.zh.md"] = (ROOT / "README.zh.md").read_text(encoding="utf-8")
    wrong = [key for key, phrase in said.items() if re.search(pattern, phrase)]
    assert not wrong, f"write {FORBIDDEN[pattern]} (docs/glossary.md)"


def test_chosen_chinese_terms_are_in_the_glossary():
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    for terms in FORBIDDEN.values():
        for term in terms.split(" / "):
            assert term.removesuffix(" GPU") in glossary or term.isascii(), term


@pytest.mark.parametrize(("language", "gap"), [("en", "\u00a0"), ("zh", "")])
def test_percentages_are_written_alike(language, gap):
    """25 % in English, never at the end of a line alone; 25% in Chinese."""
    for key, phrase in load_text(language).phrases.items():
        for before in re.findall(r"[}\d](\s*)%", phrase):
            assert before == gap, key


def test_code_leaves_the_percent_sign_to_the_catalogues():
    """Or a page would write it in one way in its sentences, in another in its tables."""
    for file in [*(ROOT / "views").rglob("*.py"), *(ROOT / "app_pages").rglob("*.py")]:
        if "report" in file.parts:  # English only
            continue
        code = file.read_text(encoding="utf-8")
        assert not re.search(r"\}(\\u00a0|\\xa0|\s)%", code), file


def test_english_is_the_template():
    assert load_text("en")("race.question") == "Who finishes first, and who is the bottleneck?"
    assert load_text("zh")("race.question").startswith("谁最先完成")
