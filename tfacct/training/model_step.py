"""A model's training step on one device, for a recipe: its parameters and its graph."""

from __future__ import annotations

from collections.abc import Mapping
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
from tfacct.training.recipe import FP32, NF4, Recipe
from tfacct.training.recompute import chunked_loss, recomputing
from tfacct.training.saved_tensors import step_graph, with_shared_casts
from tfacct.training.states import optimizer_memory
from tfacct.training.step import Adapter, StepGraph, TrainingStep
from tfacct.training.traits import OUTPUT_PROJECTION_FIRST, Mode, Traits

IN, OUT = (paths.in_every(paths.BLOCKS, f"attn.{name}") for name in ("q_proj", "o_proj"))


def stored(subject: LoadedModel, part: Ledger | None = None) -> list[TorchParameter]:
    """The parameters as the class stores them, in order: q, k and v are one tensor where it fuses them. `part`: the
    part of the ledger whose parameters they are, if not all."""
    ledger = part or subject.ledger
    if "stored" not in ledger.known:
        ledger.known["stored"] = _stored(subject, ledger)
    found: list[TorchParameter] = ledger.known["stored"]
    return found


def _stored(subject: LoadedModel, ledger: Ledger) -> list[TorchParameter]:
    named, stacks = subject.class_tensors, dict[int, int]()
    found: dict[tuple[str, int | None], TorchParameter] = {}
    for tensor in ledger.tensors():
        table = tensor.parameter.table
        if (table is not None and not table.trained) or is_routing_bias(tensor.path):
            continue  # sines, corrections of the choice of experts: no optimizer gets them
        inside = paths.repeated(tensor.path)
        stack = stacks.setdefault(id(tensor.axes), len(stacks)) if inside else None
        key = named[tensor.path], stack
        shape = _kernel(tensor)
        if key in found:  # fused along their outputs
            at = 1 if tensor.parameter.bank else 0
            shape = (*shape[:at], found[key].shape[at] + shape[at], *shape[at + 1 :])
        found[key] = TorchParameter(shape, int(tensor.count), stack, tensor.embedding)
    if subject.family in OUTPUT_PROJECTION_FIRST:
        modules = subject.config.hf_module_paths()
        return _out_first(found, modules[IN], modules[OUT])
    return list(found.values())


def _out_first(found: Mapping[tuple[str, int | None], TorchParameter], made: str, out: str) -> list[TorchParameter]:
    """The same, attention's last product in front of the one that makes queries."""
    order: list[tuple[str, int | None]] = []
    for key in found:
        name, stack = key
        if not name.startswith(f"{out}."):
            order += [(f"{out}.weight", stack), key] if name == f"{made}.weight" else [key]
    return [found[key] for key in order]


def _kernel(tensor: Tensor) -> tuple[int, ...]:
    """Shape of a tensor in torch's modules: what reads square patches of an image is a convolution there."""
    shape, inputs = tensor.shape_in_torch, tensor.parameter.inputs
    if PIXELS not in inputs:
        return shape
    side = isqrt(int(tensor.axes[PIXELS]))
    return (*shape[:-1], shape[-1] // side**2, side, side)


def graph_of(model: LoadedModel, work: Workload, recipe: Recipe, mode: Mode, traits: Traits) -> StepGraph:
    """Saved tensors and backward operations of a model's step with a recipe."""
    return changed(plain_graph(model, work, mode, traits), model, work, recipe, traits)


def changed(graph: StepGraph, model: LoadedModel, work: Workload, recipe: Recipe, traits: Traits) -> StepGraph:
    """The graph as a recipe changes it: with adapters, parts that run again, the loss in chunks."""
    if recipe.lora is not None:
        graph = with_adapters(graph, model, recipe)
    if recipe.recomputed_modules:
        graph = recomputing(graph, recipe.recomputed_modules, traits)
    if recipe.loss == "chunked":
        graph = chunked_loss(graph, work.batch, work.tokens, frozen=recipe.lora is not None)
    return with_shared_casts(graph)


def plain_graph(model: LoadedModel, work: Workload, mode: Mode, traits: Traits) -> StepGraph:
    """The same of full fine-tuning that recomputes nothing, or full layers."""
    model = model.running("expanded")
    return step_graph(model.architecture, model.ledger, work.axes(), mode, traits)


def training_step(
    model: LoadedModel, work: Workload, recipe: Recipe, graph: StepGraph, parameters: list[TorchParameter]
) -> TrainingStep:
    """The step of a recipe that trains these parameters."""
    compute, stored = width(recipe.dtype), width(FP32 if recipe.autocast else recipe.dtype)
    adapters, bytes_each = tuple[Adapter, ...](), stored.bits // 8
    if recipe.lora is not None:
        adapters, parameters = adapters_of(model, recipe)
        bytes_each = width(recipe.adapter_dtype).bits // 8
    memory = optimizer_memory(recipe, parameters, bytes_each)
    return TrainingStep(
        graph,
        model.running("expanded").ledger,
        work.axes(),
        compute,
        stored,
        optimizer_state=memory.state,
        master_weights=memory.master_weights,
        update=memory.update.most,
        uncertain=memory.update.most - memory.update.least,
        recompute=recipe.recompute == "full",
        offloads_inputs=recipe.offloads("activations"),
        accumulates=recipe.accumulates,
        keeps_logits=recipe.keep_logits,
        adapters=adapters,
        frozen=packed_bytes(model) if recipe.weights_dtype == NF4 else None,
    )
