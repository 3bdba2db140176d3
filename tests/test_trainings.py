"""The reference trainings prove what they claim, and a broken one is found out."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.ddp_support import torch_or_skip

ROOT = Path(__file__).parent.parent
PAGE = ROOT.joinpath("docs/trainings.md").read_text(encoding="utf-8")

torch_or_skip()
from real_gpu.trainings import LESSONS, launching  # noqa: E402
from real_gpu.trainings import __main__ as trainings_main  # noqa: E402
from tests import training_ranks  # noqa: E402

pytestmark = pytest.mark.gloo


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each of two ranks saw."""
    folder = tmp_path_factory.mktemp("trainings")
    launching.spawn(partial(training_ranks.run, folder), 2)
    return [json.loads(folder.joinpath(f"{r}.json").read_text("utf-8")) for r in range(2)]


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_proves_its_claims(found, lesson):
    (printed, error), (printed_by_rank_1, error_1) = [f["lessons"][lesson] for f in found]
    assert (error, error_1) == ("", "")
    claims = [line for line in printed.splitlines() if line.startswith("  proved: ")]
    assert len(claims) >= 4
    assert printed_by_rank_1 == ""


@pytest.mark.parametrize("name", training_ranks.BROKEN)
def test_a_broken_lesson_fails(found, name):
    """By the claim that it breaks, and on both ranks, so that none is left waiting."""
    words = training_ranks.BROKEN[name][2]
    for by_rank in found:
        error = by_rank["broken"][name]
        assert words in error


def test_every_lesson_is_broken_somehow():
    assert {lesson for lesson, _, _ in training_ranks.BROKEN.values()} == set(LESSONS)


def test_a_claim_holds_only_where_all_ranks_agree(found):
    assert [f["one rank"] for f in found] == ["does not hold: rank 1 sees it otherwise"] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="thread names are read from /proc")
def test_nothing_of_the_group_is_left(found):
    """A thread of Gloo's that outlives the group can end the process by SIGABRT."""
    for by_rank in found:
        assert not [name for name in by_rank["threads"] if "gloo" in name]


def test_a_lesson_under_torchrun():
    """The same file, other launcher; loopback only."""
    words = "-m torch.distributed.run --standalone --nproc-per-node 2 -m real_gpu.trainings.ddp"
    done = subprocess.run(
        [sys.executable, *words.split()],
        cwd=ROOT,
        env=os.environ | {"GLOO_SOCKET_IFNAME": launching.LOOPBACK},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  proved: ") == 7
    assert "mean over ranks" in done.stdout


def fails():
    raise AssertionError("does not hold: this")


def _main(monkeypatch, capsys, lesson, *arguments, **environment):
    monkeypatch.setattr(sys, "argv", ["lesson.py", *arguments])
    monkeypatch.setattr(launching, "process_group", contextlib.nullcontext)
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"} if environment else {}
    for name, value in (where | environment).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        launching.main(lesson)
    return ended.value.code, capsys.readouterr().err


def test_a_false_claim_ends_with_a_line(monkeypatch, capsys):
    code, _ = _main(monkeypatch, capsys, fails, RANK="0", WORLD_SIZE="2")
    assert code == "lesson.py: does not hold: this"  # which Python prints, with exit status 1


def fails_without_a_word():
    raise RuntimeError


def test_an_error_without_a_text_ends_with_a_line(monkeypatch, capsys):
    code, _ = _main(monkeypatch, capsys, fails_without_a_word, RANK="0", WORLD_SIZE="2")
    assert code == "lesson.py: RuntimeError()"


def test_the_ranks_meet_on_loopback_alone(monkeypatch):
    psutil = pytest.importorskip("psutil", reason="pip install psutil")
    seen = []

    def start(rank, args, **how):
        ends = psutil.Process().net_connections("tcp")
        seen.extend(
            end.laddr.ip for end in ends if end.status == "LISTEN" and end.laddr.port == args[2]
        )

    monkeypatch.setattr(launching, "start", start)
    launching.spawn(fails, 2)
    assert seen == ["127.0.0.1"]


@pytest.mark.parametrize("theirs", [None, "eth7"])
def test_loopback_unless_the_user_names_an_interface(monkeypatch, theirs):
    monkeypatch.setattr(os, "environ", {} if theirs is None else {launching.VARIABLE: theirs})
    monkeypatch.setattr(launching.torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(launching, "process_group", contextlib.nullcontext)
    seen = []
    launching._rank(1, lambda: seen.append(os.environ.get(launching.VARIABLE)), 2, 1)
    assert seen == [theirs or launching.LOOPBACK]


def test_without_torch_a_lesson_is_one_line():
    words = [sys.executable, "-S", "-m", f"real_gpu.trainings.{LESSONS[0]}"]  # nothing installed
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "a lesson needs torch, which is not installed: pip install torch\n"


def stopped():
    raise KeyboardInterrupt


def test_stopping_ends_with_a_line(monkeypatch, capsys):
    code, _ = _main(monkeypatch, capsys, stopped, RANK="0", WORLD_SIZE="2")
    assert code == "lesson.py: stopped"


@pytest.mark.parametrize("ranks", ["1", "0", "-3"])
def test_too_few_ranks_are_refused(monkeypatch, capsys, ranks):
    code, error = _main(monkeypatch, capsys, fails, "--spawn", ranks)
    assert code == 2
    assert f"nothing to show with {ranks} ranks: 2 or more" in error
    code, error = _main(monkeypatch, capsys, fails, RANK="0", WORLD_SIZE=ranks)
    assert code == 2


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"RANK": "0"}, "RANK is set, WORLD_SIZE not"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'; accepted: a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is '2'; accepted: 0 to 1"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "x"}, "LOCAL_RANK is 'x'"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "x"}, "LOCAL_WORLD_SIZE is 'x'"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": ""}, "MASTER_ADDR not; accepted: all"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "70000"}, "accepted: 1 to 65535"),
    ],
)
def test_an_environment_that_cannot_be_is_one_line(monkeypatch, capsys, environment, says):
    code, error = _main(monkeypatch, capsys, fails, **environment)
    assert (code, len(error.splitlines())) == (2, 1)
    assert says in error


def test_bad_usage_is_one_line(monkeypatch, capsys):
    code, error = _main(monkeypatch, capsys, fails, "--spawn", "two")
    assert (code, len(error.splitlines())) == (2, 1)
    assert "'two'" in error


@pytest.mark.parametrize(
    ("word", "says"),
    [("nosuch", "unknown lesson 'nosuch'; accepted: data_parallel, ddp"), ("ddp", "trainings.ddp")],
)
def test_the_list_is_of_no_lesson(capsys, word, says):
    assert trainings_main.main([word]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) == 1


def test_gpus_where_each_rank_has_one(monkeypatch):
    import torch

    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for gpus, wanted in ((0, "cpu"), (1, "cpu"), (2, "cuda:1"), (8, "cuda:1")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert str(launching.device()) == wanted


def test_set_by_hand_all_ranks_are_taken_to_be_on_one_machine(monkeypatch):
    import torch

    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for gpus, wanted in ((0, "cpu"), (1, "cpu"), (2, "cuda:1")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert str(launching.device()) == wanted
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")  # by an operator that starts one on each machine
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert str(launching.device()) == "cuda:0"


def test_the_list_and_the_page_name_every_lesson():
    words = [sys.executable, "-m", "real_gpu.trainings"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    files = {file.stem for file in ROOT.joinpath("real_gpu/trainings").glob("*.py")}
    assert files == {*LESSONS, "launching", "__init__", "__main__"}
    lines = done.stdout.splitlines()
    for lesson in LESSONS:
        assert sum(line.startswith(f"  {lesson} ") for line in lines) == 1
        assert f"`python -m real_gpu.trainings.{lesson}`" in PAGE
