"""Model FLOPs utilization (MFU), fast enough for every step of a training loop."""

from __future__ import annotations

import warnings
from typing import Any

from tfacct.api.model_base import ModelBase, Source, loaded
from tfacct.base import units
from tfacct.loading.model import LoadedModel
from tfacct.options import request
from tfacct.timing.utilization import Convention


class Rated(ModelBase):
    """A loaded model with FLOPs per token."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__(loaded)
        self._known: dict[tuple[Any, ...], float] = {}

    def flops_per_token(
        self, *, ctx: int | str | None = None, train: bool = False, convention: Convention = "full"
    ) -> float:
        """FLOPs per token in sequences of `ctx` tokens, cached after the first call.

        >>> from tfacct import load
        >>> gpt2 = load("gpt2")
        >>> gpt2.flops_per_token(ctx=1024, train=True), gpt2.flops_per_token(ctx=1024, train=True, convention="palm")
        (854438400.0, 859885056.0)

        `convention`: `"full"` counts every product with all T × S pairs, as `flops` does; `"causal"` only the visible
        pairs; `"palm"` is 6·N + 12·L·H·Q·T (appendix B of arXiv 2204.02311), a third of it without `train`; `"6nd"`
        leaves attention out. Raises TfacctError.
        """
        key = type(ctx), ctx, train, convention
        try:
            return self._known[key]
        except (KeyError, TypeError):  # not counted yet, or nothing that could be
            found = float(_counted(self.loaded, ctx, train, convention))
        return self._known.setdefault(key, found)


def _counted(model: LoadedModel, ctx: Any, train: bool, convention: Convention) -> Any:
    from tfacct.loading.selection import workload
    from tfacct.reports.metrics import Counting
    from tfacct.timing.utilization import flops_per_token

    work = workload(model, request({"ctx": ctx}))
    return flops_per_token(Counting(train=train).point(model, work), convention)


def mfu(
    model: Rated | Source,
    *,
    tokens_per_second: float,
    peak: float | str,
    ctx: int | str | None = None,
    train: bool = True,
    convention: Convention = "palm",
) -> float:
    """Model FLOPs utilization: the FLOPs that the tokens need, divided by the peak of all devices together.

    >>> import tfacct
    >>> gpt2 = tfacct.load("gpt2")
    >>> round(tfacct.mfu(gpt2, tokens_per_second=100_000, peak="312e12", ctx=1024), 6)
    0.275604
    >>> round(tfacct.mfu(gpt2, tokens_per_second=100_000, peak="312T", ctx=1024, convention="full"), 6)
    0.273858

    `model`: a Model, or what `load` takes. `peak`: FLOP/s, as a number or a text (`"989e12"`, `"989T"`). `convention`:
    `"palm"`, 6·N + 12·L·H·Q·T per token; `"full"`, every product with all T × S pairs; `"causal"`, only visible pairs;
    `"6nd"`. Recomputation is not included. `train=False`: a forward pass. Warns above 100%. Raises TfacctError.
    """
    from tfacct.timing.utilization import above_peak, check_positive, utilization

    rated = model if isinstance(model, Rated) else Rated(loaded(model, {}))
    per_second = units.read_rate("peak", peak) if isinstance(peak, str) else peak
    check_positive("tokens_per_second", tokens_per_second)
    check_positive("peak", per_second)
    per_token = rated.flops_per_token(ctx=ctx, train=train, convention=convention)
    share = utilization(per_token, float(tokens_per_second), float(per_second))
    if (warning := above_peak(share)) is not None:
        warnings.warn(warning, stacklevel=2)
    return share
