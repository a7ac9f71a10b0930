"""LoRA and QLoRA as in peft: the linear layers with adapters, the weights of the adapters, and the step that trains
only them.

Tensors that only gradients of frozen weights need are not saved. The data flow determines what needs a gradient:
everything computed from an adapter's result. The input of the first layer needs none, so nothing before the first
adapter is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

from tfacct.architecture.parts import Experts
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import Matmul
from tfacct.ledger.storage import Stored, storage
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, Object
from tfacct.training.phases import BATCH
from tfacct.training.recipe import FP32, NF4, Recipe
from tfacct.training.saved_tensors import ENCODER
from tfacct.training.step import (
    CHOOSE,
    EMBED,
    LAYER_INPUT,
    MEMORY,
    RESIDUAL,
    ROTARY,
    Adapter,
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

RANK = "Rl"
"""The axis of the adapters' rank."""
WEIGHT, ROUTER = ".weight", ".router"
ATTENTION, MLP = (paths.in_every(paths.BLOCKS, part) for part in ("attn.", "mlp."))
EXPERTS_APART = frozenset(("qwen2_moe",))
"""Families for which peft distinguishes the experts' MLPs from MLPs next to them or in other layers."""
NO_OUT_PROJ = frozenset(("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"))
"""Families for which peft does not adapt out_proj (peft 0.21, `_check_lora_target_modules_mamba`)."""
CODEBOOKS = 4 * (1 + 16 + 256)
"""Bytes of the mean of a matrix's scales, and of the codebooks of its values and scales (bitsandbytes 0.50)."""


class LoraTargets(NamedTuple):
    """A rank, and names of target modules; no names: all linear layers."""

    rank: int
    names: tuple[str, ...]


def lora_targets(text: str) -> LoraTargets:
    """`16` or `16:q_proj,v_proj`. Raises UsageError."""
    rank, colon, names = text.partition(":")
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if not rank.strip().isascii() or not rank.strip().isdigit() or not int(rank) or (colon and not found):
        raise UsageError(
            f"{option('lora')} must be a rank, or a rank and modules, such as 16:q_proj,v_proj, not {text!r}"
        )
    return LoraTargets(int(rank), found)


def targets_of(recipe: Recipe) -> LoraTargets:
    """The rank and the target modules of a recipe with adapters."""
    assert recipe.lora is not None
    return lora_targets(recipe.lora)


class LinearLayer(NamedTuple):
    """Matmuls of the ledger that are one linear layer of the class, such as q, k and v if it fuses them.

    `group`: index of their group in the ledger. `inputs`, `outputs`: sizes of its input and of its whole output.
    """

    matmuls: tuple[Matmul, ...]
    group: int
    inputs: int
    outputs: int

    @property
    def path(self) -> str:
        """Path of the first matmul."""
        return self.matmuls[0].path

    @property
    def reads(self) -> str:
        """Axes of its input."""
        return " ".join(self.matmuls[0].einsum.left)

    @property
    def narrow(self) -> str:
        """Axes of the result of an adapter's A."""
        weight = self.matmuls[0].weight_axes() or ()
        return " ".join((*(axis for axis in self.matmuls[0].einsum.left if axis not in weight), RANK))

    def made(self, role: Role) -> tuple[Transient, ...]:
        """Its result."""
        return tuple(Transient(" ".join(line.einsum.out), role) for line in self.matmuls)

    def weights(self, *, read: bool) -> Iterator[str]:
        """Axes of the adapter's weights: of A, which `read`s the layer's input, or of B, by matmul."""
        for line in self.matmuls[:1] if read else self.matmuls:
            axes = line.einsum.left if read else line.einsum.out
            yield " ".join((RANK, *(axis for axis in line.weight_axes() or () if axis in axes)))

    def name(self, modules: Mapping[str, str]) -> str:
        """Its own name, or that of the class if it is several matmuls."""
        return (self.path if len(self.matmuls) == 1 else modules[self.path]).rpartition(".")[2]


def linear_layers(model: LoadedModel) -> Iterator[LinearLayer]:
    """Linear layers of the model's layers: not parameters of experts and routers, nor convolutions."""
    modules = model.config.hf_module_paths()
    for number, group in enumerate(model.ledger.groups):
        found: dict[str, list[Matmul]] = {}
        for line in _weighted(group) if group.numbers else ():
            if not _bare(line) and _is_linear(line):
                found.setdefault(modules.get(line.path, line.path), []).append(line)
        for lines in found.values():
            weights = dict.fromkeys(line.parameters()[0] for line in lines)  # two matmuls may share an input
            made, (read, *_) = zip(*(weight.shape_in_torch(group.axes) for weight in weights), strict=True)
            yield LinearLayer(tuple(lines), number, read, sum(made))


def _weighted(group: Group) -> list[Matmul]:
    """Matmuls with weights."""
    return [line for line in group.lines if isinstance(line, Matmul) and line.weight_axes() is not None]


def _is_linear(line: Matmul) -> bool:
    """True if its class has one matrix for it, rather than a convolution or one matrix per head."""
    weight = line.parameters()[0]
    return len(weight.dims) == 2 and weight.axes[0] not in {*line.einsum.left} & {*line.einsum.out}


def _bare(line: Matmul) -> bool:
    """True if a weight is a parameter in the classes, not a linear layer: routed experts, or a router."""
    return line.expert_axis is not None or line.path.endswith(ROUTER)


def routed(model: LoadedModel) -> bool:
    """True if a model has routed experts."""
    return any(isinstance(part, Experts) for part in model.architecture.parts())


def _ends_in(name: str, *places: str) -> bool:
    return any(place == name or place.endswith(f".{name}") for place in places)


def adapted(model: LoadedModel, targets: LoraTargets) -> frozenset[str]:
    """Paths of the matmuls with adapters, matched by the class's module names, or by our names if none matches."""
    modules = model.config.hf_module_paths()
    every = {line.path: modules.get(line.path, "") for layer in linear_layers(model) for line in layer.matmuls}
    found = set[str]() if targets.names else {*every}
    for name in targets.names:
        by_class = {path for path, module in every.items() if _ends_in(name, module)}
        found |= by_class or {path for path in every if _ends_in(name, path)}
    return frozenset(found)


def adapted_layers(model: LoadedModel, targets: LoraTargets) -> list[LinearLayer]:
    """The linear layers with adapters."""
    on = adapted(model, targets)
    return [layer for layer in linear_layers(model) if layer.path in on]


def target_modules(model: LoadedModel, targets: LoraTargets) -> tuple[str, ...]:
    """Names by which peft finds these modules: their last words, or full names if another module has the same last
    word."""
    modules = model.config.hf_module_paths()
    ends = [module.rpartition(".")[2] for module in dict.fromkeys(modules.values())]
    on = sorted({modules[path] for path in adapted(model, targets)})
    short = tuple(module.rpartition(".")[2] for module in on)
    return short if all(ends.count(name) == 1 for name in short) else tuple(on)


def not_linear(model: LoadedModel, targets: LoraTargets) -> str | None:
    """The reason why a target module cannot have adapters; None if all are linear layers."""
    modules, every = model.config.hf_module_paths(), list(linear_layers(model))
    for name in targets.names:
        if any(_ends_in(name, line.path, modules.get(line.path, "")) for each in every for line in each.matmuls):
            continue
        bare = (line.path for group in model.ledger.groups for line in _weighted(group) if _bare(line))
        if any(_ends_in(name, path, modules.get(path, "")) for path in bare):
            return f"{name!r} is a parameter in the class, not a linear layer: adapters on it are not supported"
        known = ", ".join(dict.fromkeys(layer.name(modules) for layer in every))
        return f"{name!r} is not a linear layer of the model: choose from {known}"
    return None


def unknown_targets(model: LoadedModel, targets: LoraTargets) -> str | None:
    """The reason why it is not known which weights peft adapts; None if it is known."""
    if (reason := not_linear(model, targets)) is not None:
        return reason
    modules, every = model.config.hf_module_paths(), list(linear_layers(model))
    blocks = tuple(f"{stack}." for stack in (paths.BLOCKS, paths.in_encoder(paths.BLOCKS)))
    outside = [module for path, module in modules.items() if not path.startswith(blocks)]
    for name in targets.names:
        other = next((module for module in outside if _ends_in(name, module)), None)
        if other is not None:
            return f"peft would also adapt {other} for {name!r}: only adapters inside the layers are supported"
    on = adapted(model, targets)
    if routed(model) and model.family not in EXPERTS_APART:
        found = [layer for layer in every if layer.path in on and not layer.path.startswith(ATTENTION)]
        mixer = next((layer for layer in found if not layer.path.startswith(MLP)), None)
        if mixer is not None:
            module = modules.get(mixer.path, mixer.path).rpartition("*.")[2]
            return f"adapters on {module} are not supported next to routed experts: only those on attention are"
        if found:
            name = found[0].name(modules)
            return f"peft would also adapt {name} of the routed experts: only adapters on attention are supported"
    for layer in every:
        if 0 < len(on.intersection(line.path for line in layer.matmuls)) < len(layer.matmuls):
            return f"the class has {layer.name(modules)} as one linear layer: give all of its modules or none"
    return None


def adapter_parameters(model: LoadedModel, targets: LoraTargets) -> int | None:
    """Parameters of the adapters, also if the step is not supported; None if it is not known which weights have
    adapters."""
    if unknown_targets(model, targets) is not None or any(group.shared for group in model.ledger.groups):
        return None  # each layer has its own adapters on a tensor that several layers share
    modules, every = model.config.hf_module_paths(), list(linear_layers(model))
    if any(line.path not in modules for layer in every for line in layer.matmuls):
        return None  # the class has different layers
    on = adapted_layers(model, targets)
    for module in (modules[layer.path] for layer in on):
        within = any(other.startswith(f"{module}.") for other in modules.values())
        if within or (model.family in NO_OUT_PROJ and module.endswith(".out_proj")):
            return None  # not a linear layer, or one that peft does not adapt
    groups = model.ledger.groups
    copies = {layer.group: 1 if groups[layer.group].once else len(groups[layer.group].numbers) for layer in on}
    return sum(targets.rank * copies[layer.group] * (layer.inputs + layer.outputs) for layer in on)


def adapters_of(model: LoadedModel, recipe: Recipe) -> tuple[Adapter, ...]:
    """The weights of a recipe's adapters."""
    targets, bytes_each = targets_of(recipe), units.dtype_bits(recipe.adapter_dtype) // 8
    found = list[Adapter]()
    for layer in adapted_layers(model, targets):
        group = model.ledger.groups[layer.group]
        numbers = group.numbers[:1] if group.once else group.numbers
        for which, rows, columns in ("A", targets.rank, layer.inputs), ("B", layer.outputs, targets.rank):
            path = f"{layer.path}.lora_{which}{WEIGHT}"
            found.append(Adapter(path, rows, columns, bytes_each, layer.group, numbers))
    return tuple(found)


def _adapted_paths(model: LoadedModel, recipe: Recipe) -> list[str]:
    layers = adapted_layers(model, targets_of(recipe))
    return list(dict.fromkeys(line.path for layer in layers for line in layer.matmuls))


def _adapted_modules(model: LoadedModel, recipe: Recipe) -> list[str]:
    modules = model.config.hf_module_paths()
    return list(dict.fromkeys(modules.get(path, path) for path in _adapted_paths(model, recipe)))


def _sum_of(model: LoadedModel, recipe: Recipe, size: Callable[[Adapter], Any]) -> int:
    return sum(len(each.numbers) * int(size(each)) for each in adapters_of(model, recipe))


of_adapters: Keys[[LoadedModel, Recipe]] = Keys()


class Lora(Object):
    """LoRA adapters: adapted matmuls, modules of the class, and size."""

    rank: int = of_adapters(lambda _, recipe: targets_of(recipe).rank)
    dtype: str = of_adapters(lambda _, recipe: recipe.adapter_dtype)
    dropout: float = of_adapters(lambda _, recipe: recipe.lora_dropout)
    weights: str = of_adapters(lambda _, recipe: recipe.weights_format)
    products: list[str] = of_adapters(
        lambda model, recipe: [paths.short(path) for path in _adapted_paths(model, recipe)]
    )
    modules: list[str] = of_adapters(_adapted_modules)
    params: int = of_adapters(lambda model, recipe: _sum_of(model, recipe, lambda each: each.elements))
    bytes: int = of_adapters(lambda model, recipe: _sum_of(model, recipe, lambda each: each.bytes))


def packed_bytes(model: LoadedModel) -> int:
    """Bytes of the weights with linear layers in nf4 (double quantization), and the others unquantized."""
    nf4, packed = storage(NF4), 0
    for layer in linear_layers(model):
        matrix = Stored("matrix", layer.inputs * layer.outputs, layer.inputs)
        packed += len(model.ledger.groups[layer.group].numbers) * (CODEBOOKS + int(nf4.bytes(matrix)))
    return packed + int(nf4.wide.bytes(unpacked_elements(model)))


def unpacked_elements(model: LoadedModel) -> int:
    """Elements of the weights outside linear layers: embeddings, norms, head, experts and routers."""
    packed = {f"{line.path}{WEIGHT}" for layer in linear_layers(model) for line in layer.matmuls}
    others = (tensor for tensor in model.ledger.tensors() if tensor.path not in packed)
    return sum(int(tensor.count * tensor.stored.copies * tensor.stored.elements) for tensor in others)


STREAM = "B T D"
INPUTS = frozenset((LAYER_INPUT, paths.in_encoder(LAYER_INPUT)))


class Adapters(NamedTuple):
    """Adapters of `rank` on some linear layers. `role`: role of their tensors. `copies`: each copies its input, by a
    cast or a dropout. `drops`: LoRA dropout. `unpacked`: 4-bit weights, by operation. `recomputes`: their layers are
    recomputed."""

    rank: int
    layers: tuple[LinearLayer, ...]
    role: Role = "compute"
    copies: bool = False
    drops: bool = False
    unpacked: Mapping[str, tuple[Transient, ...]] = {}
    recomputes: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The encoder's output, if it is computed from an adapter's result."""
        return (MEMORY,) if any(layer.path.startswith(ENCODER) for layer in self.layers) else ()

    @property
    def on(self) -> dict[str, LinearLayer]:
        """The linear layers by operation."""
        return {f"{line.path}{WEIGHT}": layer for layer in self.layers for line in layer.matmuls}


def with_adapters(graph: StepGraph, model: LoadedModel, recipe: Recipe) -> StepGraph:
    """The step that trains a recipe's adapters. With full recomputation, the embeddings require a gradient
    (`enable_input_require_grads` in peft)."""
    targets = targets_of(recipe)
    in_fp32 = recipe.adapter_dtype == FP32 and not (recipe.in_fp32 or recipe.autocast)
    unpacked = {
        f"{line.path}{WEIGHT}": tuple(Transient(" ".join(each.weight_axes() or ())) for each in layer.matmuls)
        for layer in (linear_layers(model) if recipe.weights_dtype == NF4 else ())
        for line in layer.matmuls
    }
    drops = recipe.lora_dropout > 0
    role: Role = "fp32" if in_fp32 else "compute"
    copies = in_fp32 or recipe.autocast or drops
    embedded = recipe.recompute == "full"
    on = tuple(adapted_layers(model, targets))
    adapters = Adapters(targets.rank, on, role, copies, drops, unpacked, embedded)
    source, of_encoder = _side(graph.encoder_layers, adapters, embedded=embedded) if graph.encoder_layers else ((), [])
    (before, *layers, after), stays = _side((graph.before, *graph.layers, graph.after), adapters, embedded=embedded)
    stays = [*of_encoder, *stays]
    saved = {each.path for each in before.graph.saved}
    own = {EMBED, ROTARY, "embed.drop"} - saved  # a scale by √hidden is part of the embedding
    if model.architecture.embed.factor is None:
        own.add("embed.scale")
    if embedded and RESIDUAL not in saved and {*before.graph.order} - own:  # the first layer or norm reads others
        stream: Role = "fp32" if recipe.autocast else "compute"
        stays += [SavedTensor("embeddings", axes, (), stream) for axes in ((STREAM, "B I D") if source else (STREAM,))]
    buffers = (*graph.buffers, *stays)
    return graph._replace(before=before, layers=tuple(layers), after=after, encoder_layers=source, buffers=buffers)


def _side(
    groups: Sequence[LayerGroup], adapters: Adapters, *, embedded: bool
) -> tuple[tuple[LayerGroup, ...], list[SavedTensor]]:
    """The graphs before the layers, of the layers and after them, of a model or of its encoder, and the batch."""
    before, *layers, after = groups
    adapted = (
        number for group in layers for number in group.numbers if not adapters.on.keys().isdisjoint(group.graph.order)
    )
    first = -1 if embedded else min(adapted, default=-1)
    layers = [part for group in layers for part in _split(group, adapters, first)]
    live = {each.at for group in layers for each in group.graph.backward}
    embedding, batch = _before(before.graph, adapters, live, embedded=embedded)
    end = after._replace(graph=_training(after.graph, adapters, reads_gradient=True))
    return (before._replace(graph=embedding), *layers, end), batch


def _before(
    graph: LayerGraph, adapters: Adapters, in_layers: Set[str], *, embedded: bool
) -> tuple[LayerGraph, list[SavedTensor]]:
    """The graph before the layers, where nothing is trained, and the batch, which stays alive. `in_layers`: operations
    of layers whose input requires a gradient. `embedded`: the embeddings do."""
    tables = {each.at for each in graph.backward if not each.temporary}
    live = {name for name in graph.order if embedded and not name.endswith((WEIGHT, "rotary"))} - tables
    read = {CHOOSE, *in_layers}
    if any(name.endswith("rotary") for name in in_layers):
        read.add(ROTARY)
    saved = _still_needed(graph.saved, adapters, live | read)
    there = {each.path for each in saved}
    if embedded:  # the encoder's output is an argument of every recomputed layer
        saved += [each for each in graph.saved if each.path == MEMORY and MEMORY not in there]
    backward = tuple(each for each in graph.backward if each.at in live)
    batch = [each for each in graph.saved if each.path in BATCH and each.path not in there]
    return graph._replace(saved=tuple(saved), backward=backward, casts=()), batch


def _split(group: LayerGroup, adapters: Adapters, first: int) -> Iterator[LayerGroup]:
    """Layers of a group, split at the `first` layer of the model with adapters, whose input needs no gradient. Layers
    that share their weights are not split."""
    axes, change = {**group.axes, RANK: adapters.rank}, partial(_training, group.graph, adapters)
    if group.shared is not None:
        graph = change(reads_gradient=True)  # also where gradients of frozen weights would be added
        yield LayerGroup(graph, axes, group.count, group.numbers, graph)
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
    """Saved tensors with frozen weights: those for operations in `live`, whose input needs a gradient, and for
    adapters. A factor of a product is saved only if the other factor is `made` from an adapter's result."""
    found = []
    for tensor in tensors:
        needs = list[str]()
        for name in tensor.saved_for:
            if name.endswith(WEIGHT):
                layer = None if adapters.copies else adapters.on.get(name)
                if layer is not None:
                    needs.append(f"{layer.path}.lora_A{WEIGHT}")
            elif (name, tensor.path) in factors:
                if factors[name, tensor.path] in made:
                    needs.append(name)
            elif name in live:
                needs.append(name)
        if needs:
            found.append(tensor._replace(saved_for=tuple(dict.fromkeys(needs))))
    return found


def _training(graph: LayerGraph, adapters: Adapters, *, reads_gradient: bool) -> LayerGraph:
    """A layer that trains only its adapters. `reads_gradient`: its input needs a gradient."""
    on, reads = adapters.on, graph.reads()
    made = {*adapters.sources, *(INPUTS if reads_gradient else ())}
    live = set[str]()  # operations whose input needs a gradient
    for name in graph.order:
        if not made.isdisjoint(reads[name]):
            live.add(name)
        if name in live or name in on:
            made.add(name)
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
            more = [*adapters.unpacked.get(name, ())]
            if layer is not None:  # the input's gradient by the adapter, and the gradient of the whole result
                more += [Transient(layer.reads), *layer.made("compute")[:-1]]
            own = (each for each in graph.backward if each.at == name)
            backward += (each._replace(temporary=(*each.temporary, *more)) for each in own)
            if layer is not None:  # gradients of its input by the layer and by its adapter, and their sum
                backward.append(BackwardOp(name, (Transient(layer.reads, times=3),)))
        if layer is not None:
            added = _only_added(graph, name)
            one = _adapter(layer, adapters, autocast=bool(graph.casts), live=name in live, added=added)
            order += one.order
            saved += one.saved
            backward += one.backward
            casts += one.casts
            flow.append(DataFlow(one.order[0], reads[name]))
    changed = graph._replace(
        order=tuple(order), saved=tuple(saved), backward=tuple(backward), casts=tuple(casts), flow=tuple(flow)
    )
    in_mlp = [layer for layer in adapters.layers if layer.path.startswith(MLP) and f"{layer.path}{WEIGHT}" in reads]
    return changed._replace(forward=(*changed.forward, *(_in_forward(changed, in_mlp, adapters) if in_mlp else ())))


def _only_added(graph: LayerGraph, operation: str) -> bool:
    """True if the result of an operation is only added to the residual stream, so both have the same gradient."""
    read_by = (name for name, reads in graph.reads().items() if operation in reads and ".lora_" not in name)
    return all(name.endswith("_add") for name in read_by)


def _in_forward(graph: LayerGraph, in_mlp: Sequence[LinearLayer], adapters: Adapters) -> Iterator[BackwardOp]:
    """The temporaries of each adapter of an MLP in the forward pass: its input, an activated gate, copies of the input,
    and the results that are added up.

    A recomputed layer stops at the last tensor that its backward pass needs, which may be the last adapter's narrow
    result. Then gradients of its result are alive.
    """
    role, place, last = adapters.role, {name: at for at, name in enumerate(graph.order)}, in_mlp[-1]
    wide, results = role == FP32 or bool(graph.casts), [flow.result for flow in graph.flow if flow.result]
    makers = {flow.result.path: place[flow.at] for flow in graph.flow if flow.result}
    end = place[f"{last.path}.lora_B{WEIGHT}"]
    stops = adapters.recomputes and all(place.get(each.saved_for[0], 0) <= end for each in graph.saved)
    gradients = list[Transient]()
    if stops:
        gradients += last.made(role)
        if wide and not adapters.unpacked:  # their casts
            gradients += last.made("compute")
        if not _only_added(graph, f"{last.path}{WEIGHT}"):  # scaled ones
            gradients += last.made("compute")
    # A layer that ends in a norm in fp32 casts the gradient of its result before it is recomputed.
    ends = [name for name in graph.order if not name.endswith("_add")][-1]
    of_norm = (each.temporary[0] for each in graph.backward if each.at == ends and "_norm" in ends)
    if adapters.recomputes and not graph.casts and any(each.role == FP32 for each in of_norm):
        gradients.append(Transient(STREAM, "fp32"))
    for layer in in_mlp:
        before = [each for each in results if makers[each.path] < place[f"{layer.path}{WEIGHT}"]]
        reads = [each for each in before if each.axes == layer.reads][-1:]
        cast = bool(graph.casts) and not any(each.role == FP32 for each in reads)
        made = layer.made(role)
        gate = [Transient(each.axes, each.role) for each in before if each.axes == made[0].axes != STREAM]
        added = () if stops and layer is last else made + made
        copies = [Transient(layer.reads, "fp32") for copied in (adapters.drops and wide, cast) if copied]
        yield BackwardOp(f"{layer.path}.lora_B{WEIGHT}", (*reads, *gate, *copies, *added, *gradients))


def _adapter(layer: LinearLayer, adapters: Adapters, *, autocast: bool, live: bool, added: bool) -> LayerGraph:
    """The operations of one adapter. `live`: its input needs a gradient. `added`: the layer's result is added to the
    residual stream, so both have the same gradient."""
    path, role, drops = layer.path, adapters.role, adapters.drops and live
    down, up, drop = (f"{path}.lora_{which}" for which in ("A", "B", "drop"))
    narrow, read, made = Transient(layer.narrow, role), Transient(layer.reads, role), layer.made(role)
    saved = [SavedTensor(down, narrow.axes, (up + WEIGHT,), role)]
    if adapters.copies:
        saved.append(SavedTensor(f"{path}.lora_in", read.axes, (down + WEIGHT,), role))
    if drops:
        saved.append(SavedTensor(drop, read.axes, (drop,), "mask"))
    casts, order = list[WeightCast](), [drop] if drops else []
    for at, weights in (down, layer.weights(read=True)), (up, layer.weights(read=False)):
        for number, axes in enumerate(weights) if autocast else ():
            name = f"{at}.weight_cast.{number}"
            casts.append(WeightCast(at + WEIGHT, Transient(axes), name))
            if live or at == up:
                saved.append(SavedTensor(name, axes, (f"{at}.matmul",)))
        order += [f"{at}.matmul", at + WEIGHT] if autocast else [at + WEIGHT]
    backward = [BackwardOp(drop, (read, read))] if drops else []
    waits = () if added or not live else layer.made("compute")  # which the frozen layer reads after its adapter
    backward.append(BackwardOp(down + WEIGHT, (*waits, narrow, *((read,) if live else ()))))
    backward.append(BackwardOp(up + WEIGHT, (*waits, *made, *(made if role == FP32 else (narrow,)))))
    return LayerGraph(tuple(order), tuple(saved), tuple(backward), tuple(casts))
