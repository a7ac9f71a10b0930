"""Configs of multimodal models, and the classes that run them."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.families import TINY
from tests.helpers.checkpoints import written
from tests.helpers.lazy import lazy
from tfacct.families import multimodal
from tfacct.loading.model import load_model
from tfacct.verify.checks import renamed

core_model_loading = lazy("transformers.core_model_loading")
modeling_auto = lazy("transformers.models.auto.modeling_auto")
COMPOSITES = {name: row for name, row in multimodal.composites().items() if row.text}
TEXT_MODELS = multimodal.text_models()
TIED = "tie_word_embeddings"
NOT_BUILT = {"fast_vlm", "gemma3n", "aya_vision", "kimi_vl", "dots_ocr", "phi3_v", "phi4_multimodal", "phi4mm"}
NOT_BUILT |= {"Keye", "KeyeVL1_5", "modernvbert"}
"""Two need a library for their towers, another's tower has no sizes that build by default; Kimi-VL, dots.ocr and Keye
have classes of their own files only; ModernVBERT is an encoder; the others keep the language model's fields among those
of the whole."""
OTHER_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "emu3": {"vocabulary_map": {"<image>": 3, "<|extra_200|>": 4}},
    "fun_asr_nano": {
        "adaptor_config": {
            "hidden_size": TINY["qwen3"]["hidden_size"],
            "intermediate_size": TINY["qwen3"]["hidden_size"] // 4,
        }
    },
    "granite4_vision": {"deepstack_layer_map": [[-1, 0]], "downsample_rate": "1/2"},
    "granite_docling": {"vision_config": {"out_hidden_size": TINY["granite"]["hidden_size"]}},
}
"""Fields that the full model's class needs next to a tiny language model."""
QWEN_VL = {**TINY["qwen2"], "hidden_size": 40, "head_dim": 4}
"""Heads of size hidden_size / heads, as its class requires."""
GLM4V = {**TINY["glm4"], "hidden_size": 6 * TINY["glm4"]["head_dim"], "num_attention_heads": 6}


def text_of(whole: str) -> dict[str, Any]:
    """A tiny language model of the type that the class expects."""
    text = COMPOSITES[whole].text
    family = TEXT_MODELS[text].family if text in TEXT_MODELS else text
    tiny = QWEN_VL if text.startswith("qwen2_") else TINY[family]
    without = ("model_type", "latent_attention", TIED, "use_sliding_window", "sliding_window", "layer_types")
    tiny = GLM4V if text == "glm4v_text" else tiny
    without += tuple(TEXT_MODELS[text].fixed) if text in TEXT_MODELS else ()
    fields = {name: value for name, value in tiny.items() if name not in without or family == "cohere2"}
    layers: dict[str, Any] = {} if family == "nemotron_h" else {"num_hidden_layers": 1}
    if layers:  # lists have an entry per layer, and a single layer borrows no keys
        count = tiny["num_hidden_layers"]
        layers |= {key: one[:1] for key, one in fields.items() if isinstance(one, list) and len(one) == count}
        layers |= {"num_kv_shared_layers": 0} if "num_kv_shared_layers" in fields else {}
    return {**fields, "pad_token_id": 0, **layers, **({} if text in TEXT_MODELS else {"model_type": text})}


def built(raw: Mapping[str, Any]) -> Any:
    """The full model's class, on meta."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    made = transformers.AutoConfig.for_model(**deepcopy(dict(raw)))  # classes write into it
    maps = (
        getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {})
        for task in ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM")
    )
    name = next(found[raw["model_type"]] for found in maps if raw["model_type"] in found)
    with torch.device("meta"):
        return getattr(transformers, name)._from_config(made)


def theirs(raw: Mapping[str, Any]) -> dict[str, int]:
    """Parameters of the language model in the full model's class, by the names of its own class."""
    counted = {}
    for path, parameter in built(raw).named_parameters():
        for prefix, own in (("model.language_model.", "model."), ("model.text_model.", "model."), ("lm_head.",) * 2):
            if path.startswith(prefix):
                counted[own + path.removeprefix(prefix)] = parameter.numel()
        if path.startswith("language_model."):
            counted[path.removeprefix("language_model.")] = parameter.numel()
    return {path: count for path, count in counted.items() if count}


def agree(raw: Mapping[str, Any]) -> None:
    """Every tensor of the language model, and whether its head is tied."""
    ours = load_model("mine", raw)
    table, tensors = ours.config.hf_module_paths(), ours.config.hf_tensor_names()
    assert renamed(ours.ledger.parameters(unfolded=True), table, tensors) == theirs(raw)


def whole_of(whole: str, fields: Mapping[str, Any], of_text: Mapping[str, Any]) -> dict[str, Any]:
    return {"model_type": whole, "text_config": {**text_of(whole), **of_text}, **OTHER_FIELDS.get(whole, {}), **fields}


def of_head(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the head, if the class takes them from the full config."""
    return {size: raw["text_config"][size] for size in COMPOSITES[raw["model_type"]].head}


def _files_agree(whole: str, path: Path) -> None:
    """Compare the headers of the files that the class would save: the values would take hundreds of megabytes."""
    raw = whole_of(whole, {}, {})
    model = built({**raw, **of_head(raw)})
    untied = {name: one for name, one in model.state_dict().items() if name not in model.all_tied_weights_keys}
    tensors = core_model_loading.revert_weight_conversion(model, untied).items()
    written(
        path / "model.safetensors",
        {name: ("F32" if one.is_floating_point() else "I64", tuple(one.shape)) for name, one in tensors},
    )
    model.config.architectures = [type(model).__name__]
    (path / "config.json").write_text(model.config.to_json_string())
    report = tfacct.checkpoint(path)
    assert report.differences == [] and report.agrees
    others = "belongs to another model in the same files" in {line["what"] for line in report.lines}
    assert others is bool(tfacct.load(path).loaded.left_out) or whole.startswith("gemma4")
