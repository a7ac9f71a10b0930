"""Other flags for vLLM: flags that start, that leave more tokens, or that fit a number of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.engines import vllm
from tfacct.engines.launch import Flags, Launch, divisors, words
from tfacct.engines.profiles import MIB
from tfacct.engines.start import Start, check
from tfacct.ledger.storage import width
from tfacct.ledger.workload import LARGEST

MOST_USED = 95
"""The largest suggested utilization, in percent."""


def more_cards(launch: Launch) -> list[int]:
    """Larger numbers of tensor-parallel ranks, which divide the heads, on cards whose link is known."""
    counts = [launch.flags.tp * 2**power for power in range(1, 6)]
    known = launch.device.links.known
    return [count for count in counts if count in divisors(launch.model, count) and known(count * launch.flags.pp)]


def largest_length(launch: Launch, found: Start) -> int:
    """The longest max_model_len for the pool of a start; 0 if there is none."""
    return found.pages.largest_length(min(launch.model.context, LARGEST)) if found.pages else 0


def attempt(launch: Launch) -> Start:
    """The start of a launch, which lacks support if it is not supported."""
    try:
        check(launch, vllm.unsupported(launch))
        return vllm.start(launch)
    except TfacctError as error:
        return Start({}, error.message)


def suggestion(launch: Launch, found: Start) -> tuple[str, Launch | None]:
    """A sentence about the first of other flags that starts, with a shorter max_model_len where it must, and that
    launch; else why the first does not."""
    reasons = []
    for flags in found.others or _other_memory(launch, found):
        then = attempt(launch.with_flags(**flags))
        if then.lacks and (longest := largest_length(launch.with_flags(**flags), then)):
            flags = {**flags, "max_model_len": longest}
            then = attempt(launch.with_flags(**flags))
        if not then.lacks:
            return f"It starts with {_typed(launch, flags)}.", launch.with_flags(**flags)
        reasons.append(f"With {_typed(launch, flags)}, it does not start either: {then.lacks}.")
    return reasons[0] if found.others else "Use more cards or narrower weights.", None


def _other_memory(launch: Launch, found: Start) -> Iterator[dict[str, Any]]:
    """Flags to try where the memory does not suffice."""
    if not launch.pool_given and launch.utilization < launch.profile.utilization:
        yield {"gpu_memory_utilization": launch.profile.utilization}
    if longest := largest_length(launch, found):
        yield {"max_model_len": longest}
    if launch.pool_given and (free := vllm.start(launch.with_flags(kv_cache_memory_bytes=None)).pool) > MIB:
        yield {"kv_cache_memory_bytes": free // MIB * MIB}
    yield from ({"tp": count} for count in more_cards(launch))


def _typed(launch: Launch, flags: Mapping[str, Any]) -> str:
    """Flags of another launch, as they can be typed; a number of cards with the device."""
    cards = [option("on", f"{flags['tp'] * launch.flags.pp}x{launch.device.id}")] if "tp" in flags else []
    return " ".join([*cards, *(option(name, value) for name, value in flags.items())])


# More tokens, more requests


class Change(NamedTuple):
    """A flag that leaves more tokens, its value, the tokens with it, and a sentence on them and on what it costs."""

    flag: str
    value: str
    kv_cache_tokens: int
    sentence: str


def changes(launch: Launch, found: Start) -> list[Change]:
    """Flags that leave more tokens, the smallest change first; after them those that leave less than 1% more."""
    much: list[Change] = []
    little: list[Change] = []
    for flags, sentence in _tried(launch, found):
        then = vllm.start(launch.with_flags(**flags))
        if (more := then.tokens - found.tokens) > 0:
            (typed,) = words(launch.engine, Flags(**flags))
            flag, _, value = typed.partition(" ")
            frees = sentence.format(typed, f"frees room for {more:,} more tokens")
            (little if more < found.tokens // 100 else much).append(Change(flag, value, then.tokens, frees))
    return much + little


def _tried(launch: Launch, found: Start) -> Iterator[tuple[dict[str, Any], str]]:
    """Flags that may leave more tokens, and a sentence on each, without their number."""
    if found.peak_from == "sampler" and (fewer := _fewer_requests(launch)):
        now = "default" if launch.flags.max_num_seqs is None else "now"
        yield {"max_num_seqs": fewer}, f"{{}} ({now} {launch.seqs:,}) {{}}."
    if found.peak_from == "layer" and launch.batched > 2048:
        yield {"max_num_batched_tokens": launch.batched // 2}, "{} {} and makes prompts take more steps."
    if launch.utilization < MOST_USED / 100:
        yield {"gpu_memory_utilization": MOST_USED / 100}, "{} {} and leaves less memory for other processes."
    if "graphs" in found.terms:
        yield {"enforce_eager": True}, "{} {} and slows decoding."
    if width(launch.kv_dtype).bits == 16:
        yield {"kv_dtype": "fp8"}, "{} {} and stores keys and values in 8 bits."


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
        found = attempt(launch.with_flags(**flags))
        return found.concurrency >= requests and not found.lacks

    def candidates() -> Iterator[dict[str, Any]]:
        if launch.pool_given or launch.flags.gpu_memory_utilization:
            yield {}
        else:
            less = _largest(lambda less: fits(gpu_memory_utilization=(MOST_USED + 1 - less) / 100), MOST_USED - 4)
            yield {"gpu_memory_utilization": (MOST_USED + 1 - less) / 100}
        yield {"max_model_len": _largest(lambda length: fits(max_model_len=length), launch.length)}
        yield from ({"tp": count} for count in more_cards(launch))

    for name in ("max_num_seqs", "max_num_batched_tokens"):
        if (getattr(launch.flags, name) or requests) < requests:
            raise UsageError(f"{requests:,} requests at once need {option(name)} of as many", option(name, requests))
    if launch.seqs < requests:
        launch = launch.with_flags(max_num_seqs=requests)
    if launch.batched < requests:
        launch = launch.with_flags(max_num_batched_tokens=requests)
    for flags in candidates():
        if 0 not in flags.values() and fits(**flags):
            return launch.with_flags(**flags)
    raise UsageError(f"no launch fits {requests:,} requests at once", "fewer requests or narrower weights")


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits, if all smaller ones do; 0 if none does."""
    return largest_that_fits(lambda number: -int(fits(number)), -1, most)
