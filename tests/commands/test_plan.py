"""`plan`: which layouts fit, their order, and that a row's command gives the row's figures. Kind: law, output,
refusal.
"""

import contextlib
import json
import re
import shlex
from math import prod
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.cli import Run
from tfacct.ledger.workload import Workload
from tfacct.parallel.search import trained
from tfacct.training.layout_search import TrainingSearch
from tfacct.training.recipe import Recipe

LLAMA = "llama-3.1-8b"
PLANS: tuple[Any, ...] = ("torch", "megatron")
MESH = ("tp", "sp", "fsdp", "dp", "zero", "pp", "cp", "ulysses")


def counted(model: tfacct.Model, row: dict[str, Any], **asked: Any) -> dict[str, Any]:
    """Options with which `train` counts the bytes of a row, in memory and sent."""
    axes = {axis: row[axis] for axis in (*MESH, "ep")} | {"cp_method": row["cp_method"] or "ring"}
    given = {"batch": row["batch"], "gradient_accumulation": row["times"], "recompute": row["recompute"]} | axes | asked
    step = model.train(**given)
    assert (step.peak_bytes, step.sent_bytes) == (row["bytes"], row["sent_bytes"]), row
    assert step.mesh["cp_method"] == row["cp_method"] and (row["cp_method"] is None) == (row["cp"] == 1)
    assert step.mesh["schedule"] == ("1f1b" if row["pp"] > 1 else None)
    return given


@pytest.mark.parametrize(
    ("name", "ctx", "every"),
    [(LLAMA, "8k", 9), ("qwen3-0.6b", "16k", 20), ("gpt2", "1k", 7), ("mistral-7b-v0.1", "4k", 9)],
)
def test_train_counts_what_a_row_has(name: str, ctx: str, every: int) -> None:
    model, budget = tfacct.load(name), 80 * 10**9
    found = model.plan(gpus=16, on=budget, train=True, ctx=ctx, batch=64, recompute="full")
    assert found.fitting == len(found.layouts) > 5 and found.fitting + len(found.larger) == found.tried
    for row in (*found.layouts[::every], *found.larger[:2]):
        assert prod(row[axis] for axis in MESH if axis not in ("sp", "zero")) == 16
        assert row["batch"] * row["times"] * row["fsdp"] * row["dp"] == 64
        given = counted(model, row, ctx=ctx)
        assert (row in found.layouts) == (row["bytes"] <= budget)
        # twice as many sequences at a time do not fit
        if row["times"] % 2 == 0 and row["pp"] == 1 and row in found.layouts:
            larger = {**given, "batch": 2 * row["batch"], "gradient_accumulation": 1 + (row["times"] > 2)}
            assert model.train(**larger).peak_bytes > budget, row


def test_one_head_on_a_rank_is_not_copied_under_a_ring() -> None:
    """Two heads with tp=2: a ring's matmul reads the one head as it is, exchanged heads are copies."""
    fields = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 512}
    model = tfacct.load({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, **fields})
    found = model.plan(on="8x80GB", train=True, ctx="8k", batch=8)
    rows = [row for row in found.layouts if row["cp"] * row["ulysses"] > 1]
    assert {(row["tp"], row["cp"], row["ulysses"]) for row in rows} >= {(2, 2, 1), (1, 2, 1), (1, 1, 2)}
    for row in rows:
        counted(model, row, ctx="8k")


@pytest.mark.parametrize(
    ("name", "again"), [("mixtral-8x7b", "none"), ("mixtral-8x7b", "full"), ("qwen3-30b-a3b", "full")]
)
def test_whole_experts_among_ranks_of_fsdp_among_copies_and_in_stages(name: str, again: Any) -> None:
    """Each rank has an equal number of the 8 or 128 experts; groups of tp stay whole."""
    model = tfacct.load(name)
    found = model.plan(on="8x80GB", train=True, ctx="2k", batch=8, recompute=again)
    rows = [*found.layouts, *found.larger]
    assert len({row["command"] for row in rows}) == len(rows)
    rows = [row for row in rows if row["ep"] > 1]
    assert {(row["tp"], row["fsdp"], row["ep"]) for row in rows if row["fsdp"] > 1} == {
        *((1, 8, ep) for ep in (2, 4, 8)), *((2, 4, ep) for ep in (2, 4, 8)), *((4, 2, ep) for ep in (4, 8)),
    }  # fmt: skip
    layouts = {tuple(row[axis] for axis in ("tp", "pp", "ep", "dp", "zero")) for row in rows if row["fsdp"] == 1}
    assert layouts >= {(1, 1, 8, 8, 0), (1, 1, 4, 8, 2), (1, 2, 4, 4, 1), (2, 2, 4, 2, 0), (2, 4, 2, 1, 0)}
    for row in rows[:: 1 if again == "none" else 5]:
        counted(model, row, ctx="2k")
        assert f"--ep {row['ep']}" in row["command"]


def test_deepseek_fits_as_it_was_trained() -> None:
    asked = {"on": "2048x80GB", "train": True, "ctx": "4k", "batch": 15360}
    found = tfacct.load("deepseek-v3").plan(recompute="full", pp=16, **asked)
    assert any((row["pp"], row["ep"], row["dp"], row["zero"]) == (16, 64, 128, 1) for row in found.layouts)


def test_stages_of_other_layers_are_not_passed_over() -> None:
    """The second stage has experts alone, the first one dense layers too, and more in flight."""
    model, mesh = tfacct.load("glm-4.5"), {"pp": 4, "dp": 8, "cp": 2}
    found = model.plan(gpus=64, on=80 * 10**9, train=True, ctx="8k", batch=512, **mesh)
    (row,) = (one for one in (*found.layouts, *found.larger) if one["tp"] == one["ep"] == 1 and not one["zero"])
    assert (row["batch"], row["times"]) == (1, 64)
    step = model.train(ctx="8k", batch=64, recompute=row["recompute"], **mesh)
    assert row["bytes"] == step.peak_bytes


def test_sequences_are_sharded_with_stages_and_heads() -> None:
    found = tfacct.load(LLAMA).plan(on="64x80GB", train=True, ctx="64k", batch=8, recompute="full")
    rows = [*found.layouts, *found.larger]
    assert any(row["pp"] > 1 and row["cp"] > 1 for row in rows)
    assert any(row["ulysses"] > 1 and row["cp"] == 1 for row in rows)
    both = [row for row in rows if row["ulysses"] > 1 and row["cp"] > 1]
    # Eight key/value heads: as many of them as tp leaves divide tokens, and keys go round among the rest.
    assert both and all(row["ulysses"] * row["tp"] == 8 for row in both)
    assert all(65_536 // (row["cp"] * row["ulysses"]) >= 2048 for row in rows)
    assert f"--ulysses {both[0]['ulysses']}" in both[0]["command"]


def test_experts_that_serve() -> None:
    """By hand: of mixtral-8x7b eight copies have an expert of each layer, and all else."""
    found = tfacct.load("mixtral-8x7b").plan(on="8x24GB", ctx="2k", batch=64)
    row = next(row for row in found.layouts if (row["tp"], row["pp"], row["ep"]) == (1, 1, 8))
    weights = 46_702_792_704 - 7 * 32 * 3 * 4096 * 14336
    assert row["bytes"] == 2 * weights + 8 * 2048 * 32 * 2 * 8 * 128 * 2 and (row["batch"], row["dp"]) == (8, 8)
    # Of 8 new tokens 2 rows each are sent to experts and back, their counts first; a rank sends 7 of 8 shares.
    assert row["sent_bytes"] == 32 * 7 * (2 * 8 * 2 * 4096 * 2 + 8 * 8) // 8
    assert row["command"].endswith("--ep 8 --batch 8 --on 8x24GB")


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "mamba-130m", "gemma-3-1b"])
def test_memory_and_comms_count_what_a_row_has(name: str) -> None:
    model = tfacct.load(name)
    found = model.plan(on="8x80GB", ctx="2k", batch=64)
    for row in (*found.layouts, *found.larger):
        mesh = {axis: row[axis] for axis in ("tp", "pp", "ep")}
        needed = model.memory(ctx="2k", batch=row["batch"], **mesh)
        assert needed.total_bytes == row["bytes"] and row["tp"] * row["pp"] * row["dp"] == 8
        if row["tp"] * row["pp"] * row["ep"] > 1:
            replicas = max(1, row["ep"] // row["tp"])
            sent = model.comms(ctx="2k", batch=row["batch"] * replicas, **mesh, decode=True).sent_bytes
            assert sent == row["sent_bytes"], row


def test_as_many_sequences_at_a_time_as_fit() -> None:
    """180 sequences a rank: the next number that divides them does not fit."""
    model, budget = tfacct.load("deepseek-v2-lite"), 80 * 10**9
    found = model.plan(gpus=8, on=budget, train=True, ctx="2k", batch=1440, recompute="full", by="sent")
    rows = [row for row in found.layouts if row["times"] > 1 and row["pp"] == 1]
    for row in rows[::3]:
        own = row["batch"] * row["times"]
        more = next(size for size in range(row["batch"] + 1, own + 1) if own % size == 0)
        mesh = {axis: row[axis] for axis in (*MESH, "ep")}
        step = model.train(ctx="2k", batch=more, recompute="full", gradient_accumulation=1 + (more < own), **mesh)
        assert step.peak_bytes > budget >= row["bytes"], row
    assert len(rows) > 10


@pytest.mark.parametrize("by", ["sent", "memory"])
def test_all_sequences_at_once_fit_where_one_at_a_time_does_not(by: Any) -> None:
    """Eight micro-batches of one sequence add up gradients, which one of eight sequences only keeps."""
    model, layout = tfacct.load("mixtral-8x7b"), {"tp": 2, "sp": True, "dp": 4, "zero": 1}
    step: dict[str, Any] = {"ctx": 1000, "recompute": "full", **layout}
    budget = model.train(batch=8, **step).peak_bytes
    assert model.train(gradient_accumulation=8, **step).peak_bytes > budget
    found = model.plan(gpus=8, on=budget, train=True, batch=32, by=by, **step)
    (row,) = found.layouts
    assert (row["batch"], row["times"], row["bytes"]) == (8, 1, budget)


def test_the_least_sent_comes_first() -> None:
    found = tfacct.load("llama-3.1-70b").plan(on="64x80GB", train=True, ctx="8k", batch=512)
    sent = [row["sent_bytes"] for row in found.layouts]
    assert sent == sorted(sent) and found.fitting + len(found.larger) == found.tried


@pytest.mark.parametrize(
    ("more", "recipe"),
    [
        ("--train --recompute full --weights fp32", {"recompute": "full", "weights_dtype": "fp32"}),
        ("--train --schedule interleaved", {"schedule": "interleaved"}),
        ("", {}),
    ],
)
def test_a_command_runs(run: Run, more: str, recipe: dict[str, Any]) -> None:
    asked = ["plan", LLAMA, "--on", "4x80GB", "--ctx", "4k", "--batch", "8", *more.split()]
    found = tfacct.load(LLAMA)
    row = found.plan(on="4x80GB", ctx="4k", batch=8, train=bool(more), **recipe).layouts[0]
    program, *words = shlex.split(row["command"])
    ran = run(*words)
    assert program == "tfacct" and ran.code == 0 and re.search("Fits (tightly )?in", ran.out), ran.err
    (facts,) = run(*words, "--json").models
    assert facts["peak_bytes" if more else "total_bytes"] == row["bytes"]
    assert " ".join(row["command"].split()) in run(*asked).out_line


def test_serving_by_hand() -> None:
    found = tfacct.load("llama-3.1-70b").plan(on="8x80GB", ctx="8k", batch=64)
    alone = [row for row in found.layouts if row["pp"] == 1]
    assert [(row["tp"], row["dp"], row["batch"]) for row in alone] == [(4, 2, 32), (8, 1, 64)]
    # Four ranks: 161 norms of 8,192 on each, a quarter of the rest; two key/value heads of 32 sequences.
    norms = 161 * 8192
    weights = 2 * ((70_553_706_496 - norms) // 4 + norms)
    assert alone[0]["bytes"] == weights + 2 * 80 * 8192 * 2 * 128 * 2 * 32
    # 161 all-reduces of 32 tokens, of which a ring of 4 sends 3 of 4 shares twice.
    assert alone[0]["sent_bytes"] == 161 * 2 * 3 * (32 * 8192 * 2) // 4


def test_stages_that_serve_by_hand() -> None:
    found = tfacct.load("llama-3.1-70b").plan(on="8x80GB", ctx="8k", batch=64)
    row = next(row for row in found.layouts if row["pp"] == 8)
    # Ten layers of 855,654,400 parameters, the embedding or the head, and a cache of 64 sequences; the final norm is on
    # the last stage.
    weights = 2 * (10 * 855_654_400 + 128_256 * 8192 + 8192)
    assert row["bytes"] == weights + 10 * 2 * 8192 * 8 * 128 * 2 * 64
    assert row["sent_bytes"] == 64 * 8192 * 2  # one token of each, to the next stage
    assert "--pp 8" in row["command"]


def test_layouts_that_do_not_fit_are_in_order_and_what_they_send_is_computed_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, whole = list[object](), TrainingSearch.collectives
    monkeypatch.setattr(TrainingSearch, "collectives", lambda self, *one: read.append(one) or whole(self, *one))
    model = tfacct.load("llama-3.1-70b").loaded
    work, recipe = Workload(context=8192, tokens=8192, batch=64), Recipe("bf16").checked()
    found = TrainingSearch(model, recipe, work, 24 * 10**9).result(trained(model, 16, 8192))
    first = found.larger[:3]
    assert not found.fitting and len(found.larger) == found.counted and len(read) == 3 < found.counted
    needs = [one.bytes for one in found.larger]
    assert [one.bytes for one in first] == needs[:3] and needs == sorted(needs) and min(needs) > 24e9


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "llama-3.1-8b"])
def test_no_layout_is_tried_twice_and_each_has_all_ranks(name: str) -> None:
    found = [*trained(tfacct.load(name).loaded, 64, 8192)]
    assert len({*found}) == len(found) and {mesh.ranks for mesh in found} == {64}


def test_an_encoder_sends_what_it_reads() -> None:
    found = tfacct.load("bert-base").plan(on="4x8GB", ctx=512, batch=64)
    sent = {row["pp"]: row["sent_bytes"] for row in found.layouts if row["tp"] == 1}
    assert sent == {1: 0, 2: 32 * 512 * 768 * 2, 4: 64 * 512 * 768 * 2}  # the residual stream of all tokens, in bf16


def test_the_command_of_a_file_and_of_a_field_runs(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    config = dict(tfacct.load("llama-3.2-1b").loaded.raw)
    (folder / "config.json").write_text(json.dumps(config))
    field = 'rope_scaling={"rope_type": "linear", "factor": 2.0}'
    asked = ["plan", str(folder / "config.json"), "--on", "2x10GB", "--ctx", "1k", "--set", field]
    asked += ["--set", "vocab_size=32064"]  # a number that a title groups
    for row in run(*asked, "--json").models[0]["layouts"]:
        ran = run(*shlex.split(row["command"])[1:], "--json")
        assert ran.models[0]["total_bytes"] == row["bytes"]


@pytest.mark.parametrize("on", ["16xh100", "16x80GB", "16x86000000001B"])
def test_the_command_of_a_replica_fits(run: Run, on: str) -> None:
    found = tfacct.load("llama-3.3-70b").plan(on=on, ctx="8k", batch=64, use=0.8, reserve="1GB")
    for row in found.layouts[::3]:
        devices = 16 // row["dp"]
        assert f"--on {devices}x" in row["command"]
        out = run(*shlex.split(row["command"])[1:]).out
        assert out.startswith("Fits ") and f": {row['batch']} requests of 8,192 tokens at once" in " ".join(out.split())


def test_two_fits_are_not_compared(run: Run) -> None:
    """The fastest layout by each has a command, and its error."""
    ran = run("plan", "llama-3.1-70b", "--train", "--on", "64xh100", "--ctx", "8k", "--batch", "128", "--json")
    (facts,) = ran.models
    first = {row["timed_as"]: row for row in reversed(facts["layouts"])}
    both = next(note for note in facts["notes"] if "fitted to different runs: measure both." in note)
    assert both.endswith(first["Megatron-LM"]["command"])
    for law in ("FSDP", "Megatron-LM"):
        assert any(first[law]["command"] in note for note in facts["notes"])
        assert sum(note.startswith(f"Estimate under {law}") for note in facts["notes"]) == 1


def test_the_law_of_the_fastest_layout_comes_first(run: Run) -> None:
    """At 80 columns with the bytes sent, since no layout recomputes."""
    asked = ("plan", "gpt2-xl", "--train", "--on", "16xh100", "--ctx", "1k", "--batch", "16")
    (facts,) = run(*asked, "--json").models
    first = {row["timed_as"]: row for row in reversed(facts["layouts"]) if row["seconds"]}
    assert [*first] == ["FSDP", "Megatron-LM"] and first["Megatron-LM"]["seconds"] < first["FSDP"]["seconds"]
    shown = run(*asked, "-v", columns=80).out
    assert "Fastest under Megatron-LM: pp=16, " in shown and "sent/GPU" in shown.partition("Memory of")[0]
    assert "adamw, no recomputation" in " ".join(shown.split())
    assert 'shown at this width: "recompute", "fitted on"' in shown


def test_the_least_time_comes_first(run: Run) -> None:
    """Each estimate is that of `tfacct time`, for FSDP and Megatron-LM's layouts; others have none and come last."""
    model = tfacct.load(LLAMA)
    asked: dict[str, Any] = {"on": "8xa100-sxm-80gb", "ctx": "4k", "batch": 64, "train": True}
    found = model.plan(**asked, by="time")
    timed = [row for row in found.layouts if row["seconds"] is not None]
    by_stack = {
        stack: [row["seconds"] for row in timed if row["timed_as"] == stack] for stack in ("FSDP", "Megatron-LM")
    }
    assert [one for seconds in by_stack.values() for one in seconds] == [row["seconds"] for row in timed]
    assert all(seconds and seconds == sorted(seconds) for seconds in by_stack.values())
    assert timed == found.layouts[: len(timed)] != found.layouts
    assert {row["fsdp"] for row in timed} == {1, 8} and not any(row["cp"] * row["ulysses"] > 1 for row in timed)
    assert {row["dp"] for row in timed if row["tp"] * row["pp"] == 1} == {1}
    for row in (timed[0], timed[-1], next(row for row in timed if row["pp"] > 1)):
        step, memory = (
            run(*shlex.split(row[command])[1:], "--json").models[0] for command in ("time_command", "command")
        )
        assert (step["value_seconds"], step["needed_bytes"]) == (row["seconds"], row["bytes"]), row
        assert memory["peak_bytes"] == row["bytes"], row
        assert (step["workload"]["batch"], step["accumulate"]) == (row["batch"], row["times"]), row
        assert (memory["micro_batch_size"], memory["gradient_accumulation"]) == (row["batch"], row["times"]), row
    plain = model.plan(**asked, by="sent")
    same = ({tuple(row[axis] for axis in MESH) for row in each.layouts} for each in (plain, found))
    assert next(same) == next(same)
    assert {row["seconds"] for row in plain.layouts} == {row["time_command"] for row in plain.layouts} == {None}
    assert f"{len(found.layouts)} layouts fit. Fastest under FSDP: fsdp=8, ≈ " in found.answer
    assert "; under Megatron-LM: tp=" in found.answer and "measure both" in " ".join(found.notes)
    assert model.plan(**asked).layouts == found.layouts and (found.by, plain.by) == ("time", "sent")


def test_the_time_of_a_token(run: Run) -> None:
    found = tfacct.load("llama-3.1-70b").plan(on="8xh100-sxm", ctx="8k", batch=64, by="time")
    row = found.layouts[0]
    assert (row["tp"], row["pp"]) == (8, 1) and all(one["seconds"] is None for one in found.layouts if one["pp"] > 1)
    program, *words = shlex.split(row["time_command"])
    ran = run(*words, "--json")
    assert program == "tfacct" and ran.models[0]["value_seconds"] == row["seconds"], ran.err
    asked = ("plan", "llama-3.1-70b", "--on", "8xh100-sxm", "--ctx", "8k", "--batch", "64")
    out = run(*asked, "-v").out_line
    assert "Time of the first layout: tfacct time llama-3.1-70b --on 8xh100-sxm" in out
    assert "no time, no network topology" not in out
    assert "Estimate: median error" in out
    assert "no time, no network topology" in run(*asked, "--by", "sent", "-v").out_line


def test_a_new_token_of_a_decoder_sends_nothing_of_its_source() -> None:
    model = tfacct.load("t5-base")
    (row,) = (row for row in model.plan(on="2x8GB").layouts if row["tp"] == 2)
    assert row["sent_bytes"] == model.comms(tp=2).sent_bytes == 37 * 768 * 2


@pytest.mark.parametrize(
    ("name", "ctx", "every", "recipe"),
    [(LLAMA, "8k", 8, {}), ("gemma-3-1b", "4k", 7, {}), ("mixtral-8x7b", "4k", 5, {}), (LLAMA, "4k", 3, {"lora": 8})],
)
def test_recomputation_is_tried(name: str, ctx: str, every: int, recipe: dict[str, Any]) -> None:
    """Each row is what `train` counts for it, and with less recomputation fewer sequences fit at a time, if any."""
    model, budget = tfacct.load(name), 60 * 10**9
    found = model.plan(gpus=8, on=budget, train=True, ctx=ctx, batch=32, by="sent", **recipe)
    ways = ("none", "attention", "full")
    assert {"none", "full"} <= {row["recompute"] for row in found.layouts}
    for row in found.layouts[::every]:
        given = counted(model, row, ctx=ctx, **recipe)
        assert row["bytes"] <= budget
        for less in ways[: ways.index(row["recompute"])]:
            with contextlib.suppress(tfacct.TfacctError):  # not every layout goes with recomputed attention
                assert model.train(**{**given, "recompute": less}).peak_bytes > budget, (less, row)


@pytest.mark.parametrize(
    ("name", "layout", "plans"),
    [("granite-3.1-1b-a400m", {"tp": 2}, False), ("ernie-4.5-21b-a3b", {"tp": 2, "sp": True}, True)],
)
def test_layouts_that_train_refuses_are_skipped(name: str, layout: dict[str, Any], plans: bool) -> None:
    """How tp ranks sum experts was not checked for one class; sp does not support the fp32 router of the other."""
    model = tfacct.load(name)
    with pytest.raises(tfacct.TfacctError, match=r"was not checked for its class|does not support fp32 router weights"):
        model.train(ctx="1k", **layout)
    found = model.plan(on="4x200GB", train=True, ctx="1k", batch=4)
    rows = [*found.layouts, *found.larger]
    assert not any(layout.items() <= row.items() for row in rows)
    assert {row["tp"] for row in rows} == ({1, 2, 4} if plans else {1}) and {row["fsdp"] for row in rows} >= {1, 4}
    for row in rows[::7]:
        counted(model, row, ctx="1k")


def test_solve_answers_no_ranks_that_train_refuses() -> None:
    with pytest.raises(tfacct.TfacctError, match="was not checked for its class"):
        tfacct.load("granite-3.1-1b-a400m").solve("tp", "peak_bytes=9GB", ctx="1k")


@pytest.mark.parametrize("recipe", [{"qlora": True}, {"weights_dtype": "fp32"}, {"optimizer": "muon"}])
def test_one_device_has_no_layout_to_refuse(recipe: dict[str, Any]) -> None:
    """QLoRA, autocast and an optimizer of whole matrices, none of which layouts support."""
    model = tfacct.load("llama-3.2-1b")
    (row,) = model.plan(on="80GB", train=True, ctx="1k", batch=6, gradient_accumulation=2, **recipe).layouts
    step = model.train(ctx="1k", batch=3, gradient_accumulation=2, **recipe)
    assert (row["bytes"], row["batch"], row["times"], row["sent_bytes"]) == (step.peak_bytes, 3, 2, 0)
    with pytest.raises(tfacct.TfacctError):
        model.plan(on="2x80GB", train=True, ctx="1k", batch=6, tp=2, **recipe)


def test_the_command_repeats_the_source() -> None:
    model = tfacct.load("bart-base")
    row = model.plan(on="2xh100", train=True, ctx=64, source=40, batch=4, fsdp=2).layouts[0]
    assert "--ctx 64 --source 40" in row["command"]
    assert row["bytes"] == model.train(ctx=64, source=40, batch=2, fsdp=2).peak_bytes


def test_given_options_of_a_plan_hold() -> None:
    """Four micro-batches, without recomputation: 32 sequences are 4 a rank and 1 at a time on 8 ranks."""
    asked: dict[str, Any] = {"on": "8x80GB", "train": True, "ctx": "2k", "batch": 32}
    found = tfacct.load(LLAMA).plan(recompute="none", gradient_accumulation=4, **asked)
    assert {row["recompute"] for row in found.layouts} == {"none"}
    assert {row["times"] for row in found.layouts if row["pp"] == 1} == {4}
    (row,) = (row for row in found.layouts if row["fsdp"] == 8)
    assert (row["batch"], row["times"]) == (1, 4) and "--accumulate 4" in row["command"]
    (row,) = (row for row in found.layouts if row["pp"] == 8)
    assert "--pp 8 --micro-batches 4 --batch 32" in row["command"]
    assert row["bytes"] == tfacct.load(LLAMA).train(ctx="2k", batch=32, pp=8, microbatches=4).peak_bytes
    assert any("4 micro-batches do not divide" in why for why in tfacct.load(LLAMA).plan(
        gradient_accumulation=4, **asked | {"batch": 8}).not_counted)  # fmt: skip


def test_fsdp_by_hand() -> None:
    """Weights of layers are gathered twice and gradients scattered once, in bf16, by 7 of 8 ranks; embedding and head,
    which stay, are gathered once. All that is the same for 8 sequences at a time as for one."""
    found = tfacct.load(LLAMA).plan(on="8xh100-sxm", train=True, ctx="2k", batch=64, by="sent")
    (row,) = (row for row in found.layouts if row["fsdp"] == 8 and row["cp"] * row["ulysses"] * row["ep"] == 1)
    outside = 2 * 128_256 * 4096 + 4096
    layers = 8_030_261_248 - outside
    assert (row["batch"], row["times"], row["recompute"]) == (8, 1, "full")
    assert row["sent_bytes"] == 7 * 2 * (3 * layers + 2 * outside) // 8


def test_the_fastest_layout_of_experts_has_stages_of_four_tensor_parallel_ranks() -> None:
    """By `time`, on 16 devices."""
    model, on = tfacct.load("mixtral-8x7b"), {"ctx": "4k", "on": "16xh100"}
    rows = model.plan(train=True, batch=32, **on).layouts
    layout = {"tp": 4, "sp": True, "pp": 2, "ep": 8, "dp": 2, "zero": 1}
    assert layout.items() <= rows[0].items()
    step = model.train_time(batch=16, **on, **layout)
    assert rows[0]["seconds"] == step.value_seconds and step.fits


def test_the_fastest_layout_of_experts_shards_the_residual_stream_too() -> None:
    """The times of `time`: with sp, tp ranks exchange no more bytes and norm a fourth of the tokens each."""
    model, batch = tfacct.load("qwen3-30b-a3b"), {"ctx": "4k", "on": "32xa100", "batch": 64}
    rows = [row for row in model.plan(train=True, **batch).layouts if row["timed_as"] == "Megatron-LM"]
    layout: dict[str, Any] = {"tp": 4, "ep": 32, "dp": 8, "zero": 1, "gradient_accumulation": 2}
    step = {"ctx": "4k", "on": "32xa100", "batch": 4, **layout}
    plain, sharded = (model.train_time(sp=sp, **step).value_seconds for sp in (False, True))
    assert sharded is not None and plain is not None and sharded < plain
    assert rows[0]["sp"] and rows[0]["seconds"] == sharded


def test_the_least_memory_comes_first() -> None:
    """One sequence at a time, everything recomputed: Adam's states and weights alone would be 6 of 8 bytes."""
    found = tfacct.load(LLAMA).plan(on="8x80GB", train=True, ctx="4k", batch=64, by="memory")
    needs = [row["bytes"] for row in found.layouts]
    assert needs == sorted(needs) and found.by == "memory" and needs[0] > 6 * 8_030_261_248 // 8
    assert all(row["batch"] == 1 and row["recompute"] == "full" for row in found.layouts if row["pp"] == 1)
    assert found.answer.startswith(f"{len(needs)} layouts fit. Least memory: tp=8 sp, recompute full, 9.49 GiB")


def test_limit_is_of_the_table_alone(run: Run) -> None:
    asked = ("plan", LLAMA, "--on", "8xh100-sxm", "--ctx", "4k", "--batch", "64", "--train")
    rows = [run(*asked, *limit, "--csv").out.count("\n") - 1 for limit in ((), ("--limit", "3"), ("--limit", "0"))]
    assert rows[:2] == [10, 3] and rows[2] > 11
    assert len(run(*asked, "--limit", "3", "--json").models[0]["layouts"]) == rows[2]


def test_given_axes_of_a_plan_hold(run: Run) -> None:
    model, asked = tfacct.load(LLAMA), {"on": "8x80GB", "train": True, "ctx": "4k", "batch": 32}
    found = model.plan(tp=2, sp=True, **asked)
    every = [row for row in model.plan(**asked).layouts if (row["tp"], row["sp"]) == (2, True)]
    assert found.layouts == every and len(every) > 5 and found.collectives is None
    words = run("plan", LLAMA, "--on", "8x80GB", "--train", "--batch", "32", "--tp", "3").err
    assert "tp=3 needs 3 ranks, which do not divide 8 devices" in words


def test_a_whole_layout_is_explained() -> None:
    """Its collectives add up to what it sends, and `comms` and `train` count the same."""
    model = tfacct.load(LLAMA)
    layout: dict[str, Any] = {"tp": 2, "sp": True, "dp": 4, "zero": 1}
    found = model.plan(on="8xh100", train=True, ctx="4k", batch=32, recompute="none", **layout)
    (row,) = found.layouts
    assert found.collectives is not None and sum(one["sent_bytes"] for one in found.collectives) == row["sent_bytes"]
    assert (row["batch"], row["times"], row["timed_as"]) == (2, 4, "Megatron-LM")
    once = model.comms(train=True, ctx="4k", batch=4 * 2, **layout).collectives
    # Optimizer state is gathered once, gradients are summed once: all else four times.
    calls = [one["calls"] * (1 if one["over"] == "dp" else 4) for one in once]
    assert [one["calls"] for one in found.collectives] == calls
    step = model.train(ctx="4k", batch=2, gradient_accumulation=4, **layout)
    assert step.peak_bytes == row["bytes"]
    assert found.answer.startswith("tp=2 sp dp=4 zero=1 fits on 8 × H100 SXM5 80GB: ")


def test_a_batch_is_that_of_all_devices(run: Run) -> None:
    """With `--on` and without, under either name. By default each data-parallel rank has one sequence."""
    model, layout = tfacct.load(LLAMA), {"tp": 2, "fsdp": 4, "train": True, "ctx": "2k"}
    (row,) = model.plan(on="8xh100", batch=8, recompute="full", **layout).layouts
    sent = [
        model.comms(recompute="full", **layout, **size).sent_bytes for size in ({"batch": 8}, {"global_batch_size": 8})
    ]
    assert sent == [row["sent_bytes"]] * 2 and (row["batch"], row["times"]) == (2, 1)
    for found in (model.comms(**layout), model.plan(on="8xh100", **layout)):
        assert found.workload["batch"] == 4 and "batch 4 (the smallest for this layout)" in found.title
    assert model.plan(on="8xh100", train=True, ctx="2k", gradient_accumulation=3).workload["batch"] == 24
    assert model.comms(**{**layout, "tp": 1, "fsdp": 1, "pp": 2, "microbatches": 5}).workload["batch"] == 5


def test_the_plan_of_tensor_parallelism(run: Run) -> None:
    """Llama's q, k, v, gate and up: 5 · 32 + 1 sums of gradients in torch's plan, 2 · 32 + 1 in Megatron-LM's."""
    words = run("plan", LLAMA, "--train", "--ctx", "2k", "--tp", "2").out_line
    assert "--tp-plan megatron needs fewer all-reduces" in words
    for plan, sums in zip(PLANS, (161, 65), strict=True):
        rows = tfacct.load(LLAMA).comms(tp=2, train=True, ctx="2k", tp_plan=plan).collectives
        (row,) = (row for row in rows if row["when"] == "backward" and row["of"] == "stream")
        assert row["calls"] == sums
    for more in (("--sp",), ("--tp-plan", "megatron")):
        assert "fewer all-reduces" not in run("plan", LLAMA, "--train", "--ctx", "2k", "--tp", "2", *more).out
    model, asked = tfacct.load(LLAMA), {"on": "8xh100", "train": True, "ctx": "2k", "batch": 8, "tp": 2}
    rows = {plan: model.plan(tp_plan=plan, **asked).layouts for plan in PLANS}
    assert all("--tp-plan megatron" in row["command"] for row in rows["megatron"])
    least = {plan: min(row["sent_bytes"] for row in found if not row["sp"]) for plan, found in rows.items()}
    assert least["megatron"] < least["torch"]


def test_a_whole_layout_that_serves_is_explained() -> None:
    """By hand: 161 all-reduces of 64 tokens of 8,192 in bf16, of which a ring of 8 sends 7 of 8 shares twice."""
    found = tfacct.load("llama-3.1-70b").plan(on="8xh100", ctx="8k", batch=64, tp=8)
    assert found.collectives is not None
    (line,) = found.collectives
    assert (line["calls"], line["bytes"]) == (161, 161 * 64 * 8192 * 2)
    assert line["sent_bytes"] == found.layouts[0]["sent_bytes"] == 161 * 2 * 7 * (64 * 8192 * 2) // 8


@pytest.mark.parametrize(
    ("name", "calls"),
    [("nemotron-h-8b", 1 + 52), ("qwen3-next-80b-a3b", 1 + 3 * 48)],
)
def test_a_recurrence_sums_its_output(name: str, calls: int) -> None:
    """One for the embedding and one for each sublayer; of experts also one for the shared expert."""
    found = tfacct.load(name).plan(on="4xh100", ctx="8k", tp=4).collectives
    assert found is not None and sum(line["calls"] for line in found) == calls


def test_the_bubble_of_a_pipeline_is_shown(run: Run) -> None:
    """128 sequences on dp = 2 are 64 micro-batches of a replica, and 1F1B idles (P − 1)/M of it: 31/64 = 48.4%."""
    words = ("plan", "mixtral-8x22b", "--train", "--ctx", "4k", "--batch", "128", "--on", "64xa100", "--by", "sent")
    rows = run(*words, "--json").models[0]["layouts"]
    found = {(row["pp"], row["dp"], row["cp"]): row["bubble_ratio"] for row in rows}
    assert found[32, 2, 1] == 31 / 64 and found[32, 1, 2] == 31 / 128
    assert "pipeline bubble 48.4% of the computing time." in run(*words).out_line
    one_stage = run("plan", "gpt2", "--train", "--gpus", "2", "--on", "h100", "--json").document
    assert {row["bubble_ratio"] for row in one_stage["models"][0]["layouts"] if row["pp"] == 1} == {None}


def test_a_plan_marks_tight_layouts() -> None:
    """Those that the CUDA allocator's 17% more take past the usable memory."""
    found = tfacct.load("qwen3-14b").plan(train=True, ctx="4k", batch=8, on="8xa100")
    assert [column.key for column in found.columns][3:5] == ["bytes", "tight"]
    marked = {(row["bytes"], row["tight"]) for section in found.sections for row in section}
    usable = found.models[0]["budget_bytes"]
    assert marked == {(size, "*" if 1.17 * size > usable else None) for size, _ in marked}
    assert {mark for _, mark in marked} == {"*", None}


def test_a_plan_has_the_utilization_of_its_fastest_layout() -> None:
    """The same as that of `train`; by hand 6·N + 12·L·H·Q·T FLOPs per token, without the input embedding."""
    model, asked = tfacct.load("qwen3-14b"), {"ctx": "4k", "on": "8xa100"}
    planned = model.plan(**asked, train=True, batch=8).answer
    time = " ".join(model.train(**asked).notes)
    (share,) = re.findall(r"fsdp=8, ≈ 2.13 s a step, ([0-9.]+)% MFU", planned)
    assert "≈ 2.13 s a step" in time and f"{share}% MFU" in time
    assert "MFU" not in model.plan(**asked, train=True, batch=8, lora=16).answer
    per_token = 6 * (14_768_307_200 - 151_936 * 5120) + 12 * 40 * 40 * 128 * 4096
    assert float(share) / 100 == pytest.approx(per_token * 4096 / 2.13 / 312e12, rel=3e-3)
