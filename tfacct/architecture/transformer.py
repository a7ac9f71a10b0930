"""A whole transformer: embeddings, stacks of layers, final norm and head, and its ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from tfacct.architecture import axis_names
from tfacct.architecture.axis_names import Axis, Names, Place
from tfacct.architecture.blocks import POSITIONS, Block, MtpHead, Order, PartT, Stack, Sublayer, in_order, numbered
from tfacct.architecture.grouped import group, grouped, longest_window, of_source, padded_to_windows
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
    """Encoder of a source, run once over all tokens: layers without causal mask, embeddings and a final norm.

    With a stem, its tokens are positions of audio. Without `embed`, the source is `given` as rows of hidden size, and
    the model that computes them is not counted.

    `apart`: axes that are separate from the decoder's, even if the sizes are equal.
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
        """True if the source is computed by another model."""
        return self.embed is None

    @property
    def words(self) -> str:
        """Name in messages."""
        return "a source from another model" if self.given else "an encoder"

    @property
    def longest(self) -> Size | None:
        """Tokens of the longest window, to whole multiples of which the source is padded; None without padding."""
        return longest_window(self.stacks)

    def ends(self) -> tuple[dict[str, Part], dict[str, Part]]:
        """Parts before and after the layers, by their names in paths."""
        embed = "stem" if isinstance(self.embed, Stem) else "embed"
        front: dict[str, Part | None] = {
            embed: self.embed,
            "pos_embed": self.positions,
            "rel_bias": self.bias,
            "embed_norm": self.embed_norm,
        }
        return _present(front), _present({"final_norm": self.final_norm})


def _layer_parts(block: Block | MtpHead) -> list[Part]:
    return [each for _, part in block.parts() for each in part.with_nested()]


def _present(named: dict[str, Part | None]) -> dict[str, Part]:
    return {name: part for name, part in named.items() if part is not None}


@record
class Transformer:
    """Embeddings, stacks of layers, a norm and a head. Each kind of layer is a separate stack.

    With an `encoder`, it is the decoder of an encoder-decoder. Image encoders have patches instead of a token
    embedding, audio encoders a stem. `mtp` heads run after the head. A base model has no `head`; it may have a `pooler`
    and `classes`. `extra_embeddings` follow those of tokens, positions and segments. `extra_parts` are a convolution
    next to the first layer, and stored parts that never run. A `merger` joins patches after the layers, `deepstack`
    after some of them. A `projector` maps the encoder's results to the language model. `expand_streams` expands the
    residual stream to several before the layers, and `join_streams` joins them after.
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
        """Parts before and after the layers, by their names in paths."""
        front: dict[str, Part | None] = {
            "embed": self.embed,
            "pos_embed": self.positions,
            "type_embed": self.segments,
            **{part.name: part for part in self.extra_embeddings},
            "rel_bias": self.bias,
            "embed_norm": self.embed_norm,
            "per_layer": self.per_layer,
            "streams": self.expand_streams,
        }
        back: dict[str, Part | None] = {
            "deepstack": self.deepstack,
            **({} if self.join_streams is None else {self.join_streams.name: self.join_streams}),
            "final_norm": self.final_norm,
            "lm_head": self.head,
            "merger": self.merger,
            "projector": self.projector,
            "pooler": self.pooler,
            "classifier": self.classes,
        }
        for part in self.extra_parts:
            (front if part.at_front else back)[part.name] = part
        return _present(front), _present(back)

    @property
    def streams(self) -> Part | None:
        """Part that reads and writes several residual streams in each layer; None with one stream."""
        return self.stacks[0].block.streams

    def extra(self, kind: type[PartT]) -> PartT | None:
        """Extra embedding or part of this kind; None if there is none."""
        return next((part for part in (*self.extra_embeddings, *self.extra_parts) if isinstance(part, kind)), None)

    @property
    def every_stack(self) -> tuple[Stack, ...]:
        """Stacks of the encoder, if any, then the others."""
        return (*(() if self.encoder is None else self.encoder.stacks), *self.stacks)

    def parts(self) -> list[Part]:
        """Parts outside the layers, then those of one layer of each kind, then those of MTP heads."""
        ends = [self.ends(), *(() if self.encoder is None else (self.encoder.ends(),))]
        at_ends = [part for front, back in ends for part in (*front.values(), *back.values())]
        blocks = [part for stack in self.every_stack for _, part in stack.block.parts()]
        ahead = [] if self.mtp is None else [part for _, part in self.mtp.parts()]
        return [*at_ends, *blocks, *ahead]

    def running(self, mode: MlaMode) -> Transformer:
        """Return the model with this mode of latent attention, if the mode is `auto`."""
        if not self._chooses_mode:
            return self

        def settled(part: Part) -> Part:
            return part.running(mode) if isinstance(part, LatentAttention) and part.mla_mode == "auto" else part

        return self.mapped(settled)

    @property
    def _chooses_mode(self) -> bool:
        """True if the mode of latent attention is `auto`."""
        latent = (stack.block.find(LatentAttention) for stack in self.every_stack)
        return any(part is not None and part.mla_mode == "auto" for part in latent)

    def ways(self) -> tuple[Transformer, ...]:
        """Alternatives that a step chooses from: the model itself, unless the mode of latent attention is `auto`."""
        if not self._chooses_mode:
            return (self,)
        return tuple(self.running(mode) for mode in CHOSEN)

    def settled(self, at: Axes, *, masked: bool = False) -> Transformer:
        """Return the alternative that a step uses: the one with the fewest FLOPs."""
        ways = self.ways()
        if len(ways) == 1:
            return self
        return min(ways, key=lambda way: way.ledger().total_flops(at, masked=masked))

    def ledger(self) -> Ledger:
        """Ledger with all lines of the model and its alternatives."""
        ledger, *others = (way._lines() for way in self.ways())
        return replace(ledger, instead=others[0]) if others else ledger

    @property
    def longest(self) -> Size | None:
        """Tokens of the longest window, to whole multiples of which the tokens of an encoder are padded; None without
        padding."""
        return longest_window(self.stacks)

    def _lines(self) -> Ledger:
        front, back = self.ends()
        ends, source, *others, ahead = self.axis_names()
        kinds, mine = self.kinds(), len(self.every_stack) - len(self.stacks)
        blocks = grouped(self.stacks, self.numbers(), kinds[mine:], others[mine:])
        first, last = (group(parts.items(), ends) for parts in (front, back))
        padded = (padded_to_windows(each, self.longest) for each in (first, *blocks))
        return Ledger((*self._encoder(kinds[:mine], source, others[:mine]), *padded, last, *self._mtp_groups(ahead)))

    def _encoder(self, kinds: Sequence[str], ends: Names, names: Sequence[Names]) -> Iterator[Group]:
        """Groups of the encoder, with source tokens for tokens."""
        if self.encoder is None or self.encoder.given:
            return
        stacks = self.encoder.stacks
        front, back = (group(parts.items(), ends) for parts in self.encoder.ends())
        for each in (front, *grouped(stacks, numbered(stacks), kinds, names), back):
            yield of_source(padded_to_windows(each, self.encoder.longest))

    def _mtp_groups(self, names: Names) -> Iterator[Group]:
        if self.mtp is not None and self.head is not None:  # MTP heads use the model's head
            head = group(((paths.in_every(paths.MTP, name), part) for name, part in self.mtp.parts()), names)
            lines = (*head.lines, *self.head.again(paths.in_every(paths.MTP, "lm_head")))
            axes = {**head.axes, **self.head.axes()}
            yield replace(head, lines=lines, axes=axes, count=self.mtp.count, numbers=range(self.mtp.count))

    def places(self) -> list[Place]:
        """Parts outside the model's layers, parts outside the encoder's layers, every stack, and the MTP heads."""
        ends = [part for named in self.ends() for part in named.values()]
        source = [] if self.encoder is None else [part for named in self.encoder.ends() for part in named.values()]
        first = 0 if self.encoder is None else len(self.encoder.stacks)
        stacks = (
            Place(index < first, kind.removeprefix(paths.ENCODER).strip(), _layer_parts(stack.block))
            for index, (stack, kind) in enumerate(zip(self.every_stack, self.kinds(), strict=True))
        )
        ahead = [] if self.mtp is None else _layer_parts(self.mtp)
        return [Place(False, "", ends), Place(True, "", source), *stacks, Place(False, paths.MTP, ahead)]

    def axis_names(self) -> list[Names]:
        """Renamed axes for each of the `places`."""
        if self.encoder is None and self.mtp is None and len(self.stacks) == 1:
            return [{}, {}, {}, {}]
        return axis_names.names(self.places(), frozenset() if self.encoder is None else self.encoder.apart)

    def named_places(self) -> list[tuple[Place, Names]]:
        """The `places`, each with its renamed axes."""
        return list(zip(self.places(), self.axis_names(), strict=True))

    def axis_sizes(self) -> dict[str, Size]:
        """Sizes of all axes by the model's names."""
        return axis_names.sizes(self.named_places())

    def declared_axes(self) -> dict[str, Axis]:
        """All axes of the parts in order, with their declarations."""
        return axis_names.declared(self.named_places())

    def numbers(self) -> list[Sequence[int]]:
        """Layer numbers of each stack after the encoder; empty if the count is a symbol or an array."""
        return numbered(self.stacks)

    def kinds(self) -> list[str]:
        """Kind of the layers of every stack: encoder, attention or another mixer, windowed or full, experts or dense.

        Only traits that differ between stacks are included, so the kind of a single stack is empty.
        """
        traits = [stack.block.traits for stack in self.stacks]
        questions = dict.fromkeys(question for of_stack in traits for question in of_stack)
        differing = [
            question
            for question in questions
            if len({of_stack[question] for of_stack in traits if question in of_stack}) > 1
        ]
        others = [question for question in differing if question != POSITIONS]
        if _kind_count(traits, others) == _kind_count(traits, differing):
            differing = others  # positions follow from the others, as if only windowed layers have rotary embeddings
        names = [" ".join(of_stack[question] for question in differing if question in of_stack) for of_stack in traits]
        names = [*(["encoder"] * (len(self.every_stack) - len(names))), *names]
        return [
            f"{name} {names[: i + 1].count(name)}".strip() if names.count(name) > 1 else name
            for i, name in enumerate(names)
        ]

    def blocks(self) -> list[Block]:
        """Layers after the encoder in execution order."""
        return in_order(self.stacks)

    def having(self, kind: type[PartT]) -> list[tuple[Stack, PartT]]:
        """Stacks after the encoder with a part of this kind, each with that part."""
        found = ((stack, stack.block.find(kind)) for stack in self.stacks)
        return [(stack, part) for stack, part in found if part is not None]

    @property
    def attentions(self) -> tuple[SelfAttention, ...]:
        """Self-attention of each stack after the encoder that has it; empty for a state-space model."""
        found = (stack.block.attention for stack in self.stacks)
        return tuple(attention for attention in found if attention is not None)

    def mapped(self, change: Callable[[Any], Any], counts: Sequence[Size] | None = None) -> Transformer:
        """Return the model with `change` applied to every part, and with `counts` layers in the stacks, if given."""
        return self.mapped_in_places([change] * (3 + len(self.every_stack)), counts)

    def mapped_in_places(self, changes: Sequence[Callable[[Any], Any]], counts: Sequence[Size] | None) -> Transformer:
        """Like `mapped`, with a function for each place (`places`)."""
        ends, source, *others, ahead = (_on_parts(change) for change in changes)

        stacks = [
            replace(stack, block=_mapped_block(stack.block, change))
            for stack, change in zip(self.every_stack, others, strict=True)
        ]
        if counts is not None:
            stacks = [
                Stack(stack.block, count, shared_weights=stack.shared_weights)
                for stack, count in zip(stacks, counts, strict=True)
            ]
        in_encoder = len(stacks) - len(self.stacks)
        encoder, mtp = self.encoder, self.mtp
        if encoder is not None:
            parts = {field.name: source(getattr(encoder, field.name)) for field in fields(encoder)}
            encoder = Encoder(**{**parts, "stacks": tuple(stacks[:in_encoder])})
        if mtp is not None:
            mtp = MtpHead(ahead(mtp.projection), _mapped_block(mtp.block, ahead), ahead(mtp.norm), mtp.count)
        parts = {field.name: ends(getattr(self, field.name)) for field in fields(self)}
        return Transformer(**{**parts, "stacks": tuple(stacks[in_encoder:]), "encoder": encoder, "mtp": mtp})

    @property
    def query_heads(self) -> list[Size]:
        """Distinct numbers of query heads in all layers, including the encoder's."""
        heads = (part.heads for part in self.parts() if isinstance(part, Grouped | SelfAttention))
        return list(dict.fromkeys(heads))

    def with_kv_heads(self, kv_heads: Size | None) -> Transformer:
        """Return the model with `kv_heads` key/value heads for its query heads; None: one for each.

        Latent attention has no heads to share: with None, keys and values are cached by head. Raises UsageError for
        other numbers with latent attention, and for a model without attention.
        """
        if not self.attentions:
            raise UsageError("num_key_value_heads: the model has no attention")

        def shared(part: Part) -> Part:
            if isinstance(part, LatentAttention):
                if kv_heads is not None:
                    raise UsageError(
                        "num_key_value_heads: not supported with latent attention, which has no key/value heads"
                    )
                return part.running("unpacked")
            if not isinstance(part, Grouped):
                if isinstance(part, SelfAttention) and kv_heads not in (None, 1):
                    raise UsageError("num_key_value_heads: must be 1, because keys are also values")
                return part
            return part.with_kv_heads(part.heads if kv_heads is None else kv_heads)

        return self.mapped(shared)

    def all_called(self) -> Transformer | None:
        """Return the model with all stored MLPs and norms run; None if all run already."""
        if all(getattr(part, "called", True) for part in self.parts()):
            return None

        def called(part: Part) -> Part:
            return replace(part, called=True) if isinstance(part, (FeedForward, Norm)) else part

        return self.mapped(called)

    def with_sublayers(self, change: Callable[[Sublayer, Order], Sublayer]) -> Transformer:
        """Return the model with `change` applied to every sublayer and the order of its layer."""

        def changed(stack: Stack) -> Stack:
            sublayers = tuple(change(one, stack.block.order) for one in stack.block.sublayers)
            return replace(stack, block=replace(stack.block, sublayers=sublayers))

        encoder = self.encoder and replace(self.encoder, stacks=tuple(map(changed, self.encoder.stacks)))
        return replace(self, encoder=encoder, stacks=tuple(map(changed, self.stacks)))

    def with_positions(self, context: int) -> Transformer:
        """Return the model with position embeddings and tables of distances that are long enough for `context`."""
        longer = replace(self, extra_embeddings=tuple(part.for_context(context) for part in self.extra_embeddings))
        if self.positions is None or self.positions.layout == "columns_and_rows":  # rows are per side of an image
            return longer
        return replace(longer, positions=replace(self.positions, rows=context + self.positions.offset))


def _kind_count(traits: Sequence[dict[str, str]], questions: Sequence[str]) -> int:
    """Number of kinds that these traits distinguish."""
    return len({tuple(of_stack.get(question) for question in questions) for of_stack in traits})


def _mapped_block(block: Block, change: Callable[[Any], Any]) -> Block:
    """The layer with `change` applied to every part."""
    sublayers = []
    for sublayer in block.sublayers:
        parts = {name: change(getattr(sublayer, name)) for name in ("part", "norm", "post_norm", "add")}
        sublayers.append(replace(sublayer, **parts))
    return replace(block, sublayers=tuple(sublayers), streams=change(block.streams))


def _on_parts(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, applied to parts and tuples of parts only."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(changed(part) for part in value)
        return change(value) if isinstance(value, Part) else value

    return changed
