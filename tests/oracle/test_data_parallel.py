"""Data parallelism: the gradient buckets that DistributedDataParallel reduces. Kind: oracle."""

import random
from collections import Counter
from typing import Any

import pytest

import tfacct
from tests.families import random_config as small_config
from tests.helpers.classes import ClassRefusesError, of_the_class
from tests.helpers.fake_ranks import built, fake_ranks, random_config
from tests.helpers.lazy import lazy
from tests.helpers.models import in_whole_rows
from tfacct.parallel import data_parallel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.model_collectives import tensors_in_order

torch, parallel = lazy("torch"), lazy("torch.nn.parallel")

CONFIG = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 2}


def without_dropout(config: dict[str, Any]) -> dict[str, Any]:
    said = {name: 0.0 if "drop" in name else value for name, value in config.items()}
    return {name: value for name, value in said.items() if not name.endswith("token_id")}


def buckets_of(config: dict[str, Any], dtype: Any = None) -> list[int]:
    """Bytes of the buckets that torch reduces in a second step."""
    found: list[int] = []

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        found.append(bucket.buffer().nbytes)
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    with fake_ranks(2):
        model = parallel.DistributedDataParallel(built(config).to(dtype))
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
    monkeypatch.setattr(data_parallel, "OTHERS", 3 * 2**20)
    monkeypatch.setattr("torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB", 3)
    own = data_parallel.buckets(tfacct.load(config).loaded.ledger, Mesh(dp=2), 32, {})
    assert Counter(own) == Counter(buckets_of(config)), config
    assert len(own) > 3


CAP = 2**14
FUSED = ("deepseek_v3", "gpt2", "mixtral", "phi3", "qwen3", "qwen3_moe")
"""Families whose classes store several products, or experts, as one tensor, or norm queries and keys as they are made:
the order in which gradients are ready is theirs."""
FURTHER = (
    *("dots1", "exaone4", "falcon", "gemma3_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite"),
    *("gpt_bigcode", "gpt_neox", "granitemoe", "minimax_m2", "olmo2", "olmoe", "phimoe", "youtu"),
)


@pytest.mark.parametrize("kind", [*FUSED, *(pytest.param(kind, marks=pytest.mark.slow) for kind in FURTHER)])
def test_buckets_of_fused_gradients_are_torchs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_parallel, "OTHERS", CAP)
    monkeypatch.setattr(data_parallel, "FIRST", CAP // 2)
    monkeypatch.setattr("torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB", CAP / 2**20)
    monkeypatch.setattr("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES", CAP // 2)
    met = 0
    for seed in range(6):
        config = in_whole_rows(without_dropout(small_config(kind, seed)))
        model = tfacct.load(config).loaded
        own = data_parallel.buckets(model.ledger, Mesh(dp=2), 16, tensors_in_order(model))
        try:
            with of_the_class():
                theirs = buckets_of(config, torch.bfloat16)
        except ClassRefusesError:
            continue
        assert Counter(own) == Counter(theirs), config
        met += len(own)
    assert met >= 12
