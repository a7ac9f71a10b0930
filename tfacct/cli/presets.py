"""What there is to ask about. (Annotations are not postponed: that keeps the start short.)"""

from tfacct.cli import ask
from tfacct.cli import options as opt
from tfacct.cli.root import PRESETS, command


@command(PRESETS)
def models(
    sets: opt.Sets = None,
    family: opt.Family = None,
    max_params: opt.MaxParams = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """The presets, by family and size."""
    from tfacct.reports.models import models

    report = models(ask.subjects(None, sets, family, max_params))
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@command(PRESETS)
def show(
    model: opt.OneModel,
    sets: opt.Sets = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """One model's config, its source, and what was defaulted."""
    from tfacct.reports.models import show

    (subject,) = ask.subjects([model], sets)
    ask.show(show(subject), as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)
