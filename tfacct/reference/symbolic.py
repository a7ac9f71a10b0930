"""Counts of the reference model with symbolic sizes: torch's counter then returns a polynomial.

Uses a private interface of torch (fake tensors with symbolic sizes). `guards` are the assumptions that torch made about
the symbols: without any, the polynomial is valid for all sizes of at least 2. Smaller sizes are fixed in separate runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from sympy import Eq, Integer, Ne, cancel, factor_list
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import Mod, PythonMod
from torch.utils._sympy.value_ranges import bound_sympy

from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.meta.kernels import of_symbols
from tfacct.reference.counting import PrivateInterfaceError, passes
from tfacct.reference.model import Decoder, inputs


@record
class Polynomials:
    """Counts as sympy expressions in `symbols` (axis → symbol), and the assumptions made."""

    counts: dict[str, Any]
    symbols: dict[str, Any]
    guards: list[str]


@of_symbols()
def polynomials(
    open_shape: Callable[[Callable[[str], Any]], Transformer],
    axis_names: Iterable[str],
    fixed: Mapping[str, int] | None = None,
    factors: Mapping[str, Sequence[int | str]] | None = None,
    rests: Mapping[str, Sequence[str | int]] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> Polynomials:
    """Forward and backward FLOPs, parameters and cached elements of a model with symbolic sizes.

    `open_shape` builds the model from a size for each of `axis_names`. The workload's axes are B, T and C, the cached
    tokens, with Cw of them in a window, and J, the source that is read, or, with `fixed` I = 0, was read earlier. A
    symbol is a size of at least 2, or in its range; sizes in `fixed` are numbers instead. A size with factors (numbers
    or other axes) is their product with its symbol; a size with rests is the sum of its symbol and those sizes or
    numbers.
    """
    fixed = fixed or {}
    env, axis_sizes, mode = _opened(axis_names, fixed, ranges)
    sizes = _sizes(axis_sizes, fixed, factors or {}, rests or {})
    shape = open_shape(sizes.__getitem__)
    with mode:
        model = Decoder(shape, keep_all=True)
        tokens, source = sizes["T"], sizes.get("J", 0)
        given = inputs(
            shape,
            batch=sizes["B"],
            tokens=tokens,
            context=sizes["C"] + tokens if "C" in sizes else tokens,
            in_window=sizes.get("Cw"),
            source=source,
            new_source=fixed.get("I", source),
            device="cpu",
        )
        ran = passes(model, given)
        params = sum(parameter.numel() for parameter in model.parameters())
        cached = sum(cache.numel() for cache in ran.caches)
    counts = {"forward": ran.forward, "backward": ran.backward, "parameters": params, "cached": cached}
    return _found(env, axis_sizes, fixed, counts)


def _opened(
    axis_names: Iterable[str], fixed: Mapping[str, int], ranges: Mapping[str, tuple[int, int]] | None = None
) -> tuple[ShapeEnv, dict[str, Any], FakeTensorMode]:
    """A symbolic environment: a size for each axis, which is a symbol unless it is fixed, and the mode of fake
    tensors."""
    try:
        env = ShapeEnv(duck_shape=False)  # two symbols with the same example value are still different
        axis_sizes = {
            axis: fixed[axis] if axis in fixed else _symbol(env, axis, 2 * hint + 3, (ranges or {}).get(axis))
            for hint, axis in enumerate(axis_names)
        }
        mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
        mode.cache_enabled = False  # there are no equal tensors here, and searching for them takes half of the time
    except (AttributeError, TypeError) as error:
        raise PrivateInterfaceError(str(error)) from error
    return env, axis_sizes, mode


def _found(
    env: ShapeEnv, axis_sizes: Mapping[str, Any], fixed: Mapping[str, int], counts: Mapping[str, Any]
) -> Polynomials:
    return Polynomials(
        counts={name: _expression(count) for name, count in counts.items()},
        symbols={axis: _expression(size) for axis, size in axis_sizes.items() if axis not in fixed},
        guards=[str(guard.expr) for guard in env.guards if not _known(guard.expr, env)],
    )


def _known(guard: Any, env: ShapeEnv) -> bool:
    """True for two sizes that differ for all values of the symbols: no factor of their difference can be 0, which torch
    does not check. Also for a size that is an integer multiple of another one."""
    if isinstance(guard, Eq) and guard.rhs == 0 and isinstance(guard.lhs, (Mod, PythonMod)):
        times = cancel(guard.lhs.args[0] / guard.lhs.args[1])
        return bool(times.is_polynomial()) and all(one.is_integer for one in times.as_coefficients_dict().values())
    if not isinstance(guard, Ne):
        return False
    _, factors = factor_list(guard.lhs - guard.rhs)
    return all(0 not in bound_sympy(factor, env.var_to_range) for factor, _ in factors)


def _sizes(
    axis_sizes: Mapping[str, Any],
    fixed: Mapping[str, int],
    factors: Mapping[str, Sequence[int | str]],
    rests: Mapping[str, Sequence[str | int]],
) -> dict[str, Any]:
    """The sizes in terms of the symbols: multiples of numbers, then sums, then multiples of other sizes."""
    sizes, there = dict(axis_sizes), [axis for axis in axis_sizes if axis not in fixed]
    for axis in there:
        sizes[axis] = prod((n for n in factors.get(axis, ()) if isinstance(n, int)), start=axis_sizes[axis])
    for axis in (axis for axis in there if axis in rests):
        shares = (one if isinstance(one, int) else sizes[one] for one in rests[axis])
        sizes[axis] = sum(shares, start=sizes[axis])
    for axis in there:
        sizes[axis] = prod((sizes[n] for n in factors.get(axis, ()) if isinstance(n, str)), start=sizes[axis])
    return sizes


def _expression(size: Any) -> Any:
    """The sympy expression of a symbolic integer; a plain integer is returned unchanged."""
    return Integer(size) if isinstance(size, int) else size.node.expr


def _symbol(env: ShapeEnv, axis: str, hint: int, within: tuple[int, int] | None) -> Any:
    source = ConstantSource(axis)
    symbol = env.create_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    if within is not None:
        env.constrain_symbol_range(symbol, *within)
    return env.create_symintnode(symbol, hint=hint, source=source)
