"""What every report says alike: the workload, what was defaulted, what was counted beyond the trained context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tfacct import architecture, units
from tfacct.blocks import Block
from tfacct.errors import UsageError
from tfacct.lines import Idle, Matmul, Pointwise
from tfacct.parts import Experts, LatentAttention
from tfacct.report import Cell, Row
from tfacct.reports import _kinds as kinds
from tfacct.subject import Subject
from tfacct.workload import LARGEST, Request, Workload, new_tokens

PARTS = (
    *("encoder", "embed", "pos_embed", "type_embed", "rel_bias", "attn", "cross", "mlp", "mixer", "norms", "lm_head"),
    "mtp",
)
"""The parts that parameters are summed by."""

DEFAULT_DTYPE = "bf16"

COMPONENTS = {"attn_projections": "attn proj", "cross": "cross attn", "attn_scores_values": "scores + values"}
"""Components whose name in a table is not their key in the JSON."""


def dtypes(dtype: str | None, kv_dtype: str | None = None) -> tuple[str, str]:
    """The names of the weights' dtype and the cache's.

    Where none was named the cache has that of the activations, which int8 and int4 weights leave in bf16.
    """
    stored = units.dtype_name(DEFAULT_DTYPE if dtype is None else dtype)
    if kv_dtype is not None:
        return stored, units.dtype_name(kv_dtype)
    return stored, DEFAULT_DTYPE if stored.startswith("int") else stored


def check_stored(subjects: Sequence[Subject], dtype: str | None) -> None:
    """Refuse to guess what quantized weights take."""
    for subject in subjects:
        if subject.quantized and dtype is None:
            raise UsageError(
                f"{subject.name} has a quantization_config: what its weights take is not guessed", "give --dtype"
            )


def with_known_bytes(subjects: Sequence[Subject], dtype: str | None) -> tuple[list[Subject], list[str]]:
    """Those whose weights' bytes need no guess, and a warning that names the others. Raises UsageError where none is
    left."""
    if len(subjects) == 1:
        check_stored(subjects, dtype)
    others = [subject.name for subject in subjects if subject.quantized and dtype is None]
    known = [subject for subject in subjects if subject.name not in others]
    if not known:
        check_stored(subjects, dtype)
    warning = f"warning: left out, for what quantized weights take is not guessed: {', '.join(others)} (give --dtype)"
    return known, [warning] if others else []


def workload_facts(work: Workload, *, masked: bool = False, dtype: str | None = None) -> dict[str, Any]:
    """The workload as it stands in the JSON."""
    return {
        "batch": work.batch,
        "tokens": work.tokens,
        "keys": work.context,
        "source": work.source or None,
        "logits": work.logits,
        "masked": masked,
        "dtype": dtype,
    }


def products_convention(request: Request, masked: bool, subjects: Sequence[Subject] = ()) -> str:
    """What was counted as FLOPs, for the JSON: of these models, or of any."""
    pairs = kinds.pairs_convention(subjects, masked)
    logits = "all logits" if request.logits == "all" else "logits of the last position"
    return f"2 FLOPs per multiply-add; products only;{pairs} {logits}"


def products_note(request: Request, masked: bool, subjects: Sequence[Subject] = ()) -> str:
    """What was counted as FLOPs, for a reader: of these models, or of any."""
    attention = kinds.attention_words(subjects, masked)
    logits = "logits for every position" if request.logits == "all" else "logits for the last position"
    return f"Matrix products only, 2·m·k·n each;{attention} {logits}."


def model_facts(subject: Subject) -> dict[str, Any]:
    """Who was counted: the same first keys in every JSON."""
    return {
        "model": subject.name,
        "family": subject.family,
        "set": dict(subject.changed),
        "defaulted": dict(subject.defaulted),
    }


def workload(subject: Subject, request: Request) -> Workload:
    """What is asked of one model. Raises UsageError, which names it."""
    try:
        return request.workload(subject.context, source=subject.source, keeps=subject.keeps)
    except UsageError as error:
        error.message = f"{subject.name}: {error.message}"
        raise


def workload_words(subjects: Sequence[Subject], request: Request) -> str:
    """`context 16,384, batch 1`, or what stands for it when every model has its own."""
    batch = f"batch {request.batch:,}"
    sources = {request.source or subject.source for subject in subjects if subject.source is not None}
    one_source = f", source {max(sources):,}" if len(sources) == 1 else ""
    if request.ctx is None and len({subject.context for subject in subjects}) > 1:
        new = 1 if request.decode else request.tokens
        step = "" if new is None else f"{new_tokens(new)} at "
        read = " and source" if len(sources) > 1 else one_source
        return f"{step}each model's own longest context{read}, {batch}"
    work = workload(subjects[0], request)
    step = "" if work.tokens == work.context else f"{new_tokens(work.tokens)} at "
    read = ", own sources" if len(sources) > 1 else one_source
    return f"{step}context {work.context:,}{read}, {batch}"


def name_of(subject: Subject) -> str:
    """The model's name with what was set over it: `gpt2-xl (n_layer=2)`."""
    if not subject.changed:
        return subject.name
    return f"{subject.name} ({', '.join(f'{name}={spoken(value)}' for name, value in subject.changed.items())})"


def defaulted_notes(subjects: Sequence[Subject]) -> list[str]:
    """Names every field that the config left to its class; for many models, says where to look."""
    silent = [subject for subject in subjects if subject.defaulted]
    if not silent:
        return []
    if len(subjects) > 4:
        return ["Some configs leave fields to their class's defaults: `tfacct show MODEL` names them."]
    notes = []
    for subject in silent:
        fields = ", ".join(f"{name} = {spoken(value)}" for name, value in subject.defaulted.items())
        notes.append(f"defaulted{'' if len(subjects) == 1 else f' in {name_of(subject)}'}: {fields}")
    return notes


def block_notes(subjects: Sequence[Subject], *, masked: bool = False) -> list[str]:
    """What a reader must know of one model's windows, experts and latents; nothing of several models."""
    return [
        *window_notes(subjects, masked=masked),
        *expert_notes(subjects),
        *latent_notes(subjects),
        *_distance_notes(subjects),
    ]


def _distance_notes(subjects: Sequence[Subject]) -> list[str]:
    """Which scores of one model are no product."""
    lines = [line for group in subjects[0].ledger.groups for line in group.lines] if len(subjects) == 1 else []
    far = [short(line.path) for line in lines if isinstance(line, Pointwise) and line.path.endswith(".scores")]
    return [f"Scores are max |q − k|, no product and in no total: {', '.join(far)} (--pointwise)."] if far else []


def window_notes(subjects: Sequence[Subject], *, kept: bool = False, masked: bool = False) -> list[str]:
    """How many blocks have a window, and what that changes: of products, or of what is `kept`."""
    if len(subjects) != 1:
        return []
    stacks = subjects[0].architecture.stacks
    windows: dict[int, int] = {}
    for stack in stacks:
        if stack.block.window is not None:
            windows[stack.block.window] = windows.get(stack.block.window, 0) + stack.count
    blocks = sum(stack.count for stack in stacks)
    follows = (
        ", and so many are kept; bytes per token are those of a context that is shorter."
        if kept
        else "; pairs that it does not see are left out."
        if masked
        else "; new tokens meet each other all the same, as in an unfused kernel (--masked: only what is seen)."
    )
    return [
        f"In {count:,} of {blocks:,} blocks a token sees {window:,} keys at most{follows}"
        for window, count in windows.items()
    ]


def source_notes(subjects: Sequence[Subject], work: Workload | None = None) -> list[str]:
    """What one model's encoder reads, and when; nothing of other models."""
    if len(subjects) != 1 or subjects[0].source is None:
        return []
    read = work is None or work.new_source
    step = "runs once, over the whole source" if read else "has run before this step: it costs nothing here"
    kept = (
        "the cross keys and values made of it are kept" if read else "nor do the cross keys and values, which are kept"
    )
    return [f"The encoder {step}, and {kept}."]


def steppable(subjects: Sequence[Subject], request: Request) -> tuple[list[Subject], list[str]]:
    """Those that can be asked for some of their tokens, and a hint that names the others; one alone is asked, and says
    that it cannot."""
    whole = request.tokens is None and not request.decode
    return (list(subjects), []) if whole or len(subjects) == 1 else keeping(subjects)


def keeping(subjects: Sequence[Subject]) -> tuple[list[Subject], list[str]]:
    """Those that keep anything between steps, and a hint that names the others. Raises UsageError where none does."""
    keeps = [subject for subject in subjects if subject.keeps]
    others = [subject.name for subject in subjects if not subject.keeps]
    if not keeps:
        raise UsageError(
            f"{', '.join(others)}: an encoder alone keeps nothing between steps: there is no KV cache",
            "`tfacct memory` counts its weights",
        )
    return keeps, [f"hint: left out, for they keep nothing between steps: {', '.join(others)}"] if others else []


def never_called(subject: Subject) -> list[str]:
    """The networks that are stored and never run, by path."""
    idle = (line.of for group in subject.ledger.groups for line in group.lines if isinstance(line, Idle))
    return list(dict.fromkeys(line.path.rpartition(".")[0] for line in idle if isinstance(line, Matmul)))


def latent_notes(subjects: Sequence[Subject]) -> list[str]:
    """How one model's latent attention is run."""
    attention = subjects[0].architecture.attention if len(subjects) == 1 else None
    return [LATENT[attention.form]] if isinstance(attention, LatentAttention) else []


def expert_notes(subjects: Sequence[Subject]) -> list[str]:
    """How many experts a token meets, and what its active parameters are."""
    if len(subjects) != 1:
        return []
    stacks = subjects[0].architecture.stacks
    networks = [(stack.count, stack.block.mlp) for stack in stacks if isinstance(stack.block, Block)]
    routed = [(count, network) for count, network in networks if isinstance(network, Experts)]
    if not routed:
        return []
    count, blocks = sum(count for count, _ in routed), sum(stack.count for stack in stacks)
    mlp = routed[0][1]
    shared = " and through a network that all share" if mlp.shared is not None else ""
    return [
        f"In {count:,} of {blocks:,} blocks a token goes through {mlp.active:,} of {mlp.experts:,} experts{shared}."
        " Active parameters: all stored ones, embeddings too, but of each block's experts only these."
    ]


LATENT = {
    "expanded": "Latent attention, expanded: the latent is kept, and every step makes the keys and values of the whole"
    " context from it again, as transformers does. Engines decode with --set latent_attention=absorbed.",
    "absorbed": "Latent attention, absorbed: the latent is kept, and queries and results are taken into its space, as"
    " engines do when they decode. transformers runs --set latent_attention=expanded.",
    "unpacked": "Latent attention, unpacked: the keys and values of all heads are kept. Engines keep the latent:"
    " --set latent_attention=absorbed.",
}
"""How latent attention runs, said under a table."""


def spoken(value: object) -> str:
    """A field's value as a config spells it, with digits grouped."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) else str(value)


def unknown_hints(subjects: Sequence[Subject]) -> list[str]:
    """Names the fields that nobody here knows, and the models beside the language model."""
    unknown = [
        f"warning: {subject.name}: not known here, so not counted if they add anything: {', '.join(subject.unknown)}"
        for subject in subjects
        if subject.unknown
    ]
    return [
        *unknown,
        *(
            f"warning: {subject.name}: only the language model is counted, not {', '.join(subject.left_out)}"
            for subject in subjects
            if subject.left_out
        ),
    ]


def context_hints(subjects: Sequence[Subject], request: Request) -> list[str]:
    """Says which models are asked past the context or the source they were trained for, and what a longer table would
    add."""
    past = [subject for subject in subjects if request.ctx is not None and request.ctx > subject.context]
    hints = [_past_context(subject, request.ctx or 0) for subject in past]
    if len(past) > 4:
        names = ", ".join(subject.name for subject in past)
        hints = [f"hint: context {request.ctx:,} is past what these were trained with: {names}"]
    return [*hints, *_past_source(subjects, request)]


def _past_source(subjects: Sequence[Subject], request: Request) -> list[str]:
    read = [subject for subject in subjects if (request.source or 0) > (subject.source or LARGEST)]
    if not read:
        return []
    named = ", ".join(f"{subject.name} of {subject.source:,}" for subject in read)
    return [f"hint: a source of {request.source:,} is past what it is for: {named}; it is counted all the same"]


def _past_context(subject: Subject, context: int) -> str:
    described = subject.provenance is not None and subject.provenance.kind == "described"
    has = "has" if described else "was trained with"
    hint = f"hint: {subject.name} {has} {subject.context:,} positions; {context:,} are counted all the same"
    longer = subject.architecture.with_positions(context).ledger()
    added = sum(longer.parameters().values()) - sum(subject.ledger.parameters().values())
    if not added:
        return hint
    return f"{hint}, as if its position table were longer (that table would add {added:,} parameters, not counted)"


def overtaken(context: int | None) -> list[str]:
    """Says from which context on attention costs more than all the rest."""
    return [] if context is None else [f"From context {context:,} on, scores + values are more than all the rest."]


def by_part(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by tensor, summed by the part they belong to, in the order of PARTS."""
    summed = dict.fromkeys(PARTS, 0)
    for path, count in counts.items():
        summed[architecture.part_of(path)] += count
    return {part: count for part, count in summed.items() if count}


def with_share(row: Mapping[str, Cell], part: int, whole: int) -> Row:
    """The row with its share of the whole, as a number and as a bar."""
    share = Fraction(part, whole)
    return {**row, "share": share, "bar": share}


def short(path: str) -> str:
    """A path as a table shows it: without the blocks it is repeated in."""
    return path.replace("blocks.*.", "").replace("mtp.*.", "mtp.")
