"""Selection of models for a command: workload and weight format of each, and models that are supported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from tfacct.architecture.parts import Patches
from tfacct.base.errors import TfacctError, UsageError, naming
from tfacct.base.spelling import option, setting
from tfacct.ledger.einsum import shared
from tfacct.ledger.storage import DEFAULT_DTYPE, Storage
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel, assumed
from tfacct.loading.published import published
from tfacct.loading.skipped import Skipped
from tfacct.output.keys import Keys, Object, values_of

of_work: Keys[[Workload]] = Keys()


class WorkloadFacts(Object):
    """Sequences, new tokens and keys of a step."""

    batch: int = of_work(lambda work: work.batch)
    tokens: int = of_work(lambda work: work.tokens)
    keys: int = of_work(lambda work: work.context)
    source: int | None = of_work(lambda work: work.source or None)
    logits: Literal["all", "last"] | None = of_work(lambda work: work.logits)
    masked: bool
    dtype: str | None


IMAGES = {"image_size": (384, 224), "num_patches": (1024, 256)}
"""Config fields that determine the context of an image encoder, with example values."""


def _image_field(model: LoadedModel) -> str | None:
    """Field that determines the context of an image encoder; None for other models and for variable image sizes.

    Encoders with merged patches, or with rotary embeddings only, support any image size.
    """
    shape = model.architecture
    if not isinstance(shape.embed, Patches) or model.ledger.together != 1:
        return None
    if shape.positions is None and all(part.rotary is not None for part in shape.attentions):
        return None
    return next((name for name in IMAGES if name in model.config.counted()), None)


def request_for(model: LoadedModel, request: Request) -> Request:
    """Request for one model: `ctx` does not apply to an encoder that is counted together with its language model."""
    return replace(request, ctx=None) if model.counted_with_text else request


def takes_context(model: LoadedModel, context: int | None) -> bool:
    """False for a context that is impossible for an image encoder."""
    return context is None or context == model.context or _image_field(model) is None


def other_context(model: LoadedModel) -> UsageError:
    """Error for a context that is impossible for an image encoder."""
    field = _image_field(model) or ""
    other = next(size for size in IMAGES[field] if size != getattr(model.config, field))
    return UsageError(
        f"{model.name} reads images: its context is the number of patches, so {option('ctx')} does not apply",
        f"change the image size: {setting(field, other)}",
    )


def workload(model: LoadedModel, request: Request) -> Workload:
    """Workload of one model. Raises UsageError with its name."""
    request = request_for(model, request)
    if not takes_context(model, request.ctx):
        raise other_context(model)
    with naming(model.name, UsageError):
        work = request.workload(model.context, source=model.source, has_cache=model.has_cache)
        shared(work.tokens, model.ledger.together, model.ledger.learned_tokens)
    return work if model.logits else replace(work, logits=None)


def runnable(model: LoadedModel, request: Request) -> Workload:
    """Workload of a step that must be able to run. Raises UsageError if it exceeds a stored position embedding."""
    work = workload(model, request)
    if (past := model.past_positions(work)) is not None:
        raise UsageError(f"{model.name}: {past}", "`tfacct flops` counts longer contexts")
    return work


def workload_facts(work: Workload, *, masked: bool = False, dtype: str | None = None) -> dict[str, Any]:
    """Data of a workload for JSON."""
    return values_of(WorkloadFacts, work, masked=masked, dtype=dtype)


def steppable(models: Sequence[LoadedModel], request: Request) -> tuple[list[LoadedModel], list[Skipped]]:
    """Models that support the request, and the skipped ones; a single model is returned, and raises its own error."""
    if len(models) == 1:
        return list(models), []
    sequences = request.tokens is None and not request.decode
    return in_groups(*((models, []) if sequences else keeping(models)), request)


def in_groups(
    models: Sequence[LoadedModel], left_out: Sequence[Skipped], request: Request
) -> tuple[list[LoadedModel], list[Skipped]]:
    """Models with a valid context for merged patches and images, and the skipped ones, including `left_out`.

    If none is valid, all are returned, and the first raises its own error.
    """
    grouped = [model for model in models if model.ledger.together != 1 and not _divides(model, request)]
    images = [model for model in models if not takes_context(model, request_for(model, request).ctx)]
    others = [*grouped, *images]
    if len(others) == len(models):
        return list(models), [*left_out]
    apart = Skipped.of(
        grouped,
        "positions are merged in groups, and this context is not a multiple; name one model alone to see their size",
    )
    apart += Skipped.of(images, "the context is fixed by the image size; name one model alone to see how to change it")
    return [model for model in models if model not in others], [*left_out, *apart]


def _divides(model: LoadedModel, request: Request) -> bool:
    request = request_for(model, request)
    work = request.workload(model.context, source=model.source, has_cache=model.has_cache)
    try:
        shared(work.tokens, model.ledger.together, model.ledger.learned_tokens)
    except UsageError:
        return False
    return True


def keeping(models: Sequence[LoadedModel]) -> tuple[list[LoadedModel], list[Skipped]]:
    """Models with a cache, and the skipped ones. Raises UsageError if there is none."""
    cached = [model for model in models if model.has_cache]
    others = [model for model in models if not model.has_cache]
    if not cached:
        names = ", ".join(model.name for model in others)
        raise UsageError(
            f"{names}: encoders have no KV cache",
            "`tfacct memory` counts its weights",
        )
    return cached, Skipped.of(others, "nothing is cached between steps")


def generating(models: Sequence[LoadedModel]) -> tuple[list[LoadedModel], list[Skipped]]:
    """Models with a language modeling head, and the skipped ones. Raises UsageError if there is none."""
    others = [model for model in models if model.architecture.head is None]
    if len(others) == len(models):
        raise UsageError(f"{', '.join(model.name for model in others)}: generation needs a language modeling head")
    heads = [model for model in models if model.architecture.head is not None]
    return heads, Skipped.of(others, "no language modeling head")


def storages(
    models: Sequence[LoadedModel], dtype: str | None
) -> tuple[list[tuple[LoadedModel, Storage]], dict[str, str]]:
    """Models with the storage of their weights, and names of models with unknown bytes → reason."""
    known: list[tuple[LoadedModel, Storage]] = []
    why: dict[str, str] = {}
    for model in models:
        try:
            known.append((model, model.storage(dtype)))
        except TfacctError as error:
            why[model.name] = error.message.removeprefix(f"{model.name}: ")
    return known, why


def weight_range(model: LoadedModel, dtype: str | None) -> tuple[int, int]:
    """Fewest and most bytes of a model's weights, which differ if versions of the program that writes files differ.
    Raises TfacctError."""
    most = model.storage(dtype)
    least = most if most.least is None else most.least
    fewest, highest = (int(sum(model.ledger.weight_bytes(how).values())) for how in (least, most))
    return fewest, highest


def range_facts(model: LoadedModel, how: Storage, weights: int, others: int) -> dict[str, Any]:
    """Range of the bytes of weights, and of the total with `others`; empty without a range."""
    if how.least is None:
        return {}
    least = int(sum(model.ledger.weight_bytes(how.least).values()))
    return {
        "weights_low_bytes": least,
        "weights_high_bytes": weights,
        "total_low_bytes": least + others,
        "total_high_bytes": weights + others,
        "range_reason": how.differs,
    }


def with_known_bytes(models: Sequence[LoadedModel], dtype: str | None) -> tuple[list[LoadedModel], list[Skipped]]:
    """Models with known bytes of weights, and the skipped ones. Raises TfacctError if there is none."""
    known, why = storages(models, dtype)
    if not known:
        models[0].storage(dtype)
    by_reason: dict[str, list[str]] = {}
    for name, reason in why.items():
        by_reason.setdefault(reason, []).append(name)
    advice = f"give another {option('dtype')}"
    return [model for model, _ in known], [Skipped(tuple(names), reason, advice) for reason, names in by_reason.items()]


OR_AS_GIVEN = " or as published"
GIVEN, PUBLISHED, ASSUMED = "given", "published", "assumed"
"""Sources of the format of weights: the user, a config or files next to it, or assumed."""


def format_facts(model: LoadedModel, dtype: str | None) -> dict[str, str | None]:
    """Source of the counted format of weights, and the published format if known."""
    known = None if assumed(model) else _published(model)
    if dtype is not None:
        return {"dtype_from": GIVEN, "published_dtype": known}
    alike = known is not None and known == model.storage().name
    return {"dtype_from": PUBLISHED if alike else ASSUMED, "published_dtype": known}


def _published(model: LoadedModel) -> str | None:
    """Published format of a model; None if unknown or not supported."""
    try:
        if model.quantized:
            return model.storage().name
        found = published(model)
    except TfacctError:
        return None
    return None if found is None else found.dtype


def format_name(model: LoadedModel, dtype: str | None) -> str:
    """Counted format of a model's weights: `bf16`, `bf16 (assumed)`, `bf16 (published in fp32)`."""
    name = model.storage(dtype).name
    if dtype is not None:
        return name
    if format_assumed(model):
        return f"{name} ({ASSUMED})"
    found = None if model.quantized else published(model)
    return name if found is None or found.dtype == name else f"{name} ({found.stated_by} in {found.dtype})"


def format_assumed(model: LoadedModel) -> bool:
    """True if the published format of a model is unknown."""
    return assumed(model) or not (model.quantized or published(model))


def stored_name(models: Sequence[LoadedModel], dtype: str | None) -> str:
    """Short text of the counted format of these models."""
    names = list(dict.fromkeys(how.name for _, how in storages(models, dtype)[0]))
    return names[0] if len(names) == 1 else f"{DEFAULT_DTYPE}{OR_AS_GIVEN}"


def formats(models: Sequence[LoadedModel], dtype: str | None) -> str:
    """Text of the counted format for a title, with `(assumed)` if unknown, and the files' dtype if different."""
    known = storages(models, dtype)[0]
    named = {format_name(model, dtype) for model, _ in known}
    if len(named) == 1:
        return named.pop()
    unsure = 0 if dtype is not None else sum(format_assumed(model) for model, _ in known)
    if not unsure:
        return stored_name(models, dtype)
    names, share = {how.name for _, how in known}, f"({ASSUMED} for {unsure:,} of {len(known):,})"
    return f"{names.pop()} {share}" if len(names) == 1 else f"{DEFAULT_DTYPE} {share}{OR_AS_GIVEN}"
