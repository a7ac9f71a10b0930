"""Other flags for vLLM: flags that start, that leave more tokens, or that fit a number of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.architecture.parts import Mixer
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.engines import vllm
from tfacct.engines.launch import Launch
from tfacct.engines.pages import BLOCK
from tfacct.engines.profiles import MIB
from tfacct.engines.start import Start, check
from tfacct.engines.vllm import largest_length, overfull, start
from tfacct.ledger.storage import width
from tfacct.loading.model import LoadedModel

MOST_USED = 95
"""The largest suggested utilization, in percent."""
STEP = 128
"""Numbers of requests that are tried are multiples of it, or of 8 below twice as many."""


def divisors(model: LoadedModel, most: int) -> list[int]:
    """Numbers of cards up to `most` that divide the heads of every layer, attention's and those of recurrent states."""
    heads = [int(part.heads) for part in model.architecture.attentions]
    heads += [int(getattr(part, part.tp_heads or "", 1)) for _, part in model.architecture.having(Mixer)]
    return [count for count in range(1, most + 1) if not any(each % count for each in heads)]


def more_cards(launch: Launch) -> list[int]:
    """Larger numbers of tensor-parallel ranks, which divide the heads, on cards whose link is known."""
    counts = [launch.flags.tp * 2**power for power in range(1, 6)]
    known = launch.device.links.known
    return [count for count in counts if count in divisors(launch.model, count) and known(count * launch.flags.pp)]


class Refusal(NamedTuple):
    """Why the engine does not start, in its words, other flags to be tried, and what to do where none of them helps."""

    reason: str
    others: Sequence[Mapping[str, Any]] = ()
    otherwise: str = ""


def refused(launch: Launch) -> Refusal | None:
    """Why the engine refuses its flags before it loads anything; None if it does not."""
    tp, context = launch.flags.tp, launch.model.context
    if wrong := next((int(part.heads) for part in launch.model.architecture.attentions if part.heads % tp), None):
        reason = f"total number of attention heads ({wrong}) must be divisible by tensor parallel size ({tp})"
        return Refusal(reason, [{"tp": count} for count in reversed(divisors(launch.model, tp - 1))])
    if launch.length > context:
        reason = f"max_model_len ({launch.length:,}) is greater than the derived max_model_len ({context:,})"
        return Refusal(reason, [{"max_model_len": context}])
    if launch.batched < launch.seqs:
        reason = f"max_num_batched_tokens ({launch.batched:,}) must be at least max_num_seqs ({launch.seqs:,})"
        return Refusal(reason, [{"max_num_seqs": launch.batched}])
    if launch.value_dtype == "bf16" and "bf16" not in launch.device.peak:
        return Refusal("bfloat16 needs a card of compute capability 8.0 or later", [{"dtype": "fp16"}])
    if launch.value_dtype == "fp16" and launch.model.family in launch.engine.facts["not_in_fp16"]:
        return Refusal(f"{launch.model.family} does not support float16", [{"dtype": "bf16"}, {"dtype": "fp32"}])
    if (launch.flags.block_size or BLOCK) % BLOCK:
        return Refusal(f"block_size ({launch.flags.block_size}) must be a multiple of {BLOCK}", [{"block_size": BLOCK}])
    return None


def attempt(launch: Launch) -> tuple[Start, Refusal | None]:
    """The start of a launch, and why the engine refuses it before it loads anything. Raises TfacctError."""
    if (refusal := refused(launch)) is not None:
        return Start({"requested": vllm.requested(launch)}, refusal.reason), refusal
    return start(launch), None


def out_of_memory(launch: Launch, found: Start) -> Refusal:
    """Why the memory of a start does not suffice."""
    outside = found.terms["outside"]
    safe = replace(found, least=found.least + (outside["high_bytes"] or 0) - (outside["low_bytes"] or 0))
    others: list[dict[str, Any]] = [{"tp": count} for count in more_cards(launch)]
    if (over := overfull(launch, safe)) > 0:
        free = (found.pool - over) // MIB * MIB
        others = [{"kv_cache_memory_bytes": free}] if free > 0 else []
    elif found.pool > 0 and (longest := largest_length(launch, found)):
        others.insert(0, {"max_model_len": longest})
    if not launch.pool_given and launch.utilization < launch.profile.utilization:
        others.insert(0, {"gpu_memory_utilization": launch.profile.utilization})
    return Refusal(found.lacks, others, "Use more cards or narrower weights.")


def suggestion(launch: Launch, refusal: Refusal) -> tuple[str, Launch | None]:
    """A sentence about the first of the other flags that starts, with a shorter max_model_len where it must, and that
    launch; else why the first does not."""
    reasons = []
    for flags in refusal.others:
        reason, longest = _problem(launch.with_flags(**flags))
        if reason and longest:
            flags = {**flags, "max_model_len": longest}
            reason, _ = _problem(launch.with_flags(**flags))
        if not reason:
            return f"{_typed(launch, flags)} starts.", launch.with_flags(**flags)
        reasons.append(reason)
    if refusal.otherwise or not reasons:
        return refusal.otherwise, None
    return f"{_typed(launch, refusal.others[0])} does not start either: {reasons[0]}.", None


def _typed(launch: Launch, flags: Mapping[str, Any]) -> str:
    """Flags of another launch, as they can be typed; a number of cards with the device."""
    words = [option(name, value) for name, value in flags.items()]
    if tp := flags.get("tp"):
        words.insert(0, option("on", f"{tp * launch.flags.pp}x{launch.device.id}"))
    return " ".join(words)


def _problem(launch: Launch) -> tuple[str, int]:
    """Why a launch does not start, or is not supported, empty if it starts; and the longest max_model_len for which its
    memory suffices, 0 if none."""
    try:
        check(launch, vllm.unsupported(launch))
        found, refusal = attempt(launch)
    except TfacctError as error:
        return error.message, 0
    return found.lacks, largest_length(launch, found) if found.lacks and refusal is None else 0


# More tokens, more requests


class Change(NamedTuple):
    """A flag that leaves `more` tokens than now, its value, the tokens with it, the longest request with it, and what
    it costs: `slows decoding`, or only the value that it replaces, `(default 1,024)`."""

    flag: str
    value: str
    kv_cache_tokens: int
    more: int
    longest: int
    cost: str

    @property
    def sentence(self) -> str:
        """The change in words."""
        frees, flag = f"frees room for {self.more:,} more tokens", f"{self.flag} {self.value}".strip()
        return f"{flag} {self.cost} {frees}." if self.cost.startswith("(") else f"{flag} {frees} and {self.cost}."


def changes(launch: Launch, found: Start) -> list[Change]:
    """Flags that leave more tokens, the smallest change first."""
    tried: list[tuple[str, str, str, dict[str, Any]]] = []
    if found.peak_from == "sampler" and (fewer := _fewer_requests(launch)):
        now = f"({'default' if launch.flags.max_num_seqs is None else 'now'} {launch.seqs:,})"
        tried.append(("--max-num-seqs", str(fewer), now, {"max_num_seqs": fewer}))
    if found.peak_from == "layer" and launch.batched > 2048:
        half = {"max_num_batched_tokens": launch.batched // 2}
        tried.append(("--max-num-batched-tokens", str(launch.batched // 2), "makes prompts take more steps", half))
    if launch.utilization < (most := MOST_USED / 100):
        more = {"gpu_memory_utilization": most}
        tried.append(("--gpu-memory-utilization", f"{most:g}", "leaves less memory for other processes", more))
    if "graphs" in found.terms:
        tried.append(("--enforce-eager", "", "slows decoding", {"enforce_eager": True}))
    if width(launch.kv_dtype).bits == 16:
        tried.append(("--kv-cache-dtype", "fp8", "stores keys and values in 8 bits", {"kv_dtype": "fp8"}))
    each = [
        Change(flag, value, then.tokens, then.tokens - found.tokens, largest_length(other, then), cost)
        for flag, value, cost, flags in tried
        for other in [launch.with_flags(**flags)]
        if (then := start(other)).tokens > found.tokens
    ]
    return sorted(each, key=lambda one: one.more < found.tokens // 100)


def _fewer_requests(launch: Launch) -> int:
    """The most requests, in steps, whose sampler takes no more than a layer; 0 if none does."""
    steps = (*range(launch.seqs // STEP * STEP, 2 * STEP - 1, -STEP), *range(2 * STEP - 8, 7, -8))
    fewer = (launch.with_flags(max_num_seqs=seqs) for seqs in steps if seqs < launch.seqs)
    return next((other.seqs for other in fewer if sum(vllm.sampler(other).values()) <= vllm.layer(other)), 0)


def for_requests(launch: Launch, requests: int) -> Launch:
    """The launch that fits so many requests of the longest length, and runs as many in a step: with the
    smallest utilization, unless it or the pool is given, else the longest length, else the fewest cards. Raises
    UsageError where none has."""

    def fits(other: Launch) -> bool:
        found = start(other)
        return found.concurrency >= requests and not found.lacks

    for name in ("max_num_seqs", "max_num_batched_tokens"):
        if (getattr(launch.flags, name) or requests) < requests:
            raise UsageError(f"{requests:,} requests at once need {option(name)} of as many", option(name, requests))
    if launch.seqs < requests:
        launch = launch.with_flags(max_num_seqs=requests)
    if launch.batched < requests:
        launch = launch.with_flags(max_num_batched_tokens=requests)
    shares = (launch.with_flags(gpu_memory_utilization=share / 100) for share in range(5, MOST_USED + 1))
    given = launch.pool_given or launch.flags.gpu_memory_utilization
    if found := next(filter(fits, [launch] if given else shares), None):
        return found
    length = largest_that_fits(lambda length: -int(fits(launch.with_flags(max_model_len=length))), -1, launch.length)
    if length:
        return launch.with_flags(max_model_len=length)
    cards = (launch.with_flags(tp=count) for count in more_cards(launch))
    if found := next((one for one in cards if not _problem(one)[0] and fits(one)), None):
        return found
    raise UsageError(f"no launch fits {requests:,} requests at once", "fewer requests or narrower weights")
