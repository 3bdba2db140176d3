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
        ({"replicas": 8}, "8 GPUs with 8 replicas leave nothing to shard"),
        ({"reshard": 3}, "reshard must be true, false or a factor of 8, got 3"),
        ({"gather_dtype": "bf16"}, "unknown dtype 'bf16'; did you mean 'bfloat16'"),
    ],
)
def test_nonsense_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ours(**settings)
    with pytest.raises(ValueError, match="'scale' is a scalar, which FSDP2 refuses"):
        fsdp([[Parameter("scale", ())]], N)
