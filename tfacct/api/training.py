"""What training a model takes."""

from __future__ import annotations

from typing import Literal, Unpack

from tfacct.api.answer import answered
from tfacct.api.answers import TrainReport
from tfacct.api.asked import Asked, budget_of
from tfacct.api.keywords import request, spelled_out
from tfacct.ledger.workload import Whole
from tfacct.output.chart import Chart
from tfacct.reports.train import By


class Trainable(Asked):
    """Questions about training."""

    @spelled_out
    def train(
        self,
        *,
        as_: Literal["transformers", "reference", "fused"] = "transformers",
        dtype: str = "bf16",
        optimizer: str = "adamw",
        checkpoint: Literal["none", "full", "attention"] = "none",
        attention: Literal["sdpa", "eager"] = "sdpa",
        accumulate: bool = False,
        hold_logits: bool = False,
        loss: Literal["whole", "chunked"] = "whole",
        lora: int | str | None = None,
        adapters: str = "fp32",
        lora_dropout: float = 0.0,
        weights: str | None = None,
        fit: int | str | None = None,
        by: By = "instant",
        **step: Unpack[Whole],
    ) -> TrainReport:
        """Bytes of a training step at its peak, as the transformers class runs it.

        >>> from tfacct import load
        >>> llama = load("llama-3.1-8b")
        >>> step = llama.train(ctx=4096)
        >>> step.kept_bytes, step.peak_bytes, step.peak_instant
        (28562244364, 80946473364, 'loss, backward')
        >>> llama.train(ctx="8k", fit="80GiB").fit["largest_context"]
        4715

        `as_`: `reference` counts what this program's own reference model keeps, `fused`
        what Megatron does by a paper's algebra, and neither a peak.
        `dtype`: of the pass; of weights, gradients and moments too, unless `weights` says so: `"fp32"` runs the pass
        under torch.autocast, `"nf4"` stores the frozen weights beside adapters in 4 bits. `checkpoint`: `full` keeps
        the input of each block and runs it again, `attention` that of each block's attention. `accumulate`: gradients
        of earlier batches are there. `hold_logits`: the caller keeps the logits. `loss`: of all tokens at once, or of
        an eighth at a time. `lora`: a rank, or a rank and products (`"16:q_proj,v_proj"`), of adapters that alone are
        trained; `adapters`: their dtype; `lora_dropout`: the share of their inputs that they drop. `fit` (bytes, or
        `"80GiB"`) adds the largest context and batch, and what would make more fit.
        Raises TfacctError for a model whose step has not been measured.
        """
        from tfacct.reports.train import train
        from tfacct.reports.training import Recipe

        budget, card = budget_of(fit)
        rank = None if lora is None else str(lora)
        recipe = Recipe(
            dtype,
            optimizer,
            checkpoint,
            attention,
            accumulate,
            hold_logits,
            loss,
            rank,
            adapters,
            lora_dropout,
            weights,
        )
        report = train([self.loaded], request(step), recipe, as_=as_, fit=budget, card=card, by=by)

        def chart() -> Chart:
            from tfacct.reports.charts_train import train_chart

            return train_chart([self.loaded], report)

        return answered(TrainReport, report, chart)
