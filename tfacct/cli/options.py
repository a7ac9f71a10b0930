"""The options that several commands share: the same name, the same meaning everywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tfacct import units
from tfacct.errors import TfacctError, UsageError, printable
from tfacct.workload import Request

if TYPE_CHECKING:  # pydantic is behind these: help and completion do without
    from tfacct.chart import Chart
    from tfacct.report import Report
    from tfacct.subject import Subject


class LogitsChoice(StrEnum):
    """Which positions get logits."""

    all = "all"
    last = "last"


class ByChoice(StrEnum):
    """What a row stands for."""

    line = "line"
    part = "part"
    block = "block"


class OfChoice(StrEnum):
    """What a formula counts."""

    flops = "flops"
    params = "params"
    kv = "kv"
    train = "train"


class ProofChoice(StrEnum):
    """How a formula is proven."""

    symbols = "symbols"
    grid = "grid"


def complete_model(incomplete: str) -> list[str]:
    """Preset names, for the shell."""
    from tfacct import presets

    return [name for name in presets.names() if name.startswith(incomplete)]


def complete_family() -> list[str]:
    """Families, for the shell."""
    from tfacct import families

    return families.names()


def complete_family_or_model(incomplete: str) -> list[str]:
    """Families and presets, for the shell."""
    return [name for name in (*complete_family(), *complete_model("")) if name.startswith(incomplete)]


Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        help="Preset, path to a config.json, or - for stdin. None: every preset.",
        autocompletion=complete_model,
        show_default=False,
    ),
]
OneModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Preset, path to a config.json, or - for stdin.", autocompletion=complete_model
    ),
]

FamilyOrModel = Annotated[
    str,
    typer.Argument(
        metavar="FAMILY|MODEL",
        help="Family, preset, path to a config.json, or - for stdin.",
        autocompletion=complete_family_or_model,
        show_default=False,
    ),
]

_WORKLOAD = "Workload"
Ctx = Annotated[
    str | None,
    typer.Option(
        metavar="S",
        help="Context at the end of the step, new tokens included; 16k is 16,384. Default: the model's longest.",
        rich_help_panel=_WORKLOAD,
        show_default=False,
    ),
]
Tokens = Annotated[
    str | None,
    typer.Option(metavar="T", help="New tokens of the context. Default: all of it.", rich_help_panel=_WORKLOAD),
]
Decode = Annotated[
    bool, typer.Option("--decode", help="One new token: short for --tokens 1.", rich_help_panel=_WORKLOAD)
]
Batch = Annotated[str, typer.Option(metavar="B", help="Sequences.", rich_help_panel=_WORKLOAD)]

Logits = Annotated[LogitsChoice, typer.Option(help="Positions whose logits are computed.")]
Train = Annotated[bool, typer.Option("--train", help="A training step: forward and backward.")]
Masked = Annotated[bool, typer.Option("--masked", help="Only the pairs that the causal mask keeps.")]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="DTYPE", help=f"How weights are stored: {', '.join(units.BITS)}. Default: bf16."),
]
KvDtype = Annotated[
    str | None,
    typer.Option(metavar="DTYPE", help="How the KV cache is stored. Default: as --dtype; bf16 for int8 and int4."),
]

Generate = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="A whole request: a prompt of --ctx tokens, then N new ones, with logits for the last position only.",
        rich_help_panel=_WORKLOAD,
        show_default=False,
    ),
]
Bytes = Annotated[
    bool, typer.Option("--bytes", help="Bytes that each product reads and writes, and its FLOPs per byte.")
]
BytesDtype = Annotated[
    str | None,
    typer.Option(metavar="DTYPE", help="How weights are stored, for --bytes. Default: bf16.", show_default=False),
]

_CONFIG = "Which models"
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field of the config, checked like a file's. Repeatable.",
        rich_help_panel=_CONFIG,
        show_default=False,
    ),
]
Family = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Only presets of this family.",
        rich_help_panel=_CONFIG,
        show_default=False,
        autocompletion=complete_family,
    ),
]
MaxParams = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Only presets of at most so many parameters: 8B, 500M.",
        rich_help_panel=_CONFIG,
        show_default=False,
    ),
]

_OUTPUT = "Output"
Latex = Annotated[bool, typer.Option("--latex", help="An align* environment.", rich_help_panel=_OUTPUT)]
Json = Annotated[bool, typer.Option("--json", help="Exact integers, stable keys.", rich_help_panel=_OUTPUT)]
Csv = Annotated[bool, typer.Option("--csv", help="The rows, raw numbers.", rich_help_panel=_OUTPUT)]
Markdown = Annotated[bool, typer.Option("--markdown", help="The table for a document.", rich_help_panel=_OUTPUT)]
Plot = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A picture too: FILE.png, .svg or .pdf.", rich_help_panel=_OUTPUT),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the picture.", rich_help_panel=_OUTPUT)]
Exact = Annotated[bool, typer.Option("--exact", help="Every digit in the table.", rich_help_panel=_OUTPUT)]


def request(
    ctx: str | None,
    *,
    tokens: str | None = None,
    decode: bool = False,
    batch: str = "1",
    logits: LogitsChoice = LogitsChoice.all,
) -> Request:
    """The workload as the user words it."""
    return Request(
        ctx=None if ctx is None else units.read_tokens("--ctx", ctx),
        tokens=None if tokens is None else units.read_tokens("--tokens", tokens),
        decode=decode,
        batch=units.read_tokens("--batch", batch),
        logits=logits.value,
    )


def apart(option: str, others: Mapping[str, object]) -> None:
    """Refuse an option beside another that was given too and means nothing with it."""
    for other, given in others.items():
        if given:
            raise UsageError(f"{option} does not go with {other}", "leave one of the two out")


def subjects(
    models: Iterable[str] | None,
    sets: Iterable[str] | None,
    family: str | None = None,
    max_params: str | None = None,
) -> list[Subject]:
    """The models that were named; none named: every preset that the filters leave."""
    from tfacct import presets, sources

    changed = sources.read_sets(sets or ())
    named = list(models or ())
    if named and (family is not None or max_params is not None):
        raise UsageError("--family and --max-params choose among the presets: name no model with them")
    if named:
        return [sources.find(model, changed) for model in named]
    limit = None if max_params is None else units.read_count("--max-params", max_params)
    try:
        return presets.load_all(changed, family=family, max_params=limit)
    except TfacctError as error:
        if changed:
            error.hint = "--set without a MODEL changes every preset: name one, or narrow with --family"
        raise


def changed(subject: Subject, sets: Iterable[str] | None) -> Subject:
    """The same model with fields set over its config."""
    from tfacct import sources
    from tfacct.subject import subject as read

    return read(subject.name, subject.raw, sources.read_sets(sets or ()), subject.provenance)


def one_of_family(name: str, models: Iterable[str] | None, sets: Iterable[str] | None) -> Subject:
    """The model that is named, or the smallest preset of the family that is."""
    from tfacct import families, presets, sources

    if models:
        raise UsageError("--prove names its own FAMILY or MODEL: leave the other out")
    if name in families.names() and name not in presets.names():
        return presets.load_all(sources.read_sets(sets or ()), family=name)[0]
    return subjects([name], sets)[0]


def family_or_model(name: str, sets: Iterable[str] | None) -> tuple[Subject, bool]:
    """The model that is named, or the largest preset of the family that is; and whether it is a family."""
    from tfacct import families, presets, sources

    changed = sources.read_sets(sets or ())
    if name in families.names() and name not in presets.names():
        largest = presets.load_all(family=name)[-1]
        return presets.load(largest.name, changed), True
    return sources.find(name, changed, also=families.names()), False


def check_plot(file: str | None, force: bool) -> None:
    """Refuse a picture that cannot be written, before anything is counted."""
    if file is not None:
        from tfacct.view import plot

        plot.check(file, force=force)
    elif force:
        raise UsageError("--force overwrites a picture: it goes with --plot")


def draw(file: str | None, force: bool, chart: Callable[[], Chart]) -> None:
    """Draw a chart, if a picture was asked for."""
    if file is not None:
        from tfacct.view import plot

        plot.save(chart(), plot.check(file, force=force))
        print(printable(f"drew {file}"), file=sys.stderr)


def show(report: Report, *, as_json: bool, as_csv: bool, as_markdown: bool, exact: bool) -> None:
    """Print a report in the form that was asked for."""
    if as_json + as_csv + as_markdown > 1:
        raise UsageError("--json, --csv and --markdown are one form each: choose one")
    if as_json:
        print(report.to_json())
    elif as_csv:
        print(report.to_csv(), end="")
    elif as_markdown:
        print(report.to_markdown(exact), end="")
    else:
        from tfacct.view import terminal

        terminal.show(report, exact=exact)
    for hint in report.hints:
        print(printable(hint), file=sys.stderr)
