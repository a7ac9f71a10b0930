"""What of a training step fits a budget, and what would make more of it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tfacct.accounts.memory import largest_that_fits
from tfacct.accounts.passes import recomputed_flops
from tfacct.base import units
from tfacct.base.spelling import shell_option
from tfacct.output.report import Column, Row, Table
from tfacct.reports.training import Trained, reads_images, refusal, trained
from tfacct.training.recipe import Recipe
from tfacct.training.recompute import ATTENTION

if TYPE_CHECKING:
    from tfacct.reports.budget import Budget

HEAD = "lm_head"
LONGEST = 2**30
"""Tokens or sequences beyond which nobody asks what fits."""


def budgeted(one: Trained, given: Budget) -> dict[str, Any]:
    """The largest context and batch that fit, and, where the step does not, what would make it."""

    def total(context: int, batch: int, recipe: Recipe = one.recipe) -> int:
        work = replace(one.work, context=context, tokens=context, batch=batch)
        return int(trained(one.subject, work, recipe).peak.total)

    budget, past = given.usable, one.subject.past_positions(one.work)
    mesh = one.recipe.mesh
    least = 1 if mesh is None else mesh.pieces  # tokens that ranks divide
    each = 1 if mesh is None else mesh.microbatches or (mesh.pp if mesh.chunks > 1 else 1)  # sequences, likewise

    limit = one.subject.position_limit or LONGEST

    def most_sequences(recipe: Recipe) -> int:
        return each * largest_that_fits(lambda n: total(one.work.context, each * n, recipe), budget, LONGEST // each)

    def longest(recipe: Recipe) -> int | None:
        if reads_images(one.subject):
            return one.subject.context if total(one.subject.context, one.work.batch, recipe) <= budget else None
        most = largest_that_fits(lambda n: total(least * n, one.work.batch, recipe), budget, limit // least)
        return least * most or None

    batch: int | None = 0 if past is not None else most_sequences(one.recipe)
    if batch == LONGEST // each * each and mesh is not None and mesh.pp > 1:
        batch = None  # as many are in flight in any longer batch
    changes = [] if one.peak.total <= budget else list(_changes(one, budget))
    for change in changes:
        recipe = change.pop("recipe")
        change["largest_context"] = longest(recipe)
        if reads_images(one.subject):
            change["largest_batch"] = most_sequences(recipe) or None
    return {
        **given.facts,
        "fits": fits_in(one, given),
        "past_positions": past,
        "context_limit": one.subject.position_limit,
        "largest_context": longest(one.recipe),
        "largest_batch": batch or None,
        "changes": changes,
    }


def fits_in(one: Trained, budget: Budget) -> bool:
    """True if the step can run, and its peak fits."""
    return one.subject.past_positions(one.work) is None and bool(one.peak.total <= budget.usable)


LORA, FROZEN = {"lora": "16", "adapter_dtype": "bf16"}, "frozen weights"
LEVERS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"optimizer": "adamw-8bit"}, "8-bit moments"),
    ({"loss": "chunked"}, ""),
    ({"recompute": "attention"}, ""),
    ({"recompute": "full"}, ""),
    (LORA, FROZEN),
    ({"optimizer": "sgd"}, "no moments"),
    ({"lora": "16"}, FROZEN),
    ({"recompute": "full", "loss": "chunked"}, ""),
    ({"recompute": "full", "optimizer": "adamw-8bit"}, "8-bit moments"),
    ({"recompute": "full", "optimizer": "sgd"}, "no moments"),
    ({"recompute": "full", **LORA}, FROZEN),
)
"""What could be changed, and what it costs beside FLOPs: the cheapest first. Adapters that are not in fp32 are in the
dtype of the weights."""


def _changes(one: Trained, budget: int) -> Iterator[dict[str, Any]]:
    """Changes of the recipe that free bytes: the peak then, what that frees, and what it costs."""
    ledger, at = one.subject.ledger, one.work.axes()
    step = ledger.total_flops(at) + ledger.total_flops(at, backward=True)

    def again_flops(recipe: Recipe) -> int:
        head = sum(each.forward for each in ledger.products(at) if each.path == HEAD) if recipe.loss == "chunked" else 0
        only = recipe.recompute == ATTENTION
        return int(head) + (0 if recipe.recompute == "none" else int(recomputed_flops(ledger, at, attention=only)))

    seen, counted = [one.recipe], one.recipe.recompute in ("none", "full", ATTENTION)
    for fields, costs in LEVERS:
        fields = {**fields, "adapter_dtype": one.recipe.dtype} if "adapter_dtype" in fields else fields
        changed, lends = replace(one.recipe, **fields), "lora" in fields
        if changed in seen or (lends and one.recipe.lora is not None) or refusal(one.subject, changed) is not None:
            continue
        seen.append(changed)
        found = trained(one.subject, one.work, changed)
        peak = int(found.peak.total)
        if peak >= one.peak.total or found.step.states > one.step.states:
            continue
        again = Fraction(again_flops(changed) - again_flops(one.recipe), step)
        words = [f"{units.percent(again, 0)} more FLOPs"] if again > 0 and counted and not lends else []
        yield {
            "set": fields,
            "peak_bytes": peak,
            "freed_bytes": int(one.peak.total) - peak,
            "flops_ratio": 1 + again if counted and not lends else None,
            "costs": ", ".join([*words, *([costs] if costs else [])]),
            "fits": peak <= budget,
            "recipe": changed,
        }


def levers(fits: dict[str, Any]) -> Table:
    """What would make a step fit, as a table."""
    images = any("largest_batch" in change for change in fits["changes"])
    most = ("largest_batch", "most images") if images else ("largest_context", "longest context")
    columns = (
        Column("set", "what would change"),
        Column("peak_bytes", "peak", "bytes"),
        Column("freed_bytes", "frees", "bytes", drop=2),
        Column("costs", "costs", drop=3),
        Column(*most, "count", drop=1, empty="–"),
        Column("fits", ""),
    )
    rows: tuple[Row, ...] = tuple(
        {
            **{key: change[key] for key in ("peak_bytes", "freed_bytes", "costs", most[0])},
            "set": " ".join(f"{shell_option(name)} {value}" for name, value in change["set"].items()),
            "fits": "fits" if change["fits"] else None,
        }
        for change in fits["changes"]
    )
    return columns, (rows,), ()
