"""Python blocks and the walk-through of the documentation run as printed. Kind: output."""

import doctest
from pathlib import Path

import pytest

from tests.helpers.documents import PAGES, builder

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", [p for p in PAGES if ">>> " in p.read_text()], ids=lambda p: p.name)
def test_python_blocks_run(page: Path) -> None:
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 3 and failed == 0


def test_the_walk_through_would_show_a_slip() -> None:
    source = (ROOT / "tfacct" / "families" / "mistral.py").read_text()
    slip = source.replace("attention_bias = mlp_bias = ", "attention_bias = ")
    assert slip != source
    page = (
        "`tfacct/families/mistral.py`:\n\n```python\n{}```\n```console\n$ tfacct params starcoder2-3b > table.txt\n```"
    )
    assert builder().refreshed(page.format(source)) == page.format(source)
    assert "expected 3,030,371,328" in builder().refreshed(page.format(slip))
