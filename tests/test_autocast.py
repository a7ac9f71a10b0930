"""A training step under torch.autocast, its weights in fp32: against the transformers classes, on meta as on a card."""

import random
from dataclasses import replace

import pytest

from tests.training_configs import drawn
from tfacct import load
from tfacct.accounts.timeline import peak, timeline
from tfacct.base.errors import UsageError
from tfacct.loading.model import subject
from tfacct.profiles.chunked import CHUNKS
from tfacct.reports.training import refusal, step_of
from tfacct.training.recipe import Recipe
from tfacct.witness.step import by_modules, grouped, known_modules

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
FURTHER = ("gemma", "cwm", "granite", "seed_oss", "iquestcoder", "internlm3", "smollm3")
SINCE = ("gpt2", "hyperclovax", "olmo", "opt", "starcoder2")
NORMED = ("ernie4_5", "gemma2", "gemma3_text", "helium", "hunyuan_v1_dense", "ministral3")
"""Families with norms of results, of queries and keys, or with turns of their own."""
IN_CHUNKS = (
    *(
        "bloom",
        "cwm",
        "ernie4_5",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_neo",
        "gpt_neox",
        "granite",
        "helium",
    ),
    *("hyperclovax", "ministral3", "olmo", "olmo2", "olmo3", "opt", "phi", "phi3", "seed_oss", "smollm3", "starcoder2"),
)
"""Further families whose loss was measured in chunks; Phi's head has a bias."""


def check(family: str, seed: int, *, chunked: bool = False) -> None:
    """Bytes by the modules that asked for them, and the most bytes alive at any operator."""
    pytest.importorskip("transformers")
    import torch

    from tfacct.reference import keeping
    from tfacct.reference.chunked import loss_in_chunks

    config, recipe, work = drawn(family, seed)
    pick = random.Random(seed)
    loop = {"gradient_accumulation": 1 + (pick.random() < 0.2), "keep_logits": pick.random() < 0.2}
    recipe = replace(recipe, dtype="bf16", weights_dtype="fp32", **loop)
    if chunked:
        config["vocab_size"] = pick.choice([50, 300, 2000, 5000])
        recipe = replace(recipe, loss="chunked", keep_logits=False)
    model = subject(family, config, {}, None)
    if refusal(model, recipe) is not None:  # seed_oss with numbers of the stream dropped
        return
    step = step_of(model, work, recipe)
    run = keeping.trainable(model.of_class, recipe.attention, "bf16", checkpoint=recipe.recompute, weights="fp32")
    run = loss_in_chunks(run, CHUNKS, torch.bfloat16) if chunked else run
    saved = keeping.kept(run, work.batch, work.tokens)
    assert step.kept() == sum(each.bytes for each in saved), (config, recipe, work)
    if recipe.recompute == "none" and not chunked:
        known = known_modules(model)
        assert by_modules(model, step, known) == grouped(saved, known), (config, recipe, work)
    held = {"accumulate": recipe.accumulates, "holds_logits": recipe.keep_logits}
    most = keeping.peak(run, work.batch, work.tokens, **held)
    found = peak(instant for instant in timeline(step) if instant.name != "optimizer step")
    assert found.total == most.bytes, (config, recipe, work, found, most)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_step_under_autocast_is_the_classes_own(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.parametrize("family", FURTHER)
@pytest.mark.parametrize("seed", range(2))
def test_a_step_of_a_further_family_is_its_classes_own(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.parametrize("family", SINCE)
@pytest.mark.parametrize("seed", range(2))
def test_a_step_without_gates_or_with_dropouts_is_its_classes_own(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.parametrize("family", NORMED)
@pytest.mark.parametrize("seed", range(2))
def test_a_step_with_further_norms_or_turns_is_its_classes_own(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("gemma3_text", 122),  # a block that runs again stops in front of the last norm's product
        ("gemma3_text", 200),  # what values are weighted by stays beside the last norm
        ("helium", 112),  # the gradient of a norm's weight, summed
        ("hunyuan_v1_dense", 217),  # the gradient of values waits in 16 bits
        ("ernie4_5", 274),  # angles that are repeated in each block
        ("starcoder2", 160),  # keys and values copied for a mask
        ("starcoder2", 203),  # numbers dropped while attention's tensors are there
        ("opt", 135),  # softmax in fp32 beside what it is cast to
        ("opt", 17),  # a network whose products are its block's own
        ("gpt2", 146),  # its mask waits, and is kept too
        ("gpt2", 299),  # softmax is gone where it is cast
        ("gpt2", 31),  # gradients of biases made first, added to earlier ones
        ("olmo", 41),  # queries and keys cast back behind their turn
        ("qwen3", 262),  # the halves' gradients are added once the angles are read
        ("internlm3", 203),  # a cast of queries stays while they are multiplied
        ("opt", 246),  # the norm's result is gone where its block makes an activation
        ("hyperclovax", 104),  # norms of results, then multiples of them
        ("smollm3", 108),  # blocks without angles, eager
    ],
)
def test_instants_inside_a_forward_pass_decide(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("llama", 1),  # the loss of a chunk, forward, beside casts of all weights
        ("llama", 35),  # the targets wait while a chunk's logits run backwards
        ("llama", 115),  # one head: what values are summed to lies token by token already
        *(("qwen2", 0), ("qwen3", 1), ("mistral", 2)),
    ],
)
def test_a_loss_in_chunks_is_the_classes_own(family: str, seed: int) -> None:
    check(family, seed, chunked=True)


@pytest.mark.parametrize("family", IN_CHUNKS)
def test_a_loss_in_chunks_of_a_further_family_is_its_classes_own(family: str) -> None:
    check(family, 100, chunked=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES + IN_CHUNKS)
def test_many_losses_in_chunks_are_the_classes_own(family: str) -> None:
    for seed in range(100, 200):
        check(family, seed, chunked=True)


def test_one_key_head_across_a_window_without_angles_is_no_copy() -> None:
    check("smollm3", 235)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES + FURTHER + SINCE + NORMED)
def test_many_steps_under_autocast_are_the_classes_own(family: str) -> None:
    for seed in range(100, 300):
        check(family, seed)


def test_blocks_without_angles_cast_queries_and_keys_once() -> None:
    """SmolLM3-3B, whose every fourth block does not turn them, measured on its class: kept, and most before the
    optimizer."""
    step = load("smollm3-3b").train(ctx=2048, weights_dtype="fp32", optimizer="none")
    assert (step.kept_bytes, step.peak_bytes) == (18_423_587_692, 32_825_312_616)


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
    kept = [model.train(ctx=5, batch=2, weights_dtype="fp32").kept_bytes for model in (one, two)]
    assert kept[1] - kept[0] == 6_480 + 32_640 + 4_000 + 3_840 + 160 + 24 + 5_760


@pytest.mark.parametrize(
    ("model", "asked", "says"),
    [
        ("mpt-7b", {"attention": "eager"}, "mpt has not been measured under autocast"),
        ("modernbert-base", {"lora": "16"}, "autocast has not been measured with adapters on modernbert"),
        ("falcon-7b", {"lora": "16", "loss": "chunked", "attention": "eager"}, "adapters on falcon have not been"),
        ("modernbert-base", {"recompute": "attention"}, "measured with attention that runs again on modernbert"),
    ],
)
def test_what_was_not_measured_is_refused(model: str, asked: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as raised:
        load(model).train(ctx=128, weights_dtype="fp32", **asked)
    assert "is counted" in raised.value.hint


def test_weights_that_are_no_dtype_are_refused() -> None:
    with pytest.raises(UsageError, match="fp32, bf16, nf4"):
        Recipe(weights_dtype="fp8").checked()


def test_fp32_over_a_pass_in_fp32_is_no_autocast() -> None:
    gpt2 = load("gpt2")
    assert (
        gpt2.train(ctx=64, dtype="fp32", weights_dtype="fp32").peak_bytes == gpt2.train(ctx=64, dtype="fp32").peak_bytes
    )
