"""What is asked of the model in one forward pass: how many sequences, new tokens, keys and logits.

Prefill is T = S, a decode step is T = 1, a chunk is T < S. An encoder runs over the whole source in the prefill,
I = J, and not again, I = 0. The formulas never ask which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tfacct.errors import UsageError

AXES = {
    "B": "sequences in the batch",
    "T": "new tokens (queries)",
    "S": "keys at the end of the step (cache + new)",
    "O": "positions whose logits are computed (T or 1)",
    "I": "new source tokens (J in the prefill, then 0)",
    "J": "source tokens seen",
}
"""The axes that a workload binds. An operand that carries none of them is a weight."""

LARGEST = 10**12
"""No size above this is meant seriously; a typo is (10^12 tokens or layers)."""

Logits = Literal["all", "last"]


@dataclass(frozen=True, slots=True)
class Workload:
    """One forward pass of `batch` sequences: `tokens` new ones of the `context` there are at its end.

    `source` tokens are seen through an encoder, of which `new_source` pass it in this step. Sizes may be ints, arrays
    or symbols; whoever takes them from a user goes through `Request`.
    """

    context: Any
    tokens: Any
    batch: Any = 1
    logits: Logits = "all"
    source: Any = 0
    new_source: Any = 0

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes by the names that the reference model has for them."""
        step = {"batch": self.batch, "tokens": self.tokens, "context": self.context}
        return {**step, "source": self.source, "new_source": self.new_source}

    def axes(self) -> dict[str, Any]:
        """B, T, S, O, I and J."""
        outputs = self.tokens if self.logits == "all" else 1
        step = {"B": self.batch, "T": self.tokens, "S": self.context, "O": outputs}
        return {**step, "I": self.new_source, "J": self.source}


@dataclass(frozen=True, slots=True)
class Request:
    """A workload as a user words it: what is left out depends on the model."""

    ctx: int | None = None
    tokens: int | None = None
    decode: bool = False
    batch: int = 1
    logits: Logits = "all"
    source: int | None = None

    def __post_init__(self) -> None:
        options = {"--ctx": self.ctx, "--tokens": self.tokens, "--batch": self.batch, "--source": self.source}
        for option, value in options.items():
            if value is not None:
                check_size(option, value)
        if self.logits not in ("all", "last"):
            raise UsageError(f"--logits is all or last, not {self.logits!r}")
        if self.decode and self.tokens not in (None, 1):
            raise UsageError(f"--decode is one new token, but --tokens is {self.tokens:,}", "leave one of the two out")

    def workload(self, longest: int, *, source: int | None = None, keeps: bool = True) -> Workload:
        """The workload for a model whose own longest context is `longest` positions.

        `source`: the longest that its encoder takes, where it has one. `keeps`: whether it keeps anything between
        steps; where not, every step takes the whole context.
        """
        context = longest if self.ctx is None else self.ctx
        tokens = 1 if self.decode else context if self.tokens is None else self.tokens
        if source is None and self.source is not None:
            raise UsageError("there is no encoder, so --source means nothing", "leave it out")
        if not keeps and tokens != context:
            raise UsageError(
                f"nothing is kept between steps, so each takes the whole context: no {new_tokens(tokens)} of"
                f" {context:,}",
                "leave --decode and --tokens out",
            )
        if tokens > context:
            raise UsageError(
                f"--tokens {tokens:,} is more than the context {context:,} that holds them",
                f"use --ctx {tokens:,} or larger: the context counts the new tokens too",
            )
        seen = 0 if source is None else source if self.source is None else self.source
        new = seen if tokens == context else 0
        return Workload(context, tokens, self.batch, self.logits, seen, new)


def new_tokens(count: int) -> str:
    """`1 new token`, `13 new tokens`."""
    return "1 new token" if count == 1 else f"{count:,} new tokens"


def check_size(what: str, value: object) -> None:
    """Refuse anything but a whole number from 1 to 10^12."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} must be a whole number, not {value!r}")
    if value < 1:
        raise UsageError(f"{what} must be at least 1, not {value:,}")
    if value > LARGEST:
        raise UsageError(f"{what} must be at most {LARGEST:,}, not {value:,}")
