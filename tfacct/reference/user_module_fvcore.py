"""A second count of a user's module by fvcore, if fvcore counts all its matmuls."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout
from copy import deepcopy
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tfacct.reference.counting import POINTWISE
from tfacct.reference.watching import as_meta, evaluating, inputs, state, unlogged

FUSED = "aten::scaled_dot_product_attention"
PRODUCTS = ("linear", "matmul", "bmm", "addmm", "einsum", "conv", FUSED.removeprefix("aten::"))
"""Names of the operators whose multiply-adds fvcore counts, without norms, which it also counts."""
NO_PRODUCTS = POINTWISE | {
    f"aten::{name}"
    for name in """
    masked_fill_ tril_ triu_ cumsum repeat_interleave zeros_like full_like index_put_ copy_ fill_ dropout type_as
    scaled_tanh new_ones new_zeros index index_add index_add_ topk one_hot scatter scatter_ histc argmax
    """.split()
}
"""Operators that fvcore skips, that are not matmuls and that torch does not declare pointwise. With any other skipped
operator, only the first counter is used."""


class _Called(nn.Module):
    """A module with named inputs in order and only tensors as result, as a trace requires. It is a copy on meta,
    because fvcore leaves hooks in the module."""

    def __init__(self, module: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names = names
        memo: dict[int, Any] = {id(one): as_meta(one) for _, one in state(module)}
        self.module = deepcopy(module, memo).eval()

    def forward(self, *given: Tensor) -> Any:
        plain = len(given) - len(self.names)
        out = self.module(*given[:plain], **dict(zip(self.names, given[plain:], strict=True)))
        found = tuple(leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        self.returns_tensors = bool(found)
        return found


def _fused(given: Any, _: Any) -> int:
    """Multiply-adds of scores and values, T × S: fvcore has no rule for the fused kernel."""
    query, key, value = (tuple(one.type().sizes()) for one in given[:3])
    return int(prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


def _einsum(given: Any, _: Any) -> int:
    """Multiply-adds of an einsum of two operands: fvcore's own rule rounds them to four digits."""
    equation, _, out = given[0].toIValue().replace(" ", "").partition("->")
    terms, operands = equation.split(","), [one.type().sizes() for one in given[1].node().inputs()]
    if len(terms) > 2:
        raise NotImplementedError
    sizes: list[dict[str, int]] = []
    for term, shape in zip(terms, operands, strict=True):
        named = len(term.replace("...", ""))
        batch = "0123456789"[named - len(shape) or 10 :]  # axes of the ellipsis, counted from the last
        sizes.append(dict(zip(term.replace("...", batch), shape, strict=True)))
    both = {axis: max(one.get(axis, 1) for one in sizes) for one in sizes for axis in one}
    shown = set(out.replace("...", "0123456789") or both)
    products = (size for axis, size in both.items() if axis in shown or all(axis in one for one in sizes))
    return prod(products) if len(terms) == 2 else 0  # an axis of one operand alone is summed before


def multiply_adds(module: nn.Module, batch: int, tokens: int, *, source: int = 0, given: Any = None) -> int | str:
    """Multiply-adds of the matmuls in one forward pass on meta by fvcore; or the reason why it cannot count them."""
    try:
        from fvcore.nn import FlopCountAnalysis
    except ImportError:
        return "fvcore is not installed"
    quiet = unlogged("fvcore.nn.jit_analysis")
    try:
        with quiet, redirect_stdout(sys.stderr), warnings.catch_warnings(), torch.no_grad(), torch.device("meta"):
            warnings.simplefilter("ignore")
            args, named = inputs(module, batch, tokens, source, given, "meta")
            copied = _Called(module, tuple(named))
            with evaluating(copied):
                analysis = FlopCountAnalysis(copied, (*args, *named.values()))
                analysis.tracer_warnings("none").unsupported_ops_warnings(False).uncalled_modules_warnings(False)
                analysis.set_op_handle(FUSED, _fused).set_op_handle("aten::einsum", _einsum)
                counted, skipped = analysis.by_operator(), set(analysis.unsupported_ops()) - NO_PRODUCTS
    except (Exception, SystemExit) as error:
        return f"its trace of the module raised {type(error).__name__}"
    if not copied.returns_tensors:
        return "the module returns no tensors, so its trace is empty"
    if unknown := sorted(name for name in skipped if not _is_pointwise(name)):
        return f"it has no rule for {', '.join(unknown)}"
    return int(sum(count for name, count in counted.items() if name in PRODUCTS))


def _is_pointwise(name: str) -> bool:
    """True for an operator that torch declares pointwise."""
    operator = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    return operator is not None and any(
        torch.Tag.pointwise in getattr(operator, one).tags for one in operator.overloads()
    )
