"""Memory that vLLM leaves for its KV cache, term by term; each function names the source file that it follows.

pool = utilization · total − weights − peak − outside [− graphs]
"""

from __future__ import annotations

from typing import NamedTuple

from tfacct.architecture.parts import FeedForward
from tfacct.engines.launch import WIDE, Launch
from tfacct.engines.start import EngineTerm, Peak, estimated
from tfacct.engines.units import GIB, MIB, ceil_div
from tfacct.engines.weights import VOCABULARY

COPIES = {
    "sort": 36,  # fp32 logits 4, sorted values 4, indices 8, reverse indices 8, CUB's alternates 12 (torch, Sort.cu)
    "triton": 12,  # fp32 logits, probabilities, exponential noise
    "flashinfer": 12,  # fp32 logits, masked logits, probabilities
    "gumbel": 4,  # fp32 logits
}
"""Bytes per logit that are alive at once while rows are sampled, besides the logits in the model's dtype."""
COMPILED = 48 * MIB
"""Bytes of a compiled layer that five starts had; not derived."""


def runs_v2(launch: Launch) -> bool:
    """True if the version runs this model under the V2 runner. config/vllm.py."""
    runner = launch.profile.v2_runner
    if runner in ("all", "dense"):
        return runner == "all" or not (launch.experts or launch.has_states)
    architecture = next(iter(launch.model.raw.get("architectures") or ()), "")
    narrow = launch.storage.name not in WIDE or bool(launch.experts)
    return architecture in runner and (launch.profile.v2_quantized or not narrow)


def sampler(launch: Launch, kind: str | None = None) -> int:
    """Bytes while max_num_seqs rows of dummy logits are sampled, by the launch's sampler or another `kind`.
    gpu_model_runner.py, _dummy_sampler_run; v1/sample/ops."""
    profile, seqs, vocabulary = launch.profile, launch.seqs, launch.vocabulary
    kind = kind or launch.flags.sampler or str(profile.v2_sampler if runs_v2(launch) else profile.sampler)
    scratch = 0
    if kind == "triton" and seqs < 8:  # topk_topp_sampler.py: too few rows for it
        kind = "sort"
    if kind == "triton":  # one row of fp32 logits for each program
        multiprocessors = launch.device.multiprocessors or 0
        programs = min(multiprocessors, seqs)
        scratch = min(1 << (programs - 1).bit_length(), multiprocessors) * vocabulary * 4
    states = launch.batched + 2 * seqs  # hidden states, the last of each row, a random copy
    logits = seqs * ceil_div(vocabulary, VOCABULARY) * VOCABULARY * launch.value_bytes
    return seqs * vocabulary * COPIES[kind] + logits + scratch + states * launch.hidden * launch.value_bytes


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


def cublas(launch: Launch) -> int:
    """Bytes of cuBLAS's workspace."""
    if launch.flags.cublas_bytes is not None:
        return launch.flags.cublas_bytes
    return int(launch.engine.facts["architectures"][launch.device.architecture] * MIB)


def image_items(launch: Launch) -> int:
    """Dummy images of the profile run; 0 for a text model."""
    if not (images := launch.images):
        return 0
    return launch.flags.image_items or max(1, launch.batched // images["budget_tokens"])


def repacks_experts(launch: Launch) -> bool:
    """True for experts in MXFP4, whose kernels repack them and have buffers of their own."""
    return bool(launch.experts) and launch.storage.name.startswith("mxfp4")


def peak(launch: Launch, *, first: bool = True, last: bool = True) -> Peak:
    """Peak of activations. `first`, `last`: of the pipeline's ranks. v1/worker/gpu_worker.py,
    determine_available_memory."""
    profile, batched = launch.profile, launch.batched
    state = launch.hidden * launch.value_bytes
    stays = cublas(launch) if profile.cublas_in_peak else 0
    if profile.workspace_persistent and not repacks_experts(launch):
        stays += workspace(launch)
    if items := image_items(launch):  # both stay until the profile run ends
        tokens = batched if profile.images_widened else launch.images["tokens"]
        stays += items * (tokens * state + launch.images["pixel_bytes"])
    if not first:
        stays += 2 * batched * state  # IntermediateTensors
    inside, sampled = layer(launch), sampler(launch) if last else 0
    return Peak(stays + max(inside, sampled), "sampler" if sampled > inside else "layer", inside)


class Outside(NamedTuple):
    """Memory outside torch; `starts`: how many were measured on as many such cards."""

    term: EngineTerm
    starts: int


def outside(launch: Launch) -> Outside:
    """Memory that is not torch's: CUDA context, NCCL, all-reduce buffers. Without a start on such cards, that of the
    nearest number of cards, with a wider interval."""
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
        nearest, wider = engine.measured_outside(profile), engine.facts["unmeasured_gib"]
        counts = [int(count) for count in nearest if count != "pp"]
        middle = nearest[str(min(counts, key=lambda count: abs(count - tp)))][0]
        more = unaligned["1"][0] - nearest["1"][0] if unaligned else 0  # as much more as with one card
        gib = [middle + more, max(0, middle - wider["low"]) + more, middle + wider["high"] + more]
        starts, source = 0, f"not measured for {profile.newest} on this card"
    likely, low, high = (round(value * GIB) for value in gib)
    return Outside(estimated("outside torch", likely, low, high, source), starts)


def graphs(launch: Launch) -> EngineTerm | None:
    """CUDA graphs as the version estimates them and subtracts them; None where it does not. An estimate of its
    estimate. profile_cudagraph_memory."""
    counts = launch.profile.v2_graphs_in_pool if runs_v2(launch) else launch.profile.graphs_in_pool
    if launch.flags.enforce_eager or not counts:
        return None
    table, layers = launch.engine.facts["graphs_gib"], len(launch.model.architecture.blocks())
    middle = table["base"] + table["per_layer"] * layers
    gib = (middle, max(0.0, middle - table["low"]), middle + table["high"])
    likely, low, high = (round(value * GIB) for value in gib)
    return estimated("CUDA graphs", likely, low, high, f"{layers} layers")
