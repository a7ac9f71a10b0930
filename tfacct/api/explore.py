"""Methods of Model that show its formulas and vary its sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tfacct.api.answer import answered
from tfacct.api.answers import DiffReport, FormulaReport, SolveReport, SweepReport
from tfacct.api.asked import Asked, Source, loaded
from tfacct.api.keywords import StepOnRanks, fields, mesh, request, size, sizes, spelled_out
from tfacct.api.metric_names import MetricName
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Logits, Step

if TYPE_CHECKING:
    import numpy as np

    from tfacct.output.chart import Chart


class Explored(Asked):
    """Questions about what changes the costs."""

    @spelled_out
    def formula(
        self,
        *,
        of: Literal["flops", "params", "kv", "train", "saved"] = "flops",
        dtype: str | None = None,
        recompute: str | None = None,
        attention: Literal["sdpa", "eager"] | None = None,
        weights_dtype: str | None = None,
        tp: int | str | None = None,
        pp: int | str | None = None,
        cp: int | str | None = None,
        ep: int | str | None = None,
        sp: bool = False,
        **step: Unpack[Step],
    ) -> FormulaReport:
        """Formula of a count, line by line, with its values: FLOPs, stored parameters, cached elements, or the bytes
        that a training step in `dtype` keeps for its backward pass.

        `.total_formula` is the formula as sympy parses it, its letters symbols (see `reports.formula.formula`).
        `tp`, `pp`, `cp`, `ep`: ranks that divide it, a number or a letter; the count is that of one. `sp`: those of
        `tp` divide the stream's tokens too. Raises TfacctError.
        """
        from tfacct.reports.counting import Counting, named_of
        from tfacct.reports.formula import formula

        given = {"tp": tp, "pp": pp, "cp": cp, "ep": ep}
        axes = {axis: str(number) for axis, number in given.items() if number is not None}
        trained = named_of({"recompute": recompute, "attention": attention, "weights_dtype": weights_dtype})
        terms = Counting(dtype, trained=trained)
        found = formula(self.loaded, request(step), of=of, terms=terms, axes=axes, sp=sp)
        return answered(FormulaReport, found)

    def diff(
        self,
        other: Asked | Source | None = None,
        *,
        ctx: int | str | None = None,
        tokens: int | str | None = None,
        decode: bool = False,
        batch: int | str = 1,
        source: int | str | None = None,
        to_ctx: int | str | None = None,
        to_tokens: int | str | None = None,
        to_batch: int | str | None = None,
        to_dtype: str | None = None,
        to_kv_dtype: str | None = None,
        all: bool = False,  # noqa: A002 (as the command has it)
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        optimizer: str | None = None,
        recompute: str | None = None,
        attention: Literal["sdpa", "eager"] | None = None,
        loss: Literal["whole", "chunked"] | None = None,
        lora: int | str | None = None,
        adapter_dtype: str | None = None,
        lora_dropout: float | None = None,
        weights_dtype: str | None = None,
        to_optimizer: str | None = None,
        to_recompute: str | None = None,
        to_attention: Literal["sdpa", "eager"] | None = None,
        to_loss: Literal["whole", "chunked"] | None = None,
        to_lora: int | str | None = None,
        to_adapter_dtype: str | None = None,
        to_lora_dropout: float | None = None,
        to_weights_dtype: str | None = None,
        **sets: Any,
    ) -> DiffReport:
        """FLOPs, parameters and bytes before and after a change: of fields (`sets`), workload or dtype, or to `other`.

        `other`: a Model, or what `load` takes. The table holds the rows that change, or `all`. With `train` the bytes
        of a training step are compared too, of a recipe as `train` has it, such as `optimizer`. Raises
        TfacctError.
        """
        from tfacct.reports.counting import Counting, named_of
        from tfacct.reports.diff import diff

        new = loaded(self if other is None else other, sets)
        step = {"ctx": ctx, "tokens": tokens, "batch": batch, "source": source}
        before = request(step, decode=decode, logits=logits)
        to = {"ctx": to_ctx, "tokens": to_tokens, "batch": to_batch}
        changed = {name: size(f"to_{name}", given) for name, given in to.items() if given is not None}
        after = replace(before, **changed)
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
        terms = Counting(dtype, kv_dtype, masked, train, recipe)
        stored = terms.stored(to_dtype, to_kv_dtype).with_recipe(
            {
                "optimizer": to_optimizer,
                "recompute": to_recompute,
                "attention": to_attention,
                "loss": to_loss,
                "lora": to_lora,
                "adapter_dtype": to_adapter_dtype,
                "lora_dropout": to_lora_dropout,
                "weights_dtype": to_weights_dtype,
            }
        )
        report = diff(self.loaded, new, before, after, terms=terms, to=stored, every=all)

        def chart() -> Chart:
            from tfacct.reports.charts import diff_chart

            return diff_chart(self.loaded, new, before, after, report, terms)

        return answered(DiffReport, report, chart)

    def sweep(
        self,
        *metrics: MetricName | str,
        ctx: Collection[int | str] | str | None = None,
        batch: Collection[int | str] | str = (1,),
        zip: Mapping[str, Sequence[Any] | str] | None = None,  # noqa: A002 (as the command has it)
        source: int | str | None = None,
        tokens: int | str | None = None,
        decode: bool = False,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        optimizer: str | None = None,
        recompute: str | None = None,
        attention: Literal["sdpa", "eager"] | None = None,
        loss: Literal["whole", "chunked"] | None = None,
        lora: int | str | None = None,
        adapter_dtype: str | None = None,
        lora_dropout: float | None = None,
        weights_dtype: str | None = None,
        tp: Collection[int] | str | None = None,
        fsdp: Collection[int] | str | None = None,
        ep: Collection[int] | str | None = None,
        pp: Collection[int] | str | None = None,
        cp: Collection[int] | str | None = None,
        sp: bool = False,
        **sets: Sequence[Any] | str,
    ) -> SweepReport:
        """Metrics by name at every combination of contexts, batches and values of fields, in exact numbers.

        Whole numbers may be a range, as on the command line:

        >>> from tfacct import load
        >>> load("llama-3.1-8b").sweep("kv_cache_bytes", ctx="1k..4k", num_key_value_heads="1,8").rows[-1]
        {'num_key_value_heads': 8, 'ctx': 4096, 'kv_cache_bytes': 536870912}

        Fields in `zip` vary together: `zip={"n_embd": [512, 768], "n_head": [8, 12]}` are two settings, not four. An
        impossible combination is skipped: the attribute `skipped` names it. `tp`, `fsdp`, `ep`, `pp`, `cp`: numbers of
        ranks that divide the model; every metric is of one rank then. `sp`: those of `tp` divide the tokens of the
        stream too.
        Raises TfacctError, also for more than 20,000 points.
        """
        from tfacct.reports.counting import Counting, named_of
        from tfacct.reports.sweep import DEFAULT, Grid, sweep

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
        given = {"tp": tp, "fsdp": fsdp, "ep": ep, "pp": pp, "cp": cp}
        ranks = {axis: sizes(axis, numbers) for axis, numbers in given.items() if numbers is not None}
        report = sweep(
            lambda _name, fields: self._with(fields),
            [self.name],
            Grid(sizes("ctx", ctx), sizes("batch", batch), fields(sets), fields(zip or {}), ranks, sp),
            metrics=metrics or DEFAULT,
            request=request({"tokens": tokens, "decode": decode, "source": source}, logits=logits),
            terms=Counting(dtype, kv_dtype, masked, train, recipe),
        )

        def chart() -> Chart:
            from tfacct.reports.charts import sweep_chart

            return sweep_chart(report)

        return answered(SweepReport, report, chart)

    @spelled_out
    def solve(
        self,
        unknown: str | None = None,
        until: str | None = None,
        *,
        for_: str | None = None,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        optimizer: str | None = None,
        recompute: str | None = None,
        attention: Literal["sdpa", "eager"] | None = None,
        loss: Literal["whole", "chunked"] | None = None,
        lora: int | str | None = None,
        adapter_dtype: str | None = None,
        lora_dropout: float | None = None,
        weights_dtype: str | None = None,
        **step: Unpack[StepOnRanks],
    ) -> SolveReport:
        """Largest `unknown` up to which an equation is not yet overtaken: ctx, batch, or a whole number in the config.

        >>> from tfacct import load
        >>> load("llama-3.1-8b").solve("ctx", "kv_cache_bytes=weights_bytes").total
        122532
        >>> load("llama-3.2-1b").solve(for_="num_hidden_layers", until="total_params=3B").total
        45

        Of ranks, `tp`, `fsdp` or `pp`, it is the fewest, beside those that are given:

        >>> load("llama-3.1-70b").solve("tp", "total_bytes=80GB", ctx="8k").total
        2

        `for_` is another name of `unknown`, as the command has it. Raises TfacctError if there is no solution, or more
        than one.
        """
        from tfacct.reports.counting import Counting, named_of
        from tfacct.reports.solve import solve

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
        terms = Counting(dtype, kv_dtype, masked, train, recipe, mesh(step))
        asked = request(step, logits=logits)
        if until is None or (unknown is None) == (for_ is None):
            raise UsageError("solve takes one unknown and an equation", 'for example "ctx", "total_bytes=24GiB"')
        sought = unknown or for_ or ""
        return answered(SolveReport, solve(self.loaded, asked, unknown=sought, until=until, terms=terms))

    def evaluate(
        self,
        metric: MetricName | str,
        *,
        exact: bool = False,
        masked: bool = False,
        train: bool = False,
        logits: Logits = "all",
        source: int | str | None = None,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        optimizer: str | None = None,
        recompute: str | None = None,
        attention: Literal["sdpa", "eager"] | None = None,
        loss: Literal["whole", "chunked"] | None = None,
        lora: int | str | None = None,
        adapter_dtype: str | None = None,
        lora_dropout: float | None = None,
        weights_dtype: str | None = None,
        **knobs: Any,
    ) -> np.ndarray[Any, Any]:
        """Array of a metric at every element of the knobs: `evaluate("total_flops", ctx=np.arange(1, 10**6))`.

        Knobs are broadcast against each other: ctx, tokens (default all of the context), batch, num_key_value_heads,
        and the letters of sizes. Values are float64, within 10⁻¹⁵ of the exact ones; `exact` gives Python's ints and
        fractions. Arrays of dask, or of another library that speaks numpy's protocols, give arrays of their kind,
        with nan at impossible points. Needs numpy. Raises TfacctError.
        """
        from tfacct.accounts.metrics import metric as named
        from tfacct.algebra.arrays import evaluate
        from tfacct.reports.counting import Counting, named_of, workload

        asked = named(metric, [self.ledger])
        work = workload(self.loaded, request({"source": source}, logits=logits))
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
        terms = Counting(dtype, kv_dtype, masked, train, recipe)
        terms.check_recipe([asked], "a metric such as peak_bytes")
        point = terms.point(self.loaded, work, [asked])
        given = {
            name: list(sizes(name, values)) if isinstance(values, str) else values for name, values in knobs.items()
        }
        return evaluate(asked, self.architecture, point, given, exact=exact)
