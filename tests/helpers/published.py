"""Published text configs with fields taken out."""

from __future__ import annotations

from typing import Any

from tests.families import TINY


def text_of(family: str, *without: str) -> dict[str, Any]:
    return {name: value for name, value in TINY[family].items() if name not in ("model_type", "head_dim", *without)}
