"""A training pass of two sides: an encoder of a source, and the decoder that reads it.

Each side is a pass of its own, with its own tokens for T. What the encoder gives is kept once, for all the decoder's
blocks; its gradient is one, to which each of them adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import AGAIN, Cast, Kept, Moment, Pass, Role, Run, Section
from tfacct.profiles.base import Profile, passed

OF_SOURCE = {"T": "I", "S": "J", "T32": "I32", "S8": "J8", "S16": "J16"}
"""Letters of a side that runs over the source, beside those of the target."""


class Sides(Protocol):
    """A way to run a model of two sides: the profile of each."""

    @property
    def stream(self) -> Role:
        """Role of the stream."""

    def reading(self) -> Profile:
        """That of the encoder."""

    def writing(self) -> Profile:
        """That of the decoder."""


def passed_pair(shape: Transformer, sides: Sides, kernel: Mapping[str, Size], of_source: Mapping[str, Size]) -> Pass:
    """The pass of a model of two sides. `kernel`, `of_source`: letters that kernels derive from a step's, for target
    and source."""
    source = shape.encoder
    if source is None or source.embed is None or source.stem is not None:
        raise ConfigError("no rule for an encoder without a token table")
    alone = Transformer(
        embed=replace(source.embed, shared=False),
        stacks=source.stacks,
        final_norm=source.final_norm,
        head=None,
        positions=source.positions,
        embed_norm=source.embed_norm,
        bias=source.bias,
    )
    reading = passed(alone, sides.reading(), of_source)
    read = {OF_SOURCE[letter]: of_source[letter] for letter in ("S8", "S16")}
    writing = passed(replace(shape, encoder=None), sides.writing(), {**kernel, **read})
    shown = tuple(_beside(section, sides.stream) for section in reading.sections)
    sines = shape.positions is not None and not shape.positions.trained
    frozen = frozenset(("pos_embed.weight",)) if sines else frozenset[str]()
    return writing._replace(encoder=reading._replace(frozen=frozen), source=shown, frozen=frozen)


def _beside(section: Section, stream: Role) -> Section:
    """A section of the encoder as it stands beside the decoder's: by the names and letters of its side."""
    axes = {**section.axes, **{OF_SOURCE[letter]: section.axes[letter] for letter in ("T32", "S8", "S16")}}
    run = named(section.run, OF_SOURCE, paths.in_encoder)
    read = Kept(paths.in_encoder(paths.in_every(paths.BLOCKS, "in")), "B I D", by=(AGAIN,), role=stream)
    return section._replace(run=run, axes=axes, input=read)


def named(run: Run, letters: Mapping[str, str], name: Callable[[str], str] = str) -> Run:
    """A run with other letters in the axes of what it keeps and holds; `name` gives every path another."""

    def path(old: str) -> str:
        return old if old == AGAIN else name(old)

    def spec(old: str) -> str:
        return " ".join(letters.get(letter, letter) for letter in old.split())

    def moments(given: tuple[Moment, ...]) -> tuple[Moment, ...]:
        return tuple(
            m._replace(at=path(m.at), held=tuple(h._replace(spec=spec(h.spec)) for h in m.held)) for m in given
        )

    return run._replace(
        order=tuple(map(path, run.order)),
        kept=tuple(Kept(path(k.path), spec(k.spec), tuple(map(path, k.by)), k.role, k.times) for k in run.kept),
        moments=moments(run.moments),
        ahead=moments(run.ahead),
        bare=moments(run.bare),
        early=tuple(h._replace(spec=spec(h.spec)) for h in run.early),
        casts=run.casts and tuple(Cast(path(c.at), c.held, c.kept and name(c.kept)) for c in run.casts),
    )
