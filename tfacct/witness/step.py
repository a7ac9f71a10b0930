"""What the transformers class and torch's optimizers say of a training step, beside what the account says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from types import ModuleType
from typing import Any, NamedTuple

from tfacct.accounts.timeline import peak, timeline
from tfacct.accounts.training import Step
from tfacct.base.errors import ConfigError, MissingExtraError, UsageError, cut
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.witness.checks import Check, Counts

LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
"""Fields of a config that say how many blocks there are."""
DROPS = ("blocks.*.attn.drop", "blocks.*.cross.drop", "blocks.*.mlp.drop")
"""Dropouts behind a block's parts."""
TWO = 2
"""Blocks of the model that is run: its last and its first are different ones."""


class Run(NamedTuple):
    """How a class is run: the names are those of a recipe, but `lora`, a rank and the modules that have adapters, and
    `chunks`, which the loss is computed in."""

    attention: str
    dtype: str
    checkpoint: str
    optimizer: str
    weights: str | None = None
    lora: tuple[int, tuple[str, ...]] | None = None
    adapters: str = "fp32"
    lora_dropout: float = 0.0
    chunks: int = 1


def step_checks(
    given: LoadedModel, work: Workload, how: Run, step: Callable[[LoadedModel], Step], *, all_layers: bool
) -> list[Check]:
    """Ask the class about one training step, module by module, of two blocks unless `all_layers`. `step` is the account
    of a model. Raises UsageError where it cannot be asked."""
    small = None if all_layers else with_blocks(given, TWO)
    asked = _Asked(small or given, work, how, step)
    try:
        found = [asked.kept(), *asked.peaks()]
        if small is not None:
            found[1:1] = _for_all_blocks(given, work, how, step)
    except (RuntimeError, AttributeError, ValueError) as error:
        raise _cannot(given, work, error) from None
    return [*found, *_whole(given, how, step(given))]


def _cannot(given: LoadedModel, work: Workload, error: Exception) -> Exception:
    """What is said of a step that the class, or a kernel, cannot take; an error of any other kind as it is."""
    if "multiple of 16 bytes" in str(error):
        sizes = "multiples of 8 in 2 bytes each, of 4 in fp32"
        return UsageError(f"{given.name}: torch multiplies experts whose widths are {sizes}, and takes no others")
    longer = isinstance(error, RuntimeError) and work.context > given.context
    if isinstance(error, ValueError) or longer:
        tokens = f" of {work.context:,} tokens" if longer else ""
        return UsageError(f"{given.name}: its class cannot take a step{tokens}: {cut(str(error).splitlines()[0], 200)}")
    missing = re.search(r"'(\w+Config)' object has no attribute '(\w+)'", str(error))
    if missing is None:
        return error
    config, field = missing.groups()
    return UsageError(
        f"{given.name}: its class cannot take a step: {config} has no {field}", option("set", f"{field}=0")
    )


def blocks_run(given: LoadedModel, all_layers: bool) -> tuple[int, int]:
    """Number of blocks that are run, and of those that the model has."""
    blocks = sum(stack.count for stack in given.architecture.stacks)
    return (blocks if all_layers or with_blocks(given, TWO) is None else TWO), blocks


def with_blocks(given: LoadedModel, count: int) -> LoadedModel | None:
    """The model with so many blocks; None where it has no more, or has blocks of several kinds."""
    field = next((name for name in LAYERS if name in given.raw), None)
    if (
        field is None
        or given.architecture.encoder is not None
        or len(given.architecture.stacks) > 1
        or given.architecture.stacks[0].count <= count
    ):
        return None
    try:
        found = given.with_fields({**given.changed, field: count})
    except ConfigError:  # a list has an entry for each block
        return None
    return found if [stack.count for stack in found.architecture.stacks] == [count] else None


def rooms() -> tuple[ModuleType, ModuleType]:
    """The modules that import torch and transformers. Raises MissingExtraError where there are none."""
    try:
        from tfacct.reference import keeping, stepping
    except ImportError:
        raise MissingExtraError(
            "the witnesses of a training step need torch and transformers", "measure", "transformers"
        ) from None
    return keeping, stepping


class _Asked:
    """One model as its class runs it."""

    def __init__(self, subject: LoadedModel, work: Workload, how: Run, step: Callable[[LoadedModel], Step]) -> None:
        self.subject, self.work, self.how, self.step = subject, work, how, step(subject)
        self.blocks = sum(stack.count for stack in subject.architecture.stacks)

    def _built(self) -> Any:
        return built(self.subject, self.how)

    def kept(self) -> Check:
        """Bytes that autograd saves, by the modules that asked for them; of blocks that run again all together."""
        keeping, _ = rooms()
        saved = keeping.kept(self._built(), self.work.batch, self.work.tokens, self.work.new_source)
        name = f"kept by {_of(self.blocks)}"
        if self.how.checkpoint != "none" or self.how.chunks > 1:
            total = {"total": int(self.step.kept())}
            return Check(name, "bytes", total, {"total": sum(each.bytes for each in saved)})
        known = known_modules(self.subject)
        return Check(name, "bytes", _named(by_modules(self.subject, self.step, known)), _named(grouped(saved, known)))

    def peaks(self) -> Iterator[Check]:
        """The most bytes alive before the optimizer's step, by two trackers."""
        from tfacct.reference.counting import PrivateInterfaceError

        keeping, stepping = rooms()
        fullest = peak(instant for instant in timeline(self.step) if instant.name != "optimizer step")
        ours = {"total": int(fullest.total - fullest.states)}
        batch, tokens = self.work.batch, self.work.tokens
        model = self._built()
        source = self.work.new_source
        theirs = keeping.peak(model, batch, tokens, source=source, beside=_beside(model, self.how)).bytes
        yield Check("peak, operator by operator", "bytes", ours, {"total": theirs}, self._peak_note())
        if self.how.lora is not None or self.step.run.frozen:  # the tracker's hooks need every weight's gradient
            return
        try:
            tracked = stepping.tracked_peak(self._built(), batch, tokens, source)
        except PrivateInterfaceError:
            return
        yield Check("peak by torch's MemTracker", "bytes", ours, {"total": tracked}, self._peak_note())

    def _peak_note(self) -> str:
        return f"The peaks are those of {_of(self.blocks)} before the optimizer's step, without its state."


def built(subject: LoadedModel, how: Run) -> Any:
    """The class's model on meta. Raises UsageError where it refuses the config."""
    keeping, _ = rooms()
    packed = how.weights == "nf4"
    weights, auto = None if packed else how.weights, subject.config.ending.auto
    try:
        model = keeping.trainable(
            subject.of_class, how.attention, how.dtype, checkpoint=how.checkpoint, weights=weights, auto=auto
        )
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(
            f"{subject.name}: the transformers class refuses this config: {cut(repr(error), 200)}"
        ) from None
    if how.lora is not None:
        model = _adapted(model, how, *how.lora, packed=packed)
    if how.chunks > 1:
        from tfacct.reference.chunked import loss_in_chunks

        cast = keeping.DTYPES[how.dtype] if weights not in (None, how.dtype) else None
        model = loss_in_chunks(model, how.chunks, cast)
    return model


def _adapted(model: Any, how: Run, rank: int, modules: tuple[str, ...], *, packed: bool) -> Any:
    """The model with peft's adapters, its weights in 4 bits if `packed`. Raises MissingExtraError without peft or
    bitsandbytes."""
    try:
        from tfacct.reference import adapting

        model = adapting.packed(model) if packed else model
    except ImportError as error:
        raise MissingExtraError(f"the witness of adapters needs {error.name}", others=error.name or "peft") from None
    return adapting.adapted(model, rank, modules, wide=how.adapters == "fp32", dropout=how.lora_dropout)


def _beside(model: Any, how: Run) -> list[Any]:
    """Tensors of weights in 4 bits that are no parameters: scales, codes and means."""
    if how.weights != "nf4":
        return []
    from tfacct.reference import adapting

    return adapting.scales(model)


def _for_all_blocks(given: LoadedModel, work: Workload, how: Run, step: Callable[[LoadedModel], Step]) -> list[Check]:
    """Kept bytes of all blocks, from what one and two keep; a third one adds as much, so they are a straight line."""
    keeping, _ = rooms()
    some = [with_blocks(given, count) or given for count in (1, 2, 3)]
    kept = [sum(each.bytes for each in keeping.kept(built(one, how), work.batch, work.tokens)) for one in some]
    count, ours = given.architecture.stacks[0].count, int(step(given).kept())
    own = int(step(some[2]).kept()) - int(step(some[1]).kept())
    whole = kept[0] + (count - 1) * (kept[1] - kept[0])
    return [
        Check(f"kept by all {count:,} blocks", "bytes", {"total": ours}, {"total": whole}),
        Check("kept by a third block", "bytes", {"total": own}, {"total": kept[2] - kept[1]}),
    ]


def _whole(given: LoadedModel, how: Run, account: Step) -> Iterator[Check]:
    """Gradients and the optimizer's state of the whole model."""
    _, stepping = rooms()
    model = built(given, how)
    *_, update = timeline(account)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    held = sum(parameter.numel() * parameter.element_size() for parameter in trained)
    yield Check("gradients", "bytes", {"total": int(update.gradients)}, {"total": held})
    states = stepping.state_bytes(model, how.optimizer)
    if states is not None:
        yield Check(f"torch.optim, {how.optimizer}", "bytes", {"total": int(account.states)}, {"total": states})


def _of(blocks: int) -> str:
    return "1 block" if blocks == 1 else f"{blocks:,} blocks"


def known_modules(subject: LoadedModel) -> set[str]:
    """Modules of the class that tensors are counted under."""
    modules = set(map(starred, subject.config.paths().values()))
    return modules | {parent(name) for name in modules}


def by_modules(subject: LoadedModel, step: Step, known: set[str]) -> Counter[frozenset[str]]:
    """Bytes of the lines by the class's modules whose gradients need them."""
    paths = {**subject.config.paths()}
    if (table := subject.config.tensors().get("pos_embed.weight")) is not None:
        paths["pos_embed"] = table  # a parameter of the module that it is in
    norm = next(path for name, path in paths.items() if name.count(".") == 2 and name.endswith("_norm"))
    block = "" if "drops_inside" in subject.config.habits else parent(norm)
    return grouped(
        (
            (section.count * step.bytes(section, [line]), [module(operation, paths, block) for operation in line.by])
            for section in step.run.sections
            for line in step.lines_of(section)
        ),
        known,
    )


def grouped(found: Iterable[tuple[int, Iterable[str]]], known: set[str]) -> Counter[frozenset[str]]:
    """Bytes by the modules that asked, each by itself or by what it is a part of (an activation, a dropout)."""
    groups: Counter[frozenset[str]] = Counter()
    for size, modules in found:
        groups[frozenset(nearest(starred(name), known) for name in modules)] += int(size)
    return groups


def module(operation: str, paths: Mapping[str, str], block: str) -> str:
    """The class's module that an operation of ours runs in: its own, or the one that it is a part of.

    `block`: where a sublayer's dropout runs, if it is no part of the sublayer.
    """
    name = operation.removesuffix(".weight").partition(".lora_")[0]  # an adapter is in its product
    activated, step, _ = name.partition(".act.")
    name = f"{activated}.act" if step else name
    if "rel_bias" in paths and name.removeprefix("encoder.") in DROPS:  # each part of a block is a module with its norm
        return parent(paths[f"{name.removesuffix('.drop')}_norm"])
    if block and name in DROPS:
        return block
    if name.startswith("encoder.blocks.") and name.removeprefix("encoder.") in DROPS:
        return parent(paths["encoder.blocks.*.attn_norm"])
    table = name.removesuffix(".drop")
    own = "encoder.embed" in paths  # else each side has a module for the table of both
    if table in ("embed", "encoder.embed") and "blocks.*.cross.q_proj" in paths and not (own and name == table):
        first = paths[table.replace("embed", "blocks.*.attn.q_proj")]
        return parent(first.partition(".*")[0])
    if name in paths:
        return paths[name]
    owner, _, leaf = name.rpartition(".")
    if owner in paths:  # an activation or a dropout stands behind its module, steps of a norm are in it
        return parent(paths[owner]) if leaf in ("act", "drop") else paths[owner]
    while owner and not any(known.startswith(f"{owner}.") for known in paths):
        owner = parent(owner)
    if f"{owner}.scores" in paths:
        return paths[f"{owner}.scores"]
    inside = [path.split(".") for known, path in paths.items() if owner and known.startswith(f"{owner}.")]
    common = takewhile(lambda names: len({*names}) == 1, zip(*inside, strict=False))
    return ".".join(names[0] for names in common)


def parent(name: str) -> str:
    """The module that one is in."""
    return name.rpartition(".")[0]


def starred(name: str) -> str:
    """A module's name with a star for each number."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def nearest(name: str, known: set[str]) -> str:
    """The nearest of some modules that one is, or is in."""
    while name and name not in known:
        name = parent(name)
    return name


def _named(groups: Mapping[frozenset[str], int]) -> Counts:
    """Groups of modules by name: what they share once, then each by itself."""
    return {_joined(sorted(modules)): size for modules, size in groups.items() if size}


def _joined(modules: list[str]) -> str:
    first, *others = (name or "the model" for name in modules)
    return " + ".join((first, *(name.rpartition(".")[2] for name in others)))
