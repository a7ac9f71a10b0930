"""Files that name their code, or a type with the computation of another family. Kind: golden, refusal."""

from typing import Any

import pytest

from tests.families import TINY
from tests.families._configs import without
from tests.helpers.published import PUBLISHED
from tests.helpers.weight_files import folder
from tfacct import families, load
from tfacct.base.errors import ConfigError, NotFoundError, UsageError
from tfacct.families import multimodal
from tfacct.families.task_heads import class_ending
from tfacct.families.type_aliases import class_aliases, type_aliases
from tfacct.families.unsupported import unsupported_types
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model

RW_7B = PUBLISHED["refined-web-7b"]


def test_models_that_fill_masks_see_all_tokens_and_keep_nothing() -> None:
    """Dream has the weights of Qwen 2.5."""
    llada, dream = load_model("mine", PUBLISHED["llada-100m"]), load_model("mine", PUBLISHED["dream-7b"])
    for ours in (llada, dream):
        assert not ours.has_cache and not any(part.causal for part in ours.architecture.attentions)
    assert dream.ledger.parameters() == load("qwen2.5-7b").loaded.ledger.parameters()


def test_a_default_of_yis_own_code_is_known() -> None:
    """Fields of other files that must be there: refusals.json."""
    ours = load_model("mine", without(PUBLISHED["yi-6b"], "num_key_value_heads"))
    assert ours.defaulted["num_key_value_heads"] == 4
    assert ours.parameters == load_model("mine", PUBLISHED["yi-6b"]).parameters


def test_fields_and_types_set_over_an_older_file() -> None:
    for name in ("n_layer", "num_hidden_layers"):
        assert len(load_model("mine", RW_7B, {name: 3}).architecture.blocks()) == 3
    tied = load_model("mine", PUBLISHED["llada-100m"], {"weight_tying": True})
    assert tied.parameters == 124_327_616 - 126464 * 448
    with pytest.raises(NotFoundError, match="no field 'n_layers' in falcon"):
        load_model("mine", RW_7B, {"n_layers": 3})
    whole = {
        "model_type": "internvl_chat",
        "llm_config": PUBLISHED["internlm-20b"],
        "vision_config": {"model_type": "intern_vit"},
    }
    ours = load_model("mine", whole)
    assert (ours.family, ours.parameters, ours.left_out) == ("llama", 40_177_428_480 // 2, ("vision_config",))
    fields = {**TINY["llama"], "model_type": "xverse"}
    assert load_model("mine", fields, {"model_type": "llama"}).family == "llama"
    plain = {name: value for name, value in fields.items() if name not in ("attention_bias", "mlp_bias", "head_dim")}
    assert load_model("mine", {**plain, "model_type": "llama"}, {"model_type": "Yi"}).family == "llama"


def test_llamas_body_that_sees_all_tokens() -> None:
    """NVIDIA's models of embeddings; those that score pairs have a head that EuroBERT's class has not."""
    sizes = {name: value for name, value in TINY["llama"].items() if not name.endswith("_bias")}
    fields = {**sizes, "model_type": "llama_bidirec", "architectures": ["LlamaBidirectionalModel"], "pooling": "avg"}
    ours, theirs = load_model("mine", fields), load_model("mine", {**sizes, "architectures": ["LlamaModel"]})
    assert ours.ledger.parameters() == theirs.ledger.parameters()
    assert not ours.has_cache and not any(part.causal for part in ours.architecture.attentions)


@pytest.mark.parametrize(("config", "like"), [(PUBLISHED["llada-2-mini"], "bailing_moe"), (PUBLISHED["sdar"], "qwen3")])
def test_bidirectional_layers_change_no_matmul(config: dict[str, Any], like: str) -> None:
    """LLaDA 2.0's smaller model, published as 16 billion, is Ling-mini's; PUBLISHED["sdar"] is Qwen3's."""
    ours, work = load_model("mine", config), Workload(11, 4, 3).axes()
    own = ("architectures", "norm_head", "rotary_dim", "sliding_window")
    theirs = load_model("mine", {**{name: config[name] for name in config if name not in own}, "model_type": like})
    assert (ours.family, ours.unknown, ours.has_cache) == (like, (), True)
    assert ours.ledger.parameters() == theirs.ledger.parameters()
    assert ours.ledger.flops(work) == theirs.ledger.flops(work) != theirs.ledger.flops(work, masked=True)
    assert ours.ledger.states(work) == theirs.ledger.states(work)
    with pytest.raises(ConfigError, match="tokens see all tokens of their block"):
        ours.ledger.flops(work, masked=True)
    if like == "bailing_moe":
        assert ours.parameters == load("ling-mini-2.0").loaded.parameters == 16_255_638_528


def test_ernie_vls_own_files_have_both_sets_of_experts_in_lists() -> None:
    """As Baidu's files of ERNIE-4.5-VL-28B-A3B: fields of the language model in the whole, layers as a range."""
    whole = {**TINY["ernie4_5_vl_moe_text"], **PUBLISHED["ernie-vl"]}
    later = load_model("mine", {**whole, "moe_layer_start_index": [2, 2]}).architecture
    assert [stack.count for stack in later.stacks] == [2, 1]
    tower = families.read(whole, part="vision")
    assert (tower.family, tower.config.intermediate_size, tower.unknown) == ("ernie4_5_vl_moe_vision", 192, ())


def test_each_type_is_a_family_or_refused_with_the_reason() -> None:
    known = {*families.names(), *multimodal.composites()}
    assert {alias.family for alias in type_aliases().values()} <= known
    assert not known & {*type_aliases(), *unsupported_types()}
    for model_type, named in class_aliases():  # of a family of this name, they are not classes
        prefixes = families.config_class(model_type).class_prefixes if model_type in known else ()
        assert class_ending(named, prefixes) is None
    for model_type, reason in unsupported_types().items():
        with pytest.raises(ConfigError, match=f"model_type '{model_type}' is not supported: [a-z]"):
            load_model("mine", {"model_type": model_type, "hidden_size": 8})
        assert not reason.endswith(".")


def test_internlm2s_first_files_have_the_type_of_internlm() -> None:
    """InternLM's code ignores num_key_value_heads; that of InternLM2, of 7.74 billion parameters, reads it."""
    config = {**load("internlm2.5-7b").config, "model_type": "internlm"}
    assert load_model("mine", config).parameters == 7_737_708_544
    with pytest.raises(ConfigError, match="num_key_value_heads = 8 changes the counts"):
        load_model("mine", {**config, "architectures": ["InternLMForCausalLM"]})


def test_jais_and_its_relatives() -> None:
    """muP's scores are scaled by 1 / d in place of 1 / √d; BTLM is Jais by another name."""
    jais = without(TINY["jais"], "mup_scale_qk_dot_by_d")
    by_width = load_model("jais", {**jais, "mup_scale_qk_dot_by_d": True})
    assert [part.scale for part in by_width.architecture.attentions] == [1 / 7]
    btlm = {**jais, "model_type": "btlm", "architectures": ["BTLMLMHeadModel"]}
    assert load_model("btlm", btlm).ledger.parameters() == load_model("jais", jais).ledger.parameters()


def test_heads_of_older_files() -> None:
    """`v_head` of their own code: one linear layer without a bias, applied at one position."""
    ours = load_model("mine", {**TINY["internlm2"], "architectures": ["InternLM2ForRewardModel"], "reward_token_id": 5})
    body = load_model("mine", {**TINY["internlm2"], "architectures": ["InternLM2Model"]})
    assert ours.ledger.parameters() == {**body.ledger.parameters(), "classifier.weight": 48}


def test_parts_of_a_file_that_are_not_counted_are_named_or_refused() -> None:
    """LLaVA's own files have no config of what sees; a file that names a head after a body has no other part."""
    llava = {**TINY["llama"], "model_type": "llava", "mm_vision_tower": "openai/clip-vit-large-patch14-336"}
    ours = load_model("mine", {**llava, "architectures": ["LlavaLlamaForCausalLM"]})
    with pytest.raises(ConfigError, match="has no vision_config, so it has no vision part to count"):
        ours.of_part("vision")
    with pytest.raises(ConfigError, match="text_config, which is missing"):
        load_model("mine", {**llava, "architectures": ["LlavaMptForCausalLM"]})
    both = {**TINY["gte"], "model_type": "new", "architectures": ["NewModel", "NewForTokenClassification"]}
    with pytest.raises(UsageError, match="has no other parts"):
        load_model("mine", both).of_part("vision")


@pytest.mark.parametrize(
    ("family", "stem", "word"), [("llama", "Llama", "language model"), ("gte", "Gte", "text encoder")]
)
def test_the_hint_for_a_base_model_with_a_head_in_its_file(run, tmp_path, family: str, stem: str, word: str) -> None:
    other = "ForCausalLM" if family == "llama" else "ForMaskedLM"
    file = folder(tmp_path, {**TINY[family], "architectures": [f"{stem}Model", f"{stem}{other}"]}) / "config.json"
    message = run("params", str(file)).err_line
    assert f"only the {word} is counted, without {stem}{other}" in message


def test_the_last_layer_of_each_group_of_bailing_hybrid_has_full_attention() -> None:
    whole = load_model("mine", {**TINY["bailing_hybrid"], "layer_types": None, "layer_group_size": 3})
    (full,) = (group.numbers for group in whole.ledger.groups if group.kind.startswith("latent"))
    assert full == (2,)  # of layers 0 to 3


def test_nv_embed_by_hand() -> None:
    """Over Mistral-7B, 512 rows: products of 4,096 × 8 · 4,096 for queries and the result, a gated MLP of 16,384."""
    tokens = 10 * (2 * 2 * 4096 * 32768 + 2 * 2 * 512 * 32768 + 2 * 3 * 4096 * 16384)  # q, o, scores, values, MLP
    flops = load("nv-embed-v2").loaded.ledger.flops(Workload(10, 10).axes())
    assert sum(count for path, count in flops.items() if path.startswith("pooler")) == tokens + 4 * 512 * 4096 * 32768


def test_layers_of_plamo_3_with_windows_keep_their_angles() -> None:
    scaled = load_model("mine", {**TINY["plamo3"], "rope_scaling_factor": 8.0, "initial_context_length": 16})
    angles = [block.attention.rotary for block in scaled.architecture.blocks()]
    near = (1e4, "default")
    assert [(of.base, of.scaled) for of in angles] == [near, near, (1e6, "yarn"), near]
