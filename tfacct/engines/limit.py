"""The memory that an engine leaves for the cache, in place of a share of the card."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.engines import simple_start
from tfacct.engines.launch import Flags, Launch, check_supported, refusal
from tfacct.engines.profiles import engine
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel

TRTLLM = "trtllm"
"""TensorRT-LLM, of which only the rule of its pool is known."""
TRTLLM_SHARE = Fraction(9, 10)
"""Share of what the weights leave that TensorRT-LLM's cache takes: its free_gpu_memory_fraction."""


def with_engine(
    limit: MemoryLimit,
    name: str,
    model: LoadedModel,
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    use: float | None = None,
) -> MemoryLimit:
    """The limit at which the cache has the pool of an engine's newest version, the weights being as they are counted.
    `use`: gpu_memory_utilization. Raises UsageError for what is not derived, or does not start."""
    if limit.device is None:
        raise UsageError(f"{option('engine', name)} needs a device", f"such as {option('on', 'h100')}")
    known = engine("vllm" if name == TRTLLM else name)
    flags = Flags(dtype=dtype, kv_dtype=kv_dtype, tp=limit.count, gpu_memory_utilization=use)
    launch = Launch(known, known.profile(), model, limit.device, flags)
    if name == "vllm":
        check_supported(launch)
        if (why := refusal(launch)) is not None:
            raise UsageError(f"{model.name} does not start in {known.name}: {why.reason}", why.instead)
    weights = launch.rank_weights(launch.shard(model)).parameters
    if name == TRTLLM:
        pool, words = int((limit.memory - weights) * TRTLLM_SHARE), "TensorRT-LLM"
    elif name == "vllm":
        pool, words = launch.fullest().pool, f"{known.name} {launch.profile.newest}"
    else:
        pool, words = simple_start.sglang(launch, model.name).pool, f"{known.name} {launch.profile.newest}"
    return replace(limit, use=1, reserve=limit.memory - weights - max(0, pool), engine=words)
