"""Parts of models of several models: each is counted as the whole's class has it, and both are added up."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.families import TINY
from tests.families.test_wrappers import COMPOSITES, text_of
from tests.families.test_wrappers import built as of_class
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.cli.root import command_of
from tfacct.commands import NAMES
from tfacct.families import multimodal
from tfacct.families.projectors import PROJECTORS, ROWS_UNKNOWN
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model
from tfacct.verify.checks import renamed

VISIONS, AUDIOS = multimodal.towers("vision"), multimodal.towers("audio")
PAIRS = multimodal.dual_encoders()
ALONE = tuple(whole for whole, tower in VISIONS.items() if not tower.any_type)
"""Those that build one encoder only."""
LLAVA: dict[str, Any] = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096},
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768,
    },
}  # fmt: skip
"""LLaVA 1.5 7B, as its file has it."""


@pytest.fixture
def llava(tmp_path: Path) -> str:
    path = tmp_path / "llava.json"
    path.write_text(json.dumps(LLAVA))
    return str(path)


def built(raw: dict[str, Any]) -> dict[str, int]:
    """Parameters of the whole's class by tensor."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    autos = {
        **dict.fromkeys(PAIRS, "AutoModel"),
        "embedding_gemma2": "AutoModel",
        "phi4_multimodal": "AutoModelForCausalLM",
    }
    if raw["model_type"] in autos:
        fields = deepcopy({name: value for name, value in raw.items() if name != "model_type"})
        made = transformers.AutoConfig.for_model(raw["model_type"], **fields)
        with torch.device("meta"):
            whole = getattr(transformers, autos[raw["model_type"]]).from_config(made)
    else:
        whole = of_class(raw)
    return {name: parameter.numel() for name, parameter in whole.named_parameters()}


def ours(raw: dict[str, Any], part: str) -> dict[str, int]:
    one = load_model("mine", raw, part=part)
    return renamed(one.ledger.parameters(unfolded=True), one.config.hf_module_paths(), one.config.hf_tensor_names())


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (whole, said)
        for whole in VISIONS
        for said in (False, True)
        if not (said and whole in ALONE) and whole != "phi4_multimodal"
    ],
)
def test_the_vision_model_is_the_wholes(whole: str, said: bool) -> None:
    """Of the type that its class expects where the config does not say, and of the other one."""
    own = VISIONS[whole].type
    tower = own if not said else "siglip_vision_model" if own == "clip_vision_model" else "clip_vision_model"
    vision = {name: value for name, value in TINY[tower].items() if said or name != "model_type"}
    text = text_of(whole) if whole in COMPOSITES else {"num_hidden_layers": 1}  # ERNIE's is no family
    text.pop("mlp_layer_types", None)  # it has one layer
    raw = {"model_type": whole, "text_config": text, "vision_config": vision}
    if whole == "t5gemma2":  # of whose two sides one sees
        side = TINY[whole]["encoder"]["text_config"]
        raw = {"model_type": whole, "encoder": {"text_config": side, "vision_config": vision}, "decoder": side}
    tensors = built(raw)
    towers = ("model.vision_tower.", "model.vision_model.", "model.visual.", "model.vision_encoder.")
    towers += ("vision_model.", "vision_tower.")  # of Llama 4, and of what writes no text
    towers += ("model.encoder.vision_tower.",)
    theirs = {
        name.removeprefix(prefix): count
        for name, count in tensors.items()
        for prefix in towers
        if name.startswith(prefix)
    }
    assert ours(raw, "vision") == theirs
    between = VISIONS[whole].projector
    assert any(f".{between}." in f".{name}" for name in tensors) == (between is not None)


def test_a_tower_of_idefics_has_one_class(run) -> None:
    """Its whole builds that whatever the config says, so another type is refused."""
    raw = {"model_type": "smolvlm", "text_config": text_of("smolvlm"), "vision_config": TINY["clip_vision_model"]}
    older = {**raw, "vision_config": {**TINY["smolvlm_vision"], "model_type": "smolvlm", "use_base_siglip": True}}
    assert load_model("mine", older).of_part("vision").family == "smolvlm_vision"
    with pytest.raises(TfacctError, match='of model_type "clip_vision_model", which is not counted'):
        load_model("mine", raw).of_part("vision")


@pytest.mark.parametrize("whole", PAIRS)
def test_both_encoders_of_a_pair_are_the_wholes(whole: str) -> None:
    pair = {part: {**TINY[f"{whole}_{part}_model"]} for part in ("text", "vision")}
    raw = {"model_type": whole, **{f"{part}_config": config for part, config in pair.items()}, "projection_dim": 23}
    tensors = built(raw)
    for name in PAIRS[whole].extra:
        del tensors[name]
    assert sum(sum(ours(raw, part).values()) for part in ("text", "vision")) == sum(tensors.values())
    if whole == "clip":
        assert ours(raw, "text") | ours(raw, "vision") == tensors
    assert load_model("mine", raw).family == f"{whole}_text_model"


def test_clips_fields_under_their_older_name_come_first() -> None:
    """As in its config class: what a `vision_config_dict` says, and its class's defaults, over a `vision_config`."""
    older = {"hidden_size": 1024, "num_attention_heads": 16}
    raw = {"model_type": "clip", "text_config": {}, "vision_config": {"hidden_size": 96}, "vision_config_dict": older}
    assert load_model("mine", raw).of_part("vision").config.model_dump()["hidden_size"] == 1024


def test_both_add_up_with_the_projector(run, llava: str) -> None:
    """6,738,939,904 of Vicuna 7B, 303,507,456 of CLIP's L/14 at 336, and the projector, 1,024 · 4,096 + 4,096 +
    4,096² + 4,096: 7,063,427,072 is the total of LLaVA 1.5 7B's file."""
    ran = run("params", llava, "--part", "both")
    assert ran.out.splitlines()[1] == "7,063,427,072 parameters together." and "warning" not in ran.err
    document = json.loads(run("params", llava, "--part", "both", "--json").out)
    assert document["answer"] == "7,063,427,072 parameters together."
    assert [(one["model"], one["total_params"]) for one in document["models"]] == [
        ("llava.json:text", 6_738_939_904),
        ("llava.json:vision", 303_507_456 + 1024 * 4096 + 4096 + 4096**2 + 4096),
    ]


def test_idefics2_is_both_and_its_connector() -> None:
    """8,402,768,112 parameters, as its file has them: 7,241,756,672 of Mistral 7B with three more tokens, 417,792,240
    of the encoder of images, and of the connector a gated network from 1,152 to 4,096 by way of 14,336, 64 rows, and
    three layers of 16 heads of 96 over 4, a gated network of 4 · 4,096 and three norms; a norm."""
    vision = load("idefics2-8b-vision").params().total
    text = load("mistral-7b-v0.1", vocab_size=32003).params().total
    attention = 2 * 4096 * 1536 + 2 * 4096 * 384
    layer = attention + 3 * 4096 * 4 * 4096 + 3 * 4096
    connector = 2 * 1152 * 14336 + 14336 * 4096 + 64 * 4096 + 3 * layer + 4096
    assert (text, vision) == (7_241_756_672, 417_792_240)
    assert text + vision + connector == 8_402_768_112


def test_a_part_alone_says_what_it_is_not(run, llava: str) -> None:
    for command in ("params", "flops", "memory"):
        ran = run(command, llava, "--part", "vision", "--json")
        (model,) = json.loads(ran.out)["models"]
        assert model["left_out"] == ["text_config", "multi_modal_projector"] and model["family"] == "clip_vision_model"
        assert "only the vision model is counted, not text_config, multi_modal_projector" in ran.err
    # 24² patches of 14 pixels and the class token
    flops = load(LLAVA).part("vision").flops().models[0]
    assert flops["workload"]["tokens"] == 577 == load(LLAVA).part("vision").loaded.context
    plain, text = (run("params", llava, *part, "--json") for part in ((), ("--part", "text")))
    (one,), (other,) = (json.loads(ran.out)["models"] for ran in (plain, text))
    assert one["total_params"] == other["total_params"] and one["left_out"] == other["left_out"] == ["vision_config"]


QWEN2_VL: dict[str, Any] = {
    "model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "hidden_size": 3584,
    "intermediate_size": 18944, "max_position_embeddings": 32768, "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    "vision_config": {
        "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size": 3584,
        "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2,
    },
}  # fmt: skip
QWEN3_VL = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text", "attention_bias": False, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 12288, "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
        "vocab_size": 151936,
    },
    "tie_word_embeddings": False,
    "vision_config": {
        "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152,
        "in_channels": 3, "intermediate_size": 4304, "model_type": "qwen3_vl", "num_heads": 16,
        "num_position_embeddings": 2304, "out_hidden_size": 4096, "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}  # fmt: skip


QWEN2_5_VL: dict[str, Any] = {
    **QWEN2_VL, "model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "vision_config": {
        "depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
        "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14,
        "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2, "temporal_patch_size": 2,
    },
}  # fmt: skip
QWEN2_5_VL_3B = {
    **QWEN2_5_VL, "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16, "num_hidden_layers": 36,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
    "vision_config": {**QWEN2_5_VL["vision_config"], "out_hidden_size": 2048},
}  # fmt: skip
GLM_4_1V = {
    "model_type": "glm4v",
    "text_config": {
        "model_type": "glm4v_text", "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "attention_bias": True,
    },
    "tie_word_embeddings": False,
    "vision_config": {
        "model_type": "glm4v", "depth": 24, "hidden_size": 1536, "num_heads": 12, "image_size": 336, "patch_size": 14,
        "out_hidden_size": 4096, "intermediate_size": 13696, "spatial_merge_size": 2, "attention_bias": False,
    },
}  # fmt: skip
SO400M = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 896, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
PUBLISHED = [
    (GLM_4_1V, 10_292_777_472),
    (QWEN2_VL, 8_291_375_616), (QWEN2_5_VL, 8_292_166_656), (QWEN2_5_VL_3B, 3_754_622_976), (QWEN3_VL, 8_767_123_696),
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "total"), PUBLISHED, ids=["glm-4.1v", "qwen2-vl", "qwen2.5-vl", "qwen2.5-vl-3b", "qwen3-vl"]
)
def test_where_nothing_joins_them_both_are_the_published_total(run, tmp_path: Path, raw: dict, total: int) -> None:
    """What their files hold; Qwen2-VL's and Qwen2.5-VL's keep the language model's fields in the whole."""
    (path := tmp_path / "whole.json").write_text(json.dumps(raw))
    ran = run("params", str(path), "--part", "both")
    assert ran.out.splitlines()[1] == f"{total:,} parameters together."
    assert "warning" not in ran.err
    (model,) = json.loads(run("params", str(path), "--part", "vision", "--json").out)["models"]
    assert model["left_out"] == ["text_config"]


def test_a_thinker_answers_for_its_encoder_of_images(run, tmp_path: Path) -> None:
    """Qwen2.5-Omni's, in a config of several wholes: what speaks stays out."""
    vision = {**TINY["qwen2_5_omni_vision_encoder"]}
    thinker = {"text_config": text_of("qwen2_5_omni_thinker"), "audio_config": {"d_model": 8}, "vision_config": vision}
    whole = {"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": {"hidden_size": 9}}
    alone = load_model("alone", {"model_type": "qwen2_5_omni_thinker", **thinker}).of_part("vision")
    inside = load_model("mine", whole).of_part("vision")
    assert inside.ledger.parameters() == alone.ledger.parameters() == load_model("own", vision).ledger.parameters()
    assert inside.left_out == ("text_config", "audio_config", "talker_config")


def test_fields_are_set_over_the_part(run, llava: str) -> None:
    ran = run("flops", llava, "--part", "vision", "--set", "image_size=224", "--json")
    assert json.loads(ran.out)["models"][0]["workload"]["tokens"] == 257
    assert load(LLAVA).part("vision", image_size=224).loaded.context == 257


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--part", "both", "--set", "hidden_size=64"), "--set changes one part, not --part both"),
        (("--part", "both", "--ctx", "64"), "--part both does not go with --ctx"),
        (("--part", "sound"), "--part: 'sound' is not one of"),
    ],
)
def test_what_a_part_does_not_go_with(run, llava: str, more: tuple, says: str) -> None:
    ran = run("flops", llava, *more)
    assert ran.code == 2 and says in " ".join(ran.err.split())


def test_what_has_no_such_part_says_so(run, llava: str) -> None:
    ran = run("flops", "gpt2", "--part", "vision")
    assert ran.code == 2 and "gpt2 holds no other models: --part vision does not apply" in " ".join(ran.err.split())
    ran = run("flops", "--part", "vision")
    assert ran.code == 2 and "--part applies to one MODEL" in ran.err


def with_part() -> list[str]:
    """Commands that take --part."""
    return [name for name in NAMES if command_of(name).takes == "models"]


@pytest.mark.parametrize("part", ["text", "vision", "audio", "both"])
@pytest.mark.parametrize("command", with_part())
def test_every_command_refuses_a_part_of_one_model(run, command: str, part: str) -> None:
    more = {"explore": ["--output", "-"]}.get(command, [])
    ran = run(command, "gpt2", "--part", part, *more)
    assert (ran.code, ran.out) == (2, "")
    assert " ".join(ran.err.split()) == (
        f"error: gpt2 holds no other models: --part {part} does not apply hint: leave it out"
    )


@pytest.mark.parametrize("more", [["--prove", "gpt2"], ["--shard", "--tp", "2"]])
def test_a_part_of_no_model_is_refused(run, more: list[str]) -> None:
    ran = run("verify", *more, "--part", "both")
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith("error: --p")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vision_config": {"model_type": "dinov2"}}, 'is of model_type "dinov2", which is not counted'),
        ({"vision_config": 3}, "keeps its vision model in vision_config, which is missing"),
    ],
)
def test_a_vision_model_that_is_not_understood_is_refused(change: dict, says: str) -> None:
    with pytest.raises(TfacctError, match=says):
        load_model("mine", {**LLAVA, **change}).of_part("vision")


def test_how_a_part_of_a_quantized_whole_is_stored_is_not_guessed(run, tmp_path: Path) -> None:
    """Published files leave the encoder in bf16, whatever the rules for names say."""
    (path := tmp_path / "whole.json").write_text(json.dumps({**LLAVA, "quantization_config": {"quant_method": "fp8"}}))
    assert json.loads(run("params", str(path), "--part", "vision", "--json").out)["models"][0]["total_params"] == (
        303_507_456
    )
    assert run("flops", str(path), "--part", "vision").code == 0
    ran = run("memory", str(path), "--part", "vision")
    assert ran.code == 2 and "how this part is stored is not understood" in " ".join(ran.err.split())
    assert "give --dtype bf16 or another format" in " ".join(ran.err.split())
    assert run("memory", str(path), "--part", "vision", "--dtype", "bf16").code == 0


FP8: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}


def weights_of(run, path: Path, *more: str) -> list[int]:
    document = json.loads(run("memory", str(path), "--part", "both", "--json", *more).out)
    return [one["weights_bytes"] for one in document["models"]]


def test_the_context_of_the_text_model_leaves_an_encoder_counted(run, tmp_path: Path) -> None:
    """A CLIP of 577 positions has the weights that it has, whatever context the language model is asked for."""
    (path := tmp_path / "llava.json").write_text(json.dumps({**LLAVA, "dtype": "bfloat16"}))
    whole = sum(weights_of(run, path))
    assert whole == 2 * sum(one.parameters for one in load_model("mine", LLAVA).of_parts("parameters"))
    for more in (["--ctx", "1k"], ["--ctx", "8k"], ["--ctx", "1k", "--batch", "3"]):
        ran = run("memory", str(path), "--part", "both", *more)
        assert sum(weights_of(run, path, *more)) == whole and " together." in ran.out.splitlines()[1]
        assert "llava.json:vision" not in ran.err
    document = json.loads(run("memory", str(path), "--part", "both", "--ctx", "1k", "--json").out)
    assert [one["workload"]["keys"] for one in document["models"]] == [1024, 577]


def test_parts_that_are_not_converted_are_counted_in_their_own_dtype(run, tmp_path: Path) -> None:
    """Devstral Small 2 as published: 438,958,080 of the class's 24,011,361,280 parameters are Pixtral's and the
    projector's."""
    named = [f"model.{name}" for name in VISION]
    for dtype, width in (("bfloat16", 2), ("float32", 4)):
        raw = {**DEVSTRAL, "dtype": dtype, "quantization_config": {**FP8, "modules_to_not_convert": named}}
        (path := tmp_path / "devstral.json").write_text(json.dumps(raw))
        text, vision = weights_of(run, path, "--ctx", "1k")
        assert vision == width * 438_958_080 and text > 24_011_361_280 - 438_958_080


@pytest.mark.parametrize("named", [[], ["model.vision_tower"], ["model.multi_modal_projector"], ["vision_model"]])
def test_a_part_that_cannot_be_counted_is_named_first(run, tmp_path: Path, named: list[str]) -> None:
    raw = {**DEVSTRAL, "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head", *named]}}
    (path := tmp_path / "devstral.json").write_text(json.dumps(raw))
    ran = run("memory", str(path), "--part", "both", "--ctx", "1k")
    assert " batch 1 Not included: devstral.json:vision. 23.4 GiB: 23.2 GiB of weights" in " ".join(ran.out.split())
    document = json.loads(run("memory", str(path), "--part", "both", "--ctx", "1k", "--json").out)
    assert document["models"][0]["left_out"] == ["devstral.json:vision"]


VISION = ["vision_tower", "multi_modal_projector"]


@pytest.mark.parametrize(
    ("whole", "method", "named"),
    [
        ("qwen3_vl", {"quant_method": "fp8"}, ("modules_to_not_convert", ["model.visual"])),
        ("qwen2_5_vl", {"quant_method": "awq", "bits": 4, "group_size": 128}, ("modules_to_not_convert", ["visual"])),
        ("gemma3", {"quant_method": "bitsandbytes", "load_in_4bit": True}, ("llm_int8_skip_modules", VISION)),
        ("idefics3", {"quant_method": "fp8"}, ("modules_to_not_convert", ["vision_model", "connector"])),
        ("voxtral", {"quant_method": "fp8"}, ("modules_to_not_convert", ["audio_tower", "multi_modal_projector"])),
    ],
)  # fmt: skip
def test_the_modules_of_an_encoder_are_those_of_the_class(whole: str, method: dict, named: tuple) -> None:
    """Each list names all modules of the class that hold the encoder or the projector; without its first, some are
    converted."""
    field, modules = named
    raw = whole_of(whole)
    there = {part for name in built(raw) for part in name.split(".")[:2]}
    assert there.issuperset(name.removeprefix("model.") for name in modules)
    one = load_model("mine", {**raw, "quantization_config": {**method, field: modules}}).of_parts("parameters")[1]
    assert sum(one.ledger.weight_bytes(one.storage()).values()) == 2 * one.parameters
    one = load_model("mine", {**raw, "quantization_config": {**method, field: modules[1:] or ["lm_head"]}})
    with pytest.raises(TfacctError, match="how this part is stored is not understood"):
        one.of_parts("parameters")[1].storage()


@pytest.mark.parametrize("whole", sorted({*VISIONS, *AUDIOS} - {"phi4_multimodal", "t5gemma2", "embedding_gemma2"}))
def test_a_list_of_every_linear_module_leaves_an_encoder_as_it_is(whole: str) -> None:
    """As Qwen3-VL's FP8 files name them one by one; without any one of them the list leaves it no more."""
    torch = pytest.importorskip("torch")
    raw = whole_of(whole)
    linear = [name for name, module in of_class(raw).named_modules() if isinstance(module, torch.nn.Linear)]
    part = (AUDIOS if whole in AUDIOS else VISIONS)[whole]
    at = (*(("audio_tower",) if whole in AUDIOS else ("vision", "visual")), *filter(None, [part.projector]))
    mine = [name for name in linear if any(name.removeprefix("model.").startswith(one) for one in at)]
    for left, plain in ((mine, True), (mine[:-1], False), (mine[1:], False)):
        said = {"quant_method": "fp8", "modules_to_not_convert": left}
        one = load_model("mine", {**raw, "quantization_config": said}).of_parts("parameters")[1]
        if plain:
            assert one.storage().name == "bf16"
        else:
            with pytest.raises(TfacctError, match="how this part is stored is not understood"):
                one.storage()


def test_memory_of_both_parts_has_no_verdict_on_a_budget(run, llava: str) -> None:
    """Each part would be given all of it."""
    ran = run("memory", llava, "--part", "both", "--on", "24GiB")
    assert (ran.code, ran.out) == (2, "") and "--part both does not go with --on" in ran.err


def test_a_whole_whose_vision_model_is_not_counted_names_those_that_are() -> None:
    raw = {"model_type": "janus", "text_config": text_of("janus"), "vision_config": {"hidden_size": 2}}
    with pytest.raises(TfacctError, match="the vision model in 'janus' is not counted"):
        load_model("mine", raw).of_part("vision")


@pytest.mark.parametrize("whole", ["gemma3", "qwen3_vl", "llava", "voxtral", "gemma4", "embedding_gemma2"])
@pytest.mark.parametrize("said", [{}, {"vision_config": None, "audio_config": None}])
def test_an_encoder_without_a_config_is_what_the_class_makes_of_it(whole: str, said: dict) -> None:
    """Most classes build one of default sizes, which is not counted; Gemma 4's build none."""
    raw = {"model_type": whole, "text_config": text_of(whole), **said}
    there = any(
        f".{name}." in f".{tensor}" for tensor in built(raw) for name in ("vision_tower", "visual", "audio_tower")
    )
    says = (
        "that its class builds by default is not counted" if there else "without one its class builds no vision model"
    )
    with pytest.raises(TfacctError, match=says):
        load_model("mine", raw).of_parts("parameters")
    assert load_model("mine", raw).of_part("text").parameters == load_model("mine", raw).parameters


def test_a_second_encoder_without_a_config_is_named_as_not_counted(run, tmp_path: Path) -> None:
    """The class builds an audio encoder of default sizes too."""
    vision = {name: value for name, value in TINY["qwen2_5_omni_vision_encoder"].items() if name != "model_type"}
    raw = {"model_type": "qwen2_5_omni_thinker", "text_config": text_of("qwen2_5_omni_thinker")}
    raw["vision_config"] = vision
    assert any("audio_tower." in name for name in built(raw))
    (path := tmp_path / "omni.json").write_text(json.dumps(raw))
    ran = run("params", str(path), "--part", "both")
    assert "parameters together, without audio_config." in " ".join(ran.out.split())


def test_verify_asks_the_encoders_own_class(run, llava: str) -> None:
    pytest.importorskip("transformers")
    fields = [f"--set={one}" for one in ("hidden_size=64", "num_attention_heads=4", "image_size=56")]
    ran = run("verify", llava, "--part", "vision", "--against", "transformers", *fields)
    assert ran.code == 0 and "transformers, parameters" in ran.out


def test_where_one_of_two_is_left_out_not_both_are_counted(run, llava: str) -> None:
    err = run("memory", "--kv", llava, "--part", "both").err
    assert "two models" not in err and "only the language model is counted" in " ".join(err.split())
    assert "llava.json:vision" in err


def test_an_encoder_of_images_has_no_rules_on_a_mesh(run) -> None:
    err = " ".join(run("plan", "vit-base-patch16-224", "--tp", "2").err.split())
    assert "a parallel layout does not support patches" in err


VOXTRAL: dict[str, Any] = {
    "model_type": "voxtral",
    "text_config": {**text_of("voxtral")},
    "audio_config": {**TINY["voxtral_encoder"], "intermediate_size": 3 * TINY["voxtral_encoder"]["hidden_size"]},
    "hidden_size": 3072,
}


def test_an_encoder_of_audio_is_the_wholes(run, tmp_path: Path) -> None:
    """Voxtral's, counted by --part audio and, beside the language model, by --part both."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    fields = {name: value for name, value in VOXTRAL.items() if name != "model_type"}
    with torch.device("meta"):
        whole = transformers.VoxtralForConditionalGeneration(transformers.VoxtralConfig(**fields))
    tensors = {name: parameter.numel() for name, parameter in whole.named_parameters()}
    prefix = "model.audio_tower."
    assert ours(VOXTRAL, "audio") == {
        name.removeprefix(prefix): count for name, count in tensors.items() if name.startswith(prefix)
    }
    (path := tmp_path / "voxtral.json").write_text(json.dumps(VOXTRAL))
    ran = run("params", str(path), "--part", "both", "--json")
    document = json.loads(ran.out)
    assert [one["model"] for one in document["models"]] == ["voxtral.json:text", "voxtral.json:audio"]
    assert [one["left_out"] for one in document["models"]] == [[], []]
    assert sum(one["total_params"] for one in document["models"]) == sum(tensors.values())
    ran = run("flops", str(path), "--part", "audio")
    assert "only the audio model is counted, not text_config, multi_modal_projector" in " ".join(ran.err.split())


def test_paligemma_is_both_and_its_projector() -> None:
    """2,923,466,480 parameters, as the file of its 3B for images of 224 has them: a product, 1,152 · 2,048 + 2,048."""
    text = {"model_type": "gemma", "vocab_size": 257216, "hidden_size": 2048, "intermediate_size": 16384}
    text |= {"num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256}
    raw = {"model_type": "paligemma", "text_config": text, "vision_config": SO400M | {"image_size": 224}}
    assert sum(one.parameters for one in load_model("mine", raw).of_parts()) + 1152 * 2048 + 2048 == 2_923_466_480


def test_gemma_3_is_both_and_its_projector() -> None:
    """4,300,079,472 parameters, as the file of its 4B has them: of the projector 1,152 · 2,560, and a norm of 1,152."""
    vision = load_model("mine", {"model_type": "gemma3", "text_config": {}, "vision_config": SO400M}).of_part("vision")
    both = (load("gemma-3-4b-text").params().total, vision.parameters)
    assert both == (3_880_263_168, 416_866_032) and sum(both) + 1152 * 2560 + 1152 == 4_300_079_472


@pytest.mark.parametrize(
    ("whole", "part", "why"),
    [
        ("gemma3n", "vision", "it is a MobileNet"),
        ("gemma3n", "audio", "convolutions beside attention in chunks"),
        ("gemma4", "audio", "convolutions beside attention in chunks"),
        ("granite_speech", "audio", "convolutions beside attention,"),
        ("qwen3_asr", "audio", "over frames and over their bins"),
        ("mllama", "vision", "is not counted"),
    ],
)
def test_an_encoder_that_is_no_family_is_refused_by_name(whole: str, part: str, why: str) -> None:
    raw = {"model_type": whole, "text_config": {}, f"{part}_config": {}}
    with pytest.raises(TfacctError, match=f"the {part} model in '{whole}' is not counted.*{why}|{why}"):
        load_model("mine", raw, part=part)


def test_qwen2_audio_is_both_and_its_projector() -> None:
    """8,397,094,912 parameters, as its file has them: the projector is 1,280 · 4,096 + 4,096."""
    sizes = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
    text = {"model_type": "qwen2", "vocab_size": 156032, **sizes, "num_key_value_heads": 32}
    raw = {"model_type": "qwen2_audio", "text_config": text, "audio_config": {"model_type": "qwen2_audio_encoder"}}
    both = [one.parameters for one in load_model("mine", raw).of_parts()]
    assert both == [7_754_878_976, 636_968_960] and sum(both) + 1280 * 4096 + 4096 == 8_397_094_912


@pytest.mark.parametrize("whole", ["audioflamingo3", "musicflamingo", "qwen2_audio"])
def test_averaged_audio_is_the_wholes(whole: str) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    raw = {"model_type": whole, "text_config": text_of(whole), "audio_config": TINY[AUDIOS[whole].type]}
    fields = deepcopy({name: value for name, value in raw.items() if name != "model_type"})
    made = transformers.AutoConfig.for_model(whole, **fields)
    with torch.device("meta"):
        model = getattr(transformers, type(made).__name__.replace("Config", "ForConditionalGeneration"))(made)
    prefix = "model.audio_tower."
    assert ours(raw, "audio") == {
        name.removeprefix(prefix): parameter.numel()
        for name, parameter in model.named_parameters()
        if name.startswith(prefix)
    }


def test_an_encoder_of_audio_is_not_one_of_images(run, tmp_path: Path, llava: str) -> None:
    (path := tmp_path / "voxtral.json").write_text(json.dumps(VOXTRAL))
    ran = run("flops", str(path), "--part", "vision")
    said = " ".join(ran.err.split())
    assert ran.code == 2 and "the config of 'voxtral' has no vision_config: no vision model of it is counted" in said
    ran = run("flops", llava, "--part", "audio")
    assert ran.code == 2 and "the config of 'llava' has no audio_config: no audio model of it is counted" in " ".join(
        ran.err.split()
    )


def test_the_vision_model_in_phi_4_multimodal_is_its_classs() -> None:
    """Its language model's fields stand among those of the whole, its encoders under embed_tokens_extend."""
    raw = whole_of("phi4_multimodal")
    inside = "model.embed_tokens_extend.image_embed.img_processor."
    theirs = {name.removeprefix(inside): count for name, count in built(raw).items() if name.startswith(inside)}
    assert ours(raw, "vision") == theirs
    assert load_model("mine", raw, part="vision").left_out == ("text_config", "audio_config", "img_projection_up")
    with pytest.raises(TfacctError, match="vision_use_head = false changes the counts"):
        load_model("mine", {"model_type": "phi4_multimodal_vision", "vision_use_head": False})


def whole_of(whole: str, **more: Any) -> dict[str, Any]:
    """A tiny config of a whole that has a projector, all sizes distinct."""
    part = "audio" if whole in AUDIOS else "vision"
    tower = {**TINY[multimodal.towers(part)[whole].type]}
    text = text_of(whole) if whole in COMPOSITES else {}
    text.pop("mlp_layer_types", None)  # it has one layer
    if part == "vision":
        del tower["model_type"]
    if whole == "llama4":
        tower["vision_output_dim"] = tower["projector_output_dim"]
    if whole == "voxtral":  # which reads whole numbers of positions side by side
        tower["intermediate_size"] = 3 * tower["hidden_size"]
    if whole == "phi4_multimodal":
        return {"model_type": whole, "num_hidden_layers": 1, "vision_config": tower, "audio_config": PHI_4_AUDIO}
    if whole == "t5gemma2":  # of whose two sides one sees
        side = TINY[whole]["encoder"]["text_config"]
        return {"model_type": whole, "encoder": {"text_config": side, "vision_config": tower}, "decoder": side}
    return {"model_type": whole, "text_config": text, f"{part}_config": tower, **more}


PHI_4_AUDIO = {"hidden_size": 8, "num_blocks": 1, "num_attention_heads": 2, "intermediate_size": 9}
PERCEIVER = {"resampler_n_latents": 5, "resampler_depth": 2, "resampler_n_heads": 6, "resampler_head_dim": 7}
OTHERWISE: dict[str, dict[str, Any]] = {
    "audioflamingo3": {"projector_bias": False},
    "aya_vision": {"downsample_factor": 3, "alignment_intermediate_size": 22},
    "cohere2_vision": {"downsample_factor": 3, "alignment_intermediate_size": 26},
    "idefics2": {"perceiver_config": {**PERCEIVER, "num_key_value_heads": 3}},
    "gemma3": {"mm_tokens_per_image": 16},
    "idefics3": {"scale_factor": 3},
    "internvl": {"downsample_ratio": 0.25},
    "kimi_k25": {"projection_hidden_size": 48},
    "lfm2_vl": {
        "downsample_factor": 3, "projector_hidden_size": 37, "projector_bias": False, "projector_use_layernorm": False,
    },
    "lighton_ocr": {"spatial_merge_size": 3},
    "llava": {"multimodal_projector_bias": False, "vision_feature_layer": [-1, -2, -3]},
    "llava_next": {"multimodal_projector_bias": False},
    "minimax_m3_vl": {"projector_hidden_size": 41},
    "mistral3": {"multimodal_projector_bias": True, "spatial_merge_size": 3},
    "musicflamingo": {"projector_bias": False},
    "paligemma": {"projection_dim": 29},
    "smolvlm": {"scale_factor": 3},
    "vipllava": {"vision_feature_layer": [-1, 2]},
}  # fmt: skip
"""Fields that decide the sizes of a projector, with other values than the class's."""


@pytest.mark.parametrize(
    ("whole", "more"), [*((whole, {}) for whole in PROJECTORS), *OTHERWISE.items()], ids=lambda one: str(one)[:24]
)
def test_both_with_the_projector_are_the_whole(whole: str, more: dict[str, Any]) -> None:
    """Every parameter of the class is counted, and each tensor of the projector has the size of one of the class's."""
    raw = whole_of(whole, **more)
    theirs = {name: count for name, count in built(raw).items() if "audio_embed." not in name}
    both = load_model("mine", raw).of_parts("parameters")
    assert sum(one.parameters for one in both) == sum(theirs.values())
    assert all(one.left_out == (("audio_config",) if whole == "phi4_multimodal" else ()) for one in both)
    sizes = Counter(count for path, count in both[-1].ledger.parameters().items() if path.startswith("projector."))
    assert sizes and not sizes - Counter(theirs.values())


@pytest.mark.parametrize(
    ("whole", "more", "says"),
    [
        ("lfm2_vl", {"downsample_factor": "2"}, "downsample_factor"),
        ("lfm2_vl", {"projector_bias": None}, "projector_bias"),
        ("idefics2", {"perceiver_config": 7}, "perceiver_config"),
        ("idefics2", {"perceiver_config": {"resampler_depth": 10**9}}, "resampler_depth"),
        ("internvl", {"downsample_ratio": 0}, "downsample_ratio"),
    ],
)
def test_a_projector_that_is_not_understood_is_refused(whole: str, more: dict[str, Any], says: str) -> None:
    found = load_model("mine", whole_of(whole, **more))
    with pytest.raises(TfacctError, match=f"^mine: {says} = "):
        found.of_parts("parameters")


DEVSTRAL: dict[str, Any] = {
    "model_type": "mistral3", "tie_word_embeddings": False, "multimodal_projector_bias": False, "spatial_merge_size": 2,
    "text_config": {
        "model_type": "ministral3", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 32768,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "vocab_size": 131072,
    },
    "vision_config": {
        "model_type": "pixtral", "head_dim": 64, "hidden_size": 1024, "image_size": 1540, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14,
    },
}  # fmt: skip


def test_params_and_memory_count_the_projector_and_name_it(run, tmp_path: Path) -> None:
    """Devstral Small 2: 24,011,361,280 parameters in its class, 1,024 + 4,096 · 1,024 + 1,024 · 5,120 + 5,120² of them
    in the projector."""
    (path := tmp_path / "devstral.json").write_text(json.dumps(DEVSTRAL))
    projector = 1024 + 4096 * 1024 + 1024 * 5120 + 5120**2
    assert projector == 35_652_608
    for command, answer in (("params", "24,011,361,280 parameters together."), ("memory", " GiB together.")):
        ran = run(command, str(path), "--part", "both")
        assert ran.out.splitlines()[1].endswith(answer) and "warning" not in ran.err
        assert "devstral.json:vision includes the projector: 35,652,608 parameters." in " ".join(ran.out.split())
        document = json.loads(run(command, str(path), "--part", "both", "--json").out)
        assert sum(one["total_params"] for one in document["models"]) == 24_011_361_280
        assert [one["left_out"] for one in document["models"]] == [[], []]


def test_flops_count_the_projector_of_an_image(run, tmp_path: Path) -> None:
    """Devstral Small 2: 110 x 110 patches, of which four become one row in the first product."""
    (path := tmp_path / "devstral.json").write_text(json.dumps(DEVSTRAL))
    rows = 110 * 110 // 4
    products = {
        "projector.patch_merger.merging_layer": 2 * rows * 4096 * 1024,
        "projector.linear_1": 2 * rows * 1024 * 5120,
        "projector.linear_2": 2 * rows * 5120**2,
    }
    document = json.loads(run("flops", str(path), "--part", "both", "--json").out)
    assert document["answer"].endswith(" FLOPs together.")
    text, vision = document["models"]
    assert text["left_out"] == vision["left_out"] == []
    assert {one["path"]: one["flops"] for one in vision["lines"] if "projector" in one["path"]} == products
    alone = json.loads(run("flops", str(path), "--part", "vision", "--json").out)["models"][0]["total_flops"]
    assert vision["total_flops"] - alone == vision["components"]["projector"] == sum(products.values())
    said = " ".join(run("flops", str(path), "--part", "both").out.split())
    assert "devstral.json:vision includes the projector: 216 G FLOPs." in said


def test_flops_without_a_projector_whose_rows_differ(run, tmp_path: Path) -> None:
    """A perceiver reads as many rows as its images have: its parameters are counted, and its work is not."""
    (path := tmp_path / "idefics2.json").write_text(json.dumps(whole_of("idefics2")))
    ran = run("flops", str(path), "--part", "both")
    assert ran.out.splitlines()[1].endswith(" FLOPs together, without connector.")
    assert "two models are counted, not connector" in " ".join(ran.err.split())
    document = json.loads(run("flops", str(path), "--part", "both", "--json").out)
    assert [one["left_out"] for one in document["models"]] == [["connector"]] * 2


RUNS = [
    *((whole, more) for whole in PROJECTORS.keys() - ROWS_UNKNOWN for more in ({}, OTHERWISE.get(whole))),
]
"""Wholes whose projector the reference model runs; twice those with fields that change its sizes."""


@pytest.mark.parametrize(
    ("whole", "more"),
    [
        pytest.param(whole, more, id=f"{whole}-{'otherwise' if more else 'plain'}")
        for whole, more in sorted(RUNS, key=str)
        if more is not None and (whole, more) != ("kimi_k25", {})  # of 1,152 numbers for rows of 48
    ],
)
def test_the_reference_model_runs_the_projector(whole: str, more: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    from tests.conftest import rounded
    from tfacct.verify.checks import checks

    one = load_model("mine", whole_of(whole, **more)).of_parts("work")[-1]
    tokens = rounded(one, one.context)
    found = checks(one, Workload(context=tokens, tokens=tokens, batch=2), all_layers=True, against=False)
    assert {check.name: check.pairs() for check in found if not check.agrees} == {}
    assert any(path.startswith("projector.") for check in found for path in check.formula)


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("audioflamingo3", {}), ("aya_vision", {}), ("cohere2_vision", {"alignment_intermediate_size": 22}),
    ("deepseek_vl", {}), ("gemma3", {"mm_tokens_per_image": 16}), ("internvl", {}),
    ("internvl", {"downsample_ratio": 0.25}), ("lighton_ocr", {}), ("llava", {}),
    ("llava", {"vision_feature_select_strategy": "full", "vision_feature_layer": [-1, -2, -3]}), ("mistral3", {}),
    ("mistral_large4", {}), ("paligemma", {}), ("smolvlm", {}), ("vipllava", {"vision_feature_layer": [-1, 2]}),
]  # fmt: skip
"""Wholes whose class makes rows of one image, or of audio, by itself."""


@pytest.mark.parametrize(("whole", "more"), ASKED, ids=lambda one: str(one)[:30])
def test_the_rows_of_a_projector_are_the_classs(whole: str, more: dict[str, Any]) -> None:
    """FLOPs of the projector's module, as the class calls it for one image, or the longest audio."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    raw = whole_of(whole, **more)
    made = of_class(raw)
    made = type(made)(made.config).eval()
    seen = dict[str, Any]()
    module = made.model.get_submodule((AUDIOS if whole in AUDIOS else VISIONS)[whole].projector)
    module.register_forward_pre_hook(lambda _, read, named: seen.update(read=read, named=named), with_kwargs=True)
    if whole in AUDIOS:
        own = made.config.audio_config
        frames = 2 * own.max_source_positions
        asked = {
            "input_features": torch.zeros(1, own.num_mel_bins, frames),
            "input_features_mask": torch.ones(1, frames, dtype=torch.long),
        }
    else:
        own = made.config.vision_config
        channels = getattr(own, "num_channels", 3)
        image = torch.ones(1, channels, *([own.image_size] * 2 if isinstance(own.image_size, int) else own.image_size))
        asked = {"pixel_values": image[None] if whole == "smolvlm" else image}
        if whole in ("mistral3", "mistral_large4", "lighton_ocr"):
            asked["image_sizes"] = torch.tensor([image.shape[-2:]])
    counter = FlopCounterMode(display=False)
    with torch.no_grad():
        getattr(made.model, f"get_{'audio' if whole in AUDIOS else 'image'}_features")(**asked)
        read, named = seen["read"], seen["named"]
        with counter:
            module(*read, **named)
    one = load_model("mine", raw).of_parts("work")[-1]
    products = one.ledger.products(Workload(context=one.context, tokens=one.context).axes())
    assert sum(each.forward for each in products if each.path.startswith("projector.")) == counter.get_total_flops()


@pytest.mark.parametrize("projector", ["parameters", "work"])
def test_a_projector_behind_an_encoder_of_any_type_is_counted_or_refused(projector: Any) -> None:
    """Wholes that build the encoder which the config says: sizes that the projector needs may be missing there."""
    found = set()
    for whole in PROJECTORS.keys() - {*AUDIOS, *ALONE, "t5gemma2"}:
        for tower in {tower.type for tower in VISIONS.values()}:
            try:
                both = load_model("mine", {**whole_of(whole), "vision_config": TINY[tower]}).of_parts(projector)
                found.add(both[-1].architecture.projector is not None)
            except TfacctError as error:
                found.add(str(error).partition(":")[0])
    assert found == ({True, "mine", False} if projector == "work" else {True, "mine"})
