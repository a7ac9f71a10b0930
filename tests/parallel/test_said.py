"""What commands say of one rank: its share, its stage, and what it has whole. Kind: output."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.cli import Ran

SAID: dict[str, tuple[str, ...]] = {
    "memory --kv llama-3.1-70b --tp 16 --ctx 8k -v": (
        *("KV cache in bf16 on one of 16 ranks", "whole", "2 · L · B · S · ⌈K / 16⌉ · H · bytes"),
        "Of 8 key/value heads each is on 2 ranks",
    ),
    "memory --kv deepseek-v3 --tp 8 -v": ("Every rank caches the whole latent",),
    "memory --kv olmo-2-1b llama-3.2-1b --tp 2 -v": (
        "A rank caches keys and values of its own heads. olmo-2-1b: whole on every rank",
    ),
    **{
        f"{command} olmo-2-1b --tp 2 -v": ("attention and the KV cache are whole on each rank",)
        for command in ("memory", "memory --kv", "plan", "flops")
    },
    "plan olmo-2-1b --tp 2 --ctx 64": ("heads are sharded",),
    "plan llama-3.1-70b --tp 16": ("Of 8 key/value heads each is on 2 ranks: its weights and its cache.",),
    "plan llama-3.1-70b --tp 8 --sp --fsdp 8 --train --ctx 8k": (
        "A step sends 113 GiB from each rank: 70.4 GiB over tp and 42.7 GiB over fsdp",
        *("all-gather tp forward 161 20.1 GiB", "tokens are sharded"),
    ),
    "plan llama-3.1-8b --dp 8 --train": (
        "8 replicas each have their own batch; gradients are reduced in buckets of 25 MiB",
    ),
    "memory llama-3.1-70b llama-3.1-8b --ctx 8k --tp 8": ("on one of 8 ranks", "134 GiB"),
    "memory llama-3.1-70b --ctx 8k --tp 8 --batch 1,8": ("at batch 8: 151 GiB",),
    "params llama-3.1-8b gpt2 --fsdp 8": ("on one of 8 ranks", "Parameters of the fullest rank, by part"),
    "params gpt2": (),
    "flops gpt2 --tp 2 --by part": (
        *("forward FLOPs of one of 2 ranks", "whole model 292 G", "V = 50,257 is not split evenly"),
        "all other weights are replicated",
    ),
    "flops llama-3.1-8b gpt2 --bytes --tp 4 --ctx 1k": ("Bytes moved on one of 4 ranks in bf16", "whole model"),
    "flops llama-3.1-8b --ctx 512 --tp 2 --sp --fsdp 2 -v": (
        "sp shards the residual stream between matmuls",
        "The batch is that of one FSDP rank",
    ),
    "formula llama-3.1-8b --tp t --sp --ctx 1k": (
        "sp shards the residual stream between matmuls, so it changes nothing here.",
    ),
    "sweep llama-3.1-8b --ctx 4k --metric saved_bytes --sp --tp 1,2": ("sp shards the residual stream too",),
    "sweep llama-3.1-8b --pp 1,2 --cp 1,2 --metric peak_bytes --ctx 1k": (
        "Peaks exclude buffers for keys and values of other cp ranks.",
    ),
    "sweep llama-3.1-8b --pp 1,2,4 --ctx 1k": ("Each row counts one rank, the fullest one.",),
    "solve llama-3.1-8b --until peak_bytes=40GB --ctx 4k --sp --for tp": (
        "smallest tp within peak_bytes = 40 GB with sp",
    ),
    "solve llama-3.1-70b --for pp --until total_bytes=80GB --ctx 8k": (
        "The smallest pp is 2: total_bytes stays within 80 GB on each rank.",
        "Numbers are for the fullest stage.",
    ),
    "memory gpt-oss-120b --tp 8 -v": ("padded to whole mxfp4 blocks",),
    "memory gpt-oss-120b --tp 2 -v": (),
    # Experts.
    "memory deepseek-v3 --ep 64 --ctx 8k -v": (
        *("memory of one of 64 ranks", "Each rank has 4 of 256 experts, unsharded", "Each rank has its own batch."),
    ),
    "memory mixtral-8x7b --ep 4 --ctx 1k --on h100-sxm": ("on 4 × H100 SXM5 80GB (ep=4)",),
    # Of 80 GB, 14,485,561,344 bytes of weights leave a rank 61 caches of 2^30 bytes: one expert of each layer, and all
    # other weights.
    "memory mixtral-8x7b --ctx 8k --ep 8 --on 8x80GB": (
        "(ep=8): 61 requests of 8,192 tokens at once on each rank.",
        "1.00 GiB of cache in bf16, all of it on one GPU",
    ),
    "memory mixtral-8x7b --ctx 8k --tp 2 --ep 4 --on 4x80GB --batch 3": (
        "3 requests of 8,192 tokens at once in each group of 2 ranks, at most",
        "512 MiB on each GPU of its group",
    ),
    "memory mixtral-8x7b --ctx 8k --tp 4 --ep 4 --on 4x80GB": ("at once.",),
    "memory mixtral-8x7b --ctx 1k -v --fsdp 8 --ep 4": (
        "Each rank has 2 of 8 experts, each sharded over 2 ranks. Each rank",
    ),
    "memory mixtral-8x7b --ctx 1k -v --fsdp 4 --ep 4": ("Each rank has 2 of 8 experts, unsharded. Each rank",),
    "memory mixtral-8x7b --ctx 1k -v --ep 4": (
        "Each rank has 2 of 8 experts, unsharded; all other weights are replicated.",
    ),
    "memory mixtral-8x7b --ctx 1k -v --tp 2": ("replicated",),
    "memory mixtral-8x7b --ctx 1k -v --fsdp 2 --tp 2": (),
    # Stages.
    "params llama-3.1-8b --pp 3 -v": ("3 stages of 32 layers: 11 in the first 2, 10 in the others.",),
    "plan llama-3.2-1b --pp 3 --train --ctx 64": (  # the middle stage has no embedding
        "from a rank of stage 1: 2 collectives",
        "6 in the first, 5 in the others",
    ),
    "plan bert-base --pp 3 --ctx 64 --batch 2": ("A forward pass sends 192 KiB from",),  # 2 · 64 · 768 · 2 bytes
    "train llama-3.2-1b --pp 3 --ctx 64": ("The busiest rank sends",),
    "memory llama-3.1-8b --ctx 8k --pp 3": ("memory of one of 3 ranks", "Shown: stage 1, which holds the most."),
    "memory llama-3.1-70b --ctx 8k --pp 3 --on 80GiB": (
        "A single request can have 339,922 tokens; the model was trained for 131,072; stage 1 fills up first.",
    ),
    "memory jamba-v0.1 --pp 16 --ctx 4k": (
        "No attention in this stage, so no keys and values: every layer keeps a state",
        "The whole model at batch 1: 96.1 GiB, 96.1 GiB of weights and 79.8 MiB of cache and state.",
    ),
    "memory --kv jamba-v0.1 --pp 16 --ctx 4k -v": ("1 of the 2 layers of this stage keeps a state",),
    # At 64 tokens two layers of Mamba hold more than one of them and one of attention; at 4,096 they hold less.
    "memory --kv jamba-v0.1 --pp 16 --ctx 64": ("1.12 MiB at context 64.",),
    "memory mamba-130m --pp 7": ("weights and 2.53 MiB of state.",),
    "memory --kv mamba-130m --pp 2 --ctx 2k": ("context state whole model", "1,024 1.27 MiB 2.53 MiB"),
    "memory bert-base --pp 3": ("The whole model at batch 1: 209 MiB of weights.",),
    "memory gpt2 bert-base --pp 3": (" total whole model ",),  # the embedding is on two
    "memory --kv gemma-3-1b --pp 4 -v": ("In 22 of 26 layers, a token sees at most 512 keys",),
}
UNSAID = {
    "params gpt2": "rank",
    "memory gpt-oss-120b --tp 2 -v": "padded",
    "memory mixtral-8x7b --ctx 1k -v --fsdp 2 --tp 2": "replicated",
    "plan llama-3.2-1b --pp 3 --train --ctx 64": "each rank",
    "memory llama-3.1-8b --ctx 8k --pp 3": "Each rank has a shard of heads",
    "memory --kv gemma-3-1b --pp 4 -v": "6 of 7",  # of the stage's layers
}


@pytest.mark.parametrize("command", SAID)
def test_what_is_said_of_a_rank(run: Callable[..., Ran], command: str) -> None:
    ran = run(*command.split())
    words = " ".join(ran.out.split())
    assert ran.code == 0 and all(text in words for text in SAID[command]), words
    assert command not in UNSAID or UNSAID[command] not in words
