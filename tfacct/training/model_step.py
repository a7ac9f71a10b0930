"""A model's training step on one device, for a recipe: its parameters and its graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt

from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import PIXELS
from tfacct.ledger.storage import width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.shard_shapes import is_routing_bias
from tfacct.training.lora import adapters_of, packed_bytes, with_adapters
from tfacct.training.recipe import NF4, Recipe
from tfacct.training.recompute import chunked_loss, recomputing, with_read_memory
from tfacct.training.saved_tensors import step_graph, with_shared_casts
from tfacct.training.states import optimizer_memory
from tfacct.training.step import StepGraph, TrainingStep, Transient
from tfacct.training.traits import OUTPUT_PROJECTION_FIRST, Mode, Traits, dropouts_of, traits_of

GRAPHS = 16
"""Most graphs that are cached for a model."""
QUERIES, OUT = (paths.in_every(paths.BLOCKS, f"attn.{name}") for name in ("q_proj", "o_proj"))


def stored(model: LoadedModel, part: Ledger | None = None) -> list[TorchParameter]:
    """The parameters in the order and form in which the class stores them: q, k and v are one tensor if it fuses them.
    `part`: the part of the ledger to read, if not all."""
    ledger = part or model.ledger
    return ledger.once(stored, lambda: _stored(model, ledger))


def _stored(model: LoadedModel, ledger: Ledger) -> list[TorchParameter]:
    names, stacks = model.class_tensors, dict[int, int]()
    found: dict[tuple[str, int | None], TorchParameter] = {}
    for tensor in ledger.tensors():
        table = tensor.parameter.table
        if (table is not None and not table.trained) or is_routing_bias(tensor.path):
            continue  # sines and routing biases: no optimizer updates them
        inside = paths.repeated(tensor.path)
        key = names[tensor.path], stacks.setdefault(id(tensor.axes), len(stacks)) if inside else None
        shape = _kernel(tensor)
        if key in found:  # fused along the output axis
            at = 1 if tensor.parameter.is_expert else 0
            shape = (*shape[:at], found[key].shape[at] + shape[at], *shape[at + 1 :])
        found[key] = TorchParameter(shape, int(tensor.count), key[1], tensor.embedding)
    if model.family not in OUTPUT_PROJECTION_FIRST:
        return list(found.values())
    queries, out = (f"{model.config.hf_module_paths()[path]}.weight" for path in (QUERIES, OUT))
    order: list[TorchParameter] = []
    for (name, stack), parameter in found.items():
        if name == queries:
            order += [found[out, stack], parameter]
        elif name != out:
            order.append(parameter)
    return order


def _kernel(tensor: Tensor) -> tuple[int, ...]:
    """Shape of a tensor in torch's modules, where the projection of square image patches is a convolution."""
    shape, inputs = tensor.shape_in_torch, tensor.parameter.inputs
    if PIXELS not in inputs:
        return shape
    side = isqrt(int(tensor.axes[PIXELS]))
    return (*shape[:-1], shape[-1] // side**2, side, side)


def graph_of(model: LoadedModel, work: Workload, recipe: Recipe, sizes: LoadedModel | None = None) -> StepGraph:
    """Saved tensors and backward operations of a model's step with a recipe. `sizes`: the same model with numbers, if
    the sizes are symbols."""
    recipe, traits, run = recipe.for_model(model), traits_of(model), (sizes or model).running("expanded")
    sdpa, full = recipe.attention == "sdpa", recipe.recompute == "full"
    mode = Mode(sdpa, recipe.in_fp32, recipe.autocast, dropouts_of(model), recipe.packing, full)
    graph = _plain_graph(run, work, mode, traits)
    if recipe.lora is not None:
        graph = with_adapters(graph, model, recipe)
    if full and recipe.autocast:
        graph = with_read_memory(graph)
    if traits.scores_stay and not (sdpa or recipe.autocast or recipe.recompute == "none"):
        graph = graph._replace(live_in_forward=(Transient("B N T S"),))
    if recipe.recomputed_modules:
        drops, norm = model.config.drops_in_attention, model.config.norm_in_attention
        graph = recomputing(graph, recipe.recomputed_modules, drops=drops, norm=norm)
    if recipe.loss == "chunked":
        frozen = recipe.lora is not None
        graph = chunked_loss(graph, work.batch, work.tokens, cast=recipe.autocast, frozen=frozen)
    return with_shared_casts(graph)


def _plain_graph(model: LoadedModel, work: Workload, mode: Mode, traits: Traits) -> StepGraph:
    """The graph without what a recipe adds. It is the same for any batch of several sequences; the last ones are
    cached."""
    axes = work.axes()
    if any(type(size) is not int for size in axes.values()):
        return step_graph(model.architecture, model.ledger, axes, mode, traits)
    return model.once(_cached_graphs)(mode, traits, *{**axes, "B": min(axes["B"], 2)}.items())


def _cached_graphs(model: LoadedModel) -> Callable[..., StepGraph]:
    """The last graphs of a model, by mode, traits and axes."""

    @lru_cache(GRAPHS)
    def graph(mode: Mode, traits: Traits, *axes: tuple[str, int]) -> StepGraph:
        return step_graph(model.architecture, model.ledger, dict(axes), mode, traits)

    return graph


def training_step(model: LoadedModel, work: Workload, recipe: Recipe, graph: StepGraph | None = None) -> TrainingStep:
    """The step of a recipe. `graph`: that of a rank, if it is not the model's."""
    adapters = () if recipe.lora is None else adapters_of(model, recipe)
    parameters = stored(model) if recipe.lora is None else [each.parameter for each in adapters]
    return TrainingStep(
        graph_of(model, work, recipe) if graph is None else graph,
        model.running("expanded").ledger,
        work.axes(),
        width(recipe.dtype),
        width(recipe.stored_dtype),
        optimizer_memory(recipe, parameters),
        recompute=recipe.recompute == "full",
        offloads_inputs=recipe.offloads("activations"),
        accumulates=recipe.accumulates,
        keeps_logits=recipe.keep_logits,
        adapters=adapters,
        frozen=packed_bytes(model) if recipe.weights_dtype == NF4 else None,
    )
