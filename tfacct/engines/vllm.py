"""vLLM's start: the memory that it leaves for its KV cache, term by term, the launch line, and why it may not start.

    pool = utilization · total − weights − peak − outside [− graphs]

Each term names the source file that it follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfacct.architecture.parts import FeedForward, LatentAttention
from tfacct.base import units
from tfacct.base.spelling import option
from tfacct.engines.launch import WIDE, Launch, divisors
from tfacct.engines.pages import BLOCK, Pages, alignment, cache_layers, round_up
from tfacct.engines.profiles import GIB, MIB, profiles
from tfacct.engines.start import MEMORY, EngineTerm, Reasons, Start, counted, estimated, of_models, of_parts
from tfacct.engines.weights import weights
from tfacct.ledger.storage import width
from tfacct.loading.model import LoadedModel
from tfacct.parallel.shard_model import stages_of


def unsupported(launch: Launch) -> Reasons:
    """Why a launch is not described here."""
    profile, device, model, flags, storage = launch.profile, launch.device, launch.model, launch.flags, launch.storage
    shape, kind = model.architecture, (model.composite or model.raw).get("model_type", model.family)
    yield from of_models(launch)
    if model.family in profile["refused_types"]:
        yield f"vLLM has no class for {kind}", MEMORY
    for what in (what for what in profile["dropped"] if what in (device.architecture, storage.name)):
        older = next(one["newest"] for one in reversed(profiles(profile["id"])) if what not in one["dropped"])
        yield f"vLLM {profile['newest']} does not support {what}", option("engine_version", older)
    if device.totals.torch is None and flags.total_memory is None:
        instead = f"{option('total_memory')} as torch reports it, such as 79.19GiB"
        yield f"torch's total of {device.name} is not known", instead
    if any(getattr(part, "indexer", None) is not None for part in shape.attentions):
        yield "sparse attention (DeepSeek V3.2 and later) is not supported", MEMORY
    if model.composite is not None and kind not in profile["images"]:
        yield f"images of {kind} are not supported", "use the preset of its text model"
    if launch.cards > 1 and not profile["several_cards"]:
        yield "the V0 engine on several cards is not supported", f"{option('engine_version')} 0.8 or later"
    if launch.value_dtype == "fp16" and not launch.value_given and model.family in profile["not_in_fp16"]:
        yield f"the dtype of {kind} in vLLM on a card without bfloat16 is not known", f"{option('dtype')} fp32"
    if launch.stored_dtype == "tf32":
        yield "vLLM stores no weights in tf32", f"{option('dtype')} fp32"
    if launch.kv_dtype in WIDE and width(launch.kv_dtype).bits != width(launch.value_dtype).bits:
        why = f"a cache in {launch.kv_dtype} with {launch.value_dtype} activations is not supported"
        yield why, f"{option('kv_dtype')} fp8"
    if storage.by_block:
        why = f"vLLM stores {storage.name} weights in another layout than the file"
        yield why, f"{option('dtype')} fp8, or the engine llama.cpp"
    if shape.having(LatentAttention) and not launch.has_states and block_size(launch) is None:
        why = f"the block size of vLLM {profile['newest']} for MLA is not known on this card"
        yield why, f"{option('block_size', 64)}, or the size in the log"
    if not shape.attentions:
        yield "the cache blocks of a model without attention are not supported", MEMORY
    if launch.quantized_experts and not launch.pool_given:
        why = f"the memory that vLLM needs for {storage.name} experts is not known"
        yield why, f"{option('kv_cache_memory_bytes', 'SIZE')}; `tfacct memory` gives a first estimate"


def refusals(launch: Launch) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Why the engine refuses its flags before it loads anything, and other flags to try."""
    tp, context, family = launch.flags.tp, launch.model.context, launch.model.family
    if wrong := next((int(part.heads) for part in launch.model.architecture.attentions if part.heads % tp), None):
        fewer = [{"tp": count} for count in reversed(divisors(launch.model, tp - 1))]
        yield f"total number of attention heads ({wrong}) must be divisible by tensor parallel size ({tp})", fewer
    if launch.length > context:
        reason = f"max_model_len ({launch.length:,}) is greater than the derived max_model_len ({context:,})"
        yield reason, [{"max_model_len": context}]
    if launch.batched < launch.seqs:
        reason = f"max_num_batched_tokens ({launch.batched:,}) must be at least max_num_seqs ({launch.seqs:,})"
        yield reason, [{"max_num_seqs": launch.batched}]
    if launch.value_dtype == "bf16" and "bf16" not in launch.device.peak:
        yield "bfloat16 needs a card of compute capability 8.0 or later", [{"dtype": "fp16"}]
    if launch.value_dtype == "fp16" and family in launch.profile["not_in_fp16"]:
        yield f"{family} does not support float16", [{"dtype": "bf16"}, {"dtype": "fp32"}]
    if (launch.flags.block_size or BLOCK) % BLOCK:
        yield f"block_size ({launch.flags.block_size}) must be a multiple of {BLOCK}", [{"block_size": BLOCK}]


# Terms


def runs_v2(launch: Launch) -> bool:
    """True if the version runs this model under the V2 runner. config/vllm.py."""
    runner = launch.profile["v2_runner"]
    if runner in ("all", "dense"):
        return runner == "all" or not (launch.experts or launch.has_states)
    architecture = next(iter(launch.model.raw.get("architectures") or ()), "")
    narrow = launch.storage.name not in WIDE or bool(launch.experts)
    return architecture in runner and (launch.profile["v2_quantized"] or not narrow)


def sampler(launch: Launch) -> dict[str, int]:
    """Bytes while max_num_seqs rows of dummy logits are sampled, by what takes them. gpu_model_runner.py,
    _dummy_sampler_run; v1/sample/ops."""
    profile, seqs, vocabulary = launch.profile, launch.seqs, launch.vocabulary
    kind = profile["v2_sampler" if runs_v2(launch) else "sampler"]
    kind = "sort" if kind == "triton" and seqs < 8 else kind  # topk_topp_sampler.py: too few rows for it
    copies, scratch = profile["samplers"][kind], 0
    if kind == "triton":  # one row of fp32 logits for each program
        multiprocessors = launch.device.multiprocessors or 0
        programs = 1 << (min(multiprocessors, seqs) - 1).bit_length()
        scratch = min(programs, multiprocessors) * vocabulary * 4
    states = launch.batched + 2 * seqs  # hidden states, the last of each row, a random copy
    logits = seqs * round_up(vocabulary, profile["vocabulary_rows"]) * launch.value_bytes
    rows = f"{seqs:,} rows × {vocabulary:,} logits × {copies + launch.value_bytes} bytes"
    return {
        f"sampler ({rows})": seqs * vocabulary * copies + logits,
        "scratch": scratch,
        "states": states * launch.hidden * launch.value_bytes,
    }


def layer(launch: Launch) -> int:
    """Bytes inside one layer: gate, up and their product, and four residual streams, three if compiled. Without a dense
    MLP, that of the shared expert."""
    parts = launch.model.architecture.parts()
    widths = [(int(part.width), 3 if part.gated else 2) for part in parts if isinstance(part, FeedForward)]
    shared = max((int(part.shared or 0) for part in launch.experts), default=0)
    width, copies = max(widths, default=(shared, 3))
    mlp = copies * launch.batched * width // launch.flags.tp * launch.value_bytes
    stream = launch.batched * launch.hidden * launch.value_bytes
    eager, compiled = 4 * stream, 3 * stream + int(launch.profile["compiled_mib"]) * MIB
    return mlp + (compiled if launch.profile["compiles"] and not launch.flags.enforce_eager else eager)


def workspace(launch: Launch) -> int:
    """Bytes of the two buffers of Triton experts, which stay. fused_moe.py, TritonExperts.workspace_shapes."""
    if not (experts := launch.experts):
        return 0
    width = 2 * max(int(part.width) for part in experts) // launch.flags.tp
    active = max(int(part.active) for part in experts)
    rows = max(width // 2, launch.hidden) + max(width, launch.hidden)
    return launch.batched * active * rows * launch.value_bytes


def peak(launch: Launch, *, first: bool = True, last: bool = True) -> dict[str, int]:
    """The most bytes that torch allocates above the weights in the profile run, by what takes them, the sampler or a
    layer first. `first`, `last`: of the pipeline's ranks. v1/worker/gpu_worker.py, determine_available_memory."""
    profile, images = launch.profile, launch.images
    state = launch.hidden * launch.value_bytes
    terms = {f"layer ({launch.batched:,} tokens)": layer(launch)}
    if last and sum((sampled := sampler(launch)).values()) > layer(launch):
        terms = sampled
    if profile["workspace_persistent"] and not launch.storage.name.startswith("mxfp4"):  # kernels have their own
        terms["experts"] = workspace(launch)
    if images:  # both stay until the profile run ends
        terms["images"] = images["items"] * (images["tokens"] * state + images["pixel_bytes"])
    if not first:
        terms["inputs"] = 2 * launch.batched * state  # IntermediateTensors
    if profile["cublas_in_peak"]:
        terms["cuBLAS"] = int(profile["architectures"][launch.device.architecture] * MIB)
    return terms


def outside(launch: Launch) -> tuple[EngineTerm, bool]:
    """Memory that is not torch's (CUDA context, NCCL, all-reduce buffers), and whether starts on as many such cards
    were measured. Without any, that of the nearest number of cards, with a wider interval."""
    profile, tp, pp = launch.profile, launch.flags.tp, launch.flags.pp
    gib = profile["outside_gib"]
    table = gib.get(launch.device.id) or gib.get(launch.device.architecture, {})
    more = profile["unaligned_vocabulary_gib"] if launch.vocabulary % 4 else 0
    key = "pp" if pp > 1 else str(tp)
    if measured := key in table and (pp == 1 or tp == 1) and not (more and launch.cards > 1):
        *sizes, starts = table[key]
        source = f"{starts} start{'' if starts == 1 else 's'}: {sizes[1]:.2f}–{sizes[2]:.2f}"
    else:
        known = [one for one in profiles(profile["id"]) if one["outside_gib"]]
        nearest = min(known, key=lambda one: abs(one["versions"][1] - profile["versions"][1]))
        tables = nearest["outside_gib"]
        table = tables.get(launch.device.architecture) or next(iter(tables.values()))
        middle = table[min((count for count in table if count != "pp"), key=lambda count: abs(int(count) - tp))][0]
        wider = profile["unmeasured_gib"]
        sizes = [middle, max(0, middle - wider["low"]), middle + wider["high"]]
        source = f"not measured for {profile['name']} {profile['newest']} on this card"
    source += f"; {more:.2f} more for a vocabulary that 4 does not divide" if more else ""
    return estimated("outside torch", [size + more for size in sizes], source), measured


def graphs(launch: Launch) -> dict[str, EngineTerm]:
    """CUDA graphs as the version estimates them and subtracts them, if it does. An estimate of its estimate.
    profile_cudagraph_memory."""
    if launch.flags.enforce_eager or not launch.profile["v2_graphs_in_pool" if runs_v2(launch) else "graphs_in_pool"]:
        return {}
    table, layers = launch.profile["graphs_gib"], len(launch.model.architecture.blocks())
    middle = table["base"] + table["per_layer"] * layers
    gib = middle, middle - table["low"], middle + table["high"]
    return {"graphs": estimated("CUDA graphs", gib, f"{layers} layers")}


# The start


def block_size(launch: Launch) -> int | None:
    """Tokens of a block: as given, else those that the backend of latent attention prefers; None for the usual number,
    or one that is not known. platforms/interface.py, update_block_size_for_backend."""
    latents = {int(part.nope_dim) for _, part in launch.model.architecture.having(LatentAttention)}
    if launch.flags.block_size or not latents or launch.has_states:
        return launch.flags.block_size
    card = launch.device.architecture or ""
    if card.startswith("Blackwell") and not latents.issubset(launch.profile["flashinfer_heads"]):
        return None
    blocks: Mapping[str, int] = launch.profile["latent_block"].get(str(width(launch.kv_dtype).bits), {})
    return blocks.get(launch.device.id, blocks.get(card))


def pages(launch: Launch, stage: LoadedModel, pool: int) -> Pages:
    """Pages of the pool of a rank of a pipeline stage."""
    profile, tp = launch.profile, launch.flags.tp
    mode = launch.flags.mamba_cache_mode or profile["mamba_cache_mode"]
    layers = cache_layers(stage, width(launch.kv_dtype), launch.value_bytes, tp=tp)
    how: Any = {
        "batched": launch.batched,
        "block": block_size(launch),
        "alignment": alignment(stage, mode),
        "mode": mode,
    }
    return Pages(layers, pool, padding_ratio=profile["padding_ratio"], **how)


def stages(launch: Launch) -> list[tuple[int, LoadedModel, LoadedModel]]:
    """Kinds of pipeline stages: the number of the first, its layers, and what one rank stores of them. Raises
    TfacctError."""
    whole, rank = (stages_of(model, launch.flags.pp) for model in (launch.model, launch.rank))
    return [(number, stage, part) for (number, stage), (_, part) in zip(whole, rank, strict=True)]


def start(launch: Launch) -> Start:
    """The start of the rank with the fewest blocks for its layers, whose pool decides. Raises TfacctError."""
    total = f"{launch.utilization:g} of {launch.total / GIB:.2f}, torch's total"
    requested = counted("requested", int(launch.total * launch.utilization), total)
    for reason, others in refusals(launch):
        return Start(launch, {"requested": requested}, reason, others)
    every = [_rank(launch, requested, *stage) for stage in stages(launch)]
    return min(every, key=lambda one: (not one.lacks, one.concurrency))


def _rank(launch: Launch, requested: EngineTerm, number: int, stage: LoadedModel, rank: LoadedModel) -> Start:
    """The start of a rank of the pipeline stage of this number."""
    most = peak(launch, first=number == 1, last=number == launch.flags.pp)
    beyond, measured = outside(launch)
    taken = {
        "weights": of_parts(launch, "weights", weights(launch, rank)),
        "activations": of_parts(launch, "activations at start", most),
        "outside": beyond,
        **graphs(launch),
    }
    left = requested["bytes"] - sum(term["bytes"] for term in taken.values())
    pool, terms, length = launch.flags.kv_cache_memory_bytes or left, {"requested": requested, **taken}, launch.length
    found = pages(launch, stage, pool)
    concurrency, lacks = found.concurrency(length), _lacks(launch, found, pool, terms)
    of_blocks = launch.profile["tokens_line"] == "blocks"
    return Start(
        launch,
        terms,
        lacks,
        pool=pool if found.blocks else 0,
        tokens=found.tokens if of_blocks else found.blocks * length // found.per_request(length),
        concurrency=concurrency,
        measured=measured,
        peak_from="sampler" if "states" in most else "layer",
        pages=found,
    )


def _lacks(launch: Launch, found: Pages, pool: int, terms: Mapping[str, EngineTerm]) -> str:
    """The memory that a pool that is given, or one request of the longest length, has too little of."""
    if pool <= 0:
        share, stored = terms["requested"]["bytes"], terms["weights"]["bytes"]
        if stored > share:
            each = " on each GPU" if launch.cards > 1 else ""
            return f"the weights ({units.binary(stored)}{each}) exceed the {units.binary(share)} requested"
        return "no memory is left for the cache blocks"
    others = terms["weights"]["bytes"] + (terms["outside"]["low_bytes"] or 0)
    others += 0 if terms["activations"]["kind"] == "estimate" else terms["activations"]["bytes"]
    if launch.pool_given and others + pool > launch.total:
        cache = f"a cache of {pool / GIB:.1f} GiB and all else"
        return f"{cache} need {(others + pool) / GIB:.1f} GiB, but the card has {launch.total / GIB:.1f}"
    needs = found.per_request(launch.length)
    if found.blocks >= needs:
        return ""
    needed, there = needs * found.block_bytes / GIB, pool / GIB
    digits = next(count for count in range(1, 11) if round(needed, count) != round(there, count))
    tokens = f"one request of {launch.length:,} token{'' if launch.length == 1 else 's'}"
    return f"{tokens} needs {needed:.{digits}f} GiB, but the pool has {there:.{digits}f} GiB"
