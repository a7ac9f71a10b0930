"""Copies of a model that divide its experts: transformers' own all-to-all, and DistributedDataParallel's buckets of all
else."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.oracle.test_expert_parallel import SIZES, Counted, balanced, random_config, watched
from tests.oracle.test_sharding import built, fake_ranks
from tfacct.ledger.workload import Workload
from tfacct.parallel import data_parallel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.model_collectives import tensors_in_order
from tfacct.parallel.rules import collectives
from tfacct.parallel.support import routing_bits

CAP = 2**9


def witnessed(config: dict[str, Any], mesh: Mesh, batch: int, tokens: int) -> tuple[Counted, Counter[int], int]:
    """What goes to experts and comes back in a second step, the buckets that torch reduces, and what a rank stores."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel
    from transformers.distributed import DistributedConfig
    from transformers.distributed.expert_parallel import apply_expert_parallelism

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
        asked = DistributedConfig(tp_size=1, fsdp_size=mesh.dp, ep_size=mesh.ep)
        _, by_experts, _ = model._resolve_parallel_plans(asked)
        ranks = init_device_mesh("cpu", (1, mesh.expert_replicas, mesh.ep), mesh_dim_names=("tp", "twins", "ep"))
        apply_expert_parallelism(model, ranks["ep"], ranks["tp"], by_experts)
        local = sum(getattr(weight, "_local_tensor", weight).numel() for weight in model.parameters())
        apart = [name for name, _ in model.named_parameters() if ".mlp.experts." in name]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, apart)
        copy = DistributedDataParallel(model)
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


def compared(kind: str, mesh: Mesh, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("kind", "dp", "ep"), [("mixtral", 2, 2), ("mixtral", 4, 2), ("qwen3_moe", 4, 4), ("deepseek_v3", 4, 2)]
)
def test_copies_send_tokens_to_experts_and_reduce_the_rest(
    kind: str, dp: int, ep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared(kind, Mesh(dp=dp, ep=ep), 0, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_random_copies_send_tokens_to_experts_and_reduce_the_rest(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1, 9):
        ep = (2, 4)[seed % 2]
        compared(kind, Mesh(dp=ep * (1, 2)[seed // 2 % 2], ep=ep), seed, monkeypatch)


EXPERTS = 32 * 3 * 4096 * 14336
REST = 46_702_792_704 - 8 * EXPERTS
"""Of mixtral-8x7b: one expert of each block, and all that is no expert's."""


def test_mixtral_by_hand() -> None:
    model = tfacct.load("mixtral-8x7b")
    assert model.params(ep=8).rank_params == model.memory(ep=8).total_params == REST + EXPERTS
    # One new token goes to 2 experts and comes back; before it go 8 numbers of 8 bytes.
    (row,) = model.comms(ep=8).collectives
    assert (row["calls"], row["bytes"], row["sent_bytes"]) == (3 * 32, 32 * (2 * 2 * 4096 * 2 + 64), 32 * 7 * 4104)
    step = model.comms(ep=8, train=True, ctx="4k")
    assert step.mesh["dp"] == 8 and step.collectives == model.comms(ep=8, dp=8, train=True, ctx="4k").collectives
    assert step.collectives[-1]["bytes"] == 2 * REST
    # Of 16 copies two have each expert.
    twice = model.comms(ep=8, dp=16, train=True, ctx="4k").collectives[-1]
    assert twice["bytes"] == 2 * (REST + EXPERTS)
    last = next(line for line in twice["lines"] if "experts" in line["what"])
    assert (last["calls"], last["bytes"]) == (32, 2 * EXPERTS)
    scatter, gather = model.comms(ep=8, dp=16, zero=1, train=True, ctx="4k").collectives[-2:]
    assert (scatter["kind"], scatter["calls"], scatter["bytes"]) == ("reduce-scatter", 65, 2 * REST // 16 + EXPERTS)
    assert gather["bytes"] == 2 * (REST + EXPERTS)


def test_few_experts_leave_no_copy_without_a_share() -> None:
    """8 experts among 16 copies: each has a sixteenth of all."""
    scatter, gather = tfacct.load("mixtral-8x7b").comms(dp=16, zero=1, train=True).collectives
    assert (scatter["bytes"], gather["bytes"]) == (2 * (REST + 8 * EXPERTS) // 16, 2 * (REST + 8 * EXPERTS))


def test_what_a_rank_of_mixtral_holds() -> None:
    model = tfacct.load("mixtral-8x7b")
    plain, twice, shared = (model.train(ctx="4k", ep=8, **more) for more in ({}, {"dp": 16}, {"dp": 16, "zero": 1}))
    assert plain.weights_bytes == plain.gradients_bytes == twice.weights_bytes == 2 * (REST + EXPERTS)
    # Beside the moments each tensor has a counter; the class has gate and up in one.
    assert plain.optimizer_bytes == 4 * (REST + EXPERTS) + 4 * (32 * 9 + 3)
    assert shared.optimizer_bytes == 4 * (REST // 16 + EXPERTS // 2) + 4 * (32 * 9 + 3)
    assert plain.sent_bytes == model.comms(ep=8, train=True, ctx="4k").sent_bytes


def test_experts_beside_parts_of_sequences_and_in_stages() -> None:
    """Ranks of a sequence divide experts too: of 8,192 tokens each sends its part, 2 rows for each."""
    model = tfacct.load("mixtral-8x7b")
    rows = {(one["over"], one["when"], one["kind"], one["of"]): one for one in model.comms(
        cp=4, ep=4, train=True, ctx="8k"
    ).collectives}  # fmt: skip
    pairs = 2048 * 2 * 4096 * 2
    assert rows["ep", "backward", "all-to-all", "experts"]["bytes"] == 32 * 2 * pairs
    assert rows["cp", "backward", "all-reduce", "weights"]["bytes"] == 2 * REST  # each expert is on one rank
    assert model.train(cp=4, ep=4, ctx="8k").weights_bytes == 2 * (REST + 2 * EXPERTS)
    shared = model.comms(cp=2, fsdp=8, ep=8, train=True, ctx="8k")
    # Of two ranks with the same expert each pads to one; a router's 8 rows are padded to 16.
    assert shared.rank_params == REST // 16 + EXPERTS + 32 * 8 * 4096 // 16
    # In stages: half of the blocks, gathered once; each expert of a stage is on one rank, or on two.
    held = model.train(pp=2, fsdp=8, ep=8, ctx="4k", batch=4)
    block = (REST - 2 * 32000 * 4096 - 4096) // 32
    assert held.weights_bytes == 2 * (16 * (block // 8 + EXPERTS // 32) + 32000 * 4096 // 8) and not held.exact
    assert {one["gathered_bytes"] for one in held.phases} == {2 * (16 * block + 32000 * 4096), 0}
    twice = model.train(pp=2, fsdp=8, ep=4, ctx="4k", batch=4)
    more = 2 * 16 * 2 * EXPERTS // 32
    assert {one["gathered_bytes"] for one in twice.phases} == {2 * (16 * block + 32000 * 4096) + more, 0}
    sent = model.comms(pp=2, fsdp=8, ep=4, ctx="4k", batch=4, train=True)
    assert sent.sent_bytes == twice.sent_bytes


def test_copies_of_ranks_that_divide_experts_and_weights() -> None:
    """HSDP: what ranks of fsdp, or of the same experts, have scattered is reduced among copies."""
    rows = {(one["over"], one["kind"]): one for one in tfacct.load("mixtral-8x7b").comms(
        fsdp=8, ep=8, dp=2, train=True, ctx="4k"
    ).collectives}  # fmt: skip
    assert rows["dp", "all-reduce"]["bytes"] == 2 * (REST // 8 + EXPERTS) and rows["dp", "all-reduce"]["calls"] == 65


def test_experts_that_are_stored_in_fp32_by_hand() -> None:
    rank = tfacct.load("mixtral-8x7b").train(fsdp=8, ep=8, ctx="4k", weights_dtype="fp32")
    assert rank.weights_bytes == rank.gradients_bytes == 4 * (REST // 8 + EXPERTS) and not rank.exact
    # A block's rest is gathered beside the next one's, and the expert of each is cast; in no block: table, head, norm.
    block, root = (REST - 2 * 32000 * 4096 - 4096) // 32, 2 * 32000 * 4096 + 4096
    at = {each["phase"]: each for each in rank.phases}
    assert at["layer 31, backward"]["gathered_bytes"] == 2 * (root + 2 * (block + EXPERTS // 32))


def test_deepseek_as_it_was_trained() -> None:
    """DeepSeek-V3 (arXiv 2412.19437), section 3.2: 16 stages, 64 ranks of experts, ZeRO 1 among 2,048 devices."""
    model = tfacct.load("deepseek-v3")
    mesh = {"pp": 16, "ep": 64, "dp": 128, "zero": 1}
    step = model.comms(ctx="4k", batch=64, train=True, **mesh)
    assert step.mesh["ranks"] == 2048
    rows = {(one["over"], one["when"], one["kind"]): one for one in step.collectives}
    # A stage of four blocks of experts; 64 sequences of 4,096 tokens, each to 8 experts, 7,168 numbers in bf16.
    pairs = 4 * 64 * 4096 * 8 * 7168 * 2
    told = 4 * 64 * 256 * 8
    assert rows["ep", "forward", "all-to-all"]["bytes"] == 2 * pairs + told
    assert rows["ep", "backward", "all-to-all"]["bytes"] == 2 * pairs
    assert rows["pp", "forward", "send"]["bytes"] == 64 * 4096 * 7168 * 2
    held = model.train(ctx="4k", batch=64, recompute="full", **mesh)
    assert held.sent_bytes == step.sent_bytes and held.peak_bytes < 80 * 10**9
