"""Lines of a ledger in symbols: FLOPs, parameters or cached elements, their total, and sizes by axis."""

from __future__ import annotations

from itertools import groupby

from tfacct.algebra.factored import Factored
from tfacct.algebra.rank_formulas import SymbolicLine
from tfacct.algebra.symbols import Formula, SymbolicModel, layer_axes
from tfacct.architecture.transformer import Transformer
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size, renamed
from tfacct.ledger.evaluated import Product
from tfacct.ledger.groups import CACHED_KEYS, VISIBLE_KEYS, Ledger
from tfacct.ledger.lines import CHUNK, HALF, SHARES, WINDOW, Matmul, State
from tfacct.ledger.storage import width
from tfacct.ledger.workload import CHUNKS, OF_COMPRESSED, OF_WINDOWS, ONE_BY_ONE, PATCHES

CACHE_DTYPE = "bf16"
"""Dtype of the cache for bytes in a formula's values."""


def counts_in(ledger: Ledger, at: Axes, of: str) -> dict[str, Size]:
    """Counts (`flops`, `train`, `params` or `kv`) by path, in numbers or symbols like the ledger's sizes."""
    if of == "params":
        return ledger.parameters()
    if of == "kv":
        return ledger.states(at)
    counted: dict[str, Size] = {}
    for product in ledger.products(at):
        counted[product.path] = counted.get(product.path, 0) + _flops(product, of)
    return counted


def total_in(symbolic: SymbolicModel, of: str) -> Formula:
    if of == "params":
        return symbolic.parameters()
    if of == "kv":
        return symbolic.cached()
    return symbolic.flops(lambda product: _flops(product, of))


def _flops(product: Product, of: str) -> Size:
    return product.forward + (product.backward if of == "train" else 0)


def symbolic_lines(ledger: Ledger, symbolic: SymbolicModel, of: str, unit: str, at: Axes | None) -> list[SymbolicLine]:
    """Lines in symbols and, if `at` is a workload, in numbers."""
    values: dict[str, dict[str, Size]] = {}
    if at is not None:
        values[f"{unit}_value"] = counts_in(ledger, at, of)
        values |= {"bytes_value": ledger.state_bytes(at, width(CACHE_DTYPE))} if of == "kv" else {}
    specs, weights = _specs(ledger), _weights(symbolic)
    return [
        SymbolicLine(
            path=path,
            spec=specs[path],
            count=symbolic.formula([count]).written,
            values={key: int(by_path[path]) for key, by_path in values.items()},
            weights=weights.get(path),
        )
        for path, count in counts_in(symbolic.ledger, symbolic.at, of).items()
    ]


def _specs(ledger: Ledger) -> dict[str, str]:
    """Axes of every matmul, state and parameter by path; of a shared weight, as in the first line.

    If layers with the same path have different sizes, the axes have the part's names, which stand for all kinds.
    """
    found: dict[str, tuple[str, str]] = {}
    for group in ledger.groups:
        for line in group.lines:
            named = {line.path: line.spec} if isinstance(line, (Matmul, State)) else {}
            named |= {parameter.path: " ".join(parameter.axes) for parameter in line.parameters()}
            for path, spec in named.items():
                both = spec, renamed(spec, group.names)
                known = found.setdefault(path, both)
                if known[0] == spec and known != both:
                    found[path] = spec, spec
    return {path: both for path, (_, both) in found.items()}


def _weights(symbolic: SymbolicModel) -> dict[str, Factored]:
    """Parameters of each module, with its bias."""
    stored = symbolic.ledger.parameters().items()
    modules = groupby(stored, key=lambda tensor: paths.module_of(tensor[0]))
    return {module: symbolic.formula(count for _, count in tensors).written for module, tensors in modules}


def sizes_by_axis(ledger: Ledger, architecture: Transformer, at: Axes) -> dict[str, int]:
    """Sizes of a model by axis; with a workload, also those that a step determines."""
    sizes: dict[str, int] = {}
    for group in ledger.groups:
        sizes |= group.named()
        if WINDOW in group.axes and at:
            sizes |= {VISIBLE_KEYS: group.bound(at)["S"], CACHED_KEYS: group.bound(at, cached=True)["S"]}
        if CHUNK in group.axes and at:
            sizes |= {axis: group.bound(at)[axis] for axis in (CHUNKS, ONE_BY_ONE)}
        if at:
            bound, there = (PATCHES, *OF_WINDOWS, *SHARES, *OF_COMPRESSED), group.bound(at)
            marks = dict.fromkeys(OF_WINDOWS[1:], group.names.get(HALF, HALF).removeprefix(HALF))
            sizes |= {f"{axis}{marks.get(axis, '')}": there[axis] for axis in bound if axis in there}
    stacks = zip(layer_axes(architecture), architecture.every_stack, strict=True)
    return sizes | {axis: stack.count for axis, stack in stacks}
