"""Models of several models: the language model is counted as the whole's class has it, and the others are named."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.families import TINY
from tests.loading.test_checkpoint import written
from tfacct import families
from tfacct.architecture.parts import Attention
from tfacct.base.errors import ConfigError
from tfacct.families import multimodal
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model
from tfacct.reports.build import unknown_hints
from tfacct.verify.checks import renamed

COMPOSITES = {name: row for name, row in multimodal.composites().items() if row.text}
TEXT_MODELS = multimodal.text_models()
TOWER = {"vision_config": {"hidden_size": 9}}
TIED = "tie_word_embeddings"
SAID = ({}, {TIED: True}, {TIED: False})
NOT_BUILT = {"fast_vlm", "gemma3n", "aya_vision", "kimi_vl", "dots_ocr", "phi3_v", "phi4_multimodal", "phi4mm"}
NOT_BUILT |= {"Keye", "KeyeVL1_5", "modernvbert"}
"""Two need a library for their towers, another's tower has no sizes that build by default; Kimi-VL, dots.ocr and Keye
have classes of their own files only; ModernVBERT is an encoder; the others keep the language model's fields among those
of the whole."""
BESIDE: Mapping[str, Mapping[str, Any]] = {
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
"""What a whole's class needs beside a tiny language model to be built."""
QWEN_VL = {**TINY["qwen2"], "hidden_size": 40, "head_dim": 4}
"""Heads that share the hidden size, as its class wants them."""
GLM4V = {**TINY["glm4"], "hidden_size": 6 * TINY["glm4"]["head_dim"], "num_attention_heads": 6}


def text_of(whole: str) -> dict[str, Any]:
    """A tiny language model of the type that the class expects."""
    text = COMPOSITES[whole].text
    family = TEXT_MODELS[text].family if text in TEXT_MODELS else text
    tiny = QWEN_VL if text.startswith("qwen2_") else TINY[family]
    without = ("model_type", "latent_attention", TIED, "use_sliding_window", "sliding_window", "layer_types")
    tiny = GLM4V if text == "glm4v_text" else tiny
    without += tuple(TEXT_MODELS[text].fixed) if text in TEXT_MODELS else ()
    kept = {name: value for name, value in tiny.items() if name not in without or family == "cohere2"}
    layers: dict[str, Any] = {} if family == "nemotron_h" else {"num_hidden_layers": 1}
    if layers:  # lists have an entry for each, and one layer has nobody to borrow from
        count = tiny["num_hidden_layers"]
        layers |= {key: one[:1] for key, one in kept.items() if isinstance(one, list) and len(one) == count}
        layers |= {"num_kv_shared_layers": 0} if "num_kv_shared_layers" in kept else {}
    return {**kept, "pad_token_id": 0, **layers, **({} if text in TEXT_MODELS else {"model_type": text})}


def built(raw: Mapping[str, Any]) -> Any:
    """The whole's class, on meta."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.auto import modeling_auto

    fields = deepcopy({name: value for name, value in raw.items() if name != "model_type"})  # classes write into them
    made = transformers.AutoConfig.for_model(raw["model_type"], **fields)
    maps = (
        getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {})
        for task in ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM")
    )
    name = next(found[raw["model_type"]] for found in maps if raw["model_type"] in found)
    with torch.device("meta"):
        return getattr(transformers, name)._from_config(made)


def theirs(raw: Mapping[str, Any]) -> dict[str, int]:
    """Parameters of the language model in the whole's class, under the names of its own class."""
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


def whole_of(whole: str, said: Mapping[str, Any], of_text: Mapping[str, Any]) -> dict[str, Any]:
    return {"model_type": whole, "text_config": {**text_of(whole), **of_text}, **BESIDE.get(whole, {}), **said}


def of_head(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the head, where the class takes them from the whole."""
    return {size: raw["text_config"][size] for size in COMPOSITES[raw["model_type"]].head}


@pytest.mark.parametrize(
    ("whole", "said", "of_text"),
    [
        ("llava", {}, {TIED: True}),
        ("mistral3", {}, {}),
        ("voxtral", {TIED: True}, {TIED: True}),
        ("qwen2_vl", {}, {}),
        ("qwen3_vl_moe", {TIED: True}, {}),
        ("gemma4_unified", {}, {}),
        ("granite4_vision", {}, {TIED: True}),
        ("hunyuan_vl", {TIED: False}, {}),
        ("nemotron_h_omni", {TIED: True}, {}),
        ("paddleocr_vl", {TIED: False}, {TIED: False}),
    ],
)
def test_the_language_model_is_the_wholes(whole: str, said: dict, of_text: dict) -> None:
    agree(whole_of(whole, said, of_text))


@pytest.mark.slow
@pytest.mark.parametrize("of_text", SAID, ids=["unsaid", "tied", "untied"])
@pytest.mark.parametrize("said", SAID, ids=["unsaid", "tied", "untied"])
@pytest.mark.parametrize("whole", [name for name in COMPOSITES if name not in NOT_BUILT])
def test_every_language_model_is_the_wholes_however_its_head_is_tied(whole: str, said: dict, of_text: dict) -> None:
    if whole == "nemotron_h_omni" and of_text.get(TIED):
        pytest.skip("its language model refuses a tied head")
    raw = whole_of(whole, said, of_text)
    agree({**raw, **of_head(raw)})


def _files_agree(whole: str, path: Path) -> None:
    """What the class would save, by its headers alone: the numbers would be hundreds of megabytes."""
    raw = whole_of(whole, {}, {})
    model = built({**raw, **of_head(raw)})
    from transformers.core_model_loading import revert_weight_conversion

    kept = {name: one for name, one in model.state_dict().items() if name not in model.all_tied_weights_keys}
    tensors = revert_weight_conversion(model, kept).items()
    written(
        path / "model.safetensors",
        {name: ("F32" if one.is_floating_point() else "I64", tuple(one.shape)) for name, one in tensors},
    )
    model.config.architectures = [type(model).__name__]
    (path / "config.json").write_text(model.config.to_json_string())
    report = tfacct.checkpoint(path)
    assert report.differences == [] and report.agrees
    others = "of another model in the same files" in {line["what"] for line in report.lines}
    assert others is bool(tfacct.load(path).loaded.left_out) or whole.startswith("gemma4")


@pytest.mark.parametrize("whole", ["llava", "idefics2", "kimi_k25", "emu3"])
def test_the_language_models_tensors_have_their_lines_among_the_wholes(whole: str, tmp_path: Path) -> None:
    _files_agree(whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [name for name in COMPOSITES if name not in NOT_BUILT])
def test_every_language_models_tensors_have_their_lines_among_the_wholes(whole: str, tmp_path: Path) -> None:
    _files_agree(whole, tmp_path)


def test_a_class_that_builds_any_language_model_of_its_kind_asks_for_the_type() -> None:
    """GLM-4.6V's: dense where the config does not say, with experts where it does."""
    experts = whole_of("glm4v_moe", {}, {})
    agree(
        {**experts, "model_type": "glm46v", "text_config": {**experts["text_config"], "model_type": "glm4v_moe_text"}}
    )


def test_an_untied_head_that_the_whole_makes_has_the_language_models_sizes_or_is_refused() -> None:
    """Ovis2's class takes hidden_size and vocab_size of its head from the whole: 1,536 and 151,643 by default."""
    raw = whole_of("ovis2", {TIED: False}, {})
    sizes = of_head(raw)
    agree({**raw, **sizes})
    agree(whole_of("ovis2", {TIED: True}, {}))
    with pytest.raises(ConfigError, match=r"hidden_size = 1536 of 'ovis2' \(its default\), of which its head is made"):
        load_model("mine", raw)
    with pytest.raises(ConfigError, match="vocab_size = 7 of 'ovis2', of which its head is made, contradicts"):
        load_model("mine", {**raw, **sizes, "vocab_size": 7})


@pytest.mark.parametrize(
    ("whole", "of_whole", "of_text"),
    [("ovis2", {}, {TIED: False}), ("vibevoice", {TIED: True}, {TIED: False}), ("vibevoice", {TIED: True}, {})],
)
def test_a_word_on_the_head_that_the_class_does_not_read_changes_nothing(
    whole: str, of_whole: dict, of_text: dict
) -> None:
    agree(whole_of(whole, of_whole, of_text))


@pytest.mark.parametrize(
    ("whole", "of_whole", "of_text"),
    [("shieldgemma2", {TIED: False}, {}), ("lfm3_vl", {}, {TIED: False})],
)
def test_a_word_on_the_head_in_the_config_that_the_class_does_not_ask_is_not_enough(
    whole: str, of_whole: dict, of_text: dict
) -> None:
    """Each class takes it from the other config, or its default: they would have another head."""
    inside = {"shieldgemma2": "gemma3_text", "lfm3_vl": "lfm2"}[whole]
    raw = {"model_type": whole, **of_whole, "text_config": {**TINY[inside], "model_type": inside, **of_text}}
    if not of_text:
        raw["text_config"].pop(TIED, None)
    with pytest.raises(ConfigError, match="does not say whether its head is tied"):
        load_model("mine", raw)


def test_a_flat_config_is_read_as_its_class_reads_it() -> None:
    """Qwen2-VL's published configs have the language model's fields beside those of the whole."""
    flat = {**{name: value for name, value in QWEN_VL.items() if name != TIED}, "model_type": "qwen2_vl"}
    raw = {**flat, "pad_token_id": 0, "architectures": ["Qwen2VLForConditionalGeneration"], "vision_token_id": 3}
    agree(raw)
    agree({**raw, TIED: True})
    ours = load_model("mine", {**raw, "vision_config": {"depth": 2}})
    assert (ours.family, ours.left_out, ours.unknown) == ("qwen2", ("vision_config",), ())


@pytest.mark.parametrize(
    ("whole", "family", "named"),
    [("kimi_k25", "deepseek_v3", "KimiK25ForConditionalGeneration"), ("step3p7", "step3p5", "Step3p7FlashForCausalLM")],
)
def test_a_planners_flat_config_is_the_language_models(whole: str, family: str, named: str) -> None:
    """aiconfigurator writes those of Kimi-K2.5 and Step-3.7 with the language model's fields beside the tower's."""
    own = {"model_type": whole, "architectures": [named], "vision_config": {"depth": 2}, TIED: False}
    ours = load_model("mine", {**TINY[family], **own})
    assert (ours.family, ours.left_out, ours.unknown) == (family, ("vision_config",), ())
    assert ours.ledger.parameters() == load_model("mine", TINY[family]).ledger.parameters()


def test_a_planners_minimax_m3() -> None:
    """Its text model by a type of its own, with words that the class does not read and that must say the same."""
    text = TINY["minimax_m3_vl_text"]
    raw = {**text, "model_type": "minimax_m3", "architectures": ["MiniMaxM3ForCausalLM"], "first_k_dense_replace": 1}
    raw |= {"moe_intermediate_size": text["intermediate_size"], "num_nextn_predict_layers": 1}
    assert load_model("mine", raw).ledger.parameters() == load_model("mine", text).ledger.parameters()
    with pytest.raises(ConfigError, match="first_k_dense_replace = 2 contradicts the layers"):
        load_model("mine", {**raw, "first_k_dense_replace": 2})
    with pytest.raises(ConfigError, match="moe_intermediate_size = 38 contradicts intermediate_size"):
        load_model("mine", {**raw, "moe_intermediate_size": 38})


def test_a_field_and_a_class_of_older_names_are_read() -> None:
    """Nemotron's: published before its class was, which has a name of its own."""
    text = text_of("nemotron_h_omni")
    raw = {"model_type": "nemotron_h_omni", "architectures": ["NemotronH_Omni_Reasoning_V3"], "llm_config": text}
    ours = load_model("mine", {**raw, "sound_config": {"hidden_size": 9}})
    assert ours.ledger.parameters() == load_model("mine", text).ledger.parameters()
    assert (ours.family, ours.left_out) == ("nemotron_h", ("sound_config",))


def test_the_model_that_answers_is_counted_of_one_that_speaks_too() -> None:
    """Published configs of Qwen-Omni hold a thinker, whose language model it is, and a talker."""
    thinker = {"text_config": text_of("qwen2_5_omni_thinker"), "audio_config": {"d_model": 9}, **TOWER}
    whole = {"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": {"hidden_size": 9}}
    ours, alone = load_model("mine", whole), load_model("alone", {"model_type": "qwen2_5_omni_thinker", **thinker})
    assert ours.ledger.parameters() == alone.ledger.parameters()
    assert ours.left_out == ("audio_config", "vision_config", "talker_config")
    with pytest.raises(ConfigError, match="keeps what answers in thinker_config"):
        load_model("mine", {"model_type": "qwen2_5_omni"})


def test_a_field_that_a_class_of_images_has_fixed_is_refused_with_another_value() -> None:
    """GLM-4V's queries always have biases, and its heads share the hidden size."""
    raw = whole_of("glm4v", {}, {})
    assert {part.head_dim for part in load_model("mine", raw).architecture.parts() if isinstance(part, Attention)} == {
        20
    }
    raw["text_config"]["attention_bias"] = False
    with pytest.raises(ConfigError, match="attention_bias = false is not read by the class of glm4v_text"):
        load_model("mine", raw)


@pytest.mark.parametrize("name", [name for name in families.names() if families.config_class(name).nested_defaults])
def test_sizes_left_out_inside_are_the_classs(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    family = families.config_class(name)
    made = transformers.AutoConfig.for_model(family.hf_model_type or name)
    assert family.nested_defaults == {size: getattr(made, size) for size in family.nested_defaults}


@pytest.mark.parametrize("name", [name for name, text in TEXT_MODELS.items() if text.sizes])
def test_sizes_left_out_of_a_text_config_are_its_classs(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    made = transformers.AutoConfig.for_model({"phi4_multimodal_text": "phi4_multimodal"}.get(name, name))
    assert TEXT_MODELS[name].sizes == {size: getattr(made, size) for size in TEXT_MODELS[name].sizes}
    uneven = {"head_dim": 16} if made.hidden_size % made.num_attention_heads else {}  # the class does not run without
    ours = load_model("mine", {"model_type": name, **uneven})
    assert {size: ours.defaulted[size] for size in TEXT_MODELS[name].sizes if size in ours.defaulted} != {}
    theirs = made.to_dict()  # a size that layers have of their own is no attribute
    read = {field: getattr(ours.config, field) for field in ours.config.counted() if field in theirs}
    given = {field: value for field, value in read.items() if value is not None and field != TIED}  # the whole's
    assert given == {field: theirs[field] for field in given}


@pytest.mark.parametrize("said", [{}, {"head_dim": 96}])
def test_heads_of_glm_ocr_share_the_hidden_size_where_their_own_is_left_out(said: dict[str, int]) -> None:
    """Its class reads the size of a head where the config says it, and GLM-4's family has one of its own."""
    pytest.importorskip("transformers")
    from tfacct.reference import hf

    raw = {"model_type": "glm_ocr_text", "num_hidden_layers": 1, "architectures": ["GlmOcrTextModel"], **said}
    theirs = hf.parameters(hf.build(raw, "AutoModel"))
    ours = load_model("mine", {**raw, "architectures": ["Glm4Model"]})
    assert sum(ours.ledger.parameters().values()) == sum(theirs.values())
    assert ours.config.head_dim == said.get("head_dim", 64)
    assert ours.defaulted.get("head_dim") == (None if said else 64)


@pytest.mark.parametrize("whole", [name for name in COMPOSITES if COMPOSITES[name].fill])
def test_sizes_that_the_whole_fills_in_are_its_classs(whole: str) -> None:
    transformers = pytest.importorskip("transformers")
    made = transformers.AutoConfig.for_model(whole, text_config={"model_type": COMPOSITES[whole].text}).text_config
    assert COMPOSITES[whole].fill == {size: getattr(made, size) for size in COMPOSITES[whole].fill}


@pytest.mark.parametrize("text", ["gemma", "gemma2"])
def test_a_prefix_changes_no_product_and_its_pairs_are_refused(run, text: str) -> None:
    """PaliGemma's class writes use_bidirectional_attention; published configs leave it out, or say null."""
    plain, work = load_model("mine", TINY[text]), Workload(11, 7, 3).axes()
    for said in ({}, {"use_bidirectional_attention": None}, {"use_bidirectional_attention": True}):
        ours = load_model("mine", {"model_type": "paligemma", "text_config": {**TINY[text], **said}, **TOWER})
        assert ours.ledger.flops(work) == plain.ledger.flops(work)
        assert ours.ledger.states(work) == plain.ledger.states(work)
        with pytest.raises(ConfigError, match="visible pairs cannot be counted"):
            ours.ledger.flops(work, masked=True)
    causal = {**TINY[text], "use_bidirectional_attention": False}
    ours = load_model("mine", {"model_type": "paligemma", "text_config": causal, **TOWER})
    assert ours.ledger.flops(work, masked=True) == plain.ledger.flops(work, masked=True)


@pytest.mark.parametrize("window", [5, 6, 64])
@pytest.mark.parametrize("name", ["Gemma3TextModel", "Gemma3ForCausalLM"])
def test_gemma_3_that_looks_both_ways_is_an_encoder(name: str, window: int) -> None:
    """As EmbeddingGemma is. A window of 5, or of 4, is two tokens before and two behind: the class halves it."""
    pytest.importorskip("torch")
    from tests.oracle.test_transformers import agree

    said = {"use_bidirectional_attention": True, "sliding_window": window, "architectures": [name]}
    ours = load_model("mine", {**TINY["gemma3_text"], **said})
    agree(ours, Workload(11, 11, 3), Workload(3, 3, 2))
    assert not ours.has_cache and ours.architecture.stacks[0].block.sublayers[0].part.window == window // 2 * 2 + 1


def test_what_is_left_out_is_named_and_what_was_defaulted_too() -> None:
    """LLaVA 1.5's text_config gives little more than the vocabulary: the rest is Llama's, as its class has it."""
    raw = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}, **TOWER}
    ours = load_model("mine", raw)
    assert ours.left_out == ("vision_config",)
    assert ours.defaulted.items() >= {"hidden_size": 4096, "num_hidden_layers": 32, TIED: False}.items()
    # 32,064 rows in table and head, 32 · 4,096 · (4 · 4,096 + 3 · 11,008 + 2) + 4,096: Vicuna 7B and 64 tokens more.
    blocks = 32 * 4096 * (4 * 4096 + 3 * 11008 + 2)
    assert sum(ours.ledger.parameters().values()) == 2 * 32064 * 4096 + blocks + 4096 == 6_738_939_904


def test_the_names_of_special_tokens_are_no_unknown_fields() -> None:
    raw = {**whole_of("internvl", {TIED: False}, {}), **TOWER, "image_token_id": 3, "downsample_ratio": 0.5}
    assert load_model("mine", raw).unknown == ()


@pytest.mark.parametrize("named", [["LlavaModel"], ["LlavaForSequenceClassification"], ["LlavaLlamaForCausalLM"]])
def test_another_class_of_the_whole_is_refused(named: list[str]) -> None:
    with pytest.raises(ConfigError, match="names no class of llama"):
        load_model("mine", {**whole_of("llava", {}, {}), "architectures": named})
    assert load_model("mine", {**whole_of("llava", {}, {}), "architectures": ["LlavaForConditionalGeneration"]})


def test_a_text_config_must_be_there_and_be_known() -> None:
    with pytest.raises(ConfigError, match="keeps its language model in text_config, which is missing"):
        load_model("mine", {"model_type": "llava"})
    with pytest.raises(ConfigError, match="the language model in 'llava' is of an unknown model_type \"lama\""):
        load_model("mine", {"model_type": "llava", "text_config": {"model_type": "lama"}})


def test_a_whole_that_nobody_knows_is_read_where_its_config_says_enough() -> None:
    raw = {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], **TOWER}
    text = {**TINY["qwen2"], "architectures": ["Qwen2ForCausalLM"]}
    ours = load_model("mine", {**raw, "llm_config": text})
    assert (ours.family, ours.left_out) == ("qwen2", ("vision_config",))
    assert ours.architecture == load_model("alone", text).architecture
    unsaid = {name: value for name, value in text.items() if name != TIED}
    with pytest.raises(ConfigError, match="the config does not say whether its head is tied"):
        load_model("mine", {**raw, "llm_config": unsaid})
    with pytest.raises(ConfigError, match="the config says both"):
        load_model("mine", {**raw, "llm_config": text, TIED: False})
    with pytest.raises(ConfigError, match="vocab_size = 7 of 'internvl_chat' contradicts 73 in its llm_config"):
        load_model("mine", {**raw, "llm_config": text, "vocab_size": 7})
    with pytest.raises(ConfigError, match="unknown model_type 'internvl_chat'"):  # an encoder is no language model
        load_model("mine", {**raw, "text_config": TINY["bert"]})


WINDOWED = {"use_sliding_window": True, "layer_types": ["sliding_attention"]}


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        *((whole, {"head_dim": 6}) for whole in ("glm4v", "glm46v", "glmga", "qwen2_vl", "qwen2_5_vl")),
        *((whole, WINDOWED) for whole in ("qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe_thinker", "cosmos3_omni")),
        *((whole, {"layer_types": 3}) for whole in ("qwen3_vl", "qwen3_omni_moe_thinker")),
    ],
)
def test_a_field_that_the_inner_class_does_not_read_is_refused(whole: str, said: dict[str, Any]) -> None:
    """GLM-4V's and Qwen2-VL's heads share the hidden size; Qwen3-VL's layers see everything. What is set on the command
    line does not reach a text_config before it is read, so the hint is about the file."""
    raw = whole_of(whole, {}, {})
    for field in ("use_sliding_window", "layer_types", "head_dim"):
        if field in said:
            with pytest.raises(ConfigError, match=rf"{field} = .* is not read by the class of \w+") as caught:
                load_model("mine", {**raw, "text_config": {**raw["text_config"], field: said[field]}})
            assert caught.value.hint == "drop it from the file"


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        *((whole, {"head_dim": QWEN_VL["head_dim"]}) for whole in ("qwen2_vl", "qwen2_5_vl")),
        *((whole, {"head_dim": GLM4V["head_dim"]}) for whole in ("glm4v", "glm46v", "glmga")),
        *(
            (whole, {"sliding_window": 5, "use_sliding_window": False})
            for whole in ("qwen3_vl", "qwen3_omni_moe_thinker")
        ),
        *((whole, {"layer_types": ["full_attention"]}) for whole in ("qwen3_vl", "qwen3_omni_moe_thinker")),
    ],
)
def test_a_field_that_says_what_the_inner_class_does_anyway_changes_nothing(whole: str, said: dict[str, Any]) -> None:
    raw = whole_of(whole, {}, {})
    text = {name: value for name, value in raw["text_config"].items() if name not in said}
    plain, ours = (load_model("mine", {**raw, "text_config": {**text, **more}}) for more in ({}, said))
    assert ours.ledger.parameters() == plain.ledger.parameters() and ours.unknown == ()
    assert ours.ledger.states(Workload(11, 7, 3).axes()) == plain.ledger.states(Workload(11, 7, 3).axes())


def test_verify_says_whose_class_was_asked(run) -> None:
    """transformers has none for kimi_k2: its configs come with code of their own."""
    pytest.importorskip("torch")
    fields = ("num_hidden_layers=2", "hidden_size=64", "n_routed_experts=8", "vocab_size=61", "num_attention_heads=4")
    sets = [f"--set={field}" for field in (*fields, "num_key_value_heads=4")]
    out = run("verify", "kimi-k2", "--against", "transformers", "--ctx", "9", *sets).out
    assert "transformers has no class for kimi_k2: that of deepseek_v3 is used." in " ".join(out.split())
    assert "All 14 checks" not in out and "checks agree exactly" in out  # its expected total is that of all its layers


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("plamo2", "has heads"),
        ("reformer", "by hashes"),
        ("doge", "chooses keys"),
        ("blt", "another model says"),
    ],
)
def test_a_type_that_no_part_here_expresses_says_why(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"model_type '{name}' is not counted: .*{why}"):
        load_model("mine", {"model_type": name, "text_config": {"model_type": f"{name}_text"}})


def test_a_head_tied_by_the_whole_alone_is_said() -> None:
    """Of Mistral 3: files are published with a head of their own whose config says nothing of it."""
    text = {**without_tie(TINY["mistral"]), "model_type": "mistral"}
    silent = load_model("m", {"model_type": "mistral3", "text_config": text}, {})
    (said,) = [hint for hint in unknown_hints([silent]) if "tied" in hint]
    assert said.startswith("warning: m: its config does not say whether the head is tied; it is counted as tied")
    for config in (
        {"model_type": "mistral3", "text_config": text, TIED: True},
        {"model_type": "llava", "text_config": text},  # not tied by either
        {**text},
        {**TINY["gpt2"]},
    ):
        assert not [hint for hint in unknown_hints([load_model("m", config, {})]) if "tied" in hint]


def without_tie(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != TIED}
