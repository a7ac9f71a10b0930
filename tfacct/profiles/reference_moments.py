"""What the gradients of the reference model's step hold while they are made, operation by operation.

Read off torch's own operations, and held against the bytes alive at each of them, as what is kept is. A model with a
part that was not measured so has no peak here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Part, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import ROTARY, Held, Kept, Moment, Pass, Run

STREAM, PAIRS = Held("B T D"), "B K G T S"
PLAIN = frozenset(("gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish", "relu"))
"""Activations that are one operation."""
MEASURED: Mapping[type, frozenset[str]] = {
    Transformer: frozenset(("embed", "stacks", "final_norm", "head", "positions")),
    Embedding: frozenset(("vocab", "hidden", "shared")),
    Positions: frozenset(("rows", "hidden", "offset")),
    Head: frozenset(("hidden", "vocab", "tied", "bias", "eps", "transform_bias", "norm_bias")),
    Block: frozenset(("sublayers",)),
    Sublayer: frozenset(("part", "norm")),
    Norm: frozenset(("hidden", "kind", "eps", "narrow")),
    Attention: frozenset(
        ("hidden", "kv_heads", "group", "head_dim", "qkv_bias", "key_bias", "out_bias", "rotary", "scale")
    ),
    FeedForward: frozenset(("hidden", "width", "gated", "bias", "down_bias", "activation", "eps")),
}
"""Fields of parts whose values were measured: any other has its default where a peak is told."""


def measured(shape: Transformer) -> bool:
    """True if what gradients hold was measured for all parts of a model."""
    ends = (shape, shape.embed, shape.positions, shape.head, shape.final_norm)
    if len(shape.stacks) != 1 or shape.head is None or shape.final_norm is None or not all(map(_plain, ends)):
        return False
    block = shape.stacks[0].block
    sublayers = block.sublayers
    if not _plain(block) or [type(each.part) for each in sublayers] != [Attention, FeedForward]:
        return False
    if not all(
        _plain(each) and _plain(each.part) and each.norm is not None and _plain(each.norm) for each in sublayers
    ):
        return False
    attention = block.find(Attention)
    turned = None if attention is None else attention.rotary  # neighbours that turn together are laid out anew
    return (turned is None or turned.pairs != "neighbours") and _activation(sublayers[1].part) in PLAIN


def _activation(part: Part) -> str:
    return part.activation if isinstance(part, FeedForward) else ""


def _plain(part: object) -> bool:
    known = MEASURED.get(type(part), frozenset()) if part is not None else frozenset[str]()
    if not is_dataclass(part):
        return part is None
    return all(getattr(part, each.name) == each.default for each in fields(part) if each.name not in known)


def with_moments(whole: Pass, shape: Transformer, *, batch: Size, tokens: Size) -> Pass:
    """The pass, with the order of its operations and what their gradients hold."""
    block = shape.stacks[0].block
    attention = block.find(Attention)
    assert attention is not None
    ahead = tuple(_forwards(attention, several=batch != 1, long=tokens != 1))
    several = batch != 1
    returned = (Held("B S K H", times=2),) if _copies(attention, several=several, long=tokens != 1) else ()
    runs = [_timed(section.run, _block(block))._replace(ahead=ahead, returned=returned) for section in whole.blocks]
    blocks = tuple(section._replace(run=run) for section, run in zip(whole.blocks, runs, strict=True))
    front = _timed(whole.front.run, _front(shape))
    logits = Moment("lm_head.weight", (Held("B T V"), Held("B T D", path="stream")))
    back = _timed(whole.back.run, _back(shape))._replace(ahead=(logits,))
    normed = block.sublayers[0].norm
    rows = (Held("B T D", "cast"),) if normed is not None and normed.kind == "rms" else ()  # else block 0 keeps them
    waiting = (*rows, Held("T S"))  # the embeddings, and the mask
    return whole._replace(
        front=whole.front._replace(run=front),
        blocks=blocks,
        back=whole.back._replace(run=back),
        buffers=(Kept("positions", "T", by=(), role="index"), *_frequencies(block)),
        waiting=waiting,
    )


def _frequencies(block: Block) -> Iterator[Kept]:
    """Angles of one position: half a head's size, of 8 bytes each."""
    attention = block.find(Attention)
    if attention is not None and attention.rotary is not None:
        yield Kept("frequencies", "H", by=(), role="full")


def _timed(run: Run, told: Iterator[str | Moment]) -> Run:
    """A run with its operations, in their order, and its moments."""
    found = list(told)
    order = tuple(each for each in found if isinstance(each, str))
    moments = [each for each in found if isinstance(each, Moment)]
    return run._replace(order=order, moments=tuple(moments))


def _front(shape: Transformer) -> Iterator[str | Moment]:
    yield "embed"
    yield Moment("embed", ())
    if shape.positions is not None:
        yield "pos_embed"
        yield Moment("pos_embed", (Held("T D"),))


def _back(shape: Transformer) -> Iterator[str | Moment]:
    assert shape.final_norm is not None
    yield from _norm("final_norm", shape.final_norm, last=True)
    yield "lm_head.weight"
    yield Moment("lm_head.weight", (Held("B T V"), STREAM))
    yield "loss"
    yield Moment("loss", (Held("B T V", "full"), Held("B T V", "cast")))


def _block(block: Block) -> Iterator[str | Moment]:
    for sublayer in block.sublayers:
        own = paths.in_every(paths.BLOCKS, sublayer.name)
        assert sublayer.norm is not None
        yield from _norm(f"{own}_norm", sublayer.norm)
        if isinstance(sublayer.part, Attention):
            yield from _attention(own, sublayer.part)
        elif isinstance(sublayer.part, FeedForward):
            yield from _network(own, sublayer.part)


def _norm(at: str, part: Norm, *, last: bool = False) -> Iterator[str | Moment]:
    """A norm. In fp32, where it makes no copy, its gradient is added to the stream's; behind the blocks there is none
    (`last`)."""
    if part.kind == "layer":
        yield from (at, f"{at}.weight")
        yield Moment(at, (STREAM, STREAM))
        return
    square, root, weight = f"{at}.square", f"{at}.root", f"{at}.weight"
    yield from (square, root, weight)
    yield Moment(weight, (Held("B T D", "full", 3), Held("D", "full")), done=False)
    squared = (Held("B T D", "full", 5),) if last else (Held("B T D", "full", 4), Held("B T D", "copy"))
    yield Moment(square, squared)


def _copies(part: Attention, *, several: bool, long: bool) -> bool:
    """True if products read copies of keys and values."""
    return (part.kv_heads != 1 and (part.group != 1 or (several and long))) or (part.group != 1 and several)


def _forwards(part: Attention, *, several: bool, long: bool) -> Iterator[Moment]:
    """What attention's own function has at hand while it runs: queries, keys and values beside their copies, which
    products make of what does not lie head by head. `several`: sequences; `long`: tokens."""
    at = paths.in_every(paths.BLOCKS, part.name)
    apart = several and long
    copied = _copies(part, several=several, long=long)
    there = [Held("B T D", path=paths.in_every(paths.BLOCKS, "in"))]
    there += [Held("B T N H")] if apart and part.heads != 1 else []
    there += [Held("B S K H", times=2)] if copied else []
    yield Moment(f"{at}.softmax", (*there, Held(PAIRS, times=3)))
    mixed = (Held("B T N H"),) if long and part.heads != 1 else ()
    yield Moment(f"{at}.o_proj.weight", (*there, Held("B T D")))
    yield Moment(f"{at}.o_proj.weight", (*there, *mixed))


def _network(at: str, part: FeedForward) -> Iterator[str | Moment]:
    gate, up, down = (f"{at}.{which}_proj.weight" for which in ("gate", "up", "down"))
    act, wide = f"{at}.act", Held("B T F")
    yield from (gate, up, act, down) if part.gated else (up, act, down)
    yield Moment(down, (wide,))
    if not part.gated:
        yield Moment(act, (wide, wide))
        yield Moment(up, (wide, STREAM))
        return
    yield Moment(act, (wide, wide, wide))
    yield Moment(up, (wide, wide, STREAM))
    yield Moment(gate, (wide, STREAM, STREAM))


def _attention(at: str, part: Attention) -> Iterator[str | Moment]:
    q, k, v, o = (f"{at}.{which}_proj.weight" for which in "qkvo")
    scores, softmax, summed = f"{at}.scores", f"{at}.softmax", f"{at}.values"
    queries, keys, copies, pairs = Held("B T N H"), Held("B S K H"), Held("B S N H"), Held(PAIRS)
    yield from (q, k, v, *((ROTARY,) if part.rotary is not None else ()), scores, softmax, summed, o)
    yield Moment(o, (queries,))
    yield Moment(summed, (queries, copies, pairs))
    yield Moment(softmax, (pairs, pairs, keys))
    yield Moment(scores, (pairs, copies, queries, keys))
    if part.rotary is not None:
        yield Moment(ROTARY, (queries, *(keys,) * 4))
        yield Moment(ROTARY, (*(queries,) * 3, keys, keys), after=True)  # the sines are read first
    yield Moment(v, (queries, queries, keys, keys), done=False)
    yield Moment(v, (queries, keys, keys, STREAM))
    yield Moment(k, (queries, keys, STREAM, STREAM))
    yield Moment(k, (queries, *(STREAM,) * 3))
    yield Moment(q, (queries, STREAM, STREAM))
