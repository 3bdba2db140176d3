"""Records the traces that *Measured against simulated* shows above and below one another.

    python benchmarks/traces.py [FOLDER]

Each is one real run on the shaped network; the default folder is that of the shipped traces. The
machine should be quiet: a run whose instrument was not is left out, and said so.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "simcore" / "data" / "traces"
ALGORITHMS = ("ring", "ps")
CASE = ("--gpus", "4", "--size", "8MiB", "--network", "200Mbit/s")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=SHIPPED, metavar="FOLDER")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in ALGORITHMS:
            trace = Path(scratch) / f"{name}-4x8MiB-200Mbit.json"
            run = [sys.executable, "-m", "real_gpu", "run", name, *CASE]
            out = ["--trace", str(trace), "--out", str(Path(scratch) / "record.json")]
            if subprocess.run([*run, *out], cwd=ROOT, check=False).returncode == 0:
                (folder / trace.name).write_text(trace.read_text(encoding="utf-8"))
            else:
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
