"""The catalogue against published figures, and, where they are installed, against the libraries.

The digests in golden/catalogue.json stand for names, shapes, types and the order in which gradients
arrive, as compared with torchvision 0.28.0 and transformers 4.57.6 under torch 2.13.0.
"""

import hashlib
import importlib
import json
import warnings
from pathlib import Path

import pytest

from simcore.training.catalogue import catalogue_names, catalogue_workload
from tests.support import require

GOLDEN = Path(__file__).parent / "golden" / "catalogue.json"
NAMES = catalogue_names()

# Published: torchvision's table of weights (num_params), the others rounded as they are printed.
EXACT_PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "vgg16": 138_357_544,
    "vit-b-16": 86_567_656,
}
ROUNDED_PARAMETERS = {
    "bert-base": (110e6, 0.5e6),  # Devlin et al. (2018), section 3
    "gpt2": (124e6, 0.5e6),  # names of the released models in openai/gpt-2
    "gpt2-medium": (355e6, 0.5e6),
    "gpt2-large": (774e6, 0.5e6),
    "gpt2-xl": (1558e6, 0.5e6),
    "tinyllama-1.1b": (1.1e9, 0.05e9),  # Zhang et al. (2024), arXiv:2401.02385
    "llama-3.2-1b": (1.24e9, 0.005e9),  # Hugging Face's model page
    "llama-7b": (6.7e9, 0.05e9),  # Touvron et al. (2023), table 2
}

# Billions of multiply-adds per image: _ops in torchvision's table of weights, three decimals.
PUBLISHED_GIGA_MACS = {
    "resnet18": 1.814,
    "resnet50": 4.089,
    "resnet101": 7.801,
    "vgg16": 15.470,
    "vit-b-16": 17.564,
}


def digest(work):
    lines = [f"{p.name} {p.shape} {p.dtype}" for p in (*work.parameters, *work.buffers)]
    lines += [work.parameters[index].name for index in work.gradients]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_has_moved_since_it_was_compared_with_the_libraries(name):
    assert digest(catalogue_workload(name)) == json.loads(GOLDEN.read_text())[name]


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_as_many_as_published(name):
    figure, half = ROUNDED_PARAMETERS.get(name) or (EXACT_PARAMETERS[name], 0)
    assert abs(catalogue_workload(name).elements - figure) <= half


def test_without_its_heads_bert_is_the_base_model():
    parameters = catalogue_workload("bert-base").parameters
    body = [p.elements for p in parameters if p.name.startswith("bert.")]
    assert sum(body) == 109_482_240  # BertModel, as Hugging Face counts bert-base-uncased


@pytest.mark.parametrize("name", PUBLISHED_GIGA_MACS)
def test_multiply_adds_are_those_published(name):
    giga_macs = catalogue_workload(name).forward_flops / 2e9
    assert giga_macs == pytest.approx(PUBLISHED_GIGA_MACS[name], abs=0.00051)


@pytest.mark.parametrize(
    ("name", "tokens", "width", "blocks"),
    [("gpt2", 1024, 768, 12), ("gpt2-xl", 1024, 1600, 48), ("llama-7b", 2048, 4096, 32)],
)
def test_a_language_model_costs_two_flops_per_weight_and_token_and_attention(
    name, tokens, width, blocks
):
    """Kaplan et al. (2020), arXiv:2001.08361, with both products of attention over all pairs."""
    work = catalogue_workload(name)
    looked_up = sum(p.elements for p in work.parameters if "wpe" in p.name or "embed" in p.name)
    vectors = sum(p.elements for p in work.parameters if len(p.shape) == 1)
    expected = 2 * tokens * (work.elements - looked_up - vectors) + blocks * 4 * tokens**2 * width
    assert work.forward_flops == pytest.approx(expected, rel=1e-12)


def test_activations_agree_with_the_published_count():
    """34 bytes per token and width in 16 bits, for a block: Korthikanti et al. (2022),
    arXiv:2205.05198, equation 1 without attention's own and with dropout's masks (3 of them).
    """
    work = catalogue_workload("gpt2-xl")
    head_bytes = 4 * 1024 * (50257 + 1600) + 8 * 1024
    in_16_bits = (work.activation_bytes - head_bytes) / 48 / 2
    assert in_16_bits / (1024 * 1600) == pytest.approx(34 - 2, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_can_be_trained_and_says_its_bytes(name):
    work = catalogue_workload(name)
    assert work.name == name
    assert sorted(work.gradients) == list(range(len(work.parameters)))
    assert work.gradient_bytes == work.parameter_bytes == 4 * work.elements
    assert min(work.input_bytes, work.output_bytes) > 0
    assert work.activation_bytes > work.output_bytes
    assert (work.batch, work.forward_s, work.compute_source) == (1, (), "")


def test_the_ends_of_some_models_read_as_registered():
    resnet = catalogue_workload("resnet50")
    assert [(p.name, p.shape) for p in resnet.parameters[:4]] == [
        ("conv1.weight", (64, 3, 7, 7)),
        ("bn1.weight", (64,)),
        ("bn1.bias", (64,)),
        ("layer1.0.conv1.weight", (64, 64, 1, 1)),
    ]
    assert [(p.name, p.shape) for p in resnet.parameters[-2:]] == [
        ("fc.weight", (1000, 2048)),
        ("fc.bias", (1000,)),
    ]
    assert len(resnet.buffers) == 3 * 53
    assert [(b.name, b.shape, b.dtype) for b in resnet.buffers[:3]] == [
        ("bn1.running_mean", (64,), "float32"),
        ("bn1.running_var", (64,), "float32"),
        ("bn1.num_batches_tracked", (), "int64"),
    ]
    small = catalogue_workload("gpt2")
    assert not any("lm_head" in p.name for p in small.parameters)
    assert small.parameters[4].shape == (768, 2304)  # Conv1D: inputs first
    assert catalogue_workload("vgg16").buffers == ()


def arriving(name):
    work = catalogue_workload(name)
    return [work.parameters[index].name for index in work.gradients]


def test_gradients_arrive_in_the_order_in_which_layers_ran_backwards():
    assert arriving("gpt2")[:4] == [
        "transformer.ln_f.weight",
        "transformer.ln_f.bias",
        "transformer.h.11.mlp.c_proj.bias",
        "transformer.h.11.mlp.c_proj.weight",
    ]
    # The token table is used first and last, so that its gradient is complete at the very end.
    assert arriving("gpt2")[-2:] == ["transformer.wpe.weight", "transformer.wte.weight"]
    # Registered after the two halves of a block, run before them.
    llama = arriving("llama-7b")
    assert llama.index("model.layers.0.input_layernorm.weight") == len(llama) - 2
    assert arriving("bert-base")[:3] == [
        "cls.seq_relationship.bias",
        "cls.seq_relationship.weight",
        "cls.predictions.bias",
    ]


def test_the_time_of_a_tied_head_lies_before_the_first_gradient():
    work = catalogue_workload("gpt2").with_compute(1.0, 2.0)
    first, last = work.gradients[0], work.gradients[-1]
    head_share = 2 * 1024 * 768 * 50257 / work.forward_flops
    assert work.backward_s[first] == pytest.approx(2 * head_share)
    assert work.backward_s[last] == 0.0


def test_an_unknown_name_is_refused():
    with pytest.raises(
        ValueError, match=r"unknown model 'bert'; did you mean .*accepted: resnet18"
    ):
        catalogue_workload("bert")


# --- against the libraries themselves ----------------------------------------------------------


def library(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except (ImportError, RuntimeError) as error:  # the latter: built for another torch
            require("catalogue", f"{name} cannot be imported ({error}): pip install {name}")
            raise AssertionError from error


def modules():
    """How each library builds each model, by name."""

    def llama(width, inner, blocks, key_heads, vocabulary, *, tied=False):
        return lambda tf: tf.LlamaForCausalLM(
            tf.LlamaConfig(
                hidden_size=width,
                intermediate_size=inner,
                num_hidden_layers=blocks,
                num_attention_heads=32,
                num_key_value_heads=key_heads,
                vocab_size=vocabulary,
                tie_word_embeddings=tied,
            )
        )

    def gpt2(width, blocks, heads):
        return lambda tf: tf.GPT2LMHeadModel(
            tf.GPT2Config(n_embd=width, n_layer=blocks, n_head=heads)
        )

    vision = {name: name.replace("-", "_") for name in PUBLISHED_GIGA_MACS}
    return {
        name: ("torchvision", lambda tv, name=name: getattr(tv.models, vision[name])())
        for name in vision
    } | {
        name: ("transformers", build)
        for name, build in {
            # Eager attention: the other asks for a mask's numbers, which the meta device has not.
            "bert-base": lambda tf: tf.BertForPreTraining(
                tf.BertConfig(attn_implementation="eager")
            ),
            "gpt2": gpt2(768, 12, 12),
            "gpt2-medium": gpt2(1024, 24, 16),
            "gpt2-large": gpt2(1280, 36, 20),
            "gpt2-xl": gpt2(1600, 48, 25),
            "tinyllama-1.1b": llama(2048, 5632, 22, 4, 32000),
            "llama-3.2-1b": llama(2048, 8192, 16, 8, 128256, tied=True),
            "llama-7b": llama(4096, 11008, 32, 32, 32000),
        }.items()
    }


TOKENS = {"bert-base": 512, "tinyllama-1.1b": 2048, "llama-3.2-1b": 4096, "llama-7b": 2048}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_the_library_registers_and_runs_the_same(name):
    """Names, shapes, types, buffers, FLOPs of each parameter, and the order of gradients."""
    torch = pytest.importorskip("torch", reason="pip install torch")
    source, build = modules()[name]
    found = library(source)
    from torch._subclasses.fake_tensor import FakeTensorMode

    from real_gpu.describe import describe

    # transformers asks which device a tensor is on; torchvision's ViT sets its weights by numbers
    # that it reads back, which fake tensors have not.
    with FakeTensorMode() if source == "transformers" else torch.device("meta"):
        if source == "torchvision":
            inputs = [torch.zeros(1, 3, 224, 224)]
        else:
            ids = torch.zeros(1, TOKENS.get(name, 1024), dtype=torch.long)
            inputs = [ids, torch.ones_like(ids), ids] if name == "bert-base" else [ids]
        seen = describe(build(found), *inputs, name=name)
    work = catalogue_workload(name)
    for ours, theirs in zip(work.parameters, seen.parameters, strict=True):
        assert (ours.name, ours.shape, ours.dtype) == (theirs.name, theirs.shape, theirs.dtype)
        # 1e6: Llama's rotary angles are computed by a small product, which we leave out.
        assert ours.forward_flops == pytest.approx(theirs.forward_flops, rel=1e-12, abs=1e6)
    assert work.buffers == seen.buffers
    assert work.gradients == seen.gradients
    assert (work.input_bytes, work.output_bytes) == (seen.input_bytes, seen.output_bytes)
