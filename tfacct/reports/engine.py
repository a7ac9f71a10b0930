"""What a serving engine allocates and prints at start: an answer to one launch line, and the list of engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import ModuleType
from typing import Any, Literal

from tfacct.base import units
from tfacct.base.errors import UsageError, listed
from tfacct.base.spelling import option
from tfacct.engines import advice, llama_cpp, logs, sglang, vllm
from tfacct.engines.launch import Launch, launch_of, line, typed_flags
from tfacct.engines.logs import Figure
from tfacct.engines.profiles import GIB, names, profiles
from tfacct.engines.start import CheaperFlag, EngineGroup, EngineInterval, EngineTerm, LogLine, Start, check
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import Answer
from tfacct.output.keys import Keys, values_of
from tfacct.output.report import Amount, Column, NoteRow, Row, Table, notes
from tfacct.reports import build

CONVENTION = "memory of one GPU (the one with the smallest pool) at the end of the engine's start-up"
CAUSES = {
    "weights": "another format or config than the model's",
    "activations": "another sampler (FlashInfer installed, or its variable set), or another version",
    "outside": "another process on the card, another driver, or other cards",
    "pool": "another utilization, or another process on the card",
    "tokens": "another version, or another size of blocks",
    "concurrency": "another longest request",
}
"""Figures of a log in the order of the start, and likely causes where one is the first that differs."""
SLACK: dict[str, float] = {"weights": GIB // 33, "activations": GIB // 50, "outside": GIB // 10, "pool": GIB // 7}
"""Bytes that a figure may be off, beyond the rounding of the log. Tokens and requests: the share of their
pool, or 1% where the log has no pool."""
ENGINES: Mapping[str, ModuleType] = {"vllm": vllm, "sglang": sglang, "llama.cpp": llama_cpp}
"""Each engine's `unsupported` and `start`."""
NOT_IN_THE_LINE = ("on", "log", "engine_version", "total_memory", "tp", "pp")
"""Options that no engine's launch line has, or whose values are refused by another name."""
of_start: Keys[[Start]] = Keys()


class EngineReport(build.ModelReport):
    """What an engine allocates for a launch line, and what its log says."""

    engine: str = of_start(lambda start: start.launch.profile["id"])
    engine_version: str = of_start(lambda start: start.launch.profile["newest"])
    device: str = of_start(lambda start: start.launch.device.id)
    devices: int = of_start(lambda start: start.launch.cards)
    starts: bool = of_start(lambda start: not start.lacks)
    reason: str | None = of_start(lambda start: start.lacks or None)
    launch: str | None = of_start(lambda start: start.line)
    log_lines: list[str] = of_start(lambda start: start.lines)
    max_model_len: int = of_start(lambda start: start.launch.length)
    kv_cache_tokens: int = of_start(lambda start: start.tokens)
    max_concurrency: float = of_start(lambda start: start.concurrency)
    pool_bytes: int | None = of_start(lambda start: start.pool or None)
    weights_bytes: int | None = of_start(lambda start: start.bytes_of("weights"))
    activation_peak_bytes: int | None = of_start(lambda start: start.bytes_of("activations"))
    activation_peak_from: Literal["sampler", "layer"] | None = of_start(lambda start: start.peak_from)
    outside_bytes: int | None = of_start(lambda start: start.bytes_of("outside"))
    graphs_bytes: int | None = of_start(lambda start: start.bytes_of("graphs") or (0 if start.pages else None))
    requested_bytes: int | None = of_start(lambda start: start.bytes_of("requested"))
    total_memory_bytes: int = of_start(lambda start: start.launch.total)
    blocks: int | None = of_start(lambda start: start.pages and start.pages.blocks)
    block_size: int | None = of_start(lambda start: start.pages and start.pages.block_size)
    groups: list[EngineGroup] = of_start(lambda start: start.groups)
    terms: list[EngineTerm] = of_start(lambda start: _terms(start))
    interval: EngineInterval | None = of_start(lambda start: start.interval)
    cheaper: list[CheaperFlag] = of_start(lambda start: [flag for flag, _ in start.changes])
    ranks: int = of_start(lambda start: start.launch.flags.pp)
    log: list[LogLine] | None = of_start(lambda start: list(start.log) or None)


def engine_start(model: LoadedModel, name: str, given: Mapping[str, Any]) -> EngineReport:
    """What an engine allocates for a launch with these flags: `requests` and `max_model_len="max"` are searched for;
    `log` has flags and figures to compare. Raises TfacctError."""
    profile, flags = profiles(name)[-1], given
    log = None if given.get("log") is None else logs.read(profile, given["log"])
    try:
        flags = given if log is None else logs.flags(log, model, given)
        launch = launch_of(name, model, flags)
    except UsageError as error:
        if log is None or given.get("on") is None:
            raise
        raise UsageError(f"with the flags of {option('log')}: {error.message}", error.hint) from None
    start, answer = _started(launch, given)
    if log is not None:
        start = replace(start, log=list(_compared(start, log)))
        answer += " Nothing was compared: the log has no figure that is computed."
    unlike = f" The log has {log['not_included']}, which is not included." if log and "not_included" in log else ""
    cards = launch.device.several(start.launch.cards)
    return build.report(
        EngineReport,
        [model],
        _log_table(start.log) if start.log else _table(start),
        [values_of(EngineReport, start)],
        title=f"{build.label(model)} in {profile['name']} {launch.profile['words']} on {cards}",
        convention=CONVENTION,
        answer=f"{_log_answer(start)}{_assumed(start.launch, flags)}{unlike}" if start.log else answer,
        agrees=all(one["agrees"] for one in start.log),
        notes=lambda _: notes(NOTES, start),
    )


def _started(launch: Launch, given: Mapping[str, Any]) -> tuple[Start, str]:
    """The start of a launch, with what is searched for, and the answer. Raises UsageError for what is not supported."""
    profile, module, searched = launch.profile, ENGINES[launch.profile["id"]], launch.profile["id"] == "vllm"
    for flag, value in typed_flags({} if searched else given).items():
        if flag not in (*profile["flags"], *NOT_IN_THE_LINE) or value == "max":
            typed = option(flag, "max" if value == "max" else None)
            raise UsageError(f"{typed} is not supported for {profile['name']}", "leave it out")
    check(launch, module.unsupported(launch))
    start: Start = module.start(launch)
    requests, longest = given.get("requests"), given.get("max_model_len") == "max" and not start.others
    if longest:
        launch = launch.with_flags(max_model_len=advice.largest_length(start) or 1)
    before = launch.flags
    if requests is not None and not start.others:
        launch = advice.for_requests(launch, requests)
    start = module.start(launch)
    if start.lacks:
        instead, other = advice.suggestion(start) if searched else (start.instead, None)
        start = replace(start, line=None if other is None else line(other))
        return start, f"Does not start: {start.lacks}. {instead}"
    start = replace(start, line=line(launch), changes=advice.changes(start) if searched else ())
    starts = f"{profile['name']} starts"
    if start.free is not None:
        return start, f"{starts}: a cache of {start.tokens:,} tokens fits, and ≈ {start.free / GIB:.1f} GiB stay free."
    flags = sorted(launch.flags._asdict().items() - before._asdict().items())
    where = ""
    if flags:
        fit = "fits" if requests == 1 else "fit"
        typed = " ".join(option(*flag) for flag in flags)
        where = f"; {units.requests(requests or 0)} {fit} at once with {typed}"
    at = ""
    if searched and start.near and launch.flags.gpu_memory_utilization is None:
        at = f", at vLLM's default utilization of {launch.utilization:g}"
    tokens, error = f"{'≈ ' if start.near else ''}{start.tokens:,} tokens of KV cache", _error(start)
    if longest:
        what = "the model's context" if launch.length >= launch.model.context else "what fits"
        return start, f"At most {option('max_model_len', launch.length)}{where} ({what}): {tokens}{at} ({error})."
    requests_at_once = f"{start.concurrency:,.2f} requests of {launch.length:,} tokens"
    return start, f"{starts}{where}: {tokens}, or {requests_at_once}{at} ({error})."


def _error(start: Start) -> str:
    """The error of the tokens, in words."""
    profile, errors = start.launch.profile, start.launch.profile["error"]
    cards = {card for one in profiles(profile["id"]) if one["starts"] for card in one["outside_gib"]}
    if not start.near:
        return "tokens exact"
    if start.launch.device.id not in cards:
        return "error not measured on this card" if errors else "error not measured"
    measured = f"for {profile['name']} {errors['versions']}, 90% of {errors['starts']} estimates"
    measured += f" were within {100 * errors['p90']:.2f}% of the logged tokens"
    if start.interval:
        return f"{measured}, the worst {100 * errors['worst']:.1f}% off"
    if profile["starts"]:
        return "error not measured"
    return f"error not measured for {profile['name']} {profile['words']}; {measured}"


def _assumed(launch: Launch, flags: Mapping[str, Any]) -> str:
    """A sentence on flags that neither the line nor the log has."""
    values = {
        "engine_version": len(profiles(launch.profile["id"])) > 1 and launch.profile["newest"],
        "gpu_memory_utilization": launch.profile["utilization"],
        "max_model_len": launch.length,
    }
    words = [option(name, value) for name, value in values.items() if value and flags.get(name) is None]
    return f" Assumed, because the log does not have it: {listed(words)}." if words else ""


def _compared(start: Start, log: Mapping[str, Figure | str]) -> Iterator[LogLine]:
    """The figures of a log next to those that are computed."""
    computed: dict[str, float] = {name: term["bytes"] for name, term in start.terms.items()}
    if start.pages or not start.lacks:
        computed |= {"pool": start.pool, "tokens": start.tokens, "concurrency": start.concurrency}
    slack = SLACK | {what: gib * GIB for what, gib in start.launch.profile["log_slack_gib"].items()}
    if isinstance(pool := log.get("pool"), Figure) and computed.get("pool", 0) > 0:  # tokens may be off by as much
        share = (SLACK["pool"] + pool.rounding) / computed["pool"]
        slack |= {what: share * computed[what] for what in ("tokens", "concurrency")}
    for what in CAUSES:
        if what in computed and isinstance(figure := log.get(what), Figure):
            printed, found = figure.value, computed[what]
            agrees = abs(printed - found) <= figure.rounding + slack.get(what, printed / 100)
            yield {"what": what, "printed": printed, "computed": found, "agrees": agrees}


def _log_answer(start: Start) -> str:
    """Whether the log agrees, or the first figure that differs with its likely cause."""
    log = start.log
    first = next((one for one in log if not one["agrees"]), None)
    if first is None:
        return f"The log agrees with the estimate: {len(log)} of {len(log)} figures."
    share = first["printed"] / first["computed"] - 1 if first["computed"] else 1
    differs = f"{first['what']} is the first figure that differs, by {100 * share:+.1f}%"
    return f"The log does not agree with the estimate: {differs} ({_cause(start, first['what'], share)}?)."


def _cause(start: Start, what: str, share: float) -> str:
    """Likely causes of the first figure that differs, by a share. Tokens and requests follow from the pool."""
    compared = [one["what"] for one in start.log]
    if what == "tokens" or (what == "concurrency" and "tokens" not in compared):
        if any(abs((1 + share) / ratio - 1) < 0.1 for ratio in (0.5, 2)):
            return "another dtype of the cache"
        what = "tokens" if "pool" in compared else "pool"
    sizes = (start.bytes_of("activations") or 0) + (start.bytes_of("graphs") or 0)
    near = abs(share) * start.pool <= sizes  # no more than the number of requests and the version change
    seqs = what == "pool" and near and "max_num_seqs" in start.launch.profile["flags"]
    before = f"another {option('max_num_seqs')} or version, " if seqs else ""
    return f"{before}{CAUSES[what]}"


def _log_table(log: Sequence[LogLine]) -> Table:
    rows: list[Row] = []
    for one in log:
        kind: Literal["bytes", "number"] = "bytes" if one["what"] in SLACK else "number"
        amounts = (Amount(Fraction(round(value, 2)), kind) for value in (one["printed"], one["computed"]))
        figures = dict(zip(("printed", "computed"), amounts, strict=True))
        rows.append({"what": one["what"], **figures, "verdict": "ok" if one["agrees"] else "DIFFERS"})
    columns = (Column(name, name, "amount") for name in ("printed", "computed"))
    return (Column("what", "figure"), *columns, Column("verdict", "", "verdict")), (tuple(rows),), ()


def _terms(start: Start) -> list[Any]:
    """Terms in the table; of a pool that is given, only the weights and what the engine takes in all."""
    names = ("requested", "weights") if start.launch.pool_given else tuple(start.terms)
    return [term for name, term in start.terms.items() if name in names]


def _table(start: Start) -> Table:
    gib = Column("bytes", "GiB", "bytes", unit="GiB")
    columns = (Column("what", "what"), gib, Column("source", "how"), Column("kind", ""))
    if not start.pool:
        return columns, (tuple(_terms(start)),), ()
    what, how = "KV cache", f"{start.tokens:,} tokens"
    if (pages := start.pages) is not None:
        count = sum(pages.group_counts)
        groups = f", shared by {count} layer groups" if count > 1 else ""
        what, how = "pool", f"{pages.blocks:,} blocks of {pages.block_size} tokens{groups}"
    return columns, (tuple(_terms(start)),), ({"what": what, "bytes": start.pool, "source": how},)


def _log_line(start: Start) -> str:
    """What the log will say, if no log is compared."""
    near = ", approximately" if start.near else ""
    return "" if start.log or not start.lines else f"{near}: {start.lines[0]}"


def _uncounted(start: Start) -> Mapping[str, str] | None:
    """The encoders that a launch of the published model loads too."""
    launch = start.launch
    return {"parts": listed(launch.uncounted), "name": launch.published} if launch.uncounted else None


NOTES = (
    NoteRow("launch", 1, lambda start: start.line),
    NoteRow("uncounted", 1, _uncounted, "Not included: {parts} of {name}, which the engine loads too."),
    NoteRow("log", 1, _log_line, "The log will say{}"),
    NoteRow("cheaper", 1, lambda start: [sentence for _, sentence in start.changes[:1]]),
    NoteRow(
        "formula",
        2,
        lambda start: not start.launch.profile["error"],
        "The formula is from the engine's source; its error was not measured.",
    ),
    NoteRow(
        "windows",
        2,
        lambda start: start.pages is not None and start.tokens > start.pages.blocks * start.pages.block_size,
        "vLLM prints requests × their length as tokens; layers with windows or chunks store fewer.",
    ),
    NoteRow("release", 2, lambda start: start.launch.profile["note"]),
    NoteRow(
        "images",
        2,
        lambda start: start.launch.images,
        "The activations include {items} dummy images of {tokens:,} tokens.",
    ),
    NoteRow("changes", 3, lambda start: [sentence for _, sentence in start.changes[1:]]),
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
            "Error and worst: 90th percentile and maximum over all measured starts, pooled (H100s). "
            "`tfacct engine NAME MODEL --on DEVICE` computes one launch.",
        ),
    )
