"""`verify --shard`: what a rank holds and sends, against the class that torch divides in the user's own process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.conftest import TINY, Ran
from tests.test_sharding_ends import LLAMA
from tfacct.accounts.sharding.rules import collectives
from tfacct.reports import verify_ranks

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("kind", "mesh", "plan"),
    [
        ("llama", {"tp": 2, "fsdp": 2}, "torch"),
        ("llama", {"tp": 2, "sp": True}, "torch"),
        ("llama", {"tp": 2, "tp_plan": "megatron"}, "torch"),
        ("llama", {"tp": 2}, "transformers"),  # of uneven widths
        ("mixtral", {"tp": 2}, "transformers"),
        ("mixtral-8x7b", {"tp": 2, "ep": 2}, "transformers"),
        ("mixtral-8x7b", {"tp": 2, "fsdp": 2, "ep": 4}, "transformers"),
        ("mixtral-8x7b", {"fsdp": 2, "ep": 2}, "torch"),  # each has a batch, and whole experts
        ("mixtral-8x7b", {"fsdp": 4, "ep": 2}, "torch"),
        ("cohere", {"tp": 2}, "transformers"),
        ("gpt2", {"fsdp": 2}, "torch"),
        ("llama", {"fsdp": 2, "dp": 2}, "torch"),  # HSDP
        ("llama", {"tp": 2, "fsdp": 2, "dp": 2}, "torch"),
        ("llama", {"cp": 2, "fsdp": 2}, "torch"),
        ("llama", {"cp": 2, "tp": 2}, "torch"),
        ("qwen3-0.6b", {"cp": 4}, "torch"),  # heads of a width of their own
        ("trinity-nano", {"fsdp": 2}, "torch"),  # what corrects the choice of experts has no gradient
    ],
)
def test_every_check_agrees(kind: str, mesh: dict[str, Any], plan: str) -> None:
    config = LLAMA if kind == "llama" and plan == "torch" else TINY.get(kind, kind) if plan != "torch" else kind
    found = tfacct.load(config).verify(shard=True, ctx=8, **mesh)
    assert found.agrees and found.plan == plan and found.rank_params == found.measured_rank_params
    assert [one["witness"] for one in found.witnesses] == [
        "parameters of rank 0",
        "calls of collectives",
        "bytes of their results",
    ]
    assert found.witnesses[1]["measured"] > 0 and all(line["equal"] for line in found.lines)


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
    assert found.witnesses[1]["measured"] == 2 * 4 * borders


def test_a_full_size_without_weights() -> None:
    found = tfacct.load("llama-3.1-70b").verify(shard=True, ctx="8k", tp=8, sp=True, fsdp=8)
    assert found.agrees and (found.blocks_traced, found.blocks) == (2, 80)
    # Two of 80 blocks of 855,654,400 parameters, two norms of 8,192 whole on each rank of tp; a table, a head, a norm.
    block = (855_654_400 - 2 * 8192) // 8 + 2 * 8192
    assert found.measured_rank_params == (2 * block + 2 * 128_256 * 8192 // 8 + 8192) // 8


def test_a_difference_ends_in_1(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slipped(*args: Any, **named: Any) -> Any:
        return [one for one in collectives(*args, **named) if one.kind != "all-gather"]

    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    monkeypatch.setattr(verify_ranks, "collectives", slipped)
    ran = run("verify", str(config), "--shard", "--fsdp", "2", "--ctx", "8")
    assert ran.code == 1 and "2 of 3 checks differ" in ran.out and "not in the formula" in ran.out


def test_what_was_asked_is_said(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_ranks, "SOME", ("llama-3.2-1b", "mixtral-8x7b"))
    ran = run("verify", "--shard", "--ctx", "1k")
    words = " ".join(ran.out.split())
    assert ran.code == 0 and "All 6 checks agree exactly, call by call." in words
    assert "Divided over tp by torch's tutorials: llama-3.2-1b." in words
    assert "by the plan that transformers publishes: mixtral-8x7b." in words
    assert "Ran 4 of 48 blocks" in words and "Not asked: the loss, the optimizer" in words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("gpt2 --shard --tp 2", "no plan of --tp 2 was compared with its class"),
        ("mixtral-8x7b --shard --tp 2 --sp", "no rule for experts beside --sp"),
        ("llama-3.1-8b --shard --tp 16", "no plan gives several ranks of --tp 16 the same heads"),
        ("llama-3.1-8b --shard --tp 3", "does not divide K = 8"),
        ("llama-3.1-8b --shard --tp 2 --sp --ctx 5", "--tp 2 does not divide T = 5"),
        ("mamba-130m --shard", "no rule for Mamba on a mesh"),
        ("llama-3.1-8b --tp 2", "--tp needs --shard"),
        ("llama-3.1-8b --pp 2", "--pp needs --shard"),
        ("llama-3.1-8b --shard --dp 2", "--dp 2 is not verified here: torch reduces buckets of real numbers"),
        ("mixtral-8x7b --shard --fsdp 2 --ep 2 --imbalance 1.5", "tokens are dealt out evenly"),
        ("qwen1.5-moe-a2.7b --shard --fsdp 2 --ep 2", "no plan of --ep 2 was compared with its class"),
        ("llama-3.1-8b --shard --ulysses 2", "--ulysses 2 is not verified here"),
        ("llama-3.1-8b --shard --cp 2 --cp-method gather", "is not verified here: torch runs a ring"),
        ("llama-3.1-8b --shard --pp 2 --tp 2", "--pp 2 is not verified beside another axis"),
        ("llama-3.1-8b --shard --pp 2 --schedule zero-bubble", "--pp 2 is not verified beside zero bubble"),
        ("llama-3.1-8b --shard --dp 2 --zero 1", "is not verified here"),
        ("llama-3.1-8b --shard --cp 2 --ctx 5", "ask for a multiple of 4"),
        ("ernie-4.5-21b-a3b --shard --fsdp 2 --ctx 64", "torch does not divide its class so"),
        ("llama-3.1-8b --shard --train", "--shard does not go with --train"),
        ("llama-3.1-8b --shard --decode", "whole sequences"),
        ("llama-3.1-8b --shard --dtype int4", "ranks send fp32, bf16, fp16, not int4"),
    ],
)
def test_what_cannot_be_asked_is_refused(run: Callable[..., Ran], arguments: str, said: str) -> None:
    ran = run("verify", *arguments.split())
    words = " ".join(ran.err.split())
    assert ran.code == 2 and said in words and "Traceback" not in words, words


def test_a_process_with_a_group_of_its_own_is_left_alone() -> None:
    from tfacct.base.errors import UsageError
    from tfacct.reference.ranks import fake_ranks

    with fake_ranks(2), pytest.raises(UsageError, match="a process group of its own"):
        tfacct.load(LLAMA).verify(shard=True, ctx=8)
