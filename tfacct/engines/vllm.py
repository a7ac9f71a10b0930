"""vLLM's start: the memory that it leaves for its KV cache, term by term, the launch line, and why it may not start.

    pool = utilization · total − weights − peak − outside [− graphs]

Each term names the source file that it follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from shlex import quote
from typing import Literal, NamedTuple

from tfacct.architecture.parts import FeedForward, LatentAttention
from tfacct.base.spelling import option, spelled
from tfacct.engines.launch import WIDE, Launch
from tfacct.engines.pages import Pages, Paging, alignment_of, cache_layers, ceil_div, pages
from tfacct.engines.profiles import GIB, MIB
from tfacct.engines.start import MEMORY, EngineTerm, Reasons, Start, counted, estimated, of_models
from tfacct.engines.weights import VOCABULARY, weights
from tfacct.ledger.storage import width
from tfacct.ledger.workload import LARGEST
from tfacct.loading.model import LoadedModel
from tfacct.parallel.shard_model import shard_weights, stages_of

COPIES = {
    "sort": 36,  # fp32 logits 4, sorted values 4, indices 8, reverse indices 8, CUB's alternates 12 (torch, Sort.cu)
    "triton": 12,  # fp32 logits, probabilities, exponential noise
    "flashinfer": 12,  # fp32 logits, masked logits, probabilities
    "gumbel": 4,  # fp32 logits
}
"""Bytes per logit that are alive at once while rows are sampled, in addition to the logits in the model's dtype."""
COMPILED = 48 * MIB
"""Bytes of a compiled layer that five starts had; not derived."""

FLASHINFER_HEADS = {64, 128, 192}
"""Sizes of latent attention's heads, without rotary dimensions, that FlashInfer takes: flashinfer_mla.py."""


def unsupported(launch: Launch) -> Reasons:
    engine, device, model, flags = launch.engine, launch.device, launch.model, launch.flags
    shape, facts, storage = model.architecture, engine.facts, launch.storage
    kind = (model.composite or model.raw).get("model_type", model.family)
    yield from of_models(launch, engine.name, facts["architectures"])
    if model.family in facts["refused_types"]:
        yield f"{engine.name} has no class for {kind}", MEMORY
    for what in {device.architecture, storage.name}.intersection(launch.profile.dropped):
        older = next(one.newest for one in reversed(engine.profiles) if what not in one.dropped)
        yield f"{engine.name} {launch.profile.newest} does not support {what}", option("engine_version", older)
    if device.totals.torch is None and flags.total_memory is None:
        instead = f"{option('total_memory')} as torch reports it, such as 79.19GiB"
        yield f"torch's total of {device.name} is not known", instead
    if any(getattr(part, "indexer", None) is not None for part in shape.attentions):
        yield "sparse attention (DeepSeek V3.2 and later) is not supported", MEMORY
    if model.composite is not None and kind not in facts["images"]:
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
    if shape.having(LatentAttention) and not launch.has_states and block_size(launch) is None:
        why = f"the block size of MLA is not known for {launch.profile.newest} on this card"
        yield why, f"{option('block_size', 64)}, or what the log says"
    if launch.pool_given:
        return
    if launch.quantized_experts:
        given = {"on": f"{launch.cards}x{device.id}", "dtype": flags.dtype, "use": launch.utilization}
        words = " ".join(option(name, value) for name, value in given.items() if value is not None)
        first = spelled(f"; for a first estimate, `tfacct memory {quote(model.path or model.name)} {words}`", "")
        why = f"the memory that {engine.name} needs for {storage.name} experts is not known"
        yield why, f"{option('kv_cache_memory_bytes', 'SIZE')}{first}"


def unsupported_pages(launch: Launch) -> Reasons:
    """Reasons of a model whose size of vLLM's blocks is not known."""
    if not launch.model.architecture.attentions:
        yield "the blocks of a pure state-space model are not supported", MEMORY


# Terms


def runs_v2(launch: Launch) -> bool:
    """True if the version runs this model under the V2 runner. config/vllm.py."""
    runner = launch.profile.v2_runner
    if runner in ("all", "dense"):
        return runner == "all" or not (launch.experts or launch.has_states)
    architecture = next(iter(launch.model.raw.get("architectures") or ()), "")
    narrow = launch.storage.name not in WIDE or bool(launch.experts)
    return architecture in runner and (launch.profile.v2_quantized or not narrow)


def sampler_kind(launch: Launch) -> str:
    """The sampler that runs: one of `COPIES`."""
    profile = launch.profile
    kind = launch.flags.sampler or str(profile.v2_sampler if runs_v2(launch) else profile.sampler)
    return "sort" if kind == "triton" and launch.seqs < 8 else kind  # topk_topp_sampler.py: too few rows for it


def sampler(launch: Launch) -> dict[str, int]:
    """Bytes while max_num_seqs rows of dummy logits are sampled, by what takes them. gpu_model_runner.py,
    _dummy_sampler_run; v1/sample/ops. The names have a place for their GiB."""
    seqs, vocabulary, kind = launch.seqs, launch.vocabulary, sampler_kind(launch)
    scratch = 0
    if kind == "triton":  # one row of fp32 logits for each program
        multiprocessors = launch.device.multiprocessors or 0
        programs = 1 << (min(multiprocessors, seqs) - 1).bit_length()
        scratch = min(programs, multiprocessors) * vocabulary * 4
    states = launch.batched + 2 * seqs  # hidden states, the last of each row, a random copy
    logits = seqs * ceil_div(vocabulary, VOCABULARY) * VOCABULARY * launch.value_bytes
    rows = f"{seqs:,} rows × {vocabulary:,} logits × {COPIES[kind] + launch.value_bytes} bytes"
    return {
        f"sampler {{:.2f}} ({rows})": seqs * vocabulary * COPIES[kind] + logits,
        "scratch {:.2f}": scratch,
        "states {:.2f}": states * launch.hidden * launch.value_bytes,
    }


def layer(launch: Launch) -> int:
    """Bytes inside one layer: gate, up and their product, and four residual streams, three if compiled. Without a dense
    MLP, that of the shared expert."""
    dense = [part for part in launch.model.architecture.parts() if isinstance(part, FeedForward)]
    widest = max(dense, key=lambda part: int(part.width), default=None)
    shared = max((int(part.shared or 0) for part in launch.experts), default=0)
    width, gated = (shared, True) if widest is None else (int(widest.width), widest.gated)
    batched, value_bytes = launch.batched, launch.value_bytes
    mlp = (3 if gated else 2) * batched * width // launch.flags.tp * value_bytes
    streams = batched * launch.hidden * value_bytes
    return mlp + (4 * streams if launch.flags.enforce_eager else 3 * streams + COMPILED)


def workspace(launch: Launch) -> int:
    """Bytes of the two buffers of Triton experts, which stay. fused_moe.py, TritonExperts.workspace_shapes."""
    if not (experts := launch.experts):
        return 0
    width = 2 * max(int(part.width) for part in experts) // launch.flags.tp
    active = max(int(part.active) for part in experts)
    rows = max(width // 2, launch.hidden) + max(width, launch.hidden)
    return launch.batched * active * rows * launch.value_bytes


def image_items(launch: Launch) -> int:
    """Dummy images of the profile run; 0 for a text model."""
    return max(1, launch.batched // launch.images["tokens"]) if launch.images else 0


def repacks_experts(launch: Launch) -> bool:
    """True for experts in MXFP4, whose kernels repack them and have buffers of their own."""
    return bool(launch.experts) and launch.storage.name.startswith("mxfp4")


class Peak(NamedTuple):
    """The most bytes that torch allocates above the weights in the profile run: what runs then, and all terms."""

    runs: Literal["sampler", "layer"]
    terms: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.terms.values())

    @property
    def words(self) -> str:
        """The terms, with their GiB."""
        return ", ".join(what.format(size / GIB) for what, size in self.terms.items() if size)


def peak(launch: Launch, *, first: bool = True, last: bool = True) -> Peak:
    """The peak of the profile run. `first`, `last`: of the pipeline's ranks. v1/worker/gpu_worker.py,
    determine_available_memory."""
    profile, batched = launch.profile, launch.batched
    state = launch.hidden * launch.value_bytes
    runs: Literal["sampler", "layer"] = "layer"
    terms = {f"layer {{:.2f}} ({batched:,} tokens)": layer(launch)}
    if last and sum((sampled := sampler(launch)).values()) > layer(launch):
        terms, runs = sampled, "sampler"
    if profile.workspace_persistent and not repacks_experts(launch):
        terms["experts {:.2f}"] = workspace(launch)
    if items := image_items(launch):  # both stay until the profile run ends
        tokens = batched if profile.images_widened else launch.images["tokens"]
        terms["images {:.2f}"] = items * (tokens * state + launch.images["pixel_bytes"])
    if not first:
        terms["inputs {:.2f}"] = 2 * batched * state  # IntermediateTensors
    if profile.cublas_in_peak:
        terms["cuBLAS {:.2f}"] = int(launch.engine.facts["architectures"][launch.device.architecture] * MIB)
    return Peak(runs, terms)


def outside(launch: Launch) -> tuple[EngineTerm, int]:
    """Memory that is not torch's (CUDA context, NCCL, all-reduce buffers), and how many starts on such cards were
    measured. Without any, that of the nearest number of cards, with a wider interval."""
    engine, profile, device = launch.engine, launch.profile, launch.device
    tp, pp = launch.flags.tp, launch.flags.pp
    table = profile.outside_gib if device.id == engine.facts["measured_card"] else {}
    if device.architecture in engine.facts["before_hopper"]:
        table = profile.outside_before_hopper_gib
    key = "pp" if pp > 1 else str(tp)
    unaligned = profile.outside_unaligned_vocabulary_gib if launch.vocabulary % 4 else {}
    if unaligned:  # no start with such a vocabulary had several cards
        table = unaligned if table and tp * pp == 1 else {}
    if key in table and (pp == 1 or tp == 1):
        *gib, starts = table[key]
        source = f"{starts} start{'' if starts == 1 else 's'}: {gib[1]:.2f}–{gib[2]:.2f}"
        source += ", vocabularies that 4 does not divide" if unaligned else ""
    else:
        starts_of = (one for one in engine.profiles if one.outside_gib)
        nearest = min(starts_of, key=lambda one: abs(one.last - profile.last)).outside_gib
        wider = engine.facts["unmeasured_gib"]
        counts = [int(count) for count in nearest if count != "pp"]
        middle = nearest[str(min(counts, key=lambda count: abs(count - tp)))][0]
        more = unaligned["1"][0] - nearest["1"][0] if unaligned else 0  # as much more as with one card
        gib = [middle + more, max(0, middle - wider["low"]) + more, middle + wider["high"] + more]
        starts, source = 0, f"not measured for {profile.newest} on this card"
    return estimated("outside torch", gib, source), starts


def graphs(launch: Launch) -> EngineTerm | None:
    """CUDA graphs as the version estimates them and subtracts them; None where it does not. An estimate of its
    estimate. profile_cudagraph_memory."""
    counts = launch.profile.v2_graphs_in_pool if runs_v2(launch) else launch.profile.graphs_in_pool
    if launch.flags.enforce_eager or not counts:
        return None
    table, layers = launch.engine.facts["graphs_gib"], len(launch.model.architecture.blocks())
    middle = table["base"] + table["per_layer"] * layers
    gib = middle, max(0.0, middle - table["low"]), middle + table["high"]
    return estimated("CUDA graphs", gib, f"{layers} layers")


# The start


def derived(launch: Launch) -> bool:
    """True if starts agree with the counts of weights and activations: not where kernels repack quantized weights, or
    quantize activations."""
    return launch.storage.name in WIDE or launch.storage.name == "fp8"


def like_measured(launch: Launch) -> bool:
    """True for a launch like those of the measured starts."""
    fp32 = "fp32" in (launch.value_dtype, launch.storage.name)
    other = fp32 or launch.has_states or launch.model.architecture.having(LatentAttention) or launch.flags.pp > 1
    return bool(derived(launch) and launch.profile.starts and not other and not launch.pool_given)


def block_size(launch: Launch) -> int | None:
    """Tokens of a block: as given, else those that the backend of latent attention prefers; None for the usual number,
    or one that is not known. platforms/interface.py, update_block_size_for_backend."""
    latents = {int(part.nope_dim) for _, part in launch.model.architecture.having(LatentAttention)}
    if launch.flags.block_size or not latents or launch.has_states:
        return launch.flags.block_size
    card = launch.device.architecture or ""
    if card.startswith("Blackwell") and not latents <= FLASHINFER_HEADS:
        return None
    blocks: Mapping[str, int] = launch.profile.latent_block.get(str(width(launch.kv_dtype).bits), {})
    return blocks.get(launch.device.id, blocks.get(card))


def pages_by_length(launch: Launch, stage: LoadedModel, pool: int) -> Callable[[int], Pages]:
    """Pages of the pool of a rank of a pipeline stage, by max_model_len, with as many tokens in a step."""
    flags, batched = launch.flags, launch.batched
    chunk = max((int(getattr(part, "chunk", 1)) for part in launch.model.architecture.parts()), default=1)
    layers = cache_layers(stage, width(launch.kv_dtype), launch.value_bytes, tp=flags.tp)
    ratio, alignment = launch.profile.padding_ratio, alignment_of(stage)
    mode, block = flags.mamba_cache_mode, block_size(launch)
    return lambda length: pages(layers, pool, Paging(length, batched, ratio, block, alignment, mode, chunk))


def requested(launch: Launch) -> EngineTerm:
    """What the engine takes of a card."""
    share = int(launch.total * launch.utilization)
    return counted("requested", share, f"{launch.utilization:g} of {launch.total / GIB:.2f}, torch's total")


def stages(launch: Launch) -> Iterator[tuple[int, LoadedModel, LoadedModel]]:
    """Kinds of pipeline stages: the number of the first, its layers, and what one rank stores of them. Raises
    TfacctError."""
    (rank,) = shard_weights([launch.model], launch.flags.tp, launch.stored_dtype)
    every = (stages_of(model, launch.flags.pp) for model in (launch.model, rank))
    for (number, stage), (_, part) in zip(*every, strict=True):
        yield number, stage, part


def ranks(launch: Launch) -> Iterator[Start]:
    """Memory of the ranks of each kind of pipeline stage."""
    sure, compared, share = derived(launch), bool(launch.profile.starts), requested(launch)
    (beyond, measured), captured = outside(launch), graphs(launch)
    for number, stage, rank in stages(launch):
        stored, most = weights(launch, rank), peak(launch, first=number == 1, last=number == launch.flags.pp)
        taken = {
            **(
                {}
                if launch.quantized_experts
                else {"weights": counted("weights", stored.total, stored.words, sure=sure, compared=compared)}
            ),
            "activations": counted("activations at start", most.total, most.words, sure=sure, compared=compared),
            "outside": beyond,
            **({} if captured is None else {"graphs": captured}),
        }
        pool = launch.flags.kv_cache_memory_bytes or share["bytes"] - sum(term["bytes"] for term in taken.values())
        paged = pages_by_length(launch, stage, pool)
        found = paged(launch.length)
        printed = launch.profile.printed_tokens(found.tokens, found.concurrency, launch.length)
        in_blocks = launch.profile.tokens_line == "blocks"
        tokens = found.tokens if in_blocks else found.tokens_of_requests(launch.length)
        lines = (
            f"GPU KV cache size: {printed:,} tokens",
            f"Maximum concurrency for {launch.length:,} tokens per request: {found.concurrency:.2f}x",
        )
        least = stored.parameters + (beyond["low_bytes"] or 0)
        least += most.total if sure and not repacks_experts(launch) else 0
        terms = {"requested": share, **taken}
        cache = Start(terms, pool=pool, tokens=tokens, concurrency=found.concurrency, lines=lines, measured=measured)
        yield replace(cache, peak_from=most.runs, paged=paged, pages=found, least=least)


def start(launch: Launch) -> Start:
    """The rank with the fewest blocks for its layers, whose pool decides; `lacks` names the memory that one request of
    the longest length, or a pool that is given, has too little of."""
    every = list(ranks(launch))
    found = min(every, key=lambda one: one.concurrency)
    found = replace(found, least=max(one.least for one in every))
    return replace(found, lacks=_lacks(launch, found))


def overfull(launch: Launch, found: Start) -> int:
    """Bytes by which a pool that is given and the least of all else exceed the card; at most 0 if they fit."""
    return found.least + found.pool - launch.total if launch.pool_given else 0


def _lacks(launch: Launch, found: Start) -> str:
    assert found.pages is not None
    if found.pool <= 0:
        return "no memory is left for the cache blocks"
    if overfull(launch, found) > 0:
        cache = f"a cache of {found.pool / GIB:.1f} GiB and all else"
        return f"{cache} need {(found.least + found.pool) / GIB:.1f} GiB, the card has {launch.total / GIB:.1f}"
    if found.pages.blocks >= found.pages.pages_per_request:
        return ""
    needs = found.pages.pages_per_request * found.pages.block_bytes
    tokens = f"one request of {launch.length:,} token{'' if launch.length == 1 else 's'}"
    return f"{tokens} needs {needs / GIB:.1f} GiB, the pool has {found.pool / GIB:.1f}"


def largest_length(launch: Launch, found: Start) -> int:
    """The longest max_model_len for this pool; 0 if there is none."""
    assert found.pages is not None and found.paged is not None
    return found.pages.largest_length(found.paged, min(launch.model.context, LARGEST))
