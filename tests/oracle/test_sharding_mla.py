"""Latent attention under sequence parallelism: torchtitan's plan of DeepSeek-V3, with fake collectives. Kind:
oracle.
"""

from __future__ import annotations

import pytest

import tfacct


def verified(name: str, **mesh: int) -> None:
    found = tfacct.load(name).verify(sp=True, ctx=64, batch=2, shard=True, **mesh)
    assert found.agrees and found.rank_params == found.measured_rank_params


def test_latents_beside_divided_tokens_send_what_is_counted() -> None:
    verified("youtu-llm-2b", tp=4, fsdp=2)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"tp": 2}, {"tp": 2, "ep": 2}, {"tp": 2, "fsdp": 2, "ep": 4}], ids=str)
@pytest.mark.parametrize("name", ["deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2", "glm-4.7-flash"])
def test_latents_of_every_family_send_what_is_counted(name: str, mesh: dict[str, int]) -> None:
    verified(name, **mesh)
