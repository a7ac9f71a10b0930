"""The reference is a real model: with the same weights it gives the logits of the classes that others wrote."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import LLAMA3, TINY
from tfacct.families import config_class
from tfacct.subject import Subject, subject

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tfacct.reference import model  # noqa: E402

# The class wants hidden divisible by heads even where head_dim is given.
CONFIGS = {
    "gpt2": TINY["gpt2"],
    "gpt2 gelu": {**TINY["gpt2"], "activation_function": "gelu", "layer_norm_epsilon": 1e-3},
    "llama": TINY["llama"],
    "llama plain": {**TINY["llama"], "attention_bias": False, "mlp_bias": False, "rope_theta": 500.0},
    "llama stretched": {**TINY["llama"], "rope_theta": 1000.0, "rope_scaling": LLAMA3, "rms_norm_eps": 1e-3},
    "llama slowed": {**TINY["llama"], "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama as transformers 5 spells it": {
        **TINY["llama"],
        "rope_parameters": {**LLAMA3, "rope_theta": 700.0},
    },
    "llama relu": {**TINY["llama"], "hidden_act": "relu"},
    "qwen2": TINY["qwen2"],
    "qwen3": TINY["qwen3"],
    "gemma": TINY["gemma"],
    "mistral": TINY["mistral"],
    "qwen2 untied": {**TINY["qwen2"], "tie_word_embeddings": False, "rope_theta": 1e6},
}
BATCH, TOKENS = 3, 29


def theirs(config: dict):
    """The transformers model with random weights in float64."""
    fields = {name: value for name, value in config.items() if name != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **fields)
    torch.manual_seed(0)
    built = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").double().eval()
    with torch.no_grad():
        for parameter in built.parameters():  # larger than its own initialisation, so that biases and norms matter
            parameter.normal_(std=0.3)
    return built


def ours(about: Subject, stranger, *, fused: bool = False) -> model.Decoder:
    """The reference model with the stranger's weights, copied through the family's path table."""
    table = config_class(about.family).hf_paths
    built = model.build(about.architecture, device="cpu", dtype=torch.float64, fused=fused)
    taken: dict[str, int] = {}
    with torch.no_grad():
        for path, parameter in built.named_parameters():
            words = path.split(".")
            tensor = words.pop()
            number = words[1] if words[0] == "blocks" else ""
            words[1:2] = ["*"] if number else words[1:2]
            module = stranger.get_submodule(table[".".join(words)].replace("*", number))
            source = getattr(module, tensor)
            if type(module).__name__ == "Conv1D" and tensor == "weight":
                source = source.T  # GPT-2's class keeps its matrices the other way round
            key = f"{table['.'.join(words)]}.{number}.{tensor}"
            start = taken.get(key, 0)  # q, k and v are slices of one tensor there
            taken[key] = start + parameter.shape[0]
            parameter.copy_(source[start : start + parameter.shape[0]])
    return built


class Float64:
    """torch, but float32 is float64: takes the class's own casts out."""

    float = float32 = torch.float64

    def __getattr__(self, name: str):
        return getattr(torch, name)


@pytest.fixture(params=CONFIGS)
def pair(request: pytest.FixtureRequest):
    about = subject("tiny", CONFIGS[request.param])
    stranger = theirs(CONFIGS[request.param])
    tokens = torch.randint(0, about.architecture.embed.vocab, (BATCH, TOKENS))
    return about, stranger, tokens


def gap(mine, other) -> float:
    """The largest difference, relative to the largest logit."""
    return float((mine - other).abs().max() / other.abs().max())


def test_logits_are_the_classs(pair) -> None:
    about, stranger, tokens = pair
    with torch.no_grad():
        assert gap(ours(about, stranger)(tokens)[0], stranger(tokens).logits) <= 1e-6


def test_without_the_classs_casts_they_are_equal_to_rounding(pair, monkeypatch: pytest.MonkeyPatch) -> None:
    about, stranger, tokens = pair
    module = sys.modules[type(stranger).__module__]
    monkeypatch.setattr(module, "torch", Float64())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    rotary = about.architecture.attention.rotary
    if rotary is not None:
        from tfacct.reference.rotary import frequencies

        exact = frequencies(rotary, about.architecture.attention.head_dim)
        buffer = stranger.model.rotary_emb.inv_freq
        assert gap(exact, buffer) < 1e-6  # the class computes the same angles, in float32
        stranger.model.rotary_emb.inv_freq = exact
    if about.architecture.embed.scaled:  # the class keeps √hidden in float32
        stranger.model.embed_tokens.embed_scale = torch.tensor(
            about.architecture.embed.hidden**0.5, dtype=torch.float64
        )
    with torch.no_grad():
        assert gap(ours(about, stranger)(tokens)[0], stranger(tokens).logits) <= 1e-9


def test_decode_and_chunks_with_a_cache_give_the_logits_of_the_whole(pair) -> None:
    about, stranger, tokens = pair
    mine = ours(about, stranger)
    with torch.no_grad():
        whole, *_ = mine(tokens)
        past: tuple = ()
        parts = []
        for start, end in [(0, 11), (11, 20), *((i, i + 1) for i in range(20, TOKENS))]:
            logits, *past = mine(tokens[:, start:end], tuple(past))
            parts.append(logits)
    assert gap(torch.cat(parts, dim=1), whole) <= 1e-12


def test_fused_attention_gives_the_same_logits(pair) -> None:
    about, stranger, tokens = pair
    mine, fused = ours(about, stranger), ours(about, stranger, fused=True)
    with torch.no_grad():
        whole, *_ = mine(tokens)
        assert gap(fused(tokens)[0], whole) <= 1e-12
        first, *past = fused(tokens[:, :9])
        second, *past = fused(tokens[:, 9:28], tuple(past))
        last, *_ = fused(tokens[:, 28:], tuple(past))
    assert gap(torch.cat((first, second, last), dim=1), whole) <= 1e-12


def test_recomputation_gives_the_same_gradients(pair) -> None:
    about, stranger, tokens = pair
    gradients = []
    for recompute in (False, True):
        mine = ours(about, stranger)
        mine.recompute = recompute
        mine(tokens)[0].sum().backward()
        gradients.append([parameter.grad for parameter in mine.parameters()])
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(*gradients, strict=True))


def test_a_wrong_weight_is_seen(pair) -> None:
    """The comparison is not blind: one number changed moves the logits far more than its bound."""
    about, stranger, tokens = pair
    mine = ours(about, stranger)
    with torch.no_grad():
        mine.blocks[0].attn.k_proj.weight[0, 0] += 0.5
        assert gap(mine(tokens)[0], stranger(tokens).logits) > 1e-5
