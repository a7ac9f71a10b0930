"""What SGLang and llama.cpp allocate at start, as far as it is derived: weights, a cache, and what is free.

SGLang: `model_runner.profile_max_num_token` (0.4), `kv_cache_configurator` (0.5), `server_args.py`. llama.cpp:
`llama-context.cpp`, builds of 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfacct.accounts.memory import cache_bytes
from tfacct.architecture.parts import LatentAttention, Mixer
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.engines.launch import WIDE, Launch
from tfacct.engines.pages import cache_layers
from tfacct.engines.units import GIB, MIB
from tfacct.engines.vllm import Estimate, Term
from tfacct.engines.weights import vocabulary
from tfacct.ledger.lines import WINDOW
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Request
from tfacct.loading import selection


@record
class SimpleStart:
    """A start: its terms, the bytes of the cache and how many tokens it has room for. `missing`: bytes that one token
    in SGLang, or the whole cache in llama.cpp, lacks."""

    terms: tuple[Term, ...]
    pool: int
    tokens: int
    missing: int
    launch_line: str
    log_line: str

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes of the terms, by name."""
        return {term.what: term.bytes for term in self.terms}


def check_supported(launch: Launch) -> None:
    """Raise UsageError for a launch of which a term is not derived."""
    model, engine, device = launch.model, launch.engine, launch.device
    shape, flags = model.architecture, launch.flags
    refused: Mapping[str, Any] = {
        "encoder-decoders and models without a head": shape.encoder is not None or shape.head is None,
        "models without a cache": not model.has_cache,
        "caches of layers with states": bool(shape.having(Mixer)),
        "caches of layers with windows": any(WINDOW in group.axes for group in model.ledger.groups),
        "images": model.whole is not None,
        "pipeline stages": flags.pp > 1,
        f"cards of {device.architecture or device.name}": device.architecture not in engine.facts["architectures"],
    }
    if engine.id == "llama.cpp":
        refused = {
            **refused,
            "several cards": flags.tp > 1,
            "compute buffers of latent attention": bool(shape.having(LatentAttention)),
        }
    if found := next((what for what, is_asked in refused.items() if is_asked), None):
        raise UsageError(f"{model.name} in {engine.name}: {found} are not derived", "`tfacct memory` counts the model")


GGUF = ("bf16", "fp16", "fp32", "mxfp4", *units.GGUF)
"""Formats of weights in llama.cpp's files."""
GGUF_CACHE = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", **{name: name for name in units.BLOCK_CACHES}}
"""Dtypes of a cache, and llama.cpp's names of them."""
PADDED = 256
"""llama.cpp rounds the tokens of its cache up to a multiple of it, in some builds."""


def _sglang_flags(launch: Launch) -> dict[str, Any]:
    """Flags of SGLang's launch line. Raises UsageError for formats that it has no flag for."""
    flags = launch.flags
    dtype = None if flags.dtype is None else units.dtype_name(flags.dtype)
    if dtype not in (None, "fp8", *WIDE):
        raise UsageError(f"{option('dtype', dtype)} is not derived for SGLang", "bf16, fp16, fp32 or fp8")
    cache = None if flags.kv_dtype is None else units.dtype_name(flags.kv_dtype)
    if cache not in (None, "fp8", launch.value_dtype):
        raise UsageError(f"{option('kv_dtype', cache)} is not derived for SGLang", f"fp8 or {launch.value_dtype}")
    return {
        "--tp": flags.tp if flags.tp > 1 else None,
        "--context-length": flags.max_model_len,
        "--chunked-prefill-size": flags.max_num_batched_tokens,
        "--mem-fraction-static": flags.gpu_memory_utilization,
        "--dtype": WIDE.get(dtype or ""),
        "--quantization": dtype if dtype == "fp8" else None,
        "--kv-cache-dtype": "fp8_e4m3" if cache == "fp8" else None,
    }


def _check_gguf(launch: Launch) -> None:
    """Raise UsageError for what llama.cpp has no file or flag for."""
    flags, stored = launch.flags, launch.model.storage(launch.flags.dtype).name
    name = "llama.cpp"
    if flags.gpu_memory_utilization is not None:
        raise UsageError(f"{option('gpu_memory_utilization')} is no flag of {name}", "leave it out")
    if stored not in GGUF and stored in units.DTYPES:
        raise UsageError(f"{name} has no weights in {stored}", f"for example {option('dtype', 'q4_k_m')}")
    if flags.kv_dtype is not None and units.dtype_name(flags.kv_dtype) not in GGUF_CACHE:
        raise UsageError(f"{name} has no cache in {flags.kv_dtype}", f"one of {', '.join(GGUF_CACHE)}")
    if launch.length % PADDED:
        padded = launch.length + -launch.length % PADDED
        why = f"some builds of {name} round {launch.length:,} tokens up to a multiple of {PADDED}"
        raise UsageError(why, option("max_model_len", str(padded)))


LARGE_CARD = 60 * GIB
"""Above it, SGLang 0.5 reserves at least a floor."""


def fraction(launch: Launch) -> float:
    """mem_fraction_static: as given, else by the server's arithmetic. Raises UsageError."""
    if launch.flags.gpu_memory_utilization is not None:
        return launch.flags.gpu_memory_utilization
    profile, tp = launch.profile, launch.flags.tp
    if profile.fraction:
        if str(tp) not in profile.fraction:
            raise UsageError(f"mem_fraction_static of {tp} cards is not known", option("gpu_memory_utilization", "0.8"))
        return float(profile.fraction[str(tp)])
    _, chunk, few, many = next(one for one in profile.cards if launch.total >= one[0] * GIB)
    reserved = profile.reserved_mib
    tokens = max(launch.flags.max_num_batched_tokens or chunk, reserved["least_chunk"])
    mib = reserved["base"] + reserved["per_chunk_token"] * tokens
    mib += reserved["per_graph_request"] * (few if tp < 4 else many) + reserved["per_8_ranks"] * tp / 8
    if launch.total > LARGE_CARD:
        mib = max(mib, reserved["floor"])
    return float(round(1 - mib * MIB / launch.total, 3))


def static_tokens(free_before: int, free_after: int, share: float, token_bytes: int) -> int:
    """Tokens of SGLang's pool: what is free after loading, less what is not static of what was free before.

    78 GiB free, 63 after loading, 0.88 static: 63 − 0.12 · 78 = 53.64 GiB, of 128 KiB a token.

    >>> static_tokens(78 * GIB, 63 * GIB, 0.88, 128 << 10)
    439418
    """
    return int(free_after - free_before * (1 - share)) // token_bytes


def sglang(launch: Launch, hub_id: str) -> SimpleStart:
    """SGLang's start. Raises UsageError."""
    check_supported(launch)
    share, flags = fraction(launch), launch.flags
    layers = cache_layers(launch.model, width(launch.kv_dtype), convolution=2, recurrent=2, tp=flags.tp)
    token = sum(one.layers * one.bytes for one in layers)
    own = launch.rank_weights(launch.shard(launch.model))
    context = context_of(launch)
    before = launch.total - context.bytes
    tokens = static_tokens(before, before - own.total, share, token)
    terms = (
        Term("card", launch.total, "torch's total"),
        Term("CUDA context", context.bytes, "before loading", context),
        Term("weights", own.total, f"parameters {own.parameters / GIB:.2f}"),
        Term("not static", int(before * (1 - share)), f"1 − mem_fraction_static {share:g}"),
    )
    line = " ".join([f"{launch.engine.facts['serve']} {hub_id}", *_given(_sglang_flags(launch))])
    missing, room = (1 - tokens) * token, max(0, tokens)  # it shortens requests to the tokens that there are
    return SimpleStart(terms, tokens * token, room, missing, line, f"max_total_num_tokens={room}")


def llama_cpp(launch: Launch, hub_id: str) -> SimpleStart:
    """llama.cpp's start on one card, every layer on it. Raises UsageError."""
    check_supported(launch)
    _check_gguf(launch)
    model, flags = launch.model, launch.flags
    how = model.storage(flags.dtype)
    each = model.ledger.weight_bytes(how)
    head = model.architecture.head
    on_host = each["embed.weight"] if head is not None and not head.tied else 0  # a tied one is copied for the head
    weights = sum(each.values()) - on_host
    cached = width(flags.kv_dtype or "fp16")
    work = selection.workload(model, Request(ctx=launch.length))
    cache = int(cache_bytes(model.ledger, work.axes(), cached))
    rows = flags.max_num_batched_tokens or launch.profile.ubatch
    low, high = (4 * rows * (vocabulary(model) + copies * launch.sizes.hidden) for copies in launch.profile.copies)
    context = context_of(launch)
    terms = (
        Term("card", launch.total, "total of the card"),
        Term("CUDA context", context.bytes, "in no log", context),
        Term("weights", weights, f"{how.name}; an embedding of {on_host / GIB:.2f} stays on the host"),
        Term("compute buffer", high, f"{rows} rows of logits", Estimate(high, low, high, "estimate")),
    )
    cache_type = None if flags.kv_dtype is None else GGUF_CACHE[units.dtype_name(flags.kv_dtype)]
    named = {"-c": launch.length, "-ub": flags.max_num_batched_tokens, "-ctk": cache_type, "-ctv": cache_type}
    line = " ".join([f"{launch.engine.facts['serve']} {hub_id.rpartition('/')[2]}.gguf", *_given(named)])
    missing = cache + weights + high + context.bytes - launch.total
    return SimpleStart(terms, cache, launch.length, missing, line, f"CUDA0 KV buffer size = {cache / MIB:.2f} MiB")


def context_of(launch: Launch) -> Estimate:
    """CUDA context and what else a process takes before it loads weights."""
    likely, low, high = (round(each * GIB) for each in launch.engine.facts["context_gib"])
    return Estimate(likely, low, high, "estimate")


def _given(named: Mapping[str, Any]) -> list[str]:
    return [f"{name} {value}" for name, value in named.items() if value is not None]
