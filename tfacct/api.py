"""The Python face: `load("gpt2-xl").flops(ctx=16384).total`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tfacct import sources, units
from tfacct.architecture import Transformer
from tfacct.ledger import Ledger
from tfacct.report import Report
from tfacct.reports.flops import By
from tfacct.subject import Subject, subject
from tfacct.workload import Logits, Request

if TYPE_CHECKING:
    import numpy as np


class Model:
    """A model to ask: every method answers with a Report, as the command of the same name prints it."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def __repr__(self) -> str:
        return f"<tfacct model {self.name}: {self.subject.family}>"

    @property
    def name(self) -> str:
        """The preset's or file's name."""
        return self.subject.name

    @property
    def config(self) -> Mapping[str, Any]:
        """The config as it was given, with what was set over it."""
        return self.subject.raw

    @property
    def architecture(self) -> Transformer:
        """The parts the model is put together from."""
        return self.subject.architecture

    @property
    def ledger(self) -> Ledger:
        """The lines that every count is derived from."""
        return self.subject.ledger

    def flops(
        self,
        *,
        ctx: int | None = None,
        tokens: int | None = None,
        decode: bool = False,
        batch: int = 1,
        source: int | None = None,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        by: By = "line",
        pointwise: bool = False,
    ) -> Report:
        """FLOPs of one forward pass (or training step), 2 per multiply-add, product by product.

        `ctx` is the context at the end of the step, `tokens` the new ones of it (default all), `source` the tokens that
        an encoder reads (default the model's longest). Raises TfacctError.
        """
        from tfacct.reports.flops import flops

        request = Request(ctx, tokens, decode, batch, logits, source)
        return flops([self.subject], request, train=train, masked=masked, by=by, pointwise=pointwise)

    def generate(
        self, *, ctx: int, new_tokens: int, batch: int = 1, source: int | None = None, masked: bool = False
    ) -> Report:
        """FLOPs of a whole request, 2 per multiply-add: the prefill of a prompt of `ctx` tokens, and all decode steps.

        Logits for the last position only; they are the first of the `new_tokens`. As `flops --generate` prints it.
        """
        from tfacct.reports.generate import generate

        return generate([self.subject], Request(ctx=ctx, batch=batch, source=source), new_tokens, masked=masked)

    def traffic(
        self,
        *,
        ctx: int | None = None,
        tokens: int | None = None,
        decode: bool = False,
        batch: int = 1,
        source: int | None = None,
        logits: Logits = "all",
        dtype: str | None = None,
    ) -> Report:
        """Bytes that each product reads and writes, unfused, and its FLOPs per byte. As `flops --bytes` prints it."""
        from tfacct.reports.traffic import traffic

        return traffic([self.subject], Request(ctx, tokens, decode, batch, logits, source), dtype=dtype)

    def params(self) -> Report:
        """Stored parameters, tensor by tensor, every tensor once."""
        from tfacct.reports.params import params

        return params([self.subject])

    def memory(
        self,
        *,
        ctx: int | None = None,
        batch: int = 1,
        source: int | None = None,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        fit: int | str | None = None,
    ) -> Report:
        """Bytes of weights and KV cache; `fit` (bytes, or `"24GiB"`) adds the largest context and batch that fit."""
        from tfacct.reports.memory import memory

        budget = units.read_bytes("fit", fit) if isinstance(fit, str) else fit
        return memory(
            [self.subject], Request(ctx=ctx, batch=batch, source=source), dtype=dtype, kv_dtype=kv_dtype, fit=budget
        )

    def kv(
        self, *, ctx: int | None = None, batch: int = 1, source: int | None = None, dtype: str | None = None
    ) -> Report:
        """KV-cache bytes by context: as built, as MHA and as MQA."""
        from tfacct.reports.kv import kv

        return kv([self.subject], Request(ctx=ctx, batch=batch, source=source), dtype=dtype)

    def formula(
        self,
        *,
        of: Literal["flops", "params", "kv", "train"] = "flops",
        ctx: int | None = None,
        tokens: int | None = None,
        decode: bool = False,
        batch: int = 1,
        source: int | None = None,
    ) -> Report:
        """A count in letters, line by line, with its values: FLOPs, stored parameters, or cached elements.

        `.models[0]["total"]` is the formula as sympy parses it, its letters symbols (see `reports.formula.formula`).
        """
        from tfacct.reports.formula import formula

        return formula(self.subject, Request(ctx, tokens, decode, batch, source=source), of=of)

    def diff(
        self,
        other: Model | None = None,
        *,
        ctx: int | None = None,
        to_ctx: int | None = None,
        batch: int = 1,
        source: int | None = None,
        to_batch: int | None = None,
        decode: bool = False,
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        **sets: Any,
    ) -> Report:
        """FLOPs, parameters and bytes, old → new: of this model with `sets` over its config, or of `other`."""
        from tfacct.reports._points import Terms
        from tfacct.reports.diff import diff

        new = (other or self)._with(sets) if sets else (other or self).subject
        before = Request(ctx=ctx, batch=batch, decode=decode, source=source)
        after = replace(before, ctx=ctx if to_ctx is None else to_ctx, batch=batch if to_batch is None else to_batch)
        return diff(self.subject, new, before, after, terms=Terms(dtype, kv_dtype, masked, train))

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
        """Metrics by name at every combination of contexts, batches and values of fields, exact."""
        from tfacct.reports._points import Terms
        from tfacct.reports.sweep import DEFAULT, Grid, sweep

        return sweep(
            lambda _name, fields: self._with(fields),
            [self.name],
            Grid(ctx, batch, sets),
            metrics=metrics or DEFAULT,
            request=Request(tokens=tokens, decode=decode, logits=logits, source=source),
            terms=Terms(dtype, kv_dtype, masked, train),
        )

    def solve(
        self,
        unknown: str,
        until: str,
        *,
        ctx: int | None = None,
        tokens: int | None = None,
        decode: bool = False,
        batch: int = 1,
        source: int | None = None,
        logits: Logits = "all",
        train: bool = False,
        masked: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
    ) -> Report:
        """The largest `unknown` (ctx, batch, num_key_value_heads) until `until`: `"kv_cache_bytes=weights_bytes"`."""
        from tfacct.reports._points import Terms
        from tfacct.reports.solve import solve

        request = Request(ctx, tokens, decode, batch, logits, source)
        return solve(self.subject, request, unknown=unknown, until=until, terms=Terms(dtype, kv_dtype, masked, train))

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
        """A metric by name at every element of arrays: `evaluate("total_flops", ctx=np.arange(1, 10**6))`.

        Knobs are broadcast: ctx, tokens (default all of the context), batch, num_key_value_heads, and the letters of
        sizes. In float64, within 10⁻¹⁵ of the exact value; `exact` gives Python's ints and fractions. Needs numpy.
        """
        from tfacct.arrays import evaluate
        from tfacct.metrics import metric as named
        from tfacct.reports._common import workload
        from tfacct.reports._points import Terms

        asked = named(metric, [self.ledger])
        work = workload(self.subject, Request(logits=logits, source=source))
        point = Terms(dtype, kv_dtype, masked, train).point(self.subject, work, [asked])
        return evaluate(asked, self.architecture, point, knobs, exact=exact)

    def _with(self, sets: Mapping[str, Any]) -> Subject:
        """The same config with fields set over it."""
        fields = {**self.subject.changed, **sets}
        return subject(self.name, self.subject.raw, fields, self.subject.provenance)

    def show(self) -> Report:
        """The config, field by field, with its source and what was defaulted."""
        from tfacct.reports.models import show

        return show(self.subject)

    def verify(
        self,
        *,
        ctx: int | None = None,
        tokens: int | None = None,
        decode: bool = False,
        batch: int = 1,
        source: int | None = None,
        all_layers: bool = False,
        against: str | None = None,
    ) -> Report:
        """The formulas against every witness, path by path (needs torch and fvcore); `.agrees` is the verdict."""
        from tfacct.reports.verify import verify

        request = Request(ctx, tokens, decode, batch, source=source)
        return verify([self.subject], request, all_layers=all_layers, against=against)

    def prove(self, *, by: Literal["symbols", "grid"] = "symbols") -> Report:
        """The formula is the polynomial that the reference model's count is, for all sizes (needs torch and fvcore)."""
        from tfacct.reports.prove import prove

        return prove(self.subject, by=by)

    def measure(
        self,
        *,
        ctx: int | None = None,
        batch: int = 1,
        source: int | None = None,
        decode: bool = False,
        steps: int = 5,
        train: bool = False,
        sdpa: bool = False,
        device: str = "cpu",
        dtype: str = "fp32",
    ) -> Report:
        """Run the model with random weights: seconds, FLOP/s, bytes really held (needs torch and fvcore)."""
        from tfacct.reports.measure import Plan, measure

        request = Request(ctx=ctx, batch=batch, decode=decode, source=source)
        return measure(self.subject, request, Plan(device, dtype, steps, train, sdpa))


def load(source: str | os.PathLike[str] | Mapping[str, Any], **sets: Any) -> Model:
    """A model from a preset's name, a path to a config.json, a hub id (`"Qwen/Qwen2-7B"`), or a dict of its fields.

    >>> load("gpt2-xl").flops(ctx=16384).total
    133416668364800
    >>> load("llama-3.1-8b", num_key_value_heads=32).kv().total
    68719476736

    Keywords are set over the config. A Path is a path: the hub is not asked. Raises TfacctError, which says what would
    work.
    """
    if isinstance(source, Mapping):
        return Model(subject("config", source, sets))
    if isinstance(source, str):
        return Model(sources.find(source, sets))
    return Model(sources.find(str(Path(source)), sets, ask_hub=False))
