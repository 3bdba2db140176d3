"""Convolutional networks of torchvision, for images of 224 × 224 pixels and 1000 classes."""

from __future__ import annotations

from simcore.training.catalogue.build import Layers
from simcore.training.model import Workload

IMAGE_BYTES = 4 * 3 * 224 * 224
CLASSES = 1000


def resnet(name: str, blocks: tuple[int, int, int, int], *, bottleneck: bool) -> Workload:
    """A ResNet: He et al. (2015), arXiv:1512.03385, table 1; in torchvision's variant, where a
    bottleneck's stride lies on its 3 × 3 convolution ("v1.5").

    >>> resnet("resnet18", (2, 2, 2, 2), bottleneck=False).elements
    11689512
    """
    layers = Layers()
    layers.conv("conv1", 3, 64, 7, side=112)
    layers.batch_norm("bn1", 64, side=112)
    layers.keep(64 * 56**2)  # after pooling
    inputs = 64
    for stage, count in enumerate(blocks):
        width, side = 64 * 2**stage, 56 // 2**stage
        for number in range(count):
            stride = 2 if stage and not number else 1
            block = _bottleneck if bottleneck else _basic
            inputs = block(layers, f"layer{stage + 1}.{number}", inputs, width, side, stride)
    layers.linear("fc", inputs, CLASSES)
    return layers.workload(name, input_bytes=IMAGE_BYTES, output_elements=CLASSES)


def _basic(layers: Layers, name: str, inputs: int, width: int, side: int, stride: int) -> int:
    layers.conv(f"{name}.conv1", inputs, width, 3, side)
    layers.batch_norm(f"{name}.bn1", width, side)
    layers.conv(f"{name}.conv2", width, width, 3, side)
    layers.batch_norm(f"{name}.bn2", width, side)
    if stride > 1 or inputs != width:
        _shortcut(layers, name, inputs, width, side)
    return width


def _bottleneck(layers: Layers, name: str, inputs: int, width: int, side: int, stride: int) -> int:
    outputs = 4 * width
    layers.conv(f"{name}.conv1", inputs, width, 1, side * stride)
    layers.batch_norm(f"{name}.bn1", width, side * stride)
    layers.conv(f"{name}.conv2", width, width, 3, side)
    layers.batch_norm(f"{name}.bn2", width, side)
    layers.conv(f"{name}.conv3", width, outputs, 1, side)
    layers.batch_norm(f"{name}.bn3", outputs, side)
    if stride > 1 or inputs != outputs:
        _shortcut(layers, name, inputs, outputs, side)
    return outputs


def _shortcut(layers: Layers, name: str, inputs: int, outputs: int, side: int) -> None:
    layers.conv(f"{name}.downsample.0", inputs, outputs, 1, side)
    layers.batch_norm(f"{name}.downsample.1", outputs, side)


def vgg16(name: str = "vgg16") -> Workload:
    """VGG-16, configuration D: Simonyan and Zisserman (2014), arXiv:1409.1556, table 1.

    >>> vgg16().elements
    138357544
    """
    layers = Layers()
    inputs, position = 3, 0
    for stage, (width, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        for _ in range(count):
            layers.conv(f"features.{position}", inputs, width, 3, side=224 // 2**stage, bias=True)
            inputs, position = width, position + 2  # a ReLU, in place, has the number between
        layers.keep(width * (112 // 2**stage) ** 2)  # after pooling
        position += 1
    layers.linear("classifier.0", 512 * 7 * 7, 4096)
    layers.linear("classifier.3", 4096, 4096)
    layers.linear("classifier.6", 4096, CLASSES)
    return layers.workload(name, input_bytes=IMAGE_BYTES, output_elements=CLASSES)
