"""The formulas, against fvcore, torch, transformers and published totals."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, Variant, tick
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.verify import ProveReport, VerifyReport

Against = Annotated[str | None, Option("Also compare with the transformers class.", "transformers")]
AllLayers = Annotated[bool, Option("Run all layers, not one of each kind.")]
By = Annotated[
    Literal["symbols", "grid"] | None,
    Option("With --prove: symbolic sizes (default) or a grid."),
]
TRAIN = Option("Check training memory against transformers.")
FEW = ("llama-3.2-1b", "qwen3-0.6b", "gpt2", "mixtral-8x7b", "aya-expanse-8b")
"""Presets for --shard where none is named: grouped heads, norms of heads, fused matrix products, experts, sublayers in
parallel."""


def verify(
    models: "Sequence[LoadedModel]",
    *,
    against: Against = None,
    all_layers: AllLayers = False,
    **step: Unpack[opt.Step],
) -> "Found[VerifyReport]":
    """Check the formulas against fvcore, torch and published totals.

    Path by path; `.agrees` is the verdict. `all_layers` runs every layer instead of one of each kind;
    `against="transformers"` also compares with the class. Needs torch and fvcore; allocates no weights. Raises
    TfacctError.
    """
    from tfacct.reports.verify import verify

    return Found(verify(models, opt.request(step), all_layers=all_layers, against=against, progress=tick))


class VerifiedStep(opt.Step, opt.MetricRecipe, total=False):
    """A step, and the recipe of a training step."""


class VerifyOptions(opt.Step, opt.Layout, opt.MetricRecipe, total=False):
    """Options of every comparison, for Python's method."""

    against: Against
    all_layers: AllLayers
    dtype: opt.StepDtype


def verify_train(
    models: "Sequence[LoadedModel]",
    *,
    against: Against = None,
    dtype: opt.StepDtype = None,
    **step: Unpack[VerifiedStep],
) -> "Found[VerifyReport]":
    """Check the bytes of a training step against the transformers class and torch; `.agrees` is the verdict."""
    from tfacct.reports.verify import verify_train

    terms = opt.counting({**step, "dtype": dtype})
    return Found(verify_train(models, opt.request(step), terms, against=against, progress=tick))


def verify_ranks(
    models: "Sequence[LoadedModel]",
    *,
    all_layers: AllLayers = False,
    dtype: opt.StepDtype = None,
    **step: Unpack[opt.StepOnLayout],
) -> "Found[VerifyReport]":
    """Check what one rank stores and sends against the class sharded by torch."""
    from tfacct.reports.verify import verify_ranks

    request, mesh = opt.request(step), opt.mesh(step)
    return Found(verify_ranks(models, request, mesh, dtype=dtype, all_layers=all_layers, progress=tick))


def prove(
    model: "LoadedModel",
    *,
    by: By = None,
    train: Annotated[bool, TRAIN] = False,
    dtype: opt.StepDtype = None,
    recompute: opt.Recompute = None,
    attention: opt.Attention = None,
) -> "Found[ProveReport]":
    """Proof that the formula is the same polynomial as the reference model's count, for all sizes.

    With `train`, the formula is that of saved activations, and the transformers class is counted, always on a grid.
    Needs torch, fvcore and sympy. Raises TfacctError.
    """
    from tfacct.reports.verify import prove, prove_saved

    given = {"recompute": recompute, "attention": attention, "dtype": dtype}
    if train:
        return Found(prove_saved(model, opt.counting(given), by=by, progress=tick))
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{option(name)} needs {option('train', True)}")
    return Found(prove(model, by=by or "symbols", progress=tick))


COMMAND = Command(
    verify,
    examples=("tfacct verify gpt2 --ctx 64", "tfacct verify --prove llama", "tfacct verify gpt2 --train"),
    variants={
        "prove": Variant(prove, Option("Prove the formula of a family or model for all sizes.")),
        "shard": Variant(verify_ranks, Option("Check one rank of a layout against torch."), few=FEW),
        "train": Variant(verify_train, TRAIN),
    },
    fails="disagrees",
    of_family=True,
)
