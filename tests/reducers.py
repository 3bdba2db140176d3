"""Buckets that a real DDP run's reducer launches, of known models in every mode, as a record.

    python -m tests.reducers --up-to 400e6 --out docs/reports/reducer.json

Too long for the suite (minutes, and up to 6 GB), which holds the simulator to the record instead:
``tests/test_buckets.py``. Collectives are torch's fake ones; parameters and gradients are real.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcore.training.catalogue import catalogue_names, catalogue_workload
from tests.ddp_support import real_buckets

ITERATIONS = 3
MODES = [
    {},
    {"bucket_cap_mb": 25},
    {"bucket_cap_mb": 1.5},
    {"bucket_cap_mb": 0},
    {"static_graph": True},
    {"static_graph": True, "bucket_cap_mb": 2},
    {"find_unused_parameters": True},
    {"find_unused_parameters": True, "bucket_cap_mb": 3},
]


def digest(launched: Sequence[Any]) -> dict[str, Any]:
    """Of one iteration: the bytes of each bucket, and which parameters are in it, hashed."""
    members = json.dumps([list(indices) for indices, _ in launched])
    return {
        "bytes": [nbytes for _, nbytes in launched],
        "members": hashlib.sha256(members.encode()).hexdigest()[:16],
    }


def record_of(name: str, modes: Sequence[dict[str, Any]] = MODES) -> list[dict[str, Any]]:
    """These modes of one model."""
    model, found = catalogue_workload(name), []
    for mode in modes:
        real = real_buckets(model, ITERATIONS, gradient_as_bucket_view=True, **mode)
        found.append({"mode": mode, "iterations": [digest(launched) for launched in real]})
        gc.collect()
    return found


def main() -> None:
    """Write the record."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--up-to", type=float, default=400e6, metavar="PARAMETERS")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    record: dict[str, Any] = {
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "iterations": ITERATIONS,
        "models": {},
    }
    for name in catalogue_names():
        if catalogue_workload(name).elements <= args.up_to:
            record["models"][name] = record_of(name)
            args.out.write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
