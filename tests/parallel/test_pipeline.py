"""Pipeline parallelism: shards and messages of each stage, by hand. Kind: golden, refusal."""

from typing import Any

import pytest

import tfacct
from tests.helpers.rank_configs import SMALL
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import blocks_in, divided, part, stage_ledgers, stages
from tfacct.parallel.shard_shapes import stored_elements


def test_stages_of_llama_8b_by_hand() -> None:
    found = tfacct.load("llama-3.1-8b").comms(pp=4, microbatches=8, batch=16, ctx="8k", train=True)
    stream = 2 * 2 * 8192 * 4096  # two sequences in bf16
    assert found.stage == 2 and [each["sent_bytes"] // stream for each in found.stages] == [8, 16, 16, 8]
    # Eight layers each; the embedding and the head are of 128,256 rows.
    block, table = 218_112_000, 128_256 * 4096
    params = [8 * block + table, 8 * block, 8 * block, 8 * block + 4096 + table]
    assert [each["rank_params"] for each in found.stages] == params
    assert (found.bubble, found.bubble_ratio, found.microbatches) == ("(P − 1)/M", 3 / 8, 8)
    # A tied embedding is on both ends.
    first, last = (each["rank_params"] for each in tfacct.load("gpt2").comms(pp=2, ctx=1024, train=True).stages)
    assert first + last == tfacct.load("gpt2").params().total_params + 50_257 * 768


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "gemma-3-27b-text", "mamba-130m", "falcon-h1-7b"])
@pytest.mark.parametrize("pp", [2, 3, 5])
def test_stages_together_are_the_model(name: str, pp: int) -> None:
    model = tfacct.load(name).loaded
    every = stage_ledgers(model.ledger, Mesh(pp=pp))
    shared = sum(stored_elements(own, Mesh()) for own in every) - stored_elements(model.ledger, Mesh())
    tied = model.architecture.head is not None and model.architecture.head.tied
    assert shared == (model.architecture.embed.axes()["V"] * model.architecture.embed.axes()["D"] if tied else 0)
    at = Workload(100, 1, 2).axes()
    assert sum(sum(own.states(at).values()) for own in every) == sum(model.ledger.states(at).values())
    assert sum(own.total_flops(at) for own in every) == model.ledger.total_flops(at)


def test_blocks_are_divided_as_evenly_as_they_can_be() -> None:
    assert [len(own) for own in divided(61, 16)] == [4] * 13 + [3] * 3
    ledger = tfacct.load(SMALL).loaded.ledger
    ranks = stages(8, Mesh(pp=2, chunks=2))
    assert [[stage.blocks for stage in own] for own in ranks] == [[range(2), range(4, 6)], [range(2, 4), range(6, 8)]]
    assert [group.numbers for group in part(ledger, ranks[0]).groups if group.numbers] == [[0, 1, 4, 5]]
    assert blocks_in(ledger) == 8


def test_an_encoder_in_stages_sends_its_whole_context() -> None:
    # 2 of 3 stages send B · T · D = 2 · 64 · 768 numbers of 2 bytes on, once each.
    assert tfacct.load("bert-base").comms(pp=3, ctx=64, batch=2).sent_bytes == 2 * 64 * 768 * 2


def test_params_of_a_stage_whose_blocks_are_all_of_one_kind() -> None:
    found = tfacct.load("gemma-3-1b").params(pp=6)
    # Its first five layers all have a window; the model's table of tensors shows those of full attention.
    # A layer: q, o 2·1152·1024, k, v 2·1152·256, mlp 3·1152·6912, norms 4·1152 + 2·256 = 26,842,112.
    assert found.rank_params == 5 * 26_842_112 + 262_144 * 1152 == sum(line["rank_params"] for line in found.lines)
    tied = tfacct.load("qwen3-0.6b")  # its last stage has the norm too, and multiplies by the transposed embedding
    stored = [each["rank_params"] for each in tied.comms(pp=2).stages]
    assert tied.params(pp=2).rank_params == max(stored) == stored[1] == stored[0] + 1024


def test_memory_and_cache_of_the_fullest_stage() -> None:
    model = tfacct.load("llama-3.1-8b")
    block, table = 218_112_000, 128_256 * 4096
    found = model.memory(ctx="8k", pp=3, on="24GiB")
    # Eleven layers and the embedding; of each layer 8,192 keys and values of 8 heads of 128.
    assert found.weights_bytes == 2 * (11 * block + table) and found.kv_cache_bytes == 11 * 2 * 8192 * 8 * 128 * 2
    assert (found.stage, found.pp, found.whole["total_bytes"]) == (1, 3, model.memory(ctx="8k").total_bytes)
    # What fits the fullest stage fits all, at any context.
    longest = found.fit["largest_context"]
    assert model.memory(ctx=longest, pp=3).total_bytes <= 24 * 2**30 < model.memory(ctx=longest + 1, pp=3).total_bytes
    cached = model.kv(ctx="8k", pp=3, tp=2)
    assert cached.kv_cache_bytes == 11 * 2 * 8192 * 4 * 128 * 2 and cached.stage == 1
    windowed = tfacct.load("gemma-3-27b-text").kv(pp=4)
    assert windowed.stage == 2  # each sixth layer caches all: 5, 11 in the first stage, 17, 23, 29 in the second


@pytest.mark.parametrize("value", [True, False, "2", 2.0])
def test_ranks_are_whole_numbers_and_no_booleans(value: Any) -> None:
    model = tfacct.load("llama-3.1-8b")
    axes = {"memory": "tp pp ep", "kv": "tp pp", "params": "tp fsdp ep pp", "flops": "tp", "traffic": "tp"}
    axes |= dict.fromkeys(("comms", "train"), "tp fsdp ep dp zero pp microbatches pp_chunks cp ulysses")
    says = "(must be a whole number|must be 1, 2 or 3|must be one of 0, 1, 2, 3), not"
    for method, names in axes.items():
        for name in names.split():
            with pytest.raises(tfacct.TfacctError, match=f"{name} {says}"):
                getattr(model, method)(**{name: value})
    with pytest.raises(tfacct.TfacctError, match="sp must be True or False, not"):
        model.train(tp=2, sp=2)
