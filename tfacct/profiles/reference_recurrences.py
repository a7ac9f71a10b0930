"""What further recurrences of the reference model keep: Griffin's, lightning attention's matrices, RWKV's sums."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import ChannelMix, GatedRecurrence, LightningAttention, TimeMix
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_lines import Lines, convolution, is_

ROUNDS, LATER = "Nr", "Nt"
"""Rounds of a scan whose reach doubles in each, and tokens that another one is added to in all of them."""


def recurrence(own: Lines, at: str, reads: str, part: GatedRecurrence) -> Iterator[Kept]:
    """Two products, the convolution of one result, the gates and the scan, and the other result that gates it."""
    rows, gate, scan, inner = "B T Dr", f"{at}.gate", f"{at}.recurrence", f"{at}.conv.sums"
    yield Kept(reads, "B T D", by=(f"{at}.y_proj.weight", f"{at}.x_proj.weight"))
    yield from own.activated(f"{at}.act", f"{at}.y_proj", part.activation, rows, (gate,))
    yield from convolution(f"{at}.conv", "Dr")
    yield Kept(inner, rows, by=(f"{at}.decay_gate.weight", f"{at}.input_gate.weight", f"{at}.input"))
    decay = f"{at}.decay"
    yield Kept(f"{decay}.rates", "Dr", by=(decay,))
    for name in ("share", "product"):
        yield Kept(f"{decay}.{name}", rows, by=(decay,))
    for name in ("exp", "root", "share", "product", "factor"):
        yield Kept(f"{at}.input.{name}", rows, by=(f"{at}.input",))
    if not is_(own.tokens, 1):  # one token alone decays nothing
        for name in ("decays", "sums"):
            yield Kept(f"{scan}.{name}", f"{ROUNDS} {rows}", by=(scan,))
    yield Kept(scan, rows, by=(gate,))
    yield Kept(f"{gate}.product", rows, by=(f"{at}.out_proj.weight",))


def lightning(own: Lines, at: str, reads: str, part: LightningAttention, *, several: bool) -> Iterator[Kept]:
    """Queries, keys and values, chunks with their matrices, the norm and the gate. `several`: chunks."""
    rows, of, pairs = "B T Nl Hl", "B Nc Nl Pc Hl", "B Nc Nl Pc Qc"
    yield Kept(reads, "B T D", by=tuple(f"{at}.{name}_proj.weight" for name in ("q", "k", "v", "gate")))
    for name in "qkv":
        if part.activation is not None:
            yield from own.activated(f"{at}.{name}_act", f"{at}.{name}_proj", part.activation, rows)
    yield from _prepared(own, at, part)
    scores, values, read, write = (
        f"{at}.{name}" for name in ("chunk_scores", "chunk_values", "state_read", "state_write")
    )
    for name in "qk":
        yield Kept(f"{at}.{name}", of, by=(scores,))
    yield Kept(f"{at}.weights", "Nl Pc Qc", by=(f"{at}.weighting",))
    yield Kept(f"{at}.v", of, by=(values, *((write,) if several else ())))
    yield Kept(f"{at}.weighting", pairs, by=(values,))
    if several:
        yield Kept(f"{at}.to_end", "Nc Nl Pc", by=(f"{at}.k_decay",))
        yield Kept(f"{at}.k_decay", of, by=(write,))
        yield Kept(f"{at}.ends", "Nc Nl", by=(f"{at}.state_decay",))
    yield Kept(f"{at}.from_start", "Nl Pc", by=(f"{at}.q_decay",))
    yield Kept(f"{read}.states", "B Nc Nl Hl Ol", by=(read,))
    yield Kept(f"{at}.q_decay", of, by=(read,))
    norm, gate, last = f"{at}.out_norm", f"{at}.gate", f"{at}.read"
    viewed = is_(part.heads, 1)  # one head's tokens lie one behind the other, padded chunks
    grouped = part.groups is not None
    for line in own.rms(norm, last, rows, "B T", "Nl Hl", less_one=False, scaled=not grouped):
        if line.path == last and viewed:
            yield Kept(last, of, by=line.by)
        elif line.path == f"{norm}.root" and part.groups is not None:
            yield Kept(line.path, line.spec, by=line.by, role=line.role, times=part.groups)
        else:
            yield line
    if grouped:
        yield Kept(f"{norm}.normed", rows, by=(f"{norm}.weight",))
    yield Kept(norm, rows, by=(gate,))
    yield Kept(f"{gate}.act", rows, by=(gate,))
    yield Kept(f"{gate}.product", rows, by=(f"{at}.out_proj.weight",))


def _prepared(own: Lines, at: str, part: LightningAttention) -> Iterator[Kept]:
    """Norms of queries and keys, and the angles that turn them, which each block makes itself."""
    for name in "qk" if part.qk_norm else "":
        made = f"{at}.{name}_proj" if part.activation is None else f"{at}.{name}_act"
        yield from own.rms(f"{at}.{name}_norm", made, "B T Nl Hl", "B T Nl", "Hl", less_one=False)
    if part.rotary is not None:
        turned = "Hl" if part.rope_dim is None else "Hlr"
        for name in ("cos", "sin"):
            yield Kept(f"{at}.{name}", f"T {turned}", by=(f"{at}.q_rotary", f"{at}.k_rotary"))


def _mixtures(at: str, reads: str, products: dict[str, str]) -> Iterator[Kept]:
    """A token and the one before, weighted channel by channel for each of `products`: what is read of both."""
    mixes = tuple(f"{at}.{name}_mix" for name in products)
    yield Kept(reads, "B T D", by=mixes)
    yield Kept(f"{at}.before", "B T D", by=mixes)
    for mix, product in zip(mixes, products.values(), strict=True):
        yield Kept(f"{mix}.rest", "D", by=(mix,))
        yield Kept(mix, "B T D", by=(f"{at}.{product}.weight",))


def time_mix(own: Lines, at: str, reads: str, _: TimeMix) -> Iterator[Kept]:
    """Keys, values and gates, the scan over sums and their exponents, the means."""
    rows, sums = "B T Dw", "B T Dw Sw"
    yield from _mixtures(at, reads, {name: f"{name}_proj" for name in "kvr"})
    scan, mean, gate = f"{at}.recurrence", f"{at}.mean", f"{at}.gate"
    yield Kept(f"{scan}.rates", "Dw", by=(scan,))
    yield Kept(f"{scan}.alone", sums, by=(scan,))
    yield Kept(f"{scan}.first", "B Dw Sw", by=(scan,))
    yield Kept(f"{scan}.first.shares", "B Dw", by=(scan,), times=2)
    if not is_(own.tokens, 1):
        yield Kept(f"{scan}.sums", f"{ROUNDS} {sums}", by=(scan,))
        yield Kept(f"{scan}.decayed", f"B {LATER} Dw Sw", by=(scan,))
        yield Kept(f"{scan}.shares", f"B {LATER} Dw", by=(scan,), times=2)
    for name in ("earlier", "alone", "sums"):
        yield Kept(f"{mean}.{name}", sums, by=(mean,))
    yield Kept(f"{mean}.shares", rows, by=(mean,), times=2)
    yield Kept(f"{gate}.act", rows, by=(gate,))
    yield Kept(mean, rows, by=(gate,))
    yield Kept(f"{gate}.product", rows, by=(f"{at}.o_proj.weight",))


def channel_mix(own: Lines, at: str, reads: str, _: ChannelMix) -> Iterator[Kept]:
    """A network and the gate of its result, each of a mixture of its own."""
    down, gate = f"{at}.down_proj", f"{at}.gate"
    yield from _mixtures(at, reads, {"k": "up_proj", "r": "r_proj"})
    yield from own.activated(f"{at}.act", f"{at}.up_proj", "relu2", "B T F", (f"{down}.weight",))
    yield Kept(f"{gate}.act", "B T D", by=(gate,))
    yield Kept(down, "B T D", by=(gate,))
