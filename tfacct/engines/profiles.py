"""Profiles of engines: what each range of versions does at start, read from a TOML file each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from operator import or_
from pathlib import Path
from sys import maxsize
from typing import Any, TypeAlias

from tfacct.base.errors import NotFoundError, cut, nearest
from tfacct.base.spelling import option
from tfacct.loading import files

GIB, MIB = 2**30, 2**20
Profile: TypeAlias = Mapping[str, Any]
"""Facts of a range of versions of an engine, by the names of its TOML file, those of all versions too."""
ABSENT: Profile = {
    "batch": [[0, 0, 0]],
    "context": 0,
    "defaulted": [],
    "error": {},
    "images": {},
    "log_slack_gib": {},
    "not_described": [],
    "note": "",
    "small_cards": [],
    "split_limit": False,
    "starts": 0,
    "tokens_line": "blocks",
    "state_caching": {},
    "utilization": 0,
    "whole_requests": 0,
}
"""Facts that not every engine has."""


def names() -> list[str]:
    """Names of all engines."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))


@cache
def profiles(name: str) -> Sequence[Profile]:
    """Profiles of an engine in the order of their versions. Raises NotFoundError, which suggests the nearest name."""
    known = {re.sub("[^a-z]", "", one): one for one in names()}
    found = known.get(re.sub("[^a-z]", "", name.lower()))
    if found is None:
        close = nearest(name.lower(), known.values()) or f"one of {', '.join(known.values())}"
        raise NotFoundError(f"unknown engine {cut(name)!r}", close)
    file = Path(__file__).with_name(f"{found}.toml")
    facts = {**ABSENT, "id": found, **files.parse_toml(str(file), files.read(file))}
    every: list[Profile] = []
    for one in accumulate(facts.pop("profile"), or_):
        first, last = (f"{facts['prefix']}{number}" for number in one["versions"])
        every.append(facts | {"newest": last, "words": first if first == last else f"{first}–{last}"} | one)
    return every


def profile_of(name: str, version: str | None = None) -> Profile:
    """The profile of a version, such as `0.19`, `v0.19.1` or `0.19.1rc1.dev50`; of the newest without one. Raises
    NotFoundError for one without a profile."""
    every = profiles(name)
    if version is None:
        return every[-1]
    prefix = every[-1]["prefix"]
    match = re.fullmatch(rf"v?{re.escape(prefix)}(\d{{1,4}})(?:[.a-z+-].*)?", version.strip().lower(), re.ASCII)
    number = int(match[1]) if match else maxsize
    for one in every:
        if one["versions"][0] <= number <= one["versions"][1]:
            return one
    close = min((end for one in every for end in one["versions"]), key=lambda end: abs(end - number))
    known = dict.fromkeys(f"{prefix}{end}" for end in (every[0]["versions"][0], every[-1]["versions"][1]))
    problem = f"{every[-1]['name']} {cut(version)} has no profile (known: v{' to v'.join(known)})"
    raise NotFoundError(problem, f"the nearest is {option('engine_version', f'{prefix}{close}')}")


def printed_tokens(profile: Profile, tokens: int, concurrency: float, length: int) -> int:
    """Tokens that vLLM's log prints as the size of the cache: those of its blocks, or of its requests of this length,
    which it rounds down from a float, so that one may be lacking."""
    return tokens if profile["tokens_line"] == "blocks" else int(concurrency * length)
