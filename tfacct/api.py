"""The Python face: `load("gpt2-xl").flops(ctx=16384).total`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from tfacct.architecture.transformer import Transformer
from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.ledger.groups import Ledger
from tfacct.ledger.keywords import spelled_out
from tfacct.ledger.workload import Logits, Request, Step, Whole
from tfacct.loading import find as sources
from tfacct.loading.model import LoadedModel, subject
from tfacct.output.report import Report
from tfacct.reports.flops import By

if TYPE_CHECKING:
    import numpy as np

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""What `load` takes: a preset's name, a path, a hub id, or the fields of a config."""


class Model:
    """A model to ask about. Made by `load`. Each method returns the Report that the command of the same name prints."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded

    def __repr__(self) -> str:
        return f"<tfacct model {self.name}: {self.loaded.family}>"

    @property
    def name(self) -> str:
        """Name of the preset or file."""
        return self.loaded.name

    @property
    def config(self) -> Mapping[str, Any]:
        """Config as given, with the fields that were set over it."""
        return self.loaded.raw

    @property
    def architecture(self) -> Transformer:
        """Transformer of parts that the config describes."""
        return self.loaded.architecture

    @property
    def ledger(self) -> Ledger:
        """Ledger of lines that every count is derived from."""
        return self.loaded.ledger

    @spelled_out
    def flops(
        self,
        *,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        by: By = "line",
        pointwise: bool = False,
        **step: Unpack[Step],
    ) -> Report:
        """FLOPs of one forward pass or training step, 2 per multiply-add, product by product.

        >>> gpt2 = load("gpt2")
        >>> gpt2.flops(ctx=1024).total
        291648307200
        >>> gpt2.flops(ctx=1024, decode=True).total, gpt2.flops(ctx=1024, train=True).total
        (284812800, 874944921600)

        `ctx`: the context at the end of the step (default the model's longest). `tokens`: how many of it are new
        (default all). `source`: tokens that an encoder reads (default the model's longest). `masked`: only the
        query–key pairs that the mask keeps. `pointwise`: the elements of work that is no product are listed too.
        Raises TfacctError.
        """
        from tfacct.reports.flops import flops

        return flops(
            [self.loaded], Request(logits=logits, **step), train=train, masked=masked, by=by, pointwise=pointwise
        )

    @spelled_out
    def generate(self, *, new_tokens: int, masked: bool = False, **step: Unpack[Whole]) -> Report:
        """FLOPs of a whole request, 2 per multiply-add: the prefill of a prompt of `ctx` tokens, and all decode steps.

        Only the last position gets logits, and they give the first of the `new_tokens`. Printed by `flops --generate`.
        Raises TfacctError.
        """
        from tfacct.reports.generate import generate

        return generate([self.loaded], Request(**step), new_tokens, masked=masked)

    @spelled_out
    def traffic(
        self,
        *,
        logits: Logits = "all",
        dtype: str | None = None,
        **step: Unpack[Step],
    ) -> Report:
        """Bytes that each product reads and writes in unfused kernels, and its FLOPs per byte.

        Weights are stored in `dtype` (default bf16). Printed by `flops --bytes`. Raises TfacctError.
        """
        from tfacct.reports.traffic import traffic

        return traffic([self.loaded], Request(logits=logits, **step), dtype=dtype)

    def params(self) -> Report:
        """Number of stored parameters, tensor by tensor, every tensor once."""
        from tfacct.reports.params import params

        return params([self.loaded])

    @spelled_out
    def memory(
        self,
        *,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        fit: int | str | None = None,
        **step: Unpack[Whole],
    ) -> Report:
        """Bytes of weights and KV cache.

        >>> llama = load("llama-3.1-8b")
        >>> llama.memory(ctx=8192).total, llama.memory(ctx=8192, kv_dtype="fp8").total
        (17134264320, 16597393408)
        >>> llama.memory(ctx=8192, fit="24GiB").models[0]["fit"]["largest_context"]
        74075

        `fit` (bytes, or `"24GiB"`) adds the largest context and batch that fit. Raises TfacctError.
        """
        from tfacct.reports.memory import memory

        budget = units.read_bytes("fit", fit) if isinstance(fit, str) else fit
        return memory([self.loaded], Request(**step), dtype=dtype, kv_dtype=kv_dtype, fit=budget)

    @spelled_out
    def kv(self, *, dtype: str | None = None, **step: Unpack[Whole]) -> Report:
        """Bytes of the KV cache by context: as built, with a key/value head for each query head, and with one for all.

        Raises TfacctError.
        """
        from tfacct.reports.kv import kv

        return kv([self.loaded], Request(**step), dtype=dtype)

    @spelled_out
    def formula(
        self,
        *,
        of: Literal["flops", "params", "kv", "train"] = "flops",
        **step: Unpack[Step],
    ) -> Report:
        """Formula of a count, line by line, with its values: FLOPs, stored parameters, or cached elements.

        `.models[0]["total"]` is the formula as sympy parses it, its letters symbols (see `reports.formula.formula`).
        Raises TfacctError.
        """
        from tfacct.reports.formula import formula

        return formula(self.loaded, Request(**step), of=of)

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
    ) -> Report:
        """Derivation of a total: the letters with their values, the product of each line, the sums.

        >>> load("gpt2").explain("kv", ctx=1024).derivation.takeaway
        'Each token of context adds 36,864 bytes for each sequence.'

        The report is that of the method of this name; `to_latex` writes the derivation. Raises TfacctError.
        """
        from tfacct.reports.explain import explain

        request = Request(logits=logits, **step)
        return explain(self.loaded, request, of, train=train, masked=masked, dtype=dtype, kv_dtype=kv_dtype)

    def diff(
        self,
        other: Model | Source | None = None,
        *,
        ctx: int | None = None,
        tokens: int | None = None,
        decode: bool = False,
        batch: int = 1,
        source: int | None = None,
        to_ctx: int | None = None,
        to_tokens: int | None = None,
        to_batch: int | None = None,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        **sets: Any,
    ) -> Report:
        """FLOPs, parameters and bytes before and after a change: of fields (`sets`), context or batch, or to `other`.

        `other`: a Model, or what `load` takes. Raises TfacctError.
        """
        from tfacct.reports.counting import Counting
        from tfacct.reports.diff import diff

        second = self if other is None else other if isinstance(other, Model) else load(other)
        new = second._with(sets) if sets else second.loaded
        before = Request(ctx, tokens, decode, batch, logits, source)
        to = {"ctx": to_ctx, "tokens": to_tokens, "batch": to_batch}
        changed: dict[str, Any] = {name: size for name, size in to.items() if size is not None}
        after = replace(before, **changed)
        return diff(self.loaded, new, before, after, terms=Counting(dtype, kv_dtype, masked, train))

    def sweep(
        self,
        *metrics: str,
        ctx: Collection[int] | None = None,
        batch: Collection[int] = (1,),
        source: int | None = None,
        tokens: int | None = None,
        decode: bool = False,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        **sets: Sequence[Any],
    ) -> Report:
        """Metrics by name at every combination of contexts, batches and values of fields, in exact numbers.

        Raises TfacctError, also for more than 20,000 points.
        """
        from tfacct.reports.counting import Counting
        from tfacct.reports.grid import Grid
        from tfacct.reports.sweep import DEFAULT, sweep

        return sweep(
            lambda _name, fields: self._with(fields),
            [self.name],
            Grid(ctx, batch, sets),
            metrics=metrics or DEFAULT,
            request=Request(tokens=tokens, decode=decode, logits=logits, source=source),
            terms=Counting(dtype, kv_dtype, masked, train),
        )

    @spelled_out
    def solve(
        self,
        unknown: str,
        until: str,
        *,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        **step: Unpack[Step],
    ) -> Report:
        """Largest `unknown` (ctx, batch or num_key_value_heads) up to which an equation is not yet overtaken.

        >>> load("llama-3.1-8b").solve("ctx", "kv_cache_bytes=weights_bytes").total
        122532

        Raises TfacctError if there is no solution, or more than one.
        """
        from tfacct.reports.counting import Counting
        from tfacct.reports.solve import solve

        request = Request(logits=logits, **step)
        return solve(self.loaded, request, unknown=unknown, until=until, terms=Counting(dtype, kv_dtype, masked, train))

    def evaluate(
        self,
        metric: str,
        *,
        exact: bool = False,
        masked: bool = False,
        train: bool = False,
        logits: Logits = "all",
        source: int | None = None,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        **knobs: Any,
    ) -> np.ndarray[Any, Any]:
        """Array of a metric at every element of the knobs: `evaluate("total_flops", ctx=np.arange(1, 10**6))`.

        Knobs are broadcast against each other: ctx, tokens (default all of the context), batch, num_key_value_heads,
        and the letters of sizes. Values are float64, within 10⁻¹⁵ of the exact ones; `exact` gives Python's ints and
        fractions. Needs numpy. Raises TfacctError.
        """
        from tfacct.accounts.metrics import metric as named
        from tfacct.algebra.arrays import evaluate
        from tfacct.reports.counting import Counting, workload

        asked = named(metric, [self.ledger])
        work = workload(self.loaded, Request(logits=logits, source=source))
        point = Counting(dtype, kv_dtype, masked, train).point(self.loaded, work, [asked])
        return evaluate(asked, self.architecture, point, knobs, exact=exact)

    def _with(self, sets: Mapping[str, Any]) -> LoadedModel:
        """Model of the same config with fields set over it."""
        return self.loaded.with_fields({**self.loaded.changed, **sets})

    def show(self) -> Report:
        """Fields of the config, one by one, with their source and those that took a default."""
        from tfacct.reports.models import show

        return show(self.loaded)

    @spelled_out
    def verify(
        self,
        *,
        all_layers: bool = False,
        against: str | None = None,
        **step: Unpack[Step],
    ) -> Report:
        """Comparison of the formulas with every witness, path by path; `.agrees` is the verdict.

        `all_layers` runs every block instead of one of each kind; `against="transformers"` asks the class too. Needs
        torch and fvcore. Raises TfacctError.
        """
        from tfacct.reports.verify import verify

        return verify([self.loaded], Request(**step), all_layers=all_layers, against=against)

    def prove(self, *, by: Literal["symbols", "grid"] = "symbols") -> Report:
        """Proof that the formula is the same polynomial as the reference model's count, for all sizes.

        Needs torch, fvcore and sympy. Raises TfacctError.
        """
        from tfacct.reports.prove import prove

        return prove(self.loaded, by=by)

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
    ) -> Report:
        """Run the model with random weights: seconds, FLOP/s and bytes really held.

        Needs torch and fvcore. Raises TfacctError.
        """
        from tfacct.reports.measure import Plan, measure

        return measure(self.loaded, Request(decode=decode, **step), Plan(device, dtype, steps, train, sdpa))


def load(source: Source, **sets: Any) -> Model:
    """Return the model of a preset's name, a path to a config.json, a hub id (`"Qwen/Qwen2-7B"`), or a dict of fields.

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
    if isinstance(source, Mapping):
        return Model(subject("config", source, sets))
    if isinstance(source, str):
        return Model(sources.find(source, sets))
    if not isinstance(source, os.PathLike):
        raise UsageError(f"a model is named, or given as a path or a dict of its fields, not {cut(repr(source))}")
    return Model(sources.find(str(Path(source)), sets, ask_hub=False))
