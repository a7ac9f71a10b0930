"""Compute budgets: parameters and tokens for training FLOPs, or FLOPs and days for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tfacct.base import units
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, check_size
from tfacct.loading import devices
from tfacct.loading.memory_limit import device_limit
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, NoteRow, Table, notes
from tfacct.reports import build
from tfacct.reports.build import ModelReport
from tfacct.timing import compute_optimal
from tfacct.timing.compute_optimal import (
    CONTEXT,
    FLOPS_PER_PARAMETER,
    LOSS_FITS,
    TOKENS_PER_PARAMETER,
    Spent,
    Trained,
    Trainer,
    bought,
    family_sizes,
    nearest,
    trained_on,
    training_point,
)
from tfacct.timing.utilization import check_positive, flops_per_token, peak_of

RATIOS = (10, 20, 40, 100, 200)
"""Tokens per parameter that the table shows."""
MFU = 0.4
LEAST = 1e12
"""The fewest FLOPs that are accepted for a named model: fewer are a typo."""
SIZES = 1e6, 1e14
"""The smallest number of parameters, and of FLOPs, if no model is named: 10¹⁴ FLOPs train fewer than 10⁶ parameters."""
UNSPENT: Spent = {"days": None, "device_hours": None, "cost": None}
NOTES = (
    NoteRow("experts", 1, lambda of: of["experts"], "Parameters (N) are active parameters."),
    NoteRow(
        "fits",
        2,
        lambda of: of["optimal_tokens"] is not None,
        "Approaches 1 to 3 are Chinchilla's (Hoffmann et al. 2022), fitted to dense models up to 16 B: approach 3"
        " with the exponents of its table, 0.3392 and 0.2849. Besiroglu et al. refitted it in 2024.",
    ),
    NoteRow(
        "attention",
        2,
        lambda of: not of["named"] and of,
        "Parameters and tokens follow C = 6·N·D. Nearest preset: of the {family} architecture, the closest in size; its"
        " tokens are the FLOPs divided by its exact FLOPs per token, attention included, at context {contexts}.",
    ),
    NoteRow(
        "exact",
        2,
        lambda of: of["named"] and of,
        "{name} takes {each} FLOPs per token at context {context:,}, counted over all matmuls; 6·N, as in most papers,"
        " is {rule}.",
    ),
    NoteRow("speed", 2, lambda of: of["fits"] and of, "{speed} is assumed on each device, without interruptions."),
)


class BudgetLine(Trained, Spent):
    """Parameters, tokens, days and cost at a number of tokens per parameter."""


class BudgetReport(ModelReport):
    """Model sizes, tokens and days for a compute budget."""

    _line = BudgetLine

    flops: float
    optimal_parameters: int | None
    optimal_tokens: int | None
    context: int
    tokens: int
    tokens_per_parameter: float
    flops_per_token: float
    active_params: int
    device: str | None
    devices: int | None
    mfu: float | None
    fits: bool | None
    days: float | None
    device_hours: float | None
    cost: float | None


def budget(
    model: LoadedModel | None,
    flops: float | None = None,
    *,
    ctx: int | None = None,
    tokens: int | None = None,
    tokens_per_parameter: float | None = None,
    days: float | None = None,
    on: str | None = None,
    mfu: float | None = None,
    dtype: str | None = None,
    price: float | None = None,
) -> BudgetReport:
    """Compute-optimal parameters and tokens for `flops`, and the tokens on which they train a model and its family; or
    the FLOPs of a model trained on `tokens`. `on`: devices, for days at `mfu`, or for the FLOPs of `days`, and for the
    cost at `price` per device-hour. FLOPs below 10¹⁴ are a number of parameters. Raises TfacctError."""
    trainer = _trainer(on, mfu, dtype, price)
    size_alone = flops if model is None and flops is not None and SIZES[0] <= flops < SIZES[1] else None
    if days is not None:
        others = {"FLOPs": None if size_alone else flops, option("tokens"): tokens}
        others[option("tokens_per_parameter")] = tokens_per_parameter
        flops = _flops_in(days, trainer, next((name for name, value in others.items() if value is not None), ""))
        tokens_per_parameter = size_alone and flops / FLOPS_PER_PARAMETER / size_alone**2
    elif size_alone is not None:
        if tokens_per_parameter is None:
            tokens_per_parameter = TOKENS_PER_PARAMETER if tokens is None else tokens / size_alone
        flops, tokens = FLOPS_PER_PARAMETER * tokens_per_parameter * size_alone**2, None
    _check(model, flops, tokens, tokens_per_parameter)
    ratio = tokens_per_parameter or TOKENS_PER_PARAMETER
    family = [] if flops is None else family_sizes(model, ctx)
    best = compute_optimal.parameters(flops or 1, ratio)
    trained = model or nearest(family, best)
    point = training_point(trained, ctx)
    size, each = int(point.active_params()), flops_per_token(point)
    spent: float
    if flops is None:
        length = tokens or tokens_per_parameter
        tokens = round(ratio * size) if tokens is None else tokens
        spent, per_parameter = round(tokens * each), tokens / size
        values = {per_parameter, *(RATIOS if length is None else ())}
        lines = [trained_on(value, size, each) for value in sorted(values)]
    else:
        tokens, spent, per_parameter = round(Fraction(flops) / each), flops, flops / float(each) / size
        lines = [bought(flops, value, "", family, ctx) for value in sorted({*RATIOS, ratio})]
        fitted = ((name, fit.parameters(flops)) for name, fit in LOSS_FITS.items())
        lines += [bought(flops, flops / FLOPS_PER_PARAMETER / n**2, name, family, ctx) for name, n in fitted]
    needs = trainer.needs(point) if trainer else ""
    spend = trainer.spending if trainer and not needs else lambda _: UNSPENT
    facts: dict[str, Any] = {
        "flops": spent,
        "optimal_parameters": None if flops is None else round(best),
        "optimal_tokens": None if flops is None else round(best * ratio),
        "context": int(point.work.context),
        "tokens": tokens,
        "tokens_per_parameter": per_parameter,
        "flops_per_token": float(each),
        "active_params": size,
        "device": trainer and trainer.limit.facts["device"],
        "devices": trainer and trainer.limit.count,
        "mfu": trainer and trainer.mfu,
        "fits": None if trainer is None else not needs,
        **spend(spent),
        "lines": [{**line, **spend(line["flops"])} for line in lines],
    }
    speed = trainer and f"{100 * trainer.mfu:.3g}% MFU of {units.three(trainer.peak / 1e12)} TFLOP/s"
    about = {
        "name": build.label(trained),
        "named": model is not None,
        "family": trained.family,
        "experts": bool(trained.ledger.experts),
        "contexts": f"{CONTEXT:,} (or the longest of the preset, if shorter)" if ctx is None else f"{ctx:,}",
        "trained": units.people(tokens),
        "each": units.si(round(each)),
        "rule": units.si(FLOPS_PER_PARAMETER * size),
        "speed": trainer and f"{speed} ({trainer.dtype})",
    }
    if model is not None:
        many = f"{about['trained']} tokens ({units.three(per_parameter)} per parameter) at context {facts['context']:,}"
        what = f"{about['name']} on {many}: {units.si(round(spent))} FLOPs ({_power(spent)})"
    else:
        whose = " (Chinchilla)" if ratio == TOKENS_PER_PARAMETER else ""
        best_tokens = units.people(round(best * ratio))
        what = f"{_power(spent)} FLOPs: {units.people(round(best))} parameters on {best_tokens} tokens{whose}"
    title = ""
    if trainer is not None:
        title = f"Training on {'1 × ' if trainer.limit.count == 1 else ''}{trainer.words} in {trainer.dtype}"
    return build.report(
        BudgetReport,
        [trained],
        _table(facts),
        [facts],
        title=title,
        convention="training FLOPs: forward and backward of every matmul; 6·N·D if no model is named",
        answer=f"{needs and f'{needs}. '}{what}{_spent(facts)}.",
        notes=lambda _: notes(NOTES, {**facts, **about}),
        requests=[Request(ctx=facts["context"])],
        defaults=[] if model is None else [model],
    )


def _check(
    model: LoadedModel | None, flops: float | None, tokens: int | None, tokens_per_parameter: float | None
) -> None:
    """Raises TfacctError for numbers out of range, and for options that contradict each other."""
    if flops is None and model is None:
        raise UsageError("a budget needs FLOPs, or a MODEL", "for example `tfacct budget 1e21`")
    if model is not None and model.source is not None:
        raise ConfigError(f"{model.name}: budgets for models with an encoder are not supported", "name a decoder")
    if flops is not None and flops < LEAST:
        hint = "for example 1e21: FLOPs = 6 × parameters × tokens; or name a MODEL and its tokens"
        raise UsageError(f"{_power(flops)} FLOPs are too few to train a model", hint)
    for name, value in (("flops", flops), ("tokens_per_parameter", tokens_per_parameter)):
        if value is not None:
            check_positive(name, value)
    if tokens is not None:
        check_size(option("tokens"), tokens, most=10**18)
    if tokens is not None and (flops is not None or tokens_per_parameter is not None):
        other = "FLOPs" if flops is not None else option("tokens_per_parameter")
        raise UsageError(
            f"{option('tokens')} does not work with {other}: both set the training length", "leave one out"
        )


def _flops_in(days: float, trainer: Trainer | None, other: str) -> float:
    """FLOPs of so many days. `other`: another option that sets the training length. Raises UsageError."""
    if trainer is None:
        raise UsageError(f"{option('days')} needs {option('on')}", f"for example {option('on', '8xh100')}")
    if other:
        raise UsageError(f"{option('days')} does not work with {other}: both set the training length", "leave one out")
    check_positive("days", days)
    return days * trainer.flops_of_a_day


def _trainer(on: str | None, mfu: float | None, dtype: str | None, price: float | None) -> Trainer | None:
    if on is None:
        for name, value in (("mfu", mfu), ("price", price), ("dtype", dtype)):
            if value is not None:
                raise UsageError(f"{option(name)} needs {option('on')}", f"for example {option('on', '8xh100')}")
        return None
    count, device = devices.several(option("on"), on)
    share = MFU if mfu is None else mfu
    check_positive("mfu", share, most=1)
    if price is not None:
        check_positive("price", price)
    limit = device_limit(count, device, training=True)
    name, peak = peak_of(device, dtype)
    return Trainer(limit, device.several(count), name, peak, share, price)


def _table(facts: Mapping[str, Any]) -> Table:
    """A row for each number of tokens per parameter, then one for each fit of the loss."""
    lines: Sequence[dict[str, Any]] = facts["lines"]
    columns = [Column("tokens_per_parameter", "tokens/param", "count"), Column("tokens", "tokens", "params")]
    if facts["optimal_tokens"] is None:
        columns.append(Column("flops", "FLOPs", "flops"))
        spent = (Column(key, key, "rate") for key in ("days", "cost"))
        columns += [column for column in spent if facts[column.key] is not None]
    else:
        columns.insert(1, Column("parameters", "parameters", "params"))
        near = (
            Column("nearest", "nearest preset", drop=1),
            Column("nearest_tokens", "tokens for these FLOPs", "params", drop=1),
        )
        columns += [*(near if lines[0]["nearest"] else ()), Column("basis", "optimal by")]
    fits = tuple(line for line in lines if line.get("basis") in LOSS_FITS)
    return tuple(columns), tuple(filter(None, (tuple(lines[: len(lines) - len(fits)]), fits))), ()


def _spent(facts: Mapping[str, Any]) -> str:
    """Days, device-hours and cost, after the answer."""
    days, cost = facts["days"], facts["cost"]
    if days is None:
        return ""
    time = f", {units.three(days)} days" if days >= 1 else f", {units.three(days * 24)} hours"
    time += f", {units.three(facts['device_hours'])} device-hours"
    return time if cost is None else f"{time}, cost {units.three(cost)}"


def _power(flops: float) -> str:
    """Text of a number as a power of ten: `1e21`, `8.53e23`."""
    return f"{flops:.3g}".replace("e+", "e").replace("e0", "e")
