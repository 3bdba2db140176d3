"""The notebooks run from top to bottom, assert what they say, and are stored without outputs."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import pytest

from tests.support import require

REPOSITORY = Path(__file__).parent.parent
NOTEBOOKS = sorted(REPOSITORY.glob("notebooks/*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path: Path, monkeypatch: pytest.MonkeyPatch):
    absent = [p for p in ("nbclient", "ipykernel", "matplotlib") if not importlib.util.find_spec(p)]
    if absent:
        require("notebooks", f"pip install {' '.join(absent)}")
    # Other tests run Streamlit, which chooses Matplotlib's backend for the whole process.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "store without outputs"
    assert any("assert" in cell.source for cell in code)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the kernel's own, none of the notebook's
        NotebookClient(
            notebook, timeout=120, resources={"metadata": {"path": REPOSITORY}}
        ).execute()
    pictures = [o for cell in code for o in cell.outputs if "image/png" in o.get("data", {})]
    assert pictures
