"""What the reference model keeps of several streams that blocks predict and correct, and of layers' own embeddings."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import AltUp, Laurel, PerLayerEmbedding, PerLayerInput
from tfacct.architecture.parts.altup import EACH, OTHER, OTHERS
from tfacct.architecture.transformer import Transformer
from tfacct.ledger import paths
from tfacct.ledger.kept import IN, Kept
from tfacct.profiles.reference_lines import Lines, read_whole

ALL = f"B T D {EACH}"
"""All streams, of which one is a view."""
AT = paths.in_every(paths.BLOCKS, AltUp.name)
PREDICTED = f"{AT}.predicted"
ROWS = "per_layer.rows"


def predicted(own: Lines) -> Iterator[Kept]:
    """In front of a block: coefficients made of the first stream, and the streams that they multiply."""
    yield from _coefficients(own, "", IN, ALL)
    yield Kept(f"{AT}.coefficients", "B T Xt Xu", by=(f"{AT}.predict",))
    yield Kept(IN, ALL, by=(f"{AT}.predict",))


def corrected(own: Lines, part: AltUp, result: str) -> Iterator[Kept]:
    """Behind all sublayers but the last: coefficients made of their result, what it changed, and what the last one
    reads of the streams."""
    yield from _coefficients(own, "correct_", result, "B T D")
    yield Kept(f"{AT}.plus_one", "B T Xt", by=(f"{AT}.correct",))
    yield Kept(f"{AT}.innovation", "B T D", by=(f"{AT}.correct",))
    if part.scaled:
        yield Kept(f"{AT}.streams", ALL, by=(f"{AT}.out_scale",))


def last(part: AltUp) -> tuple[str, str]:
    """What the last sublayer reads, and its axes: a view of all streams where nothing scales it."""
    return (f"{AT}.out_scale", "B T D") if part.scaled else (f"{AT}.streams", ALL)


def _coefficients(own: Lines, which: str, reads: str, spec: str) -> Iterator[Kept]:
    """The norm of a vector, a product down to a number for each stream, its tanh, and the product of these."""
    router, tanh = f"{AT}.{which}router", f"{AT}.{which}tanh"
    coefs = "predict_coefs" if not which else f"{which}coefs"
    yield from read_whole(own.rms(f"{router}_norm", reads, "B T D", "B T", "D", less_one=False), reads, spec)
    yield Kept(f"{router}_scale", "B T D", by=(f"{router}.weight",))
    yield Kept(tanh, "B T Xs", by=(tanh, f"{AT}.{coefs}.weight"))


def laurel(own: Lines, at: str, reads: str, _: Laurel) -> Iterator[Kept]:
    """A product down to a few numbers and one back, and the norm of its result."""
    yield Kept(reads, "B T D", by=(f"{at}.down_proj.weight",))
    yield Kept(f"{at}.down_proj", "B T Ru", by=(f"{at}.up_proj.weight",))
    yield from own.rms(f"{at}.norm", f"{at}.up_proj", "B T D", "B T", "D", less_one=False)


def streams(at: str, reads: str, spec: str) -> Iterator[Kept]:
    """Other streams made of the first, or, of all, each by way of a matrix: all are made as long as the first."""
    rescale, others = f"{at}.rescale", f"B T D {OTHER}"
    yield Kept(reads, spec, by=(*(f"{at}.{name}.weight" for name in OTHERS), rescale))
    yield Kept(f"{rescale}.wanted", "B T", by=(rescale,))
    yield Kept(f"{rescale}.made", others, by=(rescale,))
    for name in ("squares", "lengths"):
        yield Kept(f"{rescale}.{name}", f"B T {OTHER}", by=(rescale,))
    yield Kept(f"{rescale}.product", others, by=(rescale,))


def rows(own: Lines, part: PerLayerEmbedding) -> Iterator[Kept]:
    """Rows of all layers, of which each block's are a view; what of a token's vector is made for them."""
    at, spec = part.name, "B T Lp Dy"
    if part.vocab is not None:
        yield Kept("tokens", "B T", by=(at,), role="index")
    yield from own.rms(f"{at}.norm", f"{at}.project", spec, "B T Lp", "Dy", less_one=False)
    yield Kept(ROWS, spec, by=(f"{paths.in_every(paths.BLOCKS, PerLayerInput.name)}.act",))


def shared_input(own: Lines, shape: Transformer) -> tuple[str, ...]:
    """Who reads what the first block reads, where that block keeps it: the rows of all layers, in fp32."""
    if shape.per_layer is None or shape.streams is not None or not own.full:
        return ()
    return (f"{shape.per_layer.name}.project.weight",)


def in_front(own: Lines, shape: Transformer) -> Iterator[Kept]:
    """What is made of tokens' vectors in front of the blocks: rows of all layers, and other streams."""
    if shape.per_layer is not None:
        yield from rows(own, shape.per_layer)
        if not shared_input(own, shape):
            yield Kept("embed.sum", "B T D", by=(f"{shape.per_layer.name}.project.weight",))
    if shape.streams is not None:
        yield from streams("streams", "embed.sum", "B T D")


def per_layer(own: Lines, at: str, reads: str, part: PerLayerInput) -> Iterator[Kept]:
    """A product, activated, times the layer's own rows, and a product back."""
    gate, act = f"{at}.gate_proj", f"{at}.act"
    yield Kept(reads, "B T D", by=(f"{gate}.weight",))
    yield from own.activated(act, gate, part.activation, "B T Dy", (act,))
    yield Kept(f"{act}.product", "B T Dy", by=(f"{at}.up_proj.weight",))
