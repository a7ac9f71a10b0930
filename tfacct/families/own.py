"""Your own model from parts: a TOML of tables that name the parts and their sizes.

A side's table, `[encoder.attention]`, overrides the common one, `[attention]`, key by key. Inside the program a key
goes by its dotted name, as `--set attention.heads=8` spells it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ValidationError

from tfacct.architecture.blocks import Block, Stack, Sublayer, stacks
from tfacct.architecture.parts import (
    Attention,
    CrossAttention,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Mamba,
    Norm,
    Positions,
    QKNorm,
    RelativeBias,
    Rotary,
)
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families import _own_tables as tables
from tfacct.families._base import FamilyConfig, config_error, even, share
from tfacct.families._experts import check_active
from tfacct.families._own_tables import MambaTable, ModelTable, NormTable, SideTable


class Config(FamilyConfig):
    """The tables, with what is common written into each side."""

    model: ModelTable
    norm: NormTable
    encoder: SideTable | None = None
    decoder: SideTable | None = None

    gotchas: ClassVar = (
        "It has no transformers class. The reference model, built from the same parts, and hand arithmetic check it.",
        "With both an encoder and a decoder, every decoder layer has cross attention with as many heads as its "
        "self-attention.",
        'With scores = "distance" a score is max |q − k|: pointwise work on B·N·T·S·H elements, no product.',
        "With called = false a network is stored but never run; `flops` says what it would cost if it were run.",
    )

    @classmethod
    def settable(cls) -> frozenset[str]:
        """Every key by its dotted name."""
        return frozenset(tables.KEYS)

    @classmethod
    def counted(cls) -> tuple[str, ...]:
        """Every key that a count depends on."""
        return tuple(key for key in tables.KEYS if key not in tables.UNCOUNTED)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked tables, and the keys that took a default; no key is left unknown."""
        given = tables.nested({name: value for name, value in raw.items() if name != "model_type"})
        _check_parts(given)
        sides = {side: tables.merged(given, side) for side in tables.SIDES if side in given}
        try:
            config = cls(**{"model": given["model"], "norm": given["norm"], **sides})
        except ValidationError as error:
            raise config_error(error, raw, lambda loc: tables.where(given, loc)) from None
        _check_together(config)
        return config, tables.defaulted(config.model, config.norm, config.sides), []

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
            encoder=self._reader(embedded, final) if crossing else None,
            embed=Embedding(vocab=model.vocab, hidden=hidden, scaled=model.scale_embedding),
            positions=self._positions(self.context),
            bias=self._bias(side),
            embed_norm=embedded,
            stacks=self._stacks(side, crossing=crossing),
            final_norm=final,
            head=Head(hidden=hidden, vocab=model.vocab, tied=model.tied, bias=model.head_bias),
        )

    def _stacks(self, side: SideTable, *, crossing: bool) -> tuple[Stack, ...]:
        """The blocks of the last side: all alike, or some with Mamba in place of attention."""
        block = self._block(side, causal=self.decoder is not None, crossing=crossing)
        if side.mamba is None:
            return (Stack(block, side.layers),)
        other, there = self._mamba_block(side, side.mamba), set(side.mamba.layers)
        return stacks([other if number in there else block for number in range(side.layers)])

    def _mamba_block(self, side: SideTable, own: MambaTable) -> Block:
        hidden, norm = self.model.hidden, Norm(hidden=self.model.hidden, kind=self.norm.kind)
        mamba = Mamba(
            hidden=hidden,
            inner=own.inner,
            state=own.state,
            kernel=own.kernel,
            rank=-(-hidden // 16) if own.rank is None else own.rank,
            bias=own.bias,
            conv_bias=own.conv_bias,
            activation=own.activation,
        )
        return Block.of(mamba, *((self._network(side),) if own.network else ()), norm=norm, order=self.norm.order)

    def _reader(self, embedded: Norm | None, final: Norm | None) -> Encoder:
        """The encoder of a decoder."""
        assert self.encoder is not None
        own = self.model.source_vocab
        rows = self.model.vocab if own is None else own
        return Encoder(
            Embedding(vocab=rows, hidden=self.model.hidden, scaled=self.model.scale_embedding, shared=own is None),
            (Stack(self._block(self.encoder, causal=False), self.encoder.layers),),
            positions=self._positions(self.source),
            bias=self._bias(self.encoder),
            embed_norm=embedded,
            final_norm=final,
        )

    def _positions(self, rows: int) -> Positions | None:
        learned = self.model.positions == "learned"
        if not learned and self.model.positions != "sines":
            return None
        return Positions(rows=rows, hidden=self.model.hidden, trained=learned, stored=learned)

    def _bias(self, side: SideTable) -> RelativeBias | None:
        """The table of distances, where there is one: as many scores as query heads."""
        if self.model.positions != "relative":
            return None
        heads = self._attention(side, causal=True)
        return RelativeBias(buckets=self.model.buckets, kv_heads=heads.kv_heads, group=heads.group)

    def _block(self, side: SideTable, *, causal: bool, crossing: bool = False) -> Block:
        own, attention, network = self.norm, self._attention(side, causal=causal), self._network(side)
        beside = own.order == "parallel"
        norm = Norm(hidden=self.model.hidden, kind=own.kind, shared=own.shared and not beside)
        called = not isinstance(network, FeedForward) or network.called
        of_network = Norm(hidden=self.model.hidden, kind=own.kind, shared=norm.shared, called=called)
        return Block(
            (
                Sublayer(attention, norm),
                *((Sublayer(_crossing(side, attention), norm),) if crossing else ()),
                # Side by side they read one norm's result.
                Sublayer(network, None if beside and own.shared else of_network),
            ),
            own.order,
        )

    def _attention(self, side: SideTable, *, causal: bool) -> Attention:
        own, positions = side.attention, self.model.positions
        hint = "give attention.head_dim, or sizes that divide"
        size = own.head_dim or share(self.model.hidden, own.heads, "model.hidden by attention.heads", hint)
        return Attention(
            hidden=self.model.hidden,
            kv_heads=own.kv_heads,
            group=share(own.heads, own.kv_heads, "attention.heads by attention.kv_heads"),
            head_dim=even(size, "attention.head_dim") if positions == "rotary" else size,
            qkv_bias=own.bias,
            out_bias=own.out_bias,
            rotary=Rotary(10_000.0) if positions == "rotary" else None,
            window=own.window,
            qk_norm=None if own.qk_norm is None else QKNorm(1e-6, kind=own.qk_norm),
            alibi=positions == "alibi",
            biased=positions == "relative",
            causal=causal,
            score_function=own.scores,
        )

    def _network(self, side: SideTable) -> FeedForward | Experts:
        hidden, own, routed = self.model.hidden, side.feed_forward, side.experts
        if routed is not None:
            check_active(routed.active, routed.experts, ("experts.active", "experts.experts"))
            return Experts(
                hidden=hidden,
                experts=routed.experts,
                active=routed.active,
                width=routed.width,
                shared=routed.shared,
                shared_gate=routed.shared_gate,
                bias=routed.bias,
                shared_bias=routed.bias,
                activation=routed.activation,
            )
        assert own is not None
        return FeedForward(
            hidden=hidden,
            width=own.width,
            gated=own.gated,
            bias=own.bias,
            activation=own.activation,
            norm=own.norm,
            called=own.called,
        )


def _crossing(side: SideTable, own: Attention) -> CrossAttention:
    """Attention to the source: that of the decoder to itself, but for what its table says."""
    said = {} if side.cross_attention is None else side.cross_attention.model_dump(exclude_none=True)
    out = said.get("out_bias", said.get("bias", own.out_bias))
    return CrossAttention(
        hidden=own.hidden,
        kv_heads=own.kv_heads,
        group=own.group,
        head_dim=own.head_dim,
        qkv_bias=said.get("bias", own.qkv_bias),
        out_bias=out,
        score_function=said.get("scores", own.score_function),
    )


def _check_parts(given: tables.Tables) -> None:
    """Refuse a model in which a part is missing, given twice, or without the part it needs."""
    for name, example in (("model", "vocab, hidden, context and positions"), ("norm", 'kind = "rms"')):
        if name not in given:
            raise ConfigError(f"[{name}] is missing", f"it holds {example}")
    sides = [side for side in tables.SIDES if side in given]
    if not sides:
        raise ConfigError("neither [encoder] nor [decoder]: there is nothing to run", "[decoder] with layers = 6")
    for side in sides:
        if "attention" not in given and "attention" not in given[side]:
            raise ConfigError(f"[attention] is missing, and [{side}.attention] too", "it holds heads = 8")
        places = next((at for at in (given[side], given) if set(tables.NETWORKS) & at.keys()), None)
        if places is None:
            raise ConfigError(f"[feed_forward] and [experts] are missing, and [{side}] has neither")
        if set(tables.NETWORKS) <= places.keys():
            raise ConfigError(
                f"[feed_forward] and [experts] both describe the network of [{side}]",
                f"drop one, or name the one it has: [{side}.feed_forward] or [{side}.experts]",
            )
    for name in set(tables.NETWORKS) & given.keys():
        if not any(name in tables.merged(given, side) for side in sides):
            raise ConfigError(f"no side uses [{name}]", "leave it out")
    if "cross_attention" in given.get("decoder", {}) and "encoder" not in given:
        raise ConfigError("[decoder.cross_attention] without an [encoder]: there is nothing to attend to")


def _check_together(config: Config) -> None:
    """Refuse contradictions."""
    model, both = config.model, len(config.sides) == 2
    for key in ("source_vocab", "source_context"):
        if getattr(model, key) is not None and not both:
            raise ConfigError(f"model.{key} without an [encoder] and a [decoder]: there is no source")
    if config.encoder is not None and config.encoder.attention.window is not None:
        hint = "write it in [decoder.attention]" if both else "leave it out"
        raise ConfigError("attention.window with an [encoder]: its tokens see all others", hint)
    if config.encoder is not None and model.positions == "alibi":
        raise ConfigError('model.positions = "alibi" with an [encoder] is not understood: ALiBi only looks back')
    if both and config.norm.order == "parallel":
        raise ConfigError('norm.order = "parallel" with cross attention is not understood', 'write "pre" or "post"')
    if config.decoder is not None and config.decoder.mamba is not None:
        _check_mamba(config, config.decoder, config.decoder.mamba)
    for side in config.sides.values():
        if side.attention.window is not None and model.positions == "relative":
            raise ConfigError('attention.window with model.positions = "relative" is not understood')
        if side.experts is not None and side.experts.shared_gate and side.experts.shared is None:
            raise ConfigError("experts.shared_gate without experts.shared: there is no shared network")


def _check_mamba(config: Config, side: SideTable, own: MambaTable) -> None:
    """Refuse indices of blocks that do not exist, and combinations with Mamba that are not understood."""
    if beyond := [number for number in own.layers if number >= side.layers]:
        raise ConfigError(
            f"decoder.mamba.layers has block {beyond[0]:,}: the last of {side.layers:,} is {side.layers - 1:,}"
        )
    if len(set(own.layers)) < len(own.layers):
        raise ConfigError("decoder.mamba.layers names a block twice")
    if len(own.layers) == side.layers:
        raise ConfigError(
            "decoder.mamba.layers leaves no block with attention", "for Mamba alone, use a config.json of its family"
        )
    if config.encoder is not None:
        raise ConfigError("[decoder.mamba] with an [encoder] is not understood: its blocks would read no source")
    if config.norm.shared:
        raise ConfigError("[decoder.mamba] with norm.shared is not understood", "leave norm.shared out")
    if config.norm.order == "parallel":
        raise ConfigError('[decoder.mamba] with norm.order = "parallel" is not understood', 'write "pre" or "post"')
