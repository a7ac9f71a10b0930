"""Measured errors of the formula for the peak memory of a training step, against the transformers class.

`bounds.toml` has the largest errors by family and group of recipes, as measured by `tests/sweeps/training_bounds.py`. A
recipe belongs to one or several groups, and its error bound is the largest of theirs. The formula answers a recipe only
if all its groups were measured, and no error was above `LIMIT`. The error is that of the peak, or that of the saved
activations if it is above `SAVED_LIMIT`, because they decide the peak of long sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfacct.architecture.parts import Patches
from tfacct.base.spelling import option, setting, spelled
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.training.measured import ANY_FAMILY, NOTHING, Measured, measured_version, plain_group, row_of
from tfacct.training.recipe import Recipe
from tfacct.training.recompute import SELECTIVE

LIMIT, SAVED_LIMIT = 1, 3
"""The largest accepted errors, in percent, of the peak and of the saved activations."""
LEAST_TOKENS = 256
"""Sequence length below which error bounds do not hold."""
LEAST_PARAMETERS = 5_000_000
"""Size of a model below which they do not: the smallest that was measured has 5.9 million."""
LEAST_LAYERS = 4
"""Number of layers below which they do not: the fewest that were measured."""
LEAST_VOCABULARY = 8_000
"""Size of a vocabulary below which they do not: the smallest that was measured has 8,008 tokens."""

GROUPS = {
    "lora": "with LoRA",
    "qlora": "with LoRA on 4-bit weights",
    "recompute-attention": "with recomputed attention",
    "recompute-full": "with full recomputation",
    "chunked-loss": "with a chunked loss",
    "autocast": "under autocast",
    "fp32": "in fp32",
    "eager": "with eager attention",
    "16-bit": "in bf16 and fp16",
}
"""Groups of recipes. A measurement counts for the group of its recipe; one of several groups for their combination, if
each was measured, else for the first."""
AND = "_"
"""Separates the groups of a combination in its key."""
AXES = ("fsdp", "tp", "pp", "cp", "ep")
"""Axes of a layout: each adds its error to that of the recipe on one device."""


class Bound(NamedTuple):
    """The largest error of the peak as a share, the number of measured configs of the family, and the groups of
    recipes."""

    share: float
    configs: int
    groups: tuple[str, ...]


def answered_groups(family: str) -> list[str]:
    """Groups of recipes that the formula supports for a family."""
    row = row_of(family)
    if not row or row.get(plain_group(row), NOTHING).percent > LIMIT:
        return []
    return [group for group in GROUPS if group in row and row[group].percent <= LIMIT]


def groups_of(recipe: Recipe) -> tuple[str, ...]:
    """Groups that a recipe belongs to, in the order of `GROUPS`."""
    adapters = "qlora" if recipe.weights_dtype == "nf4" else "lora"
    belongs = {
        adapters: recipe.lora is not None,
        "recompute-attention": recipe.recompute not in ("none", "full"),
        "recompute-full": recipe.recompute == "full",
        "chunked-loss": recipe.loss == "chunked",
        "autocast": recipe.autocast,
        "fp32": recipe.in_fp32,
        "eager": recipe.attention == "eager",
    }
    found = tuple(group for group in GROUPS if belongs.get(group))
    return found or ("16-bit",)


def bound(model: LoadedModel, recipe: Recipe, work: Workload) -> Bound | None:
    """The error bound of a recipe on a model; None if it was not measured, or if sequences are short or the model or
    its vocabulary is small."""
    layers = sum(stack.count for stack in model.architecture.stacks)
    words = next((group.axes["V"] for group in model.ledger.groups if "V" in group.axes), LEAST_VOCABULARY)
    if model.parameters < LEAST_PARAMETERS or layers < LEAST_LAYERS or words < LEAST_VOCABULARY:
        return None
    short = any(0 < tokens < LEAST_TOKENS for tokens in (work.tokens, work.new_source))
    if short and not isinstance(model.architecture.embed, Patches):  # images always have the measured size
        return None
    row, groups = row_of(model.family), groups_of(recipe)
    if _unmeasured_option(recipe) is not None:
        return None
    mesh = recipe.mesh
    if mesh is not None and (mesh.sequence_shards > 1 or mesh.zero):  # buffers of engines are not included
        return None
    axes = [axis for axis in AXES if mesh is not None and getattr(mesh, axis) > 1]
    found = _within(row, groups)
    added = [row.get(axis) or row_of(ANY_FAMILY).get(axis) for axis in axes]
    if not found.keys() >= {*groups} or None in added:
        return None
    of_axes = [each for each in added if each is not None]
    percent = max(each.percent for each in found.values()) + sum(each.percent for each in of_axes)
    return Bound(round(percent / 100, 6), min(each.configs for each in (*found.values(), *of_axes)), groups)


def _unmeasured_option(recipe: Recipe) -> str | None:
    """An option that no sweep measures, which transformers does not run as it is counted; None without one."""
    if recipe.packing:
        return option("packing", True)
    if recipe.offload is not None:
        return option("offload", recipe.offload)
    return option("recompute", recipe.recompute) if recipe.recompute.startswith(SELECTIVE) else None


def _within(row: Mapping[str, Measured], groups: tuple[str, ...]) -> dict[str, Measured]:
    """Measurements of these groups, and of combinations of them."""
    return {name: found for name, found in row.items() if {*name.split(AND)} <= {*groups}}


def refusal(family: str, recipe: Recipe) -> str | None:
    """The reason why the formula does not support a recipe on a family; None if it does.

    If the error of a plain step is too large, no recipe of the family is supported."""
    row = row_of(family)
    if not row:
        return f"the training step of {family} has not been measured"
    plain = plain_group(row)
    if recipe.attention == "sdpa" and plain == "eager":
        return f"the training step of {family} has not been measured with sdpa"
    for group in (*((plain,) if plain in row else ()), *groups_of(recipe)):
        found = row.get(group)
        if found is None:
            return f"the training step of {family} has not been measured {GROUPS[group]}"
        if found.percent > LIMIT:
            label = GROUPS["16-bit" if group == plain else group]
            return f"the formula for {family} is off by up to {found.percent:g}% {label}"
    for name, found in _within(row, groups_of(recipe)).items():
        if found.percent > LIMIT:
            labels = " ".join(GROUPS[group] for group in name.split(AND))
            return f"the formula for {family} is off by up to {found.percent:g}% {labels}"
    return None


def is_published(model: LoadedModel) -> bool:
    """True for a preset without changed fields, of which bounds were measured."""
    return model.provenance is not None and not model.changed


def accuracy(model: LoadedModel, recipe: Recipe, found: Bound | None) -> str:
    """The error bound of a peak, in one sentence."""
    if found is None and recipe.mesh is not None:
        return "≈: the error for this layout was not measured."
    if found is None and (how := _unmeasured_option(recipe)) is not None:
        return f"≈: the error with {how} was not measured."
    if found is None:
        sizes = f"{LEAST_TOKENS} tokens, {LEAST_LAYERS} layers, {LEAST_PARAMETERS:,} parameters"
        sizes += f" and a vocabulary of {LEAST_VOCABULARY:,}"
        return f"≈: the error was measured only with at least {sizes}."
    version = ".".join(measured_version("transformers").split(".")[:2])
    configs = "1 config" if found.configs == 1 else f"{found.configs:,} configs"
    measured = f"{configs} of {model.family}"
    equal = f"Equal to transformers {version} to the byte"
    near = equal if found.share == 0 else f"Within {100 * found.share:g}% of transformers {version}"
    exact = "" if recipe.mesh is not None else option("exact", True)
    if not is_published(model):
        return f"{near} on {measured}. This one was not measured{exact and f': check with {exact}'}."
    runs = f"; {exact} runs the transformers class" if exact and near != equal else ""
    return f"{near} (measured on {measured}){runs}."


def decides(found: Bound | None, peak: int, budget: int) -> bool:
    """True if the error bound decides whether a peak fits a budget."""
    off = 0 if found is None else found.share * peak
    return 0 < off >= abs(peak - budget)


NOT_ON_META = frozenset(
    """audio-spectrogram-transformer beit dbrx diffllama ernie4_5_vl_moe_text flaubert fsmt glm5_next_text internlm2
    jetmoe led longcat_flash longformer megatron-bert mistral_large4_text mllama_text_model muse_glimmer_text
    muse_spark_text openai_privacy_filter rembert roformer step3p5 t5gemma t5gemma2 whisper xlm xlnet""".split()
)
"""Families whose class runs no training step in bf16 on the meta device: most read tensor values or other inputs."""


def exact_advice(*, slow: bool) -> str:
    """The hint if the formula does not support a step. `slow`: the class runs for about a minute."""
    exact = spelled("train --exact", "train(exact=True)")
    return f"{exact} runs the transformers class itself{'' if slow else ' (about 2 s)'}"


def loss_advice(model: LoadedModel) -> str:
    """The hint for a class without a loss: one of the same family with a head."""
    heads = model.config.task_heads.items()
    endings = [ending for ending, head in heads if head.head != "none" and head.auto]
    named = f"{model.config.class_prefixes[0]}{endings[0]}" if endings else ""
    return f"{setting('architectures', named)} has one" if named else "no class of this family has one"
