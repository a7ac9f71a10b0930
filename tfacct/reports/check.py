"""A user's own module, or the files of a checkpoint, against a config: tensors, and the first differences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypedDict

from tfacct.base import units
from tfacct.base.errors import listed
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.loading import selection
from tfacct.loading.checkpoint import Checkpoint
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Column, Row
from tfacct.reports import build
from tfacct.reports.build import ModelReport, WorkloadFacts
from tfacct.verify.checkpoint import (
    BEYOND,
    Difference,
    Reconciled,
    adapters,
    bytes_by_config,
    folded_differences,
    incomparable,
    reconcile,
    stored_lines,
)
from tfacct.verify.tensor_names import WRAPPED

if TYPE_CHECKING:
    from tfacct.loading.checkpoint import File
    from tfacct.verify.user_module import Compared, Mismatch, ModuleOptions

SHOWN = 8
"""Differences that are named under the table; the JSON has all."""
SAVED = "bytes saved for backward"
COLUMNS = (
    Column("what", "config"),
    Column("name", "code"),
    Column("in_code", "in the code", "count", drop=1),
    Column("in_config", "in the config", "count", drop=1),
    Column("verdict", "", "verdict"),
)


of_difference: Keys[[Mismatch]] = Keys()
of_code: Keys[[Compared]] = Keys()


class CheckLine(TypedDict):
    """Elements of a tensor in code and config, summed over layers. `path`: in the config; `name`: in the code."""

    path: str | None
    name: str | None
    in_code: int
    in_config: int
    equal: bool


class CheckDifference(Object):
    """A difference between code and config: its first layer, with the counts of all layers that have it."""

    path: str = of_difference(lambda one: one.path)
    name: str | None = of_difference(lambda one: one.name or None)
    difference: str = of_difference(lambda one: one.what)
    unit: Literal["parameters", "FLOPs", "bytes"] = of_difference(lambda one: one.unit)
    in_code: int = of_difference(lambda one: one.code)
    in_config: int = of_difference(lambda one: one.config)
    block_count: int = of_difference(lambda one: one.blocks)


class CheckReport(ModelReport):
    """A torch module compared with a config: tensors, FLOPs, returned cache, and differences."""

    _line = CheckLine
    _reserved: ClassVar[dict[str, Any]] = {"agrees": bool}

    code: str
    workload: WorkloadFacts = of_code(lambda found: selection.workload_facts(found.work))
    first_difference: str | None = of_code(lambda found: found.mismatches[0].words if found.mismatches else None)
    code_params: int = of_code(lambda found: found.parameters[0])
    total_params: int = of_code(lambda found: found.parameters[1])
    code_flops: int | None = of_code(lambda found: found.flops and found.flops[0])
    total_flops: int | None = of_code(lambda found: found.flops and found.flops[1])
    code_fvcore_flops: int | None = of_code(lambda found: found.by_fvcore if isinstance(found.by_fvcore, int) else None)
    fvcore_reason: str | None = of_code(lambda found: found.by_fvcore if isinstance(found.by_fvcore, str) else None)
    code_cache_bytes: int | None = of_code(lambda found: found.cache and found.cache[0])
    total_cache_bytes: int | None = of_code(lambda found: found.cache and found.cache[1])
    code_saved_bytes: int | None = of_code(lambda found: found.saved and found.saved[0])
    total_saved_bytes: int | None = of_code(lambda found: found.saved and found.saved[1])
    operators: list[str] = of_code(lambda found: list(found.operators))
    paired_by: dict[str, int] = of_code(lambda found: dict(found.matched.by))
    differences: list[CheckDifference] = of_code(
        lambda found: [values_of(CheckDifference, one) for one in found.mismatches]
    )


def check(model: LoadedModel, module: Any, named: str, options: ModuleOptions) -> CheckReport:
    """Compare a module, a factory or the name of one, with a model. Needs torch. Raises TfacctError."""
    from tfacct.verify.user_module import checked

    found = checked(model, module, named, options)
    lines, work = _lines(found), found.work
    named_lines = [{**line, "path": line["path"] or None, "name": line["name"] or None} for line in lines]
    facts = values_of(CheckReport, found, code=named, agrees=found.agrees, lines=named_lines)
    notes = [*_differences(found.mismatches), *found.notes, *_not_reported(found)]
    tokens = units.number_of(work.tokens, "token")
    size = tokens if work.batch == 1 else f"{work.batch:,} × {tokens}"
    return CheckReport(
        command="check",
        title=f"{named} against {build.label(model)}, {size}",
        columns=COLUMNS if found.agrees else tuple(one._replace(drop=0) for one in COLUMNS),
        sections=tuple(rows for rows in (_rows(lines), _sums(found)) if rows),
        answer=_answer(found, size),
        notes=tuple(notes),
        convention="parameters by tensor, and FLOPs of the executed matmuls, with all T × T pairs",
        models=({**build.facts_of(model), "notes": notes, **facts},),
        headline="code_params",
        agrees=found.agrees,
        hints=tuple(build.unknown_hints([model])),
    )


def _lines(found: Compared) -> list[dict[str, Any]]:
    """Elements of each tensor of the ledger in code and config, summed over layers; then tensors of the code only."""
    folded: dict[tuple[str, str], dict[str, Any]] = {}

    def add(path: str, name: str, code: int, config: int, fits: bool) -> None:
        line = folded.setdefault(
            (path, name), {"path": path, "name": name, "in_code": 0, "in_config": 0, "equal": True}
        )
        line["in_code"] += code
        line["in_config"] += config
        line["equal"] = line["equal"] and fits

    names: dict[str, str] = defaultdict(str)
    for name, config_paths in found.matched.pairs.items():
        names[config_paths[0]] = name
    for one in found.matched.matches:
        path = " + ".join(paths.starred(tensor.path) for tensor in one.config_tensors)
        elements = sum(int(tensor.elements) for tensor in one.config_tensors)
        name = names[paths.starred(one.config_tensors[0].path)] or one.code.name
        add(path, name, one.code.elements, elements, one.fits)
    for tensor in found.matched.missing:
        add(paths.starred(tensor.path), "", 0, int(tensor.elements), False)
    for over in found.matched.over:
        starred = ".".join("*" if word.isdecimal() else word for word in over.name.split("."))
        add("", starred, over.elements, 0, False)
    return list(folded.values())


def _rows(lines: Sequence[Mapping[str, Any]]) -> tuple[Row, ...]:
    from tfacct.verify.user_module import together

    return tuple(
        {
            "what": together([paths.short(path) for path in line["path"].split(" + ")]) or "–",
            "name": line["name"].removesuffix(".weight"),
            "in_code": line["in_code"] or None,
            "in_config": line["in_config"] or None,
            "verdict": "ok" if line["equal"] else "DIFFERS",
        }
        for line in lines
    )


def _sums(found: Compared) -> tuple[Row, ...]:
    both = {"parameters": found.parameters, "FLOPs": found.flops}
    if isinstance(found.by_fvcore, int) and found.flops is not None:
        both["FLOPs, 2 × fvcore's count"] = found.by_fvcore, found.flops[1]
    both |= {"bytes of the returned cache": found.cache, SAVED: found.saved}
    return tuple(
        {
            "what": what,
            "in_code": pair[0],
            "in_config": pair[1],
            "verdict": _verdict(*pair, found.saved_bound if what == SAVED else Fraction(0)),
        }
        for what, pair in both.items()
        if pair is not None
    )


def _verdict(code: int, config: int, bound: Fraction) -> str:
    """Whether code and config agree within the bound, a share of the code's count."""
    if code == config:
        return "ok"
    return f"ok: off by {code - config:+,}" if abs(code - config) <= bound * code else "DIFFERS"


def _answer(found: Compared, size: str) -> str:
    if found.agrees:
        by_position = sum(found.matched.positioned.values())
        paired = f"; {units.number_of(by_position, 'tensor')} paired by shape" if by_position else ""
        saved = " and the bytes saved for backward" if found.saved and len({*found.saved}) == 1 else ""
        counts = f"parameters{',' if saved else ' and'} the FLOPs of {size}{saved}"
        return f"Agrees: all {found.parameters[0]:,} {counts} match the config{paired}."
    first, more = found.mismatches[0], len(found.mismatches) - 1
    others = f" ({units.number_of(more, 'more difference')} below)" if more else ""
    return f"First difference: {first.words}{others}."


def _differences(mismatches: Sequence[Mismatch]) -> list[str]:
    found = []
    for one in mismatches:
        where = [one.name] if one.name and one.name != one.path else []
        where += [f"in {one.blocks:,} layers"] if one.blocks > 1 else []
        found.append(one.words + (f" ({'; '.join(where)})" if where else ""))
    return _shown(found)


def _shown(differences: Sequence[str]) -> list[str]:
    """Notes on the first differences, and how many others there are."""
    more = len(differences) - SHOWN
    others = [f"{more:,} more kinds of differences; --json lists all."] if more > 0 else []
    return [*(f"DIFFERS: {one}." for one in differences[:SHOWN]), *others]


def _not_reported(found: Compared) -> list[str]:
    """Note on tensors paired only by shape, and on what was not compared."""
    by, notes = found.matched.by, []
    if by["shape"]:
        notes.append(
            f"{by['shape']:,} of {sum(by.values()):,} names were paired by shape and similar names;"
            f" {option('propose_map')} writes the pairs to a file."
        )
    if positioned := found.matched.positioned:
        notes.append(f"Paired by shape and position in the module tree alone: {listed(list(positioned), 4)}.")
    if isinstance(found.by_fvcore, str):
        notes.append(f"Not counted by fvcore: {found.by_fvcore}.")
    if found.matched.left_out:
        notes.append(f"Excluded by the map: {listed(list(found.matched.left_out), 4)}.")
    return notes


def shown_name(module: Any) -> str:
    """Name of a module or a factory, as a title has it."""
    if isinstance(module, str):
        return module
    name = getattr(module, "__qualname__", None) or type(module).__name__
    return WRAPPED.sub("", str(name)).replace("<locals>.", "")


# The files of a checkpoint


STORED_COLUMNS = (
    Column("part", "part"),
    Column("dtype", "dtype"),
    Column("what", "what"),
    Column("tensors", "tensors", "count", drop=1),
    Column("elements", "elements", "params", drop=1),
    Column("bytes", "bytes", "bytes"),
    *build.SHARES,
)


class Stored(NamedTuple):
    """The files of a checkpoint, and their comparison with a config, if there is one."""

    files: Checkpoint
    config: LoadedModel | None
    result: Reconciled | None


of_file: Keys[[File]] = Keys()
of_missing: Keys[[Difference]] = Keys()
of_files: Keys[[Stored]] = Keys()


class CheckpointFile(Object):
    """A file of weights."""

    file: str = of_file(lambda file: file.name)
    bytes: int = of_file(lambda file: file.bytes)
    tensors: int = of_file(lambda file: len(file.tensors))


class CheckpointDifference(TypedDict):
    """A path of the ledger or a tensor of the files, what differs, and how many tensors differ in the same way."""

    path: str
    difference: str
    tensors: int


class NotStored(Object):
    """A tensor that may be missing from the files."""

    tensor: str = of_missing(lambda one: one.name)
    why: str = of_missing(lambda one: one.what)


class CheckpointLine(TypedDict):
    """Tensors of a part in one dtype. `what`: their quantized form; empty for plain numbers."""

    part: str
    dtype: str
    what: str
    tensors: int
    elements: int
    bytes: int


def _dtypes(one: Stored) -> dict[str, int]:
    """Bytes by dtype, most first."""
    dtypes: Counter[str] = Counter()
    for tensor in one.files.tensors:
        dtypes[tensor.dtype] += tensor.bytes
    return dict(dtypes.most_common())


class CheckpointReport(ModelReport):
    """Tensors in the files of a checkpoint, compared with a config."""

    _line = CheckpointLine
    _reserved: ClassVar[dict[str, Any]] = {"family": str | None, "agrees": bool | None}

    files: list[CheckpointFile] = of_files(lambda one: [values_of(CheckpointFile, file) for file in one.files.files])
    file_bytes: int = of_files(lambda one: sum(file.bytes for file in one.files.files))
    tensor_bytes: int = of_files(lambda one: sum(tensor.bytes for tensor in one.files.tensors))
    tensors: int = of_files(lambda one: len(one.files.tensors))
    elements: int = of_files(lambda one: sum(tensor.elements for tensor in one.files.tensors))
    dtypes: dict[str, int] = of_files(_dtypes)
    compared_with: str | None = of_files(lambda one: one.config.name if one.config and one.result else None)
    config_bytes: int | None = of_files(lambda one: bytes_by_config(one.config) if one.config and one.result else None)
    ledger_bytes: int | None = of_files(
        lambda one: one.result and sum(each.tensor.bytes for each in one.result.found if each.slot is not None)
    )
    equal_tensors: int | None = of_files(lambda one: one.result and one.result.compared)
    differences: list[CheckpointDifference] = of_files(
        lambda one: folded_differences(one.result.differences) if one.result else []
    )
    not_stored: list[NotStored] = of_files(
        lambda one: [values_of(NotStored, each) for each in one.result.unstored] if one.result else []
    )
    not_compared: dict[str, int] = of_files(lambda one: dict(one.result.uncompared) if one.result else {})


def checkpoint(files: Checkpoint, config: LoadedModel | None, why_not: str = "") -> CheckpointReport:
    """Bytes of the files, and their comparison with the config's ledger, if there is one; `why_not` says why."""
    why_not = adapters(files) or why_not or incomparable(files, config)
    result = None if config is None or why_not else reconcile(config, files.tensors, gguf=bool(files.gguf))
    lines = stored_lines(files, result)
    agrees = None if result is None else result.agrees
    facts = values_of(CheckpointReport, Stored(files, config, result), agrees=agrees, lines=list(lines))
    differences = facts["differences"]
    taken = facts["tensor_bytes"]
    sections = tuple(
        tuple(build.with_share(line, line["bytes"], taken or 1) for line in group)
        for _, group in groupby(lines, key=lambda line: line["part"] == BEYOND)
    )
    total: Row = {
        "part": "total",
        **{key: facts[key] for key in ("tensors", "elements")},
        "bytes": taken,
        "share": Fraction(1),
    }
    about: dict[str, Any] = {"family": None, "set": {}, "defaulted": {}, "unknown": [], "left_out": []}
    about = about if config is None else build.facts_of(config)
    answer = _stored_answer(files, facts, result, differences, why_not)
    notes = [*_notes(files, result, differences), *_weighed(facts)]
    if config is not None and len(config.defaulted) <= build.SHORT:
        notes += build.defaulted_notes([config])
    return CheckpointReport(
        command="checkpoint",
        title=f"{files.name}: the files' own headers",
        columns=tuple(one for one in STORED_COLUMNS if one.key != "what" or any(line["what"] for line in lines)),
        sections=sections,
        total_rows=(total,),
        answer=answer,
        notes=tuple(notes),
        convention="tensor bytes from the headers; no tensor data is read",
        models=({**about, "model": files.name, "notes": notes, **facts},),
        headline="tensor_bytes",
        agrees=result is None or result.agrees,
        hints=tuple(build.unknown_hints([config])) if config is not None else (),
    )


def _stored_answer(
    files: Checkpoint, facts: dict[str, Any], result: Reconciled | None, differences: Sequence[dict[str, Any]], why: str
) -> str:
    count, dtypes = len(files.files), facts["dtypes"]
    where = "one file" if count == 1 else f"{count:,} files"
    text = f"{units.binary(facts['tensor_bytes'])} in {where}"
    if len(dtypes) == 1:
        text += f", all {next(iter(dtypes))}"
    elif dtypes:
        text += f": {listed([f'{units.binary(taken)} {name}' for name, taken in dtypes.items()], 4)}"
    if result is None:
        return f"{text}; not compared: {why}."
    if result.agrees:
        shapes = "" if not result.uncompared else ", some shapes not compared"
        return f"{text}; tensors and config agree{shapes}."
    tensors = sum(one["tensors"] for one in differences)
    return f"{text}; {tensors:,} {'tensor differs' if tensors == 1 else 'tensors differ'} from the config."


def _notes(files: Checkpoint, result: Reconciled | None, differences: Sequence[dict[str, Any]]) -> list[str]:
    like = (f" (and {one['tensors'] - 1:,} like it)" if one["tensors"] > 1 else "" for one in differences)
    notes = _shown([f"{one['path']}: {one['difference']}{more}" for one, more in zip(differences, like, strict=True)])
    if result is not None and result.unstored:
        each = {f"{one.name} ({one.what})": None for one in result.unstored}
        notes.append(f"Not stored, as expected: {listed(list(each), 4)}.")
    if result is not None and result.uncompared:
        formats = ", ".join(f"{count:,} of {name}" for name, count in result.uncompared.items())
        notes.append(f"Shapes not compared, but bytes counted: {formats}.")
    stored = sum(tensor.bytes for tensor in files.tensors)
    if files.claimed is not None and files.claimed != stored:
        notes.append(f"The index lists {files.claimed:,} bytes of tensors, the files have {stored:,}.")
    return notes


def _weighed(facts: Mapping[str, Any]) -> list[str]:
    """Note on whether `memory` counts as many bytes from the config's format as the files have."""
    counted, stored = facts["config_bytes"], facts["ledger_bytes"]
    if counted is None:
        return []
    if counted == stored:
        return [f"`memory` counts the same bytes of weights from the config: {counted:,}."]
    more = f"{abs(stored - counted):,} bytes {'more' if stored > counted else 'fewer'}"
    return [f"From the config, `memory` counts {counted:,} bytes of weights; the files have {more}."]
