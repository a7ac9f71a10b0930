"""What each witness says of one model, beside what the formulas say: by path, as dicts that must be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from tfacct.architecture import Transformer, numbered
from tfacct.errors import MissingExtraError, UsageError
from tfacct.ledger import Ledger
from tfacct.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.passes import backward_flops, forward_flops, recomputed_flops
from tfacct.subject import Subject
from tfacct.workload import Workload

if TYPE_CHECKING:
    from tfacct.reference.counting import Passes

Counts: TypeAlias = dict[str, int]

BITS = 32
"""The reference model on meta holds float32."""


@dataclass(frozen=True, slots=True)
class Check:
    """One witness's counts beside the formulas', in one unit. They agree when the dicts are equal."""

    witness: str
    unit: str
    formula: Mapping[str, int]
    measured: Mapping[str, int]
    note: str = ""
    """How the witness differs from what this program counts, where it is held against its own way."""

    @property
    def agrees(self) -> bool:
        """Whether every path is in both, with the same number."""
        return dict(self.formula) == dict(self.measured)

    @property
    def totals(self) -> tuple[int, int]:
        """Both sides added up."""
        return sum(self.formula.values()), sum(self.measured.values())

    def pairs(self) -> dict[str, tuple[int | None, int | None]]:
        """Both sides by path; None where one does not know the path."""
        paths = dict.fromkeys((*self.formula, *self.measured))
        return {path: (self.formula.get(path), self.measured.get(path)) for path in paths}


def checks(subject: Subject, work: Workload, *, all_layers: bool, against: bool) -> list[Check]:
    """Ask every witness about one workload. The first check is fvcore's, product by product."""
    asked = _Asked(subject, work, all_layers)
    found = [
        asked.fvcore(),
        *asked.torch_passes(),
        *asked.other_steps(),
        asked.parameters(),
        *asked.expected(),
        asked.parameter_bytes(),
        *asked.cache_bytes(),
    ]
    return [*found, *stranger_checks(subject, work)] if against else found


def traced_blocks(subject: Subject, all_layers: bool) -> tuple[int, int]:
    """How many blocks are run, and how many the model has."""
    stacks = subject.architecture.every_stack
    blocks = sum(stack.count for stack in stacks)
    return (blocks if all_layers else len(stacks)), blocks


def reference_rooms(asking: str) -> tuple[ModuleType, ModuleType]:
    """The rooms that import torch: what counts, and the model. Raises MissingExtraError where there is no torch."""
    try:
        from tfacct.reference import counting, model
    except ImportError:
        raise MissingExtraError(f"{asking} needs torch and fvcore", MissingExtraError.MEASURE) from None
    return counting, model


class _Asked:
    """One model and its witnesses. Unless `all_layers`, one block of each kind is run and stands for its equals."""

    def __init__(self, subject: Subject, work: Workload, all_layers: bool) -> None:
        self.subject, self.work, self.all_layers = subject, work, all_layers
        self.shape = subject.architecture if all_layers else _counts(subject.architecture, {})
        self.counting, self.model = reference_rooms("verify")
        self._ran: dict[tuple[tuple[int, ...], bool], Passes] = {}

    @property
    def ledger(self) -> Ledger:
        return self.subject.ledger

    def fvcore(self) -> Check:
        """Every product's FLOPs by path, of every block."""
        counted: Counts = self.counting.multiply_adds(self._built(), self._inputs(self.shape, self.work))
        flops = {path: FLOPS_PER_MULTIPLY_ADD * count for path, count in counted.items()}
        return self._by_path("fvcore, forward", self.work, flops)

    def other_steps(self) -> Iterator[Check]:
        """The same context reached by one token, and by a chunk, where those are other workloads."""
        if not self.subject.keeps:
            return  # every step takes the whole context
        chunk = replace(self.work, tokens=max(1, int(self.work.context) // 3), new_source=0)
        one, some = replace(chunk, tokens=1), chunk
        steps = {one: "torch, decode at T = 1"}
        steps.setdefault(some, f"torch, chunk of T = {some.tokens:,}")
        for work, name in steps.items():
            if work != self.work:
                counted: Counts = self.counting.module_flops(self._built(), self._inputs(self.shape, work))
                yield self._by_path(name, work, counted)

    def torch_passes(self) -> Iterator[Check]:
        """Totals of FlopCounterMode: forward, backward, both, and both with the blocks run again."""
        forward = self._extrapolated(lambda shape: self._passes(shape).forward)
        backward = self._extrapolated(lambda shape: self._passes(shape).backward)
        again = self._extrapolated(lambda shape: self._passes(shape, recompute=True).both)
        at = self.work.axes()
        ours = forward_flops(self.ledger, at), backward_flops(self.ledger, at)
        redone = recomputed_flops(self.ledger, at)
        yield Check("torch, forward", "FLOPs", {"total": ours[0]}, {"total": forward})
        yield Check("torch, backward (2 ×)", "FLOPs", {"total": ours[1]}, {"total": backward})
        yield Check("torch, training step (3 ×)", "FLOPs", {"total": sum(ours)}, {"total": forward + backward})
        yield Check("torch, full recomputation", "FLOPs", {"total": sum(ours) + redone}, {"total": again})

    def parameters(self) -> Check:
        """Every parameter's elements by path."""
        counted: Counts = self.counting.parameters(self.model.build(self.shape))
        return Check("parameters", "elements", self.ledger.parameters(unfolded=True), self._for_all(counted))

    def expected(self) -> Iterator[Check]:
        """The total that somebody else published."""
        if self.subject.expected is not None:
            ours = sum(self.ledger.parameters().values())
            yield Check("parameters, as expected", "elements", {"total": ours}, {"total": self.subject.expected})

    def parameter_bytes(self) -> Check:
        """Bytes of the storages that hold the parameters."""
        held = self._extrapolated(lambda shape: self.counting.storage_bytes(self.model.build(shape).parameters()))
        ours = sum(self.ledger.weight_bytes(BITS).values())
        return Check("parameter bytes, fp32", "bytes", {"total": ours}, {"total": held})

    def cache_bytes(self) -> Iterator[Check]:
        """Bytes of the storages that hold every block's keys and values, where anything is kept."""
        if not self.subject.keeps:
            return
        held = self._extrapolated(lambda shape: self.counting.storage_bytes(self._passes(shape).caches))
        ours = sum(self.ledger.state_bytes(self.work.axes(), BITS).values())
        yield Check("KV cache bytes, fp32", "bytes", {"total": ours}, {"total": held})

    def _built(self) -> object:
        return self.model.build(self.shape, logits=self.work.logits)

    def _by_path(self, name: str, work: Workload, flops: Counts) -> Check:
        return Check(name, "FLOPs", self.ledger.flops(work.axes(), unfolded=True), self._for_all(flops))

    def _inputs(self, shape: Transformer, work: Workload) -> object:
        return self.model.inputs(shape, **work.sizes)

    def _passes(self, shape: Transformer, recompute: bool = False) -> Passes:
        """One forward and one backward pass; each shape is run once."""
        key = (tuple(stack.count for stack in shape.every_stack), recompute)
        if key not in self._ran:
            reference = self.model.build(shape, logits=self.work.logits, recompute=recompute)
            self._ran[key] = self.counting.passes(reference, self._inputs(shape, self.work))
        return self._ran[key]

    def _for_all(self, counted: Mapping[str, int]) -> Counts:
        """Counts of the blocks that were run, as counts of every block they stand for."""
        if self.all_layers:
            return dict(counted)
        shape = self.subject.architecture
        numbers = {"": shape.numbers()}
        if shape.encoder is not None:
            numbers["encoder."] = numbered(shape.encoder.stacks)
        whole: Counts = {}
        for path, count in counted.items():
            side, blocks, rest = path.rpartition("blocks.")
            if blocks:
                block, _, rest = rest.partition(".")
                whole |= {f"{side}blocks.{number}.{rest}": count for number in numbers[side][int(block)]}
            else:
                whole[path] = count
        return whole

    def _extrapolated(self, measure: Callable[[Transformer], int]) -> int:
        """A total for all blocks: that of one block of each kind, and what each further block adds.

        Measured too, by giving one kind a second block: the blocks of a kind are the same code with the same sizes.
        """
        if self.all_layers:
            return measure(self.subject.architecture)
        base = measure(self.shape)
        total = base
        for index, stack in enumerate(self.subject.architecture.every_stack):
            if stack.count > 1:
                two = measure(_counts(self.subject.architecture, {index: 2}))
                total += (stack.count - 1) * (two - base)
        return total


def _counts(shape: Transformer, counts: Mapping[int, int]) -> Transformer:
    """The model with one block in every stack, but those whose counts are given."""
    return shape.mapped(lambda part: part, [counts.get(index, 1) for index in range(len(shape.every_stack))])


def stranger_checks(subject: Subject, work: Workload) -> Iterator[Check]:
    """What the transformers class says, module by module; nothing where the family has no class."""
    table, tensors = subject.config.class_paths(), subject.config.hf_tensors
    if not table:
        return
    if reason := subject.config.class_cannot():
        raise UsageError(f"{subject.name}: the transformers class cannot be asked: {reason}")
    try:
        from tfacct.reference import stranger
    except ImportError:
        raise MissingExtraError("--against transformers needs transformers", "pip install transformers") from None
    try:
        theirs = stranger.build(subject.raw, subject.config.class_head)
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(f"{subject.name}: the transformers class refuses this config: {error!r}") from None
    try:
        flops, cached = stranger.run(theirs, **work.sizes)
    except (RuntimeError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise UsageError(f"{subject.name}: the transformers class cannot run this config: {said}") from None
    ledger, at = subject.ledger, replace(work, logits="all").axes()
    ours = stranger.renamed(ledger.flops(at, unfolded=True), table)
    params = stranger.renamed(ledger.parameters(unfolded=True), table, tensors)
    keeps = stranger.kept(subject.config.class_keeps().ledger().states(at, unfolded=True))
    yield Check("transformers, forward", "FLOPs", ours, flops)
    yield Check("transformers, parameters", "elements", params, stranger.parameters(theirs))
    same = keeps == stranger.kept(ledger.states(at, unfolded=True))
    note = "" if same else f"transformers' cache is held against its own way: {subject.config.class_differs}."
    yield Check("transformers, cached elements", "elements", keeps, cached, note)
