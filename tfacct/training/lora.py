"""LoRA: how a step changes that trains adapters alone.

Of the saved tensors, those that only frozen weights need go. What needs a gradient follows from the data flow: what is
made of an adapter's result. The input of the first layer needs none, so nothing before its first adapter is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple

from tfacct.ledger import paths
from tfacct.loading.model import LoadedModel
from tfacct.training.adapters import RANK, WEIGHT, LinearLayer, adapted_layers, linear_layers, lora_targets
from tfacct.training.graph import (
    LAYER_INPUT,
    BackwardOp,
    DataFlow,
    LayerGraph,
    LayerGroup,
    Role,
    SavedTensor,
    StepGraph,
    Transient,
    WeightCast,
)
from tfacct.training.phases import BATCH
from tfacct.training.recipe import FP32, NF4, Recipe
from tfacct.training.saved_tensors import CHOOSE, ENCODER, MEMORY

INPUTS = frozenset((LAYER_INPUT, paths.in_encoder(LAYER_INPUT)))


class Adapters(NamedTuple):
    """Adapters of `rank` on some linear layers. `role`: of what they compute. `copies`: each has a copy of its input,
    cast or with dropped elements. `drops`: LoRA dropout. `unpacked`: 4-bit weights, by their operations."""

    rank: int
    layers: tuple[LinearLayer, ...]
    role: Role = "compute"
    copies: bool = False
    drops: bool = False
    unpacked: Mapping[str, Transient] = {}

    @property
    def sources(self) -> tuple[str, ...]:
        """The encoder's output, if it is made of an adapter's result."""
        return (MEMORY,) if any(layer.path.startswith(ENCODER) for layer in self.layers) else ()

    @property
    def on(self) -> dict[str, LinearLayer]:
        """The linear layers, by the operations of their weights."""
        return {f"{line.path}{WEIGHT}": layer for layer in self.layers for line in layer.matmuls}


def with_adapters(graph: StepGraph, model: LoadedModel, recipe: Recipe) -> StepGraph:
    """The step that trains a recipe's adapters. Where whole layers run again, the embeddings require a gradient, as
    peft's `enable_input_require_grads` makes them do."""
    targets = lora_targets(recipe.lora or "")
    in_fp32 = recipe.adapter_dtype == FP32 and not (recipe.in_fp32 or recipe.autocast)
    unpacked = {
        f"{line.path}{WEIGHT}": Transient(" ".join(line.weight_axes() or ()))
        for layer in (linear_layers(model) if recipe.weights_dtype == NF4 else ())
        for line in layer.matmuls
    }
    drops = recipe.lora_dropout > 0
    role: Role = "fp32" if in_fp32 else "compute"
    copies = in_fp32 or recipe.autocast or drops
    own = Adapters(targets.rank, tuple(adapted_layers(model, targets)), role, copies, drops, unpacked)
    embedded = recipe.recompute == "full"
    source, of_encoder = _side(graph.encoder_layers, own, embedded=embedded) if graph.encoder_layers else ((), [])
    (before, *layers, after), stays = _side((graph.before, *graph.layers, graph.after), own, embedded=embedded)
    shape, stays = model.architecture, [*of_encoder, *stays]
    drops_embeddings = any(each.path == "embed.drop" for each in before.graph.saved)
    if embedded and (drops_embeddings or shape.positions is not None or shape.embed.factor is not None):
        stays += [SavedTensor("embeddings", axes, ()) for axes in ("B T D", *(("B I D",) if source else ()))]
    buffers = (*graph.buffers, *stays)
    return graph._replace(before=before, layers=tuple(layers), after=after, encoder_layers=source, buffers=buffers)


def _side(
    groups: Sequence[LayerGroup], adapters: Adapters, *, embedded: bool
) -> tuple[tuple[LayerGroup, ...], list[SavedTensor]]:
    """What runs before the layers, the layers and what runs after them, of a model or of its encoder, and the batch."""
    before, *layers, after = groups
    adapted = (
        number for group in layers for number in group.numbers if not adapters.on.keys().isdisjoint(group.graph.order)
    )
    first = -1 if embedded else min(adapted, default=-1)
    layers = [part for group in layers for part in _split(group, adapters, first)]
    rotates = any(each.at.endswith("rotary") for group in layers for each in group.graph.backward)
    own, batch = _before(before.graph, adapters, embedded=embedded, rotates=rotates)
    end = after._replace(graph=_training(after.graph, adapters, reads_gradient=True))
    return (before._replace(graph=own), *layers, end), batch


def _before(
    graph: LayerGraph, adapters: Adapters, *, embedded: bool, rotates: bool
) -> tuple[LayerGraph, list[SavedTensor]]:
    """What runs before the layers, where nothing is trained, and the batch, which stays. `embedded`: the embeddings
    require a gradient. `rotates`: rotated queries or keys do."""
    tables = {each.at for each in graph.backward if not each.temporary}
    live = {name for name in graph.order if embedded and not name.endswith((WEIGHT, "rotary"))} - tables
    read = {CHOOSE, *(name for name in graph.order if rotates and name.endswith("rotary"))}
    saved = _still_needed(graph.saved, adapters, live | read)
    there = {each.path for each in saved}
    backward = tuple(each for each in graph.backward if each.at in live)
    batch = [each for each in graph.saved if each.path in BATCH and each.path not in there]
    return graph._replace(saved=tuple(saved), backward=backward, casts=()), batch


def _split(group: LayerGroup, adapters: Adapters, first: int) -> Iterator[LayerGroup]:
    """Layers of a group; apart, those up to the `first` of the model with adapters, whose input needs no gradient.
    Layers that share their weights are alike."""
    axes, change = {**group.axes, RANK: adapters.rank}, partial(_training, group.graph, adapters)
    if group.shared is not None:
        others = _training(group.shared, adapters, reads_gradient=True)
        yield LayerGroup(change(reads_gradient=True), axes, group.count, group.numbers, others)
        return
    early = sum(number <= first for number in group.numbers)  # numbers ascend
    if early:
        yield LayerGroup(change(reads_gradient=False), axes, early, group.numbers[:early])
    if not early or group.numbers[early:]:
        yield LayerGroup(change(reads_gradient=True), axes, group.count - early, group.numbers[early:])


def _still_needed(
    tensors: Iterable[SavedTensor],
    adapters: Adapters,
    live: Set[str],
    made: Set[str] = frozenset(),
    factors: Mapping[tuple[str, str], str] = {},
) -> list[SavedTensor]:
    """Saved tensors for operations of frozen weights: for those in `live`, whose input needs a gradient, but of what
    they multiply only where the other factor is `made` of an adapter's result; and for adapters that read them."""
    found = []
    for tensor in tensors:
        needs = list[str]()
        for name in tensor.saved_for:
            if name.endswith(WEIGHT):
                layer = None if adapters.copies else adapters.on.get(name)
                needs += [] if layer is None else [f"{layer.path}.lora_A{WEIGHT}"]
            elif (name, tensor.path) in factors:
                needs += [name] if factors[name, tensor.path] in made else []
            else:
                needs += [name] if name in live else []
        found += [tensor._replace(saved_for=tuple(dict.fromkeys(needs)))] if needs else []
    return found


def _training(graph: LayerGraph, adapters: Adapters, *, reads_gradient: bool) -> LayerGraph:
    """A layer that trains its adapters alone. `reads_gradient`: its input needs a gradient."""
    on, reads = adapters.on, graph.reads()
    made, live = (
        {*adapters.sources, *(INPUTS if reads_gradient else ())},
        set[str](),
    )  # operations whose input needs a gradient
    for name in graph.order:
        live |= set() if made.isdisjoint(reads[name]) else {name}
        made |= {name} if name in live or name in on else set()
    factors = {(flow.at, path): other for flow in graph.flow for path, other in flow.factors}
    saved = _still_needed(graph.saved, adapters, live, made, factors)
    order, backward = list[str](), list[BackwardOp]()
    casts, flow = list[WeightCast](), [*graph.flow]
    for name in graph.order:
        order.append(name)
        layer = on.get(name)
        if layer is not None and name != f"{layer.matmuls[-1].path}{WEIGHT}":
            layer = None  # the adapter of several matmuls comes after the last
        if name in live:
            more = [adapters.unpacked[name]] if name in adapters.unpacked else []
            more += [Transient(layer.reads, adapters.role)] if layer is not None else []
            own = (each for each in graph.backward if each.at == name)
            backward += (each._replace(temporary=(*each.temporary, *more)) for each in own)
            if layer is not None:  # gradients of its input by the layer and by its adapter, and their sum
                backward.append(BackwardOp(name, (Transient(layer.reads, times=3),)))
        if layer is not None:
            added = all(reader.endswith("_add") for reader in graph.order if name in reads[reader])
            one = _adapter(layer, adapters, autocast=bool(graph.casts), live=name in live, added=added)
            order += one.order
            saved += one.saved
            backward += one.backward
            casts += one.casts
            flow.append(DataFlow(one.order[0], reads[name]))
    return graph._replace(
        order=tuple(order), saved=tuple(saved), backward=tuple(backward), casts=tuple(casts), flow=tuple(flow)
    )


def _adapter(layer: LinearLayer, adapters: Adapters, *, autocast: bool, live: bool, added: bool) -> LayerGraph:
    """The operations of one adapter. `live`: its input needs a gradient. `added`: the layer's result is added to the
    residual stream, whose gradient is the result's, too."""
    path, role, drops = layer.path, adapters.role, adapters.drops and live
    down, up, drop = (f"{path}.lora_{which}" for which in ("A", "B", "drop"))
    narrow, read, made = Transient(layer.narrow, role), Transient(layer.reads, role), layer.made(role)
    saved = [SavedTensor(down, narrow.axes, (up + WEIGHT,), role)]
    saved += [SavedTensor(f"{path}.lora_in", read.axes, (down + WEIGHT,), role)] if adapters.copies else []
    saved += [SavedTensor(drop, read.axes, (drop,), "mask")] if drops else []
    casts, order = list[WeightCast](), [drop] if drops else []
    for at, weights in (down, layer.weights(read=True)), (up, layer.weights(read=False)):
        for number, axes in enumerate(weights) if autocast else ():
            name = f"{at}.weight_cast.{number}"
            casts.append(WeightCast(at + WEIGHT, Transient(axes), name))
            saved += [SavedTensor(name, axes, (f"{at}.matmul",))] if live or at == up else []
        order += [f"{at}.matmul", at + WEIGHT] if autocast else [at + WEIGHT]
    backward = [BackwardOp(drop, (read, read))] if drops else []
    waits = () if added or not live else layer.made("compute")  # which the frozen layer reads after its adapter
    backward.append(BackwardOp(down + WEIGHT, (*waits, narrow, *((read,) if live else ()))))
    backward.append(BackwardOp(up + WEIGHT, (*waits, *made, *(made if role == FP32 else (narrow,)))))
    return LayerGraph(tuple(order), tuple(saved), tuple(backward), tuple(casts))
