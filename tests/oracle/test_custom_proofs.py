"""Custom models: formula and reference model are one polynomial. Kind: law."""

import pytest

from tests.families import SHAPES
from tests.helpers.models import tiny

# Half a minute each, or more.
SLOW = (
    "custom",
    "custom, windowed",
    "custom, parallel and idle",
    "custom, encoder post-norm",
    "custom, hybrid",
    "custom, of two widths",
)


# Experts on one side alone: the proof sends the tokens of both sides to experts evenly, or not at all.
PROVEN = [name for name in SHAPES if name.startswith("custom") and "pre-norm" not in name]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PROVEN])
@pytest.mark.parametrize("edges", ["for all sizes above 1", pytest.param("all", marks=pytest.mark.slow)])
def test_they_are_proven(name: str, edges: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tfacct.reports.verify import prove
    from tfacct.verify.proof import Sizes

    if edges != "all":
        monkeypatch.setattr(Sizes, "edges", lambda _: [])
    report = prove(tiny(name))
    assert report.agrees and len(report.rows) >= (9 if edges == "all" else 4)
