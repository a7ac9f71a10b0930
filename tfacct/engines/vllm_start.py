"""vLLM's start: the memory of each rank, the launch line, and why it may not start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfacct.accounts.memory import largest_that_fits
from tfacct.architecture.parts import LatentAttention
from tfacct.engines import vllm
from tfacct.engines.launch import WIDE, Launch, written
from tfacct.engines.pages import Pages, Paging, alignment_of, cache_layers, pages
from tfacct.engines.start import EngineTerm, Start, counted
from tfacct.engines.units import GIB
from tfacct.engines.weights import Weights, weights
from tfacct.ledger.storage import width
from tfacct.ledger.workload import LARGEST
from tfacct.loading.model import LoadedModel
from tfacct.parallel.shard_model import stages_of

ONLINE = {"fp8": "fp8", "nf4": "bitsandbytes"}
"""Formats that the engine itself quantizes to, and its names of them; others need a checkpoint."""


def derived(launch: Launch) -> bool:
    """True if starts agree with the counts of weights and activations: not where kernels repack quantized weights, or
    quantize activations."""
    return launch.storage.name in WIDE or launch.storage.name == "fp8"


def like_measured(launch: Launch) -> bool:
    """True for a launch like those of the measured starts."""
    fp32 = "fp32" in (launch.value_dtype, launch.storage.name)
    other = fp32 or launch.has_states or launch.model.architecture.having(LatentAttention) or launch.flags.pp > 1
    return bool(derived(launch) and launch.profile.starts and not other and not launch.pool_given)


def stage_pages(launch: Launch, stage: LoadedModel, pool: int) -> Pages:
    """Pages of the pool of a rank of a pipeline stage."""
    flags = launch.flags
    chunk = max((int(getattr(part, "chunk", 1)) for part in launch.model.architecture.parts()), default=1)
    layers = cache_layers(stage, width(launch.kv_dtype), launch.value_bytes, tp=flags.tp)
    ratio, alignment = launch.profile.padding_ratio, alignment_of(stage)
    mode = flags.mamba_cache_mode
    return pages(layers, pool, Paging(launch.length, launch.batched, ratio, flags.block_size, alignment, mode, chunk))


def tokens_of(launch: Launch, found: Pages) -> int:
    """Tokens as the version prints them."""
    return found.tokens if launch.profile.tokens_line == "blocks" else int(found.concurrency * launch.length)


def requested(launch: Launch) -> EngineTerm:
    """What the engine takes of a card."""
    return counted("requested", launch.requested, f"{launch.utilization:g} of {launch.total / GIB:.2f}, torch's total")


def ranks(launch: Launch) -> list[Start]:
    """Memory of the ranks of each kind of pipeline stage."""
    pp, sure = launch.flags.pp, derived(launch)
    outside, graphs = vllm.outside(launch), vllm.graphs(launch)
    found = []
    for number, stage in stages_of(launch.model, pp):
        loaded, peak = weights(launch, stage), vllm.peak(launch, first=number == 1, last=number == pp)
        rows = f"sampler: {launch.seqs:,} rows × {launch.vocabulary:,} logits"
        inside = rows if peak.source == "sampler" else f"a layer of {launch.batched:,} tokens"
        taken = {
            "weights": counted("weights", loaded.total, _weight_words(loaded), sure=sure),
            "activations": counted("activations at start", peak.bytes, inside, sure=sure),
            "outside": outside.term,
            **({} if graphs is None else {"graphs": graphs}),
        }
        if launch.pool_given:
            del taken["weights"]
        left = launch.requested - sum(term["bytes"] for term in taken.values())
        pool = launch.flags.kv_cache_memory_bytes or left
        paged = stage_pages(launch, stage, pool)
        tokens = tokens_of(launch, paged)
        lines = (
            f"GPU KV cache size: {tokens:,} tokens",
            f"Maximum concurrency for {launch.length:,} tokens per request: {paged.concurrency:.2f}x",
        )
        least = loaded.parameters + (outside.term["low_bytes"] or 0)
        least += peak.bytes if sure and not vllm.repacks_experts(launch) else 0
        start = Start(
            {"requested": requested(launch), **taken}, pool, tokens, paged.concurrency, lines, measured=outside.starts
        )
        found.append(replace(start, peak=peak, pages=paged, stage=number, least=least))
    return found


def _weight_words(found: Weights) -> str:
    """What weights consist of."""
    parts = {"parameters": found.parameters, "cos and sin": found.rotary, "W_UK and W_UV": found.absorbed}
    shown = (name for name in parts if name == "parameters" or parts[name] >= GIB // 200)
    return ", ".join(f"{name} {parts[name] / GIB:.2f}" for name in shown)


def start(launch: Launch) -> Start:
    """The rank with the fewest blocks for its layers, whose pool decides; `lacks` names the memory that one request of
    the longest length, or a pool that is given, has too little of."""
    every = ranks(launch)
    found = min(every, key=lambda one: one.concurrency)
    return replace(found, lacks=_lacks(launch, found, max(one.least for one in every)))


def _lacks(launch: Launch, found: Start, least: int) -> str:
    assert found.pages is not None
    if found.pool <= 0:
        return "no memory is left for the cache blocks"
    if launch.pool_given and least + found.pool > launch.total:
        cache = f"a cache of {found.pool / GIB:.1f} GiB and all else"
        return f"{cache} need {(least + found.pool) / GIB:.1f} GiB, the card has {launch.total / GIB:.1f}"
    if found.pages.blocks >= found.pages.pages_per_request:
        return ""
    needs = found.pages.pages_per_request * found.pages.block_bytes
    tokens = f"one request of {launch.length:,} tokens"
    return f"{tokens} needs {needs / GIB:.1f} GiB, the pool has {found.pool / GIB:.1f}"


def largest_length(launch: Launch) -> int:
    """The longest max_model_len that starts with these flags; 0 if none does."""
    found = start(launch)
    assert found.pages is not None
    stage = dict(stages_of(launch.model, launch.flags.pp))[found.stage]

    def needed(length: int) -> int:
        longer = launch.with_flags(max_model_len=length, max_num_batched_tokens=launch.batched)
        return stage_pages(longer, stage, found.pool).pages_per_request

    return largest_that_fits(needed, found.pages.blocks, min(launch.model.context, LARGEST))


def line(launch: Launch) -> str:
    """The command that starts this launch: only flags that are not the defaults of its version and card."""
    flags, bare = launch.flags, launch.with_flags(max_num_batched_tokens=None, max_num_seqs=None)
    quantized = None if launch.value_given else flags.dtype
    on_disk = quantized is None or quantized in ONLINE
    served = launch.hub_id if on_disk else f"CHECKPOINT-IN-{str(quantized).upper()}"
    named: dict[str, Any] = {
        "--tensor-parallel-size": flags.tp if flags.tp > 1 else None,
        "--pipeline-parallel-size": flags.pp if flags.pp > 1 else None,
        "--max-model-len": launch.length if launch.length != launch.model.context else None,
        "--max-num-batched-tokens": launch.batched if launch.batched != bare.batched else None,
        "--max-num-seqs": launch.seqs if launch.seqs != bare.seqs else None,
        "--gpu-memory-utilization": launch.utilization if launch.utilization != launch.profile.utilization else None,
        "--kv-cache-memory-bytes": flags.kv_cache_memory_bytes,
        "--dtype": WIDE[launch.value_dtype] if launch.value_given else None,
        "--quantization": ONLINE.get(quantized or ""),
        "--kv-cache-dtype": flags.kv_dtype if launch.kv_dtype not in WIDE else None,
        "--block-size": flags.block_size,
        "--mamba-cache-mode": flags.mamba_cache_mode if flags.mamba_cache_mode != "none" else None,
        "--enforce-eager": flags.enforce_eager or None,
    }
    return written(f"{launch.engine.facts['serve']} {served}", named)
