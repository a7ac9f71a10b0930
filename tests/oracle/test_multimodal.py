"""Encoders and projectors of multimodal models, compared with the class of the full model. Kind: oracle."""

import json
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.lazy import lazy
from tests.helpers.models import rounded
from tests.helpers.multimodal import COMPOSITES, text_of
from tests.helpers.multimodal import built as of_class
from tests.helpers.projectors import ALONE, AUDIOS, LLAVA, VISION, VISIONS, whole_of
from tfacct.base.errors import TfacctError
from tfacct.families import multimodal
from tfacct.families.projectors import PROJECTORS, ROWS_UNKNOWN
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model
from tfacct.verify.checks import checks, renamed

torch, flop_counter, transformers = lazy("torch"), lazy("torch.utils.flop_counter"), lazy("transformers")

PAIRS = multimodal.dual_encoders()


def built(raw: dict[str, Any]) -> dict[str, int]:
    """Parameters of the full model's class by tensor."""
    autos = {
        **dict.fromkeys(PAIRS, "AutoModel"),
        "embedding_gemma2": "AutoModel",
        "phi4_multimodal": "AutoModelForCausalLM",
    }
    if raw["model_type"] in autos:
        made = transformers.AutoConfig.for_model(**deepcopy(raw))
        with torch.device("meta"):
            whole = getattr(transformers, autos[raw["model_type"]]).from_config(made)
    else:
        whole = of_class(raw)
    return {name: parameter.numel() for name, parameter in whole.named_parameters()}


def ours(raw: dict[str, Any], part: str) -> dict[str, int]:
    one = load_model("mine", raw, part=part)
    return renamed(one.ledger.parameters(unfolded=True), one.config.hf_module_paths(), one.config.hf_tensor_names())


@pytest.mark.parametrize(
    ("whole", "named"),
    [
        (whole, named)
        for whole in VISIONS
        for named in (False, True)
        if not (named and whole in ALONE) and whole != "phi4_multimodal"
    ],
)
def test_the_vision_model_is_that_of_the_full_model(whole: str, named: bool) -> None:
    """Of the type that the class expects by default, and of the other type."""
    own = VISIONS[whole].type
    tower = own if not named else "siglip_vision_model" if own == "clip_vision_model" else "clip_vision_model"
    vision = {name: value for name, value in TINY[tower].items() if named or name != "model_type"}
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
    assert any(f".{between}." in f".{name}" for name in tensors) == bool(between)


@pytest.mark.parametrize("whole", PAIRS)
def test_both_encoders_of_a_pair_are_those_of_the_full_model(whole: str) -> None:
    pair = {part: {**TINY[f"{whole}_{part}_model"]} for part in ("text", "vision")}
    raw = {"model_type": whole, **{f"{part}_config": config for part, config in pair.items()}, "projection_dim": 23}
    tensors = built(raw)
    assert all({*PAIRS[whole].extra} < {*load_model("mine", raw, part=part).left_out} for part in ("text", "vision"))
    for name in PAIRS[whole].extra:
        del tensors[name]
    assert sum(sum(ours(raw, part).values()) for part in ("text", "vision")) == sum(tensors.values())
    if whole == "clip":
        assert ours(raw, "text") | ours(raw, "vision") == tensors
    assert load_model("mine", raw).family == f"{whole}_text_model"


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
    with pytest.raises(TfacctError, match="the format of this part is not supported"):
        one.of_parts("parameters")[1].storage()


@pytest.mark.parametrize("whole", sorted({*VISIONS, *AUDIOS} - {"phi4_multimodal", "t5gemma2", "embedding_gemma2"}))
def test_a_list_of_every_linear_module_leaves_an_encoder_as_it_is(whole: str) -> None:
    """Qwen3-VL's FP8 files name them one by one; if one is missing, the encoder counts as quantized."""
    raw = whole_of(whole)
    linear = [name for name, module in of_class(raw).named_modules() if isinstance(module, torch.nn.Linear)]
    part = (AUDIOS if whole in AUDIOS else VISIONS)[whole]
    at = (*(("audio_tower",) if whole in AUDIOS else ("vision", "visual")), *filter(None, [part.projector]))
    mine = [name for name in linear if any(name.removeprefix("model.").startswith(one) for one in at)]
    for left, plain in ((mine, True), (mine[:-1], False), (mine[1:], False)):
        quantization = {"quant_method": "fp8", "modules_to_not_convert": left}
        one = load_model("mine", {**raw, "quantization_config": quantization}).of_parts("parameters")[1]
        if plain:
            assert one.storage().name == "bf16"
        else:
            with pytest.raises(TfacctError, match="the format of this part is not supported"):
                one.storage()


@pytest.mark.parametrize("whole", ["gemma3", "qwen3_vl", "llava", "voxtral", "gemma4", "embedding_gemma2"])
@pytest.mark.parametrize("fields", [{}, {"vision_config": None, "audio_config": None}])
def test_an_encoder_without_a_config_has_the_defaults_of_its_class(whole: str, fields: dict) -> None:
    """Most classes build one of default sizes, which is not counted; Gemma 4's build none."""
    raw = {"model_type": whole, "text_config": text_of(whole), **fields}
    there = any(
        f".{name}." in f".{tensor}" for tensor in built(raw) for name in ("vision_tower", "visual", "audio_tower")
    )
    says = "of its class is not supported" if there else "so its class builds no vision part"
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
    assert "parameters together, without audio_config." in run("params", str(path), "--part", "both").out_line


def test_verify_asks_the_encoders_own_class(run, tmp_path: Path) -> None:
    (path := tmp_path / "llava.json").write_text(json.dumps(LLAVA))
    fields = [f"--set={one}" for one in ("hidden_size=64", "num_attention_heads=4", "image_size=56")]
    ran = run("verify", str(path), "--part", "vision", "--against", "transformers", *fields)
    assert ran.code == 0 and "transformers, parameters" in ran.out


def test_a_head_of_phi_4_multimodals_encoder_changes_its_counts() -> None:
    left_out = ("text_config", "audio_config", "img_projection_up")
    assert load_model("mine", whole_of("phi4_multimodal"), part="vision").left_out == left_out
    with pytest.raises(TfacctError, match="vision_use_head = false changes the counts"):
        load_model("mine", {"model_type": "phi4_multimodal_vision", "vision_use_head": False})


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


RUNS = [*((whole, more) for whole in PROJECTORS.keys() - ROWS_UNKNOWN for more in ({}, OTHERWISE.get(whole)))]
"""Full models whose projector the reference model runs; twice those with fields that change its sizes."""


@pytest.mark.parametrize(
    ("whole", "more"),
    [
        pytest.param(whole, more, id=f"{whole}-{'otherwise' if more else 'plain'}")
        for whole, more in sorted(RUNS, key=str)
        if more is not None and (whole, more) != ("kimi_k25", {})  # of 1,152 numbers for rows of 48
    ],
)
def test_the_reference_model_runs_the_projector(whole: str, more: dict[str, Any]) -> None:
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
"""Full models whose class has a method for the rows of an image or of audio."""


@pytest.mark.parametrize(("whole", "more"), ASKED, ids=lambda one: str(one)[:30])
def test_the_rows_of_a_projector_are_those_of_the_class(whole: str, more: dict[str, Any]) -> None:
    """FLOPs of the projector's module, as the class calls it for one image, or the longest audio."""
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
    counter = flop_counter.FlopCounterMode(display=False)
    with torch.no_grad():
        getattr(made.model, f"get_{'audio' if whole in AUDIOS else 'image'}_features")(**asked)
        read, named = seen["read"], seen["named"]
        with counter:
            module(*read, **named)
    one = load_model("mine", raw).of_parts("work")[-1]
    products = one.ledger.products(Workload(context=one.context, tokens=one.context).axes())
    assert sum(each.forward for each in products if each.path.startswith("projector.")) == counter.get_total_flops()
