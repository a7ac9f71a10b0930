"""Steps under autocast of models with experts, whose grouped products autocast leaves in fp32."""

import pytest

from tests.test_autocast import check as check_loss
from tests.test_autocast_written import check
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.reports.training import step_of
from tfacct.training.recipe import Recipe

pytest.importorskip("transformers")
LATENT = ("deepseek_v3", "kimi_k2", "youtu")
FAMILIES = (*LATENT, "dots1", "exaone_moe", "gpt_oss", "mellum", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe")
"""Youtu has latent attention and no experts."""
MASKED = ("qwen2_moe", 137)
"""Its class makes a mask of windows that no block has, 2,312 bytes, not counted."""


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("mixtral", 103),  # one expert a token: its result is summed of one
        ("mixtral", 104),  # both banks' gradients, of one tensor, are done together
        ("qwen2_moe", 101),  # a shared network in 16 bits beside experts in fp32
        ("qwen3_moe", 102),  # shares in 16 bits weight results in fp32
        ("gpt_oss", 101),  # sinks, and halves of heads that turn each by itself
        ("gpt_oss", 106),
        ("deepseek_v3", 100),  # latents, and experts scored by a sigmoid in 16 bits
        ("deepseek_v3", 103),
        ("youtu", 101),
        ("dots1", 102),
        ("olmoe", 103),
        ("exaone_moe", 102),
        ("mellum", 103),
    ],
)
def test_a_step_of_experts_under_autocast_is_its_classes_own(family: str, seed: int) -> None:
    assert check(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_steps_of_experts_under_autocast(family: str) -> None:
    assert all(check(family, seed) for seed in range(100, 300) if (family, seed) != MASKED)


@pytest.mark.parametrize(("family", "seed"), [("gpt_oss", 102), ("qwen2_moe", 103), ("deepseek_v3", 104)])
def test_attention_runs_again_beside_experts(family: str, seed: int) -> None:
    assert check(family, seed, selective=True)


@pytest.mark.parametrize(("family", "seed"), [("gpt_oss", 100), ("mixtral", 101), ("deepseek_v3", 102)])
def test_a_loss_in_chunks_behind_experts(family: str, seed: int) -> None:
    check_loss(family, seed, chunked=True)


@pytest.mark.parametrize(
    ("family", "seed"), [("deepseek_v3", 100), ("gpt_oss", 101), ("mixtral", 102), ("qwen2_moe", 107)]
)
def test_adapters_beside_frozen_experts_are_pefts_own(family: str, seed: int) -> None:
    pytest.importorskip("peft")
    assert check(family, seed, lora=True)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("deepseek_v3", 297),  # copies of the gradient of what keys are written from
        ("gpt_oss", 111),  # zeros that the gradient of an expert's bias is scattered among
    ],
)
def test_what_gradients_hold_at_their_fullest(family: str, seed: int) -> None:
    assert check(family, seed)


@pytest.mark.parametrize(("family", "seed", "values"), [("youtu", 145, 8), ("deepseek_v3", 214, 16)])
def test_heads_of_which_little_turns_write_most_of_their_keys_gradient(family: str, seed: int, values: int) -> None:
    """Copies of it beside that of what all heads share, which is summed behind them."""
    assert check(family, seed, qk_nope_head_dim=128, qk_rope_head_dim=8, v_head_dim=values)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_steps_with_adapters_beside_experts(family: str) -> None:
    pytest.importorskip("peft")
    done = [check(family, seed, lora=True) for seed in range(100, 200)]
    assert sum(done) >= 90


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_steps_of_experts_with_attention_again_or_a_loss_in_chunks(family: str) -> None:
    for seed in range(100, 200):
        if (family, seed) != MASKED:
            assert check(family, seed, selective=True)
            check_loss(family, seed, chunked=True)


@pytest.mark.parametrize(
    ("name", "batch", "context", "more", "kept", "most"),
    [
        ("mixtral-8x7b", 1, 2048, {}, 45_457_647_372, 373_897_470_528),
        ("qwen3-30b-a3b", 2, 1500, {"recompute": "full"}, 3_686_709_860, 244_281_581_512),
        ("gpt-oss-20b", 1, 2048, {"attention": "eager"}, 68_237_388_812, 168_353_420_552),
        ("deepseek-v3", 1, 2048, {}, 172_034_575_324, 5_368_270_031_112),
    ],
)
def test_published_sizes_meet_what_was_measured(
    name: str, batch: int, context: int, more: dict[str, str], kept: int, most: int
) -> None:
    """Read off the classes on meta: bytes kept, and the most alive without an optimizer."""
    step = load(name).train(ctx=context, batch=batch, weights_dtype="fp32", optimizer="none", **more)
    assert (step.kept_bytes, step.peak_bytes) == (kept, most)


def test_experts_keep_numbers_of_four_bytes() -> None:
    """Mixtral 8x7B, 64 tokens: two experts a token, each of which reads 4,096 numbers, makes 14,336 twice, their
    activation and product, and gives 4,096 again. No weight of a bank is cast."""
    step = step_of(load("mixtral-8x7b").loaded, Workload(context=64, tokens=64, batch=1), Recipe(weights_dtype="fp32"))
    (block,) = step.run.blocks
    lines = list(step.lines_of(block))
    inner = [line for line in lines if "Fe" in line.spec]
    sent = [line for line in lines if set(line.spec.split()) == {"B", "T", "A", "D"}]
    assert step.bytes(block, inner) == 4 * 2 * 64 * 14_336 * 4
    assert step.bytes(block, sent) == 2 * 2 * 64 * 4_096 * 4
    assert not any("experts" in line.path and line.path.endswith("weight_cast") for line in lines)
