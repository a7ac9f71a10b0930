"""Config fields that are absent, null or changed, in every family, compared with the transformers class. Kind:
oracle.

An absent field has its class's default, which may follow from other fields; so a test changes those others. Where this
program refuses a config, or the class does, there is nothing to compare.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from tests.families import ASKED, FACTS, TINY, is_asked
from tests.helpers.lazy import lazy
from tests.helpers.multimodal import COMPOSITES, NOT_BUILT, TIED, agree, built, of_head, theirs, whole_of
from tfacct import families
from tfacct.base.errors import ConfigError
from tfacct.families.known_fields import NO_NULLS
from tfacct.loading.model import load_model

hf, transformers = lazy("tfacct.reference.hf"), lazy("transformers")

FAMILIES = [name for name in families.names() if is_asked(name) and families.config_class(name).hf_modules]
LAYERS = frozenset(
    "n_layer n_layers num_hidden_layers num_layers encoder_layers decoder_layers num_decoder_layers".split()
)
SHALLOW = 12
"""Layers of a model that the class builds quickly."""
MEANS_THE_SAME: Mapping[tuple[str, str], str] = {
    ("bailing_hybrid", "head_dim"): "transformers has DeepSeek-V3's class for it, which is given this one",
    ("bailing_moe_v2_5", "head_dim"): "the same",
    ("bailing_moe_v2_5", "num_key_value_heads"): "latent attention has none",
    ("ernie4_5_moe", "moe_layer_end_index"): "-1 is the last layer",
    ("qwen", "intermediate_size"): "transformers has Qwen2's class for it, which is given half of this one",
    ("gemma3_text", "sliding_window"): "the class halves the window of an encoder, and so does the architecture here",
    ("gemma3n_text", "intermediate_size"): "the class has it once for each layer",
    ("lfm3", "rms_norm_eps"): "its norms have norm_eps",
    ("plamo3", "hidden_activation"): "it names the whole gated MLP",
    ("qwen2_moe", "sliding_window"): "no layer has a window unless use_sliding_window is set",
    ("zamba2", "max_position_embeddings"): "use_long_context overrides it, in `context` too",
}
"""Fields whose value here is not the attribute of the class's config, and why the count is."""
REFUSED = frozenset("big_bird glm4_moe lfm2_moe llama4_vision_model nemotron_h".split())
"""Families whose class's defaults are not supported, or do not go together."""


@cache
def fields_of_every_class() -> frozenset[str]:
    """Fields of how results are given: no class has weights for them."""
    return frozenset(transformers.PreTrainedConfig().to_dict())


def attribute(config: Any, name: str, *more: type) -> Any:
    """A plain value of the class's config, or of more types; None where it has none of that name."""
    try:
        value = getattr(config, name, None)
    except Exception:  # it differs from layer to layer
        return None
    return value if isinstance(value, (int, float, bool, str, *more)) else None


def class_config(family: str, fields: Mapping[str, Any]) -> Any:
    return hf.config_of({**fields, "model_type": families.config_class(family).hf_model_type or family})


def by_default(family: str) -> dict[str, Any]:
    """Required fields of a config of the family, with the class's sizes."""
    made, own = class_config(family, {}), families.config_class(family)
    given = {**TINY[family], **FACTS[family].REQUIRED}
    needed = [name for name, field in own.model_fields.items() if field.is_required()]
    sizes = {name: attribute(made, name) for name in needed}
    return {"model_type": family, **{name: given.get(name) if size is None else size for name, size in sizes.items()}}


def differing(family: str, raw: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Absent fields whose value is not the class's: ours, theirs."""
    try:
        ours = families.read(raw).config
        theirs = class_config(family, {**raw, **ours.hf_config_fields()})
    except Exception:  # this program refuses it, or the class in any of its own ways
        return {}
    fields = type(ours).model_fields
    pairs = {name: (getattr(ours, name), attribute(theirs, name, list)) for name in fields if name not in raw}
    computed = (None, "auto")  # by the architecture, which the next test builds
    return {
        name: (mine, other)
        for name, (mine, other) in pairs.items()
        if mine not in computed and other is not None and mine != other and (family, name) not in MEANS_THE_SAME
    }


def shallow(family: str) -> dict[str, Any]:
    """The same with two layers, where no list has an entry for each."""
    raw, made = by_default(family), class_config(family, {})
    listed = {len(value) for value in made.to_dict().values() if isinstance(value, list)}
    own = families.config_class(family).model_fields
    counts = {name: attribute(made, name) for name in LAYERS if name in own}
    return {**raw, **{name: 2 for name, count in counts.items() if count and count not in listed}}


def changed(family: str) -> Iterator[dict[str, Any]]:
    """The class's defaults, then one size at a time doubled, or one switch flipped."""
    made, raw = class_config(family, {}), by_default(family)
    yield raw
    few = shallow(family)
    for name in families.config_class(family).counted():
        size = attribute(made, name)
        if isinstance(size, int):
            yield {**few, name: not size if isinstance(size, bool) else 2 * size}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_absent_field_has_the_value_that_the_class_gives_it(family: str) -> None:
    """A family has default sizes for all of vocabulary, width and layers (and heads), or for none."""
    made, fields = class_config(family, {}), families.config_class(family).model_fields.items()
    assert sum(field.is_required() and attribute(made, name) is not None for name, field in fields) in (0, 3, 4, 5)
    if family not in REFUSED:
        families.read(by_default(family))
    found = {name: pair for raw in changed(family) for name, pair in differing(family, raw).items()}
    assert found == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_absent_dropout_has_the_rate_that_the_class_gives_it(family: str) -> None:
    """A class without the field has another for it, or no dropout there."""
    rates = dict(families.config_class(family).dropouts.values())
    made = class_config(family, {})
    assert rates == {field: getattr(made, field, rate) for field, rate in rates.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_rotary_embedding_has_the_base_that_the_class_gives_it(family: str) -> None:
    theirs = getattr(class_config(family, {}), "rope_parameters", None) or {}
    if not theirs or families.config_class(family).hf_model_type:
        return  # the class has none, or stands in for code that comes with the weights
    kinds = [theirs] if "rope_theta" in theirs else theirs.values()
    try:
        read = families.read(by_default(family))
    except ConfigError:
        return
    rotary = (getattr(part, "rotary", None) for part in read.architecture.parts())
    assert {each.base for each in rotary if each} <= {kind["rope_theta"] for kind in kinds}


def values(value: Any) -> list[Any]:
    """Others than this one: null, and some that a file may have by mistake."""
    if isinstance(value, bool):
        return [None, not value]
    if isinstance(value, int):
        return [None, 2 * value, 4 * value, value + 1, 1, 0]
    return [None, value / 2] if isinstance(value, float) else [None, 2, 64, True]


def around(base: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The config with one field at a time left out, null, or of another value than it has in `fields`."""
    yield dict(base)
    for name, value in fields.items():
        if name in base:
            yield {key: one for key, one in base.items() if key != name}
        yield from ({**base, name: other} for other in values(value))


def counted_as_in_the_class(raw: Mapping[str, Any]) -> str | None:
    """The difference in parameters, in words; None where there is none, or nothing to compare."""
    try:
        ours = load_model("mine", raw)
    except ConfigError:
        return None
    if ours.config.hf_unsupported() is not None:
        return None
    try:
        theirs = sum(hf.parameters(hf.build(ours.of_class, ours.config.task_head.auto)).values())
    except Exception:  # the class refuses it in any of its own ways
        return None
    mine = sum(ours.ledger.parameters().values())
    return None if mine == theirs else f"{mine:,} here, {theirs:,} in the class: {raw}"


def as_written(family: type[families.FamilyConfig], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields under the names that files have: a field of pydantic's cannot begin with an underscore, as OPT's
    `_remove_final_layer_norm` does."""
    hidden = {name: alias for alias, name in family.attribute_map.items() if alias == f"_{name}"}
    return {hidden.get(name, name): value for name, value in fields.items()}


LINEAGES = "gpt2 llama qwen2_moe gemma3n_text deepseek_v4 t5 bart deberta falcon_mamba zamba2 minimax vit".split()


def tiny(family: str) -> dict[str, Any]:
    return dict(TINY[family])


@pytest.mark.parametrize("base", [tiny, pytest.param(shallow, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=[pytest.mark.slow] * (one not in LINEAGES and not ASKED)) for one in FAMILIES]
)
def test_each_field_absent_null_or_odd_counts_as_in_the_class(family: str, base: Callable[[str], Any]) -> None:
    """So do the class's other names of its fields, and switches that this program does not read: one that adds weights
    must not be ignored."""
    own, raw = families.config_class(family), base(family)
    made = class_config(family, {})
    sizes = {name: attribute(made, name) for name in own.model_fields}
    if any((raw.get(name) or sizes[name] or 0) > SHALLOW for name in LAYERS & sizes.keys()):
        pytest.skip("the class's layers are too many to build it often")
    switches = {name: value for name, value in made.to_dict().items() if isinstance(value, bool)}
    known = own.attribute_map.keys() | fields_of_every_class()
    unread = {name: value for name, value in switches.items() if name not in known}
    given = {name: raw[name] for name in own.model_fields if name in raw}
    if not own.hf_model_type:
        unread |= {alias: attribute(made, name) for alias, name in type(made).attribute_map.items()}
    fields = {**dict.fromkeys(own.ignored_fields, False), **unread, **sizes, **given, **dict.fromkeys(own.sums, 3)}
    assert [
        found for config in around(raw, as_written(own, fields)) if (found := counted_as_in_the_class(config))
    ] == []


@pytest.mark.parametrize(
    ("family", "field"),
    [
        *(("gemma4_text", "per_layer_config"), ("embedding_gemma2_text", "per_layer_config")),
        *(("smollm3", "num_key_value_heads"), ("esmc", "head_dim"), ("apertus", "num_key_value_heads")),
    ],
)
def test_null_means_the_same_as_in_the_class(family: str, field: str) -> None:
    """Sizes that null follows from may be absent themselves. Gemma's: no layer has sizes of its own."""
    for raw in ({**TINY[family], field: None}, {**shallow(family), field: None}):
        assert load_model("mine", raw).ledger.parameters()
        assert counted_as_in_the_class(raw) is None


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        *((family, {"qk_head_dim": 12}) for family in ("longcat_flash", "deepseek_v3")),
        *(("longcat_flash", {"num_hidden_layers": layers}) for layers in (2, 4, None)),
        *(("glm4_moe_lite", {"head_dim": TINY["glm4_moe_lite"]["qk_rope_head_dim"]}), ("mt5", {"is_gated_act": True})),
    ],
)
def test_a_field_that_repeats_others_changes_nothing(family: str, fields: dict[str, Any]) -> None:
    plain, ours = load_model("mine", TINY[family]), load_model("mine", {**TINY[family], **fields})
    assert ours.ledger.parameters() == plain.ledger.parameters() and ours.unknown == ()


NULLS = (
    *(
        (whole, "num_key_value_heads")
        for whole in ("glm4v", "glm46v", "glmga", "glmasr", "granite_docling", "qwen2_vl")
    ),
    *((whole, "num_key_value_heads") for whole in ("qwen2_5_vl", "qwen2_5_omni_thinker", "voxtral")),
    *((whole, TIED) for whole in ("glm4v", "glm_ocr", "glm46v", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")),
    *((whole, "model_type") for whole in ("gemma3", "qwen3_vl", "llama4")),
    *(("qwen3_vl_moe", "head_dim"), ("qwen3_omni_moe_thinker", TIED)),
    *(("voxtral", "head_dim"), ("gemma4", "per_layer_config"), ("paligemma", "use_bidirectional_attention")),
)


@pytest.mark.parametrize(("whole", "field"), NULLS)
def test_null_in_a_text_config_means_the_same_as_in_the_class(whole: str, field: str) -> None:
    """It is not the same as an absent field: the class fills in its default for that one alone."""
    agree(whole_of(whole, {}, {field: None}))


@pytest.mark.parametrize("whole", ["glm4v", "qwen2_vl", "voxtral", "llava"])
def test_null_in_a_text_config_is_refused_where_the_class_refuses_it(whole: str) -> None:
    for field in ("vocab_size", "num_hidden_layers", "intermediate_size"):
        with pytest.raises(ConfigError, match=f"{field} must be a whole number, not null"):
            load_model("mine", whole_of(whole, {}, {field: None}))
    own = [whole_of(whole, {}, {TIED: None})] if whole in ("voxtral", "llava") else []
    for raw in (whole_of(whole, {TIED: None}, {}), *own):
        with pytest.raises(ConfigError, match=f"{TIED} must be true or false, not null"):
            load_model("mine", raw)


CANNOT = (
    *((whole, "head_dim") for whole in ("internvl", "got_ocr2", "lfm2_vl", "cohere2_vision", "glm4v_moe", "glm_ocr")),
    *((whole, "layer_types") for whole in ("qwen3_vl", "qwen3_vl_moe", "paddleocr_vl")),
    *((whole, "model_type") for whole in ("internvl", "glm46v")),
)


@pytest.mark.parametrize(("whole", "field"), CANNOT)
def test_null_in_a_text_config_that_the_class_cannot_be_built_with_is_refused(whole: str, field: str) -> None:
    raw = whole_of(whole, {}, {field: None})
    with pytest.raises((TypeError, ValueError)):
        built(raw)
    with pytest.raises(ConfigError, match=f"^mine: {field} (is null|must be text, not null)"):
        load_model("mine", raw)


@pytest.mark.parametrize(
    ("family", "field"),
    [(family, field) for field, types in NO_NULLS.items() for family in sorted(types) if family in FAMILIES],
)
def test_null_that_the_class_cannot_be_built_with_is_refused(family: str, field: str) -> None:
    """The class reads such a field as it is; if it is absent, another size replaces it."""
    raw = {**TINY[family], field: None}
    with pytest.raises(ConfigError, match=f"{field} is null, which the class of {family} does not accept"):
        load_model("mine", raw)
    plain = load_model("mine", TINY[family])
    with pytest.raises(Exception, match=r"NoneType|Validation error|validator"):
        hf.build({**plain.of_class, field: None}, plain.config.task_head.auto)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [name for name in COMPOSITES if name not in NOT_BUILT])
def test_each_field_inside_a_whole_absent_null_or_odd_counts_as_in_its_class(whole: str) -> None:
    raw = whole_of(whole, {}, {})
    raw |= of_head(raw)
    own = load_model("mine", raw).config
    fields = {name: getattr(own, name) for name in own.counted()}
    found = []
    for text in around(raw["text_config"], as_written(type(own), fields)):
        try:
            ours = load_model("mine", {**raw, "text_config": text})
        except ConfigError:
            continue
        if ours.config.hf_unsupported() is not None:
            continue
        mine = sum(ours.ledger.parameters().values())
        try:
            other = sum(theirs({**raw, "text_config": text}).values())
        except Exception:  # the class refuses it in any of its own ways
            continue
        found += [] if mine == other else [f"{mine:,} here, {other:,} in the class: {text}"]
    assert found == []
