"""FLOPs of one forward pass, or one training step: product by product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, Literal

from tfacct.architecture import component_of, part_of
from tfacct.errors import UsageError
from tfacct.ledger import Product
from tfacct.metrics import Point, active_params_of, attention_overtakes, params_of, rule_of_thumb
from tfacct.report import Column, Report, Row, Table
from tfacct.reports import _common as common
from tfacct.reports import _kinds as kinds
from tfacct.reports._lines import Shown, shown
from tfacct.subject import Subject
from tfacct.workload import Request, Workload

By = Literal["line", "part", "block"]

RARE = ("embed", "mixer", "mtp", "encoder", "cross")
"""Components that few models have: their columns are the first to go."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """One model's products at one workload."""

    subject: Subject
    work: Workload
    products: list[Product]
    train: bool
    masked: bool

    def flops(self, product: Product) -> int:
        """What the line costs in all: forward, and backward in a training step."""
        return int(product.forward + product.backward if self.train else product.forward)

    @property
    def total(self) -> int:
        return sum(self.flops(product) for product in self.products)

    @property
    def tokens(self) -> int:
        return int(self.work.batch * self.work.tokens)

    @property
    def params(self) -> int:
        return int(params_of(self.point))

    @property
    def active_params(self) -> int:
        return int(active_params_of(self.point))

    @property
    def active(self) -> bool:
        """Whether a token meets fewer parameters than are stored."""
        return self.active_params != self.params

    @property
    def rule_of_thumb(self) -> int:
        """What the back of an envelope says."""
        return int(rule_of_thumb(self.point))

    @property
    def point(self) -> Point:
        """As metrics see it."""
        return Point(self.subject.ledger, self.work, masked=self.masked, train=self.train)

    @property
    def if_all_called(self) -> int | None:
        """The total if every network ran; None where every one does."""
        whole = self.subject.architecture.all_called()
        if whole is None:
            return None
        products = whole.ledger().products(self.work.axes(), masked=self.masked)
        return sum(self.flops(product) for product in products)

    def by_component(self) -> dict[str, int]:
        """FLOPs by component: attn_projections, attn_scores_values, mlp, mixer, lm_head."""
        summed: dict[str, int] = {}
        for product in self.products:
            name = component_of(product.path, product.line)
            summed[name] = summed.get(name, 0) + self.flops(product)
        return summed


def flops(
    subjects: Sequence[Subject],
    request: Request,
    *,
    train: bool = False,
    masked: bool = False,
    by: By = "line",
    pointwise: bool = False,
) -> Report:
    """FLOPs of the matrix products, 2 per multiply-add, with m × k × n of each. Raises UsageError."""
    if by not in ("line", "part", "block"):
        raise UsageError(f"--by is line, part or block, not {by!r}")
    if pointwise and (by != "line" or len(subjects) > 1):
        raise UsageError("--pointwise lists lines: it goes with one MODEL, and with no other --by")
    if by == "block" and len(subjects) > 1:
        raise UsageError("--by block goes with one MODEL: several are compared by part")
    subjects, left_out = common.steppable(subjects, request)
    counted = [_count(subject, request, train, masked) for subject in subjects]
    if train and any(c.work.tokens != c.work.context for c in counted):
        raise UsageError("--train counts whole sequences: it goes with neither --decode nor --tokens")
    if len(counted) != 1:
        columns, sections, totals = _side_by_side(counted)
    elif by == "line":
        columns, sections, totals = _by_line(counted[0], pointwise)
    elif by == "part":
        columns, sections, totals = _by_part(counted[0])
    else:
        columns, sections, totals = _by_block(counted[0])
    what = "training-step FLOPs" if train else "forward FLOPs"
    who = f"{common.name_of(subjects[0])}: {what}" if len(subjects) == 1 else what[0].upper() + what[1:]
    return Report(
        command="flops",
        title=f"{who} at {common.workload_words(subjects, request)}",
        columns=columns,
        sections=sections,
        totals=totals,
        notes=(
            *(_both_readings(counted[0]) if len(counted) == 1 else ()),
            *(_overtaken(counted[0], request) if len(counted) == 1 else ()),
            *_notes(subjects, request, train, masked, pointwise),
            *common.block_notes(subjects, masked=masked),
            *common.source_notes(subjects, counted[0].work),
            *common.defaulted_notes(subjects),
        ),
        hints=(*common.context_hints(subjects, request), *common.unknown_hints(subjects), *left_out),
        models=tuple(_facts(c, masked, pointwise) for c in counted),
        convention=_convention(subjects, request, train, masked),
        headline="total_flops",
    )


def _count(subject: Subject, request: Request, train: bool, masked: bool) -> _Counted:
    work = common.workload(subject, request)
    return _Counted(subject, work, subject.ledger.products(work.axes(), masked=masked), train, masked)


def _both_readings(counted: _Counted) -> list[str]:
    """What a model costs as it runs, and what it would cost if what it stores and never calls ran too."""
    called = counted.if_all_called
    if called in (None, counted.total):
        return []
    idle = ", ".join(common.short(path) for path in common.never_called(counted.subject))
    return [
        f"As it runs: {counted.total:,} FLOPs. {idle} is stored and never called (called = false).",
        f"If it were called: {called:,} FLOPs.",
    ]


def _overtaken(counted: _Counted, request: Request) -> list[str]:
    """Where attention outgrows the rest, if the context grows and the rest of what is asked stays."""
    chunk = request.decode or request.tokens is not None
    return common.overtaken(attention_overtakes(counted.point, chunk=chunk))


def _facts(counted: _Counted, masked: bool, pointwise: bool) -> dict[str, Any]:
    facts = {
        **common.model_facts(counted.subject),
        "workload": common.workload_facts(counted.work, masked=masked),
        "train": counted.train,
        "total_flops": counted.total,
        "flops_per_token": Fraction(counted.total, counted.tokens),
        "total_params": counted.params,
        "active_params": counted.active_params,
        "rule_of_thumb_flops": counted.rule_of_thumb,
        "components": counted.by_component(),
        "lines": [_line_facts(counted, line) for line in shown(counted.products)],
    }
    facts |= {"never_called": common.never_called(counted.subject), "total_flops_if_called": counted.if_all_called}
    if pointwise:
        facts["pointwise"] = [
            {"path": path, "elements": elements}
            for path, elements in counted.subject.ledger.pointwise(counted.work.axes()).items()
        ]
    return facts


def _line_facts(counted: _Counted, line: Shown) -> dict[str, Any]:
    product, dims = line.product, line.product.dims
    facts: dict[str, Any] = {"path": product.path, "spec": product.line.spec}
    facts |= {"blocks": line.kind} if line.kind else {}
    facts |= {"m": dims.m, "k": dims.k, "n": dims.n, "times": dims.times, "flops": counted.flops(product)}
    if counted.train:
        facts |= {"forward_flops": product.forward, "backward_flops": product.backward}
    return facts


def _by_line(counted: _Counted, pointwise: bool) -> Table:
    columns = (
        Column("operation", "operation"),
        Column("spec", "einsum", "spec", drop=6),
        Column("dims", "m × k × n", "dims", keys=("m", "k", "n")),
        Column("times", "times", "count"),
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
            "part": part_of(product.path),
            "operation": line.operation,
            "spec": product.line.spec,
            "dims": (dims.m, dims.k, dims.n),
            "times": dims.times,
            "forward": product.forward,
            "backward": product.backward,
            "flops": flops,
        }
        rows.append(common.with_share(row, flops, counted.total))
    sections = [tuple(section) for _, section in groupby(rows, key=lambda row: row["part"])]
    if pointwise:
        elements = counted.subject.ledger.pointwise(counted.work.axes())
        sections.append(tuple({"operation": common.short(p), "elements": count} for p, count in elements.items()))
    return columns, tuple(sections), _totals(counted, "operation")


def _by_part(counted: _Counted) -> Table:
    columns = (
        Column("part", "part"),
        Column("flops", "FLOPs", "flops"),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    rows = tuple(
        common.with_share({"part": common.COMPONENTS.get(name, name), "flops": flops}, flops, counted.total)
        for name, flops in counted.by_component().items()
    )
    return columns, (rows,), _totals(counted, "part")


def _by_block(counted: _Counted) -> Table:
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
        rows.append(common.with_share(row, flops, counted.total))
    return columns, (tuple(rows),), _totals(counted, "block")


def _block_of(product: Product) -> tuple[Sequence[int], str, str]:
    own = "blocks.*." in product.path
    return product.numbers, product.kind, "" if own else product.path if not product.numbers else part_of(product.path)


def _span(numbers: Sequence[int]) -> str:
    """`blocks.0–25`, or the first few where they are not in a row."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return f"blocks.{first}"
    if len(numbers) == last - first + 1:
        return f"blocks.{first}–{last}"
    return f"blocks.{','.join(map(str, numbers[:3]))}{',…' if len(numbers) > 3 else ''}"


def _totals(counted: _Counted, first: str) -> tuple[Row, ...]:
    factor = "6" if counted.train else "2"
    return (
        {first: "total", "flops": counted.total, "share": Fraction(1)},
        {first: "per token", "flops": Fraction(counted.total, counted.tokens)},
        {
            first: f"{factor}·{'active' if counted.active else 'params'}·tokens",
            "flops": counted.rule_of_thumb,
            "share": f"× {float(Fraction(counted.total, counted.rule_of_thumb)):.2f}",
        },
    )


def _side_by_side(
    counted: Iterable[_Counted],
) -> Table:
    """One row per model: what it costs, and the share of each component."""
    counted = list(counted)
    names = list(dict.fromkeys(name for c in counted for name in c.by_component()))
    columns = (
        Column("model", "model"),
        Column("keys", "context", "count"),
        Column("flops", "FLOPs", "flops"),
        Column("flops_per_token", "/ token", "flops", drop=3),
        *(
            Column(
                name,
                common.COMPONENTS.get(name, name).replace(" + ", "+"),
                "share",
                drop=4 if name in RARE else 0,
                empty="–",
            )
            for name in names
        ),
        Column("ratio", f"÷ {'6' if any(c.train for c in counted) else '2'}·P·tok", "ratio", drop=2),
    )
    rows = tuple(
        {
            "model": common.name_of(c.subject),
            "keys": c.work.context,
            "flops": c.total,
            "flops_per_token": Fraction(c.total, c.tokens),
            **{name: Fraction(flops, c.total) for name, flops in c.by_component().items()},
            "ratio": Fraction(c.total, c.rule_of_thumb),
        }
        for c in counted
    )
    return columns, (rows,), ()


def _convention(subjects: Sequence[Subject], request: Request, train: bool, masked: bool) -> str:
    backward = "; backward 2 x forward" if train else ""
    return f"{common.products_convention(request, masked, subjects)}{backward}"


def _notes(subjects: Sequence[Subject], request: Request, train: bool, masked: bool, pointwise: bool) -> list[str]:
    notes = [common.products_note(request, masked, subjects)]
    if train:
        notes.append("A training step is one forward and one backward pass; the optimizer's update is left out.")
    if pointwise:
        notes.append("Pointwise work is counted in elements of its results, and in no total.")
    else:
        notes.append(kinds.left_out(subjects))
    return notes
