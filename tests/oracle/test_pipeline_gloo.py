"""Stages that really send: gloo between 2 and 4 processes, every message counted, gradients those of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.rank_configs import CONFIGS, SAME
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import in_pipeline


@pytest.mark.slow
@pytest.mark.parametrize(("pp", "schedule"), [(2, "1f1b"), (4, "1f1b"), (4, "gpipe")])
def test_stages_that_send(tmp_path: Path, pp: int, schedule: Any) -> None:
    config = {**CONFIGS["llama"], "num_hidden_layers": 6}
    mesh: dict[str, Any] = {"pp": pp, "schedule": schedule, "microbatches": 4}
    job = {"config": config, "mesh": mesh, "batch": 8, "tokens": 16}
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-W", "ignore", "-m", "tests.helpers.gloo_stages"]
    ranks = [
        subprocess.Popen(
            [*start, str(rank), str(tmp_path / "store"), json.dumps(job)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(pp)
    ]
    printed = [rank.communicate(timeout=240) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), printed[0][1][-2000:]
    lines = in_pipeline(tfacct.load(config).loaded.ledger, Mesh(**mesh), Workload(16, 16, 8).axes(), 32, train=True)
    for own, (out, _) in zip(lines, printed, strict=True):
        said = json.loads(out.splitlines()[-1])
        assert said["gradients"] < SAME and said["loss"] < SAME, said
        counted = Counter({(one.when, one.bytes // one.calls): one.calls for one in own if one.kind == "send"})
        assert counted == Counter({(when, size): times for when, size, times in said["sent"]})
