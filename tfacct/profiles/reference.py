"""How the house's own reference model trains: every tensor that autograd keeps, part by part.

Read off tfacct/reference, whose attention is scores, softmax and values one after the other, and held against it by its
saved tensors, module by module. Its loss is the mean of its results, which keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from tfacct.architecture.blocks import Block, MtpHead, Stack, Sublayer
from tfacct.architecture.parts import (
    Attention,
    CompressedAttention,
    CrossAttention,
    Experts,
    FeedForward,
    HyperConnection,
    LatentAttention,
    Laurel,
    Mixer,
    NarrowAttention,
    NarrowNetworks,
    Norm,
    OverlappingAttention,
    Part,
    PerLayerInput,
    SharedOutput,
)
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Kept, Pass, Run, Section, joined, turn_of
from tfacct.profiles.reference_attention import attention
from tfacct.profiles.reference_bottleneck import narrow_attention, narrow_networks
from tfacct.profiles.reference_compressed import compressed, entries
from tfacct.profiles.reference_compressed import turning as turned_by
from tfacct.profiles.reference_ends import back_of, front_of
from tfacct.profiles.reference_experts import experts
from tfacct.profiles.reference_hyper import before
from tfacct.profiles.reference_hyper import behind as after
from tfacct.profiles.reference_images import in_groups, merging
from tfacct.profiles.reference_indexed import of_blocks, turned_heads
from tfacct.profiles.reference_latent import latent
from tfacct.profiles.reference_lines import BENT, Lines, adapted, is_, read_whole, split
from tfacct.profiles.reference_mixers import lengths, mixed
from tfacct.profiles.reference_pairs import alone, both, cross, cut, overlapping, padded
from tfacct.profiles.reference_streams import (
    ALL,
    PREDICTED,
    corrected,
    in_front,
    laurel,
    per_layer,
    predicted,
    shared_input,
)
from tfacct.profiles.reference_streams import last as behind


@record
class Reference(Lines):
    """The reference model."""

    def passed(self, shape: Transformer, source: Size = 0) -> Pass:
        """The pass of a model that reads a source of so many tokens, if any. Raises ConfigError for a part without a
        rule, by its name."""
        if shape.encoder is None:
            own, whole = self._side(shape), padded(shape, self.tokens)
            return own if shape.longest is None else cut(self, whole, replace(self, tokens=whole)._side(shape), own)
        own, encoder = self._side(replace(shape, encoder=None)), shape.encoder
        if encoder.given:
            return both(self, own, None, shape, source)
        run = replace(self, tokens=padded(encoder, source))
        reading = run._side(alone(encoder), "embed" if encoder.stem is None else "stem")
        return both(self, own, reading, shape, source)

    def _side(self, shape: Transformer, first: str = "embed") -> Pass:
        """The pass of one side, or of a model that has one alone. `first`: name of what stands in front."""
        everywhere = {axis: size for part in shape.parts() for axis, size in part.axes().items()}
        everywhere |= in_groups(self.tokens, everywhere)
        blocks = tuple(
            Section(
                _run(self._block(stack.block)),
                {**everywhere, **dict(self._sizes(stack.block))},
                stack.count,
                numbers,
            )
            for stack, numbers in zip(shape.stacks, shape.numbers(), strict=True)
        )
        if shape.stacks[0].block.hyper is not None:
            blocks = (*self._from_first(shape.stacks[0].block, blocks[0]), *blocks[1:])
        read = {0: by} if (by := shared_input(self, shape)) else {}
        if shape.deepstack is not None:
            read |= merging(shape.deepstack)
        blocks = tuple(chain.from_iterable(split(section, read) for section in blocks))
        front = _run(chain(front_of(self, shape, first), in_front(self, shape), self._angles(shape)))
        back, axes = back_of(self, shape), everywhere
        if shape.mtp is not None:
            back, axes = chain(back, self._ahead(shape, shape.mtp)), {**axes, **dict(self._sizes(shape.mtp.block))}
        return Pass(Section(front, everywhere), blocks, Section(_run(back), axes))

    def _ahead(self, shape: Transformer, heads: MtpHead) -> Iterator[Kept]:
        """Heads of further tokens: each joins the stream behind the one before and the next token's row, and runs a
        block of its own, whose angles they share."""
        stream = "stream" if shape.hyper is None else f"{shape.hyper.name}.stream"
        norm = Norm(hidden=heads.projection.hidden, kind="rms", eps=heads.projection.eps)
        part, size = heads.block.attention, turned(Stack(heads.block, 1))
        lines = [*self._block(heads.block)]
        if part is not None and size is not None:
            at = paths.in_every(paths.BLOCKS, part.name)
            turns = {name: (*turning(at, part, name),) for name in ("cos", "sin")}
            lines += [Kept(f"{paths.MTP}.{name}", "T", by=by, times=size) for name, by in turns.items()]
        every = paths.in_every(paths.BLOCKS, "")
        for number in range(heads.count):
            own = f"{paths.MTP}.{number}"
            yield from self.norm(f"{own}.join.row_norm", f"{own}.row", norm)
            yield from self.norm(f"{own}.join.stream_norm", stream, norm)
            yield Kept(f"{own}.joined", "B T Dj", by=(f"{own}.join.proj.weight",))
            for line in lines:
                by = tuple(name.replace(every, own) for name in line.by)
                yield Kept(line.path.replace(every, own), line.spec, by=by, role=line.role, times=line.times)
            stream = f"{own}.out"
            yield from self.norm(f"{own}.head_norm", stream, heads.norm)
            yield Kept(f"{own}.head_norm", "B T D", by=(f"{own}.lm_head.weight",))

    def _sizes(self, block: Block) -> Iterator[tuple[str, Size]]:
        """Sizes of a block's letters, those that the step gives among them."""
        for _, part in block.parts():
            yield from part.axes().items()
            yield from lengths(part, self.tokens).items()
            yield from entries(part, self.tokens).items()
            yield from in_groups(self.tokens, part.axes()).items()

    def _angles(self, shape: Transformer) -> Iterator[Kept]:
        """Cosines and sines, which all blocks of a kind share. Where kinds turn parts of several sizes, these stand as
        so many vectors."""
        several = len(set(map(turned, shape.stacks)) - {None}) > 1
        for number, stack in enumerate(shape.stacks):
            part, size = stack.block.attention, turned(stack)
            if part is None or size is None:
                continue
            letter = "H" if isinstance(part, Attention) and part.rope_dim is None else "Hr"
            at = paths.in_every(paths.BLOCKS, part.name)
            spec, times = f"T {letter}", 1
            if several:
                spec, times = "T", size
            for name in ("cos", "sin"):
                by = (*turning(at, part, name), turn_of(number))
                yield Kept(f"{name}{number or ''}", spec, by=by, times=times)

    def _from_first(self, block: Block, all_: Section) -> Iterator[Section]:
        """The first block, whose streams are one vector still, and others of its kind."""
        yield all_._replace(run=_run(self._block(block, alike=True)), count=1, numbers=all_.numbers[:1])
        if not is_(all_.count, 1):
            yield all_._replace(count=all_.count - 1, numbers=all_.numbers[1:])

    def _block(self, block: Block, *, alike: bool = False) -> Iterator[Kept]:
        """What a block keeps: of several streams, all sublayers but the last work on a prediction of the first, or each
        reads a sum of all. `alike`: all are the same vector."""
        called = [one for one in block.sublayers if one.called]
        if block.hyper is not None:
            yield from self._on_mixed(block.hyper, called, alike=alike)
            return
        if block.altup is None:
            yield from self._sublayers(block, called, paths.in_every(paths.BLOCKS, "in"))
            return
        *first, last = called
        yield from predicted(self)
        yield from read_whole(self._sublayers(block, first, PREDICTED), PREDICTED, ALL)
        yield from corrected(self, block.altup, _summed(len(first) - 1))
        reads, spec = behind(block.altup)
        yield from read_whole(self._part(paths.in_every(paths.BLOCKS, last.name), reads, last), reads, spec)

    def _on_mixed(self, hyper: HyperConnection, sublayers: list[Sublayer], *, alike: bool) -> Iterator[Kept]:
        x = paths.in_every(paths.BLOCKS, "in")
        for number, sublayer in enumerate(sublayers):
            own, at = (paths.in_every(paths.BLOCKS, name) for name in (sublayer.name, f"{hyper.name}.{sublayer.name}"))
            yield from before(self, at, x, hyper, alike=alike and number == 0)
            norm, reads = f"{own}_norm", f"{at}.sum"
            if sublayer.norm is not None:
                yield from self.norm(norm, reads, sublayer.norm)
                reads = norm
            yield from self._part(own, reads, sublayer)
            yield from after(at, f"{own}.out" if sublayer.post_norm is None else f"{own}_post_norm")
            x = _summed(number)

    def _sublayers(self, block: Block, sublayers: list[Sublayer], x: str) -> Iterator[Kept]:
        """Sublayers in the block's order. The stream behind the last one is what the next block reads."""
        first, shared = x, ""
        handed: str | None = None
        for number, sublayer in enumerate(sublayers):
            own = paths.in_every(paths.BLOCKS, sublayer.name)
            norm, reads, handed = f"{own}_norm", handed or x, None
            summed = _summed(number)
            if block.order == "post":
                yield from self._part(own, reads, sublayer)
                if sublayer.gives == "next":
                    handed = f"{own}.out"
                    continue
                yield from self._weighed(own, x, sublayer)
                x = summed
                if sublayer.norm is not None:
                    yield from self.norm(norm, x, sublayer.norm)
                    x = norm
                continue
            if sublayer.norm is not None:
                given, last = (f"{own}.joined", "Dj") if sublayer.norm.joined else (reads, "D")
                yield from self.norm(norm, given, sublayer.norm, last=last)
                reads = shared = norm
            elif block.order == "parallel":
                reads = first
            elif sublayer.beside:
                reads = shared if sublayer.scale is None else f"{own}_scale"
            if number == 0:
                first = reads
            yield from self._part(own, reads, sublayer)
            yield from self._weighed(own, x, sublayer)
            if sublayer.gives != "stream":
                handed = f"{own}.out" if sublayer.gives == "next" else f"{own}.sum"
            elif block.order == "pre":
                x = summed

    def _part(self, at: str, reads: str, sublayer: Sublayer) -> Iterator[Kept]:
        """A part, and the norm of its result."""
        part: Part = sublayer.part
        if isinstance(part, OverlappingAttention):
            yield from overlapping(at, reads)
        elif isinstance(part, NarrowAttention):
            yield from narrow_attention(self, at, reads, part)
        elif isinstance(part, NarrowNetworks):
            yield from narrow_networks(self, at, reads, part)
        elif isinstance(part, Attention):
            if part.chosen is not None:
                yield from of_blocks(self, f"{at}.indexer", reads, part)
            yield from attention(self, at, reads, part)
        elif isinstance(part, CrossAttention):
            yield from cross(self, at, reads, part)
        elif isinstance(part, LatentAttention):
            yield from latent(self, at, reads, part)
        elif isinstance(part, CompressedAttention):
            yield from compressed(self, at, reads, part)
        elif isinstance(part, Experts):
            yield from experts(self, at, reads, part)
        elif isinstance(part, Laurel):
            yield from laurel(self, at, reads, part)
        elif isinstance(part, PerLayerInput):
            yield from per_layer(self, at, reads, part)
        elif isinstance(part, SharedOutput):
            yield Kept(reads, "B T D", by=(f"{at}.proj.weight",))
        elif isinstance(part, FeedForward):
            if part.norm is not None:
                norm = Norm(hidden=part.hidden, kind=part.norm, eps=part.eps)
                yield from self.norm(f"{at}.norm", reads, norm)
                reads = f"{at}.norm"
            how = BENT if part.bent else part.activation
            normed, cut = part.inner_norm is not None, part.sparsity is not None
            yield from self.network(at, reads, "F", how, gated=part.gated, normed=normed, cut=cut)
            if part.adapter is not None:
                yield from adapted(at, reads, "D", {"adapter_down": ("gate_adapter_up", "up_adapter_up")})
            if part.channel_scale:
                yield Kept(f"{at}.made", "B T D", by=(f"{at}.channel_scale",))
        elif isinstance(part, Mixer):
            yield from mixed(self, at, reads, part)
        else:
            raise ConfigError(f"{self.name}: no rule for {in_words(part)}")
        if sublayer.post_norm is not None:
            yield from self.norm(f"{at}_post_norm", f"{at}.out", sublayer.post_norm)

    def _weighed(self, at: str, stream: str, sublayer: Sublayer) -> Iterator[Kept]:
        """What is learned of a result and of the stream that it joins: numbers that weigh them."""
        result = f"{at}.out" if sublayer.post_norm is None else f"{at}_post_norm"
        gate, left = f"{at}_add.gate", f"{at}_add.stream_gate"
        if sublayer.weighed is not None:
            yield Kept(stream, "B T D", by=(left,))
            yield Kept(f"{left}.numbers", "D", by=(left,), times=5)  # both shares, their sums and product, its root
        if sublayer.scaled:
            for scaled in (left, gate):
                yield Kept(f"{scaled}.shifted", "B T D", by=(scaled,))
        if sublayer.gated or sublayer.weighed is not None:
            yield Kept(result, "B T D", by=(gate,))
            yield Kept(f"{gate}.numbers", "" if sublayer.gated else "D", by=(gate,))


def turned(stack: Stack) -> Size | None:
    """Size of the part of a head that blocks turn; None where they do not."""
    part = stack.block.attention
    if part is None or part.rotary is None:
        return None
    return part.head_dim if isinstance(part, Attention) and part.rope_dim is None else part.rope_dim


def turning(at: str, part: Part, name: str) -> Iterator[str]:
    """What turns by a block's angles: queries, keys where they are its own, and an indexer's."""
    if isinstance(part, CompressedAttention):
        yield from turned_by(at, part, name)
        return
    yield f"{at}.q_rotary"
    if not getattr(part, "borrowed", False):
        yield f"{at}.k_rotary"
    yield from turned_heads(at, part)


def _summed(number: int) -> str:
    """The stream behind a sublayer, by its place."""
    return paths.in_every(paths.BLOCKS, f"mid{number or ''}")


def _run(lines: Iterator[Kept]) -> Run:
    return joined(Run(kept=tuple(lines)))
