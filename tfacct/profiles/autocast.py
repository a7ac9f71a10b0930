"""The transformers classes under torch.autocast: weights and the stream in fp32, products in 16 bits.

Each product casts what it reads, and its weight; a weight's cast is made once and stays until the forward pass ends, or
as long as a gradient needs it. Norms run as in fp32. Held against torch's own lists of what is cast, on the classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tfacct.architecture.parts import Attention, FeedForward, Norm, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.kept import Handed, Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.transformers import Transformers
from tfacct.profiles.transformers_masks import ALIGNED, masked_sdpa, reaches
from tfacct.profiles.transformers_parts import ACTIVATIONS, STREAM, norm

WIDE: dict[Role, Role | None] = {"work": "full", "upcast": "full", "cast": None, "copy": None}
"""Roles of a pass in fp32, as they are where another part of it is in 16 bits; None: no such tensor is made."""
STREAM_WIDE = Held("B T D", "full")
ATTENTION, BEHIND = (paths.in_every(paths.BLOCKS, name) for name in ("attn", "mlp_norm"))
"""Attention, and the norm behind it."""


class Product(NamedTuple):
    """A product with a weight: axes of what it reads, of what it makes, and of its weight.

    `casts`: what it reads is in fp32. `bias`: axes of its bias, if it has one.
    """

    path: str
    reads: str
    makes: str
    weight: str
    casts: bool = True
    bias: str = ""


def as_full(run: Run) -> Run:
    """The run of a pass in fp32, beside parts in 16 bits."""
    kept = tuple(
        Kept(line.path, line.spec, line.by, role, line.times)
        for line in run.kept
        if (role := WIDE.get(line.role, line.role)) is not None
    )
    moments = tuple(moment._replace(held=_full(moment.held)) for moment in run.moments)
    ahead = tuple(moment._replace(held=_full(moment.held)) for moment in run.ahead)
    return Run(run.order, kept, moments, ahead, _full(run.early))


def _full(tensors: Iterable[Held]) -> tuple[Held, ...]:
    return tuple(held._replace(role=role) for held in tensors if (role := WIDE.get(held.role, held.role)) is not None)


def _beside(run: Run, held: tuple[Held, ...]) -> Run:
    return run._replace(ahead=tuple(moment._replace(held=(*moment.held, *held)) for moment in run.ahead))


def product(one: Product, reads: str, beside: tuple[Held, ...] = (), summed: int = 0) -> Run:
    """A product: casts of its bias, its weight and its input, then the product itself; backwards the other way round.

    `beside`: gradients that wait meanwhile. `summed`: how many gradients of what it reads are there from products
    behind: the first two become one, and a third is added in place.
    """
    weight, cast, matmul = f"{one.path}.weight", f"{one.path}.cast", f"{one.path}.matmul"
    own, read = Held(one.weight), Held(one.reads)
    bias = (Held(one.bias),) if one.bias else ()
    there = (Held(one.reads, "full"),) if summed else ()
    kept = [Kept(f"{one.path}.weight_cast", one.weight, by=(matmul,))]
    kept.append(Kept(f"{one.path}.in" if one.casts else reads, one.reads, by=(matmul,)))
    made = (Held(one.reads, "full", 3 if summed == 1 else 2 if summed else 1),) if one.casts else (read,)
    after = (Held(one.reads, "full"),) if one.casts else (read,)
    moments = [Moment(matmul, (Held(one.makes), read, own, *there, *beside))]
    if bias:  # whose gradient is summed last: what was made again for the product is gone by then
        moments.append(Moment(matmul, (Held(one.makes), read, own, *bias, *there, *beside), after=True))
    if one.casts:
        moments.append(Moment(cast, (*((read,) if summed != 1 else ()), own, *bias, *made, *beside)))
    moments.append(Moment(weight, (*after, own, own._replace(role="full"), *bias, *beside), done=False))
    order = (weight, cast, matmul) if one.casts else (weight, matmul)
    return Run(order, tuple(kept), tuple(moments))


@record
class Autocast(Transformers):
    """A transformers class under autocast in 16 bits."""

    @property
    def name(self) -> str:
        """Name of the profile."""
        return f"transformers with {self.attention} under autocast"

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps. Raises ConfigError for one without a rule."""
        if isinstance(part, Norm):
            run = as_full(norm(at, reads, part, full=True, wide=self.habits.wide_norms))
            if part.less_one:  # whose weight's gradient is summed last
                first, *others = run.moments
                run = run._replace(moments=(first._replace(done=False), *others))
            return _beside(run, self._lingering) if at == BEHIND else run
        if isinstance(part, Attention):
            return self._attention(at, reads, part, waits=waits)
        if waits or type(part) is not FeedForward:
            raise ConfigError(f"{self.name}: no rule for {type(part).__name__}")
        return self._network(at, part)

    def normed(self, at: str, reads: str, part: Norm) -> Run:  # noqa: ARG002
        """There is no rule for the norm of a part's result."""
        raise ConfigError(f"{self.name}: no rule for a norm behind a part")

    def dropped(self, at: str) -> Run:
        """The sum of a sublayer's result with the stream, in fp32."""
        if self.habits.residual:
            raise ConfigError(f"{self.name}: no rule for dropouts of the stream")
        name, times = f"{at}.drop", 1 + self.habits.scales_results
        summed = (Held("B T D", times=times), STREAM_WIDE)
        scores = (Held("B K G T S", "full"),) if self.attention == "eager" else ()
        alone = Moment(name, (*summed, *scores, *(() if at == ATTENTION else (STREAM_WIDE,))))
        return Run((name,), (), (), (Moment(name, (*summed, *self._lingering)),), (), (alone,))

    @property
    def _lingering(self) -> tuple[Held, ...]:
        """What a block holds of its attention to its end: softmax in fp32, of which a dropout's cast is kept."""
        return (Held("B K G T S", "full"),) if self.attention == "eager" and self.habits.attention else ()

    def front(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(Transformers.front(self, shape))

    def back(self, shape: Transformer) -> Run:
        """Final norm and the loss as in fp32, the head between them in 16 bits."""
        whole = Transformers.back(self, shape)
        head = product(Product("lm_head", "B T D", "B T V", "V D"), "")
        final = self.part("final_norm", STREAM, shape.final_norm) if shape.final_norm is not None else Run()
        stream = Held("B T D", "full", path=STREAM)  # the caller's, until the norm is done
        ahead = tuple(moment._replace(held=(*moment.held, stream)) for moment in final.ahead)
        longer = (Held("B T", "index"), Held("B", "index")) if self.batch > 1 else ()  # labels, before they are shifted
        made = Held("B T V"), Held("B T V", "full"), STREAM_WIDE, *longer, Held("", "full")
        loss = Run(
            tuple(name for name in whole.order if name.startswith("loss.")),
            tuple(line for line in whole.kept if line.path.startswith("loss.")),
            tuple(moment for moment in whole.moments if moment.at.startswith("loss.")),
            (Moment("loss.choose", made),),
        )
        return joined(final._replace(ahead=ahead), head, loss)

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """As in fp32."""
        return _full(Transformers.waiting(self, shape))

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """As in fp32."""
        return as_full(Run(kept=Transformers.buffers(self, shape))).kept

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """As in fp32."""
        return tuple(each._replace(held=_full([each.held])[0]) for each in Transformers.handed(self, shape))

    def _attention(self, at: str, reads: str, part: Attention, *, waits: bool) -> Run:  # noqa: ARG002
        self._check_attention(part)
        if waits or self.habits.fused or self.habits.norms_last or self.habits.norms_behind or self.habits.rejoins:
            raise ConfigError(f"{self.name}: no rule for the way its class makes queries, keys and values")
        if part.sinks or (part.rotary is None and self.attention == "eager"):
            raise ConfigError(f"{self.name}: no rule for attention without angles, or with sinks")
        inner = self._scored(at, part) if self.attention == "eager" else self._attended(at, part)
        bias = "D" if part.out_bias else ""
        out = product(Product(f"{at}.o_proj", "B T N H", "B T D", "N H D", casts=False, bias=bias), f"{at}.values")
        end = Moment(f"{at}.o_proj.matmul", (Held("B T D"), *self._local(part), *self._lingering))
        scored = (Held("B K G T S", "full"),) if self.attention == "eager" else ()
        alone = Moment(end.at, (Held("B T D"), *self._local(part), *scored, Held("B S K H"), Held("B T N H")))
        return joined(self._products(at, part), inner, out._replace(ahead=(end,), bare=(alone,)))

    def _local(self, part: Attention) -> tuple[Held, ...]:
        """What the module holds while attention runs: what it read; queries and keys in fp32, where they are turned."""
        if part.rotary is None:
            return (STREAM_WIDE, *(Held(spec, path=path) for spec, path in self._made("blocks.*.attn")))
        return (STREAM_WIDE, Held("B T N H", "full"), Held("B S K H", "full"))

    @staticmethod
    def _made(at: str) -> tuple[tuple[str, str], ...]:
        """Queries and keys that are not turned: those that the kernel keeps."""
        return ("B T N H", f"{at}.q_proj"), ("B S K H", f"{at}.k_proj")

    def _products(self, at: str, part: Attention) -> Run:
        """Queries, keys and values, norms of the former two behind each, whose results are in fp32, and their turn."""
        heads, normed = {"q": "N", "k": "K", "v": "K"}, part.qk_norm is not None
        runs = []
        for number, which in enumerate("qkv"):
            spec = f"{heads[which]} H"
            beside = tuple(Held(f"B T {heads[other]} H", "full" if normed else "work") for other in "qkv"[:number])
            bias = spec if part.qkv_bias else ""
            made = Product(f"{at}.{which}_proj", "B T D", f"B T {spec}", f"{spec} D", bias=bias)
            runs.append(product(made, "", beside, summed="vkq".index(which)))
            if normed and which != "v":
                runs.append(self._normed_wide(f"{at}.{which}_norm", heads[which], part, STREAM_WIDE, *beside))
        return joined(*runs, self._turned(part)) if part.rotary is not None else joined(*runs)

    def _normed_wide(self, at: str, heads: str, part: Attention, *beside: Held) -> Run:
        """The norm of queries or keys: its weight, in fp32, scales what was cast to 16 bits."""
        run = self._normed(at, heads, part.qk_norm, *beside)
        if part.qk_norm is None or part.qk_norm.less_one or part.qk_norm.together:
            raise ConfigError(f"{self.name}: no rule for this norm of queries and keys")
        every, weight = f"B T {heads} H", f"{at}.weight"
        first = Moment(weight, (Held(every, "full", 3), *beside), done=False)
        then = Moment(weight, (Held(every, "full", 2), Held(every), *beside), after=True)
        return run._replace(moments=(first, then, run.moments[-1]))

    def _turned(self, part: Attention) -> Run:
        """The turn, in fp32 as the angles are. Backwards, what comes of 16 bits is cast back to them."""
        turn, normed = self._turn(part), part.qk_norm is not None
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
        return Run(
            (turn,),
            (),
            (
                Moment(turn, (*back("N"), own["K"], value), after=True),
                Moment(turn, (wide["N"], *back("K"), value)),
            ),
            forwards,
            bare=forwards,
        )

    def _attended(self, at: str, part: Attention) -> Run:
        """torch's kernels; queries and keys are cast for them."""
        names = {which: f"{at}.{which}_{'proj' if part.rotary is None else 'rotary'}" for which in "qk"}
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
        out = f"{at}.sdpa", f"{at}.o_proj.matmul"
        kept = (line if line.path != f"{at}.values" else Kept(line.path, line.spec, out) for line in run.kept)
        return run._replace(kept=tuple(kept))

    def _scored(self, at: str, part: Attention) -> Run:
        """Scores in 16 bits, softmax in fp32, and a cast of it for the values."""
        if part.softcap:
            raise ConfigError(f"{self.name}: no rule for a softcap")
        copied = not isinstance(part.group, int) or part.group > 1
        viewed = (
            copied and self.batch == 1 and part.kv_heads == 1
        )  # copies of one head for all are views, but for casts
        scores, softmax, summed = (f"{at}.{name}" for name in ("scores", "softmax", "values"))
        narrowed, cast, pairs = f"{at}.narrowed", f"{softmax}.cast", "B K G T S"
        drops = self.habits.attention
        kept = [
            Kept(f"{at}.q_rotary", "B T N H", by=(scores,)),
            Kept(f"{at}.k_copies" if copied else f"{at}.k_rotary", "B S N H", by=(scores,)),
            Kept(softmax, pairs, by=(softmax,), role="full"),
            *((Kept(f"{softmax}.drop", pairs, by=(f"{softmax}.drop",), role="flag"),) if drops else ()),
            Kept(cast, pairs, by=(summed,)),
            Kept(f"{at}.v_copies" if copied else f"{at}.v_proj", f"B S {'K' if viewed else 'N'} H", by=(summed,)),
            Kept(f"{at}.values", "B T N H", by=(f"{at}.o_proj.matmul",)),
        ]
        wide, copies, queries = Held(pairs, "full"), Held("B S N H"), Held("B T N H")
        lone = part.kv_heads == 1  # whose copies are views, but for what is made of them
        value, keys = Held("B S K H"), (Held("B S N H", "full"),) if copied and not lone else ()
        apart = self.batch > 1 and part.heads != 1  # products copy what does not lie head by head
        there = (*self._local(part), *keys)
        early = (*there, value, *((copies,) if copied and not lone else ()))
        late = (*there, *((value,) if (copied and not viewed) or apart else ()))
        moments = [
            Moment(summed, (queries, Held(pairs), copies)),
            Moment(cast, (wide, Held(pairs), copies)),
            *((Moment(f"{softmax}.drop", (wide, wide, copies)),) if drops else ()),
            Moment(softmax, (wide, wide, copies)),
            Moment(scores, (Held(pairs), queries, copies, copies)),
            Moment(narrowed, (queries._replace(role="full"), copies, copies, Held("B S N H", "full"))),
        ]
        dropped = (Moment(f"{softmax}.drop", (wide, *early)),) if drops else ()
        ahead = (
            Moment(softmax, (wide, *early)),
            *dropped,
            Moment(summed, (*((wide,) if drops else ()), queries, queries, *late)),
        )
        narrow = (queries._replace(times=1 + apart), copies._replace(times=1 + (apart and not copied)), Held(pairs))
        again = (copies,) if apart and (lone or not copied) else ()  # values, for their product
        alone = (
            Moment(scores, (*narrow, *early)),
            Moment(softmax, (wide, wide, *early)),
            *((Moment(f"{softmax}.drop", (wide, wide, Held(pairs, "flag"), *early)),) if drops else ()),
            Moment(summed, (wide, Held(pairs), queries, *early, *again)),
            Moment(summed, (wide, queries, queries, *early)),
        )
        order = (narrowed, scores, softmax, *((f"{softmax}.drop",) if drops else ()), cast, summed)
        return Run(order, tuple(kept), tuple(moments), ahead, (), alone)

    def _network(self, at: str, part: FeedForward) -> Run:
        if part.norm is not None or not part.gated or part.activation not in ("silu", "gelu", "gelu_pytorch_tanh"):
            raise ConfigError(f"{self.name}: no rule for a network with the activation {part.activation!r}")
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
        stays = (STREAM_WIDE, STREAM_WIDE, *((Held("B K G T S", "full"),) if self.attention == "eager" else ()))
        alone = (
            Moment(f"{up}.matmul", (*stays, Held("B T F", times=2), Held("B T D"))),
            Moment(multiplied, (*stays, Held("B T F", times=3))),
            Moment(f"{down}.matmul", (*stays, Held("B T F"), Held("B T D"))),
        )
        return joined(into, activated, beside, joint, out._replace(ahead=ended, early=(Held("B T D"),), bare=alone))
