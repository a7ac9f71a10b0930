"""Language models in multimodal models, compared with the class of the full model. Kind: oracle."""

from pathlib import Path

import pytest

from tests.families import TINY
from tests.helpers.lazy import lazy
from tests.helpers.multimodal import (
    COMPOSITES,
    NOT_BUILT,
    QWEN_VL,
    TEXT_MODELS,
    TIED,
    _files_agree,
    agree,
    of_head,
    whole_of,
)
from tfacct import families
from tfacct.base.errors import ConfigError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model

hf, transformers = lazy("tfacct.reference.hf"), lazy("transformers")

TIES = ({}, {TIED: True}, {TIED: False})
QUICK = [
    *(("llava", {}, {TIED: True}), ("mistral3", {}, {}), ("voxtral", {TIED: True}, {TIED: True}), ("qwen2_vl", {}, {})),
    *(("qwen3_vl_moe", {TIED: True}, {}), ("gemma4_unified", {}, {}), ("granite4_vision", {}, {TIED: True})),
    *(
        ("hunyuan_vl", {TIED: False}, {}),
        ("nemotron_h_omni", {TIED: True}, {}),
        ("gemma3", {TIED: False}, {TIED: True}),
    ),
    ("paddleocr_vl", {TIED: False}, {TIED: False}),
]
BUILT = [name for name in COMPOSITES if name not in NOT_BUILT]
EVERY = [
    pytest.param(whole, of_whole, of_text, marks=[pytest.mark.slow] * ((whole, of_whole, of_text) not in QUICK))
    for whole in BUILT
    for of_whole in TIES
    for of_text in TIES
    if not (whole == "nemotron_h_omni" and of_text.get(TIED))  # its language model refuses a tied head
]


@pytest.mark.parametrize(("whole", "of_whole", "of_text"), EVERY)
def test_the_language_model_is_that_of_the_full_model_with_any_tied_head(
    whole: str, of_whole: dict, of_text: dict
) -> None:
    raw = whole_of(whole, of_whole, of_text)
    agree({**raw, **of_head(raw)})


FILES = ("llava", "idefics2", "kimi_k25", "emu3")


@pytest.mark.parametrize(
    "whole", [pytest.param(whole, marks=[pytest.mark.slow] * (whole not in FILES)) for whole in BUILT]
)
def test_tensors_of_the_language_model_have_lines_in_the_full_model(whole: str, tmp_path: Path) -> None:
    _files_agree(whole, tmp_path)


def test_a_class_that_builds_any_language_model_of_its_kind_asks_for_the_type() -> None:
    """GLM-4.6V's: dense by default, with experts if the config says so."""
    experts = whole_of("glm4v_moe", {}, {})
    agree(
        {**experts, "model_type": "glm46v", "text_config": {**experts["text_config"], "model_type": "glm4v_moe_text"}}
    )


def test_an_untied_head_that_the_whole_makes_has_the_language_models_sizes_or_is_refused() -> None:
    """Ovis2's class takes hidden_size and vocab_size of its head from the full config: 1,536 and 151,643 by default."""
    raw = whole_of("ovis2", {TIED: False}, {})
    sizes = of_head(raw)
    agree({**raw, **sizes})
    agree(whole_of("ovis2", {TIED: True}, {}))
    with pytest.raises(ConfigError, match=r"hidden_size = 1536 of 'ovis2' \(class default\), the size of its head"):
        load_model("mine", raw)
    with pytest.raises(ConfigError, match="vocab_size = 7 of 'ovis2', the size of its head, contradicts"):
        load_model("mine", {**raw, **sizes, "vocab_size": 7})


@pytest.mark.parametrize(
    ("whole", "of_whole", "of_text"),
    [("ovis2", {}, {TIED: False}), ("vibevoice", {TIED: True}, {TIED: False}), ("vibevoice", {TIED: True}, {})],
)
def test_a_word_on_the_head_that_the_class_does_not_read_changes_nothing(
    whole: str, of_whole: dict, of_text: dict
) -> None:
    agree(whole_of(whole, of_whole, of_text))


def test_a_flat_config_is_read_as_its_class_reads_it() -> None:
    """Qwen2-VL's published configs have the language model's fields among those of the full model."""
    flat = {**{name: value for name, value in QWEN_VL.items() if name != TIED}, "model_type": "qwen2_vl"}
    raw = {**flat, "pad_token_id": 0, "architectures": ["Qwen2VLForConditionalGeneration"], "vision_token_id": 3}
    agree(raw)
    agree({**raw, TIED: True})
    ours = load_model("mine", {**raw, "vision_config": {"depth": 2}})
    assert (ours.family, ours.left_out, ours.unknown) == ("qwen2", ("vision_config",), ())


@pytest.mark.parametrize("name", [name for name in families.names() if families.config_class(name).nested_defaults])
def test_absent_inner_sizes_are_those_of_the_class(name: str) -> None:
    family = families.config_class(name)
    made = transformers.AutoConfig.for_model(family.hf_model_type or name)
    assert family.nested_defaults == {size: getattr(made, size) for size in family.nested_defaults}


@pytest.mark.parametrize("name", [name for name, text in TEXT_MODELS.items() if text.sizes])
def test_absent_sizes_of_a_text_config_are_those_of_its_class(name: str) -> None:
    made = transformers.AutoConfig.for_model({"phi4_multimodal_text": "phi4_multimodal"}.get(name, name))
    assert TEXT_MODELS[name].sizes == {size: getattr(made, size) for size in TEXT_MODELS[name].sizes}
    uneven = {"head_dim": 16} if made.hidden_size % made.num_attention_heads else {}  # the class does not run without
    ours = load_model("mine", {"model_type": name, **uneven})
    assert {size: ours.defaulted[size] for size in TEXT_MODELS[name].sizes if size in ours.defaulted} != {}
    theirs = made.to_dict()  # a size that layers have of their own is no attribute
    read = {field: getattr(ours.config, field) for field in ours.config.counted() if field in theirs}
    given = {field: value for field, value in read.items() if value is not None and field != TIED}  # the whole's
    assert given == {field: theirs[field] for field in given}


@pytest.mark.parametrize("fields", [{}, {"head_dim": 96}])
def test_heads_of_glm_ocr_share_the_hidden_size_where_their_own_is_left_out(fields: dict[str, int]) -> None:
    """Its class reads head_dim if the config has it; GLM-4's family has a default of its own."""
    raw = {"model_type": "glm_ocr_text", "num_hidden_layers": 1, "architectures": ["GlmOcrTextModel"], **fields}
    theirs = hf.parameters(hf.build(raw, "AutoModel"))
    ours = load_model("mine", {**raw, "architectures": ["Glm4Model"]})
    assert sum(ours.ledger.parameters().values()) == sum(theirs.values())
    assert ours.config.head_dim == fields.get("head_dim", 64)
    assert ours.defaulted.get("head_dim") == (None if fields else 64)


@pytest.mark.parametrize("whole", [name for name in COMPOSITES if COMPOSITES[name].fill])
def test_sizes_that_the_full_config_sets_are_those_of_its_class(whole: str) -> None:
    made = transformers.AutoConfig.for_model(whole, text_config={"model_type": COMPOSITES[whole].text}).text_config
    assert COMPOSITES[whole].fill == {size: getattr(made, size) for size in COMPOSITES[whole].fill}


@pytest.mark.parametrize("window", [5, 6, 64])
@pytest.mark.parametrize("name", ["Gemma3TextModel", "Gemma3ForCausalLM"])
def test_gemma_3_that_looks_both_ways_is_an_encoder(name: str, window: int) -> None:
    """As EmbeddingGemma is. A window of 5, or of 4, is two tokens before and two after: the class halves it."""
    from tests.helpers.classes import agree

    fields = {"use_bidirectional_attention": True, "sliding_window": window, "architectures": [name]}
    ours = load_model("mine", {**TINY["gemma3_text"], **fields})
    agree(ours, Workload(11, 11, 3), Workload(3, 3, 2))
    assert not ours.has_cache and ours.architecture.stacks[0].block.sublayers[0].part.window == window // 2 * 2 + 1


def test_verify_names_the_class(run) -> None:
    """transformers has none for kimi_k2: its configs come with code of their own."""
    fields = ("num_hidden_layers=2", "hidden_size=64", "n_routed_experts=8", "vocab_size=61", "num_attention_heads=4")
    sets = [f"--set={field}" for field in (*fields, "num_key_value_heads=4")]
    out = run("verify", "kimi-k2", "--against", "transformers", "--ctx", "9", *sets).out
    assert "transformers has no class for kimi_k2; using the deepseek_v3 class." in " ".join(out.split())
    assert "All 14 totals" not in out and "totals agree exactly" in out  # its expected total is that of all its layers
