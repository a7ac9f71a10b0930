"""`train --exact`: one training step of the model's class, on the meta device with CUDA's kernels.

It uses no rules of this program: the class runs, autograd saves tensors, and a tracker adds up those that are alive.
Needs torch and transformers, peft for LoRA, bitsandbytes for 4-bit weights. A model without a transformers class runs
as the reference model.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, NamedTuple

from tfacct.base.errors import MissingExtraError, TfacctError, UsageError, cut
from tfacct.base.spelling import option, setting
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Tick, unwatched
from tfacct.training.bounds import loss_advice
from tfacct.training.lora import target_modules, targets_of
from tfacct.training.measured import AttentionKind
from tfacct.training.optimizers import FP32_BYTES
from tfacct.training.recipe import FP32, NF4, Recipe
from tfacct.training.recompute import ATTENTION, CHUNKS
from tfacct.training.states import optimizer_memory

REFERENCE = "the reference model"
"""Label of a run of the reference model, for models without a class."""
UPDATE = "optimizer step"
"""Name of the last phase."""
VALUES = ("meta tensor", "meta device", "aten::_local_scalar_dense", "nonzero", "Cannot copy out")
"""Parts of torch's error messages when a class reads tensor values on meta."""


class ExactStep(NamedTuple):
    """Bytes of a training step. `saved_by`: saved bytes by module, largest first, with a star for the layer number.
    `state_by_formula`: the optimizer does not run on meta, so its state is that of the formula."""

    class_name: str
    attention: AttentionKind
    weights_bytes: int
    optimizer_bytes: int
    state_by_formula: bool
    gradients_bytes: int
    saved_by: dict[str, int]
    peak_bytes: int
    peak_phase: str
    versions: dict[str, str]
    seconds: float

    @property
    def saved_bytes(self) -> int:
        """Bytes of all tensors that autograd saves."""
        return sum(self.saved_by.values())


class Built(NamedTuple):
    """A model on meta, a batch, the forward pass on it, and tensors that are neither parameters nor buffers."""

    model: Any
    batch: dict[str, Any]
    forward: Callable[..., Any]
    constants: list[Any]
    attention: AttentionKind


def check(model: LoadedModel, work: Workload, recipe: Recipe) -> None:
    """Raises UsageError for a step that cannot run on the meta device."""
    if recipe.mesh is not None:
        raise UsageError(
            f"{option('exact', True)} runs on one device: a class on the meta device cannot be sharded",
            f"leave the parallel layout out, or {option('exact')}",
        )
    if recipe.offloads("activations"):
        raise UsageError(f"{option('offload', 'activations')} does not work with {option('exact', True)}")
    if (past := model.past_positions(work)) is not None:
        raise UsageError(f"{model.name}: its class cannot run this: {past}")


def exact(model: LoadedModel, work: Workload, recipe: Recipe, progress: Tick = unwatched) -> ExactStep:
    """One training step of the class. Raises UsageError if the class does not accept the config or cannot run on meta,
    MissingExtraError if a required package is missing."""
    check(model, work, recipe)
    started = time.perf_counter()
    built = build(model, work, recipe)
    passes = 3 * sum(1 for _ in built.model.modules())  # forward, and forward and backward
    visits = iter(range(1, passes))

    def visit() -> None:
        done = next(visits, passes)
        if time.perf_counter() - started > 1:
            progress(model.name, done, passes)

    from tfacct.meta import optimizer as optimizers
    from tfacct.meta import step

    options = {"gradient_accumulation": recipe.accumulates, "keep_logits": recipe.keep_logits}
    try:
        saved = step.saved(built.model, built.batch, built.forward, visit)
        live = step.watch(built.model, built.batch, built.forward, constants=built.constants, visit=visit, **options)
    except TfacctError:
        raise
    except Exception as error:
        raise _cannot_run(model, work, error) from None
    of_class = bool(model.config.hf_module_paths())
    by_module, class_name = Counter[str](), type(built.model).__name__ if of_class else REFERENCE
    for tensor in saved:
        by_module[_joined(name or class_name for name in tensor.modules)] += tensor.bytes
    trained = optimizers.trained_parameters(built.model)
    tensors = [TorchParameter(each.shape, 1, 0 if each.in_layer else None, each.embedding) for each in trained]
    width = trained[0].width if trained else 0
    memory = optimizer_memory(recipe, tensors, width)
    own_state = optimizers.state_bytes(built.model, recipe.optimizer) if trained and not recipe.master_weights else None
    state = memory.state if own_state is None else own_state
    gradients = width * sum(tensor.elements for tensor in tensors)
    wider = gradients * (FP32_BYTES // width - 1) if recipe.fp32_gradients else 0
    parameters, others = _bytes(built.model.parameters()), _bytes((*built.model.buffers(), *built.constants))
    on_host = recipe.offloads("optimizer")
    batch = _bytes({id(tensor): tensor for tensor in built.batch.values()}.values())
    update = parameters + others + batch + gradients + (0 if on_host else memory.update)
    peak, phase = max((live.peak.bytes, live.peak.phase), (update, UPDATE), key=lambda end: end[0])
    used = {"transformers": of_class, "peft": of_class and recipe.lora, "bitsandbytes": recipe.weights_dtype == NF4}
    packages = ["torch", *(name for name, there in used.items() if there)]
    return ExactStep(
        class_name,
        built.attention,
        parameters + (_bytes(built.constants) if recipe.weights_dtype == NF4 else 0),
        state,
        bool(trained and own_state is None),
        gradients + wider,
        dict(by_module.most_common()),
        peak + wider + (0 if on_host else state),
        phase,
        {name: version(name).partition("+")[0] for name in packages},
        round(time.perf_counter() - started, 3),
    )


def build(model: LoadedModel, work: Workload, recipe: Recipe) -> Built:
    """The class on meta, or the reference model if there is no class, with a batch. Raises TfacctError."""
    try:
        from tfacct.meta import model as meta
    except ImportError as error:
        raise MissingExtraError(f"the class needs {error.name}", "measure", "transformers") from None
    shape = model.architecture
    if shape.head is None and shape.classes is None:
        raise UsageError(f"{model.name}: its class computes no loss", loss_advice(model))
    choices: list[AttentionKind] = [recipe.attention] if recipe.attention else ["sdpa", "eager"]  # as in transformers
    if not model.config.hf_module_paths():
        return _reference(model, work, recipe, choices[0])
    refused: UsageError | None = None
    for attention in choices:
        try:
            found = _class(model, recipe, attention)
        except UsageError as error:
            refused = refused or error
            continue
        packed = recipe.weights_dtype == NF4
        run = recipe.runs(work)
        try:
            batch = meta.inputs(found, run.batch, run.tokens, run.new_source)
        except (AttributeError, TypeError) as error:
            raise _cannot_run(model, work, error) from None
        forward = meta.packed_forward if recipe.packing else meta.forward
        return Built(found, batch, forward, meta.constants(found) if packed else [], attention)
    assert refused is not None
    raise refused


def _class(model: LoadedModel, recipe: Recipe, attention: str) -> Any:
    from tfacct.meta import model as meta

    weights = None if recipe.weights_dtype == NF4 else recipe.weights_dtype
    if recipe.recomputed_modules not in ((), (ATTENTION,)):
        why = f"transformers recomputes whole layers, or their attention, not {option('recompute', recipe.recompute)}"
        raise UsageError(why, f"leave {option('exact', True)} out")
    try:
        found = meta.build_model(
            model.of_class,
            attention,
            recipe.dtype,
            recompute=recipe.recompute,
            weights_dtype=weights,
            auto=model.config.task_head.auto,
        )
        if recipe.lora is not None:
            targets = targets_of(recipe)
            found = meta.with_lora(
                found,
                targets.rank,
                target_modules(model, targets),
                fp32=recipe.adapter_dtype == FP32,
                dropout=recipe.lora_dropout,
                in_4_bits=recipe.weights_dtype == NF4,
            )
    except ImportError as error:
        raise MissingExtraError(f"adapters need {error.name}", others=error.name or "peft") from None
    except Exception as error:  # classes validate configs with different exceptions
        raise UsageError(f"{model.name}: its class does not accept this config or recipe: {_words(error)}") from None
    return meta.with_chunked_loss(found, CHUNKS, recipe.dtype, weights) if recipe.loss == "chunked" else found


def _reference(model: LoadedModel, work: Workload, recipe: Recipe, attention: AttentionKind) -> Built:
    """The reference model, which has no adapters, no chunked loss, and only recomputation of whole layers."""
    from tfacct.reference import training_step

    given = {"lora": recipe.lora, "loss": recipe.loss == "chunked", "recompute": bool(recipe.recomputed_modules)}
    for name in (name for name, there in given.items() if there):
        why = f"{model.name} has no transformers class, and the reference model does not support {option(name)}"
        raise UsageError(why, f"leave {option(name)} out")
    shape, weights = model.running("expanded").architecture, recipe.weights_format
    found = training_step.build_reference(shape, attention, recipe.dtype, recipe.recompute == "full", weights)
    batch = training_step.batch_of(shape, work.batch, work.tokens, work.new_source, weights)
    return Built(found, batch, training_step.forward, [*training_step.constants(found)], attention)


def _cannot_run(model: LoadedModel, work: Workload, error: Exception) -> UsageError:
    """The error for a class that cannot run a step on meta, with a hint."""
    message, name = f"{type(error).__name__}: {error}", model.name
    if any(words in message for words in VALUES):
        why = "its class cannot run on the meta device, because it reads tensor values"
        return UsageError(f"{name}: {why}", f"leave {option('exact')} out: the formula may work")
    if "object has no attribute 'loss'" in message:
        return UsageError(f"{name}: its class computes no loss", loss_advice(model))
    if missing := re.search(r"'(\w+Config)' object has no attribute '(\w+)'", message):
        config, field = missing.groups()
        return UsageError(f"{name}: its class cannot run a step: {config} has no {field}", setting(field, 0))
    if "multiple of 16 bytes" in message:
        sizes = "multiples of 8 (16-bit) or 4 (fp32)"
        return UsageError(f"{name}: torch's expert matmuls need widths that are {sizes}")
    tokens = f" of {work.context:,} tokens" if work.context > model.context else ""
    return UsageError(f"{name}: its class cannot run a step{tokens} on the meta device: {_words(error)}")


def _words(error: Exception) -> str:
    """The first line of an error, or the name of its class."""
    return cut(next(iter(str(error).splitlines()), type(error).__name__), 200)


def _bytes(tensors: Iterable[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def starred(module: str) -> str:
    """A module's name with a star for each number."""
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def _joined(modules: Iterable[str]) -> str:
    """Names of the modules that save one tensor: the full name of the first, the last words of the others."""
    first, *others = sorted({starred(name) for name in modules})
    return " + ".join((first, *(name.rpartition(".")[2] for name in others)))


def tracked_peak(model: LoadedModel, work: Workload, recipe: Recipe) -> int | None:
    """The peak before the optimizer step by torch's own tracker; None if it does not support the step: it needs a
    gradient for every weight, and supports a single batch."""
    if recipe.lora is not None or recipe.accumulates or recipe.keep_logits or not model.config.hf_module_paths():
        return None
    try:
        from tfacct.meta.memtracker import tracked_peak
    except ImportError:
        return None
    built = build(model, work, recipe)
    return tracked_peak(built.model, built.batch)
