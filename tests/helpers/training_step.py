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


PAIRS_AND_OTHERS = ("albert", "bart", "falcon_h1", "lfm2", "mamba", "qwen3_5_text", "qwen3_next", "whisper")
"""Families whose step with adapters is not supported: convolutions, fused heads, shared layers, encoder–decoders."""
SMALL = {
    **{"model_type": "llama", "vocab_size": 640, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6},
    **{"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 200, "tie_word_embeddings": False},
}
