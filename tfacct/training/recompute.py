"""Activation checkpointing: recomputation of layers or of parts of a layer, and the loss in chunks.

A recomputed part saves its inputs. Tensors that it computes and needs are not saved but recomputed in its backward
pass. A part that discards its result is recomputed as soon as a later operation needs it. Full recomputation does not
change the graph of a layer: it saves its input, and everything else that it would save is recomputed.

A chunked loss recomputes head and cross-entropy for one of `CHUNKS` chunks of the tokens at a time, as the
non-reentrant torch.utils.checkpoint does. The head's input and the gradient of its weight, to which each chunk adds,
stay alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from typing import NamedTuple

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size, renamed, rounded_up
from tfacct.training.step import (
    CHOOSE,
    LAYER_INPUT,
    LOSS,
    MEMORY,
    RESIDUAL,
    BackwardOp,
    LayerGraph,
    LayerGroup,
    Role,
    SavedTensor,
    StepGraph,
    Transient,
)

BLOCKS = "blocks.*."
ATTENTION, SELECTIVE, OP = "attention", "selective", "op"
DEFAULT = "core_attn"
"""Megatron's default of --recompute-modules."""


class Module(NamedTuple):
    """A part of a layer that can be recomputed, given by the prefixes of its operations after the layer name.
    `discards`: its result is not saved either. `routed`: it exists only in layers with experts (True) or without
    (False)."""

    begins: tuple[str, ...]
    discards: bool = False
    routed: bool | None = None


MODULES = {
    ATTENTION: Module(("attn.",)),
    "core_attn": Module(
        tuple(f"{where}.{what}" for where in ("attn", "cross") for what in ("scores", "softmax", "values"))
    ),
    "mla_up_proj": Module(
        tuple(f"attn.{name}" for name in ("q_b_proj", "k_b_proj", "v_b_proj", "k_rotated", "joined")), True
    ),
    "layernorm": Module(("attn_norm.", "mlp_norm."), True),
    "mlp": Module(("mlp.",), routed=False),
    "moe": Module(("mlp.",), routed=True),
    "moe_act": Module(("mlp.experts.act",), True),
}
"""Attention as a module, and Megatron-LM's --recompute-modules."""


def modules_of(recompute: str) -> tuple[str, ...]:
    """Names of the recomputed modules: `attention`, `selective`, `selective:mlp,layernorm`. Raises UsageError."""
    how, colon, text = recompute.partition(":")
    names = tuple(name.strip() for name in text.split(",")) if colon else (DEFAULT,)
    if how == ATTENTION and not colon:
        return (ATTENTION,)
    unknown = next((name for name in names if name not in MODULES and name != OP), None)
    if how != SELECTIVE or unknown is not None or (OP in names and len(names) > 1):
        ways = ", ".join(("none", "full", ATTENTION, SELECTIVE, f"{SELECTIVE}:{OP}"))
        modules = ", ".join(MODULES)
        raise UsageError(f"{option('recompute')} is {ways} or {SELECTIVE}:MODULES ({modules}), not {recompute!r}")
    return names


def with_read_memory(graph: StepGraph) -> StepGraph:
    """The step under autocast with full recomputation: decoder layers save no casts of the encoder's output, but read
    it again."""
    before = graph.before.graph
    memory = (SavedTensor(MEMORY, each.gradient.axes, (each.at,), "fp32") for each in graph.accumulated)
    before = before._replace(saved=(*before.saved, *memory))
    return graph._replace(before=graph.before._replace(graph=before), live_in_forward=())


def recomputing(graph: StepGraph, names: Iterable[str], *, drops: bool, norm: bool) -> StepGraph:
    """The step with layers that recompute these modules. `drops`: attention's module has the dropout of its result.
    `norm`: it has that dropout, the residual sum and the norm next to it."""
    names = tuple(names)
    stream: Role = "fp32" if any(group.graph.casts for group in graph.groups) else "compute"

    def changed(groups: Iterable[LayerGroup], path: str, axes: str) -> tuple[LayerGroup, ...]:
        layer_input = SavedTensor(path, axes, (), stream)
        return tuple(
            group._replace(graph=_layer(group.graph, names, layer_input, drops, norm)) if group.numbers else group
            for group in groups
        )

    layers = changed(graph.layers, LAYER_INPUT, "B T D")
    source = changed(graph.encoder_layers, paths.in_encoder(LAYER_INPUT), "B I D")
    return graph._replace(layers=layers, encoder_layers=source)


def _layer(graph: LayerGraph, names: Iterable[str], layer_input: SavedTensor, drops: bool, norm: bool) -> LayerGraph:
    for name in names:
        if name == OP:
            graph = _saving_results(graph, layer_input)
            continue
        for part in _parts(graph, MODULES[name], drops, norm):
            graph = _recomputing_part(graph, part, layer_input, discards=MODULES[name].discards)
    return graph


def _parts(graph: LayerGraph, module: Module, drops: bool, norm: bool) -> Iterator[tuple[str, ...]]:
    """Operations of a module, as runs of consecutive operations."""
    routed = any(".experts." in name for name in graph.order)
    if module.routed not in (None, routed):
        return

    def inside(name: str) -> bool:
        own = name.partition(BLOCKS)[2]
        if module is MODULES[ATTENTION] and norm:
            return own.startswith((*module.begins, "attn_norm.", "attn_add"))
        return own.startswith(module.begins) and (drops or own != "attn.drop")

    order = [name for name in graph.order if inside(name) or not name.endswith((".drop", "_add"))]
    yield from (tuple(row) for own, row in groupby(order, key=inside) if own)


def _recomputing_part(
    graph: LayerGraph, part: tuple[str, ...], layer_input: SavedTensor, *, discards: bool
) -> LayerGraph:
    """The layer with one recomputed part."""
    inside, reads = frozenset(part), graph.reads()
    results = {flow.at: flow.result for flow in graph.flow if flow.result is not None} | {layer_input.path: layer_input}
    outside = {made.path for at, made in results.items() if at not in inside}
    own = {made.path for at, made in results.items() if at in inside}
    saved, recomputed = dict[str, SavedTensor](), list[SavedTensor]()
    for tensor in graph.saved:
        needs = tuple(name for name in tensor.saved_for if name in inside)
        if tensor.path in outside or not (needs or (discards and tensor.path in own)):
            saved[tensor.path] = tensor
        elif discards or len(needs) == len(tensor.saved_for):
            recomputed.append(tensor)
        else:  # the part saves it again when it is recomputed
            saved[tensor.path] = tensor
            recomputed.append(tensor._replace(saved_for=needs))
    if not recomputed:
        return graph
    for name in part:  # its inputs stay until it is recomputed, and then as long as its gradients need them
        for made in (results[each] for each in reads[name] if each not in inside and each in results):
            known = saved.get(made.path, made)
            saved[made.path] = known._replace(saved_for=tuple(dict.fromkeys((*known.saved_for, name))))
    ends = max(graph.order.index(name) for tensor in recomputed for name in tensor.saved_for)
    whole = tuple(name for at, name in enumerate(graph.order) if name in inside or (discards and at == ends))
    return graph._replace(
        saved=tuple(saved.values()),
        recomputed=(*graph.recomputed, *recomputed),
        recomputed_parts=(*graph.recomputed_parts, whole),
    )


def _saving_results(graph: LayerGraph, layer_input: SavedTensor) -> LayerGraph:
    """The layer with torchtitan's selective activation checkpointing per operation: it saves its input and the results
    of sdpa and of every second projection, and recomputes the rest."""
    results = {flow.at: flow.result for flow in graph.flow if flow.result is not None}
    projections = [name for name in graph.order if name.endswith("_proj.weight") and ".experts." not in name]
    stays = {results[name].path: results[name]._replace(saved_for=(name,)) for name in projections[::2]}
    softmax = any(name.endswith(".softmax") for name in graph.order)
    for tensor in graph.saved:
        of_kernel = tensor.path.endswith((".values", ".logsum")) or ".values.seed." in tensor.path
        if of_kernel and not softmax:
            stays[tensor.path] = tensor
        elif tensor.path in stays:
            at = stays[tensor.path].saved_for
            stays[tensor.path] = tensor._replace(saved_for=(*at, *tensor.saved_for))
    recomputed = tuple(tensor for tensor in graph.saved if tensor.path not in {*stays, layer_input.path})
    own = next((tensor for tensor in graph.saved if tensor.path == layer_input.path), layer_input)
    first = own._replace(saved_for=tuple(dict.fromkeys((*own.saved_for, graph.order[0]))))
    return graph._replace(saved=(first, *stays.values()), recomputed=recomputed, recomputed_parts=(graph.order,))


CHUNKS = 8
"""Number of chunks, the default of torchtune's CEWithChunkedOutputLoss."""
CHUNK, OTHERS = "Tc", "Td"
"""Axes of the tokens of a chunk, and of all other chunks."""
HEAD, HEAD_MATMUL, HEAD_CAST, SPLIT = "lm_head.weight", "lm_head.matmul", "lm_head.cast", "loss.split"
TARGETS = ("loss.targets", "loss.padding")
NORM, PROJECTION = "final_norm", "lm_head.project"
WEIGHT = Transient("V D")
"""The head's weight: a gradient, or under autocast a copy."""


def chunk_axes(batch: Size, tokens: Size) -> dict[str, Size]:
    """Tokens of the first chunk, which runs last, and of the others."""
    first = rounded_up(batch * tokens, CHUNKS)
    return {CHUNK: first, OTHERS: batch * tokens - first}


def chunked_loss(graph: StepGraph, batch: Size, tokens: Size, *, cast: bool, frozen: bool) -> StepGraph:
    """The step with its loss in chunks. `cast`: under autocast. `frozen`: the head is not trained."""
    after, of_loss = graph.after, graph.after.graph
    norm = [name for name in of_loss.order if name.startswith((NORM, PROJECTION))]
    backward = [each for each in of_loss.backward if each.at in norm]
    of_head = (each.temporary[1].axes.split()[-1] for each in of_loss.backward if each.at == HEAD)
    width = {"D": next(of_head, "D")}  # a classifier has no such head
    transform = {name for name in takewhile(HEAD.__ne__, of_loss.order) if name.startswith("lm_head.")}
    transform -= {HEAD_MATMUL, *norm}
    own = (each for each in of_loss.saved if each.path != RESIDUAL and not transform.isdisjoint(each.saved_for))
    chunk = tuple(Transient(CHUNK + each.axes[3:] if each.axes[:2] == "B " else each.axes, each.role) for each in own)
    for at, temporary in (_under_autocast if cast else _plain)(several=batch * tokens > 1, frozen=frozen):
        alive = tuple(one._replace(axes=renamed(one.axes, width)) for one in temporary)
        backward.append(BackwardOp(at, alive if at == SPLIT else (*alive, *chunk)))
    reader = HEAD_CAST if cast else HEAD
    saved = [each for each in of_loss.saved if not {*norm}.isdisjoint(each.saved_for)]
    # The logits are recomputed from the head's input, which is the result of a matmul if it is projected.
    fp32 = cast and not any(name.startswith(PROJECTION) for name in norm)
    saved.append(SavedTensor(NORM, renamed("B T D", width), (reader,), "fp32" if fp32 else "compute"))
    saved += [each._replace(saved_for=(reader,)) for each in of_loss.saved if each.path in TARGETS]
    others = [name for name in of_loss.order if name.startswith("lm_head.") and name not in (HEAD, *norm)]
    order = (*norm, SPLIT, *others, HEAD, *((HEAD_CAST, LOSS, CHOOSE) if cast else (LOSS,)))
    changed = after._replace(
        graph=LayerGraph(order, tuple(saved), tuple(backward)), axes={**after.axes, **chunk_axes(batch, tokens)}
    )
    in_forward = Transient(f"{CHUNK} V", "fp32", 2), WEIGHT._replace(axes=renamed(WEIGHT.axes, width))
    return graph._replace(after=changed, loss_forward=in_forward if cast else ())


def _plain(*, several: bool, frozen: bool) -> Iterator[tuple[str, tuple[Transient, ...]]]:
    weight = () if frozen else (WEIGHT,)
    done = (*weight, Transient(f"{OTHERS} D")) if several else ()  # gradients of earlier chunks
    added = Transient("V D", times=2)  # the weight's gradient of a chunk, and the new sum
    yield SPLIT, (Transient("B T D", times=2),)
    if several and not frozen:
        yield SPLIT, (added, Transient("B T D"))
        yield HEAD, (added, Transient(f"{OTHERS} D"))
    yield HEAD, (Transient(f"{CHUNK} V"), Transient(f"{CHUNK} D"), *done)
    yield LOSS, (Transient(f"{CHUNK} V", "fp32", 3), *done)


def _under_autocast(*, several: bool, frozen: bool) -> Iterator[tuple[str, tuple[Transient, ...]]]:
    """The chunked loss under autocast. Each chunk casts its fp32 hidden states and the head's weight again; the
    weight's gradient is accumulated in 16 bits and cast once."""
    hidden, done = Transient(f"{CHUNK} D"), (Transient(f"{OTHERS} D", "fp32"),) if several else ()
    logits, wide = Transient(f"{CHUNK} V"), Transient(f"{CHUNK} V", "fp32", 3)
    yield SPLIT, (Transient("B T D", "fp32", 2),)
    if frozen:
        yield HEAD_CAST, (logits, hidden, WEIGHT, *done)
        yield LOSS, (wide, WEIGHT, *done)
        return
    summed = (WEIGHT, *done) if several else ()
    yield HEAD, (WEIGHT, hidden, Transient("B T D", "fp32"))
    if several:
        yield HEAD_CAST, (Transient("V D", times=3), hidden, *done)
    yield HEAD_CAST, (logits, hidden, hidden, WEIGHT, WEIGHT, *summed)
    yield LOSS, (wide, hidden, WEIGHT, *summed)
