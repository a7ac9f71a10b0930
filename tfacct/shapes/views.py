"""Views and copies over shapes alone, with their gradients: what of torch's operations computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tfacct.shapes.eager import (
    Grads,
    Meter,
    Node,
    Shape,
    Tensor,
    broadcast,
    like,
    new,
    noted,
    packed,
    viewed,
)


class Views:
    """Torch's views and copies. `each`: bytes of a number in the pass's dtype."""

    def __init__(self, meter: Meter, each: int) -> None:
        self.meter, self.each = meter, each

    def new(self, shape: Shape, each: int | None = None) -> Tensor:
        """A tensor that no gradient goes through."""
        return new(self.meter, shape, self.each if each is None else each)

    def like(self, *of: Tensor) -> Tensor:
        """What is made of tensors, number by number."""
        return new(self.meter, broadcast(*[one.shape for one in of]), wider(*of), like(*of))

    # Views.

    def _view(self, x: Tensor, shape: Shape, strides: Shape, back: Callable[[Tensor], Tensor]) -> Tensor:
        made = Tensor(x.storage, shape, strides, x.each)
        return noted(made, (x,), lambda grads: [back(one_of(grads))])

    def plain(self, x: Tensor, shape: Shape) -> Tensor:
        """`x` in another shape, without a gradient: a view, or a copy."""
        strides = viewed(x.shape, x.strides, shape)
        if strides is not None:
            return Tensor(x.storage, shape, strides, x.each)
        made = self.new(x.shape, x.each)
        return Tensor(made.storage, shape, packed(shape), x.each)

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        """A view, or a copy."""
        strides = viewed(x.shape, x.strides, shape)
        if strides is None:
            x = self.clone(x)
            strides = packed(shape)
        was = x.shape
        return self._view(x, shape, strides, lambda g: self.plain(g, was))

    def flatten(self, x: Tensor, first: int, last: int) -> Tensor:
        """Axes as one."""
        last %= len(x.shape)
        if first == last:
            return x
        return self.reshape(x, *x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :])

    def unflatten(self, x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
        """An axis as several."""
        dim %= len(x.shape)
        return self.reshape(x, *x.shape[:dim], *sizes, *x.shape[dim + 1 :])

    def permute(self, x: Tensor, *dims: int) -> Tensor:
        """Axes in another order."""
        back = [dims.index(at) for at in range(len(dims))]
        shape, strides = tuple(x.shape[at] for at in dims), tuple(x.strides[at] for at in dims)
        return self._view(x, shape, strides, lambda g: turned(g, back))

    def transpose(self, x: Tensor, one: int, other: int) -> Tensor:
        """Two axes exchanged."""
        dims = [*range(len(x.shape))]
        dims[one], dims[other] = dims[other], dims[one]
        return self.permute(x, *dims)

    def unsqueeze(self, x: Tensor, dim: int) -> Tensor:
        """A further axis of size 1."""
        dim %= len(x.shape) + 1
        stride = x.shape[dim] * x.strides[dim] if dim < len(x.shape) else 1
        shape, strides = (*x.shape[:dim], 1, *x.shape[dim:]), (*x.strides[:dim], stride, *x.strides[dim:])
        return self._view(x, shape, strides, lambda g: squeezed(g, dim))

    def squeeze(self, x: Tensor, dim: int) -> Tensor:
        """Without an axis of size 1; one of another size stays."""
        dim %= len(x.shape)
        if x.shape[dim] != 1:
            return self._view(x, x.shape, x.strides, lambda g: g)
        seen = squeezed(x, dim)
        return self._view(x, seen.shape, seen.strides, lambda g: unsqueezed(g, dim))

    def narrow(self, x: Tensor, dim: int, length: int) -> Tensor:
        """Some of an axis, wherever they begin."""
        dim %= len(x.shape)
        shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
        was, each = x.shape, x.each
        return self._view(x, shape, x.strides, lambda _: self.new(was, each))

    def select(self, x: Tensor, dim: int) -> Tensor:
        """One of an axis."""
        dim %= len(x.shape)
        shape, strides = (*x.shape[:dim], *x.shape[dim + 1 :]), (*x.strides[:dim], *x.strides[dim + 1 :])
        was, each = x.shape, x.each
        return self._view(x, shape, strides, lambda _: self.new(was, each))

    def unbind(self, x: Tensor, dim: int) -> list[Tensor]:
        """Each of an axis: their gradients are put into one."""
        shape, strides = (*x.shape[:dim], *x.shape[dim + 1 :]), (*x.strides[:dim], *x.strides[dim + 1 :])
        was, each = x.shape, x.each
        node = Node((x,), lambda _: [self.new(was, each)], was[dim])
        return [Tensor(x.storage, shape, strides, x.each, node, nth) for nth in range(was[dim])]

    # Copies.

    def clone(self, x: Tensor) -> Tensor:
        """A copy whose numbers lie in a row."""
        return noted(self.new(x.shape, x.each), (x,), lambda grads: grads)

    def cat(self, parts: Sequence[Tensor], dim: int, times: Sequence[int] = ()) -> Tensor:
        """Tensors one behind the other. `times`: how many each stands for."""
        dim %= len(parts[0].shape)
        first = parts[0].shape
        lengths = [one.shape[dim] for one in parts]
        whole = sum(size * number for size, number in zip(lengths, times or (1,) * len(parts), strict=True))
        made = self.new((*first[:dim], whole, *first[dim + 1 :]), parts[0].each)
        needs = [one.needs for one in parts]

        def back(grads: Grads) -> Grads:
            g = one_of(grads)
            return [
                Tensor(g.storage, (*first[:dim], size, *first[dim + 1 :]), g.strides, g.each) if there else None
                for size, there in zip(lengths, needs, strict=True)
            ]

        return noted(made, parts, back)

    def stack(self, parts: Sequence[Tensor], dim: int, times: Sequence[int] = ()) -> Tensor:
        """Tensors beside each other on a further axis. `times`: how many each stands for."""
        first, count = parts[0].shape, len(parts)
        made = self.new((*first[:dim], sum(times or (1,) * len(parts)), *first[dim:]), parts[0].each)

        def back(grads: Grads) -> Grads:
            g = one_of(grads)
            strides = (*g.strides[:dim], *g.strides[dim + 1 :])
            return [Tensor(g.storage, first, strides, g.each)] * count

        return noted(made, parts, back)

    def sum_to(self, x: Tensor, shape: Shape) -> Tensor:
        """Summed over what was broadcast."""
        if x.shape == shape:
            return x
        more = len(x.shape) - len(shape)
        kept = (*(1,) * more, *(1 if size == 1 else own for size, own in zip(shape, x.shape[more:], strict=True)))
        made = self.new(kept, x.each)
        return Tensor(made.storage, shape, packed(shape), x.each)


def wider(*of: Tensor) -> int:
    """Bytes of a number made of several: of tensors that count, and of others, that of the others."""
    return max((one.each for one in of), key=lambda each: (getattr(each, "floating", True), each))


def in_a_row(x: Tensor) -> bool:
    """True if its numbers lie one behind the other, in the order of its axes."""
    expected = 1
    for size, stride in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def one_of(grads: Grads) -> Tensor:
    """The gradient of the only result."""
    (grad,) = grads
    assert grad is not None
    return grad


def turned(x: Tensor, dims: Sequence[int]) -> Tensor:
    """A view with axes in another order."""
    return Tensor(x.storage, tuple(x.shape[at] for at in dims), tuple(x.strides[at] for at in dims), x.each)


def squeezed(x: Tensor, dim: int) -> Tensor:
    """A view without an axis."""
    if x.shape[dim] != 1:
        return x
    return Tensor(x.storage, (*x.shape[:dim], *x.shape[dim + 1 :]), (*x.strides[:dim], *x.strides[dim + 1 :]), x.each)


def unsqueezed(x: Tensor, dim: int) -> Tensor:
    """A view with a further axis of size 1."""
    stride = x.shape[dim] * x.strides[dim] if dim < len(x.shape) else 1
    shape, strides = (*x.shape[:dim], 1, *x.shape[dim:]), (*x.strides[:dim], stride, *x.strides[dim:])
    return Tensor(x.storage, shape, strides, x.each)


def seen_as(x: Tensor, shape: Shape) -> Tensor:
    """A view whose axes of size 1 are longer."""
    strides = tuple(
        0 if old == 1 and size != 1 else stride for size, old, stride in zip(shape, x.shape, x.strides, strict=True)
    )
    return Tensor(x.storage, shape, strides, x.each)
