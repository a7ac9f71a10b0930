"""From what was typed to what is asked, and from a report to what is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tfacct import units
from tfacct.cli.options import LogitsChoice
from tfacct.errors import TfacctError, UsageError, printable
from tfacct.workload import Request

if TYPE_CHECKING:  # pydantic is behind these: help and completion do without
    from tfacct.chart import Chart
    from tfacct.report import Report
    from tfacct.subject import Subject


def request(
    ctx: str | None,
    *,
    tokens: str | None = None,
    decode: bool = False,
    batch: str = "1",
    logits: LogitsChoice = LogitsChoice.all,
    source: str | None = None,
) -> Request:
    """The workload as the user words it."""
    return Request(
        ctx=None if ctx is None else units.read_tokens("--ctx", ctx),
        tokens=None if tokens is None else units.read_tokens("--tokens", tokens),
        decode=decode,
        batch=units.read_tokens("--batch", batch),
        logits=logits.value,
        source=None if source is None else units.read_tokens("--source", source),
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
        return [_find(model, changed) for model in named]
    limit = None if max_params is None else units.read_count("--max-params", max_params)
    try:
        return presets.load_all(changed, family=family, max_params=limit)
    except TfacctError as error:
        if changed:
            error.hint = "--set without a MODEL changes every preset: name one, or narrow with --family"
        raise


def _find(model: str, changed: Mapping[str, Any] | None = None, also: Iterable[str] = ()) -> Subject:
    """The model that is named, with a spinner where the hub takes its time."""
    from tfacct import sources
    from tfacct.view.progress import spinner

    with spinner() as waiting:
        return sources.find(model, changed, also, waiting=waiting)


def reader() -> Callable[[str, Mapping[str, Any]], Subject]:
    """Reads a model with fields set over its config; what it is called by is opened once."""
    from tfacct.subject import subject as read

    known: dict[str, Subject] = {}

    def load(name: str, fields: Mapping[str, Any]) -> Subject:
        base = known.get(name) or known.setdefault(name, _find(name))
        return read(base.name, base.raw, fields, base.provenance)

    return load


def changed(subject: Subject, sets: Iterable[str] | None) -> Subject:
    """The same model with fields set over its config."""
    from tfacct import sources
    from tfacct.subject import subject as read

    return read(subject.name, subject.raw, sources.read_sets(sets or ()), subject.provenance)


def one_of_family(name: str, models: Iterable[str] | None, sets: Iterable[str] | None) -> Subject:
    """The model that is named, or the largest preset of the family that is."""
    from tfacct import families, presets, sources

    if models:
        raise UsageError("--prove names its own FAMILY or MODEL: leave the other out")
    if name in families.names() and name not in presets.names():
        return presets.load_all(sources.read_sets(sets or ()), family=name)[-1]
    return subjects([name], sets)[0]


def family_or_model(name: str, sets: Iterable[str] | None) -> tuple[Subject, bool]:
    """The model that is named, or the largest preset of the family that is; and whether it is a family."""
    from tfacct import families, presets, sources

    changed = sources.read_sets(sets or ())
    if name in families.names() and name not in presets.names():
        largest = presets.load_all(family=name)[-1]
        return presets.load(largest.name, changed), True
    return _find(name, changed, also=families.names()), False


def check_plot(file: str | None, force: bool) -> None:
    """Refuse a picture that cannot be written, before anything is counted."""
    if file is not None:
        from tfacct.view import plot

        plot.check(file, force=force)
    elif force:
        raise UsageError("--force overwrites a picture: it goes with --plot")


def draw(file: str, force: bool, chart: Chart) -> None:
    """Draw a chart into a file, and say so."""
    from tfacct.view import plot

    plot.save(chart, plot.check(file, force=force))
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
