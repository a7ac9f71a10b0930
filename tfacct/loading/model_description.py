"""A model as its config describes it. The format of its weights follows from this (`published`, `quantized`)."""

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
"""Fields of a config that say how its weights are stored; MLX writes the last."""
EXPECTED_FROM = {
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
    """A key of EXPECTED_FROM."""
    via: str | None = None
    """The public copy that a `copied` config was read from."""
    revision: str | None = None
    working: str | None = None
    about: str | None = None
    """Description of a `described` model, in words."""


@record
class ModelDescription:
    """A model by name: its config's fields, its architecture, its ledger, and how its weights are published."""

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
    path: str = ""
    """The file or folder that it was read from, as the user typed it."""
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

    def once(self, work: Callable[[Self], T]) -> T:
        """The result of `work` on the model, computed the first time it is asked for."""
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
    def has_cache(self) -> bool:
        """True if a step caches anything for the next: keys and values, or a state. An encoder alone caches nothing."""
        return self.ledger.has_cache

    @property
    def cache_name(self) -> str:
        """`KV cache`, `state` or both: what a step caches for the next."""
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

    @property
    def quantized(self) -> bool:
        """True if the config says that its weights are stored quantized."""
        return any(self.raw.get(name) for name in FORMAT_FIELDS)


def _class_tensors(model: ModelDescription) -> dict[str, str]:
    modules, named = model.config.hf_module_paths(), model.config.hf_tensor_names()
    found = {}
    for tensor in model.ledger.tensors():
        owner, _, leaf = tensor.path.rpartition(".")
        found[tensor.path] = named.get(tensor.path, f"{modules.get(owner, owner)}.{leaf}")
    return found


def _limits(positions: Positions | None) -> bool:
    """Whether an embedding has no row for a position past its last."""
    return positions is not None and positions.stored and positions.tiles is None
