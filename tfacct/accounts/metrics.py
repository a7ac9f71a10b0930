"""Metrics: numbers about a model at a workload, by name, for sweeps, equations and arrays.

They are computed from the ledger, so sizes may be ints (exact), arrays or symbols. Names are the JSON keys, and
`flops.NAME` and `share.NAME` of any matmul, part or component: `share.attn.scores`, `share.attn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from tfacct.accounts import memory
from tfacct.base.errors import NotFoundError, UsageError, nearest
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.cost import Cost
from tfacct.ledger.einsum import Axes, Size, ratio
from tfacct.ledger.evaluated import Tensor
from tfacct.ledger.groups import Keep, Ledger, every_matmul
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD, Matmul
from tfacct.ledger.storage import BF16, BF16_EACH, Storage, Width
from tfacct.ledger.workload import LARGEST, Workload

Recompute = Literal["full", "attention", "none"]
"""Recomputation (activation checkpointing) of a training step."""
Unit = Literal["flops", "params", "bytes", "share", "ratio"]


@record
class Point:
    """A model at a workload, with the storage of weights and cache: the input of a metric.

    `recompute`: recomputation of a training step. `step` returns the memory of a training step at a workload
    (`tfacct.training.memory.TrainingMemory`), for metrics that need it. A point of one rank (`parallel.rank_flops`) has
    that rank's shards.
    """

    ledger: Ledger
    work: Workload
    weights: Storage = BF16
    cache: Width = BF16_EACH
    masked: bool = False
    train: bool = False
    recompute: Recompute = "none"
    step: Callable[[Workload], Any] | None = None

    @property
    def at(self) -> Axes:
        """Sizes of the workload's axes."""
        return self.work.axes()

    @property
    def tokens(self) -> Size:
        """Number of new tokens of all sequences."""
        return self.work.batch * self.work.tokens

    @property
    def cached(self) -> Axes:
        """Sizes of the workload's axes for the cache of this rank."""
        return self.at

    def flops(self, keep: Keep) -> Size:
        """FLOPs of the matmuls selected by `keep`: forward, and backward in a training step."""
        forward = self.ledger.total_flops(self.at, masked=self.masked, keep=keep)
        if not self.train:
            return forward
        both = forward + self.ledger.total_flops(self.at, masked=self.masked, backward=True, keep=keep)
        from tfacct.accounts.step_flops import recomputed_flops

        return both + recomputed_flops(self.ledger, self.at, self.recompute, masked=self.masked, keep=keep)

    def cost(self) -> Cost:
        """FLOPs of a forward pass, and bytes read and written by its matmuls with unfused kernels."""
        return self.ledger.cost(self.at, self.weights, self.cache)

    @property
    def weight_bytes(self) -> Size:
        """Bytes of the stored weights."""
        return sum(self.ledger.weight_bytes(self.weights).values())

    @property
    def cache_bytes(self) -> Size:
        """Bytes cached between steps."""
        return memory.cache_bytes(self.ledger, self.cached, self.cache)

    def active_params(self) -> Size:
        """Number of parameters active for one token: of experts only the top-k."""
        return sum(self.ledger.active_parameters().values())


@record
class Metric:
    """A number with a name, a unit and a function of a Point.

    `of_step`: it needs the memory of a training step. `whole`: sizes must be whole numbers, not symbols.
    """

    name: str
    unit: Unit
    about: str
    """Description in one sentence."""
    of: Callable[[Point], Size]
    of_step: bool = False
    whole: bool = False


def flops_of(point: Point, keep: Keep = every_matmul) -> Size:
    """FLOPs of the matmuls selected by `keep`: forward, and backward in a training step."""
    return point.flops(keep)


def params_of(point: Point, keep: Callable[[Tensor], bool] = lambda _tensor: True) -> Size:
    """Number of stored parameters in the tensors selected by `keep`."""
    return sum(tensor.count * tensor.elements for tensor in point.ledger.tensors() if keep(tensor))


def rule_of_thumb(point: Point) -> Size:
    """FLOPs by the rule of thumb: 2·P·tokens, or 6·P·tokens in a training step, with P the active parameters.

    Kaplan et al., "Scaling Laws for Neural Language Models" (arXiv 2001.08361), section 2.1: C ≈ 6·N·B·S, there without
    embeddings; PaLM (arXiv 2204.02311), appendix B, for FLOPs per token in MFU. P here includes embeddings, because
    that is the number in a model's name.
    """
    return FLOPS_PER_MULTIPLY_ADD * (3 if point.train else 1) * point.active_params() * point.tokens


def memory_of(point: Point) -> Any:
    """Memory of the training step of a point. Raises TfacctError if the step is not supported."""
    if point.step is None:
        raise UsageError("the bytes of a training step need a recipe")
    return point.step(point.work)


def _in_step(name: str) -> Callable[[Point], Size]:
    return lambda point: getattr(memory_of(point), name)


def _traffic(what: str) -> Callable[[Point], Size]:
    return lambda point: getattr(point.cost(), what)


TRAFFIC = {"read": "read", "written": "written", "moved": "read and written"}
MEMORY_TRAFFIC = (*(f"total_{what}_bytes" for what in TRAFFIC), "flops_per_byte")
"""Metrics of memory traffic."""
METRICS = {
    metric.name: metric
    for metric in (
        Metric("total_flops", "flops", "FLOPs of one forward pass, or of one training step.", flops_of),
        Metric("flops_per_token", "flops", "FLOPs per new token.", lambda point: ratio(flops_of(point), point.tokens)),
        Metric(
            "rule_of_thumb_flops",
            "flops",
            "2 · active parameters · new tokens; in training 6 in place of 2.",
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
            "Parameters that one token uses; experts that it is not routed to are excluded.",
            lambda point: point.active_params(),
        ),
        Metric(
            "embedding_params",
            "params",
            "Parameters of the token, position and segment embeddings.",
            lambda point: params_of(point, lambda tensor: tensor.embedding),
        ),
        Metric(
            "non_embedding_params",
            "params",
            "All other parameters, including an untied output head.",
            lambda point: params_of(point, lambda tensor: not tensor.embedding),
        ),
        Metric("weights_bytes", "bytes", "Bytes of the stored weights.", lambda point: point.weight_bytes),
        Metric(
            "kv_cache_bytes",
            "bytes",
            "Bytes cached between steps for all sequences: keys and values, latents or states.",
            lambda point: point.cache_bytes,
        ),
        Metric(
            "kv_bytes_per_token",
            "bytes",
            "Bytes that the first token of a sequence adds to the cache.",
            lambda point: memory.token_bytes(point.ledger, point.cached, point.cache),
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
            "Bytes of the weights and the cache.",
            lambda point: point.weight_bytes + point.cache_bytes,
        ),
        *(
            Metric(
                f"total_{what}_bytes",
                "bytes",
                f"Bytes {words} by the matmuls of a forward pass, with unfused kernels.",
                _traffic(what),
            )
            for what, words in TRAFFIC.items()
        ),
        Metric(
            "flops_per_byte",
            "ratio",
            "FLOPs per byte read or written by the matmuls of a forward pass.",
            lambda point: point.cost().intensity,
        ),
    )
}
"""Metrics that every model has, by name."""
STEP_METRICS = {
    name: Metric(name, "bytes", about, _in_step(name), of_step=True, whole=whole)
    for name, about, whole in (
        ("saved_bytes", "Bytes of activations saved for backward.", False),
        ("gradients_bytes", "Bytes of all gradients.", True),
        ("optimizer_bytes", "Bytes of the optimizer state.", False),
        ("peak_bytes", "Peak memory of a training step, in bytes.", True),
    )
}
"""Metrics of models with a supported training step, by name."""
PEAK = "peak_bytes"

OF_A_NAME: dict[str, tuple[Unit, str]] = {
    "flops.NAME": ("flops", "FLOPs of a matmul, part or component: flops.attn.scores, flops.mlp."),
    "share.NAME": ("share", "Share of a matmul, part or component in the total FLOPs: share.attn_scores_values."),
}
"""Metrics for each name in a model's table of FLOPs: `products` lists the names."""


def products(ledgers: Iterable[Ledger]) -> list[str]:
    """Names that may follow `flops.` and `share.`: matmuls, parts and components."""
    names: dict[str, None] = {}
    for ledger in ledgers:
        for group in ledger.groups:
            for line in group.lines:
                if isinstance(line, Matmul):
                    names |= dict.fromkeys(_names(line.path, line))
    return list(names)


def _names(path: str, line: Matmul) -> tuple[str, ...]:
    """Names of a matmul: `attn`, `attn_scores_values`, `attn.scores`."""
    return paths.heading_of(path), paths.component_of(line), paths.short(path)


ALIASES = {
    **dict.fromkeys(("params", "parameters"), "total_params"),
    **dict.fromkeys(("kv", "kv_bytes", "kv_cache"), "kv_cache_bytes"),
    **dict.fromkeys(("intensity", "arithmetic_intensity"), "flops_per_byte"),
    "flops": "total_flops",
    "bytes": "total_bytes",
    "weights": "weights_bytes",
    "peak": "peak_bytes",
    "attention_flops": "flops.attn",
    "attn_flops": "flops.attn",
    "mlp_flops": "flops.mlp",
    **dict.fromkeys(("attention_share", "attn_share"), "share.attn"),
}
"""Other names of metrics."""
MEANT = {
    "memory": "total_bytes, or peak_bytes of a training step",
    **dict.fromkeys(("attn", "attention", "share.attention"), "share.attn_scores_values"),
    **dict.fromkeys(("mlp", "mlp_share", "ffn", "ffn_share", "share.ffn"), "share.mlp"),
    **dict.fromkeys(("flops.ffn", "ffn_flops"), "flops.mlp"),
    "scores": "flops.attn_scores_values",
}
"""Words that are no metric, and the metrics that they may mean."""


def metric(name: str, ledgers: Iterable[Ledger]) -> Metric:
    """Metric by name or alias. Raises NotFoundError with the nearest name."""
    name = ALIASES.get(name, name)
    if name in METRICS:
        return METRICS[name]
    kind, _, of = name.partition(".")
    there = products(ledgers)
    if kind in ("flops", "share") and of in there:
        return _flops_of(of) if kind == "flops" else _share_of(of)
    if name in STEP_METRICS:
        return STEP_METRICS[name]
    whole = [*METRICS, *STEP_METRICS]
    known = [*whole, *(f"{word}.{of}" for word in ("share", "flops") for of in there)]
    every = f"metrics: {', '.join(whole)}, flops.NAME, share.NAME; times are in `serve` and `time`"
    meant = f"did you mean {MEANT[name]}?" if name in MEANT else nearest(name, known)
    raise NotFoundError(f"unknown metric {name!r}", f"{meant} `tfacct help metrics` lists all" if meant else every)


def _flops_of(name: str) -> Metric:
    def of(point: Point) -> Size:
        return flops_of(point, lambda path, line: name in _names(path, line))

    return Metric(f"flops.{name}", "flops", f"FLOPs of {name}.", of)


def _share_of(name: str) -> Metric:
    part = _flops_of(name)
    return Metric(
        f"share.{name}",
        "share",
        f"Share of {name} in the total FLOPs.",
        lambda point: ratio(part.of(point), flops_of(point)),
    )


def moved(point: Point, **changes: object) -> Point:
    """The point with these changes of its workload."""
    return replace(point, work=replace(point.work, **changes))  # type: ignore[arg-type]


def attention_overtakes(point: Point, *, chunk: bool) -> int | None:
    """First context at which scores + values take more FLOPs than everything else; None if there is none up to 10¹².

    `chunk`: the number of new tokens does not grow with the context; otherwise the whole context is new.
    """

    def ahead(context: int) -> int:
        there = moved(point, context=context) if chunk else moved(point, context=context, tokens=context)
        attention = flops_of(there, lambda _path, line: paths.component_of(line) == paths.SCORES)
        return int(2 * attention - flops_of(there))

    before = point.work.tokens - 1 if chunk else 0
    together, learned = point.ledger.together, point.ledger.learned_tokens
    last = before + memory.largest_that_fits(lambda n: ahead((before + n) * together + learned), 0, LARGEST)
    return (last + 1) * together + learned if last < LARGEST else None
