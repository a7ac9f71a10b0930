"""Workloads: the sequences, new tokens, keys and logits of one forward pass.

Prefill is T = S, a decode step is T = 1, a chunk is T < S. An encoder runs over the whole source in the prefill, I = J,
and not in later steps, I = 0. The formulas are the same for all.
"""

from __future__ import annotations

from typing import Any, Literal

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option

AXES = {
    "B": "sequences in the batch",
    "T": "new tokens (queries)",
    "S": "keys at the end of the step (cached + new)",
    "O": "positions whose logits are computed (T or 1)",
    "I": "new source tokens (J in prefill, then 0)",
    "J": "source tokens",
}
"""Axes of a workload, with their meaning. An operand without any of them is a weight."""

CHUNKS, ONE_BY_ONE = "Nc", "Tr"
"""Axes of a step for recurrences in chunks: number of chunks, and tokens processed one by one."""
PATCHES = "Ti"
"""Axis of a step for images with learned tokens: patches, without the learned tokens."""
MERGED = "Tm"
"""Axis of a step for merged patches: tokens divided by the patches merged into one."""
TILES = "Nw"
"""Axis of a step for attention in windows of patches: tokens divided by the patches in a window."""
PADDED = "Ip"
"""Axis of a step for overlapping windows of an encoder: its tokens, padded to whole windows."""
HALVES, OVERLAPPING = "Ih", "Iw"
"""Axes for the same: half windows, and windows, each of which shares a half with the next."""
OF_WINDOWS = PADDED, HALVES, OVERLAPPING
POSITIONS = "Sp"
"""Axis of all positions up to the end of the step, for layers where S is smaller: chunks count from position 0."""
ENTRIES, HEAVY_ENTRIES = "Sc", "Sh"
"""Axes of a step for lightly and heavily compressed tokens: compressed keys up to the end of the step."""
COMPRESSED = {
    "entries": {"light": ENTRIES, "heavy": HEAVY_ENTRIES},
    "new": {"light": "Tc", "heavy": "Th"},
    "waiting": {"light": "Zc", "heavy": "Zh"},
    "any": {"light": "Uc"},
}
"""Axes of a step for compressed tokens: all compressed keys, those completed in the step, tokens that wait for the next
one, and `any`: 1 if there is a compressed key, else 0."""
OF_COMPRESSED = [axis for named in COMPRESSED.values() for axis in named.values()]
OF_STEPS = frozenset((*AXES, CHUNKS, ONE_BY_ONE, PATCHES, MERGED, TILES, *OF_WINDOWS, POSITIONS, *OF_COMPRESSED))
"""Axes of a step, which no weight has."""

LARGEST = 10**12
"""Largest size that is accepted; a larger one is assumed to be a typo."""
TRAINING_RUN = 10**9
"""Tokens from which on a number is probably that of a training run, not of a sequence."""

Logits = Literal["all", "last"]


@record
class Workload:
    """One forward pass of `batch` sequences with `tokens` new tokens; `context` includes them.

    Prefill: all tokens are new, and every position gets logits:

    >>> Workload(context=8192, tokens=8192).axes()
    {'B': 1, 'T': 8192, 'S': 8192, 'O': 8192, 'I': 0, 'J': 0}

    A decode step: one new token, and the same context after it:

    >>> Workload(context=8192, tokens=1).axes()
    {'B': 1, 'T': 1, 'S': 8192, 'O': 1, 'I': 0, 'J': 0}

    An encoder reads a source once. After the prefill, its tokens are visible and none is new:

    >>> Workload(context=20, tokens=1, source=512, new_source=0).axes()["J"]
    512

    `logits`: positions with logits, or None if there are none. Sizes may be ints, arrays or symbols; `Request` checks
    sizes given by a user.
    """

    context: Any
    tokens: Any
    batch: Any = 1
    logits: Logits | None = "all"
    source: Any = 0
    new_source: Any = 0

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes by the reference model's names."""
        step = {"batch": self.batch, "tokens": self.tokens, "context": self.context}
        return {**step, "source": self.source, "new_source": self.new_source}

    def axes(self) -> dict[str, Any]:
        """Sizes of the axes B, T, S, O, I and J."""
        outputs = 1 if self.logits == "last" else self.tokens
        step = {"B": self.batch, "T": self.tokens, "S": self.context, "O": outputs}
        return {**step, "I": self.new_source, "J": self.source}


@record
class Request:
    """A workload as a user gives it; missing sizes default to the model's.

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
            if value is not None or name == "batch":
                check_size(option(name), value)
        if self.logits not in ("all", "last"):
            raise UsageError(f"{option('logits')} must be all or last, not {self.logits!r}")
        if self.decode and self.tokens not in (None, 1):
            problem = f"{option('decode')} means one new token, but {option('tokens')} is {self.tokens:,}"
            raise UsageError(problem, "leave one of the two out")

    @property
    def new(self) -> int | None:
        """The number of new tokens, 1 in a decode step; None if the whole context is new."""
        return 1 if self.decode else self.tokens

    def workload(self, longest: int, *, source: int | None = None, has_cache: bool = True) -> Workload:
        """Return the workload for a model whose longest context is `longest` positions.

        `source`: longest source of the encoder, None without one. `has_cache`: the model has a cache; if not, every
        step processes the whole context. Raises UsageError for a step that the model cannot run.
        """
        context = longest if self.ctx is None else self.ctx
        tokens = context if self.new is None else self.new
        if source is None and self.source is not None:
            raise UsageError(f"there is no encoder, so {option('source')} does not apply", "leave it out")
        if not has_cache and tokens != context:
            raise UsageError(
                "nothing is cached between steps, so each step runs the whole context, not"
                f" {units.number_of(tokens, 'new token')} of {context:,}",
                f"leave {option('decode')} and {option('tokens')} out",
            )
        if tokens > context:
            raise UsageError(
                f"{option('tokens', tokens)} exceeds the context {context:,}",
                f"use {option('ctx', tokens)} or more: the context includes the new tokens"
                if tokens < TRAINING_RUN
                else f"`tfacct budget MODEL {option('tokens', tokens)}` counts a training run",
            )
        seen = 0 if source is None else source if self.source is None else self.source
        new = seen if tokens == context else 0
        return Workload(context, tokens, self.batch, self.logits, seen, new)


def sequences_only(name: str, value: str | None = None, *, does: str = "counts") -> UsageError:
    """Error for an option that works with whole sequences only."""
    step = f"{option('decode')} or {option('tokens')}"
    return UsageError(f"{option(name, value)} {does} whole sequences; it does not work with {step}")


def check_size(what: str, value: object, most: int = LARGEST) -> None:
    """Check a size that a user gave. Raises UsageError for anything but a whole number from 1 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} must be a whole number, not {value!r}")
    if value < 1:
        raise UsageError(f"{what} must be at least 1, not {value:,}")
    if value > most:
        raise UsageError(f"{what} must be at most {most:,}, not {value:,}")
