"""The reference model, assembled from the same parts as the ledger, and its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.architecture import transformer as architecture
from tfacct.architecture.blocks import Block, Stack, in_order, numbered
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.reference import blocks
from tfacct.reference.blocks import Cache, MtpHead, norm_module, run, share
from tfacct.reference.classes import Classes, Pooler
from tfacct.reference.convolutions import Stem
from tfacct.reference.distances import RelativeBias
from tfacct.reference.given import frames, source_of
from tfacct.reference.hyper import HyperHead, HyperMean
from tfacct.reference.images import AttentionPooler, Averaged, Merger, Patches, Projector, TokenPooler
from tfacct.reference.module_classes import module_class
from tfacct.reference.modules import ACTIVATIONS, Head, Tokens, through
from tfacct.reference.part_module import Past, built, family_module
from tfacct.reference.positions import AddedEmbedding, ClassAndPatches, Crossed, Positions, Segments, Sines
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


def padded(source: Tensor, size: int) -> Tensor:
    """Tokens, or their positions, padded to a multiple of `size`."""
    missing = -source.shape[-1] % size
    return source if missing == 0 else nn.functional.pad(source, (0, missing))


def _sees_all(stacks: Sequence[Stack]) -> bool:
    """True if attention in these layers is bidirectional."""
    attention = [stack.block.attention for stack in stacks]
    return any(isinstance(part, parts.Attention) and not part.causal for part in attention)


def _positions(shape: architecture.Transformer | architecture.Encoder) -> nn.Module | None:
    part = shape.positions
    if part is None:
        return None
    if part.layout == "columns_and_rows":
        return Crossed(part)
    if part.layout == "class_and_patches":
        return ClassAndPatches(part, getattr(shape.embed, "front", 1))
    return Positions(part) if part.stored else Sines(part, getattr(shape.embed, "every", None))


MODULES: dict[type[parts.Part], Any] = {
    parts.Embedding: Tokens,
    parts.Patches: Patches,
    parts.Stem: Stem,
    parts.Segments: Segments,
    parts.AttentionPooler: AttentionPooler,
    parts.TokenPooler: TokenPooler,
    parts.Averaged: Averaged,
    parts.Merger: Merger,
    parts.HyperHead: HyperHead,
    parts.HyperMean: HyperMean,
}
"""Modules of the parts outside the layers."""


def _module(part: parts.Part | None) -> Any:
    """Module of a part outside the layers, None without a part. Raises TypeError."""
    if part is None:
        return None
    made = family_module(part) or MODULES.get(type(part))
    if made is None:
        raise TypeError(f"the reference model has no module for {type(part).__name__}")
    return made(part)


class Encoder(nn.Module):
    """Encoder of a source."""

    def __init__(self, encoder: architecture.Encoder, *, fused: bool, recompute: bool) -> None:
        super().__init__()
        self.recompute, self.longest = recompute, encoder.longest
        self.embed: Any = None
        self.stem: Any = None
        if encoder.embed is not None:
            setattr(self, "stem" if isinstance(encoder.embed, parts.Stem) else "embed", _module(encoder.embed))
        self.pos_embed = _positions(encoder)
        self.rel_bias = None if encoder.bias is None else RelativeBias(encoder.bias, encoder.bias.heads, both_ways=True)
        self.embed_norm = norm_module(encoder.embed_norm)
        self.blocks = _blocks(encoder.stacks, fused=fused, keep_all=False)
        self.final_norm = norm_module(encoder.final_norm)

    def forward(self, source: Tensor) -> Tensor:
        count = source.shape[1]
        source = source if self.longest is None else padded(source, self.longest)
        x = through(self.stem, through(self.embed, source))
        positions = torch.arange(x.shape[1], device=source.device)
        if self.pos_embed is not None:
            x = self.pos_embed(x, positions)
        x = through(self.embed_norm, x)
        step = Step(x, positions, None if self.rel_bias is None else self.rel_bias(positions, positions))
        step.source = count
        for block in self.blocks:
            (x,) = run(block, self.recompute, x, step, ())
        x = through(self.final_norm, x)
        return x if self.longest is None else x[:, :count]


class Decoder(nn.Module):
    """The whole model. `logits`: `all` or `last`, as in the workload. `fused` attention is for speed, not for counting.
    `recompute`: layers save no activations and run again in the backward pass. `keep_all`: keys outside their window
    stay cached.
    """

    def __init__(
        self,
        shape: architecture.Transformer,
        *,
        logits: str | None = "all",
        fused: bool = False,
        recompute: bool = False,
        keep_all: bool = False,
    ) -> None:
        super().__init__()
        self.recompute, self.longest = recompute, shape.longest
        self.windowed = any(stack.block.window is not None for stack in shape.stacks)
        self.embed = _module(shape.embed)
        self.pos_embed = _positions(shape)
        self.positions_after_norm = shape.positions is not None and shape.positions.layout == "after_norm"
        self.type_embed = None if shape.segments is None else Segments(shape.segments)
        self.rel_bias = None
        if shape.bias is not None:
            self.rel_bias = RelativeBias(shape.bias, shape.bias.heads, both_ways=_sees_all(shape.stacks))
        self.rel_embed: Any = None
        self.first_conv: Any = None
        for part in (*shape.extra_embeddings, *shape.extra_parts):
            setattr(self, part.name, _module(part))
        self.added = ("type_embed", *(part.name for part in shape.extra_embeddings))
        self.encoder = None
        if shape.encoder is not None:
            self.encoder = Encoder(shape.encoder, fused=fused, recompute=recompute)
            embedding = shape.encoder.embed
            if self.encoder.embed is not None and isinstance(embedding, parts.Embedding) and embedding.shared:
                self.encoder.embed.weight = self.embed.weight
        self.embed_norm = norm_module(shape.embed_norm)
        self.per_layer: Any = built(shape.per_layer)
        self.streams, self.merged = built(shape.expand_streams), built(shape.join_streams)
        join = shape.join_streams
        self.hc_head = _module(join) if isinstance(join, parts.HyperHead | parts.HyperMean) else None
        self.each = shape.streams.streams if isinstance(shape.streams, parts.HyperConnection) else 1
        self.lends = any(isinstance(part, parts.Attention) and part.borrowed for part in shape.attentions)
        self.blocks = _blocks(shape.stacks, fused=fused, keep_all=keep_all)
        self.final_norm = norm_module(shape.final_norm)
        last = logits == "last"
        self.lm_head: Head | None = None
        if shape.head is not None:
            self.lm_head = (family_module(shape.head) or Head)(shape.head, last)
        if self.lm_head is not None and shape.head is not None and shape.head.tied:
            self.lm_head.weight = self.embed.weight
        pooler = shape.pooler
        self.pooler = Pooler(pooler, last) if isinstance(pooler, parts.Pooler) else _module(pooler)
        self.merger = _module(shape.merger)
        self.projector = Projector(shape.projector) if isinstance(shape.projector, parts.Projector) else None
        self.tapped_blocks = () if shape.deepstack is None else shape.deepstack.after_blocks
        self.deepstack = nn.ModuleList(
            Merger(shape.deepstack) for _ in self.tapped_blocks if shape.deepstack is not None
        )
        self.classifier = None if shape.classes is None else Classes(shape.classes, last)
        self.mtp = nn.ModuleList()
        if shape.mtp is not None and shape.head is not None and self.lm_head is not None:
            angles = _angles(shape.mtp.block.attention)
            for _ in range(shape.mtp.count):
                ahead = MtpHead(shape.mtp, shape.head, angles, last=last)
                ahead.lm_head.weight = self.lm_head.weight
                self.mtp.append(ahead)

    def forward(
        self, tokens: Tensor, past: Cache = (), positions: Tensor | None = None, source: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Logits, then the states of every layer at the end of the step. Logits of multi-token prediction follow the
        others along the token axis. A base model without a head returns its last residual stream, the pooler's result,
        or merged patches, with those of earlier layers after the last.

        `past`: states of every layer before the step, in order: (k₀, v₀, k₁, v₁, …), or a layer's two states.
        `positions`: positions of the new tokens, which a windowed cache does not determine. `source`: tokens for the
        encoder, only in the first step.
        """
        given = tokens.shape[1]
        tokens = tokens if self.longest is None else padded(tokens, self.longest)
        x = self.embed(tokens)
        count = x.shape[1] if self.longest is None else given
        if positions is None:
            if past and self.windowed:
                raise ValueError("a model with windows needs the positions of its new tokens")
            old = self._old(past)
            positions = torch.arange(old, old + count, device=tokens.device)
        positions = positions if self.longest is None else padded(positions, self.longest)
        x = self._placed(x, positions, after_norm=False)
        for added in (getattr(self, name) for name in self.added):
            x = added(x, positions) if isinstance(added, AddedEmbedding) else x
        x = self.embed.widened(self._placed(through(self.embed_norm, x), positions, after_norm=True))
        read = None if self.encoder is None or source is None else self.encoder(source)
        step = Step(x, positions, self._bias(past, positions))
        step.rows = None if self.rel_embed is None else self.rel_embed.all()
        step.per_layer = None if self.per_layer is None else self.per_layer.rows(tokens, x)
        step.first, step.source = x, count
        step.lent = {} if self.lends else None
        x = through(self.streams, x)
        if self.hc_head is not None:
            x = x.unsqueeze(2).expand(-1, -1, self.each, -1)
        cache: list[Tensor] = []

        rest = iter(past)

        def before(block: nn.Module) -> Cache:
            """The cached tensors of a layer before this step, without those of a source that is read in this step."""
            assert isinstance(block, blocks.Block)
            names = [name for name in block.states if read is None or not blocks.of_source(name)]
            return tuple(islice(rest, len(names)))

        first, between = x, dict.fromkeys(self.tapped_blocks, x)  # a model with fewer layers merges those it has
        for number, block in enumerate(self.blocks):
            x, *states = run(block, self.recompute, x, step, before(block), read)
            cache += states
            if number == 0 and self.first_conv is not None:
                x = self.first_conv(first, x)
            if number in between:
                between[number] = x
        x = through(self.hc_head, through(self.merged, x if self.longest is None else x[:, :count]))
        logits = [self._head(through(self.final_norm, x))]
        if self.tapped_blocks:
            more = (merger(between[number]) for number, merger in zip(self.tapped_blocks, self.deepstack, strict=True))
            logits = [torch.cat((*logits, *more), dim=1)]
        for ahead in self.mtp:
            assert isinstance(ahead, MtpHead)
            x, further, *states = ahead.logits(x, self.embed(tokens), step, before(ahead))
            logits.append(further)
            cache += states
        return (torch.cat(logits, dim=1) if self.mtp else logits[0], *cache)

    def _placed(self, x: Tensor, positions: Tensor, *, after_norm: bool) -> Tensor:
        """The residual stream with position embeddings, if they are added before or after the embedding norm."""
        if self.pos_embed is None or after_norm != self.positions_after_norm:
            return x
        return self.pos_embed(x, positions.to(x.device))

    def _old(self, past: Cache) -> int:
        """Number of cached tokens, from the first cache that depends on it."""
        names = (name for block in self.blocks for name in block.states)  # type: ignore[union-attr]
        return next((cache.shape[2] for name, cache in zip(names, past, strict=False) if name.endswith("_cache")), 0)

    def _head(self, x: Tensor) -> Tensor:
        """Output from the last residual stream: logits, classification scores, one vector per sequence, or the
        stream."""
        if self.lm_head is not None and self.classifier is not None and self.pooler is not None:  # both, concatenated
            return torch.cat((self.lm_head(x).flatten(1), self.classifier(self.pooler(x))), dim=1)
        read = x
        for last in (self.pooler, self.lm_head, self.classifier, self.merger):
            x = through(last, x)
        if self.projector is not None:  # which reads a merger's output, or every position
            read = x if self.merger is not None else read
            x = torch.cat((x.flatten(1), self.projector(read).flatten(1)), dim=1)
        return x

    def _bias(self, past: Cache, positions: Tensor) -> Tensor | None:
        """The relative position bias from the new tokens to all tokens, which start with the cached ones."""
        if self.rel_bias is None:
            return None
        old = self._old(past)
        keys = torch.arange(old + positions.shape[0], device=positions.device)
        return self.rel_bias(positions, keys)


def _blocks(stacks: Sequence[Stack], *, fused: bool, keep_all: bool) -> nn.ModuleList:
    """Every layer, in order; the layers of a stack share RoPE angles."""
    angles = {id(stack.block): _angles(stack.block.attention) for stack in stacks}
    built = nn.ModuleList(
        blocks.Block(block, angles[id(block)], fused=fused, keep_all=keep_all) for block in in_order(stacks)
    )
    for number, made in enumerate(built):
        for module in made.modules():
            if hasattr(module, "number"):
                module.number = number  # type: ignore[assignment]
            if hasattr(module, "layers"):
                module.layers = len(built)  # type: ignore[assignment]
    for stack, (first, *others) in zip(stacks, numbered(stacks), strict=True):
        for number in others if stack.shared_weights else ():
            share(built[first], built[number], () if stack.once else stack.shared)
    return built


def _angles(part: parts.SelfAttention | None) -> Angles | None:
    """The RoPE angles of a layer's attention; None without rotary embedding."""
    if part is None or part.rotary is None:
        return None
    if part.rope_dim is not None:
        return Angles(part.rotary, part.rope_dim)
    assert isinstance(part, parts.Attention)
    return Angles(part.rotary, part.head_dim)


@record
class Inputs:
    """Inputs of a forward pass: new tokens, cached states of every layer, positions of the new tokens, and a source if
    one is read."""

    tokens: Tensor
    past: Cache
    positions: Tensor
    source: Tensor | None = None

    @property
    def all(self) -> tuple[Tensor | Cache, ...]:
        """The arguments of the model."""
        given = (self.tokens, self.past, self.positions)
        return given if self.source is None else (*given, self.source)


def build(
    shape: architecture.Transformer,
    *,
    device: str = "meta",
    dtype: torch.dtype = torch.float32,
    logits: str | None = "all",
    fused: bool = False,
    recompute: bool = False,
    keep_all: bool = False,
) -> Decoder:
    """The model on `device`, with random weights. On meta it has all shapes but no values, and uses no memory."""
    with torch.device(device):
        model = Decoder(shape, logits=logits, fused=fused, recompute=recompute, keep_all=keep_all).to(dtype)
    if device != "meta":
        unknown = {name for stack in shape.every_stack for name in _activations(stack.block)} - set(ACTIVATIONS)
        if unknown:
            raise ConfigError(
                f"the reference model has no activation {unknown.pop()!r}", f"it has {', '.join(ACTIVATIONS)}"
            )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Scales near one keep activations finite; everything else is small and centered.
                parameter.normal_(mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.02)
    return model


def _activations(block: Block) -> list[str]:
    every = (sublayer.part for sublayer in block.sublayers)
    plain = (part for part in every if not module_class(part).has_activation)
    found = (getattr(part, "activation", None) for part in plain)
    return [name for name in found if name is not None]


def inputs(
    shape: architecture.Transformer,
    *,
    batch: int,
    tokens: int,
    context: int,
    device: str = "meta",
    dtype: torch.dtype = torch.float32,
    in_window: int | None = None,
    source: int = 0,
    new_source: int = 0,
) -> Inputs:
    """Inputs for `tokens` new tokens of `context`: token id 0, zeros for image patches, and zeros for the cache.

    `in_window`: number of cached tokens of a windowed layer, if it should not be computed. `new_source` of `source`
    tokens are read now: all, or none.
    """
    old = context - tokens
    past: list[Tensor] = []
    read = source_of(shape, batch, new_source, device, dtype) if new_source else None
    further = [] if shape.mtp is None else [shape.mtp.block] * shape.mtp.count
    for block in (*shape.blocks(), *further):
        there = old
        if block.window is not None:  # the new token is one of the tokens in its window
            there = min(old, block.window - 1) if in_window is None else in_window
        for sublayer in block.sublayers:
            seen = Past(batch, there, source if read is None else 0, old)
            shapes = module_class(sublayer.part).cache_shapes(sublayer.part, seen)
            past += [torch.zeros(shape, device=device, dtype=dtype) for shape in shapes]
    positions = torch.arange(old, context, device="meta" if device == "meta" else "cpu")
    given = torch.zeros(batch, tokens, dtype=torch.long, device=device)
    if isinstance(shape.embed, parts.Patches):  # pixels require a gradient
        patches, numbers = tokens - (shape.embed.front or 0), shape.embed.channels * shape.embed.pixels
        given = torch.zeros(batch, patches, numbers, device=device, dtype=dtype).requires_grad_()
    if isinstance(shape.embed, parts.Stem):
        given = frames(shape.embed, batch, tokens, device, dtype)
    return Inputs(given, tuple(past) if old else (), positions, read)
