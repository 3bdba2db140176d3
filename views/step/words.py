"""What a step's numbers say, in sentences: who is faster, what for, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simcore.training.memory import Memory
from simcore.training.step import StepResult
from simcore.units import format_bytes, format_time
from views.step.runs import ONE_SWITCH, StepChoice
from views.step.shares import Shares, shares
from views.text import Text

TIE = 0.01  # of the time: nobody would choose for less
SMALL = 0.1  # exposed below this part of a step: the network is not what limits
LARGE = 0.5
MOST = 2 / 3  # of the exposed time: what must be told


def name_of(strategy: str, text: Text) -> str:
    """A strategy for people."""
    return text(f"step.strategy.{strategy}")


def time_words(seconds: float) -> str:
    """Three digits are enough for a sentence.

    >>> time_words(0.068637), time_words(0.0)
    ('68.6 ms', '0 s')
    """
    return format_time(float(f"{seconds:.3g}"))


@dataclass(frozen=True, slots=True)
class Told:
    """A run and where its exposed time goes."""

    result: StepResult
    shares: Shares

    @property
    def exposed_part(self) -> float:
        """Of the step."""
        return self.result.exposed_communication_s / max(self.result.time_s, 1e-300)


def tell(result: StepResult) -> Told:
    """For the sentences."""
    return Told(result, shares(result))


def headline(choice: StepChoice, results: list[StepResult], text: Text) -> str:
    """Who needs how long, what the slower one waits for, what limits the faster one.

    >>> from views.step.runs import run_step
    >>> from views.text import load_text
    >>> choice = StepChoice("resnet50", "V100 16GB", 64, 4)
    >>> runs = [run_step(choice, name) for name in ("ddp", "dp")]
    >>> print(headline(choice, runs, load_text("en")))  # doctest: +ELLIPSIS
    DDP needs 68.6 ms a step, 14.3 ms of it waiting for communication; DataParallel needs ...
    """
    told = sorted(map(tell, results), key=lambda one: one.result.time_s)
    fast, slow = told[0], told[-1]
    first = _needs(fast, "waits", text)
    if len(told) > 1:
        first += text("step.and_then") + _needs(slow, "too", text)
        first += _difference(fast, slow, choice, text)
    else:
        first += _why(fast, choice, text)
    parts = [first + text("step.stop"), limits(fast, text)]
    parts += _straggler(choice, fast.result, text)
    parts += [sentence for one in told if (sentence := fits(choice, one.result, text))]
    return text.joined(part[0].upper() + part[1:] for part in parts)


def _difference(fast: Told, slow: Told, choice: StepChoice, text: Text) -> str:
    """None, or computing, or what the slower one waits for: whichever makes more of it."""
    difference_s = slow.result.time_s - fast.result.time_s
    if difference_s <= TIE * fast.result.time_s:
        return text("step.tie")
    longer_s = slow.result.compute_s - fast.result.compute_s
    if longer_s > difference_s / 2:
        return text("step.computes_longer", longer=time_words(longer_s))
    return _why(slow, choice, text)


def inline(strategy: str, text: Text) -> str:
    """A strategy's name inside a sentence."""
    key = f"step.strategy.{strategy}.inline"
    return text(key) if key in text.phrases else name_of(strategy, text)


def _needs(told: Told, how: str, text: Text) -> str:
    result = told.result
    return text(
        f"step.needs_{how if told.exposed_part >= 5e-4 else 'never'}",
        name=inline(result.strategy, text),
        time=time_words(result.time_s),
        exposed=time_words(result.exposed_communication_s),
    )


def _why(slow: Told, choice: StepChoice, text: Text) -> str:
    """What most of the exposed time is about, and whether anything is hidden."""
    if slow.exposed_part < SMALL:
        return ""
    exposed_s = sum(slow.shares.exposed_s.values())
    parts, told_s = [], 0.0
    for key, part_s in sorted(slow.shares.exposed_s.items(), key=lambda item: -item[1]):
        phrase = text(f"step.why.{_why_key(key, choice)}", peers=choice.gpus - 1)
        part = time_words(part_s / slow.result.steps)
        parts.append(text("step.part", phrase=phrase, part=part))
        told_s += part_s
        if told_s >= MOST * exposed_s:
            break
    said = text("step.mostly", parts=_listed(parts, text))
    if slow.shares.hidden_s < 0.01 * exposed_s:
        said += text("step.nothing_overlaps")
    return said


def _listed(parts: list[str], text: Text) -> str:
    most = text("step.part_join").join(parts[:-1])
    return most + text("step.part_last") + parts[-1] if most else parts[0]


def _why_key(key: str, choice: StepChoice) -> str:
    if key in ("replicate", "collect") and choice.backend == "gloo":
        return f"{key}_one_by_one"
    return key


def limits(fast: Told, text: Text) -> str:
    """Whether the network limits the faster one."""
    part = fast.exposed_part
    values = {
        "name": inline(fast.result.strategy, text),
        "computing": f"{(1 - part) * 100:.3g}",
        "hidden": _hidden_percent(fast),
    }
    if part < SMALL:
        return text("step.not_the_network", **values)
    if part > LARGE:
        return text("step.the_network", **values)
    return text("step.partly" if float(values["hidden"]) >= 1 else "step.computing_fills", **values)


def _hidden_percent(told: Told) -> str:
    """Of the time in which its network is busy."""
    hidden_s = told.shares.hidden_s
    exposed_s = sum(s for key, s in told.shares.exposed_s.items() if key not in ("wait", "hold"))
    return f"{100 * hidden_s / max(hidden_s + exposed_s, 1e-300):.3g}"


def _straggler(choice: StepChoice, result: StepResult, text: Text) -> list[str]:
    """The others compute less and wait: said where there is a slower GPU."""
    if choice.slower == 1:
        return []
    computing_s = result.run.compute_s[: choice.gpus] / result.steps
    values = {
        "rank": choice.gpus - 1,
        "factor": f"{choice.slower:g}",
        "most": time_words(float(computing_s[-1])),
        "others": time_words(float(np.median(computing_s[:-1]))),
    }
    return [text("step.straggler", **values)]


def fullest(result: StepResult) -> tuple[int, Memory]:
    """The GPU that holds most, extra servers aside: they are no GPUs."""
    held = result.memory[: result.setting.gpus]
    rank = max(range(len(held)), key=lambda r: held[r].total)
    return rank, held[rank]


def fits(choice: StepChoice, result: StepResult, text: Text) -> str:
    """What does not fit on the card; empty where it does."""
    rank, held = fullest(result)
    if held.total <= choice.card.memory_bytes:
        return ""
    said = text(
        "step.does_not_fit",
        name=inline(result.strategy, text),
        rank=rank,
        needs=gigabytes(held.total),
        has=gigabytes(choice.card.memory_bytes),
    )
    return said[0].upper() + said[1:]


def gigabytes(nbytes: float) -> str:
    """As cards are sold: decimal, three digits.

    >>> gigabytes(93_412_000_000), gigabytes(640_900)
    ('93.4 GB', '641 kB')
    """
    return format_bytes(float(f"{nbytes:.3g}")) if nbytes < 1e9 else f"{nbytes / 1e9:.3g} GB"


def compute_words(choice: StepChoice, text: Text) -> str:
    """Where the compute times come from, how uncertain, and what that means here."""
    precision, reached = choice.reached
    peak = choice.card.flops_per_s[precision]
    work = choice.workload()
    typical_s = sum(work.forward_s) + sum(work.backward_s)
    low_s, high_s = (typical_s * reached.typical / part for part in (reached.high, reached.low))
    return text(
        "step.compute_source",
        gpu=choice.gpu,
        precision=precision,
        typical=f"{reached.typical * 100:.3g}",
        low=f"{reached.low * 100:.3g}",
        high=f"{reached.high * 100:.3g}",
        peak=f"{peak / 1e12:.4g}",
        time=time_words(typical_s),
        least=time_words(low_s),
        most=time_words(high_s),
        source=reached.source,
    )


def network_words(choice: StepChoice, text: Text) -> str:
    """The network in a line."""
    if choice.network == ONE_SWITCH:
        return text("step.one_switch", rate=choice.rate, latency=choice.latency)
    return text("step.preset", name=choice.network)
