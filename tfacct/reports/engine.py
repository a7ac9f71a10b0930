"""What a serving engine allocates and prints at start: an answer to one launch line, and the list of engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypedDict

from tfacct.architecture.parts import LatentAttention
from tfacct.base.errors import UsageError, listed
from tfacct.base.spelling import option
from tfacct.engines import advice, llama_cpp, logs, sglang, vllm
from tfacct.engines.advice import CheaperFlag
from tfacct.engines.launch import Launch, launch_of, line, typed_flags
from tfacct.engines.logs import Figure
from tfacct.engines.pages import Kind
from tfacct.engines.profiles import GIB, names, profiles
from tfacct.engines.start import EngineTerm, Start, check
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import Answer
from tfacct.output.keys import Keys, values_of
from tfacct.output.report import Amount, Column, NoteRow, Row, Table, notes
from tfacct.reports import build

CONVENTION = "bytes of one card, of the rank whose pool is the smallest, at the end of the engine's start-up"


class EngineInterval(TypedDict):
    """Tokens of the cache at 9 of 10 measured starts; errors of their tokens, as shares, and the versions of all."""

    low: int
    high: int
    starts: int
    versions: str
    median: float
    p90: float
    worst: float


class EngineGroup(TypedDict):
    """Layers of a kind, and their pages."""

    kind: Kind
    layers: int
    page_bytes: int
    pages_per_request: int


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
    "pool": "another utilization, or another process on the card",
    "tokens": "another version, or another size of blocks",
    "concurrency": "another longest request",
}
"""Figures of a log in the order of the start, and likely causes where one is the first that differs."""
SLACK = {"weights": GIB // 33, "activations": GIB // 50, "outside": GIB // 10, "pool": GIB // 7}
"""Bytes that a figure may be off, beyond the rounding of the log. Tokens and requests: the share of their
pool, or 1% where the log has no pool."""

OTHERS: Mapping[str, ModuleType] = {"sglang": sglang, "llama.cpp": llama_cpp}
"""`unsupported` and `start` of engines of which nothing is searched for."""
NOT_IN_THE_LINE = ("on", "log", "engine_version", "total_memory", "tp", "pp")
"""Options that no engine's launch line has, or whose values are refused by another name."""


class About(NamedTuple):
    """A start. `line`: the command of its launch, or of one that starts instead, if one is known. `changes`: flags that
    leave more tokens, each with a sentence. `log`: figures next to what was computed."""

    start: Start
    line: str | None
    changes: Sequence[tuple[CheaperFlag, str]] = ()
    log: Sequence[LogLine] = ()

    @property
    def launch(self) -> Launch:
        return self.start.launch

    @property
    def terms(self) -> list[Any]:
        """Terms in the table; of a pool that is given, only the weights and what the engine takes in all."""
        names = ("requested", "weights") if self.launch.pool_given else tuple(self.start.terms)
        return [term for name, term in self.start.terms.items() if name in names]

    @property
    def near(self) -> bool:
        """True if the tokens are an estimate."""
        return self.start.free is None and not self.launch.pool_given

    @property
    def interval(self) -> dict[str, Any] | None:
        """Tokens at 9 of 10 measured starts, and their errors; None if no such starts were measured."""
        launch, measured, tokens = self.launch, self.launch.profile["error"], self.start.tokens
        unlike = (
            launch.has_states
            or launch.pool_given
            or launch.flags.pp > 1
            or "fp32"
            in (
                launch.value_dtype,
                launch.storage.name,
            )
        )
        if not self.start.measured or unlike or launch.model.architecture.having(LatentAttention):
            return None
        if self.start.terms["weights"]["kind"] != "exact":
            return None
        error = round(tokens * measured["p90"])
        return {"low": tokens - error, "high": tokens + error, **measured}

    @property
    def groups(self) -> list[EngineGroup]:
        """Kinds of layers of the cache, and their pages; none for an engine without blocks."""
        if (pages := self.start.pages) is None:
            return []
        each = [(one, pages.pages_of(one, self.launch.length)) for one in pages.layers]
        return [
            EngineGroup(kind=one.kind, layers=one.layers, page_bytes=pages.page_bytes, pages_per_request=of_request)
            for one, of_request in each
        ]

    def bytes_of(self, name: str) -> int | None:
        """Bytes of a term; None if the engine has none of this name."""
        return self.start.terms[name]["bytes"] if name in self.start.terms else None


of_start: Keys[[About]] = Keys()


class EngineReport(build.ModelReport):
    """What an engine allocates for a launch line, and what its log says."""

    engine: str = of_start(lambda about: about.launch.profile["id"])
    engine_version: str = of_start(lambda about: about.launch.profile["newest"])
    device: str = of_start(lambda about: about.launch.device.id)
    devices: int = of_start(lambda about: about.launch.cards)
    starts: bool = of_start(lambda about: not about.start.lacks)
    reason: str | None = of_start(lambda about: about.start.lacks or None)
    launch: str | None = of_start(lambda about: about.line)
    log_lines: list[str] = of_start(lambda about: list(about.start.lines))
    max_model_len: int = of_start(lambda about: about.launch.length)
    kv_cache_tokens: int = of_start(lambda about: about.start.tokens)
    max_concurrency: float = of_start(lambda about: about.start.concurrency)
    pool_bytes: int | None = of_start(lambda about: about.start.pool or None)
    weights_bytes: int | None = of_start(lambda about: about.bytes_of("weights"))
    activation_peak_bytes: int | None = of_start(lambda about: about.bytes_of("activations"))
    activation_peak_from: Literal["sampler", "layer"] | None = of_start(lambda about: about.start.peak_from)
    outside_bytes: int | None = of_start(lambda about: about.bytes_of("outside"))
    graphs_bytes: int | None = of_start(lambda about: about.bytes_of("graphs") or (0 if about.start.pages else None))
    requested_bytes: int | None = of_start(lambda about: about.bytes_of("requested"))
    total_memory_bytes: int = of_start(lambda about: about.launch.total)
    blocks: int | None = of_start(lambda about: about.start.pages and about.start.pages.blocks)
    block_size: int | None = of_start(lambda about: about.start.pages and about.start.pages.block_size)
    groups: list[EngineGroup] = of_start(lambda about: about.groups)
    terms: list[EngineTerm] = of_start(lambda about: about.terms)
    interval: EngineInterval | None = of_start(lambda about: about.interval)
    cheaper: list[CheaperFlag] = of_start(lambda about: [flag for flag, _ in about.changes])
    ranks: int = of_start(lambda about: about.launch.flags.pp)
    log: list[LogLine] | None = of_start(lambda about: list(about.log) or None)


def engine_start(model: LoadedModel, name: str, given: Mapping[str, Any]) -> EngineReport:
    """What an engine allocates for a launch with these flags: `requests` and `max_model_len="max"` are searched for;
    `log` has flags and figures to compare. Raises TfacctError."""
    known, flags = profiles(name)[-1], given
    log = None if given.get("log") is None else logs.read(known, given["log"])
    try:
        flags = given if log is None else logs.flags(log, model, given)
        launch = launch_of(known["id"], model, flags)
    except UsageError as error:
        if log is None or given.get("on") is None:
            raise
        raise UsageError(f"with the flags of {option('log')}: {error.message}", error.hint) from None
    about, answer = _vllm(launch, given) if known["id"] == "vllm" else _other(launch, given)
    launch, cards = about.launch, about.launch.device.several(about.launch.cards)
    if log is not None:
        about = about._replace(log=list(_compared(about.start, log.figures)))
        nothing = f"{answer} Nothing was compared: the log has no figure that is computed."
        answer = f"{_log_answer(about)}{_assumed(launch, flags)}" if about.log else nothing
    return build.report(
        EngineReport,
        [model],
        _log_table(about.log) if about.log else _table(about),
        [values_of(EngineReport, about)],
        title=f"{build.label(model)} in {known['name']} {launch.profile['words']} on {cards}",
        convention=CONVENTION,
        answer=answer,
        agrees=all(one["agrees"] for one in about.log),
        notes=lambda _: notes(NOTES, about),
    )


def _vllm(launch: Launch, given: Mapping[str, Any]) -> tuple[About, str]:
    """The start of a launch of vLLM, with what is searched for, and the answer."""
    check(launch, vllm.unsupported(launch))
    found, requests = vllm.start(launch), given.get("requests")
    longest = given.get("max_model_len") == "max" and not found.others
    if longest:
        launch = launch.with_flags(max_model_len=advice.largest_length(found) or 1)
    before = launch.flags
    if requests is not None and not found.others:
        launch = advice.for_requests(launch, requests)
    found = vllm.start(launch)
    if found.lacks:
        instead, other = advice.suggestion(found)
        return About(found, None if other is None else line(other)), f"Does not start: {found.lacks}. {instead}"
    about = About(found, line(launch), advice.changes(found))
    flags = sorted(launch.flags._asdict().items() - before._asdict().items())
    where = f" with {' '.join(option(*flag) for flag in flags)} (for {requests:,} requests at once)" if flags else ""
    if about.near and launch.flags.gpu_memory_utilization is None:
        where += f" at vLLM's default utilization, {launch.utilization:g}"
    if longest:
        what = "the model's context" if launch.length >= launch.model.context else "what fits"
        tokens, error = _tokens(about)
        return about, f"At most {option('max_model_len', launch.length)}{where} ({what}): {tokens} ({error})."
    return about, _starts(about, where)


def _other(launch: Launch, given: Mapping[str, Any]) -> tuple[About, str]:
    """The start of a launch of SGLang or llama.cpp, and the answer. Raises UsageError for flags that are not
    supported."""
    name, module = launch.profile["name"], OTHERS[launch.profile["id"]]
    for flag, value in typed_flags(given).items():
        if flag not in (*launch.profile["flags"], *NOT_IN_THE_LINE) or value == "max":
            typed = option(flag, "max" if value == "max" else None)
            raise UsageError(f"{typed} is not supported for {name}", "leave it out")
    check(launch, module.unsupported(launch))
    found: Start = module.start(launch)
    if found.lacks:
        too_large = not found.tokens or (found.free is not None and found.free + found.pool < 0)
        instead = "narrower weights or more memory" if too_large else "a shorter context or narrower weights"
        return About(found, None), f"Does not start: {found.lacks}. Use {instead}."
    about = About(found, line(launch))
    if found.free is None:
        return about, _starts(about)
    return about, f"Starts: a cache of {found.tokens:,} tokens fits, ≈ {found.free / GIB:.1f} GiB stay free."


def _starts(about: About, where: str = "") -> str:
    """That a launch starts, with its tokens and requests."""
    tokens, error = _tokens(about)
    return f"Starts{where}: {tokens}, {about.start.concurrency:,.2f} requests of {about.launch.length:,} ({error})."


def _tokens(about: About) -> tuple[str, str]:
    """The tokens of a cache, and their error, in words."""
    launch, errors, tokens = about.launch, about.launch.profile["error"], f"{about.start.tokens:,} tokens of KV cache"
    if not about.near:
        return tokens, "tokens exact"
    error = "error not measured"
    if errors:
        measured = f"on {errors['starts']} starts of {launch.profile['name']} {errors['versions']},"
        measured += f" 90% were within {100 * errors['p90']:.2f}%"
        cards = {card for one in profiles(launch.profile["id"]) if one["starts"] for card in one["outside_gib"]}
        if about.interval:
            error = f"{measured}, the worst {100 * errors['worst']:.1f}% off"
        elif launch.device.id not in cards:
            error = "error not measured on this card"
        elif not launch.profile["starts"]:
            error = f"error not measured for {launch.profile['words']}; {measured}"
    return f"≈ {tokens}", error


def _assumed(launch: Launch, flags: Mapping[str, Any]) -> str:
    """A sentence on flags that neither the line nor the log has."""
    values = {
        "engine_version": len(profiles(launch.profile["id"])) > 1 and launch.profile["newest"],
        "gpu_memory_utilization": launch.profile["utilization"],
        "max_model_len": launch.length,
    }
    words = [option(name, value) for name, value in values.items() if value and flags.get(name) is None]
    return f" Assumed, because the log does not have it: {listed(words)}." if words else ""


def _compared(start: Start, figures: Mapping[str, Figure]) -> Iterator[LogLine]:
    """The figures of a log next to those that are computed."""
    computed: dict[str, float] = {name: term["bytes"] for name, term in start.terms.items()}
    if start.pages or not start.lacks:
        computed |= {"pool": start.pool, "tokens": start.tokens, "concurrency": start.concurrency}
    slack: dict[str, float] = dict(SLACK)
    if "pool" in figures and computed.get("pool", 0) > 0:  # tokens may be off by as much as their pool
        share = (SLACK["pool"] + figures["pool"].rounding) / computed["pool"]
        slack |= {what: share * computed[what] for what in ("tokens", "concurrency")}
    for what in CAUSES:
        if what in computed and what in figures:
            printed, rounding = figures[what]
            agrees = abs(printed - computed[what]) <= rounding + slack.get(what, printed / 100)
            yield {"what": what, "printed": printed, "computed": computed[what], "agrees": agrees}


def _log_answer(about: About) -> str:
    """Whether the log agrees, or the first figure that differs with its likely cause."""
    log = about.log
    first = next((one for one in log if not one["agrees"]), None)
    if first is None:
        return f"The log agrees with the estimate: {len(log)} of {len(log)} figures."
    share = first["printed"] / first["computed"] - 1 if first["computed"] else 1
    differs = f"{first['what']} is the first figure that differs, by {100 * share:+.1f}%"
    return f"The log does not agree with the estimate: {differs} ({_cause(about, first['what'], share)}?)."


def _cause(about: About, what: str, share: float) -> str:
    """Likely causes of the first figure that differs, by a share. Tokens and requests follow from the pool."""
    compared = [one["what"] for one in about.log]
    if what == "tokens" or (what == "concurrency" and "tokens" not in compared):
        if any(abs((1 + share) / ratio - 1) < 0.1 for ratio in (0.5, 2)):
            return "another dtype of the cache"
        what = "tokens" if "pool" in compared else "pool"
    sizes = (about.bytes_of("activations") or 0) + (about.bytes_of("graphs") or 0)
    near = abs(share) * about.start.pool <= sizes  # no more than the number of requests and the version change
    seqs = what == "pool" and near and "max_num_seqs" in about.launch.profile["flags"]
    return f"another {option('max_num_seqs')} or version, " * seqs + CAUSES[what]


def _log_table(log: Sequence[LogLine]) -> Table:
    def amount(one: LogLine, value: float) -> Amount:
        return Amount(Fraction(round(value, 2)), "bytes" if one["what"] in SLACK else "number")

    rows: list[Row] = [
        {
            "what": one["what"],
            "printed": amount(one, one["printed"]),
            "computed": amount(one, one["computed"]),
            "verdict": "ok" if one["agrees"] else "DIFFERS",
        }
        for one in log
    ]
    figures = (Column(name, name, "amount") for name in ("printed", "computed"))
    columns = (Column("what", "figure"), *figures, Column("verdict", "", "verdict"))
    return columns, (tuple(rows),), ()


def _table(about: About) -> Table:
    gib = Column("bytes", "GiB", "bytes", unit="GiB")
    columns = (Column("what", "what"), gib, Column("source", "how"), Column("kind", ""))
    if not about.start.pool:
        return columns, (tuple(about.terms),), ()
    what, how = "KV cache", f"{about.start.tokens:,} tokens"
    if (pages := about.start.pages) is not None:
        count = sum(pages.group_counts)
        groups = f" × {count} groups" if count > 1 else ""
        what, how = "pool", f"{pages.blocks:,} blocks of {pages.block_size} tokens{groups}"
    return columns, (tuple(about.terms),), ({"what": what, "bytes": about.start.pool, "source": how},)


def _not_measured(about: About) -> str:
    profile = about.launch.profile
    if not profile["error"] or about.start.pages is None or about.interval or about.launch.pool_given:
        return ""
    return f"{profile['name']} {profile['error']['versions']} on 1, 2 and 4 × H100 SXM, in bf16, fp16 or fp8"


def _half(about: About) -> bool:
    """True where the card has vLLM take fp16."""
    return bool(about.start.peak_from) and about.launch.value_dtype == "fp16" and not about.launch.value_given


def _log_lines(about: About) -> list[str]:
    """What the log will say, if no log is compared."""
    return [] if about.log else [f"{', approximately' * about.near}: {line}" for line in about.start.lines]


NOTES = (
    NoteRow("launch", 1, lambda about: about.line),
    NoteRow("log", 1, lambda about: _log_lines(about)[:1], "The log will say{}"),
    NoteRow("cheaper", 1, lambda about: [sentence for _, sentence in about.changes[:1]]),
    NoteRow("not_measured", 2, _not_measured, "The error was measured only with {}."),
    NoteRow(
        "formula",
        2,
        lambda about: not about.launch.profile["error"],
        "The formula is from the engine's source; its error was not measured.",
    ),
    NoteRow("release", 2, lambda about: about.launch.profile["note"]),
    NoteRow("half", 2, _half, "Activations are in float16: the card has no bfloat16."),
    NoteRow(
        "images",
        2,
        lambda about: about.launch.images,
        "The activations include {items} dummy images of {tokens:,} tokens.",
    ),
    NoteRow("concurrency", 3, lambda about: _log_lines(about)[1:], "The log will also say{}"),
    NoteRow("changes", 3, lambda about: [sentence for _, sentence in about.changes[1:]]),
)


def engines() -> Answer:
    """The engines, their versions, and the measured error of their tokens."""
    rows: list[Row] = []
    for profile in (profile for name in names() for profile in profiles(name)):
        errors = profile["error"] if profile["starts"] else {}
        how = {"engine": profile["id"], "versions": profile["words"], "read": ", ".join(profile["read"])}
        error, worst = (Fraction(str(errors[key])) if errors else None for key in ("p90", "worst"))
        rows.append({**how, "error": error, "worst": worst, "starts": profile["starts"] or None})
    columns = (
        Column("engine", "engine"),
        Column("versions", "versions"),
        Column("error", "error of tokens", "share", empty="not measured"),
        Column("worst", "worst", "share", empty="–", drop=2),
        Column("starts", "starts", "count", empty="–", drop=1),
        Column("read", "source read", drop=3),
    )
    return Answer(
        command="engines",
        title=f"{len(names())} engines",
        columns=columns,
        sections=(tuple(rows),),
        models=(),
        notes=(
            "Error: the 90th percentile over all measured starts (all versions, H100s). "
            "`tfacct engine NAME MODEL --on DEVICE` computes one launch.",
        ),
    )
