"""Memory: known sums, and the tensors that torch really keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcore.training.buckets import DdpOptions
from simcore.training.memory import Memory, Optimizer, chunks, data_parallel, ddp, one_gpu, zero
from simcore.training.model import Parameter, Workload
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
    assert first.total - others[0].total == 32 * 1000 + 8 * GB + 4 * GB
    assert first.inputs == others[0].inputs == 8 * 300
    assert first.activations == 8 * 5000
    uneven = data_parallel(model, 4, batch=9)
    assert uneven[3] == Memory()
    assert [m.activations for m in uneven[:3]] == [3 * 5000] * 3
    assert data_parallel(model, 1) == (one_gpu(model),)


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
