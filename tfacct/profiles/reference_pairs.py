"""What the reference model keeps of two sides: an encoder of a source, and attention to it of a decoder's tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tfacct.architecture.parts import SOURCES, CrossAttention, MergedAttention, Stem
from tfacct.architecture.parts.cross import OF_SOURCE as OF_SOURCES
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size, divided, rounded_up
from tfacct.ledger.kept import Kept, Pass, Run, Section, joined, turns
from tfacct.ledger.lines import HALF, WHOLE
from tfacct.ledger.workload import HALVES, OVERLAPPING, PADDED
from tfacct.profiles.pairs import OF_SOURCE, named
from tfacct.profiles.reference_lines import Lines, is_

MEMORY = "memory"
"""What the encoder gave."""


def alone(encoder: Encoder) -> Transformer:
    """An encoder as a model of its own, without a head."""
    front = encoder.stem if encoder.embed is None else replace(encoder.embed, shared=False)
    assert front is not None
    return Transformer(
        embed=front,
        stacks=encoder.stacks,
        final_norm=encoder.final_norm,
        head=None,
        positions=encoder.positions,
        embed_norm=encoder.embed_norm,
        bias=encoder.bias,
    )


def padded(encoder: Encoder | Transformer, source: Size) -> Size:
    """Tokens that an encoder runs over: those that it reads, or whole windows of them."""
    longest = encoder.longest
    return source if longest is None else rounded_up(source, longest) * longest


def cut(own: Lines, whole: Size, over: Pass, behind: Pass) -> Pass:
    """The pass of an encoder that runs over whole windows up to its last block: `over` those, and `behind` its own
    tokens alone. What stands there sees the stream of all, or copies the rows of several texts."""
    copied = not is_(own.batch, 1) and not is_(own.tokens, 1) and own.tokens != whole

    def seen(line: Kept) -> Kept:
        alone = copied and "pooler.weight" not in line.by
        return line if line.path != "stream" or alone else replace(line, spec=f"B {PADDED} D")

    back = behind.back
    back = back._replace(run=back.run._replace(kept=tuple(map(seen, back.run.kept))), axes={**back.axes, PADDED: whole})
    front, *blocks = (_in_windows(section, whole, {"T": PADDED}) for section in (over.front, *over.blocks))
    return over._replace(front=front, blocks=tuple(blocks), back=back)


def _in_windows(section: Section, whole: Size, letters: Mapping[str, str], name: Callable[[str], str] = str) -> Section:
    """A section by other letters and names, with the sizes of whole windows."""
    of = {**section.axes, PADDED: whole}
    if HALF in of:
        halves = divided(whole, of[HALF])
        of |= {HALVES: halves, OVERLAPPING: halves - 1}
    return section._replace(run=named(section.run, letters, name), axes=of)


def both(own: Lines, target: Pass, reading: Pass | None, shape: Transformer, source: Size) -> Pass:
    """The pass of both sides, of those of each; without a second one another model has read the source."""
    encoder, axes = shape.encoder, dict[str, Size]()
    assert encoder is not None
    whole = padded(encoder, source)
    spec = "J"
    if encoder.longest is not None:
        axes, spec = {PADDED: whole}, PADDED
    # Products copy rows of several sequences behind which others are cut off; else these are seen, and kept whole.
    apart = encoder.longest is not None and not is_(own.batch, 1) and not is_(source, 1) and source != whole
    blocks = list[Section]()
    readers = list[str]()
    for section, stack in zip(target.blocks, shape.stacks, strict=True):
        part = stack.block.find(CrossAttention) or stack.block.find(MergedAttention)
        if part is not None:
            narrow = isinstance(part, CrossAttention) and part.source_hidden is not None
            row = OF_SOURCES if narrow else "D"
            at = paths.in_every(paths.BLOCKS, part.name)
            begins = SOURCES if isinstance(part, MergedAttention) else ""
            made = tuple(f"{at}.{begins}{which}_proj" for which in "kv")
            readers = [f"{name}.weight" for name in made]
            if apart:
                copies = (Kept(f"{name}.read", f"B J {row}", by=(f"{name}.weight",)) for name in made)
                section = section._replace(run=joined(section.run, Run(kept=tuple(copies))))
            given = Kept(MEMORY, f"B {spec} {row}", by=tuple(readers))
        blocks.append(section)
    front = target.front
    if readers and not apart:
        run = joined(front.run, Run(kept=(given,)))
        front = front._replace(run=run, axes={**front.axes, **axes})
    shown = () if reading is None else tuple(_beside(section, axes) for section in reading.sections)
    return target._replace(front=front, blocks=tuple(blocks), encoder=reading, source=shown)


def _beside(section: Section, axes: Axes) -> Section:
    """A section of the encoder as it stands beside the decoder's: by the names and letters of its side."""
    kept = tuple(line.needed_by(by for by in line.by if not turns(by)) for line in section.run.kept)
    section = section._replace(run=section.run._replace(kept=kept))
    if axes:
        return _in_windows(section, axes[PADDED], {**OF_SOURCE, "T": PADDED}, paths.in_encoder)
    return section._replace(run=named(section.run, OF_SOURCE, paths.in_encoder))


def overlapping(at: str, reads: str) -> Iterator[Kept]:
    """Queries and keys in windows that overlap, softmax of those that a token sees, and values of three halves."""
    yield Kept(reads, "B T D", by=tuple(f"{at}.{which}_proj.weight" for which in "qkv"))
    scores, softmax, summed = f"{at}.scores", f"{at}.softmax", f"{at}.values"
    for which, tokens in (("q", WHOLE), ("k", "Wg")):
        yield Kept(f"{at}.{which}.windows", f"B {OVERLAPPING} {tokens} N H", by=(scores,))
    yield Kept(softmax, "B N T Ws", by=(softmax,))
    yield Kept(f"{at}.v.windows", f"B {HALVES} Wv N H", by=(summed,))
    for name, row in (("shares", f"{HALF} Wv"), ("shares.rest", HALF)):  # one number more in each row, not read
        yield Kept(f"{at}.{name}", f"B {HALVES} N {row}", by=(summed,))
    yield Kept(summed, "B T N H", by=(f"{at}.o_proj.weight",))


def cross(own: Lines, at: str, reads: str, part: CrossAttention) -> Iterator[Kept]:
    """Queries of the target, keys and values of the source, scores, softmax and what was read."""
    yield Kept(reads, "B T D", by=(f"{at}.q_proj.weight",))
    now = {which: f"{at}.{which}_proj" for which in "qkv"}
    if part.qk_norm is not None:
        for which, rows in (("q", "B T N"), ("k", "B J K")):
            norm = f"{at}.{which}_norm"
            yield from own.rms(norm, now[which], f"{rows} H", rows, "H", less_one=False)
            now[which] = norm
    viewed = is_(own.batch, 1) and is_(part.kv_heads, 1) and not is_(part.group, 1)
    keys, values = (now[which] if viewed else f"{at}.{which}_copies" for which in "kv")
    heads = "K" if viewed else "N"
    scores, softmax, summed = f"{at}.scores", f"{at}.softmax", f"{at}.values"
    asked, read, pairs = (
        Kept(now["q"], "B T N H", by=(scores,)),
        Kept(keys, f"B J {heads} H", by=(scores,)),
        "B K G T J",
    )
    yield from own.scores(at, asked, read, pairs, far=part.score_function == "distance")
    if part.softcap is not None:
        yield Kept(f"{at}.softcap", pairs, by=(f"{at}.softcap",))
    yield Kept(softmax, pairs, by=(softmax, summed))
    yield Kept(values, f"B J {heads} H", by=(summed,))
    yield Kept(summed, "B T N H", by=(f"{at}.o_proj.weight",))


def merged(own: Lines, at: str, queries: str, part: MergedAttention) -> Iterator[Kept]:
    """Of attention to a source beside that to its own tokens: its keys and values, and the shares of those, which stand
    behind the others in one tensor."""
    keys, values = (f"{at}.{SOURCES}{which}_proj" for which in "kv")
    if part.qk_norm is not None:
        norm = f"{at}.{SOURCES}k_norm"
        yield from own.rms(norm, keys, "B J K H", "B J K", "H", less_one=part.qk_norm.less_one)
        keys = norm
    viewed = is_(own.batch, 1) and is_(part.kv_heads, 1) and not is_(part.group, 1)
    keys, values = (keys, values) if viewed else (f"{at}.{SOURCES}{which}_copies" for which in "kv")
    heads = "K" if viewed else "N"
    scores, summed = (f"{at}.{SOURCES}{which}" for which in ("scores", "values"))
    yield Kept(queries, "B T N H", by=(scores,))
    yield Kept(keys, f"B J {heads} H", by=(scores,))
    yield Kept(f"{at}.{SOURCES}softmax", "B K G T J", by=(f"{at}.softmax", f"{at}.values", summed))
    yield Kept(values, f"B J {heads} H", by=(summed,))


def stem(own: Lines, at: str, _: Stem) -> Iterator[Kept]:
    """Two convolutions over frames, each as one product of what it sees, and the activations behind them."""
    first, second = "B T Fp D", "B T D"
    yield Kept(f"{at}.frames", "B T Fp Mf Kf", by=(f"{at}.conv1.weight",))
    yield from own.activated(f"{at}.act1", f"{at}.conv1", "gelu", first)
    yield Kept(f"{at}.seen", "B T Dk", by=(f"{at}.conv2.weight",))
    yield from own.activated(f"{at}.act2", f"{at}.conv2", "gelu", second)
