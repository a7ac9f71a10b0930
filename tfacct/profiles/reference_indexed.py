"""What the reference model keeps of an indexer, which is trained through its scores as its FLOPs are counted."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import Attention, LatentAttention, Part
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Kept
from tfacct.ledger.lines import RATES
from tfacct.ledger.workload import COMPRESSED
from tfacct.profiles.reference_compressed import entries
from tfacct.profiles.reference_lines import Lines, is_

KEYS, RATE = COMPRESSED["entries"]["light"], RATES["light"]


def grown(at: str, reads: str, heads: str, size: str) -> Iterator[Kept]:
    """Queries times a factor that two learned numbers of each head make of the logarithm of their position."""
    yield Kept(reads, f"B T {heads} {size}", by=(at,))
    yield Kept(f"{at}.logarithm", "T", by=(at,))
    yield Kept(f"{at}.factor", f"{heads} T", by=(at,))


def indexer(own: Lines, at: str, reads: str, made: str, part: LatentAttention) -> Iterator[Kept]:
    """Heads of its own, one key for each token or for several, scores, and their weighted sum. `made`: what queries are
    made of."""
    pooled = part.index_pool is not None
    if part.index_streamed and not pooled:
        made = f"{at}.q_norm"
        yield from own.layer(made, reads, "B T D", "B T")
    yield Kept(made, "B T D" if part.q_rank is None or part.index_streamed else "B T Rq", by=(f"{at}.q_proj.weight",))
    if part.learned and not pooled:
        yield from grown(f"{at}.q_scale", f"{at}.q_proj", "Nx", "Hx")
    products = ("k_proj", "gate_proj", "weights_proj") if pooled else ("k_proj", "weights_proj")
    yield Kept(reads, "B T D", by=tuple(f"{at}.{name}.weight" for name in products))
    yield from own.layer(f"{at}.k_norm", f"{at}.k_proj", "B T Hx", "B T")
    if pooled:
        yield from _several(own, at, part)
    yield from _scored(own, at, part, KEYS if pooled else "S")


def _several(own: Lines, at: str, part: LatentAttention) -> Iterator[Kept]:
    """Keys made of several tokens each: keys and weights of all tokens, of which whole groups are a view, and their
    shares."""
    softmax, weighting = f"{at}.softmax", f"{at}.weighting"
    if _none(own, part):
        return
    yield Kept(f"{at}.packed", "B T Hx", by=(weighting,), times=2)
    yield Kept(f"{at}.packed.marks", "B T", by=(weighting,))
    yield Kept(softmax, f"B {KEYS} {RATE} Hx", by=(softmax, weighting))


def _none(own: Lines, part: LatentAttention) -> bool:
    """True if there are fewer tokens than make a key."""
    return is_(entries(part, own.tokens).get(KEYS, 1), 0)


def _scored(own: Lines, at: str, part: LatentAttention, keys: str) -> Iterator[Kept]:
    """Scores above 0 and their sum. Products copy keys for each head of several sequences, and scores whose order is
    another than that of tokens."""
    one = is_(_heads(part), 1)
    scores, act, sum_ = f"{at}.scores", f"{at}.act", f"{at}.sum"
    yield Kept(f"{at}.q", "B T Nx Hx", by=(scores,))
    yield Kept(f"{at}.keys", f"B {keys} Hx" if one or is_(own.batch, 1) else f"B {keys} Nx Hx", by=(scores,))
    viewed = one or is_(own.batch, 1) or is_(own.tokens, 1) or (keys == KEYS and _none(own, part))
    yield Kept(act, f"B T Nx {keys}", by=(act, sum_) if viewed else (act,))
    if not viewed:
        yield Kept(f"{sum_}.scores", f"B T Nx {keys}", by=(sum_,))
    yield Kept(f"{sum_}.weights", "B T Nx", by=(sum_,))


def of_blocks(own: Lines, at: str, reads: str, part: Attention) -> Iterator[Kept]:
    """An indexer that chooses blocks of keys: norms of its queries and keys, and scores."""
    assert part.qk_norm is not None
    scores, less_one = f"{at}.scores", part.qk_norm.less_one
    yield Kept(reads, "B T D", by=(f"{at}.q_proj.weight", f"{at}.k_proj.weight"))
    for which, rows in (("q", "B T Nx"), ("k", "B T")):
        yield from own.rms(f"{at}.{which}_norm", f"{at}.{which}_proj", f"{rows} Hx", rows, "Hx", less_one=less_one)
    shared = is_(own.batch, 1) or is_(_heads(part), 1)
    yield Kept(f"{at}.q", "B T Nx Hx", by=(scores,))
    yield Kept(f"{at}.keys", "B S Hx" if shared else "B S Nx Hx", by=(scores,))


def turned_heads(at: str, part: Part) -> Iterator[str]:
    """What an indexer turns by the angles of its block: heads that are as large as what is turned of one, as in every
    config."""
    if isinstance(part, LatentAttention) and part.indexes:
        known = True
    elif isinstance(part, Attention) and part.chosen is not None:
        size, turned = part.index_dim, part.rope_dim
        known = isinstance(size, int) and isinstance(turned, int) and size >= turned
    else:
        known = False
    if known:
        yield from (f"{at}.indexer.{which}_rotary" for which in "qk")


def _heads(part: Attention | LatentAttention) -> Size:
    return 0 if part.index_heads is None else part.index_heads
