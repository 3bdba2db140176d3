"""Modules as workloads: against counting by hand, torch's own counter, and what memory is used."""

import pytest

torch = pytest.importorskip("torch", reason="pip install torch")

from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from real_gpu.describe import describe  # noqa: E402
from simcore.training.workload import from_json, to_json  # noqa: E402


class Tied(nn.Module):
    """A table that is used first and last, and attention between."""

    def __init__(self, width=16, vocabulary=40):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.table(ids)
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1)
        return self.head(self.norm(x + self.out(mixed)))


class Convolutions(nn.Module):
    """Two convolutions with batch normalisation, and a frozen one."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.frozen = nn.Conv2d(8, 4, 1).requires_grad_(False)
        self.last = nn.Conv2d(4, 2, 1)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return {"map": self.last(self.frozen(self.norm(self.first(x)))), "sizes": [x.shape]}


def flops_by_name(work):
    return {p.name: p.forward_flops for p in work.parameters if p.forward_flops}


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_shared_table_counts_once_and_its_products_lie_on_what_comes_before(device):
    with torch.device(device):
        work = describe(Tied(), torch.zeros(4, 10, dtype=torch.long))
    assert work.name == "Tied"
    assert [p.name for p in work.parameters] == [
        "table.weight",
        "qkv.weight",
        "qkv.bias",
        "out.weight",
        "out.bias",
        "norm.weight",
        "norm.bias",
    ]
    assert flops_by_name(work) == {
        "qkv.weight": 2 * 10 * 16 * 48 + 4 * 10**2 * 16,  # and attention
        "out.weight": 2 * 10 * 16 * 16,
        "norm.weight": 2 * 10 * 16 * 40,  # the head
    }
    assert [work.parameters[i].name for i in work.gradients] == [
        "norm.weight",
        "norm.bias",
        "out.bias",
        "out.weight",
        "qkv.bias",
        "qkv.weight",
        "table.weight",
    ]
    assert (work.batch, work.input_bytes, work.output_bytes) == (4, 8 * 10, 4 * 10 * 40)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_frozen_and_unused_parameters_and_buffers(device):
    with torch.device(device):
        module = Convolutions()
        work = describe(module, torch.zeros(2, 3, 8, 8), name="net")
    assert flops_by_name(work) == {
        "first.weight": 2 * 8 * 27 * 64,
        "frozen.weight": 2 * 4 * 8 * 64,
        "last.weight": 2 * 2 * 4 * 64,
    }
    assert [p.name for p in work.parameters if not p.trainable] == ["frozen.weight", "frozen.bias"]
    arrived = {work.parameters[i].name for i in work.gradients}
    assert arrived == {f"{m}.{p}" for m in ("first", "norm", "last") for p in ("weight", "bias")}
    assert [(b.name, b.shape, b.dtype) for b in work.buffers] == [
        ("norm.running_mean", (8,), "float32"),
        ("norm.running_var", (8,), "float32"),
        ("norm.num_batches_tracked", (), "int64"),
    ]
    assert (work.name, work.output_bytes) == ("net", 4 * 2 * 64)
    assert from_json(to_json(work)) == work


@pytest.mark.parametrize("make", [Convolutions, Tied])
def test_all_flops_are_those_of_torchs_counter(make):
    with torch.device("meta"):
        module = make()
        x = (
            torch.zeros(2, 3, 8, 8)
            if make is Convolutions
            else torch.zeros(4, 10, dtype=torch.long)
        )
        with FlopCounterMode(display=False) as counter:
            module(x)
        work = describe(module, x)
    assert work.forward_flops * work.batch == counter.get_total_flops()


def test_what_autograd_keeps_is_counted_once_and_without_parameters():
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        work = describe(module, torch.zeros(5, 8))
    # The input and ReLU's result, which the second layer keeps too.
    assert work.activation_bytes == 4 * (8 + 32)


def test_seven_billion_parameters_need_no_memory():
    resource = pytest.importorskip("resource", reason="needs a Unix")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.device("meta"):
        layers = [nn.Linear(8192, 8192, bias=False) for _ in range(105)]
        work = describe(nn.Sequential(*layers), torch.empty(64, 8192), name="big")
    assert work.elements > 7e9
    assert work.gradients == tuple(reversed(range(105)))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 200_000  # KiB; one layer alone would be 262,144


def test_the_module_is_left_as_it_was():
    module = Convolutions()
    x = torch.randn(2, 3, 8, 8)
    module(x)["map"].sum().backward()
    gradients = {
        name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None
    }
    buffers = {name: b.clone() for name, b in module.named_buffers()}
    random = torch.random.get_rng_state()
    describe(module, x, measure=True, runs=1)
    for name, parameter in module.named_parameters():
        assert (parameter.grad is None) == (name not in gradients)
        if name in gradients:
            assert torch.equal(parameter.grad, gradients[name])
        assert not parameter._post_accumulate_grad_hooks
    assert all(torch.equal(b, buffers[name]) for name, b in module.named_buffers())
    assert torch.equal(torch.random.get_rng_state(), random)


class _Wait(torch.autograd.Function):
    """Time that passes in the backward pass, by a clock of the test's own."""

    @staticmethod
    def forward(context, x, now, seconds):
        context.now, context.seconds = now, seconds
        now[0] += seconds / 2
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        context.now[0] += context.seconds
        return gradient, None, None


class Slow(nn.Module):
    """Two layers with a wait behind each."""

    def __init__(self, now):
        super().__init__()
        self.now = now
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = _Wait.apply(self.first(x), self.now, 4.0)
        return _Wait.apply(self.second(x), self.now, 1.0)


def test_measured_times_are_those_between_arrivals(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("real_gpu.observe.time.perf_counter", lambda: now[0])
    work = describe(Slow(now), torch.zeros(2, 4), measure=True, runs=3)
    times = {p.name: s for p, s in zip(work.parameters, work.backward_s, strict=True)}
    assert times == {
        "second.bias": 1.0,
        "second.weight": 0.0,
        "first.bias": 4.0,
        "first.weight": 0.0,
    }
    assert sum(work.forward_s) == 2.5
    assert work.compute_source.startswith("measured: cpu with ")
    assert work.compute_source.endswith(f"torch {torch.__version__}, median of 3")


def test_an_output_that_is_no_number_takes_a_loss():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x), self.b(x)

    work = describe(Pair(), torch.zeros(2, 4), loss=lambda output: output[1].mean())
    assert [work.parameters[i].name for i in work.gradients] == ["b.bias", "b.weight"]


def test_a_frozen_module_has_no_gradients():
    work = describe(nn.Linear(4, 4).requires_grad_(False), torch.zeros(2, 4), measure=True, runs=1)
    assert work.gradients == ()
    assert work.backward_s == (0.0, 0.0)
    assert work.activation_bytes == 0


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: describe(nn.ReLU(), torch.zeros(1)), "has no parameters"),
        (lambda: describe(nn.Linear(2, 2), torch.zeros(2)[0:0].sum()), "batch=N"),
        (lambda: describe(nn.Linear(2, 2), torch.zeros(2, 2), batch=0), "batch 0"),
        (lambda: describe(nn.Linear(2, 2), torch.zeros(2, 2), measure=True, runs=0), "runs 0"),
        (lambda: describe(torch.relu, torch.zeros(2, 2)), "a torch.nn.Module"),
        (
            lambda: describe(nn.Linear(2, 2, dtype=torch.complex64), torch.zeros(2, 2)),
            "unknown dtype 'complex64'",
        ),
        (
            lambda: describe(nn.Linear(2, 2, device="meta"), torch.zeros(2, 2), measure=True),
            "does not compute",
        ),
        (lambda: describe(nn.Linear(2, 2), torch.zeros(2, 3)), "the module Linear fails"),
        (lambda: describe(_Text(), torch.zeros(2, 2)), "holds no tensor with a gradient"),
    ],
)
def test_what_cannot_be_described_is_refused_in_one_line(act, says):
    with pytest.raises(ValueError, match=says) as error:
        act()
    assert "\n" not in str(error.value)


class _Text(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

    def forward(self, x):
        return "text"
