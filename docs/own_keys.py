"""The tables and keys of an own model, as docs/your-model.md lists them."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from tfacct.families.custom_tables import KEYS_OF, LISTED, CrossTable, SideTable, Table

FORMULAS = {
    "kv_heads": "`heads`",
    "key_heads": "`heads`",
    "head_dim": "`hidden` / `heads`",
    "out_bias": "`bias`",
    "activation": "`silu` if gated, else `gelu`",
    "final": "true, but with `post` false",
    "source_vocab": "both sides share a table",
    "source_context": "`context`",
    "source_hidden": "`hidden`",
    "rank": "`hidden` / 16, rounded up",
    "value_dim": "`nope_dim`",
    "decoder.delta_net.value_dim": "`key_dim`",
}
"""What an absent key of an own model means where that is no constant."""


def own_keys() -> str:
    """The keys of an own model, table by table."""
    named = {name: table for name, table in KEYS_OF.items() if "." not in name}
    named |= {"encoder]` and `[decoder": SideTable, "decoder.cross_attention": CrossTable}
    named |= {f"decoder.{name}": table for name, table in LISTED.items()}
    return "\n".join(_keys(name, table) for name, table in named.items())


def _keys(name: str, table: type[Table]) -> str:
    rows = [
        f"| `{key}` | {_values(field.annotation)} | {_otherwise(name, key, field)} | {field.description} |"
        for key, field in table.model_fields.items()
        if field.description
    ]
    about = (table.__doc__ or "").partition("\n")[0]
    return "\n".join([f"### `[{name}]`\n\n{about}\n", "| key | is | absent | |", "|---|---|---|---|", *rows, ""])


def _values(annotation: Any) -> str:
    """What a key may be."""
    words = [kind for kind in (annotation, *get_args(annotation)) if get_origin(kind) is Literal]
    if words:
        return ", ".join(f'`"{word}"`' for word in get_args(words[0]))
    if lists := [kind for kind in (annotation, *get_args(annotation)) if get_origin(kind) is list]:
        return "a list of words" if str in get_args(lists[0]) else "a list of block numbers"
    if "float" in str(annotation):
        return "a number"
    return "true, false" if "bool" in str(annotation) else "a size"


def _otherwise(table: str, key: str, field: FieldInfo) -> str:
    """What its absence means."""
    if field.is_required():
        return "**required**"
    if field.default_factory is not None or (field.default is None and key in FORMULAS):
        return FORMULAS.get(f"{table}.{key}") or FORMULAS[key]
    if field.default is None:
        return "–"
    spelled = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
    return str(field.default).lower() if isinstance(field.default, bool) else f"`{spelled}`"
