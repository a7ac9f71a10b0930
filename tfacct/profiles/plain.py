"""Parts written out that run in the dtype of the pass, as their weights do: products, pieces, what is padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfacct.ledger.kept import Run
from tfacct.profiles import written_views as views
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_operations import ROWS
from tfacct.profiles.written_runs import part_of
from tfacct.profiles.written_storage import Axes, Joint, Storage


def part(
    reads: str, write: Callable[[Trace, Value], Value], ones: frozenset[str], *, full: bool, apart: bool = False
) -> Run:
    """The run of a part. `reads`: the name of what it reads. `apart`: its result's gradient is not the stream's."""
    t = Trace(ones, reads=reads, plain=True, full=full)
    x = [t.start]
    del t.start
    node = write(t, x.pop()).node
    t.backward_of_part(node, apart=apart)
    return part_of(t)


def linear(t: Trace, x: Value, name: str, makes: Axes, path: str = "") -> Value:
    """A product with a weight, and its bias, if it has one. `path`: the name of what it makes, if not its own."""
    reads = tuple(axis for axis in x.axes if axis not in ROWS)
    t.named(f"{name}.weight")
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
    return Value(t.new(axes, "work", path or name), axes, t.node((node,), flat))


def pieces(t: Trace, x: Value, axes: Axes, count: int, whole: Axes) -> list[Value]:
    """Pieces of what a product made, along its last axis. `axes`: those of a piece; `whole`: how the gradient of all of
    it lies, which is put together of theirs."""
    joint = Joint((x.storage,), x.storage.laid)
    laid = (*ROWS, views.APART, *(axis for axis in axes if axis not in ROWS))
    return views.chunks(t, joint, x.node, whole, laid, [axes] * count)


def longer(t: Trace, axes: Axes, more: Sequence[tuple[str, int]], path: str = "") -> Joint:
    """A further tensor, longer than `axes` say along T by what letters stand for, once more or less."""
    parts = [Storage(t.there, axes, "work", path)]
    for letter, sign in more:
        others = tuple(axis for axis in axes if axis != "T")
        kept = f"{path}.{'more' if sign > 0 else 'less'}" if path else ""
        parts.append(Storage(t.there, (*others, letter) if letter else others, "work", kept, sign))
    made = Joint(tuple(parts), axes)
    t.record()
    return made
