"""Profiles of engines: what each range of versions does at start, read from a TOML file each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from operator import or_
from pathlib import Path
from sys import maxsize
from types import MappingProxyType
from typing import Any

from tfacct.base.errors import NotFoundError, cut, nearest
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.loading import files

GIB, MIB = 2**30, 2**20


@record
class Engine:
    """An engine: facts of all versions, and its profiles in the order of their versions."""

    id: str
    facts: Mapping[str, Any]
    profiles: Sequence[Profile]

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    def profile(self, version: str | None = None) -> Profile:
        """The profile of a version, such as `0.19`, `v0.19.1` or `0.19.1rc1.dev50`; of the newest without one. Raises
        NotFoundError for one without a profile."""
        if version is None:
            return self.profiles[-1]
        prefix = self.facts["prefix"]
        pattern = rf"v?{re.escape(prefix)}(\d{{1,4}})(?:[.a-z+-].*)?"
        match = re.fullmatch(pattern, version.strip().lower(), re.ASCII)
        number = int(match[1]) if match else maxsize
        for one in self.profiles:
            if one.first <= number <= one.last:
                return one
        ends = [end for one in self.profiles for end in (one.first, one.last)]
        close = option("engine_version", f"{prefix}{min(ends, key=lambda end: abs(end - number))}")
        ranges = " to ".join(dict.fromkeys(self.profiles[end].versions for end in (0, -1)))
        raise NotFoundError(f"{self.name} {cut(version)} has no profile (known: {ranges})", f"the nearest is {close}")


@record
class Profile:
    """What a range of versions does at start."""

    prefix: str
    facts: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.facts:
            raise AttributeError(name)
        return self.facts[name]

    @property
    def versions(self) -> str:
        """The versions in words: `0.18–0.19`, `builds of 2025`."""
        if "words" in self.facts:
            return str(self.facts["words"])
        first, last = (f"{self.prefix}{number}" for number in (self.first, self.last))
        return first if first == last else f"{first}–{last}"

    @property
    def newest(self) -> str:
        """Its newest version: `0.19`."""
        return f"{self.prefix}{self.last}"

    def printed_tokens(self, tokens: int, concurrency: float, length: int) -> int:
        """Tokens that vLLM's log prints as the size of the cache: those of its blocks, or of its requests of this
        length, which it rounds down from a float, so that one may be lacking."""
        return tokens if self.tokens_line == "blocks" else int(concurrency * length)


def paths() -> dict[str, Path]:
    """Files of all engines, by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}


@cache
def engine(name: str) -> Engine:
    """Engine by its name. Raises NotFoundError, which suggests the nearest."""
    known = {re.sub("[^a-z]", "", one): one for one in paths()}
    found = known.get(re.sub("[^a-z]", "", name.lower()))
    if found is None:
        close = nearest(name.lower(), known.values()) or f"one of {', '.join(known.values())}"
        raise NotFoundError(f"unknown engine {cut(name)!r}", close)
    facts = files.parse_toml(str(paths()[found]), files.read(paths()[found]))
    each: Iterable[dict[str, Any]] = accumulate(facts.pop("profile"), or_)
    ends = ({**one, "first": one["versions"][0], "last": one["versions"][1]} for one in each)
    return Engine(found, MappingProxyType(facts), [Profile(facts["prefix"], MappingProxyType(one)) for one in ends])
