"""Expert parallelism: all-to-all and all-reduce of a layer, by hand. Kind: golden."""

from __future__ import annotations

from collections import Counter

import tfacct


def test_tokens_go_to_experts_and_come_back() -> None:
    # mixtral-8x7b has 32 blocks; 4,096 tokens of 4,096 numbers in bf16 go to 2 of 8 experts each, which 8 ranks have.
    sent = 4096 * 2 * 4096 * 2
    step = tfacct.load("mixtral-8x7b").comms(fsdp=8, ep=8, train=True, ctx="4k")
    rows = {(one["over"], one["when"], one["kind"]): (one["calls"], one["bytes"]) for one in step.collectives}
    # Before them go 8 numbers of 8 bytes: how many tokens each expert gets.
    assert rows["ep", "forward", "all-to-all"] == (96, 32 * (2 * sent + 8 * 8))
    assert rows["ep", "backward", "all-to-all"] == (64, 32 * 2 * sent)
    # Experts are on one rank each: 32 blocks of 8 experts of 3 products; a router and attention are divided by fsdp.
    experts = 32 * 3 * 4096 * 14336
    assert step.rank_params == tfacct.load("mixtral-8x7b").params(fsdp=8, ep=8).rank_params
    assert step.rank_params == experts + (46_702_792_704 - 8 * experts) // 8
    uneven = tfacct.load("mixtral-8x7b").comms(fsdp=8, ep=8, imbalance=1.5, train=True, ctx="4k")
    more = next(one["bytes"] for one in uneven.collectives if one["kind"] == "all-to-all" and one["when"] == "backward")
    assert 2 * more == 5 * 32 * sent


def test_ranks_of_one_batch_add_up_what_their_experts_make() -> None:
    # 32 blocks: attention's sum and the experts' for each, and the table's.
    for more in ({}, {"ep": 8}):
        token = tfacct.load("mixtral-8x7b").comms(tp=8, **more)
        assert sum(one["bytes"] for one in token.collectives) == (2 * 32 + 1) * 4096 * 2
    assert tfacct.load("mixtral-8x7b").memory(tp=8).total_params == tfacct.load("mixtral-8x7b").comms(tp=8).rank_params


def test_a_latent_is_whole_on_every_rank() -> None:
    model = tfacct.load("deepseek-v2-lite")
    # 27 blocks; a token's 512 + 64 numbers in bf16 are on every rank, whatever divides its heads.
    assert model.memory(ctx="8k", tp=8).kv_cache_bytes == 27 * 8192 * 576 * 2 == model.memory(ctx="8k").kv_cache_bytes
    rows = {(one["when"], one["of"]): one for one in model.comms(tp=8, train=True, ctx="8k").collectives}
    # Forward: attention of 27 blocks, the network of one, experts and a shared network of 26, the table.
    assert sum(one["calls"] for (when, _), one in rows.items() if when == "forward") == 27 + 1 + 2 * 26 + 1
    # Backward: q_proj, what k and v read (one product in the class), and the rotated key, which all heads share; gate
    # and up of 27 networks, the head; experts: tokens and weights.
    sums: Counter[str] = Counter()
    for line in rows["backward", "stream"]["lines"]:
        sums[line["what"]] += line["bytes"]
    assert rows["backward", "stream"]["calls"] == 27 * (1 + 1 + 1 + 2) + 1
    assert sums["blocks.*.attn.kv_a_proj"] == 27 * 8192 * 64 * 2
    assert sums["blocks.*.attn.k_b_proj"] == 27 * 8192 * 512 * 2
    assert rows["backward", "experts"]["bytes"] == 26 * 8192 * (2048 * 2 + 6 * 4)
