"""Context parallelism: collectives of torch's ring attention in several processes. Kind: oracle."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.gloo_context import attended, reports_of_ranks
from tests.helpers.lazy import lazy
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import collectives

reference = lazy("tfacct.reference.ranks")
SAME = 1e-4
"""How far fp32 numbers that were summed in another order may be apart, of the largest."""
MESHES = {"ring": {"cp": 4}, "gather": {"cp": 4, "cp_method": "gather"}, "ulysses": {"ulysses": 4}}
Calls = Counter[tuple[str, str, int]]


def job_of(method: str, ranks: int = 4, *, causal: bool = True) -> dict[str, Any]:
    return {"method": method, "ranks": ranks, "tokens": 32, "batch": 2, "heads": 4, "kv": 4, "causal": causal}


def accounted(job: dict[str, Any]) -> Calls:
    """Collectives of attention in one block, call by call."""
    config = {
        "model_type": "llama",
        "hidden_size": 16,
        "num_attention_heads": job["heads"],
        "num_key_value_heads": job["kv"],
        "head_dim": 4,
        "intermediate_size": 24,
        "vocab_size": 40,
        "num_hidden_layers": 1,
        "max_position_embeddings": 64,
    }
    if not job["causal"]:  # an encoder, whose tokens all see one another
        unknown = ("num_key_value_heads", "head_dim")
        config = {**{name: size for name, size in config.items() if name not in unknown}, "model_type": "bert"}
    at = Workload(job["tokens"], job["tokens"], job["batch"]).axes()
    mesh: dict[str, Any] = {**MESHES[job["method"]]}
    mesh["ulysses" if job["method"] == "ulysses" else "cp"] = job["ranks"]
    lines = collectives(tfacct.load(config).loaded.ledger, Mesh(**mesh), at, 32, train=True)
    found: Calls = Counter()
    for one in lines:
        if one.of in ("keys", "heads"):
            found[one.when, one.kind, one.bytes // one.calls] += one.calls
    return found


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("method", MESHES)
def test_attention_sends_what_a_rank_counts(method: str, causal: bool) -> None:
    found: Calls = Counter()
    job = job_of(method, causal=causal)
    with reference.fake_ranks(4):
        attended(job, 0, 4, lambda *one: found.update([one]))
    assert accounted(job) == found


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("method", MESHES)
def test_ranks_that_send_compute_what_one_process_does(tmp_path: Path, method: str, count: int, causal: bool) -> None:
    job = job_of(method, count, causal=causal)
    for report in reports_of_ranks(count, tmp_path, job):
        assert report["apart"] < SAME
        assert Counter(tuple(one) for one in report["counts"]) == accounted(job)
