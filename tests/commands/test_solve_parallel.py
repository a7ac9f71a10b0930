"""`solve --for tp`, `sweep --tp --fsdp`: numbers of ranks as unknown and as axis. Kind: law."""

from typing import Any

import tfacct
from tests.helpers.cli import Run

LARGE = "llama-3.1-70b"


def test_the_fewest_ranks_of_tp() -> None:
    model = tfacct.load(LARGE)
    found = model.solve("tp", "total_bytes=80GB", ctx="8k")
    totals = {tp: model.memory(ctx="8k", tp=tp).total_bytes for tp in (1, 2, 4)}
    assert found.total == 2
    assert [(line["tp"], line["left"]) for line in found.lines] == [(2, totals[2]), (1, totals[1])]
    assert totals[2] <= 80 * 10**9 < totals[1]
    # A training step: the fewest ranks of fsdp with tp=8.
    step: dict[str, Any] = {"ctx": "8k", "recompute": "full", "tp": 8, "sp": True}
    fewest = model.solve("fsdp", "peak_bytes=16GB", **step).total
    assert model.train(**step, fsdp=fewest).peak_bytes <= 16 * 10**9 < model.train(**step, fsdp=fewest - 1).peak_bytes


def test_the_fewest_ranks_that_divide_experts() -> None:
    model = tfacct.load("mixtral-8x7b")
    for mesh in ({}, {"tp": 2}):
        found = model.solve("ep", "total_bytes=40GB", **mesh)
        totals = {ep: model.memory(ep=ep, **mesh).total_bytes for ep in (2, 4)}
        assert found.total == 4 and {line["ep"]: line["left"] for line in found.lines} == totals
        assert totals[4] <= 40 * 10**9 < totals[2]


def test_metrics_of_one_rank_by_their_number() -> None:
    model = tfacct.load(LARGE)
    found = model.sweep("total_bytes", "kv_cache_bytes", ctx=[8192], tp=[1, 4, 16]).rows
    for row in found:
        one = model.memory(ctx="8k", tp=row["tp"])
        assert (row["total_bytes"], row["kv_cache_bytes"]) == (one.total_bytes, one.kv_cache_bytes)
    for row in model.sweep("peak_bytes", "saved_bytes", ctx=[4096], recompute="full", tp="1,8", fsdp=[1, 8]).rows:
        step = model.train(ctx=4096, recompute="full", tp=row["tp"], fsdp=row["fsdp"])
        assert (row["peak_bytes"], row["saved_bytes"]) == (step.peak_bytes, step.saved_bytes)


def test_an_unsupported_number_of_ranks_is_skipped_by_name() -> None:
    found = tfacct.load(LARGE).sweep("total_bytes", tp=[2, 3])
    assert [row["total_bytes"] > 0 for row in found.rows] == [True]
    assert "does not divide" in found.skipped[0]["why"]


def test_two_models_of_one_name_are_two_rows(run: Run) -> None:
    for command in ("memory", "params"):
        out = run(command, "gpt2", "gpt2", "--tp", "2", "--csv").out
        assert [row.split(",")[0] for row in out.splitlines()[1:]] == ["gpt2", "gpt2"]


def test_biases_of_partial_sums_are_whole_in_formulas() -> None:
    model = tfacct.load("starcoder2-3b")  # 24 and 2 heads, and a bias in every linear layer
    found = model.formula(tp="t")
    values = {axis: value["value"] for axis, value in found.legend.items() if "value" in value} | {"t": 2}
    stored: dict[str, int] = {}
    for line in model.params(tp=2).lines:
        module = line["path"].rpartition(".")[0]
        stored[module] = stored.get(module, 0) + line["rank_params"]
    written = {line["path"]: line["params_formula"] for line in found.lines if line["params_formula"]}
    for path, code in written.items():
        assert eval(code.replace("/", "//"), {}, values) == stored[path], path
    assert sum("/t + " in code for code in written.values()) == 2  # o and down


def test_the_fewest_ranks_are_among_all_that_divide_the_rows(run: Run) -> None:
    model = tfacct.load("gpt2")  # rows of 768: six ranks go, five do not
    peaks = {fsdp: model.train(fsdp=fsdp).peak_bytes for fsdp in (4, 6)}
    assert peaks[6] < 1_420_000_000 < peaks[4]
    assert model.solve("fsdp", "peak_bytes=1.42GB").total == 6


def test_devices_share_the_model_as_in_memory_and_train() -> None:
    # Llama 3.1 8B on 8 cards: 65 norms of 4,096 are whole; 16 KiB of cache per token on each.
    model = tfacct.load("llama-3.1-8b")
    norms, usable = 65 * 4096, 74_526_125_056
    weights = 2 * ((8_030_261_248 - norms) // 8 + norms)
    found = model.solve("batch", ctx="8k", on="8xh100")
    assert found.total == (usable - weights) // (8192 * 16_384) == 540
    assert found.answer == "A batch of up to 540 fits on 8 × H100 SXM5 80GB (tp=8)."
    assert model.solve("ctx", on="8xh100").total == (usable - weights) // 16_384
    rows = model.sweep(ctx=[8192], batch=[540, 541], on="8xh100")
    assert [(row["total_bytes"], row["fits"]) for row in rows.models[0]["lines"]] == [
        (weights + batch * 8192 * 16_384, batch == 540) for batch in (540, 541)
    ]
    assert rows.answer == "A batch of 540 is the largest of these that fits on 8 × H100 SXM5 80GB (tp=8)."
    step: dict[str, Any] = {"on": "4xh100", "recompute": "full"}
    longest = model.train(**step).fit["largest_context"]
    assert model.solve("ctx", train=True, **step).total == longest
    fits = [row["fits"] for row in model.sweep(ctx=[longest, longest + 1], train=True, **step).models[0]["lines"]]
    assert fits == [True, False]


def test_devices_of_serving_have_their_own_heads_under_a_joint_norm() -> None:
    """OLMo 2 has a norm over all heads: engines shard the cache, transformers' plan does not."""
    model = tfacct.load("olmo-2-7b")
    one = 2 * 32 * 4096 * 4096 * 2  # of a request of 4,096 tokens: keys and values of 32 layers, as wide as the stream
    (row,) = model.sweep("kv_cache_bytes", ctx=[4096], on="2xh100").rows
    assert row["kv_cache_bytes"] == one // 2
    (row,) = model.sweep("kv_cache_bytes", ctx=[4096], tp=[2]).rows
    assert row["kv_cache_bytes"] == model.memory(ctx=4096, tp=2).kv_cache_bytes == one
    (layout,) = model.plan(ctx=4096, on="2xh100", tp=2).layouts
    for found in (model.memory(ctx=4096, on="2xh100", **ranks) for ranks in ({}, {"tp": 2})):
        assert found.kv_cache_bytes == one // 2 and found.total_bytes == layout["bytes"]
        assert found.fit["largest_batch"] == model.solve("batch", ctx=4096, on="2xh100").total


def test_a_step_past_the_positions_does_not_fit() -> None:
    rows = tfacct.load("gpt2").sweep(ctx=[1024, 1025], on="24GB")
    assert [row["fits"] for row in rows.models[0]["lines"]] == [True, False]


def test_ranks_of_a_row_are_all_devices(run: Run) -> None:
    found = tfacct.load(LARGE).sweep(ctx=[8192], tp=[1, 2, 4], on="4xh100")
    assert [row["tp"] for row in found.rows] == [4] and len(found.skipped) == 2
    # Two ranks of a training step on four devices have two replicas of dp, and one rank none.
    step = "--ctx 1k --on 4xh100 --recompute full --train"
    out = run("sweep", "llama-3.2-1b", "--tp", "1,2", *step.split()).out
    assert "replicas" in out and "tp 1 (--on 4xh100-sxm has 4 devices for a layout of 1 ranks)" in " ".join(out.split())
