"""A transformer: embeddings, stacks of layers, a final norm and a head. Puts the lines of the parts into one ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from tfacct.architecture import axis_names
from tfacct.architecture.axis_names import Names
from tfacct.architecture.blocks import POSITIONS, Block, MtpHead, PartT, Stack, Sublayer, in_order, numbered
from tfacct.architecture.grouped import group, grouped, in_whole_windows, longest_window, of_source
from tfacct.architecture.parts import (
    CHOSEN,
    Classes,
    Deepstack,
    Embedding,
    FeedForward,
    Grouped,
    Head,
    LatentAttention,
    MlaMode,
    NamedTensors,
    Norm,
    Part,
    Patches,
    Positions,
    Projector,
    RelativeBias,
    Segments,
    SelfAttention,
    Stem,
)
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.groups import Group, Ledger


@record
class Encoder:
    """Encoder of a source, read whole at once: blocks that are not causal, between embeddings and a norm of its own.
    With a stem its tokens are positions of audio. Without `embed` the source is `given`, rows as wide as the model, and
    what makes them is not counted.

    `apart`: the axes whose sizes are its own, even where the decoder's are the same numbers.
    """

    embed: Embedding | Stem | None
    stacks: tuple[Stack, ...]
    positions: Positions | None = None
    bias: RelativeBias | None = None
    embed_norm: Norm | None = None
    final_norm: Norm | None = None
    apart: frozenset[str] = frozenset()

    @property
    def given(self) -> bool:
        """True if the source comes as rows that another model made."""
        return self.embed is None

    @property
    def words(self) -> str:
        """What a text calls it."""
        return "a source that another model has read" if self.given else "an encoder"

    @property
    def longest(self) -> Size | None:
        """Tokens of the longest window, to whole ones of which the source is padded; None where it is not."""
        return longest_window(self.stacks)

    def ends(self) -> tuple[dict[str, Part], dict[str, Part]]:
        """Parts before the blocks and parts behind them, by their names in paths."""
        embed = "stem" if isinstance(self.embed, Stem) else "embed"
        front: dict[str, Part | None] = {embed: self.embed, "pos_embed": self.positions}
        front |= {"rel_bias": self.bias, "embed_norm": self.embed_norm}
        return _there(front), _there({"final_norm": self.final_norm})


def _there(named: dict[str, Part | None]) -> dict[str, Part]:
    return {name: part for name, part in named.items() if part is not None}


@record
class Transformer:
    """Tables, stacks of blocks, a norm and a head. Blocks of different kinds are different stacks.

    With an `encoder` it is the decoder of an encoder-decoder. An image encoder has patches for a token
    table, one of audio a stem. `mtp` heads run behind the head. A body has no `head`; it may have a `pooler`, and
    scores of `classes`.
    `extra_embeddings` follow those of tokens, positions and segments. `extra_parts` are a convolution next to the first
    block, and what is stored and never runs. A `merger` joins patches behind the blocks,
    and `deepstack` behind some of them. A `projector` makes rows of a language model of the encoder's.
    `expand_streams` makes several residual streams of one before the blocks, and `join_streams` one of them after.
    """

    embed: Embedding | Patches | Stem
    stacks: tuple[Stack, ...]
    final_norm: Norm | None
    head: Head | None
    positions: Positions | None = None
    embed_norm: Norm | None = None
    mtp: MtpHead | None = None
    segments: Segments | None = None
    bias: RelativeBias | None = None
    encoder: Encoder | None = None
    pooler: Part | None = None
    classes: Classes | None = None
    extra_embeddings: tuple[Part, ...] = ()
    extra_parts: tuple[Part, ...] = ()
    per_layer: Part | None = None
    expand_streams: Part | None = None
    join_streams: Part | None = None
    deepstack: Deepstack | None = None
    merger: Part | None = None
    projector: Projector | NamedTensors | None = None

    def ends(self) -> tuple[dict[str, Part], dict[str, Part]]:
        """Parts before the blocks and parts behind them, by their names in paths."""
        front: dict[str, Part | None]
        front = {"embed": self.embed, "pos_embed": self.positions, "type_embed": self.segments}
        front |= {part.name: part for part in self.extra_embeddings}
        front |= {"rel_bias": self.bias, "embed_norm": self.embed_norm, "per_layer": self.per_layer}
        front["streams"] = self.expand_streams
        back: dict[str, Part | None] = {"deepstack": self.deepstack}
        if self.join_streams is not None:
            back[self.join_streams.name] = self.join_streams
        back |= {"final_norm": self.final_norm, "lm_head": self.head, "merger": self.merger}
        back |= {"projector": self.projector, "pooler": self.pooler, "classifier": self.classes}
        for part in self.extra_parts:
            (front if part.at_front else back)[part.name] = part
        return _there(front), _there(back)

    @property
    def streams(self) -> Part | None:
        """What reads and writes the residual streams of each layer; None if there is one stream."""
        return self.stacks[0].block.streams

    def extra(self, kind: type[PartT]) -> PartT | None:
        """Extra embedding or part of this kind; None if there is none."""
        return next((part for part in (*self.extra_embeddings, *self.extra_parts) if isinstance(part, kind)), None)

    @property
    def every_stack(self) -> tuple[Stack, ...]:
        """Stacks of the encoder, if there is one, then the others."""
        return (*(() if self.encoder is None else self.encoder.stacks), *self.stacks)

    def parts(self) -> list[Part]:
        """Parts at the ends, then those of one block of each kind, then those of MTP heads."""
        ends = [self.ends(), *(() if self.encoder is None else (self.encoder.ends(),))]
        at_ends = [part for front, back in ends for part in (*front.values(), *back.values())]
        blocks = [part for stack in self.every_stack for _, part in stack.block.parts()]
        ahead = [] if self.mtp is None else [part for _, part in self.mtp.parts()]
        return [*at_ends, *blocks, *ahead]

    def running(self, form: MlaMode) -> Transformer:
        """Return the model with its latent attention run in this form, where the form is `auto`."""
        if all(attention is None or attention.mla_mode != "auto" for attention in self._latent()):
            return self

        def settled(part: Part) -> Part:
            return part.running(form) if isinstance(part, LatentAttention) and part.mla_mode == "auto" else part

        return self.mapped(settled)

    def _latent(self) -> Iterator[LatentAttention | None]:
        """Latent attention of each stack."""
        return (stack.block.find(LatentAttention) for stack in self.every_stack)

    def ways(self) -> tuple[Transformer, ...]:
        """Ways to run it that a step chooses from: the model itself, unless its latent attention's form is `auto`."""
        if all(attention is None or attention.mla_mode != "auto" for attention in self._latent()):
            return (self,)
        return tuple(self.running(form) for form in CHOSEN)

    def settled(self, at: Axes, *, masked: bool = False) -> Transformer:
        """Return the way that a step runs: the one with fewer FLOPs."""
        ways = self.ways()
        if len(ways) == 1:
            return self
        return min(ways, key=lambda way: way.ledger().total_flops(at, masked=masked))

    def ledger(self) -> Ledger:
        """Ledger with every line of the model, in every way that a step chooses from."""
        ledger, *others = (way._lines() for way in self.ways())
        return replace(ledger, instead=others[0]) if others else ledger

    @property
    def longest(self) -> Size | None:
        """Tokens of the longest window, to whole ones of which an encoder's own are padded up to the last block; None
        where they are not."""
        return longest_window(self.stacks)

    def _lines(self) -> Ledger:
        front, back = self.ends()
        ends, source, *others, ahead = axis_names.names(self)
        kinds, mine = self.kinds(), len(self.every_stack) - len(self.stacks)
        blocks = grouped(self.stacks, self.numbers(), kinds[mine:], others[mine:])
        first, last = (group(own.items(), ends) for own in (front, back))
        padded = (in_whole_windows(each, self.longest) for each in (first, *blocks))
        return Ledger((*self._encoder(kinds[:mine], source, others[:mine]), *padded, last, *self._ahead(ahead)))

    def _encoder(self, kinds: Sequence[str], ends: Names, names: Sequence[Names]) -> Iterator[Group]:
        """Groups of the encoder: the lines of a decoder, with source tokens for tokens."""
        if self.encoder is None or self.encoder.given:
            return
        stacks = self.encoder.stacks
        front, back = (group(own.items(), ends) for own in self.encoder.ends())
        for each in (front, *grouped(stacks, numbered(stacks), kinds, names), back):
            yield of_source(in_whole_windows(each, self.encoder.longest))

    def _ahead(self, names: Names) -> Iterator[Group]:
        if self.mtp is not None and self.head is not None:  # whose head is the model's
            own = group(((paths.in_every(paths.MTP, name), part) for name, part in self.mtp.parts()), names)
            lines = (*own.lines, *self.head.again(paths.in_every(paths.MTP, "lm_head")))
            axes = {**own.axes, **self.head.axes()}
            yield replace(own, lines=lines, axes=axes, count=self.mtp.count, numbers=range(self.mtp.count))

    def numbers(self) -> list[Sequence[int]]:
        """Numbers of the blocks in each stack behind the encoder; empty if its count is a symbol or an array."""
        return numbered(self.stacks)

    def kinds(self) -> list[str]:
        """Name of the kind of every stack's blocks: encoder, attention or what stands in its place,
        windowed or full, experts or dense.

        Only what differs between stacks is named, so the kind of a single stack is empty. A decoder's is not named.
        """
        traits = [stack.block.traits for stack in self.stacks]
        asked = dict.fromkeys(question for own in traits for question in own)
        differing = [question for question in asked if len({own[question] for own in traits if question in own}) > 1]
        others = [question for question in differing if question != POSITIONS]
        if _splits(traits, others) == _splits(traits, differing):
            differing = others  # positions follow from them, as where windowed layers alone are rotated
        names = [" ".join(own[question] for question in differing if question in own) for own in traits]
        names = [*(["encoder"] * (len(self.every_stack) - len(names))), *names]
        return [
            f"{name} {names[: i + 1].count(name)}".strip() if names.count(name) > 1 else name
            for i, name in enumerate(names)
        ]

    def blocks(self) -> list[Block]:
        """Blocks behind the encoder, in the order in which they run."""
        return in_order(self.stacks)

    def having(self, kind: type[PartT]) -> list[tuple[Stack, PartT]]:
        """Stacks behind the encoder whose blocks have a part of this kind, each with that part."""
        found = ((stack, stack.block.find(kind)) for stack in self.stacks)
        return [(stack, part) for stack, part in found if part is not None]

    @property
    def attentions(self) -> tuple[SelfAttention, ...]:
        """Self-attention of each stack behind the encoder that has any; empty for a state-space model."""
        found = (stack.block.attention for stack in self.stacks)
        return tuple(attention for attention in found if attention is not None)

    def mapped(self, change: Callable[[Any], Any], counts: Sequence[Size] | None = None) -> Transformer:
        """Return the model with `change` applied to every part, and with `counts` blocks in the stacks, if given."""
        return self.mapped_in_places([change] * (3 + len(self.every_stack)), counts)

    def mapped_in_places(
        self, changes: Sequence[Callable[[Any], Any]], counts: Sequence[Size] | None = None
    ) -> Transformer:
        """Return the same with a change for each of its places (`axis_names.places`)."""
        ends, source, *others, ahead = (_of_part(change) for change in changes)

        def block(old: Block, change: Callable[[Any], Any]) -> Block:
            def sublayer(one: Sublayer) -> Sublayer:
                own = {name: change(getattr(one, name)) for name in ("part", "norm", "post_norm", "add")}
                return replace(one, **own)

            sublayers = tuple(sublayer(one) for one in old.sublayers)
            return replace(old, sublayers=sublayers, streams=change(old.streams))

        def further(old: MtpHead | None) -> MtpHead | None:
            return old and MtpHead(ahead(old.projection), block(old.block, ahead), ahead(old.norm), old.count)

        def reading(old: Encoder | None, stacks: Sequence[Stack]) -> Encoder | None:
            own = {field.name: source(getattr(old, field.name)) for field in fields(Encoder)} if old else {}
            return old and Encoder(**{**own, "stacks": tuple(stacks)})

        zipped = zip(self.every_stack, others, strict=True)
        blocks = [replace(stack, block=block(stack.block, change)) for stack, change in zipped]
        if counts is not None:
            blocks = [
                Stack(old.block, count, shared_weights=old.shared_weights)
                for old, count in zip(blocks, counts, strict=True)
            ]
        own = {field.name: ends(getattr(self, field.name)) for field in fields(self)}
        own |= {"stacks": tuple(blocks[-len(self.stacks) :]), "mtp": further(self.mtp)}
        return Transformer(**{**own, "encoder": reading(self.encoder, blocks[: -len(self.stacks)])})

    @property
    def query_heads(self) -> list[Size]:
        """The numbers of query heads that there are, in all kinds of blocks and on both sides."""
        heads = (part.heads for part in self.parts() if isinstance(part, Grouped | SelfAttention))
        return list(dict.fromkeys(heads))

    def with_kv_heads(self, kv_heads: Size | None) -> Transformer:
        """Return the model with its query heads sharing `kv_heads` key/value heads; None: each has its own.

        Keys and values from a latent have no heads to share: with None they are kept by head. Raises UsageError for any
        other number of them, and for a model without attention.
        """
        if not self.attentions:
            raise UsageError("num_key_value_heads: there is no attention here, so there are no heads")

        def shared(part: Part) -> Part:
            if isinstance(part, LatentAttention):
                if kv_heads is not None:
                    raise UsageError(
                        "num_key_value_heads: keys and values come from a latent here, which no heads share"
                    )
                return part.running("unpacked")
            if not isinstance(part, Grouped):
                if isinstance(part, SelfAttention) and kv_heads not in (None, 1):
                    raise UsageError("num_key_value_heads: keys are values too here, of one head")
                return part
            return part.with_kv_heads(part.heads if kv_heads is None else kv_heads)

        return self.mapped(shared)

    def all_called(self) -> Transformer | None:
        """Return the model with every network called that is stored and not run; None if all are called."""
        if all(getattr(part, "called", True) for part in self.parts()):
            return None

        def called(part: Part) -> Part:
            return replace(part, called=True) if isinstance(part, (FeedForward, Norm)) else part

        return self.mapped(called)

    def with_positions(self, context: int) -> Transformer:
        """Return the model with its tables of positions and distances, if it has some, made long enough for
        `context`."""
        longer = replace(self, extra_embeddings=tuple(part.for_context(context) for part in self.extra_embeddings))
        if self.positions is None or self.positions.layout == "columns_and_rows":  # whose rows are those of a side
            return longer
        return replace(longer, positions=replace(self.positions, rows=context + self.positions.offset))


def _splits(traits: Sequence[dict[str, str]], questions: Sequence[str]) -> int:
    """Number of kinds that these questions tell apart."""
    return len({tuple(own.get(question) for question in questions) for own in traits})


def _of_part(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The change, of parts and of tuples of parts only."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(changed(part) for part in value)
        return change(value) if isinstance(value, Part) else value

    return changed
