"""Multimodal configs: the language model is counted as the full class builds it, and the other parts are named.
Kind: golden, refusal.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.multimodal import TIED, whole_of
from tfacct.architecture.parts import Attention
from tfacct.base.errors import ConfigError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model
from tfacct.reports.build import unknown_hints

TOWER = {"vision_config": {"hidden_size": 9}}


@pytest.mark.parametrize(
    ("whole", "of_whole", "of_text"), [("shieldgemma2", {TIED: False}, {}), ("lfm3_vl", {}, {TIED: False})]
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


def test_what_the_class_of_a_whole_leaves_out_and_fixes() -> None:
    """LLaVA 1.5's text_config gives little more than the vocabulary: the rest is Llama's, as its class has it."""
    raw = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}, **TOWER}
    ours = load_model("mine", raw)
    assert ours.left_out == ("vision_config",)
    assert ours.defaulted.items() >= {"hidden_size": 4096, "num_hidden_layers": 32, TIED: False}.items()
    # 32,064 rows in table and head, 32 · 4,096 · (4 · 4,096 + 3 · 11,008 + 2) + 4,096: Vicuna 7B and 64 tokens more.
    blocks = 32 * 4096 * (4 * 4096 + 3 * 11008 + 2)
    assert sum(ours.ledger.parameters().values()) == 2 * 32064 * 4096 + blocks + 4096 == 6_738_939_904
    # GLM-4V's queries always have biases, and its heads share the hidden size.
    raw = whole_of("glm4v", {}, {})
    assert {part.head_dim for part in load_model("mine", raw).architecture.parts() if isinstance(part, Attention)} == {
        20
    }
    raw["text_config"]["attention_bias"] = False
    with pytest.raises(ConfigError, match="attention_bias = false is ignored by the class of glm4v_text"):
        load_model("mine", raw)


def test_a_whole_that_nobody_knows_is_read_where_its_config_says_enough() -> None:
    raw = {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], **TOWER}
    text = {**TINY["qwen2"], "architectures": ["Qwen2ForCausalLM"]}
    ours = load_model("mine", {**raw, "llm_config": text})
    assert (ours.family, ours.left_out) == ("qwen2", ("vision_config",))
    assert ours.architecture == load_model("alone", text).architecture
    unsaid = {name: value for name, value in text.items() if name != TIED}
    with pytest.raises(ConfigError, match="the config does not say whether its head is tied"):
        load_model("mine", {**raw, "llm_config": unsaid})
    with pytest.raises(ConfigError, match="contradicts itself on whether its head is tied"):
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
            with pytest.raises(ConfigError, match=rf"{field} = .* is ignored by the class of \w+") as caught:
                load_model("mine", {**raw, "text_config": {**raw["text_config"], field: said[field]}})
            assert caught.value.hint == "remove it from the file"


def test_a_head_tied_by_the_whole_alone_is_said() -> None:
    """Of Mistral 3: files are published with a head of their own whose config says nothing of it."""
    text = {**without_tie(TINY["mistral"]), "model_type": "mistral"}
    silent = load_model("m", {"model_type": "mistral3", "text_config": text}, {})
    (said,) = [hint for hint in unknown_hints([silent]) if "tied" in hint]
    assert said.startswith("warning: m: the config does not set tie_word_embeddings, so the head counts as tied")
    for config in (
        {"model_type": "mistral3", "text_config": text, TIED: True},
        {"model_type": "llava", "text_config": text},  # not tied by either
        {**text},
        {**TINY["gpt2"]},
    ):
        assert not [hint for hint in unknown_hints([load_model("m", config, {})]) if "tied" in hint]


def without_tie(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != TIED}
