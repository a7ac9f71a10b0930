"""Collectives of one rank, by hand and as in papers: calls and bytes by axis, pass, kind and tensor. Kind: golden."""

from collections import Counter
from typing import Any

import pytest

import tfacct

STREAM_70B, STREAM_8B, STREAM_MIXTRAL = 8192 * 8192 * 2, 2 * 2 * 8192 * 4096, 4096 * 4096 * 2
"""Bytes of a residual stream in bf16: 8,192 tokens; two sequences of 8,192; 4,096 tokens."""
LLAMA_8B = 2 * 8_030_261_248
BLOCK_70B, ROOT_70B = (855_654_400 - 2 * 8192) // 8 + 2 * 8192, 2 * 128_256 * 8192 // 8 + 8192
"""Parameters of one of 8 ranks: a layer, whose norms are whole; the embedding, the head and a norm."""
EXPERTS = 32 * 3 * 4096 * 14336
REST = 46_702_792_704 - 8 * EXPERTS
"""Parameters of mixtral-8x7b: one expert of each of 32 layers, and all others than experts'."""
PAIRS, COUNTS = 2 * STREAM_MIXTRAL, 8 * 8
"""Bytes of tokens to two experts each; how many tokens each of 8 experts gets, in 8 bytes."""
KEYS = 2048 * 8 * 128 * 2
"""Bytes of keys of 8 heads of 128 numbers and 2,048 tokens."""
V3 = {"layers": 58, "experts": 256, "active": 8, "hidden": 7168, "width": 2048}
"""DeepSeek-V3 (arXiv 2412.19437), section 4.2: the layers with experts, and their sizes."""

Rows = dict[str, tuple[int, int]]
CASES: list[tuple[str, dict[str, Any], Rows, int]] = [
    # Forward 2L + 1: o_proj, down_proj of 80 layers, the embedding. Backward 5L + 1: q, k, v, gate, up, and the head.
    ("llama-3.1-70b", {"tp": 8, "train": True, "ctx": "8k"}, {
        "tp forward all-reduce stream": (161, 161 * STREAM_70B),
        "tp backward all-reduce stream": (401, 401 * STREAM_70B),
    }, 0),
    # arXiv 1909.08053, section 3: two all-reduces of b·s·h in a layer each way, one for the embedding, one for logits:
    # Megatron adds up the gradients of one tensor before it reduces them.
    ("llama-3.1-70b", {"tp": 8, "tp_plan": "megatron", "train": True, "ctx": "8k"}, {
        "tp forward all-reduce stream": (161, 161 * STREAM_70B),
        "tp backward all-reduce stream": (161, 161 * STREAM_70B),
    }, 0),
    # arXiv 2105.04663: weights on both axes; norms, of 8,192 numbers, are whole on each rank of tp.
    ("llama-3.1-70b", {"tp": 8, "sp": True, "fsdp": 8, "train": True, "ctx": "8k"}, {
        "tp forward all-gather stream": (161, 161 * STREAM_70B),
        "tp forward reduce-scatter stream": (161, 161 * STREAM_70B // 8),
        "tp backward all-gather stream": (161, 161 * STREAM_70B),
        "tp backward reduce-scatter stream": (161, 161 * STREAM_70B // 8),
        "tp backward all-reduce shared weights": (161, 161 * 8192 * 2),
        "fsdp forward all-gather weights": (81, 2 * (80 * BLOCK_70B + ROOT_70B)),
        "fsdp backward all-gather weights": (80, 2 * 80 * BLOCK_70B),
        "fsdp backward reduce-scatter weights": (81, 2 * (80 * BLOCK_70B + ROOT_70B) // 8),
    }, 0),
    # Recomputation in Megatron-LM runs both sums of a layer again. torch stops at the input of down_proj: the sum of
    # o_proj runs again, and under sp the gathers before both; weights are gathered once for recomputation and backward.
    *(("llama-3.1-70b", {"tp": 8, **more, "train": True, "ctx": "8k", "recompute": "full"}, {
        f"tp recompute {kind} stream": (calls, calls * STREAM_70B // shards) for kind, calls, shards in rows
    }, others) for more, rows, others in (
        ({"tp_plan": "megatron"}, [("all-reduce", 160, 1)], 2),
        ({}, [("all-reduce", 80, 1)], 2),
        ({"sp": True, "fsdp": 8}, [("all-gather", 160, 1), ("reduce-scatter", 80, 8)], 8),
    )),
    # Recomputed attention passes keys and values of a quarter of 8,192 tokens around again.
    ("llama-3.1-8b", {"cp": 4, "tp": 2, "ctx": "8k", "train": True, "recompute": "attention"}, {
        "cp recompute send keys": (32 * 3, 32 * 3 * 2 * KEYS // 2),
    }, 5),
    ("llama-3.1-8b", {"tp": 8}, {"tp forward all-reduce stream": (65, 65 * 4096 * 2)}, 0),
    # Its class fuses q, k and v: backward two sums a layer, and the head's.
    ("gpt2", {"tp": 2, "train": True, "ctx": 64}, {
        "tp forward all-reduce stream": (25, 25 * 64 * 768 * 2),
        "tp backward all-reduce stream": (2 * 12 + 1, 25 * 64 * 768 * 2),
    }, 0),
    # Parallel sublayers: two sums in each of 6 layers, which are not added up first, and the embedding's. Bloom:
    # ALiBi's slopes are sharded with the heads; gpt-oss: so are its sinks.
    ("pythia-70m", {"tp": 2}, {"tp forward all-reduce stream": (13, 13 * 512 * 2)}, 0),
    ("bloom-7b1", {"tp": 2}, {"tp forward all-reduce stream": (2 * 30 + 1, 61 * 4096 * 2)}, 0),
    ("gpt-oss-20b", {"tp": 2}, {
        "tp forward all-reduce stream": (24 + 1, 25 * 2880 * 2), "tp forward all-reduce experts": (24, 24 * 2880 * 2),
    }, 0),
    # Logits: gathered, or three numbers of each token in fp32 for the loss.
    ("llama-3.1-8b", {"tp": 8, "after_head": "gathered"}, {"tp forward all-gather logits": (1, 128_256 * 2)}, 1),
    ("llama-3.1-8b", {"tp": 8, "after_head": "loss", "train": True, "ctx": "4k"}, {
        "tp forward all-reduce logits": (3, 3 * 4096 * 4),
    }, 2),
    # arXiv 2104.04473, section 3.2: b·s·h between two stages for each of 8 micro-batches, each way.
    ("llama-3.1-8b", {"pp": 4, "microbatches": 8, "batch": 16, "ctx": "8k", "train": True}, {
        "pp forward send stream": (8, 8 * STREAM_8B), "pp backward send stream": (8, 8 * STREAM_8B),
    }, 0),
    ("llama-3.1-8b", {"pp": 4, "batch": 16}, {"pp forward send stream": (1, 16 * 2 * 4096)}, 0),
    # A tied embedding is on both ends: 25,129 of 50,257 rows on the fullest rank of tp.
    ("gpt2", {"pp": 2, "ctx": 1024, "train": True, "tp": 2}, {
        "pp backward all-reduce shared weights": (1, 2 * 25_129 * 768),
    }, 3),
    # arXiv 2310.01889, section 3: keys and values of a quarter of two of four sequences are sent on, c - 1 times in
    # each of 32 layers; their gradients are sent back, in fp32.
    ("llama-3.1-8b", {"cp": 4, "ctx": "8k", "batch": 4, "train": True, "fsdp": 2}, {
        "cp forward send keys": (32 * 3, 32 * 3 * 4 * KEYS),
        "cp backward send keys": (32 * (3 + 4), 32 * (3 * 4 + 4 * 8) * KEYS),
    }, 3),
    # Keys of a quarter of the tokens and half of 16 heads; queries and results have twice as many heads.
    ("gemma-3-27b-text", {"cp": 2, "cp_method": "gather", "ulysses": 2, "tp": 2, "ctx": "8k", "tokens": "8k"}, {
        "cp forward all-gather keys": (62 * 2, 62 * 2 * 2 * KEYS),
        "ulysses forward all-to-all heads": (62 * 4, 62 * 6 * KEYS),
        "tp forward all-reduce stream": (62 * 2 + 1, (62 * 2 + 1) * 2048 * 5376 * 2),
    }, 0),
    # arXiv 2309.14509, section 3.2: four all-to-alls of N·h / P: queries, keys, values and what attention gives.
    ("llama-2-7b", {"ulysses": 4, "ctx": "4k", "tokens": "4k"}, {
        "ulysses forward all-to-all heads": (32 * 4, 32 * 4 * 1024 * 4096 * 2),
    }, 0),
    ("llama-3.1-8b", {"dp": 8, "train": True}, {"dp backward all-reduce weights": (162, LLAMA_8B)}, 0),
    # arXiv 1910.02054, section 7.2: the sums are scattered, and what was updated is gathered.
    *(("llama-3.1-8b", {"dp": 8, "zero": zero, "train": True}, {
        "dp backward reduce-scatter weights": (33, LLAMA_8B // 8), "dp update all-gather weights": (33, LLAMA_8B),
    }, 0) for zero in (1, 2)),
    # arXiv 2304.11277, section 3.2.2, hybrid sharding: the shares of gradients are summed among the copies.
    ("llama-3.1-8b", {"fsdp": 4, "dp": 2, "train": True}, {"dp backward all-reduce weights": (33, LLAMA_8B // 4)}, 3),
    # arXiv 2006.16668, section 3.2: a token's h numbers to each of its experts, and the results back. Before them goes
    # how many come, in 64 bits for each expert.
    ("mixtral-8x7b", {"ep": 8}, {"ep forward all-to-all experts": (3 * 32, 32 * (2 * 2 * 4096 * 2 + COUNTS))}, 0),
    ("mixtral-8x7b", {"ep": 8, "train": True, "ctx": "4k"}, {
        "ep forward all-to-all experts": (96, 32 * (2 * PAIRS + COUNTS)),
        "ep backward all-to-all experts": (64, 32 * 2 * PAIRS),
        "dp backward all-reduce weights": (66, 2 * REST),
    }, 0),
    ("deepseek-v3", {"ep": 64, "tokens": "4k", "ctx": "4k"}, {
        "ep forward all-to-all experts": (58 * 3, 58 * (2 * 4096 * 8 * 7168 * 2 + 256 * 8)),
    }, 0),
    # Of 16 copies two have each expert.
    ("mixtral-8x7b", {"ep": 8, "dp": 16, "train": True, "ctx": "4k"}, {
        "dp backward all-reduce weights": (98, 2 * (REST + EXPERTS)),
    }, 2),
    ("mixtral-8x7b", {"ep": 8, "dp": 16, "zero": 1, "train": True, "ctx": "4k"}, {
        "dp backward reduce-scatter weights": (65, 2 * REST // 16 + EXPERTS),
        "dp update all-gather weights": (65, 2 * (REST + EXPERTS)),
    }, 2),
    # 8 experts among 16 copies: each has a sixteenth of all.
    ("mixtral-8x7b", {"dp": 16, "zero": 1, "train": True}, {
        "dp backward reduce-scatter weights": (33, 2 * (REST + 8 * EXPERTS) // 16),
        "dp update all-gather weights": (33, 2 * (REST + 8 * EXPERTS)),
    }, 0),
    ("mixtral-8x7b", {"fsdp": 8, "ep": 8, "dp": 2, "train": True, "ctx": "4k"}, {
        "dp backward all-reduce weights": (65, 2 * (REST // 8 + EXPERTS)),
    }, 5),
    # Ranks of a sequence divide experts too: of 8,192 tokens each sends its part; each expert is on one rank.
    ("mixtral-8x7b", {"cp": 4, "ep": 4, "train": True, "ctx": "8k"}, {
        "ep backward all-to-all experts": (64, 32 * 2 * PAIRS // 2), "cp backward all-reduce weights": (66, 2 * REST),
    }, 3),
    # Experts under sequence parallelism: attention of each layer, the embedding, the head; experts; gradients of two
    # norms in each layer, of the final norm and of routers.
    ("mixtral-8x7b", {"tp": 8, "sp": True, "train": True, "ctx": "4k"}, {
        **{f"tp {when} all-gather {of}": (calls, calls * STREAM_MIXTRAL)
           for when in ("forward", "backward") for of, calls in (("stream", 33), ("experts", 32))},
        **{f"tp {when} reduce-scatter {of}": (calls, calls * STREAM_MIXTRAL // 8)
           for when in ("forward", "backward") for of, calls in (("stream", 33), ("experts", 32))},
        "tp backward all-reduce shared weights": (65 + 32, 2 * (65 * 4096 + 32 * 8 * 4096)),
    }, 0),
    # Tokens of a rank, an eighth, go to their experts without a gather.
    ("mixtral-8x7b", {"tp": 8, "sp": True, "ep": 8, "train": True, "ctx": "4k"}, {
        "ep forward all-to-all experts": (96, 32 * (2 * PAIRS // 8 + COUNTS)),
        "ep backward all-to-all experts": (64, 32 * 2 * PAIRS // 8),
        **{f"tp {when} all-gather stream": (33, 33 * STREAM_MIXTRAL) for when in ("forward", "backward")},
    }, 3),
    # A latent is whole on every rank. Forward: attention of 27 layers, the MLP of one, a shared expert of 26, the
    # embedding; experts. Backward: q_proj, what k and v read (one matmul in the class), and the rotary key; gate and up
    # of 27 MLPs, the head; of experts, tokens and weights.
    ("deepseek-v2-lite", {"tp": 8, "train": True, "ctx": "8k"}, {
        "tp forward all-reduce stream": (27 + 1 + 26 + 1, 55 * 8192 * 2048 * 2),
        "tp forward all-reduce experts": (26, 26 * 8192 * 2048 * 2),
        "tp backward all-reduce stream": (
            27 * (1 + 1 + 1 + 2) + 1, 8192 * 2 * (27 * (2048 + 64 + 512 + 2 * 2048) + 2048)
        ),
        "tp backward all-reduce experts": (52, 26 * 8192 * (2048 * 2 + 6 * 4)),
    }, 0),
    # 61 layers gather for attention, 3 dense ones for their MLPs, and the head; mixtures are 58. Gradients of both
    # latents and of the rotated part of keys are whole: none is scattered before attention.
    ("deepseek-v3", {"tp": 8, "sp": True, "train": True, "ctx": "1k"}, {
        "tp forward all-gather stream": (61 + 3 + 1, 65 * 1024 * 7168 * 2),
        "tp forward all-gather experts": (58, 58 * 1024 * 7168 * 2),
        "tp backward all-reduce stream": (3 * 61, 61 * 1024 * (1536 + 512 + 64) * 2),
        "tp backward reduce-scatter stream": (4, 4 * 1024 * 7168 * 2 // 8),
        "tp backward reduce-scatter experts": (58, 58 * 1024 * 7168 * 2 // 8),
    }, 5),
    # Norms over all heads, 2,048 wide, in 16 layers: queries, keys and values are gathered, backward the result of
    # attention; sums of o, down and the embedding, and of the gradients of q, k, v, gate, up, and the head.
    ("olmo-2-1b", {"tp": 8, "train": True, "ctx": 64}, {
        "tp forward all-gather stream": (3 * 16, 3 * 16 * 64 * 2048 * 2),
        "tp forward all-reduce stream": (2 * 16 + 1, 33 * 64 * 2048 * 2),
        "tp backward all-gather stream": (16, 16 * 64 * 2048 * 2),
        "tp backward all-reduce stream": (5 * 16 + 1, 81 * 64 * 2048 * 2),
    }, 0),
]  # fmt: skip
"""Models, what is asked, rows by hand, and how many other rows there are."""


def rows_of(found: Any) -> Rows:
    """Calls and bytes by axis, pass, kind and tensor."""
    calls, sent = Counter[str](), Counter[str]()
    for one in found.collectives:
        name = f"{one['over']} {one['when']} {one['kind']} {one['of']}"
        calls[name] += one["calls"]
        sent[name] += one["bytes"]
    return {name: (calls[name], sent[name]) for name in calls}


@pytest.mark.parametrize(("name", "asked", "expected", "others"), CASES)
def test_collectives_by_hand(name: str, asked: dict[str, Any], expected: Rows, others: int) -> None:
    found = rows_of(tfacct.load(name).comms(**asked))
    assert {key: found.get(key) for key in expected} == expected and len(found) == len(expected) + others


def sent(name: str, **asked: Any) -> int:
    """Bytes that one rank sends."""
    return int(tfacct.load(name).comms(**asked).sent_bytes)


def test_bytes_sent_by_a_ring() -> None:
    """An all-reduce among n ranks sends 2 (n - 1) / n of its bytes; a gather, a scatter and an all-to-all half of it.

    arXiv 2205.05198, section 4.2.2: sequence parallelism sends as much as tensor parallelism, and gradients of norms,
    of h numbers. arXiv 1910.02054, section 7: ZeRO sends 2 Ψ, and 3 Ψ where weights are divided; of these what is in no
    layer is gathered once, not twice.
    """
    asked: dict[str, Any] = {"tp": 8, "tp_plan": "megatron", "train": True, "ctx": "8k"}
    plain = sent("llama-3.1-70b", **asked)
    assert plain == 2 * (2 * 80 + 1) * STREAM_70B * 2 * 7 // 8
    assert sent("llama-3.1-70b", sp=True, **asked) == plain + 2 * (2 * 80 + 1) * 8192 * 2 * 7 // 8
    one = tfacct.load("llama-3.1-8b").comms(tp=8)
    assert one.sent_bytes == 2 * 7 * 65 * 4096 * 2 // 8
    assert one.answer == "For a new token, each rank sends 910 KiB in 65 collectives."
    ring, ends = LLAMA_8B * 63 // 64, 2 * (2 * 128_256 * 4096 + 4096) * 63 // 64
    assert sent("llama-3.1-8b", dp=64, train=True) == pytest.approx(2 * ring, rel=1e-6)
    assert [sent("llama-3.1-8b", dp=64, zero=zero, train=True) for zero in (1, 2, 3)] == [
        2 * ring, 2 * ring, 3 * ring - ends
    ]  # fmt: skip
    assert sent("mixtral-8x7b", ep=8) == 32 * 7 * 4104
    pairs = V3["layers"] * (2 * 4096 * V3["active"] * V3["hidden"] * 2 + V3["experts"] * 8)
    assert sent("deepseek-v3", ep=64, tokens="4k", ctx="4k") == pairs * 63 // 64
    # Queries, keys, values and the result of 12 layers, 64/4 tokens of 768 numbers of 2 bytes; a step sends them once
    # more, backward, and all-reduces 124,439,808 gradients over 4 ranks.
    forward = 12 * 4 * 16 * 768 * 2 * 3 // 4
    assert sent("gpt2", ulysses=4, ctx=64, tokens=64) == forward
    assert sent("gpt2", ulysses=4, ctx=64, train=True) == 2 * forward + 124_439_808 * 2 * 2 * 3 // 4


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 4)])
def test_the_bubble(schedule: Any, chunks: int) -> None:
    """arXiv 2104.04473, sections 2.2.1 and 2.2.2: (p - 1) / m of the ideal time, and 1 / v of that."""
    rank = tfacct.load("llama-3.1-8b").train(ctx="1k", pp=4, batch=32, schedule=schedule, pp_chunks=chunks)
    assert rank.bubble_ratio == 3 / (32 * chunks)


def test_collectives_follow_from_axes() -> None:
    """Megatron's g after attention and MLP, and the embedding by V."""
    lines = [line for row in tfacct.load("llama-3.1-8b").comms(tp=8).collectives for line in row["lines"]]
    forward = {("blocks.*.attn.o_proj", "N"): 32, ("blocks.*.mlp.down_proj", "F"): 32, ("embed", "V"): 1}
    assert {(line["what"], line["because"]): line["calls"] for line in lines} == forward


def test_uneven_tokens_of_experts_and_sums_in_fp32() -> None:
    mixtral: dict[str, Any] = {"fsdp": 8, "ep": 8, "train": True, "ctx": "4k"}
    even, uneven = (rows_of(tfacct.load("mixtral-8x7b").comms(**mixtral, **more)) for more in ({}, {"imbalance": 1.5}))
    key = "ep backward all-to-all experts"
    assert 2 * uneven[key][1] == 5 * even[key][1] // 2
    both = [tfacct.load("llama-3.1-8b").comms(fsdp=8, train=True, reduce_dtype=dtype) for dtype in (None, "fp32")]
    narrow, wide = (rows_of(one)["fsdp backward reduce-scatter weights"][1] for one in both)
    assert wide == 2 * narrow and [one.reduce_dtype for one in both] == ["bf16", "fp32"]


def test_layouts_that_are_the_same_by_other_names() -> None:
    llama, mixtral = tfacct.load("llama-3.1-8b"), tfacct.load("mixtral-8x7b")
    assert llama.comms(dp=8, zero=3, train=True).collectives == llama.comms(fsdp=8, train=True).collectives
    step = mixtral.comms(ep=8, train=True, ctx="4k")
    assert step.mesh["dp"] == 8 and step.collectives == mixtral.comms(ep=8, dp=8, train=True, ctx="4k").collectives


@pytest.mark.parametrize("mesh", [{"cp": 8}, {"dp": 2, "cp": 4}])
def test_replicas_sum_gradients_once_after_all_micro_batches(mesh: dict[str, int]) -> None:
    """An all-reduce of 1,235,814,400 parameters in 2 bytes over 8 ranks: each sends 2 · 7/8 of them."""
    asked: dict[str, Any] = {"on": "8xh100", "train": True, "ctx": "4k", "batch": 8, "gradient_accumulation": 4, **mesh}
    found = tfacct.load("llama-3.2-1b").plan(**asked).collectives
    sent = [line["sent_bytes"] for line in found or () if line["kind"] == "all-reduce"]
    assert sum(sent) == 2 * 1_235_814_400 * 2 * 7 // 8
