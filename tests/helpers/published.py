"""Published configs, and small ones with fields taken out."""

import json
from pathlib import Path
from typing import Any

from tests.families import TINY

PUBLISHED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""Fields of published config.json files that decide a count, by their model's name or the test's."""


def text_of(family: str, *without: str) -> dict[str, Any]:
    return {name: value for name, value in TINY[family].items() if name not in ("model_type", "head_dim", *without)}
