"""A training step, or one rank's share of it: its graph, the dtypes and shards of its weights, and what stays alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import Width
from tfacct.training.graph import LAYER_INPUT, Bytes, LayerGroup, Role, SavedTensor, StepGraph, Transient
from tfacct.training.saved_tensors import ROTARY

INPUTS_ON_DEVICE = 2
"""Layer inputs that stay on the device if the others are offloaded."""


class Adapter(NamedTuple):
    """A weight of an adapter, which each of some layers has: elements and bytes of one."""

    path: str
    elements: Size
    bytes: Size
    numbers: Sequence[int]


class LayerShards(NamedTuple):
    """What a rank of FSDP or ZeRO stores of one layer: elements of its weights, of experts if other ranks share these,
    and bytes of its adapters."""

    elements: int = 0
    experts: int = 0
    adapters: int = 0


class WeightShards(NamedTuple):
    """Weights that FSDP or ZeRO shards: elements on the rank with most, padding included.

    `ranks` share each weight, `expert_ranks` experts that expert parallelism divides. `stored`: dtype of the shards of
    weights, gradients and optimizer state. `layers`: of one layer of each group of the graph. `root`: what is in no
    layer. `gathers`: weights are sharded too, and gathered layer by layer; otherwise only their gradients are sharded.
    `accumulates`: shards of earlier gradients are there. `replicated`: gradients are also reduced among copies (HSDP).
    """

    ranks: int
    expert_ranks: int
    stored: Width
    layers: tuple[LayerShards, ...]
    root: int
    gathers: bool = True
    accumulates: bool = False
    replicated: bool = False


class PipelineStage(NamedTuple):
    """What a rank of a pipeline has next to the micro-batch that runs, in bytes.

    `rank` is its number. `in_flight`: micro-batches in flight, the running one among them. `saved`: activations of the
    others. `weights`, `gradients`: of the rank's other stages. `buffers`: what it receives into, and the batch.
    `passed_on`: results of micro-batches in flight that it gave to the next stage. `receives`: the gradient of its
    result is among the buffers.
    """

    rank: int
    in_flight: int = 1
    saved: Size = 0
    weights: Size = 0
    gradients: Size = 0
    buffers: Size = 0
    passed_on: Size = 0
    receives: bool = False


class TrainingStep(NamedTuple):
    """A training step, or one rank's share of it.

    `compute`: dtype of the step. `stored`: dtype of weights, gradients and residual stream: fp32 under autocast.
    `optimizer_state`: bytes of it, the `master_weights` among them. `update`: temporary bytes while the optimizer
    updates the weights, and `uncertain`, how many bytes less these may be, by the order of the parameters. `recompute`:
    layers save their input alone, and run again; `offloads_inputs`: all inputs but two are on the host. `accumulates`:
    gradients of earlier micro-batches are there. `keeps_logits`: the caller keeps the logits. `adapters` are trained in
    place of the model's own weights, if there are any. `frozen`: bytes of these weights, if they are not stored as
    `stored` says. `shards`: weights that FSDP or ZeRO shards. `stage`: what a pipeline stage has next to its
    micro-batch. `buckets`: bytes of the buffers in which DDP reduces gradients. `other_rows`: bytes of rows of the
    embedding on other ranks, whose gradient each rank computes.
    """

    graph: StepGraph
    ledger: Ledger
    axes: Axes
    compute: Width
    stored: Width
    optimizer_state: Size = 0
    master_weights: Size = 0
    update: Size = 0
    uncertain: Size = 0
    recompute: bool = False
    offloads_inputs: bool = False
    accumulates: bool = False
    keeps_logits: bool = False
    adapters: tuple[Adapter, ...] = ()
    frozen: Size | None = None
    shards: WeightShards | None = None
    stage: PipelineStage | None = None
    buckets: Size = 0
    other_rows: Size = 0

    @property
    def adapter_bytes(self) -> Size:
        """Bytes of the adapters' parameters; of their shards, where there are any."""
        if self.shards is not None and self.adapters:
            layers = zip(self.graph.groups, self.shards.layers, strict=True)
            return sum(group.count * layer.adapters for group, layer in layers)
        return sum(len(adapter.numbers) * adapter.bytes for adapter in self.adapters)

    @property
    def sharded_elements(self) -> Size:
        """Elements of the weights of which a rank stores a shard."""
        assert self.shards is not None
        layers = zip(self.graph.groups, self.shards.layers, strict=True)
        return self.shards.root + sum(group.count * (own.elements + own.experts) for group, own in layers)

    @property
    def sharded_gradients(self) -> Size:
        """Bytes of the rank's shards of all gradients."""
        assert self.shards is not None
        return self.adapter_bytes if self.adapters else self.shards.stored.bytes(self.sharded_elements)

    @property
    def parameters(self) -> Size:
        """Bytes of the parameters that a device stores, those of adapters among them."""
        return self.stage_parameters + (0 if self.stage is None else self.stage.weights)

    @property
    def stage_parameters(self) -> Size:
        """The same of what the graph has: of one pipeline stage, if it is one's."""
        if self.shards is not None and self.shards.gathers:
            return self.shards.stored.bytes(self.sharded_elements) + self.adapter_bytes
        if self.frozen is not None:
            return self.frozen + self.adapter_bytes
        elements = sum(tensor.count * tensor.elements for tensor in self.ledger.tensors())
        return self.stored.bytes(elements) + self.adapter_bytes

    def bytes_in(self, group: LayerGroup) -> Bytes:
        """Bytes of tensors of a group."""
        return Bytes({**group.axes, **self.axes}, self.compute)

    @property
    def weights(self) -> Size:
        """Bytes of the parameters and of the buffers."""
        return self.parameters + self.bytes_in(self.graph.before).of(self.graph.buffers)

    @property
    def recomputes(self) -> bool:
        """True if layers, or parts of them, run again in the backward pass."""
        return self.recompute or any(group.graph.recomputed for group in self.graph.layers)

    def saved_in(self, group: LayerGroup) -> list[SavedTensor]:
        """Tensors that autograd saves in one layer of a group, or before or after the layers. Where something is
        recomputed, cos and sin are arguments of that, which autograd does not see."""
        if self.recompute and group.numbers:
            return [self.layer_input(group)]
        return [each for each in group.graph.saved if not (self.recomputes and ROTARY in each.saved_for)]

    def layer_input(self, group: LayerGroup) -> SavedTensor:
        """What a layer of a group reads."""
        of_encoder = any(group is each for each in self.graph.encoder_layers)
        path = paths.in_encoder(LAYER_INPUT) if of_encoder else LAYER_INPUT
        return SavedTensor(path, "B I D" if of_encoder else self.graph.residual, (), self.stream)

    @property
    def stream(self) -> Role:
        """Role of the residual stream."""
        return "compute" if self.stored.bits == self.compute.bits else "fp32"

    @property
    def offloaded_inputs(self) -> Size:
        """Bytes of layer inputs that are on the host when the forward pass ends."""
        if not self.offloads_inputs:
            return 0
        inputs = (self.bytes_in(group).of([self.layer_input(group)]) for group in self.graph.layers)
        every = [own for own, group in zip(inputs, self.graph.layers, strict=True) for _ in range(group.count)]
        return sum(every[:-INPUTS_ON_DEVICE])

    def saved_bytes(self) -> Size:
        """Bytes that the whole forward pass saves for the backward pass."""
        return sum(group.count * self.bytes_in(group).of(self.saved_in(group)) for group in self.graph.groups)

    @property
    def residual_bytes(self) -> Size:
        """Bytes of the residual stream."""
        return self.bytes_in(self.graph.before).of([Transient(self.graph.residual, self.stream)])

    @property
    def batch_bytes(self) -> Size:
        """Bytes of the tokens."""
        return self.bytes_in(self.graph.before).of([Transient("B T", "index")])

    @property
    def logits_bytes(self) -> Size:
        """Bytes of the logits."""
        return self.bytes_in(self.graph.after).of([self.graph.logits])

    @property
    def rotary_bytes(self) -> Size:
        """Bytes of cos and sin."""
        saved = (each for each in self.graph.before.graph.saved if ROTARY in each.saved_for)
        return self.bytes_in(self.graph.before).of(saved)

    @property
    def argument_bytes(self) -> Size:
        """Bytes of the arguments of what is recomputed."""
        if not self.recomputes:
            return 0
        return self.rotary_bytes + self.bytes_in(self.graph.before).of(self.graph.arguments)
