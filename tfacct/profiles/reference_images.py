"""What the reference model keeps at the ends of an encoder of images: patches, poolers, and what joins neighbours."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from tfacct.architecture.parts import AttentionPooler, Averaged, GatedMerger, Merger, Patches, Picked, Shuffled
from tfacct.architecture.parts.merger import Deepstack
from tfacct.architecture.transformer import Transformer
from tfacct.ledger.einsum import Size, divided
from tfacct.ledger.kept import Kept
from tfacct.ledger.lines import FRONT, MERGE, SHARES
from tfacct.ledger.workload import MERGED, PATCHES
from tfacct.profiles.reference_lines import Lines, is_, read_whole


def in_groups(tokens: Size, axes: Mapping[str, Size]) -> dict[str, Size]:
    """Sizes of the letters that a step's tokens are counted by where some are no patches, or neighbours go together."""
    rest = tokens - axes.get(FRONT, 0)
    found = {PATCHES: rest} if FRONT in axes else {}
    for share, size in SHARES.items():
        if size in axes:
            each = axes[size]
            found[share] = rest // each if isinstance(rest, int) and isinstance(each, int) else divided(rest, each)
    return found


def groups_of(shape: Transformer, tokens: Size) -> dict[str, Size]:
    """The same of a whole model."""
    return in_groups(tokens, {axis: size for part in shape.parts() for axis, size in part.axes().items()})


def patches(own: Lines, part: Patches) -> Iterator[Kept]:
    """Pixels, and the norm of what is made of them."""
    rows = "B T" if part.front is None else f"B {PATCHES}"
    yield Kept("patches", f"{rows} Cc Px", by=("embed.project.weight",))
    if part.norm_eps is not None:
        yield from own.rms("embed.norm", "embed.project", f"{rows} D", rows, "D", less_one=False)


def picked(own: Lines, reads: str, part: Picked) -> Generator[Kept, None, tuple[str, str]]:
    """The norm and the product of one position's vector, which is a view of all, or of a mean; and what is read of it
    then."""
    reads, spec = ("pooler.mean", "B D") if part.reads in ("both", "mean", "average") else (reads, "B T D")
    if part.norm_eps is not None:
        yield from read_whole(own.layer("pooler.norm", reads, "B D", "B"), reads, spec)
        reads, spec = "pooler.norm", "B D"
    if part.width is not None:
        yield Kept(reads, spec, by=("pooler.project.weight",))
        reads, spec = "pooler.project", "B T Dv" if part.reads == "each" else "B Dv"
    if part.then is not None:  # the first one's vector is a view of all
        yield Kept(reads, spec, by=("pooler.then.weight",))
    return reads, spec


def attention_pooler(own: Lines, reads: str, part: AttentionPooler) -> Iterator[Kept]:
    """Keys and values of all positions, which learned queries read, and a network behind a norm."""
    at, rows, heads = "pooler", "B Qp D", "Np Hz"
    scores, softmax, summed = f"{at}.scores", f"{at}.softmax", f"{at}.values"
    if not is_(part.probes, 1) and not is_(own.batch, 1):
        yield Kept(f"{at}.probes", rows, by=(f"{at}.q_proj.weight",))
    yield Kept(reads, "B T D", by=(f"{at}.k_proj.weight", f"{at}.v_proj.weight"))
    yield Kept(f"{at}.q", f"B Qp {heads}", by=(scores,))
    yield Kept(f"{at}.k", f"B T {heads}", by=(scores,))
    yield Kept(softmax, "B Np Qp T", by=(softmax, summed))
    yield Kept(f"{at}.v", f"B T {heads}", by=(summed,))
    yield Kept(summed, f"B Qp {heads}", by=(f"{at}.o_proj.weight",))
    yield from own.layer(f"{at}.norm", f"{at}.read", rows, "B Qp")
    up, act = f"{at}.mlp.up_proj", f"{at}.mlp.act"
    yield Kept(f"{at}.norm", rows, by=(f"{up}.weight",))
    yield from own.activated(act, up, part.activation, "B Qp F", (f"{at}.mlp.down_proj.weight",))


def latent_reader(own: Lines, reads: str) -> Iterator[Kept]:
    """Each position's query over learned rows, and a gated network behind a norm."""
    at, rows, heads = "pooler", "B T D", "Np Hz"
    scores, softmax, summed = f"{at}.scores", f"{at}.softmax", f"{at}.values"
    for number in ("mean", "deviation"):  # what the norm reads is a view of the weights
        yield Kept(f"{at}.rows_norm.{number}", "B Zp", by=(f"{at}.rows_norm",), role="full")
    yield from own.layer(f"{at}.norm", reads, rows, "B T")
    yield Kept(f"{at}.norm", rows, by=(f"{at}.q_proj.weight",))
    yield Kept(f"{at}.rows_norm", "B Zp D", by=(f"{at}.k_proj.weight", f"{at}.v_proj.weight"))
    yield Kept(f"{at}.q", f"B T {heads}", by=(scores,))
    yield Kept(f"{at}.k", f"B Zp {heads}", by=(scores,))
    yield Kept(softmax, "B Np T Zp", by=(softmax, summed))
    yield Kept(f"{at}.v", f"B Zp {heads}", by=(summed,))
    yield Kept(summed, f"B T {heads}", by=(f"{at}.o_proj.weight",))
    yield from own.layer(f"{at}.mlp_norm", f"{at}.add", rows, "B T")
    yield Kept(f"{at}.mlp_norm", rows, by=tuple(f"{at}.mlp.{name}_proj.weight" for name in ("gate", "up")))
    network = f"{at}.mlp.act", f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"
    yield from own.gated(*network, "gelu", "B T Fy", (f"{at}.mlp.down_proj.weight",))


def merged(own: Lines, reads: str, part: Merger | GatedMerger | Shuffled | Averaged) -> Iterator[Kept]:
    """What joins neighbours behind the blocks."""
    if isinstance(part, Merger):
        yield from _by_two_products(own, "merger", reads, part)
    elif isinstance(part, GatedMerger):
        yield from _by_a_network(own, "merger", reads, part)
    elif isinstance(part, Shuffled):
        yield from _shuffled(own, "merger", part)
    else:
        yield from _averaged(own, "merger", part)


def _by_two_products(own: Lines, at: str, reads: str, part: Merger) -> Iterator[Kept]:
    norm, up, act = f"{at}.norm", f"{at}.up_proj", f"{at}.act"
    each, last = (f"B {MERGED}", f"{MERGE} D") if part.joined else ("B T", "D")
    if part.norm == "layer":
        yield from own.layer(norm, reads, "B T D", each)
    else:
        yield from own.rms(norm, reads, "B T D", each, last, less_one=False)
    yield Kept(norm, "B T D", by=(f"{up}.weight",))
    yield from own.activated(act, up, part.activation, f"B {MERGED} Du", (f"{at}.down_proj.weight",))


def merging(part: Deepstack) -> dict[int, tuple[str, ...]]:
    """Blocks whose input a merger reads, and the merger's norm."""
    return {block + 1: (f"{part.name}.{number}.norm",) for number, block in enumerate(part.behind)}


def between(own: Lines, part: Deepstack, last: Size) -> Iterator[Kept]:
    """Mergers of what some blocks gave, which is the stream's own behind the last."""
    for number, block in enumerate(part.behind):
        lines = _by_two_products(own, f"{part.name}.{number}", "stream", part)
        yield from (line for line in lines if line.path != "stream" or block + 1 == last)


def _by_a_network(own: Lines, at: str, reads: str, part: GatedMerger) -> Iterator[Kept]:
    rows = f"B {MERGED}"
    gate, up = f"{at}.gate_proj", f"{at}.up_proj"
    yield Kept(reads, "B T D", by=(f"{at}.join.weight",))
    yield Kept(f"{at}.join", f"{rows} Dq", by=(f"{at}.proj.weight",))
    yield from own.layer(f"{at}.norm", f"{at}.proj", f"{rows} Dh", rows)
    yield from own.activated(f"{at}.norm_act", f"{at}.norm", "gelu", f"{rows} Dh", (f"{gate}.weight", f"{up}.weight"))
    yield from own.gated(f"{at}.act", gate, up, part.activation, f"{rows} Fm", (f"{at}.down_proj.weight",))


def _shuffled(own: Lines, at: str, part: Shuffled) -> Iterator[Kept]:
    """Rows in another order are others; those of one square are in the order that they came in."""
    rows, up, act, down = f"B {MERGED}", f"{at}.up_proj", f"{at}.act", f"{at}.down_proj"
    yield Kept(f"{at}.order", PATCHES, by=(at,), role="index")
    yield Kept(f"{at}.rows", f"B {PATCHES} D", by=(f"{up}.weight",))
    yield from own.activated(act, up, part.activation, f"{rows} Dq", (f"{down}.weight",))
    yield from own.activated(f"{at}.out_act", down, part.activation, f"{rows} Dh")


def _averaged(own: Lines, at: str, part: Averaged) -> Iterator[Kept]:
    rows, reads = f"B {MERGED}", f"{at}.mean"
    if part.eps is not None:
        yield from own.layer(f"{at}.norm", reads, f"{rows} D", rows)
        reads = f"{at}.norm"
    if part.out is not None:
        yield Kept(reads, f"{rows} D", by=(f"{at}.proj.weight",))
