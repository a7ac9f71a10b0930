"""Pipeline stages over gloo in 2 and 4 processes: every message, and the gradients of one process. Kind: oracle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.gloo import reports_of_ranks
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
    printed = reports_of_ranks("gloo_stages", pp, tmp_path, job)
    lines = in_pipeline(tfacct.load(config).loaded.ledger, Mesh(**mesh), Workload(16, 16, 8).axes(), 32, train=True)
    for own, said in zip(lines, printed, strict=True):
        assert said["gradients"] < SAME and said["loss"] < SAME, said
        counted = Counter({(one.when, one.bytes // one.calls): one.calls for one in own if one.kind == "send"})
        assert counted == Counter({(when, size): times for when, size, times in said["sent"]})
