"""Ranks that divide a sequence: what attention sends, against torch's ring and attention written out, and by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.conftest import Ran
from tests.helpers.gloo_context import attended
from tests.oracle.test_sharding import fake_ranks
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import collectives

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
    with fake_ranks(4):
        attended(job, 0, 4, lambda *one: found.update([one]))
    assert accounted(job) == found


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("method", MESHES)
def test_ranks_that_send_compute_what_one_process_does(tmp_path: Path, method: str, count: int, causal: bool) -> None:
    job = job_of(method, count, causal=causal)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-W", "ignore", "-m", "tests.helpers.gloo_context"]
    ranks = [
        subprocess.Popen(
            [*start, str(rank), str(tmp_path / "store"), json.dumps(job)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    printed = [rank.communicate(timeout=240) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), printed[0][1][-2000:]
    for out, _ in printed:
        said = json.loads(out.splitlines()[-1])
        assert said["apart"] < SAME
        assert Counter(tuple(one) for one in said["counts"]) == accounted(job)


def test_llama_8b_in_a_ring_by_hand() -> None:
    found = tfacct.load("llama-3.1-8b").comms(cp=4, ctx="8k", batch=2, train=True, fsdp=2)
    both = 2 * 2 * 2048 * 8 * 128  # keys and values of a quarter of two sequences
    assert [(one["kind"], one["when"], one["calls"], one["bytes"]) for one in found.collectives[:3]] == [
        ("send", "forward", 32 * 3, 32 * 3 * both * 2),
        ("send", "backward", 32 * 3, 32 * 3 * both * 2),
        ("send", "backward", 32 * 4, 32 * 4 * both * 4),  # gradients go home, in fp32
    ]
    # Weights are divided among all eight ranks.
    assert found.rank_params * 8 == found.total_params
    assert [one["over"] for one in found.collectives[3:]] == ["fsdp"] * 3


def test_gathered_keys_and_divided_heads_by_hand() -> None:
    model = tfacct.load("gemma-3-27b-text")
    found = model.comms(cp=2, cp_method="gather", ulysses=2, tp=2, ctx="8k", tokens="8k")
    own = 2048 * 8 * 128 * 2  # keys of a quarter of the tokens and half the heads, in bf16
    kinds = {(one["kind"], one["over"]): (one["calls"], one["bytes"], one["sent_bytes"]) for one in found.collectives}
    assert kinds["all-gather", "cp"] == (62 * 2, 62 * 2 * 2 * own, 62 * 2 * own)
    # Queries and results have twice as many heads; half of each goes to the other rank.
    assert kinds["all-to-all", "ulysses"] == (62 * 4, 62 * 6 * own, 62 * 3 * own)
    # What tp reduces is of the same quarter of the tokens.
    assert kinds["all-reduce", "tp"][:2] == (62 * 2 + 1, (62 * 2 + 1) * 2048 * 5376 * 2)


def test_parts_of_a_sequence_sum_gradients_as_copies_do() -> None:
    model = tfacct.load("llama-3.2-1b")
    parts, copies = (
        next(one for one in model.comms(ctx=4096, train=True, **mesh).collectives if one["of"] == "weights")
        for mesh in ({"cp": 4}, {"dp": 4})
    )
    assert (parts["over"], copies["over"]) == ("cp", "dp")
    assert [parts[key] for key in ("kind", "calls", "bytes")] == [copies[key] for key in ("kind", "calls", "bytes")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("llama-3.1-8b --cp 4", "--cp 4 divides whole sequences, not one new token of 131,072"),
        ("llama-3.1-8b --cp 4 --ctx 4100 --train", "--cp 4 does not divide T = 4,100 (new tokens)"),
        ("llama-3.1-8b --ulysses 16 --ctx 8k --train", "--ulysses 16 does not divide K = 8 (key/value heads)"),
        ("llama-3.1-8b --ulysses 4 --tp 4 --ctx 8k --train", "sizes that divide all: 1, 2"),
        ("llama-3.1-8b --cp-method gather --tp 2", "it needs --cp 2 or more"),
        ("gemma-3-27b-text --cp 4 --ctx 8k --train", "--cp 4 in a ring does not support windows"),
        ("deepseek-v3 --cp 4 --ctx 8k --train", "--cp 4 does not support latent attention"),
        ("deepseek-v3 --ulysses 4 --ctx 8k --train", "--ulysses 4 does not support latent attention"),
        ("mamba-130m --cp 4 --ctx 2k --train", "a parallel layout does not support Mamba"),
        ("t5-base --cp 4 --train", "--cp 4 does not support an encoder"),
        ("mixtral-8x7b --fsdp 4 --ep 3 --cp 2 --ctx 8k --train", "among the ranks of --tp, --fsdp and --cp"),
    ],
)
def test_what_has_no_parts_is_refused_by_name(run: Callable[..., Ran], arguments: str, said: str) -> None:
    ran = run("plan", *arguments.split())
    words = " ".join(ran.err.split())
    assert ran.code == 2 and said in words and "Traceback" not in words, words


def test_only_a_step_has_buckets() -> None:
    model = tfacct.load("gpt2")
    # Queries, keys, values and the result of 12 blocks, 64/4 tokens of 768 numbers of 2 bytes; 3/4 of each is sent.
    forward = 12 * 4 * 16 * 768 * 2 * 3 // 4
    assert model.comms(ulysses=4, ctx=64, tokens=64).sent_bytes == forward
    # A step sends them once more, backward, and all-reduces 124,439,808 gradients of 2 bytes over 4 ranks.
    assert model.comms(ulysses=4, ctx=64, train=True).sent_bytes == 2 * forward + 124_439_808 * 2 * 2 * 3 // 4
    gated = tfacct.load("qwen1.5-moe-a2.7b")  # Its shared network has a gate: a number a token.
    assert gated.comms(ulysses=4, ctx=64, tokens=64).sent_bytes == 24 * 4 * 16 * 2048 * 2 * 3 // 4
    with pytest.raises(tfacct.TfacctError, match="which tensors share a bucket was not compared") as told:
        gated.comms(ulysses=4, ctx=64, train=True)
    assert told.value.hint == "use fsdp or zero"


def test_only_a_step_sums_gradients() -> None:
    model = tfacct.load("llama-3.2-1b")
    assert "The ranks of a sequence have the same weights." in model.comms(cp=4, ctx=64, tokens=64).notes
    assert any("sum gradients" in said for said in model.comms(cp=4, ctx=64, train=True).notes)


def test_heads_that_ranks_of_tp_do_not_divide_leave_no_size(run: Callable[..., Ran]) -> None:
    """Eight heads of keys, three ranks of tp."""
    words = " ".join(run("plan", "llama-3.1-8b", "--tp", "3", "--ulysses", "2", "--ctx", "8k", "--train").err.split())
    assert "no size does: --tp 3 alone does not divide all of them" in words
