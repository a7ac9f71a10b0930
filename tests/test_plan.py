"""Divisions of devices: which hold a model, in which order, and whether each command gives what its row says."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.conftest import Ran
from tfacct.ledger.workload import Workload
from tfacct.reports import layout_search
from tfacct.training.recipe import Recipe

LLAMA = "llama-3.1-8b"


MESH = ("tp", "sp", "fsdp", "dp", "zero", "pp", "cp", "ulysses")


@pytest.mark.parametrize(
    ("name", "ctx", "every"),
    [(LLAMA, "8k", 5), ("qwen3-0.6b", "16k", 9), ("gpt2", "1k", 3), ("mistral-7b-v0.1", "4k", 5)],
)
def test_every_row_is_what_its_command_says(name: str, ctx: str, every: int) -> None:
    model, budget = tfacct.load(name), 80 * 10**9
    found = model.plan(gpus=16, fit=budget, train=True, ctx=ctx, batch=64, recipe={"recompute": "full"})
    assert found.fitting == len(found.divisions) > 5 and found.fitting + len(found.larger) == found.tried
    for row in (*found.divisions[::every], *found.larger[:2]):
        mesh = {axis: row[axis] for axis in MESH} | {"cp_method": row["cp_method"] or "ring"}
        assert prod(row[axis] for axis in MESH if axis not in ("sp", "zero")) == 16
        assert row["batch"] * row["times"] * row["fsdp"] * row["dp"] == 64
        step = model.train(ctx=ctx, batch=row["batch"], recompute="full", gradient_accumulation=row["times"], **mesh)
        assert step.peak_bytes == row["bytes"], row
        assert (row in found.divisions) == (row["bytes"] <= budget)
        if row["times"] == 1:
            assert step.sent_bytes == row["sent_bytes"]
        elif row["fsdp"] > 1:
            assert row["sent_bytes"] == row["times"] * step.sent_bytes
        more = 2 * row["batch"]
        if row["times"] % 2 == 0 and row in found.divisions:  # twice as many sequences at a time do not fit
            larger = model.train(
                ctx=ctx, batch=more, recompute="full", gradient_accumulation=1 + (row["times"] > 2), **mesh
            )
            assert larger.peak_bytes > budget, row


@pytest.mark.parametrize(
    ("name", "gpus", "fit", "answer"),
    [
        ("nanochat-d20", 8, "80GB", "7 layouts of 8 devices fit in 80 GB; a whole copy on each sends least."),
        ("albert-base-v2", 8, "80GB", "One layout of 8 devices fits in 80 GB; it is a whole copy on each."),
        ("bart-large-mnli", 1, "80GB", "One layout of 1 device fits in 80 GB; it is the whole model."),
    ],
)  # fmt: skip
def test_a_model_that_is_not_divided_is_named_as_whole(name: str, gpus: int, fit: str, answer: str) -> None:
    """ "No layout sends least" would say that none does."""
    assert tfacct.load(name).plan(gpus=gpus, fit=fit).answer == answer


def test_one_head_on_a_rank_keeps_no_copy_under_a_ring() -> None:
    """Two heads among tp 2: a ring's product reads the one head as it is, exchanged heads are copies."""
    fields = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 512}
    model = tfacct.load({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, **fields})
    found = model.plan(gpus=8, fit="80GB", train=True, ctx="8k", batch=8)
    rows = [row for row in found.divisions if row["cp"] * row["ulysses"] > 1]
    assert {(row["tp"], row["cp"], row["ulysses"]) for row in rows} >= {(2, 2, 1), (1, 2, 1), (1, 1, 2)}
    for row in rows:
        mesh = {axis: row[axis] for axis in ("tp", "sp", "pp", "fsdp", "dp", "zero", "cp", "ulysses")}
        step = model.train(ctx="8k", batch=row["batch"], gradient_accumulation=row["times"], **mesh)
        assert step.peak_bytes == row["bytes"], row


@pytest.mark.parametrize(
    ("name", "again"), [("qwen3-30b-a3b", "none"), ("mixtral-8x7b", "none"), ("mixtral-8x7b", "full")]
)
def test_whole_experts_among_ranks_of_fsdp(name: str, again: Any) -> None:
    """Each of the ranks has as many of 8, or of 128; groups of tp stay whole."""
    model = tfacct.load(name)
    found = model.plan(gpus=8, fit="80GB", train=True, ctx="2k", batch=8, recipe={"recompute": again})
    rows = [row for row in (*found.divisions, *found.larger) if row["ep"] > 1 and row["fsdp"] > 1]
    assert {(row["tp"], row["fsdp"], row["ep"]) for row in rows} == {
        *((1, 8, ep) for ep in (2, 4, 8)), *((2, 4, ep) for ep in (2, 4, 8)), *((4, 2, ep) for ep in (4, 8)),
    }  # fmt: skip
    for row in rows:
        mesh = {axis: row[axis] for axis in ("tp", "fsdp", "ep")}
        step = model.train(ctx="2k", batch=row["batch"], gradient_accumulation=row["times"], recompute=again, **mesh)
        assert (step.peak_bytes, row["times"] * step.sent_bytes) == (row["bytes"], row["sent_bytes"])
        assert f"--ep {row['ep']}" in row["command"]


@pytest.mark.parametrize(("name", "again"), [("mixtral-8x7b", "none"), ("qwen3-30b-a3b", "full")])
def test_whole_experts_among_copies_and_in_stages(name: str, again: Any) -> None:
    model = tfacct.load(name)
    found = model.plan(gpus=8, fit="80GB", train=True, ctx="2k", batch=8, recipe={"recompute": again})
    rows = [row for row in (*found.divisions, *found.larger) if row["ep"] > 1 and row["fsdp"] == 1]
    axes = ("tp", "pp", "ep", "dp", "zero")
    said = {tuple(row[axis] for axis in axes) for row in rows}
    assert said >= {(1, 1, 8, 8, 0), (1, 1, 4, 8, 2), (1, 2, 4, 4, 1), (2, 2, 4, 2, 0), (2, 4, 2, 1, 0)}
    for row in rows[:: 1 if again == "none" else 5]:
        mesh = {axis: row[axis] for axis in axes}
        step = model.train(ctx="2k", batch=row["batch"], gradient_accumulation=row["times"], recompute=again, **mesh)
        assert step.peak_bytes == row["bytes"], row
        assert step.sent_bytes == row["sent_bytes"] or row["times"] > 1, row
        assert f"--ep {row['ep']}" in row["command"]


def test_deepseek_fits_as_it_was_trained() -> None:
    asked = {"gpus": 2048, "fit": "80GB", "train": True, "ctx": "4k", "batch": 15360}
    found = tfacct.load("deepseek-v3").plan(recipe={"recompute": "full"}, **asked)
    assert any((row["pp"], row["ep"], row["dp"], row["zero"]) == (16, 64, 128, 1) for row in found.divisions)


def test_stages_of_other_blocks_are_not_passed_over() -> None:
    """The second stage has experts alone, the first one dense blocks too, and more in flight."""
    model, mesh = tfacct.load("glm-4.5"), {"pp": 4, "dp": 8, "cp": 2}
    found = model.plan(gpus=64, fit=80 * 10**9, train=True, ctx="8k", batch=512)
    rows = (*found.divisions, *found.larger)
    (row,) = (
        one for one in rows if all(one[axis] == mesh.get(axis, 1) for axis in ("tp", "ep", *mesh)) and not one["zero"]
    )
    assert row["bytes"] == model.train(ctx="8k", batch=row["batch"], **mesh).peak_bytes


def test_parts_of_sequences_stand_beside_stages_and_heads() -> None:
    found = tfacct.load(LLAMA).plan(gpus=64, fit="80GB", train=True, ctx="64k", batch=8, recipe={"recompute": "full"})
    rows = [*found.divisions, *found.larger]
    assert any(row["pp"] > 1 and row["cp"] > 1 for row in rows)
    assert any(row["ulysses"] > 1 and row["cp"] == 1 for row in rows)
    both = [row for row in rows if row["ulysses"] > 1 and row["cp"] > 1]
    # Eight key/value heads: as many of them as tp leaves divide tokens, and keys go round among the rest.
    assert both and all(row["ulysses"] * row["tp"] == 8 for row in both)
    assert all(65_536 // (row["cp"] * row["ulysses"]) >= 2048 for row in rows)
    assert f"--ulysses {both[0]['ulysses']}" in both[0]["command"]


def test_experts_that_serve() -> None:
    """By hand: of mixtral-8x7b eight copies have an expert of each block, and all else."""
    found = tfacct.load("mixtral-8x7b").plan(gpus=8, fit="24GB", ctx="2k", batch=64)
    row = next(row for row in found.divisions if (row["tp"], row["pp"], row["ep"]) == (1, 1, 8))
    weights = 46_702_792_704 - 7 * 32 * 3 * 4096 * 14336
    assert row["bytes"] == 2 * weights + 8 * 2048 * 32 * 2 * 8 * 128 * 2 and (row["batch"], row["dp"]) == (8, 8)
    # Of 8 new tokens 2 rows each go to experts and come back, and numbers of them first; a rank sends 7 of 8 shares.
    assert row["sent_bytes"] == 32 * 7 * (2 * 8 * 2 * 4096 * 2 + 8 * 8) // 8
    assert row["command"].endswith("--ep 8 --batch 8")


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "mamba-130m", "gemma-3-1b"])
def test_every_row_of_serving_is_what_its_command_says(name: str) -> None:
    model = tfacct.load(name)
    found = model.plan(gpus=8, fit="80GB", ctx="2k", batch=64)
    for row in (*found.divisions, *found.larger):
        mesh = {axis: row[axis] for axis in ("tp", "pp", "ep")}
        held = model.memory(ctx="2k", batch=row["batch"], **mesh)
        assert held.total_bytes == row["bytes"] and row["tp"] * row["pp"] * row["dp"] == 8
        if row["tp"] * row["pp"] * row["ep"] > 1:
            sent = model.comms(ctx="2k", batch=row["batch"], **mesh, decode=True).sent_bytes
            assert sent == row["sent_bytes"], row


def test_as_many_sequences_at_a_time_as_fit() -> None:
    model = tfacct.load(LLAMA)
    found = model.plan(gpus=8, fit="80GB", train=True, ctx="8k", batch=64, recipe={"recompute": "full"})
    row = next(row for row in found.divisions if row["fsdp"] == 8)
    again = model.train(
        ctx="8k", batch=2 * row["batch"], recompute="full", gradient_accumulation=1 + (row["times"] > 2), fsdp=8
    )
    assert row["times"] > 1 and again.peak_bytes > 80 * 10**9


def test_the_least_sent_comes_first() -> None:
    found = tfacct.load("llama-3.1-70b").plan(gpus=64, fit="80GB", train=True, ctx="8k", batch=512)
    sent = [row["sent_bytes"] for row in found.divisions]
    assert sent == sorted(sent) and found.fitting + len(found.larger) == found.tried


@pytest.mark.parametrize("more", ["--train --recompute full --weights fp32", ""])
def test_a_command_runs(run: Callable[..., Ran], more: str) -> None:
    asked = ["plan", LLAMA, "--gpus", "4", "--fit", "80GB", "--ctx", "4k", "--batch", "8", *more.split()]
    found = tfacct.load(LLAMA)
    recipe: dict[str, Any] = {"recompute": "full", "weights_dtype": "fp32"} if more else {}
    row = found.plan(gpus=4, fit="80GB", ctx="4k", batch=8, train=bool(more), recipe=recipe).divisions[0]
    program, *words = shlex.split(row["command"])
    ran = run(*words)
    assert program == "tfacct" and ran.code == 0, ran.err
    assert " ".join(row["command"].split()) in " ".join(run(*asked).out.split())


def test_serving_by_hand() -> None:
    found = tfacct.load("llama-3.1-70b").plan(gpus=8, fit="80GB", ctx="8k", batch=64)
    alone = [row for row in found.divisions if row["pp"] == 1]
    assert [(row["tp"], row["dp"], row["batch"]) for row in alone] == [(4, 2, 32), (8, 1, 64)]
    # Four ranks: 161 norms of 8,192 on each, a quarter of the rest; two key/value heads of 32 sequences.
    norms = 161 * 8192
    weights = 2 * ((70_553_706_496 - norms) // 4 + norms)
    assert alone[0]["bytes"] == weights + 2 * 80 * 8192 * 2 * 128 * 2 * 32
    # 161 all-reduces of 32 tokens, of which a ring of 4 sends 3 of 4 shares twice.
    assert alone[0]["sent_bytes"] == 161 * 2 * 3 * (32 * 8192 * 2) // 4


def test_stages_that_serve_by_hand() -> None:
    found = tfacct.load("llama-3.1-70b").plan(gpus=8, fit="80GB", ctx="8k", batch=64)
    row = next(row for row in found.divisions if row["pp"] == 8)
    # Ten blocks of 855,654,400 parameters, the table or the head beside them, and a cache of 64 sequences; the last
    # norm is on the last stage.
    weights = 2 * (10 * 855_654_400 + 128_256 * 8192 + 8192)
    assert row["bytes"] == weights + 10 * 2 * 8192 * 8 * 128 * 2 * 64
    assert row["sent_bytes"] == 64 * 8192 * 2  # one token of each, to the next stage
    assert "--pp 8" in row["command"]


def test_where_nothing_fits_the_nearest_is_said(run: Callable[..., Ran]) -> None:
    asked = ("plan", "llama-3.1-405b", "--fit", "80GB", "--ctx", "8k", "--batch", "8")
    words = " ".join(run(*asked, "--gpus", "8").out.split())
    assert "None of 10 layouts of 8 devices fits in 80 GB: the nearest, --" in words
    one = " ".join(run(*asked, "--gpus", "1").out.split())
    assert "The one layout of 1 device, the whole model, needs" in one and "more than 80 GB" in one, one


def test_layouts_that_do_not_fit_are_in_order_and_what_they_send_is_computed_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, whole = list[object](), layout_search.TrainingSearch._sent
    monkeypatch.setattr(layout_search.TrainingSearch, "_sent", lambda self, *one: read.append(one) or whole(self, *one))
    work, recipe = Workload(context=8192, tokens=8192, batch=64), Recipe("bf16").checked()
    tried = layout_search.search_training(tfacct.load("llama-3.1-70b").loaded, recipe, work, 16, 24 * 10**9)
    first = tried.larger[:3]
    assert not tried.fitting and len(tried.shown) == tried.counted and len(read) == 3 < tried.counted
    needs = [one.bytes for one in tried.larger]
    assert [one.bytes for one in first] == needs[:3] and needs == sorted(needs) and min(needs) > 24e9


def test_an_encoder_sends_what_it_reads(run: Callable[..., Ran]) -> None:
    asked = ("plan", "bert-base", "--gpus", "4", "--fit", "8GB", "--ctx", "512", "--batch", "64")
    found = tfacct.load("bert-base").plan(gpus=4, fit="8GB", ctx=512, batch=64)
    sent = {row["pp"]: row["sent_bytes"] for row in found.divisions if row["tp"] == 1}
    assert sent == {1: 0, 2: 32 * 512 * 768 * 2, 4: 64 * 512 * 768 * 2}  # the stream of all tokens, in bf16
    assert "Bytes sent are those of one pass over each sequence." in " ".join(run(*asked).out.split())


def test_the_answer_comes_first(run: Callable[..., Ran]) -> None:
    out = run("plan", "llama-3.1-70b", "--gpus", "64", "--fit", "80GB", "--ctx", "8k", "--batch", "512", "--train").out
    words = " ".join(out.split())
    assert "layouts of 64 devices fit in 80 GB; --" in words
    assert "The first is tfacct train llama-3.1-70b --ctx 8192 --" in words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "albert-base-v2 --gpus 8 --fit 80GB --train --ctx 512 --batch 8",
            "albert-base-v2: no layout of 8 devices is counted",
        ),
        ("bloom-560m --gpus 8 --fit 80GB --train --lora 16 --batch 8", "LoRA on attention with ALiBi"),
        (f"{LLAMA} --gpus 8 --fit 80GB --train --lora 16:nose --batch 8", "'nose' is no linear layer"),
        (
            "mixtral-8x7b --gpus 8 --fit 80GB --train --lora 16 --batch 8",
            "LoRA with experts in a parallel layout is not supported",
        ),
        (f"{LLAMA} --gpus 37 --fit 80GB --train --batch 8", "do not divide a batch of 8"),
        (f"{LLAMA} --gpus 8 --fit 80GB --recompute full", "--recompute goes with --train"),
        (f"{LLAMA} --gpus 8 --fit 80GB --train --kv-dtype fp8", "--train does not go with --kv-dtype"),
        (f"{LLAMA} --gpus 0 --fit 80GB", "--gpus"),
        (f"{LLAMA} --gpus 8 --fit 4xh100-sxm", "--fit 4xh100-sxm names 4 devices, but there are 8 ranks"),
        (f"{LLAMA} --gpus 9999999 --fit 80GB", "--gpus is at most 1,048,576"),
    ],
)
def test_what_is_not_counted_is_refused_by_name(run: Callable[..., Ran], arguments: str, said: str) -> None:
    ran = run("plan", *arguments.split())
    words = " ".join(ran.err.split())
    assert ran.code == 2 and said in words and "Traceback" not in words, words


def test_the_command_of_a_file_and_of_a_field_runs(run: Callable[..., Ran], tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    config = dict(tfacct.load("llama-3.2-1b").loaded.raw)
    (folder / "config.json").write_text(json.dumps(config))
    field = 'rope_scaling={"rope_type": "linear", "factor": 2.0}'
    asked = ["plan", str(folder / "config.json"), "--gpus", "2", "--fit", "10GB", "--ctx", "1k", "--set", field]
    for row in json.loads(run(*asked, "--json").out)["models"][0]["divisions"]:
        ran = run(*shlex.split(row["command"])[1:], "--json")
        assert json.loads(ran.out)["models"][0]["total_bytes"] == row["bytes"]


def test_stages_are_spoken_of_where_there_are_some(run: Callable[..., Ran]) -> None:
    asked = ["--gpus", "8", "--fit", "80GB", "--train", "--batch", "8", "--ctx", "2k"]
    assert "Pipeline stages run one sequence at a time" in " ".join(run("plan", LLAMA, *asked).out.split())
    assert "stages run" not in run("plan", LLAMA, *asked, "--weights", "fp32").out  # autocast: FSDP alone


def test_why_no_division_is_counted(run: Callable[..., Ran]) -> None:
    words = " ".join(run("plan", "gpt2-xl", "--gpus", "64", "--fit", "80GB", "--train").err.split())
    assert "do not divide a batch of 1" in words and "give a multiple of 64: --batch 64" in words
    words = " ".join(run("plan", "albert-base-v2", "--gpus", "37", "--fit", "80GB", "--train").err.split())
    assert "no rule for blocks that share their weights on a mesh" in words  # whatever the batch


def test_the_least_time_comes_first() -> None:
    """Each estimate is that of `tfacct time`, which knows Megatron's divisions and FSDP; others have none: the last."""
    model = tfacct.load(LLAMA)
    asked: dict[str, Any] = {"gpus": 8, "fit": "a100-sxm-80gb", "ctx": "4k", "batch": 64, "train": True}
    found = model.plan(**asked, by="time")
    timed = [row for row in found.divisions if row["seconds"] is not None]
    by_stack = {
        stack: [row["seconds"] for row in timed if row["timed_as"] == stack] for stack in ("FSDP", "Megatron-LM")
    }
    assert [one for seconds in by_stack.values() for one in seconds] == [row["seconds"] for row in timed]
    assert all(seconds and seconds == sorted(seconds) for seconds in by_stack.values())
    assert timed == found.divisions[: len(timed)] != found.divisions
    assert {row["fsdp"] for row in timed} == {1, 8} and not any(row["cp"] * row["ulysses"] > 1 for row in timed)
    assert {row["dp"] for row in timed if row["tp"] * row["pp"] == 1} == {1}
    for row in (timed[0], timed[1], timed[-1]):
        stage = row["pp"] > 1
        step = model.train_time(
            on="8xa100-sxm-80gb", ctx="4k", batch=1 if stage else row["batch"],
            accumulate=row["batch"] if stage else row["times"], tp=row["tp"], sp=row["sp"], pp=row["pp"],
        )  # fmt: skip
        assert step.value_seconds == row["seconds"], row
    same = ("tp", "sp", "fsdp", "dp", "zero", "pp", "cp", "ulysses", "bytes", "sent_bytes")
    plain = model.plan(**asked)
    assert {tuple(row[key] for key in same) for row in plain.divisions} == {
        tuple(row[key] for key in same) for row in found.divisions
    }
    assert {row["seconds"] for row in plain.divisions} == {row["time_command"] for row in plain.divisions} == {None}
    assert f"fastest of {len(timed)} with an estimate: with FSDP --fsdp 8, ≈ " in found.answer
    assert "; with Megatron-LM --tp " in found.answer and "not ranked against each other" in " ".join(found.notes)


def test_the_time_of_a_token(run: Callable[..., Ran]) -> None:
    found = tfacct.load("llama-3.1-70b").plan(gpus=8, fit="h100-sxm", ctx="8k", batch=64, by="time")
    row = found.divisions[0]
    assert (row["tp"], row["pp"]) == (8, 1) and all(one["seconds"] is None for one in found.divisions if one["pp"] > 1)
    program, *words = shlex.split(row["time_command"])
    ran = run(*words, "--json")
    assert program == "tfacct" and json.loads(ran.out)["models"][0]["value_seconds"] == row["seconds"], ran.err
    asked = ("plan", "llama-3.1-70b", "--gpus", "8", "--fit", "h100-sxm", "--ctx", "8k", "--batch", "64")
    out = " ".join(run(*asked, "--by", "time").out.split())
    assert "Its time is tfacct time llama-3.1-70b --on 8xh100-sxm" in out and "no time, no topology" not in out
    assert "389 runs on this device were fitted" in out and "no time, no topology" in " ".join(run(*asked).out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (f"{LLAMA} --fit 80GB", "--by time needs a device: --fit names only bytes"),
        ("mixtral-8x7b --fit h100-sxm --train", "no training step with experts was measured"),
        ("bert-base --fit h100-sxm", "no estimate for an encoder"),
        (f"{LLAMA} --fit h100-sxm --train --lora 16", "no training step with --lora was measured"),
        (f"{LLAMA} --fit h100-sxm --train --recompute attention", "no training step with --recompute attention"),
        (f"{LLAMA} --fit v100-sxm-32gb --train", "v100-sxm-32gb has no bf16 units"),
        ("gpt2 --fit cpu", "cpu was swept with the reference model"),
    ],
)
def test_what_has_no_estimate_is_refused_by_name(run: Callable[..., Ran], arguments: str, said: str) -> None:
    ran = run("plan", *arguments.split(), "--gpus", "8", "--ctx", "512", "--batch", "64", "--by", "time")
    words = " ".join(ran.err.split())
    assert ran.code == 2 and said in words and "Traceback" not in words, words


def test_a_new_token_of_a_decoder_sends_nothing_of_its_source() -> None:
    model = tfacct.load("t5-base")
    (row,) = (row for row in model.plan(gpus=2, fit="8GB").divisions if row["tp"] == 2)
    assert row["sent_bytes"] == model.comms(tp=2).sent_bytes == 37 * 768 * 2
