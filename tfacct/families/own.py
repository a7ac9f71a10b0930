"""Your own model from parts: a TOML of tables that name the parts and their sizes.

A side's table, `[encoder.attention]`, overrides the common one, `[attention]`, key by key; that of a kind of layers,
`[decoder.local.attention]`, overrides the side's. Inside the program a key goes by its dotted name, as
`--set attention.heads=8` spells it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from tfacct.architecture.blocks import Added, Block, Order, Stack, Sublayer, stacks
from tfacct.architecture.parts import (
    Attention,
    CrossAttention,
    Embedding,
    Experts,
    FeedForward,
    Gate,
    Head,
    LatentAttention,
    Norm,
    Positions,
    QKNorm,
    RelativeBias,
    Rotary,
)
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families import _own_checks as checks
from tfacct.families import _own_layers as layers
from tfacct.families import _own_names as names
from tfacct.families import _own_tables as tables
from tfacct.families._own_mixers import mixer
from tfacct.families._own_tables import (
    LISTED,
    AttentionTable,
    BlockTable,
    ExpertsTable,
    LatentTable,
    ModelTable,
    NormTable,
    SideTable,
)
from tfacct.families.family_config import FamilyConfig, config_error
from tfacct.families.fields import divide_exactly, require_even
from tfacct.families.layer_kinds import check_top_k


class Config(FamilyConfig):
    """The tables, with what is common written into each kind of block."""

    model: ModelTable
    norm: NormTable
    encoder: SideTable | None = None
    decoder: SideTable | None = None

    mla_mode_field: ClassVar = "model.latent_attention"

    @classmethod
    def settable(cls, said: Mapping[str, Any] | None = None) -> frozenset[str]:
        """Every key by its dotted name, with those of the kinds of layers in `said`."""
        return frozenset(name for name in tables.KEYS if tables.ANY not in name) | names.keys_of_places(said or {})

    @classmethod
    def counted(cls, said: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Every key that a count depends on, with those of the kinds of layers in `said`."""
        here = (*tables.KEYS, *sorted(names.keys_of_places(said or {})))
        return tuple(key for key in here if tables.ANY not in key and names.general(key) not in tables.UNCOUNTED)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked tables, and the keys that took a default; no key is left unknown."""
        given = names.nested({name: value for name, value in raw.items() if name != "model_type"})
        checks.check_tables(given)
        told = {side: layers.layers_of(given, side) for side in tables.SIDES if side in given}
        checks.check_parts(given, told)
        own = ("layers", "pattern", "cross_attention", *LISTED)
        sides = {
            side: {
                **{key: given[side][key] for key in own if key in given[side]},
                "blocks": here.blocks(),
                "named": [layers.kind_named(chain) for chain in here.chains],
                "each": here.each,
            }
            for side, here in told.items()
        }
        try:
            config = cls(**{"model": given["model"], "norm": given["norm"], **sides})
        except ValidationError as error:
            raise config_error(error, raw, lambda loc: layers.where(told, loc)) from None
        checks.check_together(config.model, config.norm, config.sides)
        return config, layers.defaulted(config.model, config.norm, config.sides, told), []

    @property
    def sides(self) -> dict[str, SideTable]:
        """Encoder and decoder, where they are there."""
        named = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: side for name, side in named.items() if side is not None}

    @property
    def context(self) -> int:
        """model.context."""
        return self.model.context

    @property
    def source(self) -> int:
        """model.source_context, or the context."""
        return self.model.source_context or self.model.context

    def architecture(self) -> Transformer:
        """Encoder, decoder, or both, between tables and a head. Raises ConfigError."""
        model, hidden = self.model, self.model.hidden
        crossing = len(self.sides) == 2
        side = list(self.sides.values())[-1]
        norm = Norm(hidden=hidden, kind=self.norm.kind)
        embedded, final = (norm if there else None for there in (self.norm.embedding, self.norm.final))
        return Transformer(
            encoder=self._reader() if crossing else None,
            embed=Embedding(vocab=model.vocab, hidden=hidden, scaled=model.scale_embedding),
            positions=self._positions(self.context),
            bias=self._bias(side),
            embed_norm=embedded,
            stacks=self._stacks(side, causal=self.decoder is not None, crossing=crossing),
            final_norm=final,
            head=Head(hidden=hidden, vocab=model.vocab, tied=model.tied, bias=model.head_bias),
        )

    def _stacks(self, side: SideTable, *, causal: bool, crossing: bool = False) -> tuple[Stack, ...]:
        """The blocks of a side. Raises ConfigError, which names the kind of block."""
        own = []
        for block, named in zip(side.blocks, side.named, strict=True):
            try:
                own.append(self._block(block, causal=causal, crossing=crossing))
            except ConfigError as error:
                raise ConfigError(f"{named}: {error.message}" if named else error.message, error.hint) from None
        return stacks([own[kind] for kind in side.each])

    def _reader(self) -> Encoder:
        """The encoder of a decoder. One of another width has a token table of its own."""
        assert self.encoder is not None
        own, wide = self.model.source_vocab, self._of_source_width()
        rows = self.model.vocab if own is None else own
        shared = own is None and wide.model.hidden == self.model.hidden
        norm = Norm(hidden=wide.model.hidden, kind=self.norm.kind)
        return Encoder(
            Embedding(vocab=rows, hidden=wide.model.hidden, scaled=self.model.scale_embedding, shared=shared),
            wide._stacks(self.encoder, causal=False),
            positions=wide._positions(self.source),
            bias=wide._bias(self.encoder),
            embed_norm=norm if self.norm.embedding else None,
            final_norm=norm if self.norm.final else None,
        )

    def _of_source_width(self) -> Self:
        """The same with the encoder's width for its own."""
        if self.model.source_hidden is None:
            return self
        return self.model_copy(update={"model": self.model.model_copy(update={"hidden": self.model.source_hidden})})

    def _positions(self, rows: int) -> Positions | None:
        learned = self.model.positions == "learned"
        if not learned and self.model.positions != "sines":
            return None
        return Positions(rows=rows, hidden=self.model.hidden, trained=learned, layout="row" if learned else "sines")

    def _bias(self, side: SideTable) -> RelativeBias | None:
        """The table of distances, where there is one: as many scores as query heads."""
        if self.model.positions != "relative":
            return None
        own = next(block.attention for block in side.blocks if block.attention is not None)
        heads = self._attention(own, causal=True)
        return RelativeBias(buckets=self.model.buckets, kv_heads=heads.kv_heads, group=heads.group)

    def _block(self, table: BlockTable, *, causal: bool, crossing: bool = False) -> Block:
        """Mixer, attention to the source and network, with norms as `order` has them."""
        own, parts = self.norm, list(self._parts(table, causal=causal, crossing=crossing))
        order: Order = "pre" if own.order == "sandwich" or own.order == "reordered" else own.order
        beside, behind = order == "parallel", order != own.order

        def sublayer(part: Added) -> Sublayer:
            called = not isinstance(part, FeedForward) or part.called
            norm = Norm(hidden=self.model.hidden, kind=own.kind, shared=own.shared and not beside, called=called)
            # Side by side behind a shared norm, all but the first read its result.
            reads = own.order != "reordered" and not (beside and own.shared and part is not parts[0])
            return Sublayer(part, norm if reads else None, norm if behind else None)

        return Block(tuple(sublayer(part) for part in parts), order)

    def _parts(self, table: BlockTable, *, causal: bool, crossing: bool) -> Iterator[Added]:
        if table.attention is not None:
            attention = self._attention(table.attention, causal=causal)
            yield attention
            if crossing:
                yield _crossing(self.decoder, attention, self.model.source_hidden)
        elif table.latent_attention is not None:
            yield self._latent(table.latent_attention)
        else:
            yield mixer(self.model.hidden, table)
        if table.experts is not None:
            yield self._experts(table.experts)
        elif table.feed_forward is not None:
            keys = table.feed_forward.model_dump()
            yield FeedForward(hidden=self.model.hidden, **keys)

    def _attention(self, own: AttentionTable, *, causal: bool) -> Attention:
        positions = self.model.positions
        hint = "give attention.head_dim, or sizes that divide"
        size = own.head_dim or divide_exactly(self.model.hidden, own.heads, "model.hidden by attention.heads", hint)
        rotated = positions == "rotary" and own.rotated
        turned = own.rotary_dim if own.rotary_dim is None else require_even(own.rotary_dim, "attention.rotary_dim")
        if turned is not None and turned > size:
            raise ConfigError(f"attention.rotary_dim {turned:,} is more than a head has, {size:,}")
        turned = None if turned == size else turned
        return Attention(
            hidden=self.model.hidden,
            kv_heads=own.kv_heads,
            group=divide_exactly(own.heads, own.kv_heads, "attention.heads by attention.kv_heads"),
            head_dim=require_even(size, "attention.head_dim") if rotated and turned is None else size,
            gate=Gate() if own.gate else None,
            rope_dim=turned,
            qkv_bias=own.bias,
            out_bias=own.out_bias,
            rotary=Rotary(own.rotary_base) if rotated else None,
            window=own.window,
            qk_norm=None if own.qk_norm is None else QKNorm(1e-6, kind=own.qk_norm),
            alibi=positions == "alibi",
            biased=positions == "relative",
            causal=causal,
            score_function=own.scores,
        )

    def _latent(self, own: LatentTable) -> LatentAttention:
        rotated = self.model.positions == "rotary"
        return LatentAttention(
            hidden=self.model.hidden,
            heads=own.heads,
            kv_rank=own.kv_rank,
            nope_dim=own.nope_dim,
            rope_dim=require_even(own.rope_dim, "latent_attention.rope_dim") if rotated else own.rope_dim,
            value_dim=own.value_dim,
            q_rank=own.q_rank,
            bias=own.bias,
            rotary=Rotary(own.rotary_base, None, "neighbours") if rotated else None,
            form=self.model.latent_attention,
        )

    def _experts(self, own: ExpertsTable) -> Experts:
        check_top_k(own.active, own.experts, ("experts.active", "experts.experts"))
        keys = own.model_dump()
        return Experts(hidden=self.model.hidden, shared_bias=own.bias, **keys)


def _crossing(side: SideTable | None, own: Attention, source_hidden: int | None) -> CrossAttention:
    """Attention to the source: that of the decoder to itself, but for what its table says, and for the source's
    width."""
    said = {} if side is None or side.cross_attention is None else side.cross_attention.model_dump(exclude_none=True)
    out = said.get("out_bias", said.get("bias", own.out_bias))
    return CrossAttention(
        hidden=own.hidden,
        kv_heads=own.kv_heads,
        group=own.group,
        head_dim=own.head_dim,
        qkv_bias=said.get("bias", own.qkv_bias),
        out_bias=out,
        score_function=said.get("scores", own.score_function),
        source_hidden=None if source_hidden == own.hidden else source_hidden,
    )
