"""Pages of `help TOPIC`: conventions, metrics, axes, options and the documentation."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from tfacct.base import units
from tfacct.loading.files import packaged
from tfacct.output.report import Column, Report


@cache
def _texts(name: str) -> Mapping[str, str]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def terms() -> Mapping[str, str]:
    """Terms of the field, and what they mean."""
    return _texts("terms.toml")


MOST_SECTIONS = 6
"""Sections of the documentation that a search shows."""


def table(
    command: str,
    title: str,
    columns: Sequence[Column],
    *sections: Iterable[Sequence[str]],
    notes: tuple[str, ...],
    answer: str = "",
) -> Report:
    """A report of texts, one for each column."""
    keys = [column.key for column in columns]
    return Report(
        command=command,
        title=title,
        columns=tuple(columns),
        sections=tuple(tuple(dict(zip(keys, row, strict=True)) for row in rows) for rows in sections),
        models=(),
        notes=notes,
        answer=answer,
    )


def conventions() -> Report:
    """The counting conventions, topic by topic."""
    columns = (Column("topic", "topic"), Column("meaning", "convention"))
    notes = ("Add `-v` to a command to see what its answer counts.",)
    dtypes = ", ".join(units.DTYPES)
    rows = [(topic, text.format(dtypes=dtypes)) for topic, text in _texts("conventions.toml").items()]
    return table("conventions", "Counting conventions", columns, rows, notes=notes)


@cache
def pages() -> list[str]:
    """Names of the pages of the documentation."""
    return sorted(path.stem for path in packaged("docs").glob("*.md"))


def page(name: str) -> str:
    """The Markdown text of one page."""
    return (packaged("docs") / f"{name}.md").read_text(encoding="utf-8")


def titles() -> list[tuple[str, str]]:
    """The pages of the documentation, with their titles."""
    return [(name, page(name).partition("\n")[0].lstrip("# ")) for name in pages()]


def _pages(title: str, page: str, about: str, *rows: Iterable[Sequence[str]], note: str, answer: str = "") -> Report:
    """A report on pages of the documentation; `page` and `about` are the headers."""
    columns = (Column("page", page), Column("about", about))
    return table("docs", title, columns, *rows, notes=(note,), answer=answer)


def contents() -> Report:
    """The pages of the documentation, with their titles."""
    return _pages("Pages of the documentation", "page", "title", titles(), note="`tfacct help docs PAGE` prints one.")


def topics(named: Mapping[str, str]) -> Report:
    """The named topics, then the pages of the documentation."""
    note = "`tfacct help TOPIC` prints one; `tfacct help WORD` searches the documentation."
    return _pages("Topics of `tfacct help`", "topic", "meaning", named.items(), titles(), note=note)


def schemas() -> Report:
    """Names for `help schema NAME`, and what each answer contains."""
    from tfacct.reports.schema import KINDS, PAGES, TYPED

    about = {name: str(kind.__doc__).strip().partition("\n")[0] for name, kind in KINDS.items()}
    about |= {name: f"Rows of `tfacct {TYPED.get(name, name)}`." for name in PAGES}
    columns = (Column("name", "name"), Column("about", "answer"))
    note = "`tfacct help schema NAME` prints the schema of an answer. Its `x-options` is the schema of the options."
    return table("schemas", "JSON Schemas of options and answers", columns, about.items(), notes=(note,))


def _folded(words: str) -> str:
    """Words without case, hyphens and the plural."""
    return re.sub(r"[-_\s]+", " ", words.casefold()).strip().removesuffix("s")


def _names(text: str) -> list[str]:
    """The names of a term whose meaning this is."""
    return text.partition(":")[0].split(", ")


def meaning(words: str, option: str = "") -> str:
    """What a term, a metric, an `option` with its help, or a JSON key means; empty for others."""
    from tfacct.accounts.metrics import ALIASES, METRICS, STEP_METRICS
    from tfacct.reports.schema import meanings

    named = {_folded(name): text for word, text in terms().items() for name in (word, *_names(text))}
    if (term := named.get(_folded(words))) is not None:
        return term
    if words in ALIASES:
        return f"{words}: another name of the metric {ALIASES[words]}."
    metric, key = {**METRICS, **STEP_METRICS}.get(words), meanings().get(words)
    return f"{words}: {metric.about}" if metric else option or (f"{words}: {key}" if isinstance(key, str) else "")


def search(words: str, option: str = "") -> Report | None:
    """What `words` mean, perhaps as an `option`, and the sections of the documentation that mention them most often,
    those with the words in the title first; None for words without meaning or mention."""
    answer = meaning(words, option)
    spellings = "|".join(map(re.escape, filter(None, (words, words.replace("-", " "), *_names(answer)))))
    pattern = re.compile(rf"(?<![\w/.])(?:{spellings})(?![\w/])", re.IGNORECASE)
    found = []
    for name in pages():
        prose = re.sub(r"^```.*?^```", "", page(name), flags=re.MULTILINE | re.DOTALL)
        for text in re.split(r"^#+ ", prose, flags=re.MULTILINE)[1:]:
            title, _, body = text.partition("\n")
            mentions = len(pattern.findall(body))
            if mentions or pattern.search(title):
                found.append((pattern.search(title) is None, -mentions, len(body), name, title.replace("`", "")))
    if not found and not answer:
        return None
    rows = [(name, title) for *_, name, title in sorted(found)[:MOST_SECTIONS]]
    title, note = "No page has more.", "`tfacct help topics` lists the pages."
    if rows:
        title, note = f"{words!r} in the documentation", f"`tfacct help docs {rows[0][0]}` prints the page."
    return _pages(title, "page", "section", rows, note=note, answer=answer)


UNITS = {"flops": "FLOPs", "params": "parameters", "bytes": "bytes", "share": "share of 1", "ratio": "ratio"}


def metrics() -> Report:
    """All metrics, with name, unit and meaning.

    >>> metrics().rows[0]
    {'metric': 'total_flops', 'unit': 'FLOPs', 'about': 'FLOPs of one forward pass, or of one training step.'}
    """
    from tfacct.accounts.metrics import METRICS, OF_A_NAME, STEP_METRICS

    groups = (
        {name: (metric.unit, metric.about) for name, metric in METRICS.items()},
        {name: (metric.unit, metric.about) for name, metric in STEP_METRICS.items()},
        OF_A_NAME,
    )
    return table(
        "metrics",
        f"{len(METRICS) + len(STEP_METRICS)} metrics, and two for each matmul, part and component",
        (Column("metric", "metric"), Column("unit", "unit"), Column("about", "meaning")),
        *([(name, UNITS[unit], about) for name, (unit, about) in group.items()] for group in groups),
        notes=(
            f"{', '.join(STEP_METRICS)}: for a training step, as in `tfacct train`.",
            "NAME is an operation of `tfacct flops MODEL`, a part such as attn or mlp, or a component of its JSON.",
        ),
    )


def options(groups: Mapping[str, Mapping[str, str]]) -> Report:
    """Options as they are typed, by group, each with its help."""
    several = len(groups) > 1
    report = table(
        "options",
        "Options that several commands share" if several else f"Options of the group {next(iter(groups))}",
        (Column("group", "group"), Column("option", "option"), Column("about", "meaning")),
        *([(group, typed, about) for typed, about in named.items()] for group, named in groups.items()),
        notes=(
            "A comma separates values, so --ctx 16,384 is an error: write 16384 or 16k.",
            "`tfacct COMMAND --help-all` lists the options of one command.",
        ),
    )
    return report if several else replace(report, columns=report.columns[1:], aside=report.columns[:1])


def axes() -> Report:
    """Axes of the matmuls: those of a step, then those of each part of a model."""
    from tfacct.architecture import parts
    from tfacct.ledger.workload import AXES

    of_parts: dict[tuple[str, str], str] = {}
    for part in (kind for kind in vars(parts).values() if isinstance(kind, type) and issubclass(kind, parts.Part)):
        for axis in part.legend.items():
            of_parts.setdefault(axis, part.__name__)
    return table(
        "axes",
        "Axes of the matmuls",
        (Column("axis", "axis"), Column("about", "meaning"), Column("of", "first used in", drop=1)),
        [(axis, meaning, "a step") for axis, meaning in AXES.items()],
        [(*axis, part) for axis, part in of_parts.items() if axis not in AXES.items()],
        notes=("`tfacct formula MODEL` prints a model's formulas with these axes.",),
    )
