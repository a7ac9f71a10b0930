"""Norms over all heads under tensor parallelism: what is gathered and what stays unsharded. Kind: oracle."""

from __future__ import annotations

from typing import Any

import pytest

import tfacct
from tests.helpers.fake_ranks import MESHES, compared


@pytest.mark.parametrize("mesh", ["tp", "fsdp-sp"])
def test_every_collective_is_torchs(mesh: str) -> None:
    compared("olmo2", mesh, 1)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("kind", ["olmo2", "olmo3"])
def test_every_collective_of_random_configs_is_torchs(kind: str, mesh: str) -> None:
    for seed in range(2, 5):
        compared(kind, mesh, seed)


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("olmo-3-7b", {"tp": 8}),
        ("olmoe-1b-7b", {"tp": 2, "fsdp": 2, "ep": 4}),
        ("minimax-m2", {"tp": 2, "ep": 2}),
        ("olmo-2-1b", {"fsdp": 7}),
    ],
)
def test_a_published_plan_sends_what_is_counted(name: str, mesh: dict[str, Any]) -> None:
    found = tfacct.load(name).verify(shard=True, ctx=16, **mesh)
    assert found.agrees and found.rank_params == found.measured_rank_params
