"""Metrics at up to millions of points: the same ledger with numpy arrays for sizes.

In float64 the relative error is at most 10⁻¹⁵, because the ledger multiplies and adds ints first. It is at most 2 ·
10⁻¹⁵ for models with an encoder, and for bytes moved and FLOPs per byte, which are sums over lines. With `exact`,
arrays have Python's ints and fractions of any size.

Arrays of other libraries that implement numpy's protocols are supported; results are arrays of the same library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import add, or_
from typing import TYPE_CHECKING, Any

from tfacct.accounts.metrics import Metric, Point, moved
from tfacct.algebra import protocols
from tfacct.algebra.symbols import layer_axes, size_axes, with_sizes
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import MissingExtraError, NotFoundError, UsageError, nearest
from tfacct.ledger.einsum import Size

if TYPE_CHECKING:
    import numpy as np

WORKLOAD = ("ctx", "tokens", "batch")
KV_HEADS = "num_key_value_heads"
AT_ONCE = 1 << 14
"""Points per batch: few enough that arrays stay in the processor's cache."""
NEAR = 1e-12
"""Relative difference of FLOPs below which two alternatives of a step are compared in exact numbers."""


def evaluate(
    metric: Metric, shape: Transformer, point: Point, variables: Mapping[str, Any], *, exact: bool
) -> np.ndarray:
    """Array of the metric for these variables (arrays by name), which are broadcast together.

    Variables: ctx, tokens (default: all of the context), batch, num_key_value_heads (query heads are unchanged), and
    the axes of the model's sizes and L. Arrays of another library give an array of that library. Raises UsageError.
    Needs numpy.
    """
    try:
        import numpy as np
    except ImportError:
        raise MissingExtraError("arrays need numpy", "arrays") from None
    _check_names(shape, point, variables)
    if metric.of_step or any(protocols.foreign(np, values) for values in variables.values()):
        found: np.ndarray[Any, Any] = (
            _point_by_point(np, metric, point, variables, exact)
            if metric.of_step
            else _other_library(np, metric, shape, point, variables, exact)
        )
        return found
    given = {name: _checked(np, name, values, exact) for name, values in variables.items()}
    broadcast = np.broadcast_shapes(*(values.shape for values in given.values()))
    for wrong, error in _invalid_combinations(shape, point, given):
        if np.any(wrong):
            raise error
    flat = {name: np.broadcast_to(values, broadcast).reshape(-1) for name, values in given.items()}
    result = np.empty(flat[next(iter(flat))].shape, dtype=object if exact else np.float64)
    for start in range(0, result.size, AT_ONCE):
        some = slice(start, start + AT_ONCE)
        result[some] = _cheapest(np, metric, shape, point, {name: values[some] for name, values in flat.items()})
    return result.reshape(broadcast)


def _point_by_point(np: Any, metric: Metric, point: Point, variables: Mapping[str, Any], exact: bool) -> Any:
    """Array of a metric of a training step, evaluated point by point, because the peak is a maximum."""
    if others := [name for name in variables if name not in ("ctx", "batch")]:
        raise UsageError(
            f"{metric.name} takes arrays of ctx and batch, not of {others[0]}", "`sweep` varies config fields"
        )
    if any(protocols.foreign(np, values) for values in variables.values()):
        raise UsageError(f"{metric.name} takes arrays of numpy, or lists")
    given = [_checked(np, name, values, True) for name, values in variables.items()]
    many = np.broadcast(*given)
    names = [{"ctx": "context"}.get(name, name) for name in variables]

    def at(*sizes: int) -> Size:
        changes = dict(zip(names, sizes, strict=True))
        return metric.of(moved(point, **changes, **({"tokens": changes["context"]} if "context" in changes else {})))

    found = [at(*(sizes if isinstance(sizes, tuple) else (sizes,))) for sizes in many]
    return np.array(found, dtype=object if exact else np.float64).reshape(many.shape)


def _other_library(
    np: Any, metric: Metric, shape: Transformer, point: Point, variables: Mapping[str, Any], exact: bool
) -> Any:
    """Array of another library, computed with its operations; lazy arrays are not evaluated.

    So values cannot be rejected: an invalid size gives nan, and so does a point where float64 cannot decide which of
    two alternatives takes fewer FLOPs.
    """
    if exact:
        raise UsageError("exact results need Python integers: pass numpy arrays or lists")
    xp = protocols.namespace(*variables.values())
    given = {
        name: protocols.floats(xp, name, values if protocols.foreign(np, values) else _checked(np, name, values, False))
        for name, values in variables.items()
    }
    wrong = [(values < 1) | (values != xp.floor(values)) for values in given.values()]
    wrong += [found for found, _ in _invalid_combinations(shape, point, given)]
    zero = 0 * reduce(add, given.values())  # has the broadcast shape of all variables
    there = _varied(shape, point, given)
    if there.ledger.instead is None:
        value = zero + metric.of(there)
    else:
        one, other = (replace(there, ledger=way) for way in there.ledger.ways)
        apart = _forward(one) - _forward(other)
        value = xp.where(apart <= 0, zero + metric.of(one), zero + metric.of(other))
        wrong.append(abs(apart) <= NEAR * _forward(one))
    return xp.where(reduce(or_, wrong), xp.nan, value)


def _cheapest(np: Any, metric: Metric, shape: Transformer, point: Point, variables: Mapping[str, Any]) -> Any:
    """Array of the metric, with the alternative that takes fewer FLOPs at each point."""
    there = _varied(shape, point, variables)
    if there.ledger.instead is None:
        return metric.of(there)
    one, other = (replace(there, ledger=way) for way in there.ledger.ways)
    size = next(iter(variables.values())).shape
    first = np.broadcast_to(_fewer(np, one, other), size)
    near = np.broadcast_to(abs(_forward(one) - _forward(other)) <= NEAR * _forward(one), size).astype(bool)
    if np.any(near):  # compare exactly where float64 cannot decide
        at = _varied(shape, point, {name: _exact(np, values[near]) for name, values in variables.items()})
        first = first.copy()
        first[near] = _fewer(np, *(replace(at, ledger=way) for way in at.ledger.ways))
    return np.where(first, metric.of(one), metric.of(other))


def _forward(point: Point) -> Any:
    return point.ledger.total_flops(point.at, masked=point.masked)


def _fewer(np: Any, one: Point, other: Point) -> Any:
    """Array that is True where the first alternative takes at most as many FLOPs as the second."""
    return np.asarray(_forward(one) <= _forward(other), dtype=bool)


def _varied(shape: Transformer, point: Point, variables: Mapping[str, Size]) -> Point:
    """Point with arrays for the varied sizes."""
    work = point.work
    if "ctx" in variables:
        context = variables["ctx"]
        work = replace(work, context=context, tokens=context if work.tokens == work.context else work.tokens)
    if "tokens" in variables:  # a later step: the encoder has already run
        work = replace(work, tokens=variables["tokens"], new_source=0)
    work = replace(work, batch=variables.get("batch", work.batch))
    sizes = {name: values for name, values in variables.items() if name not in (*WORKLOAD, KV_HEADS)}
    if sizes:
        fixed = frozenset((*size_axes(shape), *layer_axes(shape))) - frozenset(sizes)
        shape = with_sizes(shape, sizes.__getitem__, fixed)
    if KV_HEADS in variables:
        shape = shape.with_kv_heads(variables[KV_HEADS])
    return replace(point, work=work, ledger=shape.ledger() if sizes or KV_HEADS in variables else point.ledger)


def _check_names(shape: Transformer, point: Point, variables: Mapping[str, Any]) -> None:
    known = [*WORKLOAD, KV_HEADS, *layer_axes(shape), *size_axes(shape)]
    for name in variables:
        if name not in known:
            hint = "tokens=1 counts a decode step" if name == "decode" else nearest(name, known)
            raise NotFoundError(f"no argument {name!r}", hint or f"variables: {', '.join(known)}")
    if "K" in variables and KV_HEADS in variables:
        raise UsageError(f"K and {KV_HEADS} are the same: give only one")
    if point.train and "tokens" in variables:
        raise UsageError("a training step runs whole sequences: leave tokens out")
    if not variables:
        raise UsageError("no argument varies", f"variables: {', '.join(known)}")


def _invalid_combinations(
    shape: Transformer, point: Point, given: Mapping[str, Any]
) -> Iterator[tuple[Any, UsageError]]:
    """Arrays of booleans for invalid combinations of sizes, each with its error."""
    context, tokens = given.get("ctx", point.work.context), given.get("tokens")
    if tokens is not None:
        yield tokens > context, UsageError("tokens must not exceed the context")
    for heads in shape.query_heads if KV_HEADS in given else ():
        yield heads % given[KV_HEADS] != 0, UsageError(f"{KV_HEADS} must divide the {heads:,} query heads")
    declared = shape.declared_axes()
    sizes = {**shape.axis_sizes(), **given}
    for name, axis in declared.items():
        if name in given:
            sentence = f"{name} must be even: the rotary embedding rotates elements in pairs"
            yield given[name] % axis.multiple != 0, UsageError(sentence)
        if axis.at_most is not None and {name, axis.at_most} & given.keys():
            outer = declared[axis.at_most].meaning
            sentence = f"{name} ({axis.meaning}) is more than {axis.at_most} ({outer})"
            yield sizes[name] > sizes[axis.at_most], UsageError(sentence)


def _checked(np: Any, name: str, values: Any, exact: bool) -> Any:
    """Whole numbers of at least 1, as float64 or, if `exact`, as Python ints. Raises UsageError."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise UsageError(f"{name} must be an array, not {values!r}") from None
    kind = array.dtype.kind
    for value in array.ravel().tolist() if kind not in "iu" else ():
        if kind not in "fO" or not _is_whole(value):
            raise UsageError(f"{name} must be whole numbers, not {value!r}")
    if array.size and array.min() < 1:
        raise UsageError(f"{name} must be at least 1, not {array.min():,}")
    if not exact:
        return array.astype(np.float64)
    return _exact(np, array)


def _exact(np: Any, array: Any) -> Any:
    """Array of Python ints, which never wrap."""
    integers = np.empty(array.shape, dtype=object)
    integers[...] = np.frompyfunc(int, 1, 1)(array)
    return integers


def _is_whole(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and bool(value == int(value))
    except (TypeError, ValueError, OverflowError):
        return False
