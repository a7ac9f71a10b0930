"""Files that transformers saves of every family. Kind: oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families import SHAPES
from tests.helpers.checkpoints import _all_have_their_line
from tests.helpers.models import tiny


@pytest.mark.parametrize(
    "name", [name for name in SHAPES if tiny(name).config.hf_module_paths() and "t5, untied" not in name]
)
def test_what_transformers_saves_of_every_family_has_its_line(name: str, tmp_path: Path) -> None:
    """(transformers 5.23 ties an untied T5 before it saves it.)"""
    _all_have_their_line(name, tmp_path / "saved")
