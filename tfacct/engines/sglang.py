"""SGLang's start: what is free after loading, less the share that is not static.

`model_runner.profile_max_num_token` (0.4), `kv_cache_configurator` (0.5), `server_args.py`.
"""

from __future__ import annotations

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.engines.launch import Launch
from tfacct.engines.pages import cache_layers
from tfacct.engines.profiles import GIB, MIB
from tfacct.engines.start import Reasons, Start, counted, estimated, of_models, of_parts
from tfacct.engines.weights import weights
from tfacct.ledger.storage import width


def unsupported(launch: Launch) -> Reasons:
    yield from of_models(launch)
    flags, formats = launch.flags, launch.profile["weights"]
    if flags.dtype is not None and units.dtype_name(flags.dtype) not in formats:
        yield f"{option('dtype', flags.dtype)} is not supported for SGLang", f"one of {', '.join(formats)}"
    if launch.length > (context := launch.model.context):
        why = f"SGLang starts with requests of {context:,} tokens at most, not {launch.length:,}"
        yield why, option("max_model_len", context)
    if flags.kv_dtype not in (None, "fp8", launch.value_dtype):
        yield f"{option('kv_dtype', flags.kv_dtype)} is not supported for SGLang", f"fp8 or {launch.value_dtype}"


def fraction(launch: Launch) -> float:
    """mem_fraction_static: as given, else by the server's arithmetic. Raises UsageError."""
    if launch.flags.gpu_memory_utilization is not None:
        return launch.flags.gpu_memory_utilization
    profile, tp = launch.profile, launch.flags.tp
    if fractions := profile["fraction"]:
        if str(tp) not in fractions:
            raise UsageError(f"mem_fraction_static of {tp} cards is not known", option("gpu_memory_utilization", "0.8"))
        return float(fractions[str(tp)])
    _, chunk, few, many = next(one for one in profile["cards"] if launch.total >= one[0] * GIB)
    reserved = profile["reserved_mib"]
    tokens = max(launch.flags.max_num_batched_tokens or chunk, reserved["least_chunk"])
    mib = reserved["base"] + reserved["per_chunk_token"] * tokens
    mib += reserved["per_graph_request"] * (few if tp < 4 else many) + reserved["per_8_ranks"] * tp / 8
    if launch.total > reserved["large_gib"] * GIB:
        mib = max(mib, reserved["floor"])
    return float(round(1 - mib * MIB / launch.total, 3))


def start(launch: Launch) -> Start:
    """The start. A cache smaller than the longest request starts too: SGLang shortens requests to it. Raises
    TfacctError."""
    stored, share = of_parts(launch, "weights", weights(launch, launch.rank)), fraction(launch)
    layers = cache_layers(launch.model, width(launch.kv_dtype), tp=launch.flags.tp)
    token = sum(one.layers * one.bytes for one in layers)
    taken = estimated("CUDA context", launch.profile["context_gib"], "before loading")
    before = launch.total - taken["bytes"]
    tokens = int(before - stored["bytes"] - before * (1 - share)) // token
    terms = {
        "card": counted("card", launch.total, "torch's total"),
        "outside": taken,
        "weights": stored,
        "not static": counted("not static", int(before * (1 - share)), f"1 − mem_fraction_static {share:g}", "derived"),
    }
    if tokens < 1:
        lacks = f"no memory is left for the cache, which needs {(1 - tokens) * token / GIB:.1f} GiB more"
        return Start(launch, terms, lacks, instead="Use narrower weights or more memory.")
    return Start(launch, terms, pool=tokens * token, tokens=tokens, concurrency=tokens / launch.length)
