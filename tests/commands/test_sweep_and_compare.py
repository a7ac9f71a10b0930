"""`sweep` and `compare` of two settings equal the commands that they compare. Kind: law, refusal."""

import json
import tracemalloc
from fractions import Fraction
from itertools import product

import pytest

from tests.helpers.models import tiny
from tfacct import load
from tfacct.accounts.metrics import METRICS
from tfacct.base.errors import UsageError
from tfacct.base.ranges import MOST, read_values
from tfacct.ledger.workload import Request
from tfacct.reports.metrics import Counting
from tfacct.reports.sweep import Grid, sweep


def test_gqa_changes_k_and_v_and_the_cache_and_nothing_else(run) -> None:
    """llama-3.1-8b with one key head instead of 8: k and v cost an eighth, the cache too, scores and values nothing."""
    ran = run("compare", "--by", "line", "llama-3.1-8b", "--set", "num_key_value_heads=1", "--ctx", "8k", "--json")
    facts = ran.models[0]
    flops = {line["path"]: line for line in facts["lines"] if line["unit"] == "flops"}
    changed = {path.removeprefix("blocks.*.") for path, line in flops.items() if line["delta"]}
    assert changed == {"attn.k_proj", "attn.v_proj"}
    each = 2 * 32 * 8192 * 4096 * 128  # 2·L·T·D·H for one key head
    for path in ("blocks.*.attn.k_proj", "blocks.*.attn.v_proj"):
        assert (flops[path]["old"], flops[path]["new"], flops[path]["delta"]) == (8 * each, each, -7 * each)
    found = facts["totals"]
    assert (found["kv_cache_bytes"]["old"], found["kv_cache_bytes"]["new"]) == (2**30, 2**27)
    assert found["total_params"]["delta"] == -7 * 2 * 32 * 4096 * 128
    assert found["weights_bytes"]["delta"] == 2 * found["total_params"]["delta"]
    for side in ("old", "new"):
        scores = flops["blocks.*.attn.scores"]
        assert scores[f"{side}_share"] == pytest.approx(scores[side] / found["total_flops"][side])
    text = run("compare", "llama-3.1-8b", "--set", "num_key_value_heads=1", "--ctx", "8k").out
    shown, others, _ = text.partition("--all also shows the rows that do not change.")
    assert others and "unchanged" not in shown and "attn.v_proj" in shown


@pytest.mark.parametrize("train", [False, True])
def test_both_sides_are_what_flops_and_memory_say(train: bool, run) -> None:
    old, new = load("gpt2"), load("gpt2", n_layer=7)
    arguments = ("--ctx", "64, 300", "--batch", ",5", "--set", "n_layer=7", *["--train"] * train)
    facts = run("compare", "--by", "line", "gpt2", *arguments, "--json").models[0]
    sides = {"old": (old, {"ctx": 64}), "new": (new, {"ctx": 300, "batch": 5})}
    for side, (model, work) in sides.items():
        flops = model.flops(**work, train=train)
        for unit, own in (("flops", flops), ("params", model.params())):
            compared = {line["path"]: line[side] for line in facts["lines"] if line["unit"] == unit}
            assert compared == {line["path"]: line[unit] for line in own.lines}
        found = facts["totals"]
        assert found["total_flops"][side] == flops.total
        assert found["kv_cache_bytes"][side] == model.memory(**work).models[0]["kv_cache_bytes"]
        assert found["total_bytes"][side] == model.memory(**work).total
        assert facts[f"{side}_side"]["workload"]["keys"] == work["ctx"]
    assert all(line["delta"] == (line["new"] or 0) - (line["old"] or 0) for line in facts["lines"])


def test_python_asks_as_the_commands_do(run) -> None:
    """Every option that both have: the same document."""
    model = load("llama-3.2-1b")
    asked = {
        "compare llama-3.2-1b --ctx 64 --set num_key_value_heads=1 --dtype fp8 --train --batch ,3 --by line": (
            model.compare(ctx=64, batch=",3", fields=["num_key_value_heads=1"], dtype="fp8", train=True, by="line")
        ),
        "sweep llama-3.2-1b --ctx 64,96k --tokens 5 --logits last --metric total_flops,kv_cache_bytes --kv-dtype fp8": (
            model.sweep("total_flops", "kv_cache_bytes", ctx=[64, 96 * 1024], tokens=5, logits="last", kv_dtype="fp8")
        ),
        "solve llama-3.2-1b --for ctx --until share.attn=0.4 --masked --train --logits last": model.solve(
            "ctx", "share.attn=0.4", masked=True, train=True, logits="last"
        ),
    }
    for arguments, report in asked.items():
        assert run(*arguments.split(), "--json").document == report.document(), arguments


def test_a_model_from_stdin_is_read_once(run) -> None:
    config = json.dumps({"model_type": "gpt2", "vocab_size": 10, "n_embd": 4, "n_layer": 2, "n_head": 2})
    ran = run("compare", "--by", "line", "-", "--set", "n_layer=3", "--ctx", "5", stdin=config.encode())
    assert ran.code == 0 and "+50.0%" in ran.out
    ran = run("sweep", "-", "--set", "n_layer=1,2,3", "--metric", "total_params", "--csv", stdin=config.encode())
    assert ran.code == 0 and len(ran.out.splitlines()) == 1 + 3


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1k", [1024]),
        ("1k..8k", [1024, 2048, 4096, 8192]),
        ("3..20", [3, 6, 12, 20]),  # the end is always one of them
        ("5..5", [5]),
        ("1..7:2", [1, 3, 5, 7]),
        ("1..8:3", [1, 4, 7]),
        ("1k,4k..16k,7", [1024, 4096, 8192, 16384, 7]),
        ("1,024", [1024]),
    ],
)
def test_values(text: str, values: list[int]) -> None:
    found = read_values("--ctx", text)
    assert list(found) == values and len(found) == len(values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8k..1k", "is a descending range"),
        ("1k..", "whole number"),
        ("1k...4k", "whole number"),
        ("0..4", "at least 1"),
        ("0", "at least 1"),
        ("1..5:0", "the step must be at least 1"),
        ("", "whole number"),
        ("1,,2", "whole number"),
    ],
)
def test_values_that_make_no_sense(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_values("--ctx", text)


def test_a_range_is_counted_before_it_is_made(run) -> None:
    for arguments, words in [
        ("--ctx 1..1000000000:1 --batch 1,2", "makes 1,000,000,000 values; the maximum is 20,000"),
        ("--ctx 1..20001:1", "makes 20,001 values; the maximum is 20,000"),
        ("--ctx 1..20000:1,1..20000:1", "makes 40,000 points: at most 20,000"),
        ("--ctx 1..7000:1 --batch 1..3:1", "makes 21,000 points: at most 20,000"),
        ("--batch 1..200:1 --set n_layer=1..101:1", "makes 20,200 points: at most 20,000"),
        ("--set n_layer=1..200:1 --set n_head=1..50:1 --set n_inner=1..10:1", "makes 100,000 points"),
        (f"--set n_layer={','.join(['1..20000:1'] * 9000)}", "--set n_layer has 180,000,000 values"),
    ]:
        tracemalloc.start()
        ran = run("sweep", "gpt2", *arguments.split())
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (ran.code, ran.out) == (2, "") and words in ran.err and "Model.evaluate" in ran.err
        assert most < 16_000_000, "bytes: a million values take more"
    with pytest.raises(UsageError, match="has 1,000,000,000 values; the maximum is 20,000"):
        load("gpt2").sweep(ctx=range(1, 10**9 + 1))
    with pytest.raises(UsageError, match="has 1,000,000,000 values; the maximum is 20,000"):
        load("gpt2").kv(ctx=range(1, 10**9 + 1))


def test_as_many_points_as_there_may_be(run) -> None:
    ran = run("sweep", "gpt2", "--ctx", "1..20000:1", "--metric", "kv_cache_bytes", "--csv")
    assert ran.code == 0 and len(ran.out.splitlines()) == MOST + 1
    assert ran.out.splitlines()[-1] == f"20000,{2 * 12 * 768 * 2 * 20_000}"


def test_every_combination_is_what_the_commands_say(run) -> None:
    metrics = "total_flops,flops_per_token,total_bytes,share.attn.scores,total_params"
    ran = run(
        "sweep", "llama-3.2-1b", "qwen2-0.5b", "--ctx", "100,1k..4k", "--batch", "1,3", "--set",
        "num_key_value_heads=1,2", "--metric", metrics, "--dtype", "fp32", "--json",
    )  # fmt: skip
    document = ran.document
    assert [model["model"] for model in document["models"]] == ["llama-3.2-1b", "qwen2-0.5b"]
    for model in document["models"]:
        lines = model["lines"]
        knobs = [(line["num_key_value_heads"], line["ctx"], line["batch"]) for line in lines]
        assert knobs == list(product((1, 2), (100, 1024, 2048, 4096), (1, 3)))
        for line in lines:
            asked = load(model["model"], num_key_value_heads=line["num_key_value_heads"])
            work = {"ctx": line["ctx"], "batch": line["batch"]}
            flops = asked.flops(**work)
            scores = next(each["flops"] for each in flops.lines if each["path"].endswith("scores"))
            assert line["total_flops"] == flops.total
            assert line["flops_per_token"] == flops.total / (line["ctx"] * line["batch"])
            assert line["total_bytes"] == asked.memory(**work, dtype="fp32").total
            assert line["share.attn.scores"] == pytest.approx(scores / flops.total, rel=1e-15)
            assert line["total_params"] == asked.params().total


@pytest.mark.parametrize("tokens", [None, 7])
@pytest.mark.parametrize("dtype", ["bf16", "int4"])
def test_many_points_are_the_same_numbers(tokens: int | None, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through arrays of whole numbers, and one by one where there is no numpy."""
    pytest.importorskip("numpy")
    metrics = [*METRICS, "share.attn.scores", "flops.mlp"]
    grid = Grid(read_values("--ctx", "7..40:3"), (1, 3, 10**9))
    request, terms = Request(tokens=tokens), Counting(dtype, "int4")
    once = [sweep(lambda name, _: tiny(name), ["llama"], grid, metrics=metrics, request=request, terms=terms)]
    monkeypatch.setattr("tfacct.reports.sweep.MANY", 1)
    once.append(sweep(lambda name, _: tiny(name), ["llama"], grid, metrics=metrics, request=request, terms=terms))
    assert once[0].models == once[1].models and once[0].cells == once[1].cells
    line = once[1].cells[-1]
    assert type(line["total_flops"]) is int and type(line["share.attn.scores"]) is Fraction


def test_two_models_may_share_a_name(tmp_path, run) -> None:
    files = []
    for folder, layers in (("a", 2), ("b", 3)):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "m.json")
        config = {"model_type": "gpt2", "vocab_size": 10, "n_embd": 4, "n_layer": layers, "n_head": 2}
        files[-1].write_text(json.dumps(config | ({"funny": 7} if folder == "b" else {})))
    ran = run("compare", "--by", "line", *map(str, files), "--ctx", "5")
    assert ran.code == 0 and "+50.0%" in ran.out and "funny" in ran.err
    old, new = (load(json.loads(file.read_text())) for file in files)
    assert old.diff(new, ctx=5).models[0]["lines"][0]["delta"] > 0


def test_a_default_that_follows_a_changed_field_is_named(run) -> None:
    """GPT-2's MLP is 4 × as wide as its hidden size: 4 · 768 = 3,072 and 4 · 1,536 = 6,144."""
    (facts,) = run("compare", "--by", "line", "gpt2", "--set", "n_embd=1536", "--json").models
    assert "n_inner changes too, 3,072 → 6,144: the config does not set it." in facts["notes"]
    follows = "not follow the new hidden size, because the config sets"
    assert f"n_head 12 does {follows} it; add --set n_head=24 to scale it too." in facts["notes"]
    scaled = "add num_attention_heads=64, num_key_value_heads=16 to scale them too."
    heads = f"num_attention_heads 32, num_key_value_heads 8 do {follows} them"
    wide = load("llama-3.1-8b").diff(hidden_size=8192, intermediate_size=28672).models[0]["notes"]
    assert f"{heads}; {scaled}" in wide
    odd = load("gpt2").diff(n_embd=780).models[0]["notes"]  # 12 · 780 / 768 heads are not whole
    assert f"n_head 12 does {follows} it." in odd
    assert not any(follows in note for note in load("gpt2").diff(n_layer=24).models[0]["notes"])
    for words in ("memory", "sweep --ctx 1k,2k"):
        ran = run(*words.split(), "llama-3.1-8b", "--set", "hidden_size=8192", "intermediate_size=28672")
        assert f"hint: {heads}; add --set num_attention_heads=64" in ran.err
    assert "Defaults (not in the config): tie_word_embeddings = true" in facts["notes"]
    two = run("sweep", "gpt2", "gpt2-medium", "--ctx", "512,1k", "--metric", "kv_cache_bytes").out_line
    assert "kv_cache_bytes: from 18.0 MiB (gpt2, ctx 512) to 96.0 MiB (gpt2-medium, ctx 1,024)." in two
    total = load("gpt2", n_layer=24, n_embd=1536).params().total
    assert f"{total:,} parameters" in run("params", "gpt2", "--set", "n_layer=24,n_embd=1536").out
    swept = run("sweep", "gpt2", "--set", "n_embd=768,1536", "--metric", "total_params").out
    assert "n_inner" not in swept and "tie_word_embeddings = true" in swept


def test_each_side_of_a_diff_has_its_dtypes(run) -> None:
    ran = run("compare", "--by", "line", "llama-3.1-8b", "--dtype", "fp16,fp32", "--ctx", "8k", "--json")
    (facts,) = ran.models
    assert [(facts[side]["workload"]["dtype"], facts[side]["kv_dtype"]) for side in ("old_side", "new_side")] == [
        ("fp16", "fp16"), ("fp32", "fp32"),
    ]  # fmt: skip
    found = facts["totals"]
    assert found["weights_bytes"]["new"] == 2 * found["weights_bytes"]["old"]
    assert found["kv_cache_bytes"]["new"] == 2 * found["kv_cache_bytes"]["old"]
    report = load("llama-3.1-8b").diff(dtype="fp16", to_dtype="fp32", ctx=8192)
    assert ran.document == report.document()
    assert report.title == "llama-3.1-8b, context 8,192, batch 1; weights fp16 → fp32, KV cache fp16 → fp32"
    assert len(load("llama-3.1-8b").diff(to_dtype="fp32", all=True).rows) == 28
    assert run("compare", "--by", "line", "gpt2", "--dtype", "bf16,bfloat16").code == 2  # the same by another name


def test_a_sweep_shows_the_cache_if_a_field_changes_it() -> None:
    """llama-3.1-8b at 8,192: 2 · 32 layers · K · 128 · 2 bytes a token."""
    llama = load("llama-3.1-8b")
    rows = llama.sweep(ctx=[8192], num_key_value_heads=[1, 8]).rows
    assert {row["num_key_value_heads"]: row["kv_cache_bytes"] for row in rows} == {1: 8192 * 16_384, 8: 8192 * 131_072}
    for fields in ({"intermediate_size": [64, 128]}, {"ctx": [64, 128]}):
        assert "kv_cache_bytes" not in llama.sweep(**fields).rows[0]
    shares = llama.sweep("share.mlp", "flops.mlp", "share.attn_scores_values", ctx=[64, 128])
    assert [column.label for column in shares.columns[:4]] == ["ctx", "mlp share", "mlp FLOPs", "scores + values share"]


def test_impossible_combinations_are_skipped_and_named(run) -> None:
    """32 query heads share neither 3 nor 9 key heads; nine new tokens do not end at a context of four."""
    asked = ("sweep", "llama-3.1-8b", "--set", "num_key_value_heads=1,3,8,9", "--metric", "total_params")
    ran = run(*asked, "--json")
    facts = ran.models[0]
    assert [line["num_key_value_heads"] for line in facts["lines"]] == [1, 8]
    assert [one["num_key_value_heads"] for one in facts["skipped"]] == [3, 9]
    assert facts["skipped"][0]["why"].endswith("num_key_value_heads=3 must divide num_attention_heads=32 (try 2 or 4)")
    out = run(*asked).out_line
    assert "Skipped as impossible: num_key_value_heads 3 (num_key_value_heads=3 must divide" in out
    (facts,) = run("sweep", "gpt2", "--tokens", "9", "--ctx", "4..16", "--json").models
    assert [line["ctx"] for line in facts["lines"]] == [16]
    assert facts["skipped"] == [{"ctx": ctx, "why": "fewer than 9 new tokens"} for ctx in (4, 8)]
    ran = run("sweep", "gpt2", "bert-base", "--ctx", "16", "--decode", "--json")
    document = ran.document
    assert [model["model"] for model in document["models"]] == ["gpt2"]
    assert [model["model"] for model in document["models_skipped"]] == ["bert-base"] and "bert-base" in ran.err
    ran = run(
        "sweep", "llama-3.1-8b", "mamba-130m", "--set", "num_hidden_layers=0,2", "--metric", "total_params", "--csv"
    )
    assert [row.split(",")[:2] for row in ran.out.splitlines()[1:]] == [["llama-3.1-8b", "2"], ["mamba-130m", "2"]]


def test_zipped_fields_vary_together(run) -> None:
    """GPT-2 small and medium's widths with their heads; each layer has 12·D² + 13·D parameters."""
    zipped = ("--zip", "n_embd=768,1024", "--zip", "n_head=12,16")
    ran = run("sweep", "gpt2", *zipped, "--set", "n_layer=12,24", "--metric", "total_params", "--json")
    (facts,) = ran.models
    rows = [(line["n_layer"], line["n_embd"], line["n_head"], line["total_params"]) for line in facts["lines"]]
    assert rows == [
        (layers, width, heads, layers * (12 * width**2 + 13 * width) + (50257 + 1024 + 2) * width)
        for layers in (12, 24)
        for width, heads in ((768, 12), (1024, 16))
    ]
    asked = load("gpt2").sweep("total_params", n_layer=[12, 24], zip={"n_embd": [768, 1024], "n_head": "12,16"})
    assert asked.document() == ran.document


def test_recipes_of_training_are_swept(run) -> None:
    """Every combination is a row with the peak of `train`, with a layout too; the recipe is of no model."""
    model = load("llama-3.1-8b")
    for layout in ({}, {"tp": 2, "fsdp": 4}):
        found = model.sweep(recompute="none,full", optimizer="adamw,sgd", ctx=[2048], **layout)
        rows = [(row["recompute"], row["optimizer"], row["peak_bytes"]) for row in found.lines]
        assert rows == [
            (again, optimizer, model.train(ctx=2048, recompute=again, optimizer=optimizer, **layout).peak_bytes)
            for again in ("none", "full")
            for optimizer in ("adamw", "sgd")
        ]
        assert found.models[0]["recompute"] is None and found.models[0]["loss"] == "whole"
    assert run("sweep", "gpt2", "--lora", "4,8:c_attn", "--ctx", "64").code == 0
