"""Experts under sequence parallelism: the classes' modules under DTensor, with fake collectives. Kind: oracle."""

from __future__ import annotations

from typing import Any

import pytest

import tfacct

TOKENS: dict[str, Any] = {"sp": True, "ctx": 64, "batch": 2, "shard": True}
MESHES = [{"tp": 2}, {"tp": 4, "fsdp": 2}, {"tp": 2, "ep": 2}, {"tp": 2, "fsdp": 2, "ep": 4}]


def compared(name: str, mesh: dict[str, Any]) -> None:
    found = tfacct.load(name).verify(**TOKENS, **mesh)
    assert found.agrees and found.plan == "torch" and found.rank_params == found.measured_rank_params


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("mixtral-8x7b", {"tp": 4, "fsdp": 2}),
        ("mixtral-8x7b", {"tp": 2, "fsdp": 4, "ep": 4}),  # two ranks have each expert
        ("qwen1.5-moe-a2.7b", {"tp": 2}),  # with a gated network beside them
        ("qwen1.5-moe-a2.7b", {"tp": 2, "ep": 2}),
        ("olmoe-1b-7b", {"tp": 2}),  # and heads that are gathered
    ],
)
def test_experts_beside_divided_tokens_send_what_is_counted(name: str, mesh: dict[str, Any]) -> None:
    compared(name, mesh)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "glm-4.5-air", "dots.llm1", "minimax-m2"])
def test_every_family_sends_what_is_counted(name: str, mesh: dict[str, Any]) -> None:
    compared(name, mesh)
