"""A training step, or one rank's share of it: graph, dtypes and shards of its weights, and long-lived tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size, elements, rounded_up
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import Width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.training.optimizers import FP32_BYTES, OptimizerMemory

Role: TypeAlias = Literal["compute", "fp32", "mask", "index", "int32", "seed"]
"""What determines a tensor's dtype. `compute`: the dtype of the step. `fp32`: fp32 in any step. `mask`: one byte.
`index`: int64. `int32`: int32. `seed`: state of an attention kernel's random numbers."""

SEED_BYTES, SEED_BYTES_FP32 = 24, 16
"""Bytes of random state that torch's flash kernel saves, and the efficient kernel, which runs in fp32."""
ROLE_BYTES: dict[Role, int] = {"fp32": FP32_BYTES, "mask": 1, "index": 8, "int32": 4}

EMBED, RESIDUAL, MEMORY = "embed", "residual stream", "memory"
"""The embedding; the input of the first norm after the layers; the encoder's output, which every decoder layer
reads."""
PIXELS = "pixels"
"""Images of the batch, if they are saved as they are."""
LABELS, LOSS, CHOOSE = "labels", "loss.softmax", "loss.choose"
"""Operations of the loss: log-probabilities, and selection of those of the targets."""
ROTARY = "blocks.*.attn.rotary"
"""The operation of every layer that reads cos and sin."""
ON_STREAM = re.compile(r".*blocks\.\*\.\w+_(norm|add)\b").match
"""Matches the operations of a layer whose result is the residual stream, or its norm."""
LAYER_INPUT = "blocks.*.in"
"""The residual stream that a layer reads: the only tensor that a recomputed layer saves."""


def sublayer(operation: str) -> str:
    """The sublayer of a layer's operation: "attn" of `blocks.*.attn_norm.scale`."""
    return operation.partition("blocks.*.")[2].partition(".")[0].partition("_")[0]


def of_weight(operation: str) -> str:
    """The operation that computes the weight's gradient that an operation casts under autocast, or the operation."""
    return operation.replace(".matmul", ".weight")


def role_bytes(role: Role, compute: Width) -> int:
    """Bytes of one element of a role in a step of this dtype."""
    if role == "seed":
        return SEED_BYTES_FP32 if compute.bits == 8 * FP32_BYTES else SEED_BYTES
    return ROLE_BYTES.get(role, compute.bits // 8)


class SavedTensor(NamedTuple):
    """A tensor that autograd saves for the backward pass.

    `path` identifies the tensor, so a tensor that two operations save is counted once. `saved_for`: the operations
    whose gradients need it, in forward order: `….weight` for the gradient of a weight, any other name for that of an
    operation's input. `times`: number of such tensors.
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
    """The backward or forward pass of operation `at`, and the tensors that are alive only while it runs; in a forward
    pass a SavedTensor only if it is not saved."""

    at: str
    temporary: tuple[SavedTensor | Transient, ...]


class WeightCast(NamedTuple):
    """Autocast's copy of a weight, alive until the forward pass ends. `at`: the operation that makes it. `saved`: its
    path among the saved tensors, if it is one."""

    at: str
    copy: Transient
    saved: str = ""


class DataFlow(NamedTuple):
    """Inputs and output of operation `at`, and its saved factors.

    `reads`: the operations that compute its inputs, LAYER_INPUT, or `memory`, the encoder's output; empty if it reads
    the result of the previous operation. `result`: its output, if others read it. `factors`: for a product of two
    results, a saved tensor's path and the operation that computes the other factor, whose gradient alone needs the
    tensor.
    """

    at: str
    reads: tuple[str, ...] = ()
    result: SavedTensor | None = None
    factors: tuple[tuple[str, str], ...] = ()


class LayerGraph(NamedTuple):
    """Operations of a layer in forward order, the tensors that each saves, and those that its backward pass needs.

    `casts`: autocast's copies of weights. `flow`: inputs and outputs of operations. `recomputed`: tensors that the
    layer recomputes in its backward pass. `recomputed_parts`: the operations of each recomputed part: a recomputed
    tensor is alive from the backward pass of the last operation of its part to that of the first operation that it is
    saved for. `forward`: temporaries of operations that can be the peak in the forward pass of the last layer, or in
    that of a recomputed layer, with the gradients that are alive meanwhile.
    """

    order: tuple[str, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    backward: tuple[BackwardOp, ...] = ()
    casts: tuple[WeightCast, ...] = ()
    recomputed: tuple[SavedTensor, ...] = ()
    flow: tuple[DataFlow, ...] = ()
    recomputed_parts: tuple[tuple[str, ...], ...] = ()
    forward: tuple[BackwardOp, ...] = ()

    def reads(self) -> dict[str, tuple[str, ...]]:
        """The operations whose results each operation reads, or LAYER_INPUT."""
        before = {name: (last,) for last, name in zip((LAYER_INPUT, *self.order), self.order, strict=False)}
        return before | {each.at: each.reads for each in self.flow if each.reads}

    def alive(self, one: BackwardOp, saved: Iterable[SavedTensor]) -> list[SavedTensor | Transient]:
        """Tensors that are alive at an operation of the forward pass, without those `saved` by then: its temporaries,
        earlier results that it or a later operation reads, and the residual stream and the norm that its sublayer
        reads, which are local variables."""
        place = {name: number for number, name in reversed([*enumerate(self.order)])}
        now, readers = place[one.at], dict[str, list[str]]()
        for name, reads in self.reads().items():
            for read in reads:
                readers.setdefault(read, []).append(name)
        found = {each.path: each for each in one.temporary if isinstance(each, SavedTensor)}
        for at, result in ((flow.at, flow.result) for flow in self.flow if place[flow.at] < now):
            by = readers.get(at, ())
            local = ON_STREAM(at) and any(sublayer(name) == sublayer(one.at) for name in by)
            if result and (local or any(place[name] >= now for name in by)):
                found[result.path] = result
        for each in saved:
            if min(place.get(name, now) for name in each.saved_for) <= now:
                found.pop(each.path, None)
        return [*found.values(), *(each for each in one.temporary if isinstance(each, Transient))]

    def mapped(self, axes: Callable[[str, Sequence[str]], str], name: Callable[[str], str] = str) -> LayerGraph:
        """The graph with other names, and with other axes of tensors, given their axes and the operations that need
        them."""

        def tensor(one: SavedTensor) -> SavedTensor:
            return SavedTensor(name(one.path), axes(one.axes, one.saved_for), names(one.saved_for), one.role, one.times)

        def temporary(one: BackwardOp) -> BackwardOp:
            return BackwardOp(name(one.at), tuple(t._replace(axes=axes(t.axes, [one.at])) for t in one.temporary))

        def flow(one: DataFlow) -> DataFlow:
            made = None if one.result is None else tensor(one.result)
            return DataFlow(name(one.at), names(one.reads), made, tuple((name(a), name(b)) for a, b in one.factors))

        def names(several: Sequence[str]) -> tuple[str, ...]:
            return tuple(map(name, several))

        return LayerGraph(
            names(self.order),
            tuple(map(tensor, self.saved)),
            tuple(map(temporary, self.backward)),
            tuple(one._replace(at=name(one.at), saved=one.saved and name(one.saved)) for one in self.casts),
            tuple(map(tensor, self.recomputed)),
            tuple(map(flow, self.flow)),
            tuple(map(names, self.recomputed_parts)),
            tuple(map(temporary, self.forward)),
        )


class LayerGroup(NamedTuple):
    """Layers of one kind: their graph, the sizes of their own axes, their numbers in the model.

    `numbers` is empty before and after the layers. `shared`: graph of all layers but the last if all share one set of
    weights: their gradients are added to those of the last layer.
    """

    graph: LayerGraph
    axes: Axes
    count: Size = 1
    numbers: Sequence[int] = ()
    shared: LayerGraph | None = None


class AccumulatedGradient(NamedTuple):
    """A gradient to which every layer adds, starting at operation `at` of the last layer."""

    gradient: Transient
    at: str


class StepGraph(NamedTuple):
    """A forward pass as needed by its backward pass: before the layers, the layers, and after them.

    `buffers`: tensors that stay during the whole step. `loss`: role of the loss. `logits`: the input of the loss.
    `arguments`: arguments of recomputed layers, except the residual stream, cos and sin.
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
        self._known: dict[tuple[str, Role], Size] = {}

    def of(self, tensors: Iterable[SavedTensor | Transient]) -> Size:
        """Total bytes of these tensors."""
        return sum(self.each(tensors))

    def each(self, tensors: Iterable[SavedTensor | Transient]) -> Iterator[Size]:
        """Bytes of each of these tensors."""
        for tensor in tensors:
            key = tensor.axes, tensor.role
            if key not in self._known:
                self._known[key] = elements(self.axes, tensor.axes) * role_bytes(tensor.role, self.compute)
            yield tensor.times * self._known[key]


READ_MASKS = ("blocks.*.attn.", "blocks.*.cross.")
"""Beginnings of operations of parts of a layer that read positions and masks."""
INPUTS_ON_DEVICE = 2
"""Layer inputs that stay on the device if the others are offloaded."""


class Adapter(NamedTuple):
    """A weight of an adapter in each of some layers, which are one `group` of the ledger."""

    path: str
    rows: int
    columns: int
    bytes_each: int
    group: int
    numbers: Sequence[int]

    @property
    def elements(self) -> int:
        """Elements of one."""
        return self.rows * self.columns

    @property
    def bytes(self) -> int:
        """Bytes of one."""
        return self.bytes_each * self.elements

    @property
    def parameter(self) -> TorchParameter:
        """The weight as the optimizer gets it."""
        return TorchParameter((self.rows, self.columns), len(self.numbers), self.group)

    def shard(self, ranks: int) -> TorchParameter:
        """The same on one FSDP rank; FSDP shards the rows."""
        return self.parameter._replace(shape=(rounded_up(self.rows, ranks) * self.columns,))


class LayerShards(NamedTuple):
    """Shard of one layer on an FSDP or ZeRO rank: elements of its weights, of its experts if other ranks shard these,
    and bytes of its adapters."""

    elements: int = 0
    experts: int = 0
    adapters: int = 0


class WeightShards(NamedTuple):
    """Weights that FSDP or ZeRO shards: elements on the rank with most, padding included.

    `ranks` shard each weight, `expert_ranks` the experts if expert parallelism divides them. `stored`: dtype of the
    shards of weights, gradients and optimizer state. `layers`: shard of one layer of each group of the graph. `root`:
    elements outside the layers. `gathers`: weights are also sharded, and gathered layer by layer; otherwise only their
    gradients are sharded. `accumulates`: shards of earlier gradients exist. `replicated`: gradients are also reduced
    over replicas (HSDP).
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
    """Bytes on a pipeline rank in addition to those of the running micro-batch.

    `rank`: its index. `in_flight`: micro-batches in flight, including the running one. `saved`: activations of the
    other ones. `weights`, `gradients`: those of the rank's other stages. `buffers`: receive buffers and the batch.
    `passed_on`: outputs of micro-batches in flight that it sent to the next stage. `receives`: the gradient of its
    output is in a buffer.
    """

    rank: int
    in_flight: int
    saved: Size
    weights: Size
    gradients: Size
    buffers: Size
    passed_on: Size
    receives: bool


class TrainingStep(NamedTuple):
    """A training step, or one rank's share of it.

    `compute`: dtype of the step. `stored`: dtype of weights, gradients and residual stream: fp32 under autocast.
    `recompute`: layers save only their input; `offloads_inputs`: all inputs but two are on the host. `accumulates`:
    gradients of earlier micro-batches exist. `keeps_logits`: the caller keeps the logits. `adapters`: trained weights,
    in place of the model's if there are any. `frozen`: bytes of the model's weights if they do not have the dtype
    `stored`. `shards`: weights that FSDP or ZeRO shards. `stage`: bytes of a pipeline stage besides its micro-batch.
    `buckets`: bytes of DDP's gradient buckets. `other_rows`: bytes of embedding rows on other ranks, whose gradient
    each rank computes.
    """

    graph: StepGraph
    ledger: Ledger
    axes: Axes
    compute: Width
    stored: Width
    optimizer: OptimizerMemory = OptimizerMemory()
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
        """Bytes of the adapters' parameters, or of their shards if there are any."""
        if self.shards is not None and self.adapters:
            layers = zip(self.graph.groups, self.shards.layers, strict=True)
            return sum(group.count * layer.adapters for group, layer in layers)
        return sum(len(adapter.numbers) * adapter.bytes for adapter in self.adapters)

    @property
    def sharded_elements(self) -> Size:
        """Elements of the sharded weights."""
        assert self.shards is not None
        layers = zip(self.graph.groups, self.shards.layers, strict=True)
        return self.shards.root + sum(group.count * (shard.elements + shard.experts) for group, shard in layers)

    @property
    def sharded_gradients(self) -> Size:
        """Bytes of the rank's shards of all gradients."""
        assert self.shards is not None
        return self.adapter_bytes if self.adapters else self.shards.stored.bytes(self.sharded_elements)

    @property
    def parameters(self) -> Size:
        """Bytes of the parameters on a device, including adapters."""
        return self.stage_parameters + (0 if self.stage is None else self.stage.weights)

    @property
    def stage_parameters(self) -> Size:
        """The same for the weights in the graph, which may be that of one pipeline stage."""
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
        """True if layers, or parts of them that read positions and masks, are recomputed."""
        parts = [part for group in self.graph.layers for part in group.graph.recomputed_parts]
        return self.recompute or any(name.startswith(READ_MASKS) for part in parts for name in part)

    def saved_in(self, group: LayerGroup) -> list[SavedTensor]:
        """Tensors that autograd saves in one layer of a group, or before or after the layers. With recomputation, cos
        and sin are arguments of the recomputed function, which autograd does not see."""
        if self.recompute and group.numbers:
            return [self.layer_input(group)]
        return [each for each in group.graph.saved if not (ROTARY in each.saved_for and self.recomputes)]

    def layer_input(self, group: LayerGroup) -> SavedTensor:
        """The input of a layer of a group."""
        of_encoder = any(group is each for each in self.graph.encoder_layers)
        path = paths.in_encoder(LAYER_INPUT) if of_encoder else LAYER_INPUT
        return SavedTensor(path, "B I D" if of_encoder else self.graph.residual, (), self.stream)

    @property
    def stream(self) -> Role:
        """Role of the residual stream."""
        return "compute" if self.stored.bits == self.compute.bits else "fp32"

    @property
    def offloaded_inputs(self) -> Size:
        """Bytes of offloaded layer inputs at the end of the forward pass."""
        if not self.offloads_inputs:
            return 0
        layers = [group for group in self.graph.groups if group.numbers]
        inputs = (self.bytes_in(group).of([self.layer_input(group)]) for group in layers)
        every = [size for size, group in zip(inputs, layers, strict=True) for _ in range(group.count)]
        return sum(every[:-INPUTS_ON_DEVICE])

    def saved_bytes(self) -> Size:
        """Bytes that the whole forward pass saves for backward."""
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
        """Bytes of the arguments of recomputed functions."""
        if not self.recomputes:
            return 0
        return self.rotary_bytes + self.bytes_in(self.graph.before).of(self.graph.arguments)
