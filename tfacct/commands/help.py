"""Pages about a topic."""

from typing import Annotated, Any

from tfacct import options as opt
from tfacct.base.errors import UsageError, nearest
from tfacct.base.spelling import shell_option
from tfacct.commands import NAMES
from tfacct.commands.command import Command, Found
from tfacct.options import Option

GROUPS = {"options": opt.GROUPS, "layout": (opt.LAYOUT,), "recipe": (opt.RECIPE,), "output": (opt.OUTPUT,)}
"""Groups of options by topic."""
TOPICS = (*GROUPS, "counting", "letters", "metrics")


def help_(
    *,
    topic: Annotated[str, Option(", ".join(TOPICS), "TOPIC", complete="topic", argument=True)],
) -> Found:
    """A topic, or every option of a command."""
    from tfacct.reports import help as pages

    if topic in GROUPS:
        found = opt.shared()
        groups = {group: [each for each in found.items() if opt.of(each[1]).group == group] for group in GROUPS[topic]}
        return Found(pages.options(topic, {group: dict(map(_explained, each)) for group, each in groups.items()}))
    if topic == "counting":
        return Found(pages.conventions())
    if topic == "letters":
        return Found(pages.letters())
    if topic == "metrics":
        return Found(pages.metrics())
    if topic == "conventions":  # its name in the last release
        return help_(topic="counting")
    raise UsageError(f"no topic {topic!r}", nearest(topic, (*TOPICS, *NAMES)) or f"topics: {', '.join(TOPICS)}")


def _explained(each: tuple[str, Any]) -> tuple[str, str]:
    """An option as it is typed, and its help; one of a few words are named there."""
    name, annotation = each
    about, words = opt.of(annotation), opt.choices(annotation)
    if about.metavar or not words:
        return opt.typed(name, annotation), about.help
    return shell_option(name), f"{about.help} One of {', '.join(map(str, words))}."


COMMAND = Command(help_, examples=("tfacct help layout", "tfacct help counting", "tfacct help memory"), whole=True)
