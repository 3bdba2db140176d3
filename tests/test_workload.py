"""Workloads: the values, their files, their estimated times, and what is refused."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.training.catalogue import catalogue_names, catalogue_workload
from simcore.training.gpus import gpu_names, load_gpu, utilisation
from simcore.training.workload import (
    Parameter,
    Workload,
    from_csv,
    from_json,
    load_workload,
    to_json,
)
from simcore.units import ITEM_BYTES

THREE = (
    Parameter("a", (4, 4), forward_flops=300.0),
    Parameter("b", (4,), trainable=False, forward_flops=100.0),
    Parameter("c", (2, 3), "float16", forward_flops=600.0),
)


def one_line(error):
    message = str(error.value)
    assert "\n" not in message
    return message


# --- values ------------------------------------------------------------------------------------


def test_sizes_follow_from_shapes_and_types():
    work = Workload("three", THREE, (Parameter("n", (), "int64", trainable=False),))
    assert [p.elements for p in THREE] == [16, 4, 6]
    assert [p.nbytes for p in THREE] == [64, 16, 12]
    assert (work.parameter_bytes, work.gradient_bytes, work.buffer_bytes) == (92, 76, 8)
    assert (work.elements, work.forward_flops) == (26, 1000.0)


def test_gradients_arrive_in_reverse_of_registration_unless_given():
    assert Workload("three", THREE).gradients == (2, 0)
    assert Workload("three", THREE, arrival=(0, 2)).gradients == (0, 2)
    assert Workload("three", THREE, arrival=(0,)).gradients == (0,)  # the other is unused
    assert Workload("three", THREE, arrival=()).gradients == ()


def test_times_are_shared_in_proportion_to_flops():
    work = Workload("three", THREE).with_compute(10.0, 18.0, 0.5, "measured")
    assert work.forward_s == (3.0, 1.0, 6.0)
    assert work.backward_s == (6.0, 0.0, 12.0)  # a frozen parameter has no gradient to arrive
    assert (work.optimizer_s, work.compute_source) == (0.5, "measured")


def test_without_flops_times_are_shared_in_proportion_to_elements():
    plain = tuple(replace(p, forward_flops=0.0) for p in THREE)
    work = Workload("three", plain).with_compute(26.0, 22.0)
    assert work.forward_s == (16.0, 4.0, 6.0)
    assert work.backward_s == (16.0, 0.0, 6.0)
    empty = Workload("empty", (Parameter("a", (0,)), Parameter("b", (0,))))
    assert empty.with_compute(2.0, 4.0).forward_s == (1.0, 1.0)


@given(
    st.lists(st.floats(0, 1e15), min_size=1, max_size=20),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_shares_add_up(flops, forward_s, backward_s):
    parameters = tuple(
        Parameter(f"p{i}", (i,), forward_flops=value) for i, value in enumerate(flops)
    )
    work = Workload("w", parameters).with_compute(forward_s, backward_s)
    assert math.fsum(work.forward_s) == pytest.approx(forward_s, rel=1e-9, abs=1e-300)
    assert math.fsum(work.backward_s) == pytest.approx(backward_s, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": ""}, "name"),
        ({"name": None}, "None"),
        ({"name": "n" * 501}, "1 to 500"),
        ({"shape": (1, -1)}, "(1, -1)"),
        ({"shape": [1, 2]}, "[1, 2]"),
        ({"shape": (1.0,)}, "1.0"),
        ({"shape": (True,)}, "True"),
        ({"shape": (10**8, 10**8)}, "10**15"),
        ({"dtype": "flaot32"}, "did you mean 'float32'?"),
        ({"dtype": 4}, "unknown dtype '4'"),
        ({"trainable": 1}, "true or false"),
        ({"forward_flops": -1.0}, "-1.0"),
        ({"forward_flops": math.nan}, "nan"),
        ({"forward_flops": math.inf}, "inf"),
        ({"forward_flops": 10**400}, "not negative"),
    ],
)
def test_a_parameter_refuses(wrong, says):
    with pytest.raises(ValueError, match="accepted: ") as error:
        Parameter(**({"name": "p", "shape": (1,)} | wrong))
    assert says in one_line(error)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": ""}, "name"),
        ({"parameters": ()}, "no parameters"),
        ({"parameters": (THREE[0], THREE[0])}, "two parameters or buffers 'a'"),
        ({"buffers": (THREE[0],)}, "two parameters or buffers 'a'"),
        ({"arrival": (1,)}, "arrival[0]"),  # frozen
        ({"arrival": (0, 3)}, "arrival[1] of workload 'three' is 3"),
        ({"arrival": (-1,)}, "-1"),
        ({"arrival": (0, 0)}, "at most once"),
        ({"arrival": (0.0,)}, "0.0"),
        ({"batch": 0}, "at least 1"),
        ({"batch": 1.5}, "1.5"),
        ({"batch": True}, "True"),
        ({"input_bytes": -1}, "input_bytes"),
        ({"output_bytes": 0.5}, "output_bytes"),
        ({"activation_bytes": None}, "None"),
        ({"forward_s": (1.0,)}, "has 1 times"),
        ({"forward_s": (1.0, 1.0, 1.0)}, "only one of"),
        ({"forward_s": (1.0,) * 3, "backward_s": (1.0, -1.0, 1.0)}, "backward_s[1]"),
        ({"optimizer_s": math.nan}, "nan"),
    ],
)
def test_a_workload_refuses(wrong, says):
    with pytest.raises(ValueError, match="accepted: ") as error:
        Workload(**({"name": "three", "parameters": THREE} | wrong))
    assert says in one_line(error)


def test_compute_times_refuse():
    work = Workload("three", THREE)
    for wrong in (-1.0, math.nan, math.inf, "1"):
        with pytest.raises(ValueError, match="forward_s of workload 'three'"):
            work.with_compute(wrong, 1.0)
    with pytest.raises(ValueError, match="no gradient arrives"):
        replace(work, arrival=()).with_compute(1.0, 1.0)
    assert replace(work, arrival=()).with_compute(1.0, 0.0).backward_s == (0.0,) * 3


# --- files -------------------------------------------------------------------------------------

amounts = st.floats(0, 1e12)


@st.composite
def workloads(draw):
    names = draw(st.lists(st.text(min_size=1, max_size=20), min_size=2, max_size=8, unique=True))
    shapes = st.lists(st.integers(0, 50), max_size=4).map(tuple)
    tensors = [
        Parameter(
            name,
            draw(shapes),
            draw(st.sampled_from(list(ITEM_BYTES))),
            draw(st.booleans()),
            draw(amounts),
        )
        for name in names
    ]
    cut = draw(st.integers(1, len(tensors)))
    parameters = tuple(tensors[:cut])
    trainable = [i for i, p in enumerate(parameters) if p.trainable]
    order = st.permutations(trainable).map(tuple)
    times = st.lists(amounts, min_size=cut, max_size=cut).map(tuple)
    known = draw(st.booleans())
    return Workload(
        draw(st.text(min_size=1, max_size=20)),
        parameters,
        tuple(tensors[cut:]),
        arrival=draw(st.none() | order),
        batch=draw(st.integers(1, 10**6)),
        input_bytes=draw(st.integers(0, 10**12)),
        output_bytes=draw(st.integers(0, 10**12)),
        activation_bytes=draw(st.integers(0, 10**12)),
        forward_s=draw(times) if known else (),
        backward_s=draw(times) if known else (),
        optimizer_s=draw(amounts),
        compute_source=draw(st.text(max_size=20)),
    )


@given(workloads())
def test_a_json_file_gives_back_the_workload(work):
    assert from_json(to_json(work)) == work


@pytest.mark.parametrize("name", catalogue_names())
def test_every_catalogue_model_survives_a_file(name, tmp_path):
    work = catalogue_workload(name).estimated_on("A100 80GB", batch=4)
    path = tmp_path / "work.json"
    path.write_text(to_json(work), encoding="utf-8")
    assert load_workload(str(path)) == work


@given(st.data())
def test_no_text_breaks_the_reader(data):
    """Anything that is not a workload is a ValueError in one line, whatever is in the file."""
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    )
    document = json.loads(to_json(Workload("three", THREE)))
    victim = data.draw(st.sampled_from([document, document["parameters"][1]]))
    victim[data.draw(st.sampled_from(list(victim)))] = data.draw(values)
    try:
        from_json(json.dumps(document))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - it may also be accepted
        assert str(error).startswith("workload")  # noqa: PT017


def wrong_document(**changes):
    return json.dumps({"name": "w", "parameters": [{"name": "p", "shape": [2]}]} | changes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "accepted is a JSON object, got []"),
        ('{"name": NaN}', "NaN is not a number"),
        (wrong_document(nmae="x"), "unknown field 'nmae'; did you mean 'name'?"),
        (wrong_document(workload_version=2), "workload_version"),
        (wrong_document(name=3), "field 'name' is 3"),
        (wrong_document(name=None), "field 'name' is None"),
        (wrong_document(parameters=[]), "no parameters"),
        (wrong_document(parameters={}), "field 'parameters' is {}"),
        (wrong_document(parameters=[1]), "parameter 0: accepted is a JSON object, got 1"),
        (wrong_document(parameters=[{"name": "p"}]), "field 'shape': is not there"),
        (wrong_document(parameters=[{"shape": [1]}]), "parameter 0: name of a parameter is None"),
        (wrong_document(parameters=[{"name": "p", "shape": "2x2"}]), "'2x2'"),
        (wrong_document(parameters=[{"name": "p", "shape": [-2]}]), "parameter 0: shape of 'p'"),
        (wrong_document(parameters=[{"name": "p", "shape": [2], "dtype": "x"}]), "dtype 'x'"),
        (wrong_document(parameters=[{"name": "p", "shape": [2], "trainable": 1}]), "is 1"),
        (wrong_document(buffers=[{"name": "p", "shape": [2]}]), "two parameters or buffers 'p'"),
        (wrong_document(batch="1"), "field 'batch' is '1'"),
        (wrong_document(batch=0), "batch of workload 'w' is 0"),
        (wrong_document(arrival=5), "field 'arrival' is 5"),
        (wrong_document(arrival=[[1]]), "arrival[0]"),
        (wrong_document(forward_s=["1"], backward_s=[1]), "forward_s[0]"),
        (wrong_document(forward_s=[1]), "only one of"),
        (wrong_document(optimizer_s=-1), "optimizer_s of workload 'w' is -1"),
    ],
)
def test_a_json_file_is_refused_in_one_line(text, says):
    with pytest.raises(ValueError, match=r"^my file") as error:
        from_json(text, "my file")
    message = one_line(error)
    assert says in message
    assert len(message) < 900


HEADING = "name,shape,dtype,forward_ms,backward_ms\n"


def test_a_csv_file_is_read(tmp_path):
    path = tmp_path / "my model.csv"
    path.write_text(HEADING + "w, 10x8 ,float16,1.5,3\n\nb,10,,0,0.5\ns,scalar,int64,0,0\n")
    work = load_workload(str(path))
    assert work.name == "my model"
    assert work.parameters == (
        Parameter("w", (10, 8), "float16"),
        Parameter("b", (10,)),
        Parameter("s", (), "int64"),
    )
    assert work.forward_s == (0.0015, 0.0, 0.0)
    assert work.backward_s == (0.003, 0.0005, 0.0)
    assert work.compute_source == "given"
    assert from_csv("shape,name\n3x3,w\n", "m").compute_source == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "columns none"),
        ("name\nw\n", "columns name"),
        ("name,shape,name\nw,1,w\n", "each once"),
        ("name,shap\nw,1\n", "did you mean 'shape'?"),
        ("name,shape\n", "no parameters"),
        ("name,shape\nw\n", "line 2: 1 cells; accepted: 2"),
        ("name,shape\nw,1,2\n", "line 2: 3 cells"),
        ("name,shape\n,1\n", "line 2: name of a parameter is ''"),
        ("name,shape\nw,\n", "line 2: shape ''"),
        ("name,shape\nw,-1\n", "shape '-1'"),
        ("name,shape\nw,1.5\n", "shape '1.5'"),
        ("name,shape\nw,２\n", "shape '２'"),
        ("name,shape\nw," + "9" * 5000 + "\n", "line 2: shape '999"),
        ("name,shape\nw,1\nw,1\n", "two parameters or buffers 'w'"),
        ("name,shape,dtype\nw,1,float\n", "line 2: 'w': unknown dtype 'float'"),
        (HEADING + "w,1,float32,1,x\n", "line 2: backward_ms 'x'"),
        (HEADING + "w,1,float32,nan,1\n", "forward_ms 'nan'"),
        (HEADING + "w,1,float32,-1,1\n", "forward_ms '-1'"),
        (HEADING + "w,1,float32,,1\n", "forward_ms ''"),
        ("name,shape,forward_ms\nw,1,1\n", "only one of forward_s and backward_s"),
        ('name,shape\n"w,1\n', "not CSV"),
        ('name,shape\n"w"x,1\n', "line 2: not CSV"),
    ],
)
def test_a_csv_file_is_refused_in_one_line(text, says):
    with pytest.raises(ValueError, match=r"^my file") as error:
        from_csv(text, "m", "my file")
    message = one_line(error)
    assert says in message
    assert len(message) < 300


def test_names_and_files_that_are_not_there(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="did you mean 'resnet50'") as error:
        load_workload("resnet5O")
    assert one_line(error).endswith("llama-7b, or a .json or .csv file")
    for name in ("none.json", "none.csv", str(tmp_path) + "/x.json", "x" * 5000, ""):
        with pytest.raises(ValueError, match=r"workload file|unknown model"):
            load_workload(name)
    (tmp_path / "a.json").mkdir()
    with pytest.raises(ValueError, match="workload file"):
        load_workload(str(tmp_path / "a.json"))
    (tmp_path / "b.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ValueError, match="not text in UTF-8"):
        load_workload(str(tmp_path / "b.json"))


def test_files_beyond_the_limits_are_not_read(tmp_path, monkeypatch):
    path = tmp_path / "large.csv"
    path.write_text("name,shape\n" + "".join(f"p{i},1\n" for i in range(50)))
    monkeypatch.setattr("simcore.training.workload.MOST_PARAMETERS", 20)
    with pytest.raises(ValueError, match="line 22: at most 20 parameters"):
        load_workload(str(path))
    with pytest.raises(ValueError, match="at most 20 are read"):
        from_json(wrong_document(parameters=[{"name": str(i), "shape": []} for i in range(21)]))
    monkeypatch.setattr("simcore.training.workload.MOST_FILE_BYTES", 100)
    with pytest.raises(ValueError, match="accepted: at most 100"):
        load_workload(str(path))


# --- estimates ---------------------------------------------------------------------------------


def samples_per_s(work):
    return work.batch / (sum(work.forward_s) + sum(work.backward_s))


@pytest.mark.parametrize(
    ("model", "gpu", "batch", "precision", "published"),
    [
        # What the fractions come from: images per second of one GPU.
        ("resnet50", "A100 80GB", 256, None, 2470),
        ("resnet50", "A100 80GB", 256, "tf32", 938),
        ("resnet50", "V100 16GB", 256, None, 1200),
        ("resnet50", "V100 16GB", 256, "float32", 367),
        ("resnet50", "RTX 3090", 128, None, 1127),
        ("resnet50", "RTX 4090", 128, None, 1749),
        # Not used for them: 24,000 tokens/s per A100 40GB (Zhang et al. 2024, arXiv:2401.02385).
        ("tinyllama-1.1b", "A100 40GB", 8, None, 24000 / 2048),
    ],
)
def test_estimates_lie_near_published_rates(model, gpu, batch, precision, published):
    work = load_workload(model).estimated_on(gpu, batch, precision)
    assert samples_per_s(work) == pytest.approx(published, rel=0.06)


@pytest.mark.parametrize("gpu", gpu_names())
@pytest.mark.parametrize("model", ["resnet18", "gpt2"])
def test_every_gpu_estimates_every_family_in_every_precision(gpu, model):
    card = load_gpu(gpu)
    assert len(card.source) > 15
    for precision, peak in card.flops_per_s.items():
        work = load_workload(model).estimated_on(gpu, 32, precision)
        busy_s = sum(work.forward_s) + sum(work.backward_s)
        assert sum(work.backward_s) == pytest.approx(2 * sum(work.forward_s))
        assert 3 * work.forward_flops * 32 / busy_s < peak
        assert work.optimizer_s == pytest.approx(7 * 4 * work.elements / card.memory_bytes_per_s)
        assert work.compute_source.startswith(f"estimated: {gpu}, {precision}, ")
        for convolution in (True, False):
            reached = utilisation(card, precision, convolution=convolution)
            assert 0 < reached.low < reached.typical < reached.high < 1
            assert len(reached.source) > 15


def test_kinds_of_model_reach_different_fractions():
    sources = {
        name: load_workload(name).estimated_on("A100 80GB").compute_source
        for name in ("resnet50", "vgg16", "vit-b-16", "bert-base", "llama-7b")
    }
    assert ["19 % of" in text for text in sources.values()] == [True, True, False, False, False]


def test_an_estimate_takes_its_batch_and_refuses_what_it_cannot_do():
    work = load_workload("resnet18")
    assert work.estimated_on("T4", batch=64).batch == 64
    assert replace(work, batch=32).estimated_on("T4").batch == 32
    one, two = work.estimated_on("T4", 8), work.estimated_on("T4", 16)
    assert sum(two.forward_s) == pytest.approx(2 * sum(one.forward_s))
    assert two.optimizer_s == one.optimizer_s
    with pytest.raises(ValueError, match=r"unknown GPU 'H100 SMX'; did you mean 'H100 SXM'?"):
        work.estimated_on("H100 SMX")
    with pytest.raises(ValueError, match=r"unknown precision of T4 'bfloat16'; .*float16"):
        work.estimated_on("T4", precision="bfloat16")
    with pytest.raises(ValueError, match="batch of workload 'resnet18' is 0"):
        work.estimated_on("T4", batch=0)
    with pytest.raises(ValueError, match="no forward_flops"):
        from_csv("name,shape\nw,8\n", "w").estimated_on("T4")
