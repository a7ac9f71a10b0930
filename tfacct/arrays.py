"""A metric at a million points: the same ledger with numpy arrays for sizes.

In float64 every value is within 10⁻¹⁵ of the exact one (relative; 2 · 10⁻¹⁵ for the bytes that move and FLOPs per byte,
which are sums over lines): the ledger multiplies and adds whole numbers first, so that an array meets few roundings.
With `exact` the arrays hold Python's ints and fractions, of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfacct.architecture import Transformer
from tfacct.errors import MissingExtraError, NotFoundError, UsageError, nearest
from tfacct.metrics import Metric, Point
from tfacct.notation import Size
from tfacct.symbols import block_letters, size_letters, with_sizes

if TYPE_CHECKING:
    import numpy as np

WORKLOAD = ("ctx", "tokens", "batch")
KV_HEADS = "num_key_value_heads"
AT_ONCE = 1 << 14
"""Points evaluated together: their arrays stay in the processor's cache."""


def evaluate(metric: Metric, shape: Transformer, point: Point, knobs: Mapping[str, Any], *, exact: bool) -> np.ndarray:
    """The metric at every element of the knobs, which are broadcast against each other.

    Knobs: ctx, tokens (default: all of the context), batch, num_key_value_heads (the query heads stay), and the letters
    of the model's sizes and L. Raises UsageError. Needs numpy.
    """
    try:
        import numpy as np
    except ImportError:
        raise MissingExtraError("arrays need numpy", MissingExtraError.ARRAYS) from None
    _check_names(shape, knobs)
    given = {name: _checked(np, name, values, exact) for name, values in knobs.items()}
    whole = np.broadcast_shapes(*(values.shape for values in given.values()))
    _check_together(np, shape, point, given)
    flat = {name: np.broadcast_to(values, whole).reshape(-1) for name, values in given.items()}
    result = np.empty(flat[next(iter(flat))].shape if flat else (1,), dtype=object if exact else np.float64)
    for start in range(0, result.size, AT_ONCE):
        some = slice(start, start + AT_ONCE)
        result[some] = metric.of(_placed(shape, point, {name: values[some] for name, values in flat.items()}))
    return result.reshape(whole)


def _placed(shape: Transformer, point: Point, knobs: Mapping[str, Size]) -> Point:
    """The point with arrays for what is varied."""
    work = point.work
    if "ctx" in knobs:
        work = replace(work, context=knobs["ctx"], tokens=knobs["ctx"] if work.tokens == work.context else work.tokens)
    if "tokens" in knobs:  # a step for some of the tokens: the source has been read
        work = replace(work, tokens=knobs["tokens"], new_source=0)
    work = replace(work, batch=knobs.get("batch", work.batch))
    letters = {name: values for name, values in knobs.items() if name not in (*WORKLOAD, KV_HEADS)}
    if letters:
        fixed = frozenset((*size_letters(shape), *block_letters(shape))) - frozenset(letters)
        shape = with_sizes(shape, letters.__getitem__, fixed)
    if KV_HEADS in knobs:
        shape = shape.with_kv_heads(knobs[KV_HEADS])
    return replace(point, work=work, ledger=shape.ledger() if letters or KV_HEADS in knobs else point.ledger)


def _check_names(shape: Transformer, knobs: Mapping[str, Any]) -> None:
    known = [*WORKLOAD, KV_HEADS, *block_letters(shape), *size_letters(shape)]
    for name in knobs:
        if name not in known:
            raise NotFoundError(f"no knob {name!r}", nearest(name, known) or f"knobs: {', '.join(known)}")
    if "K" in knobs and KV_HEADS in knobs:
        raise UsageError(f"K and {KV_HEADS} are the same: give one")
    if not knobs:
        raise UsageError("nothing varies", f"knobs: {', '.join(known)}")


def _check_together(np: Any, shape: Transformer, point: Point, given: Mapping[str, Any]) -> None:
    """Refuse what no model and no step can be, as the other commands do."""
    context, tokens = given.get("ctx", point.work.context), given.get("tokens")
    if tokens is not None and np.any(tokens > context):
        raise UsageError("tokens are more than the context that holds them")
    if point.train and tokens is not None:
        raise UsageError("a training step takes whole sequences: leave tokens out")
    heads = shape.attention.heads
    if KV_HEADS in given and np.any(heads % given[KV_HEADS] != 0):
        raise UsageError(f"{KV_HEADS} must divide the {heads:,} query heads")
    turned = "Hr" if "Hr" in shape.attention.axes() else "H"
    if turned in given and shape.attention.rotary is not None and np.any(given[turned] % 2 != 0):
        raise UsageError(f"{turned} must be even: rotary positions turn a head's numbers in pairs")
    if np.any(given.get("A", largest_of(shape, "A")) > given.get("E", largest_of(shape, "E"))):
        raise UsageError("A, the experts of a token, are more than the experts E there are")


def largest_of(shape: Transformer, letter: str) -> Size:
    """The largest size that the parts have for a letter; 1 where none has one."""
    return max((axes[letter] for part in shape.parts() if letter in (axes := part.axes())), default=1)


def _checked(np: Any, name: str, values: Any, exact: bool) -> Any:
    """Whole numbers of at least 1, as float64 or as Python's own."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and not (array.dtype.kind in "fO" and _all(array, _is_whole)):
        raise UsageError(f"{name} must be whole numbers, not {array.dtype}")
    if array.size and array.min() < 1:
        raise UsageError(f"{name} must be at least 1, not {array.min():,}")
    if not exact:
        return array.astype(np.float64)
    whole = np.empty(array.shape, dtype=object)
    whole[...] = np.frompyfunc(int, 1, 1)(array)  # Python's own, which never wrap
    return whole


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and bool(value == int(value))


def _all(array: Any, test: Callable[[Any], bool]) -> bool:
    try:
        return all(test(value) for value in array.flat)
    except (TypeError, ValueError, OverflowError):
        return False
