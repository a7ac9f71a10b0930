"""Metrics: numbers about a model at a workload, by name, for sweeps, equations and arrays.

Each is read off the ledger, so its sizes may be ints (exact), arrays or symbols. The names are the keys of the JSON,
and `flops.NAME` and `share.NAME` of any product, part or component: `share.attn.scores`, `share.attn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, Protocol

from tfacct.accounts import memory
from tfacct.base.errors import NotFoundError, UsageError, nearest
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.cost import Cost
from tfacct.ledger.einsum import Axes, Size, ratio
from tfacct.ledger.evaluated import Tensor
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD, Matmul
from tfacct.ledger.storage import BF16, BF16_EACH, Storage, Width
from tfacct.ledger.workload import LARGEST, Workload

Recompute = Literal["full", "attention", "none"]
"""What a training step runs again in its backward pass."""
Unit = Literal["flops", "params", "bytes", "share", "ratio"]


class StepMemory(Protocol):
    """The memory of a training step (`tfacct.training.memory.TrainingMemory`)."""

    @property
    def step(self) -> Any:
        """The step: `saved_bytes()` and `optimizer_state`."""

    @property
    def phases(self) -> Any:
        """Its phases; the last one is the optimizer's step, with all gradients."""

    @property
    def peak(self) -> Any:
        """The phase with the most bytes."""


@record
class Point:
    """One model at one workload, with the storage of its weights and its cache: all that a metric reads.

    `recompute`: what a training step runs again. `step` is the training step at a workload, where its bytes are
    asked for. A point of one rank (`parallel.rank_flops`) has that rank's share.
    """

    ledger: Ledger
    work: Workload
    weights: Storage = BF16
    cache: Width = BF16_EACH
    masked: bool = False
    train: bool = False
    recompute: Recompute = "none"
    step: Callable[[Workload], StepMemory] | None = None

    @property
    def at(self) -> Axes:
        """Sizes of the axes that the workload binds."""
        return self.work.axes()

    @property
    def tokens(self) -> Size:
        """Number of new tokens of all sequences."""
        return self.work.batch * self.work.tokens

    @property
    def cached(self) -> Axes:
        """Sizes of the axes, of the tokens that stay here."""
        return self.at

    def flops(self, keep: Callable[[str, Matmul], bool]) -> Size:
        """FLOPs of the products that `keep` is true of: forward, and backward too in a training step."""
        forward = self.ledger.total_flops(self.at, masked=self.masked, keep=keep)
        if not self.train:
            return forward
        both = forward + self.ledger.total_flops(self.at, masked=self.masked, backward=True, keep=keep)
        if self.recompute == "none":
            return both
        from tfacct.accounts.step_flops import recomputed_flops

        only = self.recompute == "attention"
        return both + recomputed_flops(self.ledger, self.at, masked=self.masked, attention=only, keep=keep)

    def cost(self) -> Cost:
        """FLOPs of a forward pass, and the bytes that its products read and write in unfused kernels."""
        return self.ledger.cost(self.at, self.weights, self.cache)

    def active_params(self) -> Size:
        """Number of parameters that one token meets: all stored ones, but of experts only those it is sent to."""
        return sum(self.ledger.active_parameters().values())


@record
class Metric:
    """A number with a name, a unit and a function that computes it at a Point.

    `of_step`: it is of a training step, so the Point needs one. `whole`: its sizes are whole numbers, not symbols.
    """

    name: str
    unit: Unit
    about: str
    """What it is, in one sentence."""
    of: Callable[[Point], Size]
    of_step: bool = False
    whole: bool = False


def flops_of(point: Point, keep: Callable[[str, Matmul], bool] = lambda _path, _line: True) -> Size:
    """FLOPs of the products that `keep` is true of: forward, and backward too in a training step."""
    return point.flops(keep)


def params_of(point: Point, keep: Callable[[Tensor], bool] = lambda _tensor: True) -> Size:
    """Number of stored parameters in the tensors that `keep` is true of."""
    return sum(tensor.count * tensor.elements for tensor in point.ledger.tensors() if keep(tensor))


def rule_of_thumb(point: Point) -> Size:
    """FLOPs by the rule of thumb: 2·P·tokens, or 6·P·tokens in a training step, with P the active parameters.

    Kaplan et al., "Scaling Laws for Neural Language Models" (arXiv 2001.08361), section 2.1: C ≈ 6·N·B·S, there without
    embeddings; PaLM (arXiv 2204.02311), appendix B, for the FLOPs per token behind MFU. P here are all parameters that
    a token meets, embeddings too, because that is the number in a model's name.
    """
    return FLOPS_PER_MULTIPLY_ADD * (3 if point.train else 1) * point.active_params() * point.tokens


def _footprint(point: Point) -> memory.Footprint:
    return memory.footprint(point.ledger, point.cached, point.weights, point.cache)


def memory_of(point: Point) -> StepMemory:
    """The training step of a point. Raises TfacctError where the formula does not count it."""
    if point.step is None:
        raise UsageError("the bytes of a training step need a recipe, which this point has none of")
    return point.step(point.work)


def peak_phase(point: Point) -> str:
    """Name of the phase of a training step that decides."""
    return str(memory_of(point).peak.name)


MEMORY_TRAFFIC = ("total_read_bytes", "total_written_bytes", "total_moved_bytes", "flops_per_byte")
"""Metrics of bytes that products read and write."""
METRICS = {
    metric.name: metric
    for metric in (
        Metric("total_flops", "flops", "FLOPs of one forward pass, or of one training step.", flops_of),
        Metric(
            "flops_per_token",
            "flops",
            "FLOPs divided by the number of new tokens in all sequences.",
            lambda point: ratio(flops_of(point), point.tokens),
        ),
        Metric(
            "rule_of_thumb_flops",
            "flops",
            "2 FLOPs for each active parameter and new token; 6 in a training step.",
            rule_of_thumb,
        ),
        Metric(
            "ratio_to_rule_of_thumb",
            "ratio",
            "total_flops divided by rule_of_thumb_flops.",
            lambda point: ratio(flops_of(point), rule_of_thumb(point)),
        ),
        Metric("total_params", "params", "Stored parameters, every tensor once.", params_of),
        Metric(
            "active_params",
            "params",
            "Parameters that one token uses: of the experts, only those that it is sent to.",
            lambda point: point.active_params(),
        ),
        Metric(
            "embedding_params",
            "params",
            "Parameters of the tables of tokens, positions and segments.",
            lambda point: params_of(point, lambda tensor: tensor.embedding),
        ),
        Metric(
            "non_embedding_params",
            "params",
            "All other parameters, including an untied output matrix.",
            lambda point: params_of(point, lambda tensor: not tensor.embedding),
        ),
        Metric("weights_bytes", "bytes", "Bytes of the stored weights.", lambda point: _footprint(point).weights),
        Metric(
            "kv_cache_bytes",
            "bytes",
            "Bytes cached between steps by all sequences: keys and values, latents or states.",
            lambda point: _footprint(point).cache,
        ),
        Metric(
            "kv_bytes_per_token",
            "bytes",
            "Bytes that the first token of a sequence adds to the cache.",
            lambda point: _footprint(point).per_token,
        ),
        Metric(
            "kv_bytes_next_token",
            "bytes",
            "Bytes that one more token of one sequence would add to the cache.",
            lambda point: memory.next_token_bytes(point.ledger, point.cached, point.cache),
        ),
        Metric(
            "total_bytes",
            "bytes",
            "Bytes of the weights and of the cache.",
            lambda point: _footprint(point).total,
        ),
        Metric(
            "total_read_bytes",
            "bytes",
            "Bytes that the products of a forward pass read, in unfused kernels.",
            lambda point: point.cost().read,
        ),
        Metric(
            "total_written_bytes",
            "bytes",
            "Bytes that the products of a forward pass write, in unfused kernels.",
            lambda point: point.cost().written,
        ),
        Metric(
            "total_moved_bytes",
            "bytes",
            "Bytes that the products of a forward pass read and write, in unfused kernels.",
            lambda point: point.cost().moved,
        ),
        Metric(
            "flops_per_byte",
            "ratio",
            "FLOPs of a forward pass for each byte that its products read or write.",
            lambda point: point.cost().intensity,
        ),
    )
}
"""Metrics that every model has, by name."""
STEP_METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "saved_bytes",
            "bytes",
            "Bytes of activations that a training step saves for its backward pass.",
            lambda point: memory_of(point).step.saved_bytes(),
            of_step=True,
        ),
        Metric(
            "gradients_bytes",
            "bytes",
            "Bytes of all gradients.",
            lambda point: memory_of(point).phases[-1].gradients,
            of_step=True,
            whole=True,
        ),
        Metric(
            "optimizer_bytes",
            "bytes",
            "Bytes of the optimizer's state.",
            lambda point: memory_of(point).step.optimizer_state,
            of_step=True,
        ),
        Metric(
            "peak_bytes",
            "bytes",
            "Bytes at the peak of a training step.",
            lambda point: memory_of(point).peak.total,
            of_step=True,
            whole=True,
        ),
    )
}
"""Metrics of a model whose training step is counted, by name."""
PEAK = "peak_bytes"

OF_A_NAME: dict[str, tuple[Unit, str]] = {
    "flops.NAME": ("flops", "FLOPs of a product, a part or a component: flops.attn.scores, flops.mlp."),
    "share.NAME": ("share", "Share of a product, a part or a component in all FLOPs: share.attn_scores_values."),
}
"""Metrics that a model has of each name in its table of FLOPs: `products` lists them."""


def products(ledgers: Iterable[Ledger]) -> list[str]:
    """Names that may follow `flops.` and `share.`: those of products, parts and components."""
    names: dict[str, None] = {}
    for ledger in ledgers:
        for group in ledger.groups:
            for line in group.lines:
                if isinstance(line, Matmul):
                    names |= dict.fromkeys(_names(line.path, line))
    return list(names)


def _names(path: str, line: Matmul) -> tuple[str, ...]:
    """Names that a product answers to: `attn`, `attn_scores_values`, `attn.scores`."""
    return paths.heading_of(path), paths.component_of(line), paths.short(path)


def metric(name: str, ledgers: Iterable[Ledger]) -> Metric:
    """Metric by its name. Raises NotFoundError, which suggests the nearest name."""
    if name in METRICS:
        return METRICS[name]
    asked, _, of = name.partition(".")
    there = products(ledgers)
    if asked in ("flops", "share") and of in there:
        return _flops_of(of) if asked == "flops" else _share_of(of)
    if name in STEP_METRICS:
        return STEP_METRICS[name]
    whole = [*METRICS, *STEP_METRICS]
    known = [*whole, *(f"{word}.{of}" for word in ("share", "flops") for of in there)]
    raise NotFoundError(f"unknown metric {name!r}", nearest(name, known) or f"metrics: {', '.join(whole)}, share.NAME")


def _flops_of(name: str) -> Metric:
    def of(point: Point) -> Size:
        return flops_of(point, lambda path, line: name in _names(path, line))

    return Metric(f"flops.{name}", "flops", f"FLOPs of {name}.", of)


def _share_of(name: str) -> Metric:
    part = _flops_of(name)
    return Metric(
        f"share.{name}", "share", f"Share of {name} in all FLOPs.", lambda point: ratio(part.of(point), flops_of(point))
    )


def moved(point: Point, **changes: object) -> Point:
    """Point of the same model at a workload with these changes."""
    return replace(point, work=replace(point.work, **changes))  # type: ignore[arg-type]


def attention_overtakes(point: Point, *, chunk: bool) -> int | None:
    """First context at which scores + values take more FLOPs than everything else; None if there is none up to 10¹².

    `chunk`: the number of new tokens stays while the context grows; otherwise the whole context is new.
    """

    def ahead(context: int) -> int:
        there = moved(point, context=context) if chunk else moved(point, context=context, tokens=context)
        attention = flops_of(there, lambda _path, line: paths.component_of(line) == paths.SCORES)
        return int(2 * attention - flops_of(there))

    smallest, together, learned = point.work.tokens if chunk else 1, point.ledger.together, point.ledger.learned_tokens
    last = smallest - 1 + memory.largest_that_fits(lambda n: ahead((smallest - 1 + n) * together + learned), 0, LARGEST)
    return (last + 1) * together + learned if last < LARGEST else None


def cache_overtakes(point: Point) -> int | None:
    """First context at which the cache takes more bytes than the weights; None if there is none up to 10¹²."""
    weights = memory.footprint(point.ledger, point.at, point.weights, point.cache).weights

    def ahead(context: int) -> int:
        return int(memory.cache_bytes(point.ledger, moved(point, context=context).at, point.cache) - weights)

    last = memory.largest_that_fits(ahead, 0, LARGEST)
    return last + 1 if last < LARGEST else None
