"""Compute budgets: parameters and tokens for training FLOPs, or FLOPs and days for a model."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NotRequired, TypedDict

from tfacct.base import units
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, check_size
from tfacct.loading import devices
from tfacct.loading.memory_limit import device_limit
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, NoteRow, Row, Table, notes
from tfacct.reports import build
from tfacct.reports.build import ModelReport
from tfacct.timing import compute_optimal
from tfacct.timing.compute_optimal import (
    FLOPS_PER_PARAMETER,
    LOSS_FITS,
    TOKENS_PER_PARAMETER,
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
"""The fewest FLOPs that are accepted: fewer are a typo."""
NOTES = (
    NoteRow("experts", 1, lambda of: of["experts"], "N: active parameters; the fits are for dense models."),
    NoteRow(
        "fits",
        2,
        lambda of: of["by_flops"],
        "Chinchilla (Hoffmann et al. 2022): 20 tokens per parameter, C = 6·N·D; fitted to dense models up to 16 B.",
    ),
    NoteRow(
        "attention",
        2,
        lambda of: of["by_flops"] and not of["named"] and of,
        "Assumes 6·N·D. With attention counted, this budget trains {name} at context {context:,} on {tokens} tokens.",
    ),
    NoteRow(
        "exact",
        2,
        lambda of: of["named"] and of,
        "{name} takes {each} FLOPs per token at context {context:,}, counted over all matmuls instead of 6·N.",
    ),
    NoteRow("speed", 2, lambda of: of["speed"], "{} MFU is assumed, without interruptions."),
)


class BudgetLine(TypedDict):
    """Parameters and tokens at a number of tokens per parameter. `basis`: the fit; null for a given ratio. `nearest`:
    the model of the family with the nearest size, and its tokens, if FLOPs are given."""

    tokens_per_parameter: float
    basis: NotRequired[str | None]
    flops: float
    parameters: int
    tokens: int
    nearest: NotRequired[str | None]
    nearest_tokens: NotRequired[int | None]
    days: float | None
    device_hours: float | None
    cost: float | None


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
    on: str | None = None,
    mfu: float | None = None,
    dtype: str | None = None,
    price: float | None = None,
) -> BudgetReport:
    """Compute-optimal parameters and tokens for `flops`, and the tokens on which they train a model and its family; or
    the FLOPs of a model trained on `tokens`. `on`: devices, for days at `mfu`, and for the cost at `price` per
    device-hour. Raises TfacctError."""
    _check(model, flops, tokens, tokens_per_parameter)
    trainer = _trainer(on, mfu, dtype, price)
    ratio = tokens_per_parameter or TOKENS_PER_PARAMETER
    family = [] if flops is None else family_sizes(model, ctx)
    best = compute_optimal.parameters(flops or 1, ratio)
    trained = model or nearest(family, best)
    point = training_point(trained, ctx)
    size, each = int(point.active_params()), float(flops_per_token(point))
    needs = trainer.needs(point) if trainer else ""
    spend = trainer.spending if trainer and not needs else lambda _: dict.fromkeys(("days", "device_hours", "cost"))
    if flops is None:
        own_ratio = tokens / size if tokens is not None else ratio
        lines = [trained_on(value, size, each) for value in sorted({*RATIOS, own_ratio})]
        spent = own_ratio * size * each
    else:
        lines = [bought(flops, value, "", family, ctx) for value in sorted({*RATIOS, ratio})]
        fitted = ((name, fit.parameters(flops)) for name, fit in LOSS_FITS.items())
        lines += [bought(flops, flops / FLOPS_PER_PARAMETER / n**2, name, family, ctx) for name, n in fitted]
        own_ratio, spent = flops / each / size, flops
    lines = [line | spend(line["flops"]) for line in lines]
    context = int(point.work.context)
    about = {
        "name": build.label(trained),
        "context": context,
        "by_flops": flops is not None,
        "named": model is not None,
        "tokens": units.people(round(spent / each)),
        "each": units.si(round(each)),
        "experts": bool(trained.ledger.experts),
        "speed": trainer and not needs and units.percent(trainer.mfu, 0),
    }
    if flops is not None and model is None:
        whose = " (Chinchilla)" if ratio == TOKENS_PER_PARAMETER else ""
        sizes = f"{units.people(round(best))} parameters on {units.people(round(best * ratio))} tokens"
        answer = f"{_power(flops)} FLOPs: {sizes}{whose}"
    else:
        many = f"{about['tokens']} tokens ({units.three(own_ratio)} per parameter)"
        answer = f"{about['name']} on {many}: {_power(spent)} FLOPs"
    spending = spend(spent)
    return build.report(
        BudgetReport,
        [trained],
        _table(lines, by_flops=flops is not None, family=trained.family, trainer=None if needs else trainer),
        [
            {
                "flops": spent,
                "optimal_parameters": None if flops is None else round(best),
                "optimal_tokens": None if flops is None else round(best * ratio),
                "context": context,
                "tokens": round(spent / each),
                "tokens_per_parameter": own_ratio,
                "flops_per_token": each,
                "active_params": size,
                "device": trainer.limit.facts["device"] if trainer else None,
                "devices": trainer.limit.count if trainer else None,
                "mfu": trainer.mfu if trainer else None,
                "fits": None if trainer is None else not needs,
                **spending,
                "lines": lines,
            }
        ],
        title="" if trainer is None else f"Training on {trainer.words}",
        convention="training FLOPs: forward and backward of every matmul; 6·N·D if no model is named",
        answer=f"{needs and f'{needs}. '}{answer}{_spent(spending['days'], spending['cost'])}.",
        notes=lambda _: notes(NOTES, about),
        requests=[Request(ctx=context)],
    )


def _check(
    model: LoadedModel | None, flops: float | None, tokens: int | None, tokens_per_parameter: float | None
) -> None:
    """Raises TfacctError for numbers out of range, and for options that contradict each other."""
    if flops is None and model is None:
        raise UsageError("a budget needs FLOPs, or a MODEL", "for example `tfacct budget 1e21`")
    if model is not None and model.source is not None:
        raise ConfigError(f"{model.name}: budgets for models with an encoder are not supported", "name a decoder")
    for name, value in (("flops", flops), ("tokens_per_parameter", tokens_per_parameter)):
        if value is not None:
            check_positive(name, value)
    if flops is not None and flops < LEAST:
        hint = "for example 1e21: FLOPs = 6 × parameters × tokens; or name a MODEL and its tokens"
        if model is None and tokens is not None:
            needed = _power(FLOPS_PER_PARAMETER * flops * tokens)
            hint = f"{_power(flops)} parameters need 6 × parameters × tokens = {needed} FLOPs: `tfacct budget {needed}`"
        raise UsageError(f"{_power(flops)} FLOPs are too few to train a model", hint)
    if tokens is not None:
        check_size(option("tokens"), tokens, most=10**18)
    if tokens is not None and (flops is not None or tokens_per_parameter is not None):
        other = "FLOPs" if flops is not None else option("tokens_per_parameter")
        raise UsageError(
            f"{option('tokens')} does not work with {other}: both set the training length", "leave one out"
        )


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
    return Trainer(limit, device.several(count), count * peak_of(device, dtype)[1] * share, share, price)


def _table(lines: Sequence[dict[str, Any]], *, by_flops: bool, family: str, trainer: Trainer | None) -> Table:
    shown = [Column("tokens_per_parameter", "tokens per parameter", "count"), Column("tokens", "tokens", "params")]
    if by_flops:
        shown.insert(1, Column("parameters", "parameters", "params"))
        shown += [
            Column("nearest", f"nearest {family} preset", drop=1),
            Column("nearest_tokens", "tokens of that model", "params", drop=1),
        ]
        shown.append(Column("basis", "source"))
    else:
        shown.append(Column("flops", "FLOPs", "flops"))
        shown += [Column("days", "days", "rate")] if trainer else []
        shown += [Column("cost", "cost", "rate")] if trainer and trainer.price is not None else []
    rows: list[Row] = [
        {key: Fraction(value) if isinstance(value, float) else value for key, value in line.items()} for line in lines
    ]
    plain = tuple(row for row in rows if row.get("basis") not in LOSS_FITS)
    return tuple(shown), tuple(filter(None, (plain, tuple(row for row in rows if row not in plain)))), ()


def _spent(days: float | None, cost: float | None) -> str:
    """Days and cost, after the answer."""
    if days is None:
        return ""
    time = f", {units.three(days)} days" if days >= 1 else f", {units.three(days * 24)} hours"
    return time if cost is None else f"{time}, cost {units.three(cost)}"


def _power(flops: float) -> str:
    """Text of a number as a power of ten: `1e21`, `8.53e23`."""
    return f"{flops:.3g}".replace("e+", "e")
