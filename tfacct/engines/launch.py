"""A launch of vLLM: its flags with the engine's defaults, the memory of each rank, and why it may not start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.architecture.parts import DeltaNet, LatentAttention, Mamba2, Mixer
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, shell_option, spelled
from tfacct.engines import vllm
from tfacct.engines.pages import MambaMode, Pages, alignment_of, cache_layers, pages, state_bytes
from tfacct.engines.profiles import Engine, Profile
from tfacct.engines.units import GIB, MIB
from tfacct.engines.weights import Weights, weights
from tfacct.ledger.storage import Storage, width
from tfacct.ledger.workload import LARGEST
from tfacct.loading.devices import Device
from tfacct.loading.model import LoadedModel
from tfacct.parallel.shard_model import shard_weights, stages_of

WIDE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Dtypes of a model, and the engine's names of them."""
ONLINE = {"fp8": "fp8", "nf4": "bitsandbytes"}
"""Formats that the engine itself quantizes to, and its names of them; others need a checkpoint."""
MOST_USED = 95
"""Per cent of a card that are asked for at most."""
STEP = 128
"""Numbers of requests that are tried are multiples of it, or of 8 below twice as many."""


class Flags(NamedTuple):
    """Flags of the launch line; None: the engine's default. Sizes in tokens or bytes."""

    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    gpu_memory_utilization: float | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    tp: int = 1
    pp: int = 1
    enforce_eager: bool = False
    block_size: int | None = None
    mamba_cache_mode: MambaMode = "none"
    kv_cache_memory_bytes: int | None = None
    total_memory: int | None = None


class Seen(NamedTuple):
    """What a log says besides the launch line, in place of what the profile has; None: as the profile has it."""

    sampler: str | None = None
    cublas_bytes: int | None = None
    image_items: int | None = None


@record
class RankStart:
    """Memory of a rank of one pipeline stage at start, in bytes. `weights`: None where the pool was given. `least`:
    what is taken besides the pool, at least."""

    stage: int
    weights: Weights | None
    peak: vllm.Peak
    outside: vllm.Estimate
    graphs: vllm.Estimate | None
    pool: int
    pages: Pages
    least: int


@record
class Launch:
    """A launch with every flag settled."""

    engine: Engine
    profile: Profile
    model: LoadedModel
    device: Device
    flags: Flags
    seen: Seen = Seen()
    encoders: Sequence[LoadedModel] = ()

    # Flags and their defaults

    @property
    def total(self) -> int:
        """Memory of a card as torch reports it."""
        return self.flags.total_memory or self.device.memory

    @property
    def length(self) -> int:
        """max_model_len."""
        return self.flags.max_model_len or self.model.context

    @property
    def batched(self) -> int:
        """max_num_batched_tokens: by the card's memory, and at most what all requests have."""
        if self.flags.max_num_batched_tokens is not None:
            return self.flags.max_num_batched_tokens
        return min(self._defaults[0], (self.flags.max_num_seqs or self._defaults[1]) * self.length)

    @property
    def seqs(self) -> int:
        """max_num_seqs: by the card's memory, and at most the batched tokens."""
        return self.flags.max_num_seqs or min(self._defaults[1], self.batched)

    @property
    def _defaults(self) -> tuple[int, int]:
        small = self.device.id.startswith(tuple(self.profile.small_cards))
        memory = 0 if small else self.total
        return next((tokens, seqs) for least, tokens, seqs in self.profile.batch if memory >= least * GIB)

    @property
    def utilization(self) -> float:
        """gpu_memory_utilization."""
        return self.flags.gpu_memory_utilization or float(self.profile.utilization)

    @property
    def requested(self) -> int:
        """Bytes of a card that the engine takes."""
        return int(self.total * self.utilization)

    @property
    def value_given(self) -> bool:
        """True if `dtype` is one of activations, not a format of weights."""
        return self.flags.dtype is not None and units.dtype_name(self.flags.dtype) in WIDE

    @property
    def value_dtype(self) -> str:
        """Dtype of activations: as given, else half precision, which is fp16 on a card without bf16."""
        if self.value_given:
            return units.dtype_name(self.flags.dtype or "")
        return "bf16" if "bf16" in self.device.peak else "fp16"

    @property
    def storage(self) -> Storage:
        """How the weights are stored."""
        return self.model.storage(self.stored_dtype)

    @property
    def stored_dtype(self) -> str | None:
        """Dtype of the weights; None: as published."""
        if self.value_given:
            return "fp32" if self.value_dtype == "fp32" else None
        return self.flags.dtype

    @property
    def kv_dtype(self) -> str:
        """Dtype of the cache: as given, else that of the model."""
        return self.flags.kv_dtype or self.value_dtype

    @property
    def cublas(self) -> int:
        """Bytes of cuBLAS's workspace."""
        if self.seen.cublas_bytes is not None:
            return self.seen.cublas_bytes
        return int(self.engine.facts["architectures"][self.device.architecture] * MIB)

    @property
    def sizes(self) -> vllm.Sizes:
        """Sizes of the model that the profile run depends on."""
        narrow = self.storage.name not in WIDE
        return vllm.sizes(self.model, 4 if self.value_dtype == "fp32" else 2, narrow)

    @property
    def derived(self) -> bool:
        """True if starts agree with the counts of weights and activations: not where kernels repack quantized weights,
        or quantize activations."""
        return self.storage.name in WIDE or self.storage.name == "fp8"

    @property
    def like_measured(self) -> bool:
        """True for a model and dtypes like those of the measured starts."""
        attention = self.model.architecture.having(LatentAttention)
        wide = self.value_dtype == "fp32" or self.storage.name == "fp32"
        return self.derived and not wide and not self.sizes.has_states and not attention

    @property
    def mxfp4(self) -> bool:
        """True for experts in MXFP4, whose kernels repack them."""
        return bool(self.sizes.active) and self.storage.name.startswith("mxfp4")

    def images(self) -> vllm.Images | None:
        """Dummy images of the profile run; None for a text model."""
        if not self.encoders:
            return None
        table = self.engine.facts["images"][str((self.model.whole or {}).get("model_type"))]
        items = self.seen.image_items or max(1, self.batched // table["budget_tokens"])
        return vllm.Images(items, table["tokens"], table["pixel_bytes"])

    # The start

    def rank_weights(self, rank: LoadedModel) -> Weights:
        """Weights of one rank, those of image encoders too."""
        value_bytes = self.sizes.bytes
        split = bool(self.profile.facts.get("split_limit"))
        found = weights(rank, self.model, self.flags.tp, self.storage, value_bytes, split)
        encoders = sum(one.parameters for one in self.encoders) * value_bytes
        if encoders and self.engine.facts["images"][str((self.model.whole or {}).get("model_type"))]["sharded"]:
            encoders //= self.flags.tp
        return found._replace(parameters=found.parameters + encoders, total=found.total + encoders)

    def rank_peak(self, *, first: bool = True, last: bool = True) -> vllm.Peak:
        """Peak of activations of one rank."""
        return vllm.peak(
            self.profile,
            self.sizes,
            batched=self.batched,
            seqs=self.seqs,
            tp=self.flags.tp,
            first=first,
            last=last,
            kind=self.seen.sampler,
            multiprocessors=self.device.multiprocessors or 0,
            cublas=self.cublas,
            images=self.images(),
            own_workspace=self.mxfp4,
            eager=self.flags.enforce_eager,
        )

    def stage_pages(self, stage: LoadedModel, pool: int) -> Pages:
        """Pages of the pool of a rank of a pipeline stage."""
        chunk = max((int(getattr(part, "chunk", 1)) for part in self.model.architecture.parts()), default=1)
        layers = cache_layers(
            stage,
            width(self.kv_dtype),
            convolution=self.sizes.bytes,
            recurrent=state_bytes(self.model, self.sizes.bytes),
            tp=self.flags.tp,
        )
        return pages(
            layers,
            pool,
            self.length,
            batched=self.batched,
            padding_ratio=self.profile.padding_ratio,
            block=self.flags.block_size,
            alignment=alignment_of(stage),
            mode=self.flags.mamba_cache_mode,
            chunk=chunk,
        )

    def stages(self) -> list[tuple[int, LoadedModel]]:
        """The model as pipeline stages of each kind have it, by the first such stage."""
        return stages_of(self.model, self.flags.pp)

    def shard(self, stage: LoadedModel) -> LoadedModel:
        """A stage as one of the tensor-parallel ranks stores it; one with states as it is. Raises TfacctError."""
        if self.sizes.has_states:
            return stage
        return shard_weights([stage], self.flags.tp, self.stored_dtype)[0]

    def ranks(self) -> list[RankStart]:
        """Memory of the ranks of each kind of pipeline stage."""
        found = []
        of, tp, pp = self.sizes, self.flags.tp, self.flags.pp
        for number, stage in self.stages():
            outside = vllm.outside(self.engine, self.profile, of, self.device, tp=tp, pp=pp)
            graphs = vllm.graphs(self.engine, self.profile, of, eager=self.flags.enforce_eager)
            loaded = self.rank_weights(self.shard(stage))
            own = None if self.flags.kv_cache_memory_bytes else loaded
            peak = self.rank_peak(first=number == 1, last=number == pp)
            taken = peak.bytes + outside.bytes + sum(one.bytes for one in [graphs] if one is not None)
            taken += 0 if own is None else own.total
            pool = self.flags.kv_cache_memory_bytes or self.requested - taken
            least = loaded.parameters + outside.low + (peak.bytes if self.derived and not self.mxfp4 else 0)
            found.append(RankStart(number, own, peak, outside, graphs, pool, self.stage_pages(stage, pool), least))
        return found

    def fullest(self) -> RankStart:
        """The rank with the fewest blocks for its layers: its pool decides."""
        return min(self.ranks(), key=lambda one: one.pages.concurrency)

    def tokens(self, found: Pages) -> int:
        """Tokens as the version prints them."""
        if self.profile.tokens_line == "blocks":
            return found.tokens
        return int(found.concurrency * self.length)

    def with_flags(self, **flags: Any) -> Launch:
        """The same launch with other flags."""
        return replace(self, flags=self.flags._replace(**flags))

    def largest_length(self) -> int:
        """The longest max_model_len that starts with these flags; 0 if none does."""
        found = self.fullest()
        stage = dict(self.stages())[found.stage]

        def needed(length: int) -> int:
            longer = self.with_flags(max_model_len=length, max_num_batched_tokens=self.batched)
            return longer.stage_pages(stage, found.pool).pages_per_request

        return largest_that_fits(needed, found.pages.blocks, min(self.model.context, LARGEST))


# Whether it starts


class Refusal(NamedTuple):
    """Why the engine does not start, in its words, and a sentence about what starts instead."""

    reason: str
    instead: str


UNSUPPORTED: Mapping[str, tuple[str, str]] = {
    "encoder": ("encoder-decoders are not supported by `tfacct engine`", "choose a decoder-only model"),
    "no_head": ("pooling models are not derived", "a model with a language-model head"),
    "type": ("{engine} has no class for {type}", "`tfacct memory` counts its weights and cache"),
    "card": ("{engine} on {architecture} is not measured: samplers and graphs differ", "a card of NVIDIA"),
    "total": ("torch's total of {device} is not known", "{total_memory} as torch reports it, such as 79.19GiB"),
    "sparse": ("mixed pages of sparse attention (DeepSeek V3.2 and later) are not derived", "`tfacct memory`"),
    "images": ("images of {type} are not derived", "the preset of its text model"),
    "several_cards": ("the V0 engine on several cards is not measured", "{engine_version} 0.8 or later"),
    "experts": ("quantized experts are not supported, except in MXFP4", "use a checkpoint in bf16"),
    "mxfp4": ("kernels repack experts in MXFP4, whose bytes are not derived", "{kv_cache_memory_bytes}"),
    "gguf": ("{engine} does not split weights in {format} as their file does", "{dtype} fp8, or llama.cpp"),
    "fp16": ("the dtype that {engine} takes for {type} on a card without bfloat16 is not derived", "{dtype} fp32"),
    "tf32": ("{engine} stores no weights in tf32", "{dtype} fp32"),
    "cache": ("a cache in {kv} next to activations in {value} is not derived", "{kv_dtype} fp8"),
    "states": ("weights of such layers with states on these cards are not derived", "{kv_cache_memory_bytes}"),
}
"""What is not derived: a feature of a launch, why, and what to ask for instead."""


def features(launch: Launch) -> Iterator[str]:
    """Features of a launch that are not derived."""
    shape, flags, facts = launch.model.architecture, launch.flags, launch.engine.facts
    known = launch.flags.kv_cache_memory_bytes is not None
    if shape.encoder is not None:
        yield "encoder"
    if shape.head is None or not launch.model.has_cache:
        yield "no_head"
    if launch.model.family in facts["refused_types"]:
        yield "type"
    if launch.device.architecture not in facts["architectures"]:
        yield "card"
    if launch.device.totals.torch is None and flags.total_memory is None:
        yield "total"
    if any(getattr(part, "indexer", None) is not None for part in shape.attentions):
        yield "sparse"
    if launch.model.whole is not None and launch.model.whole.get("model_type") not in facts["images"]:
        yield "images"
    if flags.tp * flags.pp > 1 and not launch.profile.several_cards:
        yield "several_cards"
    if launch.value_dtype == "fp16" and not launch.value_given and launch.model.family in facts["not_in_fp16"]:
        yield "fp16"
    if launch.stored_dtype == "tf32":
        yield "tf32"
    if launch.kv_dtype in WIDE and width(launch.kv_dtype).bits != width(launch.value_dtype).bits:
        yield "cache"
    if launch.storage.by_block:
        yield "gguf"
    elif launch.sizes.active and launch.storage.name not in WIDE and not launch.mxfp4 and not known:
        yield "experts"
    if launch.mxfp4 and not known:
        yield "mxfp4"
    mixers = [part for part in shape.parts() if isinstance(part, Mixer)]
    if not known and not all(_shares_heads(part, flags.tp) for part in mixers):
        yield "states"


def _shares_heads(part: Mixer, tp: int) -> bool:
    """True of a part with states whose heads ranks share evenly."""
    heads = part.key_heads if isinstance(part, DeltaNet) else part.groups if isinstance(part, Mamba2) else 1
    return int(heads) % tp == 0


def check_supported(launch: Launch) -> None:
    """Raise UsageError for a launch of which a term is not derived."""
    found = next(features(launch), None)
    if found is None:
        return
    device, model = launch.device, launch.model
    names = ("total_memory", "engine_version", "dtype", "kv_dtype", "kv_cache_memory_bytes")
    words = {
        **{name: option(name) for name in names},
        "engine": launch.engine.name,
        "type": (model.whole or model.raw).get("model_type", model.family),
        "device": device.name,
        "architecture": device.architecture or device.name,
        "format": launch.storage.name,
        "kv": launch.kv_dtype,
        "value": launch.value_dtype,
    }
    why, instead = UNSUPPORTED[found]
    raise UsageError(f"{model.name}: {why.format(**words)}", instead.format(**words))


def check_pages(launch: Launch) -> None:
    """Raise UsageError for a model whose size of blocks is not derived."""
    shape = launch.model.architecture
    if not shape.attentions:
        raise UsageError(
            f"{launch.model.name}: blocks of a model of states alone are not derived",
            "`tfacct memory` counts its weights and states",
        )
    if shape.having(LatentAttention) and not launch.sizes.has_states and launch.flags.block_size is None:
        raise UsageError(
            f"{launch.model.name}: the size of blocks of MLA differs by attention backend",
            f"{option('block_size', 64)}, or what the log says",
        )


def typed(name: str, value: int | str) -> str:
    """An option with its value, as it can be typed."""
    return spelled(f"{shell_option(name)} {value}", f"{name}={value!r}")


def _typed(launch: Launch, flags: Mapping[str, Any]) -> str:
    """Flags of another launch, as they can be typed; a number of cards with the device."""
    words = [typed(name, value) for name, value in flags.items()]
    if tp := flags.get("tp"):
        words.insert(0, typed("on", f"{tp * launch.flags.pp}x{launch.device.id}"))
    return " ".join(words)


def suggestion(launch: Launch, others: Sequence[Mapping[str, Any]]) -> str:
    """A sentence about the first of some other flags that starts, with a shorter max_model_len where it must; else why
    the first does not."""
    reasons = []
    for flags in others:
        reason = _why_not(launch.with_flags(**flags))
        if reason is not None and (longest := _longest(launch.with_flags(**flags))):
            flags = {**flags, "max_model_len": longest}
            reason = _why_not(launch.with_flags(**flags))
        if reason is None:
            return f"{_typed(launch, flags)} starts."
        reasons.append(reason)
    return f"{_typed(launch, others[0])} does not start either: {reasons[0]}." if others else ""


def _longest(launch: Launch) -> int:
    """The longest max_model_len that starts; 0 if none does, or the launch is refused or not derived."""
    try:
        check_supported(launch)
        return 0 if _refused(launch) is not None else launch.largest_length()
    except TfacctError:
        return 0


def _why_not(launch: Launch) -> str | None:
    """Why a launch does not start, or is not derived; None if it starts."""
    if (refused := _refused(launch)) is not None:
        return refused[0]
    try:
        check_supported(launch)
        return _lacks(launch, launch.fullest())
    except TfacctError as error:
        return error.message


def head_counts(model: LoadedModel) -> list[int]:
    """Attention heads of each attention layer."""
    return [int(part.heads) for part in model.architecture.attentions]


def divisors(model: LoadedModel, most: int) -> list[int]:
    """Numbers of cards up to `most` that divide the attention heads of every layer."""
    return [count for count in range(1, most + 1) if not any(heads % count for heads in head_counts(model))]


def refusal(launch: Launch) -> Refusal | None:
    """Why the engine refuses its flags before it loads anything; None if it does not."""
    if (refused := _refused(launch)) is None:
        return None
    reason, others = refused
    return Refusal(reason, suggestion(launch, others))


def _refused(launch: Launch) -> tuple[str, list[dict[str, Any]]] | None:
    """Why the engine refuses its flags, and other flags to be tried."""
    tp = launch.flags.tp
    if wrong := next((count for count in head_counts(launch.model) if count % tp), None):
        fits = [{"tp": count} for count in reversed(divisors(launch.model, tp - 1))]
        return f"total number of attention heads ({wrong}) must be divisible by tensor parallel size ({tp})", fits
    context = launch.model.context
    if launch.length > context:
        reason = f"max_model_len ({launch.length:,}) is greater than the derived max_model_len ({context:,})"
        return reason, [{"max_model_len": context}]
    if launch.batched < launch.seqs:
        reason = f"max_num_batched_tokens ({launch.batched:,}) must be at least max_num_seqs ({launch.seqs:,})"
        return reason, [{"max_num_seqs": launch.batched}]
    if launch.value_dtype == "bf16" and "bf16" not in launch.device.peak:
        return "bfloat16 needs a card of compute capability 8.0 or later", [{"dtype": "fp16"}]
    return None


def _lacks(launch: Launch, found: RankStart) -> str | None:
    """Which memory is lacking; None if one request of the longest length fits."""
    if found.pool <= 0:
        return "no memory is left for the cache blocks"
    if launch.flags.kv_cache_memory_bytes is not None:
        needs = max(one.least for one in launch.ranks()) + found.pool
        if needs > launch.total:
            cache = f"a cache of {found.pool / GIB:.1f} GiB and all else"
            return f"{cache} need {needs / GIB:.1f} GiB, the card has {launch.total / GIB:.1f}"
    if found.pages.blocks >= found.pages.pages_per_request:
        return None
    needs = found.pages.pages_per_request * found.pages.block_bytes
    tokens = f"one request of {launch.length:,} tokens"
    return f"{tokens} needs {needs / GIB:.1f} GiB, the pool has {found.pool / GIB:.1f}"


def out_of_memory(launch: Launch, found: RankStart) -> Refusal | None:
    """Why the memory does not suffice; None if one request of the longest length fits."""
    if (reason := _lacks(launch, found)) is None:
        return None
    others: list[dict[str, Any]] = []
    least = max(one.least - one.outside.low + one.outside.high for one in launch.ranks())
    if launch.flags.kv_cache_memory_bytes is not None and least + found.pool > launch.total:
        room = (launch.total - least) // MIB * MIB
        others = [{"kv_cache_memory_bytes": room}] if room > 0 else []
    elif found.pool > 0 and (longest := launch.largest_length()):
        others = [{"max_model_len": longest}]
    return Refusal(reason, suggestion(launch, others) or "Use more cards or narrower weights.")


# What else could be asked for


class Change(NamedTuple):
    """A flag that leaves more tokens, its value, the tokens with it, and what it costs."""

    flag: str
    value: str
    tokens: int
    cost: str


def changes(launch: Launch, found: RankStart) -> list[Change]:
    """Flags that leave more tokens, the smallest change first."""
    tried: list[tuple[str, str, str, dict[str, Any]]] = []
    if found.peak.source == "sampler" and (fewer := _fewer_requests(launch, found.peak.layer)):
        cost = "the peak is then in a layer, not in the sampler"
        fixed = {"max_num_batched_tokens": launch.batched}  # whose default fewer requests may lower
        tried.append(("--max-num-seqs", str(fewer), cost, {"max_num_seqs": fewer, **fixed}))
    if found.peak.source == "layer" and launch.batched > 2048:
        half = launch.batched // 2
        tried.append(
            ("--max-num-batched-tokens", str(half), "prompts take more steps", {"max_num_batched_tokens": half})
        )
    if launch.utilization < (most := MOST_USED / 100):
        more = {"gpu_memory_utilization": most}
        tried.append(("--gpu-memory-utilization", f"{most:g}", "less room for other processes", more))
    if found.graphs is not None:
        tried.append(("--enforce-eager", "", "decoding is slower", {"enforce_eager": True}))
    if width(launch.kv_dtype).bits == 16:
        tried.append(("--kv-cache-dtype", "fp8", "keys and values are stored in 8 bits", {"kv_dtype": "fp8"}))
    now = launch.tokens(found.pages)
    each = [
        Change(flag, value, tokens, cost)
        for flag, value, cost, flags in tried
        if (tokens := (other := launch.with_flags(**flags)).tokens(other.fullest().pages)) > now
    ]
    return sorted(each, key=lambda one: one.tokens - now < now // 100)


def _fewer_requests(launch: Launch, layer: int) -> int:
    """The most requests, in steps, whose sampler takes no more than a layer; 0 if none does."""
    steps = (*range(launch.seqs // STEP * STEP, 2 * STEP - 1, -STEP), *range(2 * STEP - 8, 7, -8))
    of = launch.sizes
    kind = launch.seen.sampler or vllm.sampler_of(launch.profile, of)

    def peak(seqs: int) -> int:
        return vllm.sampler(kind, of, launch.batched, seqs, launch.device.multiprocessors or 0)

    return next((seqs for seqs in steps if seqs < launch.seqs and peak(seqs) <= layer), 0)


def launch_line(launch: Launch, hub_id: str) -> str:
    """The command that starts this launch: only flags that are not the defaults of its version and card."""
    flags, bare = launch.flags, launch.with_flags(max_num_batched_tokens=None, max_num_seqs=None)
    named: dict[str, Any] = {
        "--tensor-parallel-size": flags.tp if flags.tp > 1 else None,
        "--pipeline-parallel-size": flags.pp if flags.pp > 1 else None,
        "--max-model-len": launch.length if launch.length != launch.model.context else None,
        "--max-num-batched-tokens": launch.batched if launch.batched != bare.batched else None,
        "--max-num-seqs": launch.seqs if launch.seqs != bare.seqs else None,
        "--gpu-memory-utilization": launch.utilization if launch.utilization != launch.profile.utilization else None,
        "--kv-cache-memory-bytes": flags.kv_cache_memory_bytes,
        "--dtype": WIDE[launch.value_dtype] if launch.value_given else None,
        "--quantization": None if launch.value_given else ONLINE.get(flags.dtype or ""),
        "--kv-cache-dtype": flags.kv_dtype if launch.kv_dtype not in WIDE else None,
        "--block-size": flags.block_size,
        "--mamba-cache-mode": flags.mamba_cache_mode if flags.mamba_cache_mode != "none" else None,
    }
    quantized = flags.dtype if not launch.value_given else None
    served = hub_id if quantized is None or quantized in ONLINE else f"CHECKPOINT-IN-{quantized.upper()}"
    words = [str(launch.engine.facts["serve"]), served]
    words += [f"{name} {value}" for name, value in named.items() if value is not None]
    return " ".join([*words, *["--enforce-eager"] * flags.enforce_eager])


# The other way round


def for_requests(launch: Launch, requests: int) -> Launch:
    """The launch that has room for so many requests of the longest length, and takes as many in a step: with the
    smallest utilization, unless it or the pool is given, else the longest length, else the fewest cards. Raises
    UsageError where none has."""

    def has_room(other: Launch) -> bool:
        found = other.fullest()
        return found.pages.concurrency >= requests and _lacks(other, found) is None

    for name in ("max_num_seqs", "max_num_batched_tokens"):
        if (getattr(launch.flags, name) or requests) < requests:
            raise UsageError(f"{requests:,} requests at once need {option(name)} of as many", typed(name, requests))
    if launch.seqs < requests:
        launch = launch.with_flags(max_num_seqs=requests)
    if launch.batched < requests:
        launch = launch.with_flags(max_num_batched_tokens=requests)
    given = launch.flags.gpu_memory_utilization or launch.flags.kv_cache_memory_bytes
    shares = (launch.with_flags(gpu_memory_utilization=share / 100) for share in range(5, MOST_USED + 1))
    if found := next(filter(has_room, [launch] if given else shares), None):
        return found
    fixed = launch.with_flags(max_num_batched_tokens=launch.batched)
    length = largest_that_fits(lambda length: -int(has_room(fixed.with_flags(max_model_len=length))), -1, launch.length)
    if length:
        return fixed.with_flags(max_model_len=length)
    cards = (launch.with_flags(tp=launch.flags.tp * times) for times in (2, 4, 8))
    known = (one for one in cards if next(features(one), None) is None and _refused(one) is None)
    if found := next(filter(has_room, known), None):
        return found
    raise UsageError(f"no launch has room for {requests:,} requests at once", "fewer requests or narrower weights")
