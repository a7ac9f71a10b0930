"""The model that `load` returns: a method for every question, each a command's function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

from tfacct import options as opt
from tfacct.api.asked import Asked, Source, loaded
from tfacct.api.method import checked, method, signed
from tfacct.api.page import Page
from tfacct.api.utilization import Rated
from tfacct.base.errors import UsageError
from tfacct.commands import budget as _budget
from tfacct.commands import compare as _compare
from tfacct.commands import explore as _explore
from tfacct.commands import flops as _flops
from tfacct.commands import formula as _formula
from tfacct.commands import memory as _memory
from tfacct.commands import mfu as _mfu
from tfacct.commands import params as _params
from tfacct.commands import plan as _plan
from tfacct.commands import serve as _serve
from tfacct.commands import solve as _solve
from tfacct.commands import time as _time
from tfacct.commands import train as _train
from tfacct.commands import verify as _verify
from tfacct.commands.command import options_of
from tfacct.commands.compare import CompareOptions
from tfacct.commands.explore import ExploreOptions
from tfacct.commands.solve import SolveOptions
from tfacct.commands.sweep import SweepOptions, sweep
from tfacct.commands.train import TrainOptions
from tfacct.commands.verify import VerifyOptions
from tfacct.ledger.workload import Logits, Step
from tfacct.options import MetricTerms, Size
from tfacct.output.answer import answered

if TYPE_CHECKING:
    import numpy as np

    from tfacct.api.metric_names import MetricName
    from tfacct.commands.command import Found
    from tfacct.reports.check import CheckpointReport
    from tfacct.reports.compare import CompareReport, DiffReport
    from tfacct.reports.flops import FlopsReport
    from tfacct.reports.memory import KvReport, MemoryReport
    from tfacct.reports.models import LedgerReport, ShowReport
    from tfacct.reports.params import ParamsReport
    from tfacct.reports.solve import SolveReport
    from tfacct.reports.sweep import SweepReport
    from tfacct.reports.train import ExactTrainReport, TrainReport
    from tfacct.reports.verify import VerifyReport

Values = Sequence[Any] | str
"""Values of a field in a sweep: a list, or a range such as "1..32"."""


class Model(Rated):
    """A model to ask about. Made by `load`. Each method returns the report that its command prints."""

    flops = method(_flops.flops)
    generate = method(_flops.generate)
    traffic = method(_flops.traffic)
    params = method(_params.params)
    memory = method(_memory.memory)
    kv = method(_memory.kv)
    fit = method(_memory.fit)
    formula = method(_formula.formula)
    comms = method(_plan.comms)
    plan = method(_plan.plan)
    time = method(_time.time)
    train_time = method(_time.train_time)
    serve = method(_serve.serve)
    budget = method(_budget.budget_of)
    mfu = method(_mfu.mfu)
    prove = method(_verify.prove)
    measure = method(_mfu.measure)

    @overload
    def train(self, *, exact: Literal[True], **options: Unpack[TrainOptions]) -> ExactTrainReport: ...
    @overload
    def train(self, *, exact: Literal[False] = False, **options: Unpack[TrainOptions]) -> TrainReport: ...
    def train(self, **options: Any) -> TrainReport | ExactTrainReport:
        found = _train.train([self.loaded], **checked(Model.train, options))
        return answered(found.report, found.chart)

    def supports(self, **options: Unpack[TrainOptions]) -> bool:
        """True if `train` supports these options; if it does not, its error gives the reason.

        >>> from tfacct import load
        >>> llama = load("llama-3.1-8b")
        >>> llama.supports(lora=16, fsdp=8), llama.supports(packing=True, tp=2)
        (True, False)
        """
        from tfacct.training.unsupported import supports

        _, recipe, _ = _train.step_of(cast("TrainOptions", checked(Model.train, options)))
        return supports(self.loaded, recipe)

    def verify(self, *, train: bool = False, shard: bool = False, **options: Unpack[VerifyOptions]) -> VerifyReport:
        """Comparison of the formulas with every counter, path by path; `.agrees` is the verdict.

        `all_layers` runs every layer instead of one of each kind; `against="transformers"` asks the class too. Needs
        torch and fvcore. With `train` the bytes of a training step are compared, of a recipe as in `train`: that needs
        transformers. With `shard` what one rank stores and sends is, where torch shards the class among the ranks of a
        layout (two or four if none are given), as in `plan`. Raises TfacctError.
        """
        if train and shard:
            raise UsageError("shard=True is asked alone, with a layout")
        function: Any = _verify.verify_train if train else _verify.verify_ranks if shard else _verify.verify
        given = checked(Model.verify, options, VerifyOptions.__annotations__)
        for name in given.keys() - options_of(function).keys():
            needs = "train=True" if name in options_of(_verify.verify_train) else "shard=True"
            raise UsageError(f"{name} needs {needs}" if not (train or shard) else f"{name} is not asked here")
        found: Found[VerifyReport] = function([self.loaded], **given)
        return answered(found.report)

    def compare(
        self,
        *others: Asked | Source,
        by: Literal["model", "line"] | None = None,
        metric: list[str] | None = None,
        all: bool = False,  # noqa: A002
        **options: Unpack[CompareOptions],
    ) -> CompareReport | DiffReport:
        models = [self.loaded, *(loaded(one, {}) for one in others)]
        found = _compare.compare(models, by=by, metric=metric, all=all, **checked(Model.compare, options, lists=True))
        return answered(found.report, found.chart)

    def diff(self, other: Asked | Source | None = None, *, all: bool = False, **options: Any) -> DiffReport:  # noqa: A002
        """FLOPs, parameters and bytes before and after a change: of fields, workload or dtype, or to `other`.

        `other`: a Model, or what `load` takes. Keywords are options of `compare`, the same with `to_` for the new side,
        and fields of the config that change. The table holds the rows that change, or `all`. Raises TfacctError.
        """
        to = {name: options.pop(name) for name in list(options) if name.startswith("to_")}
        sets = {name: options.pop(name) for name in list(options) if name not in CompareOptions.__annotations__}
        given: Any = options | {name[3:]: [options.get(name[3:]), value] for name, value in to.items()}
        models = [self.loaded, loaded(self if other is None else other, sets)]
        found = _compare.compare(models, by="line", all=all, **given)
        return cast("DiffReport", answered(found.report, found.chart))

    def sweep(
        self,
        *metrics: MetricName | str,
        ctx: Any = None,
        batch: Any = (1,),
        zip: Mapping[str, Values] | None = None,  # noqa: A002
        **options: Any,
    ) -> SweepReport:
        """Metrics by name at every combination of contexts, batches and values of fields, in exact numbers.

        Whole numbers may be a range, as on the command line:

        >>> from tfacct import load
        >>> load("llama-3.1-8b").sweep("kv_cache_bytes", ctx="1k..4k", num_key_value_heads="1,8").rows[-1]
        {'num_key_value_heads': 8, 'ctx': 4096, 'kv_cache_bytes': 536870912}

        Other keywords are options of `tfacct sweep`, and fields of the config with their values. Fields in `zip` vary
        together: `zip={"n_embd": [512, 768], "n_head": [8, 12]}` are two settings, not four. An impossible combination
        is skipped: the attribute `skipped` names it. `tp`, `fsdp`, `ep`, `pp`, `cp`: numbers of ranks that shard the
        model; every metric is of one rank then. Raises TfacctError, also for more than 20,000 points.
        """
        fields = {name: values for name, values in options.items() if name not in SweepOptions.__annotations__}
        given: Any = {name: value for name, value in options.items() if name not in fields}
        named: Any = {"metric": list(metrics) or None, "fields": fields, "zip": zip}
        found = sweep([self.loaded], ctx=ctx, batch=batch, **named, **given)
        return answered(found.report, found.chart)

    def solve(
        self,
        unknown: str | None = None,
        until: str | None = None,
        *,
        for_: str | None = None,
        **options: Unpack[SolveOptions],
    ) -> SolveReport:
        """Largest `unknown` up to which an equation is not yet overtaken: ctx, batch, or a whole number in the config.

        >>> from tfacct import load
        >>> load("llama-3.1-8b").solve("ctx", "kv_cache_bytes=weights_bytes").total
        122532
        >>> load("llama-3.2-1b").solve(for_="num_hidden_layers", until="total_params=3B").total
        45

        Of ranks, `tp`, `fsdp` or `pp`, it is the fewest, with those that are given:

        >>> load("llama-3.1-70b").solve("tp", "total_bytes=80GB", ctx="8k").total
        2

        `for_` is another name of `unknown`, as the command has it. Raises TfacctError if there is no solution, or more
        than one.
        """
        if (unknown is None) == (for_ is None):
            raise UsageError("solve takes one unknown and an equation", 'for example "ctx", "total_bytes=24GiB"')
        given = checked(Model.solve, options, SolveOptions.__annotations__)
        found = _solve.solve(self.loaded, unknown=unknown or for_ or "", until=until, **given)
        return answered(found.report)

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
        """Derivation of a total: the axes with their values, the matrix product of each line, the sums.

        >>> from tfacct import load
        >>> load("gpt2").explain("kv", ctx=1024).derivation.takeaway
        'Each token of context adds 36,864 bytes for each sequence.'

        The report is that of the method of this name; `to_latex` writes the derivation. Raises TfacctError.
        """
        from tfacct.options import request
        from tfacct.reports.explain import explain

        asked = request(checked(Model.explain, step, opt.Step.__annotations__), logits=logits)
        report = explain(self.loaded, asked, of, train=train, masked=masked, dtype=dtype, kv_dtype=kv_dtype)
        return answered(report)

    def evaluate(
        self,
        metric: MetricName | str,
        *,
        exact: bool = False,
        source: Size | None = None,
        **options: Any,
    ) -> np.ndarray[Any, Any]:
        """Array of a metric at every element of the knobs: `evaluate("total_flops", ctx=np.arange(1, 10**6))`.

        Knobs are broadcast against each other: ctx, tokens (default all of the context), batch, num_key_value_heads,
        and the axes of sizes. Other keywords say how the metric is counted, as in `solve`. Values are float64,
        within 10⁻¹⁵ of the exact ones; `exact` gives Python's ints and fractions. Arrays of dask, or of another library
        that speaks numpy's protocols, give arrays of their kind, with nan at impossible points. Needs numpy. Raises
        TfacctError.
        """
        from tfacct.accounts.metrics import metric as named
        from tfacct.algebra.arrays import evaluate
        from tfacct.loading.selection import workload
        from tfacct.options import counting, request, sizes

        given: Any = {name: value for name, value in options.items() if name in MetricTerms.__annotations__}
        knobs = {name: value for name, value in options.items() if name not in given}
        asked, terms = named(metric, [self.ledger]), counting(given)
        work = workload(self.loaded, request({"source": source}, logits=given.get("logits") or "all"))
        terms.check_recipe([asked], "a metric such as peak_bytes")
        point = terms.point(self.loaded, work, [asked])
        read = {name: list(sizes(name, each)) if isinstance(each, str) else each for name, each in knobs.items()}
        return evaluate(asked, self.architecture, point, read, exact=exact)

    def explore(self, *, vs: Asked | Source | None = None, **options: Unpack[ExploreOptions]) -> Page:
        """Page that recounts every line as its knobs are turned, one file without a network; `vs`: a second model.

        `save` writes it, and a notebook shows it. Raises TfacctError.
        """
        others = [] if vs is None else [loaded(vs, {})]
        return Page(
            _explore.explore(
                [self.loaded, *others], **checked(Model.explore, options, ExploreOptions.__annotations__)
            ).html
        )

    def show(self) -> ShowReport:
        """Fields of the config, one by one, with their source and those that took a default."""
        from tfacct.reports.models import show

        return answered(show(self.loaded))

    def symbolic_ledger(self) -> LedgerReport:
        """Ledger as data, with derived sizes written in symbols, as `models NAME --ledger` prints it."""
        from tfacct.reports.models import ledger

        return answered(ledger(self.loaded))

    def checkpoint(self, path: str | Path) -> CheckpointReport:
        """Comparison of the files of a checkpoint with this model, by their headers; `.agrees` is the verdict.

        `path`: a folder, a file of safetensors or GGUF, an index, or a hub id. Raises TfacctError.
        """
        from tfacct.api.checkpoint import checkpoint

        return checkpoint(path, config=self)

    def part(self, part: Literal["text", "vision", "audio"], **sets: Any) -> Model:
        """Return one of the models that a config of several holds: its language model, or the encoder of its images
        or audio.

        `sets`: fields over that one's config. Raises TfacctError.
        """
        return Model(self.loaded.of_part(part, sets))


Model.train.__doc__ = _train.train.__doc__
signed(Model.train, _train.train)
Model.compare.__doc__ = _compare.compare.__doc__
signed(Model.compare, _compare.compare, Parameter("others", Parameter.VAR_POSITIONAL))


def load(source: Source, **sets: Any) -> Model:
    """Return the model of a preset's name, a path to a config.json, a hub id (`"Qwen/Qwen2-7B"`), or a dict of fields.

    A config object with `to_dict()`, or a model that has one as `.config`, is taken too: those of transformers are.

    >>> load("gpt2-xl").flops(ctx=16384).total
    133416668364800

    Keywords are set over the config, and a dict holds the fields of one:

    >>> load("llama-3.1-8b", num_key_value_heads=32).kv().total
    68719476736
    >>> fields = {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12}
    >>> load(fields).params().total
    124439808

    A name that does not exist is refused, with the nearest that does:

    >>> load("gpt2-extra")
    Traceback (most recent call last):
    tfacct.base.errors.NotFoundError: no preset or file named 'gpt2-extra'
    did you mean gpt2?

    A Path is always a path: the hub is not asked. Raises TfacctError, which says what would work.
    """
    return Model(loaded(source, sets))
