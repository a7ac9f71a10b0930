"""A training step: saved activations, phases and optimizers. Kind: golden, refusal."""

import json
import re

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.loading import presets
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import reads_images, refusal


def test_the_command(run: Run) -> None:
    ran = run("train", "llama-3.1-8b", "--ctx", "4k")
    lines = ran.out.splitlines()
    assert ran.code == 0
    assert " ".join(lines[:3]).replace("≈ ", "") == (
        "Peak: 75.4 GiB, while computing the loss. llama-3.1-8b: a training step in bf16 (8 bytes per parameter with"
        " optimizer state, 16 with --master-weights fp32), context 4,096, batch 1, adamw"
    )
    csv = run("train", "llama-3.1-8b", "--ctx", "4k", "--csv").out.splitlines()
    assert next(line for line in csv[1:] if line.endswith(",peak")).startswith('"loss, backward"') and len(csv) > 6
    step = load("gpt2").train(ctx=64)
    assert [{**phase, "peak": row["peak"]} for phase, row in zip(step.phases, step.rows, strict=True)] == step.rows
    (facts,) = run("train", "llama-3.1-8b", "--ctx", "4k", "--json").models
    assert facts["peak_bytes"] == max(phase["total_bytes"] for phase in facts["phases"])
    assert facts["saved_bytes"] == sum(line["bytes"] for line in facts["lines"]) == 28_562_244_364
    parts = ("weights_bytes", "optimizer_bytes", "gradients_bytes", "saved_bytes", "temporary_bytes")
    assert all(phase["total_bytes"] == sum(phase[part] for part in parts) for phase in facts["phases"])


def test_what_would_make_it_fit(run: Run) -> None:
    """A context of 4,715 fits 80 GiB, one of 4,716 does not; with recomputed layers 20,560 tokens fit."""
    ran = run("train", "llama-3.1-8b", "--ctx", "8k", "--on", "80GiB", columns=120)
    assert "Does not fit in 80 GiB: it needs 106 GiB." in ran.out.replace("≈ ", "")
    most = "\nWithout any change, largest batch: 0. Longest context at batch 1: 4,715 ("
    roomy = int(ran.out.partition(most)[2].partition(" with 17% to spare")[0].replace(",", ""))
    peaks = (load("llama-3.1-8b").train(ctx=tokens).peak_bytes for tokens in (roomy, roomy + 1))
    assert [1.17 * peak <= 80 * 2**30 for peak in peaks] == [True, False]
    assert "\nTry --loss chunked --recompute full" not in ran.out
    assert "\nTry --recompute full (60.7 GiB)." in ran.out
    row = next(line for line in ran.out.splitlines() if line.startswith(" --recompute full  "))
    assert row.split()[-3:] == ["25.0%", "20,560", "fits"]
    model, budget = load("llama-3.1-8b"), 80 * 1024**3
    assert model.train(ctx=4715).peak_bytes <= budget < model.train(ctx=4716).peak_bytes
    fits = run("train", "llama-3.2-1b", "--ctx", "4k", "--on", "80GiB").out
    assert "Fits in 80 GiB: peak" in fits and "phase" in fits


def test_in_python_too() -> None:
    modern = {"model_type": "modernbert", "hidden_size": 64, "num_attention_heads": 4, "attention_dropout": 0.1}
    with pytest.raises(UsageError, match=r"measured with attention_dropout = 0\.1"):
        load(modern).train(ctx=64)
    with pytest.raises(UsageError, match="eager"):
        load("llama-3.1-8b").train(ctx=64, attention="flash")  # type: ignore[arg-type]
    eager = load("llama-3.1-8b").train(ctx=64, dtype="fp32", attention="eager")
    assert eager.peak_phase and json.dumps(eager.lines)


def test_rows_by_tensor_and_by_part_add_up(run: Run) -> None:
    model = load("qwen3-8b")
    for by in ("tensor", "part"):
        report = model.train(ctx=4096, by=by)
        assert sum(row["bytes"] for row in report.rows) == 34_378_302_316
    assert {row["part"] for row in report.rows} == {"attention", "MLP", "norms", "matmul inputs", "loss", "others"}
    tensors = run("train", "qwen3-8b", "--ctx", "4k", "--by", "tensor", columns=140).out
    row = next(line for line in tensors.splitlines() if line.startswith(" mlp.act "))
    assert row.split()[:5] == ["mlp.act", "B", "T", "F", "bf16"] and row.endswith("  mlp.down_proj")
    narrow = run("train", "qwen3-8b", "--ctx", "4k", "--by", "tensor", columns=80).out
    assert "attn.q_proj, k_proj, v_proj\n" in narrow and "axes" not in narrow.partition("\n\n")[2].partition("\n")[0]
    parts = {line["path"]: line["part"] for line in load("gpt2").train(ctx=64).lines}
    assert parts["blocks.*.attn.v"] == "attention" and parts["blocks.*.attn_add"] == parts["blocks.*.in"] == "norms"


def test_layers_of_several_kinds_share_rows_of_equal_tensors() -> None:
    """Every other of 48 layers has experts: attention has one row with the count 48; gradients differ by kind."""
    mixed = load("qwen3-30b-a3b", decoder_sparse_step=2).train(ctx=64)
    times = {line["path"]: line["count"] for line in mixed.lines}
    assert len(mixed.lines) == len(times) + 1  # other weights read the result of the norm before the MLP
    assert times["blocks.*.attn.values"] == 48
    assert times["blocks.*.mlp.up_proj"] == times["blocks.*.mlp.experts.sent"] == 24
    named = {each["phase"]: each["gradients_bytes"] for each in mixed.phases}
    dense, experts = 3 * 2048 * 6144, 128 * (3 * 2048 * 768 + 2048)  # layer 47 has experts, 46 is dense
    assert named["layer 0, backward"] - named["layer 1, backward"] < 2 * (dense + experts)
    assert named["layer 1, backward"] - named["layer 47, backward"] > 23 * 2 * (dense + experts)


def test_without_a_model_every_admitted_preset_has_a_row(run: Run) -> None:
    """Each with a supported step on text in its class's default recipe, and no other. Presets of images, and those with
    too few positions, are named."""
    ran = run("train", "--ctx", "1k", "--on", "80GiB")
    rows = [line.split()[0] for line in ran.out.splitlines() if line.startswith(" ")][1:]
    models = (presets.load(name) for name in presets.names())
    texts = [ours for ours in models if refusal(ours, Recipe()) is None and not reads_images(ours)]
    counted = [ours.name for ours in texts if not 0 < (ours.position_limit or 0) < 1024]
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 80
    assert sorted(row for row in rows if not row.startswith("─")) == sorted(counted)
    err = ran.err_line
    assert "training supports only images of the config's size" in err
    assert len(counted) < len(texts) and "(the context exceeds the position embedding)" in err
    assert re.search(r"\d+ of \d+ models fit in 80 GiB", ran.out_line)
