"""Seconds of a training step under FSDP: an estimate, from the kernels of its forward pass. Never a count.

Products run once forward and twice backward, and once more where blocks are recomputed; attention two and a half times
backward. Weights are gathered for both passes and gradients scattered, which overlaps with little; the optimizer reads
and writes its part once a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfacct.accounts.metrics import Recompute
from tfacct.base.record import record
from tfacct.ledger.einsum import Axes, rounded_up, size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import ACTIVE, Matmul
from tfacct.ledger.storage import BF16, BF16_EACH
from tfacct.ledger.workload import Workload
from tfacct.timing.kernels import Kernel, Split, kernels
from tfacct.timing.timing import Device

UTILIZATION = 0.463
"""Median utilization of the peak (MFU, all pairs) of the measured runs: the plainest of predictions."""

WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 2 + 2
"""Bytes per parameter of a weight, its gradient and AdamW's two states, all in bf16: the least of any step."""
LAUNCHED = ("gemm", "experts", "attention", "pointwise")
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
    step: float = 6.85e-3  # Seconds of a step that nothing else explains. Fitted.


TRAINING = TrainingConstants()
"""Of MPT under llm-foundry (2023)."""
RECENT = TrainingConstants(attention_hot=0.35)
"""Of all other models. Stacks since 2024 run attention twice as fast on devices with fp8 units: a share that was chosen
by steps of Megatron-Bridge."""


UNITS: Mapping[str, str] = {"bf16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
"""Dtypes of the matmuls of layers, and the units of a device that run them."""
NVFP4 = 0.5
"""Share of the fp4 peak that matmuls in nvfp4 attain. Chosen by steps of Megatron-Bridge."""
EXPERTS = 0.4
"""Rate of the matmuls of experts, as a share of that of other matmuls. Chosen by steps of Megatron-Bridge."""


@record
class Trained:
    """A training step: sequences of a micro-batch on each of `devices`, how many of these before an update, what is
    recomputed, and the dtype of the matmuls of layers. `ep`: devices that share the experts. `frozen`: only adapters
    are trained, so that weights have no gradients."""

    context: int
    batch: int
    devices: int = 1
    accumulate: int = 1
    recompute: Recompute = "none"
    dtype: str = "bf16"
    ep: int = 1
    frozen: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a step on one device."""
        return self.context * self.batch * self.accumulate

    @property
    def passes(self) -> int:
        """Passes over the layers, the backward pass counted twice."""
        return 3 + (self.recompute == "full")

    @property
    def matmul_passes(self) -> int:
        """The same for matmuls, half of whose backward pass is the gradient of their weights."""
        return self.passes - self.frozen

    @property
    def attention_passes(self) -> float:
        """The same for attention, whose backward pass has five matmuls for two."""
        return 3.5 + (self.recompute != "none")


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


def least_bytes(
    ledger: Ledger, at: Axes, trained: Trained, ranks: int = 1, in_flight: int = 1, shards: int | None = None
) -> int:
    """Bytes that every implementation of a step needs on each device, all in bf16 with AdamW.

    Activations are sharded over `ranks`, weights and gradients over `shards` devices: all of them under FSDP, else as
    many as activations. Replicas shard at most the optimizer state. `in_flight`: micro-batches whose activations are
    saved at once.
    """
    shards = shards or (trained.devices if ranks == 1 else ranks)
    experts = expert_parameters(ledger)
    parameters = (sum(ledger.parameters().values()) - experts) // shards
    parameters += experts // min(shards * trained.ep, trained.devices)
    saved = least_saved(ledger, at, recompute=trained.recompute == "full")
    activations = (2 if trained.dtype == "bf16" else 1) * saved * in_flight // ranks
    if trained.frozen:
        return parameters // 2 + activations  # weights in four bits
    gradients = GRADIENT_BYTES * parameters
    states = WEIGHT_BYTES * parameters + OPTIMIZER_BYTES * parameters * shards // trained.devices
    return states + (gradients + activations if trained.accumulate > 1 else max(gradients, activations))


def expert_parameters(ledger: Ledger) -> int:
    """Parameters of routed experts."""
    paths = {one.path for group in ledger.groups for one in group.cached_lines.parameters if one.is_expert}
    return int(sum(elements for path, elements in ledger.parameters().items() if path in paths))


class Work(NamedTuple):
    """What a step depends on: the kernels of a micro-batch's forward pass on one of the devices that share widths, its
    logits there, the model's parameters, its blocks, and the bytes of work that is no product with widths undivided.
    `expert_parameters`: those of routed experts; `routed`: bytes of tokens sent to them, once for each expert.
    `cached`: bytes of keys and values."""

    forward: Sequence[Kernel]
    logits: int
    parameters: int
    blocks: int = 0
    undivided_moved: int = 0
    expert_parameters: int = 0
    routed: int = 0
    cached: int = 0

    def total(self, field: str, *parts: str) -> int:
        """Sum of a field of the kernels of these parts: the head, or those of a kind in all blocks."""
        found = (("head" if one.name.startswith("lm_head") else one.kind, getattr(one, field)) for one in self.forward)
        return sum(number for part, number in found if part in parts)

    def parameters_each(self, shards: int, ep: int) -> float:
        """Parameters on one of `shards` devices, between groups of which `ep` share the experts."""
        return (self.parameters - self.expert_parameters) / shards + self.expert_parameters / (shards * ep)

    def shared_bytes(self, shards: int, copies: int, ep: int) -> float:
        """Bytes in bf16 that one device receives of the weights or gradients that `copies` devices have of its shard.
        Of the experts `copies` / `ep` devices have the same."""
        dense, experts = self.parameters - self.expert_parameters, self.expert_parameters / ep
        return int(BF16_EACH.bytes(1)) / shards * (dense * (1 - 1 / copies) + experts * max(0, 1 - ep / copies))

    def exchange(self, device: Device, trained: Trained, share: float) -> float:
        """Seconds in which the tokens of a micro-batch reach their experts and return, in all passes, at this share of
        the link. All experts get as many tokens."""
        if trained.ep == 1:
            return 0.0
        sent = 2 * (trained.passes - 1) * self.routed * (1 - 1 / trained.ep)
        rate: float = device.link(trained.ep).rate
        return sent / (rate * share)


def work_of(ledger: Ledger, trained: Trained, tp: int = 1) -> Work:
    """The work of one micro-batch on one of `tp` devices. Raises ConfigError for a line that has no kernel."""
    at = Workload(trained.context, trained.context, trained.batch).axes()
    vocabulary = max(group.axes.get("V", 0) for group in ledger.groups)
    divided, undivided = (kernels(ledger, at, BF16, BF16_EACH, BF16_EACH, Split(each)) for each in (tp, 1))
    tokens = trained.batch * trained.context
    moved = sum(kernel.moved for kernel in undivided if kernel.kind == "pointwise")
    layers = [group for group in ledger.groups if group.numbers]
    routed = sum(int(group.count) * group.axes.get(ACTIVE, 0) * group.axes["D"] for group in layers)
    return Work(
        divided,
        tokens * int(rounded_up(vocabulary, tp)),
        sum(ledger.parameters().values()),
        sum(int(group.count) for group in layers),
        moved,
        expert_parameters(ledger),
        BF16_EACH.bytes(tokens * routed),
        sum(sum(kernel.cached.values()) for kernel in divided),
    )


def matmul_rate(device: Device, dtype: str, wide: float, c: TrainingConstants = TRAINING) -> float:
    """FLOPs per second of the matmuls of layers in this dtype. `wide`: in bf16."""
    if dtype == "bf16":
        return wide
    return device.peak[UNITS[dtype]] * (NVFP4 if dtype == "nvfp4" else c.fp8)


def gather_rate(device: Device, devices: int, c: TrainingConstants = TRAINING) -> float:
    """Bytes per second of the link over which so many devices gather weights."""
    link = device.link(devices)
    return link.rate * (c.link_far if link.reach == "network" else c.link)


def kernel_seconds(
    work: Work,
    device: Device,
    trained: Trained,
    wide: float,
    attention: float,
    moved: float,
    c: TrainingConstants = TRAINING,
) -> Parts:
    """Seconds of the kernels of a micro-batch in all layers, with the head, in all passes. `wide`, `attention`: FLOPs
    per second of matmuls in bf16 and of attention; `moved`: bytes of the work that is no matmul, in one pass."""
    matmuls, passes = matmul_rate(device, trained.dtype, wide, c), trained.passes
    return Parts(
        products=work.total("flops", "gemm") * trained.matmul_passes / matmuls,
        experts=work.total("flops", "experts") * trained.matmul_passes / (matmuls * EXPERTS),
        head=work.total("flops", "head") * 3 / wide,
        attention=work.total("flops", "attention") * trained.attention_passes / attention,
        pointwise=moved * passes / device.bandwidth,
        logits=work.logits * c.logits / device.bandwidth,
        launches=work.total("times", *LAUNCHED) * passes * c.launch,
    )


def step(work: Work, device: Device, trained: Trained, c: TrainingConstants = TRAINING) -> Parts:
    """Seconds of a step on each of the devices."""
    hot = "fp8" in device.peak
    wide = device.peak["bf16"]
    attention = wide * (c.attention_hot if hot else c.attention)
    moved = work.total("moved", "pointwise") * c.pointwise
    all_layers = kernel_seconds(
        work, device, trained, wide * (c.products_hot if hot else c.products), attention, moved, c
    )
    gathering = 0.0
    if trained.devices > 1:
        sent = (3 - trained.frozen) * work.shared_bytes(1, trained.devices, trained.ep)
        gathering = sent / gather_rate(device, trained.devices, c)
    each, optimized = trained.accumulate, 0 if trained.frozen else work.parameters
    return Parts(
        {name: each * seconds for name, seconds in all_layers.items()},
        gathers=each * gathering,
        exchange=each * work.exchange(device, trained, c.link),
        optimizer=optimized / trained.devices * c.optimizer / device.bandwidth,
        rest=c.step,
    )
