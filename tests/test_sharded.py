"""FSDP2's collectives are those that torch issues, on a group of which only rank 0 is real."""

from __future__ import annotations

import itertools

import pytest

from simcore.training.calls import wire_bytes
from simcore.training.model import Parameter
from simcore.training.sharded import fsdp, padded_elements
from tests.ddp_support import fake_group, torch_or_skip

N, WIDTH = 8, 10
WIDTHS = (WIDTH, 12, 17, WIDTH)  # no two layers alike
LAYERS = [
    (Parameter("weight", (b, a)), Parameter("bias", (b,))) for a, b in itertools.pairwise(WIDTHS)
]
ROOT = (Parameter("embedding", (7, WIDTH)), Parameter("head", (6, WIDTH)))


def real_calls(n, passes, *, reshard=True, root=None, replicas=1, policy=None):
    """What torch issues in these passes: train, accumulate, keep (accumulate, and do not drop)."""
    import torch
    from torch.distributed.fsdp import fully_shard

    from tests.torch_calls import Calls

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(7, WIDTH)
            layers = (torch.nn.Linear(a, b) for a, b in itertools.pairwise(WIDTHS))
            self.layers = torch.nn.ModuleList(layers)
            self.head = torch.nn.Linear(WIDTH, 6, bias=False)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    with fake_group(n):
        shape, names = ((n,), ("shard",))
        if replicas > 1:
            shape, names = (replicas, n // replicas), ("replicate", "shard")
        mesh = torch.distributed.init_device_mesh("cpu", shape, mesh_dim_names=names)
        settings = {"mesh": mesh} | ({"mp_policy": policy} if policy else {})
        model = Model()
        for layer in model.layers:
            fully_shard(layer, reshard_after_forward=reshard, **settings)
        fully_shard(model, **settings, **({} if root is None else {"reshard_after_forward": root}))
        listed, calls = [], Calls()
        with calls:
            for kind in passes:
                model.set_requires_gradient_sync(kind == "train")
                model.set_reshard_after_backward(kind != "keep")
                model(torch.zeros(2, dtype=torch.int64)).sum().backward()
                listed.append(calls.take())
        return listed


def plain(calls):
    return [(call.kind, call.nbytes) for call in calls]


def ours(n=N, **settings):
    return plain(fsdp(LAYERS, n, root=ROOT, **settings))


@pytest.fixture(autouse=True)
def torch():
    return torch_or_skip()


@pytest.mark.parametrize("n", [2, 4, 8, 64])
@pytest.mark.parametrize("root", [None, True, False])
@pytest.mark.parametrize("reshard", [True, False, 2])
def test_training(n, root, reshard):
    for listed in real_calls(n, ["train", "train"], reshard=reshard, root=root):
        assert listed == ours(n, reshard=reshard, reshard_root=bool(root))


def test_accumulation_gathers_again_unless_all_is_kept():
    again = real_calls(N, ["accumulate", "accumulate", "train"])
    assert again == [ours(syncing=False), ours(syncing=False), ours()]
    kept = real_calls(N, ["keep", "keep", "train", "train"])
    held = ours(syncing=False, whole=True)
    assert kept == [ours(syncing=False), held, ours(whole=True), ours()]
    free = real_calls(N, ["keep", "keep", "train"], reshard=False)
    assert free[1] == ours(syncing=False, whole=True, reshard=False) == []
    assert free[2] == ours(whole=True, reshard=False)


@pytest.mark.parametrize(("n", "replicas"), [(4, 2), (8, 2), (8, 4), (64, 8)])
def test_hybrid(n, replicas):
    listed = real_calls(n, ["accumulate", "train"], replicas=replicas)
    assert listed == [ours(n, replicas=replicas, syncing=False), ours(n, replicas=replicas)]


def test_types_of_what_is_gathered_and_reduced(torch):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    (listed,) = real_calls(N, ["train"], policy=policy)
    assert listed == ours(gather_dtype="bfloat16", reduce_dtype="float32")
    (listed,) = real_calls(N, ["train"], policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    assert listed == ours(gather_dtype="bfloat16")


@pytest.mark.filterwarnings("ignore")  # of hooks on views, and on inputs without gradients
def test_torchs_own_counter_agrees(torch):
    """CommDebugMode counts, where ours also knows sizes."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.debug import CommDebugMode

    with fake_group(N):
        mesh = torch.distributed.init_device_mesh("cpu", (N,))
        model = torch.nn.Sequential(*[torch.nn.Linear(a, b) for a, b in itertools.pairwise(WIDTHS)])
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        with CommDebugMode() as counter:
            model(torch.ones(2, WIDTH)).sum().backward()
        counts = {str(k).split(".")[1]: v for k, v in counter.get_comm_counts().items()}
    kinds = [call.kind for call in fsdp(LAYERS, N)]
    assert counts == {
        "_allgather_base_": kinds.count("all_gather"),
        "_reduce_scatter_base_": kinds.count("reduce_scatter"),
    }


def model_of(root, units):
    """Each unit of it adds the sums of its used parameters to what it is given."""
    import torch

    class Unit(torch.nn.Module):
        def __init__(self, parameters):
            super().__init__()
            self.used = [not p.name.startswith("unused") for p in parameters]
            zeros = [torch.zeros(p.shape, dtype=getattr(torch, p.dtype)) for p in parameters]
            made = [
                torch.nn.Parameter(z, p.trainable) for z, p in zip(zeros, parameters, strict=True)
            ]
            self.made = torch.nn.ParameterList(made)

        def forward(self, x):
            for parameter, used in zip(self.made, self.used, strict=True):
                x = x + parameter.float().sum() if used else x
            return x

    class Model(Unit):
        def __init__(self):
            super().__init__(root)
            self.units = torch.nn.ModuleList(map(Unit, units))

        def forward(self, x):
            x = super().forward(x)
            for unit in self.units:
                x = unit(x)
            return x

    return Model()


def p(rows, dtype="float32", *, unused=False, frozen=False):
    return Parameter(f"{'unused' * unused}{rows}", (rows, 2), dtype, trainable=not frozen)


A, B, C = [p(8), p(3)], [p(12)], [p(17)]
PARTLY = {
    "all trained": ([p(4)], [A, B, C]),
    "no root": ([], [A, B, C]),
    "nothing but a root": ([p(4), p(9)], []),
    "frozen root": ([p(4, frozen=True)], [A, B, C]),
    "first units frozen": ([p(4)], [[p(8, frozen=True)], [p(12, frozen=True)], C]),
    "root and first units frozen": (
        *([p(4, frozen=True)], [[p(8, frozen=True)], [p(12, frozen=True)], C, B]),
    ),
    "no root, three frozen": ([], [[p(k, frozen=True)] for k in (8, 12, 16)] + [B, C]),
    "frozen in between": ([p(4)], [A, [p(12, frozen=True)], C]),
    "last unit frozen": ([p(4)], [A, B, [p(17, frozen=True)]]),
    "frozen in a unit": ([p(4)], [[p(8), p(9, frozen=True)], [p(5, frozen=True), p(7)]]),
    "unused unit": ([p(4)], [A, [p(12, unused=True)], C]),
    "unused in a unit": ([p(4)], [[p(8), p(9, unused=True)], C]),
    "another type, frozen": ([p(4)], [[p(8, "float16"), p(9, frozen=True)], C]),
    "a unit of another type": ([p(4)], [[p(8, "float16"), p(5, "float16")], C]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARTLY)
def test_frozen_unused_and_mixed(torch, name):
    from torch.distributed.fsdp import fully_shard

    from tests.torch_calls import Calls

    root, units = PARTLY[name]
    unused = [q.name for part in (root, *units) for q in part if q.name.startswith("unused")]
    for n, replicas, reshard in (
        (4, 1, True),
        (4, 1, False),
        (4, 2, True),
        (4, 4, True),
        (1, 1, True),
    ):
        with fake_group(n):
            shape, names = (
                ((n,), ("s",)) if replicas == 1 else ((replicas, n // replicas), ("r", "s"))
            )
            mesh = torch.distributed.init_device_mesh("cpu", shape, mesh_dim_names=names)
            model = model_of(root, units)
            for unit in model.units:
                fully_shard(unit, mesh=mesh, reshard_after_forward=reshard)
            fully_shard(model, mesh=mesh)
            calls = Calls()
            with calls:
                model(torch.zeros(2)).sum().backward()
        expected = fsdp(units, n, root=root, reshard=reshard, replicas=replicas, unused=unused)
        assert calls.take() == plain(expected), (n, replicas, reshard)


def test_torch_refuses_to_train_two_types_in_a_unit(torch):
    from torch.distributed.fsdp import fully_shard

    with fake_group(4):
        model = model_of([p(4), p(5, "float16")], [])
        fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (4,)))
        with pytest.raises(AssertionError, match="uniform original parameter dtype"):
            model(torch.zeros(2))


def test_volumes_are_three_two_and_less_between_nodes():
    layer = [Parameter("weight", (64, 64))]
    model_bytes = 4 * layer[0].nbytes
    whole = wire_bytes(fsdp([layer] * 4, N), N)
    assert whole == 3 * (N - 1) * model_bytes
    assert wire_bytes(fsdp([layer] * 4, N, reshard=False), N) == 2 * (N - 1) * model_bytes
    hybrid = fsdp([layer] * 4, N, replicas=2)
    inside = [call for call in hybrid if call.kind != "all_reduce"]
    across = [call for call in hybrid if call.kind == "all_reduce"]
    assert wire_bytes(inside, N) == 3 * (N // 2 - 1) * model_bytes * 2
    assert wire_bytes(across, N) == 2 * (2 - 1) * model_bytes  # a shard each, on four pairs
    assert {call.ranks for call in across} == {2}


def test_padding_of_the_first_dimension():
    rows = [Parameter("weight", (1000, 1000))]
    gathered, _, reduced = fsdp([rows], 64)
    assert gathered.nbytes == reduced.nbytes == 1024 * 1000 * 4
    assert padded_elements(Parameter("bias", (3,)), 8) == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicas": 3}, "8 GPUs cannot hold 3 equal replicas"),
        ({"reshard": 3}, "reshard must be true, false or a factor of 8, got 3"),
        ({"gather_dtype": "bf16"}, "unknown dtype 'bf16'; did you mean 'bfloat16'"),
    ],
)
def test_nonsense_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ours(**settings)
    both = [Parameter("a", (8,)), Parameter("b", (8,), "float16")]
    with pytest.raises(ValueError, match="unit 0 trains parameters of float16 and float32"):
        fsdp([both], N)
    with pytest.raises(ValueError, match="'scale' is a scalar, which FSDP2 refuses"):
        fsdp([[Parameter("scale", ())]], N)
