"""Memory that vLLM leaves for its KV cache, term by term; each function names the source file that it follows.

    pool = utilization · total − weights − peak − outside [− graphs]

T: max_num_batched_tokens. R: max_num_seqs. V: vocabulary. D: hidden size. F: MLP width of one rank. b: bytes of a value
of the model's dtype.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tfacct.architecture.parts import Experts, FeedForward, Mixer
from tfacct.base.record import record
from tfacct.engines.profiles import Engine, Profile
from tfacct.engines.units import GIB, MIB, ceil_div
from tfacct.engines.weights import VOCABULARY, vocabulary
from tfacct.loading.devices import Device
from tfacct.loading.model import LoadedModel

Kind = Literal["exact", "estimate", "not measured"]
COPIES = {
    "sort": 36,  # fp32 logits 4, sorted values 4, indices 8, reverse indices 8, CUB's alternates 12 (torch, Sort.cu)
    "triton": 12,  # fp32 logits, probabilities, exponential noise
    "flashinfer": 12,  # fp32 logits, masked logits, probabilities
    "gumbel": 4,  # fp32 logits
}
"""Bytes per logit that are alive at once while R rows are sampled, besides the logits in the model's dtype."""
COMPILED = 48 * MIB
"""Bytes of a compiled layer that five starts had; not derived."""


class Estimate(NamedTuple):
    """Bytes that were measured, or are estimated: the likeliest, the least and the most, and from how many starts.
    `only`: the models of those starts, if not any."""

    bytes: int
    low: int
    high: int
    kind: Kind
    starts: int = 0
    only: str = ""


class Term(NamedTuple):
    """Bytes of one card, and how they come about; `seen`: the least and the most of an estimate. `sure`: False for a
    count that starts differ from."""

    what: str
    bytes: int
    how: str
    seen: Estimate | None = None
    sure: bool = True

    @property
    def kind(self) -> Literal["exact", "estimate"]:
        """Whether it is a count."""
        return "exact" if self.seen is None and self.sure else "estimate"

    @property
    def low(self) -> int | None:
        """The least that it may be; None if not known."""
        return self.seen.low if self.seen is not None else self.bytes if self.sure else None

    @property
    def high(self) -> int | None:
        """The most that it may be; None if not known."""
        return self.seen.high if self.seen is not None else self.bytes if self.sure else None


class Images(NamedTuple):
    """Dummy images of the profile run: how many, the tokens and the bytes of pixels of each."""

    items: int
    tokens: int
    pixel_bytes: int


@record
class Sizes:
    """Sizes of a model that its profile run depends on; `bytes`: of a value of its dtype. The widths are the whole
    model's. `mlp_width`: of dense layers, or of the shared expert where there are none; `mlp_matrices`: results of its
    width that are alive at once; `expert_width` and `active` experts per token, 0 without experts."""

    hidden: int
    vocab: int
    layers: int
    bytes: int
    mlp_width: int
    mlp_matrices: int
    expert_width: int
    active: int
    has_states: bool
    quantized: bool
    architecture: str


def sizes(model: LoadedModel, dtype_bytes: int, quantized: bool) -> Sizes:
    """Sizes of a model."""
    parts = model.architecture.parts()
    dense = [part for part in parts if isinstance(part, FeedForward)]
    experts = [part for part in parts if isinstance(part, Experts)]
    widest = max(dense, key=lambda part: int(part.width), default=None)
    shared = max((int(part.shared or 0) for part in experts), default=0)
    return Sizes(
        hidden=int(model.architecture.embed.hidden),
        vocab=vocabulary(model),
        layers=len(model.architecture.blocks()),
        bytes=dtype_bytes,
        mlp_width=shared if widest is None else int(widest.width),
        mlp_matrices=3 if widest is None or widest.gated else 2,
        expert_width=max((int(part.width) for part in experts), default=0),
        active=max((int(part.active) for part in experts), default=0),
        has_states=bool(model.architecture.having(Mixer)),
        quantized=quantized,
        architecture=next(iter(model.raw.get("architectures") or ()), ""),
    )


def runs_v2(profile: Profile, of: Sizes) -> bool:
    """True if the version runs this model under the V2 runner. config/vllm.py."""
    runner = profile.v2_runner
    if runner == "all":
        return True
    if runner == "dense":
        return not of.active and not of.has_states
    return of.architecture in runner and (profile.v2_quantized or not (of.quantized or of.active))


def sampler_of(profile: Profile, of: Sizes) -> str:
    """The sampler by default."""
    return str(profile.v2_sampler if runs_v2(profile, of) else profile.sampler)


def sampler(kind: str, of: Sizes, batched: int, seqs: int, multiprocessors: int) -> int:
    """Bytes while R rows of dummy logits are sampled. gpu_model_runner.py, _dummy_sampler_run; v1/sample/ops."""
    scratch = 0
    if kind == "triton" and seqs < 8:  # topk_topp_sampler.py: too few rows for it
        kind = "sort"
    if kind == "triton":  # one row of fp32 logits for each program
        programs = min(multiprocessors, seqs)
        scratch = min(1 << (programs - 1).bit_length(), multiprocessors) * of.vocab * 4
    hidden = batched * of.hidden * of.bytes + 2 * seqs * of.hidden * of.bytes  # states, last rows, a random copy
    logits = seqs * ceil_div(of.vocab, VOCABULARY) * VOCABULARY * of.bytes
    return seqs * of.vocab * COPIES[kind] + logits + scratch + hidden


def layer(of: Sizes, batched: int, tp: int, *, eager: bool) -> int:
    """Bytes inside one layer: gate, up and their product, and four residual streams, three if compiled."""
    mlp = of.mlp_matrices * batched * of.mlp_width // tp * of.bytes
    streams = batched * of.hidden * of.bytes
    return mlp + (4 * streams if eager else 3 * streams + COMPILED)


def workspace(of: Sizes, batched: int, tp: int) -> int:
    """Bytes of the two buffers of Triton experts, which stay. fused_moe.py, TritonExperts.workspace_shapes."""
    if not of.active:
        return 0
    width = 2 * of.expert_width // tp
    return batched * of.active * (max(width // 2, of.hidden) + max(width, of.hidden)) * of.bytes


@record
class Peak:
    """The most that torch allocates above the weights in the profile run. `source`: what runs then; `layer`: what one
    layer takes, without what stays."""

    bytes: int
    source: Literal["sampler", "layer"]
    layer: int


def peak(
    profile: Profile,
    of: Sizes,
    *,
    batched: int,
    seqs: int,
    tp: int = 1,
    first: bool = True,
    last: bool = True,
    kind: str | None = None,
    multiprocessors: int,
    cublas: int,
    images: Images | None = None,
    own_workspace: bool = False,
    eager: bool = False,
) -> Peak:
    """Peak of activations. `first`, `last`: of the pipeline's ranks. `own_workspace`: the experts' kernels have buffers
    of their own (MXFP4). v1/worker/gpu_worker.py, determine_available_memory."""
    stays = cublas if profile.cublas_in_peak else 0
    if profile.workspace_persistent and not own_workspace:
        stays += workspace(of, batched, tp)
    if images is not None:  # both stay until the profile run ends
        tokens = batched if profile.images_widened else images.tokens
        stays += images.items * (tokens * of.hidden * of.bytes + images.pixel_bytes)
    if not first:
        stays += 2 * batched * of.hidden * of.bytes  # IntermediateTensors
    inside = layer(of, batched, tp, eager=eager)
    sampled = sampler(kind or sampler_of(profile, of), of, batched, seqs, multiprocessors) if last else 0
    source: Literal["sampler", "layer"] = "sampler" if sampled > inside else "layer"
    return Peak(stays + max(inside, sampled), source, inside)


def outside(engine: Engine, profile: Profile, of: Sizes, device: Device, *, tp: int, pp: int) -> Estimate:
    """Memory that is not torch's: CUDA context, NCCL, all-reduce buffers. Without a start on such cards, that of the
    nearest number of cards, with a wider interval."""
    table = profile.outside_gib if device.id == engine.facts["measured_card"] else {}
    if device.architecture in engine.facts["before_hopper"]:
        table = profile.outside_before_hopper_gib
    key = "pp" if pp > 1 else str(tp)
    unaligned = profile.outside_unaligned_vocabulary_gib if of.vocab % 4 else {}
    if unaligned:  # no start with such a vocabulary had several cards
        table = {key: value for key, value in unaligned.items() if table} if tp * pp == 1 else {}
    if key in table and (pp == 1 or tp == 1):
        middle, low, high, starts = table[key]
        kind: Kind = "estimate"
    else:
        nearest, wider = engine.measured_outside(profile), engine.facts["unmeasured_gib"]
        counts = [int(count) for count in nearest if count != "pp"]
        middle = nearest[str(min(counts, key=lambda count: abs(count - tp)))][0]
        low, high = max(0, middle - wider["low"]), middle + wider["high"]
        if unaligned:  # as much more as with one card
            more = unaligned["1"][0] - nearest["1"][0]
            middle, low, high = middle + more, low + more, high + more
        kind, starts = "not measured", 0
    likely, least, most = (round(value * GIB) for value in (middle, low, high))
    only = "vocabularies that 4 does not divide" if unaligned and starts else ""
    return Estimate(likely, least, most, kind, starts, only)


def graphs(engine: Engine, profile: Profile, of: Sizes, *, eager: bool) -> Estimate | None:
    """CUDA graphs as the version estimates them and subtracts them; None where it does not. An estimate of its
    estimate. profile_cudagraph_memory."""
    counts = profile.v2_graphs_in_pool if runs_v2(profile, of) else profile.graphs_in_pool
    if eager or not counts:
        return None
    table = engine.facts["graphs_gib"]
    middle = table["base"] + table["per_layer"] * of.layers
    low, high = max(0.0, middle - table["low"]), middle + table["high"]
    likely, least, most = (round(value * GIB) for value in (middle, low, high))
    return Estimate(likely, least, most, "estimate")
