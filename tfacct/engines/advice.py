"""Other flags for vLLM: flags that start, that leave more tokens, or that fit a number of requests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.engines import vllm
from tfacct.engines.launch import Flags, Launch, divisors, words
from tfacct.engines.profiles import MIB
from tfacct.engines.start import CheaperFlag, Start, check
from tfacct.ledger.storage import width
from tfacct.ledger.workload import LARGEST

MOST_USED = 95
"""The largest suggested utilization, in percent."""
COSTS = {
    "max_num_batched_tokens": " and makes prompts take more steps",
    "gpu_memory_utilization": " and leaves less memory for other processes",
    "enforce_eager": " and slows decoding",
    "kv_dtype": " and stores keys and values in 8 bits",
}
"""What flags that leave more tokens cost."""


def more_cards(launch: Launch) -> list[int]:
    """Larger numbers of tensor-parallel ranks, which divide the heads, on cards whose link is known."""
    counts = [launch.flags.tp * 2**power for power in range(1, 6)]
    known = launch.device.links.known
    return [count for count in counts if count in divisors(launch.model, count) and known(count * launch.flags.pp)]


def largest_length(found: Start) -> int:
    """The longest max_model_len for the pool of a start; 0 if there is none."""
    return found.pages.largest_length(min(found.launch.model.context, LARGEST)) if found.pages else 0


def attempt(launch: Launch, flags: Mapping[str, Any]) -> Start:
    """The start with other flags, which lacks support if it is not supported."""
    other = launch.with_flags(**flags)
    try:
        check(other, vllm.unsupported(other))
        return vllm.start(other)
    except TfacctError as error:
        return Start(other, {}, error.message)


def suggestion(found: Start) -> tuple[str, Launch | None]:
    """A sentence about the first of other flags that starts, with a shorter max_model_len where it must, and that
    launch; else why the first does not."""
    launch, reasons = found.launch, []
    for flags in found.others or _other_memory(found):
        then = attempt(launch, flags)
        if then.lacks and (longest := largest_length(then)):
            flags = {**flags, "max_model_len": longest}
            then = attempt(launch, flags)
        cards = [option("on", f"{flags['tp'] * launch.flags.pp}x{launch.device.id}")] if "tp" in flags else []
        typed = " ".join([*cards, *(option(name, value) for name, value in flags.items())])
        if not then.lacks:
            return f"It starts with {typed}.", then.launch
        reasons.append(f"With {typed}, it does not start either: {then.lacks}.")
    return reasons[0] if found.others else found.instead, None


def _other_memory(found: Start) -> Iterator[dict[str, Any]]:
    """Flags to try where the memory does not suffice."""
    launch, usual = found.launch, found.launch.profile["utilization"]
    if not launch.pool_given and launch.utilization < usual:
        yield {"gpu_memory_utilization": usual}
    if longest := largest_length(found):
        yield {"max_model_len": longest}
    if launch.pool_given and (free := vllm.start(launch.with_flags(kv_cache_memory_bytes=None)).pool) > MIB:
        yield {"kv_cache_memory_bytes": free // MIB * MIB}
    yield from ({"tp": count} for count in more_cards(launch))


def changes(found: Start) -> list[tuple[CheaperFlag, str]]:
    """Flags that leave more tokens, each with a sentence on them and on what it costs, the smallest change first; after
    them those that leave less than 1% more."""
    launch, most = found.launch, MOST_USED / 100
    tried = {
        "max_num_seqs": found.peak_from == "sampler" and _fewer_requests(launch),
        "max_num_batched_tokens": found.peak_from == "layer" and launch.batched > 2048 and launch.batched // 2,
        "gpu_memory_utilization": launch.utilization < most and most,
        "enforce_eager": "graphs" in found.terms,
        "kv_dtype": width(launch.kv_dtype).bits == 16 and "fp8",
    }
    much: list[tuple[CheaperFlag, str]] = []
    little: list[tuple[CheaperFlag, str]] = []
    for name in (name for name, value in tried.items() if value):
        flags: Any = {name: tried[name]}
        tokens = vllm.start(launch.with_flags(**flags)).tokens
        if (more := tokens - found.tokens) > 0:
            (typed,) = words(launch.profile, Flags(**flags))
            flag, _, value = typed.partition(" ")
            if name == "max_num_seqs":
                typed += f" ({'default' if launch.flags.max_num_seqs is None else 'now'} {launch.seqs:,})"
            sentence = f"{typed} frees room for {more:,} more tokens{COSTS.get(name, '')}."
            cheaper: CheaperFlag = {"flag": flag, "value": value, "kv_cache_tokens": tokens}
            (little if more < found.tokens // 100 else much).append((cheaper, sentence))
    return much + little


def _fewer_requests(launch: Launch) -> int:
    """The most requests, in steps of 8, or of 128 from 256 on, whose sampler takes no more than a layer; 0 if none."""
    steps = (*range(8, 256, 8), *range(256, launch.seqs, 128))
    fewer = (launch.with_flags(max_num_seqs=seqs) for seqs in reversed(steps) if seqs < launch.seqs)
    return next((other.seqs for other in fewer if sum(vllm.sampler(other).values()) <= vllm.layer(other)), 0)


def for_requests(launch: Launch, requests: int) -> Launch:
    """The launch that fits so many requests of the longest length, and runs as many in a step: with the
    smallest utilization, unless it or the pool is given, else the longest length, else the fewest cards. Raises
    UsageError where none has."""

    def fits(**flags: Any) -> bool:
        found = attempt(launch, flags)
        return found.concurrency >= requests and not found.lacks

    def candidates() -> Iterator[dict[str, Any]]:
        if launch.pool_given or launch.flags.gpu_memory_utilization:
            yield {}
        else:
            shares = [percent / 100 for percent in range(5, MOST_USED + 2)]
            least = bisect_left(shares[:-1], True, key=lambda share: fits(gpu_memory_utilization=share))
            yield {"gpu_memory_utilization": shares[least]}
        lengths = range(1, launch.length + 1)
        yield {"max_model_len": bisect_left(lengths, True, key=lambda length: not fits(max_model_len=length))}
        yield from ({"tp": count} for count in more_cards(launch))

    for name, most in (("max_num_seqs", "seqs"), ("max_num_batched_tokens", "batched")):
        if (given := getattr(launch.flags, name) or requests) < requests:
            problem = f"{option(name, given)} is too small for {requests:,} requests at once"
            raise UsageError(problem, option(name, requests))
        if getattr(launch, most) < requests:
            launch = launch.with_flags(**{name: requests})
    for flags in candidates():
        if 0 not in flags.values() and fits(**flags):
            return launch.with_flags(**flags)
    raise UsageError(f"no launch fits {requests:,} requests at once", "fewer requests or narrower weights")
