"""A training step as data: what each layer saves for its backward pass, and what its backward operations need.

A tensor is written like an operand of a matrix product: `SavedTensor("mlp.act", "B T F", ("mlp.down_proj.weight",))`
has B · T · F elements, and the gradient of down_proj's weight needs it. Its bytes follow from its role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tfacct.ledger.einsum import Axes, Size, elements
from tfacct.ledger.storage import Width

Role: TypeAlias = Literal["compute", "fp32", "mask", "index", "int32", "seed"]
"""What decides a tensor's dtype. `compute`: the dtype of the step. `fp32`: fp32 in any step. `mask`: one byte.
`index`: int64. `int32`: int32. `seed`: state of an attention kernel's random numbers."""

FP32_BYTES = 4
SEED_BYTES, SEED_BYTES_FP32 = 24, 16
"""Bytes that torch's flash kernel saves of its random numbers, and the efficient kernel, which runs in fp32."""
ROLE_BYTES: dict[Role, int] = {"fp32": FP32_BYTES, "mask": 1, "index": 8, "int32": 4}

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
    of the saved tensor that keeps it for the backward pass, if one does."""

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
    computes again in its backward pass. `recomputed_parts`: the operations of each part that runs again for them: a
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
    `arguments`: what layers that run again are called with, except the residual stream, cos and sin.
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
