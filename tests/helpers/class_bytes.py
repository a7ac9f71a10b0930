"""Bytes of training steps of transformers' classes: class_bytes.toml."""

import tomllib
from pathlib import Path
from typing import Any

from tfacct import Model, load
from tfacct.loading import presets

TABLES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ROWS = [(table, row) for table, rows in TABLES.items() for row in rows if row not in ("with", "near", "at", "fields")]
LAYERS = ("n_layer", "n_layers", "num_layers", "num_decoder_layers", "num_hidden_layers")
"""Config fields with the number of layers."""


def step_of_row(table: str, row: str) -> tuple[Model, dict[str, Any]]:
    """The model of a row, and the arguments of `train`."""
    name, *words = f"{row} {TABLES[table].get('with', '')}".split()
    asked: dict[str, Any] = {}
    for key, _, text in (word.partition("=") for word in reversed(words)):  # those of the row over those of all
        value: Any = int(text) if text.isdecimal() else {"true": True, "null": None}.get(text, text)
        asked[key] = float(text) if key == "lora_dropout" else value
    fields = dict(TABLES[table].get("fields", {}))
    if "layers" in asked:
        fields |= dict.fromkeys({*LAYERS} & {*presets.load(name).raw}, asked.pop("layers"))
    for key in [key for key in asked if key.startswith("set.")]:
        value = asked.pop(key)
        fields[key.removeprefix("set.")] = [value] if key == "set.architectures" else value
    return load(name, **fields), asked


def bytes_of_row(table: str, row: str) -> tuple[int | None, int]:
    """Saved bytes, where the row has them, and the peak of the class."""
    figures = TABLES[table][row]
    return (None, figures) if isinstance(figures, int) else tuple(figures)
