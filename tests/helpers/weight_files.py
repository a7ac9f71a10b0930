"""Folders of weights as they are published."""

import json
from pathlib import Path
from typing import Any

from tfacct.loading import presets

LLAMA_70B = dict(presets.load("llama-3.1-70b").raw)


def folder(at: Path, config: dict[str, Any], **others: object) -> Path:
    """A model's folder: its config.json, and other files by their names without `.json`."""
    at.mkdir(exist_ok=True)
    for name, content in {"config": config, **others}.items():
        (at / f"{name}.json").write_text(json.dumps(content))
    return at


def indexed(at: Path, config: dict[str, Any], total: object, **where: str) -> Path:
    """A folder of a config and an index of files that are not there."""
    return folder(at, config, **{"model.safetensors.index": {"metadata": {"total_size": total}, "weight_map": where}})


SHARD = "model-00001-of-00002.safetensors"
