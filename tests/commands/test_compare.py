"""`compare`: every number equals that of `params`, `memory` and `flops`. Kind: law, output."""

from typing import Any

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.output.report import Report

NAMES = ("llama-3.1-8b", "mixtral-8x7b", "gemma-3-27b-text", "deepseek-v3", "mamba-130m", "t5-small", "bert-base")
CTX = 512


def compared(*names: str, fit: str | None = None, metrics: tuple[str, ...] = (), **lists: Any) -> Report:
    keys = {"contexts": "ctx", "dtypes": "dtype", "kv_dtypes": "kv_dtype"}
    first, *others = names
    given: Any = {keys[name]: values for name, values in lists.items()}
    return load(first).compare(*others, metric=list(metrics), on=fit, by="model", **given)


def test_numbers_are_those_of_the_other_commands() -> None:
    for name, found in zip(NAMES, compared(*NAMES, contexts=[CTX], fit="h100").models, strict=True):
        model = load(name)
        decodes = name != "bert-base"
        (memory,) = model.memory(ctx=CTX, on="1xh100-sxm").models
        cache = model.kv(ctx=CTX).models[0] if decodes else {"kv_bytes_per_token": 0, "kv_cache_bytes": 0}
        assert found["model"] == name
        assert found["total_params"] == model.params().total
        assert found["active_params"] == model.params().models[0]["active_params"]
        assert found["weights_bytes"] == memory["weights_bytes"]
        assert found["prefill_flops"] == model.flops(ctx=CTX).total
        assert found["flops_per_new_token"] == (model.flops(ctx=CTX, decode=True).total if decodes else None)
        assert all(found[key] == cache[key] for key in ("kv_bytes_per_token", "kv_cache_bytes"))
        assert found["fits"] == memory["fit"]["fits"]
        assert found["requests"] == memory["fit"]["largest_batch"]


def test_answer_and_table() -> None:
    """30,532,122,624 over 8,030,261,248 parameters are 3.80; 12.48 over 19.27 GFLOPs per new token are 0.648."""
    report = compared("llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b", contexts=[8192], fit="h100")
    assert report.answer == "qwen3-30b-a3b has 3.8 × the parameters of llama-3.1-8b and 0.65 × its decode FLOPs."
    assert [column.label for column in report.columns] == ["", "llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b"]
    table = {row["what"]: [column.text(row[column.key]) for column in report.columns[1:]] for row in report.cells}
    assert table["parameters"] == ["8.03 B", "8.19 B", "30.5 B"]
    assert table["requests of 8,192 on H100 SXM5 80GB"] == ["54", "48", "16"]
    assert table["KV cache of 8,192 tokens"] == ["1.00 GiB", "1.12 GiB", "768 MiB"]  # 128, 144, 96 KiB a token
    assert table["FLOPs per new token at 8,192"] == ["19.3 G", "20.0 G", "12.5 G"]
    assert [row["requests"] for row in report.rows] == [54, 48, 16]
    many = compared(*NAMES, contexts=[CTX])
    assert [row["label"] for row in many.cells] == list(NAMES)


def test_all_pairs_are_counted_where_the_visible_ones_cannot_be() -> None:
    """20 layers, 16 heads of 128, 8,192 keys: scores and values are 2 · 2 · 20 · 16 · 128 · 8,192 FLOPs."""
    report = compared("llada-2.0-mini", "qwen3-8b", contexts=[8192])
    table = {row["what"]: row["0"] for row in report.cells}
    products = report.models[0]["flops_per_new_token"] - 4 * 20 * 16 * 128 * 8192
    assert products == load("llada-2.0-mini").flops(ctx=1, decode=True).total - 4 * 20 * 16 * 128
    assert table["FLOPs per new token at 8,192"].value == report.models[0]["flops_per_new_token"]
    assert not any("attends to fewer" in note for note in report.notes)


def test_a_training_step_fits_as_in_train(run) -> None:
    """106 and 91.2 GiB of AdamW do not fit 77.3 GiB, the 60.7 GiB of full recomputation do."""
    words = ("--ctx", "8k", "--on", "h100")
    ran = run("compare", "llama-3.1-8b", "--train", "--recompute", "none,full", *words)
    row = next(line for line in ran.out.splitlines() if line.startswith(" fits on H100 SXM5 80GB"))
    assert row.split()[-2:] == ["no", "yes"]
    sides = run("compare", "llama-3.1-8b", "--train", "--recompute", "none,full", *words, "--json").document
    step = load("llama-3.1-8b").train
    for side, recompute in zip(sides["models"], ("none", "full"), strict=True):
        assert side["fits"] is step(ctx="8k", on="h100", recompute=recompute).fit["fits"]


def test_lists_give_a_side_each() -> None:
    """llama-3.1-8b in a cache of 8 bits takes half: 2 · 32 · 8 · 128 bytes per token are 64 KiB."""
    by_context = compared("gemma-3-27b-text", contexts=[8192, 65536])
    assert [column.label for column in by_context.columns[1:]] == ["8,192 tokens", "65,536 tokens"]
    assert by_context.answer.startswith("65,536 tokens: 15 × the prefill FLOPs of 8,192 tokens and 5.2 × its KV cache")
    by_cache = compared("llama-3.1-8b", contexts=[512], kv_dtypes=[None, "fp8"], metrics=("share.attn",))
    assert by_cache.answer == "KV bf16: 2 × the KV cache per token of KV fp8."
    assert [found["kv_bytes_per_token"] for found in by_cache.models] == [131_072, 65_536]
    attention = load("llama-3.1-8b").evaluate("share.attn", ctx=512)
    assert by_cache.models[0]["metric_values"]["share.attn"] == pytest.approx(float(attention))


def test_metric_with_the_name_of_a_measure() -> None:
    """It replaces the row of one request: 2 keys and values · 2 requests · 12 layers · 768
    elements · 2 bytes · 512 tokens are 37,748,736."""
    report = load("gpt2").compare("gpt2-xl", ctx=512, batch=2, metric=["kv_cache_bytes,total_params"], dtype="bf16")
    first, _ = report.rows
    assert list(first)[-4:-2] == ["kv_cache_bytes", "total_params"]
    assert (first["kv_cache_bytes"], first["total_params"]) == (37_748_736, 124_439_808)
    assert report.to_csv().count("kv_cache_bytes") == 1
    assert report.models[0]["kv_cache_bytes"] == 37_748_736 / 2


def test_devices_that_do_not_divide_a_model() -> None:
    """Three devices do not divide 32 heads: the other numbers are printed, with the reason."""
    report = compared("llama-3.1-8b", "qwen3-8b", contexts=[512], fit="3xh100")
    assert [found["requests"] for found in report.models] == [None, None]
    assert report.notes[0].startswith("llama-3.1-8b, qwen3-8b: 3 devices do not divide the 32 query heads")


def test_command_line(run: Run) -> None:
    """A list gives a column per value; a change of fields, or --by line, compares two models line by line."""
    ran = run("compare", "llama-3.1-8b", "--ctx", "8k,64k", "--on", "h100", "--json")
    assert [found["context"] for found in ran.models] == [8192, 65536]
    changed = run("compare", "gpt2", "--set", "n_layer=6", "--ctx", "64")
    assert changed.out.splitlines()[1] == "gpt2 → gpt2 (n_layer=6), context 64, batch 1"
    lines = run("compare", "gpt2", "--ctx", "48,96", "--by", "line", "--json").models[0]["lines"]
    assert lines[0]["path"] == "blocks.*.attn.q_proj" and lines[0]["new"] == 2 * lines[0]["old"]
    columns = run(
        "compare", "gpt2", "--set", "n_layer=6", "--by", "model", "--metric", "share.attn,total_flops", "--csv"
    )
    assert columns.out.startswith("label,total_params,") and "share.attn,total_flops" in columns.out.splitlines()[0]


def test_models_are_compared_at_the_longest_context_that_all_have(run: Run) -> None:
    """Llama 3.1 has 131,072 tokens of context and OLMoE 4,096."""
    default, given = (
        run("compare", "llama-3.1-8b", "olmoe-1b-7b", "-v", *words).out_line for words in ([], ["--ctx", "4k"])
    )
    note = " Context: the longest that all these models were trained for; --ctx S sets another."
    assert note in default and default.replace(note, "") == given
    # 8,030,261,248 over 1,282,017,280 active parameters are 6.26
    assert "llama-3.1-8b has 6.3 × the active parameters of olmoe-1b-7b and " in default
    assert " 2 models, context 4,096 " in default
    images = run("compare", "clip-vit-base-patch32-vision", "vit-base-patch16-224").out  # 49 and 196 patches, a token
    assert "Context:" not in images and ["context", "50", "197"] in [line.split() for line in images.splitlines()]


def test_training_steps_are_compared_by_their_peak(run: Run) -> None:
    recipes = [{"recompute": "none"}, {"recompute": "full"}]
    peaks = [load("llama-3.1-8b").train(ctx="4k", **recipe).peak_bytes for recipe in recipes]
    ran = run("compare", "llama-3.1-8b", "--train", "--ctx", "4k", "--recompute", "none,full")
    assert f"recompute none: {peaks[0] / peaks[1]:.2g} × the peak memory of recompute full." in ran.out
    row = next(line for line in ran.out.splitlines() if line.startswith(" peak memory"))
    assert row.split()[2:] == [word for peak in peaks for word in (f"{peak / 2**30:.1f}", "GiB")]
    assert "KV cache" not in ran.out and "prefill" not in ran.out and "gradients" not in ran.out  # they do not change
    rows = {line[1:19].strip(): line[19:].split() for line in ran.out.splitlines()}
    flops = [load("llama-3.1-8b").flops(ctx="4k", train=True, **recipe).total for recipe in recipes]
    assert rows["FLOPs of a step"] == [word for count in flops for word in (f"{count / 1e12:.0f}", "T")]
    assert rows["saved activations"][1] == "GiB"
    chunked = load("gpt2").compare(train=True, ctx="1k", loss=["whole", "chunked"]).models
    each = [side["metric_values"]["step_flops"] for side in chunked]
    assert each[1] - each[0] == 2 * 1024 * 768 * 50257  # the logits are computed again
    states = run("compare", "gpt2", "--ctx", "64", "--optimizer", "adamw,sgd", "--metric", "gradients_bytes").out
    rows = {line[1:18].strip(): line[18:].split() for line in states.splitlines()}
    state = load("gpt2").train(ctx=64).optimizer_bytes
    assert rows["optimizer state"] == [f"{state / 2**20:.0f}", "MiB", "0", "B"]
    assert {"gradients", "≈ peak memory"} <= set(rows)
    alike = run("compare", "gpt2", "--ctx", "64", "--recompute", "none,full").out  # both peak in the optimizer step
    assert "recompute none: 3.3 × the saved activations of recompute full." in alike
    alike = run("compare", "gpt2", "--ctx", "1k", "--recompute", "none,selective").out  # both peak in the loss
    assert "All models have the same peak memory within 0.1%." in alike
    longest = run("compare", "gpt2", "--train", "--optimizer", "adamw,sgd").out
    assert "Context: the longest that the model was trained for; --ctx S sets another." in " ".join(longest.split())
    assert "the peak memory of gpt2." in run("compare", "gpt2", "gpt2-medium", "--train", "--ctx", "64").out


def test_layouts_of_a_training_step(run) -> None:
    """A rank of each, as `train` counts it; the step of eight ranks has eight batches of FLOPs."""
    model = load("llama-3.1-8b")
    sides = model.compare(train=True, ctx="4k", on="8xh100", zero=[1, 3]).models
    alone = [model.train(ctx="4k", on="8xh100", zero=stage) for stage in (1, 3)]
    for side, step in zip(sides, alone, strict=True):
        found = side["metric_values"]
        assert (found["step_weights_bytes"], found["peak_bytes"]) == (step.weights_bytes, step.peak_bytes)
    assert [side["label"] for side in sides] == ["dp=8 zero=1", "fsdp=8"]
    flops = [side["metric_values"]["step_flops"] for side in model.compare(train=True, ctx="4k", fsdp=[1, 8]).models]
    assert flops == [model.flops(ctx="4k", train=True).total * ranks for ranks in (1, 8)]
    asked = ("compare", "llama-3.1-8b", "--ctx", "4k")
    shared = run(*asked, "--on", "8xh100", "--recompute", "none,full").out
    title = "batch 1 on each of 8 ranks (8 per optimizer step), a training step in bf16, one rank of fsdp=8"
    assert title in " ".join(shared.split()) and "FLOPs of a step, all ranks " in shared
    apart = run(*asked, "--train", "--fsdp", "4,8").out_line
    assert "in bf16, one rank of each layout, adamw" in apart
    assert "parameters of the model 8.03 B 8.03 B weights 3.74 GiB 1.87 GiB" in apart  # 16.06 GB by 4 and by 8
    odd = run(*asked, "--train", "--tp", "3,8").out
    assert "Not counted: the training step of tp=3; the note gives the reason." in odd
    assert "--tp 3 does not divide" in odd
    assert "--tp needs --train" in run(*asked, "--tp", "1,2", "--on", "2xh100").err
    assert "--dp needs --by model" in run(*asked, "--train", "--dp", "2,4", "--by", "line").err
