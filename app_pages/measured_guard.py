"""Runs a command that does not outlive whoever started this.

``python -m app_pages.measured_guard SECONDS FOLDER COMMAND…``: standard input is the leash. A line
on it interrupts the command; its end, because the other side is gone, does so too and then removes
FOLDER. A command that has not ended SECONDS after an interrupt is killed, with all in its group.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading


def main() -> int:
    """Start, hold, clean up; the command's own exit status."""
    patience_s, folder, *command = sys.argv[1:]
    # A server in the background may ignore interrupts; what it starts here shall not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    alone = threading.Event()

    def hold() -> None:
        while os.read(0, 100):  # a line; then nothing, when the other side lets go
            _end(child, float(patience_s))
        alone.set()
        _end(child, float(patience_s))

    threading.Thread(target=hold, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: _end(child, 0.0))
    status = child.wait()
    _signal(child, "SIGKILL")  # what it may have left in its group
    if alone.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else 128 - status


def _end(child: subprocess.Popen[bytes], patience_s: float) -> None:
    _signal(child, "SIGINT")
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(patience_s)
        return
    _signal(child, "SIGKILL")


def _signal(child: subprocess.Popen[bytes], name: str) -> None:
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, getattr(signal, name))
        else:
            child.terminate()


if __name__ == "__main__":
    os._exit(main())  # without waiting for the thread that holds the leash
