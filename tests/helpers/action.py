"""The steps of the GitHub Action."""

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def steps() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="the action is YAML")
    action = yaml.safe_load((ROOT / ".github" / "actions" / "check" / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    found: list[dict[str, Any]] = action["runs"]["steps"]
    return found
