"""Notes about models: their attention, experts, encoders, states and storage; and what was counted of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.accounts.metrics import MEMORY_TRAFFIC, Metric, Point, flops_of
from tfacct.accounts.products import by_part
from tfacct.architecture.parts import (
    Attention,
    Experts,
    LatentAttention,
    Mixer,
    MlaMode,
    Projector,
    SelfAttention,
    Stem,
)
from tfacct.base import units
from tfacct.base.errors import listed
from tfacct.base.spelling import option, spelled
from tfacct.ledger import paths
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.evaluated import width_of
from tfacct.ledger.lines import WINDOW, Matmul, Pointwise, State
from tfacct.ledger.storage import Storage, dtypes, width
from tfacct.ledger.workload import OVERLAPPING, TILES, Request, Workload
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.loading.published import cache_format, difference, weights
from tfacct.output.report import Note, NoteRow, notes
from tfacct.reports import build


def attends(models: Sequence[LoadedModel]) -> bool:
    """True if one of the models has attention, or if no model is named."""
    return not models or any(model.architecture.attentions for model in models)


def mixers(models: Sequence[LoadedModel]) -> list[Mixer]:
    """Parts of the models that stand in place of attention, one of each name."""
    found = (part for model in models for _, part in model.architecture.having(Mixer))
    return list({part.name: part for part in found}.values())


def cache_name(models: Sequence[LoadedModel]) -> str:
    """Name of what is kept between steps; of several models, the name that fits most of what they keep."""
    return max((model.cache_name for model in models), key=len, default="KV cache")


def has_logits(models: Sequence[LoadedModel]) -> bool:
    """True if positions of one of the models get logits, or if no model is named."""
    return not models or any(model.logits for model in models)


class Blocks(NamedTuple):
    """Models whose layers notes are about."""

    whole_models: Sequence[LoadedModel]
    masked: bool = False


def block_notes(models: Sequence[LoadedModel], *, masked: bool = False) -> list[Note]:
    """Windows and experts of one model; nothing of several models."""
    return notes(BLOCKS, Blocks(models, masked))


def shared_notes(models: Sequence[LoadedModel]) -> list[str]:
    """How many blocks of one model run with the weights of one."""
    stacks = models[0].architecture.every_stack if len(models) == 1 else ()
    whole = [stack.count for stack in stacks if stack.once and stack.count > 1]
    sentences = [f"All {count:,} layers share one set of weights, stored once." for count in whole]
    parts = [stack.count for stack in stacks if stack.shared]
    if max(parts, default=0) < 2:
        return sentences
    first, *others = (f"{count:,}" for count in parts)
    more = "".join(f", and of {count} others," for count in others)
    each = " each" if others else ""
    sets = f"share one set of weights{each}; each layer has its own adapters"
    return [*sentences, f"Attention and MLP of {first} layers{more} {sets}."]


READ = {
    "first": "the first position",
    "last": "the last position",
    "end": "the end-of-text position",
    "mean": "the mean over positions",
    "average": "the mean over all positions",
    "both": "the mean over the first two positions",
    "each": "every position",
    "all": "all positions",
}
"""What a pooler reads."""


def head_notes(models: Sequence[LoadedModel]) -> list[str]:
    """Result of one model without a language model's head, in place of logits over its tokens."""
    shape = models[0].architecture if len(models) == 1 else None
    if shape is None or (shape.head is not None and shape.classes is None):
        return []
    if shape.classes is None:
        reads = READ.get(getattr(shape.pooler, "reads", "all"))
        gives = f"the pooler reads {reads} of each sequence" if shape.pooler else "no logits are computed"
        return [f"No language modeling head: {gives}."]
    if shape.classes.pooled:
        who = "the pooler" if shape.pooler is not None else "the classifier"
        beside = "" if shape.head is None else " next to the logits"
        reads = (
            "each of the first two positions" if shape.classes.taught else READ[getattr(shape.pooler, "reads", "first")]
        )
        return [f"Classes are scored once per sequence{beside}: {who} reads {reads}."]
    if not models[0].config.task_head.picks:
        return ["The classifier scores every position."]
    return [
        "As in the class, the classifier scores every position and keeps one position per sequence;"
        " --logits last counts only that one."
    ]


def _distance_notes(models: Sequence[LoadedModel]) -> list[str]:
    """Scores of one model that are no product."""
    lines = [line for group in models[0].ledger.groups for line in group.lines] if len(models) == 1 else []
    far = [paths.short(line.path) for line in lines if isinstance(line, Pointwise) and line.path.endswith(".scores")]
    return (
        [f"Not included: scores max |q − k|, which are pointwise work: {', '.join(far)} (--pointwise)."] if far else []
    )


IDLE = "The router can select zero-computation experts. The count assumes that no token does, which costs the most."


def expert_notes(models: Sequence[LoadedModel]) -> list[str]:
    """How many experts a token meets, and what its active parameters are."""
    if len(models) != 1:
        return []
    stacks = models[0].architecture.stacks
    routed = models[0].architecture.having(Experts)
    if not routed:
        return []
    blocks, found = sum(stack.count for stack in stacks), dict[tuple[int, int, bool], int]()
    for stack, part in routed:
        kind = part.active, part.experts, part.shared_width is not None
        found[kind] = found.get(kind, 0) + stack.count
    sentences = [
        f"In {count:,} of {blocks:,} layers, a token uses {active:,} of {experts:,} experts"
        f"{' and a shared expert' if shared else ''}."
        for (active, experts, shared), count in found.items()
    ]
    sentences[-1] += " Active parameters: all parameters minus the unused experts."
    if any(part.idle is not None for _, part in routed):
        sentences.append(IDLE)
    return sentences


BLOCKS = (
    NoteRow(
        "windows",
        2,
        lambda about: len(about.whole_models) == 1 and window_notes(about.whole_models, masked=about.masked),
    ),
    NoteRow("experts", 2, lambda about: expert_notes(about.whole_models)),
    NoteRow("shared_weights", 2, lambda about: shared_notes(about.whole_models)),
    NoteRow("distances", 3, lambda about: _distance_notes(about.whole_models)),
    NoteRow("head", 2, lambda about: head_notes(about.whole_models)),
)
"""Windows, experts, shared weights and heads of one model; nothing of several."""


def projector_notes(models: Sequence[LoadedModel]) -> list[str]:
    """Names the encoders whose count includes a projector, with its parameters."""
    found = [model for model in models if model.architecture.projector is not None]
    counts = [by_part(model.ledger.parameters())[Projector.name] for model in found]
    return [
        f"{model.name} includes the projector: {count:,} parameters."
        for model, count in zip(found, counts, strict=True)
    ]


def not_included(model: LoadedModel, stored: Storage | None = None) -> dict[str, Any] | None:
    """The layers that a config names and the counts do not include, with their parameters where they are described,
    and their bytes as they are `stored`."""
    missing = model.not_included
    if missing is None:
        return None
    found: dict[str, Any] = {**missing._asdict(), "params": None, **({} if stored is None else {"bytes": None})}
    further = model.config.with_additional_layers()
    if further is not None:
        counted = model.config.transformer().ledger()
        found["params"] = sum(further.parameters().values()) - sum(counted.parameters().values())
        if stored is not None:
            every, own = (ledger.weight_bytes(stored) for ledger in (further, counted))
            found["bytes"] = sum(every.values()) - sum(own.values())
    return found


def not_included_notes(models: Sequence[LoadedModel], facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names the layers of one model that are not included, or the models that have some."""
    missing = [(one, fact["not_included"]) for one, fact in zip(models, facts, strict=True) if fact["not_included"]]
    if len(models) != 1:
        names = listed([one.name for one, _ in missing], 4)
        return [f"Not included: MTP layers and draft models of {names}."] if missing else []
    return [_not_included(one, found) for one, found in missing]


def _not_included(model: LoadedModel, found: Mapping[str, Any]) -> str:
    many, size = found["layers"], ""
    if found.get("bytes") is not None:
        size = f", {units.binary(found['bytes'])} of weights"
    elif found["params"] is not None:
        size = f", {units.people(found['params'])} parameters"
    them = "them" if many > 1 else "it"
    how = (
        f"; {spelled('--set mtp=true', 'mtp=True')} includes {them}" if "mtp" in type(model.config).model_fields else ""
    )
    return f"Not included: {many:,} {found['kind']} layer{'s' if many > 1 else ''} ({found['field']}){size}{how}."


def active_notes(models: Sequence[LoadedModel]) -> list[str]:
    """Definition of the parameters P, where a token does not meet all of them."""
    routed = any(isinstance(part, Experts) for model in models for part in model.architecture.parts())
    return ["P: active parameters, i.e. all parameters minus the unused experts."] if routed else []


def source_notes(models: Sequence[LoadedModel], work: Workload | None = None) -> list[str]:
    """Reading of the source by one model's encoder, or of an encoder's own text where it is padded; nothing of other
    models."""
    if len(models) != 1:
        return []
    longest = models[0].architecture.longest
    if longest is not None and work is not None and work.tokens % longest:
        padded = rounded_up(work.tokens, longest) * longest
        return [f"The layers run over {padded:,} tokens: the text is padded to whole windows of {longest:,}."]
    if models[0].source is None:
        return []
    read = work is None or work.new_source
    encoder = models[0].architecture.encoder
    if encoder is not None and encoder.given:
        what = "The source is image features from another model, which is not counted."
        cached = "Its cross keys and values are cached."
        return [
            f"{what} {cached}"
            if read
            else f"{what} Its cross keys and values are cached and cost nothing in this step."
        ]
    window, padding = (encoder and encoder.longest) or 1, ""
    if work is not None and work.source % window:
        padding = (
            f", padded to {rounded_up(work.source, window) * window:,} tokens, a multiple of the window ({window:,})"
        )
    return [
        f"The encoder runs once, over the whole source{padding}. Its cross keys and values are cached."
        if read
        else "The encoder ran before this step; its cross keys and values are cached, so neither costs anything here."
    ]


def state_notes(models: Sequence[LoadedModel], cached: str = "bf16", *, staged: bool = False) -> list[str]:
    """Names the models that keep a state of fixed size instead of a cache, and what of it has a dtype of its own, next
    to a cache in this one. `staged`: the models are a stage each, and others may have attention."""
    return [*_sized_notes(models, staged), *_dtype_notes(models, cached), *_borrowed(models)]


def _borrowed(models: Sequence[LoadedModel]) -> list[str]:
    """How many blocks of one model keep no keys and values of their own, or no latents."""
    if len(models) != 1:
        return []
    shape = models[0].architecture
    heads = sum(stack.count for stack, part in shape.having(Attention) if part.borrowed)
    latents = (part for part in shape.having(LatentAttention) if part[1].borrowed and part[1].mla_mode != "unpacked")
    each = {"keys and values": heads, "latents": sum(stack.count for stack, _ in latents)}
    blocks = sum(stack.count for stack in shape.stacks)
    return [
        f"{count:,} of {blocks:,} layers reuse the {what} of other layers." for what, count in each.items() if count
    ]


def cache_words(models: Sequence[LoadedModel], cached: str) -> str:
    """What models keep between steps, and in what: `state in bf16 and fp32` where some has a dtype of its own."""
    return f"{cache_name(models)} in {_and(cache_dtypes(models, cached))}"


def cache_dtypes(models: Sequence[LoadedModel], cached: str) -> list[str]:
    """The dtype of the cache, and those of states that have their own."""
    return [cached, *sorted({*_own_dtypes(models, cached).values()} - {cached})]


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _own_dtypes(models: Sequence[LoadedModel], cached: str) -> dict[str, str]:
    """States that have a dtype of their own next to a cache in this one → that dtype."""
    lines = (line for model in models for group in model.ledger.groups for line in group.lines)
    states, cache = (line for line in lines if isinstance(line, State)), width(cached)
    found = {paths.short(line.path): (line, width_of(line, cache)) for line in states}
    return {path: how.name for path, (line, how) in found.items() if line.bits is not None or how != cache}


def _dtype_notes(models: Sequence[LoadedModel], cached: str) -> list[str]:
    """Names the states that have a dtype of their own."""
    found: dict[str, list[str]] = {}
    for path, dtype in _own_dtypes(models, cached).items():
        found.setdefault(dtype, []).append(path)
    return [
        f"{_and(named)} {'is' if len(named) == 1 else 'are'} stored in {dtype}, independent of the cache dtype."
        for dtype, named in found.items()
    ]


def _sized_notes(models: Sequence[LoadedModel], staged: bool) -> list[str]:
    if len(models) == 1 and models[0].architecture.attentions and mixers(models):
        stacks, every = models[0].architecture.having(Mixer), models[0].architecture.stacks
        some, blocks = sum(stack.count for stack, _ in stacks), sum(stack.count for stack in every)
        where = f"the {blocks:,} layers of this stage" if staged else f"{blocks:,} layers"
        return [
            f"{some:,} of {where} keep{'s' if some == 1 else ''} a state of fixed size, the same for every context."
        ]
    without = [model.name for model in models if not model.architecture.attentions]
    if not without:
        return []
    size = "a state of fixed size, so further tokens add nothing"
    if staged and len(models) == 1:
        return [f"No attention in this stage, so no KV cache: every layer keeps {size}."]
    if len(without) == len(models) and not staged:
        return [f"No attention, so no KV cache: every layer keeps {size}."]
    who = f"{', '.join(without)} keeps" if len(without) == 1 else f"{', '.join(without)} keep"
    return [f"{who} no keys and values{' in the stage shown' if staged else ''}, but {size}."]


def overtaken(model: LoadedModel, context: int | None) -> list[str]:
    """Gives the context from which attention, of a decoder behind an encoder its own, costs more than all else."""
    merged = any(isinstance(part, Attention) and part.reads_source for part in model.architecture.attentions)
    whose = f"the decoder's {'' if merged else 'self-'}attention" if model.source is not None else "attention"
    if context is None:
        return []
    past = model.past_words(context)
    on = f"From {context:,} tokens on{past}, {whose}"
    return [f"{on} scores and attention-weighted values cost more than everything else together."]


def storage_notes(models: Sequence[LoadedModel], dtype: str | None) -> list[str]:
    """What a narrow format takes, what is stored of it, and what stays wide; nothing of models stored wide."""
    found: dict[str, list[tuple[LoadedModel, Storage]]] = {}
    for model, how in selection.storages(models, dtype)[0]:
        if how.narrow:
            found.setdefault(f"{how.name} {how.about} {how.wide.name} {sorted(how.takes)}", []).append((model, how))
    sentences = [
        _stored_so(alike, named=dtype is not None, alone=len(models) == len(alike)) for alike in found.values()
    ]
    return [*sentences, *range_notes(models, dtype)]


def range_notes(models: Sequence[LoadedModel], dtype: str | None) -> list[str]:
    """Why the bytes of weights have a range, and which end is counted."""
    found: dict[str, list[str]] = {}
    for model, how in selection.storages(models, dtype)[0]:
        if how.least is not None:
            found.setdefault(how.differs, []).append(model.name)
    if found and len(models) == 1:
        least, most = selection.weight_range(models[0], dtype)
        return [f"Weights: {least:,} to {most:,} bytes, since {why}. Totals use the upper end." for why in found]
    return [
        f"The weights of {listed(names)} have a range, since {why}. Totals use the upper end."
        for why, names in found.items()
    ]


def _stored_so(alike: Sequence[tuple[LoadedModel, Storage]], *, named: bool, alone: bool) -> str:
    """How models in the same format are stored. `named`: by the user, not by their configs. `alone`: there are no
    other models."""
    models, how = [model for model, _ in alike], alike[0][1]
    who = "" if alone else f" ({', '.join(model.name for model in models)})"
    scales = ", all counted" if how.scaled else ""
    others = "All other tensors" if "embedding" in how.takes else "All other tensors, embeddings included,"
    why = "as in published checkpoints" if named else "as the config says"
    sentence = f"{how.name}{who}: {_taken(models, how)}, in {how.about}{scales}."
    return f"{sentence} {others} stay in {how.wide.name}, {why}.{_left(how)}"


ROUNDING = 0.005
"""Share of the bytes of files that masks, positions and routers' biases take, which no count has."""


def files_notes(models: Sequence[LoadedModel], dtype: str | None = None) -> list[str]:
    """How far the files next to a config are from what is counted of them as published; nothing where the user names
    the `dtype`."""
    if dtype is not None:
        return []
    return [note for model in models if (note := _files_note(model, len(models) == 1))]


def _files_note(model: LoadedModel, alone: bool) -> str:
    found = weights(model)
    if found is None:
        return ""
    more = difference(model, found, model.storage())
    if abs(more) <= ROUNDING * found.bytes or (more > 0 and model.left_out):
        return ""
    of = "" if alone else f" of {model.name}"
    apart = f"{units.binary(abs(more))} {'more' if more > 0 else 'less'} than counted"
    if not found.dtypes:  # the files themselves are not here
        return f"The index{of} names {units.binary(found.bytes)} of tensors, {apart}."
    compared = spelled(f"`tfacct check {model.folder}` compares them", "tfacct.checkpoint compares them")
    return f"The files{of} hold {units.binary(found.bytes)} of tensors, {apart}: {compared}."


def cache_notes(models: Sequence[LoadedModel], cached: str, by: str = "kv_dtype") -> list[str]:
    """Says where a config stores its cache quantized, and it is counted in bf16. `by`: the option that counts another
    dtype."""
    found: dict[str, list[str]] = {}
    for model in models if cached == "bf16" else ():
        if (stored := cache_format(model)) is not None:
            found.setdefault(stored, []).append(model.name)
    sentences = []
    for stored, names in found.items():
        whose = models[0].format_file or "The config" if len(models) == 1 else f"The config of {', '.join(names)}"
        known = f"8 bits; {option(by, stored)} counts it so."
        bits = known if stored in ("fp8", "int8") else f"{stored}, which is not supported."
        sentences.append(f"{whose} stores the cache in {bits}")
    return sentences


HEAD = "lm_head.weight"
SHOWN = 4
"""Names of matrices that a sentence gives before it counts the others."""


def _left(how: Storage) -> str:
    """Matrices that a config leaves as they are."""
    names = list(dict.fromkeys(paths.short(paths.starred(paths.module_of(path))) for path in sorted(how.left)))
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    some = " in some layers" if how.by_block else ""
    return f" These too, by name{some}: {', '.join(names[:SHOWN])}{more}."


def _taken(models: Sequence[LoadedModel], how: Storage) -> str:
    ends = [name for role, name in (("head", "the head"), ("embedding", "the token embedding")) if role in how.takes]
    tied = all(model.architecture.head is None or model.architecture.head.tied for model in models)
    ends = [name for name in ends if name != "the head" or not (tied or HEAD in how.left)]
    experts = {model.ledger.experts and "dense" not in how.takes for model in models}
    matrices = "the weight matrices of the layers"
    if experts == {True, False}:
        matrices = f"{matrices}, or only of the experts in models with experts"
    elif experts == {True}:
        matrices = "the weight matrices of the experts"
    return " and ".join(filter(None, (", ".join([matrices, *ends[:-1]]), *ends[-1:])))


# Which keys a token sees: windows, chunks, choices of an indexer, keys made of several tokens


def window_notes(settings: Sequence[LoadedModel], *, cached: bool = False, masked: bool = False) -> list[str]:
    """How many blocks of one model have a window, and what that changes: of products, or of what is `cached`. Where the
    model stands in several settings that differ in it, of all of them."""
    windows = list(dict.fromkeys(_windows(model) for model in settings))
    if len(settings) == 1 and (tiled := _tiled(settings[0])):
        return tiled
    if settings and (compressed := _compressed(settings, cached=cached, masked=masked)):
        return compressed
    if not any(windows):
        return _chosen(settings[0], cached=cached, masked=masked) if len(settings) == 1 else []
    chunked = any(_chunked(part) for model in settings for part in model.architecture.attentions)
    span = "chunk" if chunked else "window"
    follows = (
        f", and only those are cached; once the {span} is full, further tokens add nothing in these layers."
        if cached
        else f"; pairs outside the {span} are not counted."
        if masked
        else f"; all pairs of new tokens are counted, as in an unfused kernel (--masked: only pairs in the {span})."
    )
    if len(windows) == 1:
        sentences = [
            (units.between([count]), units.between([of]), units.between([window])) for count, of, window in windows[0]
        ]
    else:
        counts, blocks, sizes = zip(*(each for found in windows for each in found), strict=True)
        sentences = [(units.between(counts), units.between(blocks), units.between(sizes))]
    chunk = ", within its own chunk" if chunked else ""
    where = "" if all(windows) else "With a window, in"
    chosen = _chosen(settings[0], cached=cached, masked=masked) if len(settings) == 1 else []
    return [
        *(
            f"{where or 'In'} {count} of {of} layers, a token sees at most {window} keys{chunk}{follows}"
            for count, of, window in sentences
        ),
        *chosen,
    ]


def _chosen(model: LoadedModel, *, cached: bool, masked: bool) -> list[str]:
    """How many keys an indexer chooses for a token, and what that changes."""
    stacks = model.architecture.having(LatentAttention)
    found = {part.indexer.top for _, part in stacks if part.indexer is not None}
    count = sum(stack.count for stack, part in stacks if part.indexer is not None)
    all_ = sum(stack.count for stack in model.architecture.stacks)
    where = "every layer" if count == all_ else f"{count:,} of {all_:,} layers"
    if not found:
        return _chosen_blocks(model, cached=cached, masked=masked)
    follows = (
        "; the cache keeps all keys, plus the keys of the indexer."
        if cached
        else "; the other pairs are not counted."
        if masked
        else "; all pairs are counted, as transformers computes them (--masked: only the selected ones)."
    )
    return [f"In {where}, an indexer selects at most {units.between([*found])} keys per token{follows}"]


def _compressed(settings: Sequence[LoadedModel], *, cached: bool, masked: bool) -> list[str]:
    """Keys that are made of several tokens: in how many blocks of one model, of how many tokens, and what that
    changes. Of several settings, that of the first where all have the same."""
    each = list(dict.fromkeys(_of_keys(model) for model in settings))
    if not any(each):
        return []
    if len(each) > 1:
        return ["A token sees the most recent tokens, and compressed keys of several tokens each."]
    parts = [part.compression for part in settings[0].architecture.attentions]
    light = any(keys is not None and keys.chosen is not None for keys in parts)
    follows = (
        " The cache also holds the tokens of incomplete keys."
        if cached
        else f" Pairs with incomplete{' or unselected' if light else ''} keys are not counted."
        if masked
        else " All these keys are counted, as transformers computes them (--masked: only the keys that a token sees)."
    )
    window = next(part.window for part in settings[0].architecture.attentions if part.compression is not None)
    total = sum(stack.count for stack in settings[0].architecture.stacks)
    return [f"In {total:,} layers, a token sees the last {window:,} tokens; {'; '.join(each[0])}.{follows}"]


def _of_keys(model: LoadedModel) -> tuple[str, ...]:
    """The blocks whose tokens are compressed, in words."""
    found = []
    for stack, part in model.architecture.having(SelfAttention):
        keys = part.compression
        if keys is not None and keys.tokens is not None:
            chosen = f", of which an indexer selects at most {keys.chosen:,}" if keys.chosen is not None else ""
            found.append(f"{stack.count:,} of them also have compressed keys of {keys.tokens:,} tokens each{chosen}")
    return tuple(found)


def _tiled(model: LoadedModel) -> list[str]:
    """How many blocks have windows of patches that see themselves alone."""
    stacks = model.architecture.stacks
    tiled = [(stack.count, part.tiles) for stack, part in model.architecture.having(Attention) if part.tiles]
    every = sum(stack.count for stack in stacks)
    what = "position" if isinstance(model.architecture.embed, Stem) else "patch"
    return [
        f"In {count} of {every} layers, a {what} sees only the {size} positions of its own window."
        for count, size in tiled
    ]


def _chosen_blocks(model: LoadedModel, *, cached: bool, masked: bool) -> list[str]:
    """How many blocks of keys an indexer chooses for a token, and what that changes."""
    found = [(stack, part.indexer) for stack, part in model.architecture.having(Attention) if part.indexer]
    if not found:
        return []
    count, all_ = sum(stack.count for stack, _ in found), sum(stack.count for stack in model.architecture.stacks)
    tops, sizes = (units.between([*{getattr(own, name) for _, own in found}]) for name in ("top", "size"))
    follows = (
        "the cache keeps all keys, plus the keys of the indexer."
        if cached
        else "the unselected keys are counted even with --masked."
        if masked
        else "all keys are counted, as transformers computes them."
    )
    return [f"In {count:,} of {all_:,} layers, an indexer selects {tops} × {sizes} keys per token; {follows}"]


def _chunked(part: object) -> bool:
    return isinstance(part, Attention) and part.mask == "chunks"


def _windows(model: LoadedModel) -> tuple[tuple[int, int, int], ...]:
    """Each window: in how many blocks, of how many, how many keys."""
    stacks = model.architecture.stacks
    found: dict[int, int] = {}
    for stack in stacks:
        if stack.block.window is not None:
            found[stack.block.window] = found.get(stack.block.window, 0) + stack.count
    return tuple((count, sum(stack.count for stack in stacks), window) for window, count in found.items())


MLA_MODES: dict[MlaMode, str] = {
    "expanded": "the latent is cached, and every step recomputes the keys and values of the whole context from it,"
    " as in transformers",
    "absorbed": "the latent is cached, and attention runs in latent space, as engines do in decode steps",
    "unpacked": "the keys and values of all heads are cached; engines cache the latent",
}


def _mode_words(model: LoadedModel, runs: MlaMode) -> str:
    """What a mode does, in words: layers with a window rebuild what is in it."""
    windowed = any(part.window is not None for _, part in model.architecture.having(LatentAttention))
    return MLA_MODES[runs].replace("of the whole context", "of all visible tokens") if windowed else MLA_MODES[runs]


def latent_step_notes(points: Sequence[tuple[LoadedModel, Point]]) -> list[str]:
    """How each model runs a step, and what its FLOPs would be in the other mode."""
    sentences = []
    for model, point in points:
        runs, other = model.settled(point.work, masked=point.masked).mla_mode, _other_mode(model, point)
        if runs is None:
            continue
        does = _mode_words(model, runs)
        if len(points) > 1:
            does = "as set" if other is None else f"({other[0]}, it would take {units.si(other[1])}FLOPs)"
            sentences.append(f"{model.name} {runs} {does}")
        elif other is None:
            return [f"Latent attention runs {runs}, as set: {does}."]
        else:
            return [
                f"Latent attention runs {runs}, which takes fewer FLOPs here: {does}."
                f" In {other[0]} form it would take {units.si(other[1])}FLOPs"
                f" (--set {model.config.mla_mode_field}={other[0]})."
            ]
    return [f"Latent attention: {'; '.join(sentences)}."] if sentences else []


def latent_facts(model: LoadedModel, point: Point) -> dict[str, Any]:
    """The mode of a step, and what its FLOPs would be in the mode that it chose against; null where there is none."""
    other = _other_mode(model, point)
    return {
        "latent_attention": model.settled(point.work, masked=point.masked).mla_mode,
        "total_flops_otherwise": other and {"latent_attention": other[0], "total_flops": other[1]},
    }


def _other_mode(model: LoadedModel, point: Point) -> tuple[MlaMode, int] | None:
    """The mode that a step chose against, and its FLOPs."""
    if model.mla_mode != "auto":
        return None
    runs = model.settled(point.work, masked=point.masked).mla_mode
    other: MlaMode = "absorbed" if runs == "expanded" else "expanded"
    return other, int(flops_of(replace(point, ledger=model.running(other).ledger)))


def latent_notes(
    steps: Iterable[tuple[LoadedModel, Workload]], metrics: Iterable[Metric], *, masked: bool = False
) -> list[Note]:
    """Modes that several steps run, where a metric depends on it."""
    if not any(metric.unit in ("flops", "share", "ratio") or metric.name in MEMORY_TRAFFIC for metric in metrics):
        return []
    steps = list(steps)
    modes = dict.fromkeys(one for model, work in steps if (one := model.settled(work, masked=masked).mla_mode))
    free = any(model.mla_mode == "auto" for model, _ in steps)
    fewer = ", which" if len(modes) == 1 else ", whichever"
    why = f"{fewer} takes fewer FLOPs" if free else " as set"
    return [Note("latent", 2, f"Latent attention runs {' or '.join(modes)}{why}.")] if modes else []


def latent_request_facts(model: LoadedModel, work: Workload, steps: int, *, masked: bool = False) -> dict[str, Any]:
    """The modes of a request's prefill and of its last decode step; null where there is none."""
    last = replace(work, context=work.context + steps, tokens=1, new_source=0)
    return {
        "prefill_latent_attention": model.settled(work, masked=masked).mla_mode,
        "decode_latent_attention": model.settled(last).mla_mode if steps else None,
    }


def latent_request_notes(requests: Sequence[tuple[LoadedModel, Workload, int]], *, masked: bool = False) -> list[str]:
    """How each model runs the prefill and the decode steps of a request."""
    sentences = []
    for model, work, steps in requests:
        prefill, decode = latent_request_facts(model, work, steps, masked=masked).values()
        if prefill is not None:
            one = f"{prefill} in the prefill" + (f", {decode} in the decode steps" if decode else "")
            sentences.append(one if len(requests) == 1 else f"{model.name} {one}")
    free = any(model.mla_mode == "auto" for model, _, _ in requests)
    why = " Each step runs the form that takes fewer FLOPs." if free else ""
    return [f"Latent attention: {'; '.join(sentences)}.{why}"] if sentences else []


def latent_formula_notes(given: LoadedModel, model: LoadedModel) -> list[str]:
    """Mode that the lines of a formula describe."""
    runs = model.mla_mode
    if runs is None:
        return []
    why = ", which takes fewer FLOPs in this step" if given.mla_mode == "auto" else ", as set"
    other = f"--set {given.config.mla_mode_field}=FORM gives the formula of another form."
    return [f"Latent attention runs {runs}{why}: {_mode_words(model, runs)}. {other}"]


def latent_cache_notes(models: Sequence[LoadedModel]) -> list[str]:
    """What one model's latent attention caches."""
    runs = models[0].mla_mode if len(models) == 1 else None
    if runs == "unpacked":
        return [f"Latent attention runs unpacked: {MLA_MODES[runs]}."]
    if runs is None:
        return []
    return ["Latent attention caches one latent per token instead of keys and values."]


CONVENTION = "2 FLOPs per multiply-add; matmuls only; bytes of weights and KV cache, every tensor rounded up"
TRAINING = "every tensor that autograd saves or allocates; no allocator rounding, kernel workspace or device context"


def products_convention(request: Request, masked: bool, models: Sequence[LoadedModel] = ()) -> str:
    """What was counted as FLOPs, for the JSON, in ASCII: of these models, or of any."""
    pairs = attention_words(models, masked).replace("×", "x").replace("−", "-") if attends(models) else ""
    sentence = f"2 FLOPs per multiply-add; matmuls only;{pairs}"
    return f"{sentence} {_which_logits(request)}" if has_logits(models) else sentence.removesuffix(";")


def products_counted(request: Request, masked: bool, models: Sequence[LoadedModel] = ()) -> str:
    """What was counted as FLOPs, in one line."""
    attention = attention_words(models, masked).strip(" ;")
    logits = _which_logits(request) if has_logits(models) else ""
    return ", ".join(filter(None, ("2·m·k·n per matrix product", attention, logits)))


def _which_logits(request: Request) -> str:
    return "all logits" if request.logits == "all" else "logits of the last position"


def products_note(request: Request, masked: bool, models: Sequence[LoadedModel] = ()) -> str:
    """What was counted as FLOPs, as a sentence: of these models, or of any."""
    logits = f" logits for {'every position' if request.logits == 'all' else 'the last position'};"
    sentence = f"Matrix products only, 2·m·k·n each;{attention_words(models, masked)}"
    return f"{(sentence + logits if has_logits(models) else sentence).removesuffix(';')}."


def counted(
    models: Sequence[LoadedModel],
    metrics: Sequence[Metric],
    terms: build.Counting,
    request: Request,
    to: build.Counting | None = None,
) -> str:
    """What was counted as these metrics, in one line; empty for parameter counts alone. `to`: how the new side of a
    comparison is counted."""
    clauses = []
    if _of_products(metrics):
        step = ", forward and backward" if terms.train else ""
        clauses.append(f"{products_counted(request, terms.masked, models)}{step}")
    stored, cached = map(" → ".join, counted_dtypes(models, terms, to, selection.formats))
    if _moved(metrics):
        clauses.append(f"bytes moved by unfused kernels, weights in {stored}, activations in {cached}")
    if _read_cache(metrics):
        weights = "" if not _weighed(metrics) else "weights and " if stored == cached else f"weights in {stored} and "
        clauses.append(f"{weights}{cache_name(models)} in {cached}")
    if stepped(metrics):
        recipes = [side.recipe for side in (terms, to or terms)]
        words = dict.fromkeys(f"{recipe.precision} with {recipe.description}" for recipe in recipes)
        clauses.append(f"a training step in {' → '.join(words)}, as run by transformers")
    return "; ".join(clauses)


def stepped(metrics: Sequence[Metric]) -> bool:
    """True if one is of a training step's bytes."""
    return any(metric.of_step for metric in metrics)


def convention(metrics: Sequence[Metric]) -> str:
    """What is counted as metrics of any kind, for the JSON."""
    return f"{CONVENTION}; of a training step {TRAINING}" if stepped(metrics) else CONVENTION


def counted_dtypes(
    models: Sequence[LoadedModel],
    terms: build.Counting,
    to: build.Counting | None = None,
    weights: Callable[[Sequence[LoadedModel], str | None], str] = selection.stored_name,
) -> list[list[str]]:
    """The dtypes of the weights and those of the cache: one of each, or two where the new
    side, the last of two models, has another. `weights` names those of some models."""
    sides = [(models, terms)] if to is None else [(models[:1], terms), (models[-1:], to)]
    named = [(weights(own, side.dtype), dtypes(side.dtype, side.kv_dtype)[1]) for own, side in sides]
    return [list(dict.fromkeys(each)) for each in zip(*named, strict=True)]


def assumed(models: Sequence[LoadedModel], metrics: Sequence[Metric], terms: build.Counting) -> str:
    """`, weights in bf16 (assumed)`, after a title of metrics of weights whose format is assumed or another."""
    if terms.dtype is not None or not (_weighed(metrics) or _moved(metrics)):
        return ""
    names = {selection.format_name(model, None) for model in models}
    plain = not any(map(selection.format_assumed, models)) and names <= {one.storage().name for one in models}
    return "" if plain else f", weights in {selection.formats(models, None)}"


def metric_notes(
    models: Sequence[LoadedModel],
    metrics: Sequence[Metric],
    terms: build.Counting,
    to: build.Counting | None = None,
) -> list[Note]:
    """What these metrics are of these models: their active parameters, states and narrow storage. `to`: how the new
    side of a comparison is counted."""
    ratios = ("rule_of_thumb_flops", "ratio_to_rule_of_thumb")
    sides = [(models, terms.dtype)] if to is None else [(models[:1], terms.dtype), (models[-1:], to.dtype)]
    found: dict[str, Iterable[str]] = {}
    if any(metric.name in ratios for metric in metrics):
        found["active"] = active_notes(models)
    if _read_cache(metrics):
        found["state"] = state_notes(models, dtypes(terms.dtype, terms.kv_dtype)[1])
    if _weighed(metrics) or _moved(metrics):
        each = (note for own, dtype in sides for note in storage_notes(own, dtype))
        found["storage"] = dict.fromkeys(each)
    if any(metric.name == "peak_bytes" for metric in metrics):
        found["optimizer_order"] = _unsure(models, terms, to)
    return [Note(key, 2, text) for key, texts in found.items() for text in texts]


def metric_window_notes(settings: Sequence[LoadedModel], metrics: Sequence[Metric], *, masked: bool) -> list[Note]:
    """How many keys a token sees, and what that changes of these metrics: of products, or of what is kept."""
    products = _of_products(metrics) or _moved(metrics)
    cache = any(metric.name.startswith("kv_") or metric.name == "total_bytes" for metric in metrics)
    found = window_notes(settings, masked=masked, cached=not products) if products or cache else []
    return [Note("windows", 2, text) for text in found]


def _unsure(models: Sequence[LoadedModel], terms: build.Counting, to: build.Counting | None) -> list[str]:
    """Says of which optimizers a peak is the most that it can be."""
    from tfacct.training.memory import unsure

    recipes = {side.recipe.optimizer: side.recipe for side in (terms, to or terms)}
    names = [name for name, recipe in recipes.items() if any(unsure(model, recipe) for model in models)]
    order = "its temporary memory depends on the parameter order"
    return [f"The peak with {name} is an upper bound: {order}." for name in names]


def _of_products(metrics: Sequence[Metric]) -> bool:
    return any(metric.unit in ("flops", "share", "ratio") for metric in metrics)


def _moved(metrics: Sequence[Metric]) -> bool:
    return any(metric.name in MEMORY_TRAFFIC for metric in metrics)


def _read_cache(metrics: Sequence[Metric]) -> bool:
    others = (metric for metric in metrics if metric.unit == "bytes" and not metric.of_step)
    return any(metric.name not in MEMORY_TRAFFIC for metric in others)


def _weighed(metrics: Sequence[Metric]) -> bool:
    return any(metric.name in build.WEIGHED for metric in metrics)


def attention_words(models: Sequence[LoadedModel], masked: bool) -> str:
    """Which query–key pairs were counted, as a clause of a sentence; nothing where there are none."""
    if not attends(models):
        return " no attention, so --masked changes nothing;" if masked else ""
    pairs, whole = (
        _pairs(models),
        {"I J": "I × J in an encoder", "T J": "T × J in cross-attention", "both": "all T × T pairs"},
    )
    if len(pairs) > 1:
        whole |= {"tiles": "within each window of patches", "windows": "within each overlapping window"}
    if masked and "near" in pairs:
        whole["I J"] += " outside windowed layers"
    whole |= {"overlap": "in an encoder, pairs within overlapping windows"}
    others = [words for pair, words in whole.items() if pair in pairs and pair != "both"]
    if not pairs & {"causal", "window", "chunks", "chosen"} and masked and "near" in pairs:
        return " only attention pairs inside the bidirectional windows;"
    if pairs and pairs <= {"tiles", "windows"}:
        return f" all attention pairs within {'each window' if 'tiles' in pairs else 'overlapping windows'};"
    if not pairs & {"causal", "window", "chunks", "chosen"}:
        if pairs & {"tiles", "windows"}:
            return f" {whole['both']} of attention, in windowed layers within each window;"
        return f" {whole['both']} of attention{', which has no causal mask' if masked else ''};"
    if masked:
        named = {"window": "the window", "chunks": "the chunks", "chosen": "the indexer"}
        named_pairs = [words for pair, words in named.items() if pair in pairs]
        mask = (
            f"the causal mask{''.join(f' and {words}' for words in named_pairs)} {'keep' if named_pairs else 'keeps'}"
        )
        rest = [*others, *(["all pairs in layers without a causal mask"] if "both" in pairs else [])]
        rest += ["pairs inside bidirectional windows"] if "near" in pairs else []
        return f" only attention pairs that {mask}{''.join(f', {words}' for words in rest)};"
    window = [WINDOWED] if pairs & {"window", "chunks"} else []
    return f" full T × S attention{''.join(f', {words}' for words in (*window, *others))};"


WINDOWED = "in a window S = T + min(S − T, W − 1)"
"""The keys that the new tokens meet in a windowed block."""


def _pairs(models: Sequence[LoadedModel]) -> set[str]:
    """Which axes meet in the products of two activations: causal, in a window, both ways; in an encoder behind
    which a decoder stands, and across. Of any model where none is named: causal."""
    found = set() if models else {"causal"}
    for group in (group for model in models for group in model.ledger.groups):
        for line in group.lines:
            if not isinstance(line, Matmul) or line.weight_axes() is not None:
                continue
            axes = set(line.einsum.every)
            if TILES in axes:
                found.add("tiles")
            elif OVERLAPPING in axes:
                found.add("overlap" if group.reads else "windows")
            elif {"T", "S"} <= axes:
                bounded = line.mask == "causal" and WINDOW in group.axes
                found.add("window" if bounded else {"full": "both"}.get(line.mask, line.mask))
            elif {"I", "J"} <= axes or {"T", "J"} <= axes:
                found.add("I J" if "I" in axes else "T J")
                found |= {"near"} if line.mask == "near" else set()
    return found


def left_out(models: Sequence[LoadedModel], *more: str) -> str:
    """Work that is not a matmul."""
    words = ["norms", *(["softmax"] if attends(models) else []), "activations"]
    words += ["rotary embedding"] if attends(models) else []
    words += dict.fromkeys(mixer.recurrence for mixer in mixers(models) if mixer.recurrence)
    return f"Not included: {', '.join([*words, 'additions', 'embedding look-ups', *more])}."
