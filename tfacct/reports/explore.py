"""What a page about models is made of, as plain data: ledgers in letters, formulas, devices, and words. No HTML.

Models of one shape share its lines, its legend and its formulas, so that hundreds of them stay small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfacct.algebra.factored import Term
from tfacct.algebra.symbols import SymbolicModel, in_symbols
from tfacct.algebra.written import WrittenModel, value, written
from tfacct.architecture import letters
from tfacct.architecture.parts import MlaMode
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.base.version import __version__
from tfacct.ledger.einsum import AXIS
from tfacct.ledger.lines import HALF
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Request
from tfacct.loading import devices
from tfacct.loading.described import WITNESSES
from tfacct.loading.model import LoadedModel
from tfacct.output import files
from tfacct.output.report import SCHEMA, Report, plain
from tfacct.reports import cells, compose, conventions, counting, flops, sentences
from tfacct.reports import latent_attention as latent
from tfacct.reports.budget import RESERVE, USE, Budget, of_device
from tfacct.reports.counting import Counting
from tfacct.reports.explore_packed import Pool, packed
from tfacct.reports.explore_training import training
from tfacct.reports.records import NULLABLE

VERSION = 1
"""Version of the data, and of the fragment of a link into a page."""
SHARED_FIELDS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "n_kv_heads")
"""Fields of configs that hold the number of key/value heads."""
UNPACKED: MlaMode = "unpacked"
HUB = "https://huggingface.co/"
FEW = 20
"""Models up to which a page is named by the first of them, and begins with it."""
LAWS = 6
"""Models up to which their training steps turn with the knobs: finding how their bytes grow takes a while."""
MIXTURES = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
"""Mixtures of llama.cpp whose bytes a page says."""
SHORT = 16
"""Rows up to which the view without a script has every product."""
WELL_KNOWN = "llama-3.1-8b"
"""The model that a page of many begins with, if it is among them."""


def explore(subjects: Sequence[LoadedModel], start: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the data of a page about models. `start`: the knobs as they stand at first, as a link has them.

    A model's `shape` says what its lines are, and `sizes` are the numbers of the shape's letters. Raises TfacctError.
    """
    pools = _Pools()
    models = [_model(subject, pools, turns=len(subjects) <= LAWS) for subject in subjects]
    return {
        "version": VERSION,
        "start": dict(start or {}),
        "texts": pools.texts.values,
        "lines": [json.loads(line) for line in pools.lines.values],
        "shapes": [json.loads(shape) for shape in pools.shapes.values],
        "models": models,
        "forms": latent.HOW if any(latent.form(subject) for subject in subjects) else {},
        "devices": [_device(devices.load(name)) for name in devices.paths()],
        "schema": SCHEMA,
        "null_keys": NULLABLE["flops"],
        "usable": {work: Budget(1, use, RESERVE).rule for work, use in USE.items()},
    }


def page(subjects: Sequence[LoadedModel], request: Request, terms: Counting) -> str:
    """Return the page about models as HTML, with its knobs as they were asked for. Raises TfacctError."""
    from tfacct.output import page as html

    if not subjects:
        raise UsageError("no model is left to show")
    for subject in subjects if len(subjects) == 1 else ():
        work = counting.workload(subject, request)
        subject.ledger.state_bytes(work.axes(), width(counting.dtypes(terms.dtype, terms.kv_dtype)[1]))
    first = _first_view(subjects[0], request, terms) if len(subjects) == 1 else None
    start = _start(request, terms) | ({"model": WELL_KNOWN} if WELL_KNOWN in [one.name for one in subjects] else {})
    data = packed(explore(subjects, start if len(subjects) > FEW else _start(request, terms)))
    return html.document(data, _title(subjects), first, __version__)


def _first_view(subject: LoadedModel, request: Request, terms: Counting) -> Report:
    """What a page shows without its script: the products, or, where these are many, the parts."""
    by_line, by_part = (
        flops.flops([subject], request, train=terms.train, masked=terms.masked, by=by) for by in ("line", "part")
    )
    return by_line if len(by_line.cells) <= SHORT else by_part


def _title(subjects: Sequence[LoadedModel]) -> str:
    first = compose.name_of(subjects[0])
    if len(subjects) > FEW:
        return f"{len(subjects)} models"
    return first if len(subjects) == 1 else f"{first} and {len(subjects) - 1} more"


def _start(request: Request, terms: Counting) -> dict[str, Any]:
    """The knobs as they stand at first. Whole numbers are texts: a script reads them without rounding."""
    if terms.dtype is not None and units.dtype_name(terms.dtype) in units.GGUF:
        name = units.dtype_name(terms.dtype)
        counted = f"memory and flops {option('bytes')} count it"
        raise UsageError(f"a page counts no {name}: it is chosen tensor by tensor", counted)
    chunk = request.tokens is not None and request.tokens != 1
    step = "decode" if request.decode or request.tokens == 1 else "chunk" if chunk else None
    sizes = {"ctx": request.ctx, "tokens": request.tokens if chunk else None, "source": request.source}
    sizes["batch"] = request.batch if request.batch != 1 else None
    found = {name: str(size) for name, size in sizes.items() if size is not None}
    words = {"step": step, "dtype": terms.dtype, "cache": terms.kv_dtype}
    flags = {"masked": terms.masked, "train": terms.train, "last": request.logits == "last"}
    return {**found, **{name: value for name, value in (words | flags).items() if value}}


def file_name(subjects: Sequence[LoadedModel]) -> str:
    """Name of the file of a page: that of its one model, else the program's."""
    plain_name = re.sub(r"[^\w.-]+", "-", subjects[0].name).strip("-.")
    return f"{plain_name or 'model'}.html" if len(subjects) == 1 else "tfacct.html"


def check(file: str, *, force: bool) -> Path:
    """Where the page is written, links followed. Raises UsageError where it cannot, or must not, be written."""
    return files.check("output", file, (".html",), "page", force=force)


def save(text: str, file: str, *, force: bool) -> Path:
    """Write a page, and return where it is. Raises UsageError."""
    path = check(file, force=force)
    files.write_text("output", path, text)
    return path


class _Pools:
    """What models share: sentences, lines, shapes, and the formulas of shapes."""

    def __init__(self) -> None:
        self.texts, self.lines, self.shapes = Pool(), Pool(), Pool()
        self.formulas: dict[str, Any] = {}


def _model(subject: LoadedModel, pools: _Pools, turns: bool) -> dict[str, Any]:
    model = written(subject.architecture)
    form = latent.form(subject)
    shape = {
        "letters": list(model.sizes),
        "ways": [_way(way, pools) for way in [*model.ways, *_unpacked(subject)]],
        "legend": [pools.texts(f"{letter}\t{meaning}") for letter, meaning in model.legend.items()],
        "rules": _rules(subject, model),
    }
    key = _compact(shape)
    if key not in pools.formulas:
        pools.formulas[key] = _formulas(subject)
    shape["formulas"] = pools.formulas[key]
    source = subject.provenance
    facts = {
        "name": subject.name,
        "family": subject.family,
        "shape": pools.shapes(_compact(shape)),
        "sizes": list(model.sizes.values()),
        "blocks": _blocks(model),
        "context": subject.context,
        "positions": subject.position_limit,
        "fixed": not counting.takes_context(subject, subject.context + 1),
        "source": subject.source,
        "keeps": subject.keeps,
        "kept": subject.kept if subject.kept != "KV cache" else "",
        "logits": subject.logits,
        "url": source.url.removeprefix(HUB) if source and source.url.startswith("https://") else None,
        "about": source.about if source and not source.url else None,
        "gguf": _mixtures(subject) if turns else None,
        "kind": source.kind if source and source.kind != "copied" else None,
        "met": subject.expected == subject.parameters,
        "witness": _witness(source.expected_from, pools) if source and subject.expected is not None else None,
        "set": dict(subject.changed),
        "defaulted": dict(subject.defaulted),
        "unknown": list(subject.unknown),
        "left_out": list(subject.left_out),
        "idle": cells.never_called(subject),
        "warnings": [pools.texts(text) for text in _warnings(subject)],
        "notes": [pools.texts(text) for text in _notes(subject)],
        "counted": [pools.texts(text) for text in _counted(subject)],
        "uncounted": pools.texts(conventions.left_out([subject])),
        "longer": _longer(subject),
        "answers": bool(subject.answers),
        "conventions": pools.texts("\n".join(_conventions(subject))),
        "shared": _shared_field(subject, model),
        "form": subject.config.mla_mode_field if form == "auto" else None,
        "built_form": form if form != "auto" else None,
        "quantized": _published(subject),
        "training": training(subject, turns=turns),
    }
    return {name: plain(fact) for name, fact in facts.items() if not _usual(fact)}


def _rules(subject: LoadedModel, model: WrittenModel) -> list[list[Any]]:
    """Letters that are even (2), and letters with the letter that they do not exceed, as `evaluate` asks."""
    found = ((name, one.multiple, one.at_most) for name, one in letters.explained(subject.architecture).items())
    rules = ([name, rule] for name, *both in found if name in model.sizes for rule in both)
    return [[name, rule] for name, rule in rules if rule == 2 or rule in model.sizes]


def _usual(fact: Any) -> bool:
    """True of what a page takes for granted; a 0 is a number, and stays."""
    return fact is None or fact is False or fact in ([], {}, "")


def _blocks(model: WrittenModel) -> list[str]:
    """Block numbers of the stacks as spans; none where there is one stack of all blocks."""
    groups = [group for group in model.ways[0]["groups"] if group["blocks"]]
    usual = all(group["blocks"] == _from_zero(value(group["count"], model.sizes)) for group in groups)
    return [] if usual else [group["blocks"] for group in groups]


def _from_zero(count: int) -> str:
    return "0" if count == 1 else f"0-{count - 1}"


def _witness(kind: str, pools: _Pools) -> int | None:
    return None if kind == "published" else pools.texts(WITNESSES[kind])


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _way(way: Mapping[str, Any], pools: _Pools) -> dict[str, Any]:
    """A way with its lines by number; what is as usual of a group is left out, as letters that are their own size."""
    groups = []
    for group in way["groups"]:
        facts = {name: group[name] for name in ("kind", "names", "once", "shared") if group[name]}
        numbered = {} if group["count"] == 1 and not group["blocks"] else {"count": group["count"]}
        names = group["names"]
        spelled = {axis for line in group["lines"] for axis in AXIS.findall(line["spec"])}
        axes = group["axes"].items()
        axes = {axis: size for axis, size in axes if axis not in spelled or size != names.get(axis, axis)}
        own = [{name: fact for name, fact in line.items() if fact != "product"} for line in group["lines"]]
        lines = [pools.lines(_compact(line)) for line in own]
        groups.append({**facts, **numbered, **({"axes": axes} if axes else {}), "lines": lines})
    return {"form": way["form"], "groups": groups}


def _unpacked(subject: LoadedModel) -> list[dict[str, Any]]:
    """The third form of latent attention, which no step chooses by itself."""
    if latent.form(subject) != "auto":
        return []
    (way,) = written(subject.architecture.running(UNPACKED)).ways
    return [{**way, "form": UNPACKED}]


def _formulas(subject: LoadedModel) -> list[dict[str, Any]] | None:
    """The formulas of each way as trees, of further ways those that differ; None where a letter is several numbers, or
    windows overlap in several lengths, of which a page has one."""
    if len({group.axes[HALF] for group in subject.ledger.groups if HALF in group.axes}) > 1:
        return None
    try:
        third = [subject.architecture.running(UNPACKED)] if latent.form(subject) == "auto" else []
        ways = [in_symbols(way) for way in (*subject.architecture.ways(), *third)]
    except TfacctError:
        return None
    first, *others = map(_written, ways)
    return [first, *({name: tree for name, tree in one.items() if tree != first.get(name)} for one in others)]


def _written(model: SymbolicModel) -> dict[str, Any]:
    trees = {
        "flops": model.flops(lambda product: product.forward).written,
        "params": model.parameters().written,
        "kept": model.cached().written,
    }
    return {name: _tree(tree.term, tree.letters) for name, tree in trees.items() if tree.term.coefficient}


def _tree(term: Term, letters: Sequence[str]) -> list[Any]:
    """A term as [coefficient, letters with their powers, terms inside]."""
    term = term.spread()
    powers = [
        letter if power == 1 else f"{letter}^{power}"
        for letter, power in zip(letters, term.powers, strict=True)
        if power
    ]
    inside = [[_tree(one, letters) for one in term.inside]] if term.inside else []
    return [term.coefficient, " ".join(powers), *inside]


def _warnings(subject: LoadedModel) -> list[str]:
    """What stands on top: fields that are not understood, models that are left out, another name's answer."""
    said = [*compose.answering_hints([subject]), *compose.unknown_hints([subject])]
    return [text.removeprefix("hint: ").removeprefix("warning: ") for text in said]


def _notes(subject: LoadedModel) -> list[str]:
    """Sentences, each behind its place in the terminal's order and the word for when it holds: `masked` or `whole`,
    `reads` the source or `later`, `train`, or nothing; those of what is `kept` are of no FLOPs."""
    whole, masked = (sentences.block_notes([subject], masked=flag) for flag in (False, True))
    found = [f"blocks\tmasked\t{text}" for text in masked if text not in whole]
    found += [f"blocks\t{'' if text in masked else 'whole'}\t{text}" for text in whole]
    found += [f"kept\t\t{text}" for text in sentences.state_notes([subject])]
    if subject.source is not None:
        found += [f"source\treads\t{text}" for text in sentences.source_notes([subject])]
        later = counting.workload(subject, Request(tokens=1))
        found += [f"source\tlater\t{text}" for text in sentences.source_notes([subject], later)]
    return [f"train\ttrain\t{flops.STEP}", *found]


def _counted(subject: LoadedModel) -> list[str]:
    """What was counted: of all pairs, then masked, and of each with all logits, then with those of one position."""
    requests = Request(), Request(logits="last")
    return [conventions.products_note(one, masked, [subject]) for masked in (False, True) for one in requests]


def _longer(subject: LoadedModel) -> list[int]:
    """Parameters that a position table would have more for a context: so many a token, and what is added to them."""
    longest = subject.context
    first, second = (compose.longer_table(subject, longest + more) for more in (1, 2))
    return [second - first, first - (second - first) * (longest + 1)] if first else []


def _conventions(subject: LoadedModel) -> list[str]:
    """What was counted as FLOPs, of all pairs and masked; which positions get logits is a knob."""
    said = (conventions.products_convention(Request(), masked, [subject]) for masked in (False, True))
    return [text.removesuffix(" all logits") for text in said]


def _shared_field(subject: LoadedModel, model: WrittenModel) -> str | None:
    """Field of the config that sets K and leaves K · G as it is; None where there is none."""
    if not {"K", "G"} <= set(model.sizes):
        return None
    heads = model.sizes["K"] * model.sizes["G"]
    for field in SHARED_FIELDS:
        if field not in type(subject.config).model_fields:
            continue
        if all(_shares(subject, model, field, number, heads // number) for number in (1, heads)):
            return field
    return None


def _shares(subject: LoadedModel, model: WrittenModel, field: str, number: int, each: int) -> bool:
    """True if the model with this number in the field has so many key/value heads, and nothing else has changed."""
    try:
        other = written(subject.with_fields({field: number}).architecture).sizes
    except (TfacctError, ValueError):
        return False
    return (other.get("K"), other.get("G", each)) == (number, each) and len(other) == len(model.sizes)


def _published(subject: LoadedModel) -> dict[str, Any] | None:
    """How quantized weights are stored as published, and their bytes; their name is None where that is not known."""
    if not subject.quantized:
        return None
    try:
        how = subject.storage()
    except TfacctError as error:
        return {"name": None, "why": error.message}
    return {"name": how.name, "bytes": sum(subject.ledger.weight_bytes(how).values())}


def _mixtures(subject: LoadedModel) -> dict[str, tuple[int, int]]:
    """Fewest and most bytes of the weights in llama.cpp's common mixtures; none of a model that has no such files."""
    try:
        return {name: counting.weight_range(subject, name) for name in MIXTURES}
    except TfacctError:
        return {}


def _device(device: devices.Device) -> list[Any]:
    """Name, bytes, those usable to serve and to train, and FLOPs per byte at which arithmetic in bf16 and memory take
    as long, 0 where no peak is known; 1 at the end where the bytes are not torch's total."""
    others = [] if device.memory_from == "torch" else [1]
    name = device.name.partition(", one of")[0]
    ridge = round(device.peak.get("bf16", 0) / device.bandwidth, 2)
    usable = [of_device(1, device, training=training).usable for training in (False, True)]
    return [device.id, name, device.memory, *usable, ridge, *others]
