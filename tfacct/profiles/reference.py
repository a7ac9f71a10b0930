"""How the house's own reference model trains: every tensor that autograd keeps, part by part.

Read off tfacct/reference, whose attention is scores, softmax and values one after the other, and held against it by its
saved tensors, module by module. Its loss is the mean of its results, which keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import (
    Attention,
    CrossAttention,
    Disentangled,
    Experts,
    FeedForward,
    LatentAttention,
    Mixer,
    Norm,
    OverlappingAttention,
    Part,
    QKNorm,
    RelativeAttention,
    SharedOutput,
)
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Kept, Pass, Run, Section, joined, turn_of
from tfacct.profiles.reference_disentangled import by_sines, scored
from tfacct.profiles.reference_ends import back_of, front_of
from tfacct.profiles.reference_images import in_groups, split
from tfacct.profiles.reference_latent import latent
from tfacct.profiles.reference_lines import BENT, Lines, adapted, is_
from tfacct.profiles.reference_mixers import lengths, mixed
from tfacct.profiles.reference_moments import measured, turned, with_moments
from tfacct.profiles.reference_pairs import alone, both, cross, overlapping, padded


@record
class Reference(Lines):
    """The reference model."""

    def passed(self, shape: Transformer, source: Size = 0) -> Pass:
        """The pass of a model that reads a source of so many tokens, if any. Raises ConfigError for a part without a
        rule, by its name."""
        if shape.encoder is None:
            return self._side(shape)
        own, encoder = self._side(replace(shape, encoder=None)), shape.encoder
        if encoder.given:
            return both(self, own, None, shape, source)
        run = replace(self, tokens=padded(encoder, source))
        reading = run._side(alone(encoder), "embed" if encoder.stem is None else "stem")
        return both(self, own, reading, shape, source)

    def _side(self, shape: Transformer, first: str = "embed") -> Pass:
        """The pass of one side, or of a model that has one alone. `first`: name of what stands in front."""
        if shape.mtp is not None:
            raise self.refuse("multi-token prediction")
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
        if shape.deepstack is not None:
            blocks = tuple(chain.from_iterable(split(section, shape.deepstack) for section in blocks))
        front = _run(chain(front_of(self, shape, first), self._angles(shape)))
        whole = Pass(Section(front, everywhere), blocks, Section(_run(back_of(self, shape)), everywhere))
        sizes = (self.batch, self.tokens, *(size for section in whole.sections for size in section.axes.values()))
        if not all(isinstance(size, int) for size in sizes) or not measured(shape):
            return whole
        return with_moments(whole, shape, batch=self.batch, tokens=self.tokens, full=self.full)

    def _sizes(self, block: Block) -> Iterator[tuple[str, Size]]:
        """Sizes of a block's letters, those that the step gives among them."""
        for _, part in block.parts():
            yield from part.axes().items()
            yield from lengths(part, self.tokens).items()
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
            by, spec, times = (f"{at}.q_rotary", f"{at}.k_rotary", turn_of(number)), f"T {letter}", 1
            if several:
                spec, times = "T", size
            for name in ("cos", "sin"):
                yield Kept(f"{name}{number or ''}", spec, by=by, times=times)

    def _block(self, block: Block) -> Iterator[Kept]:
        """Sublayers in the block's order. The stream behind the last one is what the next block reads."""
        x = first = paths.in_every(paths.BLOCKS, "in")
        handed: str | None = None
        for number, sublayer in enumerate(one for one in block.sublayers if one.called):
            own = paths.in_every(paths.BLOCKS, sublayer.name)
            norm, reads, handed = f"{own}_norm", handed or x, None
            summed = paths.in_every(paths.BLOCKS, f"mid{number or ''}")
            if block.order == "post":
                yield from self._part(own, x, sublayer)
                yield from self._weighed(own, x, sublayer)
                x = summed
                if sublayer.norm is not None:
                    yield from self.norm(norm, x, sublayer.norm)
                    x = norm
                continue
            if sublayer.norm is not None:
                given, last = (f"{own}.joined", "Dj") if sublayer.norm.joined else (reads, "D")
                yield from self.norm(norm, given, sublayer.norm, last=last)
                reads = norm
            elif block.order == "parallel":
                reads = first
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
        elif isinstance(part, Attention):
            if part.chosen is not None:
                raise ConfigError(f"{self.name}: no rule for attention that has an indexer")
            yield from self._attention(at, reads, part)
        elif isinstance(part, CrossAttention):
            yield from cross(self, at, reads, part)
        elif isinstance(part, LatentAttention):
            yield from latent(self, at, reads, part)
        elif isinstance(part, Experts):
            yield from self._experts(at, reads, part)
        elif isinstance(part, SharedOutput):
            yield Kept(reads, "B T D", by=(f"{at}.proj.weight",))
        elif isinstance(part, FeedForward):
            if part.norm is not None:
                norm = Norm(hidden=part.hidden, kind=part.norm, eps=part.eps)
                yield from self.norm(f"{at}.norm", reads, norm)
                reads = f"{at}.norm"
            how = BENT if part.bent else part.activation
            yield from self.network(at, reads, "F", how, gated=part.gated, normed=part.inner_norm is not None)
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
        if sublayer.gated or sublayer.weighed is not None:
            yield Kept(result, "B T D", by=(gate,))
            yield Kept(f"{gate}.numbers", "" if sublayer.gated else "D", by=(gate,))

    def _attention(self, at: str, reads: str, part: Attention) -> Iterator[Kept]:
        """Products, what is done to queries and keys, scores, softmax, values. Heads of keys are copied for queries."""
        if part.borrowed:
            raise ConfigError(f"{self.name}: no rule for keys and values of another layer")
        products = ("q", "k", *(() if part.keys_as_values else ("v",)), *(("gate",) if part.gated else ()))
        row, made = "Dj" if part.joined else "D", tuple(f"{at}.{which}_proj.weight" for which in products)
        yield Kept(reads, f"B T {row}", by=made)
        if part.adapter is not None:
            own = {f"{which}_adapter_down": (f"{which}_adapter_up",) for which in "qkv"}
            yield from adapted(at, reads, row, own)
        now = {which: f"{at}.{which}_proj" for which in "qkv"}
        now |= {"v": now["k"]} if part.keys_as_values else {}
        yield from self._prepared(at, part, now)
        if isinstance(part, RelativeAttention):
            yield from by_sines(at)
            now["q"] = f"{at}.content"
        single = is_(self.batch, 1) and (part.tiles is None or part.tiles == self.tokens)  # one window of one sequence
        viewed = single and is_(part.kv_heads, 1) and not is_(part.group, 1)
        keys, values = (now[which] if viewed else f"{at}.{which}_copies" for which in "kv")
        heads = "K" if viewed else "N"
        scores, softmax, summed = f"{at}.scores", f"{at}.softmax", f"{at}.values"
        pairs = f"B K G {part.pairs}"
        asked, read = Kept(now["q"], "B T N H", by=(scores,)), Kept(keys, f"B S {heads} H", by=(scores,))
        yield from self.scores(at, asked, read, pairs, far=part.score_function == "distance")
        if isinstance(part, Disentangled):
            yield from scored(self, at, part, now["q"], keys)
        if part.buckets is not None:
            yield Kept(f"{at}.distances", "T S", by=(f"{at}.rel_bias",), role="index")
        if part.softcap is not None:
            yield Kept(f"{at}.softcap", pairs, by=(f"{at}.softcap",))
        yield Kept(softmax, pairs, by=(softmax, summed))
        if part.sinks:
            yield Kept(f"{softmax}.sinks", "B N T", by=(softmax, summed))
        size = "H" if part.value_dim is None else "Hv"
        yield Kept(values, f"B S {heads} {size}", by=(summed,))
        yield from self._read(at, summed, part, f"B T N {size}")
        if part.channel_scale:
            yield Kept(f"{at}.read", "B T D", by=(f"{at}.channel_scale",))

    def _read(self, at: str, reads: str, part: Attention, rows: str) -> Iterator[Kept]:
        """What the last product reads: what the heads read, that times what the token lets through of it, and norms of
        either."""
        if part.head_norm is not None:
            yield from self.rms(f"{at}.head_norm", reads, rows, "B T N", "", less_one=False, scaled=False)
            reads = f"{at}.head_norm"
        if part.gated:
            gate, spec = f"{at}.gate", rows if part.gates == "elements" else "B T N"
            act, smooth = f"{gate}.sigmoid", part.gate_act == "sigmoid"
            if not smooth:
                yield Kept(f"{at}.gate_proj", spec, by=(act,))
            yield Kept(f"{gate}.act", spec, by=(act, gate) if smooth else (gate,))
            yield Kept(reads, rows, by=(gate,))
            reads = gate
        if part.read_norm is not None:
            yield from self.rms(f"{at}.read_norm", reads, rows, "B T", rows.removeprefix("B T "), less_one=False)
            reads = f"{at}.read_norm"
        yield Kept(reads, rows, by=(f"{at}.o_proj.weight",))

    def _prepared(self, at: str, part: Attention, now: dict[str, str]) -> Iterator[Kept]:
        """What is done to queries, keys and values in front of the scores. `now`: the tensor that each is."""
        heads = {"q": "N", "k": "K", "v": "K"}
        if part.qk_norm is not None and part.qk_norm.together:
            yield from self._qk_norms(at, part.qk_norm, now)
        if part.clip is not None:
            for which, count in heads.items():
                yield Kept(now[which], f"B T {count} H", by=(f"{at}.{which}_clip",))
                now[which] = f"{at}.{which}_clip"
        if part.qk_norm is not None and not part.qk_norm.together and not part.qk_norm.late:
            yield from self._qk_norms(at, part.qk_norm, now)
        if part.value_norm is not None:
            yield from self.rms(f"{at}.v_norm", now["v"], "B T K H", "B T K", "", less_one=False, scaled=False)
            now["v"] = f"{at}.v_norm"
        if part.rotary is not None:
            now |= {which: f"{at}.{which}_rotary" for which in "qk"}
        if part.qk_norm is not None and part.qk_norm.late:
            yield from self._qk_norms(at, part.qk_norm, now)
        if part.temperature is not None:
            yield Kept(f"{at}.q_scale.factor", "T", by=(f"{at}.q_scale",))
            now["q"] = f"{at}.q_scale"

    def _qk_norms(self, at: str, how: QKNorm, now: dict[str, str]) -> Iterator[Kept]:
        for which, count in (("q", "N"), ("k", "K")):
            spec, norm = f"B T {count} H", f"{at}.{which}_norm"
            each, last = ("B T", f"{count} H") if how.together else (f"B T {count}", "H")
            if how.own:
                yield from self.layer(norm, now[which], spec, each)
                yield Kept(f"{norm}.normed", spec, by=(f"{norm}.weight",))
            elif how.kind == "layer" and how.learned:
                yield from self.layer(norm, now[which], spec, each)
            else:
                less_one, scaled = how.less_one and how.learned, how.learned
                yield from self.rms(norm, now[which], spec, each, last, less_one=less_one, scaled=scaled)
            now[which] = norm

    def _experts(self, at: str, reads: str, part: Experts) -> Iterator[Kept]:
        """Experts: gate and up each keep their own rows of the tokens that they were sent."""
        if part.scaling is not None or part.scoring not in ("softmax", "sigmoid"):
            raise ConfigError(f"{self.name}: no rule for shares of experts that are made to sum to a number")
        yield from self._routed(at, reads, part)
        weighting, wide = f"{at}.weighting", "D" if part.latent is None else "Dl"
        sent = reads
        if part.norms is not None:
            sent = f"{at}.experts_norm"
            yield from self._normed(sent, reads)
        if part.latent is not None:
            sent, given = f"{at}.latent_down", sent
            yield Kept(given, "B T D", by=(f"{sent}.weight",))
        if part.latent_norms is not None:
            yield from self.rms(f"{at}.latent_norm", sent, "B T Dl", "B T", "Dl", less_one=True)
            sent = f"{at}.latent_norm"
        yield from self._bank(f"{at}.experts", sent, part, wide)
        made, rows = f"{at}.experts.down_proj.result", f"B T A {wide}"
        if part.latent_norms is not None:
            yield from self.scaled_first(f"{at}.result_norm", made, rows, "B T A", wide)
            made = f"{at}.result_norm"
        yield Kept(f"{at}.shares", "B T A", by=(weighting,))
        yield Kept(made, rows, by=(weighting,))
        if part.latent is not None:
            yield Kept(f"{at}.weighted", f"B T {wide}", by=(f"{at}.latent_up.weight",))
        if part.norms is not None:
            yield from self._normed(f"{at}.experts_post_norm", f"{at}.weighted")
        if part.shared_width is not None:
            yield from self._shared(at, reads, part)

    def _normed(self, at: str, reads: str) -> Iterator[Kept]:
        """An RMSNorm of the stream."""
        yield from self.rms(at, reads, "B T D", "B T", "D", less_one=False)

    def _routed(self, at: str, reads: str, part: Experts) -> Iterator[Kept]:
        """The router's scores, and which of them are chosen."""
        routing, gather, spec = f"{at}.routing", f"{at}.gather", f"B T {'E' if part.idle is None else 'Er'}"
        if part.norms is not None:
            yield from self._normed(f"{at}.router_norm", reads)
            reads = f"{at}.router_norm.scaled"
        yield Kept(reads, "B T D", by=(f"{at}.router.weight",))
        yield Kept(routing, spec, by=(routing, *(() if part.norms is not None else (gather,))))
        if part.norms is not None:
            yield Kept(f"{routing}.weighed", spec, by=(gather,))
        yield Kept(f"{at}.chosen", "B T A", by=(gather,), role="index")

    def _shared(self, at: str, reads: str, part: Experts) -> Iterator[Kept]:
        """The network that all tokens go through."""
        read = reads
        if part.norms is not None:
            read = f"{at}.shared_norm"
            yield from self._normed(read, reads)
        yield from self.network(f"{at}.shared", read, part.shared_axis, part.activation, gated=part.gated)
        if part.norms is not None:
            yield from self._normed(f"{at}.shared_post_norm", f"{at}.shared.out")
        if part.shared_gate:
            weighting = f"{at}.shared_weighting"
            yield Kept(reads, "B T D", by=(f"{at}.shared_gate.weight",))
            yield Kept(f"{at}.shared_gate", "B T", by=(f"{at}.sigmoid", weighting))
            yield Kept(f"{at}.shared.out", "B T D", by=(weighting,))

    def _bank(self, own: str, reads: str, part: Experts, wide: str) -> Iterator[Kept]:
        """The experts' own networks; `wide`: the letter of what they read."""
        gate, up, down, act = (f"{own}.{which}" for which in ("gate_proj", "up_proj", "down_proj", "act"))
        viewed = is_(part.active, 1) or (is_(self.batch, 1) and is_(self.tokens, 1))
        for product in (gate, up) if part.gated else (up,):
            rows = Kept(reads, f"B T {wide}", by=(f"{product}.weight",))
            yield rows if viewed else Kept(f"{product}.rows", f"B T A {wide}", by=rows.by)
        if part.gated:
            yield from self.gated(act, gate, up, part.activation, "B T A Fe", (f"{down}.weight",))
        else:
            yield from self.activated(act, up, part.activation, "B T A Fe", (f"{down}.weight",))


def _run(lines: Iterator[Kept]) -> Run:
    return joined(Run(kept=tuple(lines)))
