"""The player's pure functions under ``node --test``: the cases are in player_core.test.mjs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support import require
from views.player import player_script

CASES = Path(__file__).parent / "player_core.test.mjs"
FORMATS = Path(__file__).parent / "golden" / "formats.json"


def test_the_pure_functions_in_node(tmp_path):
    require(
        "browser", None if shutil.which("node") else "node is not installed; install Node.js 18+"
    )
    (tmp_path / "player.mjs").write_text(player_script(), encoding="utf-8")
    shutil.copy(CASES, tmp_path)
    shutil.copy(FORMATS, tmp_path)
    done = subprocess.run(
        ["node", "--test", CASES.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = CASES.read_text(encoding="utf-8").count("\ntest(")
    assert f"# pass {cases}\n" in done.stdout
