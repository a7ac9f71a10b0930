"""Every family: what is read from its config, and what its test configs cover. Kind: law."""

import re
from pathlib import Path

import pytest

from tests.families import LOGITS, SHAPES, TINY, names
from tests.helpers.models import by_kind, every_step, kind
from tfacct import families, load
from tfacct.base.errors import ConfigError, NotFoundError
from tfacct.families.known_fields import meant_field
from tfacct.families.registry import newest_first, released
from tfacct.loading import presets
from tfacct.loading.model import load_model

CUSTOM = "custom"
FAMILIES = families.names()
WITH_CLASS = [name for name in FAMILIES if families.config_class(name).hf_modules]


def test_tests_know_every_family_and_list_them_nowhere_else() -> None:
    assert names() == FAMILIES
    # Only tests/families lists them: another list of most families would have to be maintained by hand.
    here = Path(__file__).parents[1]
    texts = {path.name: path.read_text() for path in here.rglob("*.py")}
    counts = {file: sum(f'"{name}": ' in text for name in WITH_CLASS) for file, text in texts.items()}
    assert [file for file, count in counts.items() if count > len(WITH_CLASS) // 3] == []


@pytest.mark.parametrize("name", SHAPES)
def test_the_shapes_are_of_their_family_and_read_whole(name: str) -> None:
    """No field of a small config is unknown or left out."""
    reading = families.read(SHAPES[name])
    assert reading.family == name.partition(",")[0]
    assert reading.unknown == () and reading.left_out == ()


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_meets_its_expected_total(name: str) -> None:
    model = load(name)
    assert model.params().total == model.loaded.expected


def test_the_field_that_another_name_of_the_context_means_changes_the_context() -> None:
    fields = {name: meant_field("n_ctx", families.config_class(name).model_fields) for name in FAMILIES}
    assert fields["gpt2"] == "n_positions" and fields["mpt"] == "max_seq_len"
    for name, field in fields.items():
        given = load_model("small", TINY[name]).context
        assert field is None or load_model("small", TINY[name], {field: given + 9}).context != given, name


def test_the_words_of_other_libraries_mean_the_fields_of_a_family() -> None:
    words = "dim layers heads vocab top_k experts head_size".split()
    meant = {
        name: [meant_field(word, families.config_class(name).model_fields) for word in words]
        for name in ("mixtral", "gpt2")
    }
    llama = ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
    assert meant["mixtral"] == [*llama, "num_experts_per_tok", "num_local_experts", "head_dim"]
    assert meant["gpt2"] == ["n_embd", "n_layer", "n_head", "vocab_size", None, None, None]
    for name in FAMILIES:
        field = getattr(families.config_class(name), "expert_top_k", "")
        fields = families.config_class(name).model_fields
        assert field not in fields or meant_field("top_k", fields) == field, name


AXIS_FIELDS = {
    **{"V": ("vocab_size",), "Vs": ("type_vocab_size",), "P": ("max_position_embeddings",), "D": ("hidden_size",)},
    **{"F": ("intermediate_size",), "N": ("num_attention_heads",), "K": ("num_key_value_heads",), "H": ("head_dim",)},
    **{"W": ("sliding_window",), "E": ("num_experts", "num_local_experts", "n_routed_experts")},
    **{"A": ("num_experts_per_tok",), "Fe": ("moe_intermediate_size",), "R": ("kv_lora_rank",)},
    **{"Rq": ("q_lora_rank",), "Hp": ("qk_nope_head_dim",), "Hr": ("qk_rope_head_dim",), "Hv": ("v_head_dim",)},
    "Ns": ("state_size", "ssm_state_size", "mamba_d_state"),
}
"""The config field that an axis has its size from."""
OTHER_SIZES = {
    **{key: {"P": 39} for key in ("bart", "biogpt", "mbart", "mvp", "plbart")},  # two rows more than 37 positions
    "fsmt": {"P": 43},
    "opt": {"P": 61},
    "cohere2_moe": {"F": 71},  # prefix_dense_intermediate_size
    "llama4_text": {"F": 71},  # intermediate_size_mlp
    "minimax_m3_vl_text": {"F": 71},  # dense_intermediate_size
    **{key: {"F": 37} for key in ("glm4v_vision", "glm4v_moe_vision")},  # out_hidden_size
    "lfm2": {"F": 78},  # 97 · 2 // 3 · 1.1, rounded up to a multiple of 13
    **{"qwen": {"F": 83}, "recurrent_gemma": {"F": 37}},  # half of 166 and of 74: gate and up projection together
    "qwen2_vl_vision": {"D": 48},  # embed_dim
}
"""Axes with another size in small configs of the family."""


@pytest.mark.parametrize("name", [name for name in SHAPES if name != CUSTOM])
def test_an_axis_has_the_size_of_its_field(name: str) -> None:
    reading = families.read(SHAPES[name])
    found: dict[str, set[object]] = {}
    for group in reading.architecture.ledger().groups:
        for axis, size in group.axes.items():
            found.setdefault(axis, set()).add(size)
    other = {
        (axis, *found[axis])
        for axis, fields in AXIS_FIELDS.items()
        for field in fields
        if isinstance(size := getattr(reading.config, field, None), int) and size not in found.get(axis, {size})
    }
    assert other == {*OTHER_SIZES.get(reading.family, {}).items()}


def test_families_are_listed_newest_first() -> None:
    """Some months are those of papers; each family except custom models has its own."""
    known = {"bert": "2018-10", "gpt2": "2019-02", "llama": "2023-02", "qwen3": "2025-04"}
    assert {name: released(name) for name in known} == known
    assert [name for name in FAMILIES if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", released(name))] == [CUSTOM]
    assert newest_first(["gpt2", "qwen3", "bert", "llama"]) == ["qwen3", "llama", "gpt2", "bert"]
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    rows = re.findall(r"^\| \[(.+?)\]\((.+?)#(.+?)\) ", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == newest_first(FAMILIES)
    for name, file, anchor in rows:
        assert name == anchor
        assert f"\n## {name}\n" in (Path(__file__).parents[2] / "docs" / file).read_text()


def test_logits_are_asked_of_every_family_that_can_be() -> None:
    """Six weigh experts in ways of their own, and CodeGen lays out its one product in pieces."""
    asked = {name.partition(" ")[0] for name in LOGITS}
    assert asked <= set(WITH_CLASS)
    others = "gpt_oss phimoe minimax_m2 solar_open kolibri1 codegen openai_privacy_filter".split()
    assert set(WITH_CLASS) - asked == {*others}


def test_one_call_reads_a_config_and_its_changed_fields() -> None:
    reading = families.read({**TINY["llama"], "note": "mine"}, {"head_dim": 12, "num_hidden_layers": 5})
    assert (reading.family, reading.unknown, reading.left_out) == ("llama", ("note",), ())
    assert reading.fields == {**TINY["llama"], "note": "mine", "head_dim": 12, "num_hidden_layers": 5}
    assert reading.defaulted == {"tie_word_embeddings": False}
    assert reading.architecture == reading.config.transformer()
    assert len(reading.architecture.blocks()) == 5
    reading = families.read(TINY["gpt2"], {"hidden_size": 48})  # under another name in the file
    assert "n_embd" not in reading.fields and reading.fields["hidden_size"] == reading.architecture.embed.hidden == 48
    reading = families.read(TINY[CUSTOM], {"decoder.layers": 4})
    assert reading.family == CUSTOM and reading.fields["decoder.layers"] == 4 and reading.fields["model.hidden"] == 48
    assert len(reading.architecture.blocks()) == 4
    raw = {"model_type": "gemma3", "text_config": TINY["gemma3_text"], "vision_config": {"hidden_size": 9}}
    reading = families.read(raw, {"num_hidden_layers": 2})
    assert (reading.family, reading.left_out) == ("gemma3_text", ("vision_config",))
    assert reading.fields["num_hidden_layers"] == 2 and reading.architecture.embed.vocab == 127


def test_loading_asks_families_one_question_and_names_the_model() -> None:
    with pytest.raises(NotFoundError) as caught:
        families.read(TINY["llama"], {"head_dimm": 12})
    assert caught.value.message == "no field 'head_dimm' in llama"
    with pytest.raises(ConfigError) as caught:
        families.read({**TINY["llama"], "model_type": "lama"}, {"anything": 1})
    assert caught.value.message == "unknown model_type 'lama'"
    with pytest.raises(NotFoundError) as caught:
        load_model("mine", TINY["llama"], {"head_dimm": 12})
    assert caught.value.message == "mine: no field 'head_dimm' in llama"
    # loading calls one function of families.
    text = (Path(families.__file__).parent.parent / "loading" / "model.py").read_text()
    assert re.findall(r"\bfamilies\.(\w+)", text) == ["read"]


def test_every_trait_is_in_a_shape_that_is_not_slow() -> None:
    """Slow shapes differ in sizes, biases and norms, or combine layers that other shapes have; every shape has a
    step."""
    params = by_kind(SHAPES)
    asked = [param.id for param in params if not param.marks]
    assert [param.id for param in params] == list(SHAPES)
    every = frozenset[object]().union(*map(kind, SHAPES))
    assert frozenset[object]().union(*map(kind, asked)) == every and len(every) // 4 < len(asked) < len(every)
    alone = [
        name for name in asked if not kind(name) <= frozenset[object]().union(*(kind(n) for n in asked if n != name))
    ]
    assert {"dots3_note_text", "deepseek_v2, absorbed", "deepseek_v4", "zamba2"} <= {*alone}
    steps = every_step(("whole", "part"), "part", "whole")
    assert {param.values[0] for param in steps if not param.marks} == set(SHAPES)
    assert len(steps) == 2 * len(SHAPES) > sum(not param.marks for param in steps)
