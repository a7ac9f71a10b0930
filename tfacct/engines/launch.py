"""A launch line: flags as they are given, and the engine's defaults for the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import gcd
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from tfacct.architecture.parts import Experts, Mixer
from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.spelling import option
from tfacct.engines.pages import MambaMode
from tfacct.engines.profiles import GIB, Profile, profile_of
from tfacct.ledger.storage import width
from tfacct.ledger.workload import check_size
from tfacct.loading import devices
from tfacct.loading.devices import Device
from tfacct.loading.memory_limit import check_share
from tfacct.loading.model import LoadedModel
from tfacct.parallel.shard_model import shard_weights

WIDE = ("bf16", "fp16", "fp32")
"""Dtypes of a model."""
NAMES = {"auto": None, "float": "fp32", "bitsandbytes": "nf4", "fp8_inc": "fp8"}
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
    mamba_cache_mode: MambaMode | None = None
    kv_cache_memory_bytes: int | None = None
    total_memory: int | None = None


class Launch:
    """A launch with every flag settled: as given, else the engine's default for this version and card.

    `total`: memory of a card as torch reports it; `batched`, `seqs`: the most tokens and requests of a step;
    `pool_given`: the size of the cache is a flag, so it is exact; `value_given`: the dtype is one of activations, not a
    format of weights; `value_dtype`, `value_bytes`: of activations, on a card without bf16 fp16; `stored_dtype`: of
    weights, None as published; `quantized_experts`: kernels repack them and have buffers of their own; `images`: the
    dummy images of the profile run, none for a text model.
    """

    def __init__(self, profile: Profile, model: LoadedModel, device: Device, flags: Flags) -> None:
        self.profile, self.model, self.device, self.flags = profile, model, device, flags
        self.cards: int = flags.tp * flags.pp
        self.total: int = flags.total_memory or device.memory
        self.utilization = float(flags.gpu_memory_utilization or profile["utilization"])
        self.pool_given = flags.kv_cache_memory_bytes is not None
        self.length: int = flags.max_model_len or profile["context"] or model.context
        memory = 0 if device.id.startswith(tuple(profile["small_cards"])) else self.total
        tokens, seqs = next(most for least, *most in profile["batch"] if memory >= least * GIB)
        tokens = max(tokens, self.length) if self.length <= profile["whole_requests"] else tokens
        tokens = min(tokens, (flags.max_num_seqs or seqs) * self.length)
        self.batched: int = tokens if flags.max_num_batched_tokens is None else flags.max_num_batched_tokens
        self.seqs: int = flags.max_num_seqs or min(seqs, self.batched)

        dtype = flags.dtype and units.dtype_name(flags.dtype)
        self.value_given = dtype in WIDE
        self.value_dtype = dtype if dtype in WIDE else "bf16" if "bf16" in device.peak else "fp16"
        self.value_bytes = 4 if self.value_dtype == "fp32" else 2
        self.stored_dtype = flags.dtype if dtype not in WIDE or dtype == "fp32" else None
        self.kv_dtype = flags.kv_dtype or self.value_dtype
        self.storage = model.storage(self.stored_dtype)

        shape, family = model.architecture, None if model.part else (model.composite or {}).get("model_type")
        self.hidden = int(shape.embed.hidden)
        self.vocabulary = 0 if shape.head is None else int(shape.head.vocab)
        self.experts = [part for part in shape.parts() if isinstance(part, Experts)]
        self.quantized_experts = bool(self.experts) and self.storage.name not in WIDE
        self.has_states = bool(shape.having(Mixer))
        images = profile["images"].get(family, {})
        self.images: Mapping[str, Any] = images and {**images, "items": max(1, self.batched // images["tokens"])}

    @property
    def published(self) -> str:
        """Hub id or address of the published model; empty if there is none."""
        url = "" if self.model.provenance is None else self.model.provenance.url
        return url.rpartition("huggingface.co/")[2]

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Encoders in the published files that the engine loads too, and that are not counted."""
        published = self.model.provenance if "{model}" in self.profile["serve"] else None
        return () if published is None else published.without

    @property
    def rank(self) -> LoadedModel:
        """The model as one of its tensor-parallel ranks stores it. Raises TfacctError."""
        return shard_weights(self.model, self.flags.tp, self.stored_dtype)

    def with_flags(self, **flags: Any) -> Launch:
        """The same launch with other flags."""
        return Launch(self.profile, self.model, self.device, self.flags._replace(**flags))


def divisors(model: LoadedModel, most: int) -> list[int]:
    """Numbers of cards up to `most` that divide the heads of every layer, attention's and those of recurrent states."""
    heads = [int(part.heads) for part in model.architecture.attentions]
    heads += [int(getattr(part, part.tp_heads or "", 1)) for _, part in model.architecture.having(Mixer)]
    return [count for count in range(1, most + 1) if gcd(*heads) % count == 0]


def launch_of(engine: str, model: LoadedModel, given: Mapping[str, Any]) -> Launch:
    """The launch of an engine with these flags, sizes in numbers. Raises TfacctError."""
    flags = {name: value for name, value in given.items() if value not in (None, "max")}
    profile = profile_of(engine, flags.get("engine_version"))
    if (on := flags.get("on")) is None:
        raise UsageError("engine needs a device", f"such as {option('on', 'h100')}")
    count, device = devices.several(option("on"), on)
    for name in (name for name in SIZES if name in flags):
        check_size(option(name), flags[name])
    tp, pp = flags.get("tp", 1), flags.get("pp", 1)
    tp = flags["tp"] = count if tp * pp == 1 else tp
    if count not in (1, tp * pp):
        taken = f"{option('tp', tp)} and {option('pp', pp)} use {tp * pp:,} cards"
        raise UsageError(
            f"{taken}, not the {count:,} of {option('on', cut(on))}", option("on", f"{tp * pp}x{device.id}")
        )
    if "gpu_memory_utilization" in flags:
        check_share("gpu_memory_utilization", flags["gpu_memory_utilization"])
    for name in (name for name in ("kv_cache_memory_bytes", "total_memory") if name in flags):
        if isinstance(size := flags[name], str):
            bare = name == "kv_cache_memory_bytes" and size.strip().isdecimal()  # bytes alone, as the engine has them
            flags[name] = units.read_bytes(option(name), f"{size}B" if bare else size)
        check_size(option(name), flags[name], units.LARGEST_BYTES)
    flags |= {name: NAMES.get(flags[name], flags[name]) for name in ("dtype", "kv_dtype") if name in flags}
    if cached := flags.get("kv_dtype"):
        cached = flags["kv_dtype"] = width(cached).name
        if cached not in profile["cache"]:
            why = f"{option('kv_dtype')} {cut(cached)} is not supported for {profile['name']}"
            raise UsageError(why, f"one of {', '.join(profile['cache'])}")
    return Launch(profile, model, device, Flags(**{name: flags[name] for name in Flags._fields if name in flags}))


def typed_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are given with another value than their default."""
    return {name: value for name, value in given.items() if value not in (None, False, Flags._field_defaults.get(name))}


def words(profile: Profile, flags: Flags, **more: str | int | None) -> list[str]:
    """Flags of a launch line with another value than their default, as the engine has them."""
    stored = flags.dtype and units.dtype_name(flags.dtype)
    names = {"dtype": profile["weights"].get(stored), "kv_dtype": profile["cache"].get(flags.kv_dtype)}
    names["mamba_cache_mode"] = profile["state_caching"].get(flags.mamba_cache_mode)
    given = typed_flags(flags._asdict() | names | more)
    return [template.format(given[name]) for name, template in profile["flags"].items() if given.get(name)]


def line(launch: Launch) -> str:
    """The command that starts this launch, without the flags that are defaults of its version and card."""
    profile, model, settled = launch.profile, launch.model, attrgetter("length", "batched", "seqs", "utilization")
    shorter = launch
    for name in profile["defaulted"]:
        fewer = shorter.with_flags(**{name: None})
        shorter = fewer if settled(fewer) == settled(launch) else shorter
    folder = str(Path(model.path).parent) if model.path.endswith(".json") else model.path
    named = launch.published or folder or "CHECKPOINT"
    if launch.uncounted:
        named = f"{named.rpartition('/')[2]}-TEXT-ONLY"
    flags, stored = shorter.flags, units.dtype_name(shorter.flags.dtype or launch.value_dtype)
    served = named if stored in profile["weights"] else f"CHECKPOINT-IN-{stored.upper()}"
    command = profile["serve"].format(model=quote(served), file=quote(f"{named.rpartition('/')[2]}.gguf"))
    overrides = quote(json.dumps(dict(model.changed))) if model.changed else None
    length = flags.max_model_len or profile["context"] or None
    return " ".join([command, *words(profile, flags, max_model_len=length, overrides=overrides)])
