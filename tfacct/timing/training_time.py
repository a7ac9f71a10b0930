"""Seconds of a training step: an estimate, from the kernels of its forward pass. Never a count.

One law for every layout; stacks differ in constants. A step is read from top to bottom in `step`: the kernels of a
micro-batch, what its devices send meanwhile, the idle time of pipeline stages, and what happens once a step.

Matmuls run once forward and twice backward, and once more where they are recomputed; attention runs two and a half
times backward. Communication does not overlap with computation: it is added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Literal, NamedTuple

from tfacct.accounts.step_flops import How, is_score, recomputed_elements, recomputed_flops
from tfacct.base.record import record
from tfacct.ledger.einsum import AxisNames, rounded_up, size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.ledger.storage import BF16, BF16_EACH
from tfacct.ledger.workload import Workload
from tfacct.loading.devices import Device
from tfacct.parallel.mesh import Mesh
from tfacct.timing.kernels import Kernel, kernels, runs_in_kernel


@record
class TrainingConstants:
    """Constants of a training step. Shares are of a device's peak, bandwidth or link. Fitted: on published steps of MPT
    under FSDP, all devices together; the others as they say."""

    products: float = 0.892  # Share of the bf16 peak that matmuls attain. Fitted.
    products_hot: float = 0.77  # The same of devices with fp8 units, whose power does not last for more. Fitted.
    fp8: float = 0.657  # Share of the fp8 peak that matmuls in fp8 attain. Fitted.
    nvfp4: float = 0.5  # Share of the fp4 peak that matmuls in nvfp4 attain. Chosen by steps of Megatron-Bridge.
    experts: float = 0.4  # Rate of experts' matmuls as a share of that of others. Chosen by steps of Megatron-Bridge.
    attention: float = 0.32  # Share of the bf16 peak that attention attains, by the pairs that its mask keeps. Fitted.
    attention_hot: float = 0.178  # The same of devices with fp8 units. Fitted.
    pointwise: float = 4.27  # Times that work which is no matmul moves its operands and results. Fitted.
    logits: float = 27.7  # Bytes that loss and logits move for each logit. Fitted.
    launch: float = 5.2e-6  # Seconds of a launch. Fitted.
    link: float = 0.639  # Share of the link that collectives attain in a node. Fitted.
    link_far: float = 0.58  # The same of gathers between nodes, of the slower of it and a node's network. Fitted.
    card: float = 0.88  # Share of a network card that sums of gradients between nodes attain. Not fitted.
    reduce: float = 10e-6  # Seconds of half an all-reduce of nothing; NCCL takes 7 to 26 µs for all. Not fitted.
    optimizer: float = 34.6  # Bytes that the optimizer moves for each of a device's parameters. Fitted.
    step: float = 6.85e-3  # Seconds of a step that nothing else explains. Fitted.


MPT = TrainingConstants()
"""Of MPT under FSDP (llm-foundry, 2023)."""
RECENT = TrainingConstants(attention_hot=0.35)
"""Of all other models under FSDP. Stacks since 2024 run attention twice as fast on devices with fp8 units: a share that
was chosen by steps of Megatron-Bridge."""
MEGATRON = TrainingConstants(
    products=0.683, products_hot=0.683 * 0.77 / 0.892, attention=0.106, attention_hot=0.35, pointwise=0.9
)
"""Of all other layouts. Matmuls, unfused attention and pointwise work: fitted on 18 steps of GPT under Megatron-LM on
A100s (2021, 2022). On devices with fp8 units, which came later, matmuls attain less by as much as under FSDP, and
attention is fused."""


UNITS: Mapping[str, str] = {"bf16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
"""Dtypes of the matmuls of layers, and the units of a device that run them."""


@record
class Trained:
    """A training step: `work` is a micro-batch of a replica, `accumulate` of them run before an update; then what is
    recomputed, and the dtype of the matmuls of layers. `frozen`: only adapters are trained, so that weights have no
    gradients. `chunked`: the head is recomputed, for a chunk of the loss at a time."""

    work: Workload
    mesh: Mesh = Mesh()
    accumulate: int = 1
    recompute: How = "none"
    dtype: str = "bf16"
    frozen: bool = False
    chunked: bool = False

    @property
    def megatron(self) -> bool:
        """True if devices share more than weights, gradients and optimizer state; False under FSDP alone."""
        return self.mesh.fsdp != self.mesh.ranks

    @property
    def replica(self) -> int:
        """Number of devices that share a batch."""
        return self.mesh.tp * self.mesh.pp * self.mesh.cp

    @property
    def tokens(self) -> int:
        """Tokens of a step in one replica."""
        return int(self.work.context * self.work.batch * self.accumulate)


class Sent(NamedTuple):
    """Bytes that a device sends over each axis in a micro-batch of all layers, and once a step; `halves`: calls over
    `tp`, of which an all-reduce is two."""

    each: Mapping[str, int] = {}
    once: Mapping[str, int] = {}
    halves: int = 0


class Work(NamedTuple):
    """What a step depends on: the kernels of a micro-batch's forward pass on one of the `tp` devices that share widths,
    its logits there, the model's layers, and parameters of which a device has the weights. `moved`: bytes of operands
    and results of the work that is no matmul. `again`: FLOPs of recomputed projections of attention; `moved_again`:
    bytes of its recomputed pointwise work."""

    forward: Sequence[Kernel]
    logits: int = 0
    layers: int = 1
    weights: float = 0
    moved: float = 0
    sent: Sent = Sent()
    again: float = 0
    moved_again: float = 0

    def flops(self, part: str) -> int:
        """FLOPs of the head, or of the kernels of a kind in all layers."""
        return sum(
            one.flops for one in self.forward if part == ("head" if one.name.startswith("lm_head") else one.kind)
        )


def work_of(ledger: Ledger, trained: Trained) -> Work:
    """The work of one micro-batch on one device of a replica, before stages and shards of its sequences divide it.
    Raises TfacctError for a line that has no kernel, and for a layout that the model does not divide."""
    at, mesh = trained.work.axes(), trained.mesh
    tokens, vocabulary = at["B"] * at["T"], max(group.axes.get("V", 0) for group in ledger.groups)
    forward, undivided = (kernels(ledger, at, BF16, BF16_EACH, BF16_EACH, Mesh(tp)) for tp in (mesh.tp, 1))
    moved = sum(kernel.moved for kernel in (undivided if mesh.sp else forward) if kernel.kind == "pointwise")
    again = moved_again = 0.0
    if trained.recompute == "attention":
        again = float(recomputed_flops(ledger, at, "attention", keep=lambda _, line: not is_score(line)) / mesh.tp)
        elements = recomputed_elements(ledger, at, "attention", keep=lambda line: not runs_in_kernel(line))
        moved_again = BF16_EACH.bytes(2 * elements) / mesh.tp
    return Work(
        [kernel for kernel in forward if kernel.kind != "all-gather"],  # the loss reads divided logits
        tokens * int(rounded_up(vocabulary, mesh.tp)),
        sum(int(group.count) for group in ledger.groups if group.numbers),
        sharded(ledger, trained)[0],
        moved / mesh.tp if mesh.sp else moved,
        sent_by(ledger, trained),
        again,
        moved_again,
    )


def sent_by(ledger: Ledger, trained: Trained) -> Sent:
    """What `tfacct train` counts, with the gradients of one tensor summed first, as Megatron-LM does. Frozen weights
    have no gradients. Gathers over `fsdp` are once a step in a pipeline alone. Raises UsageError for a layout that the
    model does not divide."""
    from tfacct.parallel.pipeline import ONCE, staged
    from tfacct.parallel.rules import collectives

    mesh, halves = replace(trained.mesh, pp=1, chunks=1, plan="megatron"), 0
    each, once, at = Counter[str](), Counter[str](), trained.work.axes()
    again: Literal["layers"] | None = "layers" if trained.recompute == "full" else None
    every = collectives(ledger, mesh, at, BF16_EACH.bits, train=True, recomputed=again)
    for one in staged(every) if trained.mesh.pp > 1 else every:
        if not (trained.frozen and one.of == "weights" and one.kind != "all-gather"):
            is_once = one.of in ONCE and (one.over != "fsdp" or trained.mesh.pp > 1)
            (once if is_once else each)[one.over] += one.sent
            halves += 0 if is_once or one.over != "tp" else one.calls * (1 + (one.kind == "all-reduce"))
    return Sent(each, once, halves)


def sharded(ledger: Ledger, trained: Trained) -> tuple[float, float]:
    """Parameters of which a device has weights and gradients, and those of which it has at least the optimizer state,
    which replicas may shard too."""
    mesh, shards = trained.mesh, trained.mesh.fsdp > 1
    experts = int(sum(one.count * one.elements for one in ledger.tensors() if one.parameter.is_expert))
    dense, parts = sum(ledger.parameters().values()) - experts, mesh.pp * (mesh.ep if mesh.ep > 1 else mesh.tp)
    each = dense / (mesh.pp * mesh.tp), experts / parts
    copies = (mesh.weight_shards, mesh.expert_shards) if shards else (mesh.replicas, mesh.expert_replicas)
    least = each[0] / copies[0] + each[1] / copies[1]
    return least if shards else sum(each), least


class Parts(dict[str, float]):
    """Seconds of a step by what they go to, in the order in which they are shown."""

    @property
    def seconds(self) -> float:
        return sum(self.values())


def step(work: Work, device: Device, trained: Trained, c: TrainingConstants) -> Parts:
    """Seconds of a step on each device, by the pipeline stage that has most layers. The head's time is taken to be
    shared by all stages, and experts get equally many tokens."""
    mesh, is_hot = trained.mesh, "fp8" in device.peak
    passes = 3 + (trained.recompute == "full")  # over the layers, the backward pass counted twice
    of_matmuls = passes - trained.frozen  # half of their backward pass is the gradient of their weights
    of_attention = 3.5 + (trained.recompute != "none")  # its backward pass has five matmuls for two
    share_of_peak = {"bf16": c.products_hot if is_hot else c.products, "fp8": c.fp8, "nvfp4": c.nvfp4}
    wide = device.peak["bf16"] * share_of_peak["bf16"]
    matmuls = device.peak[UNITS[trained.dtype]] * share_of_peak[trained.dtype]
    attention = device.peak["bf16"] * (c.attention_hot if is_hot else c.attention)

    def rate(devices: int) -> float:
        return device.link(devices).rate * c.link if devices > 1 else inf

    # A micro-batch: its layers in the stage, and the share of their tokens on one device.
    of_layers = rounded_up(work.layers, mesh.pp) / work.layers
    share, of_head = of_layers / mesh.cp, 1 / (mesh.pp * mesh.cp)
    each, once, halves = work.sent
    micro_batch = Parts(
        products=share * (work.flops("gemm") * of_matmuls + work.again) / matmuls,
        experts=share * work.flops("experts") * of_matmuls / (matmuls * c.experts),
        head=of_head * work.flops("head") * (3 - trained.frozen + trained.chunked) / wide,
        attention=share * work.flops("attention") * of_attention / attention,
        pointwise=share * (work.moved * passes + work.moved_again) * c.pointwise / device.bandwidth,
        logits=of_head * work.logits * c.logits / device.bandwidth,
        launches=of_layers * sum(one.times for one in work.forward) * passes * c.launch,
        sums=of_layers * (each.get("tp", 0) / rate(mesh.tp) + halves * c.reduce),
        exchange=of_layers * each.get("ep", 0) / rate(mesh.ep),
    )

    # Weights and gradients: sharded, both are sent in every micro-batch, or once in a pipeline; else gradients once.
    gathers = gradients = 0.0
    if mesh.ranks > 1:
        between = device.link(mesh.ranks)
        is_far = between.reach == "network"
        gathered = trained.accumulate * each.get("fsdp", 0) + once.get("fsdp", 0)
        gathers = gathered / mesh.pp / (between.rate * (c.link_far if is_far else c.link))
        gradients = (
            (once.get("dp", 0) + once.get("cp", 0)) / mesh.pp / (between.card * c.card if is_far else rate(mesh.ranks))
        )
    return Parts(
        {name: trained.accumulate * seconds for name, seconds in micro_batch.items()},
        waiting=(mesh.pp - 1) / mesh.chunks * micro_batch.seconds,
        gathers=gathers,
        gradients=gradients,
        optimizer=0.0 if trained.frozen else work.weights * c.optimizer / device.bandwidth,
        rest=c.step,
    )


# Memory that every implementation of a step needs: one with less has no estimate of its time.


def least_bytes(ledger: Ledger, trained: Trained) -> int:
    """Bytes that every implementation of a step needs on each device: weights, gradients and two states of AdamW in
    bf16, and saved activations, of a byte each if matmuls are narrower. Replicas shard at most the optimizer state;
    frozen weights have four bits."""
    weights, least = sharded(ledger, trained)
    in_flight = min(trained.mesh.pp, trained.accumulate)
    activations = (2 if trained.dtype == "bf16" else 1) * _least_saved(ledger, trained) * in_flight / trained.replica
    if trained.frozen:
        return int(weights / 2 + activations)
    gradients, states = 2 * weights, 2 * weights + 4 * least
    return int(states + (gradients + activations if trained.accumulate > 1 else max(gradients, activations)))


def _least_saved(ledger: Ledger, trained: Trained) -> int:
    """Elements that every implementation saves for the backward pass of all layers: the results of matmuls.

    Attention scores stay within a fused kernel, and what is added to the residual stream is saved once a layer: norms,
    activations and rotary embeddings can be computed again from these. A recomputed layer saves its input alone.
    """
    at, total = trained.work.axes(), 0
    for group in (group for group in ledger.groups if group.numbers):
        axes = group.bound(at)
        products = [line.einsum for line in group.lines if isinstance(line, Matmul)]
        stream, results = products[0].left, list[AxisNames]()
        if trained.recompute != "full":
            results = [one.out for one in products if one.out != stream and not {"T", "S"} <= set(one.out)]
        total += int(group.count) * sum(int(size(axes, result)) for result in (stream, *results))
    return total
