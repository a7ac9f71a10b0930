"""What the reference model keeps of distances in disentangled attention, and of the convolution beside its blocks."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import Disentangled, FirstConvolution
from tfacct.architecture.transformer import Transformer
from tfacct.ledger import paths
from tfacct.ledger.kept import Kept
from tfacct.ledger.lines import BESIDE
from tfacct.profiles.reference_lines import Lines, is_


def distances(shape: Transformer) -> Iterator[Kept]:
    """Vectors of all distances behind their norm, which every block reads; without one they are the table."""
    parts = {part.name: part for part in shape.parts() if isinstance(part, Disentangled)}
    if shape.distances is None or not shape.distances.normed:
        return
    for name in ("mean", "deviation"):
        yield Kept(f"rel_embed.norm.{name}", "Rp", by=("rel_embed.norm",), role="full")
    for part in parts.values():
        at = paths.in_every(paths.BLOCKS, part.name)
        asked = {"k": part.to_positions, "q": part.from_positions}
        if by := tuple(f"{at}.pos_{which}_proj.weight" for which, read in asked.items() if read):
            yield Kept("rel_embed.norm", "Rp D", by=by)


def scored(own: Lines, at: str, part: Disentangled, query: str, key: str) -> Iterator[Kept]:
    """Queries with the keys of all distances, keys with their queries, and which of them each pair adds."""
    if not is_(part.group, 1):
        raise own.refuse("distances of heads that share keys")
    far, times = ("S", 2) if part.distances is None else ("Rp", 1)  # both ways from each token, or those of a table
    # Products copy heads that do not lie one after the other, each for itself.
    viewed = is_(own.batch, 1) or is_(own.tokens, 1) or is_(part.kv_heads, 1)
    rows = f"K H {far}" if is_(part.kv_heads, 1) else f"B K H {far}"  # one head's are a view for all sequences
    for which, asked, read in (("to", part.to_positions, query), ("from", part.from_positions, key)):
        if not asked:
            continue
        product, add = f"{at}.{which}_positions", f"{at}.{which}_add"
        yield Kept(read if viewed else f"{product}.read", "B T N H", by=(product,))
        yield Kept(f"{product}.rows", rows, by=(product,), times=times)
        yield Kept(product, f"B N T {far}", by=(add,), times=times)
        yield Kept(f"{at}.which", "T S", by=(add,), role="index")


def by_sines(at: str) -> Iterator[Kept]:
    """Sines and cosines of all distances for each sequence, their keys, queries shifted by a vector of each head, and
    which distance each pair has."""
    rows, product = "B Xd S", f"{at}.positions"
    yield Kept(f"{at}.sines", f"{rows} D", by=(f"{at}.r_proj.weight",))
    yield Kept(f"{at}.position", "B T N H", by=(product,))
    yield Kept(f"{at}.r_proj", f"{rows} N H", by=(product,))
    yield Kept(product, "B N T Xd S", by=(f"{at}.position_add",))
    yield Kept(f"{at}.which", "T S", by=(f"{at}.position_add",), role="index")


def first_convolution(own: Lines, part: FirstConvolution) -> Iterator[Kept]:
    """A convolution around each token behind the first block: what it sees, its activation, the norm of the sum."""
    at, rows = "first_conv", "B T D"
    yield Kept(f"{at}.seen", f"{rows} {BESIDE}", by=(f"{at}.weight",))
    yield from own.activated(f"{at}.act", at, part.activation, rows)
    yield from own.layer(f"{at}.norm", f"{at}.sum", rows, "B T")
