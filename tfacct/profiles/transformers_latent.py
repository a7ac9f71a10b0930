"""Latent attention, its latents expanded to keys and values of all heads, as DeepseekV3Attention runs it.

Keys are written part by part into one tensor; queries are joined of their two parts. Values are a view of the one
product that made keys' numbers without position and them.
"""

from __future__ import annotations

from tfacct.architecture.parts import LatentAttention
from tfacct.base.errors import ConfigError
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.transformers_parts import rms

PAIRS = "B N T S"
QUERY, KEY, VALUE = Held("B T N Hq"), Held("B S N Hq"), Held("B S N Hv")
BOTH = (Held("B S N Hp"), VALUE)
"""What is made of the latent: keys' numbers without position, and values."""
STREAM_WIDE = Held("B T D")
VIEWED = (("k_b_proj", "B S N Hp"), ("v_b_proj", "B S N Hv"))
"""The product that values are a view of."""
COPY = (("values_copy", "B T N Hv"),)
"""What the last product reads, where it is a copy."""
TURNED = (Held("B T N Hr"), Held("B T Hr"))
"""What is turned of queries, and of the keys of all heads."""


class Latent:
    """The rule for one kind of latent attention: `sdpa` or eager, `full` in fp32, `drops` numbers of the shares. One
    `lone` token of a sequence lies head by head as it is."""

    def __init__(
        self, at: str, part: LatentAttention, *, sdpa: bool, full: bool, drops: bool, batch: Size, lone: bool = False
    ) -> None:
        if part.form not in ("auto", "expanded"):
            raise ConfigError(f"transformers: no rule for latent attention that is {part.form}")
        self.at, self.part, self.sdpa, self.full, self.drops, self.batch = at, part, sdpa, full, drops, batch
        self.apart = part.heads != 1 and not lone
        self.out = f"{at}.o_proj.weight"
        self.up = tuple(f"{at}.{which}_b_proj.weight" for which in "kv")

    def run(self, reads: str, turn: str, waiting: tuple[Held, ...]) -> Run:
        """What it keeps. `turn`: the operation that needs the angles; `waiting`: gradients behind its last product."""
        out = Run((self.out,), (), (Moment(self.out, (Held("B T N Hv"), *waiting)),))
        inner = self._sdpa() if self.sdpa else self._eager()
        joint = f"{self.at}.joined"  # in front of the angles: their products are done before gradients are put together
        turned = Moment(joint, (QUERY, Held("B T N Hr", times=3), Held("B S R"), Held("B S Hr")))
        before = self._queries(reads), self._latent(reads), Run((joint, turn), (), (turned,))
        return joined(*before, self._expanded(), inner, out)

    def _queries(self, reads: str) -> Run:
        split, halves = f"{self.at}.q_split", (QUERY, QUERY, Held("B T N Hr"), STREAM_WIDE)
        if self.part.q_rank is None:
            weight = f"{self.at}.q_proj.weight"
            moments = (Moment(split, halves), Moment(weight, (QUERY, STREAM_WIDE, STREAM_WIDE)))
            return Run((weight, split), (Kept(reads, "B T D", by=(weight,)),), moments)
        down, up = f"{self.at}.q_a_proj.weight", f"{self.at}.q_b_proj.weight"
        norm = rms(f"{self.at}.q_a_norm", "", "Rq", (STREAM_WIDE,))._replace(ahead=())
        one = Run(
            (down,), (Kept(reads, "B T D", by=(down,)),), (Moment(down, (Held("B T Rq"), Held("B T D", times=2))),)
        )
        read = (Kept(f"{self.at}.q_a_norm", "B T Rq", by=(up,)),)
        moments = (Moment(split, halves), Moment(up, (QUERY, Held("B T Rq"), STREAM_WIDE)))
        return joined(one, norm, Run((up, split), read, moments))

    def _latent(self, reads: str) -> Run:
        """The product down, of which the norm reads the latent and all heads the turned part of keys."""
        down, at = f"{self.at}.kv_a_proj.weight", f"{self.at}.kv_a_norm"
        one = Run(
            (down,),
            (Kept(reads, "B T D", by=(down,)),),
            (Moment(down, (QUERY, Held("B T N Hr"), Held("B T Rs"), STREAM_WIDE)),),
        )
        norm = rms(at, "", "R", (QUERY, *TURNED))._replace(ahead=())
        if self.full:  # the latent is a view of the product
            first, *others = norm.kept
            norm = norm._replace(kept=(Kept(first.path, "B T Rs", first.by, first.role), *others))
        return joined(one, norm)

    def _expanded(self) -> Run:
        """Keys and values of all heads; keys' gradient is copied for each part of them that was written."""
        turned, plain = (f"{self.at}.{which}" for which in ("k_turned", "k_plain"))
        read = Kept(f"{self.at}.kv_a_norm", "B T R", by=self.up)
        return Run(
            (*self.up, plain, turned),
            (read,),
            (
                Moment(turned, (QUERY, VALUE, KEY, KEY, Held("B S N Hr"))),
                Moment(plain, (QUERY, VALUE, KEY, KEY, Held("B S N Hp"), Held("B S Hr"))),
                Moment(plain, (QUERY, *BOTH, *BOTH, Held("B S Hr"))),
                Moment(self.up[0], (QUERY, *BOTH, Held("B S R"), Held("B S Hr"))),
            ),
        )

    def _whole(self, by: tuple[str, ...]) -> tuple[Kept, ...]:
        """Values as they are: a view of the product that made keys' numbers too."""
        return tuple(
            Kept(f"{self.at}.{name}_b_proj", axes, by=by) for name, axes in (("v", "B S N Hv"), ("k", "B S N Hp"))
        )

    def _sdpa(self) -> Run:
        """torch's fused attention: where values are as wide as keys the flash kernel in 16 bits, else the efficient."""
        by = (f"{self.at}.sdpa",)
        flash = not self.full and self.part.query == self.part.value_dim
        copied = flash and self.apart  # laid out as queries are, head by head
        seed: Role = "seed" if flash else "index"
        values = [Kept(f"{self.at}.values", "B T N Hv", by=by if copied else (*by, self.out))]
        if copied:
            values.append(Kept(f"{self.at}.values_copy", "B T N Hv", by=(self.out,)))
        return Run(
            by,
            (
                Kept(f"{self.at}.queries", "B T N Hq", by=by),
                Kept(f"{self.at}.keys", "B S N Hq", by=by),
                *self._whole(by),
                Kept(f"{self.at}.softmax.logsum", "B N T" if flash else "B N T32", by=by, role="full"),
                Kept(f"{self.at}.seed", "", by=by, role=seed, times=1 if flash else 2),
                *values,
            ),
            (Moment(by[0], (Held("B T N Hv", times=2), QUERY, KEY)),),
            (Moment(self.out, (STREAM_WIDE, *self._stay(*VIEWED, *(COPY if copied else ())))),),
        )

    def _eager(self) -> Run:
        scores, softmax, summed = (f"{self.at}.{name}" for name in ("scores", "softmax", "values"))
        apart = self.batch > 1 and self.apart  # a product copies values that do not lie head by head
        cast = not self.drops and not self.full
        shares = (softmax,) if cast or self.drops else (softmax, summed)
        dropped = (
            Kept(f"{softmax}.drop", PAIRS, by=(f"{softmax}.drop",), role="flag"),
            Kept(f"{softmax}.dropped", PAIRS, by=(summed,)),
        )
        moments = [
            Moment(summed, (Held("B T N Hv"), Held(PAIRS), VALUE)),
            Moment(softmax, (Held(PAIRS, "full", 2), VALUE)),
            Moment(scores, (Held(PAIRS), QUERY, KEY, VALUE)),
        ]
        if self.drops:
            moments.append(Moment(f"{softmax}.drop", (Held(PAIRS, times=2), VALUE)))
        return Run(
            (scores, softmax, *((f"{softmax}.drop",) if self.drops else ()), summed),
            (
                Kept(f"{self.at}.queries", "B T N Hq", by=(scores,)),
                Kept(f"{self.at}.keys", "B S N Hq", by=(scores,)),
                Kept(softmax, PAIRS, by=shares, role="full"),
                *((Kept(f"{softmax}.cast", PAIRS, by=(summed,)),) if cast else ()),
                *(dropped if self.drops else ()),
                *((Kept(f"{self.at}.v_copies", "B S N Hv", by=(summed,)),) if apart else self._whole((summed,))),
                Kept(f"{self.at}.values", "B T N Hv", by=(self.out,)),
            ),
            tuple(moments),
            self._ahead(apart=apart),
        )

    def _stay(self, *more: tuple[str, str]) -> tuple[Held, ...]:
        """What its function has until it ends, from before queries and keys were joined and the latent normed; by name
        what is kept or not."""
        named = (("kv_a_norm", "B T R"), ("queries", "B T N Hq"), ("keys", "B S N Hq"), *more)
        by_name = (Held(axes, path=f"{self.at}.{name}") for name, axes in named)
        return (QUERY, *TURNED, Held("B T Rs", "cast"), *by_name)

    def _ahead(self, *, apart: bool) -> tuple[Moment, ...]:
        """Moments of eager attention's forward pass."""
        softmax, summed = f"{self.at}.softmax", f"{self.at}.values"
        stay = self._stay()
        late = (*stay, *(BOTH if apart else ()))
        dropped = [Moment(f"{softmax}.drop", (Held(PAIRS), *stay, *BOTH))] if self.drops else []
        return (
            Moment(softmax, (Held(PAIRS), Held(PAIRS, "copy"), *stay, *BOTH)),
            *dropped,
            Moment(summed, (Held("B T N Hv", times=2), *late)),
            Moment(self.out, (STREAM_WIDE, *late)),
        )
