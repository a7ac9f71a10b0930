"""Which of the transformers profiles a model is run by: that of decoders, or one of encoders."""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.architecture.parts import Attention, DeltaNet, Patches
from tfacct.architecture.transformer import Transformer
from tfacct.ledger.einsum import Size, rounded_up
from tfacct.ledger.kept import Pass
from tfacct.ledger.workload import PATCHES
from tfacct.profiles.base import passed
from tfacct.profiles.transformers import Transformers

ROW = 16


def kind_of(shape: Transformer) -> type[Transformers]:
    """The profile of decoders, or that of encoders."""
    if not any(isinstance(part, Attention) and not part.causal for part in shape.attentions):
        return Transformers
    from tfacct.profiles.transformers_encoders import Bidirectional, Encoders, Predicting

    if isinstance(shape.embed, Patches):
        from tfacct.profiles.transformers_images import Images

        return Images
    if shape.embed.width is not None:
        from tfacct.profiles.transformers_narrow import NarrowEncoders, SharingEncoders

        return SharingEncoders if any(stack.once for stack in shape.stacks) else NarrowEncoders
    if any(stack.block.order == "post" for stack in shape.stacks):
        return Encoders if shape.positions is not None and shape.bias is None else _relative(shape)
    if shape.positions is not None:
        from tfacct.profiles.transformers_prenormed import Prenormed

        return Prenormed
    if shape.classes is not None:
        from tfacct.profiles.transformers_classified import Classifying

        return Classifying
    return Bidirectional if shape.head is not None and shape.head.transform is None else Predicting


def _padded(tokens: Size) -> Size:
    """Keys that the kernel lays rows of a mask's gradient out for."""
    return ROW * rounded_up(tokens, ROW)


def _relative(shape: Transformer) -> type[Transformers]:
    if shape.bias is not None:
        from tfacct.profiles.transformers_biased import BiasedEncoders

        return BiasedEncoders
    from tfacct.profiles.transformers_rotary_encoders import RotaryEncoders

    return RotaryEncoders


def pass_by(
    profile: Transformers,
    shape: Transformer,
    letters: Mapping[str, Size],
    of_source: Mapping[str, Size],
    positions: Size,
    source: Size,
) -> Pass:
    """The pass of a model as this profile runs it, or of both its sides. `letters`, `of_source`: those that kernels
    derive from a step's, for the target and for the source. `positions`: all that the class knows. `source`: tokens of
    a source."""
    habits = profile.habits
    if habits.stores_positions or habits.adds_distances or habits.own_sines:
        letters = {**letters, "P": positions}
    deltas = [part for part in shape.parts() if isinstance(part, DeltaNet)]
    if deltas and "Nc" not in letters:
        from tfacct.profiles.plain_delta_rule import lengths

        letters = {**letters, **lengths(deltas[0], profile.tokens)}
    if isinstance(shape.embed, Patches):
        letters = {**letters, PATCHES: profile.tokens - (shape.embed.front or 0)}
    if shape.encoder is None:
        return passed(shape, profile, letters)
    from tfacct.profiles.pairs import passed_pair
    from tfacct.profiles.transformers_pairs import Pairs

    given = profile.attention, profile.habits, profile.full, profile.batch, profile.tokens
    sides = Pairs(*given)
    if isinstance(profile, Pairs):
        sides = profile.reading_of(source)
    elif shape.bias is not None:
        from tfacct.profiles.transformers_distances import DistancePairs

        sides = DistancePairs(*given, source)
    elif any(isinstance(part, Attention) and part.biased for part in shape.attentions):
        from tfacct.profiles.transformers_tables import TablePairs

        sides = TablePairs(*given, source)
    letters = {**letters, "S16": _padded(profile.tokens)}
    of_source = {**of_source, "S16": _padded(source)}
    return passed_pair(shape, sides, letters, of_source)
