"""Known models, built from their published shapes: names and order as their libraries register.

Compared, name by name, shape by shape, and in the order in which gradients arrive, with torchvision
0.28.0 and transformers 4.57.6 under torch 2.13.0. A parameter that two modules share counts once.
FLOPs are per sample and forward. ``activation_bytes`` is an estimate in float32: the outputs of
linear layers, convolutions, normalisations, attention, pooling, and activation functions that are
not in place, which is what fused kernels without dropout keep. Over what autograd keeps of the
libraries' own modules it is 0.83 to 1.07 for convolutional networks and Llama, 0.76 for ViT, 0.46
for BERT and 0.21 to 0.28 for GPT-2: those keep attention's weights, dropout's masks, and the steps
of an unfused GELU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simcore.names import unknown
from simcore.training.catalogue import convolutional, transformers
from simcore.training.catalogue.transformers import Llama
from simcore.training.model import Workload

# Zhang et al. (2024), arXiv:2401.02385, table 1.
_TINYLLAMA = Llama(2048, 5632, 22, 32, 4, 32000, 2048)
# The model card's configuration, on 4096 tokens; it takes up to 131072.
_LLAMA_3_2_1B = Llama(2048, 8192, 16, 32, 8, 128256, 4096, tied=True)
# Touvron et al. (2023), arXiv:2302.13971, table 2; the feed-forward width is in section 2.2.
_LLAMA_7B = Llama(4096, 11008, 32, 32, 32, 32000, 2048)

_MODELS: dict[str, Callable[[], Workload]] = {
    "resnet18": partial(convolutional.resnet, "resnet18", (2, 2, 2, 2), bottleneck=False),
    "resnet50": partial(convolutional.resnet, "resnet50", (3, 4, 6, 3), bottleneck=True),
    "resnet101": partial(convolutional.resnet, "resnet101", (3, 4, 23, 3), bottleneck=True),
    "vgg16": convolutional.vgg16,
    "vit-b-16": transformers.vit_b_16,
    "bert-base": transformers.bert_base,
    "gpt2": partial(transformers.gpt2, "gpt2", width=768, blocks=12),
    "gpt2-medium": partial(transformers.gpt2, "gpt2-medium", width=1024, blocks=24),
    "gpt2-large": partial(transformers.gpt2, "gpt2-large", width=1280, blocks=36),
    "gpt2-xl": partial(transformers.gpt2, "gpt2-xl", width=1600, blocks=48),
    "tinyllama-1.1b": partial(_TINYLLAMA.workload, "tinyllama-1.1b"),
    "llama-3.2-1b": partial(_LLAMA_3_2_1B.workload, "llama-3.2-1b"),
    "llama-7b": partial(_LLAMA_7B.workload, "llama-7b"),
}


def catalogue_names() -> tuple[str, ...]:
    """The names of the known models."""
    return tuple(_MODELS)


def catalogue_workload(name: str) -> Workload:
    """A known model; no compute time, one sample per GPU.

    >>> catalogue_workload("gpt2").parameters[0]
    Parameter(name='transformer.wte.weight', shape=(50257, 768), dtype='float32', \
trainable=True, forward_flops=0.0)
    """
    if name not in _MODELS:
        raise ValueError(unknown("model", name, _MODELS))
    return _MODELS[name]()
