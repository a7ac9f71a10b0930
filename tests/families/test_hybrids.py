"""Recurrent layers in place of attention: numbers and states by hand. Kind: golden, refusal."""

import json

import pytest

from tests.families import TINY
from tfacct import load
from tfacct.architecture.parts import Experts
from tfacct.loading.model import load_model


def test_two_chunks_of_mamba_2_by_hand() -> None:
    """mamba2-130m at 512 tokens: D = 768, 24 heads of 64, one group, state 128, kernel 4, 2 chunks of 256, 24 blocks.
    A token is made into 2 · 1,536 + 2 · 128 + 24 = 3,352 numbers; 1,536 + 2 · 128 = 1,792 channels are convolved."""
    of_tokens = 512 * (768 * 3352 + 1792 * 4 + 1536 * 768)
    in_chunks = 2 * 24 * (256 * 256 * (128 + 64) + 2 * 256 * 64 * 128)
    model = load("mamba2-130m")
    assert model.flops(ctx=512).total == 2 * (24 * (of_tokens + in_chunks) + 512 * 768 * 50288)
    assert model.flops(ctx=513).total - model.flops(ctx=512).total == 2 * (
        24 * (of_tokens // 512 + in_chunks // 2) + 768 * 50288
    )


@pytest.mark.parametrize(
    ("name", "row"), [("jamba-v0.1", "KV cache and state"), ("mamba-130m", "state"), ("gpt2", "KV cache")]
)
def test_the_sum_of_what_is_kept_is_called_what_it_is(name: str, row: str) -> None:
    """A hybrid's row sums its states too, so it is no KV cache alone."""
    rows = [total["what"] for total in load(name).memory(ctx=64).totals]
    assert rows == ["weights", row, "total", *(["next token"] if row != "state" else [])]


def test_one_token_of_mamba_2_by_hand() -> None:
    """Behind others it is in no chunk: each head's 64 · 128 numbers are read once."""
    one = 768 * 3352 + 1792 * 4 + 1536 * 768 + 24 * 64 * 128
    assert load("mamba2-130m").flops(ctx=512, decode=True).total == 2 * (24 * one + 768 * 50288)


@pytest.mark.parametrize("ctx", [1, 9, 10**6])
def test_mamba_2_keeps_a_state_of_one_size_in_fp32(ctx: int) -> None:
    """Four tokens of 1,792 channels in bf16, and 24 · 64 · 128 numbers in fp32, in each of 24 blocks."""
    assert load("mamba2-130m").kv(ctx=ctx).total == 24 * (4 * 1792 * 2 + 24 * 64 * 128 * 4)


def test_short_convolutions_by_hand() -> None:
    """lfm2-1.2b, one token behind 8,191: 10 of 16 blocks keep 3 tokens of 2,048 channels, 6 keep 8 heads of 64."""
    assert load("lfm2-1.2b").kv(ctx=8192).total == 2 * (10 * 3 * 2048 + 6 * 2 * 8192 * 8 * 64)
    lines = {line["path"]: line["flops"] for line in load("lfm2-1.2b").flops(ctx=8192, decode=True).models[0]["lines"]}
    conv = {path.rpartition(".")[2]: flops for path, flops in lines.items() if ".conv." in path}
    assert conv == {"in_proj": 20 * 2048 * 6144, "conv": 20 * 2048 * 3, "out_proj": 20 * 2048 * 2048}


def test_several_streams_by_hand() -> None:
    """gemma-3n-e2b's language model, one token behind 255: D = 2,048, four streams, 8 query heads and 2 key heads of
    256, F = 8,192, a rank of 64, rows of 256. Of 30 layers 20 have keys of their own, 16 of them behind a window."""
    D, each = 2048, 30
    streams = 2 * D * 4 + 4 * 16 + 4 * 4 + D * 16  # the router twice, both kinds of coefficients, the predictions
    layer = streams + 2 * D * 2048 + 2 * 2048 * 256 + 2 * D * 64 + 3 * D * 8192 + 2 * D * 256
    ends = 6 * D * D + D * 30 * 256 + D * 262400
    model = load("gemma-3n-e2b-text")
    assert model.flops(ctx=256, decode=True).total == 2 * (each * layer + 20 * 2 * D * 512 + ends)
    assert model.kv(ctx=1024).total == (16 * 512 + 4 * 1024) * 2 * 2 * 256 * 2


def test_a_gated_recurrence_by_hand() -> None:
    """recurrentgemma-2b: 18 layers of 2,560 channels in 10 blocks, and 8 of attention with one key head of 256; three
    matrices of 2,560 · 7,680 in all 26. A channel keeps three tokens in bf16, and one number in fp32."""
    lru = 3 * 2560 * 2560 + 4 * 2560 + 2 * 10 * 256 * 256
    attention = 2 * 2560 * 2560 + 2 * 2560 * 256 + 2 * 2560 * 512
    model = load("recurrentgemma-2b")
    blocks = 18 * lru + 8 * attention + 26 * 3 * 2560 * 7680
    assert model.flops(ctx=512, decode=True).total == 2 * (blocks + 2560 * 256000)
    assert model.kv(ctx=512).total == 18 * (3 * 2560 * 2 + 2560 * 4) + 8 * 2 * 512 * 256 * 2
    assert model.kv(ctx=4096).total == model.kv(ctx=2048).total


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


def test_both_in_one_layer_by_hand() -> None:
    """falcon-h1-0.5b: D = 1,024, 24 heads of 64 with a state of 128, 8 query heads and 2 key heads of 64, 36 blocks."""
    mamba = 1024 * 3352 + 1792 * 4 + 24 * 64 * 128 + 1536 * 1024
    attention = 1024 * (512 + 2 * 128) + 2 * 512 * 700 + 512 * 1024
    model = load("falcon-h1-0.5b")
    both = 36 * (mamba + attention + 3 * 1024 * 2048)
    assert model.flops(ctx=700, decode=True).total == 2 * (both + 1024 * 32784)
    assert model.kv(ctx=700).total == 36 * (4 * 1792 * 2 + 24 * 64 * 128 * 4 + 2 * 700 * 2 * 64 * 2)


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


def test_zamba_and_jetmoe_by_hand() -> None:
    """Zamba-7B: D = 3,712, 76 layers of Mamba (2 heads of 3,712 channels, state 16, kernel 4, rank 232), 13 of which
    call one block, whose heads read 2 · 3,712 numbers. JetMoE-8B: D = 2,048, 24 layers; 8 experts of 16 heads of 128,
    and 8 of 5,632 in the network, with a bias on either side."""
    D, inner, state, rank = 3712, 7424, 16, 232
    mixer = D * 2 * inner + inner * (4 + 1) + inner * (rank + 2 * state) + inner * (rank + 1) + inner * (state + 1)
    mixer += inner * D + D
    block = 2 * D + D + 3 * (2 * D) ** 2 + 2 * D * D + 3 * D * 14848
    zamba = load_model("mine", {"model_type": "zamba"})
    calls = [number for number in range(76) if number == 2 or (number > 2 and (number - 3) % 6 == 4)]
    assert zamba.config.hybrid_layers() == calls and len(calls) == 13
    assert zamba.parameters == 76 * mixer + block + 13 * D * D + 32000 * D + D == 7_232_490_496
    D, heads = 2048, 16 * 128
    layer = 2 * D + (8 * D + 2 * 8 * D * heads + 2 * D * heads + D) + (8 * D + 3 * 8 * D * 5632 + D)
    jetmoe = load_model("mine", {"model_type": "jetmoe", "num_hidden_layers": 24})
    assert jetmoe.parameters == 24 * layer + 32000 * D + D == 8_522_237_952


def test_an_indexer_of_blocks_of_keys_by_hand() -> None:
    """minimax-m3: D = 6,144, 64 query heads and 4 key heads of 128; 57 of 60 layers have an indexer of 4 heads of 128
    and 128 experts of 3,072 beside one network as wide."""
    D, attention, expert = 6144, 2 * 6144 * (8192 + 512) + 2 * 128, 3 * 6144 * 3072
    layers = 60 * (attention + 2 * D) + 57 * (D * (4 + 1) * 128 + 2 * 128) + 3 * 3 * D * 12288
    model = load("minimax-m3")
    assert model.params().total == layers + 57 * (129 * expert + D * 128) + 2 * 200064 * D + D
    assert model.kv(ctx=1000).total == 2 * 1000 * (60 * 2 * 4 * 128 + 57 * 128)
    lines = {line["path"]: line["flops"] for line in model.flops(ctx=1000, decode=True).models[0]["lines"]}
    assert lines["blocks.*.attn.indexer.scores"] == 57 * 2 * 1000 * 4 * 128


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
