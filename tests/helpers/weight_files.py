"""Folders of weights as they are published."""

import json
from pathlib import Path
from typing import Any

LLAMA_70B = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def folder(at: Path, config: dict[str, Any], **others: object) -> Path:
    """A model's folder: its config.json, and other files by their names without `.json`."""
    at.mkdir(exist_ok=True)
    for name, said in {"config": config, **others}.items():
        (at / f"{name}.json").write_text(json.dumps(said))
    return at


def indexed(at: Path, config: dict[str, Any], total: object, **where: str) -> Path:
    """A folder of a config and an index of files that are not there."""
    return folder(at, config, **{"model.safetensors.index": {"metadata": {"total_size": total}, "weight_map": where}})


SHARD = "model-00001-of-00002.safetensors"
