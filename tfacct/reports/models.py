"""The presets; one model's config with where each field came from; and its ledger, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, NotRequired, TypedDict

from tfacct.architecture.parts import Experts, MlaMode
from tfacct.base import units
from tfacct.base.errors import cut
from tfacct.loading.index import Listed
from tfacct.loading.model import LoadedModel
from tfacct.loading.model_description import EXPECTED_FROM, FORMAT_FIELDS, Provenance
from tfacct.output.report import Column, Row
from tfacct.reports import build

ALL = slice(None)
HEADS = ("heads", "kv_heads")
"""Sizes that may differ between the layers of a model."""


class ModelsReport(build.ModelReport):
    """The presets, one by one."""

    _reserved: ClassVar[dict[str, Any]] = {"from": str | None}

    total_params: int
    active_params: int
    active_share: float
    context: int
    layers: int
    hidden: int
    heads: int | None
    heads_by_layer: list[int] | None
    kv_heads: int | None
    kv_heads_by_layer: list[int] | None
    url: str | None
    expected_from: str | None
    active_is_maximum: bool | None


class ShowReport(build.ModelReport):
    """Fields of a config."""

    config: dict[str, Any]
    origin: dict[str, Any] | None


def listed(model: LoadedModel | Listed) -> Listed:
    """A preset as the list shows it."""
    if isinstance(model, Listed):
        return model
    fields = model.name, model.family, model.defaulted, model.unknown, model.left_out
    return Listed(*fields, _facts(model), model.answers)


class WrittenLine(TypedDict):
    """A line: its axes, and any special properties."""

    line: Literal["matmul", "embedding", "state", "pointwise"]
    path: str
    spec: str
    weight: NotRequired[str]
    bias: NotRequired[bool | str]
    mask: NotRequired[Literal["causal", "chunks", "chosen", "near"]]
    expert_axis: NotRequired[str]
    embedding: NotRequired[bool]
    bits: NotRequired[int]
    module: NotRequired[str]
    sums: NotRequired[bool]
    unused: NotRequired[bool]


class WrittenGroup(TypedDict):
    """Lines of the same layers, and the sizes of their axes."""

    kind: str
    count: int | str
    blocks: str
    once: bool
    shared: list[str]
    axes: dict[str, int | str]
    names: dict[str, str]
    lines: list[WrittenLine]


class WrittenWay(TypedDict):
    """A way to run the model: the form of its latent attention, or None."""

    form: MlaMode | None
    groups: list[WrittenGroup]


class LedgerReport(build.ModelReport):
    """Lines of a model, with symbolic sizes."""

    _name = "show-ledger"
    sizes: dict[str, int]
    legend: dict[str, build.Axis]
    ways: list[WrittenWay]


def models(presets: Sequence[LoadedModel | Listed]) -> ModelsReport:
    """Every preset with its shape and source; with experts also its active parameters."""
    found = [listed(preset) for preset in presets]
    names = ", ".join(one.name for one in found if one.facts.get("active_is_maximum"))
    at_most = [Column("active_is_maximum", "")] if names else []
    active = (*at_most, Column("active_params", "active", "params"), Column("active_share", "active share", "share"))
    routed = any(one.facts["active_params"] != one.parameters for one in found)
    columns = (
        Column("model", "model"),
        Column("family", "family", drop=1),
        Column("total_params", "params", "params"),
        *(active if routed else ()),
        Column("context", "context", "count"),
        Column("layers", "layers", "count", drop=1),
        Column("hidden", "hidden", "count", drop=1),
        Column("heads", "heads", "count", drop=1, empty="–"),
        Column("kv_heads", "KV heads", "count", drop=1, empty="–"),
        Column("from", "from", drop=3),
        Column("expected_from", "expected from", drop=3),
    )
    facts = tuple(_as_json(model.facts) for model in found)
    rows = tuple(
        {
            "model": model.name,
            "family": model.family,
            **fact,
            **{size: build.each_of(fact, size) for size in HEADS},
            "active_share": Fraction(fact["active_params"], fact["total_params"]),
            "active_is_maximum": "at most" if fact.get("active_is_maximum") else None,
        }
        | ({"kv_heads": "latent"} if model.facts["latent"] else {})
        for model, fact in zip(found, facts, strict=True)
    )
    most = [f"Active parameters of {names} are a maximum: a token can use fewer experts."] if names else []
    return build.report(
        ModelsReport,
        found,
        (columns, (rows,), ()),
        facts,
        title="",
        answer=_sizes(found),
        convention="every stored tensor once",
        notes=lambda at: [*most, "`tfacct models MODEL` prints the config and source of a model."] if at == ALL else [],
        defaults=[],
    )


def _sizes(found: Sequence[Listed]) -> str:
    """The number of presets, and the smallest and the largest."""
    by_size = sorted(found, key=lambda one: one.parameters)
    least, most = (f"{units.people(one.parameters)} ({one.name})" for one in (by_size[0], by_size[-1]))
    return (
        f"{len(found)} presets: {least} to {most} parameters." if len(found) > 1 else f"1 preset: {least} parameters."
    )


def _as_json(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a preset, each key of one type."""
    heads = {key: value for size in HEADS for key, value in build.by_layer(size, facts[size]).items()}
    share = {"active_share": facts["active_params"] / facts["total_params"]}
    return {name: fact for name, fact in facts.items() if name != "latent" and name not in HEADS} | share | heads


def _facts(model: LoadedModel) -> dict[str, Any]:
    shape, source = model.architecture, model.provenance
    return {
        "total_params": model.parameters,
        "active_params": sum(model.ledger.active_parameters().values()),
        "context": model.context,
        "layers": sum(stack.count for stack in shape.every_stack),
        "hidden": shape.embed.hidden,
        "heads": build.of_attention(model, "heads"),
        "kv_heads": build.of_attention(model, "kv_heads") if model.mla_mode is None else None,
        "latent": model.mla_mode is not None,
        "from": source.kind if source else None,
        "url": (source.url or None) if source else None,
        "expected_from": source.expected_from if source else None,
        **({"active_is_maximum": True} if any(part.idle for _, part in shape.having(Experts)) else {}),
    }


def show(model: LoadedModel) -> ShowReport:
    """One model's config, field by field: read, defaulted, without effect or unknown; and its source."""
    import json

    read = set(model.config.counted({**model.raw, **model.defaulted}))
    read |= {"model_type"} | {alias for alias, name in model.config.attribute_map.items() if name in read}
    rows: list[Row] = []
    for name in dict.fromkeys((*model.raw, *model.defaulted)):
        value = model.defaulted.get(name, model.raw.get(name))
        rows.append({"field": name, "how": _how(model, name, name in read), "value": cut(json.dumps(value), 24)})
    counted = tuple(row for row in rows if row["field"] in read)
    others = tuple(row for row in rows if row["field"] not in read)
    columns = Column("field", "field"), Column("how", ""), Column("value", "value")
    return build.report(
        ShowReport,
        [model],
        (columns, tuple(section for section in (counted, others) if section), ()),
        [{"config": dict(model.raw), "origin": _source(model.provenance)}],
        title=f"{build.label(model)}: {model.family}",
        answer=f"{units.people(model.parameters)} parameters, context {model.context:,}.",
        notes=lambda _: _source_notes(model.provenance),
        defaults=[],
    )


def _how(model: LoadedModel, name: str, read: bool) -> str:
    if name in model.changed:
        return "set"
    if name in model.defaulted:
        return "defaulted"
    if name == "model_type":
        return "family"
    if read:
        return "given"
    if name in (*FORMAT_FIELDS, "dtype", "torch_dtype"):
        return "weight format"
    if name in model.config.dropout_fields():
        return "training only"
    return "unknown" if name in model.unknown else "no effect"


def _source(provenance: Provenance | None) -> dict[str, Any] | None:
    if provenance is None:
        return None
    return {
        "url": provenance.url or None,
        "kind": provenance.kind,
        "via": provenance.via,
        "revision": provenance.revision,
        "expected_params": provenance.expected,
        "expected_from": provenance.expected_from or None,
    }


def _source_notes(provenance: Provenance | None) -> list[str]:
    if provenance is None:
        return ["source: your own file"]
    via = f" (through {provenance.via})" if provenance.via else ""
    at = f" at {provenance.revision}" if provenance.revision else ""
    where = provenance.url or provenance.about or "the preset's file"
    notes = [f"source: {where}, {provenance.kind}{at}{via}"]
    if provenance.expected is not None:
        notes.append(f"expected parameters: {provenance.expected:,} ({EXPECTED_FROM[provenance.expected_from]})")
    return notes


def ledger(model: LoadedModel) -> LedgerReport:
    """Every line of one model, group by group: its layers, its axes and its storage."""
    from tfacct.algebra.export import export_ledger

    symbols = export_ledger(model.architecture)
    meanings = {axis: {"meaning": meaning} for axis, meaning in symbols.legend.items()}
    columns = (
        Column("blocks", "blocks"),
        Column("path", "path"),
        Column("line", "line", drop=1),
        Column("spec", "spec", "spec"),
    )
    sections = tuple(_ledger_rows(way, group) for way in symbols.ways for group in way["groups"] if group["lines"])
    lines = sum(map(len, sections))
    return build.report(
        LedgerReport,
        [model],
        (columns, sections, ()),
        [{"sizes": symbols.sizes, "legend": meanings, "ways": symbols.ways}],
        title=f"{build.label(model)}: {lines} lines in {len(sections)} groups",
        notes=lambda _: _ledger_notes(symbols.sizes, symbols.ways),
        defaults=[],
    )


def _ledger_rows(way: dict[str, Any], group: dict[str, Any]) -> tuple[Row, ...]:
    count = "" if group["count"] == 1 and not group["blocks"] else f"{group['count']} × "
    where = f"{count}{group['kind']}".removesuffix(" × ")
    shown = where if way["form"] is None else f"{where} ({way['form']})".strip()
    return tuple(
        {"blocks": shown, "path": line["path"], "line": line["line"], "spec": line["spec"]} for line in group["lines"]
    )


def _ledger_notes(sizes: dict[str, int], ways: list[dict[str, Any]]) -> list[str]:
    derived: dict[str, str] = {}
    for group in (group for way in ways for group in way["groups"]):
        for axis, size in group["axes"].items():
            name = group["names"].get(axis, axis)
            if str(size) != name:
                derived[name] = str(size).replace("*", " · ").replace("+", " + ")
    sentences = [", ".join(f"{axis} = {size:,}" for axis, size in sizes.items())]
    return [*sentences, *([", ".join(f"{axis} = {made}" for axis, made in derived.items())] if derived else [])]
