"""Your own model from parts: a TOML of tables that name the parts and their sizes.

A side's table, `[encoder.attention]`, stands over the common one, `[attention]`, key by key. Inside the program a key
goes by its dotted name, as `--set attention.heads=8` spells it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ValidationError

from tfacct.architecture import Encoder, Transformer
from tfacct.blocks import Block, Stack
from tfacct.errors import ConfigError
from tfacct.families import _own_tables as tables
from tfacct.families._base import FamilyConfig, config_error, even, share
from tfacct.families._experts import check_active
from tfacct.families._own_tables import ModelTable, NormTable, SideTable
from tfacct.parts import (
    Attention,
    CrossAttention,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Norm,
    Positions,
    QKNorm,
    RelativeBias,
    Rotary,
)


class Config(FamilyConfig):
    """The tables, with what is common written into each side."""

    model: ModelTable
    norm: NormTable
    encoder: SideTable | None = None
    decoder: SideTable | None = None

    gotchas: ClassVar = (
        "No class stands behind it: the reference model, built from the same parts, and hand arithmetic speak for it.",
        "With an encoder and a decoder, every decoder layer has cross attention, with the heads of its self-attention.",
        'scores = "distance": a score is max |q − k|, which is pointwise work of B·N·T·S·H elements and no product.',
        "called = false: a network is stored and never run; `flops` says what it would cost if it were.",
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
        norm = Norm(hidden, self.norm.kind)
        embedded, final = (norm if there else None for there in (self.norm.embedding, self.norm.final))
        block = self._block(side, causal=self.decoder is not None, crossing=crossing)
        return Transformer(
            encoder=self._reader(embedded, final) if crossing else None,
            embed=Embedding(model.vocab, hidden, model.scale_embedding),
            positions=self._positions(self.context),
            bias=self._bias(side),
            embed_norm=embedded,
            stacks=(Stack(block, side.layers),),
            final_norm=final,
            head=Head(hidden, model.vocab, model.tied, bias=model.head_bias),
        )

    def _reader(self, embedded: Norm | None, final: Norm | None) -> Encoder:
        """The encoder of a decoder."""
        assert self.encoder is not None
        own = self.model.source_vocab
        rows = self.model.vocab if own is None else own
        return Encoder(
            Embedding(rows, self.model.hidden, self.model.scale_embedding, shared=own is None),
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
        return Positions(rows, self.model.hidden, trained=learned, stored=learned)

    def _bias(self, side: SideTable) -> RelativeBias | None:
        """The table of distances, where there is one: as many scores as query heads."""
        if self.model.positions != "relative":
            return None
        heads = self._attention(side, causal=True)
        return RelativeBias(self.model.buckets, heads.kv_heads, heads.group)

    def _block(self, side: SideTable, *, causal: bool, crossing: bool = False) -> Block:
        own, attention, network = self.norm, self._attention(side, causal=causal), self._network(side)
        beside = own.order == "parallel"
        norm = Norm(self.model.hidden, own.kind, shared=own.shared and not beside)
        called = not isinstance(network, FeedForward) or network.called
        of_network = Norm(self.model.hidden, own.kind, shared=norm.shared, called=called)
        return Block(
            norm,
            attention,
            None if beside and own.shared else of_network,  # side by side they read one norm's result
            network,
            order=own.order,
            cross_norm=norm if crossing else None,
            cross=_crossing(side, attention) if crossing else None,
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
            measure=own.scores,
        )

    def _network(self, side: SideTable) -> FeedForward | Experts:
        hidden, own, routed = self.model.hidden, side.feed_forward, side.experts
        if routed is not None:
            check_active(routed.active, routed.experts, ("experts.active", "experts.experts"))
            return Experts(
                hidden,
                routed.experts,
                routed.active,
                routed.width,
                shared=routed.shared,
                shared_gate=routed.shared_gate,
                bias=routed.bias,
                shared_bias=routed.bias,
                activation=routed.activation,
            )
        assert own is not None
        form = (own.gated, own.bias, own.activation)
        return FeedForward(hidden, own.width, *form, norm=own.norm, called=own.called)


def _crossing(side: SideTable, own: Attention) -> CrossAttention:
    """Attention to the source: that of the decoder to itself, but for what its table says."""
    said = {} if side.cross_attention is None else side.cross_attention.model_dump(exclude_none=True)
    out = said.get("out_bias", said.get("bias", own.out_bias))
    sizes = (own.hidden, own.kv_heads, own.group, own.head_dim)
    return CrossAttention(
        *sizes, qkv_bias=said.get("bias", own.qkv_bias), out_bias=out, measure=said.get("scores", own.measure)
    )


def _check_parts(given: tables.Tables) -> None:
    """Refuse a model in which a part is missing, or is there twice, or has nothing to stand on."""
    for name, example in (("model", "vocab, hidden, context and positions"), ("norm", 'kind = "rms"')):
        if name not in given:
            raise ConfigError(f"[{name}] is missing", f"it says {example}")
    sides = [side for side in tables.SIDES if side in given]
    if not sides:
        raise ConfigError("neither [encoder] nor [decoder]: there is nothing to run", "[decoder] with layers = 6")
    for side in sides:
        if "attention" not in given and "attention" not in given[side]:
            raise ConfigError(f"[attention] is missing: [{side}] has none of its own either", "it says heads = 8")
        places = next((at for at in (given[side], given) if set(tables.NETWORKS) & at.keys()), None)
        if places is None:
            raise ConfigError(f"[feed_forward] is missing, and [experts] too: [{side}] has neither of its own")
        if set(tables.NETWORKS) <= places.keys():
            raise ConfigError(
                f"[feed_forward] and [experts] stand both for the network of [{side}]",
                f"leave one out, or name the one it has: [{side}.feed_forward] or [{side}.experts]",
            )
    for name in set(tables.NETWORKS) & given.keys():
        if not any(name in tables.merged(given, side) for side in sides):
            raise ConfigError(f"[{name}] is used by no side", "leave it out")
    if "cross_attention" in given.get("decoder", {}) and "encoder" not in given:
        raise ConfigError("[decoder.cross_attention] without an [encoder]: there is nothing to look at")


def _check_together(config: Config) -> None:
    """Refuse what contradicts itself."""
    model, both = config.model, len(config.sides) == 2
    for key in ("source_vocab", "source_context"):
        if getattr(model, key) is not None and not both:
            raise ConfigError(f"model.{key} without an [encoder] and a [decoder]: there is no source")
    if config.encoder is not None and config.encoder.attention.window is not None:
        hint = "say it in [decoder.attention]" if both else "leave it out"
        raise ConfigError("attention.window with an [encoder]: its tokens see all others", hint)
    if config.encoder is not None and model.positions == "alibi":
        raise ConfigError('model.positions = "alibi" with an [encoder] is not understood: it looks back only')
    if both and config.norm.order == "parallel":
        raise ConfigError('norm.order = "parallel" with cross attention is not understood', 'it can be "pre" or "post"')
    for side in config.sides.values():
        if side.attention.window is not None and model.positions == "relative":
            raise ConfigError('attention.window with model.positions = "relative" is not understood')
        if side.experts is not None and side.experts.shared_gate and side.experts.shared is None:
            raise ConfigError("experts.shared_gate without experts.shared: there is no shared network")
