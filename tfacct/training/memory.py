"""The memory of a training step: its phases and its peak, on one device or on a rank of a parallel layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.training.bounds import Bound, bound
from tfacct.training.model_step import graph_of, training_step
from tfacct.training.offload import HostMemory, on_device, on_host
from tfacct.training.parameters import stored
from tfacct.training.phases import Phase, peak, phases
from tfacct.training.recipe import FP32, Recipe
from tfacct.training.states import optimizer_memory, with_gradient_dtype
from tfacct.training.step import TrainingStep
from tfacct.training.traits import mode_of, traits_of
from tfacct.training.unsupported import check_supported, of_another_size


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


def training_memory(model: LoadedModel, work: Workload, recipe: Recipe) -> TrainingMemory:
    """The memory of a training step; of a parallel layout, that of one rank, and of a pipeline of the rank with the
    highest peak. Raises TfacctError for a step that is not supported."""
    recipe = recipe.for_model(model)
    check_supported(model, recipe)
    if of_another_size(model, work):
        own = f"the class trains on images of its own size only: {model.context:,} tokens"
        raise UsageError(f"{model.name}: {own}", option("ctx", model.context))
    if recipe.mesh is None:
        run = recipe.runs(work)
        graph = graph_of(model, run, recipe, mode_of(model, recipe), traits_of(model))
        return TrainingMemory(model, work, recipe, training_step(model, run, recipe, graph, stored(model)))
    from tfacct.training.layouts import sequences_of_rank, steps_of_ranks

    steps = steps_of_ranks(model, sequences_of_rank(model, recipe.mesh, work), recipe)
    return max((TrainingMemory(model, work, recipe, step) for step in steps), key=lambda one: int(one.peak.total))


def memory_at(model: LoadedModel, recipe: Recipe) -> Callable[[Workload], TrainingMemory]:
    """The memory of a model's training step at any workload; the last one is cached. Raises TfacctError for a recipe
    that is not supported."""
    recipe = recipe.checked()
    check_supported(model, recipe)
    return lru_cache(maxsize=1)(partial(training_memory, model, recipe=recipe))


def unsure(model: LoadedModel, recipe: Recipe) -> bool:
    """True if the order of the parameters decides the temporaries of the optimizer."""
    if recipe.mesh is not None:
        return False  # no such optimizer is counted there
    each = width(FP32 if recipe.autocast else recipe.dtype).bits // 8
    update = optimizer_memory(recipe, stored(model), each).update
    return update.most > update.least
