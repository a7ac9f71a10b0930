"""What attention of the transformers classes keeps: queries, keys and values, their norms and turn, and the products.

torch's kernels, or scores, softmax and values one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from tfacct.architecture.parts import Attention, LatentAttention
from tfacct.architecture.parts.attention import QKNorm
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import ROTARY, ROTARY_WINDOWED, Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers_ahead import ahead
from tfacct.profiles.transformers_alibi import bounded, distanced
from tfacct.profiles.transformers_indexed import biased, each, split, written
from tfacct.profiles.transformers_layernorms import layer_of_slices
from tfacct.profiles.transformers_masks import ALIGNED, masked_sdpa, reaches
from tfacct.profiles.transformers_parts import bare, beside, rms, scaled_wide
from tfacct.profiles.transformers_sincos import FOUR, turned_apart, with_sines
from tfacct.profiles.transformers_sinks import sunk
from tfacct.profiles.transformers_turns import (
    clipped,
    tempered,
    turned_by_wide,
    turned_copies,
    turned_halves,
    turned_neighbours_wide,
    turned_wide,
)
from tfacct.profiles.transformers_wide_scores import wide_scores


@record
class Attending:
    """One kind of attention of a class. `full`: the pass is in fp32, where another kernel runs.

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

    @property
    def sees_all(self) -> bool:
        """True if every token sees all others."""
        return False

    @property
    def of_pair(self) -> bool:
        """True if it runs one side of two."""
        return False

    @property
    def biases(self) -> bool:
        """True if learned scores of distances are added to the others."""
        return False

    def reaches(self, window: Size | None) -> bool:
        """True if a sequence is so long that a window has a mask."""
        return reaches(window, self.tokens)

    @property
    def lingers(self) -> bool:
        """True if the result of a block's first part stays until the block ends, if its parts follow each other."""
        return self.habits.lingers

    def _waiting(self, *, network: bool = False) -> tuple[Held, ...]:
        """The gradient behind a part's dropout, norm or scale, where it has one; else the stream's gradient is all."""
        own = self.habits.apart or (network and self.habits.network)
        return (Held("B T D"),) if own else ()

    def _turning(self, at: str, part: Attention) -> Run:
        """What turning queries and keys keeps: the angles, where each block repeats them for both of two neighbours."""
        turn, own, axes = self._turn(part), f"{at}.turned", "T H" if part.rope_dim is None else "T Hr"
        if self.habits.own_sines:
            if self.habits.fused and part.heads == FOUR:
                raise ConfigError(f"{self.name}: no rule for heads that are views of the product that made them")
            return turned_apart(at, wide=self.habits.fused)
        if self.habits.turns_wide:
            return turned_wide(turn)
        if self.habits.turns_copies:
            return turned_copies(turn)
        if self.habits.wide_angles and not (self.habits.rejoins or self.habits.repeats_angles):
            return turned_by_wide(turn)
        if not self.habits.repeats_angles:
            if self.habits.joins_inside:
                return turned_halves(turn, axes.removeprefix("T "))
            # Gradients of the queries and their halves, beside those of keys and values: of few tokens the fullest.
            moment = Moment(turn, (Held("B T N H", times=4), Held("B S K H", times=2)))
            return Run((turn,), (), (moment,) if self.habits.turns_counted else ())
        role: Role = "full" if self.habits.wide_angles else "work"
        if self.habits.wide_angles and not self.habits.rejoins:
            return joined(Run((turn,)), turned_neighbours_wide(at, axes))
        return Run((turn, own), tuple(Kept(f"{at}.{name}", axes, by=(own,), role=role) for name in ("cos", "sin")))

    def _turn(self, part: Attention | LatentAttention) -> str:
        windowed = isinstance(part, Attention) and part.window is not None
        return ROTARY_WINDOWED if self.habits.angles_apart and windowed else ROTARY

    def _check_attention(self, part: Attention) -> None:
        added = self.habits.starts_biased or self.habits.adds_distances
        alibi = part.alibi and not (added and self.attention == "eager")
        if alibi or part.biased != self.biases or part.causal == self.sees_all:
            raise ConfigError(f"{self.name}: no rule for attention with biases of scores")
        if part.sinks and (self.attention == "sdpa" or not self.habits.narrow_softmax):
            raise ConfigError(f"{self.name}: no rule for attention with sinks")
        if part.softcap and self.attention == "sdpa":
            raise ConfigError("transformers runs no sdpa with a softcap")
        if part.score_function != "product":
            raise ConfigError(f"{self.name}: no rule for scores that are no products")

    def _attention(self, at: str, reads: str, part: Attention, *, waits: bool) -> Run:
        self._check_attention(part)
        if part.gated:
            from tfacct.profiles.plain_attention import gated

            return gated(at, reads, part, self, self._turn(part), waits=waits)
        if self.habits.complex_angles and not waits:
            from tfacct.profiles import plain_complex

            return plain_complex.attention(at, reads, part, self, self._turn(part))
        turned, whole = part.rotary is not None, part
        if self.habits.copies_first:
            if part.group != 1 and part.kv_heads == 1:
                raise ConfigError(f"{self.name}: no rule for one head of keys that all others copy before they turn")
            part = replace(part, kv_heads=part.heads, group=1)
        if self.habits.masked and self.attention == "sdpa" and part.group != 1:
            raise ConfigError(
                f"{self.name}: no rule for one head of keys under a mask, for which torch runs another kernel"
            )
        names = {which: f"{at}.{which}_rotary" if turned else f"{at}.{which}_proj" for which in "qk"}
        if part.sinks:
            inner = sunk(at, names, part, self.habits, self.batch)
        elif self.attention == "eager" and self.habits.sums_first:
            others = self._beside_values(at, names, (f"{at}.values",))
            inner = written(at, names["q"], names["k"], part, self.habits, self.batch, others)
        elif self.attention == "eager" and self.habits.wide_scores:
            inner = wide_scores(at, part, self.habits, self.batch, full=self.full)
            if self.habits.own_sines:
                inner = with_sines(at, inner, self.habits, copied=bool(self.batch > 1) and part.heads != 1)
        elif self.attention == "eager":
            inner = self._eager(at, names, part)
            inner = distanced(at, inner) if self.habits.adds_distances else inner
        elif self.habits.masked or self.reaches(part.window):
            others = self._beside_values(at, names, (f"{at}.sdpa",))
            inner = masked_sdpa(at, names, part, others, aligned=not self.tokens % ALIGNED, own=each(self.habits))
        else:
            inner = self._sdpa(at, names, part)
        out_weight = f"{at}.o_proj.weight"
        out = Run((out_weight,), (), (Moment(out_weight, (Held("B T N H"), *self._waiting())),))
        rotation = self._turning(at, part) if turned else Run()
        if self.habits.biases_apart and part.out_bias:
            out = biased(out, {out_weight: "B T D"})
        if waits:
            rotation, inner, out = (beside(run, Held("B T D")) for run in (rotation, inner, out))
        limited = bounded(at) if self.habits.adds_distances else clipped(at)
        limited = Run() if part.clip is None else limited
        rotation = rotation if part.temperature is None else joined(rotation, tempered(at))
        if part.qk_norm is not None and part.qk_norm.late:
            rotation = joined(rotation, *self._both_normed(at, part, last=True))
        return joined(self._projections(at, reads, whole, waits=waits), limited, rotation, inner, out)

    def _both_normed(self, at: str, part: Attention, *, last: bool) -> tuple[Run, Run]:
        """Norms of queries and keys. `last`: behind all products, whose gradients wait; else what v, then k, read of
        the stream is there already, and queries wait for keys."""
        apart = () if self.habits.norms_behind else (Held("B T D"),)  # else it is in the stream's gradient already
        waiting = ((Held("B T K H", times=2),), (Held("B T K H"),)) if last else (apart, apart)
        copied = (
            self.attention == "eager" and bool(self.batch > 1) and part.heads != 1
        )  # what is kept of values is a copy
        q = self._normed(f"{at}.q_norm", "N", part.qk_norm, *waiting[0], apart=copied)
        return q, self._normed(f"{at}.k_norm", "K", part.qk_norm, *waiting[1], Held("B T N H"), apart=copied)

    def _projections(self, at: str, reads: str, part: Attention, *, waits: bool) -> Run:
        """Queries, keys and values, and the norms of queries and keys right behind their products or behind all."""
        behind = self.habits.norms_behind or self.habits.norms_sums
        last, late = self.habits.norms_last, part.qk_norm is not None and part.qk_norm.late
        q, k = (Run(), Run()) if late else self._both_normed(at, part, last=last or self.habits.fused)
        weights = tuple(f"{at}.{which}_proj.weight" for which in "qkv")
        read = Run((), (Kept(reads, "B T D", by=weights),))
        if self.habits.fused:
            run = split(at, weights, self.habits, biased=self.habits.biases_apart and part.qkv_bias)
            return joined(read, beside(run, Held("B T D")) if waits else run, q, k)
        heads = {"q": "N", "k": "K", "v": "K"}
        all_of = [Held(f"B T {heads[which]} H") for which in "qkv"]
        moments = [
            Moment(weight, (*all_of[: index + 1], Held("B T D", times=1 + (waits or index < 2))))
            for index, weight in enumerate(weights)
        ]
        if behind:
            moments = [Moment(w, (*all_of[: i + 1], Held("B T D"))) for i, w in enumerate(weights)]
        one = [Run((weight,), (), (moment,)) for weight, moment in zip(weights, moments, strict=True)]
        # The gradients of what k and v read become one; that of what q read is added to it in place.
        first = 2 if behind or waits else 1
        summed = Moment(weights[first], (*all_of[:first], Held("B T D", times=3 if waits else 4 - first)))
        one[first] = one[first]._replace(moments=(*one[first].moments, summed))
        if waits:
            again = Moment(weights[1], (*all_of[:1], Held("B T D", times=3)))
            one[1] = one[1]._replace(moments=(*one[1].moments, again))
        return joined(read, *one, q, k) if last else joined(read, one[0], q, one[1], k, one[2])

    def _normed(self, at: str, heads: str, how: QKNorm | None, *beside: Held, apart: bool = False) -> Run:
        if how is None:
            return Run()
        if how.kind == "rms" and how.less_one and not how.together:
            run = scaled_wide(at, rms(at, heads, "H", beside), "H", beside, heads=heads, plus_one=True)
            return run._replace(ahead=())
        if how.kind != "rms" and (how.together or not self._viewed):
            raise ConfigError(f"{self.name}: no rule for a LayerNorm of queries and keys")
        if how.kind != "rms":
            return layer_of_slices(at, heads, beside, apart=apart)
        if how.together:
            run = rms(at, "", f"{heads} H", beside)
            return (scaled_wide(at, run, f"{heads} H", beside) if self.habits.wide_norms else run)._replace(ahead=())
        run = rms(at, heads, "H", beside)._replace(ahead=())
        return run if how.learned else bare(run)

    def _sdpa(self, at: str, names: Mapping[str, str], part: Attention) -> Run:
        """torch's fused attention: the flash kernel in 16 bits, the efficient one in fp32.

        The flash kernel lays its result out as its queries are: head by head, what the next product reads is a copy.
        """
        by, out = (f"{at}.sdpa",), f"{at}.o_proj.weight"
        copied = self.habits.rejoins and not self.full and part.heads != 1 and self.tokens != 1
        values = [Kept(f"{at}.values", "B T N H", by=by if copied else (*by, out))]
        if copied:
            values.append(Kept(f"{at}.values_copy", "B T N H", by=(out,)))
        sums = "B N T32" if self.full else "B N T"
        # What is turned of a head was a tensor of its own, and so were queries and keys before.
        apart = self.habits.rejoins and not self.habits.fused and not self.habits.joins_inside
        halves = tuple(map(Held, ("B T N H", "B S K H", "B T N Hr", "B S K Hr"))) if apart else ()
        beside = (*halves, *((Held("B T N H"),) if copied else ()))
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
            (Moment(by[0], beside), *((Moment(out, (Held("B T D"), *halves)),) if apart else ())),
        )

    def _beside_values(self, at: str, names: Mapping[str, str], by: tuple[str, ...]) -> tuple[Kept, ...]:
        """Queries and keys before they are turned, where values are a view of the one product that made all three."""
        made = (Kept(f"{at}.q_proj", "B T N H", by=by), Kept(f"{at}.k_proj", "B S K H", by=by))
        return tuple(line for line in made if self._viewed and line.path not in names.values())

    @property
    def _viewed(self) -> bool:
        """True if values are a view of the one product that made queries and keys too."""
        return self.habits.fused and not (self.habits.indexed or self.habits.copies_first)

    def _eager(self, at: str, names: Mapping[str, str], part: Attention) -> Run:
        """Scores, softmax and values one after the other; keys and values are copied for each query head."""
        copied = not isinstance(part.group, int) or part.group > 1
        viewed = copied and self.batch == 1 and part.kv_heads == 1  # a copy of one head for all is a view
        heads = "K" if viewed else "N"
        keys, values = (f"{at}.k_copies", f"{at}.v_copies") if copied else (names["k"], f"{at}.v_proj")
        scores, capped, softmax, summed = (f"{at}.{name}" for name in ("scores", "softcap", "softmax", "values"))
        pairs = "B K G T S"
        apart = not viewed if copied else self.batch > 1 and part.heads != 1 and self.tokens != 1
        views = self._viewed and not apart  # of the one product, which stays until the last is done with
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
