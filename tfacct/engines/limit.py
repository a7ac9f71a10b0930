"""The memory that an engine leaves for the cache, in place of a share of the card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError, exclusive
from tfacct.base.spelling import option
from tfacct.engines import sglang, vllm
from tfacct.engines.advice import more_cards, suggestion
from tfacct.engines.launch import Flags, Launch, divisors
from tfacct.engines.profiles import Profile, profile_of
from tfacct.engines.start import MEMORY, Reasons, Start, of_models
from tfacct.engines.weights import weights
from tfacct.loading.devices import Device
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.parallel.shard_model import as_served, shard_weights

TRTLLM: Profile = {
    "name": "TensorRT-LLM",
    "newest": "",
    "pool_share": Fraction(9, 10),
    "architectures": ("Ampere", "Ada", "Hopper", "Blackwell", "Blackwell Ultra"),
}
"""TensorRT-LLM, of which only the rule of its pool is known. `pool_share`: share of what the weights leave that the
cache takes, the default of free_gpu_memory_fraction in tensorrt_llm/llmapi/llm_args.py, KvCacheConfig. `architectures`:
nvidia.github.io/TensorRT-LLM/supported-hardware.html (B300 and GB300 are Blackwell there)."""
ENGINE_FLAGS = ("kv_cache_memory_bytes", "total_memory", "block_size", "engine_version")
"""Flags of hints that only `tfacct engine` has."""


class Served(NamedTuple):
    """A model in an engine's newest version. `length`: tokens of a request. `use`: gpu_memory_utilization."""

    engine: str
    model: LoadedModel
    length: int | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    use: float | None = None

    @property
    def profile(self) -> Profile:
        """Of TensorRT-LLM, whose flags have no effect here, that of vLLM with other cards."""
        return {**profile_of("vllm"), **TRTLLM} if self.engine == "trtllm" else profile_of(self.engine)

    @property
    def version(self) -> str:
        """The engine and its version in words."""
        return f"{self.profile['name']} {self.profile['newest']}".rstrip()

    def launch(self, count: int, device: Device) -> Launch:
        """The launch on so many cards."""
        flags = Flags(dtype=self.dtype, kv_dtype=self.kv_dtype, tp=count, gpu_memory_utilization=self.use)
        return Launch(self.profile, self.model, device, flags)


def check_options(engine: str, reserve: int | str | None, ep: int = 1) -> None:
    """Raise UsageError for options that an engine's pool does not go with."""
    if reserve is not None or ep > 1:
        other = option("reserve") if ep == 1 else option("ep")
        raise exclusive(option("engine", engine), other)


def with_engine(limit: MemoryLimit, served: Served) -> MemoryLimit:
    """The limit at which the cache has the engine's pool, the weights being as they are counted. Raises UsageError for
    what is not supported, or does not start; its hint is the usual share of the cards, or more of them."""
    if (found := pool_limit(limit, served)) is not None:
        return found
    assert limit.device is not None
    launch, card = served.launch(limit.count, limit.device), limit.device.id
    more = (f"{count}x{card}" for count in more_cards(launch) if _leaves_cache(replace(limit, count=count), served))
    instead, share = "larger cards or narrower weights", ""
    if served.use is not None:
        instead, share = f"leave {option('use')} out", f" with {option('use', f'{served.use:g}')}"
    elif cards := next(more, ""):
        instead = f"such as {option('on', cards)}"
    stored = units.binary(weights(launch, launch.rank)["parameters"])
    raise UsageError(f"{served.version}: {stored} of weights leave no cache on each {card}{share}", instead)


def _leaves_cache(limit: MemoryLimit, served: Served) -> bool:
    """True if a launch is supported, starts and has memory for a cache."""
    try:
        return pool_limit(limit, served) is not None
    except TfacctError:
        return False


def usual_pool(limit: MemoryLimit, model: LoadedModel, dtype: str | None, kv_dtype: str) -> MemoryLimit | None:
    """The limit with the pool of vLLM's newest version and default flags; None where vLLM does not run the model, or
    where the limit is not the usual share of devices."""
    if limit.device is None or limit.options(training=False):
        return None
    served = Served("vllm", model, None, dtype, kv_dtype)
    try:
        found = pool_limit(limit, served)
    except TfacctError:
        return None
    if found is not None:
        return found
    use = served.launch(limit.count, limit.device).utilization
    return replace(limit, use=use, reserve=limit.memory, engine=served.version)


def pool_limit(limit: MemoryLimit, served: Served) -> MemoryLimit | None:
    """The same limit; None where the weights leave no cache. Raises UsageError for what is not supported, or does not
    start."""
    name, model, length = served.engine, served.model, served.length
    if limit.device is None:
        raise UsageError(f"{option('engine', name)} needs a device", f"such as {option('on', 'h100')}")
    launch, leave = served.launch(limit.count, limit.device), f"leave {option('engine')} out"
    cards = divisors(model, limit.count)
    if limit.count not in cards:
        many = f"{limit.count:,} cards do not divide the attention heads of {model.name}"
        raise UsageError(f"{served.version}: {many}", option("on", f"{max(cards)}x{limit.device.id}"))
    unsupported, started = ENGINES[name]
    for why, instead in unsupported(launch):
        if any(option(flag) in instead for flag in ENGINE_FLAGS):
            instead = f"{leave}; `tfacct engine` takes {instead}"
        raise UsageError(f"{model.name}: {why}", leave if MEMORY in instead else instead)
    if name != "trtllm" and length is not None and length > model.context:
        longest = f"{launch.profile['name']} starts {model.name} with requests of {model.context:,} tokens at most"
        raise UsageError(f"{longest}, not {length:,}", f"fewer tokens, or {leave}")
    start = started(launch)
    rank = shard_weights(as_served(model), limit.count, launch.stored_dtype)
    stored = weights(launch, rank)["parameters"]
    if start.others:
        why = f"{model.name} does not start in {launch.profile['name']}: {start.lacks}"
        raise UsageError(why, suggestion(start)[0])
    if start.pool <= 0:
        return None
    share = launch.utilization if name == "vllm" else 1
    pages, without = start.pages, " Activations and sampling buffers of TensorRT-LLM are not included."
    return replace(
        limit,
        use=share,
        reserve=int(limit.memory * Fraction(str(share))) - stored - start.pool,
        paged=None if pages is None else pages.requests,
        engine=served.version,
        not_included=without if name == "trtllm" else "",
        most_requests=launch.seqs if name == "vllm" else None,
    )


def _trtllm_unsupported(launch: Launch) -> Reasons:
    yield from of_models(launch)
    if launch.flags.gpu_memory_utilization is not None:
        yield f"{option('use')} is not supported for TensorRT-LLM", "leave it out"
    if launch.storage.by_block:
        yield f"TensorRT-LLM has no weights in {launch.storage.name}", f"{option('dtype')} fp8"


def _trtllm_start(launch: Launch) -> Start:
    left = launch.total - weights(launch, launch.rank)["parameters"]
    return Start(launch, {}, pool=int(left * launch.profile["pool_share"]))


ENGINES: Mapping[str, tuple[Callable[[Launch], Reasons], Callable[[Launch], Start]]] = {
    "vllm": (vllm.unsupported, vllm.start),
    "sglang": (sglang.unsupported, sglang.start),
    "trtllm": (_trtllm_unsupported, _trtllm_start),
}
