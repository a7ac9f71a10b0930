"""Multi-head latent attention (MLA): keys and values of all heads are products of one short vector per token, the
latent, which is kept.

"DeepSeek-V2" (arXiv 2405.04434), section 2.1: low-rank joint compression of keys and values, decoupled rotary keys, and
the absorption of the up-projections. The expanded form: transformers' DeepseekV3Attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

from tfacct.architecture.parts.attention import Rotary
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State

Form: TypeAlias = Literal["auto", "expanded", "absorbed", "unpacked"]
"""Ways to run it: see LatentAttention."""
CHOSEN: tuple[Form, ...] = ("expanded", "absorbed")
"""Forms that `auto` chooses from: they keep the same state, so each step may run either."""


@record(kw_only=True)
class LatentAttention(Part):
    """Causal self-attention whose keys and values are products of a latent of `kv_rank` numbers per token.

    A key has `nope_dim` numbers from the latent, without position, and `rope_dim` rotated ones that all heads share.
    With a `q_rank`, queries come from a latent too. Three forms give the same result:
    `expanded` keeps the latent and computes the keys and values of every token again in each step, as transformers
    does; `absorbed` keeps the latent and takes queries and results into its space, as engines do when they decode;
    `unpacked` keeps the keys and values of all heads.
    `auto` leaves it to each step: `expanded` or `absorbed`, whichever takes fewer FLOPs. It has no lines of its own.
    """

    hidden: Size
    heads: Size
    kv_rank: Size
    nope_dim: Size
    rope_dim: Size
    value_dim: Size
    q_rank: Size | None = None
    bias: bool = False
    eps: float = 1e-6
    rotary: Rotary | None = None
    form: Form = "auto"
    scale: float | None = None

    name: ClassVar[str] = "attn"
    letters: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "heads": "N",
        "kv_rank": "R",
        "nope_dim": "Hp",
        "rope_dim": "Hr",
        "value_dim": "Hv",
        "q_rank": "Rq",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "N": "query heads",
        "R": "size of the latent of keys and values",
        "Rq": "size of the latent of queries",
        "Rs": "elements kept per token, R + Hr",
        "Hq": "size of a query or key head, Hp + Hr",
        "Hp": "elements of a key head made from the latent",
        "Hr": "rotated elements of a head",
        "Hv": "size of a value head",
    }

    made: ClassVar[dict[str, str]] = {"Hq": "Hp + Hr", "Rs": "R + Hr"}
    cases: ClassVar[frozenset[str]] = frozenset("N")

    @property
    def kv_heads(self) -> Size:
        """Number of key/value heads: every query head has keys and values of its own."""
        return self.heads

    @property
    def query(self) -> Size:
        """Size of a query or key head, Hq = Hp + Hr."""
        return self.nope_dim + self.rope_dim

    def multiples(self) -> dict[str, int]:
        """Rotary positions turn numbers in pairs."""
        return {"Hr": 2}

    def running(self, form: Form) -> LatentAttention:
        """Return the part run in another form."""
        return replace(self, form=form)

    def lines(self, at: str) -> tuple[Line, ...]:
        """Products down to latents, up to heads or into the latent's space, scores, values, output; and the state.

        Raises ValueError while the form is `auto`.
        """
        if self.form == "auto":
            raise ValueError(f"{at}: the form of latent attention is still open")
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
