"""Measured beside simulated: sets of cells, how wrong the simulator was in them, in words.

A set is shipped, or a reader's own. What was measured while the network's own checks failed, or
took part in a calibration, is listed and never counted. No charts, no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from simcore.cluster_file import cluster_from_dict
from simcore.measured.cells import Cell, cell_of_record, cell_of_step
from simcore.measured.records import Record, load_records
from simcore.measured.step_records import StepRecord, load_step_records
from simcore.measured.validation import UNSHAPED, Validation, load_validations, percentile_error
from simcore.trace import Source, Trace
from simcore.units import format_bytes
from views.lanes import title_of
from views.text import Text

RECORDS = "records"  # the name of the set that single records make
OWN = "own"


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """A set of cells with what they were simulated on, and traces of some of them.

    >>> study = shipped(RECORDS)
    >>> all(cell.measured_s > 0 for cell in study.cells), len(study.traces) > 0
    (True, True)
    """

    name: str
    validation: Validation
    traces: tuple[Trace, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of them, counted or not."""
        return self.validation.cells


@dataclass(frozen=True, slots=True)
class Group:
    """Cells of one kind from one source; numbers of different groups are never put together."""

    kind: str
    source: str
    cells: tuple[Cell, ...]

    @property
    def counted(self) -> tuple[Cell, ...]:
        """Predicted, held out of any fit, and quietly measured."""
        return tuple(cell for cell in self.cells if cell.counted)

    def error(self, percent: float) -> float | None:
        """That percentile of the absolute errors; None where nothing counts."""
        return percentile_error(self.counted, percent)

    @property
    def worst(self) -> Cell | None:
        """The counted cell with the largest absolute error."""
        return max(self.counted, key=lambda cell: abs(cell.error or 0.0), default=None)

    def title(self, text: Text) -> str:
        """What was measured, and whose program ran it."""
        return text(f"measured.group_{self.kind}_{self.source}")


def groups(cells: Iterable[Cell]) -> list[Group]:
    """Collectives, then training steps; replayed ones before the vendor's own.

    >>> [(group.kind, group.source) for group in groups(shipped(RECORDS).cells)]
    [('collective', 'replayed'), ('collective', 'vendor'), ('step', 'vendor')]
    """
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.kind, cell.source), []).append(cell)
    return [Group(*key, tuple(members)) for key, members in sorted(found.items())]


def set_names() -> tuple[str, ...]:
    """The shipped sets as the address calls them: ``validation``, ``validation-2``, ``records``."""
    count = len(load_validations())
    validations = [f"validation-{k + 1}" if k else "validation" for k in range(count)]
    return (*validations, RECORDS)


def set_title(name: str, text: Text) -> str:
    """What people call a shipped set; its own name where the catalogue has none.

    >>> from views.text import load_text
    >>> set_title(RECORDS, load_text("en")), set_title("my-lab", load_text("en"))
    ('Single records', 'my-lab')
    """
    return text.phrases.get(f"measured.set_{name}", name)


@cache
def shipped(name: str) -> Study:
    """A shipped set."""
    if name == RECORDS:
        validation = from_records(load_records(), load_step_records())
    else:
        validation = load_validations()[set_names().index(name)]
    return Study(name, validation, load_traces())


@cache
def load_traces() -> tuple[Trace, ...]:
    """The shipped traces of real runs."""
    folder = resources.files("simcore").joinpath("data/traces")
    if not folder.is_dir():
        return ()
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".json"))
    texts = (folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    return tuple(map(Trace.from_json, texts))


def from_records(records: Sequence[Record], steps: Sequence[StepRecord] = ()) -> Validation:
    """Single records as one set; nothing was fitted to them."""
    cells = [*map(cell_of_record, records), *map(cell_of_step, steps)]
    clusters: dict[str, dict[str, Any]] = {}
    for record in records:
        cluster = (record.simulated or {}).get("cluster")
        if cluster is not None and _fits_any(cluster):
            clusters.setdefault(record.network or UNSHAPED, cluster)
    environments: list[Mapping[str, Any]] = [record.environment for record in records]
    environments += [record.environment for record in steps]
    latest = max(environments, key=lambda e: str(e.get("date", "")), default={})
    needed = {"versions": {}, "machine": {}, "command": "", "date": ""}
    return Validation(tuple(cells), clusters, {}, {**needed, **latest})


def _fits_any(cluster: Any) -> bool:
    """Whether that cluster file's content can be read for any number of ranks."""
    try:
        return all(cluster_from_dict(cluster, n) for n in (2, 3))
    except ValueError:
        return False


def name_words(cell: Cell, text: Text) -> str:
    """What ran, for people: a strategy's title, or the vendor's own name."""
    key = f"step.strategy.{cell.name}" if cell.kind == "step" else ""
    return text.phrases.get(key) or title_of(cell.name, text)


def cell_words(cell: Cell, text: Text) -> str:
    """A cell in one line: what ran, where, and with which flags.

    >>> from views.text import load_text
    >>> cell = Cell("collective", "ring", "replayed", 4, 2**23, "200Mbit/s", {}, (), 0.5)
    >>> cell_words(cell, load_text("en"))
    'Ring, 4 GPUs, 8 MiB, 200Mbit/s'
    """
    return text("measured.cell", name=name_words(cell, text), where=where_words(cell, text))


def where_words(cell: Cell, text: Text) -> str:
    """A cell's configuration without its name."""
    words = text(
        "measured.where",
        gpus=cell.gpus,
        size=format_bytes(cell.size_bytes),
        network=cell.network or text("measured.unshaped"),
    )
    flags = (flag_words(name, value) for name, value in cell.flags.items())
    return text("measured.comma").join([words, *flags])


def flag_words(name: str, value: int) -> str:
    """A flag for people.

    >>> flag_words("bucket_cap_kib", 1024), flag_words("servers", 4)
    ('bucket-cap 1 MiB', 'servers 4')
    """
    if name.endswith("_kib"):
        name, shown = name.removesuffix("_kib"), format_bytes(value * 1024)
    else:
        shown = str(value)
    return f"{name.replace('_', '-')} {shown}"


def percent(value: float | None, text: Text, signed: bool = False) -> str:
    """A share of one for people.

    >>> from views.text import load_text
    >>> percent(-0.0123, load_text("en"), signed=True), percent(0.0004, load_text("en"))
    ('−1.2\xa0%', '0.04\xa0%')
    """
    if value is None:
        return text("race.none")
    hundredths = 100 * value
    digits = 1 if abs(hundredths) >= 0.95 or hundredths == 0 else 2
    shown = f"{hundredths:{'+' if signed else ''}.{digits}f}".replace("-", "−")
    return text("common.percent", value=shown)


def headline(study: Study, text: Text) -> str:
    """How wrong the simulator was, one sentence for each group that has an answer.

    >>> from views.text import load_text
    >>> cells = tuple(
    ...     Cell("collective", "ring", "replayed", n, 8, None, {}, (), 1.0, 1.0 + n / 100)
    ...     for n in (2, 3, 4)
    ... )
    >>> environment = {"versions": {}, "machine": {}, "command": "", "date": ""}
    >>> said = headline(Study("x", Validation(cells, {}, {}, environment)), load_text("en"))
    >>> print(said.replace("\xa0", " "))
    Collectives replayed (3): off by 3.0 % in the median, by 4.0 % at worst.
    """
    answers = [_answer(group, text) for group in groups(study.cells) if group.counted]
    return text.joined(answers) if answers else text("measured.no_answer")


def _answer(group: Group, text: Text) -> str:
    return text(
        f"measured.answer_{group.kind}_{group.source}",
        count=len(group.counted),
        median=percent(group.error(50), text),
        worst=percent(group.error(100), text),
    )


def joined(name: str, studies: Sequence[Study]) -> Study:
    """Several sets as one, for a reader's own files; of clusters for one network the first rules.

    A cell that is there already, with the very same runs, is not counted twice.
    """
    cells: dict[tuple[Any, ...], Cell] = {}
    clusters: dict[str, dict[str, Any]] = {}
    calibrations: dict[str, dict[str, Any]] = {}
    for study in studies:
        for cell in study.cells:
            cells.setdefault((cell.source, cell.strategy, cell.configuration, cell.runs_s), cell)
        clusters = study.validation.clusters | clusters
        calibrations = study.validation.calibrations | calibrations
    first = studies[0].validation
    made = replace(first, cells=tuple(cells.values()), clusters=clusters, calibrations=calibrations)
    return Study(name, made, tuple(trace for study in studies for trace in study.traces))


def is_replay(cell: Cell) -> bool:
    """Whether our own schedule ran; else the vendor's program did."""
    return cell.source == Source.REPLAYED.value
