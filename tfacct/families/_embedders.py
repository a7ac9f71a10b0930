"""Wholes whose files name a class with code of its own, which makes vectors of what another class gives."""

from collections.abc import Mapping
from typing import Any

from tfacct.families.registry import config_class, names

JINA_V4 = "JinaEmbeddingsV4Model"
PROJECTOR = "multi_vector_projector"
SILENT = frozenset(
    """
    multi_vector_projector_dim single_vector_pool_strategy matryoshka_dims task_names truncate_dim verbosity
    pretrained_peft_model_name_or_path
    """.split()
)
"""Fields of what stands behind the model."""

COLLECTING: Mapping[str, tuple[str, str]] = {
    **{"colpali": ("paligemma", "gemma"), "colqwen2": ("qwen2_vl", "qwen2")},
    "colmodernvbert": ("modernvbert", "modernbert"),
}
"""Wholes that make a short vector of each token of a whole inside: that whole's type, and its language model's."""


def told(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """jina-embeddings-v4's config as one of Qwen2.5-VL, whose class it inherits, logits and all; the product that makes
    a short vector of each token is named among what is left out. So it is of ColPali and its like, whose classes have
    the body of the whole in vlm_config, without logits. Any other config as it is."""
    collecting = COLLECTING.get(str(raw.get("model_type")))
    if collecting is not None and isinstance(raw.get("vlm_config"), Mapping):
        return _collecting(raw, *collecting)
    if raw.get("model_type") != "qwen2_5_vl" or raw.get("architectures") not in ([JINA_V4], JINA_V4):
        return raw
    own = {name: value for name, value in raw.items() if name not in SILENT}
    return {**own, "architectures": None, PROJECTOR: raw.get(f"{PROJECTOR}_dim", 128)}


def _collecting(raw: Mapping[str, Any], whole: str, text: str) -> Mapping[str, Any]:
    """The whole inside, as a body."""
    inside = raw["vlm_config"]
    said = (inside.get("text_config") or {}).get("model_type")
    body = config_class(said if said in names() else text).class_prefixes[0]
    kept = {name: raw[name] for name in ("torch_dtype", "dtype", "quantization_config") if raw.get(name) is not None}
    own = {"model_type": whole, **inside, **kept, "architectures": [f"{body}Model"]}
    return {**own, PROJECTOR: raw.get("embedding_dim", 128)}
