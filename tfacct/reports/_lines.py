"""Products of several kinds of blocks as one list: what runs alike is one line, what does not says of which kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tfacct.ledger import Product, Tensor
from tfacct.reports import _common as common


@dataclass(frozen=True, slots=True)
class Shown:
    """A line of products as tables and JSON show it. `kind`: the blocks it is of, where others run it otherwise."""

    product: Product
    kind: str

    @property
    def operation(self) -> str:
        """Its path without the blocks, and the kind."""
        name = common.short(self.product.path)
        return f"{name} ({self.kind})" if self.kind else name


def shown(products: Iterable[Product]) -> list[Shown]:
    """Products by path, those of equal m × k × n in several kinds of blocks added up."""
    by_path: dict[str, list[Product]] = {}
    for product in products:
        alike = by_path.setdefault(product.path, [])
        known = next((i for i, other in enumerate(alike) if _alike(other, product)), None)
        if known is None:
            alike.append(product)
        else:
            alike[known] = _together(alike[known], product)
    return [Shown(product, product.kind if len(alike) > 1 else "") for alike in by_path.values() for product in alike]


def stored(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Tensors by path, those of equal shape in several kinds of blocks added up."""
    found: dict[tuple[str, tuple[int, ...]], Tensor] = {}
    for tensor in tensors:
        known = found.get((tensor.path, tensor.shape))
        count = tensor.count + (known.count if known else 0)
        found[tensor.path, tensor.shape] = tensor._replace(count=count)
    return list(found.values())


def _alike(one: Product, other: Product) -> bool:
    sizes = [(p.line, p.dims.m, p.dims.k, p.dims.n, p.forward // p.count) for p in (one, other)]
    return sizes[0] == sizes[1]


def _together(one: Product, other: Product) -> Product:
    return one._replace(
        kind=" and ".join(filter(None, (one.kind, other.kind))),
        numbers=(*one.numbers, *other.numbers),
        count=one.count + other.count,
        dims=one.dims._replace(times=one.dims.times + other.dims.times),
        forward=one.forward + other.forward,
        backward=one.backward + other.backward,
    )
