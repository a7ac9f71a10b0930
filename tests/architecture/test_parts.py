"""Lines of parts: the last word of a pointwise line's path names its kind, in every family. Kind: law."""

from tests.families import SHAPES
from tests.helpers.models import tiny
from tfacct.architecture.parts.projector import Projector, Scaling
from tfacct.ledger.lines import Pointwise, Unused

NORMS = {"norm_layer", "norm_rms"}
KINDS: dict[str, set[str]] = {
    "norm": NORMS,
    "softmax": {"softmax"},
    "rotary": {"rotary"},
    "act": {"activation"},
    "add": {"sum", "residual"},
    "alibi": {"sum"},
    "bias": {"sum", ""},
    "rescale": {"scale"},
    "weighting": {"weighting"},
}
"""Kinds that a last word may have: these decide what a training step saves."""
WITHOUT_NORM = {"mobilebert"}
"""Families whose norms, by default, only multiply and add (NoNorm)."""


def test_the_last_word_of_a_pointwise_path_is_its_kind() -> None:
    wrong, seen = [], set()
    for name in SHAPES:
        model = tiny(name)
        lines = (line for group in model.ledger.groups for line in group.lines)
        for line in (line.of if isinstance(line, Unused) else line for line in lines):
            if not isinstance(line, Pointwise):
                continue
            word = line.path.replace(".", "_").split("_")[-1]
            seen.add((word, line.kind))
            kinds = KINDS.get(word, {line.kind})
            if line.kind not in kinds and not (word == "norm" and name.split()[0] in WITHOUT_NORM):
                wrong.append((name, line.path, line.kind))
    assert not wrong
    assert {(word, kind) for word, kinds in KINDS.items() for kind in kinds} <= seen


def test_a_norm_of_a_projector_is_a_layer_norm_if_it_has_a_bias() -> None:
    steps = (Scaling("norm", 8), Scaling("out_norm", 8, bias=True))
    lines = Projector(steps).lines("projector")
    assert [line.kind for line in lines if isinstance(line, Pointwise)] == ["norm_rms", "norm_layer"]
