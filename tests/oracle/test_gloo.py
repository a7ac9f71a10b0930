"""Ranks and pipeline stages over gloo: every byte sent, and the numbers of one process. Kind: oracle."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.fake_expert_ranks import Counted, accounted
from tests.helpers.gloo import reports_of_ranks
from tests.helpers.rank_configs import CONFIGS, SAME
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import in_pipeline


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mesh"),
    [
        *(("llama", {"tp": 2}), ("llama", {"tp": 4}), ("llama", {"fsdp": 2}), ("llama", {"tp": 2, "fsdp": 2})),
        *(("mixtral", {"tp": 2}), ("mixtral", {"tp": 4, "ep": 4}), ("mixtral", {"fsdp": 2, "ep": 2})),
        ("mixtral", {"tp": 2, "fsdp": 2, "ep": 4}),
    ],
)
def test_ranks_that_send(tmp_path: Path, kind: str, mesh: dict[str, int]) -> None:
    own = Mesh(**mesh)
    job = {"config": CONFIGS[kind], "mesh": mesh, "batch": 2, "tokens": 16}
    report = next(reports_of_ranks("gloo_ranks", own.ranks, tmp_path, job))
    assert report["logits"] < SAME and report["gradients"] < SAME, report
    found: Counted = {(when, kind_): Counter(dict(sizes)) for when, kind_, sizes in report["counts"]}
    assert accounted(CONFIGS[kind], own, 2, 16, train=True) == found


@pytest.mark.slow
@pytest.mark.parametrize(("pp", "schedule"), [(2, "1f1b"), (4, "1f1b"), (4, "gpipe")])
def test_stages_that_send(tmp_path: Path, pp: int, schedule: Any) -> None:
    config = {**CONFIGS["llama"], "num_hidden_layers": 6}
    mesh: dict[str, Any] = {"pp": pp, "schedule": schedule, "microbatches": 4}
    job = {"config": config, "mesh": mesh, "batch": 8, "tokens": 16}
    printed = reports_of_ranks("gloo_stages", pp, tmp_path, job)
    lines = in_pipeline(tfacct.load(config).loaded.ledger, Mesh(**mesh), Workload(16, 16, 8).axes(), 32, train=True)
    for own, report in zip(lines, printed, strict=True):
        assert report["gradients"] < SAME and report["loss"] < SAME, report
        counted = Counter({(one.when, one.bytes // one.calls): one.calls for one in own if one.kind == "send"})
        assert counted == Counter({(when, size): times for when, size, times in report["sent"]})
