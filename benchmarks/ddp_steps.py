"""Real DistributedDataParallel steps on the shaped network against the simulator's.

    python benchmarks/ddp_steps.py FOLDER [--runs K]

Every cell is one record in FOLDER; the table says how far the simulation is off. Nothing is
fitted: the rate is the one that was set, the computing time that of the step without
communication. It takes about five minutes; the machine should be quiet.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from real_gpu.job import RunError
from real_gpu.stepping import train
from simcore.model import Parameter, Workload

CAPS_MB = (0.5, 1.0, 25.0)
RATES = ("200Mbit/s", "500Mbit/s")
RANKS = (2, 4)
ACCUMULATE = (1, 2)


def stack() -> Workload:
    """Twelve layers, 3.9 MB of gradients, 250 ms of computing."""
    layers = (Parameter(f"layer{i}.weight", (256, 256 + 64 * (i % 3))) for i in range(12))
    return Workload("stack-12", tuple(layers)).with_compute(0.06, 0.18, 0.01)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    print("ranks  network    cap MiB  micro  measured ms  simulated ms  error   spread")
    failed = 0
    for n, rate, cap, micro in itertools.product(RANKS, RATES, CAPS_MB, ACCUMULATE):
        name = f"ddp-{n}x-{rate.replace('/', '')}-{cap:g}MiB-{micro}"
        command = f"python benchmarks/ddp_steps.py FOLDER --runs {args.runs}"
        try:
            record = train(
                *(stack(), n, rate),
                bucket_cap_mb=cap,
                accumulate=micro,
                runs=args.runs,
                command=command,
            )
        except RunError as error:
            print(f"{name}: {error}")
            failed += 1
            continue
        (args.folder / f"{name}.json").write_text(record.to_json(), encoding="utf-8")
        simulated_s = record.simulate().time_s
        quiet = "" if record.instrument["ok"] else "  ".join(["", *record.instrument["reasons"]])
        print(
            f"{n:5}  {rate:9}  {cap:7g}  {micro:5}  {record.median_s * 1e3:11.1f}  "
            f"{simulated_s * 1e3:12.1f}  {simulated_s / record.median_s - 1:+.2%}  "
            f"{record.instrument['spread']:.1%}{quiet}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
