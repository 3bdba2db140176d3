"""Training steps on the shaped network, replayed and the vendor's own, against the simulator.

    python benchmarks/steps_real.py FOLDER [--runs K]

DDP twice (replayed, and torch's), DataParallel and the parameter server, over ranks, rates and
bucket sizes. A record of each cell goes to FOLDER, to FOLDER/not-quiet where the
instrument's checks failed. The table says how far the simulation is off. Nothing is fitted: the
rate is the one that was set, the computing time that of the step without communication. It takes
about six minutes on a quiet machine, which it needs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a checkout need not be installed

from real_gpu.job import RunError
from real_gpu.stepping import Step, take_steps
from real_gpu.validation.steps import stack
from simcore.measured.step_records import StepRecord
from simcore.training.buckets import DdpOptions
from simcore.training.strategies import Setting

RATES = ("200Mbit/s", "500Mbit/s")
RANKS = (2, 3, 4)
CAPS_MB = (0.5, 25.0)


def steps_of(n: int) -> list[Step]:
    """The cells of one set of ranks."""
    found = [
        Step(name, Setting(stack(), n, DdpOptions(bucket_cap_mb=cap)))
        for name, cap in itertools.product(("ddp", "torch.ddp"), CAPS_MB)
    ]
    plain = Setting(stack(), n)
    return [*found, Step("dp", plain), Step("ps", plain), Step("ps", replace(plain, servers=n))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    (args.folder / "not-quiet").mkdir(parents=True, exist_ok=True)
    print("step       ranks  network    options                          measured     simulated")
    command = f"python benchmarks/steps_real.py FOLDER --runs {args.runs}"
    failed, records = 0, []
    for n, rate in itertools.product(RANKS, RATES):
        try:
            found = take_steps(steps_of(n), rate, runs=args.runs, command=command)
        except RunError as error:
            print(f"{n} ranks, {rate}: {error}")
            failed += 1
            continue
        for record, _ in found:
            keep(record, args.folder)
            records.append(record)
    summarise(records)
    return 1 if failed else 0


def keep(record: StepRecord, folder: Path) -> None:
    """Write it where it belongs, and its line in the table."""
    assert record.instrument is not None
    options = " ".join(f"{k}={v:g}" for k, v in record.options.items())
    cell = f"{record.name}-{record.gpus}x-{record.network}-{options}".replace("/", "")
    where = folder if record.instrument["ok"] else folder / "not-quiet"
    path = where / f"{cell.replace(' ', '-').replace('=', '-').replace('_', '-').rstrip('-')}.json"
    path.write_text(record.to_json(), encoding="utf-8")
    simulated_s = record.simulate().run.time_s
    print(
        f"{record.name:10} {record.gpus:5}  {record.network}  {options:30}  "
        f"{record.median_s * 1e3:8.1f} ms  {simulated_s * 1e3:8.1f} ms  {record.error():+.2%}"
        f"{'  '.join(['', *record.instrument['reasons']])}",
        flush=True,
    )


def summarise(records: Sequence[StepRecord]) -> None:
    """How far off, over what the instrument believed; for each step and for all."""
    believed = [r for r in records if r.instrument and r.instrument["ok"]]
    print(f"believed: {len(believed)} of {len(records)}")
    for name in (*dict.fromkeys(r.name for r in believed), "all"):
        errors = [abs(r.error()) for r in believed if name in (r.name, "all")]
        if errors:
            print(f"{name:10} {len(errors):3}  mean {fmean(errors):.2%}, worst {max(errors):.2%}")


if __name__ == "__main__":
    sys.exit(main())
