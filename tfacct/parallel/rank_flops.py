"""What one rank computes and caches if ranks shard the tokens of sequences or the experts.

A `cp` rank has the queries of its tokens and, temporarily, the keys of all tokens: T is sharded and S is not. With a
causal mask, every rank has the same number of pairs, because it has a chunk from the front and one from the back.
`shard_model` covers `tp` ranks and `pp` stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from tfacct.accounts.metrics import MEMORY_TRAFFIC, Metric, Point
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.cost import Cost
from tfacct.ledger.einsum import Axes, Size, axis_names, divided, rounded_up
from tfacct.ledger.evaluated import Product
from tfacct.ledger.groups import Keep
from tfacct.ledger.lines import ACTIVE, WINDOW, State
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import CP_CHUNKS, Mesh, checked_pass
from tfacct.parallel.shard_model import shard_for_memory, stages_of
from tfacct.parallel.support import check_mesh, check_sizes


def on_rank(
    model: LoadedModel, products: list[Product], mesh: Mesh, work: Workload, *, masked: bool = False
) -> list[Product]:
    """The matmuls of one rank. Raises TfacctError for a model whose tokens the ranks cannot shard."""
    if mesh.cp > 1:
        check_parts(model, mesh, work)
        if masked and any(product.line.mask not in ("full", "causal") or _windowed(product) for product in products):
            problem = f"{model.name}: with a window, {option('cp', mesh.cp)} ranks have unequal numbers of pairs"
            raise ConfigError(problem, f"leave {option('masked')} out")
    return [of_rank(product, mesh) for product in products]


def check_parts(model: LoadedModel, mesh: Mesh, work: Workload) -> None:
    """Raises TfacctError for a model whose tokens the ranks of a sequence cannot shard."""
    alone = Mesh(cp=mesh.cp, cp_method="gather")  # a ring and an all-gather compute the same
    check_mesh(model, alone, train=False)
    check_sizes(model, alone, work.axes())


def _windowed(product: Product) -> bool:
    return product.line.mask != "full" and "W" in product.axes


def check_elements(mesh: Mesh | None) -> None:
    """Raises UsageError for element counts of pointwise work if ranks shard its tokens."""
    if mesh is not None and (mesh.sp or mesh.cp > 1):
        given = option("sp", True) if mesh.sp else option("cp", mesh.cp)
        raise UsageError(f"{option('pointwise')} is not supported with {given}", "leave one of the two out")


def points_of(
    model: LoadedModel, point: Point, metrics: Sequence[Metric], mesh: Mesh, dtype: str | None
) -> list[Point]:
    """A point of one rank of each pipeline stage, for these metrics. Raises TfacctError."""
    if mesh.fsdp > 1:
        problem = f"{option('fsdp')} applies to a training step, and {metrics[0].name} is not counted for one"
        raise UsageError(problem, "use a metric of a training step, such as peak_bytes")
    ratio = next((metric.name for metric in metrics if metric.unit in ("share", "ratio")), None)
    if mesh.pp > 1 and ratio is not None:
        problem = f"{ratio} is a ratio, which cannot be compared between {option('pp')} stages"
        raise UsageError(problem, "use total_flops, total_params, total_bytes or another amount")
    checked_pass(mesh)
    if mesh.cp > 1:
        if any(metric.unit != "bytes" or metric.name in MEMORY_TRAFFIC for metric in metrics):
            on_rank(model, model.ledger.products(point.at), mesh, point.work, masked=point.masked)
        if any(metric.unit == "bytes" and metric.name not in MEMORY_TRAFFIC for metric in metrics):
            check_cached_tokens(model, mesh, point.work)
    sharded = shard_for_memory(model, mesh, dtype)
    points = [replace(point, ledger=one.ledger) for _, one in stages_of(sharded, mesh.pp)]
    return [RankPoint.of(one, mesh) for one in points] if mesh.cp > 1 or mesh.ep > 1 else points


@record
class RankPoint(Point):
    """A point of one rank with sharded tokens or experts; `tp` and `ep` already shard its ledger."""

    mesh: Mesh = Mesh()

    @staticmethod
    def of(point: Point, mesh: Mesh) -> RankPoint:
        """The point on one rank."""
        return RankPoint(**{one.name: getattr(point, one.name) for one in fields(point)}, mesh=mesh)

    @property
    def tokens(self) -> Size:
        """Number of new tokens of all sequences on this rank."""
        return self.work.batch * self.work.tokens // self.mesh.sequence_shards

    @property
    def cached(self) -> Axes:
        """Axis sizes of the tokens cached on this rank."""
        return rank_tokens(self.mesh, self.work).axes()

    def flops(self, keep: Keep) -> Size:
        """FLOPs of the matmuls for which `keep` is true."""
        chosen = (product for product in self._products() if keep(product.path, product.line))
        return sum(product.forward + (product.backward if self.train else 0) for product in chosen)

    def cost(self) -> Cost:
        """FLOPs of a forward pass, and the bytes that its matmuls read and write."""
        return sum((one.cost(self.weights, self.cache) for one in self._products()), Cost())

    def active_params(self) -> Size:
        """Number of active parameters of a token. Whole experts count 1 / `tp`: a batch's ranks share its tokens."""
        if self.mesh.ep == 1:
            return Point.active_params(self)
        shares = ((tensor, self.mesh.tp if tensor.parameter.is_expert else 1) for tensor in self.ledger.tensors())
        return sum(divided(tensor.count * tensor.active, share) for tensor, share in shares)

    def _products(self) -> list[Product]:
        return [of_rank(product, self.mesh) for product in self.ledger.products(self.at, masked=self.masked)]


def of_rank(product: Product, mesh: Mesh) -> Product:
    """A matmul on a rank with its shard of each sequence, from a ledger that `tp` and `ep` already shard. The ranks of
    a batch share its token-expert pairs evenly."""
    if mesh.sequence_shards > 1:
        product = _of_tokens(product, mesh)
    if mesh.ep > 1 and product.line.expert_axis:
        product = _of_pairs(product, mesh)
    return product


def _of_tokens(product: Product, mesh: Mesh) -> Product:
    axes = {
        **product.axes,
        **{axis: product.axes[axis] // mesh.sequence_shards for axis in ("T", "O") if product.axes[axis] > 1},
    }
    shares = mesh.sequence_shards if any(axes[axis] != product.axes[axis] for axis in product.line.einsum.every) else 1
    dims = product.line.dims(axes)
    return product._replace(
        axes=axes,
        dims=dims._replace(times=product.count * dims.times),
        forward=divided(product.forward, shares),
        backward=divided(product.backward, shares),
    )


def _of_pairs(product: Product, mesh: Mesh) -> Product:
    pairs = product.axes["B"] * product.axes["T"] * product.axes[ACTIVE]
    rank_pairs = rounded_up(pairs, mesh.tp)
    product = product._replace(axes={**product.axes, "B": rank_pairs, "T": 1, ACTIVE: 1})  # a pair is a row
    if mesh.tp == 1:
        return product

    def share(flops: Size) -> Size:
        return divided(flops, pairs) * rank_pairs

    dims = product.dims._replace(m=rank_pairs, times=product.count)
    return product._replace(dims=dims, forward=share(product.forward), backward=share(product.backward))


def check_cached_tokens(model: LoadedModel, mesh: Mesh, work: Workload) -> None:
    """Raises TfacctError for tokens that `cp` ranks cannot shard, and for a model that caches anything but keys and
    values of each token."""
    if mesh.cp == 1:
        return
    given = option("cp", mesh.cp)
    for group in model.ledger.groups:
        states = [axis_names(line.spec) for line in group.lines if isinstance(line, State)]
        if any("S" not in axes for axes in states):
            raise ConfigError(f"{model.name}: {given} does not support recurrent states", "leave it out")
        if states and WINDOW in group.axes:
            problem = f"{given} does not support windows, because engines differ in which rank caches the last tokens"
            raise ConfigError(f"{model.name}: {problem}", "leave it out")
    check_sizes(model, Mesh(cp=mesh.cp), {**work.axes(), "T": work.context})


def rank_tokens(mesh: Mesh, work: Workload) -> Workload:
    """The tokens of a context that the fullest rank caches."""
    if mesh.cp == 1:
        return work
    tokens = CP_CHUNKS * rounded_up(work.context, CP_CHUNKS * mesh.cp)
    return replace(work, context=tokens, tokens=tokens)
