"""What the parts of the reference model keep that stand in place of attention: convolutions, and recurrences.

A recurrence over tokens is a scan whose reach doubles in each round; one over heads runs in chunks, behind each of
which its state is a tensor of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfacct.architecture.parts import (
    ChannelMix,
    DeltaNet,
    GatedRecurrence,
    HeadedMamba,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    ShortConvolution,
    TimeMix,
)
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.ledger.einsum import Size, rounded_up
from tfacct.ledger.kept import Kept
from tfacct.ledger.lines import CHUNK, SHARES
from tfacct.ledger.workload import CHUNKS, COMPRESSED, PATCHES
from tfacct.profiles.reference_delta import delta
from tfacct.profiles.reference_lines import Lines, convolution, is_, read_whole
from tfacct.profiles.reference_recurrences import LATER, ROUNDS, channel_mix, lightning, recurrence, time_mix

EARLIER = "Ne"
"""Chunks behind which another one comes."""
SCANS = Mamba, HeadedMamba, GatedRecurrence, TimeMix
"""Parts that scan."""
MEANINGS = {
    ROUNDS: "rounds of a scan whose reach doubles in each: log₂ T, rounded up",
    LATER: "tokens that another one is added to in all rounds of a scan: Nr · T − 2^Nr + 1",
}
"""What letters of a scan stand for."""


def lengths(part: Any, tokens: Size) -> dict[str, Size]:
    """Sizes of the letters that a step's tokens are counted by in a part that runs in chunks, or scans."""
    if isinstance(part, SCANS):
        return scanned(tokens)
    if isinstance(part, Mixer) and CHUNK in part.axes():
        chunks = rounded_up(tokens, part.axes()[CHUNK])
        return {CHUNKS: chunks, EARLIER: chunks - 1}
    return {}


def scanned(tokens: Size) -> dict[str, Size]:
    """Rounds after which a scan's reach is all tokens, and the tokens that are added to in them."""
    rounds = (int(tokens) - 1).bit_length()
    return {ROUNDS: rounds, LATER: rounds * tokens - (1 << rounds) + 1}


def scans(shape: Transformer) -> bool:
    """True if a part of it scans."""
    return any(isinstance(part, SCANS) for part in shape.parts())


def in_step(symbols: Mapping[str, Any]) -> dict[str, Size]:
    """Those letters as symbols, where a model has them."""
    chunks = {} if CHUNKS not in symbols else {CHUNKS: symbols[CHUNKS], EARLIER: symbols[CHUNKS] - 1}
    letters = (*MEANINGS, PATCHES, *SHARES, *COMPRESSED["entries"].values())
    return chunks | {letter: symbols[letter] for letter in letters if letter in symbols}


def mixed(own: Lines, at: str, reads: str, part: Mixer) -> Iterator[Kept]:
    """What a part keeps. Raises ConfigError for one without a rule."""
    rule = RULES.get(type(part))
    if rule is None:
        raise own.refuse(in_words(part))
    yield from rule(own, at, reads, part)


def short_convolution(_: Lines, at: str, reads: str, __: ShortConvolution) -> Iterator[Kept]:
    """A value and two gates from one product, of which views are kept; the convolution between them."""
    made = f"{at}.in_proj"
    yield Kept(reads, "B T D", by=(f"{made}.weight",))
    yield Kept(made, "B T Dg", by=(f"{at}.entry_gate", f"{at}.gate"))
    yield from convolution(f"{at}.conv", "D")
    yield Kept(f"{at}.conv.sums", "B T D", by=(f"{at}.gate",))
    yield Kept(f"{at}.gated", "B T D", by=(f"{at}.out_proj.weight",))


def mamba(own: Lines, at: str, reads: str, part: Mamba | HeadedMamba) -> Iterator[Kept]:
    """Channels and gates from one product, the convolution, three vectors of each token, the scan, the gate."""
    made, inner, three, scan = f"{at}.in_proj", f"{at}.conv_act", f"{at}.x_proj", f"{at}.recurrence"
    rows, each = "B T Dx", "B T Nh Rx" if isinstance(part, HeadedMamba) else "B T Rx"
    yield Kept(reads, "B T D", by=(f"{made}.weight",))
    yield from convolution(f"{at}.conv", "Dx")
    yield from own.activated(inner, f"{at}.conv.sums", part.activation, rows)
    yield Kept(inner, rows, by=(f"{three}.weight", scan, f"{at}.skip"))
    vectors = {"dt": (f"{at}.dt_proj.weight", "Rt"), "b": (scan, "Ns"), "c": (f"{at}.read_out", "Ns")}
    for name, (by, size) in vectors.items():
        if part.norms == "none":
            yield Kept(three, each, by=(by,))
            continue
        norm, spec = f"{at}.{name}_norm", f"B T {size}"
        lines = own.rms(norm, three, spec, "B T", size, less_one=False, scaled=part.norms == "scaled")
        yield from read_whole(lines, three, each)
        yield Kept(norm, spec, by=(by,))
    yield Kept(f"{at}.dt_proj", rows, by=(f"{at}.dt_softplus",))
    yield Kept(f"{at}.dt_softplus", rows, by=(scan,))
    states = "B T Dx Ns"
    if not is_(own.tokens, 1):  # one token alone decays nothing
        for name in ("rates", "negated"):
            yield Kept(f"{scan}.{name}", "Dx Ns", by=(scan,))
        for name in ("decays", "sums"):
            yield Kept(f"{scan}.{name}", f"{ROUNDS} {states}", by=(scan,))
    yield Kept(f"{scan}.added", rows, by=(scan,))
    yield Kept(scan, states, by=(f"{at}.read_out",))
    yield from read_whole(own.activated(f"{at}.gate", made, part.gating, rows, (f"{at}.gate",)), made, "B T Dz")
    yield Kept(f"{at}.skip", rows, by=(f"{at}.gate",))
    yield Kept(f"{at}.gated", rows, by=(f"{at}.out_proj.weight",))


def mamba2(own: Lines, at: str, reads: str, part: Mamba2) -> Iterator[Kept]:
    """Gates, channels and steps from one product, the convolution, chunks, the gate and the norm."""
    made, inner, rows, steps = f"{at}.in_proj", f"{at}.conv_act", "B T Nm Hm", "B T Nm"
    yield Kept(reads, "B T D", by=(f"{made}.weight",))
    made = made if part.factors is None else f"{at}.in_scale"
    yield from convolution(f"{at}.conv", "Dm")
    yield from own.activated(inner, f"{at}.conv.sums", part.activation, "B T Dm")
    yield Kept(inner, "B T Dm", by=(at, f"{at}.skip"))
    yield Kept(f"{at}.step.sum", steps, by=(f"{at}.step",))
    if part.least_step:
        yield Kept(f"{at}.step.unbounded", steps, by=(f"{at}.step",))
    yield Kept(f"{at}.step", steps, by=(f"{at}.decay", at))
    for name in ("rates", "negated"):
        yield Kept(f"{at}.decay.{name}", "Nm", by=(f"{at}.decay",))
    yield from _in_chunks(own, at, part)
    mixed, gated = f"{at}.mixed", f"{at}.gate.product"
    if part.gated_norm and part.norm_first:
        yield from _group_norm(own, at, mixed)
        mixed = f"{at}.out_norm"
    yield from read_whole(own.activated(f"{at}.gate", made, "silu", rows, (f"{at}.gate",)), made, "B T Di")
    yield Kept(mixed, rows, by=(f"{at}.gate",))
    if part.gated_norm and not part.norm_first:
        yield from _group_norm(own, at, gated)
        gated = f"{at}.out_norm"
    yield Kept(gated, rows, by=(f"{at}.out_proj.weight",))


def _in_chunks(own: Lines, at: str, part: Mamba2) -> Iterator[Kept]:
    """Tokens of a chunk among each other, and the states between chunks."""
    of, pairs, states = "B Nc Nm Pc", "B Nc Nm Pc Qc", "B Nc Nm Hm Ns"
    scores, weighting, values = f"{at}.chunk_scores", f"{at}.weighting", f"{at}.chunk_values"
    write, read, decay = f"{at}.state_write", f"{at}.state_read", f"{at}.state_decay"
    yield Kept(f"{at}.entry", f"{of} Ns", by=(scores, at))
    yield Kept(f"{at}.exit", f"{of} Ns", by=(scores, read))
    yield Kept(f"{at}.pair_decay.exp", pairs, by=(f"{at}.pair_decay",))
    yield Kept(f"{at}.pair_decay", pairs, by=(weighting,))
    yield Kept(scores, pairs, by=(weighting,))
    yield Kept(f"{at}.chunks", f"{of} Hm", by=(values, write))
    yield Kept(weighting, pairs, by=(values,))
    yield Kept(f"{at}.to_end", of, by=(at,))
    yield Kept(f"{at}.entry.decayed", f"{of} Ns", by=(write,))
    yield Kept(f"{at}.ends", "B Nc Nm", by=(at, decay))
    yield Kept(f"{at}.states", states, by=(decay,))
    one = is_(part.heads, 1) and is_(own.batch, 1)
    yield Kept(f"{read}.states", states, by=(read,))
    if one or not several(part, own.tokens):  # a view of all states, the one behind the last chunk too
        yield Kept(f"{read}.states_rest", "B Nm Hm Ns", by=(read,))
    yield Kept(f"{at}.from_start", of, by=(at,))
    yield Kept(f"{read}.result", f"{of} Hm", by=(at,))


def several(part: Mixer, tokens: Size) -> bool:
    """True if a step has more than one chunk; where a chunk's length is a symbol, it has."""
    chunk = part.axes()[CHUNK]
    return not isinstance(chunk, int) or tokens > chunk


def _group_norm(own: Lines, at: str, reads: str) -> Iterator[Kept]:
    """RMSNorm of each group of channels, and what its weight multiplies."""
    norm, rows = f"{at}.out_norm", "B T Nm Hm"
    yield from own.rms(norm, reads, rows, "B T Km", "", less_one=False, scaled=False)
    yield Kept(f"{norm}.normed", rows, by=(f"{norm}.weight",))


def _delta(own: Lines, at: str, reads: str, part: DeltaNet) -> Iterator[Kept]:
    return delta(own, at, reads, part, several=several(part, own.tokens))


def _lightning(own: Lines, at: str, reads: str, part: LightningAttention) -> Iterator[Kept]:
    return lightning(own, at, reads, part, several=several(part, own.tokens))


RULES: Mapping[type, Callable[[Lines, str, str, Any], Iterator[Kept]]] = {
    ShortConvolution: short_convolution,
    Mamba: mamba,
    HeadedMamba: mamba,
    Mamba2: mamba2,
    DeltaNet: _delta,
    LightningAttention: _lightning,
    GatedRecurrence: recurrence,
    TimeMix: time_mix,
    ChannelMix: channel_mix,
}
