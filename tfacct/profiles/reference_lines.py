"""Lines of what every part of the reference model is made of: norms, activations, networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tfacct.architecture.parts import Norm
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import IN, Kept, Run, Section, joined

RESULT = frozenset(("relu", "tanh"))
"""Activations that keep their result alone."""
INPUT = frozenset(("gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "silu", "swish"))
"""Activations that keep their input: torch's own, each one operation."""
SQUARED = frozenset(("relu2",))
"""Activations that are the square of another, whose result they keep."""
BOUNDED = "swigluoai"
"""The activation that bounds both halves of a gated network."""
GATING = frozenset(("quick_gelu", BOUNDED))
"""Activations that are their input times a sigmoid of it: both are kept."""

BENT = "xielu"
"""The activation that learned numbers bend."""


@record
class Lines:
    """Makes them. `full`: the pass is in fp32. One sequence, or one token of one, is laid out in another way
    than `batch` and `tokens` of more are."""

    full: bool
    batch: Size
    tokens: Size

    @property
    def name(self) -> str:
        """Name of the profile."""
        return "the reference model"

    def refuse(self, what: str) -> ConfigError:
        """The error for what has no rule."""
        return ConfigError(f"{self.name}: no rule for {what}")

    def norm(self, at: str, reads: str, part: Norm, *, last: str = "D") -> Iterator[Kept]:
        if part.kind == "affine":
            yield self.scaled(at, reads, f"B T {last}")
            return
        if part.gate_rank is not None:
            yield from self.norm(at, reads, replace(part, gate_rank=None), last=last)
            yield from self._gate(at, f"{at}.result")
            return
        if part.kind == "layer":
            yield from self.layer(at, reads, f"B T {last}", "B T")
            if part.less_one:
                yield Kept(f"{at}.plus_one", last, by=(at,))
            return
        if part.scales_first:
            yield from self.scaled_first(at, reads, f"B T {last}", "B T", last)
            return
        scaled = part.learned != "none"
        yield from self.rms(at, reads, f"B T {last}", "B T", last, less_one=part.less_one and scaled, scaled=scaled)

    @staticmethod
    def scaled(at: str, reads: str, spec: str) -> Kept:
        """A scale and a shift: what is scaled."""
        return Kept(reads, spec, by=(f"{at}.weight",))

    def _gate(self, at: str, made: str) -> Iterator[Kept]:
        """A network of a norm's result, which gates it."""
        yield Kept(made, "B T D", by=(f"{at}.gate_down.weight", f"{at}.gate"))
        yield from self.activated(f"{at}.act", f"{at}.gate_down", "silu", "B T Rn", (f"{at}.gate_up.weight",))
        yield Kept(f"{at}.gate.share", "B T D", by=(f"{at}.gate",))

    def scaled_first(self, at: str, reads: str, spec: str, each: str, last: str) -> Iterator[Kept]:
        """An RMSNorm of what is scaled."""
        yield Kept(reads, spec, by=(f"{at}.weight",))
        yield Kept(f"{at}.plus_one", last, by=(f"{at}.weight",))
        yield from self.rms(at, f"{at}.scaled", spec, each, last, less_one=False, scaled=False)

    def layer(self, at: str, reads: str, spec: str, each: str) -> Iterator[Kept]:
        """A LayerNorm: what it reads, and two numbers for each vector, in fp32 as on a card."""
        yield Kept(reads, spec, by=(at,))
        yield Kept(f"{at}.mean", each, by=(at,), role="full")
        yield Kept(f"{at}.deviation", each, by=(at,), role="full")

    def rms(
        self, at: str, reads: str, spec: str, each: str, last: str, *, less_one: bool, scaled: bool = True
    ) -> Iterator[Kept]:
        """torch's RMSNorm, which is several operations in fp32: in an fp32 pass the copy is what it reads itself.
        `scaled`: it has a weight."""
        square, root = f"{at}.square", f"{at}.root"
        copy = Kept(reads, spec, by=(square,)) if self.full else Kept(f"{at}.upcast", spec, by=(square,), role="full")
        yield copy
        yield Kept(root, each, by=(root,), role="full")
        if scaled:
            yield Kept(f"{at}.normed", spec, by=(f"{at}.weight",), role="full")
        if less_one:
            yield Kept(f"{at}.plus_one", last, by=(f"{at}.weight",))

    def activated(self, at: str, reads: str, name: str, spec: str, by: tuple[str, ...] = ()) -> Iterator[Kept]:
        """An activation, and its result where `by` need it."""
        if name == BENT:
            yield from _bent(at, reads, spec, by)
            return
        if name not in RESULT | INPUT | SQUARED | GATING:
            raise ConfigError(f"{self.name}: no rule for the activation {name!r}")
        if name in INPUT | GATING:
            yield Kept(reads, spec, by=(at,))
        if name in SQUARED:
            yield Kept(f"{at}.root", spec, by=(at,))
        if name in GATING:
            yield Kept(f"{at}.sigmoid", spec, by=(at,))
        if needed := (*((at,) if name in RESULT else ()), *by):
            yield Kept(at, spec, by=needed)

    def scores(self, at: str, queries: Kept, keys: Kept, pairs: str, *, far: bool) -> Iterator[Kept]:
        """Scores of queries and keys; `far`: their largest distances, which need the differences alone."""
        if not far:
            yield from (queries, keys)
            return
        yield Kept(f"{at}.scores.differences", f"{pairs} H", by=(f"{at}.scores",))
        yield Kept(f"{at}.scores.distances", f"{pairs} H", by=(at,))
        yield Kept(f"{at}.scores.largest", pairs, by=(at,))

    def network(
        self,
        at: str,
        reads: str,
        width: str,
        activation: str,
        *,
        gated: bool,
        normed: bool = False,
        cut: bool = False,
        bound: bool = False,
    ) -> Iterator[Kept]:
        """A network; gated, its activated half multiplies the other. `normed`: with a norm in front of its end; `cut`:
        what of the gate lies below a bound, made of the spread of all, is 0; `bound`: both halves are bounded."""
        gate, up, down, act = (f"{at}.{which}" for which in ("gate_proj", "up_proj", "down_proj", "act"))
        norm, spec = f"{at}.inner_norm", f"B T {width}"
        last = () if normed else (f"{down}.weight",)
        if gated:
            yield Kept(reads, "B T D", by=(f"{gate}.weight", f"{up}.weight"))
            if cut:
                above = f"{at}.sparsity"
                yield Kept(gate, spec, by=(above,))
                yield Kept(f"{above}.spread", "B T", by=(above,))
                yield Kept(above, spec, by=(above,))
                gate = above
            yield from self.gated(act, gate, up, activation, spec, last, bound=bound)
        else:
            yield Kept(reads, "B T D", by=(f"{up}.weight",))
            yield from self.activated(act, up, activation, spec, last)
        if normed:
            made = f"{act}.product" if gated else act
            yield from self.rms(norm, made, spec, "B T", width, less_one=False)
            yield Kept(norm, spec, by=(f"{down}.weight",))

    def gated(
        self, act: str, gate: str, up: str, activation: str, spec: str, last: tuple[str, ...], *, bound: bool = False
    ) -> Iterator[Kept]:
        """An activated gate times the other half, which `last` need. `bound`: both are bounded first."""
        if bound or activation == BOUNDED:
            for half in (gate, up):
                yield Kept(half, spec, by=(act,))
            gate, up = f"{act}.bounded_gate", f"{act}.bounded_up"
        yield from self.activated(act, gate, activation, spec, (act,))
        yield Kept(up, spec, by=(act,))
        if last:
            yield Kept(f"{act}.product", spec, by=last)


def _bent(at: str, reads: str, spec: str, by: tuple[str, ...]) -> Iterator[Kept]:
    """A square above 0, an exponential below: which it is, all that is made for both, and the learned numbers' own."""
    yield Kept(reads, spec, by=(at,))
    for name in ("exponential", "square", "lower"):
        yield Kept(f"{at}.{name}", spec, by=(at,))
    yield Kept(f"{at}.positive", spec, by=(at,), role="flag")
    yield Kept(f"{at}.bends", "", by=(at,), times=2)
    if by:
        yield Kept(at, spec, by=by)


def adapted(at: str, reads: str, row: str, products: Mapping[str, tuple[str, ...]]) -> Iterator[Kept]:
    """Products down to a few numbers of what others read too, and those that read these."""
    for down, ups in products.items():
        yield Kept(reads, f"B T {row}", by=(f"{at}.{down}.weight",))
        yield Kept(f"{at}.{down}", "B T Ra", by=tuple(f"{at}.{up}.weight" for up in ups))


def is_(size: Size, number: int) -> bool:
    """True for a size that is this number; a symbol stands for larger ones."""
    return isinstance(size, int) and size == number


def read_whole(lines: Iterable[Kept], reads: str, spec: str) -> Iterator[Kept]:
    """Lines, of which the one of what they read is a view that keeps the whole, of these axes."""
    for line in lines:
        yield line if line.path != reads else Kept(reads, spec, by=line.by, role=line.role)


def split(section: Section, read: Mapping[int, tuple[str, ...]]) -> Iterator[Section]:
    """Blocks, those apart by number whose input is read elsewhere too. Of as many as a symbol says, which they are does
    not change a byte."""
    numbers = section.numbers
    if read.keys().isdisjoint(numbers):
        yield section
        return
    if rest := [number for number in numbers if number not in read]:
        yield section._replace(count=len(rest), numbers=rest)
    for number in numbers:
        if number in read:
            given = Run(kept=(Kept(IN, "B T D", by=read[number]),))
            yield section._replace(run=joined(section.run, given), count=1, numbers=[number])


def convolution(at: str, channels: str) -> Iterator[Kept]:
    """A convolution over the last tokens: which of them each sees, and these, channel by channel."""
    yield Kept(f"{at}.places", "T Kc", by=(at,), role="index")
    yield Kept(f"{at}.windows", f"B T {channels} Kc", by=(f"{at}.weight",))
