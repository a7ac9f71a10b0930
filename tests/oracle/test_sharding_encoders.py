"""Encoders on a mesh, alone and before a decoder: collectives and shards of torch's plans. Kind: oracle."""

from typing import Any

import pytest

import tfacct
from tests.families import TINY, random_config
from tfacct.architecture.axis_names import MARKS
from tfacct.parallel.mesh import Mesh, tp_axis
from tfacct.parallel.shard_shapes import fsdp_units

ENCODERS = (
    *("bert", "camembert", "distilbert", "electra", "eurobert", "gte", "mpnet", "nomic_bert", "roberta"),
    "xlm-roberta",
)
PAIRS = ("bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "umt5")
ALIKE = (
    *("blenderbot", "blenderbot-small", "data2vec-text", "ernie", "jina_embeddings_v3", "megatron-bert", "mvp"),
    *("plbart", "rembert", "roberta-prelayernorm", "whisper", "xlm-roberta-xl"),
)
"""Families of which one small config is asked."""
WIDTHS = ("hidden_size", "dim", "d_model")
OWN_WIDTH = ("mt5", "t5", "umt5")
"""Families whose heads have a width of their own."""
NETWORKS = ("intermediate_size", "d_ff", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim", "vocab_size")
MESHES: dict[str, dict[str, int]] = {"tp": {"tp": 2}, "fsdp": {"fsdp": 3}, "both": {"tp": 2, "fsdp": 3}}


def divisible(kind: str, config: dict[str, Any], tp: int) -> dict[str, Any]:
    """The same with as many heads, and widths, as ranks divide."""
    found = dict(config)
    for name, value in config.items():
        if "heads" in name or (name in WIDTHS and kind not in OWN_WIDTH):
            found[name] = value * tp
        elif name in (*NETWORKS, "decoder_vocab_size") and value:
            found[name] = -(-value // tp) * tp
    return found


QUICK = [("bert", "both", 0), ("roberta", "tp", 0), ("t5", "both", 0), ("marian", "fsdp", 0), ("bart", "tp", 0)]
FURTHER = [(kind, mesh, seed) for kind in ENCODERS + PAIRS for mesh in MESHES for seed in range(10, 16)]
FURTHER += [(kind, mesh, 0) for kind in ALIKE for mesh in MESHES]


@pytest.mark.parametrize(
    ("kind", "mesh", "seed"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in FURTHER)]
)
def test_every_collective_of_a_step_is_torchs(kind: str, mesh: str, seed: int) -> None:
    """Of the small config of a kind, or from a seed of a random one: sines that no step changes (marian), scores of
    distances that the first blocks have (t5), heads with a bias."""
    config = random_config(kind, seed) if seed else TINY[kind]
    source = {"source": config.get("max_source_positions", 11)} if "decoder_layers" in config else {}
    model = tfacct.load(divisible(kind, config, MESHES[mesh].get("tp", 1)))
    found = model.verify(shard=True, ctx=7, batch=2, all_layers=True, **source, **MESHES[mesh])
    assert found.agrees and found.cross_checks[1]["measured"] > 0, config


def calls(model: str, **how: Any) -> dict[str, int]:
    return {row["when"]: row["calls"] for row in tfacct.load(model).comms(tp=2, **how).collectives}


def test_calls_by_hand() -> None:
    """BERT: o, down of 12 blocks and the table; backward q, k, v, up and logits. T5 has as many blocks on each side;
    one of the decoder's sums another result, and three other gradients, and its table is read twice. A new token passes
    the decoder alone."""
    assert calls("bert-base", train=True, ctx=64) == {"forward": 2 * 12 + 1, "backward": 4 * 12 + 1}
    assert calls("t5-base", train=True, ctx=64) == {"forward": (2 + 3) * 12 + 2, "backward": (4 + 7) * 12 + 1}
    assert calls("t5-base") == {"forward": 3 * 12 + 1}


def test_what_a_rank_has_by_hand() -> None:
    """BERT's blocks have 4 · 768² + 2 · 768 · 3072 weights and 3 · 768 + 3072 biases that ranks divide, the others, two
    norms, and what stands around the blocks but for V are whole: 512 positions, 2 segments, 2 norms, a product."""
    model, half = tfacct.load("bert-base"), 30_522 // 2
    block = (4 * 768**2 + 2 * 768 * 3072 + 3 * 768 + 3072) // 2 + 2 * 768 + 4 * 768
    ends = half * 768 + half + (512 + 2) * 768 + 4 * 768 + 768 * 768 + 768
    assert model.params(tp=2).rank_params == 12 * block + ends == model.comms(tp=2).rank_params
    assert model.memory(tp=2).weights_bytes == 2 * (12 * block + ends)
    # Keys and values of 6 heads of both sorts of attention: 12 blocks, 64 numbers of two bytes.
    assert tfacct.load("t5-base").kv(tp=2, ctx=30, source=100).models[0]["kv_cache_bytes"] == 2 * 12 * 6 * 64 * 2 * 130


def test_letters_of_one_side_are_divided_too() -> None:
    """An encoder with other sizes than the decoder's has letters of its own: `Nenc`, `Fenc`."""
    assert {mark for mark in MARKS.values() if tp_axis(f"N{mark}") != "N" or tp_axis(f"Fe{mark}") != "Fe"} == set()
    assert not any(map(tp_axis, ("Vs", "Kc", "Nm", "Fm", "Kf")))
    sizes = {"encoder_ffn_dim": 64, "decoder_ffn_dim": 96, "encoder_attention_heads": 8, "decoder_attention_heads": 4}
    model = tfacct.load("bart-base", d_model=64, **sizes)
    whole, rank = model.params(), {line["path"]: line["rank_params"] for line in model.params(tp=4).lines}
    for line in whole.lines:
        divided = line["path"].endswith(("_proj.weight", "up_proj.bias"))
        assert rank[line["path"]] == line["params"] // (4 if divided else 1) or not divided
    said = tfacct.load("bart-base", d_model=64, **{**sizes, "encoder_attention_heads": 16})
    with pytest.raises(tfacct.TfacctError, match=r"tp=16 does not divide N = 4 \(query heads\)") as told:
        said.params(tp=16)
    assert told.value.hint == "supported sizes: 1, 2, 4"


def test_scores_of_distances_stand_in_the_first_blocks() -> None:
    units = [*fsdp_units(tfacct.load("t5-base").loaded.ledger, Mesh(fsdp=2))]
    assert [(unit.what, unit.times) for unit in units] == [
        *(("encoder.blocks.*", 1), ("encoder.blocks.*", 11), ("blocks.*", 1), ("blocks.*", 11), ("", 1))
    ]
    sizes = [sum(one.elements for one in unit.shards) for unit in units]
    assert sizes[0] - sizes[1] == sizes[2] - sizes[3] == 32 // 2 * 12
