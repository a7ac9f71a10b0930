"""What the files of a checkpoint hold, in bytes by part and dtype, and whether that is what the config says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, ClassVar, TypedDict

from tfacct.architecture.parts import headings
from tfacct.base import units
from tfacct.base.errors import TfacctError, cut, listed
from tfacct.base.spelling import option
from tfacct.loading.checkpoint import Checkpoint
from tfacct.loading.headers import Held
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import answers
from tfacct.output.report import Column, Report, Row
from tfacct.reports import build
from tfacct.reports.keys import ModelReport
from tfacct.verify import tensor_names as names
from tfacct.verify.checkpoint import Difference, Reconciled, reconcile
from tfacct.verify.places import Found

CONVENTION = "bytes as the headers say; no tensor is read; shapes against the ledger's, through the class's names"
SHOWN = 8
"""Differences that are named under the table; the JSON has all."""
BEYOND = "not counted"
"""Heading of tensors that belong to no line of the ledger."""
COLUMNS = (
    Column("part", "part"),
    Column("dtype", "dtype"),
    Column("what", "what"),
    Column("tensors", "tensors", "count", drop=1),
    Column("elements", "elements", "params", drop=1),
    Column("bytes", "bytes", "bytes"),
    Column("share", "share", "share", drop=3),
    Column("bar", "", "bar", drop=4),
)


class CheckpointFile(TypedDict):
    """A file of weights."""

    file: str
    bytes: int
    tensors: int


class CheckpointDifference(TypedDict):
    """A path of the ledger, or a tensor of the files, how the sides differ there, and in how many tensors alike."""

    path: str
    difference: str
    tensors: int


class NotStored(TypedDict):
    """A tensor that the files need not hold."""

    tensor: str
    why: str


class CheckpointLine(TypedDict):
    """Tensors of a part in one dtype. `what` they are, where they are not plain numbers."""

    part: str
    dtype: str
    what: str
    tensors: int
    elements: int
    bytes: int


class CheckpointReport(ModelReport):
    """What the files of a checkpoint hold, and whether that is what a config says."""

    _line = CheckpointLine
    _reserved: ClassVar[dict[str, Any]] = {"family": str | None, "agrees": bool | None}

    files: list[CheckpointFile]
    file_bytes: int
    tensor_bytes: int
    tensors: int
    elements: int
    dtypes: dict[str, int]
    compared_with: str | None
    config_bytes: int | None
    ledger_bytes: int | None
    equal_tensors: int | None
    differences: list[CheckpointDifference]
    not_stored: list[NotStored]
    not_compared: dict[str, int]


@answers(CheckpointReport)
def checkpoint(files: Checkpoint, config: LoadedModel | None, why_not: str = "") -> Report:
    """Bytes of the files, and their comparison with the config's ledger, if there is one; `why_not` says why."""
    why_not = why_not or _incomparable(files, config)
    result = None if config is None or why_not else reconcile(config, files.tensors, gguf=bool(files.gguf))
    lines = _lines(files, result)
    differences = [] if result is None else _folded(result.differences)
    facts = _facts(files, config, result, lines, differences)
    taken = facts["tensor_bytes"]
    sections = tuple(
        tuple(
            {**line, "share": Fraction(line["bytes"], taken or 1), "bar": Fraction(line["bytes"], taken or 1)}
            for line in group
        )
        for _, group in groupby(lines, key=lambda line: line["part"] == BEYOND)
    )
    total: Row = {
        "part": "total",
        **{key: facts[key] for key in ("tensors", "elements")},
        "bytes": taken,
        "share": Fraction(1),
    }
    answer = _answer(files, facts, result, differences, why_not)
    notes = [*_notes(files, result, differences), *_weighed(facts), *([] if config is None else _of_config(config))]
    return Report(
        command="checkpoint",
        title=f"{files.name}: the files' own headers",
        columns=COLUMNS if any(line["what"] for line in lines) else tuple(one for one in COLUMNS if one.key != "what"),
        sections=sections,
        totals=(total,),
        answer=answer,
        notes=tuple(notes),
        counted="bytes of tensors as the headers give them; no tensor is read",
        models=({**_about(files, config), "notes": notes, **facts},),
        convention=CONVENTION,
        headline="tensor_bytes",
        agrees=result is None or result.agrees,
        hints=tuple(build.unknown_hints([config])) if config is not None else (),
    )


def _about(files: Checkpoint, config: LoadedModel | None) -> dict[str, Any]:
    """The first keys of every JSON."""
    nobody: dict[str, Any] = {"family": None, "set": {}, "defaulted": {}, "unknown": [], "left_out": []}
    return {**(nobody if config is None else build.facts_of(config)), "model": files.name}


def _incomparable(files: Checkpoint, config: LoadedModel | None) -> str:
    """Reason why the tensors cannot be compared with a config; empty if they can."""
    if files.part_of:
        return f"it is one of {files.part_of:,} files: name their folder"
    if config is None:
        return f"there is no config.json next to it: {option('config')} names one"
    if files.gguf and files.gguf not in names.GGUF_COMPARED:
        return f"the names of GGUF's {cut(files.gguf)!r} are not known here"
    return ""


def _lines(files: Checkpoint, result: Reconciled | None) -> list[dict[str, Any]]:
    """Tensors, elements and bytes by part, dtype and what they are."""
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for part, what, held in _parts(files.tensors) if result is None else map(_part, result.found):
        sums = found.setdefault((part, held.dtype, what), Counter())
        sums.update({"tensors": 1, "elements": held.elements, "bytes": held.bytes})
    order = {part: number for number, part in enumerate((*headings(), BEYOND))}
    lines = [
        {"part": part, "dtype": dtype, "what": what, **{key: sums[key] for key in ("tensors", "elements", "bytes")}}
        for (part, dtype, what), sums in found.items()
    ]
    if result is None:
        return lines
    return sorted(lines, key=lambda line: (order[line["part"]], -line["bytes"]))


def _part(one: Found) -> tuple[str, str, Held]:
    """Heading of a tensor, and what it is, where it is not plain numbers."""
    if one.slot is None:
        return BEYOND, one.why or "no line in the ledger", one.held
    return one.slot.part, "" if one.aid is None else one.aid.what, one.held


def _parts(tensors: Iterable[Held]) -> Iterable[tuple[str, str, Held]]:
    """The same of files without a config: the beginning of the name."""
    for held in tensors:
        starred = names.NUMBER.sub("*", held.name)
        aid = names.aid(starred)
        before, star, rest = starred.partition(".*.")
        part = f"{before}{star}{rest.partition('.')[0]}" if star else starred.rpartition(".")[0] or starred
        yield part, "" if aid is None or starred.endswith("_blocks") else aid[1].what, held


def _folded(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """Differences that are alike in several blocks as one, with the first of them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in differences:
        key = names.NUMBER.sub("*", one.name), names.NUMBER.sub("*", one.what)
        known = found.setdefault(key, {"path": one.name, "difference": one.what, "tensors": 0})
        known["tensors"] += 1
    return list(found.values())


def _facts(
    files: Checkpoint,
    config: LoadedModel | None,
    result: Reconciled | None,
    lines: Sequence[Mapping[str, Any]],
    differences: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    dtypes: Counter[str] = Counter()
    for held in files.tensors:
        dtypes[held.dtype] += held.bytes
    return {
        "files": [{"file": file.name, "bytes": file.bytes, "tensors": len(file.tensors)} for file in files.files],
        "file_bytes": sum(file.bytes for file in files.files),
        "tensor_bytes": sum(dtypes.values()),
        "tensors": len(files.tensors),
        "elements": sum(held.elements for held in files.tensors),
        "dtypes": dict(dtypes.most_common()),
        "compared_with": None if result is None or config is None else config.name,
        "agrees": None if result is None else result.agrees,
        "config_bytes": None if result is None or config is None else _by_config(config),
        "ledger_bytes": None if result is None else sum(one.held.bytes for one in result.found if one.slot is not None),
        "equal_tensors": None if result is None else result.compared,
        "differences": list(differences),
        "not_stored": [] if result is None else [{"tensor": one.name, "why": one.what} for one in result.unstored],
        "not_compared": {} if result is None else dict(result.uncompared),
        "lines": list(lines),
    }


def _by_config(config: LoadedModel) -> int | None:
    """Bytes of the weights in the format that a config says; None where it says none, or none that is known."""
    if not config.quantized:
        return None
    try:
        return int(sum(config.ledger.weight_bytes(config.storage()).values()))
    except TfacctError:
        return None


def _answer(
    files: Checkpoint, facts: dict[str, Any], result: Reconciled | None, differences: Sequence[dict[str, Any]], why: str
) -> str:
    count, dtypes = len(files.files), facts["dtypes"]
    where = "one file" if count == 1 else f"{count:,} files"
    named = [f"{units.binary(taken)} {name}" for name, taken in dtypes.items()]
    each = f", all {next(iter(dtypes))}" if len(named) == 1 else f": {', '.join(named[:4])}" if named else ""
    more = f" and {len(named) - 4} other dtypes" if len(named) > 4 else ""
    text = f"{units.binary(facts['tensor_bytes'])} in {where}{each}{more}"
    if result is None:
        return f"{text}; not compared: {why}."
    if result.agrees:
        shapes = " and every line a tensor" if not result.uncompared else ", some shapes not compared"
        return f"{text}; every tensor has its line{shapes}."
    tensors = sum(one["tensors"] for one in differences)
    return f"{text}; {tensors:,} {'tensor differs' if tensors == 1 else 'tensors differ'} from the config."


def _notes(files: Checkpoint, result: Reconciled | None, differences: Sequence[dict[str, Any]]) -> list[str]:
    notes = []
    for one in differences[:SHOWN]:
        more = f" (and {one['tensors'] - 1:,} like it)" if one["tensors"] > 1 else ""
        notes.append(f"DIFFERS: {one['path']}: {one['difference']}{more}.")
    if len(differences) > SHOWN:
        notes.append(f"{len(differences) - SHOWN:,} more kinds of differences, all of them in the JSON.")
    if result is not None and result.unstored:
        each = {f"{one.name} ({one.what})": None for one in result.unstored}
        notes.append(f"Not stored, and need not be: {listed(list(each), 4)}.")
    if result is not None and result.uncompared:
        formats = ", ".join(f"{count:,} of {name}" for name, count in result.uncompared.items())
        notes.append(f"Shapes not compared: {formats}. Their bytes are counted.")
    stored = sum(tensor.bytes for tensor in files.tensors)
    if files.claimed is not None and files.claimed != stored:
        notes.append(f"The index says {files.claimed:,} bytes of tensors, the files hold {stored:,}.")
    return notes


def _weighed(facts: Mapping[str, Any]) -> list[str]:
    """Says whether `memory` counts the bytes that the files hold, from the format that the config says."""
    counted, stored = facts["config_bytes"], facts["ledger_bytes"]
    if counted is None:
        return []
    if counted == stored:
        return [f"`memory` counts as many bytes of weights from the config: {counted:,}."]
    more = f"{abs(stored - counted):,} bytes {'more' if stored > counted else 'fewer'}"
    return [f"From the config, `memory` counts {counted:,} bytes of weights; the files hold {more}."]


def _of_config(config: LoadedModel) -> list[str]:
    return build.defaulted_notes([config]) if len(config.defaulted) <= build.SHORT else []
