"""Axis names of a whole model: an axis gets several names if its sizes differ.

A part declares its own axes. In a model, two parts may have the same axis with different sizes, such as the heads of an
encoder and a decoder, or the MLPs of two kinds of layers. Then a suffix distinguishes them: `Nenc`, `Fwin`, `F1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tfacct.architecture.parts import OF_SOURCE, Part, mixers
from tfacct.base.record import record
from tfacct.ledger.einsum import Size, renamed, same
from tfacct.ledger.lines import WINDOWS
from tfacct.ledger.paths import ENCODER as READING
from tfacct.ledger.paths import MTP

Names: TypeAlias = Mapping[str, str]
"""Axis of a part → name in the model, if different."""

MARKS = {
    READING: "enc",
    MTP: "mtp",
    "attention": "att",
    "latent": "lat",
    "cross": "cro",
    "windowed": "win",
    "full": "full",
    "experts": "exp",
    "dense": "den",
    "sparse": "spa",
    "indexed": "ind",
    "following": "fol",
    "borrowing": "bor",
    "keeping": "own",
    "lightly": "lig",
    "heavily": "hea",
    "uncompressed": "unc",
    "rotated": "rot",
    "unrotated": "unr",
}
"""Suffix of an axis by kind of layer. Other parts use `mark_of` their name; otherwise the suffix is a number."""


def mark_of(word: str) -> str | None:
    """Suffix for a word; None if it has none."""
    return MARKS.get(word) or (word[:3] if word in mixers() else None)


@record
class Place:
    """Parts with common axes: the parts outside the layers of a model or encoder, the layers of a stack, or MTP heads.
    `kind` distinguishes the places of one side; `reads`: in the encoder."""

    reads: bool
    kind: str
    parts: Sequence[Part]

    @property
    def mark(self) -> str:
        """Suffix of an axis whose size is only in this place."""
        return "".join(mark_of(word) or word for word in self.kind.split())

    @property
    def words(self) -> str:
        """Name in a sentence: `windowed layers`, `layers of kind 2`, `the MTP heads`."""
        if self.kind in ("", MTP):
            return "the MTP heads" if self.kind else ""
        *words, last = self.kind.split()
        return " ".join([*words, f"layers of kind {last}" if last.isdigit() else f"{last} layers"])


@record
class Axis:
    """An axis as declared by the parts of a model: `part_axis` is its name in the part; all others are names of the
    model.

    `made` is the formula of a derived axis, None for a size. A size is a multiple of `multiple` and at most `at_most`;
    `cut`: the rest of `at_most` is also used as a size. `case`: 1 is a special case. `dealt`: tokens are distributed
    evenly over this axis.
    """

    part_axis: str
    meaning: str
    made: str | None = None
    multiple: int = 1
    at_most: str | None = None
    cut: bool = False
    case: bool = False
    dealt: bool = False


def names(everywhere: Sequence[Place], apart: frozenset[str]) -> list[Names]:
    """Renamed axes for each place; empty if an axis has the same size everywhere.

    If all layers of a side have the same size, the decoder keeps the name, and an encoder with another size gets its
    suffix. If layers of a side differ, all get the suffixes of their kinds. Axes derived from renamed axes are renamed
    too. `apart`: axes that an encoder always names apart.
    """
    found: list[dict[str, str]] = [{} for _ in everywhere]
    sizes_by_place = [_sizes_of(place) for place in everywhere]
    derived = {axis for place in everywhere for part in place.parts for axis in part.derived()}
    _name(found, everywhere, [_without(sizes, derived) for sizes in sizes_by_place], apart)
    made = [
        {axis: renamed(text, names) for part in place.parts for axis, text in part.derived().items()}
        for place, names in zip(everywhere, found, strict=True)
    ]
    # An axis that is a size in one place and derived in another is two axes, even with equal values.
    both = [
        {axis: sizes[axis] for axis in derived & sizes.keys()} | more
        for sizes, more in zip(sizes_by_place, made, strict=True)
    ]
    _name(found, everywhere, both, frozenset())
    source = next(index for index, place in enumerate(everywhere) if place.reads)
    for names, sizes in zip(found, sizes_by_place, strict=True):
        if OF_SOURCE in sizes:  # same size and name as in the encoder
            names[OF_SOURCE] = found[source].get("D", "D")
    return list(found)


def sizes(named_places: Iterable[tuple[Place, Names]]) -> dict[str, Size]:
    """Sizes of all axes by the model's names."""
    return {
        called.get(axis, axis): size
        for place, called in named_places
        for part in place.parts
        for axis, size in part.axes().items()
    }


def declared(named_places: Sequence[tuple[Place, Names]]) -> dict[str, Axis]:
    """All axes of the parts in order, with their declarations."""
    found: dict[str, Axis] = {}
    places_of: dict[str, list[Place]] = {}
    for place, called in named_places:
        for part in place.parts:
            for name, axis in _declared(part, called):
                known = found.get(name, axis)
                found[name] = replace(
                    known,
                    multiple=max(known.multiple, axis.multiple),
                    at_most=known.at_most or axis.at_most,
                    cut=known.cut or axis.cut,
                    case=known.case or axis.case,
                    dealt=known.dealt or axis.dealt,
                )
                places_of.setdefault(name, []).append(place)
    uses = Counter(axis.part_axis for axis in found.values())
    there = [place for place, _ in named_places if place.parts and place.words]
    sides = [{place.words for place in there if place.reads == side} for side in (False, True)]
    return {
        name: replace(axis, meaning=_with_place(axis.meaning, places_of[name], sides))
        if uses[axis.part_axis] > 1
        else axis
        for name, axis in found.items()
    }


def _declared(part: Part, called: Names) -> Iterator[tuple[str, Axis]]:
    sizes, derived, multiples = {*part.sizes().values()}, part.derived(), part.multiples()
    for axis, meaning in part.legend.items():
        if axis in sizes or axis in derived:
            outer = part.at_most.get(axis)
            yield (
                called.get(axis, axis),
                Axis(
                    axis,
                    renamed(meaning, called),
                    renamed(derived[axis], called) if axis in derived else None,
                    multiples.get(axis, 1),
                    called.get(outer, outer) if outer is not None else None,
                    axis in part.cut,
                    axis in part.cases,
                    axis == part.dealt,
                ),
            )


def _with_place(meaning: str, places: Sequence[Place], sides: Sequence[set[str]]) -> str:
    """Meaning of an axis with its place: `query heads in the encoder, Kenc · G`."""
    words = list(dict.fromkeys(place.words for place in places if place.words))
    ends, reads = any(place.kind == "" for place in places), places[0].reads
    if sides[True] and (ends or {*words} == sides[reads]):  # all layers of one of two sides
        words = []
    side = "the encoder" if places[0].reads else "the decoder"
    base, comma, formula = meaning.partition(", ")
    return f"{base} in {side if not words else ' and '.join(words)}{comma}{formula}"


def _sizes_of(place: Place) -> dict[str, Size]:
    sizes: dict[str, Size] = {}
    for part in place.parts:
        sizes |= {axis: getattr(part, field) for field, axis in part.sizes().items() if axis not in WINDOWS}
    return sizes


def _name(
    found: Sequence[dict[str, str]],
    everywhere: Sequence[Place],
    sizes: Sequence[Mapping[str, Size]],
    apart: frozenset[str],
) -> None:
    """Add the names of the axes in `sizes` to `found`, for every place."""
    places_of: dict[str, list[int]] = {}
    for index, place_sizes in enumerate(sizes):
        for axis in place_sizes:
            places_of.setdefault(axis, []).append(index)
    for axis, indices in places_of.items():
        first = sizes[indices[0]][axis]
        if axis not in apart and all(same(sizes[index][axis], first) for index in indices):
            continue  # one size everywhere, the usual case
        writing, reading = ([index for index in indices if everywhere[index].reads == side] for side in (False, True))
        for side in (writing, reading):
            distinct = _distinct([sizes[index][axis] for index in side])
            marked = MARKS[READING] if side is reading and writing else ""
            groups = [[index for index in side if same(sizes[index][axis], size)] for size in distinct]
            marks = _marks([[everywhere[index] for index in group] for group in groups])
            for alike, mark in zip(groups, marks, strict=True):
                if marked or mark:
                    for index in alike:
                        found[index][axis] = f"{axis}{marked}{mark}"


def _marks(groups: Sequence[Sequence[Place]]) -> list[str]:
    """Suffix for each group of places: from a word that all its places and no other places have, else from the kind of
    its first place."""
    if len(groups) < 2:
        return [""] * len(groups)
    words = [[place.kind.split() for place in group] for group in groups]
    found = []
    for index, group in enumerate(words):
        others = {word for other in words[:index] + words[index + 1 :] for kind in other for word in kind}
        distinctive = [
            word for word in group[0] if mark_of(word) and word not in others and all(word in kind for kind in group)
        ]
        found.append(distinctive[:1])
    if all(found):
        return [mark_of(word) or word for (word,) in found]
    return [group[0].mark for group in groups]


def _without(sizes: Mapping[str, Size], axis_names: set[str]) -> dict[str, Size]:
    return {axis: size for axis, size in sizes.items() if axis not in axis_names}


def _distinct(sizes: Sequence[Size]) -> list[Size]:
    found: list[Size] = []
    for size in sizes:
        if not any(same(size, other) for other in found):
            found.append(size)
    return found
