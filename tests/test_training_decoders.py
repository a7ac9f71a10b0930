"""Training steps of decoders whose attention is their own, by hand."""

from collections.abc import Callable

import pytest

from tests.conftest import Ran
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.reports.training import step_of
from tfacct.training.recipe import Recipe


def test_slices_of_one_product_stay_for_the_norms_of_queries_and_keys() -> None:
    """Persimmon's block keeps, in bf16, its two norms' inputs and results (8 bytes a number of the stream), queries,
    keys and values as they were made, and queries, keys and a result of attention head by head and in rows (14 bytes a
    number of the heads); a mean and a deviation of each head of queries and keys, the fused kernel's sums, two means
    and deviations of the stream, and of the network ReLU's result and its
    square."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 70, "num_hidden_layers": 3}
    model = load("persimmon-8b", **sizes).loaded
    step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe())
    tokens = 2 * 23
    stream, heads, network = 8 * 48, 2 * 48 * (3 + 2 + 2), 2 * 70 * 2
    statistics = 2 * 2 * 4 * 3 + 4 * 3 + 2 * 2 * 4
    assert step.kept_in(step.run.blocks[0]) == tokens * (stream + heads + network + statistics) + 24


def test_a_mask_that_replaces_scores_is_kept_once_for_all_blocks() -> None:
    """MPT's block keeps two norms' inputs and results, a mean and a deviation of each, queries, keys, values and their
    sum, a softmax in fp32 and its copy in bf16, and both sides of its GELU. The mask is a byte for each pair."""
    model = load("mpt-7b", d_model=48, n_heads=3, n_layers=3).loaded
    step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe(attention="eager"))
    tokens, pairs = 2 * 23, 2 * 3 * 23 * 23
    assert step.kept_in(step.run.blocks[0]) == tokens * (8 * 48 + 16 + 8 * 48 + 4 * 4 * 48) + 6 * pairs
    mask = [line for line in step.run.front.run.kept if line.path == "mask"]
    assert [line.bytes({**step.run.front.axes, **step.at}, step.pass_) for line in mask] == [2 * 23 * 23]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--attention", "sdpa"), "the training step of mpt has not been measured with sdpa"),
        (("--set", 'attn_config={"attn_pdrop": 0.1}'), "attn_config.attn_pdrop changes what its training step keeps"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_the_class_of_mpt_does_not_run_is_refused(
    run: Callable[..., Ran], more: tuple[str, ...], why: str
) -> None:
    ran = run("train", "mpt-7b", *(() if "sdpa" in more else ("--attention", "eager")), *more)
    assert ran.code != 0 and why in " ".join(ran.err.split())


def test_sines_of_a_block_are_its_own() -> None:
    """GPT-J's block keeps its input, a norm's result and what attention sums, a mean and a deviation, queries and keys
    in fp32, values, a softmax in fp32 and its copy, five tensors of the network's width, and sines and cosines twice,
    once to turn queries by and once for keys. The model has a table of sines in fp32 for each block."""
    sizes = {"n_embd": 48, "n_head": 3, "n_layer": 3, "n_inner": 70, "rotary_dim": 8, "n_positions": 64}
    model = load("gpt-j-6b", **sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).loaded
    step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe(attention="eager"))
    tokens, pairs = 2 * 23, 2 * 3 * 23 * 23
    own = 2 * 3 * 48 + 8 + 2 * 4 * 48 + 2 * 48 + 5 * 2 * 70
    assert step.kept_in(step.run.blocks[0]) == tokens * own + 6 * pairs + 4 * 23 * 8 * 2
    assert step.weights - 2 * model.parameters == 3 * 64 * 8 * 4


def test_sines_in_fp32_turn_queries_and_keys_to_fp32(run: Callable[..., Ran]) -> None:
    """CodeGen's block keeps what GPT-J's does, but sines and cosines of 4 bytes. Four heads are refused by name."""
    sizes = {"n_embd": 96, "n_head": 12, "n_layer": 3, "n_inner": 70, "rotary_dim": 8, "n_positions": 64}
    model = load("codegen-350m", **sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).loaded
    step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe(attention="eager"))
    tokens, pairs = 2 * 23, 2 * 12 * 23 * 23
    own = 2 * 3 * 96 + 8 + 2 * 4 * 96 + 2 * 96 + 5 * 2 * 70
    assert step.kept_in(step.run.blocks[0]) == tokens * own + 6 * pairs + 4 * 23 * 8 * 4
    said = run("train", "codegen-350m", "--attention", "eager", "--set", "n_head=4").err
    assert "no rule for heads that are views of the product that made them" in " ".join(said.split())


def test_a_mixer_picks_two_experts_one_after_the_other(run: Callable[..., Ran]) -> None:
    """For each of two Phi-3.5-MoE keeps a mask of its experts, their shares, the one that is chosen and its share: a
    byte and two for each expert, eight and two for a token. Noise on what they read is refused by name."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    fields = {"intermediate_size": 72, "num_local_experts": 5, "input_jitter_noise": 0.0}
    step = step_of(load("phi-3.5-moe", **sizes, **fields).loaded, Workload(context=23, tokens=23, batch=2), Recipe())
    block = step.run.blocks[0]
    own = [line for line in block.run.kept if line.by == ("blocks.*.mlp.router.softmax",)]
    assert step.bytes(block, own) == 2 * 2 * 23 * (5 * (1 + 2) + 8 + 2)
    said = " ".join(run("train", "phi-3.5-moe").err.split())
    assert "input_jitter_noise changes what its training step keeps" in said
