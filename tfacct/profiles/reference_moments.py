"""What the gradients of the reference model's step hold while they are made, operation by operation.

Read off torch's own operations, and held against the bytes alive at each of them, as what is kept is. A model with a
part that was not measured so has no peak here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import NamedTuple

from tfacct.architecture.blocks import Block, Stack, Sublayer
from tfacct.architecture.parts import (
    Attention,
    ChannelMix,
    CrossAttention,
    Embedding,
    Experts,
    FeedForward,
    Head,
    LatentAttention,
    LightningAttention,
    Mixer,
    Norm,
    Positions,
    Segments,
)
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.kept import Held, Kept, Moment, Pass, Run, Section
from tfacct.ledger.lines import WINDOW
from tfacct.ledger.storage import width
from tfacct.profiles import tape_latent, tape_mixers
from tfacct.profiles.eager_mixers import RUNS
from tfacct.profiles.reference_tape import Written
from tfacct.profiles.tape import BYTES
from tfacct.profiles.tape_experts import dealt

STREAM, PAIRS = Held("B T D"), "B K G T S"
PLAIN = frozenset(("gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish", "relu", "relu2"))
"""Activations that were measured: one operation each, or the square of one."""
MEASURED: Mapping[type, frozenset[str]] = {
    Transformer: frozenset(("embed", "stacks", "final_norm", "head", "positions", "embed_norm", "segments")),
    Embedding: frozenset(("vocab", "hidden", "shared", "scaled", "factor")),
    Segments: frozenset(("rows", "hidden")),
    Positions: frozenset(("rows", "hidden", "offset")),
    Head: frozenset(
        ("hidden", "vocab", "tied", "bias", "eps", "transform_bias", "norm_bias", "softcap", "logit_scale", "transform")
    ),
    Block: frozenset(("sublayers", "order")),
    Sublayer: frozenset(("part", "norm", "post_norm", "factor")),
    Norm: frozenset(("hidden", "kind", "eps", "narrow", "learned", "less_one")),
    Attention: frozenset(
        (
            *("hidden", "kv_heads", "group", "head_dim", "qkv_bias", "key_bias", "out_bias", "rotary", "scale"),
            *("qk_norm", "rope_dim", "window", "softcap", "temperature", "causal"),
            *("gated", "gate_bias", "gates", "gate_act"),
        )
    ),
    LatentAttention: frozenset(
        (
            *("hidden", "heads", "kv_rank", "nope_dim", "rope_dim", "value_dim", "q_rank", "bias", "eps", "rotary"),
            *("form", "scale", "temperature"),
        )
    ),
    Experts: frozenset(("hidden", "experts", "active", "width", "shared", "shared_alike", "shared_gate")),
    FeedForward: frozenset(("hidden", "width", "gated", "bias", "down_bias", "activation", "eps")),
}
"""Fields of parts whose values were measured: any other has its default where a peak is told."""


UNWRITTEN = frozenset(("absorbed", "unpacked"))
"""Forms of latent attention that are on no tape: the caller has keys and values of all heads, or there are none."""
FIRST = Attention, LatentAttention, *RUNS
"""Parts in front of a network or experts."""
NOWHERE = (LightningAttention,)
"""Of these, parts of blocks whose streams were not measured."""


def measured(shape: Transformer) -> bool:
    """True if what gradients hold was measured for all parts of a model."""
    ends = (shape, shape.embed, shape.positions, shape.segments, shape.embed_norm, shape.head, shape.final_norm)
    if shape.head is None or not all(map(_plain, ends)) or shape.head.transform not in (None, *PLAIN):
        return False
    if shape.embed_norm is not None and shape.embed_norm.kind != "layer":
        return False
    norms = (part for part in shape.parts() if isinstance(part, Norm))
    attentions = (part for part in shape.parts() if isinstance(part, Attention))
    qk_norms = (part.qk_norm for part in attentions if part.qk_norm is not None)
    if any(norm.kind == "rms" and norm.learned == "none" for norm in norms):
        return False
    if any(norm.own or not norm.learned for norm in qk_norms):
        return False
    if len({turned(stack) for stack in shape.stacks} - {None}) > 1:
        return False
    return all(_plain(stack.block) and _known(stack.block) for stack in shape.stacks)


def unmeasured(shape: Transformer) -> list[str]:
    """Parts that no gradients were measured of in any model, in words: what stands in the blocks beside attention,
    networks and experts, a second side, and what is no table in front."""
    known = (*FIRST, Experts, FeedForward)
    every = [sublayer.part for stack in shape.stacks for sublayer in stack.block.sublayers]
    others = [part for part in every if isinstance(part, NOWHERE) or not isinstance(part, (*known, CrossAttention))]
    front = () if isinstance(shape.embed, Embedding) else (shape.embed,)
    words = [*([] if shape.encoder is None else [shape.encoder.words]), *map(in_words, (*front, *others))]
    return list(dict.fromkeys(words))


def turned(stack: Stack) -> Size | None:
    """Size of the part of a head that blocks turn; None where they do not."""
    part = stack.block.attention
    if part is None or part.rotary is None:
        return None
    return part.head_dim if isinstance(part, Attention) and part.rope_dim is None else part.rope_dim


def _known(block: Block) -> bool:
    """True for attention, a network or experts, or one in front of the other, all of whose fields were measured."""
    behind = [isinstance(each.part, ChannelMix) or not isinstance(each.part, FIRST) for each in block.sublayers]
    if behind not in ([False, True], [False], [True]):
        return False
    if not all(_plain(own) and all(map(_plain, (own.part, own.norm, own.post_norm))) for own in block.sublayers):
        return False
    if getattr(block.sublayers[0].part, "form", "") in UNWRITTEN:
        return False
    rest = [own.part for own in block.sublayers if not isinstance(own.part, FIRST)]
    return all(getattr(part, "activation", "") in PLAIN for part in rest)


def _plain(part: object) -> bool:
    if isinstance(part, tuple(RUNS)):  # run as they are
        return not isinstance(part, NOWHERE)
    known = MEASURED.get(type(part), frozenset()) if part is not None else frozenset[str]()
    if not is_dataclass(part):
        return part is None
    return all(getattr(part, each.name) == each.default for each in fields(part) if each.name not in known)


def _weighted(block: Block, returned: Sequence[Held]) -> Iterator[Moment]:
    """What is there once experts' results are weighted and summed: which expert each row is sent to, attention's
    result, the stream as it was and as it is, and what the block returns beside it."""
    several = len(block.sublayers) > 1
    names = ("in", "mid") if several and block.order != "parallel" else ("in",)
    streams = (Held("B T D", path=paths.in_every(paths.BLOCKS, name)) for name in names)
    there = (Held("B T A", "index"), *((Held("B T D"),) if several else ()), *streams, *returned)
    for sublayer in block.sublayers:
        if isinstance(sublayer.part, Experts):
            own = paths.in_every(paths.BLOCKS, sublayer.name)
            yield Moment(f"{own}.weighting", (Held("B T A D"), Held("B T D"), *there))


def with_moments(whole: Pass, shape: Transformer, *, batch: Size, tokens: Size, full: bool) -> Pass:
    """The pass, with the order of its operations and what their gradients hold."""
    blocks = []
    few = {"G"} if any(isinstance(part, LatentAttention) for part in shape.parts()) else set[str]()
    few |= {letter for letter, size in (("B", batch), ("T", tokens), ("S", tokens)) if size == 1}
    for kind, (section, stack) in enumerate(zip(whole.blocks, shape.stacks, strict=True)):
        how = next((dealt(p, batch, tokens) for _, p in stack.block.parts() if isinstance(p, Experts)), None)
        axes = {**section.axes, **({} if how is None else how.letters)}
        alone = _alone(section, stack.block, batch=batch, tokens=tokens, full=full)
        written = Written(full=full, ones=_ones(section.axes, few), dealt=how, kind=kind, ran=alone)
        order, moments = written.moments(written.block(stack.block))
        returned, forwards = _forwards(stack.block.sublayers[0], batch, tokens)
        returned += tuple(Held("", BYTES, each.returned) for each in alone.values())
        beside, stays = (
            sum(each) for each in zip((0, 0), *((own.beside, own.stays) for own in alone.values()), strict=True)
        )
        ahead = (*forwards, *_apart(stack.block, alone), *_weighted(stack.block, (*returned, Held("", BYTES, beside))))
        run = section.run._replace(order=order, moments=moments, ahead=ahead)
        run = run._replace(returned=returned, beside=beside, stays=stays)
        blocks.append(section._replace(run=run, axes=axes))
    front = _timed(whole.front.run, _front(shape))
    assert shape.head is not None
    written = Written(full=full, ones=_ones(whole.back.axes, few))
    order, moments = written.moments(written.head(shape.head, shape.final_norm))
    back = whole.back.run._replace(
        order=order, moments=moments, ahead=tuple(_logits(shape.head, shape.final_norm, full=full))
    )
    block = shape.stacks[0].block
    normed = block.sublayers[0].norm
    copied = block.order != "post" and normed is not None and normed.kind == "rms"  # else block 0 keeps them
    rows = (Held("B T D", "cast"),) if copied else ()
    attentions = (part for part in shape.parts() if isinstance(part, Attention))
    masks = {part.window for part in attentions if part.causal or part.window is not None}
    masks |= {None for part in shape.parts() if isinstance(part, LatentAttention)}
    waiting = (*rows, Held("T S", times=len(masks)))  # the embeddings, and masks
    return whole._replace(
        front=whole.front._replace(run=front),
        blocks=tuple(blocks),
        back=whole.back._replace(run=back),
        buffers=(Kept("positions", "T", by=(), role="index"), *_frequencies(shape)),
        waiting=waiting,
    )


def _logits(part: Head, final: Norm | None, *, full: bool) -> Iterator[Moment]:
    """What the head has at hand: logits, and beside them the same scaled, and scaled again to be bounded. In front of
    few logits an RMSNorm is fuller, whose result is scaled before it is cast."""
    stream = Held("B T D", path="stream")
    if final is not None and final.kind == "rms" and not full:
        yield Moment("final_norm.weight", (Held("B T D", "full"), Held("B T D"), stream))
    yield Moment("lm_head.weight", (Held("B T V", times=1 + (part.logit_scale is not None)), stream))
    if part.softcap is not None:
        yield Moment("lm_head.softcap", (Held("B T V", times=2), stream))


def _alone(section: Section, block: Block, *, batch: Size, tokens: Size, full: bool) -> dict[str, tape_mixers.Ran]:
    """Parts of a block that run by themselves."""
    axes, found = {"B": batch, "T": tokens, "S": tokens, **section.axes}, dict[str, tape_mixers.Ran]()
    pass_ = width("fp32" if full else "bf16")
    for sublayer in block.sublayers:
        if isinstance(part := sublayer.part, Mixer):
            at = paths.in_every(paths.BLOCKS, sublayer.name)
            inside = f"{at}."
            behind = f"{at}_"  # a norm of its result, which keeps that
            own = [
                line
                for line in section.run.kept
                if line.path.startswith(inside) and not any(by.startswith(behind) for by in line.by)
            ]
            read = [
                line.by for line in section.run.kept if line not in own and any(by.startswith(inside) for by in line.by)
            ]
            reads = [by for names in read for by in names if all(by.startswith(inside) for by in names)]
            lines = [(line, int(line.bytes(axes, pass_))) for line in own]
            found[at] = tape_mixers.ran(part, at, lines, reads, batch=int(batch), tokens=int(tokens), full=full)
    return found


def _apart(block: Block, alone: Mapping[str, tape_mixers.Ran]) -> Iterator[Moment]:
    """What parts that run by themselves have at hand, beside the stream, and results and states of those in front."""
    there = list[Held]()
    for sublayer, name in zip(block.sublayers, ("in", "mid"), strict=False):
        there.append(Held("B T D", path=paths.in_every(paths.BLOCKS, name)))
        how = alone.get(paths.in_every(paths.BLOCKS, sublayer.name))
        if how is not None:
            yield Moment(how.order[-1], (*there, Held("", BYTES, how.ahead)))
            there += [Held("B T D"), Held("", BYTES, how.returned + how.beside)]


def _forwards(sublayer: Sublayer, batch: Size, tokens: Size) -> tuple[tuple[Held, ...], Iterator[Moment]]:
    """What a block's caller has of its attention, and what attention's own function has at hand."""
    part, long = sublayer.part, tokens != 1
    if isinstance(part, LatentAttention):
        apart = batch != 1 and long and part.heads != 1
        return tape_latent.RETURNED, tape_latent.forwards(part, apart=apart, long=long)
    if not isinstance(part, Attention):
        return (), iter(())
    laid = _laid(part, several=batch != 1, long=long)
    return _returned(part, laid, tokens), _at_hand(part, laid, long=long)


def _ones(axes: Axes, few: set[str]) -> frozenset[str]:
    """Axes of size 1."""
    return frozenset(few | {letter for letter, size in axes.items() if isinstance(size, int) and size == 1})


def _frequencies(shape: Transformer) -> Iterator[Kept]:
    """Angles of one position: half a head's size, of 8 bytes each, for each kind of block that turns."""
    for number, stack in enumerate(shape.stacks):
        attention = stack.block.attention
        if attention is not None and attention.rotary is not None:
            turned = "H" if attention.rope_dim is None else "Hr"
            yield Kept(f"frequencies{number or ''}", turned, by=(), role="full")


def _timed(run: Run, told: Iterator[str | Moment]) -> Run:
    """A run with its operations, in their order, and its moments."""
    found = list(told)
    order = tuple(each for each in found if isinstance(each, str))
    moments = [each for each in found if isinstance(each, Moment)]
    return run._replace(order=order, moments=tuple(moments))


def _front(shape: Transformer) -> Iterator[str | Moment]:
    yield "embed"
    yield Moment("embed", ())
    if shape.embed.scaled:
        yield "embed.scale"
        yield Moment("embed.scale", (STREAM,))
    if shape.positions is not None:
        yield "pos_embed"
        yield Moment("pos_embed", (Held("T D"),))
    if shape.segments is not None:
        yield from ("type_embed", "type_embed.weight")
        yield Moment("type_embed", (Held("T D"),))
    if shape.embed_norm is not None:
        yield from ("embed_norm", "embed_norm.weight")
        yield Moment("embed_norm", (STREAM,))


class Laid(NamedTuple):
    """How attention's heads lie, and what follows: copies that products read, while those stay that they are made of.

    `queries`, `keys`, `values`: there is a copy beside these."""

    queries: bool
    keys: bool
    values: bool


def _laid(part: Attention, *, several: bool, long: bool) -> Laid:
    """Heads that are normed, joined of parts, or whose neighbours turn lie head by head; others token by token.
    `several`: sequences; `long`: tokens."""
    normed = part.qk_norm is not None and not part.qk_norm.together
    near = part.rotary is not None and part.rotary.pairs == "neighbours"
    by_head = normed or near or (part.rotary is not None and part.rope_dim is not None)
    apart, shared, one = several and long, part.group != 1, part.kv_heads == 1
    values = (not one and (shared or apart)) or (shared and several)
    keys = shared and (not one or several) if by_head else values
    return Laid(apart and part.heads != 1 and not by_head, keys, values)


def _returned(part: Attention, laid: Laid, tokens: Size) -> tuple[Held, ...]:
    """What a block's caller has of it: keys and values, or the last ones, which a window keeps."""
    if not part.keeps:
        return ()
    if part.window is not None and int(tokens) > int(part.window):
        return (Held(f"B {WINDOW} K H", times=2),)
    copied = laid.keys + laid.values
    return (Held("B S K H", times=copied),) if copied else ()


def _at_hand(part: Attention, laid: Laid, *, long: bool) -> Iterator[Moment]:
    """What attention's own function has at hand while it runs: queries, keys and values beside their copies, which
    products make of what does not lie head by head. `long`: tokens."""
    at = paths.in_every(paths.BLOCKS, part.name)
    there = [Held("B T D", path=paths.in_every(paths.BLOCKS, "in"))]
    there += [Held("B T N H")] if laid.queries else []
    there += [Held("B S K H", times=laid.keys + laid.values)] if laid.keys or laid.values else []
    scores = 1 + (part.softcap is None) + (part.causal or part.window is not None)  # as made, scaled and masked
    yield Moment(f"{at}.softmax", (*there, Held(PAIRS, times=scores)))
    mixed = (Held("B T N H"),) if long and part.heads != 1 else ()
    yield Moment(f"{at}.o_proj.weight", (*there, Held("B T D")))
    if not part.gated:
        yield Moment(f"{at}.o_proj.weight", (*there, *mixed))
        return
    yield Moment(f"{at}.gate_proj.weight", (*there, *mixed, Held("B T N H")))
    gate = Held("B T N H" if part.gates == "elements" else "B T N", path=f"{at}.gate_proj")
    yield Moment(f"{at}.o_proj.weight", (*there, gate))
