"""Metrics of a sweep, an equation or a comparison: how they are counted, and the notes that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from tfacct.accounts.metrics import MEMORY_TRAFFIC, Metric, Point
from tfacct.accounts.metrics import metric as find_metric
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.storage import BF16, DEFAULT_DTYPE, Storage, dtypes, width
from tfacct.ledger.workload import Logits, Workload, sequences_only
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Note
from tfacct.reports import model_notes
from tfacct.reports.build import DtypeFrom, ModelReport, WorkloadFacts

if TYPE_CHECKING:
    from tfacct.ledger.evaluated import Product
    from tfacct.loading.memory_limit import MemoryLimit
    from tfacct.parallel.mesh import Mesh
    from tfacct.training.memory import TrainingMemory
    from tfacct.training.recipe import Recipe


class RecipeReport(ModelReport):
    """Keys of the training recipe, of reports that may be about a training step."""

    optimizer: str | None
    recompute: str | None
    attention: Literal["sdpa", "eager"] | None
    loss: Literal["whole", "chunked"] | None
    lora: str | None
    weights_dtype: str | None
    master_weights: str | None


class MetricsReport(RecipeReport):
    """Keys of metrics, and the training recipe if a metric needs one."""

    workload: WorkloadFacts
    dtype_from: DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    train: bool


def recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """Keys of `RecipeReport`."""
    fields = {name: getattr(recipe, name) for name in RecipeReport.__annotations__}
    return {**fields, "weights_dtype": recipe.weights_format}


WEIGHED = ("weights_bytes", "total_bytes")
"""Metrics that include the bytes of weights."""


@record
class Counting:
    """How metrics are counted: dtypes, query–key pairs, pass. `trained`: given fields of the training recipe. `mesh`:
    metrics are of one rank; `as_served`: each rank has its own heads, also under a norm over all heads."""

    dtype: str | None = None
    kv_dtype: str | None = None
    masked: bool = False
    train: bool = False
    trained: tuple[tuple[str, Any], ...] = ()
    mesh: Mesh | None = None
    as_served: bool = False

    @property
    def recipe(self) -> Recipe:
        """The training recipe. Raises TfacctError for an unknown name."""
        from tfacct.training.recipe import Recipe

        return Recipe(self.dtype or DEFAULT_DTYPE, **dict(self.trained), mesh=self.mesh).checked()

    def stored(self, dtype: str | None, kv_dtype: str | None) -> Counting:
        """A copy with another dtype of weights or cache; None keeps the dtype."""
        return replace(self, dtype=dtype or self.dtype, kv_dtype=kv_dtype or self.kv_dtype)

    def on(self, limit: MemoryLimit, *, training: bool) -> Counting:
        """A copy on the devices of a limit, which share the model as in `memory`, or the step as in `train`. Raises
        UsageError."""
        from tfacct.parallel.mesh import mesh_on

        return replace(self, mesh=mesh_on(limit, self.mesh, training=training), as_served=not training)

    def check_recipe(self, metrics: Sequence[Metric]) -> None:
        """Raises UsageError for a recipe that no metric uses."""
        if self.trained and not any(metric.of_step for metric in metrics):
            hint = None if self.train else f"{option('train', True)} without a metric chooses these"
            needs = "a training metric, such as peak_bytes"
            raise UsageError(f"{option(self.trained[0][0])} applies to training memory: it needs {needs}", hint)

    def point(self, model: LoadedModel, work: Workload, metrics: Sequence[Metric] = ()) -> Point:
        """The model at a workload; with stages, the stage with most of the metric. Raises UsageError for an unsupported
        metric."""
        points = self.points(model, work, metrics)
        of_pass = [metric for metric in metrics if not metric.of_step]
        if len(points) == 1 or not of_pass:
            return points[0]
        if len(metrics) > 1:
            raise UsageError(f"{option('pp')} works with one metric, not with {len(metrics):,}")
        return max(points, key=lambda one: int(of_pass[0].of(one)))

    def points(self, model: LoadedModel, work: Workload, metrics: Sequence[Metric] = ()) -> list[Point]:
        """The model at a workload, or each of its stages. Raises UsageError for a metric that is not supported."""
        if self.train and work.tokens != work.context:
            raise sequences_only("train")
        if (self.masked or self.train) and any(metric.name in MEMORY_TRAFFIC for metric in metrics):
            others = f"{option('masked')} and {option('train')}"
            raise UsageError(f"bytes moved are counted for a plain forward pass: leave {others} out")
        _, cached = dtypes(self.dtype, self.kv_dtype)
        weighed = any(metric.name in (*WEIGHED, *MEMORY_TRAFFIC) for metric in metrics)
        weights = self._weights(model, weighed=weighed)
        step = self._step(model, work, metrics)
        point = Point(model.ledger, work, weights, width(cached), self.masked, self.train, step=step)
        of_pass = [metric for metric in metrics if not metric.of_step]
        if self.mesh is None or not of_pass:
            return [point]
        from tfacct.parallel.rank_flops import points_of
        from tfacct.parallel.shard_model import as_served

        return points_of(as_served(model) if self.as_served else model, point, of_pass, self.mesh, self.dtype)

    def _weights(self, model: LoadedModel, *, weighed: bool) -> Storage:
        """Storage of the weights; bf16 if it is unknown and no metric needs it."""
        try:
            return model.storage(self.dtype)
        except TfacctError:
            if weighed:
                raise
            return BF16

    def _step(
        self, model: LoadedModel, work: Workload, metrics: Sequence[Metric]
    ) -> Callable[[Workload], TrainingMemory] | None:
        """Training memory as a function of the workload, if a metric needs it. Raises UsageError if the model
        or workload is not supported."""
        name = next((metric.name for metric in metrics if metric.of_step), None)
        if name is None:
            return None
        if work.tokens != work.context:
            parts = f"{option('decode')} and {option('tokens')}"
            raise UsageError(f"{name} is a training metric, for whole sequences: leave {parts} out")
        if work.logits == "last":
            raise UsageError(f"{name} is a training metric, with all logits: leave {option('logits')} out")
        from tfacct.training.memory import memory_at

        return memory_at(model, self.recipe)

    def recipe_facts(self, metrics: Sequence[Metric], model: LoadedModel | None = None) -> dict[str, Any]:
        """The recipe in the JSON if a metric needs it, with the attention of the model's class as the default."""
        if not any(metric.of_step for metric in metrics):
            return {}
        return recipe_facts(self.recipe if model is None else self.recipe.for_model(model))

    def facts(self, model: LoadedModel, work: Workload, weights: str | None) -> dict[str, Any]:
        """The workload and formats in the JSON."""
        _, cached = dtypes(self.dtype, self.kv_dtype)
        facts = selection.workload_facts(work, masked=self.masked, dtype=weights)
        return {"workload": facts, **selection.format_facts(model, self.dtype), "kv_dtype": cached, "train": self.train}


def named_of(recipe: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The fields of a recipe that were given."""
    named = ((name, value) for name, value in recipe.items() if value is not None)
    return tuple((name, value if isinstance(value, float) else str(value)) for name, value in named)


def metrics_named(names: Iterable[str], models: Sequence[LoadedModel]) -> list[Metric]:
    """The metrics with these names, each once. Raises UsageError for a name that no model has."""
    found = (find_metric(name, (model.ledger for model in models)) for name in names)
    return list({one.name: one for one in found}.values())


def flops_by(point: Point, name: Callable[[Product], str]) -> dict[str, int]:
    """FLOPs by the name of each matrix product; of both passes in a training step."""
    found: dict[str, int] = {}
    for product in point.ledger.products(point.at, masked=point.masked):
        flops = product.forward + (product.backward if point.train else 0)
        found[name(product)] = found.get(name(product), 0) + flops
    return found


@record
class CountedMetrics:
    """Metrics and how they are counted. `to`: how the new side of a comparison is counted. `recipes`: each row has its
    own training recipe."""

    metrics: Sequence[Metric]
    terms: Counting
    to: Counting | None = None
    recipes: bool = False

    @property
    def products(self) -> bool:
        """True if a metric is of matrix products."""
        return any(metric.unit in ("flops", "share", "ratio") for metric in self.metrics)

    @property
    def traffic(self) -> bool:
        """True if a metric is of bytes moved."""
        return any(metric.name in MEMORY_TRAFFIC for metric in self.metrics)

    @property
    def cache(self) -> bool:
        """True if a metric is of stored bytes."""
        others = (metric for metric in self.metrics if metric.unit == "bytes" and not metric.of_step)
        return any(metric.name not in MEMORY_TRAFFIC for metric in others)

    @property
    def weights(self) -> bool:
        """True if a metric includes the bytes of weights."""
        return any(metric.name in WEIGHED for metric in self.metrics)

    @property
    def training(self) -> bool:
        """True if a metric is the memory of a training step."""
        return any(metric.of_step for metric in self.metrics)

    def convention(self, models: Sequence[LoadedModel], logits: Logits) -> str:
        """What was counted, in one line."""
        clauses = ["every stored tensor once"] if all(metric.unit == "params" for metric in self.metrics) else []
        if self.products:
            step = ", forward and backward" if self.terms.train else ""
            clauses.append(f"{model_notes.products_counted(models, logits, masked=self.terms.masked)}{step}")
        named, cached_in = self.dtypes(models)
        worded = self.dtypes(models, selection.formats)[0]
        stored = " → ".join(named if len(named) < len(worded) else worded)
        cached = " → ".join(cached_in)
        if self.traffic:
            clauses.append(f"bytes moved by unfused kernels, weights in {stored}, activations in {cached}")
        if self.cache:
            clause = f"{model_notes.cache_name(models)} in {cached}"
            if self.weights:
                clause = f"{'weights' if stored == cached else f'weights in {stored}'} and {clause}"
            clauses.append(clause)
        if self.training and self.recipes:
            clauses.append("a training step with the recipe of its row, as run by transformers")
        elif self.training:
            recipe = self.terms.recipe
            step = f"{recipe.precision} with {recipe.description}"
            clauses.append(f"a training step in {step}, as run by transformers")
        return "; ".join(clauses)

    def _sides(self, models: Sequence[LoadedModel]) -> list[tuple[Sequence[LoadedModel], Counting]]:
        """The models, or the old and the new one, and how they are counted."""
        return [(models, self.terms)] if self.to is None else [(models[:1], self.terms), (models[-1:], self.to)]

    def dtypes(
        self,
        models: Sequence[LoadedModel],
        weights: Callable[[Sequence[LoadedModel], str | None], str] = selection.stored_name,
    ) -> list[list[str]]:
        """The dtypes of the weights, and those of the cache: one each, or two if the sides of a comparison differ."""
        sides = self._sides(models)
        named = [(weights(some, side.dtype), dtypes(side.dtype, side.kv_dtype)[1]) for some, side in sides]
        return [list(dict.fromkeys(each)) for each in zip(*named, strict=True)]

    def assumed(self, models: Sequence[LoadedModel]) -> str:
        """`, weights in bf16 (assumed)` for a title, if the format is assumed or differs between models."""
        if self.terms.dtype is not None or not (self.weights or self.traffic):
            return ""
        names = {selection.format_name(model, None) for model in models}
        plain = not any(map(selection.format_assumed, models)) and names <= {one.storage().name for one in models}
        return "" if plain else f", weights in {selection.formats(models, None)}"

    def notes(self, models: Sequence[LoadedModel]) -> list[Note]:
        """Notes on active parameters, states, quantized storage and optimizers that the metrics depend on."""
        found: dict[str, Iterable[str]] = {}
        if any(metric.name in ("rule_of_thumb_flops", "ratio_to_rule_of_thumb") for metric in self.metrics):
            found["active"] = model_notes.active_notes(models)
        if self.cache:
            found["state"] = model_notes.state_notes(models, dtypes(self.terms.dtype, self.terms.kv_dtype)[1])
        if self.weights or self.traffic:
            each = (model_notes.storage_notes(some, side.dtype) for some, side in self._sides(models))
            found["storage"] = dict.fromkeys(note for notes in each for note in notes)
        if any(metric.name == "peak_bytes" for metric in self.metrics):
            found["optimizer_order"] = self._upper_bounds(models)
        return [Note(key, 2, text) for key, texts in found.items() for text in texts]

    def _upper_bounds(self, models: Sequence[LoadedModel]) -> list[str]:
        """Optimizers whose peak is an upper bound."""
        from tfacct.training.memory import order_matters

        recipe = self.terms.recipe
        order = "its temporary memory depends on the parameter order"
        upper = any(order_matters(model, recipe) for model in models)
        return [f"The peak with {recipe.optimizer} is an upper bound: {order}."] if upper else []

    def window_notes(self, settings: Sequence[LoadedModel]) -> list[Note]:
        """Notes on windows, if the metrics depend on them."""
        products = self.products or self.traffic
        if not products and not any(one.name.startswith("kv_") or one.name == "total_bytes" for one in self.metrics):
            return []
        found = [model_notes.window_notes(one, masked=self.terms.masked, cached=not products) for one in settings]
        if found.count(found[0]) == len(found):
            return [Note("windows", 2, text) for text in found[0]]
        effect = "all pairs are counted (not --masked)"
        if not products or self.terms.masked:
            effect = "only those are counted" if products else "only those are cached"
        return [Note("windows", 2, f"The number of keys that a token sees differs between rows; {effect}.")]
