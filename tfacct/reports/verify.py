"""`verify`: formulas against what runs: counters, transformers classes, ranks, training steps; and proofs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NotRequired, TypeAlias, TypedDict, TypeVar

from tfacct.base import units
from tfacct.base.errors import UsageError, listed
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger.lines import CHUNK
from tfacct.ledger.workload import Request, Workload, sequences_only
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Cell, Column, Row, Table, Tick, unwatched
from tfacct.parallel.mesh import Mesh, checked
from tfacct.parallel.search import label as layout_label
from tfacct.parallel.support import DTYPES, supported_on
from tfacct.reports import build, model_notes
from tfacct.reports.build import Axis, MeshFacts, ModelReport, WorkloadFacts
from tfacct.reports.metrics import Counting, RecipeReport, recipe_facts
from tfacct.reports.train import error_words
from tfacct.training.bounds import answered_groups
from tfacct.training.exact import ExactStep, starred
from tfacct.training.memory import training_memory
from tfacct.training.saved_formula import SEVERAL, saved_formula
from tfacct.training.selection import trainable
from tfacct.training.unsupported import refusal
from tfacct.verify.checks import Check, Pair, checks, folded, shape_kernels, traced_blocks
from tfacct.verify.ranks import RankChecks, check_verifiable, layout_for, rank_checks, tied
from tfacct.verify.training import BytesCheck, step_checks

if TYPE_CHECKING:
    from tfacct.verify.proof import By, Proof, Proven

IN_CHUNKS = 1024
"""Default context of a model that runs in chunks: its reference model loops over the chunks, with a matrix for each."""
UNCHECKED = "Not checked: loss and optimizer. Nothing was sent over a link or timed."
PIPELINE = (
    "Messages of all stages, each run alone in torch's schedule with a process group that sends nothing;"
    " parameters of the class. Not checked: tied-embedding gradient reduction, loss, optimizer."
)
COUNTS = (
    Column("formula", "formula", "count"),
    Column("measured", "measured", "count"),
    Column("verdict", "", "verdict"),
)


CheckT = TypeVar("CheckT", Check, BytesCheck)


@record
class Verified(Generic[CheckT]):
    """One model and its checks. `traced`: layers that ran, and those that the model has."""

    model: LoadedModel
    work: Workload
    checks: list[CheckT]
    traced: tuple[int, int]


AnyVerified: TypeAlias = Verified[Check] | Verified[BytesCheck] | RankChecks
PEAK = 3
"""Place of the peak among the checks of a training step."""


of_check: Keys[[Check | BytesCheck]] = Keys()
of_verified: Keys[[AnyVerified, str | None]] = Keys()


class CheckFacts(Object):
    """One check: two totals, and the paths that differ."""

    check: str = of_check(lambda check: check.name)
    unit: str = of_check(lambda check: check.unit)
    counted: int = of_check(lambda check: check.totals[0])
    measured: int = of_check(lambda check: check.totals[1])
    equal: bool = of_check(lambda check: check.agrees)
    error: float = of_check(lambda check: float(check.error or 0), when=lambda check: check.error is not None)
    differing: dict[str, list[int | None]] = of_check(
        lambda check: {path: list(pair) for path, pair in check.pairs().items() if pair[0] != pair[1]}
    )


class VerifyLine(TypedDict):
    """One matmul of one layer, by the formula and by fvcore; or activations that modules of the class save; or a
    parameter of the class on one rank."""

    path: str
    flops: NotRequired[int | None]
    measured_flops: NotRequired[int | None]
    saved_bytes: NotRequired[int | None]
    measured_saved_bytes: NotRequired[int | None]
    rank_params: NotRequired[int | None]
    measured_rank_params: NotRequired[int | None]
    equal: bool


class VerifyReport(RecipeReport):
    """Comparison of the formulas with every counter."""

    _line = VerifyLine
    # Of all models together, `agrees` is an attribute of every Report.
    _reserved: ClassVar[dict[str, Any]] = {"agrees": bool}

    workload: WorkloadFacts = of_verified(lambda found, dtype: selection.workload_facts(found.work, dtype=dtype))
    layers_traced: int = of_verified(lambda found, _: found.traced[0])
    block_count: int = of_verified(lambda found, _: found.traced[1])
    total_flops: int | None
    measured_flops: int | None
    expected_params: int | None
    cross_checks: list[CheckFacts] = of_verified(lambda found, _: [values_of(CheckFacts, one) for one in found.checks])
    saved_bytes: int | None
    measured_saved_bytes: int | None
    mesh: MeshFacts | None
    plan: Literal["torch", "transformers"] | None
    rank_params: int | None
    measured_rank_params: int | None


def verify(
    models: Sequence[LoadedModel],
    request: Request,
    *,
    all_layers: bool = False,
    against: str | None = None,
    progress: Tick = unwatched,
) -> VerifyReport:
    """Compare the formulas of each model with every counter, on meta at full size, exactly. Needs torch and fvcore.

    `all_layers` runs every layer instead of one of each kind; `against` may be `transformers`.
    """
    _check_against(against)
    models, stepless = selection.steppable(models, request)
    found: list[Verified[Check]] = []
    requests = [_within_reach(model, request) for model in models]
    with shape_kernels():
        for done, (model, each) in enumerate(zip(models, requests, strict=True)):
            progress(model.name, done, len(models))
            work = selection.workload(model, each)
            traced = traced_blocks(model, all_layers)
            found.append(Verified(model, work, _checks(model, work, all_layers, against is not None), traced))
    one = found[0] if len(found) == 1 else None
    where = build.of_workload(models, requests[0] if one else request)
    classless = [model.name for model in models if not model.config.hf_modules]
    return build.report(
        VerifyReport,
        models,
        _counts_table(one) if one else _by_model(found, "FLOPs"),
        [_facts(each, "flops", expected_params=each.model.expected) for each in found],
        title=f"{build.titled(models, 'formulas')} {where}, cross-checked",
        convention=model_notes.products_counted(models, request.logits),
        answer=_verdict(found, "exactly, and so does every operation"),
        notes=lambda at: [
            _traced(found[at], all_layers),
            *dict.fromkeys(check.note for each in found[at] for check in each.checks if check.note),
        ],
        requests=requests,
        defaults=[],
        hints=[f"hint: transformers has no class for {', '.join(classless)}"] if against and classless else (),
        skipped=stepless,
        headline="total_flops",
        agrees=_agrees(found),
    )


def _within_reach(model: LoadedModel, request: Request) -> Request:
    """The request, with fewer tokens if a recurrence in chunks would need gigabytes."""
    if request.ctx is not None or not any(CHUNK in group.axes for group in model.ledger.groups):
        return request
    return replace(request, ctx=min(model.context, IN_CHUNKS))


def _checks(model: LoadedModel, work: Workload, all_layers: bool, against: bool) -> list[Check]:
    try:
        return checks(model, work, all_layers=all_layers, against=against)
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise UsageError(
            f"{model.name}: tensors of {work.tokens:,} × {work.context:,} are too large for torch",
            f"a smaller {option('ctx')} or {option('batch')}",
        ) from None


def _counts_table(found: Verified[Check]) -> Table:
    fvcore, *others = found.checks
    further: dict[str, tuple[Pair, bool]] = {}
    for check in others:
        further[check.name] = check.totals, check.agrees
        if len(check.formula) > 1:
            further |= {path: (pair, False) for path, pair in check.pairs().items() if pair[0] != pair[1]}
    total = {"total FLOPs by fvcore": (fvcore.totals, fvcore.agrees)}
    columns = (Column("what", "operation"), *COUNTS)
    return columns, (_rows(folded(fvcore.pairs())), _rows(total), _rows(further)), ()


def _traced(every: Sequence[Verified[Check]], all_layers: bool) -> str:
    run, layers = _layers(every)
    if all_layers:
        return f"Traced all {layers:,} layers at full size on the meta device."
    return (
        f"Traced {run:,} of {layers:,} layers, one of each kind, at full size on the meta device;"
        f" {option('all_layers', True)} traces them all."
    )


def verify_ranks(
    models: Sequence[LoadedModel],
    request: Request,
    mesh: Mesh | None = None,
    *,
    dtype: str | None = None,
    all_layers: bool = False,
    progress: Tick = unwatched,
) -> VerifyReport:
    """Compare what one rank stores and sends in a forward and a backward pass with the class that torch shards,
    exactly. `mesh`: the layout, of two or four ranks by default. Needs torch and transformers. Raises TfacctError."""
    if request.new is not None:
        raise sequences_only("shard")
    mesh = mesh and checked(mesh)
    if mesh is not None:
        check_verifiable(mesh)
    stored = units.dtype_name(dtype or "bf16")
    if stored not in DTYPES:
        raise UsageError(f"communication is in {', '.join(DTYPES)}, not {stored}")
    models, layouts, left_out = supported_on(models, lambda model: layout_for(model, mesh))
    found: list[RankChecks] = []
    with shape_kernels():
        for done, (model, (layout, published)) in enumerate(zip(models, layouts, strict=True)):
            progress(model.name, done, len(models))
            work = selection.workload(model, request)
            found.append(rank_checks(model, work, layout, stored, published=published, all_layers=all_layers))
    one = found[0] if len(found) == 1 else None
    who = f"{build.label(models[0])}: one of {one.mesh.ranks} ranks" if one else "One rank of each"
    return build.report(
        VerifyReport,
        models,
        _rank_table(one) if one else _by_model(found, "elements"),
        [_facts(each, "rank_params", stored, mesh=values_of(MeshFacts, each.mesh), plan=each.plan) for each in found],
        title=f"{who} in {stored} against the class, {build.workload_words(models, request)}",
        convention="parameters of the fullest rank, and its collectives in a forward and a backward pass",
        answer=_verdict(found, "exactly, and so does every call"),
        notes=lambda at: _rank_notes(found[at]),
        requests=[request],
        defaults=[],
        skipped=left_out,
        headline="rank_params",
        agrees=_agrees(found),
    )


def _rank_table(found: RankChecks) -> Table:
    params, *others = found.checks
    sections = [_rows(folded(params.pairs(), starred)), _rows({params.name: (params.totals, params.agrees)})]
    for check in others:
        calls = {what: (pair, pair[0] == pair[1]) for what, pair in check.pairs().items()}
        sections.append(_rows({**calls, check.name: (check.totals, check.agrees)}))
    return (Column("what", "one rank"), *COUNTS), tuple(sections), ()


def _rank_notes(every: Sequence[RankChecks]) -> list[str]:
    mesh = every[0].mesh
    if mesh.pp > 1:
        return [PIPELINE]
    run, layers = _layers(every)
    how = "at full width on the meta device, with a process group that sends nothing"
    some = f"Ran {run:,} of {layers:,} layers of the class {how}; {option('all_layers', True)} runs every layer."
    notes = [f"Ran all {layers:,} layers of the class {how}." if run == layers else some]
    if mesh.cp > 1 and mesh.fsdp == 1:
        notes.append("Gradient reduction over cp was not checked, because buckets need real tensors.")
    for published, whose in ((False, "torch's tutorials"), (True, "the plan that transformers publishes")):
        names = [found.model.name for found in every if found.mesh.tp > 1 and found.published is published]
        if names:
            notes.append(f"Sharded over tp as in {whose}{'' if len(every) == 1 else f': {listed(names)}'}.")
    if any(found.published and tied(found.model) for found in every):
        notes.append("A tied head was checked as untied, because the published plan separates it from the embedding.")
    if mesh.ep > 1:
        notes.append("Routing is assumed even.")
    return [*notes, UNCHECKED]


def verify_train(
    models: Sequence[LoadedModel],
    request: Request,
    terms: Counting,
    *,
    against: str | None = None,
    progress: Tick = unwatched,
) -> VerifyReport:
    """Compare the formula of each model's training step with its class on the meta device, and torch's MemTracker.
    Needs torch and transformers. Raises UsageError for a model that the formula does not support."""
    _check_against(against)
    if request.new is not None:
        raise sequences_only("train")
    models, left_out = trainable(models, terms.recipe)
    recipe = terms.recipe.for_models(models)
    found: list[Verified[BytesCheck]] = []
    steps: list[ExactStep] = []
    with shape_kernels():
        for model in models:
            work, layers = selection.workload(model, request), sum(one.count for one in model.architecture.stacks)
            step, compared = step_checks(model, work, recipe.for_model(model), progress)
            found.append(Verified(model, work, compared, (layers, layers)))
            steps.append(step)
    one = found[0] if len(found) == 1 else None
    who = f"{build.label(models[0])}: a training step" if one else "Training steps"
    where = f"{build.workload_words(models, request)}, {recipe.description}"
    versions = [{f"{name} {version}" for name, version in step.versions.items()} for step in steps]
    return build.report(
        VerifyReport,
        models,
        _step_table(one) if one else _by_model(found, "bytes at the peak", main=PEAK),
        [
            _facts(each, "saved_bytes", recipe.dtype, **{**recipe_facts(recipe), "attention": step.attention})
            for each, step in zip(found, steps, strict=True)
        ],
        title=f"{who} in {recipe.dtype} against the class, {where}",
        answer=_verdict(found, "to the byte", wrong="are out of bounds"),
        notes=lambda at: [
            "The class ran on the meta device, all layers at full size, with"
            f" {', '.join(sorted(set().union(*versions[at])))}."
        ],
        convention=recipe.counted,
        requests=[request],
        skipped=left_out,
        defaults=[],
        headline="saved_bytes",
        agrees=_agrees(found),
    )


def _step_table(found: Verified[BytesCheck]) -> Table:
    formula, measured, verdict = COUNTS
    columns = (Column("what", "bytes of"), formula, measured, Column("difference", "difference"), verdict)
    return columns, (tuple({"what": check.name, **_totals(check, check.agrees)} for check in found.checks),), ()


def _totals(check: Check | BytesCheck, agrees: bool) -> dict[str, Cell]:
    """Cells of both totals of a check. `agrees`: of all checks in the row."""
    formula, measured = check.totals
    error = {} if check.error is None else {"difference": error_words(check.error)}
    return {"formula": formula, "measured": measured, **error, "verdict": "ok" if agrees else "DIFFERS"}


def _by_model(every: Sequence[AnyVerified], unit: str, main: int = 0) -> Table:
    """A row for each model: both totals of its `main` check, in this unit, and whether all checks agree."""
    rows: list[Row] = [
        {
            "model": build.label(found.model),
            "layout": layout_label(found.mesh) if isinstance(found, RankChecks) else None,
            **_totals(found.checks[main], _agrees([found])),
            "checks": len(found.checks),
        }
        for found in every
    ]
    columns = (
        Column("model", "model"),
        Column("layout", "layout"),
        Column("formula", f"formula ({unit})", "count"),
        Column("measured", "measured", "count"),
        Column("difference", "difference", drop=1),
        Column("checks", "checks", "count", drop=1),
        Column("verdict", "", "verdict"),
    )
    return tuple(column for column in columns if rows[0].get(column.key) is not None), (tuple(rows),), ()


def _check_against(against: str | None) -> None:
    if against not in (None, "transformers"):
        raise UsageError(f"{option('against')} must be transformers, not {against!r}")


def _agrees(every: Sequence[AnyVerified]) -> bool:
    return all(check.agrees for found in every for check in found.checks)


def _layers(every: Sequence[AnyVerified]) -> tuple[int, int]:
    """Layers that ran, and those of the models."""
    return sum(found.traced[0] for found in every), sum(found.traced[1] for found in every)


def _facts(found: AnyVerified, key: str, dtype: str | None = None, **others: Any) -> dict[str, Any]:
    """Facts of checks. `key`: what the first check counts, total and line by line."""
    first = found.checks[0]
    counted, measured = first.totals
    lines = [
        {"path": path, key: pair[0], f"measured_{key}": pair[1], "equal": pair[0] == pair[1]}
        for path, pair in first.pairs().items()
    ]
    totals = {f"total_{key}" if key == "flops" else key: counted, f"measured_{key}": measured}
    return values_of(VerifyReport, found, dtype, agrees=_agrees([found]), **totals, **others, lines=lines)


def _rows(pairs: Mapping[str, tuple[Pair, bool]]) -> tuple[Row, ...]:
    """Both sides of every path, and the verdict."""
    return tuple(
        {"what": what, "formula": pair[0], "measured": pair[1], "verdict": _word(pair, agrees)}
        for what, (pair, agrees) in pairs.items()
    )


def _word(pair: Pair, agrees: bool) -> str:
    """Verdict on a path."""
    formula, measured = pair
    if agrees:
        return "ok"
    if formula is None or measured is None:
        return "not in the formula" if formula is None else "not measured"
    return f"DIFFERS by {measured - formula:+,}" if measured != formula else "DIFFERS in parts"


def _verdict(every: Sequence[AnyVerified], how: str, wrong: str = "differ") -> str:
    """Whether all checks agree, and which do not."""
    checks = [check for found in every for check in found.checks]
    names = {found.model.name: [check.name for check in found.checks if not check.agrees] for found in every}
    if count := sum(not check.agrees for check in checks):
        which = "; ".join(f"{name} ({', '.join(differing)})" for name, differing in names.items() if differing)
        return f"{count:,} of {len(checks):,} checks {wrong}: {which}."
    error, name = max(((check.error or Fraction(0), check.name) for check in checks), key=lambda one: abs(one[0]))
    if error:
        return (
            f"All {len(checks):,} checks are within bounds. Largest error: {name}, {error_words(error)} by the formula."
        )
    return f"All {len(checks):,} totals agree {how}." if len(checks) > 1 else f"The total agrees {how}."


PROVEN_DTYPES = ("bf16", "fp32")
"""Default dtypes in which saved activations are proven."""
UNPROVEN = frozenset(("loss", "lora", "adapter_dtype", "lora_dropout", "weights_dtype"))
"""Fields of a recipe with which saved activations are measured, not proven."""
ON_GRID = (
    "Both sides were counted at every point of a grid with two values of each size and three of T. Two polynomials of"
    " degree at most 1 (2 in T) that agree there are identical."
)


# Proofs


of_statement: Keys[[Proven]] = Keys()


class Statement(Object):
    """One statement of a proof."""

    what: str = of_statement(lambda one: one.what)
    formula: str | None = of_statement(lambda one: None if one.formula is None else str(one.formula.expression))
    difference: str = of_statement(lambda one: one.difference)
    evidence: str = of_statement(lambda one: one.evidence)
    proven: bool = of_statement(lambda one: one.holds)


class ProveReport(ModelReport):
    """Proof of a formula for all sizes."""

    _name = "verify-prove"
    by: Literal["symbols", "grid"]
    proven: bool
    legend: dict[str, Axis]
    statements: list[Statement]


def prove(model: LoadedModel, *, by: By = "symbols", progress: Tick = unwatched) -> ProveReport:
    """Prove that formula and model are the same polynomial, for all sizes. Needs torch and fvcore; sympy."""
    from tfacct.verify.proof import proven

    if by not in ("symbols", "grid"):
        raise UsageError(f"{option('by')} must be symbols or grid, not {by!r}")
    model = model.running("expanded")  # one formula is proven; the other forms are a --set away
    try:
        proof = proven(model.architecture, by=by, progress=progress)
    except RuntimeError as error:  # torch's, of a reference model whose code needs a size as a number
        what = f"{model.name}: its reference model does not run with {by} for sizes, so there is no proof"
        raise UsageError(what, f"leave {option('prove', True)} out: this compares counts at given sizes") from error
    return _proof_report(
        model,
        proof.statements,
        by=proof.by,
        legend={axis: proof.symbolic.legend[axis] for axis in proof.symbolic.symbols},
        means=[_means(model, proof)],
        title="formula against model, for all sizes",
        convention=model_notes.products_counted([model]),
        hints=()
        if proof.changed is None
        else (f"hint: torch's symbolic shapes have changed ({proof.changed}), so the proof uses a grid",),
    )


def _covers(model: LoadedModel) -> str:
    return f"The proof covers all sizes, with the biases and tied weights of {model.name}."


def _means(model: LoadedModel, proof: Proof) -> str:
    like = _covers(model)
    if proof.by == "grid":
        return f"{like} {ON_GRID} Each count is such a polynomial, because a matmul multiplies each of its sizes once."
    sizes = "Every size was a symbol, so each count is itself a polynomial"
    if proof.sizes.recurs:
        *before, last = map(str, proof.sizes.tokens_tried)
        sizes = f"Every size but T was a symbol; counts at T = {last} lie on the curve through {', '.join(before)}"
    if proof.sizes.chunk is not None:
        sizes += f"; T was a symbol in one, two and three chunks of {proof.sizes.chunk} tokens"
    beyond = ", ".join(proof.sizes.conditions())
    compared, other = "compared with the formula symbol by symbol", "other " if beyond else ""
    if proof.holds:
        compared += f", and torch made no {other}assumptions about the symbols. So the formula holds for all sizes"
        compared += f" from 2 up{f' with {beyond}' if beyond else ''}"
    return (
        f"{like} {sizes}. Each polynomial was {compared}. Smaller sizes were run separately. All layers run the same"
        " code in a loop, so counts are linear in L (checked at 1, 2 and 3)."
    )


def prove_saved(
    model: LoadedModel, terms: Counting, *, by: str | None = None, progress: Tick = unwatched
) -> ProveReport:
    """Prove that the formula of saved activations matches the class, in every size, by a grid of small models.
    Needs torch, transformers and sympy. Raises UsageError for a model whose step is not answered."""
    from tfacct.verify.step_proof import proven_steps, small_model

    for name, value in terms.trained:
        if name in UNPROVEN:
            measures = spelled("tfacct verify --train", "verify(train=True)")
            raise UsageError(f"{option(name, value)} is not proven", f"{measures} checks it by measurement")
    if by not in (None, "grid"):
        raise UsageError("the transformers class does not support symbolic sizes", f"leave {option('by', by)} out")
    recipes = [
        replace(terms, dtype=dtype).recipe.for_model(model)
        for dtype in ([terms.dtype] if terms.dtype else PROVEN_DTYPES)
    ]
    if not answered_groups(model.family):
        training_memory(model, Workload(1, 1), recipes[0])  # raises, and says why
    refused = {recipe: refusal(small_model(model, recipe), recipe) for recipe in recipes}
    proven = [recipe for recipe, why in refused.items() if why is None]
    if not proven:
        raise UsageError(f"{model.name}: {next(iter(refused.values()))}")
    statements = [found for recipe in proven for found in proven_steps(model, recipe, progress)]
    written = saved_formula(small_model(model, proven[0]), proven[0], Workload(1, 1, SEVERAL))
    used = {str(symbol) for symbol in written.total.free_symbols}
    means = (
        f"{_covers(model)} {ON_GRID} Saved bytes are such a polynomial: each tensor has each size once, except scores,"
        " which have T twice.",
        *(f"Not proven in {recipe.dtype}: {why}." for recipe, why in refused.items() if why),
    )
    return _proof_report(
        model,
        statements,
        by="grid",
        legend={axis: meaning for axis, meaning in written.symbolic.legend.items() if axis in used},
        means=means,
        title="formula of saved activations against the class, for all sizes",
        convention=proven[0].counted,
        counter="class",
    )


def _proof_report(
    model: LoadedModel,
    statements: Sequence[Proven],
    *,
    by: By,
    legend: Mapping[str, str],
    means: Iterable[str],
    title: str,
    convention: str,
    counter: str = "model",
    hints: Iterable[str] = (),
) -> ProveReport:
    """A proof as a report. `means`: sentences on what the statements mean. `counter`: whose counts the formulas are
    compared with."""
    holds = all(each.holds for each in statements)
    columns = (
        Column("what", "count"),
        Column("difference", f"{counter} − formula"),
        Column("evidence", "assumptions" if by == "symbols" else "counted by"),
        Column("verdict", "", "verdict"),
    )
    each_facts = [values_of(Statement, each) for each in statements]
    rows: list[Row] = [{**each, "verdict": "proven" if each["proven"] else "NOT PROVEN"} for each in each_facts]
    # A second check of one count ("forward, chunked") writes its formula no second time.
    formulas = {
        each.what: each.formula.written.text for each in statements if each.formula is not None and "," not in each.what
    }
    fact = {
        "by": by,
        "proven": holds,
        "legend": {axis: {"meaning": meaning} for axis, meaning in legend.items()},
        "statements": each_facts,
    }
    notes = (
        *(f"{what} = {text}" for what, text in formulas.items()),
        "; ".join(f"{axis} {meaning}" for axis, meaning in legend.items()),
        *means,
    )
    return build.report(
        ProveReport,
        [model],
        (columns, (tuple(rows),), ()),
        [fact],
        title=f"{model.family}: {title}",
        answer="Proven: formula and model are the same polynomial in all sizes." if holds else "Not proven.",
        convention=convention,
        notes=lambda _: notes,
        hints=hints,
        defaults=[],
        agrees=holds,
    )
