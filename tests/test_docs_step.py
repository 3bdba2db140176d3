"""docs/training-step.md: what it shows is what the commands print, and it names every strategy."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from simcore.__main__ import main
from simcore.training.strategies import STRATEGIES, Setting, footprint
from simcore.training.workload import load_workload
from simcore.units import format_bytes

TEXT = Path(__file__).parent.parent.joinpath("docs/training-step.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```\npython -m simcore ([^\n]*)\n```\n\n```\n(.*?)```\n", TEXT, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_output_is_today_s(capsys, command, output):
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == output


def test_there_is_output():
    assert len(SHOWN) == 4


def test_the_volumes_of_data_parallel_groups_are_today_s(capsys):
    """Each row of the table, asked of the command that stands above it."""
    command = next(command for command, _ in SHOWN if "--tensor-parallel" in command)
    rows = re.findall(r"\| (\d) × (\d) \| (\d+) \| (\d+) \| ([^|]+) \|", TEXT)
    assert len(rows) == 6
    for tensor, pipeline, groups, each, sent in rows:
        asked = command.replace("--tensor-parallel 8", f"--tensor-parallel {tensor}")
        asked = asked.replace("--pipeline-parallel 2", f"--pipeline-parallel {pipeline}")
        assert main([*shlex.split(asked), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert int(groups) * int(each) == 64
        assert found["gpus"] == int(each)
        assert format_bytes(sum(found["sent_bytes"])) == sent


def test_the_largest_owner_is_today_s():
    work = load_workload("vgg16")
    held = [m.optimizer for m in footprint("zero-redundancy-optimizer", Setting(work, 8))]
    said = (round(nbytes / 1e6) for nbytes in (max(held), sum(held), sum(held) / 8))
    text = (
        "one of 8 GPUs keeps {} of VGG-16's {:,} MB of Adam's state, where an eighth would be {} MB"
    )
    assert text.format(*said) in TEXT


def test_the_table_has_every_strategy():
    named = {name for line in TEXT.splitlines() for name in re.findall(r"`([\w-]+)`", line[:30])}
    assert {row.name for row in STRATEGIES} <= named
