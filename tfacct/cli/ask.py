"""From the typed words to the question, and from the report to the screen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError, printable
from tfacct.cli import options as opt
from tfacct.cli.sets import read_sets
from tfacct.ledger.workload import Request
from tfacct.output import signs

if TYPE_CHECKING:  # pydantic is behind these: help and completion do without
    from pathlib import Path

    from tfacct.loading.index import Listed
    from tfacct.loading.model import Counts, LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.output.report import Report
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.budget import Budget
    from tfacct.reports.counting import Counting


def request(step: opt.Step | opt.Whole, logits: opt.LogitsChoice = opt.LogitsChoice.all, **more: Any) -> Request:
    """The workload as the user words it."""
    sizes = {name: text for name, text in vars(step).items() if isinstance(text, str)}
    read = {name: units.read_tokens(f"--{name}", text) for name, text in sizes.items()}
    return Request(**{**vars(step), **read, **more}, logits=logits.value)


def several(name: str, whole: opt.Whole) -> tuple[list[int] | None, opt.Whole]:
    """The sizes that an option holds, None where it holds one or none; and the workload with the largest of them."""
    text = getattr(whole, name)
    if text is None or not ("," in text or ".." in text):
        return None, whole
    from tfacct.base.ranges import read_some

    sizes = read_some(f"--{name}", text, grouped=name == "ctx")
    return (sizes if len(sizes) > 1 else None), replace(whole, **{name: str(max(sizes))})


def counting(counted: opt.Counted, trained: opt.Kept | None = None) -> Counting:
    """How a metric is counted, as the user words it."""
    from tfacct.reports.counting import Counting, named_of

    recipe = named_of({} if trained is None else vars(trained))
    return Counting(counted.dtype, counted.kv_dtype, counted.masked, counted.train, recipe)


def given(ranks: opt.Ranks | opt.Mesh) -> dict[str, object]:
    """The options of a mesh that were given, as they are typed."""
    default = vars(type(ranks)())
    return {f"--{name.replace('_', '-')}": value for name, value in vars(ranks).items() if value != default[name]}


def mesh(ranks: opt.Ranks | opt.Mesh) -> Mesh | None:
    """The mesh that the options name; None where they divide nothing."""
    if not given(ranks):
        return None
    from tfacct.parallel.mesh import mesh_of

    return mesh_of(**{name: getattr(value, "value", value) for name, value in vars(ranks).items()})


def of_one_rank(ranks: opt.Ranks) -> Mesh | None:
    """The same, of which one rank's share of a pass is asked."""
    found = mesh(ranks)
    if found is None:
        return None
    from tfacct.parallel.mesh import checked_pass

    return checked_pass(found)


def apart(option: str, others: Mapping[str, object]) -> None:
    """Refuse an option beside another that was given too and means nothing with it."""
    for other, given in others.items():
        if given:
            raise UsageError(f"{option} does not go with {other}", "leave one of the two out")


def apart_from(option: str, others: Mapping[str, object]) -> None:
    """Refuse options that mean something beside another only, which was not given."""
    for other, given in others.items():
        if given is not None:
            raise UsageError(f"{other} needs {option}")


def form(output: opt.Form) -> dict[str, object]:
    """The options of an output's form, as they are typed."""
    return {f"--{name.removeprefix('as_')}": value for name, value in vars(output).items()}


def subjects(which: opt.Which, projector: Counts = "nothing") -> list[LoadedModel]:
    """The models that were named; none named: every preset that the filters leave. `projector`: what --part both counts
    of it."""
    if not which.models:
        if which.part is not None:
            raise UsageError("--part applies to one MODEL: name it")
        return presets(which)
    if which.family is not None or which.max_params is not None:
        raise UsageError("--family and --max-params filter the presets: leave the MODEL out")
    changed = read_sets(which.sets or ())
    if which.part is not None:
        return [one for model in which.models for one in _parts(_find(model), which.part, changed, projector)]
    return [_find(model, changed) for model in which.models]


def _parts(found: LoadedModel, part: opt.PartChoice, sets: Mapping[str, Any], projector: Counts) -> list[LoadedModel]:
    """The part of a model that was asked for, or both."""
    if part is opt.PartChoice.both:
        if sets:
            raise UsageError("--set changes one part, not --part both", "ask for --part text, vision or audio")
        return found.of_parts(projector)
    vision, audio = opt.PartChoice.vision, opt.PartChoice.audio
    return [found.of_part("vision" if part is vision else "audio" if part is audio else "text", sets)]


def subject(one: opt.One) -> LoadedModel:
    """The model that was named."""
    return _find(one.model, read_sets(one.sets or ()))


def presets(which: opt.Presets) -> list[LoadedModel]:
    """The presets that the filters leave."""
    from tfacct.loading import presets

    changed = read_sets(which.sets or ())
    try:
        return presets.load_all(changed, family=which.family, max_params=_limit(which))
    except TfacctError as error:
        if changed:
            error.hint = "--set without a MODEL changes every preset: name one, or narrow with --family"
        raise


def listed(which: opt.Presets, words: Collection[str]) -> Sequence[LoadedModel | Listed]:
    """The presets that the filters leave, as a list shows them."""
    from tfacct.loading import presets

    if which.sets:
        return presets.load_all(read_sets(which.sets), family=which.family, max_params=_limit(which), words=words)
    return presets.list_all(family=which.family, max_params=_limit(which), words=words)


def _limit(which: opt.Presets) -> int | None:
    return None if which.max_params is None else units.read_count("--max-params", which.max_params)


def _find(model: str, changed: Mapping[str, Any] | None = None, also: Iterable[str] = ()) -> LoadedModel:
    """The model that is named, with a spinner where the hub takes its time."""
    from tfacct.loading import find as sources
    from tfacct.output.progress import spinner

    with spinner() as waiting:
        return sources.find(model, changed, also, waiting=waiting)


def reader() -> Callable[[str, Mapping[str, Any]], LoadedModel]:
    """Reads a model with fields set over its config; what it is called by is opened once."""
    known: dict[str, LoadedModel] = {}

    def load(name: str, fields: Mapping[str, Any]) -> LoadedModel:
        base = known.get(name) or known.setdefault(name, _find(name))
        return base.with_fields(fields)

    return load


def changed(subject: LoadedModel, sets: Iterable[str] | None) -> LoadedModel:
    """The same model with fields set over its config."""
    return subject.with_fields(read_sets(sets or ()))


def one_of_family(name: str, which: opt.Which) -> LoadedModel:
    """The model that is named, or the largest preset of the family that is."""
    from tfacct import families
    from tfacct.loading import presets

    if which.models:
        raise UsageError("--prove names its own FAMILY or MODEL: leave the other out")
    if name in families.names() and name not in presets.names():
        return presets.load_all(read_sets(which.sets or ()), family=name)[-1]
    return subject(opt.One(name, which.sets))


def family_or_model(name: str, sets: Iterable[str] | None) -> tuple[LoadedModel, bool]:
    """The model that is named, or the largest preset of the family that is; and whether it is a family."""
    from tfacct import families
    from tfacct.loading import presets

    changed = read_sets(sets or ())
    if name in families.names() and name not in presets.names():
        largest = presets.load_all(family=name)[-1]
        return presets.load(largest.name, changed), True
    return _find(name, changed, also=families.names()), False


def budget(fit: str | None, usable: opt.Usable, *, training: bool = False) -> Budget | None:
    """Memory that `--fit`, `--use` and `--reserve` name. Raises TfacctError."""
    if fit is None:  # without the files of devices
        apart_from("--fit", {"--use": usable.use, "--reserve": usable.reserve})
        return None
    from tfacct.reports.budget import budget

    return budget(fit, usable.use, usable.reserve, training=training)


def check_files(groups: Sequence[object]) -> None:
    """Refuse two forms at once, and a page or a picture that cannot be written, before anything is counted."""
    form = next((group for group in groups if isinstance(group, opt.Form)), opt.Form())
    if form.as_json + form.as_csv + form.as_markdown > 1:
        raise UsageError("choose one of --json, --csv and --markdown")
    picture = next((group for group in groups if isinstance(group, opt.Picture)), None)
    sweeps = any(group.calibrate for group in groups if isinstance(group, opt.Sweep))
    if form.html is not None:
        _page(form)
    elif form.force and (picture is None or picture.plot is None) and not sweeps:
        raise UsageError(f"--force needs --html{' or --plot' if picture else ''}")
    if picture is not None:
        _check_plot(picture, form)


def _check_plot(picture: opt.Picture, form: opt.Form) -> None:
    """Refuse a picture that cannot be written, and what means nothing without one."""
    if picture.plot is None:
        for name in (name for name, given in {"--print": picture.printed, "--dark": picture.dark}.items() if given):
            raise UsageError(f"{name} needs --plot")
        return
    if picture.printed:
        apart("--print", {"--dark": picture.dark})
    from tfacct.output import plot

    plot.check(picture.plot, force=form.force)


def _page(form: opt.Form) -> Path:
    """File of the page that was asked for. Raises UsageError where it cannot be written."""
    from tfacct.output import files

    return files.check("html", form.html or "", (".html",), "page", force=form.force)


def _write_page(report: Report, form: opt.Form, digits: bool) -> str:
    """Write a report as the page that was asked for. Returns what to say of it, nothing where none was."""
    if form.html is None:
        return ""
    from tfacct.output import files, html

    files.write_text("html", _page(form), html.page(report, digits))
    return f"wrote {form.html}"


def _draw(picture: opt.Picture | None, form: opt.Form, chart: Chart | None) -> str:
    """Draw a chart into the file that was asked for. Returns what to say of it, nothing where there is none."""
    if chart is None or picture is None:
        return ""
    from tfacct.output import plot
    from tfacct.output.look import Look

    file = picture.plot or ""
    plot.save(chart, plot.check(file, force=form.force), Look(dark=picture.dark, printed=picture.printed))
    return f"drew {file}"


def explained(
    report: Report, chosen: Sequence[LoadedModel], request: Request, how: opt.Explained, **terms: Any
) -> Report:
    """The report, with the derivation of its total where it was asked for."""
    if not how.explain:
        return report
    from tfacct.reports.explain import explained

    return explained(report, chosen, request, **terms)


def check_explained(how: opt.Explained, form: opt.Form, others: Mapping[str, object]) -> None:
    """Refuse what means nothing with a derivation, before anything is counted."""
    if how.as_latex and not how.explain:
        raise UsageError("--latex needs --explain")
    if how.explain:
        apart("--explain", {"--csv": form.as_csv, **others})
    if how.as_latex:
        apart("--latex", {"--json": form.as_json, "--markdown": form.as_markdown})


def show(
    report: Report,
    form: opt.Form,
    picture: opt.Picture | None = None,
    chart: Chart | None = None,
    how: opt.Explained | None = None,
) -> None:
    """Print a report in the form that was asked for, or its derivation in LaTeX. The picture and the page come first:
    where one cannot be written, nothing is printed."""
    digits = isinstance(form, opt.Output) and form.digits
    wrote = [_draw(picture, form, chart), _write_page(report, form, digits)]
    if how is not None and how.as_latex:
        print(signs.marked_down(report.to_latex(), sys.stdout))
    elif form.as_json:
        print(signs.escaped(report.to_json(), sys.stdout))
    elif form.as_csv:
        print(report.to_csv(), end="")
    elif form.as_markdown:
        print(signs.marked_down(report.to_markdown(digits), sys.stdout), end="")
    else:
        from tfacct.output import terminal

        terminal.show(report, digits=digits, verbose=isinstance(form, opt.Output) and form.verbose)
    for line in (*report.hints, *filter(None, wrote)):
        print(printable(line), file=sys.stderr)


def written(path: Path, subjects: Sequence[LoadedModel], page: str, *, shown: bool) -> None:
    """Say which page was written and what must be known of it; show it, if that was asked for."""
    size = f"{len(page.encode()):,} bytes"
    many = f"{len(subjects):,} models, " if len(subjects) > 1 else ""
    print(printable(f"wrote {path.name}: {many}{size}; it opens in any browser and works offline"), file=sys.stderr)
    stored = [subject.name for subject in subjects if subject.quantized]
    if stored and len(subjects) == 1:
        print("hint: its weights are stored quantized: the page asks for a dtype", file=sys.stderr)
    if shown:
        import webbrowser

        webbrowser.open(path.as_uri())
