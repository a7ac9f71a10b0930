"""A model's training step on one device, for a recipe."""

from __future__ import annotations

from tfacct.ledger.storage import width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.training.adapters import adapters_of, packed_bytes
from tfacct.training.graph import StepGraph
from tfacct.training.lora import with_adapters
from tfacct.training.loss import chunked_loss
from tfacct.training.recipe import FP32, NF4, Recipe
from tfacct.training.recompute import recomputing
from tfacct.training.saved_tensors import step_graph, with_shared_casts
from tfacct.training.states import optimizer_memory
from tfacct.training.step import Adapter, TrainingStep
from tfacct.training.traits import Mode, Traits


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
