"""`verify --shard`: shards and collectives of a rank, compared with the class that torch shards. Kind: oracle,
refusal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.cli import Ran
from tests.helpers.rank_configs import LLAMA
from tfacct.base.errors import UsageError
from tfacct.parallel.rules import collectives


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("name", ["gpt2", "llama-3.2-1b", "mixtral-8x7b"])
def test_stages_send_what_torchs_schedule_does(name: str, schedule: str) -> None:
    model = tfacct.load(name)
    found = model.verify(shard=True, ctx=64, batch=8, pp=4, schedule=schedule, microbatches=4)
    assert found.agrees and found.mesh["pp"] == 4
    assert (
        found.rank_params
        == found.measured_rank_params
        == max(
            stage["rank_params"] for stage in model.comms(pp=4, schedule=schedule, ctx=64, batch=8, train=True).stages
        )
    )
    # Between four ranks: of each microbatch a message over each border, of two stages on each rank over seven.
    borders = 7 if schedule == "interleaved" else 3
    assert found.cross_checks[1]["measured"] == 2 * 4 * borders


@pytest.mark.parametrize("name", ["gpt2", "gpt-oss-20b", "camembert-base", "opt-125m", "embeddinggemma-300m"])
def test_of_two_stages_each_is_in_front_of_the_other_and_behind_it(name: str) -> None:
    """And classes make in front of the blocks what runs behind them: CamemBERT's its head, OPT's the last norm."""
    for schedule in ("gpipe", "1f1b", "interleaved"):
        found = tfacct.load(name).verify(shard=True, ctx=64, batch=2, pp=2, schedule=schedule)
        assert found.agrees
        borders = 3 if schedule == "interleaved" else 1
        assert found.cross_checks[1]["measured"] == 2 * 2 * borders


def test_a_full_size_without_weights() -> None:
    found = tfacct.load("llama-3.1-70b").verify(shard=True, ctx="8k", tp=8, sp=True, fsdp=8)
    assert found.agrees and (found.layers_traced, found.block_count) == (2, 80)
    # Two of 80 blocks of 855,654,400 parameters, two norms of 8,192 whole on each rank of tp; a table, a head, a norm.
    block = (855_654_400 - 2 * 8192) // 8 + 2 * 8192
    assert found.measured_rank_params == (2 * block + 2 * 128_256 * 8192 // 8 + 8192) // 8


def test_a_difference_ends_in_1(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slipped(*args: Any, **named: Any) -> Any:
        return [one for one in collectives(*args, **named) if one.kind != "all-gather"]

    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    monkeypatch.setattr("tfacct.verify.ranks.collectives", slipped)
    ran = run("verify", str(config), "--shard", "--fsdp", "2", "--ctx", "8")
    assert ran.code == 1 and "2 of 3 checks differ" in ran.out and "not in the formula" in ran.out


def test_notes_name_the_plans(run: Callable[..., Ran]) -> None:
    ran = run("verify", "llama-3.2-1b", "mixtral-8x7b", "--shard", "--ctx", "1k")
    words = " ".join(ran.out.split())
    assert ran.code == 0 and "All 6 checks agree exactly, call by call." in words
    assert "Sharded over tp by torch's tutorials: llama-3.2-1b." in words
    assert "by the plan that transformers publishes: mixtral-8x7b." in words
    assert "Ran 4 of 48 layers" in words and "Not checked: loss and optimizer" in words


def test_a_process_with_a_group_of_its_own_is_left_alone() -> None:
    from tfacct.base.errors import UsageError
    from tfacct.reference.ranks import fake_ranks

    with fake_ranks(2), pytest.raises(UsageError, match="already has a process group"):
        tfacct.load(LLAMA).verify(shard=True, ctx=8)


GATHERED = {
    "mamba-130m": 8,
    "falcon-mamba-7b": 8,
    "mamba2-130m": 4,
    "bamba-9b": 8,
    "jamba-v0.1": 8,
    "granite-4.0-h-small": 2,
    "falcon-h1-0.5b": 2,
    "nemotron-h-8b": 4,
    "nemotron-3-ultra-550b-a55b": 2,
    "minimax-text-01": 4,
    "minimax-m1-80k": 2,
    "qwen3-next-80b-a3b": 2,
    "qwen3.5-0.8b": 4,
    "qwen3.5-35b-a3b": 2,
    "minimax-m3": 2,
    "gemma-3n-e4b-text": 2,
    "gemma-4-31b-text": 2,
    "gemma-4-e2b-text": 2,
    "gemma-4-26b-a4b-text": 2,
    "recurrentgemma-9b": 2,
    "lfm2-1.2b": 8,
    "lfm2-8b-a1b": 2,
}
"""Models with parts that have no rule on a mesh, and ranks that divide their weights."""
QUICK = ("mamba-130m", "falcon-h1-0.5b", "lfm2-1.2b")


def gathered(name: str) -> None:
    model, ranks = tfacct.load(name), GATHERED[name]
    found = model.verify(shard=True, fsdp=ranks, ctx=16)
    assert found.agrees and found.rank_params == found.measured_rank_params
    assert found.cross_checks[1]["measured"] > 0
    assert model.comms(fsdp=ranks, ctx=16, train=True).rank_params == model.params(fsdp=ranks).rank_params


@pytest.mark.parametrize("name", QUICK)
def test_weights_are_gathered_whatever_computes_with_them(name: str) -> None:
    gathered(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(GATHERED.keys() - {*QUICK}))
def test_every_family_with_parts_without_a_rule_gathers_its_weights(name: str) -> None:
    gathered(name)


def test_taps_of_a_convolution_are_columns() -> None:
    # 1,536 channels of 4 taps, 16 states: over 1,024 ranks two channels each.
    held = {one.path: one for unit in gathered_units("mamba-130m", 1024) for one in unit.shards}
    assert held["blocks.*.mamba.conv.weight"].elements == 2 * 4
    assert held["blocks.*.mamba.recurrence.weight"].elements == 2 * 16


def test_what_is_added_to_the_tokens_of_a_key_has_a_row_for_each_and_three_factors_are_rows() -> None:
    """deepseek-v4-flash on 8 ranks: 4 tokens to a key, 2 · 512 numbers each: a rank has a row or none."""
    held = [one for unit in gathered_units("deepseek-v4-flash", 8) for one in unit.shards]
    biases = {one.elements for one in held if one.path == "blocks.*.attn.compressor.position_bias.bias"}
    assert biases == {1 * 1024, 128 // 8 * 512}
    assert {one.elements for one in held if one.path == "blocks.*.hc.attn.factors.weight"} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [5, 8])
def test_several_streams_and_compressed_keys_gather_their_weights_padded_too(ranks: int) -> None:
    """The first four layers, of all kinds that the model has."""
    model = tfacct.load("deepseek-v4-flash", num_hidden_layers=4)
    found = model.verify(shard=True, fsdp=ranks, ctx=256)
    assert found.agrees and found.rank_params == found.measured_rank_params


def test_a_norm_of_states_has_them_as_rows() -> None:
    held = {one.path: one for unit in gathered_units("jamba-v0.1", 8) for one in unit.shards}
    assert held["blocks.*.mamba.b_norm.weight"].elements == 16 // 8


def gathered_units(name: str, ranks: int) -> list[Any]:
    from tfacct.parallel.mesh import Mesh
    from tfacct.parallel.shard_shapes import fsdp_units as units

    return [*units(tfacct.load(name).loaded.ledger, Mesh(fsdp=ranks))]


def test_an_error_of_this_program_is_not_reported_as_one_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    from tfacct.reference import ranks

    def refuse(*_: object, **__: object) -> None:
        raise UsageError("leave --cp out")

    monkeypatch.setattr(ranks, "step", refuse)
    with pytest.raises(UsageError, match=r"^leave --cp out$"):
        tfacct.load(LLAMA).verify(shard=True, ctx=8, tp=2)
