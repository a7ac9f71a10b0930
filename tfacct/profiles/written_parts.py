"""What blocks that are written out are made of: how a class runs, its parts by their places, norms, products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from tfacct.architecture.parts import Attention, FeedForward, Norm, QKNorm
from tfacct.ledger import paths
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.adapters_parts import RANK
from tfacct.profiles.base import Habits
from tfacct.profiles.written import Node, Trace, Value
from tfacct.profiles.written_operations import Weights
from tfacct.profiles.written_storage import Axes, Joint

R = TypeVar("R")
LETTERS = {"q": "N", "k": "K", "v": "K"}
"""What heads of queries, keys and values are counted by."""
ATTN, NETWORK = (paths.in_every(paths.BLOCKS, name) for name in ("attn", "mlp"))


class Parts(NamedTuple):
    """Parts of a block, each behind its norm. Without a second norm both read what the first gives."""

    attn_norm: Norm
    attn: Attention
    mlp_norm: Norm | None
    mlp: FeedForward


class How(NamedTuple):
    """How a class runs. `turn`: the operation that turns queries and keys; `masks`: torch's attention is handed one,
    whose rows need no padding if `aligned`. `again`: attention runs again. `seen`: every
    token sees all others, so eager attention has no mask."""

    attention: Literal["sdpa", "eager"]
    habits: Habits
    weights: Weights
    turn: str = ""
    masks: bool = False
    aligned: bool = True
    again: bool = False
    seen: bool = False

    @property
    def conv(self) -> bool:
        """True if products are of GPT-2's own class."""
        return self.habits.hands_mask


def norm(t: Trace, how: How, x: Value, name: str, part: Norm) -> Value:
    """A norm of the stream."""
    if part.kind == "rms":
        return rms(t, how, x, name, ("D",), part)
    return ops.layer_norm(t, x, name, trained=how.weights.trained and part.learned != "none")


def rms(t: Trace, how: How, x: Value, name: str, each: Axes, part: Norm | QKNorm) -> Value:
    """RMSNorm of some axes."""
    wide = part.less_one or how.habits.wide_norms
    return ops.rms_norm(t, x, name, each, trained=how.weights.trained, late_cast=wide, less_one=part.less_one)


def product(t: Trace, how: How, x: Value, name: str, makes: Axes, *, bias: bool = False) -> Value:
    """A product with a weight, and with its adapter, if it has one."""
    weights = how.weights
    if name not in weights.on:
        return ops.linear(t, x, name, makes, trained=weights.trained, bias=bias, conv=how.conv)
    result = ops.linear(t, x, name, makes, trained=False, bias=bias, conv=how.conv)
    down, _wide = _narrowed(t, how, x, name)
    up = ops.linear(t, down, f"{name}.lora_B", makes)
    del down
    more = ops.scaled(t, up)
    del up
    return ops.total(t, result, more, name)


def products(
    t: Trace, how: How, x: Value, parts: Sequence[tuple[str, Axes]], laid: Axes, *, bias: bool = False
) -> tuple[Joint, Node | None]:
    """The same of several weights in one, which have one adapter."""
    weights, name = how.weights, parts[0][0]
    whole = views.products(t, x, parts, laid, bias=bias, conv=how.conv, trained=weights.trained)
    if name not in weights.on:
        return whole
    return lent(t, how, x, whole, parts, laid)


def lent(
    t: Trace, how: How, x: Value, whole: tuple[Joint, Node | None], parts: Sequence[tuple[str, Axes]], laid: Axes
) -> tuple[Joint, Node | None]:
    """What products in one make, and what their adapter adds."""
    down, _wide = _narrowed(t, how, x, parts[0][0])
    more = views.products(t, down, [(f"{path}.lora_B", makes) for path, makes in parts], laid)
    del down
    made, node = more
    del more
    many = views.multiple(t, made, node)
    del made
    return views.summed(t, whole, many, parts)


def _narrowed(t: Trace, how: How, x: Value, name: str) -> tuple[Value, Value]:
    """What an adapter makes first of what its product reads, and that in fp32, which it has to its end."""
    wide = ops.cast(t, x, "full", f"{name}.lora_in")
    read = ops.dropout(t, wide, f"{name}.lora_drop") if how.weights.drops else wide
    return ops.linear(t, read, f"{name}.lora_A", (RANK,)), wide


def dropped(t: Trace, how: How, x: Value, at: str) -> Value:
    """A part's result, numbers of it dropped where the class does."""
    return ops.dropout(t, x, f"{at}.drop") if how.habits.residual else x


def again(t: Trace, how: How, x: Value, run: Callable[[Trace, Value], R]) -> R:
    """Attention, which may run again."""
    return t.rerun(x, run) if how.again else run(t, x)
