"""Reports of a training step: their keys, exact figures, and what would run instead of a refused step. Kind:
output, refusal.
"""

import json
from collections import Counter
from typing import Any

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.reports.train import when


def test_the_json_names_saved_tensors_and_their_dtypes() -> None:
    """In bf16 a saved tensor is in bf16, in fp32, a mask or an index; the seed of a kernel has no dtype."""
    step = load("gpt2").train(ctx=32, attention="eager", optimizer="adafactor")
    assert step.dtype == "bf16"
    assert {line["dtype"] for line in step.lines} == {"bf16", "fp32", "bool", "int64"}
    named = {line["path"]: line for line in load("llama-3.2-1b").train(ctx=32).lines}
    down, seed = named["blocks.*.mlp.act"], named["blocks.*.attn.values.seed.0"]
    assert (down["axes"], down["part"], down["count"]) == ("B T F", "MLP", 16)
    assert down["saved_for"] == ["blocks.*.mlp.down_proj.weight"] and down["bytes"] == 16 * 32 * 8192 * 2
    assert seed["dtype"] is None and named["loss.targets"]["dtype"] == "int64"


def test_the_whole_step_next_to_a_rank_of_fsdp_has_fp32_weights() -> None:
    """8,030,261,248 weights, gradients and pairs of AdamW states in fp32, and a step counter of 4 bytes for each of
    32 · 9 + 3 tensors."""
    whole = load("llama-3.1-8b").train(ctx=512, fsdp=8, weights_dtype="fp32").whole
    each = 4 * 8_030_261_248
    assert (whole["weights_bytes"], whole["gradients_bytes"]) == (each, each)
    assert whole["optimizer_bytes"] == 2 * each + 4 * (32 * 9 + 3)


@pytest.mark.parametrize(
    ("line", "key", "enough", "short"),
    [
        ("memory gpt2 --ctx 64", "total_bytes", "free 0 usable", "missing"),
        (
            "memory gpt2 --ctx 64",
            "weights_bytes",
            "weights and 1 request of 64",
            "the weights alone need",
        ),
        ("train gpt2 --ctx 64", "peak_bytes", "Fits tightly in", "Does not fit in"),
        ("train gpt2 --ctx 64 -v", "peak_bytes", "Largest batch: ", "Without any change"),
        ("train gpt2 --ctx 64", "weights_bytes", "Does not fit", "; the weights alone need"),
        ("train gpt2 --ctx 4 --optimizer adafactor-transformers-beta1", "peak_least_bytes", "May not fit", "Does not"),
    ],
)
def test_a_byte_less_than_needed_is_too_little(run: Run, line: str, key: str, enough: str, short: str) -> None:
    needed = run(*line.split(), "--json").models[0][key]
    fits, lacks = (run(*line.split(), "--on", f"{size}B", columns=300).out_line for size in (needed, needed - 1))
    assert enough in fits and short not in fits and short in lacks


def test_experts_on_all_devices_are_a_whole_layout(run: Run) -> None:
    """Devices share what is no expert as they share a model without a layout, by FSDP, or by ZeRO if that is given;
    eight ranks of `ep` alone are eight replicas of it."""
    mixtral = load("mixtral-8x7b")
    for on, layout in {(): {"dp": 8}, ("8xh200",): {"fsdp": 8}, ("8xh200", 1): {"dp": 8, "zero": 1}}.items():
        named = dict(zip(("on", "zero"), on, strict=False))
        assert mixtral.train(ctx=64, ep=8, **named).peak_bytes == mixtral.train(ctx=64, ep=8, **layout).peak_bytes
    wrong = run("train", "mixtral-8x7b", "--ctx", "64", "--ep", "8", "--on", "4xh200")
    assert wrong.code == 2 and "has 4 devices for a layout of 8 ranks" in wrong.err


def test_a_suggested_change_goes_with_the_rest_of_the_recipe() -> None:
    """Adapters in fp32 have no master weights; inputs of layers are offloaded only if these are recomputed."""
    model = load("llama-3.2-1b")
    step = model.train(ctx=64, on="1GiB", master_weights="fp32")
    assert step.fit is not None and {"lora": "16", "adapter_dtype": "bf16"} in [
        one["set"] for one in step.fit["changes"]
    ]
    assert {"lora": "16"} not in [one["set"] for one in step.fit["changes"]]
    offloaded = model.train(ctx=64, recompute="full", offload="activations")
    assert not any("Without --recompute" in note or "Without recompute" in note for note in offloaded.notes)


def test_gradients_have_the_dtype_of_the_trained_weights() -> None:
    """Their bytes are that of 4 or 2 bytes per trained parameter: adapters train in fp32 next to bf16 weights."""
    recipes: list[tuple[dict[str, Any], str, int]] = [
        ({}, "bf16", 2),
        ({"weights_dtype": "fp32"}, "fp32", 4),
        ({"lora": 4}, "fp32", 4),
        ({"lora": 4, "adapter_dtype": "bf16"}, "bf16", 2),
        ({"qlora": True}, "fp32", 4),
    ]
    for recipe, dtype, size in recipes:
        step = load("llama-3.2-1b").train(ctx=24, **recipe)
        trained = step.lora_adapters["params"] if step.lora_adapters else 1_235_814_400
        assert (step.gradient_dtype, step.gradients_bytes) == (dtype, size * trained), recipe


def test_rows_of_several_models_say_which_peaks_are_not_exact(run: Run) -> None:
    """Adafactor's step decides gpt2's peak at 4 tokens, and its temporaries depend on the order of parameters."""
    several = ("train", "gpt2", "llama-3.2-1b", "--ctx", "4", "--optimizer", "adafactor-transformers-beta1")
    printed = run(*several).out
    facts = run(*several, "--json").models
    exact = {each["model"]: each["exact"] for each in facts}
    rows = {line.split()[0]: "≈" in line for line in printed.splitlines() if line.startswith((" gpt2", " llama"))}
    assert rows == {name: not so for name, so in exact.items()} and not all(exact.values())
    assert "≈: within an error bound" in printed and "from ≈" in printed
    assert "≈" not in run("train", "gpt2", "gpt2-medium", "--ctx", "1k").out


@pytest.mark.parametrize(
    ("asked", "instead"),
    [("--pp 2 --lora 8 --schedule zero-bubble", "--schedule 1f1b"), ("--cp 2 --attention eager", "--attention sdpa")],
)
def test_a_refused_recipe_names_a_supported_one(run, asked: str, instead: str) -> None:
    refused = run("train", "llama-3.2-1b", "--ctx", "64", *asked.split())
    assert refused.code == 2 and f"use {instead}" in refused.err
    others, _, _ = asked.rpartition(instead.partition(" ")[0])
    assert run("train", "llama-3.2-1b", "--ctx", "64", *others.split(), *instead.split()).code == 0


def test_a_step_near_the_limit_may_run_out_of_memory(run: Run) -> None:
    """69.0 GiB · 1.17 = 80.7 GiB is above the usable 77.3 GiB. Of two changes with which a step fits, the first leaves
    too little for that, and the second is suggested."""
    close = "It may run out of memory: the CUDA allocator reserved 17–24% more than this count in 4 of 5 runs"
    full = run("train", "llama-3.1-8b", "--ctx", "8k", "--on", H100)
    assert full.out.partition("\n\n")[2].partition("\n\n")[2].replace("\n", " ").startswith(close)
    assert close not in run("train", "llama-3.1-8b", "--ctx", "4k", "--on", H100).out_line
    one = run("train", "llama-3.1-8b", "--ctx", "18k", "--on", "h100", "--json").out
    changes = [change for change in json.loads(one)["models"][0]["fit"]["changes"] if change["fits"]]
    assert [change["set"] for change in changes[:2]] == [
        {"recompute": "full"}, {"recompute": "full", "loss": "chunked"}]  # fmt: skip
    assert 1.17 * changes[1]["peak_bytes"] < 77.3 * 2**30 < 1.17 * changes[0]["peak_bytes"]
    assert "Try --recompute full --loss chunked" in run("train", "llama-3.1-8b", "--ctx", "18k", "--on", "h100").out


def test_16_bit_adapters_are_tried() -> None:
    """fp32 adapters save fp32 copies of their inputs: without them QLoRA's longest context is longer. Trained without
    adapters, a model has no dtype of adapters to change."""
    model = load("llama-3.1-8b")
    tried = [each["set"] for each in model.train(ctx="8k", on="4090").fit["changes"]]
    assert not any("adapter_dtype" in change and "lora" not in change for change in tried)
    longest = max(model.train(ctx="8k", qlora=True, on="4090").fit["changes"], key=lambda each: each["largest_context"])
    assert longest["set"] == {"recompute": "full", "loss": "chunked", "adapter_dtype": "bf16"}
    fits = model.train(ctx=longest["largest_context"], qlora=True, on="4090", **longest["set"]).fit
    assert fits["fits"] and fits["largest_context"] == longest["largest_context"]


def test_changes_are_spelled_for_the_caller(run: Run) -> None:
    """Each as keywords of `train` in Python, and as options on the command line."""
    found = load("llama-3.1-8b").train(ctx="4k", on="24GiB")
    words = [row["set"] for row in found.rows]
    assert "recompute='full' lora='16' adapter_dtype='bf16'" in words and not any("--" in one for one in words)
    table = run("train", "llama-3.1-8b", "--ctx", "4k", "--on", "24GiB").out
    assert "--recompute full --lora 16 --adapters bf16" in table


def test_a_change_is_offered_if_another_rank_then_has_the_peak() -> None:
    """Recomputation moves the peak to the first pipeline rank, whose optimizer state has the embedding too."""
    step = {"tp": 8, "sp": True, "pp": 16, "dp": 128, "zero": 1, "batch": 16, "ctx": "8k"}
    step |= {"schedule": "interleaved", "pp_chunks": 7}
    model = load("llama-3.1-405b")
    changes = {str(one["set"]): one["peak_bytes"] for one in model.train(**step, on="16384xh100-sxm").fit["changes"]}
    assert changes["{'recompute': 'full'}"] == model.train(**step, recompute="full").peak_bytes


def test_changes_without_room_for_the_allocator_are_marked(run: Run) -> None:
    """37.6 GiB · 1/1.17 = 32.1 GiB: no change leaves room, so the lowest peak is suggested. Changes of a step with
    adapters have no column of FLOPs, which are not counted."""
    out = run("train", "qwen2.5-14b", "--lora", "64", "--on", "a100-40gb", "--ctx", "4608").out
    rows = [line.split() for line in out.splitlines() if line.startswith(" --")]
    peaks = {" ".join(row[: row.index("GiB") - 1]): float(row[row.index("GiB") - 1]) for row in rows}
    fitting = {name: peak for name, peak in peaks.items() if peak <= 37.6}
    assert len(fitting) == 2 and min(fitting.values()) > 32.1
    assert [row[-1] == "tightly" for row in rows] == [name in fitting for name in peaks]
    words, lowest = " ".join(out.split()), min(fitting, key=lambda name: fitting[name])
    assert f"Try {lowest} (≈ 32.3 GiB)." in words
    assert "Tightly: the CUDA allocator reserved 17–24% more" in words and "FLOPs" not in words


def test_more_fsdp_ranks_than_experts(run: Run) -> None:
    """A rank of 32 has one of Mixtral's 8 experts in each of 32 layers, 3 · 4,096 · 14,336 parameters, and 1/32 of the
    other 1,605,636,096 parameters, in bf16; a rank of 8 has as much of the experts."""
    note = "FSDP shards by whole experts: it pads 8 to {0}. Each rank stores one and gathers all."
    for ranks, noted in (("8", False), ("32", True)):
        asked = ("train", "mixtral-8x7b", "--ctx", "1k", "--fsdp", ranks)
        weights = run(*asked, "--json").models[0]["weights_bytes"]
        alone = 2 * (32 * 3 * 4096 * 14336 + 1_605_636_096 // int(ranks))
        assert 0 <= weights - alone <= 2 * 32 * 4096  # at most a whole row of each router
        assert (note.format(ranks) in run(*asked).out_line) is noted


def test_layouts_are_among_the_changes_that_fit(run: Run) -> None:
    """Sequence parallelism, ZeRO 1 and recomputation are enough together, none of them alone."""
    layout = "--tp 8 --pp 16 --dp 8 --on 1024xh100 --ctx 8k --micro-batch-size 6 --global-batch-size 1536".split()
    shown = run("train", "llama-3.1-405b", *layout).out
    assert "Try --sp --zero 1 --recompute full (≈ 61.7 GiB)." in shown and "None of these" not in shown
    free = "--tp 8 --pp 4 --dp 2 --on 64xh100 --ctx 8k --batch 8".split()  # 36.4 GiB with --recompute full
    assert "Try --sp --zero 1 (≈ 62.7 GiB)." in run("train", "llama-3.1-70b", *free).out
    changed = run("train", "llama-3.1-405b", *layout, "--json").models[0]["fit"]["changes"]
    assert [change["set"] for change in changed[:2]] == [{"sp": True}, {"zero": 1}]
    assert [change["fits"] for change in changed] == [False] * (len(changed) - 1) + [True]
    fits = run("train", "llama-3.1-405b", *layout, "--sp", "--zero", "1", "--recompute", "full").out_line
    assert "peak ≈ 61.7 of 77.3 GiB" in fits
    both = run("train", "llama-3.1-70b", *"--tp 8 --on 64xh100 --zero 1 --ctx 8k --batch 4".split()).out
    assert "Try --sp --recompute full (" in both  # --recompute full alone, 70.4 GiB, leaves no room in 77.3 GiB


def test_the_largest_batch_is_printed(run: Run) -> None:
    """The peaks of 5 and 6 sequences, 61.8 and 71.1 GiB, times 1.17 are 72.3 and 83.2 GiB; 77.5 GiB is usable. Longer
    sequences than the position embedding do not run."""
    model = load("gpt2-xl")
    peaks = (model.train(dtype="fp32", batch=batch).peak_bytes / 2**30 for batch in (5, 6, 7))
    assert [(1.17 * peak <= 77.5, peak <= 77.5) for peak in peaks] == [(True, True), (False, True), (False, False)]
    shown = run("train", "gpt2-xl", "--dtype", "fp32", "--on", "a100").out_line
    assert "Largest batch: 6 (5 with 17% to spare for the allocator). Longest context at batch 1: 1,024. " in shown


@pytest.mark.parametrize("replicas", [{}, {"dp": 4}, {"dp": 4, "zero": 1}], ids=str)
def test_gradients_of_other_ranks_rows(replicas: dict[str, int]) -> None:
    """torch's embedding has gradients of all 128,256 rows of 4,096 in bf16 on each rank, 7/8 of them of other ranks.
    ZeRO stage 1 shards the optimizer state alone."""
    step = load("llama-3.1-8b").train(ctx="4k", tp=8, **replicas)
    rows = 128_256 * 4096 * 2 * 7 // 8
    assert step.gradients_bytes - step.weights_bytes == rows


H100, CARD = "8xh100-sxm", "rtx-4090"


def test_the_answer_on_devices(run: Run) -> None:
    """69.0 of 77.3 GiB; what lowers the peak most; the time that `tfacct time` estimates; all weights at 80 columns."""
    lines = run("train", "llama-3.1-8b", "--ctx", "8k", "--on", H100, columns=80).out.splitlines()
    assert "Fits tightly on 8 × H100 SXM5 80GB (fsdp=8): peak 69.0 of 77.3 GiB, while computing the loss." in " ".join(
        lines
    )
    head = next(line for line in lines if line.startswith(" GiB on each GPU"))
    assert head.split()[4:] == ["weights", "optimizer", "gradients", "activations", "temp.", "total"]
    less = load("llama-3.1-8b").train(ctx="8k", fsdp=8, recompute="full")
    peak, saved = (size / 2**30 for size in (less.peak_bytes, less.saved_bytes))
    lever = f"--recompute full lowers the peak to {peak:.1f} GiB (saved activations 53.2 → {saved:.2f} GiB)"
    assert f"{lever} for 25% more FLOPs." in " ".join(lines)
    (step,) = run("time", "llama-3.1-8b", "--ctx", "8k", "--train", "--on", H100, "--json").models
    seconds, rate = step["value_seconds"], step["tokens_per_second_each"]
    low, high = step["interval_80_seconds"]
    takes = f"≈ {seconds * 1000:.0f} ms a step (80% interval {low * 1000:.0f} ms … {high:.2f} s)"
    assert f"{takes}: {rate:,.0f} tokens/s per GPU, {step['mfu']:.1%} MFU." in " ".join(lines)
    assert not any(
        " a step" in line for line in run("train", "llama-3.1-8b", "--on", H100, "--lora", "8").out.splitlines()
    )


@pytest.mark.parametrize("recipe", ["--qlora", "--optimizer adamw-8bit"])
def test_devices_have_replicas_of_a_step_that_fsdp_does_not_support(run: Run, recipe: str) -> None:
    asked = ("train", "gpt2", *recipe.split(), "--on", "2xh100", "--json")
    assert run(*asked).document == run(*asked, "--dp", "2").document
    assert "in a sharded layout is not supported" in run(*asked, "--fsdp", "2").err


def test_the_peak_without_recomputation(run: Run) -> None:
    """The same peak as that of a run without the option, in the unit of the answer."""
    asked = ("train", "llama-3.1-8b", "--ctx", "8k")
    without = load("llama-3.1-8b").train(ctx="8k").peak_bytes / 2**30
    for how in ("full", "attention"):
        assert f"\nWithout --recompute {how}, the peak is {without:.0f} GiB." in run(*asked, "--recompute", how).out
    assert "Without --recompute" not in run(*asked).out


def test_the_bytes_that_a_rank_sends_by_axis() -> None:
    """They are the sums of `comms`."""
    model, layout = load("qwen3-30b-a3b"), {"ctx": "4k", "ep": 8, "fsdp": 16}
    over = Counter[str]()
    for row in model.comms(train=True, **layout).collectives:
        over[row["over"]] += row["sent_bytes"]
    words = ", ".join(f"{name} {over[name.split()[-1]] / 2**30:.1f}" for name in ("all-to-all over ep", "over fsdp"))
    assert f"Each rank sends {over.total() / 2**30:.1f} GiB per step ({words})." in model.train(**layout).notes


def test_changes_that_do_not_lower_the_printed_peak_are_left_out(run: Run) -> None:
    asked = ("train", "mixtral-8x7b", "--lora", "64", "--ctx", "2k", "--on", "h100")
    ran = run(*asked, columns=120)
    peak = next(line for line in ran.out.splitlines() if "it needs" in line).split("it needs ")[1].split(",")[0]
    rows = [line for line in ran.out.splitlines() if line.startswith(" --")]
    assert any(row.startswith(" --recompute full  ") for row in rows) and not any(f" {peak} " in row for row in rows)
    assert "--loss chunked" not in {row.split("  ")[0].strip() for row in rows}
    (facts,) = run(*asked, "--json").models
    assert {"loss": "chunked"} in [change["set"] for change in facts["fit"]["changes"]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("layer 3, backward", "in the backward pass of layer 3"),
        ("encoder, layer 0, backward", "in the backward pass of encoder layer 0"),
        ("encoder, final norm, backward", "in the backward pass of the encoder final norm"),
        ("first layer, forward", "in the forward pass of the first layer"),
        ("optimizer step", "during the optimizer step"),
        ("end of forward", "at the end of the forward pass"),
        ("loss, backward", "while computing the loss"),
    ],
)
def test_a_phase_in_a_sentence(name: str, words: str) -> None:
    assert when(name) == words


def test_saved_bytes_of_a_pipeline_rank_are_of_all_micro_batches_in_flight(run: Run) -> None:
    """1F1B: the first of two ranks has two micro-batches in flight."""
    asked = ("--pp", "2", "--batch", "4", "--ctx", "64", "--metric", "saved_bytes", "--train", "--csv")
    saved = int(run("sweep", "gpt2", *asked).out.split(",")[-1])
    assert saved == load("gpt2").train(ctx=64, pp=2, batch=4).saved_bytes
