"""A model to account for: where its config came from, what its family made of it, its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tfacct import families
from tfacct.architecture import Transformer
from tfacct.errors import ConfigError, NotFoundError, nearest
from tfacct.families import FamilyConfig
from tfacct.ledger import Ledger

MOST_LAYERS = 100_000
"""A list of more layers is not written out: their number is refused."""

WITNESSES = {
    "published": "published total",
    "transformers": "total of the transformers class built from this config",
    "arithmetic": "total by hand arithmetic, in the preset's file",
}
"""Who says what a preset's parameters should add up to."""


class Provenance(NamedTuple):
    """Where a model's fields come from, and a preset's expected total."""

    url: str
    kind: str
    """`copied` from a public config.json, `transcribed` by hand from the published architecture, or, of a model that
    has no page, `described` in the preset's file; of a hub id `fetched`, or `cached` where the hub was not asked or
    did not answer."""
    expected: int | None = None
    expected_from: str = ""
    """A key of WITNESSES."""
    via: str | None = None
    """The public copy that a `copied` config was read from."""
    revision: str | None = None
    working: str | None = None
    about: str | None = None
    """What a `described` model is, in words."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model by name, with everything a report may ask of it."""

    name: str
    family: str
    raw: Mapping[str, Any]
    config: FamilyConfig
    defaulted: Mapping[str, Any]
    unknown: tuple[str, ...]
    architecture: Transformer
    ledger: Ledger
    provenance: Provenance | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)
    """What the user set over the config as published."""
    left_out: tuple[str, ...] = ()
    """Configs of other models in the same file, which are not counted."""

    @property
    def context(self) -> int:
        """The longest context the model was trained for."""
        return self.config.context

    @property
    def source(self) -> int | None:
        """The longest source that its encoder was trained for; None where it has no encoder."""
        return None if self.architecture.encoder is None else self.config.source

    @property
    def keeps(self) -> bool:
        """Whether anything stays for a next step: an encoder alone keeps nothing."""
        return self.ledger.keeps

    @property
    def expected(self) -> int | None:
        """Its expected number of parameters, where it is as published."""
        return self.provenance.expected if self.provenance and not self.changed else None

    def with_layers(self, count: int) -> Subject:
        """The same model with `count` blocks in each stack."""
        fewer = self.architecture.mapped(lambda part: part, [count] * len(self.architecture.every_stack))
        return replace(self, architecture=fewer, ledger=fewer.ledger())

    @property
    def quantized(self) -> bool:
        """Whether the config says that its weights are stored quantized."""
        return any(self.raw.get(field) for field in ("quantization_config", "quantization", "compression_config"))


def subject(
    name: str,
    raw: Mapping[str, Any],
    sets: Mapping[str, Any] | None = None,
    provenance: Provenance | None = None,
) -> Subject:
    """Read a config, with the fields in `sets` over it. Raises ConfigError, which names the model."""
    changed = dict(sets or {})
    try:
        raw, left_out = families.language_model(families.own_model(raw))
        if changed:
            _check_fields(raw, changed)
        fields = _over(raw, changed)
        reading = families.read(fields)
        architecture = reading.config.architecture()
    except (ConfigError, NotFoundError) as error:
        error.message = f"{name}: {error.message}"
        raise
    return Subject(
        name=name,
        family=reading.family,
        raw=fields,
        config=reading.config,
        defaulted=reading.defaulted,
        unknown=tuple(reading.unknown),
        architecture=architecture,
        ledger=architecture.ledger(),
        provenance=provenance,
        changed=changed,
        left_out=left_out,
    )


def _over(raw: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """The config with what was set over it, under whatever name the config has it.

    Where all layers are of one kind, so are any number of them.
    """
    aliases = _aliases(raw, changed)
    names = {aliases.get(name, name) for name in changed}
    fields = {name: value for name, value in raw.items() if aliases.get(name, name) not in names} | {**changed}
    layers, count = fields.get("layer_types"), changed.get("num_hidden_layers")
    alike = isinstance(layers, list) and len(set(map(str, layers))) == 1 and "layer_types" not in changed
    if isinstance(layers, list) and alike and isinstance(count, int) and 0 < count <= MOST_LAYERS:
        fields["layer_types"] = layers[:1] * count
    return fields


def _aliases(raw: Mapping[str, Any], changed: Mapping[str, Any]) -> Mapping[str, str]:
    """Other names of the family's fields."""
    model_type = changed.get("model_type", raw.get("model_type"))
    return families.config_class(str(model_type)).aliases if model_type in families.names() else {}


def _check_fields(raw: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    model_type = changed.get("model_type", raw.get("model_type"))
    if model_type not in families.names():
        return  # reading it says so better
    known = families.config_class(str(model_type)).settable() | set(raw) | set(_aliases(raw, changed))
    for name in changed:
        if name not in known:
            read = ", ".join(families.config_class(str(model_type)).counted())
            raise NotFoundError(
                f"no field {name!r} in {model_type}", nearest(name, known) or f"fields that count: {read}"
            )
