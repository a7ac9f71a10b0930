"""Every one-axis slip in every spec is refused by the grammar or contradicts a number from outside. Kind: law.

The numbers are the reference model's: the shapes its modules saw, the parameters and caches that torch counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.families import TINY, VARIANTS
from tests.helpers.lazy import lazy
from tests.helpers.models import asked, ran, tiny
from tfacct.architecture.parts import Attention, Averaged, DeltaNet, Experts, Part, Patches
from tfacct.families.rare.rwkv import TimeMix
from tfacct.ledger.einsum import Axes, SpecError
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import CHUNK, Line, Matmul, Pointwise, State, Unused
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel

counting, model = lazy("tfacct.reference.counting"), lazy("tfacct.reference.model")

WORKLOADS = (
    Workload(context=23, tokens=13, batch=9),
    Workload(context=23, tokens=13, batch=9, logits="last"),
    Workload(context=4, tokens=3, batch=9),  # shorter than the windows, which are not full
    Workload(context=11, tokens=11, batch=9),  # with a source, where there is an encoder
)
IN_CHUNKS = (Workload(context=190, tokens=150, batch=9), Workload(context=23, tokens=1, batch=9))
"""Several chunks of a recurrence, and its one token."""
IN_WINDOWS = (Workload(context=80, tokens=80, batch=9), Workload(context=112, tokens=112, batch=9, logits="last"))
"""Several windows of patches, so that no step is one window."""
# The variants with lines of their own. With one key head, or as many as query heads, axes have equal sizes.
BRING = ("windowed", "absorbed", "post-norm", "custom", "moe", "with a convolution")
NAMES = [*TINY, *(name for name in VARIANTS if any(word in name for word in BRING))]
ALIKE = {
    **dict.fromkeys(("Dt", "Dp", "Dn", "Do"), "D"), **dict.fromkeys(("Xt", "Xu"), "Xs"), "Xn": "Xm", "Wk": "Wp",
    "Ho": "H", "Rm": "Rr", "Dh": "Dq", "Qc": "Pc", "Ob": "Hb", "Ol": "Hl", "Vt": "Xd",
}  # fmt: skip
"""Axes that have the size of another by definition."""


def slips(line: Line, axis_names: list[str]) -> Iterator[tuple[str, str]]:
    """(field, spec) for every axis of the line's specs replaced by every other axis."""
    if isinstance(line, Unused):
        return  # the specs of the line as it would run, where it does
    fields = ("spec", "weight", "bias") if isinstance(line, Pointwise) else ("spec",)
    for field in fields:
        words = getattr(line, field).replace(",", " ,").split()
        for at, word in enumerate(words):
            for axis in axis_names:
                if word in axis_names and axis != word:
                    yield field, " ".join([*words[:at], axis, *words[at + 1 :]]).replace(" ,", ",")


def by_definition(model: LoadedModel) -> Callable[[str], str]:
    """Replace axes of a spec by those of equal size, as in `ALIKE`. G is N if all queries share one key head, and an
    encoder has T = S."""
    one_key_head = {getattr(part, "kv_heads", None) for part in model.architecture.attentions} == {1}
    keeps = model.has_cache

    def same(spec: str) -> str:
        for axis, other in ALIKE.items():
            spec = spec.replace(axis, other)
        if one_key_head:
            spec = " ".join("N" if word == "G" else word for word in spec.split())
        return spec if keeps else spec.replace("S", "T")

    return same


def first_block(group: Group) -> Group:
    """The group for its first block: all its blocks are alike."""
    return replace(group, numbers=group.numbers[:1], count=1)


def apart(part: Part) -> Part:
    """DeltaNet whose heads have one size by definition is given several, and RWKV, whose class runs with one width
    only, another: else a slip among them changes no number."""
    if isinstance(part, TimeMix):
        return replace(part, inner=53)
    if isinstance(part, Patches) and part.channels == 1:  # of a spectrogram, as many as class tokens
        return replace(part, channels=3)
    if isinstance(part, Averaged) and part.out is not None:  # two positions in a mean, and two rows for begin and end
        return replace(part, patches=4)
    if isinstance(part, Experts) and part.idle == 1:  # ZAYA's one further choice, as many as experts of a token
        return replace(part, idle=17)
    if not isinstance(part, DeltaNet) or not part.by_channel:
        return part
    return replace(part, group=2, value_dim=11, rank=None if part.rank is None else 19)


class Outside:
    """Counts of the reference model for a tiny model."""

    def __init__(self, family: str) -> None:
        # A family without grouped queries is given some: with N = K a slip between the two would change no number.
        built = tiny(family).architecture
        alone = any(isinstance(own, Attention) and own.group == 1 for own in built.attentions)
        both = any(
            "Xd" in part.axes() for part in built.parts()
        )  # two directions of a distance: then keys are of three
        shape = built.with_kv_heads(3 if both else 2) if alone else built
        shape = shape.mapped(apart)
        self.ledger = shape.ledger()
        chunked = any(CHUNK in group.axes for group in self.ledger.groups)
        steps = IN_WINDOWS if self.ledger.together > 13 else WORKLOADS
        self.works = [asked(tiny(family), work) for work in (*steps, *(IN_CHUNKS if chunked else ()))]
        references = [model.build(shape, logits=work.logits) for work in self.works]
        self.parameters = counting.parameters(references[0])
        self.seen = [
            counting.seen(reference, model.inputs(shape, **work.sizes))
            for work, reference in zip(self.works, references, strict=True)
        ]

    def agrees(self, group: Group, parameters: Iterable[str] | None = None) -> bool:
        """True if each line of a group's first layer has these counts, with these parameters or its own."""
        block = first_block(group)
        stored = Ledger((block,)).parameters(unfolded=True)
        if stored != {path: self.parameters[path] for path in (stored if parameters is None else parameters)}:
            return False
        return all(
            self._same(block, line, step, cached, seen)
            for work, seen in zip(self.works, self.seen, strict=True)
            for step, cached in [(block.bound(work.axes()), block.bound(work.axes(), cached=True))]
            for line in block.lines
        )

    def _same(self, block: Group, line: Line, step: Axes, cached: Axes, seen: counting.Seen) -> bool:
        (path, _), *_ = block.places(line.path, unfolded=True)
        if isinstance(line, Matmul):
            there = seen.products.get(path)  # an encoder does not run after its source was read
            return line.flops(step) == 0 if there is None else ran(line, step) == there
        if isinstance(line, State):
            return line.elements(cached) == seen.states[path]
        if isinstance(line, Pointwise):
            return line.elements(step) == seen.pointwise.get(path, 0)
        return True  # a table has parameters only


SPECS = ("spec", "weight", "bias", "mask", "expert_axis")
"""Fields of a line with the axes of its operands."""


def bringing() -> list[Any]:
    """The shapes with a line that no earlier one has; the others are slow."""
    seen: set[tuple[object, ...]] = set()
    params = []
    for name in NAMES:
        every = [line for group in tiny(name).ledger.groups for line in group.lines]
        lines = {(type(line), *(getattr(line, field, "") for field in SPECS)) for line in every}
        params.append(pytest.param(name, marks=(pytest.mark.slow,) if lines <= seen else ()))
        seen |= lines
    return params


@pytest.mark.parametrize("family", bringing())
def test_every_one_axis_slip_is_rejected_or_caught(family: str) -> None:
    outside, same = Outside(family), by_definition(tiny(family))
    rejected = caught = 0
    survivors = []
    for group in outside.ledger.groups:
        assert outside.agrees(group), "the specs as they are must agree"
        axis_names = list(group.bound(outside.works[0].axes()))
        for line in group.lines:
            alone = replace(group, lines=(line,))  # the others stay as they are, and agree
            named = Ledger((first_block(alone),)).parameters(unfolded=True)
            for field, slipped in slips(line, axis_names):
                if same(slipped) == same(getattr(line, field)):
                    continue
                try:
                    wrong = replace(alone, lines=(replace(line, **{field: slipped}),))
                    if outside.agrees(wrong, named):
                        survivors.append((line.path, field, slipped))
                    else:
                        caught += 1
                except SpecError:
                    rejected += 1
    assert survivors == []
    # Most slips never get past the grammar; those that do change a number that torch counted.
    assert rejected > 500 and caught > 50
