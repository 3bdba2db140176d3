"""Measures again what the shipped records hold: the same configurations, on this machine.

    python benchmarks/records.py FOLDER

Writes a record of each to FOLDER, under the name of the shipped one, and prints both errors. What
the instrument refuses is measured once more, then left out. It takes about six minutes; the
machine should be quiet.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a checkout need not be installed

from real_gpu.job import Case, Job, parse_network, ranks
from real_gpu.network.instrument import calibration
from real_gpu.processes.measure import measure
from real_gpu.recording import record_of
from simcore.measured.records import Record, record_from_json

RUNS = 5


def shipped() -> Iterator[tuple[str, Record]]:
    """File names and records."""
    folder = resources.files("simcore").joinpath("data/records")
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        yield file.name, record_from_json(file.read_text(encoding="utf-8"), file.name)


def case_of(record: Record) -> Case:
    return Case(record.name, record.size_bytes // 4, record.dtype, RUNS, dict(record.flags))


def command_of(record: Record, name: str) -> str:
    """What measures this one alone."""
    words = ["python", "-m", "real_gpu", "run", record.name, "--gpus", str(record.gpus)]
    words += ["--size", f"{record.size_bytes // 2**20}MiB", "--network", record.network or ""]
    for flag, value in record.flags.items():
        words += [f"--{flag.replace('_', '-')}", str(value)]
    return shlex.join([*words, "--runs", str(RUNS), "--out", name])


def take(network: str, n: int, wanted: list[tuple[str, Record]]) -> list[tuple[str, Record]]:
    """New records of these, measured on one set of ranks."""
    shaped = parse_network(network)
    cases = [case_of(record) for _, record in wanted]
    job = Job(n, (calibration(shaped), *cases), "gloo", shaped)
    calibrated, *results = measure(job)
    return [
        (
            name,
            record_of(job, case, result, calibrated=calibrated, command=command_of(old, name)),
        )
        for (name, old), case, result in zip(wanted, cases, results, strict=True)
    ]


def error_of(record: Record) -> str:
    if not record.simulated:
        return "–"
    return f"{record.simulated['time_s'] / record.median_s - 1:+.2%}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    groups = defaultdict(list)
    for name, record in shipped():
        assert record.network is not None
        groups[record.network, ranks(case_of(record), record.gpus)].append((name, record))
    left_out = 0
    for (network, n), wanted in groups.items():
        left = wanted
        for last in (False, True):
            if not left:
                break
            again = []
            for (name, record), old in zip(take(network, n, left), left, strict=True):
                if record.believable:
                    (folder / name).write_text(record.to_json(), encoding="utf-8")
                    print(f"{name:40} was {error_of(old[1])}, is {error_of(record)}", flush=True)
                else:
                    again.append(old)
                    if last:
                        print(f"{name:40} left out: {record.instrument}", flush=True)
            left = again
        left_out += len(left)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
