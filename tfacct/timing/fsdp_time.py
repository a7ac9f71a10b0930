"""Seconds of a training step under FSDP: an estimate, from the kernels of its forward pass. Never a count.

Products run once forward and twice backward, and once more where blocks are recomputed; attention two and a half times
backward. Weights are gathered for both passes and gradients scattered, which overlaps with little; the optimizer reads
and writes its part once a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfacct.base.record import record
from tfacct.ledger.einsum import Axes, rounded_up, size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.ledger.storage import BF16, BF16_EACH
from tfacct.ledger.workload import Workload
from tfacct.timing.kernels import Kernel, Split, kernels
from tfacct.timing.timing import Device

UTILIZATION = 0.463
"""Median utilization of the peak (MFU, all pairs) of the measured runs: the plainest of predictions."""

WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 2 + 2
"""Bytes per parameter of a weight, its gradient and AdamW's two states, all in bf16: the least of any step."""
LAUNCHED = ("gemm", "attention", "pointwise")
"""Kinds of the kernels whose launches are counted."""


@record
class TrainingConstants:
    """Constants of a training step. Shares are of a device's peak, bandwidth or link. Fitted: on published steps of
    dense decoders under FSDP (docs/time.md), all devices together."""

    products: float = 0.892  # Share of the bf16 peak that products attain. Fitted.
    products_hot: float = 0.77  # The same of devices with fp8 units, whose power does not last for more. Fitted.
    fp8: float = 0.657  # Share of the fp8 peak that products in fp8 attain. Fitted.
    attention: float = 0.32  # Share of the bf16 peak that attention attains, by the pairs that its mask keeps. Fitted.
    attention_hot: float = 0.178  # The same of devices with fp8 units. Fitted.
    pointwise: float = 4.27  # Times that work which is no product moves its operands and results. Fitted.
    logits: float = 27.7  # Bytes that loss and logits move for each logit. Fitted.
    launch: float = 5.2e-6  # Seconds of a launch. Fitted.
    link: float = 0.639  # Share of the link that gathers and scatters attain in a node. Fitted.
    link_far: float = 0.58
    """The same between nodes, of the slower of that link and all network cards of a node. Fitted."""
    optimizer: float = 34.6  # Bytes that the optimizer moves for each of a device's parameters. Fitted.
    step: float = 6.85e-3  # Seconds of a step beside all that. Fitted.


TRAINING = TrainingConstants()
"""Of MPT under llm-foundry (2023)."""
RECENT = TrainingConstants(attention_hot=0.35)
"""Of all other models. Stacks since 2024 run attention twice as fast on devices with fp8 units: a share that was chosen
by steps of Megatron-Bridge."""


@record
class Trained:
    """A training step: sequences of a micro-batch on each of `devices`, how many of these before an update, whether
    blocks run again before their backward pass, and whether products are in fp8."""

    context: int
    batch: int
    devices: int = 1
    accumulate: int = 1
    recompute: bool = False
    fp8: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a step on one device."""
        return self.context * self.batch * self.accumulate


class Parts(dict[str, float]):
    """Seconds of a step by what they go to, in the order in which they are shown."""

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return sum(self.values())


def least_saved(ledger: Ledger, at: Axes, *, recompute: bool = False) -> int:
    """Elements that every implementation saves for the backward pass of all layers: the results of matmuls.

    Attention scores stay within a fused kernel, and what is added to the residual stream is saved once a layer: norms,
    activations and rotary embeddings can be computed again from these. With `recompute` a layer saves its input alone.
    """
    total = 0
    for group in (group for group in ledger.groups if group.numbers):
        axes = group.bound(at)
        products = [line.einsum for line in group.lines if isinstance(line, Matmul)]
        stream = products[0].left
        results = (
            [] if recompute else [one.out for one in products if one.out != stream and not {"T", "S"} <= set(one.out)]
        )
        total += int(group.count) * sum(int(size(axes, result)) for result in (stream, *results))
    return total


def least_bytes(ledger: Ledger, at: Axes, trained: Trained, ranks: int = 1, in_flight: int = 1) -> int:
    """Bytes that every implementation of a step needs on each device, all in bf16 with AdamW.

    Under FSDP all devices shard weights, gradients and optimizer state; among `ranks` of tensor and pipeline
    parallelism data-parallel replicas shard at most the optimizer state. `in_flight`: micro-batches whose activations
    are saved at once.
    """
    parameters, shards = sum(ledger.parameters().values()), trained.devices if ranks == 1 else ranks
    saved = least_saved(ledger, at, recompute=trained.recompute)
    activations = (1 if trained.fp8 else 2) * saved * in_flight // ranks
    gradients = GRADIENT_BYTES * parameters // shards
    states = WEIGHT_BYTES * parameters // shards + OPTIMIZER_BYTES * parameters // trained.devices
    return states + (gradients + activations if trained.accumulate > 1 else max(gradients, activations))


class Work(NamedTuple):
    """What a step depends on: the kernels of a micro-batch's forward pass on one of the devices that share widths, its
    logits there, the model's parameters, its blocks, and the bytes of work that is no product with widths undivided."""

    forward: Sequence[Kernel]
    logits: int
    parameters: int
    blocks: int = 0
    undivided_moved: int = 0

    def total(self, field: str, *parts: str) -> int:
        """Sum of a field of the kernels of these parts: the head, or those of a kind in all blocks."""
        found = (("head" if one.name.startswith("lm_head") else one.kind, getattr(one, field)) for one in self.forward)
        return sum(number for part, number in found if part in parts)


def work_of(ledger: Ledger, trained: Trained, tp: int = 1) -> Work:
    """The work of one micro-batch on one of `tp` devices. Raises ConfigError for a line that has no kernel."""
    at = Workload(trained.context, trained.context, trained.batch).axes()
    vocabulary = max(group.axes.get("V", 0) for group in ledger.groups)
    divided, undivided = (kernels(ledger, at, BF16, BF16_EACH, BF16_EACH, Split(each)) for each in (tp, 1))
    logits = trained.batch * trained.context * int(rounded_up(vocabulary, tp))
    moved = sum(kernel.moved for kernel in undivided if kernel.kind == "pointwise")
    blocks = sum(int(group.count) for group in ledger.groups if group.numbers)
    return Work(divided, logits, sum(ledger.parameters().values()), blocks, moved)


def step(work: Work, device: Device, trained: Trained, c: TrainingConstants = TRAINING) -> Parts:
    """Seconds of a step on each of the devices."""
    passes = 4 if trained.recompute else 3
    hot = "fp8" in device.peak
    wide = device.peak["bf16"]
    attained = wide * (c.products_hot if hot else c.products)
    attention_at = wide * (c.attention_hot if hot else c.attention)
    in_blocks = device.peak["fp8"] * c.fp8 if trained.fp8 else attained
    gathering = 0.0
    if trained.devices > 1:
        link = device.link(trained.devices)
        sent = 3 * BF16_EACH.bytes(work.parameters) * (trained.devices - 1) / trained.devices
        gathering = sent / (link.rate * (c.link_far if link.reach == "network" else c.link))
    each = trained.accumulate
    return Parts(
        products=each * work.total("flops", "gemm") * passes / in_blocks,
        head=each * work.total("flops", "head") * 3 / attained,
        attention=each * work.total("flops", "attention") * (passes + 0.5) / attention_at,
        pointwise=each * work.total("moved", "pointwise") * c.pointwise * passes / device.bandwidth,
        logits=each * work.logits * c.logits / device.bandwidth,
        launches=each * work.total("times", *LAUNCHED) * passes * c.launch,
        gathers=each * gathering,
        optimizer=work.parameters / trained.devices * c.optimizer / device.bandwidth,
        rest=c.step,
    )
