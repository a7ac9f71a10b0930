"""The tables of `flops`: one model by line, by part and by block; several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tfacct.accounts.metrics import Point, Recompute, active_params_of, params_of, rule_of_thumb
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Product
from tfacct.ledger.groups import Ledger
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import PLAIN, Column, Row, Table
from tfacct.reports import cells, compose
from tfacct.reports.cells import shown

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh


def products_of(ledger: Ledger, work: Workload, *, masked: bool, recompute: Recompute) -> list[Product]:
    """Every product at a workload, with what is run again among its backward FLOPs."""
    products = ledger.products(work.axes(), masked=masked)
    if recompute == "none":
        return products
    from tfacct.accounts.step_flops import recomputed

    again = recomputed(ledger, work.axes(), masked=masked, attention=recompute == "attention")
    return [each._replace(backward=each.backward + more) for each, more in zip(products, again, strict=True)]


@record
class Counted:
    """One model's products at one workload. `recompute`: what the backward pass runs again. `whole`: those of the whole
    model, where the ranks of a `mesh` divide it and these are of one, of this `stage`."""

    subject: LoadedModel
    work: Workload
    products: list[Product]
    train: bool
    masked: bool
    recompute: Recompute = "none"
    whole: Counted | None = None
    mesh: Mesh | None = None
    stage: int = 1

    def flops(self, product: Product) -> int:
        """FLOPs of the line: forward, and backward in a training step."""
        return int(product.forward + product.backward if self.train else product.forward)

    @property
    def total(self) -> int:
        return sum(self.flops(product) for product in self.products)

    @property
    def tokens(self) -> int:
        return int(self.own.batch * self.own.tokens)

    @property
    def own(self) -> Workload:
        """The workload, with the tokens of one rank."""
        parts = 1 if self.mesh is None else self.mesh.parts
        return replace(self.work, tokens=self.work.tokens // parts)

    @property
    def params(self) -> int:
        return int(params_of(self.point))

    @property
    def active_params(self) -> int:
        return int(active_params_of(self._dealt))

    @property
    def active(self) -> bool:
        """True if a token meets fewer parameters than are stored."""
        return self.active_params != self.params

    @property
    def rule_of_thumb(self) -> int:
        """FLOPs by the rule of thumb."""
        return int(rule_of_thumb(self._dealt))

    @property
    def _dealt(self) -> Point:
        """The same of a rank whose tokens are dealt out to experts; those of its sequences are its own already."""
        mesh = self.mesh
        return self.point if mesh is None else replace(self.point, mesh=replace(mesh, cp=1, ulysses=1))

    @property
    def point(self) -> Point:
        """As metrics see it."""
        ledger, train = self.subject.ledger, self.train
        return Point(ledger, self.own, masked=self.masked, train=train, recompute=self.recompute)

    @property
    def if_all_called(self) -> int | None:
        """The total if every network ran; None where every one does."""
        whole = self.subject.architecture.all_called()
        if whole is None:
            return None
        products = products_of(whole.ledger(), self.work, masked=self.masked, recompute=self.recompute)
        return sum(self.flops(product) for product in products)

    def by_component(self) -> dict[str, int]:
        """FLOPs by component: attn_projections, attn_scores_values, mlp, mamba, lm_head."""
        summed: dict[str, int] = {}
        for product in self.products:
            name = paths.component_of(product.line)
            summed[name] = summed.get(name, 0) + self.flops(product)
        return summed


def by_line(counted: Counted, pointwise: bool) -> Table:
    columns = (
        Column("operation", "operation"),
        Column("spec", "einsum", "spec", drop=6),
        Column("dims", "m × k × n", "dims", drop=2, keys=("m", "k", "n")),
        Column("times", "times", "count", drop=1),
        *(
            (Column("forward", "forward", "flops", drop=4), Column("backward", "backward", "flops", drop=4))
            if counted.train
            else ()
        ),
        Column("flops", "FLOPs", "flops"),
        *((Column("elements", "elements", "flops"),) if pointwise else ()),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    rows: list[Row] = []
    for line in shown(counted.products):
        product = line.product
        dims, flops = product.dims, counted.flops(product)
        row: dict[str, Any] = {
            "part": paths.heading_of(product.path),
            "operation": line.operation,
            "spec": product.spec,
            "dims": (dims.m, dims.k, dims.n),
            "times": dims.times,
            "forward": product.forward,
            "backward": product.backward,
            "flops": flops,
        }
        rows.append(cells.with_share(row, flops, counted.total))
    sections = [tuple(section) for _, section in groupby(rows, key=lambda row: row["part"])]
    if pointwise:
        elements = counted.subject.ledger.pointwise(counted.work.axes())
        sections.append(tuple({"operation": paths.short(p), "elements": count} for p, count in elements.items()))
    return columns, tuple(sections), _totals(counted, "operation")


def by_part(counted: Counted) -> Table:
    columns = (
        Column("part", "part"),
        Column("flops", "FLOPs", "flops"),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    rows = tuple(
        cells.with_share({"part": cells.COMPONENTS.get(name, name), "flops": flops}, flops, counted.total)
        for name, flops in counted.by_component().items()
    )
    return columns, (rows,), _totals(counted, "part")


def by_block(counted: Counted) -> Table:
    """One row for each run of equal blocks, and one for each product outside them."""
    columns = (
        Column("block", "block"),
        Column("count", "count", "count"),
        Column("each", "FLOPs each", "flops"),
        Column("flops", "FLOPs", "flops"),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    rows: list[Row] = []
    for (numbers, kind, outside), products in groupby(counted.products, key=_block_of):
        flops = sum(counted.flops(product) for product in products)
        count = len(numbers) or 1
        row: dict[str, Any] = {
            "block": outside or " ".join(filter(None, (_span(numbers), f"({kind})" if kind else ""))),
            "count": count,
            "each": flops // count,
            "flops": flops,
        }
        rows.append(cells.with_share(row, flops, counted.total))
    return columns, (tuple(rows),), _totals(counted, "block")


def _block_of(product: Product) -> tuple[Sequence[int], str, str]:
    if paths.parse(product.path).stack == paths.BLOCKS:
        return product.numbers, product.kind, ""
    return product.numbers, product.kind, paths.heading_of(product.path) if product.numbers else product.path


def _span(numbers: Sequence[int]) -> str:
    """`blocks.0–25`, or the first few where they are not in a row."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return f"blocks.{first}"
    if len(numbers) == last - first + 1:
        return f"blocks.{first}–{last}"
    return f"blocks.{','.join(map(str, numbers[:3]))}{',…' if len(numbers) > 3 else ''}"


def _totals(counted: Counted, first: str) -> tuple[Row, ...]:
    factor = "6" if counted.train else "2"
    whole: tuple[Row, ...] = ()
    if counted.whole is not None:
        whole = ({first: "whole model", "flops": counted.whole.total, PLAIN: 1},)
    rule: Row = {
        first: f"{factor}·{'active' if counted.active else 'params'}·tokens",
        "flops": counted.rule_of_thumb,
        "share": f"× {float(Fraction(counted.total, counted.rule_of_thumb)):.2f}",
        PLAIN: 1,
    }
    dealt = counted.mesh is not None and counted.mesh.ep > 1  # to experts that a token may not meet here
    return (
        {first: "total", "flops": counted.total, "share": Fraction(1)},
        {first: "per token", "flops": Fraction(counted.total, counted.tokens), PLAIN: 1},
        *(() if dealt else (rule,)),
        *whole,
    )


def side_by_side(counted: Sequence[Counted]) -> Table:
    """One row per model: what it costs, and the share of each component."""
    components = [c.by_component() for c in counted]
    names = list(dict.fromkeys(name for found in components for name in found))
    columns = (
        Column("model", "model"),
        Column("keys", "context", "count"),
        Column("flops", "FLOPs", "flops"),
        *((Column("whole", "whole model", "flops"),) if counted[0].whole is not None else ()),
        Column("flops_per_token", "/ token", "flops", drop=3),
        *(
            Column(
                name,
                cells.COMPONENTS.get(name, name).replace(" + ", "+"),
                "share",
                drop=0 if name == paths.SCORES else cells.drop_of(name, components),
                empty="–",
            )
            for name in names
        ),
        Column("ratio_to_rule_of_thumb", cells.ratio_label(any(c.train for c in counted)), "ratio", drop=2),
    )
    rows = tuple(
        {
            "model": compose.name_of(c.subject),
            "keys": c.work.context,
            "flops": c.total,
            "whole": c.whole and c.whole.total,
            "flops_per_token": Fraction(c.total, c.tokens),
            **{name: Fraction(flops, c.total) for name, flops in found.items()},
            "ratio_to_rule_of_thumb": Fraction(c.total, c.rule_of_thumb),
        }
        for c, found in zip(counted, components, strict=True)
    )
    return columns, (rows,), ()
