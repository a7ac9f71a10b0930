"""Eighteen published training steps of GPT models on A100 80 GB, sharded by tensor and pipeline parallelism.

They have 2,048 tokens and a vocabulary of 51,200. They are from table 1 of Narayanan et al. (arXiv 2104.04473) and from
table 5 of Korthikanti et al. (arXiv 2205.05198). Table 1 gives FLOP/s per device by a formula that includes
recomputation; the seconds are computed from them. It gives neither micro-batches nor interleaved chunks, so this module
assumes 1 chunk, and micro-batches of 1 sequence with pipeline stages and of 4 without. Table 5 has each step twice:
with full recomputation, and with sequence parallelism and recomputed attention.
"""

from __future__ import annotations

from typing import NamedTuple

from tfacct.accounts.step_flops import How
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.timing.training_time import Trained

TOKENS, VOCABULARY = 2048, 51_200


class Published(NamedTuple):
    """A step, its seconds, and fields of the model's config. `cell`: the model. The two largest are in both papers."""

    cell: str
    trained: Trained
    seconds: float
    sizes: dict[str, int]


# heads, hidden, blocks, tp, pp, devices, batch, TFLOP/s per device
TABLE_1 = (
    (24, 2304, 24, 1, 1, 32, 512, 137),
    (32, 3072, 30, 2, 1, 64, 512, 138),
    (32, 4096, 36, 4, 1, 128, 512, 142),
    (48, 6144, 40, 8, 1, 256, 1024, 135),
    (64, 8192, 48, 8, 2, 512, 1536, 138),
    (80, 10240, 60, 8, 4, 1024, 1792, 140),
    (96, 12288, 80, 8, 8, 1536, 2304, 148),
    (128, 16384, 96, 8, 16, 1920, 2160, 155),
    (128, 20480, 105, 8, 35, 2520, 2520, 163),
    (160, 25600, 128, 8, 64, 3072, 3072, 163),
)
# heads, hidden, blocks, pp, chunks, devices, batch, micro-batch, seconds with full and with attention recomputation
TABLE_5 = (
    (64, 6144, 48, 1, 1, 8, 4, 4, 1.42, 1.10),
    (96, 12288, 96, 8, 3, 64, 64, 1, 18.13, 13.75),
    (128, 20480, 105, 35, 3, 280, 280, 1, 49.05, 37.83),
    (160, 25600, 128, 64, 1, 512, 512, 1, 94.42, 71.49),
)


def published() -> list[Published]:
    """All steps."""
    found = []
    for heads, hidden, blocks, tp, pp, devices, batch, rate in TABLE_1:
        # 96·B·s·l·h²·(1 + s/6h + V/16lh), equation 3 of the paper
        square = 96 * batch * TOKENS * blocks * hidden**2
        flops = square * (1 + TOKENS / (6 * hidden) + VOCABULARY / (16 * blocks * hidden))
        micro = 4 if pp == 1 else 1
        mesh = Mesh(tp=tp, pp=pp, dp=devices // (tp * pp))
        trained = Trained(Workload(TOKENS, TOKENS, micro), mesh, batch // mesh.dp // micro, "full")
        found.append(_published(heads, hidden, blocks, trained, flops / (devices * rate * 1e12)))
    for heads, hidden, blocks, pp, chunks, devices, batch, micro, full, selective in TABLE_5:
        modes: tuple[tuple[How, bool, float], ...] = (("full", False, full), ("selective", True, selective))
        for recompute, sp, seconds in modes:
            mesh = Mesh(tp=8, sp=sp, pp=pp, chunks=chunks, dp=devices // (8 * pp))
            trained = Trained(Workload(TOKENS, TOKENS, micro), mesh, batch // micro, recompute)
            found.append(_published(heads, hidden, blocks, trained, seconds))
    return found


def _published(heads: int, hidden: int, blocks: int, trained: Trained, seconds: float) -> Published:
    sizes = {"n_embd": hidden, "n_layer": blocks, "n_head": heads, "vocab_size": VOCABULARY, "n_positions": TOKENS}
    return Published(f"{blocks} x {hidden}", trained, seconds, sizes)
