"""Torch's operations over shapes alone, with what each makes and saves, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tfacct.shapes.eager import FULL, Grads, Shape, Tensor, like, new, noted
from tfacct.shapes.views import Views, one_of, seen_as, unsqueezed

FLAG = 1
"""Bytes of what is true or not."""


class Operations(Views):
    """Torch's operations."""

    # Number by number.

    def _unary(self, x: Tensor, *, saves: str) -> Tensor:
        """An operation whose gradient is one more, of what it `saves`: input, result, or nothing."""
        made = self.like(x)
        held = {"input": x, "result": made, "": None}[saves]
        bare = None if held is None else held.bare()

        def back(grads: Grads) -> Grads:
            return [self.like(one_of(grads)) if bare is None else self.like(one_of(grads), bare)]

        return noted(made, (x,), back)

    def exp(self, x: Tensor) -> Tensor:
        """Exponential."""
        return self._unary(x, saves="result")

    sigmoid = tanh = relu = exp

    def softplus(self, x: Tensor) -> Tensor:
        """Softplus, and any activation that reads its input in the backward pass."""
        return self._unary(x, saves="input")

    silu = softplus

    def neg(self, x: Tensor) -> Tensor:
        """Less than nothing, or times a constant."""
        return self._unary(x, saves="")

    scaled = neg

    def shifted(self, x: Tensor) -> Tensor:
        """Plus a constant: the gradient is the same."""
        return noted(self.like(x), (x,), lambda grads: grads)

    def square(self, x: Tensor) -> Tensor:
        """A square."""
        bare = x.bare()

        def back(grads: Grads) -> Grads:
            root = self.like(bare)
            twice = self.like(root)
            return [self.like(one_of(grads), twice)]

        return noted(self.like(x), (x,), back)

    def rsqrt(self, x: Tensor) -> Tensor:
        """One by the root."""
        made = self.like(x)
        bare = made.bare()

        def back(grads: Grads) -> Grads:
            cube = self.like(bare)
            half = self.like(one_of(grads))
            return [self.like(half, cube)]

        return noted(made, (x,), back)

    def sqrt(self, x: Tensor) -> Tensor:
        """A root."""
        made = self.like(x)
        bare = made.bare()

        def back(grads: Grads) -> Grads:
            twice = self.like(bare)
            return [self.like(one_of(grads), twice)]

        return noted(made, (x,), back)

    def clamp(self, x: Tensor) -> Tensor:
        """No less than a constant."""
        bare, each = x.bare(), x.each

        def back(grads: Grads) -> Grads:
            nothing = self.new((), each)
            larger = new(self.meter, bare.shape, FLAG, like(bare))
            found: Grads = [self.like(one_of(grads), bare)]
            del nothing, larger
            return found

        return noted(self.like(x), (x,), back)

    def maximum(self, one: Tensor, other: Tensor) -> Tensor:
        """The larger of each two; both have half of the gradient where they are equal."""
        first, second, needs = one.bare(), other.bare(), (one.needs, other.needs)

        def part(g: Tensor) -> Tensor:
            half = self.like(g)
            equal = new(self.meter, first.shape, FLAG, like(first, second))
            made = self.like(g, half)
            less = new(self.meter, first.shape, FLAG, like(first, second))
            del half, equal, less
            return made

        def back(grads: Grads) -> Grads:
            g = one_of(grads)
            made: Grads = [None, None]
            for nth in (1, 0):
                made[nth] = part(g) if needs[nth] else None
            return made

        return noted(self.like(one, other), (one, other), back)

    def div(self, one: Tensor, other: Tensor) -> Tensor:
        """A quotient."""
        above, below = one.bare(), other.bare()

        def back(grads: Grads) -> Grads:
            g = one_of(grads)
            share = self.like(above, below)
            twice = self.like(share, below)
            less = self.like(g)
            last = self.like(less, twice)
            del share, twice, less
            return [self.like(g, below), last]

        return noted(self.like(one, other), (one, other), back)

    def mul(self, one: Tensor, other: Tensor) -> Tensor:
        """Two tensors multiplied."""
        made = self.like(one, other)
        first, second = one.bare() if other.needs else None, other.bare() if one.needs else None
        shapes, each = (one.shape, other.shape), (one.each, other.each)

        def back(grads: Grads) -> Grads:
            g = one_of(grads)
            made: Grads = [None, None]
            if first is not None:
                made[1] = self.like(g, first)
            if second is not None:
                made[0] = self.like(g, second)
            return self._fitted(made, shapes, each)

        return noted(made, (one, other), back)

    def add(self, one: Tensor, other: Tensor) -> Tensor:
        """A sum."""
        return self._total(one, other, lambda g: g)

    def sub(self, one: Tensor, other: Tensor) -> Tensor:
        """A difference."""
        return self._total(one, other, self.like)

    def _total(self, one: Tensor, other: Tensor, second: Callable[[Tensor], Tensor]) -> Tensor:
        """Both of them, the gradient of the `second` made of that of the result."""
        made = self.like(one, other)
        shapes, each, needs = (one.shape, other.shape), (one.each, other.each), (one.needs, other.needs)

        def back(grads: Grads) -> Grads:
            g = one_of(grads)
            made: Grads = [g if needs[0] else None, second(g) if needs[1] else None]
            return self._fitted(made, shapes, each)

        return noted(made, (one, other), back)

    def _fitted(self, grads: Grads, shapes: Sequence[Shape], each: Sequence[int]) -> Grads:
        """Gradients summed to the shapes of what they are of, and in its dtype."""
        for nth in range(len(grads)):
            grad = grads[nth]
            if grad is not None:
                grads[nth] = grad = self.sum_to(grad, shapes[nth])
                if grad.each != each[nth]:
                    grads[nth] = new(self.meter, grad.shape, each[nth], like(grad))
            del grad
        return grads

    # In another dtype.

    def wide(self, x: Tensor) -> Tensor:
        """In fp32: a copy, if it is not."""
        return self._cast(x, FULL)

    def narrowed(self, x: Tensor, each: int) -> Tensor:
        """In the dtype of so many bytes."""
        return self._cast(x, each)

    def _cast(self, x: Tensor, each: int) -> Tensor:
        if x.each == each:
            return x
        was = x.each
        made = new(self.meter, x.shape, each, like(x))
        return noted(made, (x,), lambda grads: [new(self.meter, one_of(grads).shape, was, like(one_of(grads)))])

    # Along an axis.

    def sum(self, x: Tensor, dim: int, *, keep: bool = False) -> Tensor:
        """A sum over an axis."""
        dim %= len(x.shape)
        shape = x.shape
        made = self.new((*shape[:dim], *((1,) if keep else ()), *shape[dim + 1 :]), x.each)

        def back(grads: Grads) -> Grads:
            g = one_of(grads) if keep else unsqueezed(one_of(grads), dim)
            return [seen_as(g, shape)]

        return noted(made, (x,), back)

    def mean(self, x: Tensor, dim: int) -> Tensor:
        """A mean over an axis, which stays."""
        dim %= len(x.shape)
        shape = x.shape
        made = self.new((*shape[:dim], 1, *shape[dim + 1 :]), x.each)
        return noted(made, (x,), lambda grads: [self.like(seen_as(one_of(grads), shape))])

    def cumsum(self, x: Tensor, dim: int) -> Tensor:
        """Sums up to each of an axis."""
        one = x.shape[dim] == 1 or prod(x.shape) <= 1

        def back(grads: Grads) -> Grads:
            if one:
                return grads
            flipped = self.like(one_of(grads))
            sums = self.new(flipped.shape, flipped.each)
            return [self.like(sums)]

        return noted(self.new(x.shape, x.each), (x,), back)

    def tril(self, x: Tensor) -> Tensor:
        """What is not above the diagonal."""
        return noted(self.new(x.shape, x.each), (x,), lambda grads: [self.new(one_of(grads).shape, one_of(grads).each)])

    # Products.

    def mm(self, left: Tensor, right: Tensor, shift: Tensor | None = None) -> Tensor:
        """A product of two matrices, and a vector added to each row."""
        made = self.new((left.shape[0], right.shape[1]), left.each)
        one, other = left.bare() if right.needs else None, right.bare() if left.needs else None
        laid = [each.strides[0] == 1 and each.strides[1] == each.shape[0] for each in (left, right)]

        def back(grads: Grads) -> Grads:
            g = one_of(grads)
            made: Grads = [None, None]
            for nth in (1, 0) if shift is None else (0, 1):
                if nth and one is not None:
                    made[nth] = self._matrix(one.shape[1], g.shape[1], g.each, columns=laid[1])
                elif not nth and other is not None:
                    made[nth] = self._matrix(g.shape[0], other.shape[0], g.each, columns=laid[0])
            return made if shift is None else [*made, self.sum_to(g, (g.shape[1],))]

        return noted(made, (left, right) if shift is None else (left, right, shift), back)

    def _matrix(self, rows: int, columns_: int, each: int, *, columns: bool) -> Tensor:
        """A matrix, whose columns lie in a row where those of what it is the gradient of do."""
        return new(self.meter, (rows, columns_), each, (1, rows) if columns else None)

    def bmm(self, left: Tensor, right: Tensor) -> Tensor:
        """Products of matrices."""
        made = self.new((*left.shape[:2], right.shape[2]), left.each)
        one, other = left.bare() if right.needs else None, right.bare() if left.needs else None

        def back(grads: Grads) -> Grads:
            g = one_of(grads)
            last = None if one is None else self.new((g.shape[0], one.shape[2], g.shape[2]), g.each)
            first = None if other is None else self.new((*g.shape[:2], other.shape[1]), g.each)
            return [first, last]

        return noted(made, (left, right), back)
