"""What one rank of a mesh computes: products of a report, where ranks divide the tokens of sequences or the experts.

Those of `tp` and the stages of `pp` have models of their own, in `ranks`.
"""

from __future__ import annotations

from dataclasses import replace

from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.work import of_rank
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.evaluated import Product
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports import mesh as meshes
from tfacct.reports.flops_tables import Counted


def computed(counted: Counted, mesh: Mesh) -> Counted:
    """The products of one rank, of a model as its ranks of `tp` have it. Raises TfacctError."""
    products = on_rank(counted.subject, counted.products, mesh, counted.work, masked=counted.masked)
    return replace(counted, products=products)


def on_rank(
    subject: LoadedModel, products: list[Product], mesh: Mesh, work: Workload, *, masked: bool = False
) -> list[Product]:
    """These products as one rank runs them. Raises TfacctError for a model whose tokens the ranks do not divide."""
    if mesh.cp > 1:
        # Keys come round or are gathered: a rank computes as much.
        alone = Mesh(cp=mesh.cp, cp_method="gather")
        meshes.check_ruled(subject, alone, train=False)
        meshes.check_sizes(subject, alone, work.axes())
        if masked and any(product.line.mask not in ("full", "causal") or _windowed(product) for product in products):
            said = f"{subject.name}: ranks of {option('cp', mesh.cp)} do not see as many pairs each under a window"
            raise ConfigError(said, f"leave {option('masked')} out")
    return [of_rank(product, mesh) for product in products]


def _windowed(product: Product) -> bool:
    return product.line.mask != "full" and "W" in product.axes


def check_elements(mesh: Mesh | None) -> None:
    """Refuse elements of work that is no product where ranks divide its tokens. Raises UsageError."""
    if mesh is not None and (mesh.sp or mesh.cp > 1):
        given = option("sp", True) if mesh.sp else option("cp", mesh.cp)
        raise UsageError(f"{option('pointwise')} is not counted beside {given}", "leave one of the two out")
