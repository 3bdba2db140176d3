"""Everything stands in the address: what it asks for is shown, and what is shown it says.

The controls are found on the page, not listed here: a new one is tested as soon as it is there.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import pytest

from app_pages.controls import Controls
from app_pages.share import PARTS
from simcore.units import format_time, parse_time
from tests.browser import at_rest
from tests.support import PAGES
from tests.test_app import open_app, open_page, player_data
from tests.test_browser import read, scrub_to, wait_for
from views.moment import clock_end_s, moment_words, parse_moment
from views.text import LANGUAGES, load_text

ROOT = Path(__file__).parent.parent
PATHS = {page: "" if page == "race" else page for page in PAGES}
KINDS = ("slider", "select_slider", "toggle", "segmented_control", "pills", "selectbox")


@cache
def opened(page, **query):
    """A page to be read and never acted upon; and what each of its controls takes, as that is
    written in the address, whatever words it shows.
    """
    found = {}
    tell, some_of = Controls._tell, Controls.some_of

    def telling(self, key, given, options, shown):
        found[key] = list(options)
        tell(self, key, given, options, shown)

    def some(self, key, label, options, default, words):
        found[key] = list(options)
        return some_of(self, key, label, options, default, words)

    with mock.patch.multiple(Controls, _tell=telling, some_of=some):
        return open_page(page, **query), found


def untouched(page, **query):
    """A page for all tests that ask what is on it."""
    return opened(page, **query)[0]


def accepted(page, **query):
    """What its controls take."""
    return opened(page, **query)[1]


def controls(app):
    """Every control of the page but the language's: its key and its widget."""
    found = {widget.key: widget for kind in KINDS for widget in getattr(app, kind)}
    return {key: widget for key, widget in found.items() if key != "lang"}


def shown(widget) -> str:
    """What the widget shows, as it is written in the address."""
    value = widget.value
    if isinstance(value, list):
        value = value[0] if value else None
    return str(value).lower() if widget.type == "toggle" else str(value)


def decides(widget) -> bool:
    """Whether it may change which other controls there are."""
    if widget.type == "selectbox":
        return widget.key == "network"  # a preset has its own rate and latency
    return widget.proto.DESCRIPTOR.name == "ButtonGroup" and not isinstance(widget.value, list)


def modes(page: str) -> list[dict[str, str]]:
    """A control without an order may change which other controls there are: each of its options."""
    options = accepted(page)
    found = [w.key for w in untouched(page).segmented_control if w.key != "lang"]
    return [{key: option} for key in found for option in options[key]] or [{}]


def test_these_are_all_the_pages():
    """A page that is missing in the list would escape the tests."""
    named = re.findall(r'url_path="(\w+)"', (ROOT / "app.py").read_text(encoding="utf-8"))
    assert tuple(named) == PAGES


OF_ONE_STRATEGY = ("launch",)  # DataParallel's, which is chosen at neither end


@pytest.mark.parametrize("page", PAGES)
def test_all_controls_at_their_ends_together(page):
    """At the first in one language, at the last in the other."""
    for mode in modes(page):
        found, options = controls(untouched(page, **mode)), accepted(page, **mode)
        for which, language in zip((0, -1), LANGUAGES, strict=True):
            query = {
                key: shown(widget) if decides(widget) else options[key][which]
                for key, widget in found.items()
                if key not in OF_ONE_STRATEGY
            } | mode
            app = open_page(page, **query, lang=LANGUAGES[language])
            assert not app.exception
            refused = [n.value for n in app.info for key in query if f"`{key}=" in n.value]
            assert not refused  # a page may still say what it leaves out at such ends
            assert {key: shown(widget) for key, widget in controls(app).items()} == query
            question = "pieces" if mode == {"view": "pieces"} else page
            assert app.title[0].value == load_text(language)(f"{question}.question")


@pytest.mark.parametrize("page", PAGES)
def test_a_bad_value_of_any_control_becomes_its_default_with_a_notice(page):
    """All controls are wrong at once, but for those that decide which others there are."""
    tried = set()
    for mode in modes(page):
        found = controls(untouched(page, **mode))
        new = found.keys() - tried
        together = {key for key in new if key not in mode and not decides(found[key])}
        for keys in (together, *({key} for key in new - together)):
            for bad in ("", "`<b>\n", "99999") if keys else ():
                app = open_page(page, **mode | dict.fromkeys(keys, bad))
                assert not app.exception, (keys, bad)
                notices = [notice.value for notice in app.info]
                assert len(notices) == len(keys), (keys, bad, notices)
                for key in keys:
                    widget = found[key]
                    several = isinstance(widget.value, list)  # an empty value chooses none
                    words = f"“{widget.label}”" if several and not bad else f"`{key}="
                    assert sum(words in notice for notice in notices) == 1, (key, bad, notices)
                    if key not in mode and bad:
                        assert shown(controls(app)[key]) == shown(widget)
        tried |= new


@pytest.mark.parametrize("end_s", [2.1, 0.5263, 3.84e-6, 1e-9, 750.0])
def test_a_moment_survives_the_address(end_s):
    """Rounded up, so that what happened at it still has, and by less than anybody sees."""
    for share in (0, 1e-7, 1 / 3, 0.5, 0.9999999999, 1):
        moment_s = share * end_s
        words = moment_words(moment_s, end_s)
        back_s = parse_moment(words, end_s)
        assert 0 <= back_s - moment_s <= 1.6e-9 * end_s
        assert moment_words(back_s, end_s) == words
        assert re.fullmatch(r"[0-9.]+(s|ms|us|ns)", words)


def moments(app):
    data = player_data(app)
    return data["moment_s"], clock_end_s(data)


@pytest.mark.parametrize("page", PAGES)
def test_what_is_no_parameter_is_told_of_and_taken_out(page):
    """Unknown, given twice, of another page, of another choice: one policy."""
    number = next((k for k, w in controls(untouched(page)).items() if w.type == "slider"), None)
    asked = {"show": "map", "numbers" if page != "ring" else "servers": "3"}
    twice = {number: [accepted(page)[number][0], accepted(page)[number][-1]]} if number else {}
    app = open_page(page, **asked, **twice)
    assert not app.exception
    said = [notice.value for notice in app.info]
    for key in (*asked, *twice):
        assert sum(f"`{key}`" in line.partition("Accepted")[0] for line in said) == 1, (key, said)
    assert len(said) == len(asked) + len(twice)
    assert not set(app.query_params) & {*asked, *twice}
    assert all(f"`{key}`" in said[-1] for key in (*controls(app), "lang", "hide"))
    app.run()
    assert not app.info, "said once"


def test_a_parameter_of_another_choice_is_told_of_only_where_the_address_asked_for_it():
    app = open_page("whatif", what="straggler", node_lines="ring")
    (notice,) = app.info
    assert "`node_lines`" in notice.value
    app = open_page("whatif", what="uplink", node_lines="hierarchical")
    assert not app.info
    assert app.pills(key="node_lines").value == ["hierarchical"]
    app.radio(key="what").set_value("straggler").run()
    assert not app.info
    assert "node_lines" not in app.query_params


def test_a_notice_says_what_is_accepted_as_the_address_spells_it():
    app = open_page("race", n="65", frames="maybe", size="8", lines=["ring", "`<b>"])
    said = {notice.value.split("=")[0].split("`")[1]: notice.value for notice in app.info}
    assert said["n"].endswith("so `4` is shown. Accepted: `2` to `64`.")
    assert said["frames"].endswith("so `false` is shown. Accepted: `true`, `false`.")
    assert "so `8MiB` is shown. Accepted: `64KiB`, `256KiB`, `1MiB`," in said["size"]
    assert "so `ring` is shown. Accepted: `ps`, `dp`, `ps-sharded`, `ring`," in said["lines"]
    assert app.query_params["lines"] == "ring"


@pytest.mark.parametrize(
    ("asked", "language"),
    [("zh", "zh"), ("zh-CN", "zh"), ("ZH_hans", "zh"), ("en", "en"), ("English", "en")],
)
def test_a_language_has_aliases(asked, language):
    app = open_app(lang=asked)
    assert not app.info
    assert app.title[0].value == load_text(language)("race.question")
    other = next(name for code, name in LANGUAGES.items() if code != language)
    app.segmented_control(key="lang").set_value(other).run()
    assert app.title[0].value != load_text(language)("race.question"), "the switch rules"


@pytest.mark.parametrize("language", LANGUAGES)
def test_controls_show_words_and_the_address_keeps_its_spelling(language):
    """Formulas, rates, sizes and proper names are the same in every language."""
    spelt = {"gpus", "size", "latency", "flat", "nodes", "curves", "map", "ps", "ps-sharded"}
    spelt |= {"sync", "ssp", "least-squares", "softmax", "ddp", "byteps", "one-switch", "records"}
    spelt |= {"default", "straggler", "slow-link", "ring-scattered", "latency-size", "unshaped"}
    asked = [("race", {}), ("staleness", {}), ("step", {}), ("measured", {})]
    asked += [("scaling", {"view": view}) for view in ("curves", "map")]
    asked += [("whatif", {"what": "uplink"}), ("measured", {"set": "records"})]
    for page, query in asked:
        app = open_page(page, **query, lang=LANGUAGES[language])
        for key, widget in controls(app).items():
            shows = set(getattr(widget, "options", ()))
            assert not shows & spelt, (page, key)
            if language == "zh" and key in ("view", "axis", "axes", "mode", "problem", "set"):
                assert all(re.search("[\u4e00-\u9fff]", words) for words in shows), (key, shows)
    app.segmented_control(key="axis").set_value("size").run()
    assert app.query_params["axis"] == "size"
    assert app.query_params["set"] == "records"
    name = next(name for code, name in LANGUAGES.items() if code != language)
    app.segmented_control(key="lang").set_value(name).run()
    assert app.segmented_control(key="axis").value == "size", "it stays in another language"
    assert not app.exception


def test_the_clock_starts_at_the_moment_in_the_address():
    app = open_app(t="213ms")
    assert moments(app)[0] == 0.213
    assert not app.info
    app.run()
    assert moments(app)[0] == 0.213, "other data would start the player anew"
    app.toggle(key="frames").set_value(False).run()
    assert moments(app)[0] == 0.213
    app.select_slider(key="rate").set_value("400Gbit/s").run()
    assert moments(app)[0] is None, "with these settings all is over before"
    assert "t" not in app.query_params


@pytest.mark.parametrize("bad", ["", "abc", "-1s", "9", "nan", "2.2s", "1e40s", "`<b>"])
def test_a_moment_that_never_comes_is_the_usual_one_with_a_notice(bad):
    for page in ("race", "ring"):
        app = open_page(page, t=bad)
        assert not app.exception
        moment_s, end_s = moments(app)
        assert moment_s is None
        (notice,) = app.info
        assert f"from 0 to {format_time(end_s)}" in notice.value
        assert "t" not in app.query_params
        app.run()
        assert not app.info, "said once"


@pytest.mark.parametrize("language", LANGUAGES)
def test_parts_are_hidden_by_the_address_and_unknown_ones_refused(language):
    text = load_text(language)
    app = open_app(hide="numbers,answer", lang=LANGUAGES[language])
    assert not app.exception
    assert not app.info
    off = [part for part in PARTS if not app.toggle(key=f"show_{part}").value]
    assert off == ["answer", "numbers"]
    assert app.query_params["hide"] == off
    app.toggle(key="show_numbers").set_value(True).run()
    app.toggle(key="show_share").set_value(False).run()
    assert app.query_params["hide"] == ["answer", "share"]
    for part in PARTS:
        assert app.toggle(key=f"show_{part}").label == text(f"share.{part}")
    app = open_app(hide="numbers,everything", lang=LANGUAGES[language])
    (notice,) = app.info
    assert notice.value == text("share.notice", value="everything", accepted=", ".join(PARTS))
    assert app.query_params["hide"] == "numbers"
    app.run()
    assert not app.info, "said once"


@pytest.mark.browser
@pytest.mark.parametrize("page", PAGES)
def test_what_is_shown_stands_in_the_address_also_after_leaving_and_returning(open_page, page):
    """Every control away from its default; the words in the address; another page, and back."""
    asked, options = {}, accepted(page)
    for key, widget in controls(untouched(page)).items():
        if not decides(widget) and key not in OF_ONE_STRATEGY:
            ends = (options[key][0], options[key][-1])
            asked[key] = next(end for end in ends if end != shown(widget))
    browser = open_page(PATHS[page], query=asked | {"lang": "中文"}, ready="copy")

    def stands(url):
        query = parse_qs(urlsplit(url).query)
        return {key: values[-1] for key, values in query.items()} == asked | {"lang": "中文"}

    assert stands(browser.url)
    other = next(name for name in PAGES if name != page)
    browser.get_by_role("link", name=load_text("zh")(f"page.{other}"), exact=True).click()
    browser.get_by_role("heading", name=load_text("zh")(f"{other}.question")).wait_for()
    browser.wait_for_url(lambda url: set(parse_qs(urlsplit(url).query)) == {"lang"})
    at_rest(browser)
    browser.go_back()
    browser.get_by_role("heading", name=load_text("zh")(f"{page}.question")).wait_for()
    browser.wait_for_url(stands)
    at_rest(browser)
    assert stands(browser.url)
    assert browser.get_by_test_id("stAlert").count() == 0


def leave_clock(browser, share):
    """As by hand: the clock stands still there, and the address says so."""
    scrub_to(browser, share)
    return in_the_address(browser)


def in_the_address(browser):
    """What the player shows, once the address has its moment."""
    shown = read(browser)

    def stands(url):
        words = parse_qs(urlsplit(url).query).get("t", [])
        return [parse_time(word) for word in words] == pytest.approx([shown["t"]], rel=1e-8)

    browser.wait_for_url(stands)
    return shown


def test_the_address_follows_the_clock_and_the_player_does_not_start_anew(open_page):
    page = open_page(query={"n": 3, "t": "100ms"})
    assert read(page)["t"] == 0.1
    entries = page.evaluate("history.length")
    page.get_by_test_id("player").evaluate("player => { player.firstChild.dataset.mine = 'yes' }")
    shown = leave_clock(page, 0.3)
    (words,) = parse_qs(urlsplit(page.url).query)["t"]
    assert parse_moment(words, 10.0) == pytest.approx(shown["t"], rel=1e-8)
    assert page.evaluate("history.length") == entries, "a step is no page to go back to"
    page.get_by_test_id("forward").click()
    in_the_address(page)
    kept = page.get_by_test_id("player").evaluate("player => player.firstChild.dataset.mine")
    assert kept == "yes", "the player was drawn anew"
    page.get_by_role("link", name="Ring, step by step").click()
    page.get_by_test_id("cells").wait_for()
    page.wait_for_url(lambda url: "t" not in parse_qs(urlsplit(url).query))
    page.go_back()
    page.get_by_test_id("sent-dp-2").wait_for()
    page.wait_for_url("**n=3**")


@pytest.mark.parametrize("page_name", [page for page in PAGES if page in ("race", "ring")])
def test_the_copied_link_opens_the_same_view(open_page, page_name):
    """In another browser: controls, language and moment."""
    page = open_page(PATHS[page_name], permissions=["clipboard-read", "clipboard-write"])
    page.get_by_text("中文", exact=True).click()
    page.get_by_role("heading", name=load_text("zh")(f"{page_name}.question")).wait_for()
    page.get_by_role("slider", name="GPU 数量").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**n=5**")
    page.get_by_test_id("restart").click()
    for _ in range(3):
        page.get_by_test_id("forward").click()
    in_the_address(page)
    page.get_by_test_id("copy").focus()
    page.keyboard.press("Enter")
    page.get_by_text(load_text("zh")("share.copied")).wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    parts = urlsplit(link)
    other = open_page(parts.path.lstrip("/"), query=parse_qs(parts.query))
    wait_for(other, f"r.text === {read(page)['text']!r}")
    was, now = read(page), read(other)
    assert now["t"] == pytest.approx(was["t"], rel=1e-8)
    assert [number for _, number in now["bytes"].values()] == (
        [number for _, number in was["bytes"].values()]
    )
    for testid in ("caption-ring", "time", "stHeading"):
        assert other.get_by_test_id(testid).first.inner_text() == (
            page.get_by_test_id(testid).first.inner_text()
        )


def test_without_a_clipboard_the_link_is_selected(open_page):
    page = open_page("traffic", ready="copy")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')) }")
    page.get_by_test_id("copy").click()
    field = page.get_by_role("textbox", name="Link to this view")
    field.wait_for()
    selected = "field => field.value.slice(field.selectionStart, field.selectionEnd)"
    assert field.evaluate(selected) == page.url
    page.get_by_text("Press Ctrl+C").wait_for()


def test_the_page_says_its_language(open_page):
    """As it changes; what every page says when it opens is asked where all are opened."""
    page = open_page(ready="copy")
    page.wait_for_function("document.documentElement.lang === 'en'")
    page.get_by_text("中文", exact=True).click()
    page.wait_for_function("document.documentElement.lang === 'zh-CN'")


HIDDEN = {
    "answer": ".st-key-headline",
    "controls": "[data-testid='stSidebar'] [data-testid='stSlider']",
    "language": ".st-key-lang",
    "navigation": "[data-testid='stSidebarNavLink']",
    "numbers": ".st-key-part_numbers table",
    "downloads": "[data-testid='stDownloadButton']",
    "share": "[data-testid='copy']",
}


@pytest.mark.parametrize("page_name", PAGES)
def test_hidden_is_hidden_and_a_hidden_control_keeps_its_value(open_page, page_name):
    assert set(HIDDEN) == set(PARTS)
    question = load_text("en")(f"{page_name}.question")
    chosen = {"n": 3} if "n" in controls(untouched(page_name)) else {}
    for hidden in ([], list(PARTS)):
        page = open_page(PATHS[page_name], query={"hide": hidden} | chosen, ready="stHeading")
        page.get_by_role("heading", name=question).wait_for()
        for part, where in HIDDEN.items():
            page.locator(where).first.wait_for(state="attached")
            page.locator(where).first.wait_for(state="hidden" if part in hidden else "visible")
        page.wait_for_url("**n=3**" if chosen else "**")
    page.locator("[data-testid='stSidebar']").wait_for(state="hidden")


def test_a_teacher_hides_a_part_with_a_switch_and_it_stays_hidden_on_the_next_page(open_page):
    page = open_page(ready="copy")
    page.get_by_role("button", name="What this link shows").click()
    page.get_by_text("Controls", exact=True).click()
    page.wait_for_url("**hide=controls**")
    page.keyboard.press("Escape")
    page.locator(".st-key-part_controls").wait_for(state="hidden")
    page.get_by_role("link", name="Traffic").click()
    page.get_by_role("heading", name="Where does the traffic go?").wait_for()
    page.wait_for_url("**/traffic?**hide=controls**")
    page.locator(".st-key-part_controls").wait_for(state="attached")
    page.locator(".st-key-part_controls").wait_for(state="hidden")


def test_what_can_be_hidden_is_documented():
    table = (ROOT / "docs/links.md").read_text(encoding="utf-8").partition("| `hide=` |")[2]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(PARTS)
