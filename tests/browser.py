"""A real Chromium and the app on a free port, for tests: fixtures that ``conftest.py`` offers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.support import require

ROOT = Path(__file__).parent.parent
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 60_000  # how long a failure takes on a busy machine, not how long a test waits
# SYNCSCOPE_SLOW_MS=100 delays every message to the page by up to so much, in order: a page is then
# long in a half-drawn state, and a test that looks instead of waiting is found out.
SLOW_MS = float(os.environ.get("SYNCSCOPE_SLOW_MS", "0"))
SLOW_SOCKET = """(most_ms) => {
  let last = Promise.resolve();
  const add = WebSocket.prototype.addEventListener;
  WebSocket.prototype.addEventListener = function (type, listen, ...more) {
    const late = (event) => {
      last = last.then(() => new Promise((done) => setTimeout(done, Math.random() * most_ms)))
        .then(() => listen.call(this, event));
    };
    return add.call(this, type, type === "message" ? late : listen, ...more);
  };
}"""


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser():
    require("browser", None if chromium() else "Chromium is not installed: apt install chromium")
    found = importlib.util.find_spec("playwright")
    require(
        "browser", None if found else "Playwright is missing: pip install -r requirements-dev.txt"
    )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """The app on a free port of this machine, as a process group that ends with the tests.

    One for all tests: a visit, as a browser's, leaves nothing behind for the next.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--server.port", str(port), "--server.headless", "true"]
    log = tmp_path_factory.mktemp("app") / "log.txt"
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", *flags],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        wait_until_healthy(f"http://localhost:{port}/_stcore/health", server, log)
        yield f"http://localhost:{port}"
    finally:
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, stop)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=5)
                break


def wait_until_healthy(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.1)
    pytest.fail(f"the app did not start within 120 s: {log.read_text()}")


@pytest.fixture
def open_page(browser, address):
    """Opens the page and waits until it is at rest; at the end holds it to silence: no complaint,
    no foreign request.
    """
    contexts, requests, complaints = [], [], []

    def complain(message):
        probes = ("/_stcore/health", "/_stcore/host-config")  # Streamlit looks for its own root
        if message.type in ("error", "warning") and not message.location["url"].endswith(probes):
            complaints.append(message.text)

    def open_one(path="", width=1280, height=900, query=None, ready="time", **settings):
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        if SLOW_MS:
            context.add_init_script(f"({SLOW_SOCKET})({SLOW_MS})")
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("request", lambda request: requests.append(request.url))
        page.on("websocket", lambda socket: requests.append(socket.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", complain)
        page.goto(f"{address}/{path}?{urlencode(query or {}, doseq=True)}")
        page.get_by_test_id(ready).first.wait_for()
        at_rest(page)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not complaints, complaints
    assert requests
    local = ("http", "ws", "data", "blob")
    for url in requests:
        parts = urlsplit(url)
        assert parts.scheme in local, url
        assert parts.hostname in ("localhost", "127.0.0.1") or parts.scheme in ("data", "blob"), url


def at_rest(page) -> None:
    """Until all that the running script sends is shown, and what it no longer sends is gone."""
    page.locator("[data-test-script-state='notRunning']").first.wait_for(state="attached")


def download(page, button: str):
    """What a click on the button gives. A click in the very moment of a rerun finds its file
    replaced and is lost, so wait for the page to be at rest, and click once more if need be.
    """
    from playwright.sync_api import TimeoutError as LostClick

    for last in (False, False, True):
        at_rest(page)
        try:
            with page.expect_download(timeout=WAIT_MS if last else WAIT_MS / 4) as waiting:
                page.get_by_role("button", name=button).click()
            return waiting.value
        except LostClick:
            if last:
                raise
    return None
