"""A training step, or one rank's share of it: its graph, the dtypes and shards of its weights, and what stays alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size, elements, rounded_up
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import Width

Role: TypeAlias = Literal["compute", "fp32", "mask", "index", "int32", "seed"]
"""What decides a tensor's dtype. `compute`: the dtype of the step. `fp32`: fp32 in any step. `mask`: one byte.
`index`: int64. `int32`: int32. `seed`: state of an attention kernel's random numbers."""

FP32_BYTES = 4
SEED_BYTES, SEED_BYTES_FP32 = 24, 16
"""Bytes that torch's flash kernel saves of its random numbers, and the efficient kernel, which runs in fp32."""
ROLE_BYTES: dict[Role, int] = {"fp32": FP32_BYTES, "mask": 1, "index": 8, "int32": 4}

EMBED, RESIDUAL, MEMORY = "embed", "residual stream", "memory"
"""The embedding; what the first norm after the layers reads; the encoder's output, which every decoder layer reads."""
LABELS, LOSS, CHOOSE = "labels", "loss.softmax", "loss.choose"
"""Operations of the loss: log-probabilities, and the choice of those of the targets."""
ROTARY = "blocks.*.attn.rotary"
"""The operation of every layer that reads cos and sin."""
LAYER_INPUT = "blocks.*.in"
"""The residual stream that a layer reads: all that a recomputed layer saves."""


def role_bytes(role: Role, compute: Width) -> int:
    """Bytes of one element of a role in a step of this dtype."""
    if role == "seed":
        return SEED_BYTES_FP32 if compute.bits == 8 * FP32_BYTES else SEED_BYTES
    return ROLE_BYTES.get(role, compute.bits // 8)


class SavedTensor(NamedTuple):
    """A tensor that autograd saves for the backward pass.

    `path` names the tensor, so a tensor that two operations save is one. `saved_for`: the operations whose gradients
    need it, in forward order: `….weight` that of a weight, any other name that of an operation's input. `times`: how
    many such tensors there are.
    """

    path: str
    axes: str
    saved_for: tuple[str, ...]
    role: Role = "compute"
    times: Size = 1


class Transient(NamedTuple):
    """Temporary tensors of one operation: `times` of these axes and role."""

    axes: str
    role: Role = "compute"
    times: Size = 1


class BackwardOp(NamedTuple):
    """The backward pass of operation `at`, and the tensors that are alive only while it runs."""

    at: str
    temporary: tuple[Transient, ...]


class WeightCast(NamedTuple):
    """Autocast's copy of a weight, alive until the forward pass ends. `at`: the operation that makes it. `saved`: path
    of it among the saved tensors, if it is one."""

    at: str
    copy: Transient
    saved: str = ""


class DataFlow(NamedTuple):
    """What operation `at` reads and makes, and what it saves of factors.

    `reads`: the operations that make its inputs, LAYER_INPUT, or `memory`, the encoder's output; empty where it reads
    the result of the operation before it. `result`: the tensor that it makes, where others read it. `factors`: of a
    product of two results, a saved tensor's path and the operation that makes the other factor: only that factor's
    gradient needs the tensor.
    """

    at: str
    reads: tuple[str, ...] = ()
    result: SavedTensor | None = None
    factors: tuple[tuple[str, str], ...] = ()


class LayerGraph(NamedTuple):
    """Operations of a layer in forward order, what each saves, and what each needs in its backward pass.

    `casts`: autocast's copies of weights. `flow`: what operations read and make. `recomputed`: tensors that the layer
    computes again in its backward pass. `recomputed_parts`: the operations of each recomputed part: a
    recomputed tensor is alive from the backward pass of the last operation of its part to that of the first operation
    that it is saved for.
    """

    order: tuple[str, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    backward: tuple[BackwardOp, ...] = ()
    casts: tuple[WeightCast, ...] = ()
    recomputed: tuple[SavedTensor, ...] = ()
    flow: tuple[DataFlow, ...] = ()
    recomputed_parts: tuple[tuple[str, ...], ...] = ()

    def reads(self) -> dict[str, tuple[str, ...]]:
        """The operations whose results each operation reads, or LAYER_INPUT."""
        before = {name: (last,) for last, name in zip((LAYER_INPUT, *self.order), self.order, strict=False)}
        return before | {each.at: each.reads for each in self.flow if each.reads}

    def mapped(self, axes: Callable[[str, Sequence[str]], str], name: Callable[[str], str] = str) -> LayerGraph:
        """The graph by other names, and with other axes of tensors: by their axes and the operations that need them."""

        def tensor(one: SavedTensor) -> SavedTensor:
            return SavedTensor(name(one.path), axes(one.axes, one.saved_for), names(one.saved_for), one.role, one.times)

        def temporary(one: BackwardOp) -> BackwardOp:
            return BackwardOp(name(one.at), tuple(t._replace(axes=axes(t.axes, [one.at])) for t in one.temporary))

        def flow(one: DataFlow) -> DataFlow:
            made = None if one.result is None else tensor(one.result)
            return DataFlow(name(one.at), names(one.reads), made, tuple((name(a), name(b)) for a, b in one.factors))

        def names(own: Sequence[str]) -> tuple[str, ...]:
            return tuple(map(name, own))

        return LayerGraph(
            names(self.order),
            tuple(map(tensor, self.saved)),
            tuple(map(temporary, self.backward)),
            tuple(one._replace(at=name(one.at), saved=one.saved and name(one.saved)) for one in self.casts),
            tuple(map(tensor, self.recomputed)),
            tuple(map(flow, self.flow)),
            tuple(map(names, self.recomputed_parts)),
        )


class LayerGroup(NamedTuple):
    """Layers of one kind: their graph, the sizes of axes that only they have, their numbers in the model.

    Of what runs before and after the layers, `numbers` is empty. `shared`: graph of all layers but the last, where all
    have one set of weights: their gradients are added to those that the last one made.
    """

    graph: LayerGraph
    axes: Axes
    count: Size = 1
    numbers: Sequence[int] = ()
    shared: LayerGraph | None = None


class AccumulatedGradient(NamedTuple):
    """A gradient to which every layer adds, from operation `at` of the last layer on."""

    gradient: Transient
    at: str


class StepGraph(NamedTuple):
    """A forward pass as its backward pass sees it: what runs before the layers, the layers, what runs after them.

    `buffers`: tensors that stay during the whole step. `loss`: role of the loss. `logits`: what the loss reads.
    `arguments`: what recomputed layers are called with, except the residual stream, cos and sin.
    `loss_forward`: what the loss allocates in the forward pass while autocast's copies of all weights are alive.
    `live_in_forward`: tensors that are alive while the layers run forwards. Of an encoder–decoder, `encoder_layers` are
    the groups of the encoder, and `accumulated` the gradients to which all decoder layers add. `residual`: axes of the
    residual stream between layers.
    """

    before: LayerGroup
    layers: tuple[LayerGroup, ...]
    after: LayerGroup
    buffers: tuple[SavedTensor, ...] = ()
    loss: Role = "fp32"
    logits: Transient = Transient("B T V")
    arguments: tuple[Transient, ...] = ()
    loss_forward: tuple[Transient, ...] = ()
    live_in_forward: tuple[Transient, ...] = ()
    encoder_layers: tuple[LayerGroup, ...] = ()
    accumulated: tuple[AccumulatedGradient, ...] = ()
    residual: str = "B T D"

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """All groups in forward order."""
        return (*self.encoder_layers, self.before, *self.layers, self.after)


class Bytes:
    """Bytes of tensors for some sizes of their axes: integers, or symbols."""

    def __init__(self, axes: Axes, compute: Width) -> None:
        self.axes, self.compute = axes, compute
        self._elements: dict[str, Size] = {}

    def of(self, tensors: Iterable[SavedTensor | Transient]) -> Size:
        """Bytes of all these tensors together."""
        return sum(self.each(tensors))

    def each(self, tensors: Iterable[SavedTensor | Transient]) -> Iterator[Size]:
        """Bytes of each of these tensors."""
        for tensor in tensors:
            known = self._elements.get(tensor.axes)
            if known is None:
                known = self._elements[tensor.axes] = elements(self.axes, tensor.axes)
            yield tensor.times * known * role_bytes(tensor.role, self.compute)


INPUTS_ON_DEVICE = 2
"""Layer inputs that stay on the device if the others are offloaded."""


class Adapter(NamedTuple):
    """A weight of an adapter, which each of some layers has: rows, elements and bytes of one."""

    path: str
    rows: int
    elements: int
    bytes: int
    numbers: Sequence[int]

    def shard(self, ranks: int) -> int:
        """Elements on one of FSDP's ranks, which shards the rows."""
        rows: int = rounded_up(self.rows, ranks)
        return rows * (self.elements // self.rows)


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
    layers save only their input; `offloads_inputs`: all inputs but two are on the host. `accumulates`:
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
        """True if layers, or parts of them, are recomputed."""
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
