"""The memory that an engine leaves for the cache, in place of a share of the card."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.engines import sglang, support, vllm_start
from tfacct.engines.advice import divisors, more_cards, refused, suggestion
from tfacct.engines.launch import Flags, Launch
from tfacct.engines.profiles import engine
from tfacct.engines.weights import weights
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel

TRTLLM = "trtllm"
"""TensorRT-LLM, of which only the rule of its pool is known."""
TRTLLM_CARDS = ("Ampere", "Ada", "Hopper", "Blackwell", "Blackwell Ultra")
"""Architectures of cards that TensorRT-LLM supports."""
TRTLLM_SHARE = Fraction(9, 10)
"""Share of what the weights leave that TensorRT-LLM's cache takes: its free_gpu_memory_fraction."""


def with_engine(
    limit: MemoryLimit,
    name: str,
    model: LoadedModel,
    *,
    length: int | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    use: float | None = None,
) -> MemoryLimit:
    """The limit at which the cache has the pool of an engine's newest version, the weights being as they are counted.
    `length`: tokens of a request. `use`: gpu_memory_utilization. Raises UsageError for what is not derived, or does not
    start."""
    if limit.device is None:
        raise UsageError(f"{option('engine', name)} needs a device", f"such as {option('on', 'h100')}")
    known = engine("vllm" if name == TRTLLM else name)
    flags = Flags(dtype=dtype, kv_dtype=kv_dtype, tp=limit.count, gpu_memory_utilization=use)
    launch = Launch(known, known.profile(), model, limit.device, flags)
    architecture = limit.device.architecture or limit.device.name
    if name == TRTLLM and architecture not in TRTLLM_CARDS:
        raise UsageError(f"TensorRT-LLM on {architecture} is not supported", f"leave {option('engine')} out")
    if name == TRTLLM and use is not None:
        raise UsageError(f"{option('use')} is not supported for TensorRT-LLM", "leave it out")
    words = "TensorRT-LLM" if name == TRTLLM else f"{known.name} {launch.profile.newest}"
    cards = divisors(model, limit.count)
    if limit.count not in cards:
        many = f"{limit.count:,} cards do not divide the attention heads of {model.name}"
        raise UsageError(f"{words}: {many}", option("on", f"{max(cards)}x{limit.device.id}"))
    if name == "vllm":
        support.check(launch, support.vllm(launch))
        if (refusal := refused(launch)) is not None:
            why = f"{model.name} does not start in {known.name}: {refusal.reason}"
            raise UsageError(why, suggestion(launch, refusal))
    if name != TRTLLM and length is not None and length > model.context:
        longest = f"{known.name} starts {model.name} with requests of {model.context:,} tokens at most"
        raise UsageError(f"{longest}, not {length:,}", f"fewer tokens, or leave {option('engine')} out")
    stored, pool = pool_of(launch, name)
    if pool <= 0:
        share = "" if use is None else f" with {option('use', f'{use:g}')}"
        counts = (count for count in more_cards(launch) if _leaves_cache(launch.with_flags(tp=count), name))
        more = next((f"such as {option('on', f'{count}x{limit.device.id}')}" for count in counts), None)
        raise UsageError(
            f"{words}: {units.binary(stored)} of weights leave no cache on each {limit.device.id}{share}",
            more or "larger cards or narrower weights",
        )
    return replace(limit, use=1, reserve=limit.memory - stored - pool, engine=words)


def pool_of(launch: Launch, name: str) -> tuple[int, int]:
    """Bytes of a card's weights, and of the cache next to them: negative where the engine does not start. Raises
    TfacctError."""
    stored = weights(launch, launch.model).parameters
    if name == TRTLLM:
        return stored, int((launch.total - stored) * TRTLLM_SHARE)
    if name == "vllm":
        return stored, vllm_start.start(launch).pool
    support.check(launch, support.sglang(launch))
    return stored, sglang.start(launch).pool


def _leaves_cache(launch: Launch, name: str) -> bool:
    """True if a launch is derived, starts and has room for a cache."""
    try:
        if name == "vllm":
            support.check(launch, support.vllm(launch))
        return (name != "vllm" or refused(launch) is None) and pool_of(launch, name)[1] > 0
    except TfacctError:
        return False
