"""Quantized weights on a mesh: a rank stores whole blocks. Kind: golden."""

import pytest

import tfacct
from tfacct.ledger.storage import Stored, storage


def test_groups_of_inputs_and_words_of_outputs_are_divided() -> None:
    one, whole = (tfacct.load("llama-3.1-70b").memory(ctx="8k", dtype="awq", **tp).models[0] for tp in ({"tp": 2}, {}))
    # AWQ of m outputs and k inputs: m / 8 words of 4 bytes for each input; for each 128 inputs a scale of 2 bytes an
    # output and words of zeros. Of 64 heads of 128 each rank has 32, of 8 key heads 4, of 28,672 widths 14,336.
    awq = lambda m, k: 4 * k * (m // 8) + (k // 128) * (2 * m + 4 * (m // 8))  # noqa: E731
    attn = awq(4096, 8192) + 2 * awq(512, 8192) + awq(8192, 4096)
    mlp = 2 * awq(14336, 8192) + awq(8192, 14336)
    ends, norms = 2 * 2 * 128256 * 8192 // 2, 2 * 161 * 8192
    assert one["weights_bytes"] == 80 * (attn + mlp) + ends + norms
    assert 2 * (one["weights_bytes"] - norms) == whole["weights_bytes"] - norms


def test_a_published_format_of_blocks() -> None:
    """DeepSeek-V3's blocks of 128 × 128: on 8 ranks every divided matrix has whole blocks, and what is not divided is
    on each: norms and routers in bf16, and the two projections to latents."""
    model = tfacct.load("deepseek-v3")
    one, whole = model.memory(ctx="8k", tp=8).models[0], model.memory(ctx="8k").models[0]
    fp8 = lambda m, k: m * k + 4 * -(-m // 128) * -(-k // 128)  # noqa: E731
    latents = 61 * (fp8(1536, 7168) + fp8(576, 7168))
    same = (8 * one["weights_bytes"] - whole["weights_bytes"]) / 7
    norms = 2 * (7168 * 123 + 61 * (1536 + 512))
    routers = 58 * 2 * 256 * 7168
    assert same == latents + norms + routers
    assert one["kv_cache_bytes"] == whole["kv_cache_bytes"] == 61 * 8192 * 576 * 2


@pytest.mark.parametrize(
    ("name", "whole", "part", "cut"),
    [
        ("awq", (512, 1024), (256, 1024), False),
        ("awq", (512, 1024), (512, 512), False),
        ("awq", (512, 1152), (512, 576), True),  # 4.5 groups of 128 inputs
        ("awq", (40, 1024), (20, 1024), True),  # 2.5 words of 8 outputs
        ("gptq", (512, 1024), (512, 256), False),
        ("gptq", (512, 1024), (256, 1024), False),  # the number of an input's group is on both ranks
        ("fp8-block", (512, 1024), (128, 1024), False),
        ("fp8-block", (512, 1024), (64, 1024), True),
        ("fp8-block", (576, 1024), (288, 1024), True),
        ("mxfp4", (96, 512), (96, 16), True),
        ("nvfp4", (96, 512), (96, 16), False),  # its 32-bit scale is on both
        ("int4", (96, 512), (96, 1), False),
        ("nf4", (6, 32), (3, 32), True),  # 64 numbers whatever the shape
        ("nf4", (1024, 32), (512, 32), False),  # 16,384 numbers have 256 scales, which share one
        ("awq", (512, 1024), (200, 1024), True),  # shares are not even
        ("bf16", (7, 5), (1, 5), False),
    ],
)
def test_shards_that_cut_blocks(name: str, whole: tuple[int, int], part: tuple[int, int], cut: bool) -> None:
    both = (Stored("matrix", outputs * inputs, inputs) for outputs, inputs in (whole, part))
    assert storage(name).cuts(*both) is cut


def test_a_share_of_mxfp4_is_filled_up_to_whole_blocks() -> None:
    """gpt-oss-120b: 2,880 / 8 = 360 inputs of down_proj fill 12 blocks of 17 bytes on each of 8 ranks; of gate and up
    each rank has 2 · 360 outputs of 90 whole blocks. 36 layers, 128 experts."""
    whole, rank = (tfacct.load("gpt-oss-120b").memory(tp=tp, ctx=1).models[0]["weights_bytes"] for tp in (1, 8))
    experts = {1: 2880 * 90 + 2 * 2880 * 90, 8: 2880 * 12 + 2 * 360 * 90}
    others = [weights - 36 * 128 * 17 * experts[tp] for weights, tp in ((whole, 1), (rank, 8))]
    assert others[0] / 8 < others[1] < others[0]  # attention, embeddings and head in bf16, divided in part
    assert tfacct.load("gpt-oss-120b").serve(on="8xh100-sxm", prompt=1000, new=100).models[0]["on"]["tp"] == 8


def test_a_plan_in_k_quants_has_only_replicas() -> None:
    found = tfacct.load("deepseek-v3").plan(dtype="q4_k_m", ctx=1000, batch=8, on="8xh200")
    assert {(row["tp"], row["pp"]) for row in (*found.layouts, *found.larger)} == {(1, 1)}
