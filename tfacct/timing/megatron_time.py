"""Seconds of a training step under tensor and pipeline parallelism: an estimate, as Megatron ran such steps. Never a
count.

`tp` devices of a node share heads and widths and sum each part's result; `pp` stages share the blocks and hand the
stream on, each waiting while the first micro-batch comes and the last one goes; what is left of the devices are copies
that sum their gradients once a step, between nodes over a network card each. Attention is unfused, as it ran then: its
pairs take more than under FSDP. On devices with fp8 units, which came later, it is fused, as stacks since 2024 run it.
"""

from __future__ import annotations

from tfacct.base.record import record
from tfacct.ledger.einsum import rounded_up
from tfacct.timing.fsdp_time import RECENT, TRAINING, Parts, Trained, Work, gather_rate, kernel_seconds
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
    `chunks` parts each; `cp` that share the tokens of a sequence; the others are copies, of which `fsdp` shard the
    weights."""

    tp: int = 1
    sp: bool = False
    pp: int = 1
    chunks: int = 1
    cp: int = 1
    fsdp: int = 1

    @property
    def ranks(self) -> int:
        """Number of devices that share a batch."""
        return self.tp * self.pp * self.cp

    @property
    def shards(self) -> int:
        """Number of devices that share each weight, unless `fsdp` shards them too."""
        return self.tp * self.pp


def step(work: Work, device: Device, trained: Trained, mesh: MegatronLayout, c: MegatronConstants = MEGATRON) -> Parts:
    """Seconds of a step, by the stage that has most blocks; the head's time is taken to be shared by all stages.

    Nothing was fitted to devices with fp8 units: they attain less of their peak in bf16 by as much as they do under
    FSDP, and in fp8 and attention what they do there.
    """
    wide = device.peak["bf16"]
    hot = "fp8" in device.peak
    matmuls = wide * c.products * (TRAINING.products_hot / TRAINING.products if hot else 1)
    attention = wide * (RECENT.attention_hot if hot else c.attention)
    blocks = rounded_up(work.blocks, mesh.pp) / work.blocks
    share, of_head = blocks / mesh.cp, 1 / (mesh.pp * mesh.cp)
    shares = {"head": of_head, "logits": of_head, "launches": blocks}
    moved = work.undivided_moved / mesh.tp if mesh.sp else work.total("moved", "pointwise")
    all_layers = kernel_seconds(work, device, trained, matmuls, attention, moved * c.pointwise)
    ring = 2 * (mesh.tp - 1) / mesh.tp * work.total("moved", "all-reduce") / mesh.cp
    sums = 0.0
    if mesh.tp > 1:
        sums = ring / (device.link(mesh.tp).rate * c.link) + work.total("times", "all-reduce") * c.reduce
    around = 0.0
    if mesh.cp > 1:  # keys and values go around once forward, and with their gradients backward
        sent = work.cached * (1 - 1 / mesh.cp) * (3 + (trained.recompute != "none"))
        around = sent / (device.link(mesh.tp * mesh.cp).rate * c.link)
    micro_batch = Parts(
        {name: seconds * shares.get(name, share) for name, seconds in all_layers.items()},
        sums=blocks * sums * (trained.passes - 1),
        ring=blocks * around,
        exchange=share * work.exchange(device, trained, c.link),
    )
    stage = micro_batch.seconds - micro_batch["head"] - micro_batch["logits"]
    copies, optimized = trained.devices // mesh.shards, 0.0
    gathers = gradients = 0.0
    if mesh.fsdp > 1:
        sent = (3 - trained.frozen) * work.shared_bytes(mesh.shards, copies, trained.ep)
        gathers = trained.accumulate * sent / gather_rate(device, trained.devices)
    elif copies > 1 and not trained.frozen:
        between = device.link(trained.devices)
        over = between.card * c.card if between.reach == "network" else between.rate * c.link
        gradients = 2 * work.shared_bytes(mesh.shards, copies, trained.ep) / over
    if not trained.frozen:
        optimized = work.parameters_each(mesh.shards, trained.ep) / (copies if mesh.fsdp > 1 else 1)
    return Parts(
        {name: trained.accumulate * seconds for name, seconds in micro_batch.items()},
        waiting=(mesh.pp - 1) / mesh.chunks * stage,
        gathers=gathers,
        gradients=gradients,
        optimizer=optimized * TRAINING.optimizer / device.bandwidth,
        rest=TRAINING.step,
    )
