"""Image encoders and their text encoders: patches by hand, published totals. Kind: golden, refusal."""

import json

import pytest

from tests.families import TINY
from tests.helpers.models import tiny
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model


@pytest.mark.parametrize(
    ("image", "text", "more", "total"),
    [
        ("qwen3-vl-8b-vision", "qwen3-8b", 0, 8_767_123_696),
        ("qwen3-vl-30b-a3b-vision", "qwen3-30b-a3b", 0, 31_070_754_032),
        ("llama-4-scout-vision", "llama-4-scout-text", 4096 * 5120, 108_641_793_536),
        ("clip-vit-base-patch32-vision", "clip-vit-base-patch32-text", 1, 151_277_313),
        ("clip-vit-large-patch14-vision", "clip-vit-large-patch14-text", 1, 427_616_513),
        ("clip-vit-large-336-vision", "clip-vit-large-patch14-text", 1, 427_944_193),
        ("siglip-base-patch16-224-vision", "siglip-base-patch16-224-text", 2, 203_155_970),
        ("siglip-so400m-384-vision", "siglip-so400m-384-text", 2, 877_960_498),
    ],
)
def test_both_encoders_are_the_published_total(image: str, text: str, more: int, total: int) -> None:
    """With the scale of the scores, of SigLIP their bias too, of Llama 4 the projector: what the files hold."""
    both = sum(load(name).params().models[0]["total_params"] for name in (image, text))
    assert both + more == total


def test_a_causal_text_is_read_whole(run) -> None:
    """CLIP's texts have a causal mask, and its class keeps nothing: --masked halves the pairs, and nothing decodes."""
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
    assert ran.code == 2 and "so --ctx does not apply" in " ".join(ran.err.split())
    field, _, sizes = instead.partition("=")
    assert f"change the image size: --set {field}={sizes.split(',')[1]}" in " ".join(ran.err.split())
    for asked in ("flops", "memory", "train", "formula", "verify"):
        assert run(asked, name, "--ctx", "512").err == ran.err
    assert run("solve", name, "--for", "ctx", "--until", "total_flops=1T").err == ran.err
    own = str(load(name).loaded.context)
    assert run("flops", name, "--ctx", own).out == run("flops", name).out
    listed = json.loads(run("memory", name, "gpt2", "--ctx", "512", "--json").out)
    assert listed["models_skipped"][0]["model"] == name
    swept = run("sweep", name, "--set", instead, columns=120)
    assert swept.code == 0 and len(swept.out.split("\n\n")[1].splitlines()) == 2 + len(instead.split(","))


@pytest.mark.parametrize("name", ["pixtral", "dinov3_vit", "minimax_m3_vl_vision"])
def test_an_encoder_whose_positions_are_rotations_takes_images_of_any_sides(name: str) -> None:
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


def test_all_parts_of_one_that_reads_hears_and_sees_are_counted_together() -> None:
    """Qwen2.5-Omni-7B without what speaks: 8,931,813,888 parameters."""
    text = {
        "vocab_size": 152064, "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "max_position_embeddings": 32768,
    }  # fmt: skip
    thinker = {"text_config": text, "vision_config": {"embed_dim": 1280, "hidden_size": 1280}, "audio_config": {}}
    whole = load_model("mine", {"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": {}})
    parts = [whole.of_part(part) for part in ("text", "vision", "audio")]
    assert sum(part.parameters for part in parts) == 8_931_813_888


def test_encoders_beside_those_by_hand() -> None:
    """An image of 384 pixels: 24² patches and the class token. ViT-MSN is ViT-B/16 without a pooler."""
    assert load("vit-base-patch16-224", image_size=384).flops().models[0]["workload"]["tokens"] == 24**2 + 1
    contexts = [load_model("mine", {"model_type": name}).context for name in ("ijepa", "vit_msn")]
    assert contexts == [14**2, 14**2 + 1]
    pooled = load("vit-base-patch16-224-in21k").params().total
    assert load("vit-msn-base").params().total == pooled - 768 * 769
    classes = {"architectures": ["IJepaForImageClassification"], "num_labels": 11}
    scored = load_model("mine", {**TINY["ijepa"], **classes})
    assert scored.parameters == load_model("mine", TINY["ijepa"]).parameters + (42 + 1) * 11
    whole = {"model_type": "ernie4_5_vl_moe", "vision_config": {"depth": 32}, "text_config": {"hidden_size": 9}}
    part = load_model("mine", whole, part="vision")
    assert (part.parameters, part.left_out) == (630_433_280, ("text_config", "resampler_model"))
    # Of Gemma 4, the product by which the class takes means: rows · patches · hidden.
    added = load("gemma-4-26b-a4b-vision").loaded.config.hf_extra_flops(Workload(context=90, tokens=90, batch=2))
    assert added == {"merger.average": 2 * 2 * 10 * 90 * 1152}
    fields = {"model_type": "internvl_vision", "num_hidden_layers": 1}
    whole, both = (load_model("mine", {**fields, "image_size": size}) for size in (448, [448, 448]))
    assert whole.architecture == both.architecture and both.context == 32**2 + 1
    whole = {"model_type": "gemma4", "vision_config": {}, "audio_config": None, "text_config": {"hidden_size": 9}}
    assert load_model("mine", whole, part="vision").left_out == ("text_config", "embed_vision")
