"""Latent attention under sequence parallelism, by hand. Kind: golden, refusal."""

from __future__ import annotations

from typing import Any

import tfacct


def test_deepseek_by_hand(run: Any) -> None:
    every = tfacct.load("deepseek-v3").comms(tp=8, sp=True, train=True, ctx="1k").collectives
    stream = 1024 * 7168 * 2
    # 61 blocks gather for attention, 3 dense ones for their networks, and the head; mixtures are 58.
    whole = [one["calls"] for one in every if (one["when"], one["kind"]) == ("forward", "all-gather")]
    assert sorted(whole) == [58, 61 + 3 + 1]
    # Gradients of both latents and of the rotated part of keys are whole: none is scattered in front of attention.
    latents = [one for one in every if one["kind"] == "all-reduce" and one["because"] == "N is contracted"]
    assert [(one["calls"], one["bytes"]) for one in latents] == [(3 * 61, 61 * 1024 * (1536 + 512 + 64) * 2)]
    back = [one for one in every if (one["when"], one["kind"]) == ("backward", "reduce-scatter")]
    assert sorted((one["calls"], one["bytes"]) for one in back) == [(4, 4 * stream // 8), (58, 58 * stream // 8)]
    rank = tfacct.load("deepseek-v3").train(tp=8, sp=True, ctx="1k")
    assert rank.sent_bytes == sum(one["sent_bytes"] for one in every)
    ran = run("plan", "deepseek-v3", "--tp", "8", "--sp", "--tp-plan", "megatron")
    assert ran.code == 2 and "--sp with --tp-plan megatron does not support latent attention" in ran.err
