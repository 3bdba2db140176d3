"""axe-core finds nothing serious on any page, in either language, scheme, wide and narrow."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support import PAGES, require
from tests.test_address import PATHS
from views.text import HTML_LANGUAGES, LANGUAGES, load_text

pytestmark = pytest.mark.browser

SETTLED = """() => {
  const moving = document.getAnimations().filter((one) => one.playState === "running");
  for (const one of moving) { // what fades in is not yet what people read
    if (one.effect.getComputedTiming().endTime < Infinity) one.finish();
  }
  const app = document.querySelector("[data-testid=stApp]");
  return app.dataset.testScriptState === "notRunning" && !moving.length;
}"""
OPTIONS = {"resultTypes": ["violations"]}
GRAVE = ("serious", "critical")
OTHERS = ("landmark-unique",)  # two regions of one name cannot be told apart in a list of them


@pytest.fixture(scope="module")
def axe():
    found = importlib.util.find_spec("axe_playwright_python")
    require("browser", None if found else "axe is missing: pip install -r requirements-dev.txt")
    from axe_playwright_python.sync_playwright import Axe

    return Axe()


def grave(axe, page) -> list[str]:
    """What is wrong, where, and in which words."""
    page.wait_for_function(SETTLED)
    violations = axe.run(page, options=OPTIONS).response["violations"]
    return [
        f"{found['id']} ({found['impact']}): {node['target']}: {node['html'][:160]}"
        for found in violations
        if found["impact"] in GRAVE or found["id"] in OTHERS
        for node in found["nodes"]
    ]


def open_all(page):
    """Everything that is folded: tables, and the panel that changes what is to come."""
    for summary in page.locator("summary:visible").all():
        summary.click()
    fork = page.get_by_test_id("fork")
    if fork.count():
        fork.click()
        page.get_by_test_id("fork-kind").wait_for()
    folded = page.evaluate(
        """() => {
          const roots = [document, ...[...document.querySelectorAll("*")].map((e) => e.shadowRoot)];
          return roots.flatMap((r) => (r ? [...r.querySelectorAll("details:not([open])")] : []))
            .filter((details) => details.checkVisibility()).length;
        }"""
    )
    assert folded == 0


# Contrast depends on the scheme and names on the language, neither on the other.
@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("zh", "dark")])
@pytest.mark.parametrize("page_name", PAGES)
def test_nothing_serious_is_wrong(open_page, axe, page_name, language, scheme):
    query = {"lang": LANGUAGES[language]}
    page = open_page(PATHS[page_name], query=query, ready="stHeading", color_scheme=scheme)
    text = load_text(language)
    page.get_by_role("heading", name=text(f"{page_name}.question")).wait_for()
    page.get_by_role("heading", name=text("common.downloads")).wait_for()
    page.get_by_test_id("copy").wait_for()
    page.wait_for_function(f"document.documentElement.lang === '{HTML_LANGUAGES[language]}'")
    open_all(page)
    assert grave(axe, page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.querySelector('[data-testid=stMain]').clientWidth <= 390")
    assert grave(axe, page) == []


def test_nothing_serious_is_wrong_with_the_switches_open(open_page, axe):
    page = open_page(ready="copy")
    page.get_by_role("button", name="What this link shows").click()
    page.get_by_text("For teachers").wait_for()
    assert grave(axe, page) == []


def test_nothing_serious_is_wrong_with_the_keys_open(open_page, axe):
    page = open_page(ready="copy")
    page.get_by_test_id("help-open").click()
    page.get_by_role("dialog").wait_for()
    assert grave(axe, page) == []


def test_tables_that_scroll_sideways_have_names_of_their_own(open_page):
    page = open_page(PATHS["step"], ready="copy", width=390, height=844)
    regions = page.locator(".stMarkdown [role=region]")
    regions.nth(1).wait_for(state="attached")  # one is in a folded part
    names = [region.get_attribute("aria-label") for region in regions.all()]
    assert len(set(names)) == len(names) > 1
    assert all(name.startswith("Table that scrolls sideways: ") for name in names)


def test_it_finds_what_is_wrong(open_page, axe):
    """Held against a page that is made worse: a test that finds nothing proves nothing."""
    page = open_page(ready="copy")
    page.get_by_test_id("copy").evaluate("button => { button.replaceChildren() }")
    assert any("button-name" in found for found in grave(axe, page))
