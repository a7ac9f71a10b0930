"""Costs of one rank next to the full model: `memory --kv --tp`, `flops --tp`, `flops --traffic --tp`. Kind: golden,
output.
"""

import tfacct

LARGE = "llama-3.1-70b"


def test_a_rank_keeps_its_heads() -> None:
    one = tfacct.load(LARGE).kv(ctx="8k", tp=8)
    # 80 layers, keys and values of 1 of 8 heads of 128 numbers, in bf16.
    assert one.kv_bytes_per_token == 80 * 2 * 128 * 2
    assert (
        one.lines[-1]["whole_bytes"]
        == one.whole["kv_cache_bytes"]
        == 8 * one.kv_cache_bytes
        == 8192 * 80 * 2 * 8 * 128 * 2
    )
    # Of sixteen ranks two have each head.
    assert tfacct.load(LARGE).kv(ctx="8k", tp=16).kv_cache_bytes == one.kv_cache_bytes
    assert tfacct.load(LARGE).kv(ctx="8k").models[0]["whole"] is None


def test_the_work_of_a_rank_by_hand() -> None:
    one = tfacct.load(LARGE).flops(ctx="8k", tp=8)
    at = {line["path"]: line for line in one.lines}
    # 80 layers; 8 of 64 query heads of 128 numbers, 8,192 numbers of the residual stream.
    assert at["blocks.*.attn.q_proj"]["flops"] == 80 * 2 * 8192 * 8192 * (8 * 128)
    assert at["blocks.*.attn.scores"]["flops"] == 80 * 2 * 8 * 8192 * 8192 * 128
    assert one.total_params == tfacct.load(LARGE).memory(tp=8).total_params
    # 2 FLOPs for each of 69.5 B weights in products and a token, and 4 · 80 · 8,192³ of scores and values: 1.31e15.
    assert one.answer == "164 T FLOPs on one rank; the whole model takes 1.31 P."
    assert tfacct.load(LARGE).flops(ctx="8k").models[0]["whole"] is None


def test_bytes_moved_by_a_rank_by_hand() -> None:
    one = tfacct.load("llama-3.1-8b").traffic(ctx="8k", decode=True, tp=8)
    at = {line["path"]: line for line in one.lines}
    # 32 layers; a token's 4,096 numbers and 4,096 × 512 of the weight, in bf16; 512 numbers are written.
    assert at["blocks.*.attn.q_proj"]["read_bytes"] == 32 * 2 * (4096 + 4096 * 512)
    assert at["blocks.*.attn.q_proj"]["written_bytes"] == 32 * 2 * 512
    assert (
        one.whole["total_moved_bytes"] == tfacct.load("llama-3.1-8b").traffic(ctx="8k", decode=True).total_moved_bytes
    )


def test_a_picture_names_the_rank() -> None:
    model = tfacct.load("llama-3.1-8b")
    for report in (model.kv(ctx=4096, tp=4), model.flops(ctx=4096, tp=4), model.memory(ctx=4096, tp=4)):
        assert " one of 4 ranks" in report._chart().title


def test_experts_of_several_ranks_are_sharded() -> None:
    """Of 8 ranks, 4 groups of experts leave 2 ranks for each expert: 45,097,156,608 / 8 parameters on a rank."""
    lines = tfacct.load("mixtral-8x7b").memory(ctx="1k", fsdp=8, ep=4).lines
    assert next(one["elements"] for one in lines if one["what"] == "mlp") == (45_097_156_608 + 32 * 8 * 4096) // 8


def test_ranks_share_states_and_their_pages() -> None:
    """2 key/value heads, 32 value heads of 128 × 128 in 36 layers, and convolutions of 8,192 channels, on 2 ranks."""
    model = tfacct.load("qwen3-next-80b-a3b")
    one = model.kv(ctx="4k", tp=2)
    states = 36 * (16 * 128 * 128 * 4 + 4096 * 4 * 2)
    assert one.kv_cache_bytes == states + 12 * 4096 * 2 * 256 * 2 == one.whole["kv_cache_bytes"] // 2
    paged = model.memory(ctx="4k", on="2xh200", engine="vllm")
    assert paged.kv_block == 544 and paged.whole["kv_cache_bytes"] == 2 * paged.kv_cache_bytes
