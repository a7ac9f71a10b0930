"""Seconds of a training step under tensor and pipeline parallelism: an estimate, as Megatron ran such steps. Never a
count.

`tp` devices of a node share heads and widths and sum each part's result; `pp` stages share the blocks and hand the
stream on, each waiting while the first micro-batch comes and the last one goes; what is left of the devices are copies
that sum their gradients once a step, between nodes over a network card each. Attention is unfused, as it ran then: its
pairs take more than under FSDP. On devices with fp8 units, which came later, it is fused, as stacks since 2024 run it.
"""

from __future__ import annotations

from tfacct.accounts.metrics import Recompute
from tfacct.base.record import record
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.storage import BF16_EACH
from tfacct.timing.fsdp_time import LAUNCHED, RECENT, TRAINING, Parts, Trained, Work
from tfacct.timing.timing import Device


@record
class MegatronConstants:
    """Constants of such a step. Fitted: on eighteen published steps of GPT models on A100s (docs/time.md)."""

    products: float = 0.683  # Share of the bf16 peak that products attain, divided among a node's devices. Fitted.
    attention: float = 0.106
    """Share of the bf16 peak that unfused attention attains, by the pairs that its mask keeps. Fitted."""
    pointwise: float = 0.9
    """Times that work which is no product moves its operands and results, in kernels fused by hand. Fitted."""
    link: float = 0.639  # Share of the link that sums over a node's devices attain. That of gathers under FSDP.
    reduce: float = 20e-6  # Seconds of a sum of nothing; NCCL takes 7 to 26 µs in a node. Not fitted.
    card: float = 0.88  # Share of a network card that sums of gradients between nodes attain. Not fitted.


MEGATRON = MegatronConstants()
UTILIZATION = 0.48
"""Share of the peak, what runs again counted, that published steps have in the middle: the plainest of predictions."""


@record
class MegatronLayout:
    """How devices divide a step: `tp` of a node, with `sp` the tokens of the stream among them too; `pp` stages of
    `chunks` parts each; the others are copies."""

    tp: int = 1
    sp: bool = False
    pp: int = 1
    chunks: int = 1

    @property
    def ranks(self) -> int:
        """Number of devices that hold one copy."""
        return self.tp * self.pp


def step(
    work: Work,
    device: Device,
    trained: Trained,
    mesh: MegatronLayout,
    recompute: Recompute = "none",
    c: MegatronConstants = MEGATRON,
) -> Parts:
    """Seconds of a step, by the stage that has most blocks; the head's time is taken to be shared by all stages.

    Nothing was fitted to devices with fp8 units: they attain less of their peak in bf16 by as much as they do under
    FSDP, and in fp8 and attention what they do there.
    """
    wide, passes = device.peak["bf16"], 4 if recompute == "full" else 3
    hot = "fp8" in device.peak
    head_at = wide * c.products * (TRAINING.products_hot / TRAINING.products if hot else 1)
    products_at = device.peak["fp8"] * TRAINING.fp8 if trained.fp8 else head_at
    attention_at = wide * (RECENT.attention_hot if hot else c.attention)
    share = rounded_up(work.blocks, mesh.pp) / work.blocks
    moved = work.undivided_moved / mesh.tp if mesh.sp else work.total("moved", "pointwise")
    ring = 2 * (mesh.tp - 1) / mesh.tp * work.total("moved", "all-reduce")
    sums = 0.0
    if mesh.tp > 1:
        sums = ring / (device.link(mesh.tp).rate * c.link) + work.total("times", "all-reduce") * c.reduce
    micro_batch = Parts(
        products=share * work.total("flops", "gemm") * passes / products_at,
        head=work.total("flops", "head") * 3 / head_at / mesh.pp,
        attention=share * work.total("flops", "attention") * (passes + 0.5 + (recompute == "attention")) / attention_at,
        pointwise=share * moved * c.pointwise * passes / device.bandwidth,
        logits=work.logits * TRAINING.logits / device.bandwidth / mesh.pp,
        launches=share * work.total("times", *LAUNCHED) * passes * TRAINING.launch,
        sums=share * sums * (passes - 1),
    )
    stage = micro_batch.seconds - micro_batch["head"] - micro_batch["logits"]
    copies, parameters, gradients = trained.devices // mesh.ranks, work.parameters / mesh.ranks, 0.0
    if copies > 1:
        between = device.link(trained.devices)
        over = between.card * c.card if between.reach == "network" else between.rate * c.link
        gradients = 2 * BF16_EACH.bytes(1) * parameters * (copies - 1) / copies / over
    return Parts(
        {name: trained.accumulate * seconds for name, seconds in micro_batch.items()},
        waiting=(mesh.pp - 1) / mesh.chunks * stage,
        gradients=gradients,
        optimizer=parameters * TRAINING.optimizer / device.bandwidth,
        rest=TRAINING.step,
    )
