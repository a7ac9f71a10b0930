"""What there is to ask about. (Annotations are not postponed: that keeps the start short.)"""

from tfacct.cli import ask
from tfacct.cli import options as opt
from tfacct.cli.root import PRESETS, command


@command(PRESETS)
def models(
    *,
    chosen: opt.Presets,
    output: opt.Output,
) -> None:
    """The presets, by family and size."""
    from tfacct.reports.models import models

    report = models(ask.presets(chosen))
    ask.show(report, output)


@command(PRESETS)
def show(
    *,
    one: opt.One,
    output: opt.Output,
) -> None:
    """One model's config, its source, and what was defaulted."""
    from tfacct.reports.models import show

    subject = ask.subject(one)
    ask.show(show(subject), output)
