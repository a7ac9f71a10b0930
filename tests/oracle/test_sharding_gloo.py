"""Ranks that really send: gloo between processes, every byte counted, and the same numbers as one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.fake_expert_ranks import Counted, accounted
from tests.helpers.rank_configs import CONFIGS, SAME
from tfacct.parallel.mesh import Mesh


def gloo(tmp_path: Path, kind: str, batch: int, tokens: int, **mesh: int) -> None:
    own = Mesh(**mesh)
    job = {"config": CONFIGS[kind], "mesh": mesh, "batch": batch, "tokens": tokens}
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.helpers.gloo_ranks",
                str(rank),
                str(tmp_path / "store"),
                json.dumps(job),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(own.ranks)
    ]
    printed = [rank.communicate(timeout=240) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), printed[0][1][-2000:]
    said: dict[str, Any] = json.loads(printed[0][0].splitlines()[-1])
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
