"""FLOPs of a whole request: the prompt in one pass, then one decode step for each new token but the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypedDict

from tfacct.accounts.step_flops import decode_flops
from tfacct.architecture.parts import MlaMode
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger import paths
from tfacct.ledger.workload import LARGEST, Request, Workload, check_size
from tfacct.loading.left_out import LeftOut
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import answers
from tfacct.output.report import Amount, Column, NoteRow, Report, Row, Table, notes
from tfacct.reports import build, keys, model_notes, selection, tables


class PhaseLine(TypedDict):
    """One product of a phase, by path or in full."""

    path: str
    spec: str
    flops: int


class Phase(TypedDict):
    """The prefill, or all decode steps."""

    phase: Literal["prefill", "decode"]
    step_count: int
    flops: int
    lines: list[PhaseLine]


class GenerateLine(TypedDict):
    """One product of a request. `decode_spec`: as the decode steps run it, null where they do not."""

    path: str
    spec: str | None
    decode_spec: str | None
    prefill_flops: int
    decode_flops: int
    flops: int


class GenerateReport(keys.ModelReport):
    """FLOPs of a whole request."""

    _line = GenerateLine

    workload: keys.Workload
    prompt_tokens: int
    new_tokens: int
    decode_steps: int
    prefill_latent_attention: MlaMode | None
    decode_latent_attention: MlaMode | None
    total_flops: int
    prefill_flops: int
    decode_flops: int
    flops_per_prompt_token: float
    flops_per_new_token: float | None
    phases: list[Phase]


@record
class _Counted:
    """One model's request: FLOPs by product of the prefill `work` and of all decode `steps` together."""

    subject: LoadedModel
    work: Workload
    steps: int
    specs: dict[str, str]
    decode_specs: dict[str, str]
    prefill: dict[str, int]
    decode: dict[str, int]

    @property
    def prefill_total(self) -> int:
        return sum(self.prefill.values())

    @property
    def decode_total(self) -> int:
        return sum(self.decode.values())

    @property
    def total(self) -> int:
        return self.prefill_total + self.decode_total

    @property
    def per_prompt_token(self) -> Fraction:
        """FLOPs of the prefill by the prompt tokens of all sequences."""
        return Fraction(self.prefill_total, self.work.batch * self.work.tokens)

    @property
    def per_new_token(self) -> Fraction | None:
        """FLOPs of the decode steps by their tokens of all sequences; None where there is no step."""
        return Fraction(self.decode_total, self.work.batch * self.steps) if self.steps else None


@answers(GenerateReport)
def generate(subjects: Sequence[LoadedModel], request: Request, new_tokens: int, *, masked: bool = False) -> Report:
    """FLOPs of the matrix products of a request, 2 per multiply-add: prefill, all decode steps, and both.

    The prompt is the context of `request`. Its last position alone gets logits, as a server does, and they are the
    first new token; the others take a step each: what the `generate` of transformers runs. Raises UsageError.
    """
    prompt = _checked(request, new_tokens)
    if len(subjects) == 1 and not subjects[0].keeps:
        raise UsageError(f"{subjects[0].name} keeps nothing between steps, so there is no decode step to generate with")
    subjects, headless = foreseeing(subjects)
    subjects, stepless = selection.keeping(subjects)
    steps = new_tokens - 1
    request = replace(request, logits="last")
    counted = [_count(subject, request, steps, masked) for subject in subjects]
    table = _by_line(counted[0]) if len(counted) == 1 else _side_by_side(counted)
    who = f"{build.name_of(subjects[0])}: " if len(subjects) == 1 else ""
    tokens = "1 new token" if new_tokens == 1 else f"{new_tokens:,} new tokens"
    return build.report(
        "flops",
        subjects,
        table,
        [_facts(c, masked) for c in counted],
        title=f"{who}FLOPs of a request: prompt {prompt:,}, {tokens}, batch {request.batch:,}",
        answer=_answer(counted),
        notes=lambda at: notes(NOTES, About(counted[at], masked)),
        counted=model_notes.products_counted(request, masked, subjects),
        details=lambda at: model_notes.details(request, masked, [c.subject for c in counted[at]]),
        requests=[replace(request, ctx=prompt + steps)],
        left_out=[*headless, *stepless],
        convention=f"{model_notes.products_convention(request, masked, subjects)};"
        " one prefill, then new tokens - 1 decode steps",
        headline="total_flops",
    )


def _answer(counted: Sequence[_Counted]) -> str:
    """The total of one model, and its two phases; or the least and the most of several."""
    if len(counted) > 1:
        return tables.from_to([(one.total, one.subject.name) for one in counted], units.si)
    (one,) = counted
    prompt, steps = units.si(one.prefill_total), units.si(one.decode_total)
    after = f", {steps} for {one.steps:,} decode step{'' if one.steps == 1 else 's'}" if one.steps else ""
    return f"{units.si(one.total)} FLOPs: {prompt} for the prompt{after}."


def foreseeing(subjects: Sequence[LoadedModel]) -> tuple[list[LoadedModel], list[LeftOut]]:
    """Those that have a language model's head, and the others. Raises UsageError where none has."""
    others = [subject for subject in subjects if subject.architecture.head is None]
    if len(others) == len(subjects):
        raise UsageError(
            f"{', '.join(subject.name for subject in others)}: no tokens are generated without a language model's head"
        )
    heads = [subject for subject in subjects if subject.architecture.head is not None]
    return heads, LeftOut.of(others, "no language model's head")


def _checked(request: Request, new_tokens: int) -> int:
    """The prompt's length, where there is one and the context at the end is one that a model may be asked for."""
    check_size(option("new_tokens"), new_tokens)
    if request.ctx is None:
        hint = f"give {option('ctx')}: its tokens, for example {spelled('2k', '2048')}"
        raise UsageError(f"{option('generate')} needs the length of the prompt", hint)
    end = request.ctx + new_tokens - 1
    if end > LARGEST:
        raise UsageError(
            f"{option('ctx', request.ctx)} with {option('new_tokens', new_tokens)} ends at a context of {end:,}:"
            f" at most {LARGEST:,}"
        )
    return request.ctx


def _count(subject: LoadedModel, request: Request, steps: int, masked: bool) -> _Counted:
    work = selection.workload(subject, request)
    ledger, at = subject.ledger, work.axes()
    last = Workload(work.context + steps, 1, work.batch, source=work.source).axes() if steps else at
    return _Counted(
        subject,
        work,
        steps,
        specs={product.path: product.spec for product in ledger.products(at, masked=masked)},
        decode_specs={product.path: product.spec for product in ledger.products(last)},
        prefill=ledger.flops(at, masked=masked),
        decode=decode_flops(
            ledger, batch=work.batch, prompt=work.context, steps=steps, source=work.source
        ),  # one query sees every key
    )


def _facts(counted: _Counted, masked: bool) -> dict[str, Any]:
    work = counted.work

    def phase(name: str, steps: int, flops: dict[str, int], specs: dict[str, str]) -> dict[str, Any]:
        lines = [{"path": path, "spec": specs[path], "flops": count} for path, count in flops.items()]
        return {"phase": name, "step_count": steps, "flops": sum(flops.values()), "lines": lines}

    return {
        "workload": selection.workload_facts(work, masked=masked),
        "prompt_tokens": work.tokens,
        "new_tokens": counted.steps + 1,
        "decode_steps": counted.steps,
        **model_notes.latent_request_facts(counted.subject, work, counted.steps, masked=masked),
        "total_flops": counted.total,
        "prefill_flops": counted.prefill_total,
        "decode_flops": counted.decode_total,
        "flops_per_prompt_token": counted.per_prompt_token,
        "flops_per_new_token": counted.per_new_token,
        "phases": [
            phase("prefill", 1, counted.prefill, counted.specs),
            phase("decode", counted.steps, counted.decode, counted.decode_specs),
        ],
        "lines": [
            {
                "path": path,
                "spec": spec,
                "decode_spec": counted.decode_specs[path],
                "prefill_flops": counted.prefill[path],
                "decode_flops": counted.decode[path],
                "flops": counted.prefill[path] + counted.decode[path],
            }
            for path, spec in counted.specs.items()
        ],
    }


def _by_line(counted: _Counted) -> Table:
    columns = (
        Column("operation", "operation"),
        Column("spec", "einsum", "spec", drop=5),
        Column("prefill_flops", "prefill", "flops"),
        Column("decode_flops", "decode", "flops", empty="–"),
        Column("flops", "FLOPs", "flops"),
        Column("share", "share", "share", drop=3),
        Column("bar", "", "bar", drop=4),
    )
    rows: list[Row] = []
    for path, spec in counted.specs.items():
        prefill, decode = counted.prefill[path], counted.decode[path]
        row: dict[str, Any] = {
            "part": paths.heading_of(path),
            "operation": paths.short(path),
            "spec": spec if spec == counted.decode_specs[path] else f"{spec}; then {counted.decode_specs[path]}",
            "prefill_flops": prefill,
            "decode_flops": decode,
            "flops": prefill + decode,
        }
        rows.append(tables.with_share(row, prefill + decode, counted.total))
    return columns, tables.sections(rows), _totals(counted)


def _totals(counted: _Counted) -> tuple[Row, ...]:
    prefill, decode = counted.prefill_total, counted.decode_total
    return (
        {
            "operation": "total",
            "prefill_flops": prefill,
            "decode_flops": decode,
            "flops": counted.total,
            "share": Fraction(1),
        },
        {
            "operation": "share",
            "prefill_flops": Amount(Fraction(prefill, counted.total), "share"),
            "decode_flops": Amount(Fraction(decode, counted.total), "share"),
        },
        {
            "operation": "per token",
            "prefill_flops": counted.per_prompt_token,
            "decode_flops": counted.per_new_token,
        },
    )


def _side_by_side(counted: Sequence[_Counted]) -> Table:
    """One row per model: both phases, and how much of the whole is decoding."""
    columns = (
        Column("model", "model"),
        Column("prefill_flops", "prefill", "flops"),
        Column("decode_flops", "decode", "flops"),
        Column("flops_per_new_token", "/ new token", "flops", drop=3, empty="–"),
        Column("flops", "FLOPs", "flops"),
        Column("decode_share", "decode share", "share"),
        Column("bar", "", "bar", drop=4),
    )
    rows = []
    for c in counted:
        share = Fraction(c.decode_total, c.total)
        row: Row = {
            "model": build.name_of(c.subject),
            "prefill_flops": c.prefill_total,
            "decode_flops": c.decode_total,
            "flops_per_new_token": c.per_new_token,
            "flops": c.total,
            "decode_share": share,
            "bar": share,
        }
        rows.append(row)
    return columns, (tuple(rows),), ()


class About(NamedTuple):
    """What notes are about: the requests of some models."""

    counted: Sequence[_Counted]
    masked: bool

    @property
    def undivided(self) -> list[LoadedModel]:
        """The models."""
        return [one.subject for one in self.counted]


def _steps(about: About) -> str:
    prompt, steps = about.counted[0].work.tokens, about.counted[0].steps
    if steps == 0:
        return ": there is no decode step."
    if not model_notes.attends(about.undivided):
        return f"; the others take {steps:,} decode steps of one token, which all cost the same."
    if steps == 1:
        return f"; the other takes a decode step of one token with {prompt + 1:,} keys."
    return (
        f"; the others take {steps:,} decode steps, each of one token with {prompt + 1:,} to {prompt + steps:,} keys."
    )


NOTES = (
    NoteRow("steps", 1, _steps, "The prefill's logits give the first new token{}"),
    *model_notes.BLOCKS,
    NoteRow("source", 2, lambda about: model_notes.source_notes(about.undivided)),
    NoteRow(
        "latent",
        2,
        lambda about: model_notes.latent_request_notes(
            [(c.subject, c.work, c.steps) for c in about.counted], masked=about.masked
        ),
    ),
)
