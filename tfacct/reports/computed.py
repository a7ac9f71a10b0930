"""What one rank of a mesh computes: products of a report, where ranks divide the tokens of sequences or the experts.

Those of `tp` and the stages of `pp` have models of their own, in `ranks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfacct.accounts.metrics import Metric, Point
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.evaluated import Product
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.work import of_rank
from tfacct.reports import mesh as meshes
from tfacct.reports import ranks
from tfacct.reports.counting import MOVED


def on_rank(
    subject: LoadedModel, products: list[Product], mesh: Mesh, work: Workload, *, masked: bool = False
) -> list[Product]:
    """These products as one rank runs them. Raises TfacctError for a model whose tokens the ranks do not divide."""
    if mesh.cp > 1:
        check_parts(subject, mesh, work)
        if masked and any(product.line.mask not in ("full", "causal") or _windowed(product) for product in products):
            said = f"{subject.name}: ranks of {option('cp', mesh.cp)} do not see as many pairs each under a window"
            raise ConfigError(said, f"leave {option('masked')} out")
    return [of_rank(product, mesh) for product in products]


def check_parts(subject: LoadedModel, mesh: Mesh, work: Workload) -> None:
    """Raises TfacctError for a model whose tokens the ranks of a sequence do not divide."""
    alone = Mesh(cp=mesh.cp, cp_method="gather")  # keys come round or are gathered: a rank computes as much
    meshes.check_ruled(subject, alone, train=False)
    meshes.check_sizes(subject, alone, work.axes())


def _windowed(product: Product) -> bool:
    return product.line.mask != "full" and "W" in product.axes


def check_elements(mesh: Mesh | None) -> None:
    """Refuse elements of work that is no product where ranks divide its tokens. Raises UsageError."""
    if mesh is not None and (mesh.sp or mesh.cp > 1):
        given = option("sp", True) if mesh.sp else option("cp", mesh.cp)
        raise UsageError(f"{option('pointwise')} is not counted beside {given}", "leave one of the two out")


def points_of(
    subject: LoadedModel, point: Point, metrics: Sequence[Metric], mesh: Mesh, dtype: str | None
) -> list[Point]:
    """The model at a point as one rank has it, or as each stage of `pp` does, for these metrics of its ledger. Raises
    TfacctError."""
    if mesh.fsdp > 1:
        others = "the bytes of a training step are, as peak_bytes"
        raise UsageError(f"{metrics[0].name} is not divided by {option('fsdp')}", others)
    ratio = next((metric.name for metric in metrics if metric.unit in ("share", "ratio")), None)
    if mesh.pp > 1 and ratio is not None:
        said = f"{ratio} is a ratio, by which stages of {option('pp')} are not compared"
        raise UsageError(said, "total_flops, total_params, total_bytes and other amounts are")
    checked = ranks.checked(mesh)
    assert checked is not None
    if mesh.cp > 1:
        if any(metric.unit != "bytes" or metric.name in MOVED for metric in metrics):
            on_rank(subject, subject.ledger.products(point.at), mesh, point.work, masked=point.masked)
        if any(metric.unit == "bytes" and metric.name not in MOVED for metric in metrics):
            ranks.kept(subject, mesh, point.work)
    (ranked,) = ranks.as_one_of([subject], mesh, dtype)[1]
    own = mesh if mesh.cp > 1 or mesh.ep > 1 else None
    return [replace(point, ledger=one.ledger, mesh=own) for _, one in ranks.stages_of(ranked, mesh)]
