"""Any ``torch.nn.Module`` as a workload: shapes, FLOPs, order of gradients, and measured times.

One forward and one backward pass are run, on the module's own device. On the meta device, or with
tensors of torch's ``FakeTensorMode``, they cost no memory and no time, so that a model of any size
can be described.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from real_gpu.observe import Clock, FlopsByParameter, KeptBytes, tensor_bytes, tensors_in
from simcore.fields import short
from simcore.names import unknown
from simcore.training.model import Parameter, Workload
from simcore.units import ITEM_BYTES

# As wide as ours, and broadcast alike.
_SAME_WIDTH = {"bool": "uint8"}
_WARM_UP = 2


def describe(
    module: torch.nn.Module,
    *inputs: Any,
    name: str = "",
    batch: int | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    measure: bool = False,
    runs: int = 5,
) -> Workload:
    """The workload of a module that is called with ``inputs``, a batch of examples.

    ``batch`` is the first input's first dimension unless given. ``loss`` makes a number of the
    output; by default the sum of all that has a gradient. With ``measure``, ``runs`` passes are
    timed after a warm-up. The module's gradients and buffers are left as they were.

    >>> with torch.device("meta"):
    ...     module = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.Linear(4096, 10))
    ...     work = describe(module, torch.empty(32, 4096), name="two layers")
    >>> [(p.name, p.shape, p.forward_flops) for p in work.parameters][:2]
    [('0.weight', (4096, 4096), 33554432.0), ('0.bias', (4096,), 0.0)]
    >>> work.gradients, work.batch, work.input_bytes, work.output_bytes
    ((3, 2, 1, 0), 32, 16384, 40)
    """
    named = _checked(module, measure, runs)
    size = batch if batch is not None else _first_dimension(inputs)
    if size < 1:
        raise ValueError(f"batch {size}; accepted: a number of samples, at least 1")
    plain = [_parameter(key, tensor) for key, tensor in named.items()]
    step = _Step(module, inputs, loss or _sum)
    with _left_as_it_was(module):
        seen = step.observe(list(named.values()))
        timings = [
            step.timed(list(named.values())) for _ in range(_WARM_UP + runs if measure else 0)
        ]
    parameters = tuple(
        replace(parameter, forward_flops=flops / size)
        for parameter, flops in zip(plain, seen.flops, strict=True)
    )
    work = Workload(
        name or type(module).__name__,
        parameters,
        tuple(replace(_parameter(key, b), trainable=False) for key, b in module.named_buffers()),
        arrival=tuple(seen.arrival),
        batch=size,
        input_bytes=tensor_bytes(inputs) // size,
        output_bytes=seen.output_bytes // size,
        activation_bytes=seen.kept_bytes // size,
    )
    return _with_times(work, timings[_WARM_UP:], step.device) if measure else work


def _checked(module: torch.nn.Module, measure: bool, runs: int) -> dict[str, torch.Tensor]:
    """The parameters by name, a shared one once, under its first."""
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"{short(module)} is not a module; accepted: a torch.nn.Module")
    named: dict[str, torch.Tensor] = dict(module.named_parameters())
    if not named:
        raise ValueError("the module has no parameters; accepted: one with at least one")
    first = next(iter(named.values()))
    if measure and (first.is_meta or isinstance(first, FakeTensor)):
        raise ValueError("measure=True: a module on the meta device does not compute")
    if measure and runs < 1:
        raise ValueError(f"runs {runs}; accepted: at least 1")
    return named


def _parameter(name: str, tensor: torch.Tensor) -> Parameter:
    dtype = str(tensor.dtype).removeprefix("torch.")
    dtype = _SAME_WIDTH.get(dtype, dtype)
    if dtype not in ITEM_BYTES:
        raise ValueError(f"{name!r}: {unknown('dtype', dtype, ITEM_BYTES)}")
    return Parameter(name, tuple(tensor.shape), dtype, tensor.requires_grad)


@dataclass(slots=True)
class _Seen:
    """What one pass showed: FLOPs per parameter for the whole batch, and gradients' order."""

    flops: list[float]
    arrival: list[int] = field(default_factory=list)
    output_bytes: int = 0
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    """One forward and backward pass."""

    module: torch.nn.Module
    inputs: Sequence[Any]
    loss: Callable[[Any], torch.Tensor]

    @property
    def device(self) -> torch.device:
        """Where the first parameter lies."""
        return next(self.module.parameters()).device

    def observe(self, parameters: list[torch.Tensor]) -> _Seen:
        """Run once and look."""
        counter = FlopsByParameter(parameters)
        kept = KeptBytes([*parameters, *self.module.buffers()])
        seen = _Seen(counter.flops)
        with _hooks(parameters, seen.arrival.append):
            with counter, torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda x: x):
                output = self._forward()
            seen.output_bytes = tensor_bytes(output)
            seen.kept_bytes = kept.nbytes
            self._backward(output)
        return seen

    def timed(self, parameters: list[torch.Tensor]) -> tuple[float, dict[int, float]]:
        """Seconds of the forward pass, and from each gradient's predecessor to its arrival."""
        clock = Clock(self.device)
        arrivals: list[tuple[int, Any]] = []
        for parameter in parameters:
            parameter.grad = None
        with _hooks(parameters, lambda index: arrivals.append((index, clock.stamp()))):
            start = clock.stamp()
            output = self._forward()
            previous = turned = clock.stamp()
            self._backward(output)
        clock.settle()
        gaps = {}
        for index, stamp in arrivals:
            gaps[index] = clock.seconds(previous, stamp)
            previous = stamp
        return clock.seconds(start, turned), gaps

    def _forward(self) -> Any:
        try:
            return self.module(*self.inputs)
        except (RuntimeError, TypeError, IndexError) as error:
            first_line = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"the module {type(self.module).__name__} fails with these inputs on "
                f"{self.device}: {first_line}"
            ) from error

    def _backward(self, output: Any) -> None:
        loss = self.loss(output)
        if loss.requires_grad:  # else every parameter is frozen
            loss.backward()  # type: ignore[no-untyped-call]


def _with_times(
    work: Workload, timings: list[tuple[float, dict[int, float]]], device: torch.device
) -> Workload:
    """Medians: of the whole forward pass, shared out by FLOPs, and of each gradient's time."""
    shared = work.with_compute(median(forward_s for forward_s, _ in timings), 0.0)
    backward_s = [0.0] * len(work.parameters)
    for index in work.gradients:
        backward_s[index] = median(gaps[index] for _, gaps in timings)
    where = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{device.type} with {torch.get_num_threads()} threads"
    )
    return replace(
        shared,
        backward_s=tuple(backward_s),
        compute_source=f"measured: {where}, torch {torch.__version__}, median of {len(timings)}",
    )


@contextlib.contextmanager
def _hooks(parameters: Sequence[torch.Tensor], arrived: Callable[[int], Any]) -> Iterator[None]:
    """Call ``arrived`` with a parameter's index when its gradient is complete."""
    handles = [
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _, index=index: arrived(index)
        )
        for index, parameter in enumerate(parameters)
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _left_as_it_was(module: torch.nn.Module) -> Iterator[None]:
    """Give back gradients, buffers (running statistics) and the state of random numbers."""
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _first_dimension(inputs: Sequence[Any]) -> int:
    for tensor in tensors_in(inputs):
        if tensor.dim() and tensor.shape[0]:
            return int(tensor.shape[0])
    raise ValueError("no input has a first dimension; accepted: batch=N, the number of samples")


def _sum(output: Any) -> torch.Tensor:
    parts = [t.sum() for t in tensors_in(output) if t.is_floating_point()]
    if not parts:
        raise ValueError(
            f"the module's output, a {type(output).__name__}, holds no tensor with a gradient; "
            "accepted: loss=FUNCTION, which makes a number of it"
        )
    return torch.stack([part.float() for part in parts]).sum()
