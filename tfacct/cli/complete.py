"""Shell completion of names and values.

It never asks the hub and never reads standard input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from tfacct.base import units

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel

UNKNOWNS = ("ctx", "batch", "num_key_value_heads", "tp", "fsdp", "pp")
"""Unknowns that `solve` accepts for any model."""


def model(incomplete: str) -> list[str]:
    """Preset names."""
    from tfacct.loading import presets

    return _beginning(incomplete, presets.names())


def family(incomplete: str = "") -> list[str]:
    """Families."""
    from tfacct import families

    return _beginning(incomplete, families.names())


def family_or_model(incomplete: str) -> list[str]:
    """Families and presets."""
    return [*family(incomplete), *model(incomplete)]


def device(incomplete: str) -> list[str]:
    """Devices."""
    from tfacct.loading import devices

    return _beginning(incomplete, devices.paths())


def dtype(incomplete: str) -> list[str]:
    """Formats of weights."""
    return _beginning(incomplete, units.DTYPES)


def kv_dtype(incomplete: str) -> list[str]:
    """Formats of the KV cache."""
    return _beginning(incomplete, (*units.BITS, *units.CACHES))


def recompute(incomplete: str) -> list[str]:
    """Values of --recompute."""
    from tfacct.training.recompute import ATTENTION, MODULES, OP, SELECTIVE

    modules = (f"{SELECTIVE}:{name}" for name in (*MODULES, OP))
    return _beginning(incomplete, ("none", "full", ATTENTION, SELECTIVE, *modules))


def optimizer(incomplete: str) -> list[str]:
    """Optimizers."""
    from tfacct.training.optimizers import optimizers

    return _beginning(incomplete, optimizers())


def metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Metrics, in a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _metrics(ctx, last)]


def until(ctx: typer.Context, incomplete: str) -> list[str]:
    """Metrics on either side of an equation."""
    left, equals, right = incomplete.rpartition("=")
    end = "" if equals else "="
    return [f"{left}{equals}{name}{end}" for name in _metrics(ctx, right)]


def unknown(ctx: typer.Context, incomplete: str) -> list[str]:
    """Unknowns of an equation, with the whole-number fields of the model on the line."""
    found = _on_the_line(ctx)
    fields = {} if found is None else {name: found.raw.get(name) for name in found.config.counted(found.raw)}
    numbers = (name for name, value in fields.items() if isinstance(value, int) and not isinstance(value, bool))
    return _beginning(incomplete, dict.fromkeys((*UNKNOWNS, *sorted(numbers))))


def assignment(ctx: typer.Context, incomplete: str) -> list[str]:
    """Config fields of the model on the line; without a model, those of every family."""
    return [] if "=" in incomplete else [f"{name}=" for name in _beginning(incomplete, _fields(ctx))]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Metrics of every model; after `flops.` and `share.` the matmuls and parts of the model on the line."""
    from tfacct.accounts.metrics import METRICS, STEP_METRICS, products

    kinds = ("flops.", "share.")
    if not incomplete.startswith(kinds):
        return _beginning(incomplete, (*METRICS, *STEP_METRICS, *kinds))
    found = _on_the_line(ctx)
    names = [] if found is None else products([found.ledger])
    return _beginning(incomplete, (f"{kind}{name}" for kind in kinds for name in names))


def _fields(ctx: typer.Context) -> list[str]:
    from tfacct import families

    if found := _on_the_line(ctx):
        return sorted({*found.raw, *found.config.counted(found.raw)})
    named = [name for name in _named(ctx) if name in families.names()] or families.names()
    return sorted({field for name in named for field in families.config_class(name).counted()})


def _on_the_line(ctx: typer.Context) -> LoadedModel | None:
    """The first model on the line that can be read here."""
    from tfacct.base.errors import TfacctError
    from tfacct.loading import find, spellings

    for name in _named(ctx):
        preset = spellings.preset(spellings.hub_id(name) or name)
        try:
            if name != "-":
                return find.find(preset.name if preset else name, ask_hub=False)
        except TfacctError:
            continue
    return None


def _named(ctx: typer.Context) -> list[str]:
    """Words on the line that are not options. Typer has not sorted them yet if an option lacks its value."""
    named = [value for key in ("models", "model", "name") if (value := ctx.params.get(key))]
    return [word for value in (*named, ctx.args) for word in ([value] if isinstance(value, str) else value)]


def topic(incomplete: str) -> list[str]:
    """Topics of `tfacct help`."""
    from tfacct.commands.help import TOPICS

    return _beginning(incomplete, TOPICS)
