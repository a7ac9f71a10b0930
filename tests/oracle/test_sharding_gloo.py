"""Ranks over gloo: every byte sent, and the numbers of one process. Kind: oracle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.fake_expert_ranks import Counted, accounted
from tests.helpers.gloo import reports_of_ranks
from tests.helpers.rank_configs import CONFIGS, SAME
from tfacct.parallel.mesh import Mesh


def gloo(tmp_path: Path, kind: str, batch: int, tokens: int, **mesh: int) -> None:
    own = Mesh(**mesh)
    job = {"config": CONFIGS[kind], "mesh": mesh, "batch": batch, "tokens": tokens}
    said = next(reports_of_ranks("gloo_ranks", own.ranks, tmp_path, job))
    assert said["logits"] < SAME and said["gradients"] < SAME, said
    found: Counted = {(when, kind_): Counter(dict(sizes)) for when, kind_, sizes in said["counts"]}
    assert accounted(CONFIGS[kind], own, batch, tokens, train=True) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mesh"),
    [
        ("llama", {"tp": 2}),
        ("llama", {"tp": 4}),
        ("llama", {"fsdp": 2}),
        ("llama", {"tp": 2, "fsdp": 2}),
        ("mixtral", {"tp": 2}),
        ("mixtral", {"tp": 4, "ep": 4}),
        ("mixtral", {"fsdp": 2, "ep": 2}),
        ("mixtral", {"tp": 2, "fsdp": 2, "ep": 4}),
    ],
)
def test_ranks_that_send(tmp_path: Path, kind: str, mesh: dict[str, int]) -> None:
    gloo(tmp_path, kind, 2, 16, **mesh)
