"""A model as described by its config. `published` and `quantized` derive the format of its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from tfacct.architecture.parts import Mixer, Patches, Positions, Stem
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.families import FamilyConfig, NotIncluded
from tfacct.ledger.groups import Ledger
from tfacct.ledger.workload import Workload

T = TypeVar("T")
FORMAT_FIELDS = ("quantization_config", "compression_config", "quantization")
"""Config fields with the format of the weights; MLX writes the last."""
EXPECTED_FROM = {
    "published": "published total",
    "transformers": "total of the transformers class built from this config",
    "arithmetic": "total by hand, in the preset's file",
}
"""Sources of a preset's expected number of parameters, in words."""


class Provenance(NamedTuple):
    """Source of a model's fields, and a preset's expected total."""

    url: str
    kind: str
    """`copied` from a public config.json; `transcribed` by hand from the published architecture; `described` in the
    preset's file, for a model without a page; `fetched` from the hub; or `cached`, if the hub was not asked or did not
    answer."""
    expected: int | None = None
    expected_from: str = ""
    """A key of EXPECTED_FROM."""
    via: str | None = None
    """Address of the public copy of a `copied` config."""
    revision: str | None = None
    without: tuple[str, ...] = ()
    """Parts of the published model that the fields are without."""
    working: str | None = None
    about: str | None = None
    """Description of a `described` model, in words."""


@record
class ModelDescription:
    """A model: name, config fields, architecture, ledger, and facts about its published weights."""

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
    """Fields that the user changed."""
    original: Mapping[str, Any] = field(default_factory=dict)
    """The config before these changes."""
    left_out: tuple[str, ...] = ()
    """Configs of other models in the same file, which are not counted."""
    path: str = ""
    """File or folder that it was read from, as typed by the user."""
    answers: str = ""
    """Note for the user if a preset was used for another name."""
    composite: Mapping[str, Any] | None = None
    """The whole config, if this model is one part of it."""
    parts: tuple[Literal["text", "vision", "audio"], ...] = ()
    """Parts that are counted together."""
    not_included: NotIncluded | None = None
    """Layers in the config that counts do not include."""
    part: str = ""
    """Part that the user asked for; `both` for one of two that are counted together."""
    folder: Path | None = None
    """Folder of its config.json, which may have other files with the format of the weights."""
    format_file: str = ""
    """File next to its config.json with the format of the weights, if the config does not have it."""
    format_assumed: bool = False
    """True if the weights may have another format than the config says: if a preset stands in for another model of the
    same sizes, or if it is unknown whether the hub has a file with the format."""

    def once(self, work: Callable[[Self], T]) -> T:
        """Cached result of `work(model)`."""
        return self.ledger.once(work, lambda: work(self))

    @property
    def class_tensors(self) -> dict[str, str]:
        """Name in the transformers class for each tensor of the ledger; the ledger's path if unknown."""
        return self.once(_class_tensors)

    @property
    def context(self) -> int:
        """Longest context that the model was trained for, in tokens."""
        return self.config.context

    @property
    def source(self) -> int | None:
        """Longest source that the encoder was trained for, in tokens; None without an encoder."""
        return None if self.architecture.encoder is None else self.config.source

    @property
    def position_limit(self) -> int | None:
        """Longest context that the model can run: rows of its stored position embedding.

        None if positions are computed, or the embedding is resampled to each image.
        """
        return self.context if _limits(self.architecture.positions) else None

    @property
    def source_limit(self) -> int | None:
        """Longest source that the encoder can run, like `position_limit`."""
        encoder = self.architecture.encoder
        return self.source if encoder is not None and _limits(encoder.positions) else None

    def past_positions(self, work: Workload) -> str | None:
        """Reason why the model cannot run a step that exceeds a stored position embedding; None if it can."""
        limits = (("context", work.context, self.position_limit), ("source", work.source, self.source_limit))
        for what, length, limit in limits:
            if limit is not None and length > limit:
                return f"{what} {length:,} is past the {limit:,} positions of its position embedding"
        return None

    def past_words(self, context: int) -> str:
        """` (beyond this model's 1,024 positions)` for a context that exceeds its position embedding; else empty."""
        limit = self.position_limit
        return "" if limit is None or context <= limit else f" (beyond this model's {limit:,} positions)"

    @property
    def encodes(self) -> Literal["vision", "audio"] | None:
        """Kind of input of an encoder, images or audio; None for a language model."""
        embed = self.architecture.embed
        return "vision" if isinstance(embed, Patches) else "audio" if isinstance(embed, Stem) else None

    @property
    def counted_with_text(self) -> bool:
        """True for an encoder counted together with its language model; `--ctx` applies to the latter only."""
        return self.part == "both" and self.encodes is not None

    @property
    def parameters(self) -> int:
        """Number of stored parameters."""
        return sum(self.ledger.parameters().values())

    @property
    def has_cache(self) -> bool:
        """True if steps cache keys and values or a state; false for encoders."""
        return self.ledger.has_cache

    @property
    def cache_name(self) -> str:
        """`KV cache`, `state` or both."""
        named = {"KV cache": self.architecture.attentions, "state": self.architecture.having(Mixer)}
        return " and ".join(name for name, there in named.items() if there)

    @property
    def logits(self) -> bool:
        """True if positions have logits, of tokens or classes; false for a base model."""
        classes = self.architecture.classes
        return self.architecture.head is not None or (classes is not None and not classes.pooled)

    @property
    def expected(self) -> int | None:
        """Expected number of parameters; None if the user changed fields."""
        return self.provenance.expected if self.provenance and not self.changed else None

    @property
    def of_class(self) -> Mapping[str, Any]:
        """Fields for the transformers class, with its model_type if it has another name there."""
        other = self.config.hf_model_type
        return {**self.raw, "model_type": other, **self.config.hf_config_fields()} if other else self.raw

    @property
    def quantized(self) -> bool:
        """True if the weights are quantized according to the config."""
        return any(self.raw.get(name) for name in FORMAT_FIELDS)


def _class_tensors(model: ModelDescription) -> dict[str, str]:
    modules, named = model.config.hf_module_paths(), model.config.hf_tensor_names()
    found = {}
    for tensor in model.ledger.tensors():
        owner, _, leaf = tensor.path.rpartition(".")
        found[tensor.path] = named.get(tensor.path, f"{modules.get(owner, owner)}.{leaf}")
    return found


def _limits(positions: Positions | None) -> bool:
    """True if positions are limited by the rows of an embedding."""
    return positions is not None and positions.stored and positions.tiles is None
