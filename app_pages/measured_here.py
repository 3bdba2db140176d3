"""*Run it here*: a button, its progress, and what came of it."""

from __future__ import annotations

import time

import streamlit as st
from streamlit.runtime import exists, get_instance
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app_pages import measured_own, measured_run
from simcore.units import format_time
from views.measured.rows import QUICK, plain
from views.text import Text

LINES = 5  # of what it says, at a time


def local() -> bool:
    """Whether this browser is on the server's machine."""
    return measured_run.is_local(dict(st.context.headers), st.context.ip_address)


def session() -> str:
    """This session's name."""
    context = get_script_run_ctx()
    return context.session_id if context else ""


def alive(name: str) -> bool:
    """Whether a session still has its browser."""
    return not exists() or get_instance().is_active_session(name)


def take_result(text: Text) -> None:
    """Before anything is shown: a run that has ended is read like an upload, and said so."""
    taken = measured_run.RUNS.take()
    if taken is None:
        return
    read, run = taken
    last = run.lines[-1] if run.lines else text("race.none")
    if read.study is None:
        key = "measured.here_stopped" if run.stopped else "measured.here_failed"
        measured_own.put(read, (key, last))
    elif run.process.returncode:
        measured_own.put(read, ("measured.here_partly", last))
    else:
        measured_own.put(read)


def run_here(text: Text) -> None:
    """What it does and takes, the button, or why there is none."""
    st.markdown(text("measured.here_what"))
    st.code(QUICK, language="shell", wrap_lines=True)
    if measured_run.RUNS.run is not None:
        _progress(text)
        return
    reason = _why_not(text)
    pressed = st.button(
        text("measured.here_start"), disabled=bool(reason), key="measured_start", type="primary"
    )
    if reason:
        st.caption(reason)
    if pressed:
        measured_run.RUNS.start(session(), alive)
        st.rerun()


def _why_not(text: Text) -> str:
    if not local():
        return text("measured.here_local")
    with st.spinner(text("measured.here_asking")):
        missing = measured_run.missing()
    return text("measured.here_missing", reason=plain(missing)) if missing else ""


def _progress(text: Text) -> None:
    """Every second, without the rest of the page; at the end the page itself runs again."""

    @st.fragment(run_every=1.0)
    def show() -> None:
        run = measured_run.RUNS.run
        if run is None or run.ended:
            st.rerun()
        run.session = session()  # whoever looks at it now
        spent = format_time(float(round(time.monotonic() - run.begin_s)))
        words = text("measured.here_stopping" if run.stopped else "measured.here_runs", time=spent)
        st.progress(run.share, text=words)
        if run.lines:
            st.code("\n".join(list(run.lines)[-LINES:]), language=None, wrap_lines=True)
        st.button(
            text("measured.here_stop"),
            on_click=run.stop,
            disabled=run.stopped,
            key="measured_stop",
        )

    show()
