"""How fast training steps are simulated: ``python benchmarks/steps.py [--quick]``.

Every case is a fresh process, whose seconds are told twice: by the clock, and of the CPU alone,
which other people's work on the machine changes less. Nothing here passes or fails.
``--quick`` runs each case once.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Where the processes run, so that a checkout need not be installed.
ROOT = Path(__file__).resolve().parent.parent
RUNS = 1 if "--quick" in sys.argv else 5

LARGE = ["--model", "gpt2-xl", "--gpus", "1024", "--bandwidth", "25GB/s", "--latency", "5us"]
LARGE += ["--gpu", "A100 80GB", "--json"]
NODES = ["--model", "gpt2-xl", "--gpus", "1024", "--cluster", "dgx-a100", "--gpu", "A100 80GB"]
FEW_NODES = [*("64" if text == "1024" else text for text in NODES), "--gpus-per-node", "8"]
SMALL = ["8" if text == "1024" else text for text in LARGE]
SWEEP = """
import itertools
from simcore.training.buckets import DdpOptions
from simcore.cluster import uniform
from simcore.training.step import step
from simcore.training.strategies import Setting
from simcore.training.workload import load_workload
models = ("resnet50", "vit-b-16", "bert-base", "gpt2", "gpt2-xl")
works = [load_workload(name).estimated_on("A100 80GB") for name in models]
gpus, rates = (8, 32, 128, 512, 1024), (3e9, 6e9, 12.5e9, 25e9, 50e9)
caps = (None, 1, 5, 10, 25, 50, 100, 200)
for work, n, rate, cap in itertools.product(works, gpus, rates, caps):
    step("ddp", Setting(work, n, DdpOptions(bucket_cap_mb=cap)), uniform(n, rate, 5e-6))
"""
COMMAND = ["-m", "simcore"]
CASES = {
    "python -c pass": ["-c", "pass"],
    "import simcore.training.step": ["-c", "import simcore.training.step"],
    "step ddp, GPT-2 1.5B on 1,024 GPUs": [*COMMAND, "step", "ddp", *LARGE],
    "the same, fsdp": [*COMMAND, "step", "fsdp", *LARGE],
    "the same, zero-redundancy-optimizer": [*COMMAND, "step", "zero-redundancy-optimizer", *LARGE],
    "the same, ps": [*COMMAND, "step", "ps", *LARGE],
    "the same, ddp on nodes of 8 (dgx-a100)": [*COMMAND, "step", "ddp", *NODES],
    "compare, GPT-2 1.5B on 8 nodes of 8": [*COMMAND, "compare", *FEW_NODES],
    "step byteps, GPT-2 1.5B on 8 GPUs": [*COMMAND, "step", "byteps", *SMALL],
    "compare, GPT-2 1.5B on 8 GPUs": [*COMMAND, "compare", *SMALL],
    "compare, ResNet-50 on 8 GPUs": [
        *(*COMMAND, "compare", "--model", "resnet50", "--gpus", "8", "--bandwidth", "25Gbit/s"),
        *("--gpu", "V100 16GB", "--json"),
    ],
    "sweep of 1,000 DDP steps": ["-c", SWEEP],
}

Row = tuple[float, float, float]


def measure(arguments: list[str]) -> Row:
    """Seconds by the clock, seconds of the CPU, and peak MiB of one process."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments} ended with {process.returncode}")
    seconds = time.perf_counter() - begin
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}, {RUNS} fresh processes each")
    print(f"{'':42} {'clock s':>9} {'CPU s':>9} {'least':>9} {'most':>9} {'MiB':>6}")
    for name, arguments in CASES.items():
        rows = [measure(arguments) for _ in range(RUNS)]
        clock, cpu, mib = zip(*rows, strict=True)
        medians = f"{statistics.median(clock):9.3f} {statistics.median(cpu):9.3f}"
        print(f"{name:42} {medians} {min(cpu):9.3f} {max(cpu):9.3f} {max(mib):6.0f}", flush=True)


if __name__ == "__main__":
    main()
