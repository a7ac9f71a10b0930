"""What each witness says of one model, beside what the formulas say: by path, as dicts that must be equal."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from tfacct.architecture import Transformer
from tfacct.blocks import numbered
from tfacct.errors import MissingExtraError, UsageError
from tfacct.ledger import Ledger
from tfacct.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.passes import backward_flops, forward_flops, recomputed_flops
from tfacct.reports import _kinds as kinds
from tfacct.subject import Subject
from tfacct.workload import Workload

if TYPE_CHECKING:
    from tfacct.reference.counting import Passes
    from tfacct.reference.model import Decoder

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
    with _collector_off():
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


@contextmanager
def _collector_off() -> Iterator[None]:
    """Python's search for cycles, put off: it would walk all of torch, and a trace, again and again to find nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Asked:
    """One model and its witnesses. Unless `all_layers`, one block of each kind is run and stands for its equals."""

    def __init__(self, subject: Subject, work: Workload, all_layers: bool) -> None:
        self.subject, self.work, self.all_layers = subject, work, all_layers
        self.shape = subject.architecture if all_layers else _counts(subject.architecture, {})
        self.counting, self.model = reference_rooms("verify")
        self._models: dict[tuple[int, ...], Decoder] = {}
        self._ran: dict[tuple[int, ...], Passes] = {}

    @property
    def ledger(self) -> Ledger:
        return self.subject.ledger

    def fvcore(self) -> Check:
        """Every product's FLOPs by path, of every block."""
        counted: Counts = self.counting.multiply_adds(self._built(self.shape), self._inputs(self.shape, self.work))
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
                counted: Counts = self.counting.module_flops(self._built(self.shape), self._inputs(self.shape, work))
                yield self._by_path(name, work, counted)

    def torch_passes(self) -> Iterator[Check]:
        """Totals of FlopCounterMode: forward, backward, both, and both with the blocks run again."""
        forward = self._extrapolated(lambda shape: self._passes(shape).forward)
        backward = self._extrapolated(lambda shape: self._passes(shape).backward)
        again = self._extrapolated(lambda shape: self._passes(shape).redone)
        at = self.work.axes()
        ours = forward_flops(self.ledger, at), backward_flops(self.ledger, at)
        step, whole = forward + backward, sum(ours)
        redone = recomputed_flops(self.ledger, at)
        yield Check("torch, forward", "FLOPs", {"total": ours[0]}, {"total": forward})
        yield Check("torch, backward (2 ×)", "FLOPs", {"total": ours[1]}, {"total": backward})
        yield Check("torch, training step (3 ×)", "FLOPs", {"total": whole}, {"total": step})
        yield Check("torch, full recomputation", "FLOPs", {"total": whole + redone}, {"total": step + again})

    def parameters(self) -> Check:
        """Every parameter's elements by path."""
        counted: Counts = self.counting.parameters(self._built(self.shape))
        return Check("parameters", "elements", self.ledger.parameters(unfolded=True), self._for_all(counted))

    def expected(self) -> Iterator[Check]:
        """The total that somebody else published."""
        if self.subject.expected is not None:
            ours = sum(self.ledger.parameters().values())
            yield Check("parameters, as expected", "elements", {"total": ours}, {"total": self.subject.expected})

    def parameter_bytes(self) -> Check:
        """Bytes of the storages that hold the parameters."""
        held = self._extrapolated(lambda shape: self.counting.storage_bytes(self._built(shape).parameters()))
        ours = sum(self.ledger.weight_bytes(BITS).values())
        return Check("parameter bytes, fp32", "bytes", {"total": ours}, {"total": held})

    def cache_bytes(self) -> Iterator[Check]:
        """Bytes of the storages that hold every block's keys and values, where anything is kept."""
        if not self.subject.keeps:
            return
        held = self._extrapolated(lambda shape: self.counting.storage_bytes(self._passes(shape).caches))
        ours = sum(self.ledger.state_bytes(self.work.axes(), BITS).values())
        yield Check(f"{kinds.kept([self.subject])} bytes, fp32", "bytes", {"total": ours}, {"total": held})

    def _built(self, shape: Transformer) -> Decoder:
        """One model for all who ask: none of them changes it."""
        counts = tuple(stack.count for stack in shape.every_stack)
        if counts not in self._models:
            self._models[counts] = self.model.build(shape, logits=self.work.logits, recompute=True)
        return self._models[counts]

    def _by_path(self, name: str, work: Workload, flops: Counts) -> Check:
        return Check(name, "FLOPs", self.ledger.flops(work.axes(), unfolded=True), self._for_all(flops))

    def _inputs(self, shape: Transformer, work: Workload) -> object:
        return self.model.inputs(shape, **work.sizes)

    def _passes(self, shape: Transformer) -> Passes:
        """One forward pass and one backward pass that runs the blocks again; each shape is run once."""
        counts = tuple(stack.count for stack in shape.every_stack)
        if counts not in self._ran:
            self._ran[counts] = self.counting.passes(self._built(shape), self._inputs(shape, self.work))
        return self._ran[counts]

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
    if subject.config.class_chunks and 1 < work.tokens < work.context:
        raise UsageError(
            f"{subject.name}: the transformers class cannot be asked about a chunk: {subject.config.class_chunks}",
            "ask about a whole sequence, or --decode",
        )
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
    counted, extra = class_flops(subject, work)
    ours = stranger.renamed(counted, table)
    params = stranger.renamed(ledger.parameters(unfolded=True), table, tensors)
    keeps = stranger.kept(subject.config.class_keeps().ledger().states(at, unfolded=True))
    yield Check("transformers, forward", "FLOPs", ours, flops, extra)
    yield Check("transformers, parameters", "elements", params, stranger.parameters(theirs))
    if not subject.keeps:
        return
    same = keeps == stranger.kept(ledger.states(at, unfolded=True))
    note = "" if same else f"transformers' cache is held against its own way: {subject.config.class_differs}."
    yield Check("transformers, cached elements", "elements", keeps, cached, note)


def class_flops(subject: Subject, work: Workload) -> tuple[Counts, str]:
    """FLOPs by path as the class runs them, logits for every position, and how that differs from what is counted here.

    What it runs over more positions is the ledger's own count at so many more.
    """
    ledger, at = subject.ledger, replace(work, logits="all").axes()
    counted: Counts = ledger.flops(at, unfolded=True)
    more = {path: count for path, count in subject.config.class_runs_more(work).items() if count}
    for path, count in more.items():
        widened = ledger.flops({**at, "T": at["T"] + count}, unfolded=True)
        counted |= {one: flops for one, flops in widened.items() if _is_at(one, path)}
    said = f"transformers' FLOPs are held against its own way: {subject.config.class_extra}." if more else ""
    return counted, said


def _is_at(path: str, starred: str) -> bool:
    """Whether an unfolded path is one that `*` stands for."""
    words, pattern = path.split("."), starred.split(".")
    return len(words) == len(pattern) and all(b in ("*", a) for a, b in zip(words, pattern, strict=True))
