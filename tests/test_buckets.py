"""Buckets are those of torch: its assignment function, and the reducer of a real run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.training.buckets import MIB, Bucket, DdpOptions, buckets
from simcore.training.catalogue import catalogue_names, catalogue_workload
from simcore.training.model import Parameter, Workload
from tests.ddp_support import linears, parameters, real_buckets, resnet18, torch_or_skip
from tests.reducers import MODES, digest, record_of

FLOATS = ("float32", "float16", "bfloat16", "float64")


def sizes(workload: Workload, options: DdpOptions | None = None, iteration: int = 1) -> list[int]:
    return [b.nbytes for b in buckets(workload, options, iteration)]


def test_resnet18_has_the_published_buckets():
    model = resnet18()
    assert sum(p.elements for p in model.parameters) == 11_689_512
    assert sizes(model, iteration=0) == [46_758_048]
    assert sizes(model) == sizes(model, iteration=7) == [2_052_000, 28_852_224, 15_853_824]
    assert sizes(model, DdpOptions(bucket_cap_mb=25)) == [30_904_224, 15_853_824]
    assert sizes(model, DdpOptions(bucket_cap_mb=35)) == [37_988_256, 8_769_792]
    before = DdpOptions(bucket_cap_mb=35, first_bucket_mb=1)
    assert sizes(model, before) == [2_052_000, 38_297_600, 6_408_448]


def test_sixteen_linears():
    model = linears(16, 1024)
    assert [round(b / MIB, 2) for b in sizes(model)] == [4.0, 28.03, 28.03, 4.0]
    unused = DdpOptions(find_unused_parameters=True)
    assert [round(b / MIB, 3) for b in sizes(model, unused)] == [4.008, 28.027, 28.027, 4.0]
    static = DdpOptions(static_graph=True)
    assert [len(buckets(model, static, i)) for i in (0, 1, 2, 3)] == [1, 1, 4, 4]
    both = DdpOptions(static_graph=True, find_unused_parameters=True)
    assert [len(buckets(model, both, i)) for i in (0, 1, 2, 3)] == [1, 1, 4, 4]


def test_a_tensor_above_the_cap_joins_what_is_open_and_nothing_is_split():
    model = Workload("m", parameters((MIB,), (11 * MIB,), (100,), (MIB // 2,)))
    assert buckets(model) == (
        Bucket((3,), "float32", 2 * MIB),
        Bucket((2, 1), "float32", 44 * MIB + 400),
        Bucket((0,), "float32", 4 * MIB),
    )


def test_only_trainable_parameters_are_in_buckets_and_the_given_order_counts():
    tensors = (Parameter("a", (1,)), Parameter("b", (2,), trainable=False), Parameter("c", (3,)))
    assert buckets(Workload("m", tensors))[0].indices == (2, 0)
    assert buckets(Workload("m", tensors, arrival=(0, 2)))[0].indices == (0, 2)
    assert buckets(Workload("m", tensors, arrival=(2, 0)), iteration=0)[0].indices == (0, 2)
    assert buckets(Workload("none", tensors[1:2])) == ()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"bucket_cap_mb": -1}, "bucket_cap_mb must be 0 or more, got -1"),
        ({"bucket_cap_mb": float("nan")}, "got nan"),
        ({"first_bucket_mb": float("inf")}, "first_bucket_mb must be 0 or more, got inf"),
        ({"hook": "powersgd:0"}, "unknown hook 'powersgd:0'"),
        ({"hook": "powersgd"}, r"accepted: fp16, bf16, powersgd:RANK"),
    ],
)
def test_nonsense_is_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        DdpOptions(**bad)
    with pytest.raises(ValueError, match="iteration must be 0 or more, got -1"):
        buckets(resnet18(), iteration=-1)


@st.composite
def workloads(draw):
    elements = st.one_of(st.integers(0, 50), st.integers(0, 900_000), st.integers(0, 9_000_000))
    tensor = st.tuples(elements, st.sampled_from(FLOATS), st.integers(0, 9))
    drawn = draw(st.lists(tensor, min_size=1, max_size=30))
    params = tuple(Parameter(f"p{i}", (n,), d, t > 0) for i, (n, d, t) in enumerate(drawn))
    arrival = draw(st.permutations([i for i, p in enumerate(params) if p.trainable]))
    return Workload("drawn", params, arrival=tuple(arrival))


def torch_assignment(torch, model: Workload, options: DdpOptions, iteration: int):
    """What DistributedDataParallel and its reducer pass to torch's function, and do with it."""
    assign = torch.distributed._compute_bucket_assignment_by_size
    kept = [i for i, p in enumerate(model.parameters) if p.trainable]
    tensors = {  # on the meta device: a size and a type, no memory
        i: torch.empty(
            model.parameters[i].shape,
            dtype=getattr(torch, model.parameters[i].dtype),
            device="meta",
        )
        for i in kept
    }
    first, cap = options.limits
    never = options.find_unused_parameters and not options.static_graph
    if never or iteration < (2 if options.static_graph else 1):
        limits = [sys.maxsize] if not never else [first, cap] if first < cap else [cap]
        found = assign(list(tensors.values()), limits, [False] * len(kept))[0]
        return [tuple(kept[i] for i in bucket) for bucket in reversed(found)]
    order = model.gradients
    places = [kept.index(i) for i in order]  # the reducer counts trainable parameters only
    found = assign([tensors[i] for i in order], [first, cap], [False] * len(kept), places)[0]
    return [tuple(kept[place] for place in bucket) for bucket in found]


@given(workloads(), st.sampled_from(MODES), st.integers(0, 3))
def test_random_models_are_bucketed_as_torch_does(model, mode, iteration):
    torch = torch_or_skip()
    options = DdpOptions(**mode)
    ours = buckets(model, options, iteration)
    if not any(p.trainable for p in model.parameters):
        assert ours == ()
        return
    assert [b.indices for b in ours] == torch_assignment(torch, model, options, iteration)
    for bucket in ours:
        assert {model.parameters[i].dtype for i in bucket.indices} == {bucket.dtype}
        assert bucket.nbytes == sum(model.parameters[i].nbytes for i in bucket.indices)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_every_known_model_is_bucketed_as_torch_does(mode):
    torch = torch_or_skip()
    options = DdpOptions(**mode)
    for name in catalogue_names():
        model = catalogue_workload(name)
        for iteration in (0, 1, 2):
            ours = [b.indices for b in buckets(model, options, iteration)]
            assert ours == torch_assignment(torch, model, options, iteration), name


SMALL = {
    "linears": linears(9, 500),
    "resnet18": resnet18(),
    "mixed": Workload(
        "mixed",
        tuple(
            Parameter(f"p{i}", (n,), d, trainable=i != 4)
            for i, (n, d) in enumerate(
                (size, dtype) for size in (10, 200_000, 400_000) for dtype in FLOATS
            )
        ),
        arrival=(0, 11, 3, 2, 1, 10, 9, 8, 7, 6, 5),
    ),
}


@pytest.mark.parametrize("arrival", [(9, 8, 5, 4, 6, 0), (0, 1, 9), (2,)])
@pytest.mark.parametrize("mode", MODES[-4:], ids=str)
def test_unused_parameters_travel_too(mode, arrival):
    """A static graph counts them as arrived last; finding them leaves them in their place."""
    torch_or_skip()
    model = replace(linears(5, 500), arrival=arrival)
    for iteration, launched in enumerate(real_buckets(model, 3, **mode)):
        ours = buckets(model, DdpOptions(**mode), iteration)
        assert [(b.indices, b.nbytes) for b in ours] == launched, f"iteration {iteration}"
        assert sum(b.nbytes for b in ours) == model.gradient_bytes


def test_an_unused_parameter_stops_torch_unless_it_looks_for_them():
    model = replace(linears(2, 8), arrival=(3, 2, 1))
    assert buckets(model, iteration=0)[0].indices == (0, 1, 2, 3)  # never complete
    with pytest.raises(ValueError, match="'p0' never gets a gradient: torch stops at iteration 1"):
        buckets(model)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_a_real_reducer_launches_these_buckets(name, mode):
    torch_or_skip()
    model = SMALL[name]
    real = real_buckets(model, 3, **mode)
    for iteration, launched in enumerate(real):
        ours = buckets(model, DdpOptions(**mode), iteration)
        assert [(b.indices, b.nbytes) for b in ours] == launched, f"iteration {iteration}"


RECORD = json.loads(
    Path(__file__).parent.parent.joinpath("docs/reports/reducer.json").read_text(encoding="utf-8")
)
UP_TO_355M = [n for n in catalogue_names() if catalogue_workload(n).elements < 360e6]


def test_the_record_has_every_known_model_up_to_355_million_parameters():
    assert list(RECORD["models"]) == UP_TO_355M
    assert "gpt2-medium" in UP_TO_355M


@pytest.mark.parametrize("name", UP_TO_355M)
def test_a_real_reducer_launched_the_buckets_of_known_models(name):
    """In every mode; the record is of a run (``tests/reducers.py``) that is too long to repeat."""
    model = catalogue_workload(name)
    assert [row["mode"] for row in RECORD["models"][name]] == MODES
    for row in RECORD["models"][name]:
        for number, launched in enumerate(row["iterations"]):
            ours = buckets(model, DdpOptions(**row["mode"]), number)
            assert digest([(b.indices, b.nbytes) for b in ours]) == launched, (row["mode"], number)


def test_the_record_is_what_a_real_reducer_does():
    torch_or_skip()
    assert record_of("resnet18", MODES[:1]) == RECORD["models"]["resnet18"][:1]
