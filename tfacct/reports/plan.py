"""Which divisions of some devices hold a model, and which of them sends least, or is estimated to take least time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.later import Later
from tfacct.base.spelling import option, shell_option
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Request, Workload, check_size, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.support import unsupported_part
from tfacct.reports import compose, counting, sentences
from tfacct.reports.layout_search import Candidate, SearchResult, search_serving, search_training
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import refusal

if TYPE_CHECKING:
    from tfacct.loading.where import MemoryLimit
    from tfacct.reports.layout_time import Times

Order: TypeAlias = Literal["sent", "time"]
"""What orders divisions: the bytes that a rank sends, or the seconds that they are estimated to take."""
ROWS = 16
"""Divisions that a table shows."""
WHOLE = "no sharding"
LARGEST = 2**20
"""Devices beyond which nobody asks."""


def plan(
    model: LoadedModel,
    request: Request,
    *,
    gpus: int,
    fit: MemoryLimit,
    recipe: Recipe | None = None,
    given: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    called: str | None = None,
    by: Order = "sent",
) -> Report:
    """Divisions of `gpus` devices, each with the memory `fit`, that hold a model, or with a `recipe` its training step,
    of which `given` was asked for. The batch is that of all devices. `called`: the word that the model was asked for
    by.
    `by`: what orders them; the time is that of the device that `fit` names. Raises UsageError."""
    if by not in get_args(Order):
        raise UsageError(f"{option('by')} is {' or '.join(get_args(Order))}, not {by!r}")
    check_size(option("gpus"), gpus)
    if gpus > LARGEST:
        raise UsageError(f"{option('gpus')} is at most {LARGEST:,}, not {gpus:,}")
    if request.decode or request.tokens is not None:
        raise whole_sequences("plan")
    work = counting.runnable(model, request)
    if recipe is not None:
        tried = search_training(model, recipe, work, gpus, fit.usable)
    else:
        tried = search_serving(model, work, gpus, fit.usable, dtype, width(counting.dtypes(dtype, kv_dtype)[1]))
    if not tried.counted:
        raise _uncounted(model, work, recipe, tried, gpus)
    estimates: Times | None = None
    if by == "time":
        from tfacct.reports.layout_time import times_of

        estimates = times_of(model, work, fit.device, gpus, recipe, dtype, kv_dtype)
        tried = _timed(tried, estimates)
    options = {**(given or {}), "dtype": dtype, "kv_dtype": kv_dtype}
    command = _Command(model, work, recipe, options, called or model.name, fit)
    stored = recipe.dtype if recipe is not None else model.storage(dtype).name
    on_devices = None if recipe is None else replace(recipe, mesh=Mesh(fsdp=gpus))
    in_words = on_devices.precision if on_devices is not None else counting.format_name(model, dtype)
    what = "a training step" if recipe is not None else "serving"
    also = f", {recipe.description}" if recipe is not None else ""
    return compose.report(
        "plan",
        [model],
        _table(tried, command),
        [
            _facts(tried, work, gpus, fit, recipe, stored, command)
            | counting.format_facts(model, recipe.dtype if recipe is not None else dtype)
        ],
        title=f"{compose.name_of(model)}: layouts of {_devices(gpus)}, {what} in {in_words},"
        f" {compose.workload_words([model], request)}{also}",
        answer=_answer(tried, gpus, fit, command, estimates),
        convention="each layout as `train`, `memory` and `comms` count it",
        notes=lambda _: [
            *(sentences.files_notes([model], dtype) if recipe is None else ()),
            *(sentences.cache_notes([model], counting.dtypes(dtype, kv_dtype)[1]) if recipe is None else ()),
            *_notes(tried, command, estimates),
            *fit.notes,
            *(sentences.range_notes([model], dtype) if recipe is None else ()),
        ],
        counted=f"what one rank needs and sends; {'' if _timed_ones(tried) else 'no time, '}no topology of the links",
        requests=[request],
        headline="fitting",
    )


def _timed(tried: SearchResult, estimates: Times) -> SearchResult:
    """Those that fit with their seconds, fastest first within a stack, then those without. Raises UsageError."""
    fitting = [estimates.timed(one) for one in tried.fitting]
    if fitting and all(one.seconds is None for one in fitting):
        none = f"{estimates.model.name}: no layout that fits has an estimate of its time"
        why = estimates.reason.removeprefix(f"{estimates.model.name}: ")
        raise UsageError(f"{none}: {why}", f"leave {option('by', 'time')} out")
    fitting.sort(key=lambda one: (one.seconds is None, one.stack, one.seconds or 0, one.sent, one.bytes))
    return tried._replace(fitting=fitting)


def _timed_ones(tried: SearchResult) -> list[Candidate]:
    """Divisions that have an estimate of their time."""
    return [one for one in tried.fitting if one.seconds is not None]


def _uncounted(model: LoadedModel, work: Workload, recipe: Recipe | None, tried: SearchResult, gpus: int) -> UsageError:
    """Why no division is counted: a step that was not measured, the model's parts, a batch that is too small, or the
    most frequent reason."""
    none = f"{model.name}: no layout of {_devices(gpus)} is counted"
    why = None if recipe is None else refusal(model, recipe)
    if why is not None:
        return UsageError(f"{none}: {why}")
    said = unsupported_part(model.architecture) if gpus > 1 else None
    if said:
        return UsageError(f"{none}: no rule for {said} on a mesh")
    even = option("batch", -(-work.batch // gpus) * gpus)
    advice = f"give a multiple of {gpus:,}: {even}" if work.batch % gpus else None
    return UsageError(f"{none}: {Counter(tried.skipped).most_common(1)[0][0]}", advice)


def _typed(name: str, value: object) -> str:
    """An option of a recipe as it is typed."""
    return shell_option(name) if value is True else f"{shell_option(name)} {value}"


class _Command:
    """Words that ask for a division by itself."""

    def __init__(
        self,
        model: LoadedModel,
        work: Workload,
        recipe: Recipe | None,
        given: Mapping[str, Any],
        called: str,
        fit: MemoryLimit,
    ) -> None:
        self.train = recipe is not None
        self.usable = "".join(f" {option}" for option in fit.options(training=self.train))
        self.step = "one new token of each sequence" if model.keeps else "one pass over each sequence"
        sets = [f"--set {quote(f'{field}={compose.spoken(value)}')}" for field, value in model.changed.items()]
        self.model = " ".join([quote(called), *sets])
        options = (_typed(name, value) for name, value in given.items() if value not in (None, False))
        what = "train" if self.train else "memory"
        self.start = " ".join([f"tfacct {what} {quote(called)} --ctx {work.context}", *options, *sets])

    def mesh(self, one: Candidate) -> str:
        """The options of its mesh."""
        mesh = one.mesh
        parts = {"cp": mesh.cp, "ulysses": mesh.ulysses}
        sizes = {
            "tp": mesh.tp,
            "pp": mesh.pp,
            **parts,
            "fsdp": mesh.fsdp,
            "ep": mesh.ep,
            "dp": mesh.dp if self.train else 1,
        }
        words = [f"--{name} {size}" for name, size in sizes.items() if size > 1]
        if mesh.sp:
            words.insert(1, "--sp")
        if mesh.cp > 1 and mesh.cp_method != "ring":
            words.append(f"--cp-method {mesh.cp_method}")
        if mesh.zero:
            words.append(f"--zero {mesh.zero}")
        return " ".join(words) or WHOLE

    def more(self, one: Candidate) -> str:
        """The options of its mesh and of its batch."""
        alone = one.mesh.ranks == 1 or (not self.train and one.mesh.tp * one.mesh.pp * one.mesh.ep == 1)
        mesh = "" if alone else f"{self.mesh(one)} "
        return f"{mesh}--batch {one.batch}{f' --accumulate {one.times}' if one.times > 1 else ''}"

    def whole(self, one: Candidate) -> str:
        """All of it."""
        return f"{self.start} {self.more(one)}"

    def time(self, one: Candidate) -> str | None:
        """What asks for its time; None where that has no estimate."""
        return None if one.seconds is None else f"tfacct time {self.model} {one.time_options}{self.usable}"


def _answer(tried: SearchResult, gpus: int, fit: MemoryLimit, command: _Command, estimates: Times | None) -> str:
    size = fit.size
    if not tried.fitting:
        nearest = tried.larger[0]
        over = units.binary(nearest.bytes - fit.usable)
        needs = f"{_named(nearest, command, gpus)}, needs {units.binary(nearest.bytes)}, {over} more"
        if tried.counted == 1:
            return f"The one layout of {_devices(gpus)}, {needs} than {size}."
        return f"None of {tried.counted:,} layouts of {_devices(gpus)} fits in {size}: the nearest, {needs}."
    count, best = len(tried.fitting), tried.fitting[0]
    layouts, fit_in = (f"{count:,} layouts", "fit") if count > 1 else ("One layout", "fits")
    least = f"{_named(best, command, gpus)} sends least" if count > 1 else f"it is {_named(best, command, gpus)}"
    if estimates is not None:
        least = _fastest(tried, gpus, command, estimates)
    return f"{layouts} of {_devices(gpus)} {fit_in} in {size}; {least}."


def _fastest(tried: SearchResult, gpus: int, command: _Command, estimates: Times) -> str:
    """The fastest layout of each stack, among those that have an estimate."""
    timed, count = _timed_ones(tried), len(tried.fitting)
    takes: dict[str, str] = {}
    for one in timed:  # fastest first within a stack
        takes.setdefault(one.stack, f"{_named(one, command, gpus)}, ≈ {units.seconds(one.seconds or 0)}")
    fastest = takes[timed[0].stack]
    if len(timed) == 1:
        only = "it is" if count == 1 else "the one with an estimate is"
        return f"{only} {fastest} for {estimates.unit}"
    among = "" if len(timed) == count else f" of {len(timed):,} with an estimate"
    if len(takes) == 1:
        return f"fastest{among}: {fastest} for {estimates.unit}"
    by_stack = "; ".join(f"with {stack} {take}" for stack, take in takes.items())
    return f"fastest{among}: {by_stack} for {estimates.unit}"


def _named(one: Candidate, command: _Command, gpus: int) -> str:
    """A layout in a sentence: its options, or how the whole model lies on each device."""
    mesh = command.mesh(one)
    return mesh if mesh != WHOLE else "a whole copy on each" if gpus > 1 else "the whole model"


def _devices(count: int) -> str:
    return f"{count:,} device{'' if count == 1 else 's'}"


def _table(tried: SearchResult, command: _Command) -> Table:
    """Divisions that fit, the one that sends least first; where none does, those that need least."""
    columns = (
        Column("division", "layout"),
        Column("batch", "batch", "count", drop=2),
        Column("times", "times", "count", drop=3) if command.train else Column("copies", "copies", "count", drop=3),
        Column("bytes", "needs", "bytes"),
        Column("sent_bytes", "sends", "bytes"),
        *([Column("seconds", "≈ time", "seconds")] if _timed_ones(tried) else []),
    )
    stacks: dict[str, list[Candidate]] = {}
    for one in tried.fitting or tried.larger[:ROWS]:  # the larger ones are worked out as they are asked for
        stacks.setdefault(one.stack, []).append(one)
    sections = tuple(tuple(_row(one, command) for one in alike[: ROWS // len(stacks)]) for alike in stacks.values())
    return columns, sections, ()


def _row(one: Candidate, command: _Command) -> Row:
    return {
        "division": command.mesh(one),
        "batch": one.batch,
        "times": one.times,
        "copies": one.mesh.dp,
        "bytes": one.bytes,
        "sent_bytes": one.sent,
        "seconds": None if one.seconds is None else Fraction(one.seconds),
    }


def _notes(tried: SearchResult, command: _Command, estimates: Times | None) -> list[str]:
    shown = tried.fitting or tried.larger
    said, timed = [f"The first is {command.whole(shown[0])}"], _timed_ones(tried)
    if estimates is not None and timed:
        said += [f"Its time is {command.time(timed[0])}", *estimates.said(timed), *estimates.links_said(timed)]
    if len(shown) > ROWS:
        rest = "fit too" if tried.fitting else "need more"
        said.append(f"{len(shown) - ROWS:,} others {rest}; JSON has all.")
    staged = any(mesh.pp > 1 for mesh in tried.shown)
    waits = "" if timed else "; their idle time is not counted"
    if command.train:
        said.append(
            "Batch: sequences that a rank takes at a time, as many as fit; times: how often in a step. Bytes sent are"
            " those of a step: copies that share nothing reduce their gradients once, all others each time."
            f"{f' Pipeline stages run one sequence at a time, 1F1B{waits}.' if staged else ''}"
        )
    else:
        waits = " Idle time of pipeline stages is not counted." if staged else ""
        said.append(f"Each copy takes its part of the batch. Bytes sent are those of {command.step}.{waits}")
    if any(mesh.ep > 1 for mesh in tried.shown):
        said.append("Tokens are spread evenly over the experts.")
    if tried.skipped:
        why, _ = Counter(tried.skipped).most_common(1)[0]
        many = len(tried.skipped)
        said.append(
            f"{many:,} others are not counted; most often: {why}." if many > 1 else f"1 other is not counted: {why}."
        )
    return said


def _facts(
    tried: SearchResult,
    work: Workload,
    gpus: int,
    fit: MemoryLimit,
    recipe: Recipe | None,
    stored: str,
    command: _Command,
) -> dict[str, Any]:
    return {
        "workload": counting.workload_facts(work, dtype=stored),
        "train": recipe is not None,
        "gpus": gpus,
        **fit.facts,
        "fitting": len(tried.fitting),
        "tried": tried.counted,
        "not_counted": dict(Counter(tried.skipped)),
        "divisions": _divisions(tried.fitting, command),
        "larger": Later(len(tried.larger), lambda: _divisions(tried.larger, command)),
    }


def _divisions(found: Sequence[Candidate], command: _Command) -> list[dict[str, Any]]:
    return [
        {
            "tp": one.mesh.tp,
            "sp": one.mesh.sp,
            "fsdp": one.mesh.fsdp,
            "ep": one.mesh.ep,
            "dp": one.mesh.dp,
            "zero": one.mesh.zero,
            "pp": one.mesh.pp,
            "cp": one.mesh.cp,
            "cp_method": one.mesh.cp_method if one.mesh.cp > 1 else None,
            "ulysses": one.mesh.ulysses,
            "batch": one.batch,
            "times": one.times,
            "bytes": one.bytes,
            "sent_bytes": one.sent,
            "seconds": one.seconds,
            "timed_as": one.stack or None,
            "links": [link.facts() for link in one.links],
            "command": command.whole(one),
            "time_command": command.time(one),
        }
        for one in found
    ]
