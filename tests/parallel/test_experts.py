"""Experts of a rank, by hand: weights, states and layouts that share them. Kind: golden."""

from typing import Any

import pytest

import tfacct

EXPERTS = 32 * 3 * 4096 * 14336
REST = 46_702_792_704 - 8 * EXPERTS
"""Parameters of mixtral-8x7b: one expert of each layer, and all others than experts'."""
MIXTRAL = tfacct.load("mixtral-8x7b")


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ({"ep": 8}, REST + EXPERTS),
        ({"fsdp": 8, "ep": 8}, EXPERTS + REST // 8),
        # Of two ranks with the same expert each pads to one; a router's 8 rows are padded to 16.
        ({"cp": 2, "fsdp": 8, "ep": 8}, REST // 16 + EXPERTS + 32 * 8 * 4096 // 16),
    ],
)
def test_parameters_of_a_rank(mesh: dict[str, int], expected: int) -> None:
    assert MIXTRAL.comms(**mesh, train=True, ctx="8k").rank_params == expected
    if "cp" not in mesh:
        assert MIXTRAL.params(**mesh).rank_params == MIXTRAL.memory(**mesh).total_params == expected


def test_ranks_of_one_batch_sum_the_results_of_their_experts() -> None:
    """32 layers: attention's sum and the experts' for each, and the embedding's."""
    for more in ({}, {"ep": 8}):
        assert sum(one["bytes"] for one in MIXTRAL.comms(tp=8, **more).collectives) == (2 * 32 + 1) * 4096 * 2
    assert MIXTRAL.memory(tp=8).total_params == MIXTRAL.comms(tp=8).rank_params
    assert MIXTRAL.comms(tp=8, sp=True, ctx=64, train=True).rank_params == MIXTRAL.params(tp=8).rank_params


def test_states_of_a_rank() -> None:
    """Adam has two states per parameter, and a counter per tensor; the class has gate and up in one tensor."""
    plain, twice, shared = (MIXTRAL.train(ctx="4k", ep=8, **more) for more in ({}, {"dp": 16}, {"dp": 16, "zero": 1}))
    assert plain.weights_bytes == plain.gradients_bytes == twice.weights_bytes == 2 * (REST + EXPERTS)
    assert plain.optimizer_bytes == 4 * (REST + EXPERTS) + 4 * (32 * 9 + 3)
    assert shared.optimizer_bytes == 4 * (REST // 16 + EXPERTS // 2) + 4 * (32 * 9 + 3)
    assert plain.sent_bytes == MIXTRAL.comms(ep=8, train=True, ctx="4k").sent_bytes
    assert MIXTRAL.train(cp=4, ep=4, ctx="8k").weights_bytes == 2 * (REST + 2 * EXPERTS)


def test_experts_in_stages() -> None:
    """Half of the layers, gathered once; each expert of a stage is on one rank, or on two."""
    asked: dict[str, Any] = {"pp": 2, "fsdp": 8, "ctx": "4k", "batch": 4}
    once, twice = (MIXTRAL.train(**asked, ep=ep) for ep in (8, 4))
    block = (REST - 2 * 32000 * 4096 - 4096) // 32
    assert once.weights_bytes == 2 * (16 * (block // 8 + EXPERTS // 32) + 32000 * 4096 // 8) and not once.exact
    gathered = 2 * (16 * block + 32000 * 4096)
    assert {one["gathered_bytes"] for one in once.phases} == {gathered, 0}
    assert {one["gathered_bytes"] for one in twice.phases} == {gathered + 2 * 16 * 2 * EXPERTS // 32, 0}
    whole = {**asked, "batch": 8 * 4}
    assert MIXTRAL.comms(**whole, ep=4, train=True).sent_bytes == twice.sent_bytes


def test_experts_that_are_stored_in_fp32() -> None:
    """Two layers are gathered at once, and their experts cast to bf16; outside layers, the embedding, head and norm."""
    rank = MIXTRAL.train(fsdp=8, ep=8, ctx="4k", weights_dtype="fp32")
    assert rank.weights_bytes == rank.gradients_bytes == 4 * (REST // 8 + EXPERTS) and not rank.exact
    block, root = (REST - 2 * 32000 * 4096 - 4096) // 32, 2 * 32000 * 4096 + 4096
    at = {each["phase"]: each for each in rank.phases}
    assert at["layer 31, backward"]["gathered_bytes"] == 2 * (root + 2 * (block + EXPERTS // 32))


@pytest.mark.parametrize("ep", [2, 8])
def test_devices_beyond_the_given_axes_are_replicas(ep: int) -> None:
    """32 devices of tp=2 are 16 replicas, and expert parallelism shards over both axes."""
    filled, given = (MIXTRAL.train(ctx="1k", tp=2, ep=ep, on="32xh100", **more) for more in ({}, {"dp": 16}))
    assert filled.mesh == given.mesh and filled.mesh["dp"] == 16 and filled.peak_bytes == given.peak_bytes
