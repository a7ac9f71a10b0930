"""Pages of `help TOPIC`: conventions, metrics, axes, options and the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tfacct.base import units
from tfacct.loading.files import packaged
from tfacct.output.report import Column, Report

CONVENTIONS = {
    "FLOPs": "2 per multiply-add, matmuls only: an m × k by k × n matmul takes 2·m·k·n.",
    "attention": (
        "Every query attends to every key, T × S pairs, as an unfused kernel computes them. --masked counts only the"
        " pairs that the causal mask keeps. With a window of W, T × min(S, T + W − 1) pairs are counted."
    ),
    "logits": "Computed for every position. --logits last: for the last position only, as in the prefill of a server.",
    "training": "--train adds the backward pass, twice the forward one; --recompute full adds recomputation. The"
    " optimizer is not included.",
    "not included": "Norms, softmax, activations, rotary embeddings, additions and embedding look-ups: --pointwise"
    " lists them in elements, because the operations per element depend on the kernel.",
    "rule of thumb": "2·N·tokens, 6·N·tokens with --train. N: every parameter that a token uses, embeddings included.",
    "parameters": (
        "Every stored tensor once, a tied head with its embedding. Active parameters exclude the experts that a token"
        " does not use."
    ),
    "KV cache": (
        "Keys and values of all S tokens in every layer; in a window, of min(S, W) tokens; with latent attention"
        " (MLA), the latent; in layers with a fixed-size state, that state."
    ),
    "bytes": "Every tensor rounded up to whole bytes. KiB, MiB, GiB are powers of 1024; KB, MB, GB powers of 1000;"
    " --on 24G is 24 GB. A card sold as 24 GB has up to 24 GiB; torch reports 0.4–3% less than nvidia-smi.",
    "dtypes": (
        f"{', '.join(units.DTYPES)}. Default: as published if quantized, else bf16. A dtype below 16 bits applies to"
        " the weight matrices of the layers, with scales if the format has them; all other tensors and the cache stay"
        " in bf16."
    ),
    "memory": (
        "Weights and KV cache. No activations, engine buffers or fragmentation. With --on, serving can use 0.9 of a"
        " device's memory minus 2 GB, training all of it minus 2 GB (--use, --reserve)."
    ),
    "bytes moved": "--traffic: unfused kernels read each operand once and write each result once.",
    "context": "--ctx S is the context at the end of the step, new tokens included; 16k is 16,384.",
    "defaults": (
        "A field missing from the config gets the default of its transformers class, and is listed as defaulted."
    ),
}


TERMS = {
    "mla": "Multi-head latent attention: the KV cache has one short latent per token in place of keys and values.",
    "gqa": "Grouped-query attention: several query heads share one key/value head, so the KV cache is smaller.",
    "mqa": "Multi-query attention: all query heads share one key/value head.",
    "mha": "Multi-head attention: each query head has its own key/value head.",
    "moe": "Mixture of experts: a router sends each token to a few of the MLPs (experts) of a layer.",
    "flop": "FLOP: one floating-point operation. FLOPs: their number, 2 per multiply-add; FLOPS or FLOP/s: a rate.",
    "mac": "MAC: a multiply-add, which counts as 2 FLOPs.",
    "6nd": "Rule of thumb: training takes 6 FLOPs per parameter and token (2 forward, 4 backward), without attention.",
    "kv": "KV cache: keys and values of all earlier tokens, stored in every layer.",
    "ttft": "Time to first token: how long a server takes until a request's first new token.",
    "tpot": "Time per output token: how long a server takes for each further token of a request.",
    "lora": "Low-rank adaptation: only small matrices next to the frozen weights are trained.",
    "fsdp": "Fully sharded data parallelism: each rank stores a share of the weights, gradients and optimizer state.",
}
"""Abbreviations that `help` explains: the full name, then what it means."""
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
    return table("conventions", "Counting conventions", columns, CONVENTIONS.items(), notes=notes)


@cache
def pages() -> list[str]:
    """Names of the pages of the documentation."""
    return sorted(path.stem for path in packaged("docs").glob("*.md"))


def page(name: str) -> str:
    """The Markdown text of one page."""
    return (packaged("docs") / f"{name}.md").read_text(encoding="utf-8")


def section(name: str, title: str) -> str:
    """The Markdown text of one section of a page."""
    heading = f"## {title}\n"
    return heading + page(name).partition(heading)[2].partition("\n## ")[0]


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


def meaning(words: str) -> str:
    """What a term means; empty for others."""
    return TERMS.get(re.sub("[- ]cache$", "", words.casefold()), "")


def search(words: str) -> Report | None:
    """The sections of the documentation that mention `words` most often, those with the words in the title first; None
    if no page mentions them."""
    named = words.replace("-", " "), meaning(words).partition(":")[0]
    spellings = "|".join(map(re.escape, filter(None, (words, *named))))
    pattern = re.compile(rf"(?<![\w/.])(?:{spellings})(?![\w/])", re.IGNORECASE)
    found = []
    for name in pages():
        prose = re.sub(r"^```.*?^```", "", page(name), flags=re.MULTILINE | re.DOTALL)
        for text in re.split(r"^#+ ", prose, flags=re.MULTILINE)[1:]:
            title, _, body = text.partition("\n")
            mentions = len(pattern.findall(body))
            if mentions or pattern.search(title):
                found.append((pattern.search(title) is None, -mentions, name, title.replace("`", "")))
    if not found:
        return None
    best = sorted(found)[:MOST_SECTIONS]
    note = f"`tfacct help docs {best[0][2]}` prints the page."
    rows = [(name, title) for *_, name, title in best]
    return _pages(f"{words!r} in the documentation", "page", "section", rows, note=note, answer=meaning(words))


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
