"""Loaded models: config, architecture, ledger, and storage of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from tfacct import families
from tfacct.architecture.parts import LatentAttention, MlaMode, NamedTensors, Projector
from tfacct.architecture.transformer import Transformer
from tfacct.base import units
from tfacct.base.errors import ConfigError, NotFoundError, TfacctError, UsageError, naming
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.storage import BF16, Storage, storage
from tfacct.ledger.workload import Workload
from tfacct.loading import published
from tfacct.loading.model_description import ModelDescription, Provenance

Counts: TypeAlias = Literal["nothing", "parameters", "work"]
"""What to count of a projector."""


@record
class LoadedModel(ModelDescription):
    """A model with everything that reports need."""

    def with_fields(self, sets: Mapping[str, Any]) -> LoadedModel:
        """Return the model with changed config fields. Other models in its file stay excluded."""
        changed = load_model(self.name, self.raw, sets, self.provenance)
        return replace(
            changed,
            original=self.original,
            left_out=self.left_out,
            answers=self.answers,
            composite=self.composite,
            part=self.part,
            folder=self.folder,
            format_file=self.format_file,
            format_assumed=self.format_assumed,
        )

    def of_part(self, part: Literal["text", "vision", "audio"], sets: Mapping[str, Any] | None = None) -> LoadedModel:
        """One of the models in its config, with changed fields. Raises TfacctError."""
        found = load_model(f"{self.name}:{part}", self._config_for(part), sets, self.provenance, part)
        return replace(
            found,
            part=part,
            folder=self.folder,
            format_file=self.format_file,
            format_assumed=self.format_assumed,
        )

    def of_parts(self, projector: Counts = "nothing") -> list[LoadedModel]:
        """The models in its config, for counting them together.

        `projector`: what to count of the projector, which becomes part of its encoder. Raises TfacctError.
        """
        from tfacct.families import multimodal

        composite = self._config_for("both")
        if self.parts == ("text",):
            self.of_part(multimodal.tower_parts(composite, str(composite["model_type"]))[0])  # raises: it has none
        text, *encoders = [self.of_part(part) for part in self.parts]
        counted = {f"{part}_config" for part in self.parts}
        if projector != "nothing":
            from tfacct.families import projectors

            sides = [projectors.Model(one.part, one.config, one.raw, one.architecture) for one in (text, *encoders)]
            with naming(self.name, ConfigError, NotFoundError):
                joined = [projectors.projector(composite, sides[0], side, projector == "work") for side in sides[1:]]
            encoders = [one.with_projector(each.part) for one, each in zip(encoders, joined, strict=True)]
            counted = counted.union(*(each.names for each in joined))
        models = [text, *encoders]
        names = (*(name for one in models for name in one.left_out), *multimodal.built_by_default(composite))
        left_out = dict.fromkeys(name for name in names if name not in counted)
        return [replace(one, left_out=tuple(left_out), part="both") for one in models]

    def with_projector(self, part: Projector | NamedTensors | None) -> LoadedModel:
        """Return the encoder with a projector."""
        return self._with_architecture(replace(self.architecture, projector=part))

    def _config_for(self, part: str) -> Mapping[str, Any]:
        """Config with several models. Raises UsageError for a config of one model."""
        if self.composite is None:
            problem = f"{self.name} has no other parts: {option('part', part)} does not apply"
            raise UsageError(problem, "leave it out")
        return self.composite

    def with_layers(self, count: int) -> LoadedModel:
        """Return the model with `count` layers in each stack."""
        fewer = self.architecture.mapped(lambda part: part, [count] * len(self.architecture.every_stack))
        return replace(self, architecture=fewer, ledger=fewer.ledger())

    @property
    def mla_mode(self) -> MlaMode | None:
        """Mode of its latent attention, possibly `auto`; None without latent attention."""
        parts = self.architecture.parts()
        return next((part.mla_mode for part in parts if isinstance(part, LatentAttention)), None)

    def longer_positions(self, context: int) -> int:
        """Parameters that position embeddings of this context would add; 0 for embeddings that are resampled."""
        shape = self.architecture  # of the whole model, where the ledger may be of one rank
        if shape.positions is not None and shape.positions.tiles is not None:
            return 0
        longer = shape.with_positions(context)
        if longer == shape:
            return 0
        return int(sum(longer.ledger().parameters().values()) - sum(shape.ledger().parameters().values()))

    def running(self, mode: MlaMode) -> LoadedModel:
        """Return the model with this mode of latent attention, if the mode is `auto`."""
        return self._with_architecture(self.architecture.running(mode))

    def settled(self, work: Workload, *, masked: bool = False) -> LoadedModel:
        """Return the model with the mode of latent attention that takes fewer FLOPs in a step."""
        return self._with_architecture(self.architecture.settled(work.axes(), masked=masked))

    def _with_architecture(self, shape: Transformer) -> LoadedModel:
        return self if shape is self.architecture else replace(self, architecture=shape, ledger=shape.ledger())

    def storage(self, dtype: str | None = None) -> Storage:
        """Storage of its weights in this dtype or format. Raises TfacctError.

        Default: the format in its config or a file next to it, or bf16 if that is a plain dtype or unknown.
        """
        if dtype is not None:
            name = units.dtype_name(dtype)
            if name not in units.GGUF:
                return storage(name)
            from tfacct.loading.quantized import gguf

            return self.once(gguf.mix(name))
        if not self.quantized:
            published.published(self)  # raises for unsupported formats
            return BF16
        from tfacct.loading import quantized

        return self.once(quantized.as_published)


def assumed(model: LoadedModel) -> bool:
    """True if the weights may have another format than in the config, or the size of its files contradicts it."""
    return model.format_assumed or model.once(_contradicted)


def _contradicted(model: LoadedModel) -> bool:
    """True if the size of the files contradicts the published format, and no header has a plain dtype.

    Layers that are not counted are no contradiction.
    """
    found = published.weights(model)
    if found is None or model.changed or (found.dtypes and not model.quantized):
        return False
    try:
        plain = None if model.quantized else published.published(model)
        more = published.difference(model, found, model.storage(None if plain is None else plain.dtype))
    except TfacctError:
        return False
    others = model.left_out or model.not_included is not None or model.composite is not None
    return abs(more) > published.OTHERS * found.bytes and not (more > 0 and others)


def load_model(
    name: str,
    raw: Mapping[str, Any],
    sets: Mapping[str, Any] | None = None,
    provenance: Provenance | None = None,
    part: Literal["text", "vision", "audio"] = "text",
) -> LoadedModel:
    """Load a config with the changed fields in `sets`. Raises ConfigError with the model's name."""
    sets = {field: value.tolist() if hasattr(value, "tolist") else value for field, value in (sets or {}).items()}
    with naming(name, ConfigError, NotFoundError):
        reading = families.read(raw, sets, part)
    return LoadedModel(
        name=name,
        family=reading.family,
        raw=reading.fields,
        config=reading.config,
        defaulted=reading.defaulted,
        unknown=reading.unknown,
        architecture=reading.architecture,
        ledger=reading.architecture.ledger(),
        provenance=provenance,
        changed=sets,
        original=raw,
        left_out=reading.left_out,
        parts=reading.parts,
        composite=raw if reading.parts else None,
        not_included=reading.not_included,
    )
