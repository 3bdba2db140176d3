"""What a page gives away: snippets print the page's numbers; pictures are made by the click."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from app_pages.exports import KINDS
from simcore.units import format_time
from tests.browser import download
from tests.support import PAGES
from tests.test_address import PATHS, accepted, controls, leave_clock, untouched
from tests.test_app import open_page, words
from tests.test_browser import read
from views.fork import fork
from views.race import STRATEGIES, Setting, race
from views.ring import RingSetting, ring_run
from views.snippet import race_snippet, ring_snippet
from views.text import load_text

ROOT = Path(__file__).parent.parent


def snippet(app) -> str:
    (program,) = (code.value for code in app.code if code.language == "python")
    return program


def printed(program: str) -> list[str]:
    """By an interpreter of its own, from a folder where nothing else is."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def numbers_of(line: str) -> list[str]:
    """What a line says after its name, but for flags and lists: the page says the same words."""
    return [part for part in line.split("; ")[1:] if part[0] not in "{["]


@pytest.mark.parametrize("which", [None, 0, -1])
@pytest.mark.parametrize("page", PAGES)
def test_the_snippet_prints_what_the_page_shows(page, which):
    """As it opens, and with every control at either of its ends."""
    query = (
        {} if which is None else {k: accepted(page)[k][which] for k in controls(untouched(page))}
    )
    app = open_page(page, **query) if query else untouched(page)
    shown = words(app).replace("\u00a0", " ")
    lines = [line.replace("\u00a0", " ") for line in printed(snippet(app))]
    numbers = [number for line in lines for number in numbers_of(line)]
    assert numbers
    assert [number for number in numbers if number not in shown] == []


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        (Setting(4, 8 * 2**20, 25e6, frames=True), STRATEGIES),
        (Setting(6, 65536, 5e10, 1e-3), ("hierarchical", "tree")),
    ],
)
def test_the_races_snippet_prints_times_and_bytes(setting, chosen):
    runs, change = race(setting, chosen), "gpu1:0@0.1s..0.3s"
    for changes in ((), (change,)):
        after = [
            run.trace for run in fork([r.simulation for r in runs], changes, load_text("en")).after
        ]
        assert printed(race_snippet(setting, chosen, changes)) == [
            f"{run.name}; {format_time(trace.time_s)}; {trace.sent_bytes.tolist()}"
            for run, trace in zip(runs, after, strict=True)
        ]


def test_the_rings_snippet_prints_transfers_sums_and_bytes():
    setting = RingSetting(5, 7, 12.5e6, 1e-6)
    run = ring_run(setting)
    lines = printed(ring_snippet(setting))
    assert lines[: len(str(run.schedule).splitlines())] == str(run.schedule).splitlines()
    sums = " ".join(map(str, setting.inputs().sum(axis=0)))
    assert sum(sums in " ".join(line.split()) for line in lines) == 5
    assert (
        lines[-1] == f"ring; {format_time(run.time_s)}; {run.simulation.trace.sent_bytes.tolist()}"
    )


def test_every_file_has_a_name_a_type_and_a_button():
    for page in PAGES:
        app = open_page(page)
        labels = [button.proto.label for button in app.get("download_button")]
        if page in ("step", "staleness"):
            more = ["perfetto", "figure", "png"]
        elif page == "measured":
            played = any('"lanes"' in c.proto.json for c in app.get("bidi_component"))
            player = ["perfetto", "svg", "gif", "html"] if played else []
            more = ["figure", "png", *player]
        else:
            more = (
                ["perfetto", "svg", "gif", "html"]
                if app.get("bidi_component")
                else ["figure", "png"]
            )
        kinds = ["csv", "json", *more]
        assert labels == [load_text("en")(f"common.{kind}") for kind in kinds]
        assert set(kinds) <= set(KINDS)


@pytest.mark.browser
@pytest.mark.parametrize("page_name", ["race", "ring"])
def test_pictures_are_made_by_the_click_and_show_the_moment(open_page, page_name, tmp_path):
    page = open_page(PATHS[page_name])
    clock = leave_clock(page, 0.4)

    def saved(name: str) -> Path:
        given = download(page, name)
        assert given.suggested_filename.startswith(f"{page_name}-4x")
        path = tmp_path / given.suggested_filename
        given.save_as(path)
        return path

    svg = saved("SVG")
    assert svg.suffix == ".svg"
    assert ElementTree.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    gif = saved("GIF")
    with Image.open(gif) as film:
        assert film.format == "GIF"
        assert film.n_frames > 10
    html = saved("HTML")
    other = page.context.new_page()
    other.goto(html.as_uri())
    other.get_by_test_id("time").wait_for()
    shown = read(other)
    assert shown["text"] == clock["text"]
    assert shown["bytes"] == clock["bytes"]


def test_no_two_kinds_are_saved_under_one_name():
    endings = [ending for ending, _ in KINDS.values()]
    assert len(set(endings)) == len(endings)
