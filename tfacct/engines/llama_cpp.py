"""llama.cpp's start on one card, every layer on it: weights, a cache and the buffer of the LM head.

`llama-context.cpp`, builds of 2025.
"""

from __future__ import annotations

from typing import Any

from tfacct.accounts.memory import cache_bytes
from tfacct.architecture.parts import LatentAttention
from tfacct.base import units
from tfacct.base.spelling import option
from tfacct.engines.launch import Launch
from tfacct.engines.pages import round_up
from tfacct.engines.profiles import GIB
from tfacct.engines.start import MEMORY, Reasons, Start, counted, estimated, of_models
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Request
from tfacct.loading import selection


def unsupported(launch: Launch) -> Reasons:
    yield from of_models(launch)
    flags, stored, name = launch.flags, launch.model.storage(launch.flags.dtype).name, "llama.cpp"
    if flags.tp > 1:
        yield f"several cards are not supported for {name}", "use one card"
    if launch.model.architecture.having(LatentAttention):
        yield f"compute buffers of latent attention are not supported for {name}", MEMORY
    if stored in units.DTYPES and stored not in (*launch.profile["weights"], *units.GGUF):
        yield f"{name} has no weights in {stored}", f"for example {option('dtype', 'q4_k_m')}"
    padded = round_up(launch.length, multiple := launch.profile["tokens_multiple"])
    if padded > launch.length:
        why = f"some builds of {name} round {launch.length:,} tokens up to a multiple of {multiple}"
        yield why, option("max_model_len", str(padded))


def start(launch: Launch) -> Start:
    """The start. Raises TfacctError."""
    model, flags = launch.model, launch.flags
    how, head = model.storage(flags.dtype), model.architecture.head
    each = model.ledger.weight_bytes(how)
    on_host = each["embed.weight"] if head is not None and not head.tied else 0  # a tied one is copied for the head
    weights = sum(each.values()) - on_host
    work = selection.workload(model, Request(ctx=launch.length))
    cache = int(cache_bytes(model.ledger, work.axes(), width(flags.kv_dtype or "fp16")))
    rows = flags.max_num_batched_tokens or launch.profile["ubatch"]
    low, high = (4 * rows * (launch.vocabulary + copies * launch.hidden) for copies in launch.profile["copies"])
    source = f"{how.name}{f'; the embedding, {on_host / GIB:.2f} GiB, stays on the host' if on_host else ''}"
    terms = {
        "card": counted("card", launch.total, "total of the card"),
        "outside": estimated("CUDA context", launch.profile["context_gib"], "assumed, not in logs"),
        "weights": counted("weights", weights, source, "derived"),
        "activations": estimated("compute buffer", (high, low, high), f"{rows} rows of logits", unit=1),
    }
    card, *taken = (term["bytes"] for term in terms.values())
    free = card - sum(taken) - cache
    lacks = f"a cache of {launch.length:,} tokens needs {-free / GIB:.1f} GiB more than is free" if free < 0 else ""
    less = "narrower weights or more memory" if free + cache < 0 else "a shorter context or narrower weights"
    found: Any = {"pool": cache, "tokens": launch.length, "concurrency": 1.0, "free": free}
    return Start(launch, terms, lacks, instead=f"Use {less}.", **found)
