"""Tensor parallelism and FSDP: collectives and parameters of a rank, by hand. Kind: golden, refusal."""

from __future__ import annotations

from typing import Any

import pytest

import tfacct
from tfacct.base.combinations import Features, matching
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.support import FEATURES, UNSUPPORTED, check_mesh, check_step


def table(model: str, **asked: Any) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Calls and bytes, by axis, pass and kind."""
    found = tfacct.load(model).comms(**asked).collectives
    rows = {(one["over"], one["when"], one["kind"]): (one["calls"], one["bytes"]) for one in found}
    assert len(rows) == len(found)
    return rows


STREAM = 8192 * 8192 * 2
"""Bytes of llama-3.1-70b's stream at 8,192 tokens in bf16. It has 80 blocks."""


def test_plain_tensor_parallelism() -> None:
    # Forward 2L + 1: o_proj, down_proj of 80 blocks, and the table. Backward 5L + 1: q, k, v, gate, up, and the head.
    plain = table("llama-3.1-70b", tp=8, train=True, ctx="8k")
    assert plain == {
        ("tp", "forward", "all-reduce"): (161, 161 * STREAM),
        ("tp", "backward", "all-reduce"): (401, 401 * STREAM),
    }
    # Megatron adds up the gradients of one tensor before it reduces them: 2L + 1.
    grouped = table("llama-3.1-70b", tp=8, tp_plan="megatron", train=True, ctx="8k")
    assert grouped["tp", "backward", "all-reduce"] == (161, 161 * STREAM)


def test_two_axes() -> None:
    rows = table("llama-3.1-70b", tp=8, sp=True, fsdp=8, train=True, ctx="8k")
    # 80 blocks of 855,654,400 parameters (norms 2 · 8,192 whole on each rank of tp), a table, a head, a norm.
    block = (855_654_400 - 2 * 8192) // 8 + 2 * 8192
    root = 2 * 128_256 * 8192 // 8 + 8192
    assert rows == {
        ("tp", "forward", "all-gather"): (161, 161 * STREAM),
        ("tp", "forward", "reduce-scatter"): (161, 161 * STREAM // 8),
        ("tp", "backward", "all-gather"): (161, 161 * STREAM),
        ("tp", "backward", "reduce-scatter"): (161, 161 * STREAM // 8),
        ("tp", "backward", "all-reduce"): (161, 161 * 8192 * 2),
        ("fsdp", "forward", "all-gather"): (81, 2 * (80 * block + root)),
        ("fsdp", "backward", "all-gather"): (80, 2 * 80 * block),
        ("fsdp", "backward", "reduce-scatter"): (81, 2 * (80 * block + root) // 8),
    }


def test_one_new_token() -> None:
    one = tfacct.load("llama-3.1-8b").comms(tp=8)
    assert table("llama-3.1-8b", tp=8) == {("tp", "forward", "all-reduce"): (65, 65 * 4096 * 2)}
    # A ring of 8 sends 7 of 8 shares twice.
    assert one.sent_bytes == 2 * 7 * 65 * 4096 * 2 // 8
    assert one.answer == "A new token sends 910 KiB from each rank: 65 collectives."


def test_the_answer_comes_first(run) -> None:
    ran = run("plan", "llama-3.1-70b", "--tp", "8", "--sp", "--fsdp", "8", "--train", "--ctx", "8k")
    assert "A step sends 113 GiB from each rank: 70.4 GiB over tp and 42.7 GiB over fsdp" in ran.out
    assert "all-gather      tp    forward     161  20.1 GiB" in ran.out and "T is sharded" in ran.out


def test_memory_of_one_rank() -> None:
    model = tfacct.load("llama-3.1-70b")
    one = model.memory(ctx="8k", tp=8)
    # 80 blocks and norms whole: 70,553,706,496 parameters, of which 161 norms of 8,192 are on every rank.
    norms = 161 * 8192
    assert one.weights_bytes == 2 * ((70_553_706_496 - norms) // 8 + norms)
    assert one.kv_cache_bytes == 2 * 80 * 8192 * (8 // 8) * 128 * 2
    assert one.whole == {key: model.memory(ctx="8k").models[0][key] for key in one.whole}
    # The same ranks as `comms` has them.
    assert one.total_params == model.comms(tp=8).rank_params


def test_a_budget_is_of_one_rank(run) -> None:
    asked = ("memory", "llama-3.1-70b", "--ctx", "8k", "--tp", "2")
    two, one = (" ".join(run(*asked, "--on", fit).out.split()) for fit in ("2xh100-sxm", "h100-sxm"))
    assert two == one and "Fits on 2 × H100 SXM5 80GB (tp=2): 2 requests" in one
    assert "--on 3xh100-sxm has 3 devices, the layout 2 ranks" in run(*asked, "--on", "3xh100-sxm").err
    ran = run(*asked, "--explain")
    assert ran.code == 2 and "--explain does not work with --tp" in ran.err
    refused = run("memory", "mamba-130m", "--tp", "2")
    assert refused.code == 2 and "does not support Mamba" in refused.err
    assert run("memory", "llama-3.1-70b", "--tp", "0").code == 2
    more = run("memory", "mixtral-8x7b", "--fsdp", "2", "--ep", "8")  # of two ranks: none has a copy of an expert
    assert more.code == 2 and "possible sizes: 2" in more.err
    rows = run("memory", "llama-3.1-70b", "llama-3.1-8b", "--ctx", "8k", "--tp", "8").out
    assert "on one of 8 ranks" in rows and "134 GiB" in rows
    assert "at batch 8: 151 GiB" in run("memory", "llama-3.1-70b", "--ctx", "8k", "--tp", "8", "--batch", "1,8").out


def test_parameters_of_one_rank(run) -> None:
    model = tfacct.load("llama-3.1-70b")
    for mesh in ({"tp": 8}, {"fsdp": 7}, {"tp": 8, "fsdp": 3}):
        one = model.params(**mesh)
        assert (
            one.rank_params == model.comms(**mesh, train=True).rank_params == sum(x["rank_params"] for x in one.lines)
        )
        assert one.total_params == 70_553_706_496
    lines = {line["path"]: line["rank_params"] for line in model.params(tp=8, fsdp=3).lines}
    # q_proj: 64 heads of 128 among 8 are 1,024 rows of 8,192, padded to 3 · 342. A norm: 8,192 rows to 3 · 2,731.
    assert lines["blocks.*.attn.q_proj.weight"] == 80 * 342 * 8192
    assert lines["blocks.*.attn_norm.weight"] == 80 * 2731
    ran = run("params", "llama-3.1-8b", "gpt2", "--fsdp", "8")
    assert "on one of 8 ranks" in ran.out and "Parameters of the fullest rank, by part" in ran.out
    assert run("params", "gpt2", "--tp", "5").code == run("params", "gpt2", "--tp", "0").code == 2
    assert "rank" not in run("params", "gpt2").out


def test_heads_that_several_ranks_have(run) -> None:
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
    words = " ".join(run("plan", "llama-3.1-70b", "--tp", "16").out.split())
    assert "Of 8 key/value heads each is on 2 ranks: its weights and its cache." in words


def test_uneven_widths() -> None:
    model = tfacct.load("gpt2")  # 50,257 rows of two ranks: 25,129 and 25,128
    whole = {line["path"]: line["rank_params"] for line in model.params(tp=2).lines}
    assert whole["embed.weight"] == 25_129 * 768
    assert (
        "V = 50,257 is not split evenly: the fullest rank has 25,129, the last ranks have fewer."
        in model.comms(tp=2).notes
    )


def test_products_that_a_class_fuses_are_reduced_once() -> None:
    # gpt2 has 12 blocks: q, k and v are one product there, so backward two sums a block, and the head's.
    step = table("gpt2", tp=2, train=True, ctx=64)
    assert step["tp", "backward", "all-reduce"] == (2 * 12 + 1, 25 * 64 * 768 * 2)
    # A table of positions and norms are whole on both ranks, biases of what is summed too.
    whole = (1024 + 2 * (2 * 12 + 1) + 2 * 12) * 768
    table_rows = 50_257 * 768
    blocks = 124_439_808 - whole - table_rows
    assert tfacct.load("gpt2").params(tp=2).rank_params == whole + 25_129 * 768 + blocks // 2


def test_families_whose_sublayers_stand_beside_each_other() -> None:
    # Two sums in each of 6 blocks, and the table's: they are not added up first.
    assert table("pythia-70m", tp=2) == {("tp", "forward", "all-reduce"): (13, 13 * 512 * 2)}
    # bloom: what ALiBi adds to scores is each head's own; gpt-oss: so is its sink.
    assert table("bloom-7b1", tp=2)["tp", "forward", "all-reduce"][0] == 2 * 30 + 1
    assert sum(one["calls"] for one in tfacct.load("gpt-oss-20b").comms(tp=2).collectives) == 2 * 24 + 1


CASES = {
    "pp fsdp eager_schedule": ("gpt2", Mesh(pp=2, fsdp=2, schedule="interleaved")),
    "pp zero2": ("gpt2", Mesh(pp=2, dp=2, zero=2)),
    "pp source": ("llama-3.2-11b-vision-text", Mesh(pp=2)),
    "pp encoder": ("bart-base", Mesh(pp=2)),
    "pp read_by_all": ("deberta-base", Mesh(pp=2)),
    "pp shared_weights": ("albert-base-v2", Mesh(pp=2)),
    "pp streams": ("deepseek-v4-flash", Mesh(pp=2)),
    "pp borrowed_heads": ("gemma-3n-e2b-text", Mesh(pp=2)),
    "pp borrowed_index": ("hy4-preview", Mesh(pp=2)),
    "sequence encoder": ("bart-base", Mesh(cp=2)),
    "sequence tp joint_norm": ("olmo-2-1b", Mesh(2, cp=2)),
    "sequence window_both_ways": ("embeddinggemma-300m", Mesh(cp=2)),
    "sequence bias_both_ways": ("mpnet-base", Mesh(cp=2)),
    "sequence compressed": ("deepseek-v4-flash", Mesh(cp=2)),
    "sequence cp latent": ("deepseek-v3", Mesh(cp=2)),
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
        check_step(mesh)
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
