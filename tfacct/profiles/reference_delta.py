"""What the reference model's gated DeltaNet keeps, of one decay for each head or of one for each channel of a key.

The state behind the last chunk is the caller's: no gradient needs what it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import DeltaNet
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_lines import Lines, convolution, is_, read_whole

OF, PAIRS, ROWS = "B Nc Nd Pc", "B Nc Nd Pc Qc", "B T Nd"
"""Tokens of all chunks by head, each two of one chunk, and tokens by head."""


def delta(own: Lines, at: str, reads: str, part: DeltaNet, *, several: bool) -> Iterator[Kept]:
    """Queries, keys, values, rates and decays of tokens, the chunks, the norm and the gate. `several`: chunks."""
    values, wide = f"{ROWS} Hv", f"{ROWS} Hk" if part.by_channel else ROWS
    yield from _products(at, reads, part)
    yield from convolution(f"{at}.conv", "Dc")
    inner = f"{at}.conv_act"
    yield from own.activated(inner, f"{at}.conv.sums", part.activation, "B T Dc")
    yield Kept(inner, "B T Dc", by=(at,))  # values are a view of it
    seen = is_(part.key_heads, 1) or is_(part.group, 1)  # as are queries and keys: else copies for each head of values
    for name in ("q", "k"):
        unit = f"{at}.{name}_norm"
        yield Kept(inner, "B T Dc", by=(unit,)) if seen else Kept(f"{at}.{name}_copies", f"{ROWS} Hk", by=(unit,))
        for factor in ("root", "factor"):
            yield Kept(f"{unit}.{factor}", ROWS, by=(unit,))
    yield Kept(f"{at}.rate.share", ROWS, by=(f"{at}.rate",))
    decay = f"{at}.decay"
    yield Kept(f"{decay}.rates", "Nd", by=(decay,))
    for name in ("sum", "share"):
        yield Kept(f"{decay}.{name}", wide, by=(decay,))
    if part.floor is None:
        yield Kept(f"{decay}.negated", "Nd", by=(decay,))
    yield Kept(f"{at}.rate", ROWS, by=(at,))
    yield Kept(f"{at}.k_norm", f"{ROWS} Hk", by=(at,))
    yield from _in_chunks(at, part, several=several)
    norm, gate = f"{at}.out_norm", f"{at}.gate"
    lines = own.rms(norm, f"{at}.read", values, ROWS, "Hv", less_one=False)
    yield from read_whole(lines, f"{at}.read", f"{OF} Hv")  # padded chunks, of which tokens are a view
    yield Kept(norm, values, by=(gate,))
    if part.gate == "silu":
        yield Kept(f"{at}.gate_proj", values, by=(gate,))
    yield Kept(f"{gate}.act", values, by=(gate,))
    yield Kept(f"{gate}.product", values, by=(f"{at}.out_proj.weight",))


def _products(at: str, reads: str, part: DeltaNet) -> Iterator[Kept]:
    """What the products of a token read: decays and gates may be made by way of a few numbers."""
    first = ("gate", "decay") if part.rank is None else ("gate_a", "decay_a")
    names = ("q", "k", "v", "rate", *first)
    yield Kept(reads, "B T D", by=tuple(f"{at}.{name}_proj.weight" for name in names))
    if part.rank is not None:
        for name in ("gate", "decay"):
            yield Kept(f"{at}.{name}_a_proj", "B T Rd", by=(f"{at}.{name}_b_proj.weight",))


def _in_chunks(at: str, part: DeltaNet, *, several: bool) -> Iterator[Kept]:
    """Tokens of a chunk among each other, and chunk after chunk with the state."""
    wide = " Hk" if part.by_channel else ""
    pair, keys, scores = f"{at}.pair_decay", f"{at}.key_pairs", f"{at}.chunk_scores"
    tokens, pairs = f"{OF}{wide}", f"{PAIRS}{wide}"
    yield Kept(f"{pair}.exp", pairs, by=(pair,))
    yield Kept(f"{at}.k", f"{OF} Hk", by=(keys, scores, *((at,) if several else ())))
    yield Kept(f"{at}.k_rated", f"{OF} Hk", by=(keys, at))
    yield Kept(f"{at}.q", f"{OF} Hk", by=(scores, at))
    yield Kept(pair, pairs, by=(keys, scores) if part.by_channel else (at,))
    for name in (keys, scores):
        yield Kept(f"{name}.products", pairs, by=(name,) if part.by_channel else (at,))
    new, known, values = f"{at}.new_values", f"{at}.new_keys", f"{at}.chunk_values"
    if part.by_channel:
        yield Kept(f"{at}.system", PAIRS, by=(f"{at}.inverse",))
        yield Kept(f"{at}.inverse", PAIRS, by=(f"{at}.inverse", new, known))
        yield Kept(f"{at}.v_rated", f"{OF} Hv", by=(new,))
        yield Kept(f"{at}.k_decayed", f"{OF} Hk", by=(known,))
    else:
        yield Kept(f"{at}.system", PAIRS, by=(new, known))
        yield Kept(new, f"{OF} Hv", by=(new,))
    held, read, write = f"{at}.held", f"{at}.state_read", f"{at}.state_write"
    yield Kept(known, f"{OF} Hk", by=(held,) if part.by_channel else (known, held))
    for name in ("k", "q"):
        yield Kept(f"{at}.{name}_decay", tokens, by=(at,))
    yield Kept(f"{at}.q_decayed", f"{OF} Hk", by=(read,))
    yield Kept(f"{at}.scores", PAIRS, by=(values,))
    yield Kept(f"{at}.last_state", "B Nd Hk Hv", by=(held, read))
    yield Kept(f"{at}.last_values", "B Nd Pc Hv", by=(values,))
    if several:
        decay = f"{at}.state_decay"
        yield Kept(f"{at}.to_end", tokens, by=(at,))
        yield Kept(f"{at}.ends", f"B Nc Nd{wide}", by=(at, decay))
        yield Kept(f"{at}.k_to_end", f"{OF} Hk", by=(write,))
        yield Kept(f"{at}.states", "B Ne Nd Hk Hv", by=(held, read, decay))
        yield Kept(f"{at}.values", "B Ne Nd Pc Hv", by=(values, write))
