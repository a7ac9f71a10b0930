"""A metric at a million points: the same ledger with numpy arrays for sizes.

In float64 every value is within 10⁻¹⁵ of the exact one: the ledger multiplies and adds whole numbers first, so that an
array meets few roundings. (That is relative. It is 2 · 10⁻¹⁵ for models with an encoder, and for the bytes that move
and FLOPs per byte, which are sums over lines.) With `exact` the arrays hold Python's ints and fractions, of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfacct.accounts.metrics import Metric, Point
from tfacct.algebra.symbols import block_letters, size_letters, with_sizes
from tfacct.architecture import letters
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import MissingExtraError, NotFoundError, UsageError, nearest
from tfacct.ledger.einsum import Size

if TYPE_CHECKING:
    import numpy as np

WORKLOAD = ("ctx", "tokens", "batch")
KV_HEADS = "num_key_value_heads"
AT_ONCE = 1 << 14
"""Points evaluated together: their arrays stay in the processor's cache."""
NEAR = 1e-12
"""Two ways of a step whose FLOPs differ by less than this part of them are compared in whole numbers."""


def evaluate(metric: Metric, shape: Transformer, point: Point, knobs: Mapping[str, Any], *, exact: bool) -> np.ndarray:
    """Array of the metric at every element of the knobs, which are broadcast against each other.

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
        result[some] = _settled(np, metric, shape, point, {name: values[some] for name, values in flat.items()})
    return result.reshape(whole)


def _settled(np: Any, metric: Metric, shape: Transformer, point: Point, knobs: Mapping[str, Any]) -> Any:
    """Array of the metric, each point run the way that takes fewer FLOPs there."""
    there = _placed(shape, point, knobs)
    if there.ledger.instead is None:
        return metric.of(there)
    one, other = (replace(there, ledger=way) for way in there.ledger.ways)
    size = next(iter(knobs.values())).shape
    first = np.broadcast_to(_fewer(np, one, other), size)
    near = np.broadcast_to(abs(_forward(one) - _forward(other)) <= NEAR * _forward(one), size).astype(bool)
    if np.any(near):  # whole numbers decide where float64 cannot
        at = _placed(shape, point, {name: _exact(np, values[near]) for name, values in knobs.items()})
        first = first.copy()
        first[near] = _fewer(np, *(replace(at, ledger=way) for way in at.ledger.ways))
    return np.where(first, metric.of(one), metric.of(other))


def _forward(point: Point) -> Any:
    return point.ledger.total_flops(point.at, masked=point.masked)


def _fewer(np: Any, one: Point, other: Point) -> Any:
    """Array that is True where the first way takes no more FLOPs than the second."""
    return np.asarray(_forward(one) <= _forward(other), dtype=bool)


def _placed(shape: Transformer, point: Point, knobs: Mapping[str, Size]) -> Point:
    """Point with arrays for the sizes that are varied."""
    work = point.work
    if "ctx" in knobs:
        work = replace(work, context=knobs["ctx"], tokens=knobs["ctx"] if work.tokens == work.context else work.tokens)
    if "tokens" in knobs:  # a step for some of the tokens: the source has been read
        work = replace(work, tokens=knobs["tokens"], new_source=0)
    work = replace(work, batch=knobs.get("batch", work.batch))
    sizes = {name: values for name, values in knobs.items() if name not in (*WORKLOAD, KV_HEADS)}
    if sizes:
        fixed = frozenset((*size_letters(shape), *block_letters(shape))) - frozenset(sizes)
        shape = with_sizes(shape, sizes.__getitem__, fixed)
    if KV_HEADS in knobs:
        shape = shape.with_kv_heads(knobs[KV_HEADS])
    return replace(point, work=work, ledger=shape.ledger() if sizes or KV_HEADS in knobs else point.ledger)


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
    """Check sizes against each other, as the other commands do. Raises UsageError."""
    context, tokens = given.get("ctx", point.work.context), given.get("tokens")
    if tokens is not None and np.any(tokens > context):
        raise UsageError("tokens are more than the context that holds them")
    if point.train and tokens is not None:
        raise UsageError("a training step takes whole sequences: leave tokens out")
    for heads in shape.query_heads if KV_HEADS in given else ():
        if np.any(heads % given[KV_HEADS] != 0):
            raise UsageError(f"{KV_HEADS} must divide the {heads:,} query heads")
    declared = letters.explained(shape)
    sizes = {**letters.sizes(shape), **given}
    for name, letter in declared.items():
        if name in given and np.any(given[name] % letter.multiple != 0):
            raise UsageError(f"{name} must be even: rotary positions turn a head's numbers in pairs")
        if letter.at_most is not None and np.any(sizes[name] > sizes[letter.at_most]):
            outer = declared[letter.at_most].meaning
            raise UsageError(f"{name} ({letter.meaning}) is more than {letter.at_most} ({outer})")


def _checked(np: Any, name: str, values: Any, exact: bool) -> Any:
    """Whole numbers of at least 1, as float64 or as Python's own."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and not (array.dtype.kind in "fO" and _all(array, _is_whole)):
        raise UsageError(f"{name} must be whole numbers, not {array.dtype}")
    if array.size and array.min() < 1:
        raise UsageError(f"{name} must be at least 1, not {array.min():,}")
    if not exact:
        return array.astype(np.float64)
    return _exact(np, array)


def _exact(np: Any, array: Any) -> Any:
    """Array of Python's own ints, which never wrap."""
    whole = np.empty(array.shape, dtype=object)
    whole[...] = np.frompyfunc(int, 1, 1)(array)
    return whole


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and bool(value == int(value))


def _all(array: Any, test: Callable[[Any], bool]) -> bool:
    try:
        return all(test(value) for value in array.flat)
    except (TypeError, ValueError, OverflowError):
        return False
