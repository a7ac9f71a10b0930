"""Workloads: the sequences, new tokens, keys and logits of one forward pass.

Prefill is T = S, a decode step is T = 1, a chunk is T < S. An encoder runs over the whole source in the prefill,
I = J, and not again, I = 0. The formulas never ask which it is.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option

AXES = {
    "B": "sequences in the batch",
    "T": "new tokens (queries)",
    "S": "keys at the end of the step (cache + new)",
    "O": "positions whose logits are computed (T or 1)",
    "I": "new source tokens (J in the prefill, then 0)",
    "J": "source tokens seen",
}
"""Axes that a workload binds, with their meaning. An operand that carries none of them is a weight."""

CHUNKS, ONE_BY_ONE = "Nc", "Tr"
"""Axes that a step binds where a recurrence runs in chunks: how many there are, and the tokens taken one by one."""
PATCHES = "Ti"
"""The axis that a step binds where learned tokens stand in front of an image's patches: the tokens less those."""
MERGED = "Tm"
"""The axis that a step binds where neighbouring patches are merged: the tokens divided by how many are one then."""
TILES = "Nw"
"""The axis that a step binds where patches see those of a window alone: the tokens divided by how many a window has."""
PADDED = "Ip"
"""The axis that a step binds where an encoder attends in windows that overlap: the tokens that it reads, padded to
whole windows."""
HALVES, OVERLAPPING = "Ih", "Iw"
"""Axes that it binds there too: halves of windows, and windows, each of which shares a half with the next."""
OF_WINDOWS = PADDED, HALVES, OVERLAPPING
POSITIONS = "Sp"
"""All positions up to the end of the step, in a block whose S is bound to fewer: chunks are counted from the first."""
ENTRIES, HEAVY_ENTRIES = "Sc", "Sh"
"""Axes that a step binds where tokens are compressed, lightly or heavily: the keys made of them up to its end."""
COMPRESSED = {
    "entries": {"light": ENTRIES, "heavy": HEAVY_ENTRIES},
    "new": {"light": "Tc", "heavy": "Th"},
    "waiting": {"light": "Zc", "heavy": "Zh"},
    "any": {"light": "Uc"},
}
"""All that a step binds there: those keys, those of them made in the step, the tokens that wait for one to be full, and
1 where there is a key already, else 0."""
OF_STEPS = frozenset(
    (
        *AXES,
        CHUNKS,
        ONE_BY_ONE,
        PATCHES,
        MERGED,
        TILES,
        *OF_WINDOWS,
        POSITIONS,
        *(axis for named in COMPRESSED.values() for axis in named.values()),
    )
)
"""Axes that no weight has."""

LARGEST = 10**12
"""Largest size that is accepted. A larger one is a typo: nobody means 10^12 tokens or layers."""

Logits = Literal["all", "last"]


@record
class Workload:
    """One forward pass of `batch` sequences, with `tokens` new ones and `context` of them at its end.

    Prefill: all tokens are new, and every position gets logits:

    >>> Workload(context=8192, tokens=8192).axes()
    {'B': 1, 'T': 8192, 'S': 8192, 'O': 8192, 'I': 0, 'J': 0}

    A decode step: one new token, and the same context at its end:

    >>> Workload(context=8192, tokens=1).axes()
    {'B': 1, 'T': 1, 'S': 8192, 'O': 1, 'I': 0, 'J': 0}

    An encoder reads a source once. Behind the prefill its tokens are seen and none is new:

    >>> Workload(context=20, tokens=1, source=512, new_source=0).axes()["J"]
    512

    `logits`: positions whose logits are computed, or None if there are none. Sizes may be ints, arrays or symbols;
    those that a user gives are checked by `Request`.
    """

    context: Any
    tokens: Any
    batch: Any = 1
    logits: Logits | None = "all"
    source: Any = 0
    new_source: Any = 0

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes by the names that the reference model uses."""
        step = {"batch": self.batch, "tokens": self.tokens, "context": self.context}
        return {**step, "source": self.source, "new_source": self.new_source}

    def axes(self) -> dict[str, Any]:
        """Sizes of the axes B, T, S, O, I and J."""
        outputs = 1 if self.logits == "last" else self.tokens
        step = {"B": self.batch, "T": self.tokens, "S": self.context, "O": outputs}
        return {**step, "I": self.new_source, "J": self.source}


class Whole(TypedDict, total=False):
    """Keywords of a request about whole sequences: the context is what counts, not how many of its tokens are new.

    Sizes are numbers, or texts as the command line takes them: `"8k"`.
    """

    ctx: int | str | None
    batch: int | str
    source: int | str | None


class Step(Whole, total=False):
    """Keywords of a request about a step: how many tokens of the context are new, too."""

    tokens: int | str | None
    decode: bool


@record
class Request:
    """A workload as a user words it; what is left out depends on the model.

    Raises UsageError for sizes that are not whole numbers from 1 to 10^12, and for options that contradict each other.
    """

    ctx: int | None = None
    tokens: int | None = None
    decode: bool = False
    batch: int = 1
    logits: Logits = "all"
    source: int | None = None

    def __post_init__(self) -> None:
        sizes = {"ctx": self.ctx, "tokens": self.tokens, "batch": self.batch, "source": self.source}
        for name, value in sizes.items():
            if value is not None:
                check_size(option(name), value)
        if self.logits not in ("all", "last"):
            raise UsageError(f"{option('logits')} is all or last, not {self.logits!r}")
        if self.decode and self.tokens not in (None, 1):
            problem = f"{option('decode')} is one new token, but {option('tokens')} is {self.tokens:,}"
            raise UsageError(problem, "leave one of the two out")

    def workload(self, longest: int, *, source: int | None = None, has_cache: bool = True) -> Workload:
        """Return the workload for a model whose longest context is `longest` positions.

        `source`: longest source of its encoder, None without one. `has_cache`: the model caches something between
        steps; if not, every step takes the whole context. Raises UsageError for a step that the model cannot run.
        """
        context = longest if self.ctx is None else self.ctx
        tokens = 1 if self.decode else context if self.tokens is None else self.tokens
        if source is None and self.source is not None:
            raise UsageError(f"there is no encoder, so {option('source')} does not apply", "leave it out")
        if not has_cache and tokens != context:
            raise UsageError(
                f"nothing is cached between steps, so each takes the whole context, not {new_tokens(tokens)} of"
                f" {context:,}",
                f"leave {option('decode')} and {option('tokens')} out",
            )
        if tokens > context:
            raise UsageError(
                f"{option('tokens', tokens)} is more than the context {context:,}",
                f"use {option('ctx', tokens)} or larger: the context includes the new tokens",
            )
        seen = 0 if source is None else source if self.source is None else self.source
        new = seen if tokens == context else 0
        return Workload(context, tokens, self.batch, self.logits, seen, new)


def new_tokens(count: int) -> str:
    """Return the count in words: `1 new token`, `13 new tokens`."""
    return "1 new token" if count == 1 else f"{count:,} new tokens"


def whole_sequences(name: str, value: str | None = None, *, does: str = "counts") -> UsageError:
    """What to raise where an option goes with whole sequences only."""
    beside = f"{option('decode')} nor {option('tokens')}"
    return UsageError(f"{option(name, value)} {does} whole sequences: it goes with neither {beside}")


def check_size(what: str, value: object, most: int = LARGEST) -> None:
    """Check a size that a user gave. Raises UsageError for anything but a whole number from 1 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} must be a whole number, not {value!r}")
    if value < 1:
        raise UsageError(f"{what} must be at least 1, not {value:,}")
    if value > most:
        raise UsageError(f"{what} must be at most {most:,}, not {value:,}")
