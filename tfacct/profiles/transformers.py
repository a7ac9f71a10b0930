"""How the transformers classes train: every tensor that autograd keeps, part by part, with sdpa or eager attention.

Read off the classes of transformers 5 and held against them by their saved tensors, module by module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Experts, FeedForward, LatentAttention, Mixer, Norm, Part
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size, rounded_up
from tfacct.ledger.kept import AGAIN, ROTARY, Collected, Handed, Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.transformers_alibi import DISTANCES, MASK
from tfacct.profiles.transformers_attention import Attending
from tfacct.profiles.transformers_clamped import clamped_experts
from tfacct.profiles.transformers_indexed import biased
from tfacct.profiles.transformers_latent import Latent
from tfacct.profiles.transformers_masks import ALIGNED, NONE, masks
from tfacct.profiles.transformers_mixed import mixed_experts
from tfacct.profiles.transformers_parts import STREAM, beside, dropout, experts, network, norm
from tfacct.profiles.transformers_scored import corrections, scored_experts
from tfacct.profiles.transformers_shared import followed_experts, shared_experts

ROWS = 32
"""Queries that the efficient kernel rounds its sums up to."""


def kernel_letters(tokens: Size) -> dict[str, Size]:
    """Letters that an attention kernel derives from a step's."""
    return {"T32": ROWS * rounded_up(tokens, ROWS), "S8": ALIGNED * rounded_up(tokens, ALIGNED)}


@record
class Transformers(Attending):
    """A transformers class with one kind of attention."""

    @property
    def encodes(self) -> bool:
        """True if it has rules for segments, a head with a transform, and norms of sums."""
        return False

    @property
    def norms_first(self) -> bool:
        """True if the norms of parts side by side run in front of them all."""
        return self.habits.sums_first

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "full"

    def logits(self, _: Transformer) -> Held:
        """Logits of the whole vocabulary."""
        return Held("B T V")

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """Gradients to which every block adds: none."""
        return ()

    def views(self, _: Transformer) -> frozenset[str]:
        """No gradient is a view of the stream's."""
        return frozenset()

    def block(self, _: Block) -> Run | None:
        """None: blocks are made of their parts."""
        return None

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps. `waits`: a gradient of what it reads is there from the part behind it. Raises
        ConfigError for one without a rule."""
        if isinstance(part, Norm):
            wide, casts = self.habits.wide_norms, self.habits.casts_scales
            return norm(at, reads, part, full=self.full, wide=wide, casts=casts, written=self.habits.written_norms)
        if isinstance(part, Attention):
            return self._attention(at, reads, part, waits=waits)
        if isinstance(part, LatentAttention) and not waits:
            how = {"sdpa": self.attention == "sdpa", "full": self.full, "drops": self.habits.attention}
            latent = Latent(at, part, **how, batch=self.batch, lone=bool(self.tokens == 1))
            return latent.run(reads, ROTARY, self._waiting())
        if waits:
            raise ConfigError(f"{self.name}: no rule for {in_words(part)} that shares its norm with a part behind")
        if type(part) is FeedForward and part.bent:
            from tfacct.profiles import plain_bent

            return plain_bent.network(at, reads, part, self)
        if type(part) is FeedForward:
            behind, fused = self.habits.norms_behind or self.habits.norms_sums, self.habits.fused_gate
            written = self.habits.written_gelu
            run = network(at, reads, part, self._waiting(network=True), stream=behind, fused=fused, written=written)
            if self.habits.sums_first and self.habits.residual:  # the sum's gradient waits for the part in front too
                run = beside(network(at, reads, part), Held("B T D"))
            if self.habits.biases_apart and part.bias:
                run = biased(run, {f"{at}.up_proj.weight": "B T F", f"{at}.down_proj.weight": "B T D"})
            early = (Held("B T D"),) if self.habits.scales_results else ()
            # The forward pass's moment is where a block that runs again may stop.
            return run._replace(ahead=(*run.ahead, Moment(run.order[-1], ())), early=early)
        if isinstance(part, Experts):
            if not part.gated or part.latent is not None:
                raise ConfigError(f"{self.name}: no rule for experts without a gate or behind a latent")
            if self.habits.complex_angles:
                from tfacct.profiles import plain_complex

                return plain_complex.experts(at, reads, part, self)
            if self.habits.scored_narrow or self.habits.scored_first:
                from tfacct.profiles.plain_experts import experts as scored

                return scored(at, reads, part, self)
            if self.habits.clamped and part.bias and part.shared is None:
                return clamped_experts(at, reads, part)
            if self.habits.mixed:
                return mixed_experts(at, reads, part, self.habits)
            if self.habits.scored:
                return scored_experts(at, reads, part, self.habits, full=self.full)
            shared = followed_experts if self.habits.shared_last else shared_experts
            return (experts if part.shared_width is None else shared)(at, reads, part, self.habits)
        if isinstance(part, Mixer):
            from tfacct.profiles.plain_mixers import mixer

            return mixer(at, reads, part, self)
        raise ConfigError(f"{self.name}: no rule for {in_words(part)}")

    def normed(self, at: str, reads: str, part: Norm) -> Run:
        """What the norm of a part's result keeps. Its gradient is the stream's, unless a constant multiplied it."""
        if part.kind != "rms" or not (self.habits.norms_around or self.habits.norms_behind):
            raise ConfigError(f"{self.name}: no rule for a norm behind a part")
        if not (part.less_one or self.habits.wide_norms or self.habits.norms_narrow):
            raise ConfigError(f"{self.name}: no rule for a norm behind a part")
        if self.habits.norms_narrow:
            return self._normed_narrow(at, reads, part)
        run = norm(at, reads, part, full=self.full, wide=True, branches=False)
        first, squared = run.moments
        shared = first._replace(held=(Held("B T D", "full", 2), Held("B T D", "copy"), Held("D", "cast")))
        ahead = tuple(moment._replace(held=(*moment.held, Held("B T D", "cast"))) for moment in run.ahead)
        return run._replace(moments=(shared, squared), ahead=ahead, early=(Held("B T D", "copy"),))

    def _normed_narrow(self, at: str, reads: str, part: Norm) -> Run:
        """The same where the weight scales what is cast to the pass's dtype."""
        scaled = (Held("B T D"),) if self.habits.scales_results else ()
        run = norm(at, reads, part, full=self.full, branches=False)
        first, then, squared = (moment for moment in run.moments)
        once = Held("B T D", times=2), *scaled
        ahead = tuple(moment._replace(held=(*moment.held, Held("B T D", "cast"))) for moment in run.ahead)
        moments = first._replace(held=once), then._replace(held=once), squared
        return run._replace(moments=moments, ahead=ahead, early=scaled)

    def summed(self, at: str, reads: str, part: Norm) -> Run:
        """What the norm of a part's result and what it read keeps. Its gradient is the stream's before and behind."""
        run = norm(at, reads, part, full=self.full)
        moments = tuple(moment._replace(held=(Held("B T D"),)) for moment in run.moments)
        return run._replace(moments=moments, ahead=tuple(m._replace(held=(*m.held, Held("B T D"))) for m in run.ahead))

    def dropped(self, at: str) -> Run:
        """The end of a sublayer: a dropout, where the class has one, and the sum with the stream."""
        name, attends = f"{at}.drop", at == paths.in_every(paths.BLOCKS, "attn")
        if self.habits.sums_first:
            return Run((name,), (), (), (Moment(name, (Held("B T D"),)),))
        drops = self.habits.residual or (self.habits.network and not attends)
        mask = dropout(name) if drops else Run((name,))
        more = self.habits.scales_results
        return joined(mask, Run((), (), (), (Moment(name, (Held("B T D", times=3 if more else 2),)),)))

    def added(self, at: str, parts: int) -> Run:
        """The sum of what parts side by side give, then of that and the stream."""
        if not self.habits.sums_first:
            return Run((at,), (), (), (Moment(at, (Held("B T D", times=2 * parts),)),))
        mask = dropout(at) if self.habits.residual else Run((at,))
        dropped = (Held("B T D"),) if self.habits.residual else ()
        return joined(mask, Run((), (), (), (Moment(at, (Held("B T D", times=1 + parts), *dropped)),)))

    def front(self, shape: Transformer) -> Run:
        """Token ids, positions, and the angles that all blocks share."""
        kept = [Kept("tokens", "B T", by=("embed",), role="index")]
        order = ["embed"]
        moments = [Moment("embed", ())]
        if shape.embed.scaled:
            order.append("embed.scale")
            moments.append(Moment("embed.scale", (Held("B T D"),)))
        if shape.positions is not None:
            own = self.habits.own_positions
            kept.append(Kept("positions", "B T" if own else "T", by=("pos_embed",), role="index"))
            order.append("pos_embed")
            moments.append(Moment("pos_embed", (Held("T D"),) if self.batch > 1 and not own else ()))
        normed = Run() if shape.embed_norm is None else self._embeddings(shape.embed_norm)
        role: Role = "full" if self.habits.wide_angles else "work"
        for turn, rotary in self._turns(shape).items():
            turned = "H" if rotary.rope_dim is None else "Hr"
            apart = "" if turn == ROTARY else ".windowed"
            both: tuple[str, ...] = ("cos_and_sin",) if self.habits.half_angles else ("cos", "sin")
            both = () if self.habits.repeats_angles else both
            spec = f"B T {turned}" if self.habits.sequence_angles else f"T {turned}"
            kept += [Kept(f"{name}{apart}", spec, by=(turn,), role=role) for name in both]
            order.append(turn)
        if self.habits.adds_distances:
            kept.append(MASK)
        if self.habits.hands_mask and self.attention == "eager":
            kept.append(Kept("mask", "B T S", by=(AGAIN,)))
            order.append(AGAIN)
        mask = dropout("embed.drop") if self.habits.embedding else Run()
        return joined(Run(tuple(order), tuple(kept), tuple(moments)), normed, mask)

    def _embeddings(self, part: Norm) -> Run:
        """The norm of the embeddings, which nothing else reads."""
        bare = part.kind == "rms" and part.learned == "none"
        if (part.kind != "layer" and not bare) or self.habits.embedding:
            raise ConfigError(f"{self.name}: no rule for this norm of the embeddings")
        run = self.part("embed_norm", "embed.sum", part)
        return run._replace(moments=(Moment(run.order[0], (Held("B T D"),)),), ahead=())

    def back(self, shape: Transformer) -> Run:
        """Final norm, head and loss. At batch 1 the shifted labels are a view of labels one longer."""
        final = self._final(shape)
        head = Run(
            ("lm_head.weight",),
            (Kept("final_norm", "B T D", by=("lm_head.weight",)),),
            (Moment("lm_head.weight", (Held("B T V"), Held("B T D"))),),
        )
        return joined(final, head, self._loss_of(shape))

    def _final(self, shape: Transformer) -> Run:
        final = self.part("final_norm", STREAM, shape.final_norm) if shape.final_norm is not None else Run()
        stream = Held("B T D", path=STREAM)  # the caller's, until the norm is done
        return final._replace(ahead=tuple(moment._replace(held=(*moment.held, stream)) for moment in final.ahead))

    def _loss_of(self, shape: Transformer) -> Run:
        longer = (Kept("loss.padding", "", by=("loss.choose",), role="index"),) if self.batch == 1 else ()
        cap = ("loss.softcap",) if shape.head is not None and shape.head.softcap else ()
        return Run(
            (*cap, "loss.softmax", "loss.choose"),
            (
                *(Kept("loss.tanh", "B T V", by=(name,)) for name in cap),
                Kept("loss.log_probabilities", "B T V", by=("loss.softmax",), role="full"),
                Kept("loss.targets", "B T", by=("loss.choose",), role="index"),
                *longer,
                Kept("loss.weight", "", by=("loss.choose",), role="full"),
            ),
            (Moment("loss.softmax", (Held("B T V", "full", 2),)),),
        )

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """What the class holds while its blocks run: embeddings, positions, and eager attention's mask."""
        learned = shape.positions is not None
        unused = {False: self.habits.full_mask, True: self.habits.window_mask}
        mask = [held for held, _ in self._masks(shape, unused)]
        if self.habits.starts_biased:
            return (Held("B N T"), Held("N", "full"), *mask)  # scores by distance, and the slopes they are made of
        if self.habits.adds_distances:
            return (DISTANCES,)
        if self.habits.norms_behind:
            return (Held("T", "index"), *mask)  # block 0 keeps the embeddings
        if self.habits.own_positions:
            return (Held("B T D", times=2), Held("B T", "index"), Held("B T", "full"), *mask)
        first = shape.stacks[0].block.sublayers[0].norm
        if (
            not learned and first is not None and first.kind == "layer" and first.learned == "both"
        ):  # it keeps its input
            dropped = self.habits.embedding and self.habits.undropped_stay
            return (*((Held("B T D"),) if dropped else ()), Held("T", "index"), *mask)
        # Without positions of their own in front, embeddings are what block 0 reads, which a pass in fp32 keeps.
        copies = first is None or first.kind == "rms" or first.learned == "none"
        row = Held("B T D", "cast" if copies else "work")
        embedded = (Held("B T D"), Held("T D")) if learned else (row, Held("T", "index"))
        return (*embedded, *mask, *self._own_angles(shape))

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """What blocks are handed beside the stream and the angles: positions, and the masks of their attention."""
        own = self._masks(shape)
        own = () if self.habits.hands_mask else own
        if self.habits.starts_biased:
            return (Handed(Held("B N T")), *own)
        if self.habits.adds_distances:
            return (Handed(DISTANCES),)
        if self.habits.own_positions:
            return (Handed(Held("B T", "index")), *own)
        own = (*own, *map(Handed, self._own_angles(shape)))
        return (*(() if shape.positions is not None else (Handed(Held("T", "index")),)), *own)

    def _masks(self, shape: Transformer, unused: Mapping[bool, bool] = NONE) -> tuple[Handed, ...]:
        if self.habits.stores_masks:  # which show the windows
            return (Handed(Held("B T S")),)
        found = masks(shape, self.attention, self.tokens, unused, always=self.habits.masked)
        if self.attention == "sdpa" and self.habits.sequence_masks:
            return tuple(each._replace(held=each.held._replace(spec=f"B {each.held.spec}")) for each in found)
        return found

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """The angles' frequencies, twice, as they are used and as they were at first, and once more where those of long
        contexts are others; a scale of the embeddings; what corrects experts' scores."""
        scales = shape.embed.scaled and shape.embed.factor is None and not self.habits.scale_of_class
        scale = (Kept("embed.scale", "", by=()),) if scales else ()
        angles = (one for part in self._turns(shape).values() for one in _frequencies(part))
        biases = corrections(shape, self.habits)
        learned = shape.positions
        mask: tuple[Kept, ...] = ()
        blocks = sum(stack.count for stack in shape.stacks) if self.habits.stores_masks else 1
        if (self.habits.stores_mask or self.habits.stores_masks) and learned is not None:
            mask = (Kept("mask", "P", by=(), role="flag", times=blocks * learned.rows),)
        if self.habits.own_sines:
            return (Kept("sines", "P Hr", by=(), role="full", times=sum(stack.count for stack in shape.stacks)),)
        return (*angles, *scale, *biases, *mask, *_bent(shape))

    def _turns(self, shape: Transformer) -> dict[str, Attention | LatentAttention]:
        """Attention that turns queries and keys, the first for each set of angles, by the operation that does."""
        found: dict[str, Attention | LatentAttention] = {}
        if self.habits.own_sines:
            return found
        for part in shape.attentions:
            if isinstance(part, (Attention, LatentAttention)) and part.rotary:
                found.setdefault(self._turn(part), part)
        if self.habits.always_angles and not found:
            raise ConfigError(f"{self.name}: no rule for angles by which no block turns")
        return found

    def _own_angles(self, shape: Transformer) -> tuple[Held, ...]:
        """The angles of all blocks, where each keeps only what it makes of them."""
        turns = self._turns(shape).values() if self.habits.repeats_angles else ()
        role: Role = "full" if self.habits.wide_angles else "work"
        return tuple(Held("T H" if part.rope_dim is None else "T Hr", role, 2) for part in turns)


def _bent(shape: Transformer) -> tuple[Kept, ...]:
    """Two constants of every block whose activation has learned numbers."""
    parts = ((stack.count, part) for stack in shape.stacks for _, part in stack.block.parts())
    blocks = sum(count for count, part in parts if isinstance(part, FeedForward) and part.bent)
    return (Kept("bent", "", by=(), times=2 * blocks),) if blocks else ()


def _frequencies(part: Attention | LatentAttention) -> Iterator[Kept]:
    """One of 4 bytes for each pair of a head's numbers, and a copy; and one for long contexts, in torch's longrope."""
    turned = "H" if part.rope_dim is None else "Hr"
    yield Kept("frequencies", turned, by=(), role="full")
    if part.rotary is not None and part.rotary.scaled == "longrope":
        yield Kept("frequencies.long", turned, by=(), role="flag", times=2)
