"""A family's test configs, as differences from a base, and what those of several families have alike."""

from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, Any]

SIZES: Fields = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 71}
GROUPED: Fields = {**SIZES, "num_key_value_heads": 2, "head_dim": 10}
"""Sizes of most small models: heads · head_dim ≠ hidden."""
LAYERS: Fields = {"vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2}
PLAIN: Fields = {**LAYERS, "num_attention_heads": 64}
"""What has no default in most families, and heads that fit the default of the others."""
HEADS: Fields = {**LAYERS, "num_attention_heads": 4}
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
ABSENT = object()
"""Value of a field that the base has and the config has not."""


@dataclass(frozen=True)
class Family:
    """What tests know of a family; the package's docstring describes each."""

    TINY: Fields
    VARIANTS: dict[str, Fields]
    LOGITS: dict[str, Fields]
    REQUIRED: Fields = field(default_factory=lambda: {"num_hidden_layers": 2})
    SILENT: Fields = field(default_factory=dict)
    CONTEXT: int | None = None
    BY_HEAD: bool = False
    BY_KEY_HEAD: bool = False
    RUN_BY: str | None = None
    INSTEAD: dict[str, str] = field(default_factory=dict)


INHERITED = [each.name for each in fields(Family)[3:]]
FACTS: dict[str, Family] = {}
"""By `model_type`."""
TINY_ALONE: dict[str, Fields | None] = {}


def family(
    name: str,
    base: Fields | Family | None = None,
    *,
    VARIANTS: dict[str, Fields] | None = None,
    COMPARED: dict[str, Fields] | None = None,
    LOGITS: dict[str, Fields | None] | None = TINY_ALONE,
    **others: Any,
) -> Family:
    """The family of this `model_type`: the base's config with these fields, and in capitals, its facts.

    A base that is a family gives its facts too. Shapes are differences from the config, or from the shape that `OF`
    names; LOGITS from their own "".
    """
    facts = {fact: getattr(base, fact) for fact in INHERITED} if isinstance(base, Family) else {}
    facts |= {fact: others.pop(fact) for fact in INHERITED if fact in others}
    over = base.TINY if isinstance(base, Family) else base or {}
    tiny = merged(over, {"model_type": ABSENT if name == "custom" else name, **others})
    shapes: dict[str | None, Fields] = {None: {}, "": tiny}

    def made(differences: dict[str, Fields | None]) -> dict[str, Fields]:
        for shape, changes in differences.items():
            if changes is not None:
                shapes[shape] = merged(shapes[changes.get("OF", "")], changes)
        return {shape: shapes[shape] for shape, changes in differences.items() if changes is not None}

    both = made(COMPARED or {})
    variants = {**both, **made(VARIANTS or {})}
    logits = {} if LOGITS is None else {**made({"": {}, **LOGITS}), **both}
    FACTS[name] = Family(tiny, variants, logits, **facts)
    return FACTS[name]


def merged(config: Fields, changes: Fields) -> Fields:
    """A config with some fields changed, added or, where they are ABSENT, removed."""
    return {name: value for name, value in {**config, **changes}.items() if value is not ABSENT and name != "OF"}


def without(config: Fields, *names: str) -> Fields:
    """A config less these fields."""
    return {name: value for name, value in config.items() if name not in names}


def of_every_expert(**changes: Any) -> dict[str, Fields | None]:
    """Logits of a model that sends each token to every expert: the reference's routing is fixed."""
    return {"": None, "of every expert": changes}


def of_dense_layers(**changes: Any) -> dict[str, Fields]:
    """Logits of a model without experts: the class weighs them by sigmoids, and the reference by softmax."""
    return {"": changes}


def in_forms(*forms: str, **changes: Any) -> dict[str, Fields]:
    """A config in each of these forms of latent attention."""
    return {form: {**changes, "latent_attention": form} for form in forms}


def latent_forms(**changes: Any) -> dict[str, Fields | None]:
    """Logits in each form of latent attention: with and without a latent for the queries."""
    forms = {
        "expanded": ("expanded", None),
        "absorbed": ("absorbed", None),
        "unpacked": ("unpacked", 22),
        "absorbed with a latent for queries": ("absorbed", 22),
    }
    made = {name: {**changes, "latent_attention": form, "q_lora_rank": rank} for name, (form, rank) in forms.items()}
    return {"": None, **made}
