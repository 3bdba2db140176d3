"""Synchronous, bounded and asynchronous servers on one problem: the numbers and what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from simcore.cluster import uniform
from simcore.trace import FloatArray, Lane
from simcore.training.asynchronous import AsyncRun, run_asynchronous
from simcore.training.learning import Curve, LeastSquares, Problem, Scaling, Softmax, train
from simcore.units import format_time
from views.text import Text

MODES = ("sync", "ssp", "async")
GRADIENTS = 400  # in all; rounded up to whole rounds of the synchronous server
# How the others weigh one gradient, as a formula (lr: learning rate, n: workers).
SCALINGS: dict[str, Scaling] = {"lr": "same", "lr/n": "workers", "lr/(1+age)": "staleness"}
PROBLEMS = ("least-squares", "softmax")
TARGETS = {"least-squares": 0.01, "softmax": 0.22}  # of the loss at the start
TIE = 0.03  # times closer than this part are called the same


@dataclass(frozen=True, slots=True)
class StalenessSetting:
    """What the reader chose. The last worker is the straggler: ``straggler`` times as slow."""

    modes: tuple[str, ...]
    workers: int
    bound: int
    straggler: float
    jitter: float
    compute_s: float
    size_bytes: int
    bytes_per_s: float
    problem: str
    learning_rate: float
    scaling: str

    @property
    def gradients(self) -> int:
        """Of every mode the same number."""
        return self.workers * math.ceil(GRADIENTS / self.workers)

    @property
    def seconds(self) -> tuple[float, ...]:
        """Of one computation of each worker."""
        slow_s = round(self.compute_s * self.straggler, 9)
        return (*[self.compute_s] * (self.workers - 1), slow_s)

    def run(self, mode: str) -> AsyncRun:
        """In that mode; what is learnt in it is not yet said."""
        bound = {"sync": 0, "ssp": self.bound, "async": None}[mode]
        return _run(
            *(self.seconds, self.size_bytes, self.bytes_per_s, self.gradients),
            *(bound, self.jitter),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Mode:
    """One mode's run, what was learnt in it, and how its workers spent their time."""

    name: str
    setting: StalenessSetting
    run: AsyncRun
    curve: Curve
    target: float

    @property
    def reached_s(self) -> float | None:
        """When the loss was first down to the target; None if never, or if it did not stay low."""
        return None if self.curve.diverged else self.curve.reached_s(self.target)

    @property
    def shares(self) -> FloatArray:
        """Parts of the workers' time: computing, moving data, waiting."""
        spans, end_s, workers = self.run.trace.spans, self.run.time_s, self.setting.workers
        lasts_s = np.clip(spans.end_s, 0, end_s) - np.clip(spans.start_s, 0, end_s)
        computes = spans.lane == Lane.COMPUTE
        mine = spans.rank < workers
        total_s = workers * end_s
        parts = [
            lasts_s[mine & computes].sum() / total_s,
            lasts_s[mine & ~computes].sum() / total_s,
        ]
        return np.array([*parts, max(0.0, 1 - sum(parts))])

    def title(self, text: Text) -> str:
        """With the bound, where there is one."""
        return text(f"staleness.mode_{self.name}", bound=self.setting.bound)


@cache
def problem_called(name: str) -> Problem:
    """One of ``PROBLEMS``."""
    return LeastSquares() if name == "least-squares" else Softmax()


def all_modes(setting: StalenessSetting) -> tuple[Mode, ...]:
    """The chosen modes, in order, each with the same gradients of the same mini-batches.

    >>> setting = StalenessSetting(
    ...     MODES, 8, 2, 2.0, 0.1, 0.1, 25 * 2**20, 3.125e9, "least-squares", 1.0, "lr/n"
    ... )
    >>> for mode in all_modes(setting):
    ...     print(f"{mode.name}: {mode.run.time_s:.2f} s, {mode.run.mean_staleness:.1f} old")
    sync: 13.82 s, 0.0 old
    ssp: 13.28 s, 3.8 old
    async: 6.93 s, 7.0 old
    """
    problem = problem_called(setting.problem)
    target = TARGETS[setting.problem] * problem.loss(problem.start)
    found = []
    for name in setting.modes:
        run = setting.run(name)
        curve = train(problem, run, setting.learning_rate, SCALINGS[setting.scaling])
        found.append(Mode(name, setting, run, curve, target))
    return tuple(found)


@lru_cache(maxsize=64)
def _run(
    seconds: tuple[float, ...],
    size_bytes: int,
    bytes_per_s: float,
    gradients: int,
    bound: int | None,
    jitter: float,
) -> AsyncRun:
    """With a server on a rank of its own; kept, since learning rates change more often."""
    cluster = uniform(len(seconds) + 1, bytes_per_s)
    case = (cluster, seconds, size_bytes, size_bytes, gradients, bound)
    return run_asynchronous(*case, servers=1, jitter=jitter)


def headline(found: Sequence[Mode], text: Text) -> str:
    """What not waiting brings, and what it costs; from the runs' numbers alone.

    >>> from views.text import load_text
    >>> setting = StalenessSetting(
    ...     ("sync", "async"), 8, 2, 2.0, 0.1, 0.1, 25 * 2**20, 3.125e9, "least-squares", 1.0, "lr"
    ... )
    >>> print(headline(all_modes(setting), load_text("en")))
    Without waiting for each other, 8 workers get through 400 gradients in 6.927 s; the \
synchronous server needs 13.82 s, 2 times as long. But gradients are 7 updates old on average, \
too old for steps of this size: the loss goes up, from 1 to 1.3·10⁹. However fast, that is no \
training.
    """
    first, last = found[0], found[-1]
    if first is last:
        return _alone(first, text)
    middle = found[1:-1]
    sentences = [_speed(first, last, text), _outcome(first, last, text)]
    sentences += [_between(mode, text) for mode in middle]
    return text.joined(sentences)


def _alone(mode: Mode, text: Text) -> str:
    values = _values(mode)
    ends = "rises" if mode.curve.diverged else "reaches" if mode.reached_s else "falls"
    return text("staleness.alone", name=mode.title(text), **values) + text(
        f"staleness.alone_{ends}", **values
    )


def _values(mode: Mode) -> dict[str, object]:
    return {
        "gradients": mode.setting.gradients,
        "time": format_time(mode.run.time_s),
        "age": f"{mode.run.mean_staleness:.2g}",
        "from": loss_text(float(mode.curve.loss[0])),
        "to": loss_text(float(mode.curve.loss[-1])),
        "target": loss_text(mode.target),
        "reached": format_time(mode.reached_s or 0),
    }


def _inline(mode: Mode, text: Text) -> str:
    return text(f"staleness.mode_{mode.name}_inline", bound=mode.setting.bound)


def _speed(first: Mode, last: Mode, text: Text) -> str:
    factor = first.run.time_s / last.run.time_s
    order = "same" if abs(factor - 1) < TIE else "faster" if factor > 1 else "slower"
    return text(
        f"staleness.speed_{last.name}_{order}",
        n=first.setting.workers,
        bound=first.setting.bound,
        gradients=first.setting.gradients,
        base=_inline(first, text),
        time=format_time(last.run.time_s),
        other=format_time(first.run.time_s),
        factor=f"{max(factor, 1 / factor):.3g}",
    )


def _outcome(first: Mode, last: Mode, text: Text) -> str:
    values = _values(last) | {
        "base": _inline(first, text),
        "base_to": loss_text(float(first.curve.loss[-1])),
        "base_reached": format_time(first.reached_s or 0),
    }
    if last.curve.diverged or first.curve.diverged:
        both = last.curve.diverged and first.curve.diverged
        which = "both" if both else "rises" if last.curve.diverged else "base_rises"
        return text(f"staleness.outcome_{which}", **values)
    if last.reached_s is None or first.reached_s is None:
        neither = last.reached_s is None and first.reached_s is None
        which = "neither" if neither else "never" if last.reached_s is None else "only"
        return text(f"staleness.outcome_{which}", **values)
    ratio = first.reached_s / last.reached_s
    which = "same" if abs(ratio - 1) < TIE else "sooner" if ratio > 1 else "later"
    return text(f"staleness.outcome_{which}", **values)


def _between(mode: Mode, text: Text) -> str:
    ends = "rises" if mode.curve.diverged else "reaches" if mode.reached_s else "falls"
    return text(f"staleness.between_{ends}", bound=mode.setting.bound, **_values(mode))


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def loss_text(loss: float) -> str:
    """Two or three digits, with a power of ten where that is shorter.

    >>> [loss_text(loss) for loss in (1.0, 0.0123, 1.3e9, 4.2e-7, math.inf)]
    ['1', '0.0123', '1.3·10⁹', '4.2·10⁻⁷', '∞']
    """
    if not math.isfinite(loss):
        return "∞"
    if loss == 0 or 1e-3 <= abs(loss) < 1e4:
        return f"{loss:.3g}"
    digits, power = f"{loss:.1e}".split("e")
    return f"{digits}·10{superscript(int(power))}"


def superscript(power: int) -> str:
    """Small and raised.

    >>> superscript(-12)
    '⁻¹²'
    """
    return str(power).translate(_SUPERSCRIPTS)
