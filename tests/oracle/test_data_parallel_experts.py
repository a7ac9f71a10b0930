"""Data and expert parallelism: transformers' all-to-all and DistributedDataParallel's buckets. Kind: oracle."""

import random
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.helpers.fake_expert_ranks import SIZES, Counted, balanced, random_config, watched
from tests.helpers.fake_ranks import built, fake_ranks
from tests.helpers.lazy import lazy
from tfacct.ledger.workload import Workload
from tfacct.parallel import data_parallel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.model_collectives import tensors_in_order
from tfacct.parallel.rules import collectives
from tfacct.parallel.support import routing_bits

torch, device_mesh, parallel = lazy("torch"), lazy("torch.distributed.device_mesh"), lazy("torch.nn.parallel")
distributed, expert_parallel = lazy("transformers.distributed"), lazy("transformers.distributed.expert_parallel")

CAP = 2**9


def witnessed(config: dict[str, Any], mesh: Mesh, batch: int, tokens: int) -> tuple[Counted, Counter[int], int]:
    """What goes to experts and comes back in a second step, the buckets that torch reduces, and what a rank stores."""
    found: Counted = {}
    buckets: Counter[int] = Counter()

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        buckets[bucket.buffer().nbytes] += 1
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def told(received: Any, sent: Any, group: Any) -> None:  # every rank sends this one what it sends itself
        received.copy_(sent[:1].expand_as(sent))
        found.setdefault(("forward", "all-to-all"), Counter())[sent.numel() * sent.element_size()] += 1

    model = built(config).to(torch.bfloat16)
    model.set_experts_implementation("eager")
    balanced(model)
    with fake_ranks(mesh.dp), ExitStack() as stack:
        asked = distributed.DistributedConfig(tp_size=1, fsdp_size=mesh.dp, ep_size=mesh.ep)
        _, by_experts, _ = model._resolve_parallel_plans(asked)
        ranks = device_mesh.init_device_mesh(
            "cpu", (1, mesh.expert_replicas, mesh.ep), mesh_dim_names=("tp", "twins", "ep")
        )
        expert_parallel.apply_expert_parallelism(model, ranks["ep"], ranks["tp"], by_experts)
        local = sum(getattr(weight, "_local_tensor", weight).numel() for weight in model.parameters())
        apart = [name for name, _ in model.named_parameters() if ".mlp.experts." in name]
        parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, apart)
        copy = parallel.DistributedDataParallel(model)
        copy.register_comm_hook(None, reduce)
        stack.enter_context(patch("transformers.distributed.expert_parallel.all_to_all_single", told))
        ids = torch.zeros(batch, tokens, dtype=torch.long)
        for _ in range(2):
            found.clear()
            buckets.clear()
            with watched(found, "forward"):
                logits = copy(input_ids=ids, position_ids=torch.arange(tokens)[None], use_cache=False).logits
            with watched(found, "backward"):
                logits.sum().backward()
    return {key: sizes for key, sizes in found.items() if key[1] == "all-to-all"}, buckets, local


CASES = [("mixtral", 2, 2, 0), ("mixtral", 4, 2, 0), ("qwen3_moe", 4, 4, 0), ("deepseek_v3", 4, 2, 0)]
FURTHER = [
    pytest.param(kind, (2, 4)[seed % 2] * (1, 2)[seed // 2 % 2], (2, 4)[seed % 2], seed, marks=pytest.mark.slow)
    for kind in ("mixtral", "qwen3_moe", "deepseek_v3")
    for seed in range(1, 9)
]


@pytest.mark.parametrize(("kind", "dp", "ep", "seed"), CASES + FURTHER)
def test_copies_send_tokens_to_experts_and_reduce_the_rest(
    kind: str, dp: int, ep: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = Mesh(dp=dp, ep=ep)
    monkeypatch.setattr(data_parallel, "OTHERS", CAP)
    monkeypatch.setattr(data_parallel, "FIRST", CAP // 2)
    monkeypatch.setattr("torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB", CAP / 2**20)
    monkeypatch.setattr("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES", CAP // 2)
    config = {**random_config(kind, random.Random(f"copies {kind} {seed}"), mesh), "num_hidden_layers": 2 + seed % 2}
    config["hidden_size"] *= 4
    experts = next(config[field] for field, axis in SIZES[kind].items() if axis == "E")
    batch, tokens = 2, experts
    loaded = tfacct.load(config).loaded
    ours: Counted = {}
    buckets: Counter[int] = Counter()
    of_experts = 0
    at = Workload(tokens, tokens, batch).axes()
    shares = routing_bits(loaded, mesh, 16, train=True)
    for one in collectives(loaded.ledger, mesh, at, 16, train=True, shares=shares, tensors=tensors_in_order(loaded)):
        if one.kind == "all-to-all":
            ours.setdefault((one.when, one.kind), Counter())[one.bytes // one.calls] += one.calls
        elif one.what == "gradients":
            buckets[one.bytes // one.calls] += one.calls
        else:
            assert (one.kind, one.over) == ("all-reduce", "dp")
            of_experts += one.bytes
    seen, reduced, local = witnessed(config, mesh, batch, tokens)
    assert ours == seen, config
    assert buckets == reduced and sum(buckets.values()) > 2, config
    assert tfacct.load(config).params(ep=mesh.ep).rank_params == local
    # What no bucket has, the ranks of the same experts sum among them; where each is on one rank, nobody does.
    rest = 2 * local - sum(size * count for size, count in reduced.items())
    assert of_experts == (rest if mesh.expert_replicas > 1 else 0)
