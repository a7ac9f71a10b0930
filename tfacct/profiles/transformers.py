"""How the transformers classes train: every tensor that autograd keeps, part by part, with sdpa or eager attention.

Read off the classes of transformers 5 and held against them by their saved tensors, module by module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tfacct.architecture.parts import Attention, Experts, FeedForward, LatentAttention, Norm, Part
from tfacct.architecture.parts.attention import QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size, rounded_up
from tfacct.ledger.kept import AGAIN, ROTARY, ROTARY_WINDOWED, Handed, Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers_ahead import ahead
from tfacct.profiles.transformers_clamped import clamped_experts
from tfacct.profiles.transformers_latent import Latent
from tfacct.profiles.transformers_masks import ALIGNED, masked_sdpa, masks, reaches
from tfacct.profiles.transformers_parts import STREAM, beside, dropout, experts, network, norm, rms, scaled_wide
from tfacct.profiles.transformers_scored import corrections, scored_experts
from tfacct.profiles.transformers_shared import shared_experts
from tfacct.profiles.transformers_sinks import sunk

ROWS = 32
"""Queries that the efficient kernel rounds its sums up to."""


def kernel_letters(tokens: Size) -> dict[str, Size]:
    """Letters that an attention kernel derives from a step's."""
    return {"T32": ROWS * rounded_up(tokens, ROWS), "S8": ALIGNED * rounded_up(tokens, ALIGNED)}


@record
class Transformers:
    """A transformers class with one kind of attention. `full`: the pass is in fp32, where another kernel runs.

    `tokens`: of a sequence, which a window reaches across or not.
    """

    attention: Literal["sdpa", "eager"]
    habits: Habits
    full: bool
    batch: Size
    tokens: Size

    @property
    def name(self) -> str:
        """Name of the profile."""
        return f"transformers with {self.attention}"

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps. `waits`: a gradient of what it reads is there from the part behind it. Raises
        ConfigError for one without a rule."""
        if isinstance(part, Norm):
            wide, casts = self.habits.wide_norms, self.habits.casts_scales
            return norm(at, reads, part, full=self.full, wide=wide, casts=casts)
        if isinstance(part, Attention):
            return self._attention(at, reads, part, waits=waits)
        if isinstance(part, LatentAttention) and not waits:
            how = {"sdpa": self.attention == "sdpa", "full": self.full, "drops": self.habits.attention}
            return Latent(at, part, **how, batch=self.batch).run(reads, ROTARY, self._waiting())
        if waits:
            raise ConfigError(f"{self.name}: no rule for {type(part).__name__} that shares its norm with a part behind")
        if type(part) is FeedForward:
            behind, fused = self.habits.norms_behind, self.habits.fused_gate
            run = network(at, reads, part, self._waiting(), stream=behind, fused=fused)
            stays = (Held("B T D"),) if self.habits.lingers else ()
            early = (Held("B T D"),) if self.habits.scales_results else ()
            # The forward pass's moment is where a block that runs again may stop.
            return run._replace(ahead=(Moment(run.order[-1], stays),), early=early)
        if isinstance(part, Experts):
            if self.habits.clamped and part.bias and part.shared is None:
                return clamped_experts(at, reads, part)
            if self.habits.scored:
                return scored_experts(at, reads, part, self.habits)
            return (experts if part.shared_width is None else shared_experts)(at, reads, part, self.habits)
        raise ConfigError(f"{self.name}: no rule for {type(part).__name__}")

    def normed(self, at: str, reads: str, part: Norm) -> Run:
        """What the norm of a part's result keeps. Its gradient is the stream's."""
        if not (self.habits.norms_around or (self.habits.norms_behind and self.habits.wide_norms)):
            raise ConfigError(f"{self.name}: no rule for a norm behind a part")
        run = norm(at, reads, part, full=self.full, wide=True, branches=False)
        first, squared = run.moments
        shared = first._replace(held=(Held("B T D", "full", 2), Held("B T D", "copy"), Held("D", "cast")))
        ahead = tuple(moment._replace(held=(*moment.held, Held("B T D", "cast"))) for moment in run.ahead)
        return run._replace(moments=(shared, squared), ahead=ahead, early=(Held("B T D", "copy"),))

    def dropped(self, at: str) -> Run:
        """The end of a sublayer: a dropout, where the class has one, and the sum with the stream."""
        name = f"{at}.drop"
        mask = dropout(name) if self.habits.residual else Run((name,))
        stays = self.habits.lingers and at != paths.in_every(paths.BLOCKS, "attn")
        more = stays or self.habits.scales_results
        return joined(mask, Run((), (), (), (Moment(name, (Held("B T D", times=3 if more else 2),)),)))

    def _waiting(self) -> tuple[Held, ...]:
        """The gradient behind a part's dropout, norm or scale, where it has one; else the stream's gradient is all."""
        habits = self.habits
        own = habits.residual or habits.norms_behind or habits.norms_around or habits.scales_results
        return (Held("B T D"),) if own else ()

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
        role: Role = "full" if self.habits.wide_angles else "work"
        for turn, rotary in self._turns(shape).items():
            turned = "H" if rotary.rope_dim is None else "Hr"
            apart = "" if turn == ROTARY else ".windowed"
            both: tuple[str, ...] = ("cos_and_sin",) if self.habits.half_angles else ("cos", "sin")
            both = () if self.habits.repeats_angles else both
            kept += [Kept(f"{name}{apart}", f"T {turned}", by=(turn,), role=role) for name in both]
            order.append(turn)
        if self.habits.hands_mask and self.attention == "eager":
            kept.append(Kept("mask", "B T S", by=(AGAIN,)))
            order.append(AGAIN)
        mask = dropout("embed.drop") if self.habits.embedding else Run()
        return joined(Run(tuple(order), tuple(kept), tuple(moments)), mask)

    def back(self, shape: Transformer) -> Run:
        """Final norm, head and loss. At batch 1 the shifted labels are a view of labels one longer."""
        final = self.part("final_norm", STREAM, shape.final_norm) if shape.final_norm is not None else Run()
        stream = Held("B T D", path=STREAM)  # the caller's, until the norm is done
        final = final._replace(ahead=tuple(moment._replace(held=(*moment.held, stream)) for moment in final.ahead))
        head = Run(
            ("lm_head.weight",),
            (Kept("final_norm", "B T D", by=("lm_head.weight",)),),
            (Moment("lm_head.weight", (Held("B T V"), Held("B T D"))),),
        )
        longer = (Kept("loss.padding", "", by=("loss.choose",), role="index"),) if self.batch == 1 else ()
        cap = ("loss.softcap",) if shape.head is not None and shape.head.softcap else ()
        loss = Run(
            (*cap, "loss.softmax", "loss.choose"),
            (
                *(Kept("loss.tanh", "B T V", by=(name,)) for name in cap),
                Kept("loss.log_probabilities", "B T V", by=("loss.softmax",), role="full"),
                Kept("loss.targets", "B T", by=("loss.choose",), role="index"),
                *longer,
                Kept("loss.weight", "", by=("loss.choose",), role="short"),
            ),
            (Moment("loss.softmax", (Held("B T V", "full", 2),)),),
        )
        return joined(final, head, loss)

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """What the class holds while its blocks run: embeddings, positions, and eager attention's mask."""
        learned = shape.positions is not None
        unused = {False: self.habits.full_mask, True: self.habits.window_mask}
        mask = [held for held, _ in masks(shape, self.attention, self.tokens, unused)]
        if self.habits.norms_behind:
            return (Held("T", "index"), *mask)  # block 0 keeps the embeddings
        if self.habits.own_positions:
            return (Held("B T D", times=2), Held("B T", "index"), Held("B T", "full"), *mask)
        first = shape.stacks[0].block.sublayers[0].norm
        if not learned and first is not None and first.kind == "layer":  # which keeps what it reads
            dropped = self.habits.embedding and self.habits.undropped_stay
            return (*((Held("B T D"),) if dropped else ()), Held("T", "index"), *mask)
        # Without positions of their own in front, embeddings are what block 0 reads, which a pass in fp32 keeps.
        embedded = (Held("B T D"), Held("T D")) if learned else (Held("B T D", "cast"), Held("T", "index"))
        return (*embedded, *mask, *self._own_angles(shape))

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """What blocks are handed beside the stream and the angles: positions, and the masks of their attention."""
        own = () if self.habits.hands_mask else masks(shape, self.attention, self.tokens)
        if self.habits.own_positions:
            return (Handed(Held("B T", "index")), *own)
        own = (*own, *map(Handed, self._own_angles(shape)))
        return (*(() if shape.positions is not None else (Handed(Held("T", "index")),)), *own)

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """The angles' frequencies, twice, as they are used and as they were at first; a scale of the embeddings; what
        corrects experts' scores."""
        scale = (Kept("embed.scale", "", by=()),) if shape.embed.scaled and shape.embed.factor is None else ()
        turned = ("H" if rotary.rope_dim is None else "Hr" for rotary in self._turns(shape).values())
        biases = corrections(shape, self.habits)
        return (*(Kept("frequencies", axis, by=(), role="full") for axis in turned), *scale, *biases)

    def _turns(self, shape: Transformer) -> dict[str, Attention | LatentAttention]:
        """Attention that turns queries and keys, the first for each set of angles, by the operation that does."""
        found: dict[str, Attention | LatentAttention] = {}
        for part in shape.attentions:
            if isinstance(part, (Attention, LatentAttention)) and part.rotary:
                found.setdefault(self._turn(part), part)
        if self.habits.always_angles and not found:
            raise ConfigError(f"{self.name}: no rule for angles by which no block turns")
        return found

    def _turning(self, at: str, part: Attention) -> Run:
        """What turning queries and keys keeps: the angles, where each block repeats them for both of two neighbours."""
        turn, own, axes = self._turn(part), f"{at}.turned", "T H" if part.rope_dim is None else "T Hr"
        if not self.habits.repeats_angles:
            return Run((turn,))
        role: Role = "full" if self.habits.wide_angles else "work"
        return Run((turn, own), tuple(Kept(f"{at}.{name}", axes, by=(own,), role=role) for name in ("cos", "sin")))

    def _own_angles(self, shape: Transformer) -> tuple[Held, ...]:
        """The angles of all blocks, where each keeps only what it makes of them."""
        turns = self._turns(shape).values() if self.habits.repeats_angles else ()
        role: Role = "full" if self.habits.wide_angles else "work"
        return tuple(Held("T H" if part.rope_dim is None else "T Hr", role, 2) for part in turns)

    def _turn(self, part: Attention | LatentAttention) -> str:
        windowed = isinstance(part, Attention) and part.window is not None
        return ROTARY_WINDOWED if self.habits.angles_apart and windowed else ROTARY

    def _check_attention(self, part: Attention) -> None:
        if part.alibi or part.biased or not part.causal:
            raise ConfigError(f"{self.name}: no rule for attention with biases of scores")
        if part.sinks and (self.attention == "sdpa" or not self.habits.narrow_softmax):
            raise ConfigError(f"{self.name}: no rule for attention with sinks")
        if part.softcap and self.attention == "sdpa":
            raise ConfigError("transformers runs no sdpa with a softcap")
        if part.gated:
            raise ConfigError(f"{self.name}: no rule for attention with a gate")
        if part.score_function != "product":
            raise ConfigError(f"{self.name}: no rule for scores that are no products")

    def _attention(self, at: str, reads: str, part: Attention, *, waits: bool) -> Run:
        self._check_attention(part)
        turned = part.rotary is not None
        names = {which: f"{at}.{which}_rotary" if turned else f"{at}.{which}_proj" for which in "qk"}
        if part.sinks:
            inner = sunk(at, names, part, self.habits, self.batch)
        elif self.attention == "eager":
            inner = self._eager(at, names, part)
        elif reaches(part.window, self.tokens):
            whole = self._beside_values(at, names, (f"{at}.sdpa",))
            inner = masked_sdpa(at, names, part, whole, aligned=not self.tokens % ALIGNED)
        else:
            inner = self._sdpa(at, names, part)
        out_weight = f"{at}.o_proj.weight"
        out = Run((out_weight,), (), (Moment(out_weight, (Held("B T N H"), *self._waiting())),))
        rotation = self._turning(at, part) if turned else Run()
        if waits:
            inner, out = (beside(run, Held("B T D")) for run in (inner, out))
        return joined(self._projections(at, reads, part, waits=waits), rotation, inner, out)

    def _projections(self, at: str, reads: str, part: Attention, *, waits: bool) -> Run:
        """Queries, keys and values, and the norms of queries and keys right behind their products or behind all."""
        # Backwards, what v, then k, read of the stream is there already, and queries wait for keys.
        apart = () if self.habits.norms_behind else (Held("B T D"),)  # else it is in the stream's gradient already
        last = self.habits.norms_last
        waiting = ((Held("B T K H", times=2),), (Held("B T K H"),)) if last else (apart, apart)
        q = self._normed(f"{at}.q_norm", "N", part.qk_norm, *waiting[0])
        k = self._normed(f"{at}.k_norm", "K", part.qk_norm, *waiting[1], Held("B T N H"))
        weights = tuple(f"{at}.{which}_proj.weight" for which in "qkv")
        read = Run((), (Kept(reads, "B T D", by=weights),))
        if self.habits.fused:
            split = f"{at}.split"
            every = (Held("B T N H"), Held("B T K H", times=2))
            # Each slice's gradient is as wide as all, and queries' own waits while the first two are added.
            sliced = (*every, *every, *every, Held("B T N H"))
            divided = Moment(split, sliced if self.habits.sliced else (*every, *every))
            run = Run((*weights, split), (), (divided, Moment(weights[0], (*every, Held("B T D")))))
            return joined(read, beside(run, Held("B T D")) if waits else run)
        heads = {"q": "N", "k": "K", "v": "K"}
        all_of = [Held(f"B T {heads[which]} H") for which in "qkv"]
        moments = [
            Moment(weight, (*all_of[: index + 1], Held("B T D", times=1 + (waits or index < 2))))
            for index, weight in enumerate(weights)
        ]
        if self.habits.norms_behind:
            moments = [Moment(w, (*all_of[: i + 1], Held("B T D"))) for i, w in enumerate(weights)]
        one = [Run((weight,), (), (moment,)) for weight, moment in zip(weights, moments, strict=True)]
        # The gradients of what k and v read become one; that of what q read is added to it in place.
        first = 2 if self.habits.norms_behind or waits else 1
        summed = Moment(weights[first], (*all_of[:first], Held("B T D", times=3 if waits else 4 - first)))
        one[first] = one[first]._replace(moments=(*one[first].moments, summed))
        return joined(read, *one, q, k) if last else joined(read, one[0], q, one[1], k, one[2])

    def _normed(self, at: str, heads: str, how: QKNorm | None, *beside: Held) -> Run:
        if how is None:
            return Run()
        if how.kind == "rms" and how.less_one and not how.together:
            run = scaled_wide(at, rms(at, heads, "H", beside), "H", beside, heads=heads, plus_one=True)
            return run._replace(ahead=())
        if how.kind == "rms" and how.together and self.habits.wide_norms:
            return scaled_wide(at, rms(at, "", f"{heads} H", beside), f"{heads} H", beside)._replace(ahead=())
        if how.kind != "rms" or how.together:
            raise ConfigError(f"{self.name}: no rule for a norm of all heads together, or a LayerNorm of them")
        return rms(at, heads, "H", beside)._replace(ahead=())

    def _sdpa(self, at: str, names: Mapping[str, str], part: Attention) -> Run:
        """torch's fused attention: the flash kernel in 16 bits, the efficient one in fp32.

        The flash kernel lays its result out as its queries are: head by head, what the next product reads is a copy.
        """
        by, out = (f"{at}.sdpa",), f"{at}.o_proj.weight"
        copied = self.habits.rejoins and not self.full and part.heads != 1
        values = [Kept(f"{at}.values", "B T N H", by=by if copied else (*by, out))]
        if copied:
            values.append(Kept(f"{at}.values_copy", "B T N H", by=(out,)))
        sums = "B N T32" if self.full else "B N T"
        return Run(
            by,
            (
                Kept(names["q"], "B T N H", by=by),
                Kept(names["k"], "B S K H", by=by),
                Kept(f"{at}.v_proj", "B S K H", by=by),
                *self._beside_values(at, names, by),
                Kept(f"{at}.softmax.logsum", sums, by=by, role="full"),
                Kept(f"{at}.seed", "", by=by, role="seed"),
                *values,
            ),
            (Moment(by[0], (Held("B T N H", times=2), Held("B S K H", times=2))),),
        )

    def _beside_values(self, at: str, names: Mapping[str, str], by: tuple[str, ...]) -> tuple[Kept, ...]:
        """Queries and keys before they are turned, where values are a view of the one product that made all three."""
        made = (Kept(f"{at}.q_proj", "B T N H", by=by), Kept(f"{at}.k_proj", "B S K H", by=by))
        return tuple(line for line in made if self.habits.fused and line.path not in names.values())

    def _eager(self, at: str, names: Mapping[str, str], part: Attention) -> Run:
        """Scores, softmax and values one after the other; keys and values are copied for each query head."""
        copied = not isinstance(part.group, int) or part.group > 1
        viewed = copied and self.batch == 1 and part.kv_heads == 1  # a copy of one head for all is a view
        heads = "K" if viewed else "N"
        keys, values = (f"{at}.k_copies", f"{at}.v_copies") if copied else (names["k"], f"{at}.v_proj")
        scores, capped, softmax, summed = (f"{at}.{name}" for name in ("scores", "softcap", "softmax", "values"))
        pairs = "B K G T S"
        apart = not viewed if copied else self.batch > 1 and part.heads != 1
        views = self.habits.fused and not apart  # of the one product, which stays until the last is done with
        wide = not self.habits.narrow_softmax
        drops = self.habits.attention
        cap = (capped,) if part.softcap else ()
        order = (scores, *cap, softmax, *((f"{softmax}.drop",) if drops else ()), summed)
        given = f"{softmax}.cast" if wide and not drops and not self.full else softmax
        kept = [
            Kept(names["q"], "B T N H", by=(scores,)),
            Kept(keys, f"B S {heads} H", by=(scores,)),
            *(Kept(f"{at}.tanh", pairs, by=(name,)) for name in cap),
            Kept(softmax, pairs, by=(softmax, *((summed,) if given == softmax and not drops else ())),
                 role="full" if wide else "work"),
        ]  # fmt: skip
        if drops:
            kept.append(Kept(f"{softmax}.drop", pairs, by=(f"{softmax}.drop",), role="flag"))
            kept.append(Kept(f"{softmax}.dropped", pairs, by=(summed,)))
        elif given != softmax:
            kept.append(Kept(given, pairs, by=(summed,), role="cast"))
        both = views and names["k"] == f"{at}.k_proj"  # keys are a view of it too
        kept.append(Kept(values, f"B S {heads} H", by=(scores, summed) if both else (summed,)))
        if views:
            kept += self._beside_values(at, names, (summed,))
        kept.append(Kept(f"{at}.values", "B T N H", by=(f"{at}.o_proj.weight",)))
        copies = Held("B S N H") if copied else Held("B S K H")
        moments = [
            Moment(summed, (Held("B T N H"), Held(pairs), copies)),
            Moment(softmax, (Held(pairs, "full" if wide else "work", 2), copies)),
            Moment(scores, (Held(pairs), Held("B T N H"), copies, copies)),
        ]
        if drops:
            moments.append(Moment(f"{softmax}.drop", (Held(pairs, times=2), copies)))
        return Run(order, tuple(kept), tuple(moments), ahead(at, pairs, self.habits, self.batch, part, apart=apart))
