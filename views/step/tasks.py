"""The tasks of a step in words: a plan's labels to phrases."""

from __future__ import annotations

import re

from views.text import Text

# What a task's label says, and the phrase for it under "step.task.", in order of trial.
_TASKS = (
    (r"forward (?P<x>\d+)", "forward_micro"),
    (r"forward", "forward"),
    (r"forward (?P<x>.+)", "forward_of"),
    (r"backward(?: \d+)? to bucket (?P<x>[\d, ]+)", "backward_to"),
    (r"backward(?: \d+)? to part (?P<x>[\d, ]+)", "backward_to_part"),
    (r"backward (?P<x>\d+)", "backward_micro"),
    (r"backward", "backward"),
    (r"backward (?P<x>.+)", "backward_of"),
    (r"optimizer", "optimizer"),
    (r"launch", "launch"),
    (r"loss", "loss"),
    (r"scatter inputs", "scatter"),
    (r"gather outputs", "outputs"),
    (r"scatter output gradients", "dy"),
    (r"send parameters", "replicate"),
    (r"reduce gradients", "collect"),
    (r"bucket (?P<x>\d+).*", "bucket"),
    (r"buffers.*", "buffers"),
    (r"gather (?P<x>.+) for (?:forward|backward)", "gather"),
    (r"reduce (?P<x>.+)", "reduce"),
    (r"all-reduce (?P<x>.+) between nodes", "across"),
    (r"push (?P<x>[\d.]+)", "push"),
    (r"pull (?P<x>[\d.]+)", "pull"),
    (r"update (?P<x>[\d.]+)", "update"),
    (r"parameters (?P<x>\d+)", "updated"),
    (r".+ of rank (?P<x>\d+)", "owned"),
    (r"average parameters", "average"),
    (r"hold (?P<x>\d+)", "hold"),
)
TASK_KEYS = (*dict.fromkeys(key for _, key in _TASKS), "wait")


def task_key(label: str) -> tuple[str, str]:
    """The phrase's key for a task, and what it is about.

    >>> task_key("bucket 3"), task_key("gather h.2 for backward"), task_key("launch")
    (('bucket', '3'), ('gather', 'h.2'), ('launch', ''))
    >>> task_key("backward 2 to bucket 0, 1")  # complete with one and the same gradient
    ('backward_to', '0, 1')
    """
    for pattern, key in _TASKS:
        match = re.fullmatch(pattern, label)
        if match:
            return key, match.groupdict().get("x") or ""
    raise AssertionError(f"no phrase for the task {label!r}")


def task_words(label: str, text: Text) -> str:
    """The task in the reader's language."""
    key, about = task_key(label)
    return text(f"step.task.{key}", x=about)
