"""Pages about a topic."""

import json
from inspect import Parameter
from typing import Annotated, Any

from tfacct import options as opt
from tfacct.base.errors import UsageError, nearest
from tfacct.base.spelling import shell_option
from tfacct.commands import FORMER, NAMES
from tfacct.commands.command import Command, Found, Markdown, command_of
from tfacct.options import Option

GROUPS = {"options": opt.GROUPS, "layout": (opt.LAYOUT,), "recipe": (opt.RECIPE,), "output": (opt.OUTPUT,)}
"""Groups of options by topic."""
TOPICS = {
    "counting": "what is counted, and what is not",
    "metrics": "what sweep, compare and solve can count",
    "axes": "the letters of formulas and einsum specs",
    "layout": "options of a parallel layout",
    "recipe": "options of a training recipe",
    "options": "options that several commands share",
    "output": "options for output: formats, files, sorting",
    "schema": "JSON Schemas of all answers",
    "docs": "pages of the documentation",
}


def help_(
    *,
    topic: Annotated[
        str, Option("`tfacct help topics` lists them. Or any word: mla.", "TOPIC", complete="topic", argument=True)
    ],
    name: Annotated[str | None, Option("A schema, or a page of the docs.", "[NAME]", argument=True)] = None,
) -> Found | str:
    """A topic, a page of the docs, or every option of a command."""
    from tfacct.reports import help as pages

    if topic == "schema":
        return _schema(name)
    if topic == "docs" and name is None:
        return Found(pages.contents())
    if topic == "topics" and name is None:
        return Found(pages.topics(TOPICS))
    if topic == "docs" or (topic in pages.pages() and name is None):
        return _page(name or topic)
    known = (*TOPICS, "topics", *NAMES, *pages.pages())
    if name is not None and topic in known:
        raise UsageError(f"{topic} takes no NAME")
    if topic in GROUPS:
        found = opt.shared()
        groups = {group: [each for each in found.items() if opt.of(each[1]).group == group] for group in GROUPS[topic]}
        return Found(pages.options({group: dict(map(_explained, each)) for group, each in groups.items()}))
    if topic == "counting":
        return Found(pages.conventions())
    if topic == "axes":
        return Found(pages.axes())
    if topic == "metrics":
        return Found(pages.metrics())
    if topic in NAMES:
        raise UsageError(f"help of {topic} is text only", f"`tfacct help {topic}` without other options prints it")
    words = f"{topic} {name or ''}".strip()
    longer = len(topic) > 2 and any(one.startswith(topic) for one in known) and not pages.meaning(words)
    key = words.replace("-", "_")
    option = ": ".join(_explained((key, found[key]))) if key in (found := opt.shared()) else ""
    endings = (words.split(" ", count)[count] for count in range(words.count(" ") + 1))
    if not longer and (found_in_pages := next(filter(None, (pages.search(one, option) for one in endings)), None)):
        return Found(found_in_pages)
    close = nearest(topic, known)
    raise UsageError(f"no topic {topic!r}", close or "`tfacct help topics` lists them")


def _explained(each: tuple[str, Any]) -> tuple[str, str]:
    """An option as it is typed, and its help with the allowed values."""
    name, annotation = each
    about, words = opt.of(annotation), opt.choices(annotation)
    if about.metavar or not words:
        return opt.typed(name, annotation), about.help
    return shell_option(name), f"{about.help} One of {', '.join(map(str, words))}."


def _page(name: str) -> Markdown:
    """A page of the documentation."""
    from tfacct.reports import help as pages

    if name not in pages.pages():
        raise UsageError(f"no page {name!r}", nearest(name, pages.pages()) or "`tfacct help docs` lists them")
    return Markdown(pages.page(name))


def _schema(name: str | None) -> Found | str:
    """The JSON Schema of a command's options and of its answer; without a name, the names of all."""
    from tfacct.reports import help as pages
    from tfacct.reports import schema as schemas

    if name is None:
        return Found(pages.schemas())
    known = (*schemas.KINDS, *schemas.PAGES)
    if name not in known:
        raise UsageError(f"no schema {name!r}", nearest(name, known) or "`tfacct help schema` lists them")
    word = name.partition("-")[0]
    command = word if word in NAMES else FORMER.get(word, ("help",))[0]
    described = command_of(command)
    models = {"models": None, "model": Parameter.empty}
    taken = [
        Parameter(one, Parameter.KEYWORD_ONLY, default=models[one], annotation=opt.Which.__annotations__[one])
        for one in models
        if one == described.takes
    ]
    options = schemas.of_options(command, map(_declared, (*taken, *described.options.values())))
    found = {**schemas.schema(name), "x-options": options}
    return f"{json.dumps(found, indent=2, ensure_ascii=False)}\n"


def _declared(one: Parameter) -> tuple[str, Any, str, Any]:
    """Name, type, help and default of an option; `...` for no default."""
    about = f"{opt.typed(one.name, one.annotation)}: {opt.of(one.annotation).help}"
    return one.name, opt.plain(one.annotation), about, ... if one.default is Parameter.empty else one.default


COMMAND = Command(
    help_,
    examples=(
        "tfacct help topics",
        "tfacct help memory",
        "tfacct help mla",
        "tfacct help python",
        "tfacct help json",
        "tfacct help docs training",
        "tfacct help schema params",
    ),
    whole=True,
)
