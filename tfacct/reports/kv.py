"""KV-cache bytes by context: as built, beside the same model with every head its own keys (MHA) and with one (MQA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

from tfacct.accounts.memory import cache_bytes, next_token_bytes, token_bytes, unwindowed_cache_bytes
from tfacct.accounts.metrics import Point, cache_overtakes
from tfacct.architecture.parts import Attention, LatentAttention
from tfacct.base import units
from tfacct.base.errors import listed
from tfacct.ledger.einsum import letters
from tfacct.ledger.evaluated import width_of
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import RATES, WINDOW, State
from tfacct.ledger.storage import Width, dtypes, storage, width
from tfacct.ledger.workload import COMPRESSED, LARGEST, Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import answers
from tfacct.output.report import Column, NoteRow, Report, Table, notes
from tfacct.reports import build, keys, model_notes, ranks, selection, tables

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh

CONVENTION = "bytes an engine must keep for every token of the context; weights left out"
STATE = "bytes an engine must keep between steps, the same at every context; weights left out"


class KvLine(TypedDict):
    """Bytes of the cache at one context."""

    keys: int
    mha: int | None
    as_built: int
    mqa: int | None
    whole_bytes: NotRequired[int]


class UndividedCache(TypedDict):
    """The cache of the whole model, beside what one rank keeps of it."""

    kv_bytes_per_token: int
    kv_bytes_next_token: int
    kv_cache_bytes: int


class KvReport(keys.ExplainedReport):
    """Bytes of the KV cache by context."""

    _line = KvLine

    workload: keys.Workload
    query_heads: int | None
    query_heads_by_block: list[int] | None
    kv_heads: int | None
    kv_heads_by_block: list[int] | None
    kv_bytes_per_token: int
    kv_bytes_next_token: int
    kv_cache_bytes: int
    kv_cache_bytes_without_windows: int
    self_kv_cache_bytes: int
    cross_kv_cache_bytes: int
    tp: int | None
    pp: int | None
    stage: int | None
    mesh: keys.MeshFacts | None
    whole: UndividedCache | None


@answers(KvReport)
def kv(
    subjects: Sequence[LoadedModel],
    request: Request,
    *,
    dtype: str | None = None,
    contexts: Sequence[int] | None = None,
    mesh: Mesh | None = None,
) -> Report:
    """KV-cache bytes per token and by context, and what grouped queries save. Raises UsageError.

    `contexts` are those of the rows, and the last is that of the totals; without them some up to the request's. `mesh`:
    ranks that divide heads, blocks or tokens; the bytes are those of the fullest.
    """
    _, cached = dtypes(None, dtype)
    subjects, left_out = selection.keeping(subjects)
    if contexts is not None:
        contexts = sorted(set(contexts))
        request = replace(request, ctx=contexts[-1])
    undivided, subjects, unfit = ranks.sharded(subjects, mesh, weights=False)
    fullest = [_fullest(subject, mesh, request, cached, contexts) for subject in subjects]
    subjects, facts = [subject for subject, _ in fullest], tuple(fact for _, fact in fullest)
    if mesh is not None:
        whole = (_facts(subject, request, cached, contexts) for subject in undivided)
        facts = tuple(_beside(fact, of, mesh) for fact, of in zip(facts, whole, strict=True))
    alone, on = len(subjects) == 1, ranks.of_one(mesh, "on")
    table = (
        _one(subjects[0], facts[0], request, cached, mesh) if alone else _several(subjects, facts, contexts is not None)
    )
    who = f"{build.name_of(subjects[0])}: " if alone else ""
    where = f"batch {request.batch:,}" if alone or contexts else build.workload_words(subjects, request)
    return build.report(
        "kv",
        subjects,
        table,
        facts,
        title=f"{who}{model_notes.cache_words(subjects, cached)}{on}, {where}",
        convention=CONVENTION if model_notes.attends(subjects) else STATE,
        answer=_answer(subjects, facts, cached),
        notes=lambda at: notes(NOTES, About(subjects[at], undivided[at], facts[at], request, cached, mesh)),
        counted=f"the {model_notes.cache_name(subjects)} only; no weights, activations or engine buffers",
        requests=[request],
        left_out=[*left_out, *unfit],
        headline="kv_cache_bytes",
    )


def _answer(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], cached: str) -> str:
    """The cache of one model at its context, and what more tokens add; or the least and the most of several."""
    sizes = [(fact["kv_cache_bytes"], subject.name) for subject, fact in zip(subjects, facts, strict=True)]
    if len(facts) > 1:
        keys = {fact["workload"]["keys"] for fact in facts}
        where = f" at context {min(keys):,}" if len(keys) == 1 else ""
        return f"{tables.from_to(sizes, units.binary).removesuffix('.')}{where}."
    work, size = facts[0]["workload"], units.binary(sizes[0][0])
    if not model_notes.attends(subjects):
        where = f"context {work['keys']:,}" if "pp" in facts[0] else "every context"  # another stage may hold more
        return f"{size} at {where}{_batch(work)}."
    source = f", source {work['source']:,}" if facts[0]["cross_kv_cache_bytes"] else ""
    return f"{size} at context {work['keys']:,}{source}{_batch(work)}; {_more(subjects[0], facts[0], cached)}."


def _batch(work: Mapping[str, Any]) -> str:
    return f", batch {work['batch']:,}" if work["batch"] > 1 else ""


def _more(subject: LoadedModel, fact: dict[str, Any], cached: str) -> str:
    """What the next token adds, and whether each further one does."""
    work, kept = fact["workload"], width(cached)
    steps = (Workload(keys, 1, source=work["source"] or 0) for keys in (work["keys"] + 1, LARGEST))
    following = {next_token_bytes(subject.ledger, step.axes(), kept) for step in steps}
    adds, of = units.binary(fact["kv_bytes_next_token"]), " of a sequence" if work["batch"] > 1 else ""
    if following == {0} and not fact["kv_bytes_next_token"]:
        return "further tokens add nothing"
    if subject.ledger.period > 1:
        return _compressed_more(subject, work["keys"], kept, of)
    return f"{'each further' if following == {fact['kv_bytes_next_token']} else 'the next'} token{of} adds {adds}"


def _compressed_more(subject: LoadedModel, keys: int, kept: Width, of: str) -> str:
    """What further tokens add, as many as make the heaviest key: one alone may add more, or take less."""
    period = subject.ledger.period
    now, then = (cache_bytes(subject.ledger, Workload(context, 1).axes(), kept) for context in (keys, keys + period))
    return f"the next {period:,} tokens{of} add {units.binary(then - now)} together"


def _facts(
    subject: LoadedModel,
    request: Request,
    cached: str,
    contexts: Sequence[int] | None = None,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    work = selection.workload(subject, request)
    sides, shown = variants(subject), contexts or _contexts(work.context)

    def here(context: int) -> dict[str, Any]:
        at = replace(work, context=context)
        return {**_at(sides, ranks.cached_tokens(subject, mesh, at), cached), "keys": context}

    by_context = [here(context) for context in shown]
    kept = width(cached)
    own = cache_bytes(subject.ledger, ranks.cached_tokens(None, mesh, replace(work, source=0)).axes(), kept)
    cross = by_context[-1]["as_built"] - own
    return {
        "workload": selection.workload_facts(work, dtype=cached),
        **tables.by_block("query_heads", tables.of_attention(subject, "heads")),
        **tables.by_block("kv_heads", None if is_latent(subject) else tables.of_attention(subject, "kv_heads")),
        "kv_bytes_per_token": token_bytes(subject.ledger, work.axes(), kept),
        "kv_bytes_next_token": next_token_bytes(subject.ledger, work.axes(), kept),
        "kv_cache_bytes": by_context[-1]["as_built"],
        "kv_cache_bytes_without_windows": unwindowed_cache_bytes(
            subject.ledger, ranks.cached_tokens(subject, mesh, replace(work, context=shown[-1])).axes(), kept
        ),
        "self_kv_cache_bytes": own,
        "cross_kv_cache_bytes": cross,
        "lines": by_context,
    }


def _fullest(
    subject: LoadedModel, mesh: Mesh | None, request: Request, cached: str, contexts: Sequence[int] | None
) -> tuple[LoadedModel, dict[str, Any]]:
    """The stage of a model that keeps most at the last context, and its facts."""
    found = [
        (own, _facts(own, request, cached, contexts, mesh) | ranks.stage_facts(mesh, number))
        for number, own in ranks.stages(subject, mesh)
    ]
    return max(found, key=lambda one: int(one[1]["kv_cache_bytes"]))


def _beside(fact: dict[str, Any], whole: dict[str, Any], mesh: Mesh) -> dict[str, Any]:
    """Facts of one rank; the bytes of the whole model stand beside each of its contexts."""
    both = zip(fact["lines"], whole["lines"], strict=True)
    lines = [{**line, "whole_bytes": of["as_built"]} for line, of in both]
    keys = ("kv_bytes_per_token", "kv_bytes_next_token", "kv_cache_bytes")
    return {**ranks.beside(fact, whole, mesh, keys), "lines": lines}


def _of_heads(undivided: Sequence[LoadedModel], tp: int) -> list[str]:
    """Which heads a rank has."""
    from tfacct.parallel.mesh import Mesh
    from tfacct.parallel.support import gathers_heads

    said = ranks.uneven(undivided, Mesh(tp))
    gathered = [one.name for one in undivided if gathers_heads(one)]
    if gathered and len(undivided) > 1:
        said.append(f"Those of {listed(gathered)} are whole on every rank: a norm reads all heads together.")
    latents = [one.name for one in undivided if is_latent(one)]
    if latents:
        said.append("A latent is whole on every rank: the heads that read it are divided.")
    return (
        said if len({*latents, *gathered}) == len(undivided) else ["A rank keeps keys and values of its heads.", *said]
    )


def _contexts(longest: int) -> list[int]:
    """1k, 4k, 16k, … below the longest, and the longest."""
    contexts, context = [], 1024
    while context < longest:
        contexts.append(context)
        context *= 4
    return [*contexts, longest]


def variants(subject: LoadedModel) -> dict[str, Ledger | None]:
    """The model with as many key/value heads as query heads, as it is built, and with one; None where it has none, or
    none to share."""
    built = subject.architecture
    heads = bool(built.attentions) and not is_compressed(subject)
    each = built.with_kv_heads(None).ledger() if heads else None
    shared = built.with_kv_heads(1).ledger() if heads and not is_latent(subject) else None
    return {"mha": each, "as_built": subject.ledger, "mqa": shared}


def _at(variants: Mapping[str, Ledger | None], work: Workload, cached: str) -> dict[str, Any]:
    """Cache bytes of each variant at the end of a step."""
    at, kept = work.axes(), width(cached)
    sizes = {name: None if ledger is None else cache_bytes(ledger, at, kept) for name, ledger in variants.items()}
    return {"keys": work.context, **sizes}


def is_latent(subject: LoadedModel) -> bool:
    """True if keys and values come from a latent, which no heads share."""
    return bool(subject.architecture.having(LatentAttention))


def is_compressed(subject: LoadedModel) -> bool:
    """True if keys are values too, of one head: no heads share them, and none can have their own."""
    return any(part.compression is not None for part in subject.architecture.attentions)


def _one(subject: LoadedModel, fact: dict[str, Any], request: Request, cached: str, mesh: Mesh | None = None) -> Table:
    if not model_notes.attends([subject]):
        state = Column("keys", "context", "count"), Column("as_built", "state", "bytes")
        whole = (Column("whole_bytes", "whole model", "bytes"),) if "whole" in fact else ()
        return (*state, *whole), (tuple(fact["lines"]),), ()
    columns: tuple[Column, ...] = (
        Column("keys", "context", "count"),
        Column("mha", f"MHA ({heads_words(fact['query_heads_by_block'] or fact['query_heads'])})", "bytes"),
        Column("as_built", f"as built ({_built(subject, fact)})", "bytes"),
    )
    if is_compressed(subject):
        columns = columns[0], Column("as_built", "as built", "bytes")
    elif not is_latent(subject):
        columns = (*columns, Column("mqa", f"MQA ({heads_words(1)})", "bytes", drop=1 if "whole" in fact else 0))
    if "whole" in fact:
        columns = (*columns, Column("whole_bytes", "whole model", "bytes"))
    at, kept = ranks.cached_tokens(None, mesh, selection.workload(subject, request)).axes(), width(cached)
    sides = variants(subject).items()
    following: dict[str, Any]
    following = {name: ledger and next_token_bytes(ledger, at, kept) for name, ledger in sides}
    if "whole" in fact:
        following["whole_bytes"] = fact["whole"]["kv_bytes_next_token"]
    return columns, (tuple(fact["lines"]),), ({**following, "keys": "next token"},)


def _built(subject: LoadedModel, fact: dict[str, Any]) -> str:
    """Key/value heads, or a latent, or, where blocks differ, both."""
    if not is_latent(subject):
        return heads_words(fact["kv_heads_by_block"] or fact["kv_heads"])
    shared = dict.fromkeys(part.kv_heads for _, part in subject.architecture.having(Attention))
    return f"{heads_words(list(shared))} or latent" if shared else "latent"


def heads_words(count: int | list[int]) -> str:
    counts = count if isinstance(count, list) else [count]
    return f"{' or '.join(map(str, counts))} KV head{'' if counts == [1] else 's'}"


def _several(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], by_context: bool) -> Table:
    """A row for each model, or, `by_context`, a section with a row for each context."""
    next_token = Column("kv_bytes_next_token", "next token", "bytes")
    columns = (
        Column("model", "model", names_rows=True),
        Column("heads", "heads", "count", drop=1, empty="–"),
        Column("kv_heads", "KV heads", "count", drop=1, empty="–"),
        *(() if by_context else (next_token,)),
        Column("keys", "context", "count", names_rows=by_context),
        Column("mha", "MHA", "bytes", empty="–"),
        Column("as_built", "as built", "bytes"),
        Column("mqa", "MQA", "bytes", drop=1, empty="–"),
        *((Column("whole_bytes", "whole model", "bytes"),) if "whole" in facts[0] else ()),
    )
    sections = tuple(
        tuple(
            {**line, "model": build.name_of(subject), "heads": tables.each_of(fact, "query_heads")}
            | {"kv_heads": "latent" if is_latent(subject) else tables.each_of(fact, "kv_heads")}
            | {"kv_bytes_next_token": fact["kv_bytes_next_token"]}
            for line in fact["lines"][0 if by_context else -1 :]
        )
        for subject, fact in zip(subjects, facts, strict=True)
    )
    return columns, sections if by_context else (tuple(row for rows in sections for row in rows),), ()


def _block_letters(subject: LoadedModel) -> dict[int, str]:
    """The letter that counts a group's blocks, where there are several kinds; by the group's id."""
    if len(subject.architecture.every_stack) == 1:
        return {}
    from tfacct.algebra.symbols import block_letters

    groups = (group for group in subject.ledger.groups if group.kind or group.numbers)
    return {id(group): letter for group, letter in zip(groups, block_letters(subject.architecture), strict=False)}


def _compressed(rates: Mapping[str, str]) -> dict[str, str]:
    """Compressed keys, and the tokens that wait, by their letters, where so many tokens are made into one key."""
    found: dict[str, str] = {}
    for kind, rate in rates.items():
        keys = f"⌊S / {rate}⌋"
        said = {"entries": keys, "waiting": f"(S mod {rate})", "any": f"min({keys}, 1)"}
        found |= {COMPRESSED[what][kind]: words for what, words in said.items() if kind in COMPRESSED[what]}
    return found


def _formula(subject: LoadedModel, request: Request, cached: str, mesh: Mesh | None = None) -> str:
    """The cache as a product of named sizes, read off the ledger's State lines, with S left open. `mesh`: ranks among
    which the whole model's heads, and the tokens, are divided."""
    from tfacct.parallel.mesh import joint_qk_norm

    tp, cp = (1, 1) if mesh is None else (mesh.tp, mesh.cp)
    kept_in = width(cached)
    kept: dict[tuple[int, str, str], dict[str, int]] = {}  # what states of one kind take, by their blocks
    blocks = _block_letters(subject)
    for group in subject.ledger.groups:
        windowed = WINDOW in group.axes
        keys = f"min(S, {group.axes[WINDOW]:,})" if windowed else "S" if cp == 1 else f"S / {cp}"
        sizes = {"B": request.batch, **group.axes, "S": keys, "J": "J"}
        sizes |= _compressed({kind: f"{group.axes[rate]:,}" for kind, rate in RATES.items() if rate in group.axes})
        of_keys = _compressed(RATES)
        lines = (line for line in group.lines if isinstance(line, State))
        states = [(letters(line.spec), width_of(line, kept_in)) for line in lines]
        for spec, how in dict.fromkeys(states):
            alike, each = states.count((spec, how)), how.each
            named = ["min(S, W)" if windowed and axis == "S" else group.names.get(axis, axis) for axis in spec]
            named = [of_keys.get(name, name) for name in named]

            if cp > 1:
                named = [keys if name == "S" else name for name in named]
            if tp > 1 and not joint_qk_norm(group):
                named = [f"⌈{name} / {tp}⌉" if name in ("K", "N") else name for name in named]
            name = " · ".join([*named, "bytes" if how == kept_in else str(each)])
            values = " · ".join([*(str(sizes[axis]) for axis in spec), str(each)])
            found, letter = kept.setdefault((alike, name, values), {}), blocks.get(id(group), "L")
            found[letter] = found.get(letter, 0) + group.count
    names, numbers = [], []
    for (alike, name, values), found in kept.items():
        stacks = f"({' + '.join(found)})" if len(found) > 1 else next(iter(found))
        names.append(f"{alike} · {stacks} · {name}" if alike > 1 else f"{stacks} · {name}")
        numbers.append(f"{alike * sum(found.values())} · {values}")
    what = model_notes.cache_name([subject])
    return f"{what[0].upper()}{what[1:]} bytes: {' + '.join(names)} = {' + '.join(numbers)}"


class About(NamedTuple):
    """What notes are about: models, or stages of them, their whole models, and their facts."""

    models: Sequence[LoadedModel]
    undivided: Sequence[LoadedModel]
    facts: Sequence[dict[str, Any]]
    request: Request
    cached: str
    mesh: Mesh | None

    @property
    def alone(self) -> bool:
        return len(self.models) == 1


def _overtakes(about: About) -> dict[str, Any] | None:
    """From which context on the cache outgrows the weights, both in its dtype; nothing where it shrinks again and
    again, or where ranks divide tokens or weights."""
    model, mesh, work = about.models[0], about.mesh, about.facts[0]["workload"]
    if not about.alone or (mesh is not None and (mesh.cp > 1 or mesh.fsdp > 1)):
        return None
    narrow = model.quantized or about.cached in units.CACHES
    if model.ledger.period > 1 or narrow or not model_notes.attends([model]):
        return None
    step = Workload(1, 1, work["batch"], source=work["source"] or 0)
    context = cache_overtakes(Point(model.ledger, step, storage(about.cached), width(about.cached)))
    if context is None or context > (model.position_limit or context):
        return None
    whose = " of a rank" if mesh else ""
    return {"context": context, "batch": work["batch"], "whose": whose, "cached": about.cached}


def _variants(about: About) -> str:
    if not model_notes.attends(about.models) or all(map(is_compressed, about.models)):
        return ""
    if about.alone and is_latent(about.models[0]):
        return "MHA: the keys and values of each query head are cached, not the latent that they come from."
    return "MHA: one KV head for each query head. MQA: one for all. Query heads unchanged."


def _cross(about: About) -> dict[str, Any] | None:
    """What of one model's cache is of the source."""
    cross = about.facts[0]["cross_kv_cache_bytes"] if about.alone else 0
    source = about.facts[0]["workload"]["source"]
    return {"cross": cross, "size": units.binary(cross), "source": source} if cross else None


def _of_ranks(about: About) -> list[str]:
    """Which heads, blocks and tokens a rank has."""
    if (mesh := about.mesh) is None:
        return []
    heads = _of_heads(about.undivided, mesh.tp) if mesh.tp > 1 else []
    idle = ranks.idle(mesh, "sp", "fsdp", "ep")
    return [*heads, *ranks.of_stage(about.undivided, about.facts, mesh), *ranks.of_tokens(mesh), *idle]


NOTES = (
    NoteRow(
        "formula", 2, lambda about: about.alone and [_formula(about.models[0], about.request, about.cached, about.mesh)]
    ),
    NoteRow(
        "cache_overtakes",
        1,
        _overtakes,
        "From {context:,} tokens on at batch {batch:,}, the cache takes more than the weights{whose} in {cached}.",
    ),
    NoteRow("variants", 3, _variants),
    NoteRow("cache_format", 2, lambda about: model_notes.cache_notes(about.models, about.cached, "dtype")),
    NoteRow(
        "state", 2, lambda about: model_notes.state_notes(about.models, about.cached, staged="pp" in about.facts[0])
    ),
    NoteRow(
        "cross",
        2,
        _cross,
        "At every context, {cross:,} bytes ({size}) of it are the cross keys and values of a source of {source:,}"
        " tokens. The rest belongs to the tokens themselves.",
    ),
    NoteRow("windows", 2, lambda about: about.alone and model_notes.window_notes(about.undivided, kept=True)),
    NoteRow("unwindowed", 2, lambda about: model_notes.unwindowed(about.facts)),
    NoteRow("shrinking", 3, lambda about: model_notes.shrinking(about.facts)),
    NoteRow("latent", 2, lambda about: model_notes.latent_cache_notes(about.models)),
    NoteRow("ranks", 1, _of_ranks),
)
