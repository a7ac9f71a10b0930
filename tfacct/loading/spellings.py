"""Other names of presets: hub ids, addresses of their pages, and common spellings.

They come from the presets' files: `url`, the page of the model; `also`, other names of the same model; `hub`, ids of
other models with configs of the same sizes. Matching is exact, except for case.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote

from tfacct import families
from tfacct.base.units import DTYPES
from tfacct.loading import presets

MAIN = "main"
"""The revision of presets."""

_HOST = r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/"
_REST = r"(?:/(?:tree|blob|resolve|raw)/([^/?#]+)(?:/config\.json)?)?/?(?:[?#].*)?"
_PAGE = re.compile(rf"{_HOST}([^/@?#\s]+(?:/[^/@?#\s]+)?){_REST}", re.IGNORECASE)


_FORMAT = re.compile(
    r"[-_.](?:awq|gptq|gguf|exl\d|hqq|bnb|aqlm|vptq|mlx|auto-?round|torchao|quant(?:ized)?|bitsandbytes"
    r"|(?:mx|nv)?(?:fp|int|nf)[1-8](?!\d)|w\d{1,2}a\d|i?q[1-8](?![\da-z])|\d(?:\.\d+)?[-_]?(?:bits?|bpw))",
    re.IGNORECASE,
)
"""Pattern for quantization formats in a name: `-AWQ`, `-Int4`, `.w4a16`."""

_TUNED = re.compile(r"-(?:instruct|chat|it)$", re.IGNORECASE)
"""Pattern for the end of a tuned model's name."""

_VERSION = re.compile(r"(.+-\d[\d.]*[bm])-v\d+\.\d+")
"""Pattern for a name that ends in a size and a version: mistral-7b-v0.3."""


class Preset(NamedTuple):
    """Preset for another name."""

    name: str
    itself: bool
    """True if it is the same model; else its config has the same sizes."""
    without: tuple[str, ...] = ()
    """Configs of other models in that name's file, which the preset excludes."""
    versions: tuple[str, ...] = ()
    """Presets of all versions, if the name has none."""


def hub_id(address: str) -> str | None:
    """Hub id in the address of a page, with its revision unless that is main; None for other text.

    >>> hub_id("https://huggingface.co/Qwen/Qwen2-7B/blob/main/config.json"), hub_id("hf.co/gpt2"), hub_id("gpt2")
    ('Qwen/Qwen2-7B', 'gpt2', None)
    >>> hub_id("https://huggingface.co/Qwen/Qwen2-7B/tree/refs%2Fpr%2F3")
    'Qwen/Qwen2-7B@refs/pr/3'
    """
    match = _PAGE.fullmatch(address.strip())
    if match is None:
        return None
    revision = unquote(match[2] or MAIN)
    return match[1] if revision == MAIN else f"{match[1]}@{revision}"


def names_format(name: str) -> bool:
    """True if a name contains a quantization format, so that a preset with other weights does not match.

    >>> [names_format(f"owner/model-7b{end}") for end in ("-AWQ", "-4bit", "-it.w4a16", "-FP8-dynamic", "-Q4_K_M")]
    [True, True, True, True, True]
    >>> [names_format(f"owner/model{end}") for end in ("-7b", "-q", "-int16", "-BF16", "-0.6B-base", "-v0.3")]
    [False, False, False, False, False, False]
    """
    return _FORMAT.search(name) is not None


def without_format(name: str) -> tuple[Preset | None, str]:
    """Preset for the name of quantized weights without their format, or for its base model, and the format if it is one
    of `--dtype`, else "".

    >>> [(found and found.name, dtype) for found, dtype in map(without_format, ("Qwen/Qwen3-32B-AWQ", "owner/my-GGUF"))]
    [('qwen3-32b', 'awq'), (None, '')]
    >>> [without_format(f"Qwen/Qwen2.5-72B-Instruct-{end}")[1] for end in ("GPTQ-Int4", "GPTQ-Int8", "FP8")]
    ['gptq', '', 'fp8']
    """
    match = _FORMAT.search(name)
    assert match is not None
    dtype = name[match.start() + 1 :].casefold().removesuffix("-int4")
    stem = name[: match.start()].rpartition("/")[2]
    return preset(stem) or preset(_TUNED.sub("", stem)), dtype if dtype in DTYPES else ""


def preset(name: str) -> Preset | None:
    """Preset for a name, ignoring case; None if there is none."""
    return _index().get(name.strip().casefold().replace(":", "-"))  # a colon as in llama3.1:8b


@cache
def _index() -> dict[str, Preset]:
    """All other names, in lowercase. This reads all presets, so it is only built for a name that no preset has."""
    found = {name.casefold(): Preset(name, itself=True) for name in presets.names()}
    short: dict[str, Preset] = {}
    versions: dict[str, list[str]] = {}
    for name in presets.names():  # sorted
        if version := _VERSION.fullmatch(name):
            versions.setdefault(version[1], []).append(name)
        source = presets.source(name)
        page = hub_id(source.get("url", ""))
        without = tuple(source.get("without", ()))
        ids = {
            **dict.fromkeys(source.get("hub", ()), False),
            **dict.fromkeys([*source.get("also", ()), *([page] if page else [])], True),
        }
        for other, itself in ids.items():
            of = Preset(name, itself, without)
            found.setdefault(other.casefold(), of)
            short.setdefault(other.rpartition("/")[2].casefold(), of)
        if without:  # gemma-3-4b for gemma-3-4b-text
            short.setdefault(name.removesuffix("-text"), Preset(name, itself=True, without=without))
    for name, every in versions.items():
        if len(every) > 1:
            short.setdefault(name, Preset(every[-1], itself=True, versions=tuple(every)))
    # Also names without the owner, unless they are the name of a preset or family.
    return {**{other: of for other, of in short.items() if other not in families.names()}, **found}
