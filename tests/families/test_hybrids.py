"""Recurrent layers in place of attention: numbers and states by hand. Kind: golden, refusal."""

import json

import pytest

from tests.families import TINY
from tfacct import load
from tfacct.architecture.parts import Experts
from tfacct.loading.model import load_model


@pytest.mark.parametrize(
    ("name", "row"), [("jamba-v0.1", "KV cache and state"), ("mamba-130m", "state"), ("gpt2", "KV cache")]
)
def test_the_sum_of_what_is_kept_is_called_what_it_is(name: str, row: str) -> None:
    """A hybrid's row sums its states too, so it is no KV cache alone."""
    rows = [total["what"] for total in load(name).memory(ctx=64).totals]
    assert rows == ["weights", row, "total", *(["next token"] if row != "state" else [])]


def test_recurrentgemmas_totals_are_those_that_the_paper_names() -> None:
    """ "RecurrentGemma" (arXiv 2404.07839), abstract: 2B without embeddings; of the larger one 9B in all."""
    assert round(load("recurrentgemma-2b").params().non_embedding_params / 1e9) == 2
    assert round(load("recurrentgemma-9b").params().total / 1e9) == 9


# Their names say both, the second without embeddings. Billions.
@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("nano-30b-a3b", 31.6, 3.2), ("super-120b-a12b", 121, 12), ("ultra-550b-a55b", 549, 55)],
)
def test_totals_of_nemotron_3(name: str, total: float, active: float) -> None:
    counted = load(f"nemotron-3-{name}").params()
    digits = 1 if total < 100 else 0
    assert round(counted.total / 1e9, digits) == total
    assert round(counted.active_non_embedding_params / 1e9, digits) == active


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("nemotron-3-nano-30b-a3b", 2688 * 128 + 6 * 2 * 2688 * 1856 + 2 * 2688 * 3712),
        ("nemotron-3-super-120b-a12b", 4096 * 512 + 2 * 4096 * 1024 + 22 * 2 * 1024 * 2688 + 2 * 4096 * 5376),
    ],
)
def test_experts_of_two_matrices_by_hand(name: str, token: int) -> None:
    """A token passes the router, the products around the latent, its experts of two matrices and the shared network."""
    model = load(name)
    (layers,) = {stack.count for stack, _ in model.loaded.architecture.having(Experts)}
    lines = model.flops(ctx=9, decode=True).models[0]["lines"]
    assert sum(line["flops"] for line in lines if ".mlp." in line["path"]) == 2 * layers * token


def test_shared_blocks_are_stored_once_and_run_in_every_call_by_hand() -> None:
    """zamba2-2.7b: D = 2,560, 54 layers of Mamba-2 (inner 5,120, 80 heads, one group, state 64, kernel 4); 9 of them
    call one of 2 blocks, whose heads read 2 · 2,560 numbers, each with adapters of rank 128 beside the network."""
    D, Dj, F, R = 2560, 5120, 10240, 128
    mamba = D * (2 * 5120 + 2 * 64 + 80) + (5120 + 128) * 5 + 3 * 80 + 5120 + 5120 * D + D
    block = Dj + D + 3 * Dj * Dj + Dj * D + 3 * D * F
    call = D * D + D * R + R * 2 * F
    model = load_model("mine", load("zamba2-2.7b").loaded.raw)
    stored = model.ledger.parameters()
    assert sum(stored.values()) == 54 * mamba + 2 * block + 9 * call + 32000 * D + D == 2_662_214_560
    assert stored["blocks.*.attn.q_proj.weight"] == 2 * Dj * Dj
    assert stored["blocks.*.mlp.adapter_down.weight"] == 9 * D * R
    flops = model.ledger.flops({"B": 1, "T": 1, "S": 100, "O": 1})
    assert flops["blocks.*.attn.q_proj"] == 9 * 2 * Dj * Dj
    assert flops["blocks.*.attn.scores"] == 9 * 2 * 100 * 32 * 160


def test_blocks_in_turn_are_named_by_the_first_layer_that_calls_them() -> None:
    """Of five hybrid layers the first, third and fifth call one block, the second and fourth the other."""
    calls = {"layers_block_type": ["hybrid"] * 5, "num_mem_blocks": 2, "use_shared_attention_adapter": True}
    stored = load_model("mine", {**TINY["zamba2"], **calls}).ledger.parameters(unfolded=True)
    own = [path.split(".")[1] for path in stored if path.endswith("attn.o_proj.weight")]
    assert sorted(own) == ["0", "1"]
    assert sum(path.endswith("attn.q_adapter_down.weight") for path in stored) == 5


def test_shared_sets_are_said_and_derived(run) -> None:
    said = " ".join(run("params", "zamba2-7b", "--explain").out.split())
    assert "Attention and MLP of 7 layers, and of 6 others, share one set of weights each" in said
    assert "Dj·2 = 7,168 · 2 sets = 14,336 parameters" in said
    alone = " ".join(run("params", "zamba2-1.2b").out.split())
    assert "Attention and MLP of 6 layers share one set of weights; each layer has its own adapters." in alone


def test_the_sizes_of_sparse_attention_config_are_the_ones_taken(run) -> None:
    """As the class takes them, in place of its own fields; they are not named as defaulted."""
    said = {"sparse_num_index_heads": 4, "sparse_index_dim": 16, "sparse_attention_freq": [0, 1, 1]}
    fields = {name: value for name, value in TINY["minimax_m3_vl_text"].items() if "index" not in name}
    config = {**fields, "layer_types": None, "sparse_attention_config": said}
    stored = load_model("mine", config).ledger.parameters()
    assert stored["blocks.*.attn.indexer.q_proj.weight"] == 2 * 48 * 4 * 16
    assert "index_" not in run("params", "-", stdin=json.dumps(config).encode()).out
    assert "In 57 of 60 layers, an indexer selects 16 × 128 keys per token" in " ".join(
        run("memory", "--kv", "minimax-m3").out.split()
    )


def test_layers_of_zamba_that_call_its_block() -> None:
    calls = [number for number in range(76) if number == 2 or (number > 2 and (number - 3) % 6 == 4)]
    assert load_model("mine", {"model_type": "zamba"}).config.hybrid_layers() == calls and len(calls) == 13
