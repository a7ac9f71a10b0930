"""The border: a family's `config.json` fields in, checked; its architecture out.

Every field of a config is one of four: read (a field of the class), harmless (known not to change a count),
refused (known to change counts, and not understood here), or unknown (named in a warning).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic_core import core_schema

from tfacct.architecture.parts import Attention, LatentAttention, Part, Pooler, Rotary
from tfacct.architecture.transformer import AnyPooler, Transformer
from tfacct.base.complaints import must
from tfacct.base.complaints import shown as shown
from tfacct.base.errors import ConfigError, nearest
from tfacct.base.spelling import setting
from tfacct.families._endings import CAUSAL_MODEL, DEFAULT_LABELS, FIELDS, Ending, scored
from tfacct.families._fields import (
    DRAFT,
    HARMLESS,
    OF_MTP,
    OFF,
    changes_counts,
    is_harmless,
    may_add_weights,
    of_draft,
    same_size,
)
from tfacct.ledger.groups import Ledger
from tfacct.ledger.workload import LARGEST, Workload


class Checked:
    """What a field may hold, in the words of pydantic-core: every family has such fields by the dozen, and of a `Field`
    pydantic gathers them anew for each."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        return dict(self.schema)  # pydantic writes into it


def whole(least: int, most: int = LARGEST) -> Checked:
    """A whole number, never `"32"`, `true`, `1.5` or null."""
    return Checked(core_schema.int_schema(strict=True, ge=least, le=most))


Count = Annotated[int, whole(1)]
"""A size in a config."""
UpTo = Annotated[int, whole(0)]
"""A number that may be 0: of layers, of networks."""
MOST_LAYERS = 100_000
Layers = Annotated[int, whole(1, MOST_LAYERS)]
"""A number of blocks. Each block is built separately, so the limit is lower than for any other size."""
CountOrList = Annotated[
    int | list[int],
    Checked(
        core_schema.union_schema(
            [whole(1).schema, core_schema.list_schema(whole(1).schema, strict=True, min_length=1)],
            custom_error_type="count_or_list",
            custom_error_message="must be a whole number from 1, or a list of them",
        )
    ),
]
"""A size, or a list of sizes, one for each layer."""
Switch = Annotated[bool, Checked(core_schema.bool_schema(strict=True))]
Real = Annotated[float, Checked(core_schema.float_schema(strict=True, gt=0, allow_inf_nan=False))]
FromZero = Annotated[float, Checked(core_schema.float_schema(strict=True, ge=0, allow_inf_nan=False))]
Fraction = Annotated[float, Checked(core_schema.float_schema(strict=True, gt=0, le=1))]
Word = Annotated[str, Checked(core_schema.str_schema(strict=True))]
Fields = Annotated[dict[str, Any], Checked(core_schema.dict_schema(core_schema.str_schema(), strict=True))]


class FamilyConfig(BaseModel):
    """The fields of one family's `config.json` that its counts depend on."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # only what is read is built

    harmless: ClassVar[frozenset[str]] = frozenset()
    """Fields that are harmless in this family only."""
    hf_paths: ClassVar[Mapping[str, str]] = {}
    """Our module path → the transformers class's. Several of ours may be one of theirs; `scores` and `values`
    are what their attention module computes itself."""
    inside: ClassVar[Mapping[str, int]] = {}
    """Sizes that the class has where a config leaves them out: read of a config inside another, which may do so."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Letters whose sizes this family cannot change: its formulas hold their numbers."""
    form_field: ClassVar[str] = "latent_attention"
    """The field that says how latent attention is run, in families that have it."""
    uncounted: ClassVar[frozenset[str]] = frozenset()
    """Fields that are read for the reference model only: no count depends on them."""
    class_differs: ClassVar[str] = "it keeps one token fewer of a window"
    """Difference between what the class keeps and what an engine must keep, where there is one."""
    class_extra: ClassVar[str] = ""
    """Work that the class runs beyond what is counted here, where `class_runs_more` or `class_multiplies` says so."""
    class_chunks: ClassVar[str] = ""
    """Reason why the class cannot take several new tokens after a past, where it cannot."""
    class_whole: ClassVar[bool] = False
    """Whether the class keeps nothing between steps, and so reads whole texts only."""
    class_source_whole: ClassVar[bool] = False
    """Whether the class reads a source of exactly `source` positions."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names that the class reads a field by."""
    hf_tensors: ClassVar[Mapping[str, str]] = {}
    """Our tensors → the class's, where a parameter of it is no module's `weight` or `bias`."""
    in_files: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Patterns in files' names (`*` for numbers) and what to put in the place of each, in turn, for the class's."""
    kept_wide: ClassVar[tuple[str, ...]] = ()
    """Modules whose matrices quantization leaves as they are: the class's `_keep_in_fp32_modules`."""
    inputs_first: ClassVar[tuple[str, ...]] = ()
    """Beginnings of our paths of matrices that the class stores by inputs, then outputs, unlike nn.Linear."""
    dropouts: ClassVar[Mapping[str, tuple[str, float | None]]] = {}
    """Where the class has dropout (places as in `training.traits.Mode`) → the field of its share, and its default."""
    class_type: ClassVar[str] = ""
    """The `model_type` whose class is asked, where transformers has none for this family's own."""
    stems: ClassVar[tuple[str, ...]] = ()
    """How its classes begin, up to the kind of head; none where no class stands behind the family."""
    heads: ClassVar[Mapping[str, Ending]] = {}
    """How its counted classes' names end → what each has behind its blocks; the first where a config names none."""
    body: ClassVar[str] = "model."
    """Prefix of the paths in hf_paths that a bare body's own paths lack."""
    nulls: ClassVar[Mapping[str, Any]] = {}
    """Fields of which null does not mean that they are absent → the field whose value null means, or the quotient of
    two, spelled `hidden_size / num_attention_heads`; or a value that is no name."""

    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Fields that published files give too → the fields whose sum each one is: another value contradicts them."""

    _ending: Ending | None = PrivateAttr(default=None)
    _labels: int = PrivateAttr(default=DEFAULT_LABELS)

    @property
    def ending(self) -> Ending:
        """Ending of its class: what stands behind the blocks."""
        return self._ending or next(iter(self.heads.values()), CAUSAL_MODEL)

    def end(self, ending: Ending, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Take what a class has behind its blocks, and the classes that `raw` says it scores; return what was
        defaulted. Raises ConfigError."""
        self._ending = ending
        if not ending.scores_classes:
            return {}
        self._labels, defaulted = scored(ending, raw)
        return defaulted

    @property
    def context(self) -> int:
        """The longest context the model was trained for."""
        raise NotImplementedError

    @property
    def source(self) -> int:
        """The longest source that its encoder was trained for, where it has one."""
        return self.context

    def architecture(self) -> Transformer:
        """The transformer these fields describe, with a language model's head."""
        raise NotImplementedError

    def pooler(self, hidden: Any) -> AnyPooler | None:
        """Pooler in front of the classes, or behind a body's blocks, where the ending has one."""
        return Pooler(hidden=hidden)

    def transformer(self) -> Transformer:
        """The transformer these fields describe, with what its class has behind the blocks."""
        shape = self.architecture()
        return self.ending.on(shape, self._labels, self.pooler(shape.embed.hidden) if self.ending.pooler else None)

    def paths(self) -> dict[str, str]:
        """Our module path → that of the class that `architectures` names."""
        table = self.class_paths()
        return {**self.ending.renamed(table, self.body), **self.ending.paths} if table else {}

    def tensors(self) -> dict[str, str]:
        """Our tensors → those of the class, where a parameter of it is no module's `weight` or `bias`."""
        return self.ending.renamed(self.hf_tensors, self.body)

    def class_paths(self) -> Mapping[str, str]:
        """hf_paths, where they do not depend on the fields."""
        return self.hf_paths

    def class_cannot(self) -> str | None:
        """Reason why the transformers class cannot be asked about these fields; None if it can be."""
        return None

    def class_keeps(self) -> Transformer:
        """A transformer that keeps between steps what the transformers class keeps.

        In a window it keeps one token less than a query sees, for the next query is one of those.
        """

        def less_one(part: Part) -> Part:
            if not isinstance(part, (Attention, LatentAttention)) or part.window is None:
                return part
            return replace(part, window=part.window - 1)

        return self.transformer().mapped(less_one)

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """Our products that the class runs over more positions than there are new tokens, by path: how many more."""
        return {}

    def class_fields(self) -> Mapping[str, Any]:
        """Fields that the class of another `model_type` is given beside those of the config: what it reads by names of
        its own."""
        return {}

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """FLOPs of each block that the class runs beyond those counted here, by the path of one of our products that it
        runs in the same module."""
        return {}

    def class_multiplies(self) -> Transformer | None:
        """A transformer whose products are those that the class runs; None if it runs those counted here."""
        return None

    def with_further_layers(self) -> Ledger | None:
        """Ledger with the layers that the config names and the counts do not include; None where they are not
        described."""
        return None

    @classmethod
    def settable(cls, said: Mapping[str, Any] | None = None) -> frozenset[str]:  # noqa: ARG003
        """Every field that may be set in a config that says this: those that are read, shares that are dropped, and
        those known to be harmless."""
        dropouts = (field for field, _ in cls.dropouts.values())
        return frozenset((*cls.model_fields, *dropouts)) | HARMLESS | FIELDS | OF_MTP | cls.harmless | {*cls.sums}

    @classmethod
    def counted(cls, said: Mapping[str, Any] | None = None) -> tuple[str, ...]:  # noqa: ARG003
        """Every field that a count depends on in a config that says this."""
        return tuple(name for name in cls.model_fields if name not in cls.uncounted)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "tuple[FamilyConfig, dict[str, Any], list[str]]":
        """The checked fields of `raw`, those that were defaulted, and the names that nobody here knows."""
        return validate(cls, raw)

    @staticmethod
    def refused(name: str, value: object) -> ConfigError:
        """A field whose value changes the counts, and is not understood."""
        return ConfigError(f"{name} = {shown(value)} changes the counts and is not understood for this model_type")


def validate(family: type[FamilyConfig], raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
    """The checked fields of `raw`, those that took a default, and the names that nobody here knows."""
    given: dict[str, Any] = {}
    unsaid: set[str] = set(family.model_fields)
    unknown: list[str] = []
    repeated: dict[str, str] = {}
    fields = unaliased(raw, family.aliases)
    for name, value in fields.items():
        if name in family.model_fields:
            if value is None and name in family.nulls:
                given[name] = null_means(family.nulls[name], {**_defaults(family), **fields})
            elif value is not None or not _default_may_follow(family, name):
                given[name] = value
                unsaid.discard(name)
        elif is_harmless(name) or name in FIELDS or name in OF_MTP or name in family.harmless or name in family.sums:
            continue
        elif field := same_size(name, family.model_fields):
            repeated[name] = field
        elif changes_counts(name):
            _refuse_if_on(name, value)
        elif may_add_weights(name, value):
            raise ConfigError(
                f"{name} = {shown(value)} is not known, and by its name it may add weights",
                f"if you know that it adds none, count without it: {setting(name)}",
            )
        elif of_draft(name) and value not in OFF:
            raise ConfigError(f"{name} = {shown(value)}: {DRAFT}")
        else:
            unknown.append(name)
    try:
        config = family(**given)
    except ValidationError as error:
        raise config_error(error, raw) from None
    for name, field in repeated.items():
        _refuse_if_other(name, fields[name], _given_as(field, raw, family.aliases), getattr(config, field))
    for name, parts in family.sums.items():
        total = sum(getattr(config, part) or 0 for part in parts)
        if raw.get(name) not in (None, total):
            raise ConfigError(f"{name} = {shown(raw[name])} contradicts {' + '.join(parts)} = {total:,}")
    counted = (name for name in family.model_fields if name in unsaid and name not in family.uncounted)
    values = {name: getattr(config, name) for name in counted}
    return config, {name: value for name, value in values.items() if value is not None}, unknown


def _defaults(family: type[FamilyConfig]) -> dict[str, Any]:
    """Defaults of the fields that have one of their own."""
    own = ((name, field.get_default()) for name, field in family.model_fields.items())
    return {name: default for name, default in own if isinstance(default, int)}


def null_means(spelled: Any, raw: Mapping[str, Any]) -> Any:
    """Value of a field that is null: another's, or one divided by another, None where those are no sizes; or what is no
    name itself."""
    if not isinstance(spelled, str):
        return spelled
    whole, _, parts = spelled.partition(" / ")
    if not parts:
        return raw.get(whole)
    sizes = [raw.get(name) for name in (whole, parts)]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return share(raw[whole], raw[parts], f"{whole} by {parts}")


def unaliased(raw: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """The fields under the names that the family reads them by."""
    fields: dict[str, Any] = {}
    for name, value in raw.items():
        read_as = aliases.get(name, name)
        if read_as in fields and fields[read_as] != value:
            other = _given_as(read_as, raw, aliases)
            raise ConfigError(f"{name} = {shown(value)} contradicts {other} = {shown(fields[read_as])}")
        fields[read_as] = value
    return fields


def _given_as(field: str, raw: Mapping[str, Any], aliases: Mapping[str, str]) -> str:
    """The first name by which a config gives a field; the field's own where it does not."""
    return next((name for name in raw if aliases.get(name, name) == field), field)


def _default_may_follow(family: type[FamilyConfig], name: str) -> bool:
    """The transformers classes read null as absent where the default follows from other fields, or is null."""
    field = family.model_fields[name]
    return field.default_factory is not None or field.default is None


def _refuse_if_on(name: str, value: object) -> None:
    full = isinstance(value, list) and all(kind == "full_attention" for kind in value)
    if value in OFF or (name == "layer_types" and full):
        return
    raise ConfigError(
        f"{name} = {shown(value)} changes the counts and is not understood for this model_type",
        f"if you know that it changes nothing here, count without it: {setting(name)}",
    )


def _refuse_if_other(name: str, value: object, field: str, counted: object) -> None:
    """A size may stand under a second name too, if it is the same."""
    if value not in (None, counted):
        raise ConfigError(
            f"{name} = {shown(value)} contradicts {field} = {shown(counted)}",
            f"the class reads {field}; drop the other: {setting(name)}",
        )


def config_error(
    error: ValidationError,
    raw: Mapping[str, Any],
    named: Callable[[tuple[Any, ...]], str] = lambda loc: ".".join(map(str, loc)),
) -> ConfigError:
    """The first complaint of pydantic in the tool's own words, `named` by its place. A missing field explains those
    that follow from it."""
    complaints = error.errors(include_url=False)
    first = next((c for c in complaints if c["type"] != "default_factory_not_called"), complaints[0])
    name = named(first["loc"])
    if first["type"] == "missing":
        return ConfigError(f"required field {name!r} is missing", nearest(name, raw))
    if first["type"] == "value_error":
        cause = first["ctx"]["error"]
        return cause if isinstance(cause, ConfigError) else ConfigError(str(cause))
    return ConfigError(f"{name} {must(first)}")


def even(turned: int, what: str = "head_dim") -> int:
    """A size that rotary positions can rotate in pairs."""
    if turned % 2 or turned == 0:
        raise ConfigError(f"{what} {turned:,} is not even: rotary positions rotate a head's elements in pairs")
    return turned


def turned_part(given: float, parameters: Mapping[str, Any] | None) -> float:
    """The part of a head that is rotated: transformers 5 writes it among rope_parameters. Raises ConfigError."""
    part = (parameters or {}).get("partial_rotary_factor", given)
    if not isinstance(part, (int, float)) or isinstance(part, bool) or not 0 < part <= 1:
        raise ConfigError(f"rope_parameters.partial_rotary_factor must be above 0 and at most 1, not {shown(part)}")
    return float(part)


def rotary(theta: float | None, scaling: Mapping[str, Any] | None, parameters: Mapping[str, Any] | None) -> Rotary:
    """Angles, as transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters) spells them."""
    spelled = parameters or scaling
    return Rotary((spelled or {}).get("rope_theta") or theta or 10_000.0, spelled)


def share(whole: int, parts: int, what: str, hint: str | None = None) -> int:
    """`whole / parts`, which must come out even."""
    if whole % parts:
        raise ConfigError(f"{what}: {whole:,} is not divisible by {parts:,}", hint)
    return whole // parts
