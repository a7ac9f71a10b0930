"""A launch line: flags as they are given, and the engine's defaults for the others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.architecture.parts import Experts, Mixer
from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.record import record
from tfacct.base.spelling import option, shell_option, spelled
from tfacct.engines.pages import MambaMode
from tfacct.engines.profiles import Engine, Profile
from tfacct.engines.units import GIB
from tfacct.ledger.storage import Storage, width
from tfacct.ledger.workload import check_size
from tfacct.loading import devices
from tfacct.loading.devices import Device
from tfacct.loading.memory_limit import check_share
from tfacct.loading.model import LoadedModel

WIDE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Dtypes of a model, and the engines' names of them."""
NAMES = {"auto": None, "half": "fp16", "float": "fp32", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8"}
"""Other dtypes by the engines' own names."""
PAGED = ("fp32", "bf16", "fp16", "fp8")
"""Dtypes of a cache in pages."""
SIZES = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size", "requests", "tp", "pp")
"""Flags that are numbers of tokens, requests or cards."""
BYTES = re.compile(r"[1-9]\d{0,17}", re.ASCII)
"""Bytes without a unit."""


class Flags(NamedTuple):
    """Flags of a launch; None: the engine's default. Sizes in tokens or bytes. The last three are no flags, but what a
    log says."""

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
    sampler: str | None = None
    cublas_bytes: int | None = None
    image_items: int | None = None


@record
class Launch:
    """A launch with every flag settled. `encoders`: of the images of its model."""

    engine: Engine
    profile: Profile
    model: LoadedModel
    device: Device
    flags: Flags
    encoders: Sequence[LoadedModel] = ()

    def with_flags(self, **flags: Any) -> Launch:
        """The same launch with other flags."""
        return replace(self, flags=self.flags._replace(**flags))

    # Flags and their defaults

    @property
    def cards(self) -> int:
        """Number of cards."""
        return self.flags.tp * self.flags.pp

    @property
    def total(self) -> int:
        """Memory of a card as torch reports it."""
        return self.flags.total_memory or self.device.memory

    @property
    def length(self) -> int:
        """max_model_len."""
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
        """gpu_memory_utilization."""
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
        """How the weights are stored."""
        return self.model.storage(self.stored_dtype)

    @property
    def kv_dtype(self) -> str:
        """Dtype of the cache: as given, else that of the model."""
        return self.flags.kv_dtype or self.value_dtype

    # The model

    @property
    def hub_id(self) -> str:
        """The id that the engine is started with."""
        url = "" if self.model.provenance is None else self.model.provenance.url
        return url.rpartition("huggingface.co/")[2] or self.model.path or self.model.name

    @property
    def hidden(self) -> int:
        """Hidden size."""
        return int(self.model.architecture.embed.hidden)

    @property
    def vocabulary(self) -> int:
        """Rows of the head."""
        assert self.model.architecture.head is not None
        return int(self.model.architecture.head.vocab)

    @property
    def experts(self) -> list[Experts]:
        """Its kinds of experts."""
        return [part for part in self.model.architecture.parts() if isinstance(part, Experts)]

    @property
    def has_states(self) -> bool:
        """True for layers with states of fixed size."""
        return bool(self.model.architecture.having(Mixer))

    @property
    def images(self) -> Mapping[str, Any]:
        """Facts of its dummy images in the profile run; none for a text model."""
        kind = (self.model.composite or {}).get("model_type") if self.encoders else None
        facts: Mapping[str, Any] = self.engine.facts["images"][kind] if kind else {}
        return facts


def launch_of(engine: Engine, model: LoadedModel, given: Mapping[str, Any]) -> Launch:
    """The launch with these flags, sizes in numbers. Raises TfacctError."""
    profile = engine.profile(given.get("engine_version"))
    if (on := given.get("on")) is None:
        raise UsageError(f"engine needs {option('on')}", f"such as {option('on', 'h100')}")
    count, device = devices.several(option("on"), on)
    for name in SIZES:
        if given.get(name) not in (None, "max"):
            check_size(option(name), given[name])
    tp, pp = given.get("tp") or 1, given.get("pp") or 1
    tp = count if tp * pp == 1 else tp
    if count not in (1, tp * pp):
        raise UsageError(f"{option('on')} {cut(on)} and {option('tp', tp)}, {option('pp', pp)}: {tp * pp} cards")
    if given.get("gpu_memory_utilization") is not None:
        check_share("gpu_memory_utilization", given["gpu_memory_utilization"])
    length = given.get("max_model_len")
    read = {
        "max_model_len": None if length == "max" else length,
        "dtype": NAMES.get(str(given.get("dtype")), given.get("dtype")),
        "kv_dtype": _kv_dtype(engine.id, given.get("kv_dtype")),
        "tp": tp,
        **{name: _bytes(name, given.get(name)) for name in ("kv_cache_memory_bytes", "total_memory")},
    }
    named = {name: value for name, value in given.items() if name in Flags._fields and value is not None}
    images = engine.facts.get("images", {})
    whole = model.composite if not model.part else None
    encoders = model.of_parts("parameters")[1:] if whole and whole.get("model_type") in images else ()
    return Launch(engine, profile, model, device, Flags(**named | read), encoders)


def _kv_dtype(engine: str, given: str | None) -> str | None:
    """How an engine stores its cache. Raises UsageError."""
    name = NAMES.get(str(given), given)
    if name is not None and engine != "llama.cpp" and width(name).name not in PAGED:
        raise UsageError(
            f"{option('kv_dtype')} {cut(name)} is not supported for {engine}", f"one of {', '.join(PAGED)}"
        )
    return name


def _bytes(name: str, value: Any) -> int | None:
    """A size such as `79.19GiB`, or bytes; of the cache also bytes alone, as the engine has them. Raises UsageError."""
    if isinstance(value, str):
        digits = name == "kv_cache_memory_bytes" and BYTES.fullmatch(value.strip())
        value = int(value) if digits else units.read_bytes(option(name), value)
    if value is None:
        return None
    check_size(option(name), value, units.LARGEST_BYTES)
    return int(value)


def typed(name: str, value: int | float | str) -> str:
    """An option with its value, as it can be typed."""
    return spelled(f"{shell_option(name)} {value}", f"{name}={value!r}")


def written(words: str, named: Mapping[str, Any]) -> str:
    """A command with the flags that have a value; True: a flag without one."""
    flags = [name if value is True else f"{name} {value}" for name, value in named.items() if value is not None]
    return " ".join([words, *flags])
