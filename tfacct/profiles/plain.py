"""Parts written out that run in the dtype of the pass, as their weights do: products, pieces, what is padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfacct.ledger.kept import Run
from tfacct.profiles import written_views as views
from tfacct.profiles.written import LEAF, Node, Trace, Value
from tfacct.profiles.written_operations import ROWS
from tfacct.profiles.written_runs import cached, part_of
from tfacct.profiles.written_storage import Axes, Joint, Storage


def part(
    reads: str,
    write: Callable[[Trace, Value], Value],
    ones: frozenset[str],
    key: tuple[Any, ...],
    *,
    full: bool,
    apart: bool = False,
) -> Run:
    """The run of a part. `reads`: the name of what it reads. `apart`: its result's gradient is not the stream's. `key`:
    all else that what it writes depends on."""

    def make() -> Run:
        t = Trace(ones, reads=reads, plain=True, full=full)
        x = [t.start]
        del t.start
        node = write(t, x.pop()).node
        t.backward_of_part(node, apart=apart)
        return part_of(t)

    return cached((part, reads, ones, key, full, apart), make)


def linear(t: Trace, x: Value, name: str | Sequence[str], makes: Axes, path: str = "") -> Value:
    """A product with a weight, or several in one, and its bias, if it has one. `path`: the name of what it
    makes, if not its own."""
    reads = tuple(axis for axis in x.axes if axis not in ROWS)
    names = (name,) if isinstance(name, str) else name
    _weights(t, names)
    rows = t.merged(x.storage, ROWS, reads)

    def flat(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.merged(g, ROWS, makes)]

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = b.new((*ROWS, *reads))
        b.gradient()
        return [made]

    node = t.node((x.node,), back)
    t.save(node, rows)
    t.after = True
    axes = (*ROWS, *makes)
    made = t.new(axes, "work", path or names[0])
    t.named(f"{names[0]}.rows")  # what views of it do finishes no weight
    return Value(made, axes, t.node((node,), flat))


def _weights(t: Trace, names: Sequence[str]) -> None:
    """Begin a product with several weights in one, which is done with the first."""
    for name in names:
        t.named(f"{name}.weight")
        t.node((LEAF,), views.finish)
    t.at = f"{names[0]}.weight"


def products(
    t: Trace, x: Value, names: Sequence[str], parts: Sequence[tuple[str, Axes]], laid: Axes
) -> tuple[Joint, Node | None]:
    """Products with several weights in one: `parts` of what they make, by their names and axes, and how it lies."""
    reads = tuple(axis for axis in x.axes if axis not in ROWS)
    _weights(t, names)

    def flat(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.merged(g, ROWS, laid)]

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = b.new((*ROWS, *reads))
        b.gradient()
        return [made]

    node = t.node((x.node,), back)
    t.save(node, x.storage)
    t.after = True
    made = t.joint([((*ROWS, *axes), name) for name, axes in parts], (*ROWS, *laid))
    t.named(f"{names[0]}.rows")
    return made, t.node((node,), flat)


def pieces(t: Trace, x: Value, axes: Axes, count: int, whole: Axes) -> list[Value]:
    """Pieces of what a product made, along its last axis. `axes`: those of a piece; `whole`: how the gradient of all of
    it lies, which is put together of theirs."""
    joint = Joint((x.storage,), x.storage.laid)
    laid = (*ROWS, views.APART, *(axis for axis in axes if axis not in ROWS))
    return views.chunks(t, joint, x.node, whole, laid, [axes] * count)


def split(t: Trace, whole: Value, each: Sequence[tuple[Axes, Axes]]) -> list[Value]:
    """Pieces of a tensor, by their axes and how they lie in it: their gradients are put into one, laid as it says. What
    is of heads of rows is merged first, for which it may be copied."""
    there: list[Storage] = []
    zeros, axes = views.zeros(t, Joint(whole.storage.parts, whole.axes)), whole.axes

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = zeros(b)
        there.clear()
        return [made]

    node = t.node((whole.node,), back)

    def piece(own: Axes, laid: Axes, first: bool) -> Value:
        def given(b: Trace, g: Storage) -> list[Storage | None]:
            there.append(g if len(axes) > len(ROWS) + 1 else b.merged(g, ("B",), ("T",), own[2:]))
            return [b.elsewhere_new((), "work") if first else None]

        return Value(Joint(whole.storage.parts, laid), own, t.node((node,), given))

    return [piece(own, laid, not nth) for nth, (own, laid) in enumerate(each)]


def longer(t: Trace, axes: Axes, tokens: str, path: str = "") -> Joint:
    """A further tensor, of as many `tokens` where `axes` have T."""
    whole = Storage(t.there, tuple(tokens if axis == "T" else axis for axis in axes), "work", path)
    t.record()
    return Joint((whole,), axes)
