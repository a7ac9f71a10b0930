"""A launch line: flags as they are given, and the engine's defaults for the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from tfacct.architecture.parts import Experts, Mixer
from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.engines.pages import MambaMode
from tfacct.engines.profiles import GIB, Engine, Profile
from tfacct.ledger.storage import Storage, width
from tfacct.ledger.workload import check_size
from tfacct.loading import devices
from tfacct.loading.devices import Device
from tfacct.loading.memory_limit import check_share
from tfacct.loading.model import LoadedModel

WIDE = ("bf16", "fp16", "fp32")
"""Dtypes of a model."""
NAMES = {
    **{"auto": None, "half": "fp16", "float": "fp32", "bitsandbytes": "nf4"},
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "fp8_inc"), "fp8"),
}
"""Other dtypes by the engines' own names."""
SIZES = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size", "requests", "tp", "pp")
"""Flags that are numbers of tokens, requests or cards."""


class Flags(NamedTuple):
    """Flags of a launch; None: the engine's default. Sizes in tokens or bytes."""

    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    gpu_memory_utilization: float | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    tp: int = 1
    pp: int = 1
    enforce_eager: bool = False
    block_size: int | None = None
    mamba_cache_mode: MambaMode = "none"
    kv_cache_memory_bytes: int | None = None
    total_memory: int | None = None


@record
class Launch:
    """A launch with every flag settled."""

    engine: Engine
    profile: Profile
    model: LoadedModel
    device: Device
    flags: Flags

    def with_flags(self, **flags: Any) -> Launch:
        """The same launch with other flags."""
        return replace(self, flags=self.flags._replace(**flags))

    # Flags and their defaults

    @property
    def cards(self) -> int:
        return self.flags.tp * self.flags.pp

    @property
    def total(self) -> int:
        """Memory of a card as torch reports it."""
        return self.flags.total_memory or self.device.memory

    @property
    def length(self) -> int:
        return self.flags.max_model_len or self.profile.facts.get("context") or self.model.context

    @property
    def batched(self) -> int:
        """max_num_batched_tokens: by the card's memory, and at most what all requests have."""
        if self.flags.max_num_batched_tokens is not None:
            return self.flags.max_num_batched_tokens
        return min(self._defaults[0], (self.flags.max_num_seqs or self._defaults[1]) * self.length)

    @property
    def seqs(self) -> int:
        """max_num_seqs: by the card's memory, and at most the batched tokens."""
        return self.flags.max_num_seqs or min(self._defaults[1], self.batched)

    @property
    def _defaults(self) -> tuple[int, int]:
        small = self.device.id.startswith(tuple(self.profile.small_cards))
        memory = 0 if small else self.total
        return next((tokens, seqs) for least, tokens, seqs in self.profile.batch if memory >= least * GIB)

    @property
    def utilization(self) -> float:
        return self.flags.gpu_memory_utilization or float(self.profile.utilization)

    @property
    def pool_given(self) -> bool:
        """True if the size of the cache is a flag: it is then no remainder, and exact."""
        return self.flags.kv_cache_memory_bytes is not None

    # Dtypes

    @property
    def value_given(self) -> bool:
        """True if `dtype` is one of activations, not a format of weights."""
        return self.flags.dtype is not None and units.dtype_name(self.flags.dtype) in WIDE

    @property
    def value_dtype(self) -> str:
        """Dtype of activations: as given, else half precision, which is fp16 on a card without bf16."""
        if self.value_given:
            return units.dtype_name(self.flags.dtype or "")
        return "bf16" if "bf16" in self.device.peak else "fp16"

    @property
    def value_bytes(self) -> int:
        """Bytes of a value of the model's dtype."""
        return 4 if self.value_dtype == "fp32" else 2

    @property
    def stored_dtype(self) -> str | None:
        """Dtype of the weights; None: as published."""
        if self.value_given:
            return "fp32" if self.value_dtype == "fp32" else None
        return self.flags.dtype

    @property
    def storage(self) -> Storage:
        return self.model.storage(self.stored_dtype)

    @property
    def kv_dtype(self) -> str:
        """Dtype of the cache: as given, else that of the model."""
        return self.flags.kv_dtype or self.value_dtype

    # The model

    @property
    def hidden(self) -> int:
        return int(self.model.architecture.embed.hidden)

    @property
    def vocabulary(self) -> int:
        assert self.model.architecture.head is not None
        return int(self.model.architecture.head.vocab)

    @property
    def experts(self) -> list[Experts]:
        return [part for part in self.model.architecture.parts() if isinstance(part, Experts)]

    @property
    def quantized_experts(self) -> bool:
        """True for experts whose kernels repack them and have buffers of their own."""
        return bool(self.experts) and self.storage.name not in WIDE

    @property
    def has_states(self) -> bool:
        """True for layers with states of fixed size."""
        return bool(self.model.architecture.having(Mixer))

    @property
    def images(self) -> Mapping[str, Any]:
        """Facts of its dummy images in the profile run; none for a text model."""
        kind = None if self.model.part else (self.model.composite or {}).get("model_type")
        facts: Mapping[str, Any] = self.engine.facts.get("images", {}).get(kind, {})
        return facts


def divisors(model: LoadedModel, most: int) -> list[int]:
    """Numbers of cards up to `most` that divide the heads of every layer, attention's and those of recurrent states."""
    heads = [int(part.heads) for part in model.architecture.attentions]
    heads += [int(getattr(part, part.tp_heads or "", 1)) for _, part in model.architecture.having(Mixer)]
    return [count for count in range(1, most + 1) if not any(each % count for each in heads)]


def launch_of(engine: Engine, model: LoadedModel, given: Mapping[str, Any]) -> Launch:
    """The launch with these flags, sizes in numbers. Raises TfacctError."""
    flags = {name: value for name, value in given.items() if value not in (None, "max")}
    profile = engine.profile(flags.get("engine_version"))
    if (on := flags.get("on")) is None:
        raise UsageError(f"engine needs {option('on')}", f"such as {option('on', 'h100')}")
    count, device = devices.several(option("on"), on)
    for name in (name for name in SIZES if name in flags):
        check_size(option(name), flags[name])
    tp, pp = flags.get("tp", 1), flags.get("pp", 1)
    tp = flags["tp"] = count if tp * pp == 1 else tp
    if count not in (1, tp * pp):
        raise UsageError(f"{option('on')} {cut(on)} and {option('tp', tp)}, {option('pp', pp)}: {tp * pp} cards")
    if "gpu_memory_utilization" in flags:
        check_share("gpu_memory_utilization", flags["gpu_memory_utilization"])
    for name in ("kv_cache_memory_bytes", "total_memory"):
        flags[name] = _bytes(name, flags[name]) if name in flags else None
    flags |= {name: NAMES.get(flags[name], flags[name]) for name in ("dtype", "kv_dtype") if name in flags}
    if cached := flags.get("kv_dtype"):
        cached = flags["kv_dtype"] = width(cached).name
        if cached not in engine.facts["cache"]:
            why = f"{option('kv_dtype')} {cut(cached)} is not supported for {engine.name}"
            raise UsageError(why, f"one of {', '.join(engine.facts['cache'])}")
    named = {name: value for name, value in flags.items() if name in Flags._fields}
    return Launch(engine, profile, model, device, Flags(**named))


def typed_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are given with another value than their default."""
    return {name: value for name, value in given.items() if value not in (None, False, Flags._field_defaults.get(name))}


def _bytes(name: str, value: int | float | str) -> int:
    """A size such as `79.19GiB`, or bytes; of the cache also bytes alone, as the engine has them. Raises UsageError."""
    if isinstance(value, str):
        bare = name == "kv_cache_memory_bytes" and value.strip().isdecimal()
        value = units.read_bytes(option(name), f"{value}B" if bare else value)
    check_size(option(name), value, units.LARGEST_BYTES)
    return int(value)


def words(engine: Engine, flags: Flags, **more: str | int | None) -> list[str]:
    """Flags of a launch line with another value than their default, as the engine has them."""
    facts, stored = engine.facts, flags.dtype and units.dtype_name(flags.dtype)
    names = {"dtype": facts["weights"].get(stored), "kv_dtype": facts["cache"].get(flags.kv_dtype)}
    given = typed_flags(flags._asdict() | names | more)
    return [template.format(given[name]) for name, template in facts["flags"].items() if given.get(name)]


def line(launch: Launch) -> str:
    """The command that starts this launch, without the flags that are defaults of its version and card."""

    def settled(one: Launch) -> tuple[int, int, int, float]:
        return one.length, one.batched, one.seqs, one.utilization

    facts, model, shorter = launch.engine.facts, launch.model, launch
    for name in facts.get("defaulted", ()):
        fewer = shorter.with_flags(**{name: None})
        shorter = fewer if settled(fewer) == settled(launch) else shorter
    url = "" if model.provenance is None else model.provenance.url
    folder = str(Path(model.path).parent) if model.path.endswith(".json") else model.path
    named = url.rpartition("huggingface.co/")[2] or folder or "CHECKPOINT"
    flags, stored = shorter.flags, units.dtype_name(shorter.flags.dtype or launch.value_dtype)
    served = named if stored in facts["weights"] else f"CHECKPOINT-IN-{stored.upper()}"
    command = facts["serve"].format(model=quote(served), file=quote(f"{named.rpartition('/')[2]}.gguf"))
    length = flags.max_model_len or launch.profile.facts.get("context")
    overrides = quote(json.dumps(dict(model.changed))) if model.changed else None
    return " ".join([command, *words(launch.engine, flags, max_model_len=length, overrides=overrides)])
