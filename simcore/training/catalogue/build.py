"""How catalogue models are written: layer after layer, each adding what torch registers for it."""

from __future__ import annotations

import math

from simcore.training.model import Parameter, Workload


class Layers:
    """Collects parameters in registration order, buffers, and what a backward pass keeps.

    ``positions`` is where a layer is applied: output pixels of a convolution, tokens of a linear
    layer. Two FLOPs are counted for each multiply-add, and none for additions alone,
    normalisations and activation functions.

    Gradients arrive layer by layer in reverse of the order in which layers run, and inside a layer
    as torch 2.13's autograd delivers them: a linear layer's bias first, else the weight.
    ``ahead=2`` says that a layer runs before the two that are registered before it.

    >>> layers = Layers()
    >>> layers.linear("fc1", 512, 100)
    >>> layers.linear("fc2", 100, 10)
    >>> layers.norm("norm", 512, ahead=2)
    >>> work = layers.workload("mlp", input_bytes=2048, output_elements=10)
    >>> [work.parameters[index].name for index in work.gradients]
    ['fc2.bias', 'fc2.weight', 'fc1.bias', 'fc1.weight', 'norm.weight', 'norm.bias']
    >>> work.parameters[0].forward_flops, work.activation_bytes
    (102400.0, 4536)
    """

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        self.buffers: list[Parameter] = []
        self.kept_elements = 0
        self._running: list[list[int]] = []  # indices by layer, layers in the order they run

    def add(self, name: str, *shape: int, flops: float = 0.0, ahead: int = 0) -> None:
        """A layer of one parameter."""
        self._layer([Parameter(name, shape, forward_flops=flops)], ahead)

    def _layer(self, parameters: list[Parameter], ahead: int) -> None:
        """Register them; their gradients arrive in reverse."""
        first = len(self.parameters)
        self.parameters += parameters
        self._running.insert(
            len(self._running) - ahead, list(range(first, first + len(parameters)))
        )

    def keep(self, elements: int) -> None:
        """Count an output that the backward pass needs."""
        self.kept_elements += elements

    def linear(
        self,
        name: str,
        inputs: int,
        outputs: int,
        *,
        positions: int = 1,
        bias: bool = True,
        transposed: bool = False,
        joint: str = ".",
        then_flops: float = 0.0,
        ahead: int = 0,
    ) -> None:
        """``torch.nn.Linear``, or ``transposed`` as GPT-2's ``Conv1D`` stores it.

        ``then_flops`` are of an operation without parameters of its own that comes after it, such
        as attention: its part of the backward pass lies before this layer's gradients.
        """
        shape = (inputs, outputs) if transposed else (outputs, inputs)
        flops = 2.0 * inputs * outputs * positions + then_flops
        weight = Parameter(f"{name}{joint}weight", shape, forward_flops=flops)
        self._layer([weight, Parameter(f"{name}{joint}bias", (outputs,))][: 1 + bias], ahead)
        self.keep(outputs * positions)

    def conv(
        self,
        name: str,
        inputs: int,
        outputs: int,
        kernel: int,
        side: int,
        *,
        bias: bool = False,
        ahead: int = 0,
    ) -> None:
        """``torch.nn.Conv2d`` with a square kernel and an output of ``side`` × ``side`` pixels."""
        shape = (outputs, inputs, kernel, kernel)
        flops = 2.0 * math.prod(shape) * side**2
        weight = Parameter(f"{name}.weight", shape, forward_flops=flops)
        self._weight_first(weight, bias, ahead)
        self.keep(outputs * side**2)

    def norm(
        self,
        name: str,
        width: int,
        *,
        positions: int = 1,
        bias: bool = True,
        then_flops: float = 0.0,
        ahead: int = 0,
    ) -> None:
        """A normalisation with a scale and, unless it is an RMSNorm, a shift."""
        weight = Parameter(f"{name}.weight", (width,), forward_flops=then_flops)
        self._weight_first(weight, bias, ahead)
        self.keep(width * positions)

    def _weight_first(self, weight: Parameter, bias: bool, ahead: int) -> None:
        shift = Parameter(weight.name.removesuffix("weight") + "bias", weight.shape[:1])
        self._layer([weight, shift][: 1 + bias], ahead)
        self._running[-1 - ahead].reverse()

    def batch_norm(self, name: str, channels: int, side: int) -> None:
        """``torch.nn.BatchNorm2d``, with its running statistics as buffers."""
        self.norm(name, channels, positions=side**2)
        self.buffer(f"{name}.running_mean", channels)
        self.buffer(f"{name}.running_var", channels)
        self.buffer(f"{name}.num_batches_tracked", dtype="int64")

    def buffer(self, name: str, *shape: int, dtype: str = "float32") -> None:
        """A tensor that is no parameter."""
        self.buffers.append(Parameter(name, shape, dtype, trainable=False))

    def workload(self, name: str, *, input_bytes: int, output_elements: int) -> Workload:
        """The model in float32; the outputs are its logits, and what is kept includes the input."""
        arrival = [index for layer in reversed(self._running) for index in reversed(layer)]
        return Workload(
            name,
            tuple(self.parameters),
            tuple(self.buffers),
            arrival=tuple(arrival),
            input_bytes=input_bytes,
            output_bytes=4 * output_elements,
            activation_bytes=input_bytes + 4 * self.kept_elements,
        )
