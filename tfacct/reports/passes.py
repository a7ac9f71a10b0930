"""The pass of a model's training step, as its class runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Pass, known
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers import Transformers, kernel_letters
from tfacct.profiles.transformers_kinds import kind_of, pass_by
from tfacct.reports.stored import RUNS

if TYPE_CHECKING:
    from tfacct.reports.training import Recipe

ONE = Workload(context=1, tokens=1, batch=1)
CLASSIFIER = "classifier"
"""Dropout in front of classes."""
CHUNKED = "chunked"
"""A loss in chunks, whose number the batch decides; stands among a family's `trains` where one was measured."""
MANY = 2
"""Sequences of a batch: one alone is laid out in another way, more are alike."""
PASSES = 16
"""Passes of one model that are known at a time."""


def pass_of(
    subject: LoadedModel,
    recipe: Recipe,
    work: Workload = ONE,
    shape: Transformer | None = None,
    kernel: Mapping[str, Size] | None = None,
) -> Pass:
    """The pass of a model that was measured. Raises ConfigError for parts that its profile has no rule for.

    `shape` and `kernel`: the model and the kernels' letters with symbols for sizes, laid out as this workload is.
    """
    if shape is not None or recipe.loss == CHUNKED:
        return _pass_of(subject, recipe, work, shape, kernel)
    alike = replace(recipe, accumulate=False, hold_logits=False)  # neither changes what is kept
    key = alike, _sequences(work), work.tokens, work.new_source
    found: dict[object, Pass] = subject.ledger.known.setdefault(RUNS, {})
    if key not in found:
        if len(found) == PASSES:
            found.clear()
        found[key] = known(_pass_of(subject, recipe, work))
    return found[key]


def _pass_of(
    subject: LoadedModel,
    recipe: Recipe,
    work: Workload,
    shape: Transformer | None = None,
    kernel: Mapping[str, Size] | None = None,
) -> Pass:
    kind: Callable[..., Transformers] = kind_of(subject.architecture)
    if recipe.autocast:
        from tfacct.reports import train_autocast

        kind = train_autocast.profile(subject, recipe)
    own = replace(habits(subject), exchanged=recipe.exchanged)
    profile = kind(recipe.attention, own, recipe.full, _sequences(work), work.tokens)
    letters, of_source = kernel or kernel_letters(work.tokens), kernel_letters(work.new_source)
    whole = pass_by(profile, shape or subject.architecture, letters, of_source, subject.config.context, work.new_source)
    if recipe.autocast:
        whole = train_autocast.changed(profile, whole, shape or subject.architecture)
    elif recipe.checkpoint == "attention" and recipe.lora is None:
        from tfacct.profiles.selective import attention_again

        own = profile.habits
        drops, returns = own.drops_inside and own.residual, own.starts_biased or own.wide_scores
        whole = attention_again(whole, drops=drops, copies=own.starts_biased, returns=returns)
    if recipe.loss == CHUNKED:
        from tfacct.profiles.chunked import loss_in_chunks

        head = subject.architecture.head
        biased = head is not None and head.bias
        return loss_in_chunks(whole, work.batch, work.tokens, frozen=recipe.lora is not None, biased=biased)
    return whole


def _sequences(work: Workload) -> int:
    return min(work.batch, MANY) if isinstance(work.batch, int) else MANY  # a symbol stands for more than one sequence


def habits(subject: LoadedModel) -> Habits:
    """What the class drops, by its fields, and how it runs eager attention. Raises UsageError for an odd dropout."""
    found = {place: subject.raw.get(field, absent) for place, (field, absent) in subject.config.dropouts.items()}
    if found.get(CLASSIFIER, 0) is None:  # of the classes as of the stream
        found[CLASSIFIER] = found["residual"]
    for place, share in found.items():
        if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share < 1:
            field = subject.config.dropouts[place][0]
            raise UsageError(f"{subject.name}: {field} is a share of 1, not {share!r}")
    fields = subject.config.switched_habits.items()
    switched = {habit for habit, (field, absent) in fields if subject.raw.get(field, absent)}
    on = {place for place, share in found.items() if share} | switched | subject.config.habits
    return Habits(**dict.fromkeys(on, True))
