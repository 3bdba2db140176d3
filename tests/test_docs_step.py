"""docs/training-step.md: what it shows is what the commands print, and it names every strategy."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from simcore.__main__ import main
from simcore.training.strategies import STRATEGIES

TEXT = Path(__file__).parent.parent.joinpath("docs/training-step.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```\npython -m simcore ([^\n]*)\n```\n\n```\n(.*?)```\n", TEXT, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_output_is_today_s(capsys, command, output):
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == output


def test_there_is_output():
    assert len(SHOWN) == 2


def test_the_table_has_every_strategy():
    named = {name for line in TEXT.splitlines() for name in re.findall(r"`([\w-]+)`", line[:30])}
    assert {row.name for row in STRATEGIES} <= named
