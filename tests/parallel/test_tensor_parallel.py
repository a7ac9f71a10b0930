"""Tensor parallelism and FSDP: collectives and parameters of a rank, by hand. Kind: golden, refusal."""

import pytest

import tfacct
from tfacct.base.combinations import Features, matching
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.support import FEATURES, UNSUPPORTED, check_mesh, check_together


def test_parameters_of_one_rank() -> None:
    model = tfacct.load("llama-3.1-70b")
    for mesh in ({"tp": 8}, {"fsdp": 7}, {"tp": 8, "fsdp": 3}):
        one = model.params(**mesh)
        assert one.rank_params == sum(line["rank_params"] for line in one.lines)
        assert one.rank_params == model.comms(**mesh, train=True).rank_params
        assert one.total_params == 70_553_706_496
    lines = {line["path"]: line["rank_params"] for line in model.params(tp=8, fsdp=3).lines}
    # q_proj: 64 heads of 128 among 8 are 1,024 rows of 8,192, padded to 3 · 342. A norm: 8,192 rows to 3 · 2,731.
    assert lines["blocks.*.attn.q_proj.weight"] == 80 * 342 * 8192
    assert lines["blocks.*.attn_norm.weight"] == 80 * 2731


def test_heads_that_several_ranks_have() -> None:
    model = tfacct.load("llama-3.1-70b")  # of 8 key/value heads each is on two of 16 ranks, 4 of 64 query heads on one
    one = model.memory(ctx="8k", tp=16)
    assert one.kv_cache_bytes == 2 * 80 * 8192 * 128 * 2 == model.memory(ctx="8k", tp=8).kv_cache_bytes
    heads = 2 * 4 * 128 + 2 * 128  # q and o, k and v
    blocks = 80 * (8192 * heads + 3 * 8192 * 28672 // 16 + 2 * 8192)
    assert one.total_params == blocks + 2 * 128_256 // 16 * 8192 + 8192 == model.comms(tp=16).rank_params
    *_, copies = model.comms(tp=16, train=True, ctx="8k").collectives
    lines = copies["lines"]
    assert copies["calls"] == 160  # k's and v's weights among the ranks that have them
    assert {line["because"] for line in lines} == {"G"} and lines[0]["bytes"] == 80 * 8192 * 128 * 2


def test_norms_and_biases_of_sums_are_whole() -> None:
    # gpt2: the position embedding and norms are whole on both ranks, and biases of partial sums.
    whole = (1024 + 2 * (2 * 12 + 1) + 2 * 12) * 768
    blocks = 124_439_808 - whole - 50_257 * 768
    assert tfacct.load("gpt2").params(tp=2).rank_params == whole + 25_129 * 768 + blocks // 2


def test_norms_over_all_heads_by_hand() -> None:
    """OLMo 2: attention is whole on each rank, and so is its cache."""
    model = tfacct.load("olmo-2-1b")  # 16 layers of 16 heads of 128: as wide as the residual stream of 2,048
    assert model.memory(ctx=4096, tp=8).kv_cache_bytes == model.memory(ctx=4096).kv_cache_bytes
    whole, rank = model.flops(ctx=1024).total, model.flops(ctx=1024, tp=8).total
    pairs = 2 * 2 * 16 * 1024 * 1024 * 2048  # scores and values of 16 layers, on each rank
    assert rank == (whole - pairs) // 8 + pairs
    norms = 16 * (2 * 2048 + 2 * 2048) + 2048
    assert model.params(tp=8).rank_params == (1_484_916_736 - norms) // 8 + norms


def test_norms_per_head_are_sharded_with_the_heads() -> None:
    """Command R+: each head of queries and keys has a norm of its own, so no rank needs the others' heads."""
    model = tfacct.load("command-r-35b", use_qk_norm=True)
    norms = 41 * 8192  # one of each of 40 layers and the final one
    sharded = (34_980_831_232 + 2 * 40 * 64 * 128 - norms) // 2  # as published, and two norms of 64 heads of 128
    assert model.params(tp=2).rank_params == model.memory(tp=2).total_params == sharded + norms
    assert model.memory(tp=2, ctx=64).kv_cache_bytes == model.memory(ctx=64).kv_cache_bytes // 2


@pytest.mark.parametrize(
    ("name", "sharded"),
    [
        ("apertus-8b", 32 * 4096 * (2 * 4096 + 2 * 1024 + 2 * 21_504) + 2 * 131_072 * 4096),
        # Both embeddings; 28 layers of 8 query heads of 256, 7 of 512, whose key head is on both ranks.
        (
            "gemma-4-e2b-text",
            262_144 * (1536 + 35 * 256) + 2 * 1536 * 8 * (28 * 256 + 7 * 512) + 3 * 1536 * (15 * 6144 + 20 * 12_288),
        ),
        # 64 heads of 512 with a sink each, in 8 groups of 1,024; 256 experts and a shared one of 2,048.
        (
            "deepseek-v4-flash",
            43 * (64 * (1024 * 512 + 1) + 8 * 1024 * (8 * 512 + 4096) + 3 * 257 * 4096 * 2048) + 2 * 129_280 * 4096,
        ),
    ],
)
def test_engines_shard_heads_widths_and_vocabularies(name: str, sharded: int) -> None:
    """Of what vLLM's classes shard over 2 cards, one stores half."""
    model = tfacct.load(name)
    found = model.memory(ctx="4k", on="2xh200")
    assert model.params().total_params - found.total_params == sharded // 2
    served = model.serve(on="2xh200", prompt=4000, new=96, requests=1)
    assert served.largest_requests == found.fit["largest_batch"]


def test_gradient_buckets_that_were_not_checked_are_refused() -> None:
    gated = tfacct.load("qwen1.5-moe-a2.7b")  # only a step has buckets
    assert gated.comms(ulysses=4, ctx=64, tokens=64).sent_bytes == 24 * 4 * 16 * 2048 * 2 * 3 // 4
    with pytest.raises(tfacct.TfacctError, match="gradient buckets were not checked against torch") as caught:
        gated.comms(ulysses=4, ctx=64, train=True)
    assert caught.value.hint == "use fsdp or zero"


CASES = {
    "pp fsdp eager_schedule": ("gpt2", Mesh(pp=2, fsdp=2, schedule="interleaved")),
    "pp zero2": ("gpt2", Mesh(pp=2, dp=2, zero=2)),
    "pp source": ("llama-3.2-11b-vision-text", Mesh(pp=2)),
    "pp encoder": ("bart-base", Mesh(pp=2)),
    "pp outside_layers": ("deberta-base", Mesh(pp=2)),
    "pp shared_weights": ("albert-base-v2", Mesh(pp=2)),
    "pp streams": ("deepseek-v4-flash", Mesh(pp=2)),
    "pp borrowed_heads": ("gemma-3n-e2b-text", Mesh(pp=2)),
    "pp borrowed_index": ("hy4-preview", Mesh(pp=2)),
    "sequence encoder": ("bart-base", Mesh(cp=2)),
    "sequence tp joint_norm": ("olmo-2-1b", Mesh(2, cp=2)),
    "sequence window_both_ways": ("embeddinggemma-300m", Mesh(cp=2)),
    "sequence bias_both_ways": ("mpnet-base", Mesh(cp=2)),
    "sequence compressed": ("deepseek-v4-flash", Mesh(cp=2)),
    "cp latent": ("deepseek-v3", Mesh(cp=2)),
    "sequence latent": ("deepseek-v3", Mesh(ulysses=2)),
    "ring window": ("mistral-7b-v0.1", Mesh(cp=2)),
    "ring sinks": ("gpt-oss-20b", Mesh(cp=2)),
    "gathered_part buckets": ("mamba-130m", Mesh(dp=2)),
    "part fsdp_reason": ("zamba2-1.2b", Mesh(fsdp=2)),
    "part gathered": ("mamba-130m", Mesh(2)),
    "part": ("albert-base-v2", Mesh(2)),
    "buckets expert_bias": ("gpt-oss-20b", Mesh(dp=2)),
    "buckets shared_gate": ("qwen1.5-moe-a2.7b", Mesh(dp=2)),
    "buckets tp fused": ("mixtral-8x7b", Mesh(2, dp=2)),
    "sp both_ways": ("t5-base", Mesh(2, True)),
    "sp head_transform": ("albert-base-v2", Mesh(2, True)),
    "sp post_norm": ("openai-gpt", Mesh(2, True)),
    "sp embeds_distances": ("t5-base", Mesh(2, True)),
    "sp megatron latent": ("deepseek-v3", Mesh(2, True, plan="megatron")),
    "ep no_experts": ("gpt2", Mesh(2, ep=2)),
    "sp parallel_sublayers": ("pythia-70m", Mesh(2, True)),
    "sp positions": ("gpt2", Mesh(2, True)),
    "sp scaled_embedding": ("gemma-3-4b-text", Mesh(2, True)),
}


@pytest.mark.parametrize("features", CASES)
def test_a_row_refuses_its_layout_by_name(features: str) -> None:
    name, mesh = CASES[features]
    model = tfacct.load(name).loaded
    found = {row.features: row for row in matching(UNSUPPORTED, Features(FEATURES, model, mesh, True))}
    assert features in found and not any(mark in row.reason for row in found.values() for mark in ("{", "None"))
    with pytest.raises(tfacct.TfacctError) as refused:
        check_together(mesh)
        check_mesh(model, mesh)
    assert refused.value.message.removeprefix(f"{name}: ") in {row.reason for row in found.values()}


def test_every_unsupported_row_has_a_case() -> None:
    rows = [row.features for row in UNSUPPORTED]
    assert len({*rows}) == len(rows)
    # Multi-token prediction and latents of an earlier layer need another config than a preset's.
    assert {*rows} - {*CASES} == {"pp mtp", "pp borrowed_latents"}
    assert FEATURES.keys() - {name for row in rows for name in row.split()} == {"encoder_reads"}  # in a reason
    model = tfacct.load("llama-3.1-8b").loaded
    assert not [*matching(UNSUPPORTED, Features(FEATURES, model, Mesh(2, True, fsdp=2, pp=2, cp=2), True))]
