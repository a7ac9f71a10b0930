"""Logits and gradients on a mesh: torch's loss of divided logits, and its sums in another dtype."""

from __future__ import annotations

import pytest

import tfacct
from tests.oracle.test_expert_parallel import Counted, accounted, watched
from tests.oracle.test_sharding import built, fake_ranks, sharded
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import collectives

LLAMA = {
    "model_type": "llama",
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 20,
    "vocab_size": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_divided_loss_is_torchs(dtype: str) -> None:
    import torch
    from torch.distributed.tensor.parallel import loss_parallel

    model, found = built(LLAMA).to(getattr(torch, dtype)), Counted()
    with fake_ranks(2):
        sharded(model, Mesh(tp=2))
        ids = torch.zeros(2, 5, dtype=torch.long)
        logits = model(input_ids=ids, position_ids=torch.arange(5)[None]).logits.float()
        with loss_parallel():
            with watched(found, "forward"):
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
            with watched(found, "backward"):
                loss.backward()
    loaded, bits = tfacct.load(LLAMA).loaded, 32 if dtype == "float32" else 16
    at = Workload(5, 5, 2).axes()
    lines = collectives(loaded.ledger, Mesh(tp=2), at, bits, train=True, after="loss")
    own = [one for one in lines if one.of == "logits"]
    assert [one.what for one in own] == ["loss.max", "loss.sum", "loss.target"]
    # 2 sequences of 5 tokens, in fp32 whatever the stream's dtype.
    assert found["forward", "all-reduce"] == {one.bytes: len(own) for one in own} == {2 * 5 * 4: 3}
    assert ("backward", "all-gather") not in found


def test_gradients_are_summed_in_another_dtype() -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model, found = built(LLAMA), Counted()
    with fake_ranks(2):
        ranks = init_device_mesh("cpu", (2,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in (*model.model.layers, model):
            fully_shard(block, mesh=ranks, mp_policy=policy)
        ids = torch.zeros(1, 4, dtype=torch.long)
        with watched(found, "forward"):
            logits = model(input_ids=ids).logits
        with watched(found, "backward"):
            logits.sum().backward()
    asked = (LLAMA, Mesh(fsdp=2), 1, 4)
    assert accounted(*asked, train=True, bits=16, reduced=32) == found != accounted(*asked, train=True, bits=16)


def test_what_becomes_of_logits() -> None:
    model = tfacct.load("llama-3.1-8b")
    token = model.comms(tp=8, after_head="gathered").collectives
    assert [(one["kind"], one["of"], one["calls"], one["bytes"]) for one in token] == [
        ("all-gather", "logits", 1, 128_256 * 2),
        ("all-reduce", "stream", 65, 65 * 4096 * 2),
    ]
    step = model.comms(tp=8, after_head="loss", train=True, ctx="4k").collectives
    assert next(one["bytes"] for one in step if one["of"] == "logits") == 3 * 4096 * 4
    plain, wide = (model.comms(fsdp=8, train=True, ctx="4k", reduce_dtype=dtype) for dtype in (None, "fp32"))
    sums = [next(one for one in each.collectives if one["kind"] == "reduce-scatter") for each in (plain, wide)]
    assert sums[1]["bytes"] == 2 * sums[0]["bytes"] and wide.reduce_dtype == "fp32" and plain.reduce_dtype == "bf16"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--fsdp 8 --after-head gathered", "--after-head gathered applies to logits that --tp shards"),
        ("--tp 8 --after-head loss", "--after-head loss applies to a training step"),
        (
            "--tp 8 --reduce-dtype fp32 --train",
            "applies to gradients that are summed over batches give --train, and --fsdp",
        ),
        ("--fsdp 8 --reduce-dtype int8 --train", "ranks sum gradients in fp32, bf16, fp16, not int8"),
    ],
)
def test_ends_that_do_not_fit_are_refused(run, arguments: str, said: str) -> None:
    ran = run("plan", "llama-3.1-8b", *arguments.split())
    assert ran.code == 2 and said in " ".join(ran.err.split()).replace("hint: ", ""), ran.err
