"""`help` topics: what every number counts, and what `sweep` and `solve` can be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tfacct.base import units
from tfacct.output.report import Column, Report, Row

CONVENTIONS = {
    "FLOPs": "2 per multiply-add, matmuls only: an m × k by k × n matmul takes 2·m·k·n.",
    "attention": (
        "Every query attends to every key, T × S pairs, as an unfused kernel computes them. --masked counts only the"
        " pairs that the causal mask keeps. In a window of W, the T new tokens attend to T + min(S − T, W − 1) keys."
    ),
    "logits": "Computed for every position. --logits last: for the last position only, as in the prefill of a server.",
    "training": "--train adds the backward pass, twice the forward one; --recompute full adds recomputation. The"
    " optimizer is not included.",
    "not included": "Norms, softmax, activations, rotary embeddings, additions and embedding look-ups: --pointwise"
    " lists them in elements, because the operations per element depend on the kernel.",
    "rule of thumb": "2·params·tokens, or 6·params·tokens with --train; active parameters for models with experts.",
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


def conventions() -> Report:
    """Return what every number counts, topic by topic."""
    rows: tuple[Row, ...] = tuple({"topic": topic, "meaning": text} for topic, text in CONVENTIONS.items())
    return Report(
        command="conventions",
        title="Counting conventions",
        columns=(Column("topic", "topic"), Column("meaning", "convention")),
        sections=(rows,),
        models=(),
        notes=("Add `-v` to a command to see what its answer counts.",),
    )


@cache
def folder() -> Path:
    """The folder of the documentation: packed into the package, or next to it in a checkout."""
    package = Path(__file__).parent.parent
    packed = package / "_docs"
    return packed if packed.is_dir() else package.parent / "docs"


@cache
def pages() -> list[str]:
    """Names of the pages of the documentation."""
    return sorted(path.stem for path in folder().glob("*.md"))


def page(name: str) -> str:
    """The Markdown text of one page."""
    return (folder() / f"{name}.md").read_text(encoding="utf-8")


def contents() -> Report:
    """The pages of the documentation, with their titles."""
    rows = tuple[Row, ...]({"page": name, "about": page(name).partition("\n")[0].lstrip("# ")} for name in pages())
    return Report(
        command="docs",
        title="Pages of the documentation",
        columns=(Column("page", "page"), Column("about", "title")),
        sections=(rows,),
        models=(),
        notes=("`tfacct help docs PAGE` prints one.",),
    )


UNITS = {"flops": "FLOPs", "params": "parameters", "bytes": "bytes", "share": "share of 1", "ratio": "ratio"}


def metrics() -> Report:
    """Return every metric: its name, its unit and what it is.

    >>> metrics().rows[0]
    {'metric': 'total_flops', 'unit': 'FLOPs', 'about': 'FLOPs of one forward pass, or of one training step.'}
    """
    from tfacct.accounts.metrics import METRICS, OF_A_NAME, STEP_METRICS

    every, stepped = (
        {name: (metric.unit, metric.about) for name, metric in found.items()} for found in (METRICS, STEP_METRICS)
    )
    whole, step, named = (
        tuple[Row, ...]({"metric": name, "unit": UNITS[unit], "about": about} for name, (unit, about) in found.items())
        for found in (every, stepped, OF_A_NAME)
    )
    return Report(
        command="metrics",
        title=f"{len(METRICS) + len(STEP_METRICS)} metrics, and two for each matmul, part and component",
        columns=(Column("metric", "metric"), Column("unit", "unit"), Column("about", "meaning")),
        sections=(whole, step, named),
        models=(),
        notes=(
            f"{', '.join(STEP_METRICS)}: for a training step, as in `tfacct train`.",
            "NAME is an operation of `tfacct flops MODEL`, a part such as attn or mlp, or a component of its JSON.",
        ),
    )


def options(groups: Mapping[str, Mapping[str, str]]) -> Report:
    """Options as they are typed, by group, each with its help."""
    sections = tuple[tuple[Row, ...], ...](
        tuple({"group": group, "option": typed, "about": about} for typed, about in named.items())
        for group, named in groups.items()
    )
    several = len(groups) > 1
    return Report(
        command="options",
        title="Options that several commands share" if several else f"Options of the group {next(iter(groups))}",
        columns=(Column("group", "group"), Column("option", "option"), Column("about", "meaning")),
        sections=sections,
        models=(),
        notes=("`tfacct COMMAND --help-all` lists the options of one command.",),
    )


def axes() -> Report:
    """The axes of the matrix products: those of a step, then those of each part of a model."""
    from tfacct.architecture import parts
    from tfacct.ledger.workload import AXES

    found = dict.fromkeys(AXES.items(), "a step")
    for part in (kind for kind in vars(parts).values() if isinstance(kind, type) and issubclass(kind, parts.Part)):
        for axis in part.legend.items():
            found.setdefault(axis, part.__name__)
    first, second = (
        tuple[Row, ...](
            {"axis": axis, "about": meaning, "of": where}
            for (axis, meaning), where in found.items()
            if (where == "a step") == of_step
        )
        for of_step in (True, False)
    )
    return Report(
        command="axes",
        title="Axes of the matmuls",
        columns=(Column("axis", "axis"), Column("about", "meaning"), Column("of", "first used in", drop=1)),
        sections=(first, second),
        models=(),
        notes=("`tfacct formula MODEL` prints a model's formulas with these axes.",),
    )
