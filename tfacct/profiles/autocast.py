"""The transformers classes under torch.autocast: weights and the stream in fp32, products in 16 bits.

Each product casts what it reads, and its weight; a weight's cast is made once and stays until the forward pass ends, or
as long as a gradient needs it. Norms run as in fp32. Held against torch's own lists of what is cast, on the classes.
"""

from __future__ import annotations

from tfacct.architecture.parts import Attention, FeedForward, Norm, Part
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.kept import Handed, Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.autocast_parts import STREAM_WIDE, Product, as_full, full, plain, product
from tfacct.profiles.autocast_scores import narrow_scores, turned_scores
from tfacct.profiles.transformers import Transformers
from tfacct.profiles.transformers_masks import ALIGNED, masked_sdpa, reaches
from tfacct.profiles.transformers_parts import ACTIVATIONS, STREAM, beside, norm
from tfacct.profiles.transformers_turns import clipped, tempered

ATTENTION, BEHIND = (paths.in_every(paths.BLOCKS, name) for name in ("attn", "mlp_norm"))
"""Attention, and the norm behind it."""


def _beside(run: Run, held: tuple[Held, ...]) -> Run:
    return run._replace(ahead=tuple(moment._replace(held=(*moment.held, *held)) for moment in run.ahead))


@record
class Autocast(Transformers):
    """A transformers class under autocast in 16 bits. `unturned`: none of its blocks turns queries and keys."""

    unturned: bool = False

    @property
    def name(self) -> str:
        """Name of the profile."""
        return f"transformers with {self.attention} under autocast"

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps. Raises ConfigError for one without a rule."""
        if isinstance(part, Norm):
            run = as_full(norm(at, reads, part, full=True, wide=self.habits.wide_norms))
            if part.less_one or self.habits.wide_norms:  # whose weight's gradient is summed last
                first, *others = run.moments
                summed = () if part.less_one else (first._replace(after=True),)
                run = run._replace(moments=(first._replace(done=False), *summed, *others))
            return _beside(run, self._lingering) if at == BEHIND else run
        if isinstance(part, Attention):
            return self._attention(at, reads, part, waits=waits)
        if waits or type(part) is not FeedForward:
            raise ConfigError(f"{self.name}: no rule for {in_words(part)}")
        return self._network(at, part)

    def normed(self, at: str, reads: str, part: Norm) -> Run:
        """The norm of a part's result, which is in 16 bits: as of a pass in them."""
        if self.habits.norms_narrow or self.habits.norms_behind or self.habits.scales_results:
            raise ConfigError(f"{self.name}: no rule for a norm behind a part")
        run = Transformers.normed(self, at, reads, part)
        made = Moment(run.order[-1], (Held("B T D"), Held("B T D", "full", 3), Held("D", "full"), *self._weights))
        # A block that runs again stops in front of its last product.
        stop = tuple(moment._replace(held=(Held("B T D"),)) for moment in run.ahead)
        ahead = (*stop, *(moment._replace(after=True) for moment in run.ahead))
        return _beside(run._replace(ahead=ahead, bare=(made,)), self._lingering)

    def dropped(self, at: str) -> Run:
        """The sum of a sublayer's result with the stream, in fp32."""
        name, times = f"{at}.drop", 1 + self.habits.scales_results
        if self.habits.residual or (self.habits.network and at != ATTENTION):
            return self._numbers_dropped(at)
        summed = (Held("B T D", times=times), STREAM_WIDE, *self._read)
        alone = Moment(name, (*summed, *(self._weights if at == ATTENTION else (STREAM_WIDE, *self._left))))
        return Run((name,), (), (), (Moment(name, (*summed, *self._lingering)),), (), (alone,))

    def _numbers_dropped(self, at: str) -> Run:
        """The same behind a dropout in 16 bits, which takes the gradient before its mask."""
        name, mask = f"{at}.drop", Held("B T D", "flag")
        result, mid = Held("B T D"), self._weights if at == ATTENTION else (STREAM_WIDE, *self._left)
        more = (result._replace(times=2), *((STREAM_WIDE,) if self.habits.drops_inside else ()))  # that it was made of
        alone = (
            Moment(name, (*more, mask, *mid)),
            Moment(name, (result, STREAM_WIDE, *self._read, *mid), after=True),
        )
        ahead = (
            Moment(name, (*more, *self._lingering)),
            Moment(name, (result, STREAM_WIDE, *self._read, *self._lingering), after=True),
        )
        back = (Moment(name, (Held("B T D", times=2),)),)
        return Run((name,), (Kept(name, "B T D", by=(name,), role="flag"),), back, ahead, (result,), alone)

    @property
    def _read(self) -> tuple[Held, ...]:
        """What a part read, where its block holds that and the part's result by names of their own."""
        return (STREAM_WIDE,) if self.habits.lingers else ()

    @property
    def _narrow(self) -> bool:
        """True if queries and keys are in 16 bits once they are made: not turned, or cast back behind that."""
        return self.unturned or self.habits.wide_angles

    @property
    def _weights(self) -> tuple[Held, ...]:
        """What values were weighted by, which stays to the end of a block that keeps its input alone."""
        role: Role = "work" if self._narrow else "full"
        return (Held("B K G T S", role),) if self.attention == "eager" else ()

    @property
    def _left(self) -> tuple[Held, ...]:
        """What such a block holds of its attention to its end."""
        return (*((Held("B T D"),) if self.habits.lingers else ()), *self._weights)

    @property
    def _lingering(self) -> tuple[Held, ...]:
        """What a block holds of its attention to its end: softmax in fp32, of which a dropout's cast is kept."""
        wide = self.attention == "eager" and self.habits.attention and not self._narrow
        return (Held("B K G T S", "full"),) if wide else ()

    def front(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(Transformers.front(self, shape))

    def back(self, shape: Transformer) -> Run:
        """Final norm and the loss as in fp32, the head between them in 16 bits."""
        return joined(*self.ends(shape))

    def ends(self, shape: Transformer) -> tuple[Run, Run, Run]:
        """The final norm, the head, and the loss."""
        head = product(Product("lm_head", "B T D", "B T V", "V D"), "")
        final = self.part("final_norm", STREAM, shape.final_norm) if shape.final_norm is not None else Run()
        stream = Held("B T D", "full", path=STREAM)  # the caller's, until the norm is done
        ahead = tuple(moment._replace(held=(*moment.held, stream)) for moment in final.ahead)
        return final._replace(ahead=ahead), head, self.loss_wide(shape)

    def loss_wide(self, shape: Transformer) -> Run:
        """The loss in fp32 of logits in 16 bits."""
        whole = Transformers.back(self, shape)
        longer = (Held("B T", "index"), Held("B", "index")) if self.batch > 1 else ()  # labels, before they are shifted
        made = Held("B T V"), Held("B T V", "full"), STREAM_WIDE, *longer, Held("", "full")
        return Run(
            tuple(name for name in whole.order if name.startswith("loss.")),
            tuple(line for line in whole.kept if line.path.startswith("loss.")),
            tuple(moment for moment in whole.moments if moment.at.startswith("loss.")),
            (Moment("loss.choose", made),),
        )

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """As in fp32."""
        return full(Transformers.waiting(self, shape))

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """As in fp32."""
        return as_full(Run(kept=Transformers.buffers(self, shape))).kept

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """As in fp32."""
        return tuple(each._replace(held=full([each.held])[0]) for each in Transformers.handed(self, shape))

    def _attention(self, at: str, reads: str, part: Attention, *, waits: bool) -> Run:  # noqa: ARG002
        self._check_attention(part)
        if waits or (self.habits.fused and part.rotary is not None) or self.habits.norms_behind or self.habits.rejoins:
            raise ConfigError(f"{self.name}: no rule for the way its class makes queries, keys and values")
        if part.sinks or (part.rotary is None and self.attention == "eager" and not self.unturned):
            raise ConfigError(f"{self.name}: no rule for attention without angles beside other blocks, or with sinks")
        inner = self._scored(at, part) if self.attention == "eager" else self._attended(at, part)
        bias = "D" if part.out_bias else ""
        out = product(
            Product(
                f"{at}.o_proj", "B T N H", "B T D", "N H D", casts=False, bias=bias, bias_first=self.habits.hands_mask
            ),
            f"{at}.values",
        )
        there = self._late(part)
        end = Moment(f"{at}.o_proj.matmul", (Held("B T D"), *there, *self._lingering))
        here = (*self._local(part), *self._weights, Held("B S K H"))
        alone = Moment(end.at, (Held("B T D"), *here, Held("B T N H")))
        drops = self.habits.drops_inside and self.habits.residual  # while all that is there
        dropped = Held("B T D", times=2), Held("B T D", "flag")
        inside = (Moment(f"{at}.drop", (*dropped[:1], *there, *self._lingering)),) if drops else ()
        inside_alone = (Moment(f"{at}.drop", (*dropped, *here)),) if drops else ()
        return joined(self._products(at, part), inner, out._replace(ahead=(end, *inside), bare=(alone, *inside_alone)))

    def _local(self, part: Attention) -> tuple[Held, ...]:
        """What the module holds while attention runs: what it read; queries and keys in fp32, where they are turned."""
        if part.rotary is None or self._narrow:
            met = self._met(ATTENTION, part)
            return (STREAM_WIDE, Held("B T N H", path=met["q"]), Held("B S K H", path=met["k"]))
        return (STREAM_WIDE, Held("B T N H", "full"), Held("B S K H", "full"))

    @staticmethod
    def _met(at: str, part: Attention) -> dict[str, str]:
        """Names of queries and keys as they meet."""
        return {which: f"{at}.{which}_{'proj' if part.rotary is None else 'rotary'}" for which in "qk"}

    def _late(self, part: Attention) -> tuple[Held, ...]:
        """The same once values are summed: values too, where what is kept of them is a copy."""
        copied = not isinstance(part.group, int) or part.group > 1
        if self.attention == "eager":
            apart = self._apart(part) or (copied and (self.batch != 1 or part.kv_heads != 1))
        else:
            apart = copied and part.kv_heads != 1 and reaches(part.window, self.tokens)
        return (*self._local(part), *((Held("B S K H"),) if apart else ()))

    def _apart(self, part: Attention) -> bool:
        """True if products copy what does not lie head by head."""
        return bool(self.batch > 1 and part.heads != 1)

    def _products(self, at: str, part: Attention) -> Run:
        """Queries, keys and values, norms of the former two, and their turn."""
        if self.habits.fused:
            return self._split(at, part)
        heads, last = {"q": "N", "k": "K", "v": "K"}, self.habits.norms_last
        wide = self._normed_in_full(part)
        runs = []
        for number, which in enumerate("qkv"):
            spec = f"{heads[which]} H"
            waits = tuple(Held(f"B T {heads[other]} H", "full" if wide else "work") for other in "qkv"[:number])
            bias = spec if part.qkv_bias else ""
            made = Product(f"{at}.{which}_proj", "B T D", f"B T {spec}", f"{spec} D", bias=bias)
            runs.append(product(made, "", waits, summed="vkq".index(which)))
            if wide and which != "v":
                runs.append(self._normed_wide(f"{at}.{which}_norm", heads[which], part, STREAM_WIDE, *waits))
        late = part.qk_norm is not None and part.qk_norm.late
        if part.qk_norm is not None and not wide and not late:
            if not last:
                raise ConfigError(f"{self.name}: no rule for this norm of queries and keys")
            runs += self._both_normed(at, part, last=True)
        bounded = Run() if part.clip is None else clipped(at)
        turned = self._turned(at, part) if part.rotary is not None else Run()
        if late:
            value = Held("B T K H")  # in 16 bits, while the others' gradients are in fp32
            q, k = (as_full(self._normed(f"{at}.{which}_norm", heads[which], part.qk_norm)) for which in "qk")
            q, k = beside(q, value, value._replace(role="full")), beside(k, value, Held("B T N H", "full"))
            return joined(*runs, bounded, turned, q, k)
        if part.temperature is not None:
            return joined(*runs, bounded, turned, self._tempered(at))
        return joined(*runs, bounded, turned)

    @staticmethod
    def _tempered(at: str) -> Run:
        """Queries times a number of their position, in fp32 as they are."""
        own, wide = as_full(tempered(at)), Held("B T N H", "full")
        back = Moment(own.order[0], (wide, wide, Held("B T K H"), Held("B T K H")))
        front = Moment(own.order[0], (wide, wide, Held("B T K H", "full"), Held("B T K H"), STREAM_WIDE))
        return own._replace(moments=(back,), ahead=(front,), bare=(front,))

    def _normed_in_full(self, part: Attention) -> bool:
        """True if norms of queries and keys give numbers in fp32: their weights scale what was cast to 16 bits."""
        how = part.qk_norm
        return how is not None and not (how.less_one or how.late or self.habits.wide_norms)

    def _split(self, at: str, part: Attention) -> Run:
        """One product of all three, and what it is split into."""
        heads = "N H", "K H", "K H"
        bias = ", ".join(heads) if part.qkv_bias else ""
        made, weight = ", ".join(f"B T {axes}" for axes in heads), ", ".join(f"{axes} D" for axes in heads)
        others = tuple(f"{at}.{which}_proj" for which in "kv")
        whole = product(
            Product(f"{at}.q_proj", "B T D", made, weight, bias=bias, others=others, bias_first=self.habits.hands_mask),
            "",
        )
        each = Held("B T N H"), Held("B T K H", times=2)
        split = f"{at}.split"
        return joined(whole, Run((split,), (), (Moment(split, (*each, *each)),)))

    def _normed_wide(self, at: str, heads: str, part: Attention, *beside: Held) -> Run:
        """The norm of queries or keys: its weight, in fp32, scales what was cast to 16 bits."""
        run = self._normed(at, heads, part.qk_norm, *beside)
        if part.qk_norm is None or part.qk_norm.together or part.qk_norm.late:
            raise ConfigError(f"{self.name}: no rule for this norm of queries and keys")
        every, weight = f"B T {heads} H", f"{at}.weight"
        first = Moment(weight, (Held(every, "full", 3), *beside), done=False)
        then = Moment(weight, (Held(every, "full", 2), Held(every), *beside), after=True)
        return run._replace(moments=(first, then, run.moments[-1]))

    def _turned(self, at: str, part: Attention) -> Run:
        """The turn, in fp32 as the angles are. Backwards, what comes of 16 bits is cast back to them."""
        if self.habits.wide_angles and self.habits.repeats_angles:  # as in 16 bits, beside what was read
            run = self._turning(at, part)
            ahead = tuple(moment._replace(held=(*moment.held, STREAM_WIDE)) for moment in run.ahead)
            alone = tuple(moment._replace(held=(*moment.held, Held("T H", "full", 2))) for moment in ahead)
            return run._replace(ahead=ahead, bare=alone)
        turn, normed = self._turn(part), self._normed_in_full(part)
        wide = {which: Held(f"B T {which} H", "full") for which in "NK"}
        own = wide if normed else {which: Held(f"B T {which} H") for which in "NK"}
        beside = (own["N"], own["K"], Held("B T K H"), STREAM_WIDE)
        value = Held("B T K H")

        def back(which: str) -> tuple[Held, ...]:
            more = (wide[which],) if normed else ()
            return (wide[which], wide[which], own[which], *((own[which],) if not normed else more))

        forwards = (
            Moment(turn, (wide["N"]._replace(times=3), *beside)),
            Moment(turn, (wide["N"], wide["K"]._replace(times=3), *beside)),
        )
        repeated = ("cos", "sin") if self.habits.repeats_angles else ()
        return Run(
            (turn,),
            tuple(Kept(f"{at}.{name}", "T H", by=(turn,), role="full") for name in repeated),
            (
                Moment(turn, (*back("N"), own["K"], value), after=True),
                Moment(turn, (wide["N"], *back("K"), value)),
            ),
            forwards,
            bare=forwards,
        )

    def _attended(self, at: str, part: Attention) -> Run:
        """torch's kernels; queries and keys are cast for them."""
        names = self._met(at, part)
        if not reaches(part.window, self.tokens):
            run = Transformers._sdpa(self, at, names, part)
        else:
            run = masked_sdpa(at, names, part, (), aligned=not self.tokens % ALIGNED)
            copied = part.group != 1 and part.kv_heads != 1
            wide = () if part.rotary is None else (Held("B S N H", "full"),)
            copies = (*wide, Held("B S K H")) if copied else ()
            run = run._replace(ahead=(Moment(f"{at}.sdpa", (*self._local(part), *copies)),))
            if not copied and part.group != 1 and part.rotary is not None:  # a cast of one head for all is a copy
                kept = (Kept(each.path, "B S N H", each.by) if each.path == names["k"] else each for each in run.kept)
                run = run._replace(kept=tuple(kept))
        own = names.values() if part.rotary is None or self._narrow else ()  # among what the module holds
        made = (Held(line.spec, line.role, line.times) for line in run.kept if line.path not in own)
        run = run._replace(bare=(Moment(f"{at}.sdpa", (*run.ahead[0].held, *made)),))
        out = f"{at}.sdpa", f"{at}.o_proj.matmul"
        kept = (line if line.path != f"{at}.values" else Kept(line.path, line.spec, out) for line in run.kept)
        return run._replace(kept=tuple(kept))

    def _scored(self, at: str, part: Attention) -> Run:
        """Scores in 16 bits, softmax in fp32, and a cast of it for the values."""
        if self._narrow:
            how = {
                "viewed": self._viewed,
                "drops": self.habits.attention,
                "apart": self._apart(part),
                "alone": self.batch == 1,
                "stays": not self.habits.narrow_softmax,
            }
            return narrow_scores(at, self._met(at, part), part, self._local(part), **how)
        there = self._local(part), self._late(part)
        return turned_scores(at, part, *there, drops=self.habits.attention, apart=self._apart(part), batch=self.batch)

    def _network(self, at: str, part: FeedForward) -> Run:
        plain_ones = () if part.gated else ("relu", "gelu_new", "gelu_fast")
        torchs = part.activation in ("silu", "gelu", "gelu_pytorch_tanh", *plain_ones)
        if part.norm is not None or not torchs:
            raise ConfigError(f"{self.name}: no rule for a network with the activation {part.activation!r}")
        if not part.gated:
            read = () if self.habits.inline_network else (STREAM_WIDE,)
            return plain(
                at,
                part,
                (*read, STREAM_WIDE, *self._left),
                (*read, *self._lingering),
                bias_first=self.habits.hands_mask,
            )
        gate, up, down = (f"{at}.{which}_proj" for which in ("gate", "up", "down"))
        act, multiplied = f"{at}.act", f"{at}.product"
        wide, narrow = ("F" if part.bias else ""), ("D" if part.bias else "")
        into = product(Product(gate, "B T D", "B T F", "F D", bias=wide), "", summed=1)
        beside = product(Product(up, "B T D", "B T F", "F D", bias=wide), "", (Held("B T F"),))
        out = product(Product(down, "B T F", "B T D", "D F", casts=False, bias=narrow), multiplied)
        activated = Run(
            (act,),
            (Kept(gate, "B T F", by=(act,)), Kept(f"{act}.result", "B T F", by=(multiplied,))),
            (Moment(act, (Held("B T F", times=ACTIVATIONS[part.activation].holds), STREAM_WIDE)),),
        )
        joint = Run(
            (multiplied,),
            (Kept(up, "B T F", by=(multiplied,)), Kept(multiplied, "B T F", by=(f"{down}.matmul",))),
            (Moment(multiplied, (Held("B T F", times=3),)),),
        )
        there = (STREAM_WIDE, *self._lingering)
        # A block that runs again stops in front of its last product. The gradient is cast before.
        ended = Moment(f"{down}.matmul", there), Moment(f"{down}.matmul", (Held("B T D"), *there), after=True)
        stays = (STREAM_WIDE, STREAM_WIDE, *self._left)
        alone = (
            Moment(f"{up}.matmul", (*stays, Held("B T F", times=2), Held("B T D"))),
            Moment(multiplied, (*stays, Held("B T F", times=3))),
            Moment(f"{down}.matmul", (*stays, Held("B T F"), Held("B T D"))),
        )
        return joined(into, activated, beside, joint, out._replace(ahead=ended, early=(Held("B T D"),), bare=alone))
