"""Wholes whose files name a class with code of its own, which makes vectors of what another class gives."""

from collections.abc import Mapping
from typing import Any

JINA_V4 = "JinaEmbeddingsV4Model"
PROJECTOR = "multi_vector_projector"
SILENT = frozenset(
    """
    multi_vector_projector_dim single_vector_pool_strategy matryoshka_dims task_names truncate_dim verbosity
    pretrained_peft_model_name_or_path
    """.split()
)
"""Fields of what stands behind the model."""


def told(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """jina-embeddings-v4's config as one of Qwen2.5-VL, whose class it inherits, logits and all; the product that makes
    a short vector of each token is named among what is left out. Any other config as it is."""
    if raw.get("model_type") != "qwen2_5_vl" or raw.get("architectures") not in ([JINA_V4], JINA_V4):
        return raw
    own = {name: value for name, value in raw.items() if name not in SILENT}
    return {**own, "architectures": None, PROJECTOR: raw.get(f"{PROJECTOR}_dim", 128)}
