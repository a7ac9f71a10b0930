"""What the reference model keeps of attention to a window and to keys made of several tokens, which are values too."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import CompressedAttention, LatentAttention
from tfacct.ledger.einsum import Size, divided
from tfacct.ledger.kept import Kept
from tfacct.ledger.lines import RATES
from tfacct.ledger.workload import COMPRESSED
from tfacct.profiles.reference_lines import Lines, is_

MAKER, INDEXER = "compressor", "compressor.indexer"


def entries(part: object, tokens: Size) -> dict[str, Size]:
    """How many keys tokens make, of a part whose keys are made of several each."""
    rates: dict[str, Size | None] = {}
    if isinstance(part, LatentAttention) and part.indexes:
        rates = {"light": part.index_pool}
    elif isinstance(part, CompressedAttention):
        rates = {"light": part.light, "heavy": part.heavy}
    return {
        COMPRESSED["entries"][kind]: tokens // rate
        for kind, rate in rates.items()
        if isinstance(tokens, int) and isinstance(rate, int)
    }


def compressed(own: Lines, at: str, reads: str, part: CompressedAttention) -> Iterator[Kept]:
    """Queries by way of a few numbers, one key for each token and for several, scores of both, one softmax, values of
    both, and the result by groups of heads."""
    kind = part.kind
    yield Kept(reads, "B T D", by=(f"{at}.q_a_proj.weight", f"{at}.kv_proj.weight"))
    yield from own.rms(f"{at}.q_a_norm", f"{at}.q_a_proj", "B T Rq", "B T", "Rq", less_one=False)
    yield Kept(f"{at}.q_a_norm", "B T Rq", by=(f"{at}.q_b_proj.weight",))
    yield from own.rms(f"{at}.q_b_norm", f"{at}.q_b_proj", "B T N H", "B T N", "", less_one=False, scaled=False)
    yield from own.rms(f"{at}.kv_norm", f"{at}.kv_proj", "B T H", "B T", "H", less_one=False)
    yield Kept(f"{at}.out_rotary.sin", "T", by=(f"{at}.out_rotary",), times=divided(part.rope_dim, 2))
    weighing = (f"{at}.weighing",)
    yield Kept(f"{at}.weights", "B N T S", by=weighing)
    yield Kept(f"{at}.weights.sinks", "B N T", by=weighing)
    yield Kept(f"{at}.q", "B T N H", by=(f"{at}.scores",))
    yield from _read(own, at, "", "S", part)
    if kind is not None:
        keys = COMPRESSED["entries"][kind]
        yield from _made(own, f"{at}.{MAKER}", reads, kind, "H", part, turns=True)
        if kind == "light":
            yield from _indexer(own, f"{at}.{INDEXER}", reads, f"{at}.q_a_norm", part)
        yield Kept(f"{at}.weights.{kind}", f"B N T {keys}", by=weighing)
        yield Kept(f"{at}.q", "B T N H", by=(f"{at}.compressed_scores",))
        yield from _read(own, at, "compressed_", keys, part)
    yield Kept(f"{at}.groups", "B T N H", by=(f"{at}.o_a_proj.weight",))
    yield Kept(f"{at}.o_a_proj", "B T Og Ro", by=(f"{at}.o_b_proj.weight",))


def _read(own: Lines, at: str, which: str, keys: str, part: CompressedAttention) -> Iterator[Kept]:
    """Keys, which are values too, and some of the weights: products of several sequences copy keys for all heads."""
    scores, values = f"{at}.{which}scores", f"{at}.{which}values"
    yield Kept(f"{at}.{which}softmax", f"B N T {keys}", by=(values,))
    if is_(own.batch, 1) or is_(part.heads, 1) or _none(own, keys, part):
        yield Kept(f"{at}.{which}k", f"B {keys} H", by=(scores, values))
        return
    for by in (scores, values):
        yield Kept(f"{by}.keys", f"B {keys} N H", by=(by,))


def _none(own: Lines, keys: str, part: CompressedAttention) -> bool:
    """True if there are fewer tokens than make such a key."""
    return is_(entries(part, own.tokens).get(keys, 1), 0)


def _made(
    own: Lines, at: str, reads: str, kind: str, size: str, part: CompressedAttention, *, turns: bool
) -> Iterator[Kept]:
    """Keys of several tokens, each number their weighted sum. Of keys that overlap, each has two shares."""
    keys, rate = COMPRESSED["entries"][kind], RATES[kind]
    softmax, weighting = f"{at}.softmax", f"{at}.weighting"
    yield Kept(reads, "B T D", by=(f"{at}.kv_proj.weight",))
    if _none(own, keys, part):
        return
    yield Kept(reads, "B T D", by=(f"{at}.gate_proj.weight",))
    shares = 2 if kind == "light" else 1
    yield Kept(softmax, f"B {keys} {rate} {size}", by=(softmax, weighting), times=shares)
    if shares == 1:
        yield Kept(f"{at}.kv_proj", f"B T {size}", by=(weighting,))
    else:
        yield Kept(f"{at}.shares", f"B {keys} {rate} {size}", by=(weighting,), times=shares)
    yield from own.rms(f"{at}.kv_norm", f"{at}.sum", f"B {keys} {size}", f"B {keys}", size, less_one=False)
    if turns:
        yield Kept(f"{at}.angles", keys, by=(f"{at}.rotary",), times=part.rope_dim)


def index_turns(part: CompressedAttention) -> bool:
    """True if an indexer's heads are as large as what is turned of one, as in every config."""
    size, turned = part.index_dim, part.rope_dim
    smaller = isinstance(size, int) and isinstance(turned, int) and size < turned
    return part.light is not None and not smaller


def _indexer(own: Lines, at: str, reads: str, made: str, part: CompressedAttention) -> Iterator[Kept]:
    """Keys of its own, heads that score them, and the weighted sum of the scores."""
    keys = COMPRESSED["entries"]["light"]
    scores, act, sum_ = f"{at}.scores", f"{at}.act", f"{at}.sum"
    yield from _made(own, at, reads, "light", "Hx", part, turns=index_turns(part))
    yield Kept(reads, "B T D", by=(f"{at}.weights_proj.weight",))
    yield Kept(made, "B T Rq", by=(f"{at}.q_proj.weight",))
    heads: Size = 0 if part.index_heads is None else part.index_heads
    yield Kept(f"{at}.q", "B T Nx Hx", by=(scores,))
    shared = is_(own.batch, 1) or is_(heads, 1)
    yield Kept(f"{at}.keys", f"B {keys} Hx" if shared else f"B {keys} Nx Hx", by=(scores,))
    yield Kept(act, f"B T Nx {keys}", by=(act, sum_))
    yield Kept(f"{sum_}.weights", "B T Nx", by=(sum_,))


def turning(at: str, part: CompressedAttention, name: str) -> Iterator[str]:
    """What turns by the angles' cosines or sines: results are turned back, by sines of their own."""
    yield from (f"{at}.{which}_rotary" for which in (("q", "kv", "out") if name == "cos" else ("q", "kv")))
    if index_turns(part):
        yield f"{at}.{INDEXER}.q_rotary"
