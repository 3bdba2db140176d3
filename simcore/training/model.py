"""A model as training sees it: its parameters in order, its bytes, and its compute time if known.

No network, no strategy, no files. Times are per GPU, for a batch of ``batch`` samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simcore.fields import short
from simcore.names import unknown
from simcore.training.gpus import load_gpu, utilisation
from simcore.units import ITEM_BYTES, format_rate

MOST_ELEMENTS = 10**15
LONGEST_NAME = 500

BACKWARD_PER_FORWARD = 2  # a product of two matrices has two gradients, each as long a product
# Adam reads parameter, gradient and two moments, and writes all but the gradient.
OPTIMIZER_PASSES = 7


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter (or a buffer), and the work of the operation that uses it.

    ``forward_flops`` is per sample: two for each multiply-add. A backward pass costs twice that.

    >>> weight = Parameter("fc.weight", (1000, 512), forward_flops=2 * 1000 * 512)
    >>> weight.elements, weight.nbytes
    (512000, 2048000)
    >>> Parameter("fc.weight", (1000, -1))
    Traceback (most recent call last):
    ValueError: shape of 'fc.weight' is (1000, -1); accepted: whole numbers, not negative, \
of which the product is at most 10**15
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    trainable: bool = True
    forward_flops: float = 0.0

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and 0 < len(self.name) <= LONGEST_NAME):
            raise ValueError(
                f"name of a parameter is {short(self.name)}; "
                f"accepted: a text of 1 to {LONGEST_NAME} characters"
            )
        dims = isinstance(self.shape, tuple) and all(is_whole(dim) for dim in self.shape)
        if not (dims and math.prod(self.shape) <= MOST_ELEMENTS):
            raise ValueError(
                f"shape of {self.name!r} is {short(self.shape)}; accepted: whole numbers, "
                "not negative, of which the product is at most 10**15"
            )
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"{self.name!r}: {unknown('dtype', str(self.dtype), ITEM_BYTES)}")
        if not isinstance(self.trainable, bool):
            raise ValueError(
                f"trainable of {self.name!r} is {short(self.trainable)}; accepted: true or false"
            )
        if not is_amount(self.forward_flops):
            raise ValueError(
                f"forward_flops of {self.name!r} is {short(self.forward_flops)}; "
                "accepted: a finite number, not negative"
            )

    @property
    def elements(self) -> int:
        """Numbers in it; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of it, and of its gradient."""
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Workload:
    """What one GPU does in one training step, communication apart.

    ``parameters`` stand in registration order, a shared one once. ``arrival`` lists indices of
    trainable ones in the order in which their gradients arrive; one that is missing there never
    gets a gradient. None: all of them, in reverse of registration.

    ``forward_s`` and ``backward_s`` hold a time per parameter, or nothing where no compute time is
    known. A gradient arrives ``backward_s`` after the one before it (the first: after the backward
    pass began).

    >>> layers = (
    ...     Parameter("1", (8, 8), forward_flops=128),
    ...     Parameter("2", (8,)),
    ...     Parameter("3", (4,)),
    ... )
    >>> work = Workload("tiny", layers, batch=2).with_compute(forward_s=1.0, backward_s=2.0)
    >>> work.gradients, work.gradient_bytes, work.backward_s
    ((2, 1, 0), 304, (2.0, 0.0, 0.0))
    """

    name: str
    parameters: tuple[Parameter, ...]
    buffers: tuple[Parameter, ...] = ()
    arrival: tuple[int, ...] | None = None
    batch: int = 1
    input_bytes: int = 0
    output_bytes: int = 0
    activation_bytes: int = 0
    forward_s: tuple[float, ...] = ()
    backward_s: tuple[float, ...] = ()
    optimizer_s: float = 0.0
    compute_source: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and 0 < len(self.name) <= LONGEST_NAME):
            raise ValueError(f"name of a workload is {short(self.name)}; accepted: a text")
        if not self.parameters:
            raise ValueError(f"workload {self.name!r} has no parameters; accepted: at least one")
        self._check_names()
        if not is_whole(self.batch, 1):
            raise self._wrong("batch", self.batch, "a whole number, at least 1")
        for name in ("input_bytes", "output_bytes", "activation_bytes"):
            if not is_whole(getattr(self, name)):
                raise self._wrong(name, getattr(self, name), "whole bytes, not negative")
        self._check_arrival()
        self._check_times()

    def _wrong(self, field: str, value: Any, accepted: str) -> ValueError:
        return ValueError(
            f"{field} of workload {self.name!r} is {short(value)}; accepted: {accepted}"
        )

    def _check_names(self) -> None:
        seen: set[str] = set()
        for parameter in (*self.parameters, *self.buffers):
            if parameter.name in seen:
                raise ValueError(
                    f"workload {self.name!r} has two parameters or buffers {parameter.name!r}; "
                    "accepted: each name once"
                )
            seen.add(parameter.name)

    def _check_arrival(self) -> None:
        count = len(self.parameters)
        for position, index in enumerate(self.arrival or ()):
            if not (is_whole(index) and index < count and self.parameters[index].trainable):
                raise self._wrong(
                    f"arrival[{position}]", index, f"a trainable parameter's index below {count}"
                )
        if self.arrival is not None and len(set(self.arrival)) != len(self.arrival):
            raise self._wrong("arrival", self.arrival, "each index at most once")

    def _check_times(self) -> None:
        for name in ("forward_s", "backward_s"):
            times: tuple[float, ...] = getattr(self, name)
            if len(times) not in (0, len(self.parameters)):
                raise ValueError(
                    f"{name} of workload {self.name!r} has {len(times)} times; "
                    f"accepted: none, or one per parameter ({len(self.parameters)})"
                )
            for position, seconds in enumerate(times):
                if not is_amount(seconds):
                    raise self._wrong(f"{name}[{position}]", seconds, "seconds, not negative")
        if bool(self.forward_s) != bool(self.backward_s):
            raise ValueError(
                f"workload {self.name!r} has only one of forward_s and backward_s; "
                "accepted: both or none"
            )
        if not is_amount(self.optimizer_s):
            raise self._wrong("optimizer_s", self.optimizer_s, "seconds, not negative")

    @property
    def gradients(self) -> tuple[int, ...]:
        """Indices into ``parameters``, in the order in which gradients arrive."""
        if self.arrival is not None:
            return self.arrival
        indices = reversed(range(len(self.parameters)))
        return tuple(index for index in indices if self.parameters[index].trainable)

    @property
    def elements(self) -> int:
        """Numbers in all parameters: what is meant by a model's size."""
        return sum(p.elements for p in self.parameters)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters, trainable or not."""
        return sum(p.nbytes for p in self.parameters)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients of all trainable parameters."""
        return sum(p.nbytes for p in self.parameters if p.trainable)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers."""
        return sum(b.nbytes for b in self.buffers)

    @property
    def forward_flops(self) -> float:
        """Per sample, of the whole forward pass."""
        return sum(p.forward_flops for p in self.parameters)

    def with_compute(
        self,
        forward_s: float,
        backward_s: float,
        optimizer_s: float = 0.0,
        source: str = "given",
    ) -> Workload:
        """The same with these times for the whole pass, shared out in proportion to FLOPs.

        Where no FLOPs are known, in proportion to elements. The backward pass is shared among the
        gradients that arrive.
        """
        for name, seconds in (("forward_s", forward_s), ("backward_s", backward_s)):
            if not is_amount(seconds):
                raise self._wrong(name, seconds, "seconds, not negative")
        arriving = set(self.gradients)
        if backward_s and not arriving:
            raise self._wrong("backward_s", backward_s, "0, since no gradient arrives")
        everything = range(len(self.parameters))
        return replace(
            self,
            forward_s=_shares(self.parameters, everything, forward_s),
            backward_s=_shares(self.parameters, arriving, backward_s),
            optimizer_s=optimizer_s,
            compute_source=source,
        )

    def estimated_on(
        self, gpu: str, batch: int | None = None, precision: str | None = None
    ) -> Workload:
        """The same with compute times estimated for a GPU of `gpus.py`, Adam included.

        FLOPs over the part of the GPU's peak that public measurements of the same kind of model
        reach; ``precision`` is what multiplications run in (default: 16 bits where the GPU has
        tensor cores for them). ``compute_source`` says how uncertain that is.

        >>> layer = Parameter("fc.weight", (4096, 4096), forward_flops=2 * 4096**2)
        >>> work = Workload("layer", (layer,)).estimated_on("H100 SXM", batch=2048)
        >>> work.compute_source
        'estimated: H100 SXM, bfloat16, 40 % of 989 TFLOP/s (34 to 47 %), Adam at 3.35 TB/s'
        >>> f"{work.forward_s[0]:.6f} {work.backward_s[0]:.6f} {work.optimizer_s:.6f}"
        '0.000174 0.000347 0.000140'
        """
        if not self.forward_flops:
            raise ValueError(
                f"workload {self.name!r} has no forward_flops, so its compute time cannot be "
                "estimated; accepted: FLOPs per parameter, or measured or given times"
            )
        card = load_gpu(gpu)
        chosen = card.precision(precision)
        reached = utilisation(card, chosen, convolution=self.is_convolutional)
        peak = card.flops_per_s[chosen]
        sized = replace(self, batch=self.batch if batch is None else batch)
        forward_s = self.forward_flops * sized.batch / (peak * reached.typical)
        return sized.with_compute(
            forward_s,
            BACKWARD_PER_FORWARD * forward_s if self.gradients else 0.0,
            OPTIMIZER_PASSES * self.gradient_bytes / card.memory_bytes_per_s,
            f"estimated: {gpu}, {chosen}, {reached.typical * 100:.3g} % of {peak / 1e12:.4g} "
            f"TFLOP/s ({reached.low * 100:.3g} to {reached.high * 100:.3g} %), "
            f"Adam at {format_rate(card.memory_bytes_per_s)}",
        )

    @property
    def is_convolutional(self) -> bool:
        """Whether most of the FLOPs are convolutions': kernels have three dimensions or more."""
        kernels = sum(p.forward_flops for p in self.parameters if len(p.shape) > 2)
        return kernels > self.forward_flops / 2


def _shares(
    parameters: Sequence[Parameter], of: Iterable[int], total_s: float
) -> tuple[float, ...]:
    """``total_s`` shared among the parameters ``of``; the others get 0."""
    chosen = list(of)
    weights = [parameters[index].forward_flops for index in chosen]
    if not any(weights):
        weights = [float(parameters[index].elements) for index in chosen]
    if not any(weights):
        weights = [1.0] * len(chosen)
    whole = math.fsum(weights)
    times = [0.0] * len(parameters)
    for index, weight in zip(chosen, weights, strict=True):
        times[index] = total_s * (weight / whole)
    return tuple(times)


def is_whole(value: Any, at_least: int = 0) -> bool:
    """Whether it is an integer, not a bool, of at least that."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def is_amount(value: Any) -> bool:
    """Whether it is a finite number that is not negative."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # An integer of hundreds of digits is no float.
    return number and 0 <= value < 1e300
