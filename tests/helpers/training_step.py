"""A training step as the tests ask for it: its graph, and the bytes that one of its layers saves."""

from tfacct.ledger.einsum import Size
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe
from tfacct.training.step import LayerGroup, TrainingStep


def step_of(model: LoadedModel, work: Workload, recipe: Recipe) -> TrainingStep:
    """The training step of a recipe."""
    return training_memory(model, work, recipe).step


def saved_in(step: TrainingStep, group: LayerGroup) -> Size:
    """Bytes that one layer of a group saves."""
    return step.bytes_in(group).of(step.saved_in(group))
