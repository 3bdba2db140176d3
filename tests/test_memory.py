"""Memory: known sums, and the tensors that torch really keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcore.training.buckets import DdpOptions
from simcore.training.catalogue import catalogue_workload
from simcore.training.memory import Memory, Optimizer, chunks, data_parallel, ddp, one_gpu, zero
from simcore.training.model import Parameter, Workload
from simcore.training.sharded import owned
from simcore.training.strategies import STRATEGIES, Setting, footprint
from tests.ddp_support import fake_group, linears, module_of, torch_or_skip

GB = 10**9


def billion(dtype: str = "float32") -> Workload:
    return Workload("1G", (Parameter("weight", (1000, GB // 1000), dtype),))


@pytest.mark.parametrize(
    ("batch", "n", "expected"),
    [
        (32, 4, (8, 8, 8, 8)),
        (10, 4, (3, 3, 3, 1)),
        (9, 4, (3, 3, 3, 0)),
        (4, 4, (1, 1, 1, 1)),
        (5, 4, (2, 2, 1, 0)),
        (50, 8, (7,) * 7 + (1,)),
        (256, 6, (43,) * 5 + (41,)),
    ],
)
def test_known_chunks(batch, n, expected):
    assert chunks(batch, n) == expected


def test_a_mean_over_replicas_weighs_the_lone_sample_two_and_a_half_times():
    """Each of 3, 3, 3, 1 returns its mean loss; the mean of the gathered four is biased."""
    torch = torch_or_skip()
    losses = torch.arange(10.0, dtype=torch.float64).requires_grad_()
    parts = losses.split([size for size in chunks(10, 4) if size])
    torch.stack([part.mean() for part in parts]).mean().backward()
    assert (losses.grad * 10).tolist() == pytest.approx([10 / 12] * 9 + [2.5])


def test_chunks_are_torchs():
    torch = torch_or_skip()
    for n in range(1, 10):
        for batch in range(1, 40):
            real = [len(chunk) for chunk in torch.zeros(batch).chunk(n)]
            assert list(chunks(batch, n)) == real + [0] * (n - len(real))


def test_buckets_cost_the_gradients_again_unless_they_are_the_buckets():
    model = Workload("m", (Parameter("weight", (GB // 4,)),))  # a model of 1 GB
    plain, view = (ddp(model, DdpOptions(gradient_as_bucket_view=v)) for v in (False, True))
    assert plain.total - view.total == plain.buckets == GB
    assert view == one_gpu(model)
    kept = ddp(model, DdpOptions(hook="powersgd:2"))
    assert kept.buckets == 2 * GB


@pytest.mark.parametrize("view", [False, True])
def test_torch_keeps_the_gradients_twice_or_once(view):
    """Bytes of the distinct storages behind gradients and buckets of a real reducer."""
    torch = torch_or_skip()
    model, storages = linears(3, 300), {}

    def hook(state, bucket):
        storage = bucket.buffer().untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    with fake_group(4):
        wrapped = torch.nn.parallel.DistributedDataParallel(
            module_of(model), init_sync=False, gradient_as_bucket_view=view
        )
        wrapped.register_comm_hook(None, hook)
        wrapped().backward()
        for parameter in wrapped.parameters():
            storage = parameter.grad.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    ours = ddp(model, DdpOptions(gradient_as_bucket_view=view))
    assert sum(storages.values()) == ours.gradients + ours.buckets


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_torchs_optimizers_keep_this_much(name):
    torch = torch_or_skip()
    model = linears(2, 50)
    module = module_of(replace(model, parameters=(*model.parameters, Parameter("f", (9,)))))
    last = list(module.parameters())[-1].requires_grad_(False)
    made = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": torch.optim.Adam,
    }[name](module.parameters())
    module(tuple(range(4))).backward()
    made.step()
    state = [v for of in made.state.values() for k, v in of.items() if k != "step"]
    kept = sum(v.nbytes for v in state if v is not None)
    parameters = (*model.parameters, Parameter("f", tuple(last.shape), trainable=False))
    assert kept == Optimizer(name).nbytes(parameters)


def test_the_zero_papers_figures():
    """7.5 billion parameters on 64 GPUs, mixed Adam: 120, 31.4, 16.6 and 1.9 GB."""
    model = Workload("7.5B", (Parameter("weight", (7_500_000_000,), "bfloat16"),))
    adam = Optimizer("adam", mixed=True)
    assert ddp(model, DdpOptions(gradient_as_bucket_view=True), adam).total == 120 * GB
    totals = [round(zero(model, 64, stage, adam).total / GB, 1) for stage in (1, 2, 3)]
    assert totals == [31.4, 16.6, 1.9]
    assert zero(model, 1, 3, adam) == one_gpu(model, adam)
    assert zero(model, 64, 3, adam, gathered_bytes=GB).parameters == 15 * GB // 64 + GB


def test_gpu_0_holds_outputs_state_and_summed_gradients_that_the_others_do_not():
    model = replace(billion(), batch=8, output_bytes=1000, input_bytes=300, activation_bytes=5000)
    first, *others = data_parallel(model, 4)
    assert others == [others[0]] * 3
    assert first.total - others[0].total == 24 * 300 + 32 * 1000 + 8 * GB + 4 * GB
    assert (first.inputs, others[0].inputs) == (
        32 * 300,
        8 * 300,
    )  # the whole batch stands on GPU 0
    assert first.activations == 8 * 5000
    uneven = data_parallel(model, 4, batch=9)
    assert uneven[3] == Memory()
    assert [m.activations for m in uneven[:3]] == [3 * 5000] * 3
    assert data_parallel(model, 1) == (one_gpu(model),)


# A root of 10 and 20 numbers, layers of 1000, 3000 and 2000, one of them half frozen; float32.
PIECES = {"wte": 10, "h.0.w": 1000, "h.1.w": 1500, "h.1.f": 1500, "h.2.w": 2000, "head": 20}
SMALL = Workload(
    "small",
    tuple(Parameter(name, (n,), trainable=name != "h.1.f") for name, n in PIECES.items()),
    (Parameter("mean", (25,)),),
)
# parameters (with 100 bytes of buffers), gradients, buckets, state of Adam: bytes of each rank.
WHOLE, GRADIENTS = 4 * 6030 + 100, 4 * 4530
EACH = {
    "ddp": [(WHOLE, GRADIENTS, GRADIENTS, 2 * GRADIENTS)] * 4,
    "local-sgd": [(WHOLE, GRADIENTS, 0, 2 * GRADIENTS)] * 4,
    "dp": [(WHOLE, 2 * GRADIENTS, 0, 2 * GRADIENTS)] + [(WHOLE, GRADIENTS, 0, 0)] * 3,
    "zero1": [(WHOLE, GRADIENTS, 0, GRADIENTS // 2)] * 4,
    "zero2": [(WHOLE, GRADIENTS // 4, 0, GRADIENTS // 2)] * 4,
    "shard-grad-op": [(WHOLE, GRADIENTS // 4, 0, GRADIENTS // 2)] * 4,
    # a quarter, the buffers, and gathered: the root's 30 numbers, and 3000 + 2000 of neighbours
    "zero3": [(6030 + 100 + 4 * 5030, GRADIENTS // 4, 0, GRADIENTS // 2)] * 4,
    "fsdp": [(6030 + 100 + 4 * 5030, GRADIENTS // 4, 0, GRADIENTS // 2)] * 4,
    "hsdp": [(2 * 6030 + 100 + 4 * 5030, GRADIENTS // 2, 0, GRADIENTS)] * 4,
    # whole parameters: h.2.w, then h.1.w, h.1.f (frozen), h.0.w with head and wte
    "zero-redundancy-optimizer": [
        (WHOLE, GRADIENTS, GRADIENTS, 8 * trained) for trained in (2000, 1500, 0, 1030)
    ],
    "ps": [(WHOLE, GRADIENTS, 0, 2 * GRADIENTS)] + [(WHOLE, GRADIENTS, 0, 0)] * 3,
    "ps-dedicated": [(WHOLE, GRADIENTS, 0, 0)] * 4 + [(4 * 6030, GRADIENTS, 0, 2 * GRADIENTS)],
    # As many machines as GPUs serve a quarter each, the GPUs nothing.
    "byteps": [(WHOLE, GRADIENTS, 0, 0)] * 4 + [(6030, GRADIENTS // 4, 0, GRADIENTS // 2)] * 4,
}


@pytest.mark.parametrize("name", [row.name for row in STRATEGIES])
def test_each_rank_holds_this_to_the_byte(name):
    held = footprint(name, Setting(SMALL, 4, gpus_per_node=2 if name == "hsdp" else None))
    found = [(m.parameters, m.gradients, m.buckets, m.optimizer) for m in held]
    assert found == EACH[name]
    assert [m.total for m in held] == [sum(parts) for parts in found]


@pytest.mark.parametrize(
    ("name", "servers", "state"),
    [
        ("ps", 2, [GRADIENTS, GRADIENTS, 0, 0]),
        ("ps-dedicated", 2, [0] * 4 + [GRADIENTS] * 2),
        # (n - k) / (n² + kn - 2k) of the state is 2/20 on a GPU, 6/20 on a machine
        ("byteps", 2, [GRADIENTS // 5] * 4 + [3 * GRADIENTS // 5] * 2),
    ],
)
def test_servers_share_the_state(name, servers, state):
    held = footprint(name, Setting(SMALL, 4, servers=servers))
    assert [m.optimizer for m in held] == state


def test_the_root_is_gathered_once_and_one_unit_alone_has_no_neighbour():
    one = Workload("one", (Parameter("h.0.w", (1000,)), Parameter("head", (20,))))
    (held, _) = footprint("fsdp", Setting(one, 2))
    assert held.parameters == 4 * 1020 // 2 + 4 * 1020
    rooted = Workload("root", (Parameter("a", (10,)), Parameter("b", (20,))))
    (held, _) = footprint("fsdp", Setting(rooted, 2))
    assert held.parameters == 4 * 30 // 2 + 4 * 30


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch, on import
@pytest.mark.parametrize("name", ["vgg16", "gpt2", "bert-base"])
def test_owners_are_those_of_torch_s_partition(name):
    """Its own partition of the catalogue's shapes, on the meta device, and what that holds."""
    torch = torch_or_skip()
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, n = catalogue_workload(name), 8
    tensors = [torch.empty(p.shape, device="meta", requires_grad=True) for p in model.parameters]
    with fake_group(n):
        made = ZeroRedundancyOptimizer(tensors, torch.optim.Adam, lr=0.1)
        partition = made._partition_parameters()
    place = {id(tensor): index for index, tensor in enumerate(tensors)}
    theirs = [[place[id(t)] for group in rank for t in group["params"]] for rank in partition]
    names = [[model.parameters[index].name for index in rank] for rank in theirs]
    assert [[p.name for p in share] for share in owned(model.parameters, n)] == names
    held = footprint("zero-redundancy-optimizer", Setting(model, n))
    assert [m.optimizer for m in held] == [
        sum(2 * model.parameters[index].nbytes for index in rank) for rank in theirs
    ]
    said = {"vgg16": 822, "gpt2": 309, "bert-base": 188}[name]
    assert round(max(m.optimizer for m in held) / 1e6) == said


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Optimizer("adamw2"), "unknown optimizer 'adamw2'"),
        (lambda: zero(billion(), 4, 4), "stage must be 1, 2 or 3 and n at least 1, got 4 and 4"),
        (lambda: chunks(0, 4), "batch and GPUs must be at least 1, got 0 and 4"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
