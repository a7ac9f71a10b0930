"""A model to account for: where its config came from, what its family made of it, its ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from tfacct import families
from tfacct.architecture.parts import Mixer, MlaMode, NamedTensors, Patches, Positions, Projector, Stem
from tfacct.architecture.transformer import Transformer
from tfacct.base import units
from tfacct.base.errors import ConfigError, NotFoundError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.families import FamilyConfig, NotIncluded
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import BF16, Storage, storage
from tfacct.ledger.workload import Workload
from tfacct.loading import published

T = TypeVar("T")
Counts: TypeAlias = Literal["nothing", "parameters", "work"]
"""What is counted of a projector."""
WITNESSES = {
    "published": "published total",
    "transformers": "total of the transformers class built from this config",
    "arithmetic": "total by hand arithmetic, in the preset's file",
}
"""Origins of a preset's expected number of parameters, in words."""


class Provenance(NamedTuple):
    """Source of a model's fields, and a preset's expected total."""

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
    """Description of a `described` model, in words."""


@record
class LoadedModel:
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
    """Fields that the user set over the config as published."""
    left_out: tuple[str, ...] = ()
    """Configs of other models in the same file, which are not counted."""
    answers: str = ""
    """Note for the user where a preset answers for another name."""
    whole: Mapping[str, Any] | None = None
    """The config that it is a part of, where that holds other models."""
    parts: tuple[Literal["text", "vision", "audio"], ...] = ()
    """Its parts that are counted together."""
    not_included: NotIncluded | None = None
    """Layers that its config names and the counts do not include."""
    part: str = ""
    """Which part of it, where the user asked for one; `both` of one of two that are counted together."""
    folder: Path | None = None
    """The folder of its config.json, where other files may say how its weights are stored."""
    format_file: str = ""
    """File next to its config.json that says how its weights are stored, where the config does not."""
    format_assumed: bool = False
    """True where the weights may be stored in another format than its config says: of a preset that answers for another
    model of the same sizes, and where the hub did not say whether it has a file about the format."""

    def once(self, work: Callable[[LoadedModel], T]) -> T:
        """What is worked out of the model alone: the first time."""
        known = self.ledger.known
        if work not in known:
            known[work] = work(self)
        found: T = known[work]
        return found

    @property
    def class_tensors(self) -> dict[str, str]:
        """The class's tensor for each tensor of the ledger; its own path where the class is not known."""
        return self.once(_class_tensors)

    @property
    def context(self) -> int:
        """Longest context that the model was trained for, in tokens."""
        return self.config.context

    @property
    def source(self) -> int | None:
        """Longest source that its encoder was trained for, in tokens; None without an encoder."""
        return None if self.architecture.encoder is None else self.config.source

    @property
    def position_limit(self) -> int | None:
        """Longest context that the model can run: the positions that its stored position embedding has rows for. None
        where positions are computed, or the embedding is resampled to each image."""
        return self.context if _limits(self.architecture.positions) else None

    @property
    def source_limit(self) -> int | None:
        """The same of the source that its encoder reads."""
        encoder = self.architecture.encoder
        return self.source if encoder is not None and _limits(encoder.positions) else None

    def past_positions(self, work: Workload) -> str | None:
        """Why the model cannot run a step, where the step ends past a stored position embedding; None if it can."""
        limits = (("context", work.context, self.position_limit), ("source", work.source, self.source_limit))
        for what, asked, limit in limits:
            if limit is not None and asked > limit:
                return f"{what} {asked:,} is past the {limit:,} positions of its position embedding"
        return None

    def past_words(self, context: int) -> str:
        """`, past the 1,024 positions of its position embedding` after a context that is; empty after others."""
        limit = self.position_limit
        if limit is None or context <= limit:
            return ""
        return f", past the {limit:,} positions of its position embedding"

    @property
    def encodes(self) -> Literal["vision", "audio"] | None:
        """What it is an encoder of, images or audio; None of a language model."""
        embed = self.architecture.embed
        return "vision" if isinstance(embed, Patches) else "audio" if isinstance(embed, Stem) else None

    @property
    def counted_with_text(self) -> bool:
        """True for an encoder that is counted together with its language model, which alone `--ctx` is of."""
        return self.part == "both" and self.encodes is not None

    @property
    def parameters(self) -> int:
        """Number of stored parameters."""
        return sum(self.ledger.parameters().values())

    @property
    def keeps(self) -> bool:
        """True if anything stays for a next step. An encoder alone keeps nothing."""
        return self.ledger.keeps

    @property
    def kept(self) -> str:
        """Name of the state that it keeps between steps."""
        named = {"KV cache": self.architecture.attentions, "state": self.architecture.having(Mixer)}
        return " and ".join(name for name, there in named.items() if there)

    @property
    def logits(self) -> bool:
        """True if positions get logits, of tokens or of classes. Those of a body get none."""
        classes = self.architecture.classes
        return self.architecture.head is not None or (classes is not None and not classes.pooled)

    @property
    def expected(self) -> int | None:
        """Expected number of parameters, if the config is as published; else None."""
        return self.provenance.expected if self.provenance and not self.changed else None

    @property
    def of_class(self) -> Mapping[str, Any]:
        """Its fields as the transformers class is given them: under another model_type where that has none of this."""
        other = self.config.hf_model_type
        return {**self.raw, "model_type": other, **self.config.hf_config_fields()} if other else self.raw

    def with_fields(self, sets: Mapping[str, Any]) -> LoadedModel:
        """The same model with fields set over its config. Other models in its file stay left out."""
        changed = subject(self.name, self.raw, sets, self.provenance)
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
        found = subject(f"{self.name}:{part}", self._whole_for(part), sets, self.provenance, part)
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
            said = f"{self.name} holds no other models: {option('part', part)} does not apply"
            raise UsageError(said, "leave it out")
        return self.whole

    def with_layers(self, count: int) -> LoadedModel:
        """Return the model with `count` blocks in each stack."""
        fewer = self.architecture.mapped(lambda part: part, [count] * len(self.architecture.every_stack))
        return replace(self, architecture=fewer, ledger=fewer.ledger())

    def running(self, form: MlaMode) -> LoadedModel:
        """Return the model with its latent attention run in this form, where the form is `auto`."""
        return self._as(self.architecture.running(form))

    def settled(self, work: Workload, *, masked: bool = False) -> LoadedModel:
        """The same model in the one way that a step runs it: with the form of latent attention that takes fewer FLOPs
        there."""
        return self._as(self.architecture.settled(work.axes(), masked=masked))

    def _as(self, shape: Transformer) -> LoadedModel:
        return self if shape is self.architecture else replace(self, architecture=shape, ledger=shape.ledger())

    @property
    def quantized(self) -> bool:
        """True if the config says that its weights are stored quantized."""
        return any(self.raw.get(field) for field in published.FIELDS)

    def storage(self, dtype: str | None = None) -> Storage:
        """Storage of its weights in a dtype or format; without one as its config or a file next to it says, or in bf16
        where they say a plain dtype or nothing. Raises TfacctError."""
        if dtype is not None:
            name = units.dtype_name(dtype)
            if name not in units.GGUF:
                return storage(name)
            from tfacct.loading.quantized import gguf

            return gguf.mix(self, name)
        if not self.quantized:
            published.published(self)  # raises for what is not counted
            return BF16
        from tfacct.loading import quantized

        return self.once(quantized.as_published)


def _class_tensors(model: LoadedModel) -> dict[str, str]:
    modules, named = model.config.hf_module_paths(), model.config.hf_tensor_names()
    found = {}
    for tensor in model.ledger.tensors():
        owner, _, leaf = tensor.path.rpartition(".")
        found[tensor.path] = named.get(tensor.path, f"{modules.get(owner, owner)}.{leaf}")
    return found


def _limits(positions: Positions | None) -> bool:
    """Whether an embedding has no row for a position past its last."""
    return positions is not None and positions.stored and positions.tiles is None


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors about a config name the model."""
    try:
        yield
    except (ConfigError, NotFoundError) as error:
        error.message = f"{name}: {error.message}"
        raise


def subject(
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
