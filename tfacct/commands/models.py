"""The presets, and one model's config."""

from pathlib import Path
from typing import Annotated, Any

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, Variant, named
from tfacct.options import Option

Words = Annotated[
    list[str] | None,
    Option(
        "Words in a name or family (moe: presets with experts). Or one model: preset, config.json, hub id.",
        "[NAME]…",
        complete="family_or_model",
        argument=True,
    ),
]


def models(
    *,
    words: Words = None,
    fields: opt.Sets = None,
    family: Annotated[str | None, Option("Only presets of this family.", "NAME", complete="family")] = None,
    max_params: Annotated[str | None, Option("Only presets with at most this many parameters: 8B.", "N")] = None,
) -> Found:
    """The presets, or one model: config, source, defaulted fields."""
    from tfacct.loading import presets
    from tfacct.reports.models import models, show

    if words and len(words) == 1 and _is_one(words[0]):
        return Found(show(named(words[0], fields)))
    limit = None if max_params is None else units.read_count(option("max_params"), max_params)
    chosen: dict[str, Any] = {"family": family, "max_params": limit, "words": words or ()}
    if fields:
        from tfacct.loading.overrides import read_overrides

        return Found(models(presets.load_all(read_overrides(fields), **chosen)))
    return Found(models(presets.list_all(**chosen)))


def ledger(*, words: Words = None, fields: opt.Sets = None) -> Found:
    """The ledger of one model as data, its sizes in symbols."""
    from tfacct.base.errors import UsageError
    from tfacct.reports.models import ledger

    if not words or len(words) != 1:
        raise UsageError(f"{option('ledger')} takes one MODEL")
    return Found(ledger(named(words[0], fields)))


def _is_one(word: str) -> bool:
    """True for the exact name of a preset, a file or a hub id."""
    from tfacct.loading import presets

    is_file = Path(word).is_file() or (Path(word) / "config.json").is_file()
    return word == "-" or "/" in word or is_file or word.endswith((".json", ".toml")) or word in presets.names()


COMMAND = Command(
    models,
    examples=("tfacct models llama 8b", "tfacct models moe --sort active_share", "tfacct models llama-3.1-8b"),
    variants={"ledger": Variant(ledger, Option("Every line of one model, in symbols.", advanced=True))},
)
