"""Helpers that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simcore.measured.records import Record, record_from_json


def read_record(path: Path) -> Record:
    """The record in a file."""
    return record_from_json(path.read_text(encoding="utf-8"), str(path))


def require(what: str, missing: str | None) -> None:
    """Skip, with a reason a person can act on, when ``missing`` names what is not here.

    Where SYNCSCOPE_REQUIRE lists ``what``, as CI does, that is a failure.
    """
    if missing is None:
        return
    if what in os.environ.get("SYNCSCOPE_REQUIRE", "").split(","):
        pytest.fail(missing)
    pytest.skip(missing)


# Every page by the name of its module. What is here is held to all that tests ask of every page.
PAGES = ("race", "ring", "traffic", "scaling", "whatif", "step", "staleness", "measured")
