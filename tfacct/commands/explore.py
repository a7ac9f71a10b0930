"""An interactive calculator as one HTML file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from tfacct import options as opt
from tfacct.commands.command import Command, Page

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel


class ExploreOptions(opt.Step, opt.Counted, total=False):
    """A step, and how it is counted."""


def explore(models: "Sequence[LoadedModel]", **options: Unpack[ExploreOptions]) -> Page:
    """An interactive calculator as one offline HTML file."""
    from tfacct.reports.explore import file_name, page

    html = page(models, opt.request(options, logits=options.get("logits", "all")), opt.counting(options))
    about = f"{len(models):,} models, " if len(models) > 1 else ""
    alone = len(models) == 1 and models[0].quantized
    hints = ("hint: the weights are published quantized: choose a dtype on the page",) if alone else ()
    return Page(html, file_name(models), about, hints)


COMMAND = Command(
    explore,
    examples=("tfacct explore llama-3.1-8b --ctx 16k --open", "tfacct explore llama-3.1-8b qwen3-8b -o compare.html"),
    page=True,
)
