"""A model to account for: where its config came from, what its family made of it, its ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from tfacct import families
from tfacct.architecture.parts import LatentAttention, MlaMode, NamedTensors, Projector
from tfacct.architecture.transformer import Transformer
from tfacct.base import units
from tfacct.base.errors import ConfigError, NotFoundError, TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.storage import BF16, Storage, storage
from tfacct.ledger.workload import Workload
from tfacct.loading import published
from tfacct.loading.model_description import ModelDescription, Provenance

Counts: TypeAlias = Literal["nothing", "parameters", "work"]
"""What is counted of a projector."""


@record
class LoadedModel(ModelDescription):
    """A model by name, with everything a report may ask of it."""

    def with_fields(self, sets: Mapping[str, Any]) -> LoadedModel:
        """The same model with fields set over its config. Other models in its file stay left out."""
        changed = load_model(self.name, self.raw, sets, self.provenance)
        return replace(
            changed,
            left_out=self.left_out,
            answers=self.answers,
            whole=self.whole,
            part=self.part,
            folder=self.folder,
            format_file=self.format_file,
            format_assumed=self.format_assumed,
        )

    def of_part(self, part: Literal["text", "vision", "audio"], sets: Mapping[str, Any] | None = None) -> LoadedModel:
        """One of the models that its config holds, with fields set over that one's. Raises TfacctError."""
        found = load_model(f"{self.name}:{part}", self._whole_for(part), sets, self.provenance, part)
        return replace(
            found,
            part=part,
            folder=self.folder,
            format_file=self.format_file,
            format_assumed=self.format_assumed,
        )

    def of_parts(self, projector: Counts = "nothing") -> list[LoadedModel]:
        """The models that its config holds, to be counted together. `projector`: what is counted of the projector; it
        is a part of the encoder then, where it is described. Raises TfacctError."""
        from tfacct.families import multimodal

        whole = self._whole_for("both")
        if self.parts == ("text",):
            self.of_part(multimodal.tower_parts(whole, str(whole["model_type"]))[0])  # raises: it has none
        text, *encoders = [self.of_part(part) for part in self.parts]
        counted = {f"{part}_config" for part in self.parts}
        if projector != "nothing":
            from tfacct.families import projectors

            sides = [projectors.Model(one.part, one.config, one.raw, one.architecture) for one in (text, *encoders)]
            with naming(self.name):
                joined = [projectors.projector(whole, sides[0], side, projector == "work") for side in sides[1:]]
            encoders = [one.with_projector(each.part) for one, each in zip(encoders, joined, strict=True)]
            counted = counted.union(*(each.names for each in joined))
        found = [text, *encoders]
        names = (*(name for one in found for name in one.left_out), *multimodal.built_by_default(whole))
        left_out = dict.fromkeys(name for name in names if name not in counted)
        return [replace(one, left_out=tuple(left_out), part="both") for one in found]

    def with_projector(self, part: Projector | NamedTensors | None) -> LoadedModel:
        """The same encoder with a projector behind it."""
        return self._as(replace(self.architecture, projector=part))

    def _whole_for(self, part: str) -> Mapping[str, Any]:
        """The config that holds the models. Raises UsageError for a config of one model."""
        if self.whole is None:
            problem = f"{self.name} holds no other models: {option('part', part)} does not apply"
            raise UsageError(problem, "leave it out")
        return self.whole

    def with_layers(self, count: int) -> LoadedModel:
        """Return the model with `count` blocks in each stack."""
        fewer = self.architecture.mapped(lambda part: part, [count] * len(self.architecture.every_stack))
        return replace(self, architecture=fewer, ledger=fewer.ledger())

    @property
    def mla_mode(self) -> MlaMode | None:
        """The mode that its latent attention is asked to run in, which may be `auto`; None where it has none."""
        parts = self.architecture.parts()
        return next((part.mla_mode for part in parts if isinstance(part, LatentAttention)), None)

    def running(self, form: MlaMode) -> LoadedModel:
        """Return the model with its latent attention run in this form, where the form is `auto`."""
        return self._as(self.architecture.running(form))

    def settled(self, work: Workload, *, masked: bool = False) -> LoadedModel:
        """The same model in the one way that a step runs it: with the form of latent attention that takes fewer FLOPs
        there."""
        return self._as(self.architecture.settled(work.axes(), masked=masked))

    def _as(self, shape: Transformer) -> LoadedModel:
        return self if shape is self.architecture else replace(self, architecture=shape, ledger=shape.ledger())

    def storage(self, dtype: str | None = None) -> Storage:
        """Storage of its weights in a dtype or format; without one as its config or a file next to it says, or in bf16
        where they say a plain dtype or nothing. Raises TfacctError."""
        if dtype is not None:
            name = units.dtype_name(dtype)
            if name not in units.GGUF:
                return storage(name)
            from tfacct.loading.quantized import gguf

            return self.once(gguf.mix(name))
        if not self.quantized:
            published.published(self)  # raises for what is not counted
            return BF16
        from tfacct.loading import quantized

        return self.once(quantized.as_published)


def assumed(model: LoadedModel) -> bool:
    """True where the weights may be stored in another format than the config says: where it was not asked for, or the
    bytes of its files contradict it."""
    return model.format_assumed or model.once(_contradicted)


def _contradicted(model: LoadedModel) -> bool:
    """True where the files hold far more or fewer bytes than the published format takes, and no header that was read
    says a plain dtype. Layers that are not counted are no contradiction."""
    found = published.weights(model)
    if found is None or model.changed or (found.dtypes and not model.quantized):
        return False
    try:
        plain = None if model.quantized else published.published(model)
        more = published.difference(model, found, model.storage(None if plain is None else plain.dtype))
    except TfacctError:
        return False
    others = model.left_out or model.not_included is not None or model.whole is not None
    return abs(more) > published.OTHERS * found.bytes and not (more > 0 and others)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors about a config name the model."""
    try:
        yield
    except (ConfigError, NotFoundError) as error:
        error.message = f"{name}: {error.message}"
        raise


def load_model(
    name: str,
    raw: Mapping[str, Any],
    sets: Mapping[str, Any] | None = None,
    provenance: Provenance | None = None,
    part: Literal["text", "vision", "audio"] = "text",
) -> LoadedModel:
    """Read a config, with the fields in `sets` over it. Raises ConfigError, which names the model."""
    with naming(name):
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
        changed=dict(sets or {}),
        left_out=reading.left_out,
        parts=reading.parts,
        whole=raw if reading.parts else None,
        not_included=reading.not_included,
    )
