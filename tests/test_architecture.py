"""The core's promises: what it imports, and what it exports."""

import subprocess
import sys

import simcore

FOREIGN = ["torch", "streamlit", "altair", "matplotlib", "pandas", "simpy", "ml_dtypes", "real_gpu"]


def test_importing_the_core_imports_nothing_heavy():
    code = f"import sys, simcore; print([m for m in {FOREIGN} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_public_names_are_these():
    assert simcore.__all__ == [
        "ALGORITHMS",
        "ClosedForm",
        "Cluster",
        "Collective",
        "Level",
        "Op",
        "Port",
        "Schedule",
        "ScheduleError",
        "Simulation",
        "SimulationError",
        "Slowdown",
        "Source",
        "Trace",
        "Transfer",
        "build_schedule",
        "chunk_sizes",
        "closed_form",
        "load_cluster",
        "lower_bound_s",
        "parse_schedule",
        "parse_slow_link",
        "presets",
        "prove",
        "reference",
        "reorder",
        "ring_order",
        "simulate",
        "uniform",
    ]
    assert all(hasattr(simcore, name) for name in simcore.__all__)


def test_the_public_names_say_what_they_are():
    undocumented = [
        name
        for name in simcore.__all__
        if name != "ALGORITHMS" and not (getattr(simcore, name).__doc__ or "").strip()
    ]
    assert undocumented == []
