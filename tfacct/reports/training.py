"""The memory of a model's training step, and why the formula refuses a model or a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from tfacct.architecture.parts import Patches, mixers
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports.fused_heads import beyond_kernels
from tfacct.training import bounds
from tfacct.training.adapters import routed
from tfacct.training.memory import TrainingMemory, graph_of, training_step
from tfacct.training.parameters import changed_by, stored
from tfacct.training.recipe import FP32, Recipe
from tfacct.training.saved_tensors import predicts_next_token
from tfacct.training.states import optimizer_memory
from tfacct.training.traits import mode_of, traits_of

LOSSES = frozenset(f"AutoModelFor{what}Classification" for what in ("Sequence", "Token", "Image"))
"""Kinds of classes whose loss is one class of each sequence, each position, or each image."""


def refusal(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Why the formula does not answer a model's training step; None if it does."""
    recipe = recipe.for_model(subject)
    if recipe.mesh is not None:
        from tfacct.reports import layouts

        return layouts.refusal(subject, recipe)
    return _unmeasured(subject, recipe)


def _unmeasured(subject: LoadedModel, recipe: Recipe) -> str | None:
    if not subject.config.hf_modules:
        return "transformers has no class for it, and the formula of a training step covers its classes only"
    if (why := subject.config.hf_unsupported()) is not None:
        return f"its transformers class runs another model: {why}"
    if subject.architecture.head is not None and subject.architecture.classes is not None:
        return "the loss of a language model's head together with that of classes has not been measured"
    if subject.architecture.head is None and (why := _no_classes(subject)) is not None:
        return why
    if (changed := changed_by(subject)) is not None:
        return changed
    side, patch = (getattr(subject.config, name, 1) for name in ("image_size", "patch_size"))
    if reads_images(subject) and side % patch:
        return f"images of {side:,} pixels are no whole patches of {patch:,}, which has not been measured"
    if recipe.dtype == "fp16" and subject.architecture.encoder is not None:
        return "its class bounds the results of layers in fp16, which has not been measured"
    if routed(subject) and recipe.dtype not in ("bf16", FP32):
        return "a training step with experts has been measured in bf16 and fp32 only"
    if subject.quantized and not _converted(subject) and recipe.lora is not None and recipe.weights_dtype is None:
        return "its weights are quantized: adapters on them have been measured in nf4 only"
    if recipe.attention == "sdpa" and (why := beyond_kernels(subject.architecture, full=recipe.in_fp32)) is not None:
        return why
    if recipe.packing and not _packs(subject):
        return f"{option('packing', True)} needs a decoder with attention in every layer"
    if recipe.lora is not None:
        from tfacct.reports import lora

        if (why := lora.refusal(subject, recipe)) is not None:
            return why
    return bounds.refusal(subject.family, recipe)


def _packs(model: LoadedModel) -> bool:
    """True if a mask of attention separates sequences that are packed into one row."""
    shape = model.architecture
    recurrent = any(name in mixers() for stack in shape.stacks for name, _ in stack.block.parts())
    return shape.encoder is None and predicts_next_token(shape) and not recurrent


def _converted(subject: LoadedModel) -> bool:
    """True if the files are in FP8: adapters are counted with weights that were converted to the step's dtype, as
    all its weights are without adapters."""
    quantization = subject.raw.get("quantization_config")
    return isinstance(quantization, Mapping) and quantization.get("quant_method") == "fp8"


def _no_classes(subject: LoadedModel) -> str | None:
    """Reason why a step of a model without a language model's head is not counted; None if it is."""
    classes = subject.architecture.classes
    if classes is None:
        return "its class computes no loss"
    if subject.config.task_head.auto not in LOSSES:
        return f"the loss of this class has not been measured for {subject.family}"
    if classes.classes == 1 or subject.raw.get("problem_type") not in (None, "single_label_classification"):
        return "a regression loss, or one of several labels at once, has not been measured"
    return None


def unsure(subject: LoadedModel, recipe: Recipe) -> bool:
    """True if the order of the parameters decides what the optimizer holds while it updates."""
    if recipe.mesh is not None:
        return False  # no such optimizer is counted there
    each = width(FP32 if recipe.autocast else recipe.dtype).bits // 8
    update = optimizer_memory(recipe, stored(subject), each).update
    return update.most > update.least


def _check(subject: LoadedModel, recipe: Recipe) -> None:
    why = refusal(subject, recipe)
    if why is not None:
        raise UsageError(f"{subject.name}: {why}", _advice(subject, recipe))


def _advice(subject: LoadedModel, recipe: Recipe) -> str:
    from tfacct.reports.train_advice import advice

    return advice(subject, recipe)


def reads_images(subject: LoadedModel) -> bool:
    """True of an encoder of images, whose class trains on one size of them."""
    return isinstance(subject.architecture.embed, Patches)


def of_another_size(subject: LoadedModel, work: Workload) -> bool:
    """True of images of another size than that, which the class refuses while it trains."""
    return reads_images(subject) and work.tokens != subject.context


def training_memory(subject: LoadedModel, work: Workload, recipe: Recipe) -> TrainingMemory:
    """The memory of a training step. Raises UsageError for a step that the formula does not count."""
    recipe = recipe.for_model(subject)
    if recipe.mesh is None:
        check_counted(subject, work, recipe)
        run = recipe.runs(work)
        graph = graph_of(subject, run, recipe, mode_of(subject, recipe), traits_of(subject))
        step = training_step(subject, run, recipe, graph, stored(subject))
        return TrainingMemory(subject, work, recipe, step)
    from tfacct.reports import layouts

    return layouts.memory_of_rank(subject, work, recipe)


def check_counted(subject: LoadedModel, work: Workload, recipe: Recipe) -> None:
    """Raises UsageError for a step of one device, or of the model that one rank has, which the formula does not
    count."""
    why = _unmeasured(subject, recipe)
    if why is not None:
        raise UsageError(f"{subject.name}: {why}", _advice(subject, recipe))
    if of_another_size(subject, work):
        own = f"the class trains on images of its own size only: {subject.context:,} tokens"
        raise UsageError(f"{subject.name}: {own}", option("ctx", subject.context))


def memory_at(subject: LoadedModel, recipe: Recipe) -> Callable[[Workload], TrainingMemory]:
    """The memory of a model's training step at any workload; the last one is cached. Raises UsageError for a recipe
    that the formula does not count."""
    recipe = recipe.checked()
    _check(subject, recipe)
    return lru_cache(maxsize=1)(partial(training_memory, subject, recipe=recipe))
