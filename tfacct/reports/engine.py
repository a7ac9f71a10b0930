"""What a serving engine allocates and prints at start: an answer to one launch line, and the list of engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Any, Literal, NamedTuple, TypedDict

from tfacct.base.spelling import option
from tfacct.engines import launch as launches
from tfacct.engines import simple_start as simple
from tfacct.engines.launch import Change, Launch, RankStart, Refusal
from tfacct.engines.logs import Figure
from tfacct.engines.profiles import engine, paths
from tfacct.engines.units import GIB
from tfacct.engines.vllm import Term
from tfacct.output.answer import Answer, answers
from tfacct.output.report import Amount, Column, NoteRow, Report, Row, Table, notes
from tfacct.reports import build

CONVENTION = "bytes of one card, of the rank whose pool is the smallest, at the end of the engine's start-up"


class EngineTerm(TypedDict):
    """A term of the memory of a card; `low_bytes` and `high_bytes`: what was seen, or may be; None if not known."""

    what: str
    bytes: int
    kind: Literal["exact", "estimate"]
    low_bytes: int | None
    high_bytes: int | None
    source: str


class EngineGroup(TypedDict):
    """Layers of a kind, and their pages."""

    kind: Literal["full", "window", "chunk", "state"]
    layers: int
    page_bytes: int
    pages_per_request: int


class EngineInterval(TypedDict):
    """Tokens of the cache at 9 of 10 measured starts; errors of their tokens, as shares, and the versions of all."""

    low: int
    high: int
    starts: int
    versions: str
    median: float
    p90: float
    worst: float


class CheaperFlag(TypedDict):
    """A flag that leaves more tokens."""

    flag: str
    value: str
    kv_cache_tokens: int


class EngineReport(build.ModelReport):
    """What an engine allocates for a launch line, and what its log says."""

    engine: str
    engine_version: str
    device: str
    devices: int
    starts: bool
    reason: str | None
    launch: str
    log_lines: list[str]
    max_model_len: int
    kv_cache_tokens: int | None
    max_concurrency: float | None
    pool_bytes: int | None
    weights_bytes: int | None
    activation_peak_bytes: int | None
    activation_peak_from: Literal["sampler", "layer"] | None
    outside_bytes: int | None
    graphs_bytes: int | None
    requested_bytes: int | None
    total_memory_bytes: int
    blocks: int | None
    block_size: int | None
    groups: list[EngineGroup]
    terms: list[EngineTerm]
    interval: EngineInterval | None
    cheaper: list[CheaperFlag]
    ranks: int
    log: list[LogLine] | None


class LogLine(TypedDict):
    """A figure of a log next to what was computed: bytes, tokens or requests."""

    what: str
    printed: float
    computed: float
    agrees: bool


CAUSES = {
    "weights": "another format or config than the model's",
    "activations": "another sampler (FlashInfer installed, or its variable set), or another version",
    "outside": "another process on the card, another driver, or other cards",
    "pool": "memory in use at start, or another utilization",
    "tokens": "another dtype of the cache, or another size of blocks",
    "concurrency": "another longest request",
}
"""Figures of a log in the order of the start, and likely causes where one differs."""
SLACK = {"weights": GIB // 33, "activations": GIB // 50, "outside": GIB // 10, "pool": GIB // 7}
"""Bytes that a figure may be off, beyond the rounding of the log. Tokens and requests: the share of their
pool, or 1% where the log has no pool."""


class About(NamedTuple):
    """A launch, and what was found of it: nothing where the engine refuses its flags. `simple`: of SGLang or
    llama.cpp. `flags`: found for a number of requests. `compared`: with a log."""

    launch: Launch
    hub_id: str
    found: RankStart | None
    refusal: Refusal | None
    changes: Sequence[Change]
    simple: simple.SimpleStart | None = None
    flags: tuple[str, ...] = ()
    compared: bool = False

    @property
    def measured(self) -> bool:
        """True if the error of the tokens was measured on such starts."""
        found, launch = self.found, self.launch
        like_measured = found is not None and found.outside.kind == "estimate" and bool(launch.profile.starts)
        return like_measured and launch.flags.pp == 1 and launch.like_measured and not self.exact

    @property
    def exact(self) -> bool:
        """True if the pool was given."""
        return self.launch.flags.kv_cache_memory_bytes is not None


@answers(EngineReport)
def engine_start(
    launch: Launch, *, hub_id: str, requests: int | None = None, figures: Mapping[str, Figure] | None = None
) -> Report:
    """What vLLM allocates for a launch. `requests`: how many must have room at once. `figures`: those of a log, to be
    compared. Raises UsageError for what is not derived."""
    launches.check_supported(launch)
    launches.check_pages(launch)
    refused = launches.refusal(launch)
    given = launch.flags
    if refused is None and requests is not None:
        launch = launches.for_requests(launch, requests)
    found = None if refused is not None else launch.fullest()
    if found is not None:
        refused = launches.out_of_memory(launch, found)
    changes = [] if found is None or refused is not None else launches.changes(launch, found)
    asked = ("gpu_memory_utilization", "max_model_len", "max_num_seqs", "tp")
    found_flags = {name: getattr(launch.flags, name) for name in asked}
    flags = [option(name, str(value)) for name, value in found_flags.items() if value != getattr(given, name)]
    about = About(launch, hub_id, found, refused, changes, flags=tuple(flags))
    computed = {} if found is None else _figures(launch, found)
    return _report(about, list(_terms(launch, found)), _pool(found), _facts(about), _answer(about), computed, figures)


@answers(EngineReport)
def simple_start(launch: Launch, *, hub_id: str, figures: Mapping[str, Figure] | None = None) -> Report:
    """What SGLang or llama.cpp allocates, by a formula that was hardly measured. Raises UsageError."""
    start = STARTS[launch.engine.id](launch, hub_id)
    each = start.bytes
    reason = None
    if start.missing > 0:
        lacking = f"{launch.length:,} tokens lack" if start.tokens else "no memory is left for the cache; it lacks"
        reason = f"{lacking} {start.missing / GIB:.1f} GiB"
    short = f", too few for a request of {launch.length:,}" if start.tokens < launch.length else ""
    answer = f"Starts: ≈ {start.tokens:,} tokens of KV cache{short} (formula, not measured)."
    if launch.flags.max_model_len is not None and start.tokens == launch.length:  # as many as were asked for
        answer = f"Starts: a cache of {start.tokens:,} tokens fits, {-start.missing / GIB:.1f} GiB stay free (formula)."
    if reason is not None:
        instead = "Use a shorter context or narrower weights" if start.tokens else "Use more cards"
        answer = f"Does not start: {reason}. {instead}."
    facts = {
        "starts": reason is None,
        "reason": reason,
        "launch": start.launch_line,
        "log_lines": [start.log_line] if reason is None else [],
        "kv_cache_tokens": start.tokens,
        "max_concurrency": start.tokens / launch.length,
        "pool_bytes": start.pool if start.tokens else None,
        "weights_bytes": each["weights"],
        "activation_peak_bytes": each.get("compute buffer"),
        "outside_bytes": each["CUDA context"],
    }
    computed = {"weights": each["weights"], "pool": start.pool, "tokens": start.tokens}
    if "compute buffer" in each:
        computed["activations"] = each["compute buffer"]
    total: Row | None = {"what": "KV cache", "bytes": start.pool, "source": f"{start.tokens:,} tokens"}
    total = total if start.tokens else None
    about = About(launch, hub_id, None, None, [], start)
    return _report(about, start.terms, total, facts, answer, computed, figures)


STARTS = {"sglang": simple.sglang, "llama.cpp": simple.llama_cpp}
"""What is known of an engine's start, by its name."""


def _report(
    about: About,
    terms: Sequence[Term],
    total: Row | None,
    facts: Mapping[str, Any],
    answer: str,
    computed: Mapping[str, float],
    figures: Mapping[str, Figure] | None,
) -> Report:
    """The report of a start: its terms, or the figures of a log next to what was `computed`."""
    launch = about.launch
    log = [] if figures is None else list(_next_to(computed, figures))
    if figures is not None and not log:
        answer = f"{answer} Nothing was compared: the log has no figure that is computed."
    about = about._replace(compared=bool(log))
    cards = launch.device.several(launch.flags.tp * launch.flags.pp)
    every = {
        "engine": launch.engine.id,
        "engine_version": launch.profile.newest,
        "device": launch.device.id,
        "devices": launch.flags.tp * launch.flags.pp,
        "max_model_len": launch.length,
        "total_memory_bytes": launch.total,
        "terms": list(map(_term, terms)),
        "groups": [],
        "cheaper": [],
        "ranks": launch.flags.pp,
        "log": log or None,
    }
    return build.report(
        "engine",
        [launch.model],
        _log_table(log) if log else _table(terms, total),
        [{**every, **facts}],
        title=f"{build.label(launch.model)} in {launch.engine.name} {launch.profile.versions} on {cards}",
        convention=CONVENTION,
        answer=_log_answer(log) if log else answer,
        notes=lambda _: notes(NOTES if about.simple is None else SIMPLE_NOTES, about),
    )


def _figures(launch: Launch, found: RankStart) -> dict[str, float]:
    """What is computed of the figures of a log."""
    weights = {} if found.weights is None else {"weights": found.weights.total}
    return {
        **weights,
        "activations": found.peak.bytes,
        "outside": found.outside.bytes,
        "pool": found.pool,
        "tokens": launch.tokens(found.pages),
        "concurrency": found.pages.concurrency,
    }


def _next_to(computed: Mapping[str, float], figures: Mapping[str, Figure]) -> Iterator[LogLine]:
    slack: dict[str, float] = dict(SLACK)
    if "pool" in figures and computed.get("pool", 0) > 0:  # tokens may be off by as much as their pool
        share = (SLACK["pool"] + figures["pool"].rounding) / computed["pool"]
        slack |= {what: share * computed[what] for what in ("tokens", "concurrency") if what in computed}
    for what in CAUSES:
        if what in computed and what in figures:
            printed, rounding = figures[what]
            agrees = abs(printed - computed[what]) <= rounding + slack.get(what, printed / 100)
            yield {"what": what, "printed": printed, "computed": computed[what], "agrees": agrees}


def _log_answer(log: Sequence[LogLine]) -> str:
    """The first figure that differs, and the likely cause."""
    first = next((one for one in log if not one["agrees"]), None)
    if first is None:
        return f"The log agrees with all {len(log)} figures that were computed."
    what, share = first["what"], first["printed"] / first["computed"] - 1 if first["computed"] else 1
    return f"{what} is the first figure that differs, by {100 * share:+.1f}%: {CAUSES[what]}?"


def _log_table(log: Sequence[LogLine]) -> Table:
    def amount(what: str, value: float) -> Amount:
        return Amount(Fraction(round(value, 2)), "bytes" if what in SLACK else "number")

    rows: list[Row] = [
        {
            "what": one["what"],
            "printed": amount(one["what"], one["printed"]),
            "computed": amount(one["what"], one["computed"]),
            "verdict": "ok" if one["agrees"] else "DIFFERS",
        }
        for one in log
    ]
    columns = (
        Column("what", "figure"),
        Column("printed", "printed", "amount"),
        Column("computed", "computed", "amount"),
        Column("verdict", "", "verdict"),
    )
    return columns, (tuple(rows),), ()


def _answer(about: About) -> str:
    launch, found = about.launch, about.found
    if about.refusal is not None:
        return f"Does not start: {about.refusal.reason}. {about.refusal.instead}"
    assert found is not None
    almost, error = ("", "tokens exact") if about.exact else ("≈ ", "error not measured")
    if about.measured:
        measured = launch.engine.facts["error"]
        worst = f"worst {100 * measured['worst']:.1f}% of {measured['starts']} starts, {measured['versions']}"
        error = f"p90 {100 * measured['p90']:.2f}%, {worst}"
    flags = f" with {' '.join(about.flags)}" if about.flags else ""
    tokens = f"{almost}{launch.tokens(found.pages):,} tokens of KV cache"
    requests = floor(10 * found.pages.concurrency) / 10
    return f"Starts{flags}: {tokens}, {requests:,.1f} requests of {launch.length:,} ({error})."


def _terms(launch: Launch, found: RankStart | None) -> Iterator[Term]:
    """What is requested of a card, and what is subtracted from it."""
    share = f"{launch.utilization:g} of {launch.total / GIB:.2f}, torch's total"
    yield Term("requested", launch.requested, share)
    if found is None or found.weights is None:
        return
    of, weights, outside = launch.sizes, found.weights, found.outside
    more = {"cos and sin": weights.rotary, "W_UK and W_UV": weights.absorbed}
    parts = [f"parameters {weights.parameters / GIB:.2f}"]
    parts += [f"{name} {size / GIB:.2f}" for name, size in more.items() if size >= GIB // 200]
    yield Term("weights", weights.total, ", ".join(parts), sure=launch.derived)
    inside = f"sampler: {launch.seqs:,} rows × {of.vocab:,} logits"
    if found.peak.source == "layer":
        inside = f"a layer of {launch.batched:,} tokens"
    yield Term("activations at start", found.peak.bytes, inside, sure=launch.derived)
    measured = (
        f"{outside.starts} start{'' if outside.starts == 1 else 's'}: {outside.low / GIB:.2f}–{outside.high / GIB:.2f}"
    )
    measured += f", {outside.only}" if outside.only else ""
    unmeasured = f"no start of {launch.profile.newest} on such cards was measured"
    yield Term("outside torch", outside.bytes, measured if outside.starts else unmeasured, outside)
    if found.graphs is not None:
        yield Term("CUDA graphs", found.graphs.bytes, f"{of.layers} layers", found.graphs)


def _term(term: Term) -> EngineTerm:
    """A term as in the JSON."""
    return {
        "what": term.what,
        "bytes": term.bytes,
        "kind": term.kind,
        "low_bytes": term.low,
        "high_bytes": term.high,
        "source": term.how,
    }


def _pool(found: RankStart | None) -> Row | None:
    if found is None or found.pool <= 0:
        return None
    groups = f" × {found.pages.group_count} groups" if found.pages.group_count > 1 else ""
    blocks = f"{found.pages.blocks:,} blocks of {found.pages.block_size} tokens{groups}"
    return {"what": "pool", "bytes": found.pool, "source": blocks}


def _table(terms: Sequence[Term], total: Row | None) -> Table:
    rows: list[Row] = [{"what": one.what, "bytes": one.bytes, "source": one.how, "kind": one.kind} for one in terms]
    columns = (
        Column("what", "what"),
        Column("bytes", "GiB", "bytes", unit="GiB"),
        Column("source", "how"),
        Column("kind", ""),
    )
    return columns, (tuple(rows),), () if total is None else (total,)


def log_lines(about: About) -> list[str]:
    """Lines of the log that say how much cache there is."""
    launch, found = about.launch, about.found
    if found is None or about.refusal is not None:
        return []
    return [
        f"GPU KV cache size: {launch.tokens(found.pages):,} tokens",
        f"Maximum concurrency for {launch.length:,} tokens per request: {found.pages.concurrency:.2f}x",
    ]


def _cheaper(about: About) -> str:
    if not about.changes or about.found is None or about.exact or about.refusal is not None:
        return ""
    one, now = about.changes[0], about.launch.tokens(about.found.pages)
    return f"{one.flag} {one.value}".strip() + f" adds {one.tokens - now:,} tokens; {one.cost}."


def _other_changes(about: About) -> list[str]:
    if about.found is None or about.exact or about.refusal is not None:
        return []
    now = about.launch.tokens(about.found.pages)
    return [
        f"{one.flag} {one.value}".strip() + f": {one.tokens - now:,} tokens more; {one.cost}."
        for one in about.changes[1:]
    ]


def _not_measured(about: About) -> str:
    if about.found is None or about.measured or about.exact:
        return ""
    return f"{about.launch.engine.facts['error']['versions']} on 1, 2 and 4 × H100 SXM, in bf16, fp16 or fp8"


def _images(about: About) -> str:
    images = about.launch.images()
    return "" if images is None else f"{images.items} dummy images of {images.tokens:,} tokens"


def _half(about: About) -> str:
    """The card, where it has the engine take fp16."""
    launch = about.launch
    return launch.device.name if launch.value_dtype == "fp16" and not launch.value_given else ""


NOTES = (
    NoteRow("launch", 1, lambda about: launches.launch_line(about.launch, about.hub_id)),
    NoteRow("log", 1, lambda about: not about.compared and "; ".join(log_lines(about)[:1]), "The log will say: {}"),
    NoteRow("cheaper", 1, _cheaper),
    NoteRow("not_measured", 2, _not_measured, "The error was measured only with {}."),
    NoteRow("half", 2, _half, "Activations are in float16: {} has no bfloat16."),
    NoteRow("images", 2, _images, "The activations include {}."),
    NoteRow("total", 2, lambda about: about.launch.device.memory_words, "Memory of a card: {}."),
    NoteRow(
        "concurrency", 3, lambda about: not about.compared and "; ".join(log_lines(about)[1:]), "It will also say: {}"
    ),
    NoteRow("changes", 3, _other_changes),
)


def _simple_log(about: About) -> str:
    """What SGLang's or llama.cpp's log will have; empty next to a log, and where it does not start."""
    start = about.simple
    return "" if start is None or about.compared or start.missing > 0 else start.log_line


SIMPLE_NOTES = (
    NoteRow("launch", 1, lambda about: about.simple.launch_line),
    NoteRow("log", 1, _simple_log, "The log will say: {}"),
    NoteRow("formula", 2, bool, "The formula is from the engine's source; its error was not measured."),
    NoteRow("release", 2, lambda about: about.launch.profile.facts.get("note")),
)


def _facts(about: About) -> dict[str, Any]:
    launch, found = about.launch, about.found
    facts: dict[str, Any] = {
        "starts": about.refusal is None,
        "reason": None if about.refusal is None else about.refusal.reason,
        "launch": launches.launch_line(launch, about.hub_id),
        "log_lines": log_lines(about),
        "requested_bytes": launch.requested,
        "cheaper": [{"flag": one.flag, "value": one.value, "kv_cache_tokens": one.tokens} for one in about.changes],
    }
    if found is None:
        return facts
    pages, tokens, interval = found.pages, launch.tokens(found.pages), None
    if about.measured:
        measured = launch.engine.facts["error"]
        error = round(tokens * measured["p90"])
        interval = {"low": tokens - error, "high": tokens + error, **measured}
    return {
        **facts,
        "kv_cache_tokens": tokens,
        "max_concurrency": pages.concurrency,
        "pool_bytes": found.pool if found.pool > 0 else None,
        "weights_bytes": None if found.weights is None else found.weights.total,
        "activation_peak_bytes": found.peak.bytes,
        "activation_peak_from": found.peak.source,
        "outside_bytes": found.outside.bytes,
        "graphs_bytes": 0 if found.graphs is None else found.graphs.bytes,
        "blocks": pages.blocks,
        "block_size": pages.block_size,
        "groups": [{key: getattr(one, key) for key in EngineGroup.__annotations__} for one in pages.groups],
        "interval": interval,
    }


@answers(Answer)
def engines() -> Report:
    """The engines, their versions, and the measured error of their tokens."""
    rows: list[Row] = []
    for name in paths():
        found = engine(name)
        for profile in found.profiles:
            starts = profile.facts.get("starts")
            measured = found.facts["error"] if starts else {}
            rows.append(
                {
                    "engine": name,
                    "versions": profile.versions,
                    "read": ", ".join(profile.read),
                    "error": Fraction(str(measured["p90"])) if measured else None,
                    "worst": Fraction(str(measured["worst"])) if measured else None,
                    "starts": starts or None,
                }
            )
    columns = (
        Column("engine", "engine"),
        Column("versions", "versions"),
        Column("error", "error of tokens", "share", empty="not measured"),
        Column("worst", "worst", "share", empty="–", drop=2),
        Column("starts", "starts", "count", empty="–", drop=1),
        Column("read", "source read", drop=3),
    )
    return Report(
        command="engines",
        title=f"{len(paths())} engines",
        columns=columns,
        sections=(tuple(rows),),
        models=(),
        notes=(
            "Error: the 90th percentile over all measured starts (all versions, H100s). "
            "`tfacct engine NAME MODEL --on DEVICE` computes one launch.",
        ),
    )
