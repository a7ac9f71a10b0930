"""Methods of Model that check the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Unpack

from tfacct.api.answer import answered
from tfacct.api.answers import MeasureReport, ProveReport, ShowReport, VerifyReport
from tfacct.api.asked import Asked
from tfacct.api.checked import CheckpointReport
from tfacct.api.keywords import StepOnMesh, mesh, request, spelled_out
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Whole
from tfacct.reports.counting import Counting, named_of


class Trusted(Asked):
    """Questions about why the numbers are right."""

    def show(self) -> ShowReport:
        """Fields of the config, one by one, with their source and those that took a default."""
        from tfacct.reports.models import show

        return answered(ShowReport, show(self.loaded))

    @spelled_out
    def verify(
        self,
        *,
        all_layers: bool = False,
        against: str | None = None,
        train: bool = False,
        dtype: str | None = None,
        optimizer: str | None = None,
        recompute: str | None = None,
        attention: Literal["sdpa", "eager"] | None = None,
        loss: Literal["whole", "chunked"] | None = None,
        lora: int | str | None = None,
        adapter_dtype: str | None = None,
        lora_dropout: float | None = None,
        weights_dtype: str | None = None,
        shard: bool = False,
        **step: Unpack[StepOnMesh],
    ) -> VerifyReport:
        """Comparison of the formulas with every witness, path by path; `.agrees` is the verdict.

        `all_layers` runs every block instead of one of each kind; `against="transformers"` asks the class too. Needs
        torch and fvcore. With `train` the bytes of a training step are compared, of a recipe as `train`
        has it, such as `optimizer`: that needs transformers.
        With `shard` what one rank holds and sends is, where torch divides the class among ranks of a mesh (two or four
        if none are given), as `comms` has it. Raises TfacctError.
        """
        from tfacct.reports.verify import verify

        recipe = named_of(
            {
                "optimizer": optimizer,
                "recompute": recompute,
                "attention": attention,
                "loss": loss,
                "lora": lora,
                "adapter_dtype": adapter_dtype,
                "lora_dropout": lora_dropout,
                "weights_dtype": weights_dtype,
            }
        )
        ranks = mesh(step)
        if shard:
            from tfacct.reports.verify_ranks import verify_ranks

            if train or recipe or against:
                raise UsageError("shard=True is asked alone, with a mesh")
            report = verify_ranks([self.loaded], request(step), ranks, dtype=dtype, all_layers=all_layers)
            return answered(VerifyReport, report)
        if ranks is not None:
            raise UsageError("ranks need shard=True")
        if train:
            from tfacct.reports.verify_train import verify_train

            terms = Counting(dtype, trained=recipe)
            report = verify_train([self.loaded], request(step), terms, against=against)
            return answered(VerifyReport, report)
        if recipe or dtype:
            raise UsageError(f"{recipe[0][0] if recipe else 'dtype'} needs train=True")
        return answered(VerifyReport, verify([self.loaded], request(step), all_layers=all_layers, against=against))

    def prove(
        self,
        *,
        by: Literal["symbols", "grid"] | None = None,
        train: bool = False,
        dtype: str | None = None,
        recompute: Literal["none", "full"] | None = None,
        attention: Literal["sdpa", "eager"] | None = None,
    ) -> ProveReport:
        """Proof that the formula is the same polynomial as the reference model's count, for all sizes.

        With `train` it is the formula of what a training step keeps, and the count that of the transformers class. `by`
        is `symbols` where it is not given, a grid for a class. Needs torch, fvcore and sympy. Raises TfacctError.
        """
        from tfacct.reports.prove import prove

        recipe = named_of({"recompute": recompute, "attention": attention})
        if train:
            from tfacct.reports.prove_saved import prove_saved

            return answered(ProveReport, prove_saved(self.loaded, Counting(dtype, trained=recipe), by=by))
        if recipe or dtype:
            raise UsageError(f"{recipe[0][0] if recipe else 'dtype'} needs train=True")

        return answered(ProveReport, prove(self.loaded, by=by or "symbols"))

    def checkpoint(self, path: str | Path) -> CheckpointReport:
        """Comparison of the files of a checkpoint with this model, by their headers; `.agrees` is the verdict.

        `path`: a folder, a file of safetensors or GGUF, an index, or a hub id. Raises TfacctError.
        """
        from tfacct.loading import beside
        from tfacct.reports.checkpoint import checkpoint

        files, _, _ = beside.read(str(path), compared=False, ask_hub=isinstance(path, str))
        return answered(CheckpointReport, checkpoint(files, self.loaded))

    @spelled_out
    def measure(
        self,
        *,
        decode: bool = False,
        steps: int = 5,
        train: bool = False,
        sdpa: bool = False,
        device: str = "cpu",
        dtype: str = "fp32",
        **step: Unpack[Whole],
    ) -> MeasureReport:
        """Run the model with random weights: seconds, FLOP/s and bytes held.

        Needs torch and fvcore. Raises TfacctError.
        """
        from tfacct.reports.measure import Plan, measure

        plan = Plan(device, dtype, steps, train, sdpa)
        return answered(MeasureReport, measure(self.loaded, request(step, decode=decode), plan))
