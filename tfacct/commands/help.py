"""Pages about a topic."""

from typing import Annotated

from tfacct.base.errors import UsageError, nearest
from tfacct.commands.command import Command, Found
from tfacct.options import Option

TOPICS = ("conventions", "metrics")


def help_(
    *,
    topic: Annotated[str, Option(f"One of: {', '.join(TOPICS)}.", "TOPIC", complete="topic", argument=True)],
) -> Found:
    """A page about a topic: conventions, metrics."""
    if topic == "conventions":
        from tfacct.reports.help import conventions

        return Found(conventions())
    if topic == "metrics":
        from tfacct.reports.help import metrics

        return Found(metrics())
    raise UsageError(f"no topic {topic!r}", nearest(topic, TOPICS) or f"topics: {', '.join(TOPICS)}")


COMMAND = Command(help_, examples=("tfacct help conventions", "tfacct help metrics"))
