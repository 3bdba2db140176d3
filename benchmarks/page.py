"""How fast the app is, in a real Chromium: ``python benchmarks/page.py [--quick] [--json]``.

A table: until a first page can be read, what a change of a control costs the server, frames per
second while playing, and the size of what is sent. Nothing here passes or fails: times depend on
the machine. Needs Chromium and Playwright.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

QUICK = "--quick" in sys.argv
RUNS = 1 if QUICK else 5
PLAY_MS = 1000 if QUICK else 3000
ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]

# Run by a fresh interpreter: the script as the server runs it, without a browser. "New" is a
# setting that nobody asked for before; "again" is the same once more, as when the clock is left.
SCRIPT = """
import json, sys, time
from streamlit.testing.v1 import AppTest
name, gpus = sys.argv[1], int(sys.argv[2])
page = f"from app_pages import {name}\\nfrom app_pages.language import choose_language\\n" \\
    f"from app_pages.share import share_bar\\n" \\
    f"text = choose_language()\\nshare_bar(text)\\n{name}.show(text)\\n"
app = AppTest.from_string(page, default_timeout=60).run()
def timed(act):
    begin = time.perf_counter()
    act.run()
    assert not app.exception, app.exception
    return time.perf_counter() - begin
new_s = timed(app.slider(key="n").set_value(gpus))
again_s = timed(app)
sizes = [len(c.proto.json) for c in app.get("bidi_component")]
print(json.dumps([new_s, again_s, max(sizes)]))
"""
FRAMES = """(milliseconds) => new Promise((done) => {
  const times = [];
  const tick = (now) => {
    times.push(now);
    if (now - times[0] < milliseconds) requestAnimationFrame(tick);
    else done([1000 * (times.length - 1) / (now - times[0]),
      Math.max(...times.slice(1).map((time, i) => time - times[i]))]);
  };
  requestAnimationFrame(tick);
})"""

Row = tuple[str, str, list[float]]  # what, its unit, the runs


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The app in a process of its own, from the moment when it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    server = subprocess.Popen(
        [*command, "--server.port", str(port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://localhost:{port}"
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=2).close()
                break
            time.sleep(0.05)
        yield address
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def fresh_page(browser: Browser, url: str) -> Iterator[tuple[Page, tuple[float, float]]]:
    """A page without any cache; seconds until its answer can be read, and its player is there."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    begin = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.locator(".st-key-headline p").first.wait_for()
    answer_s = time.perf_counter() - begin
    page.get_by_test_id("caption-ring").wait_for()
    try:
        yield page, (answer_s, time.perf_counter() - begin)
    finally:
        context.close()


def readable(browser: Browser) -> list[Row]:
    first, later = [], []
    for _ in range(RUNS):
        with served() as address:
            for found in (first, later):
                with fresh_page(browser, address) as (_, seconds):
                    found.append(seconds)
    return [
        ("first visitor: the answer can be read", "s", [answer_s for answer_s, _ in first]),
        ("first visitor: the player is there", "s", [player_s for _, player_s in first]),
        ("next visitor, nothing cached: the answer", "s", [answer_s for answer_s, _ in later]),
        ("next visitor, nothing cached: the player", "s", [player_s for _, player_s in later]),
    ]


def playing(browser: Browser, address: str) -> list[Row]:
    """At 16 GPUs: frames while nothing else happens, and from a key to the new picture."""
    rates, gaps, keys = [], [], []
    for _ in range(RUNS):
        with fresh_page(browser, f"{address}/?n=16") as (page, _):
            page.get_by_test_id("sent-ring-15").wait_for()
            page.get_by_test_id("restart").click()
            page.get_by_test_id("play").click()
            rate, gap = page.evaluate(FRAMES, PLAY_MS)
            rates.append(rate)
            gaps.append(gap / 1000)
            page.get_by_test_id("play").click()
            page.get_by_role("slider", name="GPUs").focus()
            begin = time.perf_counter()
            page.keyboard.press("ArrowLeft")
            page.get_by_test_id("sent-ring-15").wait_for(state="detached")
            keys.append(time.perf_counter() - begin)
    return [
        ("race of 16 GPUs: frames while playing", "1/s", rates),
        ("race of 16 GPUs: longest pause between two", "s", gaps),
        ("race of 16 GPUs: from a key to 15 GPUs drawn", "s", keys),
    ]


def script_rows(name: str, gpus: int) -> list[Row]:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, name, str(gpus)]
    runs = []
    for _ in range(RUNS):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    new, again, size = ([float(run[column]) for run in runs] for column in range(3))
    what = f"{name}, {gpus} GPUs"
    rows = [(f"{what}: script, new setting", "s", new), (f"{what}: script again", "s", again)]
    return rows + ([(f"{what}: data sent", "kB", [size[0] / 1000])] if size[0] > 1000 else [])


def main() -> None:
    rows: list[Row] = []
    for name, gpus in (("race", 16), ("ring", 8), ("traffic", 16), ("scaling", 16)):
        rows += script_rows(name, gpus)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        rows += readable(browser)
        with served() as address:
            rows += playing(browser, address)
        browser.close()
    if "--json" in sys.argv:
        found: dict[str, Any] = {what: {"unit": unit, "runs": runs} for what, unit, runs in rows}
        print(json.dumps(found, indent=1))
        return
    print(f"Python {platform.python_version()}, {platform.machine()}, {RUNS} runs each")
    print(f"{'':48} {'median':>9} {'min':>9} {'max':>9}")
    for what, unit, runs in rows:
        numbers = " ".join(
            f"{value:9.3f}" for value in (statistics.median(runs), min(runs), max(runs))
        )
        print(f"{what:48} {numbers} {unit}")


if __name__ == "__main__":
    main()
