"""Data and expert parallelism, by hand. Kind: golden."""

from __future__ import annotations

import tfacct

EXPERTS = 32 * 3 * 4096 * 14336
REST = 46_702_792_704 - 8 * EXPERTS
"""Of mixtral-8x7b: one expert of each block, and all that is no expert's."""


def test_mixtral_by_hand() -> None:
    model = tfacct.load("mixtral-8x7b")
    assert model.params(ep=8).rank_params == model.memory(ep=8).total_params == REST + EXPERTS
    # One new token goes to 2 experts and comes back; before it go 8 numbers of 8 bytes.
    (row,) = model.comms(ep=8).collectives
    assert (row["calls"], row["bytes"], row["sent_bytes"]) == (3 * 32, 32 * (2 * 2 * 4096 * 2 + 64), 32 * 7 * 4104)
    step = model.comms(ep=8, train=True, ctx="4k")
    assert step.mesh["dp"] == 8 and step.collectives == model.comms(ep=8, dp=8, train=True, ctx="4k").collectives
    assert step.collectives[-1]["bytes"] == 2 * REST
    # Of 16 copies two have each expert.
    twice = model.comms(ep=8, dp=16, train=True, ctx="4k").collectives[-1]
    assert twice["bytes"] == 2 * (REST + EXPERTS)
    last = next(line for line in twice["lines"] if "experts" in line["what"])
    assert (last["calls"], last["bytes"]) == (32, 2 * EXPERTS)
    scatter, gather = model.comms(ep=8, dp=16, zero=1, train=True, ctx="4k").collectives[-2:]
    assert (scatter["kind"], scatter["calls"], scatter["bytes"]) == ("reduce-scatter", 65, 2 * REST // 16 + EXPERTS)
    assert gather["bytes"] == 2 * (REST + EXPERTS)


def test_few_experts_leave_no_copy_without_a_share() -> None:
    """8 experts among 16 copies: each has a sixteenth of all."""
    scatter, gather = tfacct.load("mixtral-8x7b").comms(dp=16, zero=1, train=True).collectives
    assert (scatter["bytes"], gather["bytes"]) == (2 * (REST + 8 * EXPERTS) // 16, 2 * (REST + 8 * EXPERTS))


def test_what_a_rank_of_mixtral_holds() -> None:
    model = tfacct.load("mixtral-8x7b")
    plain, twice, shared = (model.train(ctx="4k", ep=8, **more) for more in ({}, {"dp": 16}, {"dp": 16, "zero": 1}))
    assert plain.weights_bytes == plain.gradients_bytes == twice.weights_bytes == 2 * (REST + EXPERTS)
    # Beside the moments each tensor has a counter; the class has gate and up in one.
    assert plain.optimizer_bytes == 4 * (REST + EXPERTS) + 4 * (32 * 9 + 3)
    assert shared.optimizer_bytes == 4 * (REST // 16 + EXPERTS // 2) + 4 * (32 * 9 + 3)
    assert plain.sent_bytes == model.comms(ep=8, train=True, ctx="4k").sent_bytes


def test_experts_beside_parts_of_sequences_and_in_stages() -> None:
    """Ranks of a sequence divide experts too: of 8,192 tokens each sends its part, 2 rows for each."""
    model = tfacct.load("mixtral-8x7b")
    rows = {(one["over"], one["when"], one["kind"], one["of"]): one for one in model.comms(
        cp=4, ep=4, train=True, ctx="8k"
    ).collectives}  # fmt: skip
    pairs = 2048 * 2 * 4096 * 2
    assert rows["ep", "backward", "all-to-all", "experts"]["bytes"] == 32 * 2 * pairs
    assert rows["cp", "backward", "all-reduce", "weights"]["bytes"] == 2 * REST  # each expert is on one rank
    assert model.train(cp=4, ep=4, ctx="8k").weights_bytes == 2 * (REST + 2 * EXPERTS)
    shared = model.comms(cp=2, fsdp=8, ep=8, train=True, ctx="8k")
    # Of two ranks with the same expert each pads to one; a router's 8 rows are padded to 16.
    assert shared.rank_params == REST // 16 + EXPERTS + 32 * 8 * 4096 // 16
    # In stages: half of the blocks, gathered once; each expert of a stage is on one rank, or on two.
    held = model.train(pp=2, fsdp=8, ep=8, ctx="4k", batch=4)
    block = (REST - 2 * 32000 * 4096 - 4096) // 32
    assert held.weights_bytes == 2 * (16 * (block // 8 + EXPERTS // 32) + 32000 * 4096 // 8) and not held.exact
    assert {one["gathered_bytes"] for one in held.phases} == {2 * (16 * block + 32000 * 4096), 0}
    twice = model.train(pp=2, fsdp=8, ep=4, ctx="4k", batch=4)
    more = 2 * 16 * 2 * EXPERTS // 32
    assert {one["gathered_bytes"] for one in twice.phases} == {2 * (16 * block + 32000 * 4096) + more, 0}
    sent = model.comms(pp=2, fsdp=8, ep=4, ctx="4k", batch=4, train=True)
    assert sent.sent_bytes == twice.sent_bytes


def test_copies_of_ranks_that_divide_experts_and_weights() -> None:
    """HSDP: what ranks of fsdp, or of the same experts, have scattered is reduced among copies."""
    rows = {(one["over"], one["kind"]): one for one in tfacct.load("mixtral-8x7b").comms(
        fsdp=8, ep=8, dp=2, train=True, ctx="4k"
    ).collectives}  # fmt: skip
    assert rows["dp", "all-reduce"]["bytes"] == 2 * (REST // 8 + EXPERTS) and rows["dp", "all-reduce"]["calls"] == 65


def test_experts_that_are_stored_in_fp32_by_hand() -> None:
    rank = tfacct.load("mixtral-8x7b").train(fsdp=8, ep=8, ctx="4k", weights_dtype="fp32")
    assert rank.weights_bytes == rank.gradients_bytes == 4 * (REST // 8 + EXPERTS) and not rank.exact
    # A block's rest is gathered beside the next one's, and the expert of each is cast; in no block: table, head, norm.
    block, root = (REST - 2 * 32000 * 4096 - 4096) // 32, 2 * 32000 * 4096 + 4096
    at = {each["phase"]: each for each in rank.phases}
    assert at["layer 31, backward"]["gathered_bytes"] == 2 * (root + 2 * (block + EXPERTS // 32))


def test_deepseek_as_it_was_trained() -> None:
    """DeepSeek-V3 (arXiv 2412.19437), section 3.2: 16 stages, 64 ranks of experts, ZeRO 1 among 2,048 devices."""
    model = tfacct.load("deepseek-v3")
    mesh = {"pp": 16, "ep": 64, "dp": 128, "zero": 1}
    step = model.comms(ctx="4k", batch=64, train=True, **mesh)
    assert step.mesh["ranks"] == 2048
    rows = {(one["over"], one["when"], one["kind"]): one for one in step.collectives}
    # A stage of four blocks of experts; 64 sequences of 4,096 tokens, each to 8 experts, 7,168 numbers in bf16.
    pairs = 4 * 64 * 4096 * 8 * 7168 * 2
    told = 4 * 64 * 256 * 8
    assert rows["ep", "forward", "all-to-all"]["bytes"] == 2 * pairs + told
    assert rows["ep", "backward", "all-to-all"]["bytes"] == 2 * pairs
    assert rows["pp", "forward", "send"]["bytes"] == 64 * 4096 * 7168 * 2
    held = model.train(ctx="4k", batch=64, recompute="full", **mesh)
    assert held.sent_bytes == step.sent_bytes and held.peak_bytes < 80 * 10**9


def test_devices_beyond_the_given_axes_are_replicas() -> None:
    """32 devices of tp=2 are 16 replicas, and expert parallelism shards over both axes."""
    mixtral, tp = tfacct.load("mixtral-8x7b"), 2
    for ep in (2, 8):
        filled, given = (mixtral.train(ctx="1k", tp=tp, ep=ep, on="32xh100", **more) for more in ({}, {"dp": 16}))
        assert filled.mesh == given.mesh and filled.mesh["dp"] == 16 and filled.peak_bytes == given.peak_bytes
