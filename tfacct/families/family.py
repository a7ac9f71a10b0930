"""A family: the config fields of one `model_type`, their defaults, and the transformer they describe.

A family is a plain class with the name prefix of its transformers classes. Annotated attributes are fields of its
config.json; all other attributes are facts about the class. `build` creates the pydantic model that checks the fields
when a config of the family is first read, so a module with a whole lineage costs nothing until then.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import Field

from tfacct.architecture.parts import Part, Pooler
from tfacct.architecture.words import ATTENTION_MODULES
from tfacct.base.errors import ConfigError
from tfacct.families.family_config import FamilyConfig
from tfacct.families.fields import divide_exactly
from tfacct.families.task_heads import TaskHead

if TYPE_CHECKING:
    Base = FamilyConfig
else:
    Base = object
SIZES = {
    "vocab": "vocab_size",
    "hidden": "hidden_size",
    "mlp": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "context": "max_position_embeddings",
}
"""Short names in `sizes` → fields."""
OPTIONS = tuple(f"{part}_options" for part in ("attention", "mlp", "experts", "embedding", "head", "pooler", "indexer"))
ABSENT = "-"
"""In place of a name in a table: the class does not have this module, unlike a base class."""
SAME_AS_QUERY_HEADS: Any = Field(default_factory=lambda fields: fields["num_attention_heads"])
"""Default: as many key/value heads as query heads."""
NULL_HEADS = {"num_key_value_heads": "num_attention_heads", "head_dim": "hidden_size / num_attention_heads"}
"""Meaning of null in classes with numeric defaults for these fields."""


class Family(Base):
    """What a family may declare.

    Merged along the base classes, nearest last: `module_names`, `layer_module_names`, `tensor_names`,
    `layer_tensor_names`, `attribute_map`, `required_values`, `attention_options` … (tables), `ignored_fields`,
    `reference_only` (words).
    For all others, the nearest declaration counts. A class name (also in task heads) or `layer_path` that begins with a
    dot is inside the base model (`base_model_prefix`).
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of this class for fields that a base declares."""
    sizes: ClassVar[Mapping[str, Any]] = {}
    """Defaults of this class for sizes, by short names (`SIZES`)."""
    has_hf_class: ClassVar[bool] = True
    """False if no class of transformers can run it, under any model_type; tables of names are then empty."""
    layer_path: ClassVar[str] = ".layers.*"
    """Path of a layer in the transformers class."""
    module_names: ClassVar[Mapping[str, str]] = {}
    """Ledger module → module of the transformers class."""
    layer_module_names: ClassVar[Mapping[str, str]] = {}
    """The same inside a layer, without `layer_path`."""
    tensor_names: ClassVar[Mapping[str, str]] = {}
    """Ledger tensor → tensor of the class, for parameters that are not a module's `weight` or `bias`."""
    layer_tensor_names: ClassVar[Mapping[str, str]] = {}
    """The same inside a layer."""
    attribute_map: ClassVar[Mapping[str, str]] = {}
    """Other names of a field → the field. They are attributes too, so base classes can read them."""
    ignored_fields: ClassVar[Any] = ""
    """Fields that change no count in this family."""
    reference_only: ClassVar[str] = ""
    """Fields that change the reference model but no count. So do all floats, strings, dicts and
    `required_values`, except tie_word_embeddings; `-name` removes a field, also one of a base class."""
    attention_options: ClassVar[Mapping[str, Any]] = {}
    """Arguments of attention in this class: values, or attributes to read, as `attrgetter("clip_qkv")`."""
    mlp_options: ClassVar[Mapping[str, Any]] = {}
    """The same of dense MLPs."""
    experts_options: ClassVar[Mapping[str, Any]] = {}
    """The same of experts."""
    embedding_options: ClassVar[Mapping[str, Any]] = {}
    """The same of the embedding of tokens."""
    head_options: ClassVar[Mapping[str, Any]] = {}
    """The same of the language model's head."""
    pooler_options: ClassVar[Mapping[str, Any]] = {}
    """The same of the pooler, a projection and an activation."""
    indexer_options: ClassVar[Mapping[str, Any]] = {}
    """The same of the indexers of sparse attention."""
    required_values: ClassVar[Mapping[str, object]] = {}
    """Fields that no part can express → the only supported value."""
    base_model_prefix: ClassVar[str] = "model"
    """As in transformers: the attribute that holds the model without a head; "" if there is none."""

    if TYPE_CHECKING:  # a base class may read fields that only its families declare

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, **how: Any) -> None:
        sizes = {SIZES[name]: size for name, size in vars(cls).get("sizes", {}).items()}
        for name, value in {**sizes, **vars(cls).get("defaults", {})}.items():
            setattr(cls, name, value)

    def options(self, part: str, **overrides: Any) -> dict[str, Any]:
        """Arguments of a part in this class, and `overrides`, which take precedence."""
        given = getattr(self, f"{part}_options")
        return {name: v(self) if isinstance(v, attrgetter) else v for name, v in given.items()} | overrides

    def pooler(self, hidden: Any) -> Part | None:
        return Pooler(hidden=hidden, **self.options("pooler"))

    def check(self) -> None:
        """Raises ConfigError for values that no part can express."""
        self.require(self.required_values)

    def require(self, values: Mapping[str, object]) -> None:
        """Raises ConfigError for any other value of these fields."""
        for name, value in values.items():
            if getattr(self, name) != value:
                raise self.refused(name, getattr(self, name))

    def require_if_given(self, values: Mapping[str, object]) -> None:
        """Raises ConfigError for any other value of these fields, except None."""
        self.require({name: value for name, value in values.items() if getattr(self, name) is not None})

    def agrees(self, field: str, size: int, what: str, more: str = "", hint: str | None = None) -> None:
        """Raises ConfigError for a given field that differs from the size derived from other fields, `what`."""
        given = getattr(self, field)
        if given not in (None, size):
            name = self.attribute_map.get(field, field)
            raise ConfigError(f"{name} = {given:,} contradicts {what} = {size:,}{more}", hint)

    def divide(self, field: str, by: str, hint: str | None = None) -> int:
        """One size divided by another, exactly; errors have the names of the config. Raises ConfigError."""
        names = (self.attribute_map.get(name, name) for name in (field, by))
        return divide_exactly(getattr(self, field), getattr(self, by), " by ".join(names), hint)


def submodules(at: str, module: str, names: str = "", **renamed: str) -> dict[str, str]:
    """Modules below `at` in the ledger → those inside a module of the class: `names` are the same in both, `renamed`
    are not, and "" is the module itself."""
    both = {**{name: name for name in names.split()}, **renamed}
    return {f"{at}.{name}": f"{module}.{hf_name}" if hf_name else module for name, hf_name in both.items()}


def attention_modules(
    module: str, q: str = "q_proj", k: str = "k_proj", v: str = "v_proj", o: str = "o_proj"
) -> dict[str, str]:
    """Modules of attention: its four projections, and those that it computes directly."""
    return submodules("attn", module, q_proj=q, k_proj=k, v_proj=v, o_proj=o, scores="", values="")


def mlp_modules(
    module: str, up: str = "up_proj", down: str = "down_proj", gate: str | None = "gate_proj", at: str = "mlp"
) -> dict[str, str]:
    """Modules of an MLP, gated unless `gate` is None."""
    gates = {} if gate is None else {"gate_proj": gate}
    return submodules(at, module, **gates, up_proj=up, down_proj=down)


def merged(family: type[Family], name: str) -> dict[str, Any]:
    """A table of a family: those of its bases first, then its own."""
    table = {k: v for base in reversed(family.__mro__) for k, v in vars(base).get(name, {}).items()}
    return {path: hf_path for path, hf_path in table.items() if hf_path != ABSENT}


def merged_words(family: type[Family], name: str) -> set[str]:
    """Words of a family and of its bases."""
    return {word for base in family.__mro__ for word in vars(base).get(name, "").split()}


def hf_names(family: type[Family], kind: str) -> dict[str, str]:
    """All modules or tensors of the ledger → full names in the class."""
    if not family.has_hf_class:
        return {}
    layer = merged(family, f"layer_{kind}_names").items()
    names = merged(family, f"{kind}_names")
    names |= {f"blocks.*.{path}": f"{family.layer_path}.{hf_path}".removesuffix(".") for path, hf_path in layer}
    return in_base_model(family, names)


def in_base_model(family: type[Family], names: Mapping[str, str]) -> dict[str, str]:
    """The same names, in full where they begin with a dot."""
    prefix = family.base_model_prefix
    return {
        path: f"{prefix}{hf_path}".lstrip(".") if hf_path[:1] == "." else hf_path for path, hf_path in names.items()
    }


@cache
def build(family: type[Family]) -> type[FamilyConfig]:
    """The pydantic model of a family."""
    prefix, aliases = family.base_model_prefix, merged(family, "attribute_map")
    norm = merged(family, "layer_module_names").get("attn_norm", "")
    heads: Mapping[str, TaskHead] = getattr(family, "task_heads", {})
    attributes: dict[str, Any] = {
        "__module__": family.__module__,
        "__doc__": family.__doc__,
        # Its name leads pickle to the family.
        "__reduce__": lambda config: (_unpickled, (family, config.__getstate__())),
        "hf_modules": hf_names(family, "module"),
        "hf_tensors": hf_names(family, "tensor"),
        "norm_in_attention": not ATTENTION_MODULES.isdisjoint(norm.split(".")),
        "attribute_map": aliases,
        "task_heads": {
            ending: replace(head, paths=in_base_model(family, head.paths)) for ending, head in heads.items()
        },
        **{name: merged(family, name) for name in (*OPTIONS, "required_values")},
        **{name: property(attrgetter(of)) for name, of in aliases.items() if not hasattr(family, name)},
        "ignored_fields": frozenset(merged_words(family, "ignored_fields")),
        "base_model_path": prefix and f"{prefix}.",
        "class_prefixes": vars(family).get("class_prefixes", (family.__name__,)),
    }
    annotations = {name: ClassVar for name in attributes if not name.startswith("__")}
    config: Any = type(family.__name__, (family, FamilyConfig), {**attributes, "__annotations__": annotations})
    fields, words = config.model_fields, merged_words(family, "reference_only")
    counted = {word.removeprefix("-") for word in words if word.startswith("-")}
    passive = {name for name, field in fields.items() if _is_passive(field.annotation)}
    config.nested_defaults = {name: size for name, size in config.nested_defaults.items() if fields[name].is_required()}
    required = {*config.required_values} - {"tie_word_embeddings"}
    config.reference_only = frozenset((passive | (words | required) & {*fields}) - counted)
    done: type[FamilyConfig] = config
    return done


def _unpickled(family: type[Family], state: Any) -> FamilyConfig:
    config = object.__new__(build(family))
    config.__setstate__(state)
    return config


def _is_passive(kind: Any) -> bool:
    """True for floats, strings and dicts, which no count depends on."""
    if get_origin(kind) in (Union, UnionType):
        return all(_is_passive(arm) for arm in get_args(kind) if arm is not type(None))
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return (get_origin(kind) or kind) in (float, str, dict)
