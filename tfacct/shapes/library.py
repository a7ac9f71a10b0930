"""Torch's functions that compute, over shapes alone, as torch's arguments say it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tfacct.shapes.dtypes import BOOL, ELSEWHERE, FP32, LONG
from tfacct.shapes.eager import Grads, Shape, Tensor, broadcast, like, new, noted
from tfacct.shapes.making import Making
from tfacct.shapes.views import in_a_row, one_of


class Torch(Making):
    """Torch's functions."""

    # Number by number.

    def _with(self, x: Tensor, number: float, how: Callable[[Tensor], Tensor]) -> Tensor:
        if isinstance(number, float) and not getattr(x.each, "floating", True) and x.each:
            return new(self.meter, x.shape, FP32, like(x))
        return how(x)

    def plus(self, x: Any, y: Any) -> Tensor:
        if not isinstance(y, Tensor):
            return self._with(x, y, self.shifted)
        return self._with(y, x, self.shifted) if not isinstance(x, Tensor) else self.add(x, y)

    def minus(self, x: Any, y: Any) -> Tensor:
        if not isinstance(y, Tensor):
            return self._with(x, y, self.shifted)
        return self._with(y, x, self.neg) if not isinstance(x, Tensor) else self.sub(x, y)

    def times(self, x: Any, y: Any) -> Tensor:
        if not isinstance(y, Tensor):
            return self._with(x, y, self.scaled)
        return self._with(y, x, self.scaled) if not isinstance(x, Tensor) else self.mul(x, y)

    def over(self, x: Any, y: Any) -> Tensor:
        if not isinstance(y, Tensor):
            return self._with(x, float(y), self.scaled)
        return self.div(x, y)

    def unlike(self, x: Any, *more: Any, **_: Any) -> Tensor:
        """What no gradient goes through, number by number."""
        tensors = [each for each in (x, *more) if isinstance(each, Tensor)]
        return self.like(*tensors).bare()

    def compared(self, x: Any, y: Any) -> Tensor:
        tensors = [each for each in (x, y) if isinstance(each, Tensor)]
        kind = BOOL if any(each.each for each in tensors) else ELSEWHERE
        return new(self.meter, broadcast(*[each.shape for each in tensors]), kind, like(*tensors))

    def powered(self, x: Any, y: Any) -> Tensor:
        return self.unlike(x, y)

    def x_add_(self, x: Tensor, y: Tensor) -> Tensor:
        return noted(x.bare(), (x, y), lambda grads: [one_of(grads), one_of(grads)])

    def x_mul_(self, x: Tensor, y: Tensor) -> Tensor:
        factor = y.bare()
        return noted(x.bare(), (x,), lambda grads: [self.like(one_of(grads), factor)])

    def abs(self, x: Tensor) -> Tensor:
        bare = x.bare()

        def back(grads: Grads) -> Grads:
            sign = self.like(bare)
            return [self.like(one_of(grads), sign)]

        return noted(self.like(x), (x,), back)

    def log(self, x: Tensor) -> Tensor:
        if x.needs:
            return self._unary(x, saves="input")
        return new(self.meter, x.shape, x.each if getattr(x.each, "floating", True) else FP32, like(x))

    def expm1(self, x: Tensor) -> Tensor:
        made = self.like(x)
        bare = made.bare()

        def back(grads: Grads) -> Grads:
            more = self.like(bare)
            return [self.like(one_of(grads), more)]

        return noted(made, (x,), back)

    def where(self, which: Tensor, x: Any, y: Any) -> Tensor:
        there, bare = [each for each in (x, y) if isinstance(each, Tensor)], which.bare()
        shape = broadcast(which.shape, *[each.shape for each in there])
        made = new(self.meter, shape, max(each.each for each in there), like(which, *there))
        shapes, each = [one.shape for one in there], [one.each for one in there]
        needs = [one.needs for one in there]

        def back(grads: Grads) -> Grads:
            g, found = one_of(grads), list[Tensor | None]()
            nothing = self.new((), g.each)
            for wanted in needs:
                found.append(self.like(g, bare) if wanted else None)
            del nothing
            return self._fitted(found, shapes, each)

        return noted(made, there, back)

    def x_masked_fill(self, x: Tensor, mask: Tensor, _: float) -> Tensor:
        bare = mask.bare()
        return noted(
            self.like(x), (x,), lambda grads: [new(self.meter, one_of(grads).shape, x.each, like(one_of(grads), bare))]
        )

    def bounded(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        return self.clamp(x) if x.needs else self.unlike(x)

    def softmax(self, x: Tensor, dim: int = -1) -> Tensor:  # noqa: ARG002
        made = self.new(x.shape, x.each)
        bare = made.bare()

        def back(grads: Grads) -> Grads:
            assert bare is not None
            return [self.new(one_of(grads).shape, bare.each)]

        return noted(made, (x,), back)

    def gelu(self, x: Tensor, approximate: str = "none") -> Tensor:  # noqa: ARG002
        return self.silu(x)

    def solve_triangular(self, system: Tensor, right: Tensor, *, upper: bool, unitriangular: bool) -> Tensor:  # noqa: ARG002
        """A solution, whose columns lie in a row."""
        made = self.new((*right.shape[:-2], right.shape[-1], right.shape[-2]), right.each)
        return self.transpose(made, -1, -2)

    def diag(self, x: Tensor) -> Tensor:
        return self.new((x.shape[0], x.shape[0]), x.each)

    def expand_as(self, x: Tensor, other: Tensor) -> Tensor:
        return self.x_expand(x, *other.shape)

    # Along axes.

    def total(self, x: Tensor, dim: int, *, keepdim: bool = False) -> Tensor:
        return self.sum(x, dim, keep=keepdim)

    def average(self, x: Tensor, dim: int | None = None, *, keepdim: bool = False) -> Tensor:
        if dim is None:
            shape, each = x.shape, x.each
            return noted(self.new((), each), (x,), lambda _: [self.new(shape, each)])
        made = self.mean(x, dim)
        return made if keepdim else self.squeeze(made, dim)

    def std(self, x: Tensor, dim: int, *, keepdim: bool, unbiased: bool) -> Tensor:  # noqa: ARG002
        dim %= len(x.shape)
        shape = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
        made = self.new(shape, x.each)
        root, bare = made.bare(), x.bare()

        def back(grads: Grads) -> Grads:
            twice = self.like(root)
            share = self.like(one_of(grads), twice)
            del twice
            nothing = new(self.meter, shape, BOOL, like(root))
            del nothing
            factor = self.like(share)
            mean = self.new(shape, bare.each)
            apart = self.like(bare, mean)
            return [self.like(factor, apart)]

        return noted(made, (x,), back)

    def amax(self, x: Tensor, dim: int) -> Tensor:
        dim %= len(x.shape)
        made = self.new((*x.shape[:dim], *x.shape[dim + 1 :]), x.each)
        bare, most = x.bare(), made.bare()

        def back(grads: Grads) -> Grads:
            most_, g = (
                Tensor(
                    one.storage,
                    (*one.shape[:dim], 1, *one.shape[dim:]),
                    (*one.strides[:dim], 1, *one.strides[dim:]),
                    one.each,
                )
                for one in (most, one_of(grads))
            )
            mask = new(self.meter, bare.shape, BOOL, like(bare, most_))
            count = self.new(most_.shape, LONG)
            share = self.like(g, count)
            return [self.like(share, mask)]

        return noted(made, (x,), back)

    # Products and norms.

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """`x @ y`."""
        if len(y.shape) <= 2 < len(x.shape):
            rows = self.reshape(x, prod(x.shape[:-1]), x.shape[-1])
            return self.reshape(self.mm(rows, y), *x.shape[:-1], y.shape[-1])
        if len(x.shape) == len(y.shape) == 2:
            return self.mm(x, y)
        front = broadcast(x.shape[:-2], y.shape[:-2])
        x, y = self.x_expand(x, *front, *x.shape[-2:]), self.x_expand(y, *front, *y.shape[-2:])
        a = self.reshape(x, prod(front), *x.shape[-2:])
        b = self.reshape(y, prod(front), *y.shape[-2:])
        return self.reshape(self.bmm(a, b), *front, x.shape[-2], y.shape[-1])

    def linear(self, x: Tensor, weight: Tensor, shift: Tensor | None = None) -> Tensor:
        """torch's `linear`."""
        apart = shift is not None and not in_a_row(x) and len(x.shape) > 2
        if len(x.shape) == 2:
            return self.mm(x, self.permute(weight, 1, 0), shift)
        sizes = prod(x.shape[:-1]), x.shape[-1]
        if shift is None or apart:  # the weight is turned first: its gradient is turned back last
            turned = self.permute(weight, 1, 0)
            rows = self.reshape(x, *sizes)
        else:
            rows = self.reshape(x, *sizes)
            turned = self.permute(weight, 1, 0)
        made = self.reshape(self.mm(rows, turned, None if apart else shift), *x.shape[:-1], weight.shape[0])
        return self.add(made, shift) if apart and shift is not None else made

    def layer_norm(
        self, x: Tensor, shape: Shape, weight: Tensor | None = None, shift: Tensor | None = None, _: float = 0.0
    ) -> Tensor:
        rows = (*x.shape[: -len(shape)], *(1,) * len(shape))
        made = self.new(x.shape, x.each)
        mean, spread, bare = self.new(rows, FP32), self.new(rows, FP32), x.bare()
        own = [one for one in (weight, shift) if one is not None]
        each, needs, scales = x.each, x.needs, [one.bare() for one in own]

        def back(grads: Grads) -> Grads:
            assert mean is not None and spread is not None and bare is not None
            found: Grads = [self.new(one_of(grads).shape, each) if needs else None]
            return [*found, *(self.new(one.shape, each) for one in scales)]

        return noted(made, (x, *own), back)

    def rms_norm(self, x: Tensor, shape: Shape, weight: Tensor | None = None, eps: float = 0.0) -> Tensor:  # noqa: ARG002
        wide = self.wide(x)
        squares = self.square(wide)
        mean = self.mean(squares, -1)
        root = self.rsqrt(mean)
        del squares, mean
        made = self.mul(wide, root)
        if weight is not None:
            made = self.mul(made, weight)
        if not in_a_row(made):
            made = self.clone(made)
        return self.narrowed(made, x.each)


class Written:
    """An operation whose gradient is written beside it (torch's autograd.Function)."""

    @classmethod
    def apply(cls, *given: Tensor) -> Any:
        saved = _Saved()
        made = cls.forward(saved, *[one.bare() for one in given])  # type: ignore[attr-defined]
        needs = [one.needs for one in given]

        def back(grads: Grads) -> Grads:
            found = cls.backward(saved, one_of(grads))  # type: ignore[attr-defined]
            return [one if wanted else None for one, wanted in zip(found, needs, strict=True)]

        return noted(made, given, back)


class _Saved:
    def save_for_backward(self, *tensors: Tensor) -> None:
        self.saved_tensors = [one.bare() for one in tensors]
