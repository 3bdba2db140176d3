"""A player in a page without a server, for tests: what it shows, and that it asks for nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from simcore.trace import Trace
from tests.browser import WAIT_MS


@contextlib.contextmanager
def opened(browser, path: Path, width: int = 1280, **settings) -> Iterator:
    """The file in a page of its own; afterwards: no complaint, and no request but for the file."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("websocket", lambda socket: requests.append(socket.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda m: m.type in ("error", "warning") and complaints.append(m.text))
    try:
        page.goto(path.as_uri())
        yield page
    finally:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]


def moment(page) -> float:
    return float(page.get_by_test_id("time").first.get_attribute("data-value"))


def check_counters(page, traces: Sequence[Trace]) -> None:
    """Every number of one frame against the engine's."""
    t_s, shown = page.locator(".player").evaluate(
        """player => [
          Number(player.querySelector('[data-testid="time"]').dataset.value),
          Object.fromEntries([...player.querySelectorAll(".number")].map(
            (node) => [node.dataset.testid, Number(node.dataset.value)])),
        ]"""
    )
    for trace in traces:
        for way, column in zip(("sent", "received"), trace.bytes_at(t_s), strict=True):
            got = [shown[f"{way}-{trace.name}-{rank}"] for rank in range(trace.n)]
            assert np.allclose(got, column, rtol=1e-9, atol=1e-3), (way, trace.name)


def scrub_to(page, share: float) -> None:
    page.get_by_test_id("scrub").evaluate(
        "(node, share) => { node.value = share; node.dispatchEvent(new Event('input')); }", share
    )
