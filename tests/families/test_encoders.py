"""Encoders and encoder-decoders: hand arithmetic, and a source that is read once. Kind: golden, refusal."""

import json

import pytest

from tests.families import SHAPES, TINY
from tests.helpers.single_families import T5
from tfacct import load
from tfacct.loading import presets


def test_a_source_is_read_once() -> None:
    lines = {line["path"]: line["flops"] for line in load(T5).flops(ctx=20, source=100, decode=True).lines}
    silent = {path for path, flops in lines.items() if flops == 0}
    assert silent == {path for path in lines if path.startswith("encoder.")} | {
        "blocks.*.cross.k_proj",
        "blocks.*.cross.v_proj",
    }
    assert lines["blocks.*.cross.scores"] == 12 * 2 * 1 * 100 * 768
    model = load(T5)
    whole = model.generate(ctx=4, new_tokens=6, source=50).total
    prefill = model.flops(ctx=4, source=50, logits="last").total
    steps = sum(model.flops(ctx=4 + i, source=50, decode=True).total for i in range(1, 6))
    assert whole == prefill + steps
    assert load("bart-base").flops(ctx=3).total == load("bart-base").flops(ctx=3, source=1024).total
    lines = {line["path"]: line for line in load(T5).traffic(ctx=9, source=5, decode=True).lines}
    assert lines["encoder.blocks.*.mlp.up_proj"]["read_bytes"] == lines["blocks.*.cross.v_proj"]["read_bytes"] == 0
    assert lines["blocks.*.cross.scores"]["read_bytes"] == 12 * 2 * 768 * (1 + 5)


def test_the_cache_keeps_self_and_cross_apart() -> None:
    """bf16: 2 · 12 blocks · 12 heads · 64 · 2 bytes for each token, and as many for each source token."""
    facts = load(T5).kv(ctx=30, source=100, batch=3).models[0]
    one = 2 * 12 * 12 * 64 * 2
    assert facts["kv_bytes_per_token"] == one
    assert facts["self_kv_cache_bytes"] == 3 * 30 * one and facts["cross_kv_cache_bytes"] == 3 * 100 * one
    assert facts["kv_cache_bytes"] == 3 * 130 * one
    memory = load(T5).memory(ctx=30, source=100, batch=3).models[0]
    assert memory["kv_cache_bytes"] == 3 * 130 * one and memory["kv_bytes_per_token"] == one


def test_of_all_presets_those_that_keep_nothing_are_left_out_by_name(run) -> None:
    ran = run("memory", "--kv", "--json")
    alone = {name for name in presets.names() if not presets.load(name).has_cache}
    assert ran.code == 0 and {"bert-base", "bert-large", "bge-m3"} <= alone
    named, why = " ".join(ran.err.split()).removeprefix("hint: not included: ").split(" (", 1)
    few, others = named.split(" and ")
    assert others == f"{len(alone) - 12} more, listed in --json"
    assert why.startswith("nothing is cached between steps)")
    document = json.loads(ran.out)
    left_out = [model["model"] for model in document["models_skipped"]]
    assert set(left_out) == alone and few.split(", ") == left_out[:12]
    assert {model["model"] for model in document["models"]} == set(presets.names()) - alone


def test_the_papers_shapes_are_about_what_it_says() -> None:
    """Table 3: 65 and 213 million. Ours has tables of sines, biases and one table of 37,000 tokens."""
    totals = {name: load(name).params().total for name in ("transformer-base", "transformer-big")}
    assert round(totals["transformer-base"] / 65e6, 1) == 1.0 and round(totals["transformer-big"] / 213e6, 2) == 1.01


def test_an_encoders_tables_are_embeddings(run) -> None:
    """BART's one token table of 193 rows and a position table of 37 + 2 rows on each side, 60 numbers a row."""
    facts = json.loads(run("params", "-", "--json", stdin=json.dumps(TINY["bart"]).encode()).out)["models"][0]
    assert facts["embedding_params"] == (193 + 2 * (37 + 2)) * 60
    assert facts["non_embedding_params"] == facts["total_params"] - (193 + 2 * (37 + 2)) * 60
    # An encoder with a token table of its own: 227 and 229 rows, 29 and 31 positions, 48 numbers a row.
    own = SHAPES["custom, pre-norm and idle"]
    facts = json.loads(run("params", "-", "--json", stdin=json.dumps(own).encode()).out)["models"][0]
    assert facts["embedding_params"] == (227 + 229 + 29 + 31) * 48


@pytest.mark.parametrize(("family", "rows"), [("opt", 100 - 59), ("bart", 100 - 37), ("gpt2", 100 - 37)])
def test_a_longer_position_table_keeps_its_offset(run, family: str, rows: int) -> None:
    """OPT and BART have two rows for no position, however long the table: 60 numbers a row, GPT-2's 42."""
    ran = run("flops", "-", "--ctx", "100", stdin=json.dumps(TINY[family]).encode())
    wide = {"opt": 60, "bart": 60, "gpt2": 42}[family]
    assert ran.code == 0 and f"the {rows * wide:,} parameters of a longer position embedding" in ran.err
