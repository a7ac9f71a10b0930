"""Notes about models: their attention, experts, encoders, states and storage; and what was counted of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

from tfacct.accounts.metrics import Point, attention_overtakes
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
from tfacct.base.errors import joined, listed
from tfacct.base.spelling import option, spelled
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS, rounded_up
from tfacct.ledger.evaluated import width_of
from tfacct.ledger.lines import WINDOW, Matmul, Pointwise, State
from tfacct.ledger.storage import Storage, Width, width
from tfacct.ledger.workload import OVERLAPPING, TILES, Logits, Workload
from tfacct.loading import selection
from tfacct.loading.memory_limit import ALLOCATED, MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.loading.published import cache_format, difference, weights
from tfacct.output.report import NoteRow


def attends(models: Sequence[LoadedModel]) -> bool:
    """True if one of the models has attention, or if no model is given."""
    return not models or any(model.architecture.attentions for model in models)


def mixers(models: Sequence[LoadedModel]) -> list[Mixer]:
    """State-space parts of the models, one of each name."""
    found = (part for model in models for _, part in model.architecture.having(Mixer))
    return list({part.name: part for part in found}.values())


def cache_name(models: Sequence[LoadedModel]) -> str:
    """`KV cache`, `state` or another name of what the models cache between steps."""
    return max((model.cache_name for model in models), key=len)


class Blocks(NamedTuple):
    """Models that the notes on layers describe, and their facts."""

    whole_models: Sequence[LoadedModel]
    masked: bool = False
    facts: Sequence[Mapping[str, Any]] = ()


def shared_notes(models: Sequence[LoadedModel]) -> list[str]:
    """How many layers of one model share weights."""
    stacks = models[0].architecture.every_stack if len(models) == 1 else ()
    return [
        f"{'All' if stack.once else 'Attention and MLP of'} {stack.count:,} layers share one set of weights."
        for stack in stacks
        if stack.count > 1 and (stack.once or stack.shared)
    ]


def head_notes(models: Sequence[LoadedModel]) -> list[str]:
    """The output of one model without a language modeling head."""
    shape = models[0].architecture if len(models) == 1 else None
    if shape is None or (shape.head is not None and shape.classes is None):
        return []
    if shape.classes is None:
        return [f"No language modeling head: {'a pooler runs' if shape.pooler else 'no logits are computed'}."]
    if shape.classes.pooled:
        return ["Classes are scored once per sequence."]
    if not models[0].config.task_head.picks:
        return ["The classifier scores every position."]
    return [
        "As in the class, the classifier scores every position and keeps one position per sequence;"
        " --logits last counts only that one."
    ]


def _distance_notes(models: Sequence[LoadedModel]) -> list[str]:
    """Attention scores of one model that are not matmuls."""
    lines = [line for group in models[0].ledger.groups for line in group.lines] if len(models) == 1 else []
    far = [paths.short(line.path) for line in lines if isinstance(line, Pointwise) and line.path.endswith(".scores")]
    return (
        [f"Not included: scores max |q − k|, which are pointwise work: {', '.join(far)} (--pointwise)."] if far else []
    )


IDLE = "The router can select zero-computation experts. The count assumes that no token does, which costs the most."


def expert_notes(models: Sequence[LoadedModel]) -> list[str]:
    """Experts that a token uses, and the meaning of active parameters."""
    if len(models) != 1:
        return []
    routed = models[0].architecture.having(Experts)
    if not routed:
        return []
    found = Counter[tuple[int, int, str]]()
    for stack, part in routed:
        if part.shared_width is None:
            also = ""
        else:
            also = " and a dense MLP" if part.late else ", and the shared experts always run"
        found[part.active, part.experts, also] += stack.count
    sentences = [
        f"In {_of_layers(count, models[0])}, a token uses {active:,} of {experts:,} experts{also}."
        for (active, experts, also), count in found.items()
    ]
    sentences[-1] += " Active parameters: all parameters minus the unused experts."
    if any(part.idle is not None for _, part in routed):
        sentences.append(IDLE)
    return sentences


BLOCKS = (
    NoteRow(
        "windows",
        2,
        lambda about: len(about.whole_models) == 1 and window_notes(about.whole_models[0], masked=about.masked),
    ),
    NoteRow("experts", 2, lambda about: expert_notes(about.whole_models)),
    NoteRow("shared_weights", 2, lambda about: shared_notes(about.whole_models)),
    NoteRow("distances", 3, lambda about: _distance_notes(about.whole_models)),
    NoteRow("head", 2, lambda about: head_notes(about.whole_models)),
)
"""Notes on the layers and the head of one model."""


def projector_notes(models: Sequence[LoadedModel]) -> list[str]:
    """Projectors included in the counts of encoders, with their parameters."""
    found = [model for model in models if model.architecture.projector is not None]
    counts = [by_part(model.ledger.parameters())[Projector.name] for model in found]
    return [
        f"{model.name} includes the projector: {count:,} parameters."
        for model, count in zip(found, counts, strict=True)
    ]


def not_included(model: LoadedModel, stored: Storage | None = None) -> dict[str, Any] | None:
    """Layers in a config that are not counted, with their parameters and bytes if known."""
    missing = model.not_included
    if missing is None:
        return None
    found: dict[str, Any] = {**missing._asdict(), "params": None, **({} if stored is None else {"bytes": None})}
    further = model.config.with_additional_layers()
    if further is not None:
        counted = model.config.transformer().ledger()
        found["params"] = sum(further.parameters().values()) - sum(counted.parameters().values())
        if stored is not None:
            every, counted_bytes = (ledger.weight_bytes(stored) for ledger in (further, counted))
            found["bytes"] = sum(every.values()) - sum(counted_bytes.values())
    return found


def not_included_notes(models: Sequence[LoadedModel], facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Layers of one model that are not counted, or the models that have some."""
    missing = [(one, fact["not_included"]) for one, fact in zip(models, facts, strict=True) if fact["not_included"]]
    if len(models) != 1:
        names = listed([one.name for one, _ in missing], 4)
        return [f"Not included: MTP layers and draft models of {names}."] if missing else []
    return [_not_included(one, found) for one, found in missing]


def _not_included(model: LoadedModel, found: Mapping[str, Any]) -> str:
    layers, size = units.number_of(found["layers"], f"{found['kind']} layer"), ""
    if found.get("bytes") is not None:
        size = f", {units.binary(found['bytes'])} of weights"
    elif found["params"] is not None:
        size = f", {units.people(found['params'])} parameters"
    them = "them" if found["layers"] > 1 else "it"
    how = (
        f"; {spelled('--set mtp=true', 'mtp=True')} includes {them}" if "mtp" in type(model.config).model_fields else ""
    )
    return f"Not included: {layers} ({found['field']}){size}{how}."


def active_notes(models: Sequence[LoadedModel]) -> list[str]:
    """The parameters in `build.ratio_label` for models with experts."""
    routed = any(isinstance(part, Experts) for model in models for part in model.architecture.parts())
    return ["params·tok: params are active parameters, all parameters minus the unused experts."] if routed else []


def source_notes(models: Sequence[LoadedModel], work: Workload | None = None) -> list[str]:
    """How one model's encoder reads the source, or pads its text; none for several models."""
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
        source = "The source is image features from another model, which is not counted."
        what = f"{source} Keys and values of cross-attention are cached"
        return [f"{what}." if read else f"{what} and cost nothing in this step."]
    window, padding = (encoder and encoder.longest) or 1, ""
    if work is not None and work.source % window:
        padding = (
            f", padded to {rounded_up(work.source, window) * window:,} tokens, a multiple of the window ({window:,})"
        )
    return [
        f"The encoder runs once, over the whole source{padding}. Keys and values of cross-attention are cached."
        if read
        else "The encoder and the keys and values of cross-attention ran before this step. They cost nothing here."
    ]


def state_notes(models: Sequence[LoadedModel], cached: str | Sequence[Width] = "bf16") -> list[str]:
    """States of fixed size, their dtype if it differs from the dtype of the cache, and layers without a cache of their
    own. `cached`: the dtype, or the format of each model's cache."""
    by_dtype: dict[str, list[str]] = {}
    for path, dtype in _state_dtypes(models, cached).items():
        by_dtype.setdefault(dtype, []).append(path)
    stored = [
        f"{joined(named)} {'is' if len(named) == 1 else 'are'} stored in {dtype}, independent of the cache dtype."
        for dtype, named in by_dtype.items()
    ]
    if pages := {one.state_page for one in cached if isinstance(one, Width) and one.state_page is not None}:
        sizes = " or ".join(sorted(f"{units.binary(page.bytes)} in {page.dtype}" for page in pages))
        stored = [f"The states of a layer take a page of {sizes}, as in vLLM."]
    return [*_sized_notes(models), *stored, *_reused(models)]


def _reused(models: Sequence[LoadedModel]) -> list[str]:
    if len(models) != 1:
        return []
    shape = models[0].architecture
    heads = (stack.count for stack, part in shape.having(Attention) if part.borrowed)
    latents = shape.having(LatentAttention)
    reused = sum(heads) + sum(stack.count for stack, part in latents if part.borrowed and part.mla_mode != "unpacked")
    return [f"{reused:,} of {_layers(models[0]):,} layers reuse the cache of other layers."] if reused else []


def cache_words(models: Sequence[LoadedModel], cached: Sequence[Width]) -> str:
    """The cache and its dtypes: `KV cache in bf16`, `state in bf16, some states in fp32`."""
    first, *others = cache_dtypes(models, cached)
    return f"{cache_name(models)} in {first}{f', some states in {joined(others)}' if others else ''}"


def cache_dtypes(models: Sequence[LoadedModel], cached: Sequence[Width]) -> list[str]:
    """The dtype of the caches, then those of states with another dtype."""
    name = cached[0].name
    return [name, *sorted({*_state_dtypes(models, cached).values()} - {name})]


def _state_dtypes(models: Sequence[LoadedModel], cached: str | Sequence[Width]) -> dict[str, str]:
    """States stored in another dtype than the cache → their dtype."""
    found: dict[str, str] = {}
    for at, model in enumerate(models):
        cache = width(cached) if isinstance(cached, str) else replace(cached[at], page=1)
        lines = (line for group in model.ledger.groups for line in group.lines if isinstance(line, State))
        stored = {
            line.path: width_of(line, cache)
            for line in lines
            if line.bits is not None or width_of(line, cache) != cache
        }
        found |= {paths.short(path): how.name for path, how in stored.items()}
    return found


def _sized_notes(models: Sequence[LoadedModel]) -> list[str]:
    size = "a state of fixed size"
    if len(models) == 1:
        sized = sum(stack.count for stack, _ in models[0].architecture.having(Mixer))
        return [f"{sized:,} of {_layers(models[0]):,} layers keep {size}, the same for every context."] if sized else []
    without = [model.name for model in models if not model.architecture.attentions]
    return [f"Without keys and values, but with {size}: {', '.join(without)}."] if without else []


def overtaken(model: LoadedModel, point: Point, *, chunk: bool) -> list[str]:
    """The context from which attention, or the self-attention of a decoder, costs more than everything else."""
    context, limit = attention_overtakes(point, chunk=chunk), model.position_limit
    if context is None:
        return []
    narrow = window_notes(model) != window_notes(model, masked=True)
    pairs = ", with all T × S pairs counted" if narrow and not point.masked and point.work.tokens > 1 else ""
    past = model.past_words(context) if point.work.context <= (limit or 0) else ""
    merged = any(isinstance(part, Attention) and part.reads_source for part in model.architecture.attentions)
    whose = "" if model.source is None else f"the decoder's {'' if merged else 'self-'}"
    costs = f"scores and values cost more than all other matmuls{pairs}"
    return [f"From {context:,} tokens on{past}, {whose}attention {costs}."]


def storage_notes(models: Sequence[LoadedModel], dtype: str | None) -> list[str]:
    """The tensors in a quantized format, and those that stay wide; none for models without one."""
    found: dict[str, list[tuple[LoadedModel, Storage]]] = {}
    for model, how in selection.storages(models, dtype)[0]:
        if how.narrow:
            found.setdefault(f"{how.name} {how.about} {how.wide.name} {sorted(how.quantized_roles)}", []).append(
                (model, how)
            )
    sentences = [
        _stored_so(alike, named=dtype is not None, alone=len(models) == len(alike)) for alike in found.values()
    ]
    return [*sentences, *range_notes(models, dtype)]


def range_notes(models: Sequence[LoadedModel], dtype: str | None) -> list[str]:
    """Why the bytes of weights are a range."""
    found: dict[str, list[str]] = {}
    for model, how in selection.storages(models, dtype)[0]:
        if how.least is not None:
            found.setdefault(how.differs, []).append(model.name)
    return [
        f"The weights of {listed(names)} have a range, since {why}. Totals use the upper end."
        for why, names in found.items()
    ]


def _stored_so(alike: Sequence[tuple[LoadedModel, Storage]], *, named: bool, alone: bool) -> str:
    """How models in the same format are stored. `named`: the format was given. `alone`: there are no other models."""
    models, how = [model for model, _ in alike], alike[0][1]
    who = "" if alone else f" ({', '.join(model.name for model in models)})"
    scales = "; scales are counted" if how.scaled else ""
    others = "All other tensors" if "embedding" in how.quantized_roles else "All other tensors, embeddings included,"
    why = "as in published checkpoints" if named else "as the config says"
    sentence = f"{how.name}{who}: {_taken(models, how)}, in {how.about}{scales}."
    return f"{sentence} {others} stay in {how.wide.name}, {why}."


ROUNDING = 0.005
"""Share of the bytes of files that may be masks, positions and router biases, which are not counted."""


def files_notes(models: Sequence[LoadedModel], dtype: str | None = None) -> list[str]:
    """How much the files next to a config differ from the count of the published format; none if a dtype is given."""
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
    if not found.dtypes:  # only the index is here
        return f"The index{of} lists {units.binary(found.bytes)} of tensors, {apart}."
    compared = spelled(f"`tfacct check {model.folder}` compares them", "tfacct.checkpoint compares them")
    return f"The files{of} contain {units.binary(found.bytes)} of tensors, {apart}: {compared}."


def cache_notes(models: Sequence[LoadedModel], cached: str) -> list[str]:
    """Configs with a quantized cache that is counted in bf16."""
    if cached != "bf16":
        return []
    found: dict[str, list[str]] = {}
    for model in models:
        if (stored := cache_format(model)) is not None:
            found.setdefault(stored, []).append(model.name)
    sentences = []
    for stored, names in found.items():
        whose = models[0].format_file or "The config" if len(models) == 1 else f"The config of {', '.join(names)}"
        known = f"8 bits; {option('kv_dtype', stored)} counts it so."
        bits = known if stored in ("fp8", "int8") else f"{stored}, which is not supported."
        sentences.append(f"{whose} stores the cache in {bits}")
    return sentences


HEAD = "lm_head.weight"


def _taken(models: Sequence[LoadedModel], how: Storage) -> str:
    ends = [
        name
        for role, name in (("head", "the head"), ("embedding", "the token embedding"))
        if role in how.quantized_roles
    ]
    tied = all(model.architecture.head is None or model.architecture.head.tied for model in models)
    ends = [name for name in ends if name != "the head" or not (tied or HEAD in how.left)]
    experts = {model.ledger.experts and "dense" not in how.quantized_roles for model in models}
    matrices = "the weight matrices of the layers"
    if experts == {True, False}:
        matrices = f"{matrices}, or only of the experts in models with experts"
    elif experts == {True}:
        matrices = "the weight matrices of the experts"
    if set(how.left) - {HEAD}:
        matrices += ", except those that the config names"
    return joined([matrices, *ends])


# Which keys a token sees: windows, chunks, the selection of an indexer, compressed keys

View: TypeAlias = Literal["cache", "masked", "all"]
"""What a note explains: the cache, the FLOPs of visible pairs, or those of all pairs."""


def window_notes(model: LoadedModel, *, cached: bool = False, masked: bool = False) -> list[str]:
    """How many layers see only some of the keys, and the effect on FLOPs, or on the cache if `cached`."""
    view: View = "cache" if cached else "masked" if masked else "all"
    if special := _tiled(model) or _compressed(model, view):
        return special
    chunked = any(getattr(part, "mask", "") == "chunks" for part in model.architecture.attentions)
    span, within = ("chunk", ", within its own chunk") if chunked else ("window", "")
    effect = {
        "cache": f", and only those are cached; once the {span} is full, further tokens add nothing in these layers.",
        "masked": f"; pairs outside the {span} are not counted.",
        "all": f"; all pairs of new tokens are counted, as in an unfused kernel (--masked: only pairs in the {span}).",
    }[view]
    found: Counter[int] = Counter()
    for stack in model.architecture.stacks:
        if stack.block.window is not None:
            found[stack.block.window] += stack.count
    windows = [
        f"In {count} of {_layers(model)} layers, a token sees at most {keys:,} keys{within}{effect}"
        for keys, count in found.items()
    ]
    return [*windows, *_selected(model, view)]


SIZE = "size"
"""Field of an indexer that selects blocks of keys: the keys of a block."""


def _selected(model: LoadedModel, view: View) -> list[str]:
    """How many keys, or blocks of keys, an indexer selects for a token."""
    keys = [(stack.count, part.indexer) for stack, part in model.architecture.having(LatentAttention) if part.indexer]
    blocks = [(stack.count, part.indexer) for stack, part in model.architecture.having(Attention) if part.indexer]
    found = [*keys, *blocks]
    if not found:
        return []
    count = sum(layers for layers, _ in found)
    where = _of_layers(count, model)
    most = units.between({indexer.top for _, indexer in found})
    sizes = {int(getattr(indexer, SIZE)) for _, indexer in blocks}
    effect = {
        "cache": "the cache keeps all keys, plus the keys of the indexer.",
        "masked": "the unselected keys are counted even with --masked."
        if sizes
        else "the other pairs are not counted.",
        "all": "all pairs are counted, as transformers computes them"
        + ("." if sizes else " (--masked: only the selected ones)."),
    }[view]
    selects = f"{most} × {units.between(sizes)}" if sizes else f"at most {most}"
    return [f"In {where}, an indexer selects {selects} keys per token; {effect}"]


def _compressed(model: LoadedModel, view: View) -> list[str]:
    """Keys that are made of several tokens."""
    keys = _compressed_keys(model)
    if not keys:
        return []
    parts = [part for part in model.architecture.attentions if part.compression is not None]
    chosen = [part.compression.chosen for part in parts if part.compression is not None]
    unselected = " or unselected" if any(top is not None for top in chosen) else ""
    effect = {
        "cache": "The cache also holds the tokens of incomplete keys.",
        "masked": f"Pairs with incomplete{unselected} keys are not counted.",
        "all": "All these keys are counted, as transformers computes them (--masked: only the keys that a token sees).",
    }[view]
    layers, window = _layers(model), parts[0].window
    return [f"In {layers:,} layers, a token sees the last {window:,} tokens; {'; '.join(keys)}. {effect}"]


def _compressed_keys(model: LoadedModel) -> list[str]:
    found = []
    for stack, part in model.architecture.having(SelfAttention):
        keys = part.compression
        if keys is not None and keys.tokens is not None:
            selected = f", of which an indexer selects at most {keys.chosen:,}" if keys.chosen is not None else ""
            found.append(
                f"{stack.count:,} of these layers also have compressed keys of {keys.tokens:,} tokens each{selected}"
            )
    return found


def _tiled(model: LoadedModel) -> list[str]:
    """How many layers of an image encoder have separate windows of patches."""
    what = "position" if isinstance(model.architecture.embed, Stem) else "patch"
    return [
        f"In {stack.count} of {_layers(model)} layers, a {what} sees only the {part.tiles} positions of its own window."
        for stack, part in model.architecture.having(Attention)
        if part.tiles
    ]


def _of_layers(count: int, model: LoadedModel) -> str:
    """`every layer`, or `3 of 12 layers`."""
    layers = _layers(model)
    return "every layer" if count == layers else f"{count:,} of {layers:,} layers"


def _layers(model: LoadedModel) -> int:
    """The number of layers, without those of an encoder."""
    return sum(stack.count for stack in model.architecture.stacks)


MLA_MODES: dict[MlaMode, str] = {
    "expanded": "every step recomputes the keys and values of all cached tokens, as in transformers",
    "absorbed": "the latent is cached, and attention runs in latent space, as engines do in decode steps",
    "unpacked": "the keys and values of all heads are cached; engines cache the latent",
}


def latent_step_notes(models: Sequence[LoadedModel], facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The mode of latent attention in a step."""
    named: dict[MlaMode, list[str]] = {}
    for model, fact in zip(models, facts, strict=True):
        if fact["latent_attention"] is not None:
            named.setdefault(fact["latent_attention"], []).append(model.name)
    if not named:
        return []
    if len(models) > 1:
        return [f"Latent attention: {'; '.join(f'{runs} in {listed(names)}' for runs, names in named.items())}."]
    (model,), (runs,) = models, named
    return [_latent_form(runs, model)]


def latent_mode(model: LoadedModel, point: Point) -> MlaMode | None:
    """The mode of latent attention in a step."""
    return model.settled(point.work, masked=point.masked).mla_mode


def latent_request_notes(models: Sequence[LoadedModel], facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The modes of latent attention in the prefill and the decode steps of a request."""
    sentences = []
    for model, fact in zip(models, facts, strict=True):
        prefill, decode = fact["prefill_latent_attention"], fact["decode_latent_attention"]
        if prefill is not None:
            after = f", {decode} in the decode steps" if decode else ""
            sentences.append(f"{'' if len(models) == 1 else f'{model.name} '}{prefill} in the prefill{after}")
    free = any(model.mla_mode == "auto" for model in models)
    why = " Each step runs the mode with fewer FLOPs." if free else ""
    return [f"Latent attention: {'; '.join(sentences)}.{why}"] if sentences else []


def axes_words(formula: str, model: LoadedModel) -> str:
    """The meaning of the axes in a formula; empty without any."""
    shown = set(AXIS.findall(formula))
    if not shown:
        return ""
    from tfacct.algebra.symbols import axis_meanings

    meanings = axis_meanings(model.architecture).items()
    return "; ".join(f"{axis} {meaning}" for axis, meaning in meanings if axis in shown)


def latent_formula_notes(given: LoadedModel, model: LoadedModel) -> list[str]:
    """The mode of latent attention in a formula."""
    return [] if model.mla_mode is None else [_latent_form(model.mla_mode, given)]


def _latent_form(runs: MlaMode, given: LoadedModel) -> str:
    """The mode of latent attention, and why it runs in it."""
    why = "as set"
    if given.mla_mode == "auto":
        why = f"the cheaper one in this step (--set {given.config.mla_mode_field}=FORM sets another)"
    return f"Latent attention is counted in {runs} form, {why}: {MLA_MODES[runs]}."


STEP = "A training step is one forward and one backward pass, without the optimizer step."
SHARE = f"{float(ALLOCATED - 1):.0%}"
RESERVED = "the CUDA allocator reserved 17–24% more than this count in 4 of 5 runs of torchtitan."
"""What a training step that hardly fits may lack."""
TIGHTLY = f"Tightly: {RESERVED}"
"""The word of tables for such a step."""
ROOM = f"with {SHARE} to spare for the allocator"
BUFFERS = "An engine's own buffers and page padding are not counted"
ENGINE_BUFFERS = f"{BUFFERS}: see `tfacct engine`."


LOGITS: Mapping[Logits, str] = {"all": "all logits", "last": "logits of the last position"}


def fits_word(fits: bool, tight: bool) -> str:
    """Whether a step fits, in a table."""
    if not fits:
        return "no"
    return "tightly" if tight else "yes"


def less_in_vllm(
    pool: MemoryLimit | None, fit: Callable[[MemoryLimit], Mapping[str, Any]], counted: Mapping[str, Any]
) -> str:
    """Note that vLLM's own buffers leave room for fewer requests, or else for fewer tokens of one, than were `counted`;
    empty if they do not. `fit`: what fits a limit, such as the `pool` that vLLM has, if it runs the model."""
    if pool is None:
        return ""
    found, words = fit(pool), {"largest_batch": units.requests, "largest_context": "{:,} tokens".format}
    fewer = [what for what in words if found.get(what) and counted[what] and found[what] < counted[what]]
    if all(found.get(what, 0) == 0 for what in words):
        room = "no room for one request"
    elif fewer:
        room = f"room for ≈ {words[fewer[0]](found[fewer[0]])}"
    else:
        return ""
    return f"{BUFFERS}: {pool.engine}, at {pool.use:g} of the memory, would have {room} ({option('engine', 'vllm')})."


UNMASKED = ("full", "prefix", "blocks")
"""Masks of which every pair of a query and a key is counted, also with --masked."""


def products_counted(models: Sequence[LoadedModel] = (), logits: Logits = "all", *, masked: bool = False) -> str:
    """What is counted as FLOPs, of these models or of any, as a clause."""
    computed = "" if models and not any(model.logits for model in models) else LOGITS[logits]
    return ", ".join(filter(None, ("2·m·k·n per matrix product", attention_words(models, masked), computed)))


def attention_words(models: Sequence[LoadedModel], masked: bool) -> str:
    """Which query–key pairs are counted, as a clause; empty without attention."""
    if not attends(models):
        return "no attention, so --masked changes nothing" if masked else ""
    groups = [group for model in models for group in model.ledger.groups]
    lines = [(group, line) for group in groups for line in group.lines if isinstance(line, Matmul)]
    if masked and (not models or any(line.mask not in UNMASKED for _, line in lines)):
        return "only attention pairs inside the mask"
    words = []
    if not models or any({"S", "J"} & set(line.einsum.every) for _, line in lines):
        words.append("full T × S attention")
    if any(line.mask in ("causal", "chunks") and WINDOW in group.axes for group, line in lines):
        words.append("T × min(S, T + W − 1) in layers with a window of W")
    if any({TILES, OVERLAPPING} & set(line.einsum.every) for _, line in lines):
        words.append("attention pairs inside windows of patches or tokens")
    return ", ".join(words)


def left_out(models: Sequence[LoadedModel], *more: str) -> str:
    """Work that is not a matmul."""
    words = ["norms", *(["softmax"] if attends(models) else []), "activations"]
    words += ["rotary embedding"] if attends(models) else []
    words += dict.fromkeys(mixer.recurrence for mixer in mixers(models) if mixer.recurrence)
    return f"Not included: {', '.join([*words, 'additions', 'embedding look-ups', *more])}."
