"""Numbers about a model at a workload, by name: what a sweep lists, an equation names, an array evaluates.

Each is read off the ledger, so its sizes may be ints (exact), arrays or symbols. The names are the keys of the JSON,
and `flops.NAME` and `share.NAME` of any product, part or component: `share.attn.scores`, `share.attn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tfacct import memory
from tfacct.architecture import component_of, is_table, part_of
from tfacct.errors import NotFoundError, nearest
from tfacct.ledger import Ledger
from tfacct.lines import FLOPS_PER_MULTIPLY_ADD, Matmul
from tfacct.notation import Axes, Size, ratio
from tfacct.workload import LARGEST, Workload

Unit = Literal["flops", "params", "bytes", "share", "ratio"]


@dataclass(frozen=True, slots=True)
class Point:
    """One model at one workload: all that a metric reads. Weights take `bits` per element, the cache `cache_bits`."""

    ledger: Ledger
    work: Workload
    bits: int = 16
    cache_bits: int = 16
    masked: bool = False
    train: bool = False

    @property
    def at(self) -> Axes:
        """What the workload binds."""
        return self.work.axes()

    @property
    def tokens(self) -> Size:
        """New tokens of all sequences."""
        return self.work.batch * self.work.tokens


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with a name."""

    name: str
    unit: Unit
    about: str
    of: Callable[[Point], Size]


def flops_of(point: Point, keep: Callable[[str, Matmul], bool] = lambda _path, _line: True) -> Size:
    """FLOPs of the products that `keep` holds for: forward, and backward too in a training step."""
    forward = point.ledger.total_flops(point.at, masked=point.masked, keep=keep)
    if not point.train:
        return forward
    return forward + point.ledger.total_flops(point.at, masked=point.masked, backward=True, keep=keep)


def params_of(point: Point, keep: Callable[[str], bool] = lambda _path: True) -> Size:
    """Stored parameters of the tensors that `keep` holds for."""
    return sum(count for path, count in point.ledger.parameters().items() if keep(path))


def active_params_of(point: Point) -> Size:
    """Parameters that one token meets: all stored ones, but of experts only those that it is sent to."""
    return sum(point.ledger.active_parameters().values())


def rule_of_thumb(point: Point) -> Size:
    """2·params·tokens, and three times that in a training step: what the back of an envelope says. Of experts, the
    parameters that a token meets."""
    return FLOPS_PER_MULTIPLY_ADD * (3 if point.train else 1) * active_params_of(point) * point.tokens


def _embedding(path: str) -> bool:
    return is_table(path)


def _held(point: Point) -> memory.Footprint:
    return memory.footprint(point.ledger, point.at, point.bits, point.cache_bits)


def read_bytes(point: Point) -> Size:
    """Bytes of both operands of every product of a forward pass, each read once: an unfused kernel's traffic."""
    return sum(sum(product.moved(point.bits, point.cache_bits)[:2]) for product in point.ledger.products(point.at))


def written_bytes(point: Point) -> Size:
    """Bytes of the result of every product of a forward pass, each written once."""
    return sum(product.moved(point.bits, point.cache_bits)[2] for product in point.ledger.products(point.at))


def moved_bytes(point: Point) -> Size:
    """Bytes that the products of a forward pass read and write."""
    return read_bytes(point) + written_bytes(point)


def _intensity(point: Point) -> Size:
    return ratio(point.ledger.total_flops(point.at), moved_bytes(point))


METRICS = {
    metric.name: metric
    for metric in (
        Metric("total_flops", "flops", "FLOPs of one forward pass, or of a training step", flops_of),
        Metric(
            "flops_per_token",
            "flops",
            "FLOPs per new token",
            lambda point: ratio(flops_of(point), point.tokens),
        ),
        Metric("rule_of_thumb_flops", "flops", "2 · active parameters · tokens (6 in a training step)", rule_of_thumb),
        Metric(
            "ratio_to_2params",
            "ratio",
            "FLOPs over 2 · active parameters · tokens (6 in a training step)",
            lambda point: ratio(flops_of(point), rule_of_thumb(point)),
        ),
        Metric("total_params", "params", "stored parameters", params_of),
        Metric("active_params", "params", "parameters that one token meets", active_params_of),
        Metric("embedding_params", "params", "parameters of the tables", lambda point: params_of(point, _embedding)),
        Metric(
            "non_embedding_params",
            "params",
            "parameters but the tables",
            lambda point: params_of(point, lambda path: not _embedding(path)),
        ),
        Metric("weights_bytes", "bytes", "bytes of the weights", lambda point: _held(point).weights),
        Metric("kv_cache_bytes", "bytes", "bytes kept between steps", lambda point: _held(point).cache),
        Metric(
            "kv_bytes_per_token",
            "bytes",
            "bytes kept for one token of one sequence",
            lambda point: _held(point).per_token,
        ),
        Metric("total_bytes", "bytes", "weights and cache", lambda point: _held(point).total),
        Metric("total_read_bytes", "bytes", "bytes that the products of a forward pass read", read_bytes),
        Metric("total_written_bytes", "bytes", "bytes that they write", written_bytes),
        Metric("total_moved_bytes", "bytes", "bytes that they read and write", moved_bytes),
        Metric("flops_per_byte", "ratio", "FLOPs of a forward pass per byte that it reads and writes", _intensity),
    )
}
"""Those that every model has."""


def products(ledgers: Iterable[Ledger]) -> list[str]:
    """What `flops.` and `share.` may be asked of: products, parts and components."""
    names: dict[str, None] = {}
    for ledger in ledgers:
        for group in ledger.groups:
            for line in group.lines:
                if isinstance(line, Matmul):
                    names |= dict.fromkeys(_names(line.path, line))
    return list(names)


def _names(path: str, line: Matmul) -> tuple[str, ...]:
    """What one product answers to: `attn`, `attn_scores_values`, `attn.scores`."""
    return part_of(path), component_of(path, line), path.replace("blocks.*.", "")


def metric(name: str, ledgers: Iterable[Ledger]) -> Metric:
    """The metric of this name. Raises NotFoundError, which names the nearest."""
    if name in METRICS:
        return METRICS[name]
    asked, _, of = name.partition(".")
    there = products(ledgers)
    if asked in ("flops", "share") and of in there:
        return _flops_of(of) if asked == "flops" else _share_of(of)
    known = [*METRICS, *(f"{word}.{of}" for word in ("share", "flops") for of in there)]
    raise NotFoundError(
        f"unknown metric {name!r}", nearest(name, known) or f"metrics: {', '.join(METRICS)}, share.NAME"
    )


def _flops_of(name: str) -> Metric:
    def of(point: Point) -> Size:
        return flops_of(point, lambda path, line: name in _names(path, line))

    return Metric(f"flops.{name}", "flops", f"FLOPs of {name}", of)


def _share_of(name: str) -> Metric:
    part = _flops_of(name)
    return Metric(
        f"share.{name}", "share", f"share of {name} in all FLOPs", lambda point: ratio(part.of(point), flops_of(point))
    )


def moved(point: Point, **changes: object) -> Point:
    """The same model at another workload."""
    return replace(point, work=replace(point.work, **changes))  # type: ignore[arg-type]


def attention_overtakes(point: Point, *, chunk: bool) -> int | None:
    """The first context at which scores + values cost more than everything else; None where none up to 10¹² does.

    `chunk`: the new tokens stay as many while the context grows; else all of it is new.
    """

    def ahead(context: int) -> int:
        there = moved(point, context=context) if chunk else moved(point, context=context, tokens=context)
        attention = flops_of(there, lambda path, line: component_of(path, line) == "attn_scores_values")
        return int(2 * attention - flops_of(there))

    smallest = point.work.tokens if chunk else 1
    last = smallest - 1 + memory.largest_that_fits(lambda n: ahead(smallest - 1 + n), 0, LARGEST)
    return last + 1 if last < LARGEST else None


def cache_overtakes(point: Point) -> int | None:
    """The first context at which the cache takes more bytes than the weights; None where none up to 10¹² does."""
    weights = memory.footprint(point.ledger, point.at, point.bits, point.cache_bits).weights

    def ahead(context: int) -> int:
        return int(memory.cache_bytes(point.ledger, moved(point, context=context).at, point.cache_bits) - weights)

    last = memory.largest_that_fits(ahead, 0, LARGEST)
    return last + 1 if last < LARGEST else None
