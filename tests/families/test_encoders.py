"""Encoders of text and of images, and encoder-decoders: hand arithmetic, published totals. Kind: golden, refusal."""

import json

import pytest

from tests.families import SHAPES, TINY
from tests.helpers.models import tiny
from tests.helpers.single_families import T5
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import load_model


def test_the_cache_keeps_self_and_cross_apart() -> None:
    """bf16: 2 · 12 blocks · 12 heads · 64 · 2 bytes for each token, and as many for each source token."""
    facts = load(T5).kv(ctx=30, source=100, batch=3).models[0]
    one = 2 * 12 * 12 * 64 * 2
    assert facts["kv_bytes_per_token"] == one
    assert facts["cross_kv_cache_bytes"] == 3 * 100 * one
    assert facts["kv_cache_bytes"] == 3 * 130 * one
    memory = load(T5).memory(ctx=30, source=100, batch=3).models[0]
    assert memory["kv_cache_bytes"] == 3 * 130 * one and memory["kv_bytes_per_token"] == one


def test_of_all_presets_those_without_a_cache_are_left_out_by_name(run) -> None:
    ran = run("memory", "--kv", "--json")
    alone = {name for name in presets.names() if not presets.load(name).has_cache}
    assert ran.code == 0 and {"bert-base", "bert-large", "bge-m3"} <= alone
    named, why = ran.err_line.removeprefix("hint: not included: ").split(" (", 1)
    few, others = named.split(" and ")
    assert others == f"{len(alone) - 12} more, listed in --json"
    assert why.startswith("nothing is cached between steps)")
    document = ran.document
    left_out = [model["model"] for model in document["models_skipped"]]
    assert set(left_out) == alone and few.split(", ") == left_out[:12]
    assert {model["model"] for model in document["models"]} == set(presets.names()) - alone


def test_an_encoders_tables_are_embeddings(run) -> None:
    """An encoder with a token table of its own: 227 and 229 rows, 29 and 31 positions, 48 numbers a row."""
    own = SHAPES["custom, pre-norm and idle"]
    facts = run("params", "-", "--json", stdin=json.dumps(own).encode()).models[0]
    assert facts["embedding_params"] == (227 + 229 + 29 + 31) * 48


@pytest.mark.parametrize(("family", "rows"), [("opt", 100 - 59), ("bart", 100 - 37), ("gpt2", 100 - 37)])
def test_a_longer_position_table_keeps_its_offset(run, family: str, rows: int) -> None:
    """OPT and BART have two rows for no position, however long the table: 60 numbers a row, GPT-2's 42."""
    ran = run("flops", "-", "--ctx", "100", stdin=json.dumps(TINY[family]).encode())
    wide = {"opt": 60, "bart": 60, "gpt2": 42}[family]
    assert ran.code == 0 and f"the {rows * wide:,} parameters of a longer position embedding" in ran.err


def test_a_causal_text_is_read_whole() -> None:
    """CLIP's text encoder has a causal mask and no cache: --masked halves the pairs, and there is no decode step."""
    text = load("clip-vit-base-patch32-text").loaded
    at = {"B": 1, "T": 77, "S": 77, "O": 77}
    whole, masked = (text.ledger.flops(at, masked=flag)["blocks.*.attn.scores"] for flag in (False, True))
    assert (whole, masked) == (12 * 2 * 77**2 * 512, 12 * 77 * 78 * 512)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("vit-base-patch16-224", "image_size=224,384"), ("siglip2-base-vision", "num_patches=256,1024")],
)
def test_images_are_swept_by_their_size(run, name: str, instead: str) -> None:
    ran = run("sweep", name, "--ctx", "1k,4k")
    assert ran.code == 2 and "so --ctx does not apply" in ran.err_line
    field, _, sizes = instead.partition("=")
    assert f"change the image size: --set {field}={sizes.split(',')[1]}" in ran.err_line
    for asked in ("flops", "memory", "train", "formula", "verify"):
        assert run(asked, name, "--ctx", "512").err == ran.err
    assert run("solve", name, "--for", "ctx", "--until", "total_flops=1T").err == ran.err
    own = str(load(name).loaded.context)
    assert run("flops", name, "--ctx", own).out == run("flops", name).out
    listed = run("memory", name, "gpt2", "--ctx", "512", "--json").document
    assert listed["models_skipped"][0]["model"] == name
    swept = run("sweep", name, "--set", instead, columns=120)
    assert swept.code == 0 and len(swept.out.split("\n\n")[1].splitlines()) == 2 + len(instead.split(","))


@pytest.mark.parametrize("name", ["pixtral", "dinov3_vit", "minimax_m3_vl_vision"])
def test_an_encoder_with_rotary_positions_takes_images_of_any_sides(name: str) -> None:
    model = tiny(name)
    found = load(model.raw).flops(ctx=model.context + 3)
    assert found.total > load(model.raw).flops().total


def test_contexts_that_images_can_have(run) -> None:
    """ERNIE's encoder merges nothing, and no field of it says how large an image is."""
    ran = run("sweep", "ernie-4.5-vl-28b-vision", "--ctx", "64, 256", columns=120)
    assert ran.code == 0 and not ran.err
    assert [row.split()[0] for row in ran.out.splitlines() if "%" in row] == ["64", "256"]
    # GLM-4.1V's patches come in fours: it was asked of numbers that are no multiple of 4.
    ran = run("solve", "glm-4.1v-9b-vision", "--for", "ctx", "--until", "total_flops=10T")
    glm = load("glm-4.1v-9b-vision")
    assert glm.flops(ctx=4644).total <= 10**13 < glm.flops(ctx=4648).total
    assert "Up to ctx = 4,644, " in ran.out and "ctx must be a multiple of 4" in ran.out


def test_other_encoders_by_hand() -> None:
    """An image of 384 pixels: 24² patches and the class token. I-JEPA has no class token."""
    assert load("vit-base-patch16-224", image_size=384).flops().models[0]["workload"]["tokens"] == 24**2 + 1
    contexts = [load_model("mine", {"model_type": name}).context for name in ("ijepa", "vit_msn")]
    assert contexts == [14**2, 14**2 + 1]
    whole = {"model_type": "ernie4_5_vl_moe", "vision_config": {"depth": 32}, "text_config": {"hidden_size": 9}}
    assert load_model("mine", whole, part="vision").left_out == ("text_config", "resampler_model")
    # Of Gemma 4, the product by which the class takes means: rows · patches · hidden.
    added = load("gemma-4-26b-a4b-vision").loaded.config.hf_extra_flops(Workload(context=90, tokens=90, batch=2))
    assert added == {"merger.average": 2 * 2 * 10 * 90 * 1152}
    fields = {"model_type": "internvl_vision", "num_hidden_layers": 1}
    whole, both = (load_model("mine", {**fields, "image_size": size}) for size in (448, [448, 448]))
    assert whole.architecture == both.architecture and both.context == 32**2 + 1
    whole = {"model_type": "gemma4", "vision_config": {}, "audio_config": None, "text_config": {"hidden_size": 9}}
    assert load_model("mine", whole, part="vision").left_out == ("text_config", "embed_vision")
