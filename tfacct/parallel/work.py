"""What one rank computes where ranks divide the tokens of sequences, or the experts.

A rank of `cp` has the queries of its tokens and, on the way, the keys of all: T is divided and S is not. Under a causal
mask it sees its share of the pairs exactly, because it has a piece from the front and one from the back.
"""

from __future__ import annotations

from dataclasses import replace

from tfacct.accounts.metrics import Point
from tfacct.ledger.einsum import Size, divided, rounded_up
from tfacct.ledger.evaluated import Product
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import ACTIVE
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import BOTH, Mesh


def products(point: Point, mesh: Mesh) -> list[Product]:
    """Products of a step as one rank runs them."""
    return [of_rank(product, mesh) for product in point.ledger.products(point.at, masked=point.masked)]


def met(ledger: Ledger, mesh: Mesh) -> Size:
    """Number of parameters that a token meets, of a ledger that `tp` and `ep` divide already: the ranks of a batch deal
    its tokens out to whole experts, so each runs as many of them as one token in `tp` has."""
    return sum(
        divided(tensor.count * tensor.active, mesh.tp if tensor.parameter.bank else 1) for tensor in ledger.tensors()
    )


def kept(mesh: Mesh, work: Workload) -> Workload:
    """The tokens of a context that the fullest rank keeps."""
    if mesh.cp == 1:
        return work
    own = BOTH * -(-work.context // (BOTH * mesh.cp))
    return replace(work, context=own, tokens=own)


def of_rank(product: Product, mesh: Mesh) -> Product:
    """A product of a ledger that `tp` and `ep` divide already, as a rank with its part of each sequence runs it. Pairs
    of token and expert are dealt out to the ranks of a batch evenly."""
    if mesh.parts > 1:
        product = _of_tokens(product, mesh)
    if mesh.ep > 1 and product.line.bank:
        product = _of_pairs(product, mesh)
    return product


def _of_tokens(product: Product, mesh: Mesh) -> Product:
    axes = {**product.axes, **{axis: product.axes[axis] // mesh.parts for axis in ("T", "O") if product.axes[axis] > 1}}
    shares = mesh.parts if any(axes[axis] != product.axes[axis] for axis in product.line.einsum.every) else 1
    dims = product.line.dims(axes)
    return product._replace(
        axes=axes,
        dims=dims._replace(times=product.count * dims.times),
        forward=divided(product.forward, shares),
        backward=divided(product.backward, shares),
    )


def _of_pairs(product: Product, mesh: Mesh) -> Product:
    pairs = product.axes["B"] * product.axes["T"] * product.axes[ACTIVE]
    own = rounded_up(pairs, mesh.tp)
    product = product._replace(axes={**product.axes, "B": own, "T": 1, ACTIVE: 1})  # a pair is a row
    if mesh.tp == 1:
        return product

    def share(flops: Size) -> Size:
        return divided(flops, pairs) * own

    dims = product.dims._replace(m=own, times=product.count)
    return product._replace(dims=dims, forward=share(product.forward), backward=share(product.backward))
