"""Latent attention (MLA): keys and values of all heads are read off one short vector per token, which is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

from tfacct.lines import Line, Matmul, Pointwise, State
from tfacct.notation import Size
from tfacct.parts.attention import Rotary
from tfacct.parts.part import Part

Form: TypeAlias = Literal["expanded", "absorbed", "unpacked"]
"""How it runs: see LatentAttention."""


@dataclass(frozen=True, slots=True)
class LatentAttention(Part):
    """Causal self-attention whose keys and values are products of a latent of `kv_rank` numbers per token.

    A key is `plain` numbers from the latent, and `turned` ones that all heads share and that carry the position. With
    `q_rank` queries come from a latent too. Three ways to run it give the same result:
    `expanded` keeps the latent and makes the keys and values of every token again in each step, as transformers does;
    `absorbed` keeps the latent and takes queries and results into its space instead, as engines do when they decode;
    `unpacked` keeps the keys and values of all heads.
    """

    hidden: Size
    heads: Size
    kv_rank: Size
    plain: Size
    turned: Size
    value: Size
    q_rank: Size | None = None
    bias: bool = False
    eps: float = 1e-6
    rotary: Rotary | None = None
    form: Form = "expanded"
    scale: float | None = None

    letters: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "heads": "N",
        "kv_rank": "R",
        "plain": "Hp",
        "turned": "Hr",
        "value": "Hv",
        "q_rank": "Rq",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "N": "query heads",
        "R": "latent that keys and values are read off",
        "Rq": "latent that queries are read off",
        "Rs": "what is kept of a token, R + Hr",
        "Hq": "size of a query or key head, Hp + Hr",
        "Hp": "numbers of a key head that come from the latent",
        "Hr": "numbers of a head that are turned by its position",
        "Hv": "size of a value head",
    }

    @property
    def kv_heads(self) -> Size:
        """Every query head has keys and values of its own."""
        return self.heads

    @property
    def query(self) -> Size:
        """Size of a query or key head."""
        return self.plain + self.turned

    def axes(self) -> dict[str, Size]:
        """The sizes; Hq = Hp + Hr and Rs = R + Hr."""
        return {**Part.axes(self), "Hq": self.query, "Rs": self.kv_rank + self.turned}

    def running(self, form: Form) -> LatentAttention:
        """The same model run in another way."""
        return replace(self, form=form)

    def lines(self, at: str) -> tuple[Line, ...]:
        """Down to the latents, up to heads or into the latent's space, scores, values, out; and what is kept."""
        return (
            *self._queries(at),
            Matmul(f"{at}.kv_a_proj", "B T D, D Rs -> B T Rs", bias=self.bias),
            Pointwise(f"{at}.kv_a_norm", "B T R", weight="R"),
            Pointwise(f"{at}.q_rotary", "B T N Hr"),
            Pointwise(f"{at}.k_rotary", "B T Hr"),
            *(self._in_latent_space(at) if self.form == "absorbed" else self._by_head(at)),
            Matmul(f"{at}.o_proj", "B T N Hv, N Hv D -> B T D", bias=self.bias),
            *self._kept(at),
        )

    def _queries(self, at: str) -> Iterator[Line]:
        if self.q_rank is None:
            yield Matmul(f"{at}.q_proj", "B T D, D N Hq -> B T N Hq")
        else:
            yield Matmul(f"{at}.q_a_proj", "B T D, D Rq -> B T Rq", bias=self.bias)
            yield Pointwise(f"{at}.q_a_norm", "B T Rq", weight="Rq")
            yield Matmul(f"{at}.q_b_proj", "B T Rq, Rq N Hq -> B T N Hq")

    def _by_head(self, at: str) -> Iterator[Line]:
        new = "S" if self.form == "expanded" else "T"
        yield Matmul(f"{at}.k_b_proj", f"B {new} R, R N Hp -> B {new} N Hp")
        yield Matmul(f"{at}.v_b_proj", f"B {new} R, R N Hv -> B {new} N Hv")
        yield Matmul(f"{at}.scores", "B T N Hq, B S N Hq -> B N T S", mask="causal")
        yield Pointwise(f"{at}.softmax", "B N T S")
        yield Matmul(f"{at}.values", "B N T S, B S N Hv -> B T N Hv", mask="causal")

    def _in_latent_space(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.k_b_proj", "B T N Hp, R N Hp -> B T N R")
        yield Matmul(f"{at}.scores", "B T N Rs, B S Rs -> B N T S", mask="causal")
        yield Pointwise(f"{at}.softmax", "B N T S")
        yield Matmul(f"{at}.values", "B N T S, B S R -> B T N R", mask="causal")
        yield Matmul(f"{at}.v_b_proj", "B T N R, R N Hv -> B T N Hv")

    def _kept(self, at: str) -> Iterator[Line]:
        if self.form == "unpacked":
            yield State(f"{at}.k_cache", "B S N Hq")
            yield State(f"{at}.v_cache", "B S N Hv")
        else:
            yield State(f"{at}.latent_cache", "B S R")
            yield State(f"{at}.rotary_cache", "B S Hr")
