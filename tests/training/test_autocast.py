"""A training step under torch.autocast with weights in fp32. Kind: golden, refusal."""

import pytest

from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.training.model_step import graph_of, training_step
from tfacct.training.recipe import Recipe


def test_weights_gradients_and_moments_are_in_fp32() -> None:
    """llama-3.1-8b has 8,030,261,248 parameters: 4 bytes each, gradients as many, two moments 8."""
    step = load("llama-3.1-8b").train(ctx=4096, weights_dtype="fp32")
    assert step.weights_bytes == step.gradients_bytes == 4 * 8_030_261_248
    assert step.optimizer_bytes == 8 * 8_030_261_248 + 4 * 291  # and a count for each of 291 tensors
    assert step.weights_dtype == "fp32"


def test_what_a_block_keeps_by_hand() -> None:
    """Llama's block, T = 10 tokens, D = 40, N·H = 64, K·H = 32, F = 72, sdpa.

    Two norms: 2·(4·D + 4·D + 4)·T = 6,480. Casts of weights: 2·(64 + 32 + 32 + 64)·40 + 2·3·72·40 = 32,640. What
    q, k, v, gate and up read, each a cast of its own: 5·2·D·T = 4,000. Attention: q, k, v, result 2·(64 + 32 + 32 +
    64)·T = 3,840, sums 4·4·T = 160, seeds 24. The network: gate, its activation, up, their product: 4·2·F·T = 5,760.
    """
    config = {
        "model_type": "llama",
        "vocab_size": 97,
        "hidden_size": 40,
        "intermediate_size": 72,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    one, two = (load({**config, "num_hidden_layers": count}) for count in (1, 2))
    kept = [model.train(ctx=5, batch=2, weights_dtype="fp32").saved_bytes for model in (one, two)]
    assert kept[1] - kept[0] == 6_480 + 32_640 + 4_000 + 3_840 + 160 + 24 + 5_760


def test_layers_that_share_weights_share_their_casts() -> None:
    """ALBERT's twelve layers: 16-bit copies of one layer's weights, 4·768² + 2·768·3,072 numbers, are saved once."""
    model, work, recipe = (
        load("albert-base-v2").loaded,
        Workload(64, 64),
        Recipe(weights_dtype="fp32", attention="sdpa"),
    )
    graph = graph_of(model, work, recipe)
    step = training_step(model, work, recipe, graph)
    casts = [each for each in graph.before.graph.saved if ".attn." in each.path or ".mlp." in each.path]
    assert step.bytes_in(graph.before).of(casts) == 2 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert not any("cast" in each.path for each in graph.layers[0].graph.saved)


@pytest.mark.parametrize(
    ("model", "asked", "says"),
    [
        ("mamba-130m", {}, "the formula for mamba is off by up to"),
        ("modernbert-base", {"lora": "16"}, "the training step of modernbert has not been measured with LoRA"),
        ("modernbert-base", {"recompute": "attention"}, "has not been measured with recomputed attention"),
    ],
)
def test_what_was_not_measured_is_refused(model: str, asked: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as raised:
        load(model).train(ctx=128, weights_dtype="fp32", **asked)
    assert "exact=True runs the transformers class itself" in raised.value.hint


def test_weights_that_are_no_dtype_are_refused() -> None:
    with pytest.raises(UsageError, match="bf16, fp32 or nf4"):
        Recipe(weights_dtype="fp8").checked()


def test_fp32_over_a_pass_in_fp32_is_no_autocast() -> None:
    gpt2 = load("gpt2")
    assert (
        gpt2.train(ctx=64, dtype="fp32", weights_dtype="fp32").peak_bytes == gpt2.train(ctx=64, dtype="fp32").peak_bytes
    )
