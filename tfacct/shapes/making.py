"""Torch's functions that make tensors, views and copies, over shapes alone, as torch's arguments say it.

Those whose names begin with `x_` are methods of its tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tfacct.shapes.dtypes import ELSEWHERE, FP32, LONG, META, Device, DType
from tfacct.shapes.eager import Grads, Leaf, Meter, Node, Shape, Tensor, like, new, noted
from tfacct.shapes.operations import Operations
from tfacct.shapes.views import seen_as


class Making(Operations):
    """Tensors of no other, views and copies."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(meter, FP32)

    # Tensors of no other.

    def made(self, *shape: Any, dtype: int | None = None, device: Any = None) -> Tensor:
        sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        there = getattr(device or Device.default, "type", device)
        return self.new(sizes, (FP32 if dtype is None else dtype) if there == "meta" else ELSEWHERE)

    def full(self, shape: Shape, _: float, dtype: int | None = None, device: Any = None) -> Tensor:
        return self.made(shape, dtype=dtype, device=device)

    def arange(self, *ends: Any, dtype: int | None = None, device: Any = None) -> Tensor:
        start, end, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
        whole = all(isinstance(each, int) for each in ends)
        kind = (LONG if whole else FP32) if dtype is None else dtype
        return self.made(max(-((start - end) // step), 0), dtype=kind, device=device)

    def tensor(self, numbers: Sequence[float], dtype: int | None = None) -> Tensor:
        return self.made(len(numbers), dtype=dtype)

    def pad(self, x: Tensor, ends: Sequence[int], value: float = 0.0) -> Tensor:  # noqa: ARG002
        """Numbers behind the last axes."""
        shape = list(x.shape)
        for nth, (first, last) in enumerate(zip(ends[::2], ends[1::2], strict=True)):
            shape[-1 - nth] += first + last
        was, each = x.shape, x.each
        return noted(self.new(tuple(shape), each), (x,), lambda _: [self.new(was, each)])

    def made_like(self, x: Tensor, *_: Any, dtype: int | None = None) -> Tensor:
        return new(self.meter, x.shape, x.each if dtype is None else dtype, like(x))

    def x_new(self, x: Tensor, *shape: Any) -> Tensor:
        sizes = tuple(shape[0]) if isinstance(shape[0], (tuple, list)) else shape
        return self.new(sizes, x.each)

    def x_new_full(self, x: Tensor, shape: Shape, _: float) -> Tensor:
        return self.new(tuple(shape), x.each)

    # Views and copies.

    def x_to(self, x: Tensor, *to: Any) -> Tensor:
        dtype = next((one for one in to if isinstance(one, DType)), None)
        if not x.each and dtype is not None and META in to:
            return self.new(x.shape, dtype)
        return x if dtype is None or x.each == 0 else self._cast(x, dtype)

    def x_reshape(self, x: Tensor, *shape: Any) -> Tensor:
        sizes = tuple(shape[0]) if isinstance(shape[0], (tuple, list)) else shape
        return self.reshape(x, *_known(sizes, prod(x.shape)))

    def x_expand(self, x: Tensor, *shape: Any) -> Tensor:
        sizes = tuple(shape[0]) if isinstance(shape[0], (tuple, list)) else shape
        was, more = x.shape, len(sizes) - len(x.shape)
        sizes = (*sizes[:more], *(old if one == -1 else one for one, old in zip(sizes[more:], was, strict=True)))
        strides = (*(0,) * more, *seen_as(x, sizes[more:]).strides)
        return self._view(x, sizes, strides, lambda g: self.sum_to(g, was))

    def x_flatten(self, x: Tensor, first: int = 0, last: int = -1) -> Tensor:
        return self.flatten(x, first % len(x.shape), last)

    def x_unflatten(self, x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
        return self.unflatten(x, dim, _known(tuple(sizes), x.shape[dim]))

    def x_narrow(self, x: Tensor, dim: int, _: int, length: int) -> Tensor:
        return self.narrow(x, dim, length)

    def x_split(self, x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
        dim %= len(x.shape)
        was, each = x.shape, x.each
        node = Node((x,), lambda _: [self.new(was, each)], len(sizes)) if x.needs else None
        return [
            Tensor(x.storage, (*was[:dim], size, *was[dim + 1 :]), x.strides, each, node, nth)
            for nth, size in enumerate(sizes)
        ]

    def x_unbind(self, x: Tensor, dim: int = 0) -> list[Tensor]:
        return self.unbind(x, dim % len(x.shape))

    def x_detach(self, x: Tensor) -> Tensor:
        return x.bare()

    def x_clone(self, x: Tensor) -> Tensor:
        return noted(self.like(x), (x,), lambda grads: grads)

    def x_requires_grad_(self, x: Tensor, wanted: bool = True) -> Tensor:
        if wanted:
            x.node = Leaf(own=x.storage)
        return x

    def x_triangle(self, x: Tensor, _: int = 0) -> Tensor:
        return self.tril(x)

    def join(self, parts: Sequence[Tensor], dim: int = 0) -> Tensor:
        return self.cat(parts, dim, [one.storage.times for one in parts])

    def stacked(self, parts: Sequence[Tensor], dim: int = 0) -> Tensor:
        return self.stack(parts, dim % (len(parts[0].shape) + 1), [one.storage.times for one in parts])

    def tensor_split(self, x: Tensor, count: int, dim: int = 0) -> list[Tensor]:
        whole, more = divmod(x.shape[dim], count)
        return [self.narrow(x, dim, whole + (nth < more)) for nth in range(count)]

    def at(self, x: Tensor, index: Any) -> Tensor:
        """Some of a tensor, as an index takes them."""
        keys = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [key for key in keys if not isinstance(key, Tensor)]:
            place = next(nth for nth, key in enumerate(keys) if key is Ellipsis)
            rest = len(x.shape) - sum(key is not None for key in keys) + 1
            keys = (*keys[:place], *(slice(None),) * rest, *keys[place + 1 :])
        dim, whole = 0, x
        for key in keys:
            if key is None:
                x = self.unsqueeze(x, dim)
            elif isinstance(key, int):
                x = self.select(x, dim)
                continue
            elif isinstance(key, Tensor):
                x = self._picked(x, dim, key)
            else:
                length = len(range(*key.indices(x.shape[dim])))
                x = x if length == x.shape[dim] else self.narrow(x, dim, length)
            dim += 1
        return self._view(x, x.shape, x.strides, lambda g: g) if x is whole else x  # never the very same

    def _picked(self, x: Tensor, dim: int, index: Tensor) -> Tensor:
        was, each = x.shape, x.each
        made = self.new((*was[:dim], *index.shape, *was[dim + 1 :]), each)
        there = index.bare()

        def back(_: Grads) -> Grads:
            assert there is not None
            return [self.new(was, each)]

        return noted(made, (x,), back)

    def x_index_select(self, x: Tensor, dim: int, index: Tensor) -> Tensor:
        was, each = x.shape, x.each
        made = self.new((*was[:dim], index.shape[0], *was[dim + 1 :]), each)
        there = index.bare()

        def back(_: Grads) -> Grads:
            nothing, found = self.new(was, each), self.new(was, each)
            assert there is not None
            del nothing
            return [found]

        return noted(made, (x,), back)

    def gather(self, x: Tensor, _: int, index: Tensor) -> Tensor:
        bare, there = x.bare(), index.bare()

        def back(_: Grads) -> Grads:
            nothing = self.new(bare.shape, bare.each)
            found = self.new(bare.shape, bare.each)
            assert there is not None
            del nothing
            return [found]

        return noted(self.new(index.shape, x.each), (x,), back)

    def embedding(self, rows: Tensor, table: Tensor) -> Tensor:
        was, each, there = table.shape, table.each, rows.bare()

        def back(_: Grads) -> Grads:
            assert there is not None
            return [self.new(was, each)]

        return noted(self.new((*rows.shape, table.shape[1]), each), (table,), back)


def _known(sizes: Shape, whole: int) -> Shape:
    """Sizes of which one may be −1."""
    rest = -prod(sizes)
    return tuple(whole // max(rest, 1) if one == -1 else one for one in sizes)
