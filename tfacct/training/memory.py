"""A model's training step for a recipe, and the memory that it needs."""

from __future__ import annotations

from functools import cached_property

from tfacct.ledger.storage import width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.training.adapters import adapters_of, packed_bytes
from tfacct.training.bounds import Bound, bound
from tfacct.training.graph import StepGraph
from tfacct.training.lora import with_adapters
from tfacct.training.loss import chunked_loss
from tfacct.training.offload import HostMemory, on_device, on_host
from tfacct.training.phases import Phase, peak, phases
from tfacct.training.recipe import FP32, NF4, Recipe
from tfacct.training.recompute import recomputing
from tfacct.training.saved_tensors import step_graph, with_shared_casts
from tfacct.training.states import optimizer_memory, with_gradient_dtype
from tfacct.training.step import Adapter, TrainingStep
from tfacct.training.traits import Mode, Traits


class TrainingMemory:
    """The memory of a training step: its phases, and the one with the most bytes."""

    def __init__(self, model: LoadedModel, work: Workload, recipe: Recipe, step: TrainingStep) -> None:
        self.model, self.work, self.recipe, self.step = model, work, recipe, step

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases that can be the peak, in their order; the optimizer's step is the last."""
        found = with_gradient_dtype(self.recipe, phases(self.step))
        return on_device(self.recipe, self.step, found)

    @property
    def host(self) -> HostMemory:
        """What is on the host, and what moves between host and device."""
        return on_host(self.recipe, self.step, self.phases[-1].gradients)

    @cached_property
    def peak(self) -> Phase:
        """The phase with the most bytes."""
        return peak(self.phases)

    @property
    def least(self) -> int:
        """The peak at least: less where the optimizer's step decides, by the order in which it gets the parameters."""
        *others, update = self.phases
        return max(int(update.total - self.step.uncertain), *(int(each.total) for each in others))

    @property
    def bound(self) -> Bound | None:
        """The measured error bound of the peak; None if none is promised."""
        return bound(self.model, self.recipe, self.work)

    @property
    def exact(self) -> bool:
        """True if no byte of the peak is uncertain: every answer measured was equal to the byte."""
        return self.bound is not None and self.bound.share == 0 and self.least == self.peak.total


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
