"""Each part of a multimodal model is counted as the class of the full model builds it. Kind: golden, refusal."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.multimodal import TIED, text_of
from tests.helpers.multimodal import whole_of as whole_of_text
from tests.helpers.projectors import ALONE, AUDIOS, DEVSTRAL, LLAVA, VISION, VISIONS, whole_of
from tests.helpers.published import PUBLISHED
from tfacct import load
from tfacct.architecture.parts import Attention
from tfacct.base.errors import ConfigError, TfacctError
from tfacct.cli.root import command_of
from tfacct.commands import NAMES
from tfacct.families.projectors import PROJECTORS
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model
from tfacct.reports.build import unknown_hints


@pytest.fixture
def llava(tmp_path: Path) -> str:
    path = tmp_path / "llava.json"
    path.write_text(json.dumps(LLAVA))
    return str(path)


def test_fields_of_towers() -> None:
    """The full model builds it in any case, so another type is refused."""
    raw = {"model_type": "smolvlm", "text_config": text_of("smolvlm"), "vision_config": TINY["clip_vision_model"]}
    older = {**raw, "vision_config": {**TINY["smolvlm_vision"], "model_type": "smolvlm", "use_base_siglip": True}}
    assert load_model("mine", older).of_part("vision").family == "smolvlm_vision"
    # As in its config class: what a `vision_config_dict` says, and its class's defaults, over a `vision_config`.
    older = {"hidden_size": 1024, "num_attention_heads": 16}
    raw = {"model_type": "clip", "text_config": {}, "vision_config": {"hidden_size": 96}, "vision_config_dict": older}
    assert load_model("mine", raw).of_part("vision").config.model_dump()["hidden_size"] == 1024


def test_both_parts_of_an_older_config() -> None:
    """It has the general fields of transformers 4.16; the class's 151,277,313 parameters are these and logit_scale."""
    parts = load_model("mine", PUBLISHED["clip-vit-base-patch32"]).of_parts()
    assert [one.parameters for one in parts] == [63_428_096, 87_849_216]


def test_a_part_alone(run, llava: str) -> None:
    for command in ("params", "flops", "memory"):
        ran = run(command, llava, "--part", "vision", "--json")
        (model,) = ran.models
        assert model["left_out"] == ["text_config", "multi_modal_projector"] and model["family"] == "clip_vision_model"
        assert "only the vision model is counted, without text_config, multi_modal_projector" in ran.err
    # 24² patches of 14 pixels and the class token
    flops = load(LLAVA).part("vision").flops().models[0]
    assert flops["workload"]["tokens"] == 577 == load(LLAVA).part("vision").loaded.context
    plain, text = (run("params", llava, *part, "--json") for part in ((), ("--part", "text")))
    (one,), (other,) = (ran.models for ran in (plain, text))
    assert one["total_params"] == other["total_params"] and one["left_out"] == other["left_out"] == ["vision_config"]
    ran = run("flops", llava, "--part", "vision", "--set", "image_size=224", "--json")
    assert ran.models[0]["workload"]["tokens"] == 257
    assert load(LLAVA).part("vision", image_size=224).loaded.context == 257


WHOLES = {
    **{"llava-1.5-7b": (1024 * 4096 + 4096 + 4096**2 + 4096, 7_063_427_072), "glm-4-1v": (0, 10_292_777_472)},
    **{"qwen2-vl": (0, 8_291_375_616), "qwen2.5-vl": (0, 8_292_166_656), "qwen2.5-vl-3b": (0, 3_754_622_976)},
    **{"qwen3-vl": (0, 8_767_123_696), "paligemma-3b-224": (1152 * 2048 + 2048, 2_923_466_480)},
    "gemma-3-4b": (1152 * 2560 + 1152, 4_300_079_472),  # a norm
    **{"qwen2-audio": (1280 * 4096 + 4096, 8_397_094_912), "qwen2.5-omni": (0, 8_931_813_888)},  # without its talker
}
"""Of published configs, parameters between the parts by hand, and the total of the file."""


@pytest.mark.parametrize("name", WHOLES)
def test_all_parts_add_up_to_the_published_total(name: str) -> None:
    between, total = WHOLES[name]
    apart, joined = (load_model("mine", PUBLISHED[name]).of_parts(*how) for how in ((), ("parameters",)))
    assert sum(one.parameters for one in apart) + between == total == sum(one.parameters for one in joined)


def test_glm_4vs_first_files_have_the_text_models_fields_at_the_top_level() -> None:
    whole = PUBLISHED["glm-4-1v"]
    flat = {**whole["text_config"], **{name: value for name, value in whole.items() if name != "text_config"}}
    assert sum(one.parameters for one in load_model("mine", flat).of_parts()) == WHOLES["glm-4-1v"][1]


def test_both_parts_are_answered_together(run, llava: str) -> None:
    ran = run("params", llava, "--part", "both")
    assert ran.out.splitlines()[0] == "7,063,427,072 parameters together." and "warning" not in ran.err
    document = run("params", llava, "--part", "both", "--json").document
    assert document["answer"] == "7,063,427,072 parameters together."
    assert [(one["model"], one["total_params"]) for one in document["models"]] == [
        ("llava.json:text", 6_738_939_904),
        ("llava.json:vision", 303_507_456 + WHOLES["llava-1.5-7b"][0]),
    ]
    for asked, says in (
        ("flops --set hidden_size=64", "--set changes one part, not --part both"),
        ("flops --ctx 64", "--part both does not work with --ctx"),
        ("memory --on 24GiB", "--part both does not work with --on"),  # each part would be given all of it
    ):
        command, *more = asked.split()
        ran = run(command, llava, "--part", "both", *more)
        assert (ran.code, ran.out) == (2, "") and says in ran.err_line


def test_a_thinker_answers_for_its_encoder_of_images() -> None:
    """Qwen2.5-Omni's, in a config of several models: the talker is not counted."""
    vision = {**TINY["qwen2_5_omni_vision_encoder"]}
    thinker = {"text_config": text_of("qwen2_5_omni_thinker"), "audio_config": {"d_model": 8}, "vision_config": vision}
    whole = {"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": {"hidden_size": 9}}
    alone = load_model("alone", {"model_type": "qwen2_5_omni_thinker", **thinker}).of_part("vision")
    inside = load_model("mine", whole).of_part("vision")
    assert inside.ledger.parameters() == alone.ledger.parameters() == load_model("own", vision).ledger.parameters()
    assert inside.left_out == ("text_config", "audio_config", "talker_config")


def with_part() -> list[str]:
    """Commands that take --part."""
    return [name for name in NAMES if command_of(name).takes == "models"]


@pytest.mark.parametrize("command", with_part())
def test_every_command_refuses_a_part_of_one_model(run, command: str) -> None:
    part = ("text", "vision", "audio", "both")[len(command) % 4]
    more = {"explore": ["--output", "-"]}.get(command, [])
    ran = run(command, "gpt2", "--part", part, *more)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err_line == (f"error: gpt2 has no other parts: --part {part} does not apply hint: leave it out")


def test_how_a_part_of_a_quantized_whole_is_stored_is_not_guessed(run, tmp_path: Path) -> None:
    """Published files leave the encoder in bf16, although the rules for names include it."""
    (path := tmp_path / "whole.json").write_text(json.dumps({**LLAVA, "quantization_config": {"quant_method": "fp8"}}))
    assert run("params", str(path), "--part", "vision", "--json").models[0]["total_params"] == (303_507_456)
    assert run("flops", str(path), "--part", "vision").code == 0
    ran = run("memory", str(path), "--part", "vision")
    assert ran.code == 2 and "the format of this part is not supported" in ran.err_line
    assert "give --dtype bf16 or another format" in ran.err_line
    assert run("memory", str(path), "--part", "vision", "--dtype", "bf16").code == 0


FP8: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}


def weights_of(run, path: Path, *more: str) -> list[int]:
    document = run("memory", str(path), "--part", "both", "--json", *more).document
    return [one["weights_bytes"] for one in document["models"]]


def test_the_context_of_the_text_model_leaves_an_encoder_counted(run, tmp_path: Path) -> None:
    """The weights of a CLIP of 577 positions do not depend on the context of the language model."""
    (path := tmp_path / "llava.json").write_text(json.dumps({**LLAVA, "dtype": "bfloat16"}))
    whole = sum(weights_of(run, path))
    assert whole == 2 * sum(one.parameters for one in load_model("mine", LLAVA).of_parts("parameters"))
    for more in (["--ctx", "1k"], ["--ctx", "8k"], ["--ctx", "1k", "--batch", "3"]):
        ran = run("memory", str(path), "--part", "both", *more)
        assert sum(weights_of(run, path, *more)) == whole and " together." in ran.out.splitlines()[0]
        assert "llava.json:vision" not in ran.err
    document = run("memory", str(path), "--part", "both", "--ctx", "1k", "--json").document
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
    assert ran.out_line.startswith("Not included: devstral.json:vision. 23.4 GiB: 23.2 GiB of weights")
    document = run("memory", str(path), "--part", "both", "--ctx", "1k", "--json").document
    assert document["models"][0]["left_out"] == ["devstral.json:vision"]


def test_parts_that_are_not_counted_are_named(run, llava: str, tmp_path: Path) -> None:
    err = run("memory", "--kv", llava, "--part", "both").err
    assert "two models" not in err and "only the language model is counted" in " ".join(err.split())
    assert "llava.json:vision" in err
    # A perceiver reads as many rows as its images have: its parameters are counted, and its work is not.
    (path := tmp_path / "idefics2.json").write_text(json.dumps(whole_of("idefics2")))
    ran = run("flops", str(path), "--part", "both")
    assert ran.out.splitlines()[0].endswith(" FLOPs together, without connector.")
    assert "two models are counted, without connector" in ran.err_line
    document = run("flops", str(path), "--part", "both", "--json").document
    assert [one["left_out"] for one in document["models"]] == [["connector"]] * 2


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


def test_the_projector_is_counted_and_named(run, tmp_path: Path) -> None:
    """Devstral Small 2: 24,011,361,280 parameters in its class, 1,024 + 4,096 · 1,024 + 1,024 · 5,120 + 5,120² of them
    in the projector."""
    (path := tmp_path / "devstral.json").write_text(json.dumps(DEVSTRAL))
    projector = 1024 + 4096 * 1024 + 1024 * 5120 + 5120**2
    assert projector == 35_652_608
    named = {
        "params": ("24,011,361,280 parameters together.", " 35.7 M "),
        "memory": (" GiB together.", "devstral.json:vision includes the projector: 35,652,608 parameters."),
    }
    for command, (answer, size) in named.items():
        ran = run(command, str(path), "--part", "both")
        assert ran.out.splitlines()[0].endswith(answer) and "warning" not in ran.err
        assert size in ran.out_line
        document = run(command, str(path), "--part", "both", "--json").document
        assert sum(one["total_params"] for one in document["models"]) == 24_011_361_280
        assert [one["left_out"] for one in document["models"]] == [[], []]
    # 110 x 110 patches, of which four become one row in the first product.
    rows = 110 * 110 // 4
    products = {
        "projector.patch_merger.merging_layer": 2 * rows * 4096 * 1024,
        "projector.linear_1": 2 * rows * 1024 * 5120,
        "projector.linear_2": 2 * rows * 5120**2,
    }
    document = run("flops", str(path), "--part", "both", "--json").document
    assert document["answer"].endswith(" FLOPs together.")
    text, vision = document["models"]
    assert text["left_out"] == vision["left_out"] == []
    assert {one["path"]: one["flops"] for one in vision["lines"] if "projector" in one["path"]} == products
    alone = run("flops", str(path), "--part", "vision", "--json").models[0]["total_flops"]
    assert vision["total_flops"] - alone == vision["components"]["projector"] == sum(products.values())


@pytest.mark.parametrize("projector", ["parameters", "work"])
def test_a_projector_after_an_encoder_of_any_type_is_counted_or_refused(projector: Any) -> None:
    """Full models that build the encoder named in the config: it may lack sizes that the projector needs."""
    found = set()
    for whole in PROJECTORS.keys() - {*AUDIOS, *ALONE, "t5gemma2"}:
        for tower in {tower.type for tower in VISIONS.values()}:
            try:
                both = load_model("mine", {**whole_of(whole), "vision_config": TINY[tower]}).of_parts(projector)
                found.add(both[-1].architecture.projector is not None)
            except TfacctError as error:
                found.add(str(error).partition(":")[0])
    assert found == ({True, "mine", False} if projector == "work" else {True, "mine"})


TOWER = {"vision_config": {"hidden_size": 9}}


@pytest.mark.parametrize(
    ("whole", "of_whole", "of_text"), [("shieldgemma2", {TIED: False}, {}), ("lfm3_vl", {}, {TIED: False})]
)
def test_a_word_on_the_head_in_the_config_that_the_class_does_not_ask_is_not_enough(
    whole: str, of_whole: dict, of_text: dict
) -> None:
    """Each class takes it from the other config or its default, so the model would have another head."""
    inside = {"shieldgemma2": "gemma3_text", "lfm3_vl": "lfm2"}[whole]
    raw = {"model_type": whole, **of_whole, "text_config": {**TINY[inside], "model_type": inside, **of_text}}
    if not of_text:
        raw["text_config"].pop(TIED, None)
    with pytest.raises(ConfigError, match="does not say whether its head is tied"):
        load_model("mine", raw)


@pytest.mark.parametrize("text", ["gemma", "gemma2"])
def test_a_prefix_changes_no_product_and_its_pairs_are_refused(text: str) -> None:
    """PaliGemma's class writes use_bidirectional_attention; published configs leave it out, or say null."""
    plain, work = load_model("mine", TINY[text]), Workload(11, 7, 3).axes()
    for fields in ({}, {"use_bidirectional_attention": None}, {"use_bidirectional_attention": True}):
        ours = load_model("mine", {"model_type": "paligemma", "text_config": {**TINY[text], **fields}, **TOWER})
        assert ours.ledger.flops(work) == plain.ledger.flops(work)
        assert ours.ledger.states(work) == plain.ledger.states(work)
        with pytest.raises(ConfigError, match="visible pairs cannot be counted"):
            ours.ledger.flops(work, masked=True)
    causal = {**TINY[text], "use_bidirectional_attention": False}
    ours = load_model("mine", {"model_type": "paligemma", "text_config": causal, **TOWER})
    assert ours.ledger.flops(work, masked=True) == plain.ledger.flops(work, masked=True)


def test_fields_that_a_full_models_class_omits_or_fixes() -> None:
    """LLaVA 1.5's text_config has little more than the vocabulary: its class takes the rest from Llama's defaults."""
    raw = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}, **TOWER}
    ours = load_model("mine", raw)
    assert ours.left_out == ("vision_config",)
    assert ours.defaulted.items() >= {"hidden_size": 4096, "num_hidden_layers": 32, TIED: False}.items()
    # 32,064 rows in table and head, 32 · 4,096 · (4 · 4,096 + 3 · 11,008 + 2) + 4,096: Vicuna 7B and 64 tokens more.
    blocks = 32 * 4096 * (4 * 4096 + 3 * 11008 + 2)
    assert sum(ours.ledger.parameters().values()) == 2 * 32064 * 4096 + blocks + 4096 == 6_738_939_904
    # GLM-4V's queries always have biases, and its heads share the hidden size.
    raw = whole_of_text("glm4v", {}, {})
    parts = load_model("mine", raw).architecture.parts()
    assert {part.head_dim for part in parts if isinstance(part, Attention)} == {20}
    raw["text_config"]["attention_bias"] = False
    with pytest.raises(ConfigError, match="attention_bias = false is ignored by the class of glm4v_text"):
        load_model("mine", raw)


def test_an_unknown_full_model_is_read_if_its_config_is_sufficient() -> None:
    raw = {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], **TOWER}
    text = {**TINY["qwen2"], "architectures": ["Qwen2ForCausalLM"]}
    ours = load_model("mine", {**raw, "llm_config": text})
    assert (ours.family, ours.left_out) == ("qwen2", ("vision_config",))
    assert ours.architecture == load_model("alone", text).architecture
    repeated = load_model("mine", {**raw, "llm_config": {**text, "architectures": raw["architectures"]}})
    assert repeated.architecture == ours.architecture
    with pytest.raises(ConfigError, match="is not a class of qwen2"):
        load_model("mine", {**raw, "llm_config": {**text, "architectures": ["OtherModel"]}})
    without_tie_field = {name: value for name, value in text.items() if name != TIED}
    with pytest.raises(ConfigError, match="the config does not say whether its head is tied"):
        load_model("mine", {**raw, "llm_config": without_tie_field})
    with pytest.raises(ConfigError, match="contradicts itself on whether its head is tied"):
        load_model("mine", {**raw, "llm_config": text, TIED: False})
    with pytest.raises(ConfigError, match="vocab_size = 7 of 'internvl_chat' contradicts 73 in its llm_config"):
        load_model("mine", {**raw, "llm_config": text, "vocab_size": 7})
    with pytest.raises(ConfigError, match="unknown model_type 'internvl_chat'"):  # an encoder is no language model
        load_model("mine", {**raw, "text_config": TINY["bert"]})


WINDOWED = {"use_sliding_window": True, "layer_types": ["sliding_attention"]}


@pytest.mark.parametrize(
    ("whole", "fields"),
    [
        *((whole, {"head_dim": 6}) for whole in ("glm4v", "glm46v", "glmga", "qwen2_vl", "qwen2_5_vl")),
        *((whole, WINDOWED) for whole in ("qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe_thinker", "cosmos3_omni")),
        *((whole, {"layer_types": 3}) for whole in ("qwen3_vl", "qwen3_omni_moe_thinker")),
    ],
)
def test_a_field_that_the_inner_class_does_not_read_is_refused(whole: str, fields: dict[str, Any]) -> None:
    """GLM-4V's and Qwen2-VL's heads share the hidden size; Qwen3-VL's layers see everything. What is set on the command
    line does not reach a text_config before it is read, so the hint is about the file."""
    raw = whole_of_text(whole, {}, {})
    for field in ("use_sliding_window", "layer_types", "head_dim"):
        if field in fields:
            with pytest.raises(ConfigError, match=rf"{field} = .* is ignored by the class of \w+") as caught:
                load_model("mine", {**raw, "text_config": {**raw["text_config"], field: fields[field]}})
            assert caught.value.hint == "remove it from the file"


def test_a_head_tied_only_by_the_full_config_is_named() -> None:
    """Mistral 3: published files have an untied head, which their config does not mention."""
    text = {**without_tie(TINY["mistral"]), "model_type": "mistral"}
    silent = load_model("m", {"model_type": "mistral3", "text_config": text}, {})
    (hint,) = [hint for hint in unknown_hints([silent]) if "tied" in hint]
    assert hint.startswith("warning: m: the config does not set tie_word_embeddings, so the head counts as tied")
    for config in (
        {"model_type": "mistral3", "text_config": text, TIED: True},
        {"model_type": "llava", "text_config": text},  # not tied by either
        {**text},
        {**TINY["gpt2"]},
    ):
        assert not [hint for hint in unknown_hints([load_model("m", config, {})]) if "tied" in hint]


def without_tie(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != TIED}
