"""A small model, and training memory of its ranks."""

from typing import Any

import tfacct
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.training.memory import TrainingMemory, training_memory
from tfacct.training.recipe import Recipe

LLAMA = {
    **{"model_type": "llama", "hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 16},
    **{"num_key_value_heads": 4, "intermediate_size": 200, "vocab_size": 640, "max_position_embeddings": 512},
    "tie_word_embeddings": False,
}


def memory(model: str | dict[str, Any], tokens: int, batch: int = 1, **recipe: Any) -> TrainingMemory:
    """The memory of a step; axes of the layout are among the recipe's keywords."""
    axes = {name: recipe.pop(name) for name in (*Mesh.__dataclass_fields__,) if name in recipe}
    how = Recipe(mesh=Mesh(**axes) if axes else None, **recipe).checked()
    return training_memory(tfacct.load(model).loaded, Workload(tokens, tokens, batch), how)
