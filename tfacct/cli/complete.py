"""Shell completion: names and values, from the same places as the commands read them.

Nothing is asked of the hub and nothing read from standard input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from tfacct.base import units

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel

UNKNOWNS = ("ctx", "batch", "num_key_value_heads", "tp", "fsdp", "pp")
"""Unknowns that an equation of any model may be solved for."""


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
    """Ways to store weights."""
    return _beginning(incomplete, units.DTYPES)


def kv_dtype(incomplete: str) -> list[str]:
    """Ways to store the KV cache."""
    return _beginning(incomplete, (*units.BITS, *units.CACHES))


def recompute(incomplete: str) -> list[str]:
    """Parts of a layer that a training step may run again."""
    from tfacct.training.recompute import ATTENTION, MODULES, OP, SELECTIVE

    modules = (f"{SELECTIVE}:{name}" for name in (*MODULES, OP))
    return _beginning(incomplete, ("none", "full", ATTENTION, SELECTIVE, *modules))


def optimizer(incomplete: str) -> list[str]:
    """Optimizers."""
    from tfacct.training.optimizers import optimizers

    return _beginning(incomplete, optimizers())


def metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Metrics, after those that stand before a comma."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _metrics(ctx, last)]


def until(ctx: typer.Context, incomplete: str) -> list[str]:
    """Metrics on either side of an equation."""
    left, equals, right = incomplete.rpartition("=")
    end = "" if equals else "="
    return [f"{left}{equals}{name}{end}" for name in _metrics(ctx, right)]


def unknown(ctx: typer.Context, incomplete: str) -> list[str]:
    """Unknowns of an equation: of the model on the line also each field that holds a whole number."""
    found = _on_the_line(ctx)
    fields = {} if found is None else {name: found.raw.get(name) for name in found.config.counted(found.raw)}
    whole = (name for name, value in fields.items() if isinstance(value, int) and not isinstance(value, bool))
    return _beginning(incomplete, dict.fromkeys((*UNKNOWNS, *sorted(whole))))


def assignment(ctx: typer.Context, incomplete: str) -> list[str]:
    """Fields of the config of the model on the line; of every family where there is none."""
    return [] if "=" in incomplete else [f"{name}=" for name in _beginning(incomplete, _fields(ctx))]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Metrics that every model has; behind `flops.` and `share.` the products and parts of the model on the line."""
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
    """Words on the line that are no options. Before an option that still lacks its value they are not sorted yet."""
    named = [value for key in ("models", "model", "name") if (value := ctx.params.get(key))]
    return [word for value in (*named, ctx.args) for word in ([value] if isinstance(value, str) else value)]


def topic(incomplete: str) -> list[str]:
    """Topics of `tfacct help`."""
    from tfacct.commands.help import TOPICS

    return _beginning(incomplete, TOPICS)
