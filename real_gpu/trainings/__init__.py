"""Data-parallel training in PyTorch, a lesson a file: small, whole, and each proves its claim.

``python -m real_gpu.trainings`` lists the lessons. Read ``launching`` first: the others use it.
"""

import importlib.util
import sys

LESSONS = (
    "data_parallel",
    "ddp",
    "token_loader",
    "accumulation",
    "initial_weights",
    "evaluation",
    "checkpoint",
    "learning_rate",
)

_STARTED = any(f"{__name__}.{name}" in sys.orig_argv for name in LESSONS)
if _STARTED and importlib.util.find_spec("torch") is None:
    sys.exit("a lesson needs torch, which is not installed: pip install torch")
