"""Counts of one model by each counter and by the formulas, as dicts by path that must be equal."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from tfacct.accounts.step_flops import recomputed_flops
from tfacct.architecture.blocks import numbered
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import MissingExtraError, TfacctError, UsageError, cut
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.storage import storage, width
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel

if TYPE_CHECKING:
    from tfacct.reference.counting import Passes
    from tfacct.reference.model import Decoder


Counts: TypeAlias = dict[str, int]
Pair: TypeAlias = tuple[int | None, int | None]
"""Formula and measurement; None if a side does not have the path."""

DTYPE = "fp32"
"""Dtype of the reference model on meta."""


def renamed(
    counts: Mapping[str, int], table: Mapping[str, str], tensors: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Counts by the class's paths, from counts by the ledger's; several ledger paths may be one path of the class.

    `table` maps module paths of the ledger to those of the class, with `*` for the layer number, or with
    the number of a single layer. A tensor's path ends in its name, unless `tensors` maps it.
    """
    named: Counter[str] = Counter()
    for path, count in counts.items():
        module, tensor = paths.module_of(path), paths.name_of(path)
        name = paths.looked_up(tensors or {}, path)
        if name is None:
            is_tensor = tensor in ("weight", "bias")
            name = paths.looked_up(table, module if is_tensor else path)
            if name is None:
                raise KeyError(path)
            name = f"{name}.{tensor}" if is_tensor else name
        named[name] += count
    return {name: count for name, count in named.items() if count}


def cache_by_block(states: Mapping[str, int]) -> dict[str, int]:
    """Cached elements by ledger path as elements of the class's cache: the first, second, … tensor of each layer."""
    found: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for path, count in states.items():
        at = paths.parse(path)
        block = f"{at.stack}.{at.number}"
        found[f"{block}.{seen[block]}"] = count
        seen[block] += 1
    return found


@record
class Check:
    """Counts of one counter and of the formulas, in one unit. They agree if the dicts are equal."""

    name: str
    unit: str
    formula: Mapping[str, int]
    measured: Mapping[str, int]
    note: str = ""
    """How the class differs from what this program counts, where it is compared with what it runs."""
    error: ClassVar[None] = None
    """Counts have no error; bytes of a training step have one."""

    @property
    def agrees(self) -> bool:
        """True if every path is in both, with the same number."""
        return dict(self.formula) == dict(self.measured)

    @property
    def totals(self) -> tuple[int, int]:
        """The sums of both sides."""
        return sum(self.formula.values()), sum(self.measured.values())

    def pairs(self) -> dict[str, Pair]:
        """Both sides by path; None if a side does not have the path."""
        either = dict.fromkeys((*self.formula, *self.measured))
        return {path: (self.formula.get(path), self.measured.get(path)) for path in either}


def checks(model: LoadedModel, work: Workload, *, all_layers: bool, against: bool) -> list[Check]:
    """Every check at one workload. The first is fvcore's, matmul by matmul."""
    with _collector_off():
        counters = _Counters(model, work, all_layers)
        found = [
            counters.fvcore(),
            *counters.torch_passes(),
            *counters.other_steps(),
            counters.parameters(),
            *counters.expected(),
            counters.parameter_bytes(),
            *counters.cache_bytes(),
        ]
    return [*found, *class_checks(model, work)] if against else found


def folded(pairs: Mapping[str, Pair], starred: Callable[[str], str] = paths.starred) -> dict[str, tuple[Pair, bool]]:
    """Rows of paths: all layers in one row if every layer agrees; a layer that differs has its own row."""
    rows: dict[str, tuple[Pair, bool]] = {}
    for path, (formula, measured) in pairs.items():
        if formula != measured or formula is None:
            rows[path] = (formula, measured), False
            continue
        name = starred(path)
        before = rows[name][0][0] or 0 if name in rows else 0
        rows[name] = (before + formula, before + formula), True
    return rows


def traced_blocks(model: LoadedModel, all_layers: bool) -> tuple[int, int]:
    """Number of layers that run, and of layers in the model."""
    stacks = model.architecture.every_stack
    blocks = sum(stack.count for stack in stacks)
    return (blocks if all_layers else len(stacks)), blocks


def reference_module(name: str, problem: str, extra: str = "", others: str = "") -> ModuleType:
    """A module that imports torch or transformers. Raises MissingExtraError without them."""
    try:
        return import_module(f"tfacct.reference.{name}")
    except ImportError:
        raise MissingExtraError(problem, extra, others) from None


def reference_modules(asking: str) -> tuple[ModuleType, ModuleType]:
    """The counters and the model. Raises MissingExtraError without torch."""
    problem = f"{asking} needs torch and fvcore"
    return reference_module("counting", problem, "measure"), reference_module("model", problem, "measure")


def shape_kernels() -> AbstractContextManager[None]:
    """Replaces torch's shape kernels once for several runs on meta. Does nothing without torch."""
    try:
        from tfacct.meta.kernels import compiled
    except ImportError:
        return nullcontext()
    return compiled()


@contextmanager
def _collector_off() -> Iterator[None]:
    """Python's garbage collector, paused: it would walk torch and the trace repeatedly and find nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Counters:
    """One model and its counters. Unless `all_layers`, one layer of each kind runs, and stands for all of its kind.

    The model runs one step; other steps of `given` may run in another way.
    """

    def __init__(self, given: LoadedModel, work: Workload, all_layers: bool) -> None:
        self.given, self.work, self.all_layers = given, work, all_layers
        self.model = given.settled(work)
        self.shape = self.model.architecture if all_layers else _counts(self.model.architecture, {})
        self.counting, self.reference = reference_modules("verify")
        self._models: dict[tuple[int, ...], Decoder] = {}
        self._ran: dict[tuple[int, ...], Passes] = {}

    @property
    def ledger(self) -> Ledger:
        return self.model.ledger

    def fvcore(self) -> Check:
        """FLOPs of every matmul by path, for every layer."""
        counted: Counts = self.counting.multiply_adds(self._built(self.shape), self._inputs(self.shape, self.work))
        flops = {path: FLOPS_PER_MULTIPLY_ADD * count for path, count in counted.items()}
        return self._by_path("fvcore, forward", self.work, flops)

    def other_steps(self) -> Iterator[Check]:
        """The same context reached by one token, and by a chunk, if these are different workloads."""
        if not self.model.has_cache:
            return  # every step reads the whole context
        chunk = replace(self.work, tokens=max(1, int(self.work.context) // 3), new_source=0)
        one, some = replace(chunk, tokens=1), chunk
        steps = {one: "torch, decode at T = 1"}
        steps.setdefault(some, f"torch, chunk of T = {some.tokens:,}")
        for work, name in steps.items():
            if work != self.work:
                check = self._at(work)
                run, given = check._built(check.shape), check._inputs(check.shape, work)
                yield check._by_path(name, work, self.counting.module_flops(run, given))

    def torch_passes(self) -> Iterator[Check]:
        """Totals of FlopCounterMode: forward, backward, both, and both with recomputed layers."""
        forward = self._extrapolated(lambda shape: self._passes(shape).forward)
        backward = self._extrapolated(lambda shape: self._passes(shape).backward)
        recomputed = self._extrapolated(lambda shape: self._passes(shape).redone)
        at = self.work.axes()
        counted = self.ledger.total_flops(at), self.ledger.total_flops(at, backward=True)
        step, total = forward + backward, sum(counted)
        plain = self.model.architecture.with_sublayers(  # as the reference
            lambda one, _: replace(one, dropout=False, needs_result=False)
        )
        redone = recomputed_flops(plain.ledger(), at)
        without = "" if redone == recomputed_flops(self.ledger, at) else ", no dropout"
        yield Check("torch, forward", "FLOPs", {"total": counted[0]}, {"total": forward})
        yield Check("torch, backward (2 ×)", "FLOPs", {"total": counted[1]}, {"total": backward})
        yield Check("torch, training step (3 ×)", "FLOPs", {"total": total}, {"total": step})
        yield Check(
            f"torch, full recomputation{without}", "FLOPs", {"total": total + redone}, {"total": step + recomputed}
        )

    def parameters(self) -> Check:
        """Every parameter's elements by path."""
        found: Counts = self.counting.parameters(self._built(self.shape))
        counted = self.ledger.parameters(unfolded=True)
        return Check("parameters", "elements", counted, self._for_all(found, stored=True))

    def expected(self) -> Iterator[Check]:
        """The published total."""
        if self.model.expected is not None:
            counted = sum(self.ledger.parameters().values())
            yield Check("parameters, expected total", "elements", {"total": counted}, {"total": self.model.expected})

    def parameter_bytes(self) -> Check:
        """Bytes of the parameters' storages."""
        measured = self._extrapolated(lambda shape: self.counting.storage_bytes(self._built(shape).parameters()))
        counted = sum(self.ledger.weight_bytes(storage(DTYPE)).values())
        return Check("parameter bytes, fp32", "bytes", {"total": counted}, {"total": measured})

    def cache_bytes(self) -> Iterator[Check]:
        """Bytes of the storages of every layer's cache, if there is one."""
        if not self.model.has_cache:
            return
        measured = self._extrapolated(lambda shape: self.counting.storage_bytes(self._passes(shape).caches))
        counted = sum(self.ledger.state_bytes(self.work.axes(), width(DTYPE)).values())
        yield Check(f"{self.model.cache_name} bytes, fp32", "bytes", {"total": counted}, {"total": measured})

    def _at(self, work: Workload) -> _Counters:
        """The counters at another step, with other models if it runs in another way."""
        same = self.given.settled(work).architecture == self.model.architecture
        return self if same else _Counters(self.given, work, self.all_layers)

    def _built(self, shape: Transformer) -> Decoder:
        """The model, built once for all counters, which do not change it."""
        counts = tuple(stack.count for stack in shape.every_stack)
        if counts not in self._models:
            self._models[counts] = self.reference.build(shape, logits=self.work.logits, recompute=True)
        return self._models[counts]

    def _by_path(self, name: str, work: Workload, flops: Counts) -> Check:
        return Check(name, "FLOPs", self.ledger.flops(work.axes(), unfolded=True), self._for_all(flops))

    def _inputs(self, shape: Transformer, work: Workload) -> object:
        return self.reference.inputs(shape, **work.sizes)

    def _passes(self, shape: Transformer) -> Passes:
        """One forward pass and one backward pass that recomputes the layers; each shape is run once."""
        counts = tuple(stack.count for stack in shape.every_stack)
        if counts not in self._ran:
            self._ran[counts] = self.counting.passes(self._built(shape), self._inputs(shape, self.work))
        return self._ran[counts]

    def _for_all(self, counted: Mapping[str, int], *, stored: bool = False) -> Counts:
        """Counts of the layers that ran as counts of every layer; `stored`: of tensors, which all layers of a stack can
        share."""
        if self.all_layers:
            return dict(counted)
        shape = self.model.architecture
        numbers = {"": shape.numbers()}
        if shape.encoder is not None:
            numbers[paths.ENCODER] = numbered(shape.encoder.stacks)
        found: Counts = {}
        for path, count in counted.items():
            at = paths.parse(path)
            if at.stack == paths.BLOCKS:
                equal = numbers[at.side][int(at.number)]
                if stored and not at.side and shape.stacks[int(at.number)].stored_once(path):
                    equal = equal[:1]
                found |= {str(at._replace(number=str(number))): count for number in equal}
            else:
                found[path] = count
        return found

    def _extrapolated(self, measure: Callable[[Transformer], int]) -> int:
        """A total for all layers: that of one layer of each kind, plus what each further layer adds.

        Measured too, by giving one kind a second block: the blocks of a kind are the same code with the same sizes.
        """
        if self.all_layers:
            return measure(self.model.architecture)
        base = measure(self.shape)
        total = base
        for index, stack in enumerate(self.model.architecture.every_stack):
            if stack.count > 1:
                two = measure(_counts(self.model.architecture, {index: 2}))
                total += (stack.count - 1) * (two - base)
        return total


def _counts(shape: Transformer, counts: Mapping[int, int]) -> Transformer:
    """The model with one layer per stack, except stacks with given counts."""
    return shape.mapped(lambda part: part, [counts.get(index, 1) for index in range(len(shape.every_stack))])


def _check_class(model: LoadedModel, work: Workload) -> None:
    """Raises UsageError for a step that the transformers class cannot run."""
    config, part, instead_of_step = model.config, work.tokens < work.context, "check a whole sequence"
    fixed, only = config.hf_fixed_source, "positions, no fewer and no more"
    source, other_source = getattr(config, "source", 0) or 0, model.source is not None and work.source != model.source
    rows: tuple[tuple[object, str, str | None], ...] = (
        (config.hf_unsupported(), f"cannot run: {config.hf_unsupported()}", None),
        (
            config.hf_no_chunked_prefill and part and work.tokens > 1,
            f"cannot run a chunk: {config.hf_no_chunked_prefill}",
            f"{instead_of_step}, or {option('decode', True)}",
        ),
        (config.hf_no_cache and part, "cannot run a step: it has no cache", instead_of_step),
        (fixed and other_source, f"reads {source:,} {only}", f"leave {option('source')} out"),
        (
            fixed and not model.has_cache and work.context != model.context,
            f"reads {model.context:,} {only}",
            f"leave {option('ctx')} out",
        ),
    )
    for applies, reason, instead in rows:
        if applies:
            raise UsageError(f"{model.name}: the transformers class {reason}", instead)


@contextmanager
def config_errors(model: LoadedModel) -> Iterator[None]:
    """Report errors of a transformers class about its config as a UsageError; errors of this program pass unchanged."""
    try:
        yield
    except TfacctError:
        raise
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(
            f"{model.name}: the transformers class does not accept this config: {cut(repr(error), 200)}"
        ) from None


def class_checks(model: LoadedModel, work: Workload) -> Iterator[Check]:
    """Checks against the transformers class, module by module; none if the family has no class."""
    table, tensors = model.config.hf_module_paths(), model.config.hf_tensor_names()
    if not table:
        return
    _check_class(model, work)
    hf = reference_module("hf", f"{option('against', 'transformers')} needs transformers", others="transformers")
    with config_errors(model):
        built = hf.build(model.of_class, model.config.task_head.auto)
    try:
        flops, cached = hf.run(built, **work.sizes, gives=model.config.task_head.gives)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{model.name}: the transformers class cannot run this config: {reason}") from None
    ledger, at = model.ledger, replace(work, logits="all").axes()
    counted, extra = class_flops(model, work)
    named = renamed(counted, table)
    params = renamed(ledger.parameters(unfolded=True), table, tensors)
    states = cache_by_block(model.config.hf_cache().ledger().states(at, unfolded=True))
    yield Check("transformers, forward", "FLOPs", named, flops, extra)
    other = model.config.hf_model_type
    other_class = f"transformers has no class for {model.family}; using the {other} class." if other else ""
    yield Check("transformers, parameters", "elements", params, hf.parameters(built), other_class)
    if not model.has_cache or model.config.hf_no_cache:
        return
    same = states == cache_by_block(ledger.states(at, unfolded=True))
    note = "" if same else f"transformers' cache is compared as its class stores it: {model.config.hf_cache_differs}."
    yield Check("transformers, cached elements", "elements", states, cached, note)


def class_flops(model: LoadedModel, work: Workload) -> tuple[Counts, str]:
    """FLOPs by path as the class runs, with logits for every position, and a note on the difference from the ledger.

    What the class runs over more positions is the ledger's count at that number of positions. It runs latent attention
    expanded in every step.
    """
    other = model.config.hf_products()
    ledger = model.running("expanded").ledger if other is None else other.ledger()
    at = replace(work, logits="all").axes()
    counted: Counts = ledger.flops(at, unfolded=True)
    more = {path: count for path, count in model.config.hf_extra_positions(work).items() if count}
    for path, count in more.items():
        widened = ledger.flops({**at, "T": at["T"] + count}, unfolded=True)
        counted |= {one: flops for one, flops in widened.items() if paths.starred(one) == path}
    added = {path: count for path, count in model.config.hf_extra_flops(work).items() if count}
    counted = {path: flops + added.get(paths.starred(path), 0) for path, flops in counted.items()}
    counted |= {path: flops for path, flops in added.items() if "*" not in path and path not in counted}
    note = f"transformers' FLOPs are compared as its class runs: {model.config.hf_extra_note}."
    return counted, note if more or added or other else ""
