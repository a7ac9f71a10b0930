"""Custom models: a TOML of tables that name the parts of a model and their sizes.

A side's table, `[encoder.attention]`, overrides the common one, `[attention]`, key by key; that of a kind of layers,
`[decoder.local.attention]`, overrides the side's. Keys have dotted names here, as in `--set attention.heads=8`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import ValidationError

from tfacct.architecture import parts
from tfacct.architecture.blocks import Added, Block, Order, Stack, Sublayer, stacks
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families import custom_checks as checks
from tfacct.families import custom_layers as layers
from tfacct.families import custom_tables as tables
from tfacct.families.family_config import FamilyConfig, config_error
from tfacct.families.fields import divide_exactly, require_even
from tfacct.families.layer_kinds import check_top_k


class Config(FamilyConfig):
    """A model that a user describes part by part, in the tables of a TOML file."""

    model: tables.ModelTable
    norm: tables.NormTable
    encoder: tables.SideTable | None = None
    decoder: tables.SideTable | None = None

    mla_mode_field: ClassVar = "model.latent_attention"

    @classmethod
    def settable(cls, raw: Mapping[str, Any] | None = None) -> frozenset[str]:
        """Every key by dotted name, including those of the kinds of layers in `raw`."""
        return frozenset(key for key in tables.KEYS if tables.ANY not in key) | tables.keys_of_kinds(raw or {})

    @classmethod
    def counted(cls, raw: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Every key that a count depends on, including those of the kinds of layers in `raw`."""
        keys = (*tables.KEYS, *sorted(tables.keys_of_kinds(raw or {})))
        return tuple(key for key in keys if tables.ANY not in key and not tables.is_reference_only(key))

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked tables, and the keys with default values; unknown keys are errors. Raises ConfigError."""
        given = tables.nested({name: value for name, value in raw.items() if name != "model_type"})
        checks.check_tables(given)
        found = {side: layers.layers_of(given, side) for side in tables.SIDES if side in given}
        checks.check_parts(given, found)
        keys = ("layers", "pattern", "cross_attention", *tables.LISTED)
        sides = {
            side: {
                **{key: given[side][key] for key in keys if key in given[side]},
                "blocks": [layers.merged(places) for places in here.kinds],
                "named": [layers.kind_named(places) for places in here.kinds],
                "each": here.each,
            }
            for side, here in found.items()
        }
        try:
            config = cls(**{"model": given["model"], "norm": given["norm"], **sides})
        except ValidationError as error:
            listed_in = "`tfacct help your-model-keys` lists the keys of each table"
            raise config_error(error, raw, lambda loc: layers.where(found, loc), listed_in) from None
        checks.check_together(config.model, config.norm, config.sides)
        return config, layers.defaulted(config.model, config.norm, config.sides, found), []

    @property
    def sides(self) -> dict[str, tables.SideTable]:
        """Encoder and decoder, if present."""
        return {name: side for name in tables.SIDES if (side := getattr(self, name)) is not None}

    @property
    def context(self) -> int:
        """model.context."""
        return self.model.context

    @property
    def source(self) -> int:
        """model.source_context, or the context."""
        return self.model.source_context or self.model.context

    def architecture(self) -> Transformer:
        """Encoder, decoder, or both, between embeddings and a head. Raises ConfigError."""
        model, side = self.model, list(self.sides.values())[-1]
        both = len(self.sides) == 2
        return Transformer(
            encoder=self._encoder() if both else None,
            embed=parts.Embedding(vocab=model.vocab, hidden=model.hidden, scaled=model.scale_embedding),
            positions=self._positions(model.hidden, self.context),
            bias=self._bias(side, model.hidden),
            embed_norm=self._norm(model.hidden) if self.norm.embedding else None,
            stacks=self._stacks(side, model.hidden, causal=self.decoder is not None, both=both),
            final_norm=self._norm(model.hidden) if self.norm.final else None,
            head=parts.Head(hidden=model.hidden, vocab=model.vocab, tied=model.tied, bias=model.head_bias),
        )

    def _encoder(self) -> Encoder:
        """The encoder of an encoder-decoder. If its width differs, it has its own token embedding."""
        assert self.encoder is not None
        model = self.model
        hidden, vocab = model.source_hidden or model.hidden, model.source_vocab
        shared = vocab is None and hidden == model.hidden
        return Encoder(
            parts.Embedding(vocab=vocab or model.vocab, hidden=hidden, scaled=model.scale_embedding, shared=shared),
            self._stacks(self.encoder, hidden, causal=False),
            positions=self._positions(hidden, self.source),
            bias=self._bias(self.encoder, hidden),
            embed_norm=self._norm(hidden) if self.norm.embedding else None,
            final_norm=self._norm(hidden) if self.norm.final else None,
        )

    def _norm(self, hidden: int, *, shared: bool = False, called: bool = True) -> parts.Norm:
        return parts.Norm(hidden=hidden, kind=self.norm.kind, shared=shared, called=called)

    def _positions(self, hidden: int, rows: int) -> parts.Positions | None:
        learned = self.model.positions == "learned"
        if not learned and self.model.positions != "sines":
            return None
        return parts.Positions(rows=rows, hidden=hidden, trained=learned, layout="row" if learned else "sines")

    def _bias(self, side: tables.SideTable, hidden: int) -> parts.RelativeBias | None:
        """Relative position bias per query head, if positions are relative."""
        if self.model.positions != "relative":
            return None
        attention = next(block.attention for block in side.blocks if block.attention is not None)
        heads = self._attention(attention, hidden, causal=True)
        return parts.RelativeBias(buckets=self.model.buckets, kv_heads=heads.kv_heads, group=heads.group)

    def _stacks(self, side: tables.SideTable, hidden: int, *, causal: bool, both: bool = False) -> tuple[Stack, ...]:
        """The layers of a side. Raises ConfigError, which names the kind of layer."""
        blocks = []
        for block, named in zip(side.blocks, side.named, strict=True):
            try:
                blocks.append(self._block([*self._parts(block, hidden, causal=causal, both=both)], hidden))
            except ConfigError as error:
                raise ConfigError(f"{named}: {error.message}" if named else error.message, error.hint) from None
        return stacks([blocks[kind] for kind in side.each])

    def _block(self, sublayers: list[Added], hidden: int) -> Block:
        """A layer, with norms in the places given by `order`."""
        table = self.norm
        order: Order = "pre" if table.order == "sandwich" or table.order == "reordered" else table.order
        parallel = order == "parallel"

        def sublayer(part: Added) -> Sublayer:
            called = not isinstance(part, parts.FeedForward) or part.called
            norm = self._norm(hidden, shared=table.shared and not parallel, called=called)
            # With parallel sublayers and a shared norm, all but the first read its result.
            before = table.order != "reordered" and not (parallel and table.shared and part is not sublayers[0])
            return Sublayer(part, norm if before else None, norm if order != table.order else None)

        return Block(tuple(map(sublayer, sublayers)), order)

    def _parts(self, table: tables.LayerTable, hidden: int, *, causal: bool, both: bool) -> Iterator[Added]:
        """The parts of a layer: attention or another mixer, attention to the source, an MLP or experts."""
        if table.attention is not None:
            attention = self._attention(table.attention, hidden, causal=causal)
            yield attention
            if both:
                yield self._cross_attention(attention)
        elif table.latent_attention is not None:
            yield self._latent_attention(table.latent_attention, hidden)
        else:
            yield _mixer(table, hidden)
        if table.experts is not None:
            experts = table.experts
            check_top_k(experts.active, experts.experts, ("experts.active", "experts.experts"))
            yield parts.Experts(hidden=hidden, shared_bias=experts.bias, **experts.model_dump())
        elif table.feed_forward is not None:
            yield parts.FeedForward(hidden=hidden, **table.feed_forward.model_dump())

    def _attention(self, table: tables.AttentionTable, hidden: int, *, causal: bool) -> parts.Attention:
        positions, hint = self.model.positions, "give attention.head_dim, or choose divisible sizes"
        size = table.head_dim or divide_exactly(hidden, table.heads, "model.hidden by attention.heads", hint)
        rotated = positions == "rotary" and table.rotated
        rotary_dim = table.rotary_dim
        if rotary_dim is not None and require_even(rotary_dim, "attention.rotary_dim") > size:
            raise ConfigError(f"attention.rotary_dim {rotary_dim:,} exceeds the head size, {size:,}")
        rotary_dim = None if rotary_dim == size else rotary_dim
        return parts.Attention(
            hidden=hidden,
            kv_heads=table.kv_heads,
            group=divide_exactly(table.heads, table.kv_heads, "attention.heads by attention.kv_heads"),
            head_dim=require_even(size, "attention.head_dim") if rotated and rotary_dim is None else size,
            gate=parts.Gate() if table.gate else None,
            rope_dim=rotary_dim,
            qkv_bias=table.bias,
            out_bias=table.out_bias,
            rotary=parts.Rotary(table.rotary_base) if rotated else None,
            window=table.window,
            qk_norm=None if table.qk_norm is None else parts.QKNorm(1e-6, kind=table.qk_norm),
            alibi=positions == "alibi",
            distance_bias=parts.DistanceBias() if positions == "relative" else None,
            causal=causal,
            score_function=table.scores,
        )

    def _cross_attention(self, attention: parts.Attention) -> parts.CrossAttention:
        """Attention to the source: like the decoder's self-attention, except for its table and the encoder's width."""
        table, source_hidden = self.decoder and self.decoder.cross_attention, self.model.source_hidden
        fields = {} if table is None else table.model_dump(exclude_none=True)
        return parts.CrossAttention(
            hidden=attention.hidden,
            kv_heads=attention.kv_heads,
            group=attention.group,
            head_dim=attention.head_dim,
            qkv_bias=fields.get("bias", attention.qkv_bias),
            out_bias=fields.get("out_bias", fields.get("bias", attention.out_bias)),
            score_function=fields.get("scores", attention.score_function),
            source_hidden=None if source_hidden == attention.hidden else source_hidden,
        )

    def _latent_attention(self, table: tables.LatentTable, hidden: int) -> parts.LatentAttention:
        keys, rotary = table.model_dump(exclude={"rotary_base"}), None
        if self.model.positions == "rotary":
            require_even(table.rope_dim, "latent_attention.rope_dim")
            rotary = parts.Rotary(table.rotary_base, None, "neighbours")
        return parts.LatentAttention(hidden=hidden, **keys, rotary=rotary, mla_mode=self.model.latent_attention)


def _mixer(table: tables.LayerTable, hidden: int) -> Added:
    """The mixer that a layer has in place of attention. Raises ConfigError."""
    if (mamba := table.mamba) is not None:
        rank = -(-hidden // 16) if mamba.rank is None else mamba.rank
        return parts.Mamba(hidden=hidden, **{**mamba.model_dump(exclude={"mlp"}), "rank": rank})
    if (mamba2 := table.mamba2) is not None:
        group = divide_exactly(mamba2.heads, mamba2.groups, "mamba2.heads by mamba2.groups")
        keys = mamba2.model_dump(exclude={"mlp", "heads", "gated_norm"})
        return parts.Mamba2(hidden=hidden, group=group, norm="after" if mamba2.gated_norm else None, **keys)
    if (delta := table.delta_net) is not None:
        group = divide_exactly(delta.heads, delta.key_heads, "delta_net.heads by delta_net.key_heads")
        keys = delta.model_dump(exclude={"heads", "decay_rank"})
        keys |= {} if delta.decay_rank is None else {"decay": "channel", "rank": delta.decay_rank, "gate": "sigmoid"}
        return parts.DeltaNet(hidden=hidden, group=group, **keys)
    assert table.short_convolution is not None
    return parts.ShortConvolution(hidden=hidden, **table.short_convolution.model_dump())
