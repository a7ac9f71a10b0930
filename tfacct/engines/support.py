"""What is not supported for an engine: the reasons that a launch gives, and what to ask for instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tfacct.architecture.parts import DeltaNet, LatentAttention, Mamba2, Mixer
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.engines.launch import WIDE, Launch
from tfacct.engines.vllm import repacks_experts
from tfacct.ledger.lines import WINDOW
from tfacct.ledger.storage import width

Reasons: TypeAlias = Iterator[tuple[str, str]]
"""Why a launch is not supported, and what to ask for instead."""
GGUF = ("bf16", "fp16", "fp32", "mxfp4", *units.GGUF)
"""Formats of weights in llama.cpp's files."""
GGUF_CACHE = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", **{name: name for name in units.BLOCK_CACHES}}
"""Dtypes of a cache, and llama.cpp's names of them."""
TRTLLM = "trtllm"
"""TensorRT-LLM, of which only the rule of its pool is known."""
TRTLLM_CARDS = ("Ampere", "Ada", "Hopper", "Blackwell", "Blackwell Ultra")
"""Architectures that TensorRT-LLM supports: nvidia.github.io/TensorRT-LLM/supported-hardware.html (B300 and GB300 are
Blackwell there)."""
PADDED = 256
"""llama.cpp rounds the tokens of its cache up to a multiple of it, in some builds."""


def vllm(launch: Launch) -> Reasons:
    """Reasons of a launch of vLLM."""
    engine, device, model, flags = launch.engine, launch.device, launch.model, launch.flags
    shape, facts, storage = model.architecture, engine.facts, launch.storage
    kind = (model.whole or model.raw).get("model_type", model.family)
    if shape.encoder is not None:
        yield "encoder-decoders are not supported by `tfacct engine`", "choose a decoder-only model"
    if shape.head is None or not model.has_cache:
        yield "pooling models are not supported", "choose a model with a language-model head"
    if model.family in facts["refused_types"]:
        yield f"{engine.name} has no class for {kind}", "`tfacct memory` counts its weights and cache"
    if device.architecture not in facts["architectures"]:
        card = device.architecture or device.name
        yield f"{engine.name} on {card} is not supported: samplers and graphs differ", "choose an NVIDIA card"
    if device.totals.torch is None and flags.total_memory is None:
        instead = f"{option('total_memory')} as torch reports it, such as 79.19GiB"
        yield f"torch's total of {device.name} is not known", instead
    if any(getattr(part, "indexer", None) is not None for part in shape.attentions):
        yield "sparse attention (DeepSeek V3.2 and later) is not supported", "use `tfacct memory`"
    if model.whole is not None and kind not in facts["images"]:
        yield f"images of {kind} are not supported", "use the preset of its text model"
    if launch.cards > 1 and not launch.profile.several_cards:
        yield "the V0 engine on several cards is not supported", f"{option('engine_version')} 0.8 or later"
    if launch.value_dtype == "fp16" and not launch.value_given and model.family in facts["not_in_fp16"]:
        why = f"the dtype of {kind} in {engine.name} on a card without bfloat16 is not known"
        yield why, f"{option('dtype')} fp32"
    if launch.stored_dtype == "tf32":
        yield f"{engine.name} stores no weights in tf32", f"{option('dtype')} fp32"
    if launch.kv_dtype in WIDE and width(launch.kv_dtype).bits != width(launch.value_dtype).bits:
        why = f"a {launch.kv_dtype} cache with {launch.value_dtype} activations is not supported"
        yield why, f"{option('kv_dtype')} fp8"
    if storage.by_block:
        why = f"{engine.name} does not store {storage.name} weights as the file does"
        yield why, f"{option('dtype')} fp8, or llama.cpp"
    if launch.pool_given:
        return
    if repacks_experts(launch):
        yield "the memory of repacked MXFP4 experts is not known", option("kv_cache_memory_bytes")
    if launch.experts and storage.name not in WIDE:
        yield "quantized experts are not supported, except in MXFP4", "use a checkpoint in bf16"
    if not all(_shares_heads(part, flags.tp) for part in shape.parts() if isinstance(part, Mixer)):
        why = "these state-space layers cannot be sharded over these cards"
        yield why, option("kv_cache_memory_bytes")


def _shares_heads(part: Mixer, tp: int) -> bool:
    """True of a part with states whose heads ranks share evenly."""
    heads = part.key_heads if isinstance(part, DeltaNet) else part.groups if isinstance(part, Mamba2) else 1
    return int(heads) % tp == 0


def pages(launch: Launch) -> Reasons:
    """Reasons of a model whose size of vLLM's blocks is not known."""
    shape = launch.model.architecture
    if not shape.attentions:
        why = "the blocks of a pure state-space model are not supported"
        yield why, "`tfacct memory` counts its weights and states"
    if shape.having(LatentAttention) and not launch.has_states and launch.flags.block_size is None:
        why = "the block size of MLA depends on the attention backend"
        yield why, f"{option('block_size', 64)}, or what the log says"


def _others(launch: Launch) -> Reasons:
    """Reasons of a launch of an engine other than vLLM."""
    model, device, shape = launch.model, launch.device, launch.model.architecture
    refused = {
        "encoder-decoders and pooling models": shape.encoder is not None or shape.head is None,
        "models without a cache": not model.has_cache,
        "caches of state-space layers": launch.has_states,
        "caches of sliding windows": any(WINDOW in group.axes for group in model.ledger.groups),
        "image encoders": model.whole is not None,
        "pipeline stages": launch.flags.pp > 1,
        f"cards of {device.architecture or device.name}": device.architecture
        not in launch.engine.facts["architectures"],
    }
    for what, is_asked in refused.items():
        if is_asked:
            yield f"{what} are not supported for {launch.engine.name}", "`tfacct memory` counts the model"


def sglang(launch: Launch) -> Reasons:
    """Reasons of a launch of SGLang."""
    yield from _others(launch)
    flags = launch.flags
    if flags.dtype is not None and units.dtype_name(flags.dtype) not in ("fp8", *WIDE):
        yield f"{option('dtype', flags.dtype)} is not supported for SGLang", "bf16, fp16, fp32 or fp8"
    if flags.kv_dtype is not None and units.dtype_name(flags.kv_dtype) not in ("fp8", launch.value_dtype):
        yield f"{option('kv_dtype', flags.kv_dtype)} is not supported for SGLang", f"fp8 or {launch.value_dtype}"


def llama_cpp(launch: Launch) -> Reasons:
    """Reasons of a launch of llama.cpp."""
    yield from _others(launch)
    flags, stored, name = launch.flags, launch.model.storage(launch.flags.dtype).name, "llama.cpp"
    if flags.tp > 1:
        yield f"several cards are not supported for {name}", "one card"
    if launch.model.architecture.having(LatentAttention):
        yield f"compute buffers of latent attention are not supported for {name}", "`tfacct memory` counts the model"
    if flags.gpu_memory_utilization is not None:
        yield f"{option('gpu_memory_utilization')} is no flag of {name}", "leave it out"
    if stored not in GGUF and stored in units.DTYPES:
        yield f"{name} has no weights in {stored}", f"for example {option('dtype', 'q4_k_m')}"
    if flags.kv_dtype is not None and units.dtype_name(flags.kv_dtype) not in GGUF_CACHE:
        yield f"{name} has no cache in {flags.kv_dtype}", f"one of {', '.join(GGUF_CACHE)}"
    if launch.length % PADDED:
        why = f"some builds of {name} round {launch.length:,} tokens up to a multiple of {PADDED}"
        yield why, option("max_model_len", str(launch.length + -launch.length % PADDED))


def trtllm(launch: Launch) -> Reasons:
    """Reasons of a launch of TensorRT-LLM."""
    shape, card = launch.model.architecture, launch.device.architecture or launch.device.name
    if shape.encoder is not None or shape.head is None or not launch.model.has_cache:
        why = "encoder-decoders and models without a head or a cache are not supported for TensorRT-LLM"
        yield why, f"leave {option('engine')} out"
    if card not in TRTLLM_CARDS:
        yield f"TensorRT-LLM on {card} is not supported", f"leave {option('engine')} out"
    if launch.storage.by_block:
        yield f"TensorRT-LLM has no weights in {launch.storage.name}", f"{option('dtype')} fp8"


REASONS = {"vllm": vllm, "sglang": sglang, "llama.cpp": llama_cpp, TRTLLM: trtllm}
"""Reasons of a launch, by its engine."""


def check(launch: Launch, reasons: Reasons | None = None) -> None:
    """Raise UsageError with the first of the reasons, if there are any; those of its engine by default."""
    for why, instead in reasons or REASONS[launch.engine.id](launch):
        raise UsageError(f"{launch.model.name}: {why}", instead)
