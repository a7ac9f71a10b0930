"""Models as transformers' classes build them, and the comparison with ours."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import reject

from tests.helpers.lazy import lazy
from tests.helpers.models import rounded
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.training.model_step import stored
from tfacct.verify.checks import cache_by_block, class_flops, renamed

hf, meta_model, transformers = lazy("tfacct.reference.hf"), lazy("tfacct.meta.model"), lazy("transformers")
SMALL_ENOUGH = 3_000_000
"""Parameters of a model that runs on the CPU; larger ones run on meta."""
SHAPES_ONLY = {
    "mpnet": "it looks up 32 buckets of distances, however many its table holds",
    "whisper": "its sines need even widths",
}
"""Families whose class takes some of the random configs on meta alone, where no value is read, and why."""


class ClassRefusesError(Exception):
    """The class does not take a config, or cannot run it."""


@contextlib.contextmanager
def of_the_class() -> Iterator[None]:
    """What the class raises, in any of its own ways, is a refusal."""
    try:
        yield
    except Exception as error:
        raise ClassRefusesError(str(error)) from error


@contextlib.contextmanager
def suppressed_refusals() -> Iterator[None]:
    """A config that the class does not take is no example for hypothesis; if it takes none, there are too few."""
    try:
        yield
    except ClassRefusesError:
        reject()


def agree(ours: LoadedModel, *works: Workload) -> Any:
    """Parameters by tensor, FLOPs by module and cached elements by layer, all equal to those of the class that it
    returns. Raises ClassRefusesError if the class does not take the config."""
    table, tensors = ours.config.hf_module_paths(), ours.config.hf_tensor_names()
    named = renamed(ours.ledger.parameters(unfolded=True), table, tensors)
    small = sum(named.values()) <= SMALL_ENOUGH and ours.family not in SHAPES_ONLY
    with of_the_class():
        model = hf.build(ours.of_class, ours.config.task_head.auto, "cpu" if small else "meta")
    assert named == hf.parameters(model)
    keeps = ours.config.hf_cache().ledger()
    for work in works:
        if ours.config.hf_fixed_source and not ours.has_cache:  # an encoder that reads no fewer positions, and no more
            if rounded(ours, ours.context) != ours.context:
                continue  # its positions are merged in groups that do not divide it, which is refused by name
            work = replace(work, context=ours.context, tokens=ours.context)
        at = work.axes()
        if ours.config.hf_no_chunked_prefill and 1 < work.tokens < work.context:
            continue  # which the class cannot take
        if ours.config.hf_no_cache and work.tokens < work.context:
            continue
        with of_the_class():
            flops, cached = hf.run(model, **work.sizes, gives=ours.config.task_head.gives)
        counted, _ = class_flops(ours, work)
        assert renamed(counted, table) == flops
        assert cache_by_block(keeps.states(at, unfolded=True)) == cached
    return model


def causal(config: Mapping[str, Any], **how: Any) -> Any:
    """The class of a config that writes text."""
    made = transformers.AutoConfig.for_model(**deepcopy(dict(config)))
    return transformers.AutoModelForCausalLM.from_config(made, **how)


def alike(shapes: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """Shapes in any order, matrices transposed or not, without a batch of 1 in front: optimizers store the same."""
    found = ((*shape[:-2], *sorted(shape[-2:])) for shape in shapes)
    return sorted(shape[1:] if len(shape) > 2 and shape[0] == 1 else shape for shape in found)


def shapes_of(model: LoadedModel) -> list[tuple[int, ...]]:
    return alike(one.shape for one in stored(model) for _ in range(one.copies))


def class_parameters(model: LoadedModel) -> list[Any]:
    """Parameters of the class that a step trains."""
    built = meta_model.build_model(model.of_class, "eager", "bf16", auto=model.config.task_head.auto)
    return [parameter for parameter in built.parameters() if parameter.requires_grad]
