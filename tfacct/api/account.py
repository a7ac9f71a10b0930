"""Methods of Model that count its costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

from tfacct.accounts.metrics import Recompute
from tfacct.api.answer import answered
from tfacct.api.answers import FlopsReport, GenerateReport, KvReport, MemoryReport, ParamsReport, TrafficReport
from tfacct.api.asked import Asked
from tfacct.api.keywords import (
    OnRanks,
    StepOnRanks,
    WholeOnRanks,
    mesh,
    of_one_rank,
    request,
    several,
    size,
    spelled_out,
)
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Logits, Step, Whole
from tfacct.reports.flops import By

if TYPE_CHECKING:
    from tfacct.output.chart import Chart


class Costs(Asked):
    """Questions about what a model costs."""

    @spelled_out
    def flops(
        self,
        *,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        by: By = "line",
        pointwise: bool = False,
        recompute: Recompute = "none",
        **step: Unpack[StepOnRanks],
    ) -> FlopsReport:
        """FLOPs of one forward pass or training step, 2 per multiply-add, product by product.

        >>> from tfacct import load
        >>> gpt2 = load("gpt2")
        >>> gpt2.flops(ctx=1024).total
        291648307200
        >>> gpt2.flops(ctx=1024, decode=True).total, gpt2.flops(ctx=1024, train=True).total
        (284812800, 874944921600)

        `ctx`: the context at the end of the step (default the model's longest); `"8k"` is 8,192. `tokens`: how many of
        it are new (default all). `source`: tokens that an encoder reads (default the model's longest). `masked`: only
        the query–key pairs that the mask keeps. `pointwise`: the elements of work that is no product are listed too.
        `recompute`: the backward pass of a training step runs every block again (`full`), or its `attention`. `tp`,
        `sp`, `fsdp`, `ep`, `pp`, `cp`: ranks that divide the model; the FLOPs are those of the one that computes most,
        and `whole` has the model's. Raises TfacctError.
        """
        from tfacct.reports.flops import flops

        subjects, asked, ranks = [self.loaded], request(step, logits=logits), of_one_rank(step)
        how: Any = {"train": train, "masked": masked, "pointwise": pointwise, "recompute": recompute}
        report = flops(subjects, asked, by=by, mesh=ranks, **how)

        def chart() -> Chart:
            from tfacct.parallel.shard_model import shard_for_flops
            from tfacct.reports.charts import flops_chart
            from tfacct.reports.ranks import check_drawn, drawn

            check_drawn(ranks, "FLOPs")
            if recompute != "none":
                raise UsageError("a picture of FLOPs does not show recomputation", "leave recompute out")

            of = shard_for_flops(subjects, ranks)[1]
            return drawn(flops_chart(of, asked, report, masked=masked, train=train), ranks)

        return answered(FlopsReport, report, chart)

    @spelled_out
    def generate(self, *, new_tokens: int | str, masked: bool = False, **step: Unpack[Whole]) -> GenerateReport:
        """FLOPs of a whole request, 2 per multiply-add: the prefill of a prompt of `ctx` tokens, and all decode steps.

        Only the last position gets logits, and they give the first of the `new_tokens`. Printed by `flops --generate`.
        Raises TfacctError.
        """
        from tfacct.reports.generate import generate

        return answered(
            GenerateReport, generate([self.loaded], request(step), size("new_tokens", new_tokens), masked=masked)
        )

    @spelled_out
    def traffic(
        self,
        *,
        logits: Logits = "all",
        dtype: str | None = None,
        **step: Unpack[StepOnRanks],
    ) -> TrafficReport:
        """Bytes that each product reads and writes in unfused kernels, and its FLOPs per byte.

        Weights are stored in `dtype` (default bf16). `tp`, `sp`, `fsdp`, `pp`, `cp`: ranks that divide the model; the
        bytes are those of the one that moves most, and `whole` has the model's. Printed by `flops --bytes`. Raises
        TfacctError.
        """
        from tfacct.reports.flops import traffic

        asked = request(step, logits=logits)
        return answered(TrafficReport, traffic([self.loaded], asked, dtype=dtype, mesh=of_one_rank(step)))

    @spelled_out
    def params(self, **ranks: Unpack[OnRanks]) -> ParamsReport:
        """Number of stored parameters, tensor by tensor, every tensor once.

        `tp` and `fsdp`: ranks that divide them, of which `ep` divide experts, in each of `pp` stages, for each of `cp`
        parts of a sequence; `rank_params` is then what the fullest one stores. Raises TfacctError for a model that such
        ranks do not divide.
        """
        from tfacct.parallel.mesh import checked
        from tfacct.reports.params import params

        given = mesh(ranks)
        report = params([self.loaded], given and checked(given))

        def chart() -> Chart:
            from tfacct.reports.charts import params_chart

            return params_chart([self.loaded], report)

        return answered(ParamsReport, report, chart)

    @spelled_out
    def memory(
        self,
        *,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        fit: int | str | None = None,
        use: float | None = None,
        reserve: int | str | None = None,
        kv_block: int | None = None,
        **step: Unpack[WholeOnRanks],
    ) -> MemoryReport:
        """Bytes of weights and KV cache.

        >>> from tfacct import load
        >>> llama = load("llama-3.1-8b")
        >>> llama.memory(ctx=8192).total, llama.memory(ctx=8192, kv_dtype="fp8").total
        (17134264320, 16597393408)
        >>> llama.memory(ctx="8k", fit="24GiB").fit["largest_context"]
        74075

        `fit` (bytes, `"24GiB"`, or devices: `"2xh100-sxm"`) adds the largest context and batch that fit. Of each device
        `use` times its memory less `reserve` is usable: 0.9 and 2 GB; of bytes all. `kv_block`: tokens of a page of the
        cache. `batch="1,8,64"`: a row for each, and
        the attribute `batches`; the other attributes are those of the largest. `tp`: ranks that divide heads, networks
        and vocabulary, in each of `pp` stages, which divide the blocks, and of `cp` parts of the tokens that are kept;
        `ep`: ranks that divide the experts, `tp` of them to a batch; `fsdp`: ranks that divide all weights. The bytes
        are those of the fullest, and `fit` is its budget. Raises TfacctError.
        """
        from tfacct.parallel.mesh import ranks_of
        from tfacct.parallel.shard_model import shard_models
        from tfacct.reports.budget import budget, layout
        from tfacct.reports.memory import by_batch, memory
        from tfacct.reports.ranks import check_drawn, drawn

        given_ranks, usable = of_one_rank(step), budget(fit, use, reserve)
        ranks = layout(usable, given_ranks, ranks_of(given_ranks))
        batches, given = several("batch", step)
        asked = request(given)
        stored: Any = {
            "dtype": dtype,
            "kv_dtype": kv_dtype,
            "kv_block": kv_block,
            "mesh": ranks,
        }
        if batches is None:
            report = memory([self.loaded], asked, fit=usable, **stored)
        else:
            report = by_batch([self.loaded], asked, batches, fit=usable, **stored)

        def chart() -> Chart:
            from tfacct.reports.charts import memory_chart

            check_drawn(ranks, "memory")
            return drawn(memory_chart(shard_models([self.loaded], ranks, dtype)[1], asked, report), ranks)

        return answered(MemoryReport, report, chart)

    @spelled_out
    def kv(self, *, dtype: str | None = None, **step: Unpack[WholeOnRanks]) -> KvReport:
        """Bytes of the KV cache by context: as built, with a key/value head for each query head, and with one for all.

        `ctx="1k..128k"`: the contexts of the rows. `tp`: ranks that divide the heads, in each of `pp` stages and of
        `cp` parts of a sequence; the bytes are those of the fullest, and `whole` has the model's. Raises TfacctError.
        """
        from tfacct.reports.kv import kv

        contexts, given = several("ctx", step)
        asked, ranks = request(given), of_one_rank(given)
        report = kv([self.loaded], asked, dtype=dtype, contexts=contexts, mesh=ranks)

        def chart() -> Chart:
            from tfacct.parallel.shard_model import shard_for_flops
            from tfacct.reports.charts import kv_chart
            from tfacct.reports.ranks import check_drawn, drawn

            check_drawn(ranks, "the cache")
            return drawn(kv_chart(shard_for_flops([self.loaded], ranks)[1], asked, report), ranks)

        return answered(KvReport, report, chart)

    @spelled_out
    def explain(
        self,
        of: Literal["flops", "params", "kv", "memory"] = "flops",
        *,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        **step: Unpack[Step],
    ) -> FlopsReport | ParamsReport | KvReport | MemoryReport:
        """Derivation of a total: the letters with their values, the product of each line, the sums.

        >>> from tfacct import load
        >>> load("gpt2").explain("kv", ctx=1024).derivation.takeaway
        'Each token of context adds 36,864 bytes for each sequence.'

        The report is that of the method of this name; `to_latex` writes the derivation. Raises TfacctError.
        """
        from tfacct.reports.explain import explain

        asked = request(step, logits=logits)
        report = explain(self.loaded, asked, of, train=train, masked=masked, dtype=dtype, kv_dtype=kv_dtype)
        return answered(EXPLAINED[of], report)


EXPLAINED: dict[str, type[FlopsReport | ParamsReport | KvReport | MemoryReport]] = {
    "flops": FlopsReport,
    "params": ParamsReport,
    "kv": KvReport,
    "memory": MemoryReport,
}
