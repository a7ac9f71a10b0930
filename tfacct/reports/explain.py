"""The derivation of a total: the symbols, each matmul in symbols and numbers, the sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tfacct.algebra.derivation_model import DerivationModel, Entry, derivation_model
from tfacct.algebra.symbols import block_meanings
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.groups import CACHED_KEYS, VISIBLE_KEYS
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.storage import Storage, dtypes, width
from tfacct.ledger.workload import CHUNKS, OF_COMPRESSED, Request, Workload
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.derivation import Component, Derivation
from tfacct.output.keys import values_of
from tfacct.output.report import Note, Report
from tfacct.reports import build, model_notes

OF_CACHE = ("state", "windows", "latent")
"""Notes of `kv` that a derivation keeps."""

ReportT = TypeVar("ReportT", bound=Report)


def explained(
    report: ReportT,
    models: Sequence[LoadedModel],
    request: Request,
    *,
    train: bool = False,
    masked: bool = False,
    dtype: str | None = None,
    kv_dtype: str | None = None,
) -> ReportT:
    """Return a report of `flops`, `params`, `kv` or `memory` on one model, with the derivation of its total. Options:
    those of the report. Raises UsageError."""
    if len(models) != 1:
        raise UsageError(f"{option('explain')} works with one MODEL, not with {len(models)}")
    (model,) = models
    work = selection.workload(model, request)
    if report.command == "flops":
        derivation = _flops(model, work, train, masked)
    elif report.command == "params":
        derivation = _params(model)
    elif report.command == "kv":
        cached = dtypes(None, dtype)[1]
        derivation = _bytes(model, work, cached)
        title = f"{model_notes.cache_name(models)} in {cached}, {build.workload_words(models, request)}"
        report = replace(
            report,
            title=f"{build.label(model)}: {title}",
            notes=tuple(note for note in report.notes if isinstance(note, Note) and note.key in OF_CACHE),
        )
    else:
        derivation = _bytes(model, work, dtypes(dtype, kv_dtype)[1], model.storage(dtype))
    (facts,) = report.models
    described = ({**facts, "derivation": values_of(build.Derivation, derivation)},)
    in_words = derivation.takeaway or report.answer
    answer = f"{report.answer} {in_words}" if facts.get("fit") and in_words != report.answer else in_words
    return replace(report, answer=answer, models=described, derivation=derivation)


def _flops(model: LoadedModel, work: Workload, train: bool, masked: bool) -> Derivation:
    spelled = _spelled(model.settled(work, masked=masked), work)
    entries = list(spelled.products(masked=masked, train=train))

    def component(entry: Entry) -> str:
        assert entry.line is not None
        name = paths.component_of(entry.line)
        return build.COMPONENTS.get(name, name)

    rule = f"{FLOPS_PER_MULTIPLY_ADD} FLOPs per multiply-add · multiply-adds per layer · layers = FLOPs"
    rule = f"3 matmuls (one forward, two gradients) · {rule}" if train else rule
    in_words = _flops_in_words(model, work, entries, train=train)
    return _derivation(spelled, entries, "FLOPs", rule, component, in_words)


def _params(model: LoadedModel) -> Derivation:
    spelled = _spelled(model, None)
    entries = list(spelled.tensors())
    rule = "parameters per layer · layers = parameters"
    return _derivation(spelled, entries, "parameters", rule, _part, _params_in_words(model, entries))


def _bytes(model: LoadedModel, work: Workload, cached: str, how: Storage | None = None) -> Derivation:
    """Bytes of the cache, and of the weights in the storage `how`."""
    spelled, rule = _spelled(model, work), "bytes per element · elements per layer · layers = bytes"
    if how is not None and how.by_block:
        why = f"{model.name}: in {how.name} the bytes of a matrix differ between layers"
        raise UsageError(f"{why}, so {option('explain')} has no single formula", f"another {option('dtype')}")
    if how is not None and how.narrow:
        rule = f"{rule}; {how.name}: {how.about}"
    states = list(spelled.states(width(cached)))
    if how is None:
        return _derivation(spelled, states, "bytes", rule, _part, _bytes_in_words(work, states))
    weights, cache_paths = list(spelled.tensors(how)), {entry.path for entry in states}

    def component(entry: Entry) -> str:
        return model.cache_name if entry.path in cache_paths else f"weights of {_part(entry)}"

    in_words = _bytes_in_words(work, states, weights)
    return _derivation(spelled, [*weights, *states], "bytes", rule, component, in_words)


def _spelled(model: LoadedModel, work: Workload | None) -> DerivationModel:
    return derivation_model(model.ledger, model.architecture, work)


def _part(entry: Entry) -> str:
    return paths.heading_of(entry.path)


def _derivation(
    model: DerivationModel,
    entries: Iterable[Entry],
    unit: str,
    rule: str,
    component: Callable[[Entry], str],
    in_words: tuple[str, str],
) -> Derivation:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(component(entry), []).append(entry)
    components = tuple(Component(name, tuple(model.steps(lines, unit))) for name, lines in found.items())
    steps = [step for one in components for step in one.steps]
    if any("⌈" in step.symbols for step in steps):
        rule = f"{rule}; ⌈ ⌉ rounds up"
    if any("⌊" in step.symbols for step in steps):
        rule = f"{rule}; ⌊ ⌋ rounds down"
    used = model.axes_of(steps)
    return Derivation(unit, rule, used, components, *in_words)


# Derivations in words, from coefficients; empty if these do not add up to the total

NOTHING = ("", "")
KEYS, CACHE_AXES = ("S", VISIBLE_KEYS), ("S", CACHED_KEYS, "J")
"""Axes of the keys of a step, and of cached ones."""
OTHERS = ("I", "J", CHUNKS, *OF_COMPRESSED)
"""Axes of a source, of chunks and of compressed keys: their FLOPs are those of no token."""


@record
class _Share:
    """FLOPs of one of `many` tokens or sequences: `per_weight` for each of its `weights`, those of each of its `keys`,
    and `fixed`."""

    who: str
    many: int
    per_weight: int
    weights: int
    keys: Mapping[str, tuple[int, int]]
    fixed: int

    @property
    def each(self) -> int:
        """FLOPs of one."""
        met = sum(cost * count for cost, count in self.keys.values())
        return self.per_weight * self.weights + met + self.fixed

    @property
    def written(self) -> str:
        """The product in numbers: `1,024 · (2 · 124,318,464 + 36,864 · 1,024)`."""
        terms = [f"{self.per_weight} · {self.weights:,}"] if self.weights else []
        terms += [f"{cost:,} · {count:,}" for cost, count in self.keys.values() if cost]
        terms += [f"{self.fixed:,}"] if self.fixed else []
        return f"{self.many:,} · {_bracketed(terms)}"


def _flops_in_words(model: LoadedModel, work: Workload, entries: Sequence[Entry], *, train: bool) -> tuple[str, str]:
    """FLOPs of a new token, a token of context and a sequence: in words, and in numbers."""
    if any(entry.has(*OTHERS) or any(factor.sum for factor in entry.factors) for entry in entries):
        return NOTHING
    factor = FLOPS_PER_MULTIPLY_ADD * (3 if train else 1)
    found: dict[str, list[Entry]] = {"T": [], "S": [], "": []}
    for entry in entries:
        found[_payer(entry, work)].append(entry)
    shares = [_share(of_one, who, work, factor) for who, of_one in found.items()]
    shares = [share for share in shares if share.many and share.each]
    total = sum(entry.value for entry in entries)
    once = ("B", "T", "O", "S")  # a product has the factors of its weight and of tokens only
    per_weight = all(entry.without(*once) == factor * entry.weights for entry in entries if entry.weights)
    if sum(share.many * share.each for share in shares) != total or not per_weight:
        return NOTHING
    in_words = (_costs(model, share, found[share.who], train) for share in shares)
    return " ".join(in_words), f"{' + '.join(share.written for share in shares)} = {total:,} FLOPs"


def _payer(entry: Entry, work: Workload) -> str:
    """The axis that a product is counted by: new tokens, or tokens of context; empty for a sequence."""
    if entry.has("O"):
        return "T" if work.logits == "all" else ""
    return entry.has("T") or entry.has("S")


def _share(entries: Sequence[Entry], who: str, work: Workload, factor: int) -> _Share:
    weights = fixed = 0
    keys: dict[str, tuple[int, int]] = {}
    many = {"T": work.tokens, "S": work.context, "": 1}[who]
    for entry in entries:
        by_axis = {one.axis: one.value for one in entry.factors if one.axis}
        met = entry.has(*KEYS) if who == "T" else ""
        each = entry.value // max(1, work.batch * many * by_axis.get(met, 1))
        if met:
            keys[met] = keys.get(met, (0, 0))[0] + each, by_axis[met]
        elif who == "T" and entry.weights:
            weights += each // factor
        else:
            fixed += each
    return _Share(who, work.batch * many, factor, weights, dict(sorted(keys.items())), fixed)


def _costs(model: LoadedModel, share: _Share, entries: Sequence[Entry], train: bool) -> str:
    match share.who:
        case "T":
            new = "new " if model.has_cache and not train else ""
            return f"Each {new}token costs {_of_token(model, share, entries)}."
        case "S":
            return f"Each token of context, cached or new, adds {share.fixed:,}."
    return f"Each sequence costs {share.fixed:,} more, whatever its length."


def _of_token(model: LoadedModel, share: _Share, entries: Sequence[Entry]) -> str:
    """`2 FLOPs per matmul weight (… weights), plus 36,864 per token of context`."""
    clauses = []
    if share.weights:
        experts = any(entry.line is not None and entry.line.expert_axis for entry in entries)
        only = ", with only the experts that it is routed to" if experts else ""
        clauses = [
            f"{share.per_weight} FLOPs per use of a weight ({share.weights:,} uses{only})"
            if _again(entries) or any(stack.shared_weights for stack in model.architecture.every_stack)
            else f"{share.per_weight} FLOPs per matmul weight ({share.weights:,} weights{only})"
        ]
    clauses += [f"{cost:,} {_per(model, key)}" for key, (cost, _) in share.keys.items() if cost]
    if share.fixed:
        clauses.append(f"{share.fixed:,} in matmuls of activations with each other, the same at every context")
    return ", plus ".join(clauses)


def _again(entries: Iterable[Entry]) -> bool:
    """True if two products read one weight."""
    lines = {entry.path: entry.line for entry in entries if entry.line is not None and entry.weights}
    return any(count > 1 for count in Counter(line.parameters()[0].path for line in lines.values()).values())


def _per(model: LoadedModel, key: str) -> str:
    if key == "S":
        return "per token of context" if model.has_cache else "per token of its sequence"
    mark = key.removeprefix(VISIBLE_KEYS)
    return f"per visible token of a windowed layer{f' ({key})' if mark else ''}"


def _params_in_words(model: LoadedModel, entries: Sequence[Entry]) -> tuple[str, str]:
    """Parameters of each layer, and those outside the layers."""
    found: dict[str, tuple[int, int]] = {}
    outside, shared, called = 0, 0, block_meanings(model.architecture)
    once = any(stack.shared_weights for stack in model.architecture.every_stack)
    for entry in entries:
        blocks = next((one for one in entry.factors if one.blocks), None)
        if blocks is None and once and paths.repeated(entry.path):
            shared += entry.value
        elif blocks is None:
            outside += entry.value
        else:
            found[blocks.axis] = blocks.value, found.get(blocks.axis, (0, 0))[1] + entry.value // blocks.value
    sentences = [
        f"each of the {count:,} {called[name]} has {each:,} parameters"
        if count > 1
        else f"the {called[name].replace('layers', 'layer')} has {each:,} parameters"
        for name, (count, each) in found.items()
    ]
    sentences += [f"the layers share {shared:,} parameters"] if shared else []
    sentence = f"{', '.join(sentences)}; everything outside these layers"
    terms = [*(f"{count:,} · {each:,}" for count, each in found.values()), *([f"{shared:,}"] if shared else [])]
    terms.append(f"{outside:,}")
    total = sum(entry.value for entry in entries)
    return f"{sentence[0].upper()}{sentence[1:]} has {outside:,}.", f"{' + '.join(terms)} = {total:,} parameters"


def _bytes_in_words(work: Workload, states: Sequence[Entry], weights: Sequence[Entry] = ()) -> tuple[str, str]:
    """Bytes of the weights, and of the cache: those of a token of context, a window, a source token and a state."""
    taken, cached = (sum(entry.value for entry in entries) for entries in (weights, states))
    sentences = [f"The weights take {taken:,} bytes, independent of the workload."] if weights else []
    if weights and not states:
        return f"{sentences[0]} Nothing is cached between steps.", ""
    by_key = _by_key(work, states)
    if by_key is None:
        return "".join(sentences), ""
    terms = [f"{each:,} · {many:,}" if name else f"{each:,}" for name, (each, many) in by_key.items() if each] or ["0"]
    before = f"{taken:,} + " if weights else ""
    check = f"{before}{work.batch:,} · {_bracketed(terms)} = {taken + cached:,} bytes"
    return " ".join([*sentences, _adds(by_key)]), check


def _by_key(work: Workload, entries: Iterable[Entry]) -> dict[str, tuple[int, int]] | None:
    """Bytes per key and the number of keys of a sequence, by axis; those of the sequence under an empty axis. None if
    bytes are rounded up, and for compressed keys."""
    found: dict[str, tuple[int, int]] = {}
    for entry in entries:
        if entry.has(*OF_COMPRESSED) or any("⌈" in factor.symbols for factor in entry.factors):
            return None
        name = entry.has(*CACHE_AXES)
        many = next((one.value for one in entry.factors if one.axis == name and name), 1)
        each = entry.value // max(1, work.batch * many)
        found[name] = found.get(name, (0, 0))[0] + each, many
    return found


def _bracketed(terms: Sequence[str]) -> str:
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _adds(by_key: Mapping[str, tuple[int, int]]) -> str:
    sentences = []
    for name, (each, _) in sorted(by_key.items(), key=lambda one: (one[0] == "", one[0])):
        if not each:
            continue
        if name == "":
            sentences.append(f"Each sequence has a state of {each:,} bytes, the same at every context.")
        elif name.startswith(CACHED_KEYS):
            mark = name.removeprefix(CACHED_KEYS)
            window = f"window W{mark}" if mark else "window"
            sentences.append(f"Each token in the {window} adds {each:,} bytes per sequence.")
        else:
            token = "source token" if name == "J" else "token of context"
            sentences.append(f"Each {token} adds {each:,} bytes per sequence.")
    return " ".join(sentences)
