"""`load` and `Model`, whose methods are the functions of the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

from tfacct import options as opt
from tfacct.api.method import check_choice, checked, documented, method, signed
from tfacct.api.model_base import ModelBase, Source, loaded
from tfacct.api.page import Page
from tfacct.api.utilization import Rated
from tfacct.base.errors import NotFoundError, TfacctError, UsageError, exclusive, nearest
from tfacct.commands import budget as _budget
from tfacct.commands import compare as _compare
from tfacct.commands import engine as _engine
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
from tfacct.commands.sweep import LISTED, SweepOptions, sweep
from tfacct.commands.train import TrainOptions
from tfacct.commands.verify import VerifyOptions
from tfacct.ledger.workload import Logits
from tfacct.options import Size, Step
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
    """A model from `load`. Each method returns the report that its command prints."""

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
    fewest_devices = method(_serve.fewest_devices)
    serve_disaggregated = method(_serve.serve_disaggregated)
    engine = method(_engine.engine_of)
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

    def supports(self, *, exact: bool = False, **options: Unpack[TrainOptions]) -> bool:
        """False if `train(**options)` would refuse the combination; call `train` for the reason. True does not mean
        that the step fits: read `train(…).fit["fits"]`.

        >>> from tfacct import load
        >>> llama = load("llama-3.1-8b")
        >>> llama.supports(lora=16, fsdp=8), llama.supports(packing=True, tp=2)
        (True, False)

        Options that contradict each other (`sp` without `tp`) are such a combination. Raises TfacctError for a name
        that does not exist (a device, an optimizer) and for a value of another type.
        """
        from tfacct.loading.selection import runnable
        from tfacct.training.exact import check as check_exact
        from tfacct.training.memory import check_step

        known = {name: one.annotation for name, one in options_of(_train.train).items()}
        given: Any = checked(Model.supports, {"exact": exact, **options}, known)
        opt.recipe({**given, "qlora": False}, given.get("dtype")).named()
        try:
            request, recipe, _ = _train.step_of(given)
            work = runnable(self.loaded, request)
            (check_exact if exact else check_step)(self.loaded, work, recipe.checked())
        except NotFoundError:
            raise
        except TfacctError:
            return False
        return not exact or given.get("by", "phase") == "phase"

    def verify(self, *, train: bool = False, shard: bool = False, **options: Unpack[VerifyOptions]) -> VerifyReport:
        """Compare the formulas with every counter, path by path. `.agrees` is the verdict.

        `all_layers` runs every layer instead of one of each kind; `against="transformers"` also compares with the
        class. Needs torch and fvcore. `train` compares the bytes of a training step, with a recipe as in `train`, and
        needs transformers. `shard` compares what one rank stores and sends with the class sharded by torch, in a
        layout as in `plan` (two or four ranks by default). Raises TfacctError.
        """
        if train and shard:
            raise exclusive("train=True", "shard=True")
        function: Any = _verify.verify_train if train else _verify.verify_ranks if shard else _verify.verify
        given = checked(Model.verify, options, VerifyOptions.__annotations__)
        for name in given.keys() - options_of(function).keys():
            needs = "train=True" if name in options_of(_verify.verify_train) else "shard=True"
            raise UsageError(f"{name} needs {needs}" if not (train or shard) else f"{name} does not apply here")
        found: Found[VerifyReport] = function([self.loaded], **given)
        return answered(found.report)

    def compare(
        self,
        *others: ModelBase | Source,
        by: Literal["model", "line"] | None = None,
        metric: list[str] | None = None,
        all: bool = False,  # noqa: A002
        **options: Unpack[CompareOptions],
    ) -> CompareReport | DiffReport:
        check_choice("by", by, Literal["model", "line"])
        models = [self.loaded, *(loaded(one, {}) for one in others)]
        found = _compare.compare(
            models, by=by, metric=metric, all=all, **checked(Model.compare, options, lists=_compare.LISTED)
        )
        return answered(found.report, found.chart)

    def diff(self, other: ModelBase | Source | None = None, *, all: bool = False, **options: Any) -> DiffReport:  # noqa: A002
        """FLOPs, parameters and bytes before and after a change: of fields, workload or dtype, or to `other`.

        `other`: a Model, or what `load` takes. Keywords are options of `compare`, the same with `to_` for the new side,
        and fields of the config that change. The table holds the rows that change, or `all`.

        >>> from tfacct import load
        >>> load("gpt2-xl").diff(n_layer=24, ctx=1024).totals["total_flops"]["new"]
        1835692851200

        Raises TfacctError.
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
        """Exact metrics at every combination of contexts, batches and field values.

        Whole numbers may be a range, as on the command line:

        >>> from tfacct import load
        >>> load("llama-3.1-8b").sweep("kv_cache_bytes", ctx="1k..4k", num_key_value_heads="1,8").rows[-1]
        {'num_key_value_heads': 8, 'ctx': 4096, 'kv_cache_bytes': 536870912}

        Other keywords are options of `tfacct sweep`, or config fields with their values. Fields in `zip` vary together:
        `zip={"n_embd": [512, 768], "n_head": [8, 12]}` is two settings, not four. `.skipped` names the impossible
        combinations. With `tp`, `fsdp`, `ep`, `pp` or `cp`, every metric is that of one rank. With `on`, a line says
        whether it `fits`. Raises TfacctError, also for more than 20,000 points.
        """
        fields = {name: values for name, values in options.items() if name not in SweepOptions.__annotations__}
        if other := next((name for name in fields if name in opt.shared()), None):
            raise UsageError(f"sweep has no option {other}")
        given: Any = {name: value for name, value in options.items() if name not in fields}
        given = checked(Model.sweep, given, SweepOptions.__annotations__, lists=LISTED)
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
        """Largest `unknown` that satisfies a limit: ctx, batch, or a config field with a whole number.

        >>> from tfacct import load
        >>> load("llama-3.1-8b").solve("ctx", "kv_cache_bytes=weights_bytes").total
        122532
        >>> load("llama-3.2-1b").solve(for_="num_hidden_layers", until="total_params=3B").total
        45

        Of ranks (`tp`, `fsdp`, `pp`) it is the fewest:

        >>> load("llama-3.1-70b").solve("tp", "total_bytes=80GB", ctx="8k").total
        2

        `for_` is the command's name of `unknown`. Raises TfacctError if there is no solution, or more than one.
        """
        if (unknown is None) == (for_ is None):
            raise UsageError("solve takes an unknown and an equation", 'for example "ctx", "total_bytes=24GiB"')
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
        """Derive a total: axes with their values, the matrix product of each line, sums.

        >>> from tfacct import load
        >>> load("gpt2").explain("kv", ctx=1024).derivation.takeaway
        'Each token of context adds 36,864 bytes per sequence.'

        Returns the report of the method named `of`; its `to_latex` writes the derivation. Raises TfacctError.
        """
        functions: dict[str, Any] = {
            "flops": _flops.flops,
            "params": _params.params,
            "kv": _memory.kv,
            "memory": _memory.memory,
        }
        if of not in functions:
            raise UsageError(f"of is flops, params, kv or memory, not {of!r}", nearest(of, list(functions)))
        terms = {"logits": logits, "train": train, "masked": masked, "dtype": dtype, "kv_dtype": kv_dtype}
        if of == "kv":
            terms |= {"dtype": None, "kv_dtype": kv_dtype or dtype}
        usual = {name: one.default for name, one in options_of(_flops.flops).items()}
        given = checked(Model.explain, step, opt.Step.__annotations__) | terms
        given = {name: value for name, value in given.items() if value != usual.get(name)}
        taken = options_of(functions[of])
        if unused := [name for name in given if name not in taken]:
            raise UsageError(f"{of} does not depend on {unused[0]}", "leave it out")
        found = functions[of]([self.loaded], **given)
        derived: FlopsReport | ParamsReport | KvReport | MemoryReport = answered(found.derived())
        return derived

    def evaluate(
        self, metric: MetricName | str, *, exact: bool = False, source: Size | None = None, **options: Any
    ) -> np.ndarray[Any, Any]:
        """A metric as an array over the variables: `evaluate("total_flops", ctx=np.arange(1, 10**6))`.

        Variables: ctx, tokens (default: the whole context; 1: a decode step), batch, num_key_value_heads and the axes
        of sizes; they broadcast. Other keywords, as in `flops` and `train`: logits, train, masked, dtype, kv_dtype,
        recompute, optimizer, lora, adapter_dtype, lora_dropout, weights_dtype, loss, attention. `source`: tokens of an
        encoder.

        Values are float64, within 10⁻¹⁵ of the exact ones; `exact` gives Python's ints and fractions. Arrays of dask,
        or of another library that implements numpy's protocols, give arrays of their kind, with nan at impossible
        points. Needs numpy. Raises TfacctError.
        """
        from tfacct.accounts.metrics import metric as named
        from tfacct.algebra.arrays import evaluate
        from tfacct.loading.selection import workload

        if not isinstance(metric, str):
            raise UsageError(f"evaluate takes one metric, not {metric!r}", "call it once for each")
        given: Any = {name: value for name, value in options.items() if name in opt.MetricTerms.__annotations__}
        variables = {name: value for name, value in options.items() if name not in given}
        found, terms = named(metric, [self.ledger]), opt.counting(given)
        work = workload(self.loaded, opt.request({"source": source}, logits=given.get("logits") or "all"))
        terms.check_recipe([found])
        point = terms.point(self.loaded, work, [found])
        read = {
            name: list(opt.sizes(name, each)) if isinstance(each, str) else each for name, each in variables.items()
        }
        return evaluate(found, self.architecture, point, read, exact=exact)

    def explore(self, *, vs: ModelBase | Source | None = None, **options: Unpack[ExploreOptions]) -> Page:
        """An offline HTML page with sliders that recounts every line. `vs`: a second model.

        `save` writes it, and a notebook shows it. Raises TfacctError.
        """
        others = [] if vs is None else [loaded(vs, {})]
        return Page(
            _explore.explore(
                [self.loaded, *others], **checked(Model.explore, options, ExploreOptions.__annotations__)
            ).html
        )

    def show(self) -> ShowReport:
        """Every config field with its value and source, defaults included."""
        from tfacct.reports.models import show

        return answered(show(self.loaded))

    def symbolic_ledger(self) -> LedgerReport:
        """The ledger as data, with sizes as symbols, as `models NAME --ledger` prints it."""
        from tfacct.reports.models import ledger

        return answered(ledger(self.loaded))

    def checkpoint(self, path: str | Path) -> CheckpointReport:
        """Compare the tensors in a checkpoint's file headers with this model. `.agrees` is the verdict.

        `path`: a folder, a file of safetensors or GGUF, an index, or a hub id. Raises TfacctError.
        """
        from tfacct.api.check import checkpoint

        return checkpoint(path, config=self)

    def part(self, part: Literal["text", "vision", "audio"], **sets: Any) -> Model:
        """The language model, vision encoder or audio encoder of a multimodal config.

        `sets`: config fields of that part to override. Raises TfacctError.
        """
        return Model(self.loaded.of_part(part, sets))


signed(Model.train, _train.train)
signed(Model.compare, _compare.compare, Parameter("others", Parameter.VAR_POSITIONAL))
Model.sweep.__doc__ = documented(Model.sweep.__doc__, sweep)
Model.solve.__doc__ = documented(Model.solve.__doc__, _solve.solve)
Model.explore.__doc__ = documented(Model.explore.__doc__, _explore.explore)


def load(source: Source, **sets: Any) -> Model:
    """Load a model from a preset's name, a path to a config.json, a hub id (`"Qwen/Qwen2-7B"`), or a dict of fields.

    It also accepts a config object with `to_dict()`, or a model with such a `.config`, as transformers has them.

    >>> load("gpt2-xl").flops(ctx=16384).total
    133416668364800

    Keywords override config fields, and a dict is a whole config:

    >>> load("llama-3.1-8b", num_key_value_heads=32).kv().total
    68719476736
    >>> fields = {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12}
    >>> load(fields).params().total
    124439808

    An unknown name is an error that suggests the nearest:

    >>> load("gpt2-extra")
    Traceback (most recent call last):
    tfacct.base.errors.NotFoundError: no preset or file named 'gpt2-extra'
    did you mean gpt2?

    A Path is always a path and never a hub id. Raises TfacctError with a hint.
    """
    return Model(loaded(source, sets))
