"""From a config, and what the user set over it, to the transformer that it describes: `read` does it in one call."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError, NotFoundError, cut, nearest
from tfacct.base.spelling import setting
from tfacct.families import _classes as classes
from tfacct.families._base import MOST_LAYERS, FamilyConfig, shown
from tfacct.families._endings import CAUSAL_MODEL, Ending
from tfacct.families._rooms import Part, class_names, config_class, names
from tfacct.families._spelled import respelled

OWN = "own"
"""The type of a model that is put together from parts: its config is tables."""

_WITHOUT: Mapping[str, str] = {
    "axk2": "its queries are made of a latent beside its own norm, and no latent part here does that",
    "convbert": "convolutions whose kernels are made of the tokens stand beside its heads, and no part here does that",
    "diffllama": "its heads are subtracted from one another in pairs, and no part here does that",
    "doge": "a mask made of its values chooses keys, and no part here does that",
    "dots3_note_text": "the rotated part of its keys passes a norm, and no latent part here does that",
    "florence2": "its language model's encoder reads the rows of an image in front of its tokens",
    "fnet": "it mixes tokens by Fourier transforms, which are no products, and no part here does that",
    "funnel": "its blocks take tokens together, and later ones read fewer, and no part here does that",
    "inkling_text": "its queries make scores of distances themselves, and no part here does that",
    "jetmoe": "its queries, and what its attention reads, pass experts, and no part here does that",
    "llada2_moe": "the tokens of a block see one another and all blocks before, and no part here counts such pairs",
    "longformer": "it pads a text to whole windows that overlap, and here only an encoder in front of a decoder does",
    "longt5": "its encoder pads a source to whole blocks that see their neighbours, and no part here does that",
    "minicpmo": "its config does not say whose blocks its language model has",
    "minicpmv": "its config does not say whose blocks its language model has",
    "mobilebert": "its attention reads narrower tokens beside whole ones, and no part here does that",
    "molmo": "its table has rows of tokens that its head does not score, and no part here has those",
    "nllb-moe": "an expert takes so many tokens and no more, and no part here leaves tokens out",
    "pegasus_x": "its encoder attends in blocks beside global tokens, and no part here does that",
    "phi3small": "most of its layers read blocks of keys that a pattern chooses, and no part here does",
    "phi4flash": "its upper layers read the keys, values or states of one before them, and no part here does so",
    "qwen4_exp_text": "its layers read tables of n-grams of tokens, and no part here does that",
    "reformer": "its attention sorts tokens by hashes, and no part here does",
    "squeezebert": "its products are of groups of channels, and no part here has those in attention and networks",
    "step3_text": "its queries are made of a latent beside one head of keys and values, and no part here does that",
    "switch_transformers": "an expert takes so many tokens of a text and no more, and no part here leaves tokens out",
    "t5gemma2": "its decoder attends to its own tokens and to the source's at once, and no part here does that",
    "wav2vec2": "convolutions over a waveform stand in front of its blocks, and no part here has those",
    "xlstm": "exponentials that a running maximum holds gate its matrices, and no part here does that",
    "zamba": "its Mamba is split into heads that have products of their own, and no part here does that",
    "zaya": "its queries and keys pass convolutions, and no part here has those in attention",
}
_WHOLES = {"dots3_note": "dots3_note", "inkling": "inkling_mm_model"}
_WHOLES |= {"qwen4_exp": "qwen4_exp", "step3": "step3_vl"}
WITHOUT = {**_WITHOUT, **{whole: _WITHOUT[f"{stem}_text"] for stem, whole in _WHOLES.items()}}
"""Types that are refused by name, and that no family comes near; so are the wholes around those language models."""


HEADS: Mapping[str, str] = {
    "HF_ColBERT": "a product behind its body makes a short vector of each token, and no field here says how short",
    "LlamaForRewardModelWithGating": "a network of its own weighs the scores of several objectives",
}
"""Classes of files with code of their own, of known bodies, that are refused by name."""


class Reading(NamedTuple):
    """A config that was read."""

    family: str
    config: FamilyConfig
    """Its checked fields."""
    architecture: Transformer
    """The transformer that they describe."""
    fields: Mapping[str, Any]
    """The language model's fields as they were given, with what the user set over them."""
    defaulted: Mapping[str, Any]
    """Fields that took a default."""
    unknown: tuple[str, ...]
    """Names of fields that nobody here knows."""
    left_out: tuple[str, ...]
    """Fields that hold the configs of other models, which are not counted."""
    parts: tuple[Part, ...] = ()
    """Parts of a config of several models that are counted together."""


def read(raw: Mapping[str, Any], sets: Mapping[str, Any] | None = None, part: Part = "text") -> Reading:
    """Read a config with the fields in `sets` over it: a `config.json`, or the tables of an own model. Of a model of
    several models it is one `part`.

    Raises ConfigError where it cannot be counted, NotFoundError where a field in `sets` is none of the family's.

    >>> sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6}
    >>> reading = read({"model_type": "llama", **sizes, "note": "mine"}, {"intermediate_size": 71})
    >>> reading.family, reading.unknown, reading.architecture.stacks[0].count
    ('llama', ('note',), 3)
    """
    (said, left_out, filled), parts = _of_several(_own_model(raw), part)
    said, changed, taken, spelled = respelled(said, sets or {})
    model_type = _model_type({**said, **changed})
    family = config_class(model_type)
    _check_names(said, changed, model_type, family)
    fields = _over(said, changed, family)
    ending, others = _ending(model_type, family, fields)
    config, defaulted, unknown = family.read(fields)
    if spelled is not None:
        spelled.check(config)
    defaulted |= {name: value for name, value in {**filled, **taken}.items() if name not in changed}
    if ending is None and config.ending.scores_classes:  # a family's first class
        ending = config.ending
    if ending is not None:
        defaulted |= config.end(ending, fields)
        if ending.head != "lm":
            defaulted.pop("tie_word_embeddings", None)  # there is no head that could be tied
    shape = config.transformer()
    if fields.get("is_causal") is False and "is_causal" not in family.model_fields:
        _check_encoder(shape)
    return Reading(model_type, config, shape, fields, defaulted, tuple(unknown), (*left_out, *others), parts)


def _own_model(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tables of an own model as fields of dotted names; any other config as it is."""
    if raw.get("model_type", OWN) != OWN or "model" not in raw:
        return raw
    from tfacct.families._own_names import flattened

    return {"model_type": OWN, **flattened({name: value for name, value in raw.items() if name != "model_type"})}


def _of_several(
    raw: Mapping[str, Any], part: Part
) -> tuple[tuple[Mapping[str, Any], tuple[str, ...], Mapping[str, Any]], tuple[Part, ...]]:
    """The part in a config of several models, the fields of the others, and what was defaulted on the way; the parts
    that are counted together."""
    if raw.get("model_type", OWN) in names():
        return (raw, (), {}), ()
    from tfacct.families import _embedders
    from tfacct.families._ernie_vl import told
    from tfacct.families._wrappers import parts_of, unwrapped

    raw = _embedders.told(told(raw))
    found = unwrapped(raw, part)
    return found, parts_of(raw) if found.left_out else ()


def _model_type(fields: Mapping[str, Any]) -> str:
    """The family's name. Raises ConfigError where it is none of ours."""
    model_type = fields.get("model_type")
    if model_type is None:
        raise ConfigError("the config has no model_type", _by_its_class(fields, 'add "model_type": … to the file'))
    if isinstance(model_type, str) and model_type in WITHOUT:
        raise ConfigError(f"model_type {model_type!r} is not counted: {WITHOUT[model_type]}")
    if not isinstance(model_type, str) or model_type not in names():
        raise ConfigError(f"unknown model_type {cut(repr(model_type))}", _by_its_class(fields))
    return model_type


def _by_its_class(fields: Mapping[str, Any], instead: str | None = None) -> str:
    """The family whose class the config names, or all there are. A name spelled alike is another architecture: mbart is
    no bart, gptj no gpt2."""
    for name in classes.named(fields.get("architectures")):
        stems = {family: config_class(family).stems for family in names()}
        owners = [family for family, own in stems.items() if classes.ending(name, own)]
        if owners:  # of two families that one class runs, the one that it is named after
            family = min(owners, key=lambda family: classes.ending(name, stems[family][:1]) is None)
            return f"its class {cut(name)} belongs to {family}: {setting('model_type', family)}"
    return "; ".join(filter(None, (known(), instead)))


def known() -> str:
    """Hint for a family that is not known."""
    return f"{len(names())} are known: docs/models.md and `tfacct models` list them"


def _check_encoder(shape: Transformer) -> None:
    """Refuse is_causal = false where the family counts tokens that see those before them only. Raises ConfigError."""
    if any(getattr(attention, "causal", True) for attention in shape.attentions):
        raise FamilyConfig.refused("is_causal", False)


def _check_names(
    said: Mapping[str, Any], changed: Mapping[str, Any], model_type: str, family: type[FamilyConfig]
) -> None:
    """Refuse to set a field that neither the family nor the config knows."""
    known = family.settable({**said, **changed}) | set(said) | set(family.aliases)
    for name in changed:
        if name not in known:
            hint = nearest(name, known) or f"fields that count: {', '.join(family.counted())}"
            raise NotFoundError(f"no field {name!r} in {model_type}", hint)


def _over(said: Mapping[str, Any], changed: Mapping[str, Any], family: type[FamilyConfig]) -> dict[str, Any]:
    """The config with what was set over it, under whatever name the config has it.

    Where all layers are of one kind, so are any number of them.
    """
    read_as = {family.aliases.get(name, name) for name in changed}
    fields = {name: value for name, value in said.items() if family.aliases.get(name, name) not in read_as}
    fields.update(changed)
    layers, count = fields.get("layer_types"), changed.get("num_hidden_layers")
    alike = isinstance(layers, list) and len(set(map(str, layers))) == 1 and "layer_types" not in changed
    if isinstance(layers, list) and alike and isinstance(count, int) and 0 < count <= MOST_LAYERS:
        fields["layer_types"] = layers[:1] * count
    return fields


def _ending(model_type: str, family: type[FamilyConfig], fields: Mapping[str, Any]) -> tuple[Ending | None, list[str]]:
    """The ending of the class that a config names, None where it names no class; and classes that it names behind a
    body, whose heads are left out. Another class is another model, and another head, or none, another count. Raises
    ConfigError."""
    named = classes.named(fields.get("architectures"))
    if not named:
        return None, []
    endings = [ending for name in named if (ending := classes.ending(name, family.stems))]
    said, first = f"architectures = {shown(named)}", next(iter(family.heads), "")
    if not endings:
        if named[0] in HEADS:
            raise ConfigError(
                f"{said} is not counted: {HEADS[named[0]]}",
                f"its body alone: {setting('architectures', f'{family.stems[0]}Model')}",
            )
        own = f"its class is {family.stems[0]}{first}" if family.stems else "it has no class"
        raise ConfigError(
            f"{said} names no class of {model_type}: {own}",
            f"to count it as a plain {model_type} anyway: {setting('architectures')}",
        )
    if len(endings) == len(named) and family.heads.get(endings[0], CAUSAL_MODEL).head == "none":
        body = family.heads[endings[0]]
        others = [name for name, end in zip(named, endings, strict=True) if family.heads.get(end) != body]
        return body, others
    there = [family.heads.get(ending) for ending in endings]
    if there[0] is None or any(other != there[0] for other in there):
        known = ", ".join(class_names(family))
        raise ConfigError(
            f"{said}: the head of {'this class is' if len(there) == 1 else 'these classes is'} not understood here",
            f"known: {known}; with the head of {family.stems[0]}{first}: {setting('architectures')}",
        )
    return there[0], []
