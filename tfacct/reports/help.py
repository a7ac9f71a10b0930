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
    "swa": "Sliding-window attention, window: a query attends to the last W tokens only; the cache has at most W.",
    "moe": "Mixture of experts: a router sends each token to a few of the MLPs (experts) of a layer.",
    "flop": "FLOP: one floating-point operation. FLOPs: their number, 2 per multiply-add; FLOPS or FLOP/s: a rate.",
    "mac": "MAC: a multiply-add, which counts as 2 FLOPs.",
    "6nd": "Rule of thumb: training takes 6 FLOPs per parameter and token (2 forward, 4 backward), without attention.",
    "mfu": "Model FLOPs utilization: FLOPs that the tokens need, divided by the peak of the devices in the same time.",
    "hfu": "Hardware FLOPs utilization: MFU that also counts recomputed FLOPs.",
    "kv": "KV cache: keys and values of all earlier tokens, stored in every layer.",
    "page": "Page, block of the cache: the unit in which an engine allocates the KV cache, such as 16 tokens.",
    "ttft": "Time to first token: how long a server takes until a request's first new token.",
    "tpot": "Time per output token: how long a server takes for each further token of a request.",
    "throughput": "Throughput: tokens per second of all requests together.",
    "latency": "Latency: how long a request, or one token of it, takes.",
    "requests": "Concurrent requests, concurrency: those that a server generates tokens for at the same time.",
    "prefill": "Prefill: the pass over all tokens of a prompt.",
    "decode": "Decode: a step with one new token for each sequence.",
    "chunked prefill": "Chunked prefill: a long prompt runs in several steps, which also decode other requests.",
    "roofline": "Roofline, lower bound: the least time that peak FLOP/s and memory bandwidth allow.",
    "estimate": "Estimate: a number from a fit to measured runs, marked with ≈. Counts are exact and have no mark.",
    "interval": "Interval: a range around an estimate; the 80% interval covered about 80% of the measured runs.",
    "error": "Measured error: how far estimates are from measured runs.",
    "lora": "Low-rank adaptation: only small matrices next to the frozen weights are trained.",
    "qlora": "QLoRA: LoRA next to frozen weights in 4 bits (nf4).",
    "activations": "Saved activations, activations saved for backward: tensors of the forward pass that the backward"
    " pass reads.",
    "optimizer": "Optimizer state: what the optimizer stores for each trained parameter; AdamW stores two numbers.",
    "bytes per parameter": "Bytes per parameter: weights + gradients + optimizer state of AdamW. All in bf16:"
    " 2 + 2 + 4 = 8. In fp32, or autocast over fp32 weights: 4 + 4 + 8 = 16. In bf16 with fp32 master weights, which"
    " take 4: 2 + 2 + 8 + 4 = 16.",
    "temporary": "Temporary memory, temporaries: tensors that exist only while one operation runs.",
    "gathered": "Gathered parameters: full weights of a layer, which FSDP collects from all ranks before the layer"
    " runs.",
    "phase": "Phase: a part of a training step, such as the loss or the backward pass of a layer.",
    "peak": "Peak memory: the largest memory of any phase of a training step.",
    "accumulate": "Gradient accumulation: the gradients of several micro-batches are added up before one optimizer"
    " step.",
    "micro-batch": "Micro-batch: the sequences that a device runs at once.",
    "global batch": "Global batch, global batch size: the sequences of an optimizer step on all devices.",
    "recompute": "Activation checkpointing, gradient checkpointing, recomputation: the backward pass runs parts of the"
    " forward pass again, so that fewer activations are saved.",
    "amp": "Mixed precision, autocast: weights in fp32, matmuls in bf16 or fp16.",
    "offload": "Offload, optimizer offload, activation offload: tensors are stored in the memory of the CPU.",
    "fsdp": "Fully sharded data parallelism: each rank stores a share of the weights, gradients and optimizer state.",
    "zero": "ZeRO: data-parallel ranks shard the optimizer state (stage 1), also gradients (2), also weights (3).",
    "tp": "Tensor parallelism: each rank stores a part of the weight matrices of every layer.",
    "pp": "Pipeline parallelism: each rank has some of the layers.",
    "dp": "Data parallelism: each rank has all weights, and its own sequences.",
    "ep": "Expert parallelism: each rank stores some of the experts.",
    "cp": "Context parallelism: each rank has a part of every sequence.",
    "sp": "Sequence parallelism: with tensor parallelism, each rank has a part of the tokens in norms and dropout.",
    "bubble": "Bubble: the time in which stages of a pipeline wait.",
    "rank": "Rank: one process of a parallel run, on one device.",
    "device": "Device: a GPU or another accelerator; `tfacct devices` lists them.",
    "node": "Node: one machine, with fast links between its devices.",
    "all-reduce": "All-reduce: each rank gets the sum of the tensors of all ranks.",
    "all-gather": "All-gather: each rank gets the shards of all ranks.",
    "reduce-scatter": "Reduce-scatter: each rank gets one shard of the sum of the tensors of all ranks.",
    "all-to-all": "All-to-all: each rank sends another part to each rank, such as tokens to their experts.",
    "p2p": "Send/recv: one rank sends a tensor to another, as the stages of a pipeline do.",
    "matmul": "Matmul, matrix product: m × k by k × n takes 2·m·k·n FLOPs.",
    "layer": "Layer: attention and an MLP, with their norms.",
    "mlp": "MLP, feed-forward: the sublayer after attention, matmuls with an activation between them.",
    "embedding": "Embedding: a vector for each token of the vocabulary. A look-up, no matmul.",
    "position": "Position embedding, learned position embedding: a vector for each position, added to the embedding.",
    "rope": "Rotary embedding, rotary dimensions: queries and keys are rotated by their position. No parameters.",
    "scores": "Attention scores: the products of each query with each key, T × S for each head.",
    "values": "Attention-weighted values: the sums of values, weighted by the softmax of the attention scores.",
    "residual": "Residual stream: the vector of each token, to which every sublayer adds its result.",
    "heads": "Query heads: each has its own attention scores. Key/value heads may be fewer (GQA, MQA).",
    "head size": "Head size, head_dim: the size of the vectors of a query and a key in one head.",
    "expert": "Expert: one of several MLPs of a layer. A token uses few of them.",
    "router": "Router, gate: the matmul that scores the experts for each token.",
    "shared expert": "Shared expert: an expert that every token uses.",
    "top-k": "Top-k: the number of experts that a token uses; in most configs num_experts_per_tok.",
    "encoder": "Image encoder, vision tower: the transformer that reads the images.",
    "projector": "Projector: the layers between an image encoder and the text model.",
    "quantization": "Quantized weights: weights in 8 bits or fewer, with scales.",
    "scales": "Scales: the factors of quantized weights, one for each group.",
    "zero points": "Zero points: the offsets of quantized weights, one for each group.",
    "group size": "Group size: the number of quantized weights that share a scale.",
    "published": "Published as, as published: the dtype of the published files; `tfacct help counting` has the default"
    " of --dtype.",
    "axis": "Axis, dimension: a letter of an einsum spec, such as T for new tokens; `tfacct help axes` lists them.",
    "einsum": "Einsum spec: the axes of a matmul, such as `B T D, D F -> B T F`. FLOPs: 2 × the product of its axes.",
    "reference": "Reference model: the model in PyTorch that `tfacct verify` compares the counts with.",
    "cross-check": "Cross-check: a count by other code, such as fvcore or transformers, which must be equal.",
    "proof": "Proof by symbolic shapes: `tfacct verify --prove` compares two counts in symbols, for all sizes.",
    "unsupported": "Unsupported: an error names what is not supported; `tfacct help support` lists it.",
    "not included": "Not included: `tfacct help counting` lists what answers leave out.",
}
"""Terms that `help` explains, and short forms of them: names of the term, then what it means."""
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

    terms = {_folded(name): text for word, text in TERMS.items() for name in (word, *_names(text))}
    if (term := terms.get(_folded(words))) is not None:
        return term
    if words in ALIASES:
        return f"{words}: another name of the metric {ALIASES[words]}."
    metric, key = {**METRICS, **STEP_METRICS}.get(words), meanings().get(words)
    return f"{words}: {metric.about}" if metric else option or (f"{words}: {key}" if isinstance(key, str) else "")


def glossary() -> Report:
    """The terms, in alphabetical order."""
    rows = sorted(
        ((_names(text)[0], text.partition(": ")[2]) for text in TERMS.values()), key=lambda row: row[0].lower()
    )
    columns = (Column("topic", "term"), Column("meaning", "meaning"))
    return table("conventions", "Terms", columns, rows, notes=("`tfacct help TERM` lists the pages that use one.",))


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
    note = f"`tfacct help docs {rows[0][0]}` prints the page." if rows else "`tfacct help topics` lists the pages."
    return _pages(f"{words!r} in the documentation", "page", "section", rows, note=note, answer=answer)


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
