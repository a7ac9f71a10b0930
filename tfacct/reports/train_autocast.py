"""A training step under autocast over weights in fp32: which profile runs it, and what of it was measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tfacct.architecture.parts import Attention, Experts
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.spelling import option
from tfacct.ledger.kept import Pass
from tfacct.loading.model import LoadedModel
from tfacct.profiles.selective import with_attention_again
from tfacct.profiles.transformers import Transformers
from tfacct.profiles.transformers_kinds import kind_of

if TYPE_CHECKING:
    from tfacct.training.recipe import Recipe

AUTOCAST, IN_CHUNKS, ADAPTED, SELECTIVE = (f"autocast{rest}" for rest in ("", "_chunked", "_lora", "_selective"))
"""Stand among a family's `trains` where a step under autocast was measured: at all, with a loss in chunks, with
adapters, with attention that runs again."""


def profile(subject: LoadedModel, recipe: Recipe) -> Callable[..., Transformers]:
    """The profile of a step under autocast."""
    shape = subject.architecture
    if shape.encoder is not None or kind_of(shape) is not Transformers:
        return _encoders(subject, recipe)
    from tfacct.profiles.written_further import Further
    from tfacct.reports.lora import adapters_of

    adapters = None if recipe.lora is None else adapters_of(subject, recipe)
    attends, again = (recipe.recompute == how for how in ("attention", "full"))
    return partial(Further, adapters=adapters, selective=attends, again=again)


def _encoders(subject: LoadedModel, recipe: Recipe) -> Callable[..., Transformers]:
    from tfacct.profiles.transformers_encoders import Encoders, Predicting
    from tfacct.profiles.transformers_images import Images

    kind, again = kind_of(subject.architecture), recipe.recompute == "full"
    if subject.architecture.encoder is not None:
        return _pairs(subject.architecture, again=again)
    if kind is Images:
        from tfacct.profiles.written_images import WrittenImages

        return WrittenImages
    if kind is Encoders:
        from tfacct.profiles.written_encoders import WrittenEncoders

        return partial(WrittenEncoders, again=again)
    if kind is Predicting:
        from tfacct.profiles.written_predicting import WrittenPredicting

        return partial(WrittenPredicting, again=again)
    if subject.architecture.bias is not None:
        from tfacct.profiles.written_distances import WrittenDistances

        return WrittenDistances
    raise ConfigError("transformers under autocast: no rule for this kind of encoder")


def _pairs(shape: Transformer, *, again: bool) -> Callable[..., Transformers]:
    """The profile of an encoder with a decoder."""
    if not any(isinstance(part, Attention) and part.biased for part in shape.attentions):
        from tfacct.profiles.written_pairs import WrittenPairs

        return partial(WrittenPairs, again=again)
    from tfacct.profiles.written_pair_distances import WrittenDistancePairs

    return partial(WrittenDistancePairs, apart=shape.bias is None)


def changed(profile: Transformers, whole: Pass, shape: Transformer) -> Pass:
    """The pass with what a recipe changes: adapters beside frozen weights, attention that runs again."""
    from tfacct.profiles.written_autocast import Written, lent

    if not isinstance(profile, Written):
        return whole
    if profile.adapters is not None:
        whole = lent(profile, whole, shape)
    if not profile.selective:
        return whole
    windowed = [block.window is not None for block in shape.blocks()] if profile.adapters is not None else ()
    return with_attention_again(whole, windowed=windowed)


def refusal(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Reason why a step under autocast is not counted; None if it is."""
    trains, family = subject.config.trains, subject.family
    if AUTOCAST not in trains and any(isinstance(part, Experts) for part in subject.architecture.parts()):
        return (
            "autocast does not reach the products of experts: transformers casts what they read to the dtype of their"
            f" weights, fp32, which has not been measured on {family} beside a stream in fp32"
        )
    if AUTOCAST not in trains:
        return f"the training step of {family} has not been measured under autocast"
    asked = {
        f"adapters on {family}": recipe.lora is not None and ADAPTED not in trains,
        f"a loss in chunks on {family}": recipe.loss == "chunked" and IN_CHUNKS not in trains,
        f"a loss in chunks beside adapters on {family}": recipe.loss == "chunked"
        and recipe.lora is not None
        and IN_CHUNKS not in trains,
        f"attention that runs again on {family}": recipe.recompute == "attention" and SELECTIVE not in trains,
    }
    both = next((name for name, so in asked.items() if so), None)
    if both is not None:
        return f"autocast has not been measured with {both}"
    if recipe.lora is None:
        return None
    if recipe.adapter_dtype != "fp32":
        return f"peft makes adapters in fp32 beside weights in fp32: leave {option('adapter_dtype')} out"
    from tfacct.reports import lora

    return lora.refusal(subject, recipe)
