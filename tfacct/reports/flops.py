"""FLOPs matmul by matmul: of a forward pass, a training step or a whole request; and the bytes that a pass moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from tfacct.accounts.metrics import Recompute, params_of
from tfacct.accounts.products import Shown, never_called, shown
from tfacct.architecture.parts import MlaMode
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger import paths
from tfacct.ledger.cost import Cost
from tfacct.ledger.evaluated import Product
from tfacct.ledger.storage import dtypes
from tfacct.ledger.workload import LARGEST, Request, check_size, sequences_only
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import PLAIN, Column, NoteRow, Row, Table, notes
from tfacct.parallel.model_flops import ModelFlops, RequestFlops, flops_of_each, products_of, request_flops
from tfacct.reports import build, model_notes, ranks

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh

By = Literal["line", "part", "layer"]
AGAIN = {"full": "full recomputation", "attention": "attention recomputed"}


of_line: Keys[[Shown, Any]] = Keys()
of_counted: Keys[[Shown, ModelFlops]] = Keys()
of_cost: Keys[[Shown | None, Cost]] = Keys()
of_model: Keys[[ModelFlops]] = Keys()


class ProductLine(Object):
    """One matrix product. `blocks`: the kind of layer, if kinds of layers run it differently."""

    path: str = of_line(lambda line, _: line.product.path)
    spec: str = of_line(lambda line, _: line.product.spec)
    blocks: str = of_line(lambda line, _: line.kind, when=lambda line, _: line.kind)


class FlopsLine(ProductLine):
    """One matrix product. `blocks`: the kind of layer, if kinds of layers run it differently."""

    m: int = of_line(lambda line, _: line.product.dims.m)
    k: int = of_line(lambda line, _: line.product.dims.k)
    n: int = of_line(lambda line, _: line.product.dims.n)
    times: int = of_line(lambda line, _: line.product.dims.times)
    flops: int = of_counted(lambda line, one: one.flops(line.product))
    forward_flops: int = of_counted(lambda line, _: line.product.forward, when=lambda _, one: one.train)
    backward_flops: int = of_counted(lambda line, _: line.product.backward, when=lambda _, one: one.train)


class PointwiseLine(TypedDict):
    """Work that is not a matrix product, in elements of its results."""

    path: str
    elements: int


class Traffic(Object):
    """FLOPs, and bytes read and written. FLOPs per byte are null if no bytes move."""

    flops: int = of_cost(lambda _, cost: cost.flops)
    read_bytes: int = of_cost(lambda _, cost: cost.read)
    written_bytes: int = of_cost(lambda _, cost: cost.written)
    flops_per_byte: float | None = of_cost(lambda _, cost: cost.intensity if cost.moved else None)


class TrafficLine(Traffic, ProductLine):
    """Bytes that one matrix product reads and writes."""


class WholeFlops(Object):
    """FLOPs of the whole model, next to those of one rank."""

    total_flops: int = of_model(lambda one: one.total)
    active_params: int = of_model(lambda one: one.active_params)
    rule_of_thumb_flops: int = of_model(lambda one: one.rule_of_thumb)


class WholeTraffic(Object):
    """Traffic of the whole model, next to that of one rank."""

    total_flops: int = of_model(lambda one: one.moved.flops)
    total_moved_bytes: int = of_model(lambda one: one.moved.moved)


class FlopsReport(build.ExplainedReport, build.RankReport):
    """FLOPs of a forward pass or a training step."""

    _line = FlopsLine

    workload: build.WorkloadFacts = of_model(lambda one: selection.workload_facts(one.work, masked=one.masked))
    train: bool = of_model(lambda one: one.train)
    recompute: Literal["full", "attention", "none"] = of_model(lambda one: one.recompute)
    recomputed_flops: int = of_model(lambda one: one.recomputed)
    total_flops: int = WholeFlops.total_flops
    active_params: int = WholeFlops.active_params
    rule_of_thumb_flops: int = WholeFlops.rule_of_thumb_flops
    flops_per_token: float = of_model(lambda one: Fraction(one.total, one.tokens))
    total_params: int = of_model(lambda one: int(params_of(one.point)))
    latent_attention: MlaMode | None = of_model(lambda one: model_notes.latent_mode(one.model, one.point))
    components: dict[str, int] = of_model(lambda one: one.by_component)
    lines: list[dict[str, Any]] = of_model(
        lambda one: [values_of(FlopsLine, line, one) for line in shown(one.products)]
    )
    never_called: list[str] = of_model(lambda one: never_called(one.model.ledger))
    total_flops_if_called: int | None = of_model(lambda one: one.if_all_called)
    pointwise: list[PointwiseLine] | None
    whole: WholeFlops | None


class TrafficReport(build.RankReport):
    """Bytes read and written by each matmul."""

    _name = "flops-traffic"
    _line = TrafficLine

    workload: build.WorkloadFacts = of_model(lambda one: selection.workload_facts(one.work, dtype=one.format_name))
    activation_dtype: str = of_model(lambda one: one.cached)
    total_flops: int = WholeTraffic.total_flops
    total_moved_bytes: int = WholeTraffic.total_moved_bytes
    total_read_bytes: int = of_model(lambda one: one.moved.read)
    total_written_bytes: int = of_model(lambda one: one.moved.written)
    flops_per_byte: float = of_model(lambda one: one.moved.intensity if one.moved.moved else None)
    latent_attention: MlaMode | None = FlopsReport.latent_attention
    lines: list[dict[str, Any]] = of_model(lambda one: [values_of(TrafficLine, *line) for line in one.costs])
    dtype_from: build.DtypeFrom
    published_dtype: str | None
    whole: WholeTraffic | None


def flops(
    models: Sequence[LoadedModel],
    request: Request,
    *,
    train: bool = False,
    masked: bool = False,
    by: By = "line",
    pointwise: bool = False,
    recompute: Recompute = "none",
    mesh: Mesh | None = None,
) -> FlopsReport:
    """FLOPs of the matrix products, 2 per multiply-add, with m × k × n of each. `recompute`: what the backward pass
    recomputes. `mesh`: the FLOPs are those of the rank that computes most. Raises TfacctError."""
    _check_options(models, train, by, pointwise, recompute, mesh)
    models, skipped = selection.steppable(models, request)

    def count(model: LoadedModel) -> ModelFlops:
        work = selection.workload(model, request)
        return ModelFlops(model, work, products_of(model.ledger, work, masked, recompute), train, masked, recompute)

    counted, unfit = flops_of_each(models, mesh, count)
    if recompute == "attention" and not any(one.recomputed for one in counted):
        raise UsageError(f"{counted[0].model.name} has no attention to recompute")
    if train and any(one.work.tokens != one.work.context for one in counted):
        raise sequences_only("train")
    facts = [_facts(one, pointwise) for one in counted]
    about = About(counted, facts, request, len(counted) == 1)
    models = about.models
    what = "training-step FLOPs" if train else "forward FLOPs"
    convention = model_notes.products_counted(models, request.logits, masked=masked)
    if train:
        convention += "; backward 2 × forward"
    if recompute in AGAIN:
        what += f" with {AGAIN[recompute]}"
        convention += f", plus {AGAIN[recompute]}"
    return build.report(
        FlopsReport,
        models,
        TABLES[by](counted[0], facts[0]) if about.alone else _by_model(counted),
        facts,
        title=f"{build.titled(models, what + ranks.one_of_ranks(mesh))} {build.of_workload(models, request)}",
        convention=convention,
        answer=_answer(counted[0]) if about.alone else build.from_to(models, (one.total for one in counted), units.si),
        notes=lambda at: notes(NOTES, about.of(at)),
        details=lambda at: [] if pointwise else [model_notes.left_out(models[at])],
        requests=[request],
        skipped=[*skipped, *unfit],
        headline="total_flops",
    )


def traffic(
    models: Sequence[LoadedModel], request: Request, *, dtype: str | None = None, mesh: Mesh | None = None
) -> TrafficReport:
    """Bytes that each product of a forward pass reads and writes with unfused kernels, and its FLOPs per byte. `dtype`:
    of the weights. `mesh`: the bytes are those of the rank that moves most. Raises TfacctError."""
    _, cached = dtypes(dtype)
    models, skipped = selection.with_known_bytes(models, dtype)
    models, stepless = selection.steppable(models, request)
    stored = selection.stored_name(models, dtype)

    def count(model: LoadedModel) -> ModelFlops:
        work = selection.workload(model, request)
        return ModelFlops(model, work, model.ledger.products(work.axes()), how=model.storage(dtype), cached=cached)

    counted, unfit = flops_of_each(models, mesh, count, dtype)
    facts = [
        values_of(TrafficReport, one, **selection.format_facts(one.model, dtype), **_rank_facts(one, WholeTraffic))
        for one in counted
    ]
    about = About(counted, facts, request, len(counted) == 1, dtype=dtype, stored=stored)
    models = about.models
    what = f"bytes moved{ranks.one_of_ranks(mesh, 'on')} in {selection.formats(models, dtype)}"
    return build.report(
        TrafficReport,
        models,
        _traffic_by_line(counted[0], facts[0]) if about.alone else _traffic_by_model(counted),
        facts,
        title=build.titled(models, what) + build.of_workload(models, request, of=" by ", at=", "),
        answer=_traffic_answer(counted[0])
        if about.alone
        else build.from_to(models, (one.moved.moved for one in counted), units.binary),
        notes=lambda at: notes(TRAFFIC_NOTES, about.of(at)),
        details=lambda at: _traffic_details(models[at]),
        requests=[request],
        skipped=[*skipped, *stepless, *unfit],
        convention=f"{model_notes.products_counted(models, request.logits)}; bytes of unfused kernels",
        headline="total_moved_bytes",
    )


# Checks


def _check_options(
    models: Sequence[LoadedModel], train: bool, by: By, pointwise: bool, recompute: Recompute, mesh: Mesh | None
) -> None:
    """Raises UsageError for options that do not work together."""
    if recompute != "none" and not train:
        raise UsageError(
            f"{option('recompute', recompute)} applies to a training step: it needs {option('train', True)}"
        )
    if pointwise and mesh is not None:
        from tfacct.parallel.rank_flops import check_elements

        check_elements(mesh)
    if pointwise and (by != "line" or len(models) > 1):
        raise UsageError(f"{option('pointwise')} lists lines: use it with one MODEL and without {option('by')}")
    if by == "layer" and len(models) > 1:
        raise UsageError(f"{option('by', 'layer')} works with one MODEL; several are compared by part")


# Facts


def _facts(one: ModelFlops, pointwise: bool) -> dict[str, Any]:
    more = _rank_facts(one, WholeFlops)
    if pointwise:
        elements = one.model.ledger.pointwise(one.work.axes())
        more["pointwise"] = [{"path": path, "elements": count} for path, count in elements.items()]
    return values_of(FlopsReport, one, **more)


def _rank_facts(one: ModelFlops, kind: type[Object]) -> dict[str, Any]:
    """The mesh, and sums of the whole model next to those of one of its ranks; nothing without a mesh."""
    return {} if one.mesh is None else ranks.rank_facts(one.mesh, one.stage, values_of(kind, one.whole))


# Tables

SHARE, BAR = build.SHARES
CONTEXT = Column("keys", "context", "count")


def _by_operation(
    lines: Sequence[Mapping[str, Any]], parts: Iterable[int], total: int, *columns: Column, share: Column = SHARE
) -> tuple[tuple[Column, ...], tuple[tuple[Row, ...], ...]]:
    """A row for each line, in a section for each part of the model, with the share of `parts` in the `total`."""
    rows = [
        build.with_share({"part": paths.heading_of(line["path"]), "operation": _operation(line), **line}, part, total)
        for line, part in zip(lines, parts, strict=True)
    ]
    named = Column("operation", "operation"), Column("spec", "einsum", "spec", drop=5)
    return (*named, *columns, share, BAR), build.sections(rows)


def _operation(line: Mapping[str, Any]) -> str:
    """The path without the layer, and the kind of layer."""
    name = paths.short(line["path"])
    return f"{name} ({line['blocks']})" if "blocks" in line else name


def _by_line(one: ModelFlops, facts: Mapping[str, Any]) -> Table:
    lines = [
        {**line, "dims": (line["m"], line["k"], line["n"]), "each": Fraction(line["flops"], line["times"] or 1)}
        for line in facts["lines"]
    ]
    steps = [Column(f"{step}_flops", step, "flops", drop=1) for step in ("forward", "backward")]
    elements = facts.get("pointwise")
    columns, sections = _by_operation(
        lines,
        [line["flops"] for line in lines],
        one.total,
        Column("dims", "m × k × n", "dims", drop=2, keys=("m", "k", "n")),
        Column("times", "times", "count", drop=1),
        *(steps if one.train else (Column("each", "each", "flops", drop=3),)),
        Column("flops", "FLOPs", "flops"),
        *((Column("elements", "elements", "flops"),) if elements is not None else ()),
    )
    if elements is not None:
        sections += (tuple({"operation": _operation(line), "elements": line["elements"]} for line in elements),)
    return columns, sections, _totals(one, "operation")


def _by_part(one: ModelFlops, _: object) -> Table:
    columns = Column("part", "part"), Column("flops", "FLOPs", "flops"), SHARE, BAR
    rows = tuple(
        build.with_share({"part": build.COMPONENTS.get(name, name), "flops": flops}, flops, one.total)
        for name, flops in one.by_component.items()
    )
    return columns, (rows,), _totals(one, "part")


def _by_layer(one: ModelFlops, _: object) -> Table:
    """One row for each run of equal layers, and one for each product outside them."""
    columns = (
        Column("block", "block"),
        Column("count", "count", "count"),
        Column("each", "FLOPs each", "flops"),
        Column("flops", "FLOPs", "flops"),
        SHARE,
        BAR,
    )
    rows: list[Row] = []
    for (numbers, kind, outside), products in groupby(one.products, key=_block_of):
        flops, count = sum(map(one.flops, products)), len(numbers) or 1
        name = outside or " ".join(filter(None, (_span(numbers), f"({kind})" if kind else "")))
        row: Row = {"block": name, "count": count, "each": flops // count, "flops": flops}
        rows.append(build.with_share(row, flops, one.total))
    return columns, (tuple(rows),), _totals(one, "block")


TABLES = {"line": _by_line, "part": _by_part, "layer": _by_layer}


def _block_of(product: Product) -> tuple[Sequence[int], str, str]:
    if paths.parse(product.path).stack == paths.BLOCKS:
        return product.numbers, product.kind, ""
    return product.numbers, product.kind, paths.heading_of(product.path) if product.numbers else product.path


def _span(numbers: Sequence[int]) -> str:
    """`blocks.0–25`, or the first three of numbers with gaps."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return f"blocks.{first}"
    if len(numbers) == last - first + 1:
        return f"blocks.{first}–{last}"
    return f"blocks.{','.join(map(str, numbers[:3]))}{',…' if len(numbers) > 3 else ''}"


def _totals(one: ModelFlops, first: str) -> tuple[Row, ...]:
    expert_parallel = one.mesh is not None and one.mesh.ep > 1  # a rank has no tokens of its own to compare with
    rule: Row = {first: one.rule, "flops": one.rule_of_thumb, "share": f"× {float(one.ratio):.2f}", PLAIN: 1}
    return (
        {first: "total", "flops": one.total, "share": Fraction(1)},
        *(() if one.tokens == 1 else ({first: "per token", "flops": Fraction(one.total, one.tokens), PLAIN: 1},)),
        *(() if expert_parallel else (rule,)),
        *(() if one.whole is None else ({first: "whole model", "flops": one.whole.total, PLAIN: 1},)),
    )


def _by_model(counted: Sequence[ModelFlops]) -> Table:
    """One row per model: what it costs, and the share of each component."""
    components = [one.by_component for one in counted]
    columns = (
        Column("model", "model"),
        CONTEXT,
        Column("total_flops", "FLOPs", "flops"),
        *((Column("whole", "whole model", "flops"),) if counted[0].whole is not None else ()),
        Column("flops_per_token", "/ token", "flops", drop=3),
        *(
            Column(
                f"{name}_share",
                build.COMPONENTS.get(name, name).replace(" + ", "+"),
                "share",
                drop=0 if name == paths.SCORES else build.drop_of(name, components),
                empty="–",
            )
            for name in dict.fromkeys(name for found in components for name in found)
        ),
        Column("ratio_to_rule_of_thumb", build.ratio_label(any(one.train for one in counted)), "ratio", drop=2),
    )
    rows = tuple(
        {
            "model": build.label(one.model),
            "keys": one.work.context,
            "total_flops": one.total,
            "whole": one.whole and one.whole.total,
            "flops_per_token": Fraction(one.total, one.tokens),
            **{f"{name}_share": Fraction(flops, one.total) for name, flops in found.items()},
            "ratio_to_rule_of_thumb": one.ratio,
        }
        for one, found in zip(counted, components, strict=True)
    )
    return columns, (rows,), ()


def _traffic_by_line(one: ModelFlops, facts: Mapping[str, Any]) -> Table:
    total = one.moved
    columns, sections = _by_operation(
        facts["lines"],
        [line["read_bytes"] + line["written_bytes"] for line in facts["lines"]],
        total.moved,
        *_traffic_columns(empty="–"),
        share=SHARE._replace(label="of bytes"),
    )
    totals: list[Row] = [{"operation": "total", **values_of(Traffic, None, total), "share": Fraction(1)}]
    if one.whole is not None:
        totals.append({"operation": "whole model", **values_of(Traffic, None, one.whole.moved), PLAIN: 1})
    return columns, sections, tuple(totals)


def _traffic_columns(empty: str = "") -> tuple[Column, ...]:
    return (
        Column("flops", "FLOPs", "flops", drop=1),
        Column("read_bytes", "read", "bytes"),
        Column("written_bytes", "written", "bytes"),
        Column("flops_per_byte", "FLOP/B", "ratio", empty=empty),
    )


def _traffic_by_model(counted: Sequence[ModelFlops]) -> Table:
    columns = (
        Column("model", "model"),
        CONTEXT,
        *_traffic_columns(),
        *((Column("whole", "whole model", "bytes"),) if counted[0].whole is not None else ()),
    )
    rows = tuple(
        {"model": build.label(one.model), "keys": one.work.context, **values_of(Traffic, None, one.moved)}
        | {"whole": one.whole and one.whole.moved.moved}
        for one in counted
    )
    return columns, (rows,), ()


# Answers and notes


def _answer(one: ModelFlops) -> str:
    """The total of one model."""
    if one.whole is not None:
        own = ranks.own_batch(one.mesh)
        rank, whole = units.si(one.total), units.si(one.whole.total)
        if own:
            return f"{rank} FLOPs on one rank, with one batch{own}; the whole model takes {whole} for one batch."
        return f"{rank} FLOPs on one rank; the whole model takes {whole}."
    each = f" ({units.si(round(Fraction(one.total, one.tokens)))} per token)" if one.tokens > 1 else ""
    return f"{units.si(one.total)} FLOPs{each}, {units.decimals(one.ratio, 2)} times {one.rule}."


def _traffic_answer(one: ModelFlops) -> str:
    """The bytes of one model and its FLOPs per byte."""
    total = one.moved
    each = f": {units.decimals(total.intensity, 2)} FLOPs per byte" if total.moved else ""
    on_rank = " on one rank" if one.whole else ""
    return f"{units.binary(total.moved)} moved for {units.si(total.flops)} FLOPs{on_rank}{each}."


def _traffic_details(models: Sequence[LoadedModel]) -> list[str]:
    return [
        "Bytes moved by unfused kernels: every operand is read once, every result is written once. Fused kernels keep"
        " scores and recurrent states on the chip.",
        model_notes.left_out(models, "biases"),
    ]


class About(NamedTuple):
    """Models that notes describe, and their facts. Not `alone`: the report has others. `stored`: the format of all
    weights, in a report of bytes, and `dtype` the option."""

    counted: Sequence[ModelFlops]
    facts: Sequence[Mapping[str, Any]]
    request: Request
    alone: bool
    dtype: str | None = None
    stored: str = ""

    @property
    def first(self) -> ModelFlops:
        return self.counted[0]

    @property
    def models(self) -> list[LoadedModel]:
        """The models, or the stages of a pipeline."""
        return [one.model for one in self.counted]

    @property
    def whole_models(self) -> list[LoadedModel]:
        """The whole models."""
        return [one.whole_model for one in self.counted]

    @property
    def masked(self) -> bool:
        return self.first.masked

    def of(self, at: slice) -> About:
        """The same about some of the models."""
        return self._replace(counted=self.counted[at], facts=self.facts[at])


def _if_called(about: About) -> list[str]:
    """FLOPs of a model as it runs, and with the MLPs that it stores but never calls."""
    fact = about.facts[0]
    called, total = fact["total_flops_if_called"], fact["total_flops"]
    if len(about.facts) > 1 or called in (None, total):
        return []
    idle = ", ".join(map(paths.short, fact["never_called"]))
    return [
        f"As it runs: {total:,} FLOPs. {idle} is stored but never called (called = false).",
        f"If it were called: {called:,} FLOPs.",
    ]


def _overtakes(about: About) -> list[str]:
    """The context from which attention costs more than everything else, and its share here."""
    if not about.alone:
        return []
    one = about.first
    share = units.percent(Fraction(one.by_component.get(paths.SCORES, 0), one.total))
    found = model_notes.overtaken(one.model, one.point, chunk=about.request.new is not None)
    return [f"{note.removesuffix('.')}; here they take {share} of the FLOPs." for note in found]


def _multiply_adds(about: About) -> str | None:
    """The multiply-adds of an image encoder, in FLOPs two each."""
    one = about.first
    return units.si(one.total // 2) if about.alone and one.model.encodes == "vision" else None


def _beyond_rule(about: About) -> dict[str, str] | None:
    """The difference from the rule of thumb: matmuls without parameters, parameters outside matmuls, and weights that
    do not run once per token."""
    one = about.first
    if not about.alone or one.mesh is not None:
        return None
    read = {product.line.parameters()[0].path for product in one.products if product.line.weight_axes() is not None}
    each = one.rule_of_thumb // one.active_params
    free = sum(one.flops(product) for product in one.products if product.line.weight_axes() is None)
    outside = each * sum(count for path, count in one.model.ledger.active_parameters().items() if path not in read)
    others = one.total - one.rule_of_thumb - free + outside
    terms = {
        f"{'matmuls of activations' if model_notes.mixers(about.models) else 'attention scores and values'} (no"
        " parameters)": free,
        "parameters that no matmul reads": -outside,
        "weights that do not run once per token": others,
    }
    found = [f"{'+' if flops > 0 else '−'} {units.si(abs(flops))} for {what}" for what, flops in terms.items() if flops]
    return {"rule": one.rule, "terms": ", ".join(found)} if found else None


def _of_ranks(about: About) -> list[str]:
    mesh = about.first.mesh
    return [] if mesh is None else ranks.notes(about.whole_models, about.first.stage, mesh, "flops")


def _routed(about: About) -> bool:
    return any("E" in group.axes for model in about.models for group in model.ledger.groups)


def _in_formats(about: About) -> dict[str, str] | None:
    what = "activations, keys and values" if model_notes.attends(about.models) else "activations and states"
    cached = about.first.cached
    return None if about.stored == cached else {"stored": about.stored, "what": what, "cached": cached}


NOTES = (
    NoteRow("never_called", 1, _if_called),
    NoteRow("attention_overtakes", 1, _overtakes),
    NoteRow("multiply_adds", 1, _multiply_adds, "Most papers on vision models print multiply-adds as FLOPs: {} here."),
    NoteRow("step", 2, lambda about: about.facts[0]["train"], model_notes.STEP),
    NoteRow(
        "recompute", 2, lambda about: about.first.recompute != "none", "Recomputation ends at the last saved tensor."
    ),
    NoteRow("active", 2, lambda about: len(about.models) > 1 and model_notes.active_notes(about.models)),
    *model_notes.BLOCKS,
    NoteRow("beyond_rule", 2, _beyond_rule, "Difference from {rule}: {terms}."),
    NoteRow("latent", 2, lambda about: model_notes.latent_step_notes(about.models, about.facts)),
    NoteRow("source", 2, lambda about: model_notes.source_notes(about.models, about.first.work)),
    NoteRow("ranks", 1, _of_ranks),
)

TRAFFIC_NOTES = (
    NoteRow("files", 1, lambda about: model_notes.files_notes(about.whole_models, about.dtype)),
    NoteRow("formats", 2, _in_formats, "Weights in {stored}; {what} in {cached}."),
    NoteRow("storage", 2, lambda about: model_notes.storage_notes(about.models, about.dtype)),
    NoteRow("experts_read", 2, _routed, "Expert weights read: those of all experts that the tokens of a step can use."),
    *model_notes.BLOCKS,
    NoteRow("latent", 2, lambda about: model_notes.latent_step_notes(about.models, about.facts)),
    NoteRow("ranks", 1, _of_ranks),
)


# A whole request


of_product: Keys[[RequestFlops, str]] = Keys()
of_request: Keys[[RequestFlops]] = Keys()


class GenerateLine(Object):
    """One matrix product of a request. `decode_spec`: in decode steps, null if they do not run it."""

    path: str = of_product(lambda _, path: path)
    spec: str | None = of_product(lambda one, path: one.specs[path])
    decode_spec: str | None = of_product(lambda one, path: one.decode_specs[path])
    prefill_flops: int = of_product(lambda one, path: one.prefill[path])
    decode_flops: int = of_product(lambda one, path: one.decode[path])
    flops: int = of_product(lambda one, path: one.prefill[path] + one.decode[path])


class GenerateReport(build.ModelReport):
    """FLOPs of a whole request."""

    _name = "flops-generate"
    _line = GenerateLine

    workload: build.WorkloadFacts = of_request(lambda one: selection.workload_facts(one.work, masked=one.masked))
    prompt_tokens: int = of_request(lambda one: one.work.tokens)
    new_tokens: int = of_request(lambda one: one.steps + 1)
    decode_steps: int = of_request(lambda one: one.steps)
    prefill_latent_attention: MlaMode | None = of_request(lambda one: one.prefill_mode)
    decode_latent_attention: MlaMode | None = of_request(lambda one: one.decode_mode)
    total_flops: int = of_request(lambda one: one.total)
    prefill_flops: int = of_request(lambda one: one.prefill_total)
    decode_flops: int = of_request(lambda one: one.decode_total)
    flops_per_prompt_token: float = of_request(lambda one: one.per_prompt_token)
    flops_per_new_token: float | None = of_request(lambda one: one.per_new_token)
    lines: list[dict[str, Any]] = of_request(lambda one: [values_of(GenerateLine, one, path) for path in one.specs])


def generate(
    models: Sequence[LoadedModel], request: Request, new_tokens: int, *, masked: bool = False
) -> GenerateReport:
    """FLOPs of the matrix products of a request, 2 per multiply-add: the prefill of a prompt as long as the context,
    with logits of its last position, and a decode step for each new token but the first. Raises UsageError."""
    prompt = _prompt(request, new_tokens)
    if len(models) == 1 and not models[0].has_cache:
        raise UsageError(f"{models[0].name} caches nothing between steps, so it cannot generate tokens")
    models, headless = selection.generating(models)
    models, encoders = selection.keeping(models)
    steps = new_tokens - 1
    request = replace(request, logits="last")
    counted = [request_flops(model, request, steps, masked) for model in models]
    facts = [values_of(GenerateReport, one) for one in counted]
    tokens = units.number_of(new_tokens, "new token")
    return build.report(
        GenerateReport,
        models,
        _request_by_line(counted[0], facts[0]) if len(counted) == 1 else _request_by_model(counted, facts),
        facts,
        title=f"{build.titled(models, 'FLOPs of a request')}: prompt {prompt:,}, {tokens}, batch {request.batch:,}",
        answer=_request_answer(counted[0])
        if len(counted) == 1
        else build.from_to(models, (one.total for one in counted), units.si),
        notes=lambda at: notes(REQUEST_NOTES, model_notes.Blocks(models[at], masked, facts[at])),
        details=lambda at: [model_notes.left_out(models[at])],
        requests=[replace(request, ctx=prompt + steps)],
        skipped=[*headless, *encoders],
        convention=model_notes.products_counted(models, request.logits, masked=masked),
        headline="total_flops",
    )


def _request_answer(one: RequestFlops) -> str:
    """The total of one model and its two phases."""
    prompt = f"{units.si(one.prefill_total)} ({units.percent(Fraction(one.prefill_total, one.total))})"
    others = "second" if one.steps == 1 else f"other {one.steps:,}"
    after = f", {units.si(one.decode_total)} for the {others}" if one.steps else ""
    return f"{units.si(one.total)} FLOPs: {prompt} for the prompt and the first new token{after}."


def _prompt(request: Request, new_tokens: int) -> int:
    """Tokens of the prompt. Raises UsageError without a context, and for one that ends past the largest."""
    check_size(option("new_tokens"), new_tokens)
    if request.ctx is None:
        hint = f"give the prompt length with {option('ctx')}, for example {spelled('2k', '2048')}"
        raise UsageError(f"{option('generate')} needs a prompt length", hint)
    end = request.ctx + new_tokens - 1
    if end > LARGEST:
        raise UsageError(
            f"{option('ctx', request.ctx)} with {option('new_tokens', new_tokens)} reaches a context of {end:,}:"
            f" at most {LARGEST:,}"
        )
    return request.ctx


def _request_by_line(counted: RequestFlops, facts: dict[str, Any]) -> Table:
    lines = []
    for line in facts["lines"]:
        first, then = line["spec"], line["decode_spec"]
        lines.append({**line, "spec": first if first == then else f"{first}; then {then}"})
    columns, sections = _by_operation(
        lines,
        [line["flops"] for line in lines],
        counted.total,
        Column("prefill_flops", "prefill", "flops"),
        Column("decode_flops", "decode", "flops", empty="–"),
        Column("flops", "FLOPs", "flops"),
    )
    total = {"prefill_flops": counted.prefill_total, "decode_flops": counted.decode_total, "flops": counted.total}
    each = {"prefill_flops": counted.per_prompt_token, "decode_flops": counted.per_new_token}
    totals: tuple[Row, ...] = (
        {"operation": "total", **total, "share": Fraction(1)},
        {"operation": "per token", **each},
    )
    return columns, sections, totals


def _request_by_model(counted: Sequence[RequestFlops], facts: Sequence[dict[str, Any]]) -> Table:
    """One row per model: both phases."""
    columns = (
        Column("model", "model"),
        Column("prefill_flops", "prefill", "flops"),
        Column("decode_flops", "decode", "flops"),
        Column("flops_per_new_token", "/ new token", "flops", drop=3, empty="–"),
        Column("flops", "FLOPs", "flops"),
    )
    rows = tuple(
        {**fact, "model": build.label(one.model), "flops": one.total} for one, fact in zip(counted, facts, strict=True)
    )
    return columns, (rows,), ()


REQUEST_NOTES = (
    *model_notes.BLOCKS,
    NoteRow("source", 2, lambda about: model_notes.source_notes(about.whole_models)),
    NoteRow("latent", 2, lambda about: model_notes.latent_request_notes(about.whole_models, about.facts)),
)
