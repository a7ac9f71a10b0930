"""Weights, gradients, master weights and optimizer state by precision scheme and layout. Kind: golden, refusal."""

from typing import Any

import pytest

from tfacct import load
from tfacct.base.errors import NotFoundError, UsageError
from tfacct.training.optimizers import optimizer
from tfacct.training.recipe import Recipe
from tfacct.training.states import bytes_per_parameter

LLAMA = 6_738_415_616
"""Parameters of llama-2-7b, in 291 tensors."""
MASTER = {"master_weights": "fp32"}
MEGATRON = {"master_weights": "fp32", "gradient_dtype": "fp32"}


@pytest.mark.parametrize(
    ("recipe", "weights", "gradients", "state"),
    [
        ({}, 2, 2, 4),
        ({"dtype": "fp32"}, 4, 4, 8),
        ({"weights_dtype": "fp32"}, 4, 4, 8),
        (MASTER, 2, 2, 12),
        (MEGATRON, 2, 4, 12),
        ({**MASTER, "optimizer": "sgd-momentum"}, 2, 2, 8),
        ({**MEGATRON, "optimizer": "none"}, 2, 4, 4),
    ],
)
def test_bytes_a_parameter(recipe: dict[str, Any], weights: int, gradients: int, state: int) -> None:
    """DeepSpeed stores 2 + 2 + 4 + 8 bytes a parameter with AdamW, Megatron 2 + 4 + 4 + 8 (ZeRO, arXiv 1910.02054, and
    the theoretical report of Megatron-LM). torch counts steps in 4 bytes a tensor."""
    step = load("llama-2-7b").train(ctx=96, **recipe)
    counters = 0 if recipe.get("optimizer") else 4 * 291
    assert step.weights_bytes == weights * LLAMA
    assert step.gradients_bytes == gradients * LLAMA
    assert step.optimizer_bytes == state * LLAMA + counters
    assert step.master_weights_bytes == (4 * LLAMA if "master_weights" in recipe else 0)
    assert bytes_per_parameter(Recipe(**recipe).checked()) == weights + gradients + state


@pytest.mark.parametrize(
    ("recipe", "layout", "whole", "divided"),
    [
        (MASTER, {"fsdp": 8}, 0, 16),
        ({}, {"fsdp": 1}, 0, 8),
        ({}, {"fsdp": 2}, 0, 8),
        ({}, {"fsdp": 4, "dp": 2}, 0, 8),
        (MASTER, {"dp": 8, "zero": 3}, 0, 16),
        (MASTER, {"dp": 8, "zero": 2}, 2, 14),
        (MASTER, {"dp": 8, "zero": 1}, 4, 12),
        (MASTER, {"dp": 8}, 16, 0),
        (MEGATRON, {"dp": 8, "zero": 1}, 6, 12),
        (MEGATRON, {"fsdp": 4}, 0, 18),
        (MEGATRON, {"dp": 8}, 18, 0),
    ],
)
def test_layouts_divide_states(recipe: dict[str, Any], layout: dict[str, int], whole: int, divided: int) -> None:
    """All widths of llama-2-7b are divisible by 8: the shares have no padding."""
    step, ranks = load("llama-2-7b").train(ctx=96, batch=8, **recipe, **layout), layout.get("fsdp") or layout["dp"]
    states = step.weights_bytes + step.gradients_bytes + step.optimizer_bytes
    assert 0 <= states - (whole * LLAMA + divided * LLAMA // ranks) <= 4 * 291


def test_gradients_in_fp32_are_there_in_every_phase() -> None:
    """Megatron's buffer of main gradients: 4 bytes a parameter before the first gradient is made."""
    step = load("llama-2-7b").train(ctx=96, **MEGATRON)
    accumulated = load("llama-2-7b").train(ctx=96, **MASTER, gradient_accumulation=2)
    assert all(phase["gradients_bytes"] >= 4 * LLAMA for phase in step.phases)
    assert step.phases[0]["gradients_bytes"] - accumulated.phases[0]["gradients_bytes"] == 2 * LLAMA


def test_the_update_casts_16_bit_gradients() -> None:
    """DeepSpeed: `flatten(averaged_gradients).to(float32)`, 4 bytes a parameter, next to the 16-bit ones."""
    by_name = [
        {one["phase"]: one for one in load("llama-2-7b").train(ctx=96, **how).phases} for how in (MASTER, MEGATRON)
    ]
    assert [each["optimizer step"]["temporary_bytes"] for each in by_name] == [4 * LLAMA, 0]


def test_the_end_of_a_name_finds_all_optimizers_with_it() -> None:
    with pytest.raises(NotFoundError) as refused:
        optimizer("8bit")
    assert refused.value.hint == "known: adamw-8bit, paged-adamw-8bit, lion-8bit, paged-lion-8bit, ademamix-8bit"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"master_weights": "bf16"}, "master_weights is fp32, not 'bf16'"),
        ({"offload": "weights"}, "offload must be optimizer or activations, not 'weights'"),
        ({"weights_dtype": "fp8"}, "bf16, fp32 or nf4"),
        ({**MASTER, "weights_dtype": "fp32"}, "needs 16-bit trained weights, but these are in fp32"),
        ({**MASTER, "lora": "8"}, "needs 16-bit trained weights, but these are in fp32"),
        ({**MASTER, "gradient_dtype": "fp16"}, "gradient_dtype is bf16 or fp32, not 'fp16'"),
    ],
)
def test_contradictions_are_refused(recipe: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load("llama-2-7b").train(ctx=96, **recipe)


@pytest.mark.parametrize(
    "recipe",
    [MEGATRON, MASTER | {"offload": "optimizer"}, {"recompute": "full", "offload": "optimizer,activations"}],
)
def test_plan_counts_what_train_counts(recipe: dict[str, Any]) -> None:
    """Each layout of a plan has the peak that train has for it."""
    model = load("llama-2-7b")
    found = model.plan(on="8x80GB", reserve=0, train=True, ctx="2k", batch=16, limit=0, **recipe)
    kinds = {"fsdp": 8, "tp": 8, "zero": 1}
    shown = [next((one for one in found.layouts if one[axis] == size), None) for axis, size in kinds.items()]
    assert any(shown)
    for one in filter(None, shown):
        mesh = {axis: one[axis] for axis in ("tp", "sp", "fsdp", "dp", "zero", "pp", "cp")}
        how = {"recompute": one["recompute"], **recipe, "gradient_accumulation": one["times"]}
        step = model.train(ctx="2k", batch=one["batch"], **mesh, **how)
        assert step.peak_bytes == one["bytes"], one
        assert "True" not in one["command"] and "--ctx 2k" in one["command"]


INPUT = 2 * 3 * 1024 * 4096
"""Bytes of a layer's input: 3 sequences of 1,024 tokens."""


def offloaded(**recipe: Any) -> Any:
    return load("llama-2-7b").train(ctx=1024, batch=3, recompute="full", **recipe)


def test_an_offloaded_optimizer_leaves_the_device() -> None:
    """State and master weights are on the host, which gets 2 bytes of gradient a parameter and sends 2 of weight."""
    plain, moved = offloaded(**MASTER), offloaded(**MASTER, offload="optimizer")
    assert moved.host_bytes == plain.optimizer_bytes == moved.optimizer_bytes == 12 * LLAMA + 4 * 291
    assert moved.moved_bytes == (2 + 2) * LLAMA
    for here, there in zip(moved.phases, plain.phases, strict=True):
        assert here["optimizer_bytes"] == 0
        casts = 4 * LLAMA if here["phase"] == "optimizer step" else 0  # made on the host
        assert there["total_bytes"] - here["total_bytes"] == plain.optimizer_bytes + casts
    assert offloaded(**MEGATRON, offload="optimizer").moved_bytes == (4 + 2) * LLAMA
    assert plain.host_bytes == plain.moved_bytes == 0 and plain.offload is None


def test_two_layer_inputs_stay_on_the_device() -> None:
    """llama-2-7b has 32 layers: 30 inputs are on the host after the forward pass, none when layer 1 runs backwards."""
    plain, moved = offloaded(), offloaded(offload="activations")
    saved = [{each["phase"]: each["saved_bytes"] for each in step.phases} for step in (plain, moved)]
    less = {name: saved[0][name] - saved[1][name] for name in saved[0]}
    assert less["end of forward"] == less["loss, backward"] == less["layer 31, backward"] == 30 * INPUT
    assert less["layer 1, backward"] == less["layer 0, backward"] == less["optimizer step"] == 0
    assert (moved.host_bytes, moved.moved_bytes) == (30 * INPUT, 2 * 30 * INPUT)
    assert offloaded(offload="activations", gradient_accumulation=5).moved_bytes == 5 * 2 * 30 * INPUT


def test_an_encoder_offloads_its_inputs_too() -> None:
    """bart-base: 6 inputs of 700 source tokens, and all but two of the decoder's 6 of 300 tokens; 768 numbers each."""
    moved = load("bart-base").train(ctx=300, source=700, recompute="full", offload="activations")
    assert moved.host_bytes == 2 * 768 * (6 * 700 + 4 * 300)
    plain = load("bart-base").train(ctx=300, source=700, recompute="full")
    assert plain.phases[0]["saved_bytes"] - moved.phases[0]["saved_bytes"] == moved.host_bytes


def test_ranks_offload_their_share() -> None:
    for layout in ({"fsdp": 8}, {"dp": 8, "zero": 1}, {"dp": 8, "zero": 2}):
        moved = offloaded(offload="optimizer", **layout)
        assert moved.host_bytes == moved.optimizer_bytes == pytest.approx(4 * LLAMA / 8, rel=1e-6)
        assert moved.moved_bytes == (2 + 2) * LLAMA // 8


def test_fp32_over_a_pass_in_fp32_is_no_autocast() -> None:
    both = [load("gpt2").train(ctx=64, dtype="fp32", **more).peak_bytes for more in ({}, {"weights_dtype": "fp32"})]
    assert both[0] == both[1]
