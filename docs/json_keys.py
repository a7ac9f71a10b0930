"""The keys of every answer with their meanings, as docs/json.md lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from tfacct.reports.schema import KINDS, PAGES, TYPED, meaning, schema

ANSWER = ("schema", "command", "answer", "convention", "models", "models_skipped", "rows")
MODEL = ("model", "family", "set", "defaulted", "unknown", "left_out", "notes", "note_keys")
"""Keys of every answer, and of every model."""
Keys = Mapping[str, Any]
"""JSON Schemas of the values of an object, by key."""


def _record(about: Keys) -> str | None:
    """Name of the record that a value is, or that a list or map holds; None of a plain value."""
    if "$ref" in about:
        return str(about["$ref"]).rpartition("/")[2]
    inner = (about.get("items"), about.get("additionalProperties"), *about.get("anyOf", ()))
    return next((name for one in inner if one and (name := _record(one))), None)


class _Page:
    """All answers, and which of their keys several have with one meaning."""

    def __init__(self) -> None:
        self.answers: dict[str, Keys] = {}
        self.records: dict[str, Keys] = {}
        for name in KINDS:
            whole = schema(name)
            model = whole["properties"]["models"]["items"]["properties"]
            self.answers[name] = {key: about for key, about in model.items() if key not in MODEL}
            self.records |= {record: about["properties"] for record, about in whole.get("$defs", {}).items()}
        found: dict[str, list[Keys]] = {}
        for keys in chain(self.answers.values(), self.records.values()):
            for key, about in keys.items():
                found.setdefault(key, []).append(about)
        self.shared: dict[str, Keys] = {
            key: each[0]
            for key, each in sorted(found.items())
            if key != "lines" and len(each) > 1 and len({(one.get("description"), _record(one)) for one in each}) == 1
        }
        self.homes = {record: key for key, about in self.shared.items() if (record := _record(about))}

    def meaning(self, key: str, about: Keys, homes: Mapping[str, str]) -> str:
        """What a key means; then the keys of its object, in braces, or the key that has the same ones."""
        text = "" if key == "lines" else about.get("description", "")
        record = _record(about) or ""
        if homes.get(record, key) != key:
            return f"{text} {{as `{homes[record]}`}}".strip()
        inner = ", ".join(self._inner(one, its, homes) for one, its in self.records.get(record, {}).items())
        return f"{text} {{{inner}}}".strip() if inner else str(text)

    def _inner(self, key: str, about: Keys, homes: Mapping[str, str]) -> str:
        text = "" if key in self.shared else self.meaning(key, about, homes)
        return f"`{key}` {text}" if text.startswith("{") else f"`{key}` ({text})" if text else f"`{key}`"

    def common(self) -> Iterator[str]:
        """A table of the keys that several answers have."""
        yield from ("| key | meaning |", "|---|---|")
        for key, about in self.shared.items():
            if text := self.meaning(key, about, self.homes):
                yield f"| `{key}` | {text} |"

    def answer(self, name: str) -> Iterator[str]:
        """One answer: the keys that the table has or that need no words, then the others with their meanings."""
        homes = dict(self.homes)
        own: dict[str, str] = {}
        for key, about in self.answers[name].items():
            if key not in self.shared and (text := self.meaning(key, about, homes)):
                own[key] = text
                if record := _record(about):
                    homes.setdefault(record, key)
        about = " ".join((KINDS[name].__doc__ or "").split()).split(". ")[0].strip(".")
        plain = ", ".join(f"`{key}`" for key in self.answers[name] if key not in own and key != "lines")
        yield ". ".join(filter(None, (f"- {_named(name)}: {about}", plain)))
        yield from (f"  - `{key}`: {text}" for key, text in own.items())

    def rows(self, name: str) -> str:
        """The keys of an answer that is about no model."""
        keys = schema(name)["properties"]["rows"]["items"]["properties"]
        return f"- {_named(name)}: {', '.join(self._inner(key, about, {}) for key, about in keys.items())}"


def _named(name: str) -> str:
    """An answer's name, and its command line if it has another."""
    return f"**{name}** (`{TYPED[name]}`)" if name in TYPED else f"**{name}**"


def _table(keys: tuple[str, ...]) -> list[str]:
    return ["| key | meaning |", "|---|---|", *(f"| `{key}` | {meaning('', key)} |" for key in keys)]


def json_keys() -> str:
    """The keys of every answer, those of several, and each answer's own."""
    page = _Page()
    parts = {
        "Every answer": _table(ANSWER),
        "Every model": _table(MODEL),
        "Several answers": page.common(),
        "Each answer": chain.from_iterable(page.answer(name) for name in KINDS),
        "Rows of answers about no model": map(page.rows, PAGES),
    }
    return "\n".join("\n".join([f"## {title}", "", *lines, ""]) for title, lines in parts.items())
