"""*Measured against simulated*: its page, a reader's own files, and the run that it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app_pages import measured_here, measured_run
from app_pages.measured_run import RUNS, Guarded, Running
from simcore.measured.cells import Cell
from simcore.measured.records import load_records
from simcore.measured.validation import Validation
from tests.test_app import open_page, player_data, words
from views.measured.files import read_files
from views.measured.sets import RECORDS, groups, headline, set_names, shipped
from views.text import LANGUAGES, load_text

ROOT = Path(__file__).parent.parent
EN = load_text("en")

# Behaves as a validation does: says how far it is, writes what it has, keeps it when interrupted.
FAKE = """
import pathlib, subprocess, sys, time
folder, text, mode = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if mode == "stubborn":
    import signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("calibrating 200Mbit/s; about 60 s left", file=sys.stderr, flush=True)
if mode != "nothing":
    (folder / "validation.json").write_text(text)
if mode == "ends": # when it is told to: the page must have seen it run
    while not (folder / "end").exists():
        time.sleep(0.01)
    sys.exit(0)
print("4 ranks: 3 cells; about 30 s left", file=sys.stderr, flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit("stopped by SIGINT")
"""


def validation() -> Validation:
    one = Cell("collective", "ring", "replayed", 3, 2**20, "200Mbit/s", {}, (1.0,), 1.0, 1.23)
    clusters = {"200Mbit/s": {"bandwidth": "200Mbit/s"}}
    environment = {"versions": {}, "machine": {}, "command": "", "date": "2026-11-30"}
    return Validation((one,), clusters, {}, environment)


def until(condition, what: str) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


def tree(run: Guarded) -> list[psutil.Process]:
    guard = psutil.Process(run.process.pid)
    return [guard, *guard.children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=60)[1]


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Sets what the button starts, and leaves nothing running."""
    program = tmp_path / "fake.py"
    program.write_text(FAKE)

    def use(mode: str) -> None:
        def command(folder: Path) -> list[str]:
            return [sys.executable, str(program), str(folder), validation().to_json(), mode]

        monkeypatch.setattr(measured_run, "quick_command", command)

    monkeypatch.setattr(measured_here, "local", lambda: True)
    monkeypatch.setattr(measured_run, "missing", lambda: "")
    yield use
    if RUNS.run is not None:
        RUNS.discard(RUNS.run)


def opened():
    app = open_page("measured")
    app.session_state["measured_here"] = True
    return app.run()


def press(app, key: str):
    app.button(key=key).click()
    return app.run()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_untouched_page_answers_with_the_shipped_records(language):
    text = load_text(language)
    app = open_page("measured", lang=LANGUAGES[language], set=RECORDS)
    assert not app.exception
    shown = words(app)
    assert headline(shipped(RECORDS), text) in shown
    data = player_data(app)
    assert [lane["source"] for lane in data["lanes"]] == ["simulated", "replayed"]
    assert len(app.get("vega_lite_chart")) == 3
    assert str(len(groups(shipped(RECORDS).cells)[0].counted)) in shown


def test_a_run_is_shown_like_an_upload_and_leaves_nothing(fake):
    fake("ends")
    app = press(opened(), "measured_start")
    run = RUNS.run
    assert run is not None
    (run.folder / "end").touch()
    assert run.wait(60)
    app.run()
    assert not app.exception
    assert RUNS.run is None
    assert "+23.0\u00a0%" in words(app)
    assert "Collectives replayed (1)" in words(app)
    assert not run.folder.exists()
    app.toggle(key="measured_own_switch").set_value(False).run()
    assert headline(shipped(set_names()[0]), EN) in words(app)
    app.toggle(key="measured_own_switch").set_value(True).run()
    assert "Collectives replayed (1)" in words(app)


def test_a_stopped_run_keeps_what_it_had(fake):
    fake("waits")
    app = press(opened(), "measured_start")
    run = RUNS.run
    assert run is not None
    until(lambda: len(run.lines) == 2, "no progress")
    app.run()
    assert any("3 cells" in code.value for code in app.code)
    assert 0.4 < run.share < 1
    assert open_page("measured").run() is not None, "another session sees the same one"
    assert RUNS.start("another", lambda _: True) is run
    processes = tree(run)
    press(app, "measured_stop")
    assert run.wait(60)
    app.run()
    (warning,) = app.warning
    assert warning.value.startswith("It ended early")
    assert "+23.0\u00a0%" in words(app)
    assert gone(processes)
    assert not run.folder.exists()


def test_a_run_that_has_nothing_says_its_last_words(fake):
    fake("nothing")
    app = press(opened(), "measured_start")
    run = RUNS.run
    assert run is not None
    until(lambda: len(run.lines) == 2, "no progress")
    run.stop()
    assert run.wait(60)
    app.run()
    (warning,) = app.warning
    assert "stopped by SIGINT" in warning.value
    assert headline(shipped(set_names()[0]), EN) in words(app)


def test_who_does_not_stop_is_killed_with_all_in_its_group(fake, monkeypatch):
    monkeypatch.setattr(measured_run, "PATIENCE_S", 0.2)
    fake("stubborn")
    run = Running("mine", lambda _: True)
    until(lambda: len(run.lines) == 2 and len(tree(run)) == 3, "no grandchild")
    processes = tree(run)
    run.stop()
    assert run.wait(60)
    assert gone(processes)
    run.close()


def test_a_run_ends_with_the_session_that_sees_it(fake, monkeypatch):
    monkeypatch.setattr(measured_run, "GONE_S", 0.1)
    fake("waits")
    run = RUNS.start("closed tab", lambda name: name != "closed tab")
    processes = tree(run)
    until(lambda: RUNS.run is None, "still there")
    assert gone(processes)
    until(lambda: not run.folder.exists(), "folder left")


SERVER = """
import sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from app_pages import measured_run
measured_run.quick_command = lambda folder: [sys.executable, {fake!r}, str(folder), "{{}}", "waits"]
run = measured_run.RUNS.start("mine", lambda _: True)
while len(run.lines) < 2:
    time.sleep(0.02)
print(run.process.pid, run.folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "ends"])
def test_a_run_ends_with_the_server(fake, tmp_path, how):
    fake("waits")
    program = SERVER.format(root=str(ROOT), fake=str(tmp_path / "fake.py"))
    server = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        pid, folder = server.stdout.readline().split()
        guard = psutil.Process(int(pid))
        processes = [guard, *guard.children(recursive=True)]
        assert len(processes) == 2
        if how == "killed":
            os.kill(server.pid, signal.SIGKILL)
        else:
            server.stdin.close()
        server.wait(60)
    assert gone(processes)
    until(lambda: not Path(folder).exists(), "folder left")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"backend": None, "why": "torch is not installed: pip install torch"}, "torch is not"),
        ({"backend": "gloo", "missing": ["psutil is not installed"]}, "psutil is not installed"),
        ({"backend": "gloo", "missing": ["NCCL runs need two or more CUDA GPUs"]}, ""),
        (None, "no answer"),
    ],
)
def test_where_it_cannot_run_the_button_says_why(monkeypatch, answer, says):
    program = f"print({json.dumps(answer)!r})" if answer else ""
    monkeypatch.setattr(measured_run, "info_command", lambda: [sys.executable, "-c", program])
    monkeypatch.setattr(measured_here, "local", lambda: True)
    measured_run.missing.cache_clear()
    app = opened()
    measured_run.missing.cache_clear()
    assert app.button(key="measured_start").disabled == bool(says)
    assert any(says in caption.value for caption in app.caption)


def test_from_another_machine_nothing_is_started(monkeypatch):
    monkeypatch.setattr(measured_run, "missing", lambda: pytest.fail("asked in vain"))
    app = opened()
    assert app.button(key="measured_start").disabled
    assert any(EN("measured.here_local") == caption.value for caption in app.caption)


@pytest.mark.browser
def test_own_files_are_shown_and_bad_ones_named(open_page):
    page = open_page("measured", ready="copy")
    page.get_by_text(headline(shipped(set_names()[0]), EN)).wait_for()
    page.get_by_test_id("own").wait_for()
    record = load_records()[0].to_json()
    own = read_files([("good.json", record.encode())]).study
    assert own is not None
    files = [
        {"name": "good.json", "mimeType": "application/json", "buffer": record.encode()},
        {"name": "evil.json", "mimeType": "application/json", "buffer": b"cos\nsystem\n"},
        {"name": "large.json", "mimeType": "application/json", "buffer": b" " * 2_000_001},
    ]
    page.get_by_test_id("own").set_input_files(files)
    page.get_by_text(headline(own, EN)).wait_for()
    page.get_by_text("Not read: evil.json").wait_for()
    page.get_by_text("Not read: large.json").wait_for()
    page.get_by_role("button", name=EN("measured.own_forget")).click()
    page.get_by_text(headline(shipped(set_names()[0]), EN)).wait_for()
    page.get_by_text("Not read:").first.wait_for(state="detached")
