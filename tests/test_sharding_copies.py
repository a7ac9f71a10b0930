"""Copies of a model, each with a batch: DistributedDataParallel's buckets, HSDP and ZeRO."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import tfacct
from tests.test_sharding import built, fake_ranks, random_config
from tfacct.accounts.sharding import replicas
from tfacct.accounts.sharding.mesh import Mesh

CONFIG = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 2}


def buckets_of(config: dict[str, Any]) -> list[int]:
    """Bytes of the buckets that torch reduces in a second step."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    found: list[int] = []

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        found.append(bucket.buffer().nbytes)
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    with fake_ranks(2):
        model = DistributedDataParallel(built(config))
        model.register_comm_hook(None, reduce)
        ids = torch.zeros(1, 8, dtype=torch.long)
        for _ in range(2):
            found.clear()
            model(input_ids=ids).logits.sum().backward()
    return found


@pytest.mark.parametrize(("kind", "seed"), [("llama", 0), ("llama", 1), ("qwen2", 0), ("qwen3", 0), ("starcoder2", 0)])
def test_buckets_of_gradients_are_torchs(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{kind} {seed}")
    config = {**random_config(kind, rng, Mesh()), **CONFIG, "head_dim": 64, "vocab_size": rng.randint(600, 4000)}
    config["num_hidden_layers"] = rng.randint(2, 4)
    monkeypatch.setattr(replicas, "OTHERS", 3 * 2**20)
    monkeypatch.setattr("torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB", 3)
    own = replicas.buckets(tfacct.load(config).loaded.ledger, Mesh(dp=2), 32)
    assert Counter(own) == Counter(buckets_of(config)), config
    assert len(own) > 3


def test_copies_of_llama_by_hand() -> None:
    model = tfacct.load("llama-3.1-8b")
    whole = 2 * 8_030_261_248
    plain = model.comms(dp=8, train=True)
    (row,) = plain.collectives
    # A ring sends 7 of 8 shares twice.
    assert (row["kind"], row["over"], row["bytes"]) == ("all-reduce", "dp", whole)
    assert plain.mesh["ranks"] == 8 and abs(plain.sent_bytes - 2 * 7 * whole // 8) < 8 * 8 * row["calls"]
    # ZeRO 1 and 2 send as much: the sums are scattered, and what was updated is gathered.
    for zero in (1, 2):
        scatter, gather = model.comms(dp=8, zero=zero, train=True).collectives
        assert (scatter["kind"], scatter["calls"], scatter["bytes"]) == ("reduce-scatter", 33, whole // 8)
        assert (gather["kind"], gather["when"], gather["bytes"]) == ("all-gather", "update", whole)
    assert model.comms(dp=8, zero=3, train=True).collectives == model.comms(fsdp=8, train=True).collectives
    # HSDP: what fsdp has scattered is reduced among the copies.
    last = model.comms(fsdp=4, dp=2, train=True).collectives[-1]
    assert (last["kind"], last["over"], last["calls"], last["bytes"]) == ("all-reduce", "dp", 33, whole // 4)


def test_what_a_copy_holds() -> None:
    model = tfacct.load("llama-3.2-1b")
    whole = 2 * 1_235_814_400
    plain, one, two, three, mixed = (
        model.train(ctx="1k", **mesh)
        for mesh in ({"dp": 4}, {"dp": 4, "zero": 1}, {"dp": 4, "zero": 2}, {"dp": 4, "zero": 3}, {"dp": 2, "fsdp": 4})
    )
    alone = model.train(ctx="1k")
    assert (plain.weights_bytes, plain.gradients_bytes) == (one.weights_bytes, one.gradients_bytes) == (whole, whole)
    assert plain.optimizer_bytes == alone.optimizer_bytes
    assert plain.peak_bytes == alone.peak_bytes + whole  # the buckets are as large as the gradients, and stay
    tensors = 4 * (16 * 9 + 2)  # a counter of each
    assert one.optimizer_bytes == two.optimizer_bytes == three.optimizer_bytes == 2 * whole // 4 + tensors
    assert two.gradients_bytes == three.gradients_bytes == three.weights_bytes == whole // 4
    assert two.weights_bytes == whole and not two.exact and plain.exact and three.exact
    assert mixed.weights_bytes == whole // 4 and mixed.mesh["ranks"] == 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("comms llama-3.1-8b --dp 8", "sends gradients alone --train counts them"),
        ("comms llama-3.1-8b --dp 8 --zero 4 --train", "--zero is 1, 2 or 3, not 4"),
        ("comms llama-3.1-8b --zero 1 --train", "--zero 1 goes with --dp, without --fsdp"),
        ("comms llama-3.1-8b --dp 2 --fsdp 2 --zero 1 --train", "--zero 1 goes with --dp, without --fsdp"),
        ("comms gpt2 --dp 8 --train", "its class fuses products"),
        ("comms mixtral-8x7b --dp 2 --fsdp 2 --ep 2 --train", "--ep is not counted beside --dp"),
        ("train llama-3.1-8b --dp 2 --weights fp32", "autocast is not counted on a mesh"),
    ],
)
def test_copies_that_are_not_counted_are_refused_by_name(run: Any, arguments: str, said: str) -> None:
    ran = run(*arguments.split())
    words = " ".join(ran.err.split()).replace("hint: ", "")
    assert ran.code == 2 and said in words and "Traceback" not in words, words


def test_copies_are_said(run: Any) -> None:
    words = " ".join(run("comms", "llama-3.1-8b", "--dp", "8", "--train").out.split())
    assert "8 copies have a batch each; gradients are reduced in buckets of 25 MiB" in words
    words = " ".join(run("train", "llama-3.1-8b", "--ctx", "2k", "--dp", "8").out.split())
    assert "The buckets stay beside the gradients." in words
    assert "as ZeRO 2 does" in " ".join(run("train", "llama-3.1-8b", "--dp", "8", "--zero", "2").out.split())
