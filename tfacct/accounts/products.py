"""Matmuls and tensors of a ledger as rows of a table, merged over kinds of layers or summed by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfacct.architecture.parts import headings
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Product, Tensor
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul, Unused
from tfacct.ledger.storage import Storage


def by_part(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by tensor, summed by part in the order of tables."""
    summed = dict.fromkeys(headings(), 0)
    for path, count in counts.items():
        summed[paths.heading_of(path)] += count
    return {part: count for part, count in summed.items() if count}


def never_called(ledger: Ledger) -> list[str]:
    """Paths that are stored but never run: MLPs, or single matmuls of a part."""
    lines = [line for group in ledger.groups for line in group.lines]
    run = {paths.module_of(line.path) for line in lines if isinstance(line, Matmul)}
    idle = [line.path for line in lines if isinstance(line, Unused) and isinstance(line.of, Matmul)]
    found = list(dict.fromkeys(path if paths.module_of(path) in run else paths.module_of(path) for path in idle))
    return [path for path in found if not any(path.startswith(f"{other}.") for other in found)]


@record
class Shown:
    """A row of a table of matmuls. `kind`: kind of layers, if layers of other kinds differ."""

    product: Product
    kind: str


def shown(products: Iterable[Product]) -> list[Shown]:
    """Rows by path; equal matmuls in several kinds of layers are one row."""
    by_path: dict[str, list[Product]] = {}
    for product in products:
        alike = by_path.setdefault(product.path, [])
        known = next((i for i, other in enumerate(alike) if _each(other) == _each(product)), None)
        if known is None:
            alike.append(product)
        else:
            alike[known] = _merged(alike[known], product)
    return [Shown(product, product.kind if len(alike) > 1 else "") for alike in by_path.values() for product in alike]


def stored(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Tensors by path; tensors of equal shape in several kinds of layers are one entry."""
    found: dict[tuple[str, tuple[int, ...]], Tensor] = {}
    for tensor in tensors:
        known = found.get((tensor.path, tensor.shape))
        count = tensor.count + (known.count if known else 0)
        found[tensor.path, tensor.shape] = tensor._replace(count=count)
    return list(found.values())


def _each(product: Product) -> tuple[object, ...]:
    """Sizes of the product in one layer; of products with equal m × k × n, operands may differ by key/value heads."""
    dims = product.dims
    per_layer = product.forward // product.count
    return product.line, dims.m, dims.k, dims.n, per_layer, product.line.operands(product.axes)


def _merged(one: Product, other: Product) -> Product:
    return one._replace(
        kind=" and ".join(filter(None, (one.kind, other.kind))),
        numbers=(*one.numbers, *other.numbers),
        count=one.count + other.count,
        dims=one.dims._replace(times=one.dims.times + other.dims.times),
        forward=one.forward + other.forward,
        backward=one.backward + other.backward,
    )


def dtypes_by_part(ledger: Ledger, how: Storage) -> dict[str, str]:
    """Storage of each part: `mxfp4 + bf16` if tensors differ, with the most elements first."""
    found: dict[str, dict[str, int]] = {}
    for tensor in ledger.tensors(unfolded=how.by_block):
        names = found.setdefault(paths.heading_of(tensor.path), {})
        name = how.dtype(tensor.stored)
        names[name] = names.get(name, 0) + tensor.count * tensor.elements
    return {part: " + ".join(sorted(names, key=lambda name: -names[name])) for part, names in found.items()}
