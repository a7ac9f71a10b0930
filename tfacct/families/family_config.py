"""The pydantic model of a family: checks the fields of its `config.json` and builds its architecture.

Every field of a config is one of four kinds: read (a field of the class), ignored (does not change a count),
unsupported (changes counts, an error), or unknown (reported in a warning).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from tfacct.architecture.blocks import Order, Sublayer
from tfacct.architecture.parts import Attention, LatentAttention, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError, listed, nearest
from tfacct.base.pydantic_messages import describe_error
from tfacct.base.pydantic_messages import format_value as format_value
from tfacct.base.spelling import setting
from tfacct.families.fields import divide_exactly
from tfacct.families.known_fields import (
    DRAFT,
    IGNORED_FIELDS,
    MTP_FIELDS,
    OFF,
    changes_counts,
    common_words,
    is_ignored_field,
    may_add_weights,
    of_draft,
    same_size,
)
from tfacct.families.task_heads import CAUSAL_MODEL, DEFAULT_LABELS, TASK_HEAD_FIELDS, TaskHead, label_count
from tfacct.ledger.groups import Ledger
from tfacct.ledger.workload import Workload


class FamilyConfig(BaseModel):
    """The fields of one family's `config.json` that its counts depend on."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # only what is read is built

    attribute_map: ClassVar[Mapping[str, str]] = {}
    """Other names by which the class reads a field → the field."""
    ignored_fields: ClassVar[Collection[str]] = frozenset()
    """Fields that change no count in this family."""
    reference_only: ClassVar[Collection[str]] = frozenset()
    """Fields that change the reference model but no count."""
    null_means: ClassVar[Mapping[str, Any]] = {}
    """Fields in which null is not the same as absent → what it means: the value of another field, a quotient such as
    `hidden_size / num_attention_heads`, or a constant."""
    nested_defaults: ClassVar[Mapping[str, int]] = {}
    """Default sizes of the class, for a config inside a composite config that does not give them."""
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Fields of published files → the fields whose sum they must be."""
    constant_axes: ClassVar[frozenset[str]] = frozenset()
    """Axes with the same size in every config: formulas have a number in place of the axis."""
    mla_mode_field: ClassVar[str] = "latent_attention"
    """The field with the mode of latent attention, in families that have it."""
    dropouts: ClassVar[Mapping[str, tuple[str, float | None]]] = {}
    """Where the class has dropout (places as in `training.traits.Mode`) → the field of its rate, and its default."""
    drops_in_attention: ClassVar[bool] = False
    """The dropout of attention's result is inside its module, and recomputed with it."""
    norm_in_attention: ClassVar[bool] = False
    """So are that dropout, the residual sum and the norm next to it: the norm's path in the class is in attention."""
    class_prefixes: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the class names; empty if transformers has no class."""
    task_heads: ClassVar[Mapping[str, TaskHead]] = {}
    """Supported endings of class names → their heads. The first is the default of a config without `architectures`."""
    base_model_path: ClassVar[str] = "model."
    """Prefix of module paths in the base model; a base model without a head does not have it."""
    checkpoint_conversion_mapping: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Patterns in tensor names of files (`*` for numbers) → their form in the class, applied in order."""
    keep_in_fp32_modules: ClassVar[tuple[str, ...]] = ()
    """Modules whose matrices are never quantized: the class's `_keep_in_fp32_modules`."""
    transposed_weights: ClassVar[tuple[str, ...]] = ()
    """Prefixes of ledger paths whose matrices the class stores as (inputs, outputs), unlike nn.Linear."""
    hf_model_type: ClassVar[str] = ""
    """The `model_type` whose class runs the configs, if transformers has no class for this one."""
    hf_modules: ClassVar[Mapping[str, str]] = {}
    """Ledger module → module of the transformers class; several may be one there. `scores` and `values` belong to its
    attention module."""
    hf_tensors: ClassVar[Mapping[str, str]] = {}
    """Ledger tensor → tensor of the class, for parameters that are not a module's `weight` or `bias`."""
    hf_cache_differs: ClassVar[str] = "it caches one token fewer per window"
    """Difference between the cache of the class and the cache that an engine needs."""
    hf_extra_note: ClassVar[str] = ""
    """Work of the class that is not counted here (`hf_extra_positions`, `hf_products`), in words."""
    hf_no_chunked_prefill: ClassVar[str] = ""
    """Reason why the class cannot run several new tokens after cached ones; empty if it can."""
    hf_no_cache: ClassVar[bool] = False
    """True if the class has no cache and only runs complete texts."""
    hf_fixed_source: ClassVar[bool] = False
    """True if the class only runs a source of exactly `source` positions."""

    _task_head: TaskHead | None = PrivateAttr(default=None)
    _labels: int = PrivateAttr(default=DEFAULT_LABELS)

    @property
    def task_head(self) -> TaskHead:
        """The task head of the class in `architectures`."""
        return self._task_head or next(iter(self.task_heads.values()), CAUSAL_MODEL)

    def choose_task_head(self, task_head: TaskHead, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Sets the task head, and the number of classes from `raw`; returns fields with default values. Raises
        ConfigError."""
        self._task_head = task_head
        if not task_head.scores_classes:
            return {}
        self._labels, defaulted = label_count(task_head, raw)
        return defaulted

    @property
    def context(self) -> int:
        """The longest context for which the model was trained."""
        raise NotImplementedError

    @property
    def source(self) -> int:
        """The longest source for which its encoder was trained, if it has one."""
        return self.context

    def architecture(self) -> Transformer:
        """The transformer that these fields describe, with a language model's head. Raises ConfigError."""
        raise NotImplementedError

    def pooler(self, hidden: Any) -> Part | None:
        """Pooler before the classifier, or after the layers of a base model, if the task head has one."""
        raise NotImplementedError

    def transformer(self) -> Transformer:
        """The transformer that these fields describe, with the task head of its class."""
        shape, head = self.architecture(), self.task_head
        return head.on(shape, self._labels, self.pooler(shape.embed.hidden) if head.pooler else None)

    def hf_module_paths(self) -> dict[str, str]:
        """Ledger module → module of the class in `architectures`."""
        table = self.hf_module_names()
        return {**self.task_head.renamed(table, self.base_model_path), **self.task_head.paths} if table else {}

    def hf_tensor_names(self) -> dict[str, str]:
        """Ledger tensor → tensor of the class in `architectures`, if it is not a module's `weight` or `bias`."""
        return self.task_head.renamed(self.hf_tensors, self.base_model_path)

    def hf_module_names(self) -> Mapping[str, str]:
        """Ledger module → module of the class with a language modeling head."""
        return self.hf_modules

    @classmethod
    def dropout_fields(cls) -> set[str]:
        """The fields with dropout rates."""
        return {field for field, _ in cls.dropouts.values()}

    @classmethod
    def dropout_rates(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Place of a dropout → its rate, given or by default."""
        return {place: fields.get(field, absent) for place, (field, absent) in cls.dropouts.items()}

    def transformer_with_dropouts(self, fields: Mapping[str, Any]) -> Transformer:
        """The transformer with the dropouts of sublayers' results that these fields set, and with the results that
        recomputation needs inside a module of the class."""
        places = {place for place, rate in self.dropout_rates(fields).items() if rate}

        def in_class(sublayer: Sublayer, order: Order) -> Sublayer:
            dropout = not places.isdisjoint(("residual", sublayer.name))
            saved = (dropout and self.drops_in_attention) or (self.norm_in_attention and (dropout or order == "post"))
            # The class's layer goes on after experts that are added late.
            needs_result = saved if sublayer.name == "attn" else getattr(sublayer.part, "late", False)
            return replace(sublayer, dropout=dropout, needs_result=needs_result)

        return self.transformer().with_sublayers(in_class)

    def hf_unsupported(self) -> str | None:
        """The reason why the transformers class does not support these fields; None if it does."""
        return None

    def hf_cache(self) -> Transformer:
        """A transformer with the cache of the transformers class: one token fewer than the window, because the next
        query is one of its tokens."""

        def less_one(part: Part) -> Part:
            if not isinstance(part, (Attention, LatentAttention)) or part.window is None:
                return part
            return replace(part, window=part.window - 1)

        return self.transformer().mapped(less_one)

    def hf_extra_positions(self, work: Workload) -> Mapping[str, int]:
        """Positions besides the new tokens over which the class runs matmuls, by path."""
        return {}

    def hf_config_fields(self) -> Mapping[str, Any]:
        """Additional fields for a class of another `model_type`, under its names."""
        return {}

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """Additional FLOPs per layer in the class, by the path of a matmul in the same module."""
        return {}

    def hf_products(self) -> Transformer | None:
        """A transformer with the matmuls of the class; None if they are those counted here."""
        return None

    def with_additional_layers(self) -> Ledger | None:
        """Ledger with the layers of the config that are not included in the counts (multi-token prediction, drafts);
        None if they are not described."""
        return None

    @classmethod
    def settable(cls, raw: Mapping[str, Any] | None = None) -> frozenset[str]:  # noqa: ARG003
        """Every field that can be set: fields that are read, dropout rates, and ignored fields."""
        return (
            frozenset((*cls.model_fields, *cls.dropout_fields()))
            | IGNORED_FIELDS
            | TASK_HEAD_FIELDS
            | MTP_FIELDS
            | {*cls.ignored_fields}
            | {*cls.sums}
        )

    @classmethod
    def counted(cls, raw: Mapping[str, Any] | None = None) -> tuple[str, ...]:  # noqa: ARG003
        """Every field that a count depends on."""
        return tuple(name for name in cls.model_fields if name not in cls.reference_only)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "tuple[FamilyConfig, dict[str, Any], list[str]]":
        """The checked fields of `raw`, fields with default values, and unknown names. Raises ConfigError."""
        config, defaulted, unknown = validate(cls, raw)
        unread = config.unread_fields()
        return config, {name: value for name, value in defaulted.items() if name not in unread}, unknown

    def unread_fields(self) -> set[str]:
        """Fields that no layer reads, given the others: their defaults are not reported. Raises ConfigError."""
        return set()

    @staticmethod
    def refused(name: str, value: object) -> ConfigError:
        """The error for a field with an unsupported value that changes the counts."""
        return ConfigError(
            f"{name} = {format_value(value)} changes the counts and is not supported for this model_type"
        )


def validate(family: type[FamilyConfig], raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
    """The checked fields of `raw`, fields with default values, and unknown names. Raises ConfigError."""
    given: dict[str, Any] = {}
    absent: set[str] = set(family.model_fields)
    unknown: list[str] = []
    repeated: dict[str, str] = {}
    fields = by_field_names(raw, family.attribute_map)
    for name, value in fields.items():
        if name in family.model_fields:
            if value is None and name in family.null_means:
                given[name] = value_of_null(family.null_means[name], {**_defaults(family), **fields})
            elif value is not None or not _default_may_follow(family, name):
                given[name] = value
                absent.discard(name)
        elif (
            is_ignored_field(name)
            or name in TASK_HEAD_FIELDS
            or name in MTP_FIELDS
            or name in family.ignored_fields
            or name in family.sums
        ):
            continue
        elif field := same_size(name, family.model_fields):
            repeated[name] = field
        elif changes_counts(name):
            _refuse_if_on(name, value)
        elif may_add_weights(name, value):
            near = nearest(name, family.model_fields)
            raise ConfigError(
                f"{name} = {format_value(value)} is an unknown field that may add weights, judging by its name",
                f"{f'{near} ' if near else ''}if {name} adds no weights: {setting(name)}",
            )
        elif of_draft(name) and value not in OFF:
            raise ConfigError(f"{name} = {format_value(value)}: {DRAFT}")
        else:
            unknown.append(name)
    try:
        config = family(**given)
    except ValidationError as error:
        raise config_error(error, raw) from None
    for name, field in repeated.items():
        _refuse_if_other(name, fields[name], _given_as(field, raw, family.attribute_map), getattr(config, field))
    for name, parts in family.sums.items():
        total = sum(getattr(config, part) or 0 for part in parts)
        if raw.get(name) not in (None, total):
            raise ConfigError(f"{name} = {format_value(raw[name])} contradicts {' + '.join(parts)} = {total:,}")
    counted = (name for name in family.model_fields if name in absent and name not in family.reference_only)
    values = {name: getattr(config, name) for name in counted}
    return config, {name: value for name, value in values.items() if value is not None}, unknown


def _defaults(family: type[FamilyConfig]) -> dict[str, Any]:
    """Defaults of fields with an explicit default."""
    defaults = ((name, field.get_default()) for name, field in family.model_fields.items())
    return {name: default for name, default in defaults if isinstance(default, int)}


def value_of_null(default: Any, raw: Mapping[str, Any]) -> Any:
    """Value of a null field: that of another field, or a quotient of two, None if those are not sizes; or a
    constant."""
    if not isinstance(default, str):
        return default
    field, _, divisor = default.partition(" / ")
    if not divisor:
        return raw.get(field)
    sizes = [raw.get(name) for name in (field, divisor)]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return divide_exactly(raw[field], raw[divisor], f"{field} by {divisor}")


def by_field_names(raw: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """The fields under the names that the family reads."""
    fields: dict[str, Any] = {}
    for name, value in raw.items():
        read_as = aliases.get(name, name)
        if read_as in fields and fields[read_as] != value:
            other = _given_as(read_as, raw, aliases)
            raise ConfigError(f"{name} = {format_value(value)} contradicts {other} = {format_value(fields[read_as])}")
        fields[read_as] = value
    return fields


def _given_as(field: str, raw: Mapping[str, Any], aliases: Mapping[str, str]) -> str:
    """The first name under which a config gives a field; the field's own name if it does not."""
    return next((name for name in raw if aliases.get(name, name) == field), field)


def _default_may_follow(family: type[FamilyConfig], name: str) -> bool:
    """True if null means absent: in transformers classes, if the default follows from other fields or is null."""
    field = family.model_fields[name]
    return field.default_factory is not None or field.default is None


def _refuse_if_on(name: str, value: object) -> None:
    full = isinstance(value, list) and all(kind == "full_attention" for kind in value)
    if value in OFF or (name == "layer_types" and full):
        return
    raise ConfigError(
        f"{name} = {format_value(value)} changes the counts and is not supported for this model_type",
        f"if it changes nothing here, count without it: {setting(name)}",
    )


def _refuse_if_other(name: str, value: object, field: str, counted: object) -> None:
    """Raises ConfigError if a size has a second name with a different value."""
    if value not in (None, counted):
        raise ConfigError(
            f"{name} = {format_value(value)} contradicts {field} = {format_value(counted)}",
            f"the class reads {field}; remove the other: {setting(name)}",
        )


def config_error(
    error: ValidationError,
    raw: Mapping[str, Any],
    named: Callable[[tuple[Any, ...]], str] = lambda loc: ".".join(map(str, loc)),
    keys: str = "",
) -> ConfigError:
    """pydantic's first error as a ConfigError; `named` returns the name of its place; `keys` is the hint for missing
    fields. These come first and together, because other errors follow from them."""
    complaints = error.errors(include_url=False)
    first = next((c for c in complaints if c["type"] != "default_factory_not_called"), complaints[0])
    name = named(first["loc"])
    if missing := [named(each["loc"]) for each in complaints if each["type"] == "missing"]:
        what = (
            f"required field {name!r} is"
            if len(missing) == 1
            else f"required fields {listed([repr(each) for each in missing])} are"
        )
        meant = [f"{key} as {field}" for field in missing for key in raw if key in common_words(field)]
        return ConfigError(f"{what} missing", keys or (f"write {listed(meant)}" if meant else nearest(name, raw)))
    if first["type"] == "value_error":
        cause = first["ctx"]["error"]
        return cause if isinstance(cause, ConfigError) else ConfigError(str(cause))
    several = isinstance(first["input"], str) and "=" in first["input"]
    hint = f"one field in each: {setting('A', 1)} {setting('B', 2)}" if several else None
    return ConfigError(f"{name} {describe_error(first)}", hint)
