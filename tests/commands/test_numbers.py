"""Numbers of the command line from outside: published totals, the CS336 course, hand arithmetic. Kind: golden."""

from itertools import product

import pytest

from tests.helpers.models import tiny
from tfacct import load
from tfacct.accounts.memory import largest_that_fits
from tfacct.accounts.step_flops import recomputed_flops
from tfacct.api import Model
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Workload
from tfacct.loading import presets

# model, parameters, context, forward FLOPs, KV-cache bytes in bf16 at batch 1. FLOPs by hand for gpt2-xl @ 1,024:
# 48 · (4 · 2·1024·1600² + 2 · 2·1024²·1600 + 2 · 2·1024·1600·6400) + 2·1024·1600·50257.
TABLE = [
    ("gpt2-xl", 1_557_611_200, 1_024, 3_506_703_564_800, 314_572_800),
    ("gpt2-xl", 1_557_611_200, 16_384, 133_416_668_364_800, 5_033_164_800),
    ("cs336-gpt2-xl", 2_127_057_600, 1_024, 4_513_336_524_800, 314_572_800),
    ("cs336-gpt2-xl", 2_127_057_600, 16_384, 149_522_795_724_800, 5_033_164_800),
    ("llama-3-8b", 8_030_261_248, 8_192, 158_140_695_838_720, 1_073_741_824),
    ("qwen2-7b", 7_615_616_512, 4_096, 64_654_290_190_336, 234_881_024),
    ("gpt2", 124_439_808, 1_024, 291_648_307_200, 37_748_736),
]


@pytest.mark.parametrize(("name", "params", "ctx", "flops", "cache"), TABLE)
def test_the_command_line_meets_the_table(run, name, params, ctx, flops, cache) -> None:
    counted = run("flops", name, "--ctx", str(ctx), "--json").models[0]
    assert (counted["total_flops"], counted["total_params"]) == (flops, params)
    assert sum(line["flops"] for line in counted["lines"]) == flops
    memory = run("memory", name, "--ctx", str(ctx), "--json").models[0]
    assert (memory["kv_cache_bytes"], memory["weights_bytes"]) == (cache, 2 * params)
    cache_alone = run("memory", "--kv", name, "--ctx", str(ctx), "--json").models[0]
    assert cache_alone["kv_cache_bytes"] == cache
    assert run("params", name, "--json").models[0]["total_params"] == params


def test_parameters_by_part_by_hand(run) -> None:
    """gpt2-xl: D = 1,600, 48 layers, vocabulary 50,257, 1,024 positions; every matrix and norm has a bias.

    Attention: 48·(4·1600² + 4·1600) = 491,827,200. MLP: 48·(2·1600·6400 + 6400 + 1600) = 983,424,000. Norms: 97·2·1600.
    """
    matrices = {"attn": 491_827_200, "mlp": 983_424_000}
    parts = {"embed": 50_257 * 1600, "pos_embed": 1024 * 1600, **matrices, "norms": 310_400}
    rows = load("gpt2-xl").params(by="part").rows
    assert {row["part"]: row["params"] for row in rows} == parts
    assert sum(row["share"] for row in rows) == pytest.approx(1) and sum(parts.values()) == 1_557_611_200
    assert " attn            492 M   31.6%" in run("params", "gpt2-xl", "--by", "part").out
    ranked = load("gpt2").params(by="part", tp=4).rows  # norms and positions are on every rank
    parts = {row["part"]: row["rank_params"] for row in ranked}
    assert (parts["norms"], parts["pos_embed"]) == (38_400, 786_432)


def test_mamba_by_hand() -> None:
    """mamba-130m at 1,024 tokens: D = 768, Dx = 1,536, state 16, kernel 4, rank 48, 24 layers, vocabulary 50,280.

    A layer and token: in 768·3,072 + conv 1,536·4 + x 1,536·80 + dt 48·1,536 + read-out 1,536·16 + out 1,536·768 =
    2,359,296 + 6,144 + 122,880 + 73,728 + 24,576 + 1,179,648 = 3,766,272 multiply-adds. The head: 768·50,280 =
    38,615,040. Twice that, 1,024 times: 2·1,024·(24·3,766,272 + 38,615,040).
    """
    mamba = load("mamba-130m")
    assert mamba.flops(ctx=1024).total == 2 * 1024 * (24 * 3_766_272 + 38_615_040) == 264_203_403_264
    # weights: the same without the read-out, A_log as large as it; biases of conv and dt, D; two norms' 768; embedding
    assert mamba.params().total == 24 * (3_766_272 + 3 * 1536 + 768) + 768 + 38_615_040 == 129_135_360


@pytest.mark.parametrize("ctx", [1, 3, 1024, 10**9])
def test_mamba_keeps_a_state_of_one_size(ctx: int) -> None:
    """24 layers · 1,536 channels · (4 tokens of 2 bytes + 16 numbers of 4) for each sequence, at any context."""
    mamba = load("mamba-130m")
    assert mamba.kv(ctx=ctx, batch=7).total == mamba.kv(ctx=ctx).total * 7 == 7 * 24 * 1536 * (4 * 2 + 16 * 4)
    facts = mamba.memory(ctx=ctx).models[0]
    assert (facts["kv_cache_bytes"], facts["kv_bytes_per_token"]) == (2_654_208, 0)
    # and a decode step costs the same at any context
    assert mamba.flops(ctx=ctx, decode=True).total == 2 * (24 * 3_766_272 + 38_615_040)


@pytest.mark.parametrize(("name", "flops"), [("llama-3.1-8b", 19_304_284_160), ("qwen2-7b", 17_428_905_984)])
def test_a_decode_step(name: str, flops: int) -> None:
    assert load(name).flops(ctx=8192, decode=True).total == flops


def test_hand_arithmetic_in_a_preset_adds_up() -> None:
    by_hand = [s.provenance for s in presets.load_all() if s.provenance.expected_from == "arithmetic"]
    assert len(by_hand) == 39
    for provenance in by_hand:
        assert eval(provenance.working, {"__builtins__": {}}) == provenance.expected


def test_every_preset_says_where_it_comes_from() -> None:
    for model in presets.load_all():
        source = model.provenance
        if model.family == "custom":  # a model that has no page is described in its file
            assert source.about and (source.kind, source.url, source.expected_from) == ("described", "", "arithmetic")
            continue
        assert source.url.startswith("https://")
        assert source.kind in ("copied", "transcribed")
        assert (source.via is not None) == (source.kind == "copied")
        assert source.expected_from in ("published", "transformers", "arithmetic")


def shares(model: Model, ctx: int) -> dict[str, float]:
    """Percent of the layers' FLOPs, without the head."""
    components = {k: v for k, v in model.flops(ctx=ctx).models[0]["components"].items() if k != "lm_head"}
    whole = sum(components.values())
    return {name: round(100 * flops / whole, 1) for name, flops in components.items()}


@pytest.mark.parametrize(
    ("size", "mlp", "scores", "projections"),
    [("small", 64.3, 14.3, 21.4), ("medium", 66.7, 11.1, 22.2), ("large", 68.2, 9.1, 22.7), ("xl", 69.4, 7.4, 23.1)],
)
def test_the_course_shapes_shares(size: str, mlp: float, scores: float, projections: float) -> None:
    found = shares(load(f"cs336-gpt2-{size}"), 1024)
    assert found == {"attn_projections": projections, "attn_scores_values": scores, "mlp": mlp}


def test_sixteen_times_the_context_costs_thirty_three_times() -> None:
    model = load("cs336-gpt2-xl")
    long, short = model.flops(ctx=16384), model.flops(ctx=1024)
    assert f"{long.total / short.total:.2f}" == "33.13"
    blocks = [sum(line["flops"] for line in report.lines if line["path"] != "lm_head") for report in (long, short)]
    assert f"{blocks[0] / blocks[1]:.1f}" == "33.8"
    xl = load("gpt2-xl")
    assert f"{xl.flops(ctx=16384).total / xl.flops(ctx=1024).total:.2f}" == "38.05"


def test_logits_for_the_last_position_only() -> None:
    """The head is 27 % of gpt2's FLOPs at its own context; a server's prefill computes one position of it."""
    all_of_it, last = load("gpt2").flops(), load("gpt2").flops(logits="last")
    head = 2 * 1024 * 768 * 50257
    assert f"{head / all_of_it.total:.0%}" == "27%"
    assert all_of_it.total - last.total == head - head // 1024


def test_masked_counts_the_visible_pairs() -> None:
    full, masked = load("gpt2").flops(ctx=1024), load("gpt2").flops(ctx=1024, masked=True)
    # per layer and head: scores and values, 2·H FLOPs for each of 1024·1025/2 pairs instead of 1024²
    saved = 12 * 12 * 2 * 2 * 64 * (1024 * 1024 - 1024 * 1025 // 2)
    assert full.total - masked.total == saved


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp8", "int4"])
def test_fit_is_exact_at_the_boundary(dtype: str) -> None:
    model, budget = load("llama-3.1-8b"), 24 * 1024**3
    found = model.memory(dtype=dtype, ctx=4096, on=budget + (20 * 1024**3 if dtype == "fp32" else 0)).models[0]["fit"]
    budget = found["budget_bytes"]

    def needed(ctx: int, batch: int) -> int:
        return model.memory(ctx=ctx, batch=batch, dtype=dtype).total

    context, batch = found["largest_context"], found["largest_batch"]
    assert budget - needed(context, 1) == found["context_slack_bytes"] >= 0
    assert needed(context + 1, 1) > budget
    assert budget - needed(4096, batch) == found["batch_slack_bytes"] >= 0
    assert needed(4096, batch + 1) > budget


@pytest.mark.parametrize("train", [False, True])
def test_a_batch_counts_everywhere(run, train: bool) -> None:
    """gpt2, 3 sequences of 100 tokens: the same FLOPs per token as one, the rule of thumb by hand."""
    extra = ["--train"] if train else []
    one, three = (
        run("flops", "gpt2", "--ctx", "100", "--batch", str(batch), *extra, "--json").models[0] for batch in (1, 3)
    )
    assert three["total_flops"] == 3 * one["total_flops"]
    assert three["flops_per_token"] == one["flops_per_token"] == one["total_flops"] // 100
    assert three["rule_of_thumb_flops"] == (6 if train else 2) * 124_439_808 * 300


@pytest.mark.parametrize(
    ("weights", "cache", "expected"),
    [
        # gpt2 at 1,024 tokens caches 2 · 12 · 1024 · 768 = 18,874,368 elements. Below 16 bits only the matrices of its
        # layers are narrow, 12 · 12 · 768² = 84,934,656; the other 39,505,152 parameters stay in bf16
        ("fp32", None, (4 * 124_439_808, 4 * 18_874_368)),
        ("tf32", None, (4 * 124_439_808, 4 * 18_874_368)),
        ("bf16", None, (2 * 124_439_808, 2 * 18_874_368)),
        ("fp16", "fp8", (2 * 124_439_808, 18_874_368)),
        ("fp8", None, (84_934_656 + 2 * 39_505_152, 2 * 18_874_368)),
        ("int8", None, (84_934_656 + 2 * 39_505_152, 2 * 18_874_368)),  # quantized weights have a bf16 cache
        ("int4", None, (42_467_328 + 2 * 39_505_152, 2 * 18_874_368)),
        ("int4", "int4", (42_467_328 + 2 * 39_505_152, 18_874_368 // 2)),
    ],
)
def test_bytes_by_dtype(weights: str, cache: str | None, expected: tuple[int, int]) -> None:
    facts = load("gpt2").memory(dtype=weights, kv_dtype=cache).models[0]
    assert (facts["weights_bytes"], facts["kv_cache_bytes"]) == expected
    assert facts["kv_bytes_per_token"] == expected[1] // 1024
    assert sum(line["bytes"] for line in facts["lines"]) == facts["total_bytes"]


def test_kv_variants_by_hand() -> None:
    """llama-3.1-8b, bf16: 2 · 32 layers · S · heads · 128 · 2 bytes, for 32, 8 and 1 heads."""
    for line in load("llama-3.1-8b").kv(batch=3).lines:
        per_head = 3 * 2 * 32 * line["keys"] * 128 * 2
        assert (line["mha"], line["as_built"], line["mqa"]) == (32 * per_head, 8 * per_head, per_head)
    assert [line["keys"] for line in load("llama-3.1-8b").kv().lines] == [1024, 4096, 16384, 65536, 131072]


@pytest.mark.parametrize("limit", [400, 10**12])
@pytest.mark.parametrize("row", [1, 64])
def test_the_largest_that_fits_of_costs_that_are_no_parabola(row: int, limit: int) -> None:
    """The first guess is wrong, but not the answer."""
    for square, window, budget in product((0, 3), (20, 300, limit), (5, 5_000, 123_456, 10**9)):

        def cost(n: int, square: int = square, window: int = window) -> int:
            padded = -(-n // row) * row
            return square * min(padded, window) ** 2 + 7 * padded - 40

        found = largest_that_fits(cost, budget, limit)
        assert (found == 0 or cost(found) <= budget) and (found == limit or cost(found + 1) > budget)


@pytest.mark.parametrize(
    ("family", "sets", "spared"),
    # 2 layers, 2 · 3 sequences · 11 tokens · hidden · width: added as it is; a norm or a dropout after it needs it
    [
        ("gpt2", {"resid_pdrop": 0}, 2 * 2 * 3 * 11 * 42 * 67),
        ("gpt2", {}, 0),
        ("opt", {"dropout": 0}, 2 * 2 * 3 * 11 * 60 * 71),
        ("opt", {}, 0),
        ("bert", {}, 0),
        ("olmo2", {}, 0),
    ],
)
def test_recomputation_may_skip_the_last_matmul(family: str, sets: dict[str, int], spared: int) -> None:
    ledger, at = tiny(family).with_fields(sets).ledger, Workload(context=11, tokens=11, batch=3).axes()
    blocks = sum(flops for path, flops in ledger.flops(at).items() if path.startswith("blocks."))
    assert recomputed_flops(ledger, at) == blocks - spared


def test_the_largest_size_is_asked() -> None:
    assert load("gpt2").kv(ctx=10**12).total == 2 * 12 * 768 * 2 * 10**12
    with pytest.raises(TfacctError, match="must be at most 1,000,000,000,000, not 1,000,000,000,001"):
        load("gpt2").kv(ctx=10**12 + 1)
