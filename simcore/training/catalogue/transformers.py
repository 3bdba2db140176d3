"""Transformers, as Hugging Face's and torchvision's classes register them, for one length of text.

Attention's two products (queries × keys, weights × values; all pairs, no half saved for a causal
mask) cost 4 × tokens² × width FLOPs. They have no parameters, so they are counted on the projection
before them; so is an output projection that shares the token table, on what comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.training.catalogue.build import Layers
from simcore.training.catalogue.convolutional import CLASSES, IMAGE_BYTES
from simcore.training.model import Workload

TOKEN_BYTES = 8  # int64


def attention_flops(tokens: int, width: int) -> float:
    """Of a sample, all heads together."""
    return 4.0 * tokens**2 * width


def gpt2(name: str, *, width: int, blocks: int) -> Workload:
    """``GPT2LMHeadModel`` on 1024 tokens: Radford et al. (2019), table 2. Its ``lm_head`` is the
    token table ``wte``. Each block has a causal mask as a buffer (a bool, here uint8).

    >>> gpt2("gpt2", width=768, blocks=12).elements
    124439808
    """
    vocabulary, tokens = 50257, 1024
    layers = Layers()
    layers.add("transformer.wte.weight", vocabulary, width)
    layers.add("transformer.wpe.weight", tokens, width)
    for number in range(blocks):
        block = f"transformer.h.{number}"
        layers.norm(f"{block}.ln_1", width, positions=tokens)
        _gpt2_linear(
            layers, f"{block}.attn.c_attn", width, 3 * width, tokens, attention_flops(tokens, width)
        )
        layers.keep(tokens * width)  # attention's result
        _gpt2_linear(layers, f"{block}.attn.c_proj", width, width, tokens)
        layers.norm(f"{block}.ln_2", width, positions=tokens)
        _gpt2_linear(layers, f"{block}.mlp.c_fc", width, 4 * width, tokens)
        layers.keep(tokens * 4 * width)  # GELU's result
        _gpt2_linear(layers, f"{block}.mlp.c_proj", 4 * width, width, tokens)
        layers.buffer(f"{block}.attn.bias", 1, 1, tokens, tokens, dtype="uint8")
        layers.buffer(f"{block}.attn.masked_bias")
    head_flops = 2.0 * tokens * width * vocabulary
    layers.norm("transformer.ln_f", width, positions=tokens, then_flops=head_flops)
    layers.keep(tokens * vocabulary)
    return layers.workload(
        name, input_bytes=TOKEN_BYTES * tokens, output_elements=tokens * vocabulary
    )


def _gpt2_linear(
    layers: Layers, name: str, inputs: int, outputs: int, tokens: int, then_flops: float = 0.0
) -> None:
    layers.linear(name, inputs, outputs, positions=tokens, transposed=True, then_flops=then_flops)


def bert_base(name: str = "bert-base") -> Workload:
    """``BertForPreTraining`` (masked words and next sentence) on 512 tokens: Devlin et al. (2018),
    arXiv:1810.04805. ``BertModel`` alone, without the heads, has 109,482,240 parameters. The
    decoder is the table of words. A sample is its tokens, their types and a mask.

    >>> bert_base().elements
    110106428
    """
    vocabulary, tokens, width = 30522, 512, 768
    layers = Layers()
    layers.add("bert.embeddings.word_embeddings.weight", vocabulary, width)
    layers.add("bert.embeddings.position_embeddings.weight", tokens, width)
    layers.add("bert.embeddings.token_type_embeddings.weight", 2, width, ahead=1)
    layers.norm("bert.embeddings.LayerNorm", width, positions=tokens)
    for number in range(12):
        _bert_block(layers, f"bert.encoder.layer.{number}", width, tokens)
    layers.linear("bert.pooler.dense", width, width)  # on the first token
    layers.add("cls.predictions.bias", vocabulary, flops=2.0 * tokens * width * vocabulary)
    layers.linear("cls.predictions.transform.dense", width, width, positions=tokens, ahead=1)
    layers.keep(tokens * width)  # GELU's result
    layers.norm("cls.predictions.transform.LayerNorm", width, positions=tokens, ahead=1)
    layers.keep(tokens * vocabulary)
    layers.linear("cls.seq_relationship", width, 2)
    for buffer in ("position_ids", "token_type_ids"):
        layers.buffer(f"bert.embeddings.{buffer}", 1, tokens, dtype="int64")
    return layers.workload(
        name, input_bytes=3 * TOKEN_BYTES * tokens, output_elements=tokens * vocabulary + 2
    )


def _bert_block(layers: Layers, block: str, width: int, tokens: int) -> None:
    for part in ("query", "key", "value"):
        layers.linear(
            f"{block}.attention.self.{part}",
            width,
            width,
            positions=tokens,
            then_flops=attention_flops(tokens, width) if part == "value" else 0.0,
        )
    layers.keep(tokens * width)  # attention's result
    layers.linear(f"{block}.attention.output.dense", width, width, positions=tokens)
    layers.norm(f"{block}.attention.output.LayerNorm", width, positions=tokens)
    layers.linear(f"{block}.intermediate.dense", width, 4 * width, positions=tokens)
    layers.keep(tokens * 4 * width)  # GELU's result
    layers.linear(f"{block}.output.dense", 4 * width, width, positions=tokens)
    layers.norm(f"{block}.output.LayerNorm", width, positions=tokens)


def vit_b_16(name: str = "vit-b-16") -> Workload:
    """torchvision's ``vit_b_16`` on an image of 224 × 224: Dosovitskiy et al. (2020),
    arXiv:2010.11929, table 1.

    >>> vit_b_16().elements
    86567656
    """
    width, patches = 768, 14**2
    tokens = patches + 1
    layers = Layers()
    layers.add("class_token", 1, 1, width)
    layers.conv("conv_proj", 3, width, 16, side=14, bias=True, ahead=1)
    layers.add("encoder.pos_embedding", 1, tokens, width)
    for number in range(12):
        block = f"encoder.layers.encoder_layer_{number}"
        layers.norm(f"{block}.ln_1", width, positions=tokens)
        layers.linear(
            f"{block}.self_attention.in_proj",
            width,
            3 * width,
            positions=tokens,
            then_flops=attention_flops(tokens, width),
            joint="_",  # this layer's parameters are attention's own
        )
        layers.keep(tokens * width)  # attention's result
        layers.linear(f"{block}.self_attention.out_proj", width, width, positions=tokens)
        layers.norm(f"{block}.ln_2", width, positions=tokens)
        layers.linear(f"{block}.mlp.0", width, 4 * width, positions=tokens)
        layers.keep(tokens * 4 * width)  # GELU's result
        layers.linear(f"{block}.mlp.3", 4 * width, width, positions=tokens)
    layers.norm("encoder.ln", width, positions=tokens)
    layers.linear("heads.head", width, CLASSES)
    return layers.workload(name, input_bytes=IMAGE_BYTES, output_elements=CLASSES)


@dataclass(frozen=True, slots=True)
class Llama:
    """The shape of a ``LlamaForCausalLM``, for texts of ``tokens``."""

    width: int
    inner: int
    blocks: int
    heads: int
    key_heads: int
    vocabulary: int
    tokens: int
    tied: bool = False

    def workload(self, name: str) -> Workload:
        """The model in float32.

        >>> Llama(4096, 11008, 32, 32, 32, 32000, 2048).workload("llama-7b").elements
        6738415616
        """
        layers = Layers()
        layers.add("model.embed_tokens.weight", self.vocabulary, self.width)
        for number in range(self.blocks):
            self._block(layers, f"model.layers.{number}")
        head_flops = 2.0 * self.tokens * self.width * self.vocabulary if self.tied else 0.0
        self._norm(layers, "model.norm", then_flops=head_flops)
        if self.tied:
            layers.keep(self.tokens * self.vocabulary)
        else:
            self._linear(layers, "lm_head", self.width, self.vocabulary)
        layers.buffer("model.rotary_emb.inv_freq", self.width // self.heads // 2)
        return layers.workload(
            name,
            input_bytes=TOKEN_BYTES * self.tokens,
            output_elements=self.tokens * self.vocabulary,
        )

    def _block(self, layers: Layers, block: str) -> None:
        keys = self.width // self.heads * self.key_heads
        self._linear(layers, f"{block}.self_attn.q_proj", self.width, self.width)
        self._linear(layers, f"{block}.self_attn.k_proj", self.width, keys)
        attention = attention_flops(self.tokens, self.width)
        self._linear(layers, f"{block}.self_attn.v_proj", self.width, keys, attention)
        layers.keep(self.tokens * self.width)  # attention's result
        self._linear(layers, f"{block}.self_attn.o_proj", self.width, self.width)
        self._linear(layers, f"{block}.mlp.gate_proj", self.width, self.inner)
        self._linear(layers, f"{block}.mlp.up_proj", self.width, self.inner)
        layers.keep(2 * self.tokens * self.inner)  # SiLU's result, and its product with the other
        self._linear(layers, f"{block}.mlp.down_proj", self.inner, self.width)
        self._norm(layers, f"{block}.input_layernorm", ahead=7)
        self._norm(layers, f"{block}.post_attention_layernorm", ahead=3)

    def _linear(
        self, layers: Layers, name: str, inputs: int, outputs: int, then_flops: float = 0.0
    ) -> None:
        layers.linear(
            name, inputs, outputs, positions=self.tokens, bias=False, then_flops=then_flops
        )

    def _norm(self, layers: Layers, name: str, *, ahead: int = 0, then_flops: float = 0.0) -> None:
        layers.norm(
            name,
            self.width,
            positions=self.tokens,
            bias=False,
            ahead=ahead,
            then_flops=then_flops,
        )
