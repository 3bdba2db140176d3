"""What each strategy's fullest GPU holds, as stacked bars against the card's capacity."""

from __future__ import annotations

from collections.abc import Sequence

from simcore.training.memory import Memory
from simcore.training.step import StepResult
from views.step.chart import ticks
from views.step.runs import StepChoice
from views.step.svg import SHEETS, Sheet, box, legend, marked, picture, words
from views.step.words import fits, fullest, gigabytes, name_of
from views.text import Text

PARTS = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "buckets": ("buckets",),
    "optimizer": ("optimizer",),
    "activations": ("activations",),
    "data": ("inputs", "outputs"),
}


def parts_of(held: Memory) -> dict[str, int]:
    """Bytes by what they are for, as they are drawn.

    >>> parts_of(Memory(parameters=4, inputs=1, outputs=2))["data"]
    3
    """
    return {name: sum(getattr(held, f) for f in fields) for name, fields in PARTS.items()}


def bar_name(result: StepResult, text: Text) -> str:
    """Whose memory a bar is."""
    rank, held = fullest(result)
    alike = all(one.total == held.total for one in result.memory[: result.setting.gpus])
    return text(
        "step.memory_bar_every" if alike else "step.memory_bar",
        name=name_of(result.strategy, text),
        rank=rank,
        needs=gigabytes(held.total),
    )


def fits_words(choice: StepChoice, results: Sequence[StepResult], text: Text) -> str:
    """Whether all fit on the card, or which do not."""
    lacking = [said for result in results if (said := fits(choice, result, text))]
    if lacking:
        return text.joined(lacking)
    most = max(fullest(result)[1].total for result in results)
    has = gigabytes(choice.card.memory_bytes)
    return text("step.memory_all_fit", needs=gigabytes(most), has=has)


def memory_html(choice: StepChoice, results: Sequence[StepResult], text: Text) -> str:
    """Legend and both widths of the picture."""
    present = [name for name in PARTS if any(parts_of(fullest(r)[1])[name] for r in results)]
    kinds = {name: text(f"step.memory.{name}") for name in present}
    pictures = (memory_svg(sheet, choice, results, text) for sheet in SHEETS)
    return legend(kinds) + "".join(pictures)


def describe(choice: StepChoice, results: Sequence[StepResult], text: Text) -> str:
    """The picture in words."""
    bars = text("step.stop").join(bar_name(result, text) for result in results)
    has = gigabytes(choice.card.memory_bytes)
    return text("step.memory_description", has=has, bars=bars + text("step.stop"))


def memory_svg(sheet: Sheet, choice: StepChoice, results: Sequence[StepResult], text: Text) -> str:
    """A bar per strategy; what is beyond the card has the accent."""
    sheet = Sheet(sheet.name, sheet.width, 0, sheet.font)
    has = choice.card.memory_bytes
    most = max([has, *(fullest(result)[1].total for result in results)]) * 1.02
    parts, y = [], 20.0
    for result in results:
        held = fullest(result)[1]
        over = held.total > has
        name = bar_name(result, text)
        if over:
            needs = gigabytes(held.total)
            said = text("step.memory_overflow", needs=needs, has=gigabytes(has))
            name = f"{name_of(result.strategy, text)}: {said}"
        y += 13
        parts.append(words(0, y, name, "over" if over else "title"))
        parts.append(_bar(sheet, held, has, most, y + 6, text))
        y += 40
    x = sheet.x(has / most)
    anchor = "end" if x > sheet.width / 2 else "start"
    card = words(x, 11, text("step.memory_card", gpu=choice.gpu, has=gigabytes(has)), "", anchor)
    card += f'<path class="card" d="M{x:.2f} 16V{y - 6:.1f}"/>'
    axis = _axis(sheet, most, y - 4)
    return picture(sheet, y + 14, describe(choice, results, text), axis + "".join(parts) + card)


def _bar(sheet: Sheet, held: Memory, has: int, most: float, y: float, text: Text) -> str:
    drawn, at = [], 0
    for name, nbytes in parts_of(held).items():
        if not nbytes:
            continue
        x, width = sheet.x(at / most), sheet.room * nbytes / most
        tip = f"{text(f'step.memory.{name}')}: {gigabytes(nbytes)}"
        drawn.append(marked(box(sheet, name, x, y, width, 20), tip))
        at += nbytes
    if at > has:
        x = sheet.x(has / most)
        drawn.append(box(sheet, "over", x, y + 22, sheet.room * (at - has) / most, 4))
    return "".join(drawn)


def _axis(sheet: Sheet, most: float, y: float) -> str:
    parts = []
    for nbytes in ticks(most, 7 if sheet.width > 500 else 4):
        x = sheet.x(nbytes / most)
        anchor = "start" if not nbytes else "middle" if x < sheet.width - 24 else "end"
        parts.append(words(x, y + 14, gigabytes(nbytes) if nbytes else "0", "tick", anchor))
    return "".join(parts)


def memory_header(text: Text) -> list[str]:
    """Of ``memory_rows``."""
    kinds = [text(f"step.memory.{name}") for name in PARTS]
    return [text("step.col.strategy"), text("step.memory_who"), *kinds, text("step.memory_total")]


def memory_rows(results: Sequence[StepResult], text: Text) -> list[list[str]]:
    """The picture's numbers: of each strategy the fullest GPU."""
    rows = []
    for result in results:
        rank, held = fullest(result)
        cells = [gigabytes(nbytes) if nbytes else "–" for nbytes in parts_of(held).values()]
        rows.append([name_of(result.strategy, text), f"{rank}", *cells, gigabytes(held.total)])
    return rows
