"""`verify --shard`: shards and collectives of a rank, compared with the class that torch shards. Kind: oracle,
refusal.
"""

from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.cli import Run
from tests.helpers.lazy import lazy
from tests.helpers.rank_configs import LLAMA
from tests.helpers.weight_files import folder
from tfacct.base.errors import UsageError
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import collectives
from tfacct.parallel.shard_shapes import fsdp_units

ranks = lazy("tfacct.reference.ranks")


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize(
    ("name", "pp"),
    [
        *(("gpt2", 4), ("llama-3.2-1b", 4), ("mixtral-8x7b", 4), ("gpt-oss-20b", 2), ("embeddinggemma-300m", 2)),
        *(("camembert-base", 2), ("opt-125m", 2)),  # whose classes make in front of the blocks a head, or the last norm
    ],
)
def test_stages_send_what_torchs_schedule_does(name: str, pp: int, schedule: str) -> None:
    """Of two stages each is before the other and after it."""
    model, step = tfacct.load(name), {"ctx": 64, "batch": 2 * pp, "pp": pp, "schedule": schedule, "microbatches": pp}
    found = model.verify(shard=True, **step)
    assert found.agrees and found.mesh["pp"] == pp
    params = [stage["rank_params"] for stage in model.comms(**step, train=True).stages]
    assert found.rank_params == found.measured_rank_params == max(params)
    # Of each micro-batch a message over each border each way, of two stages on each rank over twice as many and one.
    borders = (2 * pp if schedule == "interleaved" else pp) - 1
    assert found.cross_checks[1]["measured"] == 2 * pp * borders


def test_a_full_size_without_weights() -> None:
    found = tfacct.load("llama-3.1-70b").verify(shard=True, ctx="8k", tp=8, sp=True, fsdp=8)
    assert found.agrees and (found.layers_traced, found.block_count) == (2, 80)
    # Two of 80 blocks of 855,654,400 parameters, two norms of 8,192 whole on each rank of tp; a table, a head, a norm.
    block = (855_654_400 - 2 * 8192) // 8 + 2 * 8192
    assert found.measured_rank_params == (2 * block + 2 * 128_256 * 8192 // 8 + 8192) // 8


def test_a_difference_ends_in_1(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slipped(*args: Any, **named: Any) -> Any:
        return [one for one in collectives(*args, **named) if one.kind != "all-gather"]

    config = folder(tmp_path, LLAMA) / "config.json"
    monkeypatch.setattr("tfacct.verify.ranks.collectives", slipped)
    ran = run("verify", str(config), "--shard", "--fsdp", "2", "--ctx", "8")
    assert ran.code == 1 and "2 of 3 checks differ" in ran.out and "not in the formula" in ran.out


def test_notes_name_the_plans(run: Run) -> None:
    ran = run("verify", "llama-3.2-1b", "mixtral-8x7b", "--shard", "--ctx", "1k")
    words = ran.out_line
    assert ran.code == 0 and "All 6 totals agree exactly, and so does every call." in words
    assert "Sharded over tp as in torch's tutorials: llama-3.2-1b." in words
    assert "Sharded over tp as in the plan that transformers publishes: mixtral-8x7b." in words
    assert "Ran 4 of 48 layers" in words and "Not checked: loss and optimizer" in words
    others = ("ring attention", "Gradient reduction", "Latent attention", "A tied head", "Experts are", "DIFFERS")
    assert [note for note in others if note in words] == [] and "One rank of each in bf16 against the class" in words


def test_a_process_with_a_group_of_its_own_is_left_alone() -> None:
    with ranks.fake_ranks(2), pytest.raises(UsageError, match="already has a process group"):
        tfacct.load(LLAMA).verify(shard=True, ctx=8)


QUICK = (("mamba-130m", 8), ("falcon-h1-0.5b", 2), ("lfm2-1.2b", 8))
FURTHER = (
    *(("falcon-mamba-7b", 8), ("mamba2-130m", 4), ("bamba-9b", 8), ("jamba-v0.1", 8), ("granite-4.0-h-small", 2)),
    *(("nemotron-h-8b", 4), ("nemotron-3-ultra-550b-a55b", 2), ("minimax-text-01", 4), ("minimax-m1-80k", 2)),
    *(("qwen3-next-80b-a3b", 2), ("qwen3.5-0.8b", 4), ("qwen3.5-35b-a3b", 2), ("minimax-m3", 2), ("lfm2-8b-a1b", 2)),
    *(("gemma-3n-e4b-text", 2), ("gemma-4-31b-text", 2), ("gemma-4-e2b-text", 2), ("gemma-4-26b-a4b-text", 2)),
    *(("recurrentgemma-9b", 2), ("deepseek-v4-flash", 5), ("deepseek-v4-flash", 8)),
)
"""Models with parts that have no rule on a mesh, and ranks that shard their weights."""


@pytest.mark.parametrize(("name", "ranks"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in FURTHER)])
def test_all_weights_are_gathered(name: str, ranks: int) -> None:
    few = {"num_hidden_layers": 4} if name == "deepseek-v4-flash" else {}  # of all kinds that it has
    model, ctx = tfacct.load(name, **few), 256 if few else 16
    found = model.verify(shard=True, fsdp=ranks, ctx=ctx)
    assert found.agrees and found.rank_params == found.measured_rank_params
    assert found.cross_checks[1]["measured"] > 0
    assert model.comms(fsdp=ranks, ctx=ctx, train=True).rank_params == model.params(fsdp=ranks).rank_params


@pytest.mark.parametrize(
    ("name", "ranks", "path", "elements"),
    [
        # 1,536 channels of 4 taps, and 16 states, on 1,024 ranks: two channels each.
        ("mamba-130m", 1024, "blocks.*.mamba.conv.weight", {2 * 4}),
        ("mamba-130m", 1024, "blocks.*.mamba.recurrence.weight", {2 * 16}),
        # Of 4 tokens of a key, of 2 · 512 numbers each, a rank has one or none; of 128, 16. Three factors are rows.
        ("deepseek-v4-flash", 8, "blocks.*.attn.compressor.position_bias.bias", {1024, 16 * 512}),
        ("deepseek-v4-flash", 8, "blocks.*.hc.attn.factors.weight", {1}),
        ("jamba-v0.1", 8, "blocks.*.mamba.b_norm.weight", {16 // 8}),  # a norm of 16 states
    ],
)
def test_rows_of_a_tensor(name: str, ranks: int, path: str, elements: set[int]) -> None:
    units = fsdp_units(tfacct.load(name).loaded.ledger, Mesh(fsdp=ranks))
    assert {one.elements for unit in units for one in unit.shards if one.path == path} == elements


def test_an_error_of_this_program_is_not_reported_as_one_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise UsageError("leave --cp out")

    monkeypatch.setattr(ranks, "step", refuse)
    with pytest.raises(UsageError, match=r"^leave --cp out$"):
        tfacct.load(LLAMA).verify(shard=True, ctx=8, tp=2)
