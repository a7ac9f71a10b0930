"""Model FLOPs utilization (MFU), fast enough for every step of a training loop."""

from __future__ import annotations

import warnings
from typing import Any

from tfacct.api.model_base import ModelBase, Source, loaded
from tfacct.base import units
from tfacct.loading import devices
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
    convention: Convention = "full",
) -> float:
    """Model FLOPs utilization: the FLOPs that the tokens need, divided by the peak of all devices together.

    >>> import tfacct
    >>> gpt2 = tfacct.load("gpt2")
    >>> round(tfacct.mfu(gpt2, tokens_per_second=100_000, peak="312e12", ctx=1024), 6)
    0.273858
    >>> round(tfacct.mfu(gpt2, tokens_per_second=100_000, peak="312T", ctx=1024, convention="palm"), 6)
    0.275604

    `model`: a Model, or what `load` takes. `peak`: as for `Meter`, `"989T"` or `"8xh100"` in bf16. `convention`:
    `"full"`, every product with all T × S pairs, as `flops` counts; `"causal"`, only visible pairs; `"palm"`,
    6·N + 12·L·H·Q·T per token; `"6nd"`. Recomputation is not included. `train=False`: a forward pass. Warns above
    100%. Raises TfacctError.
    """
    from tfacct.timing.utilization import above_peak, check_positive

    rated = model if isinstance(model, Rated) else Rated(loaded(model, {}))
    check_positive("tokens_per_second", tokens_per_second)
    per_token = rated.flops_per_token(ctx=ctx, train=train, convention=convention)
    share = per_token * float(tokens_per_second) / peak_flops(peak)
    if (warning := above_peak(share)) is not None:
        warnings.warn(warning, stacklevel=2)
    return share


def peak_flops(peak: float | str, dtype: str = "bf16") -> float:
    """FLOP/s of all devices together: `989e12`, `"8x989T"`, or `"8xh100"` for the peak of devices in `dtype`."""
    from tfacct.timing.utilization import check_positive, peak_of

    if isinstance(peak, str):
        count, each = devices.number_and_name("peak", peak)
        if not each[:1].isdecimal() or devices.is_card_number(each):
            return float(count * peak_of(devices.several("peak", peak)[1], dtype)[1])
        peak = count * units.read_rate("peak", each)
    check_positive("peak", peak, hint="FLOP/s, or devices by name: 8xh100-sxm")
    return float(peak)
