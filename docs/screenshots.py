"""One picture of every page for the documentation: ``python docs/screenshots.py [FOLDER]``.

Starts the app on a free port of this machine and ends it again. Needs Chromium and Playwright.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
# The page's name, what its address says, and what is there when it can be read.
PAGES = {
    "race": ("?t=0.2s", "time"),
    "ring": ("ring?t=2us", "cells"),
    "traffic": ("traffic", "stHtml"),
    "scaling": ("scaling", "stVegaLiteChart"),
    "whatif": ("whatif", "time"),
    "step": ("step", "stHeading"),
    "staleness": ("staleness", "stVegaLiteChart"),
    "measured": ("measured", "stVegaLiteChart"),
}


@contextlib.contextmanager
def app() -> Iterator[str]:
    """Its address while it runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    server = subprocess.Popen(
        [*command, "--server.port", str(port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        give_up = time.monotonic() + 30
        while time.monotonic() < give_up:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=2)
                break
            time.sleep(0.1)
        yield f"http://localhost:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(10)


def main() -> None:
    """Open every page and take its picture."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    folder.mkdir(parents=True, exist_ok=True)
    with app() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (path, ready) in PAGES.items():
            page = browser.new_page(viewport={"width": 1360, "height": 900})
            page.goto(f"{address}/{path}")
            page.get_by_test_id(ready).first.wait_for(timeout=60_000)
            page.wait_for_timeout(1500)  # charts draw themselves after they are there
            page.screenshot(path=folder / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
