"""`explore`: the data of an offline HTML page about models: ledgers in symbols, formulas, devices and notes.

Models of one shape share its lines, its legend and its formulas, so that a page of hundreds of them is small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfacct.accounts.products import never_called
from tfacct.algebra.export import ExportedLedger, export_ledger, value
from tfacct.algebra.trees import formula_trees
from tfacct.architecture.parts import MlaMode
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.base.version import __version__
from tfacct.ledger.einsum import AXIS
from tfacct.ledger.storage import dtypes, width
from tfacct.ledger.workload import Logits, Request
from tfacct.loading import devices, selection
from tfacct.loading.memory_limit import RESERVE, USE, MemoryLimit, device_limit
from tfacct.loading.model import LoadedModel
from tfacct.loading.model_description import EXPECTED_FROM
from tfacct.output import files
from tfacct.output import page as html
from tfacct.output.answer import nullable
from tfacct.output.report import SCHEMA, Note, notes, plain
from tfacct.parallel.mesh import mesh_of
from tfacct.reports import build, flops, model_notes
from tfacct.reports.metrics import Counting
from tfacct.training.laws import training_laws
from tfacct.training.memory import training_memory
from tfacct.training.phases import PARTS
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import refusal

VERSION = 1
"""Version of the data, and of the fragment of a link into a page."""
SHARED_FIELDS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "n_kv_heads")
"""Fields of configs that hold the number of key/value heads."""
UNPACKED: MlaMode = "unpacked"
HUB = "https://huggingface.co/"
FEW = 20
"""Most models on a page that is named after its first model and starts with it."""
LAWS = 6
"""Most models on a page whose training memory follows the knobs: fitting the polynomials takes a while."""
MIXTURES = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
"""Mixtures of llama.cpp whose bytes a page shows."""
WELL_KNOWN = "llama-3.1-8b"
"""The model that a page of many starts with, if it is one of them."""
CONTEXT = 4096
"""Context of a training step whose bytes are numbers, not polynomials; less if the model's context is shorter."""
RANKS = (1, 2, 4, 8)


def explore(models: Sequence[LoadedModel], start: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the data of a page about models. `start`: the first state of the knobs, as in a link.

    A model's `shape` has its lines and axes, `sizes` the numbers of these axes. Raises TfacctError.
    """
    pools = _Pools()
    data = [_model(model, pools, laws=len(models) <= LAWS) for model in models]
    return {
        "version": VERSION,
        "start": dict(start or {}),
        "texts": list(pools.texts),
        "lines": [json.loads(line) for line in pools.lines],
        "shapes": [json.loads(shape) for shape in pools.shapes],
        "models": data,
        "forms": model_notes.MLA_MODES if any(model.mla_mode for model in models) else {},
        "devices": [_device(devices.load(name)) for name in devices.paths()],
        "schema": SCHEMA,
        "null_keys": nullable(flops.FlopsReport),
        "usable": {work: MemoryLimit(1, use, RESERVE).rule for work, use in USE.items()},
    }


def page(models: Sequence[LoadedModel], request: Request, terms: Counting) -> str:
    """Return the page about models as HTML, with its knobs as given. Raises TfacctError."""
    if not models:
        raise UsageError("no model is left to show")
    first = None
    if len(models) == 1:
        (model,) = models
        work = selection.workload(model, request)
        model.ledger.state_bytes(work.axes(), width(dtypes(terms.dtype, terms.kv_dtype)[1]))
        first = flops.flops([model], request, train=terms.train, masked=terms.masked, by="part")
    start = _start(request, terms) | ({"model": WELL_KNOWN} if WELL_KNOWN in [one.name for one in models] else {})
    data = explore(models, start if len(models) > FEW else _start(request, terms))
    return html.document(data, _title(models), first, __version__)


def _title(models: Sequence[LoadedModel]) -> str:
    first = build.label(models[0])
    if len(models) > FEW:
        return f"{len(models)} models"
    return first if len(models) == 1 else f"{first} and {len(models) - 1} more"


def _start(request: Request, terms: Counting) -> dict[str, Any]:
    """The first state of the knobs. Whole numbers are texts: a script reads them without rounding."""
    if terms.dtype is not None and units.dtype_name(terms.dtype) in units.GGUF:
        name = units.dtype_name(terms.dtype)
        counted = f"`tfacct memory` and `tfacct flops {option('traffic', True)}` count it"
        raise UsageError(f"a page does not support {name}, which is chosen tensor by tensor", counted)
    step = None if request.new is None else "decode" if request.new == 1 else "chunk"
    sizes = {"ctx": request.ctx, "tokens": request.new if step == "chunk" else None, "source": request.source}
    sizes["batch"] = request.batch if request.batch != 1 else None
    found = {name: str(size) for name, size in sizes.items() if size is not None}
    words = {"step": step, "dtype": terms.dtype, "cache": terms.kv_dtype}
    flags = {"masked": terms.masked, "train": terms.train, "last": request.logits == "last"}
    return {**found, **{name: value for name, value in (words | flags).items() if value}}


def file_name(models: Sequence[LoadedModel]) -> str:
    """File name of a page: that of its only model, else the program's."""
    plain_name = re.sub(r"[^\w.-]+", "-", models[0].name).strip("-.")
    return f"{plain_name or 'model'}.html" if len(models) == 1 else "tfacct.html"


def save(text: str, file: str, *, force: bool) -> Path:
    """Write a page, and return where it is. Raises UsageError."""
    path = files.check("output", file, (".html",), force=force)
    files.write_text("output", path, text)
    return path


class _Pool(dict[str, int]):
    """Distinct texts and their indices; calling it with a text returns the text's index."""

    def __call__(self, text: str) -> int:
        return self.setdefault(text, len(self))


class _Pools:
    """Texts, lines, shapes, and formulas of shapes that models share."""

    def __init__(self) -> None:
        self.texts, self.lines, self.shapes = _Pool(), _Pool(), _Pool()
        self.formulas: dict[str, Any] = {}


def _model(model: LoadedModel, pools: _Pools, laws: bool) -> dict[str, Any]:
    written_model = export_ledger(model.architecture)
    form = model.mla_mode
    shape = {
        "axes": list(written_model.sizes),
        "ways": [_way(way, pools) for way in [*written_model.ways, *_unpacked(model)]],
        "legend": [pools.texts(f"{axis}\t{meaning}") for axis, meaning in written_model.legend.items()],
        "rules": _rules(model, written_model),
    }
    key = _compact(shape)
    if key not in pools.formulas:
        third = [model.architecture.running(UNPACKED)] if form == "auto" else []
        pools.formulas[key] = formula_trees(model.ledger, [*model.architecture.ways(), *third])
    shape["formulas"] = pools.formulas[key]
    source = model.provenance
    kind = source.expected_from if source and model.expected is not None else "published"
    facts = {
        "name": model.name,
        "family": model.family,
        "shape": pools.shapes(_compact(shape)),
        "sizes": list(written_model.sizes.values()),
        "blocks": _blocks(written_model),
        "context": model.context,
        "positions": model.position_limit,
        "fixed": not selection.takes_context(model, model.context + 1),
        "source": model.source,
        "has_cache": model.has_cache,
        "reads_images": model.encodes == "vision",
        "mixes": bool(model_notes.mixers([model])) or not model_notes.attends([model]),
        "cache_name": model.cache_name if model.cache_name != "KV cache" else "",
        "logits": model.logits,
        "url": source.url.removeprefix(HUB) if source and source.url.startswith("https://") else None,
        "about": source.about if source and not source.url else None,
        "gguf": model.once(_mixtures) if laws else None,
        "kind": source.kind if source and source.kind != "copied" else None,
        "met": model.expected == model.parameters,
        "expected_from": None if kind == "published" else pools.texts(EXPECTED_FROM[kind]),
        "set": dict(model.changed),
        "defaulted": dict(model.defaulted),
        "unknown": list(model.unknown),
        "left_out": list(model.left_out),
        "idle": never_called(model.ledger),
        "uncalled": model.architecture.all_called() is not None,
        "warnings": [pools.texts(text) for text in _warnings(model)],
        "notes": [pools.texts(text) for text in _notes(model)],
        "counted": [pools.texts(text) for text in _counted(model)],
        "uncounted": pools.texts(model_notes.left_out([model])),
        "longer": _longer(model),
        "answers": bool(model.answers),
        "shared": _shared_field(model, written_model),
        "form": model.config.mla_mode_field if form == "auto" else None,
        "built_form": form if form != "auto" else None,
        "quantized": _published(model),
        "training": training(model, laws=laws),
    }
    return {name: plain(fact) for name, fact in facts.items() if not _usual(fact)}


def _rules(model: LoadedModel, written_model: ExportedLedger) -> list[list[Any]]:
    """Constraints that `evaluate` checks: even axes (2), and axes that must not exceed another axis."""
    found = ((name, one.multiple, one.at_most) for name, one in model.architecture.declared_axes().items())
    rules = ([name, rule] for name, *both in found if name in written_model.sizes for rule in both)
    return [[name, rule] for name, rule in rules if rule == 2 or rule in written_model.sizes]


def _usual(fact: Any) -> bool:
    """True for a value that the page assumes if its key is absent; 0 is not such a value."""
    return fact is None or fact is False or fact in ([], {}, "")


def _blocks(model: ExportedLedger) -> list[str]:
    """Layer numbers of the stacks as spans; none for one stack of all layers."""
    groups = [group for group in model.ways[0]["groups"] if group["blocks"]]
    counts = [value(group["count"], model.sizes) for group in groups]
    usual = ["0" if count == 1 else f"0-{count - 1}" for count in counts]
    spans = [group["blocks"] for group in groups]
    return [] if spans == usual else spans


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _way(way: Mapping[str, Any], pools: _Pools) -> dict[str, Any]:
    """A mode of the model: its lines by number; values and axes that the page assumes are left out."""
    groups = []
    for group in way["groups"]:
        facts = {name: group[name] for name in ("kind", "names", "once", "shared") if group[name]}
        numbered = {} if group["count"] == 1 and not group["blocks"] else {"count": group["count"]}
        names = group["names"]
        spelled = {axis for line in group["lines"] for axis in AXIS.findall(line["spec"])}
        axes = group["axes"].items()
        axes = {axis: size for axis, size in axes if axis not in spelled or size != names.get(axis, axis)}
        lines = [
            pools.lines(_compact({name: fact for name, fact in line.items() if fact != "matmul"}))
            for line in group["lines"]
        ]
        groups.append({**facts, **numbered, **({"axes": axes} if axes else {}), "lines": lines})
    return {"form": way["form"], "groups": groups}


def _unpacked(model: LoadedModel) -> list[dict[str, Any]]:
    """The third form of latent attention, which no step chooses by default."""
    if model.mla_mode != "auto":
        return []
    (way,) = export_ledger(model.architecture.running(UNPACKED)).ways
    return [{**way, "form": UNPACKED}]


def _warnings(model: LoadedModel) -> list[str]:
    """Warnings at the top: fields that are not understood, parts that are not included, another model's name."""
    hints = [*build.answering_hints([model]), *build.unknown_hints([model])]
    return [text.removeprefix("hint: ").removeprefix("warning: ") for text in hints]


def _notes(model: LoadedModel) -> list[str]:
    """Notes, each after its place in the terminal's order, its condition (`masked` or `whole`,
    `reads` the source or `later`, `train`, or nothing), its key and its rank; those on the cache are not about FLOPs.
    """
    blocks = (model_notes.Blocks([model], masked=flag) for flag in (False, True))
    unmasked, masked = (notes(model_notes.BLOCKS, each) for each in blocks)
    found = [("layers", "masked", note) for note in masked if note not in unmasked]
    found += [("layers", "" if note in masked else "whole", note) for note in unmasked]
    found += [("cache", "", Note("state", 2, text)) for text in model_notes.state_notes([model])]
    if model.source is not None:
        later = selection.workload(model, Request(tokens=1))
        for when, texts in (
            ("reads", model_notes.source_notes([model])),
            ("later", model_notes.source_notes([model], later)),
        ):
            found += [("source", when, Note("source", 2, text)) for text in texts]
    found = [("train", "train", Note("step", 2, model_notes.STEP)), *found]
    return [f"{place}\t{when}\t{note.key}\t{note.rank}\t{note}" for place, when, note in found]


def _counted(model: LoadedModel) -> list[str]:
    """What is counted: for all pairs, then masked; each with all logits, then with those of one position."""
    ways: tuple[Logits, ...] = ("all", "last")
    return [model_notes.products_counted([model], logits, masked=masked) for masked in (False, True) for logits in ways]


def _longer(model: LoadedModel) -> list[int]:
    """Additional parameters of a position embedding for a longer context: per token, and a constant."""
    longest = model.context
    first, second = (model.longer_positions(longest + more) for more in (1, 2))
    return [second - first, first - (second - first) * (longest + 1)] if first else []


def _shared_field(model: LoadedModel, written_model: ExportedLedger) -> str | None:
    """Config field that sets K without changing K · G, or None."""
    if not {"K", "G"} <= set(written_model.sizes):
        return None
    heads = written_model.sizes["K"] * written_model.sizes["G"]
    for field in SHARED_FIELDS:
        if field not in type(model.config).model_fields:
            continue
        if all(_shares(model, written_model, field, number, heads // number) for number in (1, heads)):
            return field
    return None


def _shares(model: LoadedModel, written_model: ExportedLedger, field: str, number: int, each: int) -> bool:
    """True if this value of the field gives that many key/value heads and changes nothing else."""
    try:
        other = export_ledger(model.with_fields({field: number}).architecture).sizes
    except (TfacctError, ValueError):
        return False
    return (other.get("K"), other.get("G", each)) == (number, each) and len(other) == len(written_model.sizes)


def _published(model: LoadedModel) -> dict[str, Any] | None:
    """The published format of quantized weights, and their bytes; the name is None if it is not known."""
    if not model.quantized:
        return None
    try:
        how = model.storage()
    except TfacctError as error:
        return {"name": None, "why": error.message}
    return {"name": how.name, "bytes": sum(model.ledger.weight_bytes(how).values())}


def _mixtures(model: LoadedModel) -> dict[str, tuple[int, int]]:
    """Fewest and most bytes of the weights in llama.cpp's common mixtures; none of a model that has no such files."""
    try:
        return {name: selection.weight_range(model, name) for name in MIXTURES}
    except TfacctError:
        return {}


def _device(device: devices.Device) -> list[Any]:
    """Name, memory, its usable bytes to serve and to train, and the FLOPs per byte of its ridge in bf16, 0 if no peak
    is known; 1 at the end if the memory is not what torch reports."""
    others = [] if device.memory_from == "torch" else [1]
    name = device.name.partition(", one of")[0]
    ridge = round(device.peak.get("bf16", 0) / device.bandwidth, 2)
    usable = [device_limit(1, device, training=training).usable for training in (False, True)]
    return [device.id, name, device.memory, *usable, ridge, *others]


def training(model: LoadedModel, *, laws: bool) -> dict[str, Any]:
    """Bytes at the peak of a training step by part, for each FSDP size, or `why` they are not.

    `laws`: as polynomials in batch and context, for a model without a source."""
    why = refusal(model, _recipe(1))
    try:
        if why is not None:
            return {"why": why}
        fixed = not selection.takes_context(model, model.context + 1)
        if laws and model.source is None and not fixed and (found := model.once(_laws)):
            return {"laws": found}
        context = model.context if fixed else min(CONTEXT, model.context)
        counted = [ranks for ranks in RANKS if refusal(model, _recipe(ranks)) is None]
        source = {} if model.source is None else {"source": model.source}
        return {"context": context, **source, "steps": [_peak(model, context, ranks) for ranks in counted]}
    except TfacctError as error:
        return {"why": error.message.removeprefix(f"{model.name}: ")}


def _laws(model: LoadedModel) -> list[dict[str, Any]]:
    return [*training_laws(model, {ranks: mesh_of(fsdp=ranks) for ranks in RANKS})]


def _recipe(ranks: int) -> Recipe:
    return Recipe("bf16", mesh=mesh_of(fsdp=ranks)).checked()


def _peak(model: LoadedModel, context: int, ranks: int) -> list[Any]:
    """Ranks, 1 if the bytes are exact, the phase of the peak, and the bytes of its parts."""
    step = training_memory(model, selection.workload(model, Request(ctx=context)), _recipe(ranks))
    return [ranks, int(step.exact), step.peak.name, *(int(getattr(step.peak, part)) for part in PARTS)]
