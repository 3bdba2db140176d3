"""The notebooks run from top to bottom, assert what they say, and are stored without outputs."""

from __future__ import annotations

import importlib.util
import warnings
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest

from tests.support import require

REPOSITORY = Path(__file__).parent.parent
NOTEBOOKS = sorted(REPOSITORY.glob("notebooks/*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"
NAMES = [path.stem for path in NOTEBOOKS]


def test_there_are_notebooks():
    assert NOTEBOOKS


def needs(*packages: str) -> None:
    absent = [package for package in packages if not importlib.util.find_spec(package)]
    require("notebooks", f"pip install {' '.join(absent)}" if absent else None)


@cache
def executed(path: Path):
    """The notebook with its outputs, without the state that widgets would need to live on."""
    needs("nbclient", "ipykernel", "matplotlib", "anywidget")
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "store without outputs"
    assert any("assert" in cell.source for cell in code)
    place = {"metadata": {"path": REPOSITORY}}
    # Other tests run Streamlit, which chooses Matplotlib's backend for the whole process.
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.delenv("MPLBACKEND", raising=False)
        warnings.simplefilter("ignore")  # the kernel's own, none of the notebook's
        NotebookClient(notebook, timeout=120, resources=place, store_widget_state=False).execute()
    return notebook


def outputs(notebook):
    return [o.get("data", {}) for c in notebook.cells for o in c.get("outputs", [])]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_runs_from_top_to_bottom(path: Path):
    shown = outputs(executed(path))
    assert any("image/png" in data for data in shown)
    players = [data for data in shown if WIDGET in data]
    assert players
    for data in players:
        ET.fromstring(data["image/svg+xml"])
        assert " in all. Step " in data["text/plain"]


@pytest.mark.browser
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_page_made_of_it_shows_the_players_frame_without_a_network(
    path: Path, browser, tmp_path: Path
):
    needs("nbconvert")
    from nbconvert import HTMLExporter

    notebook = executed(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page_text, _ = HTMLExporter().from_notebook_node(notebook)
    file = tmp_path / "notebook.html"
    file.write_text(page_text, encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(file.as_uri(), wait_until="domcontentloaded")
    frames = page.locator('img[src^="data:image/svg+xml"]')
    assert frames.count() == sum(WIDGET in data for data in outputs(notebook))
    for frame in frames.all():
        assert frame.evaluate("image => image.decode().then(() => image.naturalWidth)") > 600
        assert frame.bounding_box()["height"] > 300
    context.close()
